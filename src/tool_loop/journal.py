"""Where runs are kept: the journal is the run, everything else can be thrown away.

`MemoryJournal` keeps them for as long as the process lives; `SqliteJournal` (in sqlite_journal.py)
survives it. Both give a run to one writer at a time, append whole events, and fold an event into
the state only after it is safe: what is not on record did not happen. `settle`, at the end, is how
the loop waits for anything whose outcome must get onto the record.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any, TypeVar

from .errors import RunBusy, UnknownRun, UsageError
from .events import ApprovalDecided, Event
from .ports import Emit, RunLog
from .runs import Record, RunInfo, summary
from .state import State

T = TypeVar("T")

logger = logging.getLogger(__name__)

_HERE = "this process"


class MemoryLog:
    """One run in memory. `times` holds the Unix time at which each event was recorded."""

    __slots__ = ("_clock", "run_id", "state", "times")

    def __init__(self, run_id: str, clock: Callable[[], float]) -> None:
        self.run_id = run_id
        self.state = State()
        self.times: list[float] = []
        self._clock = clock

    async def append(self, event: Event) -> None:
        self.times.append(self._clock())
        self.state.apply(event)


class MemoryJournal:
    """Runs in memory, for tests and for callers who do not want to keep them.

    `keep` is how many runs that have ended are remembered, the newest; None means all of them.
    """

    def __init__(self, *, keep: int | None = None, clock: Callable[[], float] = time.time) -> None:
        self._logs: dict[str, MemoryLog] = {}
        self._held: set[str] = set()
        self._ended: dict[str, None] = {}  # in the order in which they were left
        self._keep = keep
        self._clock = clock

    @asynccontextmanager
    async def open(self, run_id: str) -> AsyncIterator[MemoryLog]:
        if run_id in self._held:
            raise RunBusy(f"run {run_id} is being driven by another task of this process")
        self._held.add(run_id)
        self._ended.pop(run_id, None)
        log = self._logs[run_id] = self._logs.get(run_id) or MemoryLog(run_id, self._clock)
        try:
            yield log
        finally:
            self._held.discard(run_id)
            self._left(run_id, log.state)

    def _left(self, run_id: str, state: State) -> None:
        # Runs that wait or were interrupted are never forgotten: somebody may still resume them.
        if state.ended:
            self._ended[run_id] = None
        elif not state.events:
            del self._logs[run_id]
        while self._keep is not None and len(self._ended) > self._keep:
            oldest = next(iter(self._ended))
            del self._ended[oldest], self._logs[oldest]

    def runs(self) -> list[RunInfo]:
        """All runs, the one that got on last first."""
        listed = [
            summary(run_id, log.times, log.state, _HERE if run_id in self._held else "")
            for run_id, log in self._logs.items()
            if log.state.events
        ]
        listed.reverse()  # of two that got on in the same moment, the one that began later is first
        return sorted(listed, key=lambda run: run.updated, reverse=True)

    def records(self, run_id: str) -> list[Record]:
        """All records of a run, oldest first. Raises `UnknownRun`."""
        log = self._log(run_id)
        return [Record(*numbered) for numbered in zip(count(), log.times, log.state.events, strict=False)]

    def events(self, run_id: str) -> Sequence[Event]:
        return tuple(self._log(run_id).state.events)

    async def decide(
        self,
        run_id: str,
        call_id: str,
        *,
        allow: bool,
        by: str = "",
        note: str = "",
        arguments: str | None = None,
        fingerprint: str | None = None,
        standing: bool = False,
        expires_at: float | None = None,
    ) -> ApprovalDecided:
        """Record what a person decided about a call that waits; the first decision wins.

        Raises `UsageError` when the call does not wait for one. `fingerprint` is the one of the
        edited call when `arguments` are given; else the one that was asked about.
        """
        log = self._log(run_id)
        decision = decided(
            log.state, call_id, allow=allow, by=by, note=note, arguments=arguments,
            fingerprint=fingerprint, standing=standing, expires_at=expires_at,
        )  # fmt: skip
        await log.append(decision)
        return decision

    def _log(self, run_id: str) -> MemoryLog:
        if run_id not in self._logs:
            raise UnknownRun(f"there is no run {run_id} in this journal")
        return self._logs[run_id]


def decided(
    state: State,
    call_id: str,
    *,
    allow: bool,
    by: str = "",
    note: str = "",
    arguments: str | None = None,
    fingerprint: str | None = None,
    standing: bool = False,
    expires_at: float | None = None,
) -> ApprovalDecided:
    """The decision as an event, if one can be made; every journal checks with this before it writes."""
    if call_id not in state.pending or call_id not in state.requested:
        raise UsageError(f"call {call_id} does not wait for a decision")
    if call_id in state.decisions:
        earlier = state.decisions[call_id]
        word = "allowed" if earlier.allowed else "denied"
        raise UsageError(
            f"call {call_id} was already {word}{f' by {earlier.by}' if earlier.by else ''}; the first decision counts"
        )
    if arguments is not None and fingerprint is None:
        raise UsageError("edited arguments need the fingerprint of the edited call")
    return ApprovalDecided(
        call_id, allow, by, note, fingerprint or state.requested[call_id], arguments, standing, expires_at
    )


# --- waiting without losing an outcome ------------------------------------------------------------

# How long cancelled work may take to clean up. After that it is left behind: a run has to end within
# a second of its deadline, whatever a tool or a server does.
UNWIND_SECONDS = 0.8


async def settle(
    work: Coroutine[Any, Any, T], *, until: float | None = None, grace: float | None = 0.0
) -> tuple[asyncio.Task[T], asyncio.CancelledError | None]:
    """Wait for `work` and return it as a task, with the cancel that arrived meanwhile, if one did.

    The caller looks at the outcome first and raises the cancel afterwards, so that a result that was
    there is never lost to a cancel in the same turn of the event loop. `until` (a time of the loop's
    clock) is when the work is cancelled. After a cancel of the caller it may go on for `grace`
    seconds; None means until it is done, for writes that must not be interrupted.
    """
    clock = asyncio.get_running_loop().time
    task = asyncio.ensure_future(work)
    held: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await _done(task, until)
        except asyncio.CancelledError as cancel:
            held = cancel
            if grace is not None:
                end = clock() + grace
                until = end if until is None else min(until, end)
            continue
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=UNWIND_SECONDS)
            if not task.done():
                logger.warning("left a task behind that does not end when it is cancelled", extra={"task": repr(task)})
            break
    return task, held


async def _done(task: asyncio.Task[Any], until: float | None) -> None:
    """Until the task is over or the time has come. At each step the loop waits twice or more, and
    `asyncio.wait` for one task takes half as long again."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def wake(_: object) -> None:
        if not over.done():
            over.set_result(None)

    task.add_done_callback(wake)
    timer = None if until is None else loop.call_at(until, wake, None)
    try:
        await over
    finally:
        task.remove_done_callback(wake)
        if timer is not None:
            timer.cancel()


async def recorded(log: RunLog, event: Event, emit: Emit) -> asyncio.CancelledError | None:
    """Write, then show, whatever cancels the caller; returns the cancel that arrived meanwhile.

    Both are one piece of work, so that what is shown comes in the order in which it was written. Its
    first step is taken right here: a journal in memory is done with that, no cancel can have come in
    between, and no task is needed (which would be 50 µs of the 900 that a whole step costs).
    """
    work = _write_then_show(log, event, emit)
    try:
        waiting = work.send(None)
    except StopIteration:
        return None
    task, held = await settle(_finish(work, waiting), grace=None)
    task.result()
    return held


async def _write_then_show(log: RunLog, event: Event, emit: Emit) -> None:
    await log.append(event)
    emit(event)


async def _finish(work: Coroutine[Any, Any, None], waiting: object) -> None:
    await _Begun(work, waiting)


class _Begun:
    """The rest of a coroutine that has taken its first step and waits for `waiting`."""

    def __init__(self, work: Coroutine[Any, Any, None], waiting: object) -> None:
        self.work = work
        self.waiting = waiting

    def __await__(self) -> Generator[Any, Any, None]:
        waiting = self.waiting
        while True:
            try:
                sent = yield waiting
            except BaseException as error:
                step = partial(self.work.throw, error)
            else:
                step = partial(self.work.send, sent)
            try:
                waiting = step()
            except StopIteration:
                return


async def together(works: Sequence[Coroutine[Any, Any, None]], *, one_by_one: bool = False) -> None:
    """Do all of this side by side, or in order. A cancel ends it all, and an error is raised bare."""
    if one_by_one or len(works) == 1:
        try:
            for work in works:
                await work
        finally:
            for work in works:
                work.close()  # what an error or a cancel left undone
        return
    # In the order of the calls, always: a TaskGroup keeps its tasks in a set, and cancels them in
    # another order at each run, so that two runs of the same seed had different records.
    tasks = [asyncio.ensure_future(work) for work in works]
    held: asyncio.CancelledError | None = None
    stopping = False
    while waiting := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_EXCEPTION)
        except asyncio.CancelledError as cancel:
            held, stopping = cancel, False
        if not stopping and (held or any(task.done() and _error(task) for task in tasks)):
            stopping = True
            for task in waiting:
                task.cancel()
    if error := next((e for e in map(_error, tasks) if e is not None), None):
        raise error
    if held:
        raise held


def _error(task: asyncio.Task[None]) -> BaseException | None:
    return None if task.cancelled() else task.exception()
