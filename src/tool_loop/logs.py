"""What happens in a run, in the standard log: one line per event, with its figures as fields.

An agent does this by itself when the logger `tool_loop.logs` is enabled for INFO; DEBUG adds each
reply and each call. No line holds what was asked, said, passed or read: the journal does, and
`run_id`, `step` and `call_id` say where.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeAlias

from .events import (
    ApprovalDecided,
    ApprovalRequested,
    Compacted,
    Event,
    LimitReached,
    ModelReplied,
    Notice,
    Restarted,
    RetryWaiting,
    RunContinued,
    RunEnded,
    RunInterrupted,
    RunResumed,
    RunStarted,
    Signal,
    ToolCall,
    ToolReturned,
    ToolRunning,
)
from .redaction.scrub import guard
from .redaction.secret import printable

logger = logging.getLogger(__name__)

# Level, message, fields.
_Line: TypeAlias = tuple[int, str, dict[str, Any]]


def log_events(run_id: str = "", log: logging.Logger = logger) -> Callable[[Event | Signal], None]:
    """A subscriber that writes one run's events and signals into a log.

    Every record has the fields `run_id` and `step`; where they apply, also `tool`, `call_id`, `kind`
    (of a failure), `seconds`, `attempt`, `status`, `model`, `tokens_in`, `tokens_out` and `cost`.
    """
    guard()
    step = 0
    calls: dict[str, ToolCall] = {}

    def write(happening: Event | Signal) -> None:
        nonlocal step
        if isinstance(happening, ModelReplied):
            step += 1
            calls.update((call.id, call) for call in happening.calls)
        if line := _of_run(happening) or _of_step(happening, step, calls):
            level, message, more = line
            log.log(level, message, extra={"run_id": run_id, "step": step, **more})

    return write


def _of_run(it: Event | Signal) -> _Line | None:  # noqa: C901 - one case per event
    """What concerns the run as a whole."""
    match it:
        case RunStarted():
            return logging.INFO, "run started", {}
        case RunContinued():
            return logging.INFO, "run continued with another question", {}
        case RunResumed():
            return logging.INFO, "run resumed", {}
        case RunInterrupted(kind=kind):
            return logging.INFO, f"run interrupted: {kind}", {"kind": kind}
        case LimitReached(limit=limit):
            return logging.INFO, f"limit reached: {limit}", {"kind": limit}
        case RunEnded(reason=reason, source=source):
            return logging.INFO, f"run ended: {reason}", {"kind": reason, "source": source}
        case Compacted(cleared=cleared, summary=summary, seconds=seconds):
            how = f"{len(cleared)} results cleared{', earlier steps summarised' if summary else ''}"
            return logging.INFO, f"context compacted: {how}", {"seconds": seconds}
        case ApprovalRequested(requests=requests):
            ids = [request.call_id for request in requests]
            return logging.INFO, f"waiting for a decision about {len(ids)} calls", {"call_id": ids[0] if ids else ""}
        case ApprovalDecided(call_id=call_id, allowed=allowed):
            return logging.INFO, f"call {'allowed' if allowed else 'denied'}", {"call_id": call_id, "allowed": allowed}
        case Notice(text=text):
            return logging.INFO, f"notice: {printable(text)}", {}
        case _:
            return None


def _of_step(it: Event | Signal, step: int, calls: dict[str, ToolCall]) -> _Line | None:
    """What concerns one reply or one call."""
    match it:
        case ModelReplied(usage=usage):
            found = {"seconds": it.seconds, "model": it.model, "cost": it.cost, "retries": len(it.retries)}
            counted = {"tokens_in": usage.input, "tokens_out": usage.output}
            return logging.DEBUG, f"step {step}: reply with {len(it.calls)} calls", found | counted
        case RetryWaiting(kind=kind, seconds=seconds):
            found = {"kind": kind, "seconds": seconds, "attempt": it.attempt, "status": it.status}
            return logging.INFO, f"reply failed: {kind}; attempt {it.attempt} in {seconds:.1f} s", found
        case Restarted(kind=kind):
            return logging.DEBUG, f"the text shown so far is void: {kind}", {"kind": kind}
        case ToolRunning(call=call):
            return logging.DEBUG, "call started", {"tool": call.name, "call_id": call.id}
        case ToolReturned(call_id=call_id, error=kind):
            tool = calls[call_id].name if call_id in calls else ""
            found = {"tool": tool, "call_id": call_id, "kind": kind, "seconds": it.seconds, "chars": len(it.content)}
            return logging.DEBUG, f"call failed: {kind}" if kind else "call returned", found
        case _:
            return None
