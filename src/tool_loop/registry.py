"""Turns whatever a tool does into one `ToolReturned`: success, bad arguments, crash, timeout.

Knows nothing about models, journals or the order of calls; the loop decides those. The registry
finds the tool, has its arguments checked, runs it under one harness (`_call.py`) and turns every
exception into something the model can read: what it can mend comes back as data, and nothing a tool
does ends a run.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from hashlib import sha256
from typing import Any, Literal, TypeAlias

from ._call import WHOLE_FLOAT, OutOfTime, Raised, as_text, canonical, compiled, parse_arguments, perform
from ._failures import crashed, failure, gave_up, kind_of, timed_out, unknown_tool
from ._signature import is_async
from ._tool import NotRun, Progress, Tool, ToolContext, as_tool, probe_arguments, tool
from .errors import ToolError, UsageError
from .events import Event, Signal, ToolCall, ToolReturned
from .ports import Effect, Emit, ToolSpec

__all__ = ["Approve", "NotRun", "Tool", "ToolContext", "ToolRegistry", "canonical", "parse_arguments", "tool"]

# Which calls need a person: none, all that may change something, all, or what a function says.
Approve: TypeAlias = Literal["never", "effects", "always"] | Callable[[ToolCall, Tool], bool]

logger = logging.getLogger(__name__)
# Without any handler Python prints errors to stderr, which belongs to the program and not to us.
logging.getLogger(__package__).addHandler(logging.NullHandler())

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
        self._approve = approve
        self._scope = scope
        self._tools: dict[str, Tool] = {}
        self._specs: tuple[ToolSpec, ...] | None = None
        self._digests: dict[str, Any] = {}
        for item in tools:
            self._add(item if isinstance(item, Tool) else as_tool(item))

    def _add(self, item: Tool) -> None:
        if item.name in self._tools:
            raise UsageError(f"two tools are called {item.name!r}; rename one with name=...")
        if item.unbound:
            raise UsageError(f"tool {item.name!r} is a method; take it from an instance: instance.{item.name}")
        self._tools[item.name] = item

    # --- what there is ----------------------------------------------------------------------------

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

        Raises UsageError when a signature has no schema: pydantic reads it here, not before.
        """
        if self._specs is None:
            self._specs = tuple(item.spec for item in self._tools.values())
        return self._specs

    def schemas(self) -> list[dict[str, Any]]:
        """The tools as chat completions take them; a copy, the caller's to change."""
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
        item = self._tools.get(name)
        return None if item is None else item.effect

    def polls(self, name: str) -> bool:
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
            return False
        try:
            if callable(item.needs_approval):
                return bool(item.needs_approval(self._checked(item, call.arguments)))
            if item.needs_approval is not None:
                return item.needs_approval
            if callable(self._approve):
                return bool(self._approve(call, item))
        except ToolError:
            return True
        except Exception:
            # Whatever it is, a policy that cannot be read must not let a call through.
            logger.exception("the approval policy for tool %s failed, so a person is asked", item.name)
            return True
        return self._approve == "always" or (self._approve == "effects" and item.effect != "read")

    def fingerprint(self, call: ToolCall) -> str:
        """A digest of the tool's name and definition, the arguments, the scopes and the policy.

        Changed arguments have another one, and so has a tool that was changed since the approval, or
        that now works elsewhere. The spaces and the order of keys do not count.
        """
        base = self._digests.get(call.name)
        if base is None:
            item = self._tools.get(call.name)
            what = None if item is None else [item.description, item.spec.parameters, item.effect, item.scope]
            policy = "function" if callable(self._approve) else self._approve
            base = sha256(json.dumps([self._scope, policy, call.name, what], sort_keys=True).encode())
            self._digests[call.name] = base
        digest = base.copy()
        # JSON has no raw line break outside of strings and none inside, so this parts the two halves.
        digest.update(b"\n" + canonical(call.arguments).encode("utf-8", "surrogatepass"))
        return str(digest.hexdigest())

    # --- running ----------------------------------------------------------------------------------

    def refuse(self, call: ToolCall) -> ToolReturned | None:
        """The result of a call that cannot run (unknown tool, bad arguments), else None."""
        try:
            self._checked(self._find(call.name), call.arguments)
        except Exception as raised:
            error = self._error(raised, call.name)
            return ToolReturned(call.id, failure(error, _USUAL_CHARS), kind_of(error))
        return None

    async def run(
        self, call: ToolCall, *, key: str = "", emit: Emit = _ignore, deadline: float | None = None
    ) -> ToolReturned:
        """Run one call and return whatever became of it; never raises but for cancellation.

        The call ends at the tool's own limit or at `deadline`, whichever comes first. A plain
        function cannot be stopped; it is no longer waited for, and the result says so.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        limit, untrusted, progress = _USUAL_CHARS, False, None
        try:
            item = self._find(call.name)
            arguments = self._checked(item, call.arguments)
            limit, untrusted = item.max_result_chars, item.untrusted
            if item.context_name is not None:
                progress = Progress(call.id, emit, loop)
                arguments[item.context_name] = ToolContext(call.id, key, progress)
            convert = partial(as_text, limit=limit)
            ends = _ends(item, started, deadline)
            content, kind = await perform(item.func, arguments, convert, ends, in_task=item.is_async), None
        except Exception as raised:
            # The one place where what a tool raises becomes a result. A cancel is no Exception and goes on.
            error = self._error(raised, call.name, started, deadline)
            content, kind = failure(error, limit), kind_of(error)
        finally:
            if progress is not None:
                progress.open = False
        return ToolReturned(call.id, content, kind, loop.time() - started, untrusted=untrusted)

    async def probe(self, call: ToolCall, *, key: str = "") -> ToolReturned | bool | None:
        """What became of a call that was started before a crash: its result, False (not run), or None.

        A probe that fails or takes too long cannot tell.
        """
        item = self._tools.get(call.name)
        if item is None or item.probe_func is None:
            return None
        started = asyncio.get_running_loop().time()
        try:
            func = item.probe_func
            arguments = probe_arguments(func, self._checked(item, call.arguments), call.id, key)
            convert = partial(_as_finding, limit=item.max_result_chars)
            content = await perform(func, arguments, convert, _ends(item, started, None), in_task=is_async(func))
        except Exception:
            # Not knowing is an answer here, and the safe one: nothing is run on a guess.
            logger.exception("the probe of tool %s failed", item.name)
            return None
        seconds = asyncio.get_running_loop().time() - started
        if isinstance(content, str):
            return ToolReturned(call.id, content, None, seconds, untrusted=item.untrusted)
        return None if content is None else False

    def _find(self, name: str) -> Tool:
        item = self._tools.get(name)
        if item is None:
            raise unknown_tool(name, self._tools)
        return item

    @staticmethod
    def _checked(item: Tool, text: str) -> dict[str, Any]:
        """What the function is to be called with. Raises ToolError naming all that is wrong."""
        value = parse_arguments(text)
        form = item.form
        if form.by_schema:
            if form.is_valid is None:
                form.is_valid = compiled(item.name, form.strict, formats=form.formats).is_valid
            if not form.is_valid(value):
                raise form.explain(value)
        if form.convert is None:
            if WHOLE_FLOAT.search(text):
                form.refuse_whole_floats(value)
            return value
        try:
            filled = form.convert(text if value else "{}")
        except ValueError as error:
            raise form.explain(value, error) from None
        names = form.names
        return {names[field]: each for field, each in filled.__dict__.items()}

    def _error(self, raised: Exception, name: str, started: float = 0.0, deadline: float | None = None) -> ToolError:
        """What went wrong, as the error a model reads. What nobody meant to say is logged, not told."""
        if isinstance(raised, ToolError):
            return raised
        if isinstance(raised, OutOfTime):
            limit = self._tools[name].timeout_seconds
            by_run = limit is None or (deadline is not None and deadline < started + limit)
            return timed_out(None if by_run else limit, started=raised.started, running=raised.running)
        cause = raised.error if isinstance(raised, Raised) else raised
        logger.error("tool %s crashed", name, exc_info=cause)
        return gave_up() if isinstance(cause, TimeoutError) else crashed(cause)


def _ends(item: Tool, started: float, deadline: float | None) -> float | None:
    if item.timeout_seconds is None:
        return deadline
    ends = started + item.timeout_seconds
    return ends if deadline is None else min(ends, deadline)


def _as_finding(value: Any, limit: int) -> str | bool | None:
    """What a probe says: None and False as they are, anything else is the result of the call."""
    if value is None:
        return None
    if value is False or value is NotRun or isinstance(value, NotRun):
        return False
    return as_text(value, limit)
