"""Turns whatever a tool does into one `ToolReturned`: success, bad arguments, crash, timeout.

Knows nothing about models, journals or the order of calls; the loop decides those.

    what happens                                  what the model reads
    the tool returns                              its text, or compact JSON, cut to a size
    it returns a generator, a map, a view         what is in there, drawn where the tool runs
    it returns what nothing can be shown of       tool_crashed; the log tells the author what to return
    no tool has that name                         unknown_tool: the nearest name, and all of them
    the arguments are not one JSON object         bad_json: where it breaks, and the likely cure
    a field is missing, mistyped, unknown         invalid_arguments: each field, by its path
    the tool raises ToolError                     the author's own kind, message and hint
    it takes longer than it may                   timed_out: and whether it may still be running
    it raises anything else, SystemExit too       tool_crashed: the type only, the text is withheld

A failure is data because the model can mend it: of a small real model's calls with a wrong path 11 of
11 were mended when the hint carried the answer, and 0 of 11 when it only said where to look. So nothing
a tool does raises here. Two things pass, which are not the tool's: a cancel from outside, and Ctrl-C.

What a call costs is in this file and `call.py`; the words for each failure, the schemas and the
signatures are in the files they import, and are not touched while all goes well.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tool_loop.errors import ToolError, UsageError
from tool_loop.events import Event, Signal, ToolCall, ToolReturned
from tool_loop.ports import Effect, Emit, Preview, Tools, ToolSpec

from .call import as_error, as_text, at_work, canonical, checked, parse_arguments, perform, ready
from .conditions import specs_here
from .failures import failure, kind_of, unknown_tool
from .progress import Progress
from .results import ToolResult
from .signature import is_async
from .tool import NotRun, Tool, ToolContext, as_tool, context_of, probe_arguments, tool

if TYPE_CHECKING:
    from .drawn import Later

__all__ = [
    "Approve", "NotRun", "Tool", "ToolContext", "ToolRegistry", "ToolResult", "canonical", "parse_arguments", "tool",
]  # fmt: skip

# Which calls need a person: none, all that may change something, all, or what a function says.
Approve: TypeAlias = Literal["never", "effects", "always"] | Callable[[ToolCall, Tool], bool]

logger = logging.getLogger(__name__)

# Long enough for the message of any failure that happens before a tool and its limit are known.
_USUAL_CHARS = 8_000


def _ignore(_said: Event | Signal) -> None:
    """The subscriber of a call that nobody watches."""


class ToolRegistry:
    """The tools of a run, by name. Usable alone: `await registry.run(ToolCall("1", "grep", '{...}'))`.

    Functions among `tools` become tools. `approve` says which calls need a person where the tool
    itself does not say; "effects" means all but those declared "read". `scope` becomes part of what
    an approval is bound to, as the tool's own scope and the name of the policy are. Raises UsageError
    for two tools of one name and for anything that is not a tool.
    """

    def __init__(
        self, tools: Iterable[Tool | Callable[..., Any]] = (), *, approve: Approve = "never", scope: str = ""
    ) -> None:
        if not isinstance(tools, Iterable):
            raise UsageError(f"ToolRegistry takes a list of tools, as in ToolRegistry([my_tool]), got {tools!r}")
        if is_async(approve) if callable(approve) else approve not in ("never", "effects", "always"):
            raise UsageError(f'approve must be "never", "effects", "always" or a plain function, got {approve!r}')
        # Kept as a mapping in the order they were given. The tools are the first bytes of every request,
        # and a provider's cache of the prompt holds only as long as those bytes stay the same.
        self.approve = approve
        self.scope = scope
        self._tools: dict[str, Tool] = {}
        self._specs: tuple[ToolSpec, ...] | None = None
        self._digests: dict[str, Any] = {}
        for item in tools:
            self._add(item if isinstance(item, Tool) else as_tool(item))
        self._asks_people = approve != "never" or any(item.needs_approval for item in self)

    def _add(self, item: Tool) -> None:
        if item.name in self._tools:
            raise UsageError(f"two tools are called {item.name!r}; rename one with name=...")
        if item.unbound:
            raise UsageError(f"tool {item.name!r} is a method; take it from an instance: instance.{item.name}")
        self._tools[item.name] = item

    # --- what there is ----------------------------------------------------------------------------

    def with_tools(self, tools: Iterable[Tool]) -> ToolRegistry:
        """Other tools under the policy of this registry."""
        return ToolRegistry(tools, approve=self.approve, scope=self.scope)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def specs(self) -> tuple[ToolSpec, ...]:
        """All tools as the model sees them, always in the order they were given.

        Raises UsageError when no schema can be made of a signature, or when a hand-written one is not
        valid: the first request asks for this, so it comes out before a cent is spent.
        """
        # Not when it is made: a program that only prints its help must not wait for pydantic. Ours are tested.
        if self._specs is None:
            for item in self._tools.values():
                if item.parameters is not None and not _is_ours(item.func):
                    ready(item)
            self._specs = tuple(item.spec for item in self._tools.values())
        if all(item.when is None for item in self._tools.values()):
            return self._specs
        return specs_here(self, self._tools.values())

    def schemas(self) -> list[dict[str, Any]]:
        """The tools in the form chat completions take; a copy, the caller's to change."""
        return [
            {
                "type": "function",
                "function": {
                    "name": spec.name,
                    "description": spec.description,
                    "parameters": copy.deepcopy(dict(spec.parameters)),
                },
            }
            for spec in self.specs()
        ]

    def effect(self, name: str) -> Effect | None:
        """The declared effect class. None for what declares none, and for what does not exist: the loop
        treats it as `once`, the most dangerous, because nobody has said that it is not.
        """
        item = self._tools.get(name)
        return None if item is None else item.effect

    def polls(self, name: str) -> bool:
        """Whether asking again for the same thing is what the tool is for, and no sign of going in circles."""
        item = self._tools.get(name)
        return item is not None and item.polling

    # --- approval ---------------------------------------------------------------------------------

    def needs_approval(self, call: ToolCall) -> bool:
        """Whether a person has to allow this call. A policy that fails counts as yes.

        The tool's own `needs_approval` decides before the registry's policy. A call that cannot run
        at all (see `refuse`) may get either answer.
        """
        item = self._tools.get(call.name)
        if item is None:
            return False  # nothing will run, so there is nothing to allow
        try:
            if callable(item.needs_approval):
                return bool(item.needs_approval(checked(item, call.arguments)))
            if item.needs_approval is not None:
                return item.needs_approval
            if callable(self.approve):
                return bool(self.approve(call, item))
        except ToolError:
            return True  # the arguments do not fit, so the function of them cannot be asked
        except Exception:
            # A policy is a lock, and a lock that is broken has to be shut: a KeyError in a line such as
            # `lambda a: a["amount"] > 100` must not let the call through.
            logger.exception("the approval policy for tool %s failed, so a person is asked", item.name)
            return True
        return self.approve == "always" or (self.approve == "effects" and item.effect != "read")

    def preview(self, call: ToolCall) -> Preview | None:
        """What the call would do; None where its tool cannot say, or the call cannot run.

        The tool's own code, so a failure in it is logged, and a person decides without a preview.
        """
        item = self._tools.get(call.name)
        if item is None or item.preview is None:
            return None
        try:
            return item.preview(**checked(item, call.arguments))
        except ToolError:
            return None  # the call will fail in the same way, and its result will say why
        except Exception:
            logger.exception("the preview of tool %s failed", item.name)
            return None

    def fingerprint(self, call: ToolCall, preview: Preview | None = None) -> str:
        """A digest of the tool's name and definition, the arguments, the scopes, the policy and the mark.

        An approval holds for what was shown to the person and for nothing else. Changed arguments have
        another digest, and so has a tool that was changed since (a new description may promise other
        things than the one that was approved), or that now works in another directory, or on another
        state of a file: `preview` is what was shown, asked for here when it is not given. Spaces and the
        order of keys do not count, since a model that is asked again spells them as it likes.
        """
        base = self._digests.get(call.name)
        if base is None:
            item = self._tools.get(call.name)
            what = None if item is None else [item.description, item.spec.parameters, item.effect, item.scope]
            policy = "function" if callable(self.approve) else self.approve
            base = sha256(json.dumps([self.scope, policy, call.name, what], sort_keys=True).encode())
            self._digests[call.name] = base
        digest = base.copy()
        # The first half is compact JSON and has no raw line break in it, so that this one parts the two
        # halves without doubt: no arguments can look like the definition of another tool.
        digest.update(b"\n" + canonical(call.arguments).encode("utf-8", "surrogatepass"))
        if (seen := preview or self.preview(call)) is not None and seen.mark:
            digest.update(b"\n" + seen.mark.encode("utf-8", "surrogatepass"))
        return str(digest.hexdigest())

    # --- running ----------------------------------------------------------------------------------

    def refuse(self, call: ToolCall) -> ToolReturned | None:
        """The result of a call that cannot run (unknown tool, bad arguments), else None.

        Asked before a person is: nobody should have to decide about a call that cannot happen.
        """
        try:
            checked(self._find(call.name), call.arguments)
        except Exception as raised:
            error = as_error(raised, self._tools.get(call.name))
            return ToolReturned(call.id, failure(error, _USUAL_CHARS), kind_of(error))
        return None

    async def run(
        self, call: ToolCall, *, key: str = "", emit: Emit = _ignore, deadline: float | None = None, mark: str = ""
    ) -> ToolReturned:
        """Run one call and return whatever became of it; never raises but for cancellation.

        Calls may run side by side; one that fails, hangs or crashes does not disturb the others. Each
        ends at its tool's own limit or at `deadline` (of the loop's clock), whichever comes first. A
        coroutine is stopped then. A plain function cannot be: it is no longer waited for, and the result
        says that it may still be running.

        The arguments are checked here again, although `refuse` has done so: what has not been checked in
        this very call does not run, whoever calls.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        limit, untrusted, progress, more = _USUAL_CHARS, False, None, ToolResult("")
        item = self._tools.get(call.name)
        try:
            item = self._find(call.name)
            arguments = checked(item, call.arguments)
            # From here on the words may be the tool's own, also those of a failure.
            limit, untrusted = item.max_result_chars, self._is_untrusted(item)
            if item.context_name is not None:
                progress = Progress(call.id, emit, loop)
                arguments[item.context_name] = context_of(call.id, key, mark, progress)
            # What may change something is done to its end, however much of its result can be shown.
            convert = partial(as_text, limit=limit, drain=item.effect != "read")
            ends = _ends(item, started, deadline)
            noted = "" if item.effect in ("read", "idempotent") else key
            found = await perform(item.func, arguments, convert, ends, in_task=item.is_async, key=noted)
            more = found if isinstance(found, ToolResult) else ToolResult(found)
            content, kind = more.content, None
        except Exception as raised:
            # The one place where what a tool raises becomes a result. A cancel is no Exception and goes on.
            error = as_error(raised, item, started, deadline)
            content, kind = failure(error, limit), kind_of(error)
            untrusted = untrusted or error.untrusted
        finally:
            # A thread that was given up on may still speak, to a run that has gone on or is over.
            if progress is not None:
                progress.open = False
        seconds, untrusted = loop.time() - started, untrusted or more.untrusted
        return ToolReturned(call.id, content, kind, seconds, untrusted=untrusted, tokens=more.tokens, cost=more.cost)

    async def probe(self, call: ToolCall, *, key: str = "", mark: str = "") -> ToolReturned | bool | None:
        """What became of a call that was started and interrupted: its result, False (not run), or None.

        A probe looks, it does not act, so it may be asked as often as one likes. One that fails or takes
        too long cannot tell, nor can any while the call still runs here: then a person or the model decides.
        """
        item = self._tools.get(call.name)
        if item is None or item.probe_func is None or key in at_work:
            return None
        started = asyncio.get_running_loop().time()
        try:
            func = item.probe_func
            arguments = probe_arguments(func, checked(item, call.arguments), call.id, key, mark)
            convert = partial(_as_finding, limit=item.max_result_chars)
            content = await perform(func, arguments, convert, _ends(item, started, None), in_task=is_async(func))
        except Exception:
            # Not knowing is an answer here, and the safe one: nothing is run on a guess.
            logger.exception("the probe of tool %s failed", item.name)
            return None
        seconds = asyncio.get_running_loop().time() - started
        if isinstance(content, str):
            return ToolReturned(call.id, content, None, seconds, untrusted=self._is_untrusted(item))
        return None if content is None else False

    def _is_untrusted(self, item: Tool) -> bool:
        """Whether its results may hold the words of strangers. Where people give permissions, what does
        not say counts as if: a permission must not be used by whoever wrote what the model reads."""
        return self._asks_people if item.untrusted is None else item.untrusted

    def _find(self, name: str) -> Tool:
        item = self._tools.get(name)
        if item is None or (item.when is not None and all(spec.name != name for spec in self.specs())):
            raise unknown_tool(name, [spec.name for spec in self.specs()])
        return item


def digests(tools: Tools) -> dict[str, str]:
    """Each tool by its name, with a digest of its definition, scope and policy: what every approval of its
    calls is bound to. Of a registry all tools, also those that a run of these conditions does not have."""
    nothing = (Preview(),) if hasattr(tools, "preview") else ()
    names = tools.names if isinstance(tools, ToolRegistry) else [spec.name for spec in tools.specs()]
    return {name: tools.fingerprint(ToolCall("", name), *nothing)[:16] for name in names}


def _is_ours(func: Callable[..., Any]) -> bool:
    return str(getattr(func, "__module__", "")).partition(".")[0] == "tool_loop"


def _ends(item: Tool, started: float, deadline: float | None) -> float | None:
    own = None if item.timeout_seconds is None else started + item.timeout_seconds
    return min((end for end in (own, deadline) if end is not None), default=None)


def _as_finding(value: Any, limit: int) -> str | Later | ToolResult | bool | None:
    """What a probe says: None and False as they are, anything else is the result of the call."""
    if value is None:
        return None
    if value is False or value is NotRun or isinstance(value, NotRun):
        return False
    return as_text(value, limit)
