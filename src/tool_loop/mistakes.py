"""The usual slips in what an agent is given, each with what to write instead.

Python would find them too: in the middle of a run, in a file of ours, or never. An option that nobody
reads and a coroutine that nobody awaits look like a run that went well. Raises `UsageError` only, and
only for what cannot work: what has the methods of a port is one, whatever it is called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from .errors import UsageError
from .options import ResumeOptions, RunOptions
from .toolbox.registry import Tool, ToolRegistry

_Slip: TypeAlias = tuple[bool, str]

_NOT_AWAITED: Final = (
    "on_event is called and not awaited, so it cannot be `async def`: write a plain function. What has to wait "
    "goes in `async with agent.stream(...) as events: async for event in events:`"
)


def check_agent(llm: Any, tools: Any, given: Mapping[str, Any]) -> None:
    """What `Agent(llm, tools, ...)` was given."""
    _refuse(_about_model(llm))
    _refuse(_about_tools(tools, given["approve"]))
    check_options(given)
    retry, prices = given["retry"], given["prices"]
    _refuse(
        *_about_system(given["system"]),
        (
            retry is not None and not hasattr(retry, "patience"),
            f"retry is a RetryPolicy (or None), as in retry=RetryPolicy(attempts=3); got {_shown(retry)}",
        ),
        (
            prices is not None and not hasattr(prices, "cost"),
            f"prices is GenaiPrices() or a PriceTable; got {_shown(prices)}",
        ),
        *_about_reviewer(given["reviewer"]),
        *_about_journal(given["journal"]),
    )


def check_options(given: Mapping[str, Any]) -> None:
    """What an agent and a single run can both be given."""
    watch, limits = given.get("on_event"), given.get("limits")
    _refuse(
        (
            watch is not None and not callable(watch),
            f"on_event is a function of one event, as in on_event=print; got {_shown(watch)}",
        ),
        (
            _is_async(watch),
            _NOT_AWAITED,
        ),
        (
            limits is not None and not hasattr(limits, "steps"),
            f"limits is a Limits, as in limits={_as_limits(limits)}; got {_shown(limits)}",
        ),
    )


def check_run(question: Any, options: Mapping[str, Any]) -> None:
    """What `run`, `stream` and `run_sync` were given."""
    _refuse(
        (
            not isinstance(question, str),
            f"the question is text; got {_shown(question)}. Earlier turns are in the journal: continue_run=run_id",
        ),
    )
    check_known(options, RunOptions, "run")
    check_options(options)
    _refuse(*_about_system(options.get("system")))


def check_resume(options: Mapping[str, Any]) -> None:
    check_known(options, ResumeOptions, "resume")
    check_options(options)


def check_known(options: Mapping[str, Any], known: Any, door: str) -> None:
    """An option that there is not would be passed over in silence: `max_steps=3` would limit nothing."""
    names = sorted(known.__annotations__.keys() | _inherited(known))
    for name in options:
        if name not in names:
            from difflib import get_close_matches

            near = get_close_matches(name, names, n=1)
            hint = "limits=Limits(steps=...)" if "step" in name else f"{near[0]}=..." if near else ""
            did = f" Did you mean {hint}?" if hint else ""
            raise UsageError(f"{door} has no option {name!r}.{did} There are: answer, {', '.join(names)}")


def _inherited(known: Any) -> set[str]:
    return {name for base in getattr(known, "__orig_bases__", ()) for name in getattr(base, "__annotations__", ())}


def _about_model(llm: Any) -> _Slip:
    if isinstance(llm, type) and hasattr(llm, "reply"):
        return True, f"the model is an instance: Agent({llm.__name__}(...), tools)"
    what = "the first argument is the model: Agent(OpenAIChat('gpt-5-mini'), tools), or its name"
    return not hasattr(llm, "reply"), f"{what}; got {_shown(llm)}"


def _about_tools(tools: Any, approve: Any) -> _Slip:
    if isinstance(tools, str):
        return True, f"tools is a list of functions; got the text {tools[:80]!r}. A model is the first argument only"
    if isinstance(tools, Tool) or (callable(tools) and not isinstance(tools, Iterable) and not hasattr(tools, "specs")):
        name = getattr(tools, "name", None) or getattr(tools, "__name__", "my_tool")
        return True, f"tools is a list, also of one: Agent(llm, [{name}])"
    if not isinstance(tools, Iterable) and not (hasattr(tools, "specs") and hasattr(tools, "run")):
        return True, f"tools is a list of functions, or has the methods of `Tools`; got {_shown(tools)}"
    own = isinstance(tools, ToolRegistry) or not isinstance(tools, Iterable)
    text = "approve belongs to what holds the tools: ToolRegistry(tools, approve=...); beside it nobody would ask"
    return own and approve != "never", text


def _about_system(system: Any) -> list[_Slip]:
    wrong = system is not None and not isinstance(system, str) and not callable(system)
    return [
        (wrong, f"system is the text of the system prompt, or a function of deps; got {_shown(system)}"),
        (_is_async(system), "system is called and not awaited: make it a plain function"),
    ]


def _about_reviewer(reviewer: Any) -> list[_Slip]:
    how = "async def reviewer(pending): return ApprovalDecided(pending.call.id, allowed=True)"
    return [
        (reviewer is not None and not callable(reviewer), f"a reviewer is a function: {how}; got {_shown(reviewer)}")
    ]


def _about_journal(journal: Any) -> list[_Slip]:
    if isinstance(journal, str) or hasattr(journal, "__fspath__"):
        return [(True, f'journal="..." names no journal: journal=SqliteJournal({str(journal)!r})')]
    wrong = journal is not None and not (hasattr(journal, "open") and hasattr(journal, "events"))
    return [(wrong or isinstance(journal, type), f"journal is a SqliteJournal(path); got {_shown(journal)}")]


def _as_limits(limits: Any) -> str:
    if isinstance(limits, Mapping):
        return f"Limits({', '.join(f'{name}={value!r}' for name, value in limits.items())})"
    return f"Limits(steps={limits})" if isinstance(limits, int) else "Limits(steps=20)"


def _is_async(func: Callable[..., Any] | None) -> bool:
    return inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(getattr(func, "__call__", None))  # noqa: B004


def _shown(value: Any) -> str:
    """What somebody gave, shortly, and never a key: text is not shown, it may be one."""
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def _refuse(*slips: _Slip) -> None:
    for wrong, text in slips:
        if wrong:
            raise UsageError(text)
