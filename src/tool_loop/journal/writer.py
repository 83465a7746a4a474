"""Commits work to one SQLite file without holding the event loop up.

Every change is a `Job`: statements for a transaction, and a future for whoever waits for it. A thread
collects what has queued up and commits it together, with one fsync for all of it.

Where no fsync is asked for, a commit takes 20 µs, and going through a thread and a task that waits
for it takes 80. There a job is done at once, in the thread of the event loop, and only what could
take long goes to the writer's own: another process has the database locked, a large record, a
checkpoint (which syncs), a disk that fails.

Knows nothing about runs, leases or events, but for `tick`, which it calls on a timer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from sqlite3 import Connection, Cursor
from typing import Any, Final, Literal

from tool_loop.errors import JournalError, ToolLoopError
from tool_loop.runtime import threads as _threads

from .schema import BUSY_SECONDS, Database, translated

logger = logging.getLogger(__name__)

# More than this in one transaction would hold up the loop's other work, or the others in the queue.
INLINE_CHARS = 128_000
BATCH_JOBS = 1_000
# What is committed on the loop never checkpoints, because that syncs the disk; the thread does after
# this many commits. At two or three pages of 4 KiB each, that keeps the write-ahead log at 4 to 6 MB.
COMMITS_BETWEEN_CHECKPOINTS = 500

# In the queue of a writer: the last word. None only asks for a checkpoint.
END: Final = "end"


class Job(ABC):
    """Work for one transaction. Done again from the start when the first attempt was rolled back.

    `size` is how many characters it writes. A `single` one writes with one statement.
    """

    outcome: Any = None
    error: Exception | None = None
    future: asyncio.Future[Any] | None = None

    def __init__(self, size: int = 0, *, single: bool = False) -> None:
        self.size = size
        self.single = single

    @property
    def waiting(self) -> asyncio.Future[Any]:
        """Whoever waits for it; there is somebody once it was not done at once."""
        assert self.future is not None
        return self.future

    @abstractmethod
    def work(self, db: Database) -> Any:
        """Runs inside the transaction. A `ToolLoopError` is this job's outcome and not its
        neighbours'; what was written before it is committed with them.
        """
        ...

    def landed(self) -> None:  # noqa: B027  most jobs have nothing to do then
        """Called in the loop's thread when the work is durable, in the order of the commits."""

    def lost(self) -> None:  # noqa: B027
        """Called when it failed for good, or was done and its event loop is closed. In any thread."""


class Call(Job):
    """A job that is one function."""

    def __init__(self, func: Callable[[Database], Any], *, single: bool = False) -> None:
        super().__init__(single=single)
        self._func = func

    def work(self, db: Database) -> Any:
        return self._func(db)


class Writer:
    """The one place in this process where a database file is written.

    `connect` opens a connection that waits so many seconds for a lock. With `inline`, what is small is
    done in the thread of whoever asks for it; without, everything in the writer's own. `tick` is called
    there every `tick_seconds`, and with True once before the file is let go of.
    """

    def __init__(
        self,
        connect: Callable[[float], Connection],
        *,
        where: str,
        inline: bool,
        tick: Callable[[Connection, bool], None],
        tick_seconds: float,
    ) -> None:
        self.pid = os.getpid()
        self._connect = connect
        self._where = where
        self._inline = inline
        self._tick = tick
        self._tick_seconds = tick_seconds
        self._queue: SimpleQueue[Job | Literal["end"] | None] = SimpleQueue()
        self._gate = threading.Lock()  # nothing enters the queue behind what ends it
        self._closed = False
        self._with_thread = 0  # jobs that were handed over and are not done; guarded by the gate
        self._quick: Connection | None = None
        self._cursor: Cursor
        self._quick_lock = threading.Lock()
        self._commits = 0
        self._thread = threading.Thread(target=self._serve, name=f"journal {where}", daemon=True)
        self._thread.start()

    async def do(self, job: Job) -> Any:
        """The outcome of the job, once it is durable; raises what went wrong.

        Cancelling this only means no longer waiting: a job that was handed in is carried out.
        """
        if self.at_once(job):
            if job.error is not None:
                raise job.error
            return job.outcome
        job.future = asyncio.get_running_loop().create_future()
        self._hand_over(job)
        return await job.future

    def at_once(self, job: Job) -> bool:
        """Do it here and now, without waiting for anything. False: it is not done, the thread has to do it."""
        # While the thread has something to do it has the database locked, or is about to.
        if not self._inline or self._with_thread or self._closed or job.size > INLINE_CHARS:
            return False
        if not self._quick_lock.acquire(blocking=False):
            return False
        try:
            if self._quick is None:
                self._quick = self._connect(0.0)
                self._quick.execute("PRAGMA wal_autocheckpoint = 0")
                self._cursor = self._quick.cursor()
            if job.single:
                # One statement is a transaction by itself. A cursor for each would cost another 2 µs.
                _work(self._cursor, job)
            else:
                _commit(self._quick, [job])
        except Exception:
            # Locked, or worse. The thread can wait, and what fails there as well is the truth.
            logger.debug("the writer thread of %s takes over", self._where, exc_info=True)
            return False
        finally:
            self._quick_lock.release()
        self._commits += 1
        if self._commits % COMMITS_BETWEEN_CHECKPOINTS == 0:
            self._queue.put(None)
        _land(job)
        return True

    def close(self) -> None:
        """Carry out what was submitted, then let go of the file. Safe to call twice."""
        with self._gate:
            # After a fork, the parent's connections are not the child's to close; its thread is no more.
            if not self._closed and self.pid == os.getpid():
                self._closed = True
                self._queue.put(END)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=2 * BUSY_SECONDS)

    def _hand_over(self, job: Job) -> None:
        with self._gate:
            if not self._closed:
                _threads.watch(job.waiting)
                self._with_thread += 1
                self._queue.put(job)
                return
        job.error = JournalError(f"the journal {self._where} is closed")
        _land_all([job])

    # --- in the writer's thread -------------------------------------------------------------------

    def _serve(self) -> None:
        db: Connection | None = None
        due = time.monotonic() + self._tick_seconds
        more = True
        while more:
            jobs, more = self._collect(max(0.0, due - time.monotonic()))
            try:
                db = db or self._connect(BUSY_SECONDS)
                self._commit_each(db, jobs)
            except Exception as error:  # it could not be opened; the next jobs try again
                self._fail(jobs, error)
            self._report(jobs)
            with self._gate:
                self._with_thread -= len(jobs)
            overdue = time.monotonic() >= due
            if db is not None and (overdue or not more):
                self._call_tick(db, last=not more)
            if overdue:
                due = time.monotonic() + self._tick_seconds
        with self._quick_lock:
            for connection in (self._quick, db):
                if connection is not None:
                    connection.close()

    def _collect(self, timeout: float) -> tuple[list[Job], bool]:
        """What has queued up, and whether to go on after it."""
        jobs: list[Job] = []
        with suppress(Empty):
            job = self._queue.get(timeout=timeout)
            while job != END:
                if job is not None:
                    jobs.append(job)
                if len(jobs) >= BATCH_JOBS:
                    return jobs, True
                job = self._queue.get_nowait()
            return jobs, False
        return jobs, True

    def _commit_each(self, db: Connection, jobs: list[Job]) -> None:
        """All in one transaction. Should that fail, each in its own: only what cannot be written fails."""
        try:
            if jobs:
                _commit(db, jobs)
            else:
                # With nobody writing beside it, it gets to the end of the log, which then starts over.
                with self._quick_lock:
                    db.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except Exception as error:
            if len(jobs) > 1:
                for job in jobs:
                    self._commit_each(db, [job])
            else:
                self._fail(jobs, error)

    def _call_tick(self, db: Connection, *, last: bool) -> None:
        try:
            self._tick(db, last)
        except Exception:
            # A lease that could not be renewed is tried again, and lost if that goes on for long.
            logger.warning("could not renew the leases in %s", self._where, exc_info=True)

    def _fail(self, jobs: Iterable[Job], error: Exception) -> None:
        for job in jobs:
            job.error = translated(error, self._where)
            job.lost()

    def _report(self, jobs: list[Job]) -> None:
        loops: dict[asyncio.AbstractEventLoop, list[Job]] = {}
        for job in jobs:
            loops.setdefault(job.waiting.get_loop(), []).append(job)
        for loop, theirs in loops.items():
            try:
                loop.call_soon_threadsafe(_land_all, theirs)
            except RuntimeError:  # the loop was closed meanwhile: nobody is left to tell
                for job in theirs:
                    job.lost()


def _commit(db: Connection, jobs: list[Job]) -> None:
    """All jobs in one transaction, which is rolled back when anything but a `ToolLoopError` is raised."""
    with db:
        db.execute("BEGIN IMMEDIATE")
        for job in jobs:
            _work(db, job)
        db.execute("COMMIT")


def _work(db: Database, job: Job) -> None:
    job.error = None
    try:
        job.outcome = job.work(db)
    except ToolLoopError as error:
        job.error = error


def _land(job: Job) -> None:
    if job.error is None:
        try:
            job.landed()
        except Exception as error:
            job.error = error


def _land_all(jobs: Iterable[Job]) -> None:
    for job in jobs:
        _land(job)
        if job.waiting.done():
            continue  # nobody waits for it any more
        if job.error is None:
            job.waiting.set_result(job.outcome)
        else:
            job.waiting.set_exception(job.error)
