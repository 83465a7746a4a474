"""Turns whatever a tool does into one `ToolReturned`: success, bad arguments, crash, timeout.

Knows nothing about models, journals or the order of calls; the loop decides those. One harness
stands around every tool, and owns its deadline, the size and the encoding of its result, and every
exception: what the model can mend comes back to it as data, and nothing a tool does ends a run.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from hashlib import sha256
from typing import Any, Literal, TypeAlias

from ._arguments import WHOLE_FLOAT, canonical, parse_arguments
from ._failures import crashed, cut, failure, gave_up, text_of, timed_out, unknown_tool
from ._signature import context_parameter, is_async
from ._threads import run_in_thread
from ._tool import NotRun, Progress, Tool, ToolContext, as_tool, tool
from .errors import ToolError, UsageError
from .events import Event, Signal, ToolCall, ToolReturned
from .ports import Effect, Emit, ToolSpec

__all__ = ["NotRun", "Tool", "ToolContext", "ToolRegistry", "canonical", "parse_arguments", "tool"]

Policy: TypeAlias = Literal["never", "effects", "always"] | Callable[[ToolCall, Tool], bool]

log = logging.getLogger("tool_loop")
# Without a handler of its own, logging would print warnings to a terminal that belongs to someone else.
log.addHandler(logging.NullHandler())

# How long a coroutine may take to clean up after it was told to stop. A run has to end within one
# second of its deadline, and this leaves the loop the other half.
GRACE_SECONDS = 0.5

# A task that ignores its cancellation is only weakly held by asyncio, and would be destroyed midway.
_abandoned: set[asyncio.Future[Any]] = set()


def _ignore(_said: Event | Signal) -> None:
    """The subscriber of a call that nobody watches."""


class ToolRegistry:
    """The tools of a run, by name. Usable alone: `await registry.run(ToolCall("1", "grep", '{...}'))`.

    Functions among `tools` become tools. `approve` says which calls need an approval where the tool
    itself does not: "never", "effects" (all but those declared "read"), "always", or a function of
    the call and its tool. `scope` is part of what an approval is bound to (the root, the policy).
    Raises UsageError for a name that occurs twice and for anything that is not a tool.
    """

    def __init__(
        self, tools: Iterable[Tool | Callable[..., Any]] = (), *, approve: Policy = "never", scope: str = ""
    ) -> None:
        if isinstance(tools, Tool) or callable(tools):
            message = "ToolRegistry takes a list of tools: ToolRegistry([my_tool])"
            raise UsageError(message)
        if not callable(approve) and approve not in ("never", "effects", "always"):
            message = f'approve must be "never", "effects", "always" or a function, got {approve!r}'
            raise UsageError(message)
        self._approve = approve
        self._scope = scope
        self._tools: dict[str, Tool] = {}
        self._specs: tuple[ToolSpec, ...] | None = None
        self._digests: dict[str, Any] = {}
        for item in tools:
            self._add(item if isinstance(item, Tool) else as_tool(item))

    def _add(self, item: Tool) -> None:
        if item.name in self._tools:
            message = f"two tools are called {item.name!r}; rename one with name=..."
            raise UsageError(message)
        if item.parameters is None and item.signature.unbound:
            message = f"tool {item.name!r} is a method; take it from an instance: instance.{item.name}"
            raise UsageError(message)
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
        """All tools as the model sees them, in the order they were given. Raises UsageError."""
        if self._specs is None:
            self._specs = tuple(item.spec for item in self)
        return self._specs

    def schemas(self) -> list[dict[str, Any]]:
        """The tools in the form of chat completions; the caller's to change."""
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
        """Whether a person has to allow this call. A policy that fails counts as yes."""
        item = self._tools.get(call.name)
        if item is None:
            return False  # it cannot run, so there is nothing to allow
        try:
            if callable(item.needs_approval):
                return bool(item.needs_approval(self._arguments(item, call.arguments)))
            if item.needs_approval is not None:
                return item.needs_approval
            if callable(self._approve):
                return bool(self._approve(call, item))
        except Exception:  # noqa: BLE001 - whatever it is, an unreadable policy must not let a call through
            log.warning("the approval policy of tool %s failed; asking a person", item.name, exc_info=True)
            return True
        return self._approve == "always" or (self._approve == "effects" and item.effect != "read")

    def fingerprint(self, call: ToolCall) -> str:
        """A digest of the tool's name, its definition, the arguments and the scope.

        A tool that was changed after the approval, or arguments that were, have another one. Spaces
        and the order of keys do not count.
        """
        base = self._digests.get(call.name)
        if base is None:
            item = self._tools.get(call.name)
            spec = None if item is None else [item.description, item.spec.parameters, item.effect]
            head = json.dumps([self._scope, call.name, spec], sort_keys=True)
            base = self._digests[call.name] = sha256(head.encode())
        digest = base.copy()
        # JSON holds no raw line break, so this one parts the two halves without doubt.
        digest.update(b"\n" + canonical(call.arguments).encode("utf-8", "surrogatepass"))
        return str(digest.hexdigest())

    # --- running ----------------------------------------------------------------------------------

    def refuse(self, call: ToolCall) -> ToolReturned | None:
        """The result of a call that cannot run (unknown tool, bad arguments), else None."""
        try:
            self._arguments(self._find(call.name), call.arguments)
        except Exception as raised:  # noqa: BLE001 - a validator of the author's own may raise anything
            error = _as_error(raised, self._tools.get(call.name))
            return ToolReturned(call.id, failure(error), error.kind)
        return None

    async def run(
        self, call: ToolCall, *, key: str = "", emit: Emit = _ignore, deadline: float | None = None
    ) -> ToolReturned:
        """Run one call and return whatever became of it; never raises but for cancellation.

        A cancel stops a coroutine and waits until it is gone (at most `GRACE_SECONDS`); a plain
        function on its thread cannot be stopped and is no longer waited for.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        item = self._tools.get(call.name)
        progress = None
        try:
            item = self._find(call.name)
            arguments = self._arguments(item, call.arguments)
            if item.context_name is not None:
                progress = Progress(call.id, emit, loop)
                arguments[item.context_name] = ToolContext(call.id, key, progress)
            ends = _ends(item, started, deadline)
            value = await _perform(item.func, arguments, ends, loop, in_task=item.is_async)
            content, kind = _as_text(value, item.max_result_chars), None
        except Exception as raised:  # noqa: BLE001 - the one place where a tool's exceptions become results
            error = _as_error(raised, item, deadline, started)
            content, kind = failure(error), error.kind
        finally:
            if progress is not None:
                progress.open = False
        untrusted = item is not None and item.untrusted
        return ToolReturned(call.id, content, kind, loop.time() - started, untrusted=untrusted)

    async def probe(self, call: ToolCall, *, key: str = "") -> ToolReturned | bool | None:
        """What became of a call that was started before a crash: its result, False (not run), or None.

        A probe that fails or takes too long cannot tell.
        """
        item = self._tools.get(call.name)
        if item is None or item.probe_func is None:
            return None
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            probe = item.probe_func
            arguments = _probe_arguments(probe, self._arguments(item, call.arguments), call.id, key)
            value = await _perform(probe, arguments, _ends(item, started, None), loop, in_task=is_async(probe))
            if value is None:
                return None
            if value is False or value is NotRun or isinstance(value, NotRun):
                return False
            content = _as_text(value, item.max_result_chars)
        except Exception:  # noqa: BLE001 - not knowing is an answer here, and the safe one
            log.warning("the probe of tool %s failed", item.name, exc_info=True)
            return None
        return ToolReturned(call.id, content, None, loop.time() - started, untrusted=item.untrusted)

    def _find(self, name: str) -> Tool:
        item = self._tools.get(name)
        if item is None:
            raise unknown_tool(name, self.names)
        return item

    @staticmethod
    def _arguments(item: Tool, text: str) -> dict[str, Any]:
        """What the function is to be called with, checked. Raises ToolError naming what is wrong."""
        value = parse_arguments(text)
        form = item.form
        if form.typed:
            return form.read(text if value else "{}", value)
        if not form.is_valid(value):
            raise form.explain(value)
        if WHOLE_FLOAT.search(text):
            form.refuse_whole_floats(value)
        return value


# --- one call -------------------------------------------------------------------------------------


class _OutOfTime(Exception):  # noqa: N818 - a signal between two functions here
    """The time is up. `running` says that the work could not be stopped."""

    def __init__(self, *, started: bool, running: bool) -> None:
        super().__init__()
        self.started = started
        self.running = running


class _Raised(Exception):  # noqa: N818 - carries an exception, is none of its own
    """What a tool raised, as a value: a task or a thread that raises SystemExit would take the loop along."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


async def _perform(
    func: Callable[..., Any],
    arguments: dict[str, Any],
    ends: float | None,
    loop: asyncio.AbstractEventLoop,
    *,
    in_task: bool,
) -> Any:
    """Call the function, in a task or on a thread, and wait for it until `ends`.

    Raises what it raised (`_Raised` for what is no Exception) and `_OutOfTime`.
    """
    if ends is not None and ends <= loop.time():
        raise _OutOfTime(started=False, running=False)
    work: asyncio.Future[Any]
    if in_task:
        # A task of its own, because a coroutine that ignores its cancellation must not hold us.
        work = loop.create_task(_awaited(func, arguments))
    else:
        work = run_in_thread(partial(_called, func, arguments))
    value = await _settled(work, ends, loop)
    if inspect.isawaitable(value):
        # A plain function may hand out a coroutine: a lambda around an async function does.
        return await _perform(partial(_same, value), {}, ends, loop, in_task=True)
    return value


async def _settled(work: asyncio.Future[Any], ends: float | None, loop: asyncio.AbstractEventLoop) -> Any:
    try:
        await asyncio.wait((work,), timeout=None if ends is None else ends - loop.time())
    except asyncio.CancelledError:
        await _stopped(work)
        raise
    late = not work.done()
    if late and not await _stopped(work):
        raise _OutOfTime(started=True, running=True)
    outcome = _Raised(asyncio.CancelledError()) if work.cancelled() else work.result()
    if not isinstance(outcome, _Raised):
        return outcome  # also when it came in the time for cleaning up: what happened is better known
    if late:
        raise _OutOfTime(started=True, running=False)
    raise outcome.error if isinstance(outcome.error, Exception) else outcome


async def _stopped(work: asyncio.Future[Any]) -> bool:
    """Tell the work to stop and wait a little; whether it has stopped. A thread never does."""
    work.cancel()
    if not isinstance(work, asyncio.Task):
        return False
    _abandoned.add(work)
    work.add_done_callback(_abandoned.discard)
    await asyncio.wait((work,), timeout=GRACE_SECONDS)
    return work.done()


async def _awaited(func: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    try:
        return await func(**arguments)
    except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
        raise  # on the loop's own thread these mean what they say
    except BaseException as error:  # noqa: BLE001 - SystemExit among them: a tool does not end the program
        return _Raised(error)


def _called(func: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    try:
        return func(**arguments)
    except BaseException as error:  # noqa: BLE001 - on a thread nothing else may happen to an exception
        return _Raised(error)


def _same(value: Any) -> Any:
    return value


def _ends(item: Tool, started: float, deadline: float | None) -> float | None:
    if item.timeout_seconds is None:
        return deadline
    ends = started + item.timeout_seconds
    return ends if deadline is None else min(ends, deadline)


def _probe_arguments(func: Callable[..., Any], arguments: dict[str, Any], call_id: str, key: str) -> dict[str, Any]:
    """What a probe is called with: those of the tool's arguments it names, and the key if it wants it."""
    available = {"idempotency_key": key, **arguments}
    context = context_parameter(func, ToolContext)
    if context is not None:
        available[context] = ToolContext(call_id, key)
    parameters = inspect.signature(func).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return available
    wanted = {parameter.name for parameter in parameters}
    return {name: value for name, value in available.items() if name in wanted}


# --- results --------------------------------------------------------------------------------------


def _as_text(value: Any, limit: int) -> str:
    """The result as a model reads it, cut where it is too long."""
    if type(value) is str and value and value.isascii():
        text = value  # the common case, which needs no look at each character
    else:
        text = text_of(value)
    return text if len(text) <= limit else cut(text, limit)


def _as_error(error: Exception, item: Tool | None, deadline: float | None = None, started: float = 0.0) -> ToolError:
    """The failure of a call as the error a model reads. What nobody meant to say is logged, not told."""
    if isinstance(error, ToolError):
        return error
    if isinstance(error, _OutOfTime):
        limit = item.timeout_seconds if item is not None else None
        by_deadline = deadline is not None and (limit is None or deadline < started + limit)
        return timed_out(limit or 0.0, by_deadline=by_deadline, started=error.started, running=error.running)
    cause = error.error if isinstance(error, _Raised) else error
    log.warning("tool %s crashed", item.name if item else "?", exc_info=cause)
    return gave_up() if isinstance(cause, TimeoutError) else crashed(cause)
