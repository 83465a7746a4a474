"""What the scorecard tries an agent on: its own loop, tools and limits, and a model that is ours.

The model is a small one behind a real HTTP server: it asks for one call, reads the result and
answers, and asks again when it read a failure. The agent keeps its tools (those that change something
are replaced by stand-ins that run nothing), its limits, its prompts, and whatever it has put around
its model: retrying, prices, traces. Knows nothing about faults.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from tool_loop.api import Agent
from tool_loop.errors import UsageError
from tool_loop.events import ApprovalDecided, ModelReplied, ToolCall, ToolReturned
from tool_loop.llm.chat.model import OpenAIChat
from tool_loop.llm.prices import Price, PriceTable
from tool_loop.llm.retry import Retrying
from tool_loop.llm.scripted import ScriptedLLM
from tool_loop.ports import behind, rebuilt
from tool_loop.testing.workspace import Entry, Fifo, File, workspace
from tool_loop.toolbox.registry import Tool, ToolRegistry, tool
from tool_loop.toolbox.wording import example
from tool_loop.transcript import SUMMARISE

if TYPE_CHECKING:
    from tool_loop.ports import LLM, Effect, PendingApproval, Tools
    from tool_loop.testing.faults.schedule import Faults
    from tool_loop.testing.faults.wire_model import Asked

Role: TypeAlias = Literal["reads", "async", "once", "gated"]

KEY: Final = "sk-scorecard-0123456789abcdef"
QUESTION: Final = "What do the notes say?"
NO_CALL: Final = ToolCall("", "")  # what the model asks for when there are no tools
# A model that got this many failures in a row says so and stops asking.
_PATIENCE: Final = 4


@dataclass(frozen=True)
class Bench:
    """An agent and calls that its tools take, by what they are for: of a tool that "reads", of one that
    is "async", of one that must run "once", of one that is "gated" by an approval; those it has.
    `own` is False for the agent that this package brings along.
    """

    agent: Agent
    calls: Mapping[Role, ToolCall]
    own: bool = True

    def effect(self, name: str) -> Effect:
        return self.agent.tools.effect(name) or "once"

    def effects(self) -> dict[str, str]:
        return {spec.name: self.effect(spec.name) for spec in self.agent.tools.specs()}

    def at(self, url: str, faults: Faults) -> Agent:
        """The agent with its model at this address, and these faults in its tools."""
        twin = copy.copy(self.agent)
        model = OpenAIChat("scorecard", f"{url}/v1", KEY, now=faults.clock.now)
        twin.llm = rebuilt(self.agent.llm, lambda _: model)
        _steady(twin.llm)
        twin.tools = faults.tools(self.agent.tools)
        twin.reviewer = allow
        return twin


def _steady(llm: LLM) -> None:
    """Waits of a middling length in the place of random ones, so that the scorecard is the same each time."""
    for model in behind(llm):
        if isinstance(model, Retrying):
            model.random = lambda: 0.5


async def allow(shown: PendingApproval) -> ApprovalDecided:
    """A person who agrees to everything: nothing that is gated here has an effect."""
    return ApprovalDecided(shown.call.id, allowed=True, by="scorecard")


# --- the model ------------------------------------------------------------------------------------


def reading(call: ToolCall) -> Callable[[Asked], ModelReplied]:
    """A model that makes this call, and answers when it has read a result that is no failure."""

    def say(asked: Asked) -> ModelReplied:
        results = asked.results()
        if asked.last.get("content") == SUMMARISE:
            return ModelReplied("The notes were being read.")
        if not asked.may_call or call is NO_CALL:
            return ModelReplied("That is what I have found so far.")
        settled = asked.last.get("role") == "tool" and not failed(results[-1])
        if settled or len(results) >= _PATIENCE:
            return ModelReplied("The notes say: buy milk.")
        return ModelReplied("Let me look.", (replace(call, id=f"call_{asked.step}"),), "tool_calls")

    return say


def wandering(asked: Asked) -> ModelReplied:
    """A model that never comes to an end: each time it asks for something else, which is not there."""
    if not asked.may_call:
        return ModelReplied("That is what I have found so far.")
    return ModelReplied("", (ToolCall(f"call_{asked.step}", f"tool_{asked.step}"),), "tool_calls")


def obsessed(call: ToolCall) -> Callable[[Asked], ModelReplied]:
    """A model that makes the same call for ever, and says nothing else."""

    def say(asked: Asked) -> ModelReplied:
        if not asked.may_call:
            return ModelReplied("It is always the same.")
        return ModelReplied("", (replace(call, id=f"call_{asked.step}"),), "tool_calls")

    return say


def insisting(call: ToolCall) -> Callable[[Asked], ModelReplied]:
    """A model that asks for everything twice, to be sure."""

    def say(asked: Asked) -> ModelReplied:
        if not asked.may_call or len(asked.results()) > 1:
            return ModelReplied("The notes say: buy milk.")
        return ModelReplied("", (replace(call, id=f"call_{asked.step}"),), "tool_calls")

    return say


def failed(result: str) -> bool:
    """Whether it is worth another try: what a person refused is not."""
    return result.startswith('{"error":') and '"denied"' not in result[:30]


# --- the agent ------------------------------------------------------------------------------------

_FILES: Final[dict[str, Entry]] = {
    "notes.md": "# Notes\n\nbuy milk\n",
    "lib/store.py": 'class Store:\n    """Keeps jobs."""\n',
    "photo.png": b"\x89PNG\r\n\x1a\n\x00\x00\xff\xfe",
    "pipe": Fifo(),
    "huge.log": File("2026-01-01 all is well\n" * 2_000, size=50_000_000),
}


@contextmanager
def house_bench() -> Iterator[Bench]:
    """The package's own tools in a folder of difficult files, and three that have effects."""
    from tool_loop.tools import workspace_tools
    from tool_loop.tools.search import search_engine

    with workspace(_FILES) as root:
        # Always the same engine: each explains a broken pattern in its own words.
        files = workspace_tools(root, engine=search_engine({"TOOL_LOOP_RG": "none"}))
        tools = [*files, _look_up, _pay, _publish]
        # Prices, so that money can run out; the model of a fault server has this name.
        prices = PriceTable({"fault-model": Price(1.0, 2.0)})
        agent = Agent(ScriptedLLM(), tools, prices=prices)
        yield Bench(agent, _HOUSE_CALLS, own=False)


_HOUSE_CALLS: Final[Mapping[Role, ToolCall]] = {
    "reads": ToolCall("", "read_file", '{"path": "notes.md"}'),
    "async": ToolCall("", "look_up", '{"word": "milk"}'),
    "once": ToolCall("", "pay", '{"amount": 5}'),
    "gated": ToolCall("", "publish", '{"text": "hello"}'),
}


@tool(name="look_up", effect="read", timeout_seconds=5)
async def _look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: a word"


@tool(name="pay", effect="once")
async def _pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@tool(name="publish", effect="once", needs_approval=True)
async def _publish(text: str) -> str:
    """Publish a text."""
    return f"published {text}"


def own_bench(agent: Agent, call: ToolCall | None = None, *, run_tools: bool = True) -> Bench:
    """A bench for an agent of the caller's. `call` is one that its tools take, made up where not given.

    With `run_tools`, tools that are declared to read are run, once for each call; no other tool is.
    Raises UsageError when `call` is one that its tools refuse.
    """
    twin = copy.copy(agent)
    twin.tools = _harmless(agent.tools, run_tools=run_tools)
    if call is not None and (refused := twin.tools.refuse(call)) is not None:
        raise UsageError(f"the tools refuse the call {call.name} {call.arguments}: {refused.content}")
    calls = _made_up(twin.tools, call)
    if not calls and twin.tools.specs():
        raise UsageError("none of the tools takes a call that could be made up; give one, as in --call 'name={...}'")
    return Bench(twin, calls)


def _made_up(tools: Tools, given: ToolCall | None) -> dict[Role, ToolCall]:
    """Calls that the tools take. The best to read with is one that has fields, and nobody is asked about."""
    examples = [ToolCall("", s.name, json.dumps(example(s.parameters, s.parameters))) for s in tools.specs()]
    taken = [call for call in examples if tools.refuse(call) is None and not tools.polls(call.name)]
    reads = sorted(taken, key=lambda call: (tools.effect(call.name) != "read", call.arguments == "{}"))
    open_ones = [call for call in reads if not tools.needs_approval(call)]
    once = [call for call in open_ones if tools.effect(call.name) not in ("read", "idempotent")]
    gated = [call for call in taken if tools.needs_approval(call)]
    found: dict[Role, ToolCall] = {}
    roles: tuple[tuple[Role, list[ToolCall]], ...] = (
        ("reads", open_ones or reads),
        ("once", once),
        ("gated", gated),
    )
    for role, calls in roles:
        if calls:
            found[role] = calls[0]
    if given is not None:
        found["reads"] = given
    if "reads" in found:
        found["async"] = found["reads"]
    return found


def _harmless(tools: Tools, *, run_tools: bool) -> Tools:
    if not isinstance(tools, ToolRegistry):
        return cast("Tools", _Harmless(tools))
    return tools.with_tools(_stand_in(item, runs=run_tools and item.effect == "read") for item in tools)


def _stand_in(item: Tool, *, runs: bool) -> Tool:
    """The tool as the model sees it; its function runs once for each call at most, or never."""
    func, kept = item.func, dict[str, Any]()

    def plain(**arguments: Any) -> Any:
        return _once(kept, arguments, lambda: func(**arguments)) if runs else "done"

    async def coroutine(**arguments: Any) -> Any:
        key = _key(arguments)
        if runs and key not in kept:
            kept[key] = await func(**arguments)
        return kept[key] if runs else "done"

    return item.with_func(coroutine if item.is_async else plain, probe=False)


def _once(kept: dict[str, Any], arguments: dict[str, Any], real: Callable[[], Any]) -> Any:
    key = _key(arguments)
    if key not in kept:
        kept[key] = real()
    return kept[key]


def _key(arguments: dict[str, Any]) -> str:
    # A ToolContext is another one for each call, and its text too.
    return repr({name: value for name, value in arguments.items() if type(value).__name__ != "ToolContext"})


class _Harmless:
    """A `Tools` port of the caller's own that decides everything and runs nothing."""

    def __init__(self, tools: Tools) -> None:
        self.tools = tools

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tools, name)

    async def run(self, call: ToolCall, **_given: Any) -> ToolReturned:
        if (refused := self.tools.refuse(call)) is not None:
            return refused
        return ToolReturned(call.id, "done")

    async def probe(self, _call: ToolCall, **_given: Any) -> None:
        return None
