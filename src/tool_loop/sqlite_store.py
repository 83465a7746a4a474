"""The tables of a journal file and every statement on them but those about leases (sqlite_lease.py).

The file says which format it has from its first day: `application_id` marks it as ours and
`user_version` is `codec.FORMAT`. Knows nothing about event loops or threads; everything here runs
inside a transaction that somebody else began.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Final, Literal, TypeAlias

from . import codec
from .errors import Fenced, JournalDamaged, JournalError, UnknownRun
from .events import Event, ModelReplied, RunStarted, ToolReturned
from .runs import QUESTION_CHARS, RunInfo, RunState, stage, tokens
from .state import State

logger = logging.getLogger(__name__)

Durable: TypeAlias = Literal["process", "power"]

APPLICATION_ID: Final = 0x746F6F6C  # "tool"

# `n` is never given out twice, because of AUTOINCREMENT: the token of a process that slept must not
# fit a run that came later. `records` is written at its end only, whatever runs are mixed in it; its
# index keeps a run together, and makes two records with one number impossible.
SCHEMA: Final = """
CREATE TABLE runs (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    at REAL NOT NULL,
    updated REAL NOT NULL,
    question TEXT NOT NULL DEFAULT '',
    state TEXT NOT NULL DEFAULT '',
    steps INTEGER NOT NULL DEFAULT 0,
    tokens INTEGER NOT NULL DEFAULT 0,
    holder TEXT NOT NULL DEFAULT '',
    fence INTEGER NOT NULL DEFAULT 0,
    lease_until REAL NOT NULL DEFAULT 0,
    takeovers INTEGER NOT NULL DEFAULT 0,
    parked INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE records (
    run INTEGER NOT NULL REFERENCES runs,
    seq INTEGER NOT NULL,
    at REAL NOT NULL,
    record TEXT NOT NULL,
    UNIQUE (run, seq)
);
"""

# The fencing check: where the token is no longer the run's, there is no row to make a record from.
APPEND: Final = "INSERT INTO records SELECT n, ?, ?, ? FROM runs WHERE n = ? AND fence = ?"

UPDATE: Final = """
UPDATE runs SET updated = ?, question = coalesce(?, question), state = coalesce(?, state),
    steps = steps + ?, tokens = tokens + ?, takeovers = takeovers * ? WHERE n = ?"""

# As bytes, because a text that was cut inside a character is no text.
READ: Final = "SELECT seq, at, CAST(record AS BLOB) FROM records WHERE run = ? AND seq >= ? ORDER BY seq"

Row: TypeAlias = tuple[int, float, bytes]


@dataclass(frozen=True, slots=True)
class Change:
    """What a record changes in the list of runs."""

    question: str | None = None
    state: RunState | None = None
    steps: int = 0
    tokens: int = 0
    progress: bool = False

    @classmethod
    def of(cls, state: State, event: Event, takeovers: int) -> Change | None:
        """None where the list stays as it is, which spares a write."""
        match event:
            case RunStarted():
                question = event.question[:QUESTION_CHARS].encode("utf-8", "replace").decode()
                return cls(question, stage(state, event))
            case ModelReplied():
                return cls(None, None, 1, tokens(event), progress=True)
            case ToolReturned():
                return cls(progress=True) if takeovers else None
            case _:
                standing, spent = stage(state, event), tokens(event)
                return cls(None, standing, 0, spent) if standing or spent else None


# --- the file -------------------------------------------------------------------------------------


def connect(path: str, wait_seconds: float) -> Connection:
    """How the database is opened. Transactions are begun and ended by hand."""
    return sqlite3.connect(path, timeout=wait_seconds, isolation_level=None, check_same_thread=False)


def tune(db: Connection, durable: Durable) -> None:
    """In WAL mode, NORMAL survives the death of the process without one fsync per commit, and a power
    cut costs the last records but never the file. FULL survives the power cut as well.
    """
    if durable == "power":
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA fullfsync = 1")  # macOS: there a plain fsync does not reach the disk
    else:
        db.execute("PRAGMA synchronous = NORMAL")


def create(path: Path) -> None:
    """An empty file that only its owner can read, with the directories above it; runs hold secrets."""
    for directory in reversed(path.parents):
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
    # Only when it is new: closing any descriptor of a database drops the locks of the whole process.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def prepare(db: Connection, where: str) -> None:
    """Make the file a journal, or check that it is one this version can read. Raises `JournalError`."""
    if _is_journal(db, where):
        return
    mode = _write_ahead(db)
    if mode != "wal":
        raise JournalError(f"{where} cannot hold a journal: no write-ahead log there ({mode}); use a local disk")
    db.execute("BEGIN IMMEDIATE")
    if not _is_journal(db, where):
        for statement in SCHEMA.split(";")[:-1]:
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {codec.FORMAT}")
    db.execute("COMMIT")


def _write_ahead(db: Connection) -> str:
    # SQLite does not wait for a lock here, and two processes may make the same file at once.
    for _ in range(100):
        with suppress(sqlite3.OperationalError):
            return str(db.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        time.sleep(0.01)
    return str(db.execute("PRAGMA journal_mode = WAL").fetchone()[0])


def _is_journal(db: Connection, where: str) -> bool:
    mark = db.execute("PRAGMA application_id").fetchone()[0]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if mark == APPLICATION_ID and version > codec.FORMAT:
        raise JournalError(
            f"the journal {where} has format {version}, this version of tool-loop reads up to {codec.FORMAT}; "
            "upgrade tool-loop, or use another file"
        )
    if mark not in (0, APPLICATION_ID) or (mark == 0 and tables):
        raise JournalError(f"{where} is the database of another program; give the journal a file of its own")
    return bool(mark)


# --- records --------------------------------------------------------------------------------------


def append(
    db: Connection, run: tuple[int, int], seq: int, known: int, at: float, text: str, change: Change | None
) -> tuple[int, list[Row]]:
    """Add a record to the run `(n, fence)`, as number `seq` or behind what others have added meanwhile.

    Returns its number, and the records from `known` on that lie before it. Raises `Fenced`.
    """
    news: list[Row] = []
    try:
        done = db.execute(APPEND, (seq, at, text, *run)).rowcount
    except sqlite3.IntegrityError:
        # A decision got in between, or a record of our own that the loop has not heard of yet.
        news = read(db, run[0], known)
        seq = news[-1][0] + 1
        done = db.execute(APPEND, (seq, at, text, *run)).rowcount
    if not done:
        raise Fenced(_fenced(db, run[0]))
    if change is not None:
        update(db, run[0], at, change)
    return seq, news


def insert(db: Connection, n: int, seq: int, at: float, text: str, change: Change | None) -> None:
    """Add a record without a lease, as number `seq` and no other."""
    db.execute("INSERT INTO records VALUES (?, ?, ?, ?)", (n, seq, at, text))
    if change is not None:
        update(db, n, at, change)


def recount(db: Connection, n: int, info: RunInfo) -> None:
    """What the list shows of a run, counted anew from its records."""
    db.execute(
        "UPDATE runs SET question = ?, state = ?, steps = ?, tokens = ? WHERE n = ?",
        (info.question, info.state, info.steps, info.tokens, n),
    )


def update(db: Connection, n: int, at: float, change: Change) -> None:
    db.execute(UPDATE, (at, change.question, change.state, change.steps, change.tokens, not change.progress, n))


def _fenced(db: Connection, n: int) -> str:
    row = db.execute("SELECT id, holder FROM runs WHERE n = ?", (n,)).fetchone()
    name, holder = row or (n, "")
    who = f"was taken over by {holder.partition('|')[0]}" if holder else "was taken over"
    return f"run {name} {who} while this process slept; what it did since then is not on record"


def read(db: Connection, n: int, start: int = 0) -> list[Row]:
    return db.execute(READ, (n, start)).fetchall()


def number(db: Connection, run_id: str) -> int:
    row = db.execute("SELECT n FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise UnknownRun(f"there is no run {run_id} in this journal")
    return int(row[0])


def untorn(rows: list[Row]) -> list[Row]:
    """Without a last record whose end is missing: it was never acknowledged, so nothing followed from it."""
    return rows[:-1] if rows and codec.is_torn(rows[-1][2]) else rows


def trim(db: Connection, run_id: str, n: int, rows: list[Row]) -> list[Row]:
    """The records of a run, after a torn last one has been removed from the file."""
    whole = untorn(rows)
    if len(whole) < len(rows):
        logger.warning("run %s: record %d was cut short and is dropped", run_id, rows[-1][0])
        db.execute("DELETE FROM records WHERE run = ? AND seq >= ?", (n, rows[-1][0]))
    return whole


def fold(run_id: str, rows: Iterable[Row], state: State) -> State:
    """The state with these records in it. Raises `JournalDamaged`, naming the run and the record."""
    for seq, _, text in rows:
        if seq != len(state.events):
            raise JournalDamaged(f"run {run_id}: record {len(state.events)} is missing")
        try:
            _add(state, codec.decode(text))
        except JournalDamaged as error:
            raise JournalDamaged(f"run {run_id}, record {seq}: {error.message}") from None
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise JournalDamaged(f"run {run_id}, record {seq} does not fit the ones before it ({what})") from None
    return state


def _add(state: State, event: Event) -> None:
    if isinstance(event, RunStarted) == bool(state.events):
        raise JournalDamaged("run_started is the first record of a run, and no other is")
    state.apply(event)


def list_runs(db: Connection, driver: Callable[[str, float], str]) -> list[RunInfo]:
    rows: Sequence[Any] = db.execute(
        "SELECT id, at, updated, question, state, steps, tokens, holder, lease_until, parked FROM runs "
        "WHERE state != '' ORDER BY updated DESC, n DESC"
    ).fetchall()
    return [_info(row, driver) for row in rows]


def _info(row: Any, driver: Callable[[str, float], str]) -> RunInfo:
    run_id, at, updated, question, state, steps, spent, holder, until, parked = row
    name = driver(holder, until)
    if parked:
        state = "poisoned"
    elif state == "running" and not name:
        state = "interrupted"
    return RunInfo(run_id, at, updated, question, state, steps, spent, name)
