"""How a run is stopped by somebody: what becomes of its open calls, and how the driving task hears of it.

A cancel that somebody asks for through the journal, and what a person says in place of a decision, are the
same thing on record: each open call gets a result, then the interruption says who asked for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tool_loop import transcript as say
from tool_loop.errors import RunCancelled
from tool_loop.events import Event, RunInterrupted, RunResumed
from tool_loop.ports import RunLog
from tool_loop.state import State

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Who wants a run to stop, and why."""

    by: str
    note: str = ""

    def __str__(self) -> str:
        return json.dumps([self.by, self.note])

    @classmethod
    def parsed(cls, text: str) -> CancelRequest:
        by, note = json.loads(text)
        return cls(by, note)


async def close(
    state: State, record: Callable[[Event], Awaitable[object]], request: CancelRequest, *, for_good: bool = False
) -> None:
    """Close the open calls of a run that nobody drives, and say who wanted it.

    One that may have happened is left open, as a cancel of the driver leaves it: the next attempt looks into
    it. With `for_good` there is none, since something else is asked: the model is told that nobody knows.
    """
    if state.pending:
        await record(RunResumed(request.by))  # the moment in which it is worked out what may have happened
    for call in tuple(state.pending.values()):
        if call.id not in state.doubtful:
            await record(say.set_aside(call) if call.id in state.requested else say.cancelled(call))
        elif for_good:
            await record(say.outcome_unknown(call))
    await record(RunInterrupted("cancelled", request.note, request.by))


def interruption(cancel: asyncio.CancelledError) -> RunInterrupted:
    """What to record of a cancel: who asked for it, where somebody did through the journal."""
    request = cancel.args[0] if cancel.args else None
    if isinstance(request, CancelRequest):
        return RunInterrupted("cancelled", request.note, request.by)
    return RunInterrupted("cancelled")


async def unless_cancelled(log: RunLog, work: Callable[[], Awaitable[T]]) -> T:
    """Do the work in this task, and give it up when somebody asks for the end of the run.

    Raises `RunCancelled` then. A cancel of the task itself stays what it is: `uncancel` tells the two apart,
    as `asyncio.timeout` does it. A journal of somebody's own may have no such signal.
    """
    listen: Any = getattr(log, "when_cancelled", None)
    task = asyncio.current_task()
    if listen is None or task is None:
        return await work()
    asked: list[CancelRequest] = []

    def stop(text: str) -> None:
        asked.append(CancelRequest.parsed(text))
        task.cancel(asked[0])

    before = task.cancelling()
    with listen(stop):
        try:
            return await work()
        except asyncio.CancelledError:
            if not asked or task.uncancel() > before:
                raise
            raise RunCancelled(asked[0].by, asked[0].note) from None
