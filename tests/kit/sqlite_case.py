"""What the tests of the SQLite journal share: a run, a clock, ways to fill a file, to damage it and to make it fail."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tool_loop import MemoryJournal
from tool_loop.events import (
    ApprovalRequest,
    ApprovalRequested,
    Event,
    IntentRecorded,
    ModelReplied,
    Retry,
    RunEnded,
    RunStarted,
    ToolCall,
    ToolReturned,
    Usage,
)
from tool_loop.journal.identity import ProcessIdentity
from tool_loop.journal.sqlite import SqliteJournal

from .runs import calls, says

ONE_RUN: list[Event] = [
    RunStarted("what is in it?", "You are helpful."),
    calls(("1", "look"), ("2", "pay")),
    ToolReturned("1", "a key \U0001f511"),
    IntentRecorded(("2",)),
    ToolReturned("2", "paid"),
    says("a key"),
    RunEnded("answered", "a key"),
]


class Clock:
    """Unix time that goes on only when a test says so."""

    def __init__(self) -> None:
        self.start = self.time = 1_767_225_600.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "runs.db"


@pytest.fixture(params=["process", "power"])
def journal(request: pytest.FixtureRequest, path: Path) -> Iterator[SqliteJournal]:
    with SqliteJournal(path, durable=request.param) as journal:
        yield journal


async def fill(journal: SqliteJournal | MemoryJournal, events: list[Event] = ONE_RUN, run_id: str = "r1") -> None:
    async with journal.open(run_id) as log:
        for event in events:
            await asyncio.sleep(0)  # whatever makes an event takes longer than writing it down
            await log.append(event)


def keep(path: Path, events: list[Event] = ONE_RUN, run_id: str = "r1") -> None:
    with SqliteJournal(path) as journal:
        asyncio.run(fill(journal, events, run_id))


async def state_of(journal: SqliteJournal, run_id: str = "r1") -> list[Event]:
    async with journal.open(run_id) as log:
        return log.state.events


def tamper(path: Path, statement: str, *values: object) -> list[tuple]:
    """What a person with a hex editor, or a broken disk, does to the file."""
    with closing(sqlite3.connect(path)) as db, db:
        return db.execute(statement, values).fetchall()


ASKED = [
    RunStarted("q" * 1000),
    ModelReplied(
        "", (ToolCall("1", "pay"), ToolCall("2", "pay")), usage=Usage(10, 5), retries=(Retry("t", "", 0.0, None, 7),)
    ),
    ApprovalRequested((ApprovalRequest("1", "f1"), ApprovalRequest("2", "f2"))),
]


async def waiting(journal: SqliteJournal) -> None:
    await fill(journal, ASKED)


def dies_with(path: Path, holder: str, until: float) -> None:
    """The file as a process leaves it that was killed in the middle of a run."""
    tamper(path, "UPDATE runs SET holder = ?, lease_until = ?", holder, until)


@pytest.fixture
def dead() -> ProcessIdentity:
    """A process that has ended, and that nobody has asked about yet: it still has its number."""
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    text = str(ProcessIdentity.of(child.pid))
    child.stdin.close()  # type: ignore[union-attr]
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    yield ProcessIdentity.parsed(text)
    child.wait()


class Spy:
    """A connection that counts transactions, and fails where a test says so."""

    def __init__(self, db: sqlite3.Connection | sqlite3.Cursor, plan: Plan) -> None:
        self._db = db
        self._plan = plan

    def cursor(self) -> Spy:
        return Spy(self._db.cursor(), self._plan)  # type: ignore[union-attr]

    def execute(self, statement: str, values: object = ()) -> sqlite3.Cursor:
        self._plan.before(statement, values)
        return self._db.execute(statement, values)

    def executemany(self, statement: str, values: object) -> sqlite3.Cursor:
        self._plan.before(statement, values)
        return self._db.executemany(statement, values)

    def __enter__(self) -> None:
        self._db.__enter__()

    def __exit__(self, *details: object) -> None:
        self._db.__exit__(*details)  # type: ignore[arg-type]

    def close(self) -> None:
        self._db.close()


class Plan:
    """Fails the statements for which `fails` gives an error."""

    def __init__(self, fails: Callable[[str, object], Exception | None] = lambda *_: None) -> None:
        self.fails = fails
        self.begun = 0
        self.opened = 0

    def before(self, statement: str, values: object) -> None:
        self.begun += statement.startswith("BEGIN")
        if error := self.fails(statement, values):
            raise error

    def connect(self, path: str, wait: float) -> sqlite3.Connection:
        self.opened += 1
        db = sqlite3.connect(path, timeout=min(wait, 0.05), isolation_level=None, check_same_thread=False)
        return Spy(db, self)  # type: ignore[return-value]


def full() -> sqlite3.Error:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error


def busy() -> sqlite3.Error:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error
