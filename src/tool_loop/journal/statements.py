"""Records in a SQLite journal: the statements that add, read and list them.

Those about leases are in leases.py. Knows nothing about event loops or threads; what writes
here does so inside a transaction that somebody else began.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from tool_loop.errors import JournalDamaged, UnknownRun, UsageError
from tool_loop.events import ApprovalDecided, Event, RunStarted
from tool_loop.records import dataclass
from tool_loop.state import State

from . import codec
from .runs import ENDED, Record, RunInfo, RunState, as_mapping, meta_of
from .schema import Database

logger = logging.getLogger(__name__)

# The fencing check: where the token is no longer the run's, there is no row to make a record from.
APPEND: Final = "INSERT INTO records SELECT n, ?, ?, ? FROM runs WHERE n = ? AND fence = ?"

UPDATE: Final = """
UPDATE runs SET updated = ?, question = coalesce(?, question), meta = coalesce(?, meta), state = coalesce(?, state),
    steps = steps + ?, tokens = tokens + ?, cost = cost + ?, takeovers = takeovers * ?"""
# A run that has ended needs no driver: the lease goes back with the record of the end.
AND_LET_GO: Final = ", holder = '', lease_until = 0"
# What somebody asked for has been done, or has become pointless.
AND_HEARD: Final = ", cancel = ''"
ASK_TO_STOP: Final = "UPDATE runs SET cancel = ? WHERE id = ? AND state NOT IN ('answered', 'stopped')"
TO_STOP: Final = "SELECT n, cancel FROM runs WHERE cancel != ''"
LAST: Final = "SELECT max(seq) FROM records JOIN runs ON runs.n = records.run WHERE runs.id = ?"

# As bytes, because a text that was cut inside a character is no text.
READ: Final = "SELECT seq, at, CAST(record AS BLOB) FROM records WHERE run = ? AND seq >= ? ORDER BY seq"

Row: TypeAlias = tuple[int, float, bytes]


@dataclass(frozen=True, slots=True)
class RunChange:
    """What a record changes in the list of runs. `progress` says that the run got on."""

    state: RunState | None = None
    steps: int = 0
    tokens: int = 0
    cost: float | None = 0.0
    question: str | None = None
    meta: str | None = None
    progress: bool = False

    @property
    def ends(self) -> bool:
        return self.state in ENDED


def append(db: Database, run: tuple[int, int], seq: int, at: float, text: str) -> bool:
    """Add a record to the run `(n, fence)`; False when the token is no longer the run's.

    Raises `sqlite3.IntegrityError` when there is a record of that number.
    """
    return db.execute(APPEND, (seq, at, text, *run)).rowcount == 1


def decides(rows: Iterable[Row], call_id: str) -> bool:
    """Whether somebody has decided about this call in these records."""
    events = (codec.decode(text) for _, _, text in rows)
    return any(isinstance(event, ApprovalDecided) and event.call_id == call_id for event in events)


def insert(db: Database, n: int, seq: int, at: float, text: str, change: RunChange) -> None:
    """Add a record without a lease, as number `seq` and no other."""
    db.execute("INSERT INTO records VALUES (?, ?, ?, ?)", (n, seq, at, text))
    update(db, n, at, change)


def recount(db: Database, n: int, info: RunInfo) -> None:
    """What the list shows of a run, counted anew from its records."""
    db.execute(
        "UPDATE runs SET question = ?, state = ?, steps = ?, tokens = ?, cost = ? WHERE n = ?",
        (info.question, info.state, info.steps, info.tokens, info.cost, n),
    )


def update(db: Database, n: int, at: float, change: RunChange) -> None:
    heard = change.ends or change.state == "cancelled"
    statement = f"{UPDATE}{AND_LET_GO if change.ends else ''}{AND_HEARD if heard else ''} WHERE n = ?"
    values = (change.question, change.meta, change.state, change.steps, change.tokens, change.cost)
    db.execute(statement, (at, *values, not change.progress, n))


def fenced(db: Database, n: int) -> str:
    """What to tell a process that no longer has the run."""
    # All rows, though there is one at most: a cursor that is not at its end keeps a transaction open.
    rows = db.execute("SELECT id, holder FROM runs WHERE n = ?", (n,)).fetchall()
    name, holder = rows[0] if rows else (n, "")
    who = f"was taken over by {holder.partition('|')[0]}" if holder else "was taken over"
    return f"run {name} {who} while this process slept; what it did since then is not on record"


def read(db: Database, n: int, start: int = 0) -> list[Row]:
    return db.execute(READ, (n, start)).fetchall()


def number(db: Database, run_id: str) -> int:
    row = db.execute("SELECT n FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise UnknownRun(f"there is no run {run_id} in this journal")
    return int(row[0])


def has_ended(db: Database, run_id: str) -> bool:
    return db.execute("SELECT state FROM runs WHERE n = ?", (number(db, run_id),)).fetchone()[0] in ENDED


def untorn(rows: list[Row]) -> list[Row]:
    """Without a last record whose end is missing: it was never acknowledged, so nothing followed from it."""
    return rows[:-1] if rows and codec.is_torn(rows[-1][2]) else rows


def trim(db: Database, run_id: str, n: int, rows: list[Row]) -> list[Row]:
    """The records of a run, after a torn last one has been removed from the file."""
    whole = untorn(rows)
    if len(whole) < len(rows):
        logger.warning("run %s: record %d was cut short and is dropped", run_id, rows[-1][0])
        db.execute("DELETE FROM records WHERE run = ? AND seq = ?", (n, rows[-1][0]))
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


def decoded(run_id: str, rows: Iterable[Row], start: int) -> list[Record]:
    """The records from number `start` on, each by itself. Raises `JournalDamaged`, naming the run and the record."""
    found: list[Record] = []
    for seq, at, text in rows:
        if seq != start + len(found):
            raise JournalDamaged(f"run {run_id}: record {start + len(found)} is missing")
        try:
            found.append(Record(seq, at, codec.decode(text)))
        except JournalDamaged as error:
            raise JournalDamaged(f"run {run_id}, record {seq}: {error.message}") from None
    return found


def create(db: Database, run_id: str, at: float, events: Sequence[Event], info: RunInfo) -> None:
    """A new run with these records. Raises `UsageError` when there is one of that id."""
    new = db.execute("INSERT OR IGNORE INTO runs (id, at, updated) VALUES (?, ?, ?)", (run_id, at, at))
    if not new.rowcount:
        raise UsageError(f"there is a run {run_id} in this journal already")
    n = number(db, run_id)
    rows = [(n, seq, at, codec.encode(event)) for seq, event in enumerate(events)]
    db.executemany("INSERT INTO records VALUES (?, ?, ?, ?)", rows)
    recount(db, n, info)
    db.execute("UPDATE runs SET meta = ? WHERE n = ?", (meta_of(events[0]) or "{}", n))


def _add(state: State, event: Event) -> None:
    if isinstance(event, RunStarted) == bool(state.events):
        raise JournalDamaged("run_started is the first record of a run, and no other is")
    state.apply(event)


def list_runs(db: Database, driver: Callable[[str, float], str]) -> list[RunInfo]:
    rows: Sequence[Any] = db.execute(
        "SELECT id, at, updated, question, state, steps, tokens, holder, lease_until, parked, cost, meta FROM runs "
        "WHERE state != '' ORDER BY updated DESC, n DESC"
    ).fetchall()
    return [_info(row, driver) for row in rows]


def _info(row: Any, driver: Callable[[str, float], str]) -> RunInfo:
    run_id, at, updated, question, state, steps, spent, holder, until, parked, paid, meta = row
    name = driver(holder, until)
    if parked:
        state = "poisoned"
    elif state == "running" and not name:
        state = "interrupted"
    elif state == "ready" and name:
        state = "running"
    return RunInfo(run_id, at, updated, question, state, steps, spent, name, paid, as_mapping(meta))
