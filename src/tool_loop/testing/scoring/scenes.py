"""Cases of the scorecard that need more than a fault: a disk that is full, a process that is killed.

All on a real SQLite journal in a folder of its own. A scene drives the run to the end of its first
attempt and says how that ended; whoever called it goes on from there.
"""

from __future__ import annotations

import asyncio
import copy
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tool_loop.errors import FatalError
from tool_loop.events import ApprovalDecided
from tool_loop.journal import schema as sqlite_file
from tool_loop.journal.sqlite import SqliteJournal
from tool_loop.testing.faults import run as run_faults
from tool_loop.testing.faults.strike import ProcessDied

from .bench import QUESTION

if TYPE_CHECKING:
    from tool_loop.api import Agent
    from tool_loop.ports import PendingApproval
    from tool_loop.testing.faults.schedule import Faults

RUN: Final = "scorecard"
_LEASE: Final = 30.0
_EMPTY_PAGES: Final = 8  # as many as an empty journal has, at most


@dataclass(slots=True)
class Scene:
    """One run on its way: the agent that drives it, what goes wrong, and a folder to keep it in."""

    agent: Agent
    faults: Faults
    folder: Path

    async def attempt(self) -> str:
        """Drive the run on, and say how that ended: the reason of its end, or the kind of its error."""
        try:
            result = await self.faults.drive(self.agent.run(QUESTION, run_id=RUN))
        except FatalError as error:
            return error.kind
        except asyncio.CancelledError:
            return "cancelled"
        except ProcessDied:
            return "died"
        return result.reason

    @property
    def file(self) -> Path:
        return self.folder / "runs.sqlite"

    def on_disk(self, **options: Any) -> SqliteJournal:
        """Give the agent a journal on disk."""
        options.setdefault("clock", self.faults.clock.now)
        journal = SqliteJournal(self.file, lease_seconds=_LEASE, **options)
        self.agent.journal = self.faults.journal(journal)
        return journal

    def sql(self, statement: str) -> None:
        with closing(sqlite3.connect(self.file)) as db, db:
            db.execute(statement)


async def attempt(scene: Scene) -> str:
    return await scene.attempt()


async def denied(scene: Scene) -> str:
    async def deny(shown: PendingApproval) -> ApprovalDecided:
        return ApprovalDecided(shown.call.id, allowed=False, note="not today")

    scene.agent.reviewer = deny
    return await scene.attempt()


async def unattended(scene: Scene) -> str:
    """Nobody is there to be asked about what may have happened."""
    scene.agent.reviewer = None
    return await scene.attempt()


async def disk_full(scene: Scene) -> str:
    """There is room for the first records and none for those that follow; then somebody makes some."""
    full = True

    def connect(path: str, wait_seconds: float) -> sqlite3.Connection:
        db = sqlite_file.connect(path, wait_seconds)
        if full:
            pages = db.execute("PRAGMA page_count").fetchone()[0]
            db.execute(f"PRAGMA max_page_count = {max(pages, _EMPTY_PAGES) + 2}")
        return db

    journal = scene.on_disk(connect=connect)
    ended = await scene.attempt()
    full = False
    journal.close()
    scene.on_disk()
    return ended


async def driven_elsewhere(scene: Scene) -> str:
    journal = scene.on_disk()
    async with journal.open(RUN):
        return await scene.attempt()


async def taken_over(scene: Scene) -> str:
    """Its process is stopped in the middle of a reply for longer than its lease, and another goes on with the run."""
    scene.on_disk()
    scene.faults.at_step(2, run_faults.slow(120))
    mine = asyncio.ensure_future(scene.attempt())
    await asyncio.sleep(60)
    other = copy.copy(scene.agent)
    other.journal = SqliteJournal(scene.file, clock=scene.faults.clock.now)
    await other.run(QUESTION, run_id=RUN)
    return await mine


async def torn_record(scene: Scene) -> str:
    """The machine loses power in the middle of a write."""
    scene.on_disk()
    ended = await scene.attempt()
    scene.sql("UPDATE records SET record = substr(record, 1, 20) WHERE rowid = (SELECT max(rowid) FROM records)")
    return ended


async def damaged_record(scene: Scene) -> str:
    """Somebody edits the file, and puts it right again when the run is refused."""
    scene.on_disk()
    await scene.attempt()
    scene.sql("UPDATE records SET record = 'x' || record WHERE rowid = (SELECT min(rowid) + 1 FROM records)")
    ended = await scene.attempt()
    scene.sql("UPDATE records SET record = substr(record, 2) WHERE rowid = (SELECT min(rowid) + 1 FROM records)")
    return ended


async def keeps_killing(scene: Scene) -> str:
    """Three processes in a row died with it; the fourth is told so, and a person releases the run."""
    journal = scene.on_disk()
    scene.faults.at_append(3, run_faults.die())
    await scene.attempt()
    scene.sql("UPDATE runs SET holder = 'another', lease_until = 0, takeovers = 3")
    ended = await scene.attempt()
    journal.unpark(RUN)
    return ended


async def asleep(scene: Scene) -> str:
    """The laptop is closed for an hour, and nobody else takes the run."""
    scene.on_disk()
    scene.faults.at_append(3, run_faults.clock_jump(3600))
    return await scene.attempt()
