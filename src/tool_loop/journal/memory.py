"""Where runs are kept: the journal is the run, everything else can be thrown away.

`MemoryJournal` keeps them for as long as the process lives; `SqliteJournal` (in sqlite.py)
survives it. Both give a run to one writer at a time, append whole events, and fold an event into
the state only after it is safe: what is not on record did not happen.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import TypeVar

from tool_loop.errors import RunBusy, UnknownRun, UsageError
from tool_loop.events import ApprovalDecided, Event
from tool_loop.state import State

from .runs import Record, RunInfo, summary

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
