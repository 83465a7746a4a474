"""The journal's half of tracing: everything between opening a run and closing it is one span.

Knows the run's id, its first attempt's trace and its turning points; the calls are traced in trace.py.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from tool_loop.events import (
    ApprovalDecided,
    ApprovalRequested,
    Compacted,
    Event,
    LimitReached,
    ModelReplied,
    RunResumed,
    RunStarted,
    ToolReturned,
    Usage,
)

from . import content as say, semconv as names
from .telemetry import SafeSpan, Telemetry, failure_kind

if TYPE_CHECKING:
    from tool_loop.ports import Journal, RunLog
    from tool_loop.state import State

# Where the first attempt's span is kept, in the `meta` of the run's first record.
TRACEPARENT: Final = "traceparent"


@dataclass(slots=True)
class Traced:
    """What the spans of a run's calls say about the run; `compacted`: the model sees a shortened view."""

    run_id: str
    compacted: bool = False


# Set while a run is open, and so inherited by the tasks of its calls and the threads of its tools.
RUN: ContextVar[Traced | None] = ContextVar("tool_loop_traced_run", default=None)


def about_run() -> dict[str, Any]:
    run = RUN.get()
    return {} if run is None else {names.CONVERSATION: run.run_id}


class TracedJournal:
    """A journal under which everything between opening a run and closing it is one `invoke_agent` span."""

    def __init__(self, journal: Journal, telemetry: Telemetry) -> None:
        self.journal = journal
        self._telemetry = telemetry

    def __getattr__(self, name: str) -> Any:
        return getattr(self.journal, name)

    @asynccontextmanager
    async def open(self, run_id: str) -> AsyncIterator[RunLog]:
        telemetry, began = self._telemetry, now()
        about = {names.OPERATION: names.INVOKE_AGENT, names.AGENT: telemetry.name}
        token = RUN.set(run := Traced(run_id))
        failed: str | None = None
        with telemetry.span(
            f"{names.INVOKE_AGENT} {telemetry.name}", "INTERNAL", {**about, names.CONVERSATION: run_id}
        ) as span:
            new: list[Event] = []
            try:
                async with self.journal.open(run_id) as log:
                    traced_log = TracedLog(log, span, run, new)
                    span.link(traced_log.earlier)
                    run.compacted = any(isinstance(event, Compacted) for event in log.state.events)
                    try:
                        yield cast("RunLog", traced_log)
                    finally:
                        span.set(_attempt(log.state, new))
                        if telemetry.content:
                            span.describe(lambda: _said(log.state))
            except BaseException as error:
                failed = failure_kind(error)
                span.fail(failed)
                raise
            finally:
                RUN.reset(token)
                telemetry.record(names.AGENT_DURATION, now() - began, {**about, names.ERROR_TYPE: failed})
                telemetry.record(names.AGENT_CHATS, sum(isinstance(e, ModelReplied) for e in new), about)
                telemetry.record(names.AGENT_TOOLS, sum(isinstance(e, ToolReturned) for e in new), about)


class TracedLog:
    """An open run whose turning points become events of its span."""

    def __init__(self, log: RunLog, span: SafeSpan, run: Traced, new: list[Event]) -> None:
        self._log = log
        self._span = span
        self._run = run
        self._new = new

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    @property
    def earlier(self) -> str:
        """The span of the run's first attempt, as its first record names it."""
        first = next(iter(self._log.state.events), None)
        return str(_meta(first).get(TRACEPARENT, "")) if isinstance(first, RunStarted) else ""

    async def append(self, event: Event) -> None:
        if isinstance(event, RunStarted) and (traceparent := self._span.traceparent()):
            # On record, so that an attempt in another process, days later, finds the trace it continues.
            meta = {**_meta(event), TRACEPARENT: traceparent}
            event = replace(event, meta=json.dumps(meta, ensure_ascii=False))
        await self._log.append(event)
        self._new.append(event)
        if isinstance(event, Compacted):
            self._run.compacted = True
        if told := _turning_point(event):
            self._span.event(*told)


def _meta(event: RunStarted) -> dict[str, Any]:
    try:
        value = json.loads(event.meta)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"meta": event.meta}


def _turning_point(event: Event) -> tuple[str, dict[str, Any]] | None:
    match event:
        case RunResumed():
            return names.RESUMED_EVENT, {}
        case ApprovalRequested(requests=requests):
            return names.APPROVAL_REQUESTED_EVENT, {names.TOOL_CALL_ID: [r.call_id for r in requests]}
        case ApprovalDecided(call_id=call_id, allowed=allowed):
            return names.APPROVAL_DECIDED_EVENT, {names.TOOL_CALL_ID: call_id, names.ALLOWED: allowed}
        case Compacted(cleared=cleared, summary=summary):
            return names.COMPACTED_EVENT, {names.CLEARED: len(cleared), names.SUMMARISED: bool(summary)}
        case LimitReached(limit=limit):
            return names.LIMIT_EVENT, {names.REASON: limit}
        case _:
            return None


def _attempt(state: State, new: Sequence[Event]) -> dict[str, Any]:
    """What an attempt came to: only what is new in it, so that the attempts of a run add up."""
    paid = [event for event in new if isinstance(event, ModelReplied | Compacted)]
    costs = [event.cost for event in paid if event.cost is not None]
    ended = state.ended
    return {
        names.REASON: ended.reason if ended else "waiting" if state.pending else None,
        names.STEPS: sum(isinstance(event, ModelReplied) for event in new),
        names.COST: sum(costs) if costs else None,
        **tokens([event.usage for event in paid]),
    }


def _said(state: State) -> dict[str, Any]:
    return {names.INPUT_MESSAGES: say.question(state.question), names.OUTPUT_MESSAGES: say.answer(state.ended)}


def tokens(usages: Sequence[Usage]) -> dict[str, int]:
    """The counts that are known, summed, under their attributes."""
    found: dict[str, int] = {}
    for usage in usages:
        for name, value in (
            (names.INPUT_TOKENS, usage.input),
            (names.OUTPUT_TOKENS, usage.output),
            (names.CACHE_READ_TOKENS, usage.cached),
            (names.CACHE_WRITE_TOKENS, usage.cache_write),
            (names.REASONING_TOKENS, usage.reasoning),
        ):
            if value is not None:
                found[name] = found.get(name, 0) + value
    return found


def now() -> float:
    return asyncio.get_running_loop().time()
