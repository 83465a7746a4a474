"""One run of a SQLite journal while it is being driven: events on their way into the file.

An event is folded into the state in the loop's thread, after its transaction is durable and in the
order of the records, whoever wrote them. Knows nothing about how the file is opened or kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from sqlite3 import Connection

from . import codec
from . import sqlite_store as store
from .events import Event
from .sqlite_lease import Lease, Leases
from .sqlite_writer import Call, Job, Writer
from .state import State


class SqliteLog:
    """One run, open for writing by this process only."""

    def __init__(self, run_id: str, state: State, lease: Lease, writer: Writer, clock: Callable[[], float]) -> None:
        self.run_id = run_id
        self.state = state
        self.lease = lease
        self.takeovers = lease.takeovers
        self._writer = writer
        self._clock = clock

    async def append(self, event: Event) -> None:
        """Make the event durable, then fold it into `state`, behind whatever others recorded before it.

        Raises `JournalError`, having changed nothing; `Fenced` when another process has the run now.
        Cancelling it does not undo it: an event that was handed in is recorded and folded.
        """
        await self._writer.submit(Append(self, event, self._clock()))

    def fold(self, rows: list[store.Row]) -> None:
        """Take in records that are in the file; those already taken in are passed over."""
        known = len(self.state.events)
        store.fold(self.run_id, [row for row in rows if row[0] >= known], self.state)


class Append(Job):
    """One event on its way into the file."""

    __slots__ = ("_at", "_change", "_event", "_known", "_log", "_text")

    def __init__(self, log: SqliteLog, event: Event, at: float) -> None:
        self._text = codec.encode(event)
        super().__init__(len(self._text))
        self._log = log
        self._event = event
        self._at = at
        self._known = len(log.state.events)
        self._change = store.Change.of(log.state, event, log.takeovers)

    def work(self, db: Connection) -> tuple[int, list[store.Row]]:
        return store.append(db, self._log.lease.key, self._known, self._known, self._at, self._text, self._change)

    def landed(self) -> None:
        seq, before = self.outcome
        self.outcome = None
        log = self._log
        if before:
            log.fold(before)
        if seq == len(log.state.events):
            # Where text had to be escaped, what counts is what the file holds.
            log.state.apply(codec.decode(self._text) if "\\ud" in self._text else self._event)
        if self._change is not None and self._change.progress:
            log.takeovers = 0


class Take(Job):
    """A lease on its way out. When nobody waits for it any more, it is given back."""

    __slots__ = ("_leases", "_now", "_run_id", "_writer")

    def __init__(self, leases: Leases, writer: Writer, run_id: str, now: float) -> None:
        super().__init__()
        self._leases = leases
        self._writer = writer
        self._run_id = run_id
        self._now = now

    def work(self, db: Connection) -> Lease:
        return self._leases.take(db, self._run_id, self._now)

    def landed(self) -> None:
        if self.future.done():
            self._writer.submit(Call(partial(self._leases.release, lease=self.outcome)))

    def lost(self) -> None:
        if self.outcome is not None:
            self._leases.forget(self.outcome)
