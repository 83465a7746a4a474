"""Writes the golden journals: runs of every kind, as this version of the format keeps them.

    python scripts/golden.py          writes tests/data/golden/format_N, when it is not there yet

Run it once when the format gets a new number, and never again for that number: the files stand for
the journals that people have. tests/journal/test_golden.py resumes and replays all of them.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.kit.golden_runs import RUNS, Golden, agent_of

from tool_loop.errors import FatalError
from tool_loop.journal import schema as sqlite_file
from tool_loop.journal.codec import FORMAT
from tool_loop.journal.sqlite import SqliteJournal
from tool_loop.testing import Faults, ProcessDied, run_virtual

FOLDER = Path(__file__).parents[1] / "tests" / "data" / "golden" / f"format_{FORMAT}"


async def record(journal: SqliteJournal, name: str, golden: Golden, faults: Faults) -> None:
    """Drive the run as far as it is to be kept."""
    agent = faults.agent(agent_of(golden.script, journal, golden))
    for question in golden.questions:
        which = {"run_id": name} if question == golden.questions[0] else {"continue_run": name}
        try:
            await faults.drive(agent.run(question, **which))
        except (FatalError, asyncio.CancelledError, ProcessDied) as error:
            print(f"{name}: {type(error).__name__}")
    if golden.decide:
        await golden.decide(agent.journal, name)


def main() -> int:
    if FOLDER.exists():
        print(f"{FOLDER} is there already, and golden journals are never written again")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.sqlite"
        for name, golden in RUNS.items():
            faults = Faults()
            golden.faults(faults)
            with SqliteJournal(path, clock=faults.clock.now) as journal:
                run_virtual(record(journal, name, golden, faults))
            faults.assert_struck()
        with closing(sqlite3.connect(path)) as db:
            # As text, so that a change would be seen in a review.
            lines = [
                f"PRAGMA application_id = {sqlite_file.APPLICATION_ID};",
                f"PRAGMA user_version = {sqlite_file.VERSION};",
                *db.iterdump(),
            ]
    FOLDER.mkdir(parents=True)
    (FOLDER / "journal.sql").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"wrote {FOLDER / 'journal.sql'}: {len(RUNS)} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
