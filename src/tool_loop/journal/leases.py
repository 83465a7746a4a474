"""Who may drive a run: leases with a fencing token, taken over when their holder is dead.

A lease runs out unless it is renewed, so a machine that vanished blocks nobody for long. Where the
holder was a process of this machine, one look says whether it still lives, and its runs can go on at
once. A token is one higher for each holder: whoever held it before can no longer append.

A run that is taken over again and again without getting on kills its drivers (a tool that exhausts
the memory, a result that crashes a library), and would go on doing so on every machine it is given
to. After a few times it is parked until a person has looked at it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import field
from sqlite3 import Connection
from typing import Final

from tool_loop.errors import RunBusy, RunPoisoned
from tool_loop.records import dataclass

from . import statements as store
from .identity import ProcessIdentity
from .schema import Database
from .statements import Row

NEW: Final = """
INSERT OR IGNORE INTO runs (id, at, updated, holder, fence, lease_until) VALUES (?, ?, ?, ?, 1, ?)"""
SELECT: Final = """
SELECT n, holder, fence, lease_until, takeovers, parked, cancel, steps, tokens, cost FROM runs WHERE id = ?"""
RENEW: Final = "UPDATE runs SET lease_until = max(lease_until, ?) WHERE n = ? AND fence = ?"
TAKE: Final = "UPDATE runs SET holder = ?, fence = ?, lease_until = ?, takeovers = ? WHERE n = ?"
LET_GO: Final = "UPDATE runs SET holder = '', lease_until = 0 WHERE n = ? AND fence = ?"
FORGET: Final = "DELETE FROM runs WHERE n = ? AND fence = ? AND NOT EXISTS (SELECT 1 FROM records WHERE run = n)"
# With a token of its own: the last holder may only have slept, and must not write when it wakes up.
PARK: Final = "UPDATE runs SET parked = 1, takeovers = ?, fence = fence + 1, holder = '', lease_until = 0 WHERE n = ?"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to drive a run: its row and token, and what was on record when it was given.

    `listed` are the steps, tokens and cost that the list of runs shows; `cancel` is who asked for its end.
    """

    n: int
    fence: int
    takeovers: int
    listed: tuple[int, int, float | None]
    rows: list[Row] = field(repr=False)
    torn: bool = False
    cancel: str = ""

    @property
    def key(self) -> tuple[int, int]:
        return self.n, self.fence


class Leases:
    """The leases of one journal object. Its methods run inside a transaction."""

    def __init__(self, seconds: float, max_takeovers: int, clock: Callable[[], float]) -> None:
        self.me = ProcessIdentity.here()
        self._mine = str(self.me)
        self._seconds = seconds
        self._max_takeovers = max_takeovers
        self._clock = clock
        self._held: set[tuple[int, int]] = set()

    def take(self, db: Database, run_id: str, now: float) -> Lease:
        """Raises `RunBusy` and `RunPoisoned`."""
        later = now + self._seconds
        new = db.execute(NEW, (run_id, now, now, self._mine, later))
        if new.rowcount and new.lastrowid:
            return self._holding(Lease(new.lastrowid, 1, 0, (0, 0, 0.0), []))
        n, holder, fence, until, takeovers, parked, cancel, *listed = db.execute(SELECT, (run_id,)).fetchone()
        if parked:
            raise RunPoisoned(_poisoned(run_id, takeovers))
        if holder and not self._abandoned(n, fence, holder):
            if name := driver(holder, until, now):
                raise RunBusy(_busy(run_id, name, until))
            # Its holder died, or was not heard of for longer than it promised.
            takeovers += 1
            if takeovers > self._max_takeovers:
                db.execute(PARK, (takeovers, n))
                raise RunPoisoned(_poisoned(run_id, takeovers))
        rows = store.read(db, n)
        whole = store.trim(db, run_id, n, rows)
        db.execute(TAKE, (self._mine, fence + 1, later, takeovers, n))
        torn = len(whole) < len(rows)
        return self._holding(Lease(n, fence + 1, takeovers, (listed[0], listed[1], listed[2]), whole, torn, cancel))

    def _holding(self, lease: Lease) -> Lease:
        # Before the commit: from then on it must not look abandoned to another task of this process.
        self._held.add(lease.key)
        return lease

    def _abandoned(self, n: int, fence: int, holder: str) -> bool:
        """Whether it is our own, and could not be given back (the disk was full)."""
        return holder == self._mine and (n, fence) not in self._held

    def release(self, db: Database, lease: Lease, *, empty: bool) -> None:
        """Give the lease back. A run without any record is forgotten: it was only looked for."""
        self.forget(lease)
        if not (empty and db.execute(FORGET, lease.key).rowcount):
            db.execute(LET_GO, lease.key)

    def remove(self, db: Database, run_id: str, now: float) -> None:
        """Delete a run with all its records. Raises `UnknownRun`, and `RunBusy` where somebody drives it."""
        n = store.number(db, run_id)
        holder, until = db.execute("SELECT holder, lease_until FROM runs WHERE n = ?", (n,)).fetchone()
        if name := driver(holder, until, now):
            raise RunBusy(_busy(run_id, name, until))
        # What is deleted was meant to be gone: not to lie about in the file until the place is used again.
        db.execute("PRAGMA secure_delete = ON")
        db.execute("DELETE FROM records WHERE run = ?", (n,))
        db.execute("DELETE FROM runs WHERE n = ?", (n,))

    def holds(self, lease: Lease) -> bool:
        return lease.key in self._held

    def forget(self, lease: Lease) -> None:
        """Nobody drives with this lease: no longer renew it, and let this process take it anew."""
        self._held.discard(lease.key)

    def tick(self, db: Connection, last: bool) -> None:
        """Renew all leases; with `last`, give them back."""
        until, held = self._clock() + self._seconds, tuple(self._held)
        with db:
            db.execute("BEGIN IMMEDIATE")
            if last:
                db.executemany(LET_GO, held)
            else:
                db.executemany(RENEW, [(until, *key) for key in held])


def driver(holder: str, until: float, now: float) -> str:
    """The name of who drives a run; "" when nobody does, or nobody does any more."""
    who = ProcessIdentity.parsed(holder)
    return "" if who is None or until <= now or who.gone() else who.name


def _busy(run_id: str, name: str, until: float) -> str:
    mine = " (this process)" if name == ProcessIdentity.here().name else ""
    clock = time.strftime("%H:%M:%S", time.gmtime(until))
    return (
        f"run {run_id} is being driven by {name}{mine}, which holds it until {clock} UTC and renews that while it "
        "lives; wait for it, or end that process"
    )


def _poisoned(run_id: str, takeovers: int) -> str:
    return (
        f"run {run_id} is parked: the process that drove it died {takeovers} times in a row without getting on. "
        "Look at its last records and mend the cause, then lift this with: "
        f"tool-loop resume {run_id} --unpark, or journal.unpark({run_id!r})"
    )
