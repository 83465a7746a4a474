"""The file of a SQLite journal: how it is made, opened and checked, and what SQLite's errors mean.

It says which form it has from its first day: `application_id` marks it as ours and `user_version` is
`VERSION`. A file of an older version is brought up to date when it is opened (migration.py). The format of
the records in it is another thing, and has a number of its own, `codec.FORMAT`. Knows nothing about events,
leases or threads.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from sqlite3 import Connection, Cursor
from typing import Final, Literal, TypeAlias

from tool_loop.errors import JournalDamaged, JournalError

from .migration import migrate

Durable: TypeAlias = Literal["process", "power"]

# Whatever can execute a statement.
Database: TypeAlias = Connection | Cursor

# How long a commit waits for another process that writes. Its transactions take milliseconds, so
# this only runs out when somebody keeps one open by hand, or the disk hangs.
BUSY_SECONDS = 5.0

WAL_ATTEMPTS = 50

APPLICATION_ID: Final = 0x746F6F6C  # "tool"
# 2: the list of runs has what each was started with and its cost, and a place to ask for the end of one.
VERSION: Final = 2

# `n` is never given out twice, because of AUTOINCREMENT: the token of a process that slept must not
# fit a run that came later. Records are added at the end of their table, whatever runs are mixed in
# it; the index keeps a run together and makes two records with one number impossible. (A table in the
# order of run and number writes one page less for a run alone, and splits pages all the time for many.)
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
    parked INTEGER NOT NULL DEFAULT 0,
    meta TEXT NOT NULL DEFAULT '{}',
    cost REAL DEFAULT 0,
    cancel TEXT NOT NULL DEFAULT ''
);
CREATE INDEX cancels ON runs (n) WHERE cancel != '';
CREATE TABLE records (
    run INTEGER NOT NULL REFERENCES runs,
    seq INTEGER NOT NULL,
    at REAL NOT NULL,
    record TEXT NOT NULL,
    UNIQUE (run, seq)
);
CREATE VIEW journal (run_id, seq, at, record) AS
    SELECT runs.id, records.seq, records.at, records.record FROM records JOIN runs ON runs.n = records.run;
"""


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
    for directory in reversed([parent for parent in path.parents if not parent.exists()]):
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
    # Only when it is new: closing any descriptor of a database drops the locks of the whole process.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def prepare(db: Connection, where: str) -> None:
    """Make the file a journal, or check that it is one this version can read. Raises `JournalError`."""
    if _is_journal(db, where):
        if db.execute("PRAGMA user_version").fetchone()[0] < VERSION:
            _update(db)
        return
    mode = _write_ahead(db)
    if mode != "wal":
        raise JournalError(f"{where} cannot hold a journal: no write-ahead log there ({mode}); use a local disk")
    with db:
        db.execute("BEGIN IMMEDIATE")
        if not _is_journal(db, where):
            for statement in SCHEMA.split(";")[:-1]:
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {VERSION}")


def _update(db: Connection) -> None:
    """Several processes may open an old file at once: the first one does it, and the others find it done."""
    with db:
        db.execute("BEGIN IMMEDIATE")
        if db.execute("PRAGMA user_version").fetchone()[0] < VERSION:
            migrate(db)
            db.execute(f"PRAGMA user_version = {VERSION}")


def _write_ahead(db: Connection) -> str:
    # SQLite does not wait for a lock here, and two processes may make the same file at once.
    for attempt in range(WAL_ATTEMPTS):
        try:
            return str(db.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError:
            if attempt == WAL_ATTEMPTS - 1:
                raise
            time.sleep(0.01)
    raise AssertionError


def _is_journal(db: Connection, where: str) -> bool:
    mark = db.execute("PRAGMA application_id").fetchone()[0]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if mark == APPLICATION_ID and version > VERSION:
        raise JournalError(
            f"the journal {where} has format {version}, this version of tool-loop reads up to {VERSION}; "
            "upgrade tool-loop, or use another file"
        )
    if mark not in (0, APPLICATION_ID) or (mark == 0 and tables):
        raise JournalError(f"{where} is the database of another program; give the journal a file of its own")
    if db.execute("SELECT count(*) FROM sqlite_master WHERE type = 'trigger'").fetchone()[0]:
        # They run with what we write: a denial could become an approval in a file that somebody sent.
        raise JournalError(f"{where} has triggers, which no journal of ours has: somebody changed it; do not use it")
    return bool(mark)


def translated(error: Exception, where: str) -> JournalError:
    """What SQLite says, as an error that says what to do about it."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    match code:
        case 5 | 6:
            return JournalError(
                f"another program kept the journal {where} locked for {BUSY_SECONDS:g} s; close what has it open"
            )
        case 11 | 26:
            return JournalDamaged(f"the file {where} is damaged or is not a journal: {error}")
        case 13:
            return JournalError(f"no space left for the journal {where}; make room, then resume the run")
        case 3 | 8 | 14:
            return JournalError(f"cannot open the journal {where} for writing: {error}; check the path and its rights")
        case _:
            return JournalError(f"cannot write to the journal {where}: {error}")
