"""A file that an older version wrote is brought up to date when it is opened, whoever opens it, and loses nothing."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.kit.sqlite_case import tamper
from tool_loop import MemoryJournal
from tool_loop.journal import codec, schema
from tool_loop.journal.sqlite import SqliteJournal
from tool_loop.state import State

OLD = Path(__file__).parents[1] / "data" / "golden" / "format_1" / "journal.sql"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "runs.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(OLD.read_text(encoding="utf-8"))
    assert tamper(path, "PRAGMA user_version") == [(1,)]
    return path


def test_the_list_of_an_old_file_says_what_its_records_amount_to(old: Path) -> None:
    import asyncio

    before = tamper(old, "SELECT * FROM records ORDER BY run, seq")
    memory = MemoryJournal()

    async def copied(journal: SqliteJournal) -> None:
        for info in journal.runs():
            await memory.create(info.id, journal.events(info.id))

    with SqliteJournal(old) as journal:
        asyncio.run(copied(journal))
        listed = {info.id: info for info in journal.runs()}

    assert len(listed) > 10
    for info in memory.runs():
        assert (listed[info.id].meta, listed[info.id].cost) == (info.meta, info.cost), info.id
        state = State.of(memory.events(info.id))
        if state.interrupted and not state.ended and listed[info.id].state != "waiting":
            assert listed[info.id].state == info.state, info.id
    assert tamper(old, "SELECT * FROM records ORDER BY run, seq") == before
    assert tamper(old, "PRAGMA user_version") == [(schema.VERSION,)]


def test_an_old_file_and_a_new_one_have_the_same_tables(old: Path, tmp_path: Path) -> None:
    def columns(path: Path) -> list[tuple]:
        SqliteJournal(path).close()
        indexes = tamper(path, "SELECT name FROM sqlite_master WHERE type = 'index' ORDER BY name")
        return [*tamper(path, "SELECT name, type, \"notnull\", dflt_value FROM pragma_table_info('runs')"), *indexes]

    assert columns(old) == columns(tmp_path / "new.sqlite")


def test_many_processes_may_open_the_same_old_file_at_once(old: Path) -> None:
    code = f"from tool_loop.journal.sqlite import SqliteJournal; print(len(SqliteJournal({str(old)!r}).runs()))"
    started = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(4)]

    said = {child.communicate(timeout=60)[0] for child in started}

    assert [child.returncode for child in started] == [0] * 4
    assert len(said) == 1


def test_a_damaged_run_in_an_old_file_does_not_keep_the_others_from_being_read(old: Path) -> None:
    tamper(old, "UPDATE records SET record = '{' WHERE run = 1 AND seq = 1")

    with SqliteJournal(old) as journal:
        assert len(journal.runs()) > 10
        assert journal.events(journal.runs()[0].id)


def test_a_migration_that_is_cut_off_leaves_the_old_file(old: Path) -> None:
    class Died(Exception):
        pass

    class Connection(sqlite3.Connection):
        def execute(self, statement: str, *values: object) -> sqlite3.Cursor:  # type: ignore[override]
            if statement.startswith("UPDATE runs SET meta"):
                raise Died
            return super().execute(statement, *values)  # type: ignore[arg-type]

    def connect(path: str, wait: float) -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=wait, isolation_level=None, check_same_thread=False, factory=Connection)

    with pytest.raises(Died):
        SqliteJournal(old, connect=connect)
    assert tamper(old, "PRAGMA user_version") == [(1,)]
    assert "meta" not in {row[0] for row in tamper(old, "SELECT name FROM pragma_table_info('runs')")}
    with SqliteJournal(old) as journal:
        assert journal.runs()


def test_the_format_of_the_records_has_a_number_of_its_own() -> None:
    assert (codec.FORMAT, schema.VERSION) == (1, 2)
