"""Journals of every released format are resumed, replayed and checked by today's code."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.kit.golden_runs import PAID, RUNS, TOOLS, agent_of
from tool_loop.events import RunInterrupted, RunResumed
from tool_loop.journal.codec import FORMAT
from tool_loop.journal.sqlite import SqliteJournal
from tool_loop.redrive.driving import redrive
from tool_loop.testing import ReplayLLM, check, run_virtual

FOLDER = Path(__file__).parents[1] / "data" / "golden"
FORMATS = sorted(path.name for path in FOLDER.iterdir())
EFFECTS = {tool.name: tool.effect or "once" for tool in TOOLS}


@pytest.fixture(params=FORMATS)
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> SqliteJournal:
    """The journal as it was kept, as a file that may be written to."""
    path = tmp_path / "runs.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.executescript((FOLDER / request.param / "journal.sql").read_text(encoding="utf-8"))
    return SqliteJournal(path)


def test_there_is_one_of_todays_format() -> None:
    assert f"format_{FORMAT}" in FORMATS


def test_every_run_is_in_order_and_resumes_to_its_end(journal: SqliteJournal) -> None:
    with journal:
        for name in [info.id for info in journal.runs()]:
            golden = RUNS[name]
            before = journal.events(name)
            PAID.clear()

            assert check(before, effects=EFFECTS) == [], name
            agent = agent_of(golden.then, journal, golden)
            result = run_virtual(agent.resume(name))

            assert result.reason == golden.ends, name
            assert golden.answer in result.answer, name
            assert tuple(failure.error for failure in result.failures) == golden.told, name
            assert result.run_events[: len(before)] == before, name
            assert check(result.run_events, effects=EFFECTS) == [], name
            assert len(PAID) == golden.pays, name
            agent.llm.llm.assert_finished()


def test_every_run_would_go_the_same_way_today(journal: SqliteJournal) -> None:
    with journal:
        for name in [info.id for info in journal.runs()]:
            assert redrive(journal, name, tools=TOOLS, limits=RUNS[name].limits) == [], name
            assert redrive(journal, name) == [], name


def test_every_run_that_nothing_cut_short_is_replayed_from_its_own_record(journal: SqliteJournal) -> None:
    with journal:
        whole = [
            info.id
            for info in journal.runs()
            if not any(isinstance(event, RunResumed | RunInterrupted) for event in journal.events(info.id))
            and info.state in ("answered", "stopped")
            and info.id not in ("overflowed", "crashing-tool")  # what the server refused is not in the record
        ]
        for name in whole:
            golden = RUNS[name]
            agent = agent_of((), None, golden)
            agent.llm = ReplayLLM.from_journal(journal, name)

            assert golden.answer in run_virtual(agent.run(golden.questions[0])).answer, name

    assert len(whole) >= 8


def test_what_is_kept_covers_every_run() -> None:
    newest = (FOLDER / FORMATS[-1] / "journal.sql").read_text(encoding="utf-8")

    assert [name for name in RUNS if f"'{name}'" not in newest] == []
