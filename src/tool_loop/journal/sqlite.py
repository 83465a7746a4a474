"""Runs in one SQLite file: they survive the process, and no two processes drive the same one.

A run is a row in `runs` and its records in `records`, one JSON text each (codec.py). Whoever drives
it holds a lease with a fencing token (leases.py), and every append checks the token in its own
transaction: a process that was stopped for an hour and wakes up after another took over cannot
write one word. What a person decides needs no lease. It is one more record, written if nobody was
faster, and the driver folds it in before its own next one.

How work gets into the file is in writer.py, the statements are in statements.py. Knows
nothing about what happens in a run.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from types import TracebackType
from typing import Self, TypeAlias

from tool_loop.errors import JournalError, UsageError
from tool_loop.events import ApprovalDecided, Event
from tool_loop.loop.closing import CancelRequest
from tool_loop.runtime.shield import settle
from tool_loop.state import State

from . import codec, schema as file, statements as store
from .bells import Bell
from .leases import Lease, Leases, driver
from .memory import decided
from .run import SqliteLog, Take
from .runs import Record, RunInfo, stage, summary
from .schema import BUSY_SECONDS, Database, translated
from .shelf import Shelf
from .watching import Watch
from .writer import Call, Job, Writer

Connect: TypeAlias = Callable[[str, float], Connection]

# A machine that vanished blocks its runs for this long; a machine that only stutters (a laptop's lid,
# a long pause of a virtual machine) loses them after it. Dead processes are noticed at once.
LEASE_SECONDS = 30.0
MAX_TAKEOVERS = 3

logger = logging.getLogger(__name__)


class SqliteJournal(Shelf):
    """Keeps runs in the file `path`, which is made (0600, missing directories 0700) when it is not there.
    A `~` at its beginning is the home directory.

    What is recorded survives the death of the process; with `durable="power"` also a power cut, at
    one fsync per group of records. `max_takeovers` is how often in a row a run may lose its process
    without getting on before it is parked. `clock` gives Unix time, `connect` opens the database.

    Any number of runs, event loops, threads and processes may use one file. Raises `UsageError` and,
    when the file is not a journal or cannot be one, `JournalError`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durable: file.Durable = "process",
        lease_seconds: float = LEASE_SECONDS,
        max_takeovers: int = MAX_TAKEOVERS,
        clock: Callable[[], float] = time.time,
        connect: Connect = file.connect,
    ) -> None:
        if durable not in ("process", "power"):
            raise UsageError(f'durable must be "process" or "power", got {durable!r}')
        if not lease_seconds > 0 or max_takeovers < 1:
            raise UsageError(
                f"lease_seconds and max_takeovers must be above zero, got {lease_seconds!r} and {max_takeovers!r}"
            )
        if os.fspath(path) in ("", ":memory:"):
            raise UsageError("a SqliteJournal needs a file; to keep runs in memory use MemoryJournal()")
        try:
            self.path = Path(path).expanduser().absolute()
        except RuntimeError as error:
            raise UsageError(f"the journal {os.fspath(path)!r}: {error}; give the path without ~") from error
        self._durable: file.Durable = durable
        self._lease_seconds = lease_seconds
        self._max_takeovers = max_takeovers
        self._clock = clock
        self._open_file = partial(_connected, connect, str(self.path), durable)
        self._begun: tuple[Leases, Writer, Watch] | None = None
        self._beginning = threading.Lock()
        self._closed = False
        try:
            file.create(self.path)
        except OSError as error:
            raise JournalError(f"cannot create the journal {self.path}: {error.strerror}; check the path") from error
        with self._database() as db:
            file.prepare(db, str(self.path))

    # --- driving a run ----------------------------------------------------------------------------

    @asynccontextmanager
    async def open(self, run_id: str) -> AsyncIterator[SqliteLog]:
        """The run, new or not, for this process alone until the block is left.

        Raises `RunBusy`, `RunPoisoned` and `JournalDamaged`.
        """
        leases, writer, watch = self._work()
        take = Take(leases, _checked(run_id), self._clock())
        # A cancel must not get in between a lease that was given and the block that returns it.
        held = await _carried_out(writer, take)
        if take.error is not None:
            raise take.error
        lease: Lease = take.outcome
        state = State()
        try:
            if held:
                raise held
            store.fold(run_id, lease.rows, state)
            if state.events:
                # What was saved up for the list died with the process that had it.
                info = summary(run_id, [at for _, at, _ in lease.rows], state, leases.me.name)
                if lease.torn or not _as_listed(lease, info):
                    await writer.do(Call(partial(store.recount, n=lease.n, info=info)))
            log = SqliteLog(run_id, state, lease, leases, writer, watch, self._clock)
            del lease.rows[:]
            yield log
        finally:
            if leases.holds(lease) and (late := await _given_back(writer, leases, lease, empty=not state.events)):
                raise late

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

        Needs no lease: it may come from any process, whether or not another one drives the run.
        Raises `UnknownRun`, and `UsageError` when the call does not wait for a decision.
        `fingerprint` is the one of the edited call when `arguments` are given; else the one that was
        asked about.
        """
        make = partial(
            decided, call_id=call_id, allow=allow, by=by, note=note, arguments=arguments,
            fingerprint=fingerprint, standing=standing, expires_at=expires_at,
        )  # fmt: skip
        work = partial(_decide, run_id=_checked(run_id), make=make, at=self._clock())
        decision: ApprovalDecided = await self._work()[1].do(Call(work))
        return decision

    # --- looking at runs --------------------------------------------------------------------------

    def _listed(self) -> list[RunInfo]:
        now = self._clock()
        with self._database() as db:
            return store.list_runs(db, lambda holder, until: driver(holder, until, now))

    def records(self, run_id: str, after: int = -1) -> list[Record]:
        """The records of a run behind number `after`, oldest first. Raises `UnknownRun` and `JournalDamaged`."""
        start = max(0, after + 1)
        with self._database() as db:
            rows = store.untorn(store.read(db, store.number(db, _checked(run_id)), start))
        if start:
            return store.decoded(run_id, rows, start)
        events = store.fold(run_id, rows, State()).events  # with the ones before it, more can be told
        return [Record(seq, at, event) for (seq, at, _), event in zip(rows, events, strict=True)]

    async def create(self, run_id: str, events: Sequence[Event]) -> None:
        """Make a run with these events on record, all at once. Raises `UsageError` when there is one of that id."""
        now, state = self._clock(), State.of(events)
        info = summary(_checked(run_id), [now] * len(events), state)
        await self._work()[1].do(Call(partial(store.create, run_id=run_id, at=now, events=events, info=info)))

    async def delete(self, run_id: str) -> None:
        """Forget a run and everything in it; its records are overwritten in the file. Raises `UnknownRun`, and
        `RunBusy` while somebody drives it.
        """
        leases, writer, watch = self._work()
        await writer.do(Call(partial(leases.remove, run_id=_checked(run_id), now=self._clock())))
        watch.ring()

    def unpark(self, run_id: str) -> None:
        """Let a run that was parked (`RunPoisoned`) be resumed again. Raises `UnknownRun`."""
        with self._database() as db:
            n = store.number(db, _checked(run_id))
            db.execute("UPDATE runs SET parked = 0, takeovers = 0 WHERE n = ?", (n,))

    def _following(self, bell: Bell) -> AbstractContextManager[Bell]:
        return self._work()[2].of_records(bell)

    def _has_ended(self, run_id: str) -> bool:
        with self._database() as db:
            return store.has_ended(db, _checked(run_id))

    def _ask_to_stop(self, run_id: str, request: CancelRequest) -> bool:
        with self._database() as db:
            store.number(db, _checked(run_id))
            return db.execute(store.ASK_TO_STOP, (str(request), run_id)).rowcount == 1

    def _now(self) -> float:
        return self._clock()

    # --- the file ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Finish what is being written, give all leases back and let go of the file. Safe to call twice."""
        with self._beginning:
            self._closed = True
            if self._begun is not None:
                self._begun[2].close()
                self._begun[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _database(self) -> Iterator[Connection]:
        """A connection of its own for reading: it waits for no writer, and belongs to no thread."""
        try:
            with closing(self._open_file(BUSY_SECONDS)) as db:
                yield db
        except sqlite3.Error as error:
            raise translated(error, str(self.path)) from error

    def _work(self) -> tuple[Leases, Writer, Watch]:
        """The leases, the writer and the watch of this process: a fork has the parent's, and must not use them."""
        with self._beginning:
            if self._closed:
                raise JournalError(f"the journal {self.path} is closed")
            if self._begun is None or self._begun[1].pid != os.getpid():
                leases = Leases(self._lease_seconds, self._max_takeovers, self._clock)
                writer = Writer(
                    self._open_file,
                    where=str(self.path),
                    inline=self._durable == "process",
                    tick=leases.tick,
                    # Two attempts may fail before a lease is lost.
                    tick_seconds=self._lease_seconds / 3,
                )
                watch = Watch(self._open_file)
                # None of the three knows this object, so that forgetting it ends the threads as well.
                weakref.finalize(self, writer.close)
                weakref.finalize(self, watch.close)
                self._begun = leases, writer, watch
            return self._begun


async def _given_back(writer: Writer, leases: Leases, lease: Lease, *, empty: bool) -> asyncio.CancelledError | None:
    """Waited for, come what may: a lease that was only forgotten looks like a death later."""
    back = Call(partial(leases.release, lease=lease, empty=empty), single=not empty)
    late = await _carried_out(writer, back)
    if back.error is not None:
        leases.forget(lease)
        logger.warning("could not give a lease back: %s", back.error)
    return late


async def _carried_out(writer: Writer, job: Job) -> asyncio.CancelledError | None:
    """Wait for the job whatever cancels the caller; returns the cancel that arrived meanwhile."""
    if writer.at_once(job):
        return None
    done = await settle(writer.do(job), grace=None)
    done.error  # noqa: B018 - it is the job's, and looked for there
    return done.cancel


def _as_listed(lease: Lease, info: RunInfo) -> bool:
    """Whether the list shows what the records amount to; money is summed up in another order there."""
    steps, tokens, paid = lease.listed
    if (paid is None) != (info.cost is None):
        return False
    return (steps, tokens) == (info.steps, info.tokens) and math.isclose(paid or 0.0, info.cost or 0.0)


def _decide(db: Database, *, run_id: str, make: Callable[[State], ApprovalDecided], at: float) -> ApprovalDecided:
    n = store.number(db, run_id)
    state = store.fold(run_id, store.trim(db, run_id, n, store.read(db, n)), State())
    decision = make(state)
    store.insert(db, n, len(state.events), at, codec.encode(decision), store.RunChange(state=stage(state, decision)))
    return decision


def _connected(connect: Connect, path: str, durable: file.Durable, wait_seconds: float) -> Connection:
    db = connect(path, wait_seconds)
    try:
        file.tune(db, durable)
    except BaseException:
        db.close()
        raise
    return db


def _checked(run_id: str) -> str:
    """The id, if it can be one: it becomes part of file names, request headers and shell commands."""
    if not run_id or not run_id.isprintable():
        raise UsageError(f"a run id is text of printable characters, got {run_id!r}")
    return run_id
