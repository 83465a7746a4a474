"""Brings the file of an older version up to date, in the transaction that somebody else began.

The records are not touched: they are the runs, and every version reads them. What changes is the list of
runs beside them, which can be made anew from the records at any time.
"""

from __future__ import annotations

from collections.abc import Iterator
from sqlite3 import Connection
from typing import Final

from tool_loop.errors import JournalDamaged
from tool_loop.events import Event, RunInterrupted

from . import codec
from .runs import cost, interrupted, meta_of, sum_of

_COLUMNS: Final = (
    "ALTER TABLE runs ADD COLUMN meta TEXT NOT NULL DEFAULT '{}'",
    "ALTER TABLE runs ADD COLUMN cost REAL DEFAULT 0",
    "ALTER TABLE runs ADD COLUMN cancel TEXT NOT NULL DEFAULT ''",
    "CREATE INDEX cancels ON runs (n) WHERE cancel != ''",
)
# The last record says how the run stands; of the others only these matter here, and most need not be read.
_TELLING: Final = """
SELECT record FROM records WHERE run = ? AND (
    seq = (SELECT max(seq) FROM records WHERE run = ?)
    OR record LIKE '{"event":"run_started"%' OR record LIKE '{"event":"model_replied"%'
    OR record LIKE '{"event":"compacted"%'
) ORDER BY seq"""


def migrate(db: Connection) -> None:
    """From version 1 to 2."""
    for statement in _COLUMNS:
        db.execute(statement)
    for n, state in db.execute("SELECT n, state FROM runs").fetchall():
        events = list(_telling(db, n))
        if not events:
            continue
        if state == "interrupted" and isinstance(events[-1], RunInterrupted):
            state = interrupted(events[-1])  # noqa: PLW2901 - said more exactly
        spent = sum_of([cost(event) for event in events])
        db.execute("UPDATE runs SET meta = ?, cost = ?, state = ? WHERE n = ?", (_meta(events[0]), spent, state, n))


def _telling(db: Connection, n: int) -> Iterator[Event]:
    for (record,) in db.execute(_TELLING, (n, n)):
        try:
            yield codec.decode(record)
        except JournalDamaged:
            continue  # whoever reads the run is told; the others must not wait for that


def _meta(event: Event) -> str:
    return meta_of(event) or "{}"
