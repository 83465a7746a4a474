"""Where runs are kept: the journal is the run, everything else can be thrown away.

`MemoryJournal` keeps them for as long as the process lives; `SqliteJournal` (in sqlite.py)
survives it. Both give a run to one writer at a time, append whole events, and fold an event into
the state only after it is safe: what is not on record did not happen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from itertools import count

from tool_loop.errors import RunBusy, UnknownRun, UsageError
from tool_loop.events import ApprovalDecided, Event
from tool_loop.loop.closing import CancelRequest
from tool_loop.state import State

from .bells import Asked, Bell
from .runs import Record, RunInfo, summary
from .shelf import Shelf

_HERE = "this process"


class MemoryLog:
    """One run in memory. `times` holds the Unix time at which each event was recorded."""

    __slots__ = ("_bells", "_cancel", "_clock", "run_id", "state", "times")

    def __init__(self, run_id: str, clock: Callable[[], float]) -> None:
        self.run_id = run_id
        self.state = State()
        self.times: list[float] = []
        self._clock = clock
        self._bells: set[Bell] = set()
        self._cancel: Asked | None = None

    async def append(self, event: Event) -> None:
        self.times.append(self._clock())
        self.state.apply(event)
        for bell in self._bells:
            bell.ring()

    @contextmanager
    def when_cancelled(self, asked: Asked) -> Iterator[None]:
        """While this is entered, `asked` is called with who wants the run to stop, and why, when somebody does."""
        loop, calls = asyncio.get_running_loop(), True

        def call(why: str) -> None:
            if calls:
                asked(why)

        def from_any_thread(why: str) -> None:
            loop.call_soon_threadsafe(call, why)

        self._cancel = from_any_thread
        try:
            yield
        finally:
            self._cancel, calls = None, False

    def ask_to_stop(self, why: str) -> None:
        if self._cancel is not None:
            self._cancel(why)

    @contextmanager
    def following(self, bell: Bell) -> Iterator[Bell]:
        self._bells.add(bell)
        try:
            yield bell
        finally:
            self._bells.discard(bell)

    def forgotten(self) -> None:
        for bell in self._bells:
            bell.ring()


class MemoryJournal(Shelf):
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

    def _listed(self) -> list[RunInfo]:
        listed = [
            summary(run_id, log.times, log.state, _HERE if run_id in self._held else "")
            for run_id, log in self._logs.items()
            if log.state.events
        ]
        listed.reverse()  # of two that got on in the same moment, the one that began later is first
        return sorted(listed, key=lambda run: run.updated, reverse=True)

    def records(self, run_id: str, after: int = -1) -> list[Record]:
        """The records of a run behind number `after`, oldest first. Raises `UnknownRun`."""
        log, start = self._log(run_id), max(0, after + 1)
        rest = zip(count(start), log.times[start:], log.state.events[start:], strict=False)
        return [Record(seq, at, event) for seq, at, event in rest]

    def events(self, run_id: str) -> Sequence[Event]:
        return tuple(self._log(run_id).state.events)

    async def create(self, run_id: str, events: Sequence[Event]) -> None:
        if run_id in self._logs:
            raise UsageError(f"there is a run {run_id} in this journal already")
        async with self.open(run_id) as log:
            for event in events:
                await log.append(event)

    async def delete(self, run_id: str) -> None:
        """Forget a run and everything in it. Raises `UnknownRun`, and `RunBusy` while somebody drives it."""
        log = self._log(run_id)
        if run_id in self._held:
            raise RunBusy(f"run {run_id} is being driven by a task of this process")
        del self._logs[run_id]
        self._ended.pop(run_id, None)
        log.forgotten()

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

    def _following(self, bell: Bell) -> AbstractContextManager[Bell]:
        return self._log(bell.run_id).following(bell)

    def _has_ended(self, run_id: str) -> bool:
        return self._log(run_id).state.ended is not None

    def _ask_to_stop(self, run_id: str, request: CancelRequest) -> bool:
        log = self._log(run_id)
        if log.state.ended is None:
            log.ask_to_stop(str(request))
        return log.state.ended is None

    def _now(self) -> float:
        return self._clock()

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
    if call_id in state.inner:
        raise UsageError(
            f"call {call_id} waits for its sub-agent: decide about the calls of run {state.inner[call_id]}"
        )
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
