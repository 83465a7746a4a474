"""What a file can be: made, refused, torn at its end, damaged elsewhere."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.kit import sqlite_case
from tests.kit.sqlite_case import ONE_RUN, Plan, busy, keep, state_of, tamper
from tool_loop.errors import JournalDamaged, JournalError, UsageError
from tool_loop.events import (
    Event,
    Reminded,
    RunStarted,
    ToolReturned,
)
from tool_loop.journal import codec
from tool_loop.journal.sqlite import SqliteJournal

# Fixtures are found where they have a name.
path = sqlite_case.path


def test_a_file_of_a_newer_format_is_refused_and_left_alone(path: Path) -> None:
    keep(path)
    tamper(path, "PRAGMA user_version = 3")

    with pytest.raises(JournalError, match=r"has format 3, this version of tool-loop reads up to 2; upgrade"):
        SqliteJournal(path)


def test_a_file_with_triggers_is_refused_since_they_would_change_what_a_person_decides(path: Path) -> None:
    keep(path)
    change = "UPDATE records SET record = replace(new.record, 'false', 'true') WHERE run = new.run AND seq = new.seq"
    tamper(path, f"CREATE TRIGGER t AFTER INSERT ON records BEGIN {change}; END")

    with pytest.raises(JournalError, match="has triggers, which no journal of ours has"):
        SqliteJournal(path)


def test_the_database_of_another_program_is_refused(path: Path) -> None:
    path.parent.mkdir()
    tamper(path, "CREATE TABLE mine (x)")

    with pytest.raises(JournalError, match="another program"):
        SqliteJournal(path)
    assert tamper(path, "SELECT name FROM sqlite_master") == [("mine",)]


def test_what_is_not_a_database_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("a letter to my aunt\n" * 100)

    with pytest.raises(JournalDamaged, match="is not a journal"):
        SqliteJournal(path)


def test_a_path_that_cannot_be_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="cannot open"):
        SqliteJournal(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match="cannot create"):
        SqliteJournal(tmp_path / "file" / "runs.db")


def test_a_place_without_a_write_ahead_log_is_refused(path: Path) -> None:
    def elsewhere(_path: str, _wait: float) -> sqlite3.Connection:
        return sqlite3.connect(":memory:", isolation_level=None)  # it cannot have one either

    with pytest.raises(JournalError, match="use a local disk"):
        SqliteJournal(path, connect=elsewhere)


@pytest.mark.parametrize(
    "options", [{"durable": "maybe"}, {"lease_seconds": 0}, {"max_takeovers": 0}, {"path": ":memory:"}, {"path": ""}]
)
def test_settings_that_cannot_work_are_refused(options: dict, path: Path) -> None:
    with pytest.raises(UsageError):
        SqliteJournal(**{"path": path} | options)


def test_many_processes_may_make_the_same_file_at_once(path: Path) -> None:
    code = f"from tool_loop.journal.sqlite import SqliteJournal; SqliteJournal({str(path)!r}).runs()"
    started = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(4)]

    assert [child.wait(30) for child in started] == [0] * 4


def test_a_file_that_another_process_has_just_made_is_taken_as_it_is(path: Path) -> None:
    plan = Plan()
    plan.fails = lambda statement, _: keep(path) if statement.startswith("BEGIN") else None  # type: ignore[func-returns-value]

    with SqliteJournal(path, connect=plan.connect) as journal:
        assert journal.events("r1") == tuple(ONE_RUN)


@pytest.mark.parametrize(("times", "outcome"), [(2, "made"), (1_000_000, "locked")])
def test_a_file_that_is_locked_while_it_is_made_is_tried_again_for_a_while(
    times: int, outcome: str, path: Path
) -> None:
    left = iter(range(times))
    plan = Plan(lambda statement, _: busy() if "journal_mode" in statement and next(left, None) is not None else None)

    try:
        SqliteJournal(path, connect=plan.connect).close()
    except JournalError as error:
        assert outcome in error.message
    else:
        assert outcome == "made"


# --- damage ----------------------------------------------------------------------------------------


def test_a_last_record_torn_at_any_byte_is_dropped_and_the_rest_is_kept(path: Path) -> None:
    keep(path)
    last = codec.encode(ONE_RUN[-1]).encode()

    async def main(journal: SqliteJournal) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            for cut in range(len(last)):
                db.execute("UPDATE records SET record = CAST(? AS TEXT) WHERE seq = 6", (last[:cut],))
                assert journal.events("r1") == tuple(ONE_RUN[:-1])
                async with journal.open("r1") as log:
                    assert log.state.events == ONE_RUN[:-1]
                    assert journal.runs()[0].state == "running"
                    await log.append(ONE_RUN[-1])

    with SqliteJournal(path) as journal:
        asyncio.run(main(journal))

        assert journal.events("r1") == tuple(ONE_RUN)
        assert [run.state for run in journal.runs()] == ["answered"]


def test_a_run_whose_only_record_is_torn_is_a_new_run(path: Path) -> None:
    keep(path, [RunStarted("q")])
    tamper(path, "UPDATE records SET record = substr(record, 1, 9)")

    with SqliteJournal(path) as journal:
        assert asyncio.run(state_of(journal)) == []
        assert journal.runs() == []


@pytest.mark.parametrize("seq", range(len(ONE_RUN) - 1))
@pytest.mark.parametrize("damage", ["{", '{"event":"unheard_of"}', None], ids=["cut", "unknown", "missing"])
def test_damage_before_the_last_record_is_refused_naming_run_and_record(
    seq: int, damage: str | None, path: Path
) -> None:
    keep(path)
    if damage is None:
        tamper(path, f"DELETE FROM records WHERE seq = {seq}")
    else:
        tamper(path, f"UPDATE records SET record = ? WHERE seq = {seq}", damage)

    with SqliteJournal(path) as journal:
        for look in (lambda: asyncio.run(state_of(journal)), lambda: journal.events("r1")):
            with pytest.raises(JournalDamaged, match=rf"run r1(:|,) record {seq}\b"):
                look()
        assert journal.runs()[0].holder == ""


@pytest.mark.parametrize(
    "record", ['{"event":"unheard_of"}', '{"event":"run_ended","reason":"","answer":"","mood":1}', "[]"]
)
def test_a_last_record_that_is_whole_but_not_ours_is_refused(record: str, path: Path) -> None:
    keep(path)
    tamper(path, "UPDATE records SET record = ? WHERE seq = 6", record)

    with SqliteJournal(path) as journal, pytest.raises(JournalDamaged, match="run r1, record 6"):
        asyncio.run(state_of(journal))


@pytest.mark.parametrize(
    ("event", "says"),
    [(ToolReturned("9", "x"), "does not fit the ones before it"), (RunStarted("again"), "first record of a run")],
)
def test_a_record_that_makes_no_sense_where_it_is_is_refused(event: Event, says: str, path: Path) -> None:
    keep(path)
    tamper(path, "UPDATE records SET record = ? WHERE seq = 3", codec.encode(event))

    with SqliteJournal(path) as journal, pytest.raises(JournalDamaged, match=f"record 3.*{says}"):
        journal.events("r1")


def test_a_damaged_page_is_a_damaged_journal_and_no_crash(path: Path) -> None:
    keep(path, [RunStarted("q"), *(Reminded("x" * 900) for _ in range(30))])
    data = bytearray(path.read_bytes())
    data[2048 * 3 : 2048 * 12] = os.urandom(2048 * 9)
    path.write_bytes(data)

    with SqliteJournal(path) as journal, pytest.raises(JournalDamaged, match="damaged"):
        journal.events("r1")
