"""Commits work to one SQLite file, many appends in one transaction, without holding the event loop up.

Every change is a `Job`: some statements for a transaction, and a future of the event loop that waits
for it. A thread collects what has queued up and commits it together: one fsync for all of it, paid
on the thread. Where no fsync is asked for, a commit takes about 25 µs while waking a thread and
being woken by it takes 50; there the jobs of one turn of the loop are committed in that loop's own
thread, and everything that could take long (another process has the database locked, a checkpoint,
a large batch, a full disk) goes to the thread.

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
from queue import Empty, SimpleQueue
from sqlite3 import Connection
from typing import Any

from . import _threads
from .errors import JournalError, ToolLoopError
from .sqlite_file import BUSY_SECONDS, translated

logger = logging.getLogger(__name__)

# More than this in one transaction would hold up the loop's other work, or the others in the queue.
INLINE_CHARS = 128_000
BATCH_JOBS = 1_000
# What is committed on the loop never checkpoints, because that syncs the disk; the thread does after
# this many commits. At three pages of 4 KiB each, that keeps the write-ahead log below 4 MiB.
COMMITS_BETWEEN_CHECKPOINTS = 250


class Job(ABC):
    """Work for one transaction. Done again from the start when the first attempt was rolled back."""

    __slots__ = ("error", "future", "loop", "outcome", "size")

    def __init__(self, size: int = 0) -> None:
        self.size = size
        self.outcome: Any = None
        self.error: Exception | None = None
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()

    @abstractmethod
    def work(self, db: Connection) -> Any:
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

    __slots__ = ("_func",)

    def __init__(self, func: Callable[[Connection], Any]) -> None:
        super().__init__()
        self._func = func

    def work(self, db: Connection) -> Any:
        return self._func(db)


class Writer:
    """The one place in this process where a database file is written.

    `connect` opens a connection that waits so many seconds for a lock. With `inline`, small batches
    are committed in the thread of the event loop; without, all of them in the writer's own. `tick`
    is called there every `tick_seconds`, and with True once before the file is let go of.
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
        self.users = 0  # how many may submit at the same time
        self._connect = connect
        self._where = where
        self._inline = inline
        self._tick = tick
        self._tick_seconds = tick_seconds
        self._queue: SimpleQueue[list[Job] | None] = SimpleQueue()
        self._gate = threading.Lock()  # nothing enters the queue behind the None that ends it
        self._closed = False
        self._busy = False
        self._turns: dict[asyncio.AbstractEventLoop, list[Job]] = {}
        self._quick: Connection | None = None
        self._quick_lock = threading.Lock()
        self._commits = 0
        self._thread = threading.Thread(target=self._serve, name=f"journal {where}", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> asyncio.Future[Any]:
        """The future of the job's outcome. Cancelling it only means no longer waiting: a job that
        was submitted is carried out.
        """
        if not self._inline:
            self._hand_over([job])
        elif job.loop in self._turns:
            self._turns[job.loop].append(job)
        else:
            self._turns[job.loop] = [job]
            if self.users > 1:
                job.loop.call_soon(self._flush, job.loop)
            else:
                self._flush(job.loop)  # nobody else would have come along in this turn
        return job.future

    def close(self) -> None:
        """Carry out what was submitted, then let go of the file. Safe to call twice."""
        with self._gate:
            # After a fork, the parent's connections are not the child's to close; its thread is no more.
            if not self._closed and self.pid == os.getpid():
                self._closed = True
                for loop in tuple(self._turns):
                    self._queue.put(self._turns.pop(loop, []))
                self._queue.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=2 * BUSY_SECONDS)

    # --- in the thread of an event loop ----------------------------------------------------------

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit what this turn of the loop has brought; give it to the thread where it could take long."""
        jobs = self._turns.pop(loop, [])
        # While the thread has something to do it has the database locked, or is about to.
        idle = self._queue.empty() and not self._busy and not self._closed
        if not (idle and sum(job.size for job in jobs) <= INLINE_CHARS and self._quick_lock.acquire(blocking=False)):
            self._hand_over(jobs)
            return
        done = False
        try:
            if self._quick is None:
                self._quick = self._connect(0.0)
                self._quick.execute("PRAGMA wal_autocheckpoint = 0")
            _commit(self._quick, jobs)
            done = True
        except Exception:
            # Locked, or worse. The thread can wait, and what fails there as well is the truth.
            logger.debug("the writer thread of %s takes over", self._where, exc_info=True)
        finally:
            self._quick_lock.release()
            if not done:
                self._hand_over(jobs)
        if done:
            self._commits += 1
            if self._commits % COMMITS_BETWEEN_CHECKPOINTS == 0:
                self._queue.put([])
            _land(jobs)

    def _hand_over(self, jobs: list[Job]) -> None:
        with self._gate:
            if not self._closed:
                for job in jobs:
                    _threads.watch(job.future)
                self._queue.put(jobs)
                return
        for job in jobs:
            job.error = JournalError(f"the journal {self._where} is closed")
        _land(jobs)

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
            overdue = time.monotonic() >= due
            if db is not None and (overdue or not more):
                self._call_tick(db, last=not more)
            if overdue:
                due = time.monotonic() + self._tick_seconds
            self._busy = False
        with self._quick_lock:
            for connection in (self._quick, db):
                if connection is not None:
                    connection.close()

    def _collect(self, timeout: float) -> tuple[list[Job], bool]:
        """What has queued up, and whether to go on after it."""
        jobs: list[Job] = []
        try:
            more = self._queue.get(timeout=timeout)
            self._busy = True
            while more is not None:
                jobs += more
                if len(jobs) >= BATCH_JOBS:
                    break
                more = self._queue.get_nowait()
        except Empty:
            return jobs, True
        return jobs, more is not None

    def _commit_each(self, db: Connection, jobs: list[Job]) -> None:
        """All in one transaction. Should that fail, each in its own: only what cannot be written fails."""
        try:
            if jobs:
                _commit(db, jobs)
            else:
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
            loops.setdefault(job.loop, []).append(job)
        for loop, theirs in loops.items():
            try:
                loop.call_soon_threadsafe(_land, theirs)
            except RuntimeError:  # the loop was closed meanwhile: nobody is left to tell
                for job in theirs:
                    job.lost()


def _commit(db: Connection, jobs: Iterable[Job]) -> None:
    """All jobs in one transaction, which is rolled back when anything but a `ToolLoopError` is raised."""
    with db:
        db.execute("BEGIN IMMEDIATE")
        for job in jobs:
            job.error = None
            try:
                job.outcome = job.work(db)
            except ToolLoopError as error:
                job.error = error
        db.execute("COMMIT")


def _land(jobs: Iterable[Job]) -> None:
    for job in jobs:
        if job.error is None:
            try:
                job.landed()
            except Exception as error:
                job.error = error
        if job.future.done():
            continue
        if job.error is None:
            job.future.set_result(job.outcome)
        else:
            job.future.set_exception(job.error)
