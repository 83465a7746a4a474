"""One run of a SQLite journal while it is being driven: events on their way into the file.

An event is folded into the state in the loop's thread, after its transaction is durable and in the
order of the records, whoever wrote them. Knows nothing about how the file is opened or kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from sqlite3 import IntegrityError

from tool_loop.errors import Fenced
from tool_loop.events import ApprovalDecided, Event, ModelReplied, RunStarted, ToolReturned
from tool_loop.state import State

from . import codec, statements as store
from .bells import Asked
from .leases import Lease, Leases
from .runs import QUESTION_CHARS, cost, meta_of, stage, sum_of, tokens
from .schema import Database
from .watching import Watch
from .writer import Job, Writer

# How far the counters in the list of runs may lag behind a run that is being driven.
LIST_SECONDS = 1.0


class SqliteLog:
    """One run, open for writing by this process only.

    The lease goes back with the record of the end. Whoever has more to ask opens the run again.
    """

    def __init__(
        self,
        run_id: str,
        state: State,
        lease: Lease,
        leases: Leases,
        writer: Writer,
        watch: Watch,
        clock: Callable[[], float],
    ) -> None:
        self.run_id = run_id
        self.state = state
        self.lease = lease
        self.key = lease.key
        self.leases = leases
        self._stuck = lease.takeovers > 0
        self._steps = self._tokens = 0
        self._cost: float | None = 0.0
        self._listed_at = 0.0
        self._watch = watch
        self._writer = writer
        self._clock = clock

    async def append(self, event: Event) -> None:
        """Make the event durable, then fold it into `state`, behind whatever others recorded before it.

        Raises `JournalError`, having changed nothing; `Fenced` when another process has the run now.
        A decision about a call that somebody else decided about meanwhile is dropped: theirs counts.
        Cancelling it does not undo it: an event that was handed in is recorded and folded.
        """
        job = Append(self, event, self._clock())
        if not self._writer.at_once(job):
            await self._writer.do(job)
        elif job.error is not None:
            raise job.error

    def change(self, event: Event, at: float) -> store.RunChange | None:
        """What goes into the list of runs together with this event's record.

        Writing there costs as much as the record itself. So what only counts is saved up within a
        second; what says how the run stands is written at once.
        """
        kind = type(event)
        if kind is ToolReturned and not self._stuck:
            return None
        got_on = kind in (ToolReturned, ModelReplied)
        standing = None if got_on else stage(self.state, event)
        self._steps += kind is ModelReplied
        self._tokens += tokens(event)
        self._cost = sum_of((self._cost, cost(event)))
        if not standing and not (got_on and self._stuck) and at - self._listed_at < LIST_SECONDS:
            return None
        change = store.RunChange(
            standing, self._steps, self._tokens, self._cost, question_of(event), meta_of(event), progress=got_on
        )
        self._steps, self._tokens, self._cost = 0, 0, 0.0
        self._listed_at = at
        self._stuck = self._stuck and not got_on
        return change

    def when_cancelled(self, asked: Asked) -> AbstractContextManager[None]:
        """While this is entered, `asked` is called with who wants the run to stop, and why, when somebody does."""
        return self._watch.of_cancels(self.lease.n, self.lease.cancel, asked)

    def fold(self, rows: Sequence[store.Row]) -> None:
        """Take in records that are in the file; those already taken in are passed over."""
        known = len(self.state.events)
        store.fold(self.run_id, [row for row in rows if row[0] >= known], self.state)

    def landed(self) -> None:
        """Something is in the file: whoever follows the run need not wait until the file is looked at."""
        self._watch.ring()


def question_of(event: Event) -> str | None:
    if not isinstance(event, RunStarted):
        return None
    return event.question[:QUESTION_CHARS].encode("utf-8", "replace").decode()


class Append(Job):
    """One event on its way into the file. `before` is what others have added before it."""

    before: Sequence[store.Row] = ()

    def __init__(self, log: SqliteLog, event: Event, at: float) -> None:
        self._text = text = codec.encode(event)
        self._change = change = log.change(event, at)
        super().__init__(len(text), single=change is None)
        self._log = log
        self._event = event
        self._at = at

    def work(self, db: Database) -> int:
        """The number of the record; -1 when it was not added, for somebody else has decided."""
        log, seq, self.before = self._log, len(self._log.state.events), ()
        try:
            done = store.append(db, log.key, seq, self._at, self._text)
        except IntegrityError:
            # A decision got in between, or a record of our own that the loop has not heard of yet.
            self.before = store.read(db, log.lease.n, seq)
            if isinstance(self._event, ApprovalDecided) and store.decides(self.before, self._event.call_id):
                return -1
            seq = self.before[-1][0] + 1
            done = store.append(db, log.key, seq, self._at, self._text)
        if not done:
            raise Fenced(store.fenced(db, log.lease.n))
        if self._change is not None:
            store.update(db, log.lease.n, self._at, self._change)
        return seq

    def landed(self) -> None:
        log = self._log
        log.landed()
        if self.before:
            log.fold(self.before)
        if self._change is not None and self._change.ends:
            log.leases.forget(log.lease)
        if self.outcome == len(log.state.events):
            # Where text had to be escaped, what counts is what the file holds.
            log.state.apply(codec.decode(self._text) if "\\ud" in self._text else self._event)


class Take(Job):
    """A lease on its way out."""

    def __init__(self, leases: Leases, run_id: str, now: float) -> None:
        super().__init__()
        self._leases = leases
        self._run_id = run_id
        self._now = now

    def work(self, db: Database) -> Lease:
        return self._leases.take(db, self._run_id, self._now)

    def lost(self) -> None:
        if self.outcome is not None:
            self._leases.forget(self.outcome)
