"""Runs in one SQLite file: what is recorded comes back, and a run has one driver at a time."""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from tool_loop import Agent, MemoryJournal, ScriptedLLM, ToolRegistry, codec, tool
from tool_loop._holder import Holder, _born, _place
from tool_loop.errors import Fenced, JournalDamaged, JournalError, RunBusy, RunPoisoned, UnknownRun, UsageError
from tool_loop.events import (
    ApprovalDecided,
    ApprovalRequest,
    ApprovalRequested,
    Compacted,
    Event,
    IntentRecorded,
    ModelReplied,
    Reminded,
    Retry,
    RunContinued,
    RunEnded,
    RunInterrupted,
    RunResumed,
    RunStarted,
    ToolCall,
    ToolReturned,
    Usage,
)
from tool_loop.sqlite_file import translated
from tool_loop.sqlite_journal import SqliteJournal
from tool_loop.sqlite_writer import BATCH_JOBS, COMMITS_BETWEEN_CHECKPOINTS, INLINE_CHARS
from tool_loop.state import State
from tool_loop.testing.clock import run_virtual

from .helpers import calls, says

ONE_RUN: list[Event] = [
    RunStarted("what is in it?", "You are helpful."),
    calls(("1", "look"), ("2", "pay")),
    ToolReturned("1", "a key \U0001f511"),
    IntentRecorded(("2",)),
    ToolReturned("2", "paid"),
    says("a key"),
    RunEnded("answered", "a key"),
]


class Clock:
    """Unix time that goes on only when a test says so."""

    def __init__(self) -> None:
        self.start = self.time = 1_767_225_600.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "runs.db"


@pytest.fixture(params=["process", "power"])
def journal(request: pytest.FixtureRequest, path: Path) -> Iterator[SqliteJournal]:
    with SqliteJournal(path, durable=request.param) as journal:
        yield journal


async def fill(journal: SqliteJournal | MemoryJournal, events: list[Event] = ONE_RUN, run_id: str = "r1") -> None:
    async with journal.open(run_id) as log:
        for event in events:
            await asyncio.sleep(0)  # whatever makes an event takes longer than writing it down
            await log.append(event)


def keep(path: Path, events: list[Event] = ONE_RUN, run_id: str = "r1") -> None:
    with SqliteJournal(path) as journal:
        asyncio.run(fill(journal, events, run_id))


async def state_of(journal: SqliteJournal, run_id: str = "r1") -> list[Event]:
    async with journal.open(run_id) as log:
        return log.state.events


def tamper(path: Path, statement: str, *values: object) -> list[tuple]:
    """What a person with a hex editor, or a broken disk, does to the file."""
    with closing(sqlite3.connect(path)) as db, db:
        return db.execute(statement, values).fetchall()


# --- what is recorded comes back ------------------------------------------------------------------


def test_a_run_survives_the_journal_object(journal: SqliteJournal, path: Path) -> None:
    asyncio.run(fill(journal))
    journal.close()

    with SqliteJournal(path) as again:
        assert again.events("r1") == tuple(ONE_RUN)
        assert asyncio.run(state_of(again)) == ONE_RUN


def test_what_was_appended_can_be_read_at_once_from_anywhere(journal: SqliteJournal, path: Path) -> None:
    async def main() -> None:
        async with journal.open("r1") as log:
            for n, event in enumerate(ONE_RUN):
                await log.append(event)
                assert log.state.events == ONE_RUN[: n + 1]
                with SqliteJournal(path) as other:
                    assert other.events("r1") == tuple(ONE_RUN[: n + 1])

    asyncio.run(main())


def test_records_say_when_they_were_written(path: Path) -> None:
    clock = Clock()

    async def main(journal: SqliteJournal | MemoryJournal) -> None:
        async with journal.open("r1") as log:
            for event in ONE_RUN:
                clock.time += 1
                await log.append(event)

    with SqliteJournal(path, clock=clock) as journal:
        start = clock.time
        asyncio.run(main(journal))
        records = journal.records("r1")
        clock.time = start
        asyncio.run(main(memory := MemoryJournal(clock=clock)))

    assert [tuple(record) for record in records] == [(n, start + n + 1, event) for n, event in enumerate(ONE_RUN)]
    assert records == memory.records("r1")


def test_an_agent_runs_resumes_and_goes_on_in_the_same_history(path: Path) -> None:
    @tool(effect="once")
    def pay(n: int) -> str:
        """Pay."""
        return f"paid {n}"

    with SqliteJournal(path) as journal, ScriptedLLM(ToolCall("1", "pay", '{"n": 1}'), "done", "again") as llm:
        agent = Agent(llm, [pay], journal=journal)
        first = agent.run_sync("pay", run_id="r1")
        same = asyncio.run(agent.resume("r1"))
        more = agent.run_sync("and?", continue_run="r1")

    assert (first.answer, same.answer, more.answer) == ("done", "done", "again")
    assert first.events == same.events == more.events[: len(first.events)]


def test_text_that_is_not_unicode_is_folded_as_the_file_holds_it(journal: SqliteJournal) -> None:
    async def main() -> list[Event]:
        async with journal.open("r1") as log:
            await log.append(RunStarted("\ud83d\udd11 and \ud800"))
            return log.state.events

    assert asyncio.run(main()) == list(journal.events("r1")) == [RunStarted("\U0001f511 and \ud800")]
    assert journal.runs()[0].question == "?? and ?", "in a list, a question mark will do"


def test_the_file_can_be_read_with_sqlite_alone(path: Path) -> None:
    keep(path)

    rows = tamper(path, "SELECT run_id, seq, record FROM journal ORDER BY seq")

    assert rows == [("r1", n, codec.encode(event)) for n, event in enumerate(ONE_RUN)]


def test_only_the_owner_can_read_the_file_and_its_directory(path: Path) -> None:
    with SqliteJournal(path) as journal:
        asyncio.run(fill(journal))
        files = list(path.parent.iterdir())

        assert {f.name for f in files} == {"runs.db", "runs.db-wal", "runs.db-shm"}
        assert {f.stat().st_mode & 0o777 for f in files} == {0o600}
        assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_run_that_was_only_looked_for_leaves_no_trace(journal: SqliteJournal) -> None:
    assert asyncio.run(state_of(journal)) == []
    assert journal.runs() == []
    for look in (journal.events, journal.records, journal.unpark):
        with pytest.raises(UnknownRun, match="no run r1"):
            look("r1")


@pytest.mark.parametrize("run_id", ["", "a\nb", "\ud800"])
def test_an_id_that_nothing_could_show_is_refused(run_id: str, journal: SqliteJournal) -> None:
    with pytest.raises(UsageError, match="printable"):
        asyncio.run(state_of(journal, run_id))


# --- the list of runs -----------------------------------------------------------------------------

ASKED = [
    RunStarted("q" * 1000),
    ModelReplied(
        "", (ToolCall("1", "pay"), ToolCall("2", "pay")), usage=Usage(10, 5), retries=(Retry("t", "", 0.0, None, 7),)
    ),
    ApprovalRequested((ApprovalRequest("1", "f1"), ApprovalRequest("2", "f2"))),
]

STANDS: dict[str, tuple[list[Event], str, int, int]] = {
    "answered": (ONE_RUN, "answered", 2, 30),
    "stopped by a limit": ([*ONE_RUN[:-1], RunEnded("step limit", "a key")], "stopped", 2, 30),
    "left in the middle": (ONE_RUN[:4], "interrupted", 1, 15),
    "interrupted": ([*ONE_RUN[:2], RunInterrupted("auth")], "interrupted", 1, 15),
    "waiting": (ASKED, "waiting", 1, 22),
    "waiting for the other half": ([*ASKED, ApprovalDecided("1", True)], "waiting", 1, 22),
    "decided": ([*ASKED, ApprovalDecided("1", True), ApprovalDecided("2", False)], "interrupted", 1, 22),
    "decided for good": ([*ASKED, ApprovalDecided("1", True, standing=True)], "interrupted", 1, 22),
    "resumed without a decision": ([*ASKED, RunResumed()], "waiting", 1, 22),
    "asked more": ([*ONE_RUN, RunContinued("and?")], "interrupted", 2, 30),
    "compacted": ([*ONE_RUN[:6], Compacted(summary="s", usage=Usage(3, 1))], "interrupted", 2, 34),
}


@pytest.mark.parametrize("name", STANDS)
def test_the_list_says_how_a_run_stands_and_both_journals_say_the_same(name: str, path: Path) -> None:
    events, state, steps, tokens = STANDS[name]
    clock = Clock()
    memory = MemoryJournal(clock=clock)

    with SqliteJournal(path, clock=clock) as journal:
        asyncio.run(fill(journal, events))
        asyncio.run(fill(memory, events))
        asyncio.run(state_of(journal))  # what was saved up is counted when the run is opened again
        listed = journal.runs()

    assert [(run.state, run.steps, run.tokens, run.holder) for run in listed] == [(state, steps, tokens, "")]
    assert listed == memory.runs()
    assert len(listed[0].question) <= 500


def test_the_list_is_up_to_date_while_a_run_goes_on_and_names_its_driver(path: Path) -> None:
    clock = Clock()

    async def main(journal: SqliteJournal) -> None:
        async with journal.open("r1") as log:
            await log.append(RunStarted("q"))
            for n in range(1, 4):
                clock.time += 1.5
                await log.append(says("thinking"))
                (run,) = journal.runs()
                assert (run.state, run.steps, run.tokens) == ("running", n, n * 15)
                assert run.holder.startswith(f"{os.getpid()}@")
                assert run.updated == clock.time

    with SqliteJournal(path, clock=clock) as journal:
        asyncio.run(main(journal))


def test_the_run_that_got_on_last_comes_first(path: Path) -> None:
    clock = Clock()
    memory = MemoryJournal(clock=clock)
    with SqliteJournal(path, clock=clock) as journal:
        assert journal.last() is None
        for run_id, events in (("a", ONE_RUN), ("b", ONE_RUN), ("a", [RunContinued("more")])):
            clock.time += 1
            asyncio.run(fill(journal, events, run_id))
            asyncio.run(fill(memory, events, run_id))

        assert [run.id for run in journal.runs()] == [run.id for run in memory.runs()] == ["a", "b"]
        assert journal.last() == "a"


# --- what a file can be ---------------------------------------------------------------------------


def test_a_file_of_a_newer_format_is_refused_and_left_alone(path: Path) -> None:
    keep(path)
    tamper(path, "PRAGMA user_version = 2")

    with pytest.raises(JournalError, match=r"has format 2, this version of tool-loop reads up to 1; upgrade"):
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
    code = f"from tool_loop.sqlite_journal import SqliteJournal; SqliteJournal({str(path)!r}).runs()"
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


# --- damage ---------------------------------------------------------------------------------------


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


# --- one driver at a time -------------------------------------------------------------------------


def test_a_second_driver_is_told_who_has_the_run_and_until_when(path: Path) -> None:
    clock = Clock()

    async def main(journal: SqliteJournal, other: SqliteJournal) -> None:
        async with journal.open("r1") as log:
            await log.append(RunStarted("q"))
            for second in (journal, other):
                with pytest.raises(RunBusy, match=rf"driven by {os.getpid()}@.* \(this process\).* 00:00:30 UTC"):
                    await state_of(second)
            assert await state_of(other, "another run") == []
        assert await state_of(other) == [RunStarted("q")]

    with SqliteJournal(path, clock=clock) as journal, SqliteJournal(path, clock=clock) as other:
        asyncio.run(main(journal, other))


def late_writer_is_fenced(path: Path, journals: type[SqliteJournal] = SqliteJournal) -> None:
    clock = Clock()

    async def main(sleeper: SqliteJournal, other: SqliteJournal) -> None:
        async with sleeper.open("r1") as log:
            await log.append(RunStarted("q"))
            clock.time += 31
            async with other.open("r1") as taken:
                await taken.append(Reminded("by the other"))
                with pytest.raises(Fenced, match=rf"taken over by {os.getpid()}@"):
                    await log.append(Reminded("too late"))
                assert log.state.events == [RunStarted("q")]
            with pytest.raises(Fenced):
                await log.append(Reminded("still too late"))
        assert other.events("r1") == (RunStarted("q"), Reminded("by the other"))

    with journals(path, clock=clock) as sleeper, journals(path, clock=clock) as other:
        asyncio.run(main(sleeper, other))


def test_after_a_lease_ran_out_the_run_is_taken_over_and_the_late_writer_is_fenced(path: Path) -> None:
    late_writer_is_fenced(path)


def test_a_writer_that_slept_cannot_write_even_when_the_run_is_gone(path: Path) -> None:
    clock = Clock()

    async def main(sleeper: SqliteJournal, other: SqliteJournal) -> None:
        async with sleeper.open("r1") as log:
            clock.time += 31
            await state_of(other)  # looked for, found empty, forgotten
            await fill(other, run_id="r2")
            with pytest.raises(Fenced):
                await log.append(RunStarted("q"))

    with SqliteJournal(path, clock=clock) as sleeper, SqliteJournal(path, clock=clock) as other:
        asyncio.run(main(sleeper, other))
        assert other.events("r2") == tuple(ONE_RUN)


def test_a_lease_that_ran_out_and_that_nobody_took_still_holds(path: Path) -> None:
    clock = Clock()

    async def main(journal: SqliteJournal) -> None:
        async with journal.open("r1") as log:
            clock.time += 3600
            await log.append(RunStarted("q"))

    with SqliteJournal(path, clock=clock) as journal:
        asyncio.run(main(journal))
        assert journal.events("r1") == (RunStarted("q"),)


def test_leases_are_renewed_on_a_timer_for_as_long_as_the_run_is_open(path: Path) -> None:
    ticks = threading.Semaphore(0)

    class Ticking(Clock):
        def __call__(self) -> float:
            if threading.current_thread() is not threading.main_thread():
                self.time = max(self.time, self.start + 1000)
                ticks.release()
            return self.time

    async def main(journal: SqliteJournal) -> None:
        async with journal.open("r1") as log:
            await log.append(RunStarted("q"))
            while ticks.acquire(blocking=False):
                pass
            for _ in range(2):  # when the second begins, the first is in the file
                assert ticks.acquire(timeout=10)
            with pytest.raises(RunBusy):
                await state_of(journal)

    with SqliteJournal(path, clock=Ticking(), lease_seconds=0.06) as journal:
        asyncio.run(main(journal))


def dies_with(path: Path, holder: str, until: float) -> None:
    """The file as a process leaves it that was killed in the middle of a run."""
    tamper(path, "UPDATE runs SET holder = ?, lease_until = ?", holder, until)


@pytest.fixture
def dead() -> Holder:
    """A process that has ended, and that nobody has asked about yet: it still has its number."""
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    text = str(Holder.of(child.pid))
    child.stdin.close()  # type: ignore[union-attr]
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    yield Holder.parsed(text)
    child.wait()


def test_the_run_of_a_dead_process_is_taken_over_at_once(path: Path, dead: Holder) -> None:
    clock = Clock()
    keep(path, ONE_RUN[:4])
    dies_with(path, str(dead), clock.time + 30)

    with SqliteJournal(path, clock=clock) as journal:
        assert journal.runs()[0].state == "interrupted"
        assert asyncio.run(state_of(journal)) == ONE_RUN[:4]


def test_the_run_of_a_process_of_another_machine_is_left_alone_until_its_lease_runs_out(path: Path) -> None:
    clock = Clock()
    keep(path, ONE_RUN[:4])
    dies_with(path, "1@elsewhere|boot|5|x", clock.time + 30)

    with SqliteJournal(path, clock=clock) as journal:
        assert (journal.runs()[0].state, journal.runs()[0].holder) == ("running", "1@elsewhere")
        with pytest.raises(RunBusy, match=r"driven by 1@elsewhere, which"):
            asyncio.run(state_of(journal))
        clock.time += 31
        assert asyncio.run(state_of(journal)) == ONE_RUN[:4]


def test_a_run_that_keeps_killing_its_process_is_parked_until_a_person_lifts_it(path: Path, dead: Holder) -> None:
    clock = Clock()
    keep(path, ONE_RUN[:4])

    def attempt(journal: SqliteJournal, *more: Event) -> None:
        dies_with(path, str(dead), clock.time + 30)
        asyncio.run(fill(journal, [RunResumed(), *more]))

    with SqliteJournal(path, clock=clock, max_takeovers=2) as journal:
        attempt(journal)
        attempt(journal, ToolReturned("2", "it got on"))
        attempt(journal)
        attempt(journal)
        for _ in range(2):
            with pytest.raises(RunPoisoned, match=r"died 3 times in a row.*journal.unpark\('r1'\)"):
                attempt(journal)
            dies_with(path, "", 0)
        assert [(run.state, run.holder) for run in journal.runs()] == [("poisoned", "")]

        journal.unpark("r1")
        assert journal.runs()[0].state == "interrupted"
        attempt(journal)


def test_a_driver_that_slept_while_its_run_was_parked_is_fenced(path: Path) -> None:
    clock = Clock()

    async def main(sleeper: SqliteJournal, other: SqliteJournal) -> None:
        async with sleeper.open("r1") as log:
            await log.append(RunStarted("q"))
            tamper(path, "UPDATE runs SET takeovers = 1")
            clock.time += 31
            with pytest.raises(RunPoisoned):
                await state_of(other)
            with pytest.raises(Fenced, match="was taken over while"):
                await log.append(Reminded("too late"))

    with SqliteJournal(path, clock=clock) as sleeper, SqliteJournal(path, clock=clock, max_takeovers=1) as other:
        asyncio.run(main(sleeper, other))


# --- decisions from outside -----------------------------------------------------------------------


async def waiting(journal: SqliteJournal) -> None:
    await fill(journal, ASKED)


def test_a_decision_needs_no_lease_and_the_driver_folds_it_in_before_its_own_record(path: Path) -> None:
    async def main(driver: SqliteJournal, desk: SqliteJournal) -> None:
        await waiting(driver)
        async with driver.open("r1") as log:
            said = await desk.decide("r1", "2", allow=False, by="ann", note="no")
            assert log.state.decisions == {}
            await log.append(Reminded("after it"))
            assert log.state.events == [*ASKED, said, Reminded("after it")]
            assert log.state.decisions == {"2": said}
            assert said == ApprovalDecided("2", False, "ann", "no", "f2")
        assert list(desk.events("r1")) == log.state.events

    with SqliteJournal(path) as driver, SqliteJournal(path) as desk:
        asyncio.run(main(driver, desk))


def test_the_first_decision_wins_whoever_makes_it(journal: SqliteJournal, path: Path) -> None:
    async def main(other: SqliteJournal) -> list[object]:
        await waiting(journal)
        desks = (journal, other) * 3
        return await asyncio.gather(*(d.decide("r1", "1", allow=True) for d in desks), return_exceptions=True)

    with SqliteJournal(path) as other:
        outcomes = asyncio.run(main(other))

    assert sorted(type(o).__name__ for o in outcomes) == ["ApprovalDecided", *["UsageError"] * 5]
    assert len(journal.events("r1")) == len(ASKED) + 1


def test_of_a_decision_at_the_terminal_and_one_from_outside_the_first_counts_and_is_the_only_one(path: Path) -> None:
    async def main(driver: SqliteJournal, desk: SqliteJournal) -> None:
        await waiting(driver)
        async with driver.open("r1") as log:
            first = await desk.decide("r1", "1", allow=False, by="desk")
            await log.append(ApprovalDecided("1", True, "terminal", fingerprint="f1"))
            assert log.state.events == [*ASKED, first]
            second = ApprovalDecided("2", True, "terminal", fingerprint="f2")
            await log.append(second)
            assert log.state.events == [*ASKED, first, second]
        assert list(desk.events("r1")) == [*ASKED, first, second]

    with SqliteJournal(path) as driver, SqliteJournal(path) as desk:
        asyncio.run(main(driver, desk))


def test_a_decision_about_what_does_not_wait_is_refused(journal: SqliteJournal) -> None:
    async def main() -> None:
        with pytest.raises(UnknownRun):
            await journal.decide("r1", "1", allow=True)
        await waiting(journal)
        with pytest.raises(UsageError, match="does not wait"):
            await journal.decide("r1", "9", allow=True)
        with pytest.raises(UsageError, match="fingerprint"):
            await journal.decide("r1", "1", allow=True, arguments="{}")
        edited = await journal.decide("r1", "1", allow=True, arguments="{}", fingerprint="f9", expires_at=5.0)
        assert edited == ApprovalDecided("1", True, "", "", "f9", "{}", False, 5.0)

    asyncio.run(main())
    assert journal.runs()[0].state == "waiting"


def test_a_run_waits_in_one_process_is_decided_in_another_and_goes_on_in_a_third(path: Path) -> None:
    ran: list[int] = []

    @tool(effect="once", needs_approval=True)
    def pay(n: int) -> str:
        """Pay."""
        ran.append(n)
        return "paid"

    def agent(*turns: object) -> Agent:
        return Agent(ScriptedLLM(*turns), [pay], journal=SqliteJournal(path))

    first = agent(ToolCall("1", "pay", '{"n": 1}')).run_sync("pay", run_id="r1")
    again = asyncio.run(agent().resume("r1"))
    with SqliteJournal(path) as desk:
        assert desk.runs()[0].state == "waiting"
        asyncio.run(desk.decide("r1", "1", allow=True, by="ann"))
    last = asyncio.run(agent("done").resume("r1"))

    assert (first.reason, again.reason, last.answer, ran) == ("waiting", "waiting", "done", [1])


# --- many at once ---------------------------------------------------------------------------------


class Spy:
    """A connection that counts transactions, and fails where a test says so."""

    def __init__(self, db: sqlite3.Connection | sqlite3.Cursor, plan: Plan) -> None:
        self._db = db
        self._plan = plan

    def cursor(self) -> Spy:
        return Spy(self._db.cursor(), self._plan)  # type: ignore[union-attr]

    def execute(self, statement: str, values: object = ()) -> sqlite3.Cursor:
        self._plan.before(statement, values)
        return self._db.execute(statement, values)

    def executemany(self, statement: str, values: object) -> sqlite3.Cursor:
        self._plan.before(statement, values)
        return self._db.executemany(statement, values)

    def __enter__(self) -> None:
        self._db.__enter__()

    def __exit__(self, *details: object) -> None:
        self._db.__exit__(*details)  # type: ignore[arg-type]

    def close(self) -> None:
        self._db.close()


class Plan:
    """Fails the statements for which `fails` gives an error."""

    def __init__(self, fails: Callable[[str, object], Exception | None] = lambda *_: None) -> None:
        self.fails = fails
        self.begun = 0
        self.opened = 0

    def before(self, statement: str, values: object) -> None:
        self.begun += statement.startswith("BEGIN")
        if error := self.fails(statement, values):
            raise error

    def connect(self, path: str, wait: float) -> sqlite3.Connection:
        self.opened += 1
        db = sqlite3.connect(path, timeout=min(wait, 0.05), isolation_level=None, check_same_thread=False)
        return Spy(db, self)  # type: ignore[return-value]


def test_with_fsync_what_comes_together_is_committed_together(path: Path) -> None:
    plan = Plan()

    async def main(journal: SqliteJournal) -> None:
        await asyncio.gather(*(fill(journal, run_id=f"r{n}") for n in range(50)))

    with SqliteJournal(path, durable="power", connect=plan.connect) as journal:
        asyncio.run(main(journal))
        assert {journal.events(f"r{n}") for n in range(50)} == {tuple(ONE_RUN)}

    assert plan.begun < 50 * (len(ONE_RUN) + 2) / 5


def test_results_that_land_together_are_recorded_once_each_and_in_one_order(journal: SqliteJournal) -> None:
    many = [ToolCall(str(n), "look") for n in range(30)]

    async def main() -> list[Event]:
        async with journal.open("r1") as log:
            await log.append(RunStarted("q"))
            await log.append(ModelReplied("", tuple(many)))
            await asyncio.gather(*(log.append(ToolReturned(call.id, "x" * 9000)) for call in many))
            return log.state.events

    folded = asyncio.run(main())

    assert list(journal.events("r1")) == folded
    assert len(folded) == 32


def test_an_append_that_is_no_longer_waited_for_is_recorded_and_folded(journal: SqliteJournal) -> None:
    async def main() -> None:
        async with journal.open("other"), journal.open("r1") as log:
            await log.append(RunStarted("q"))
            task = asyncio.ensure_future(log.append(Reminded("dropped?")))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            await log.append(Reminded("next"))
            assert log.state.events == [RunStarted("q"), Reminded("dropped?"), Reminded("next")]

    asyncio.run(main())
    assert len(journal.events("r1")) == 3


@pytest.mark.parametrize("turns", range(12))
def test_a_cancel_while_a_run_is_being_opened_leaves_it_free(turns: int, journal: SqliteJournal) -> None:
    async def main() -> None:
        async with journal.open("other"):
            task = asyncio.ensure_future(fill(journal))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            await state_of(journal)

    asyncio.run(main())


def test_several_event_loops_in_several_threads_share_a_journal(journal: SqliteJournal) -> None:
    def work(name: str) -> None:
        async def main() -> None:
            await asyncio.gather(*(fill(journal, run_id=f"{name}{n}") for n in range(20)))

        asyncio.run(main())

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(journal.runs()) == 80
    assert {journal.events(run.id) for run in journal.runs()} == {tuple(ONE_RUN)}


def test_a_large_record_is_written_by_the_writers_own_thread(path: Path) -> None:
    events = [RunStarted("q"), Reminded("x" * (INLINE_CHARS + 1)), Reminded("small")]

    with SqliteJournal(path) as journal:
        asyncio.run(fill(journal, events))
        assert journal.events("r1") == tuple(events)


def test_more_than_fits_one_transaction_is_written_in_several(path: Path) -> None:
    gate = threading.Event()
    plan = Plan()
    ids = [f"r{n}" for n in range(60)]

    def fails(_statement: str, _values: object) -> None:
        gate.wait(10)

    async def main(journal: SqliteJournal) -> None:
        async with AsyncExitStack() as stack:
            logs = [await stack.enter_async_context(journal.open(run_id)) for run_id in ids]
            await asyncio.gather(*(log.append(RunStarted("q")) for log in logs))
            plan.fails, plan.begun = fails, 0
            many = [asyncio.ensure_future(log.append(Reminded("y"))) for log in logs * (BATCH_JOBS // 20)]
            await asyncio.sleep(0)
            gate.set()
            await asyncio.gather(*many)
            assert 3 <= plan.begun <= 5

    with SqliteJournal(path, durable="power", connect=plan.connect) as journal:
        asyncio.run(main(journal))
        assert {len(journal.events(run_id)) for run_id in ids} == {1 + BATCH_JOBS // 20}


def test_the_write_ahead_log_stays_small(path: Path) -> None:
    async def main(journal: SqliteJournal) -> None:
        async with journal.open("r1") as log:
            await log.append(RunStarted("q"))
            for n in range(10 * COMMITS_BETWEEN_CHECKPOINTS):
                await log.append(Reminded(f"{n} {'x' * 900}"))

    with SqliteJournal(path) as journal:
        asyncio.run(main(journal))
        assert path.with_name("runs.db-wal").stat().st_size < 16_000_000, "all of it together is 40 MB"


def test_a_journal_works_in_an_event_loop_with_virtual_time(journal: SqliteJournal) -> None:
    async def main() -> None:
        await fill(journal, [*ONE_RUN[:2], ToolReturned("1", "x" * 200_000)])
        await asyncio.sleep(86_400)
        await fill(journal, [RunResumed()])

    run_virtual(main())
    assert len(journal.events("r1")) == 4


# --- when writing fails ---------------------------------------------------------------------------


def full() -> sqlite3.Error:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error


def busy() -> sqlite3.Error:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error


def test_what_sqlite_has_no_code_for_is_told_in_its_own_words(path: Path) -> None:
    plan = Plan(lambda *_: OverflowError("too large"))

    with pytest.raises(OverflowError):
        SqliteJournal(path, connect=plan.connect)
    assert translated(OverflowError("too large"), "x.db").message == "cannot write to the journal x.db: too large"


@pytest.mark.parametrize("durable", ["process", "power"])
def test_what_cannot_be_written_is_an_error_and_changes_nothing(durable: str, path: Path) -> None:
    plan = Plan()

    async def main(journal: SqliteJournal) -> None:
        async with journal.open("r1") as log:
            await log.append(RunStarted("q"))
            plan.fails = lambda statement, _: full() if statement.startswith("INSERT INTO records") else None
            with pytest.raises(JournalError, match=r"no space left for the journal .*make room, then resume"):
                await log.append(Reminded("lost"))
            assert log.state.events == [RunStarted("q")]
            plan.fails = lambda *_: None
            await log.append(Reminded("kept"))

    with SqliteJournal(path, durable=durable, connect=plan.connect) as journal:  # type: ignore[arg-type]
        asyncio.run(main(journal))
        assert journal.events("r1") == (RunStarted("q"), Reminded("kept"))


@pytest.mark.parametrize("durable", ["process", "power"])
def test_only_what_cannot_be_written_fails(durable: str, path: Path) -> None:
    plan = Plan(lambda _, values: full() if "poison" in str(values) else None)

    async def main(journal: SqliteJournal) -> list[object]:
        async with journal.open("r1") as log, journal.open("r2") as other:
            await log.append(RunStarted("q"))
            await other.append(RunStarted("q"))
            words = ["a", "poison", "b", "poison", "c"]
            return await asyncio.gather(
                *(run.append(Reminded(word)) for word in words for run in (log, other)), return_exceptions=True
            )

    with SqliteJournal(path, durable=durable, connect=plan.connect) as journal:  # type: ignore[arg-type]
        outcomes = asyncio.run(main(journal))
        assert [type(o).__name__ for o in outcomes] == [
            n for w in "NJNJN" for n in [{"N": "NoneType", "J": "JournalError"}[w]] * 2
        ]
        assert [e.text for e in journal.events("r1")[1:]] == ["a", "b", "c"]  # type: ignore[union-attr]


def test_a_lease_that_could_not_be_given_back_can_be_taken_again_at_once(path: Path) -> None:
    plan = Plan()

    async def main(journal: SqliteJournal) -> None:
        async with journal.open("r1") as log:
            await log.append(RunStarted("q"))
            plan.fails = lambda statement, _: full() if statement.startswith("BEGIN") else None
        plan.fails = lambda *_: None
        assert await state_of(journal) == [RunStarted("q")]

    with SqliteJournal(path, connect=plan.connect) as journal:
        asyncio.run(main(journal))


@pytest.mark.parametrize("durable", ["process", "power"])
def test_a_lease_whose_commit_failed_is_not_held(durable: str, path: Path) -> None:
    plan = Plan()

    async def main(journal: SqliteJournal) -> None:
        plan.fails = lambda statement, _: full() if statement == "COMMIT" else None
        with pytest.raises(JournalError):
            await state_of(journal)
        plan.fails = lambda *_: None
        await fill(journal)

    with SqliteJournal(path, durable=durable, connect=plan.connect) as journal:  # type: ignore[arg-type]
        asyncio.run(main(journal))
        assert journal.runs()[0].holder == ""


@pytest.mark.parametrize("durable", ["process", "power"])
def test_a_program_that_keeps_the_file_locked_is_waited_for_and_then_named_as_the_cause(
    durable: str, path: Path
) -> None:
    plan = Plan()

    async def main(journal: SqliteJournal) -> None:
        async with journal.open("r1") as log:
            await log.append(RunStarted("q"))
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(JournalError, match=r"another program kept the journal .* locked"):
                    await log.append(Reminded("locked"))
                other.execute("ROLLBACK")
            await log.append(Reminded("free"))

    with SqliteJournal(path, durable=durable, connect=plan.connect) as journal:  # type: ignore[arg-type]
        asyncio.run(main(journal))
        assert journal.events("r1") == (RunStarted("q"), Reminded("free"))


def test_a_file_that_cannot_be_opened_for_a_while_fails_only_for_that_while(path: Path) -> None:
    plan = Plan()

    def connect(path: str, wait: float) -> sqlite3.Connection:
        if plan.begun < 0:
            error = sqlite3.OperationalError("unable to open database file")
            error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
            raise error
        return plan.connect(path, wait)

    with SqliteJournal(path, connect=connect) as journal:
        plan.begun = -1
        with pytest.raises(JournalError, match="check the path and its rights"):
            asyncio.run(state_of(journal))
        with pytest.raises(JournalError, match="check the path and its rights"):
            journal.runs()
        plan.begun = 0
        asyncio.run(fill(journal))
        assert journal.events("r1") == tuple(ONE_RUN)


def test_leases_that_cannot_be_renewed_are_tried_again(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tried = threading.Semaphore(0)
    plan = Plan()

    def fails(statement: str, _values: object) -> Exception | None:
        if "max(lease_until" not in statement:
            return None
        tried.release()
        return full()

    async def main(journal: SqliteJournal) -> None:
        async with journal.open("r1") as log:
            await log.append(RunStarted("q"))
            assert tried.acquire(timeout=10)
            assert tried.acquire(timeout=10)
            plan.fails = lambda *_: None
            await log.append(Reminded("still ours"))

    plan.fails = fails
    with SqliteJournal(path, connect=plan.connect, lease_seconds=0.06) as journal:
        asyncio.run(main(journal))

    assert "could not renew the leases" in caplog.text


# --- letting go -----------------------------------------------------------------------------------


def test_a_closed_journal_says_so(journal: SqliteJournal) -> None:
    asyncio.run(fill(journal))
    journal.close()
    journal.close()

    with pytest.raises(JournalError, match="is closed"):
        asyncio.run(state_of(journal))
    assert len(journal.events("r1")) == len(ONE_RUN)


def test_a_journal_that_is_closed_from_its_own_thread_does_not_wait_for_itself(path: Path) -> None:
    closed = threading.Event()
    journals: list[SqliteJournal] = []

    class Closing(Clock):
        def __call__(self) -> float:
            if threading.current_thread() is not threading.main_thread():
                journals.pop().close()
                closed.set()
            return self.time

    journals.append(SqliteJournal(path, clock=Closing(), lease_seconds=0.06))

    async def main() -> None:
        async with journals[0].open("r1"):
            assert closed.wait(10)

    asyncio.run(main())


def test_closing_while_runs_are_open_gives_them_back_and_refuses_what_comes_after(
    journal: SqliteJournal, path: Path
) -> None:
    async def main() -> None:
        async with journal.open("r2"), journal.open("r1") as log:
            await log.append(RunStarted("q"))
            landing = asyncio.ensure_future(log.append(Reminded("on its way")))
            await asyncio.sleep(0)
            journal.close()
            await landing
            with pytest.raises(JournalError, match="is closed"):
                await log.append(Reminded("too late"))

    asyncio.run(main())
    with SqliteJournal(path) as again:
        assert asyncio.run(state_of(again)) == [RunStarted("q"), Reminded("on its way")]


def test_a_journal_that_is_forgotten_ends_its_thread_and_closes_its_file(path: Path) -> None:
    plan = Plan()
    journal = SqliteJournal(path, connect=plan.connect)
    asyncio.run(fill(journal))
    (thread,) = [t for t in threading.enumerate() if t.name == f"journal {path}"]

    del journal
    gc.collect()
    thread.join(10)

    assert not thread.is_alive()
    assert not path.with_name("runs.db-wal").exists(), "the last one out folds the log into the file"


def test_an_event_loop_that_ends_too_early_keeps_no_run(path: Path) -> None:
    reached, held = threading.Event(), threading.Event()
    plan = Plan()

    def fails(statement: str, _values: object) -> None:
        if "INSERT OR IGNORE" in statement and threading.current_thread() is not threading.main_thread():
            reached.set()
            held.wait(10)

    async def leave(journal: SqliteJournal) -> None:
        task = asyncio.ensure_future(state_of(journal))
        for _ in range(5):
            await asyncio.sleep(0)
        assert reached.wait(10)
        asyncio.get_running_loop().stop()
        await asyncio.wait({task})

    plan.fails = fails
    with SqliteJournal(path, durable="power", connect=plan.connect) as journal:
        loop = asyncio.new_event_loop()
        task = loop.create_task(leave(journal))
        with pytest.raises(RuntimeError, match="stopped"):
            loop.run_until_complete(task)
        for left in (task, *asyncio.all_tasks(loop)):
            left._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        held.set()
        asyncio.run(fill(journal))
        assert journal.events("r1") == tuple(ONE_RUN)


FORKED = """
import asyncio, os, sys, warnings
from tool_loop.events import RunStarted
from tool_loop.sqlite_file import translated
from tool_loop.sqlite_journal import SqliteJournal
warnings.simplefilter("ignore")
journal = SqliteJournal(sys.argv[1])
async def one(run_id):
    async with journal.open(run_id) as log:
        await log.append(RunStarted(run_id))
asyncio.run(one("before"))
if os.fork() == 0:
    asyncio.run(one("child"))
    sys.exit()
os.wait()
asyncio.run(one("parent"))
print(sorted(run.question for run in journal.runs()))
"""


def test_after_a_fork_each_process_writes_for_itself(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FORKED, path], capture_output=True, text=True, timeout=60, check=False)

    assert (done.stdout, done.stderr) == ("['before', 'child', 'parent']\n", "")


def test_a_decision_that_was_damaged_before_the_driver_read_it_is_refused(path: Path) -> None:
    async def main(journal: SqliteJournal) -> None:
        await waiting(journal)
        async with journal.open("r1") as log:
            await journal.decide("r1", "1", allow=True)
            tamper(path, "UPDATE records SET record = '{}' WHERE seq = 3")
            with pytest.raises(JournalDamaged, match="run r1, record 3"):
                await log.append(Reminded("next"))

    with SqliteJournal(path) as journal:
        asyncio.run(main(journal))


def test_a_record_that_overtakes_another_on_the_way_back_is_folded_behind_it(path: Path) -> None:
    large, small = Reminded("x" * (INLINE_CHARS + 1)), Reminded("small")

    async def main(journal: SqliteJournal) -> None:
        async with journal.open("r1") as log:
            await log.append(RunStarted("q"))
            task = asyncio.ensure_future(log.append(large))
            await asyncio.sleep(0)
            until = time.monotonic() + 10
            while time.monotonic() < until and (len(journal.records("r1")) < 2 or journal._begun[1]._with_thread):  # type: ignore[index]
                pass  # until the thread has written it; this loop has not heard of it
            await log.append(small)
            await task
            assert log.state.events == [RunStarted("q"), large, small]

    with SqliteJournal(path) as journal:
        asyncio.run(main(journal))
        assert journal.events("r1") == (RunStarted("q"), large, small)


# --- who holds a run ------------------------------------------------------------------------------


def test_a_living_process_is_not_gone_and_comes_back_from_its_text() -> None:
    me = Holder.here()

    assert not me.gone()
    assert Holder.parsed(str(me)) == me
    assert me != Holder.here(), "two journals of one process are two holders"


@pytest.mark.parametrize("text", ["", "12@host", "x@host|a|b|c", "12host|a|b|c", "12@host|a|b|c|d"])
def test_what_is_no_holder_is_nobody(text: str) -> None:
    assert Holder.parsed(text) is None


def test_a_process_that_ended_is_gone_waited_for_or_not(dead: Holder) -> None:
    assert dead.gone()
    os.waitpid(dead.pid, 0)
    assert dead.gone()


def test_a_number_that_was_given_to_another_process_is_not_the_holder() -> None:
    me = Holder.here()

    assert Holder(me.pid, me.host, me.place, "1", me.owner).gone()
    assert not Holder(me.pid, me.host, me.place, "", me.owner).gone(), "not known is not gone"
    assert not Holder(me.pid, "elsewhere", me.place, "1", me.owner).gone()
    assert not Holder(me.pid, me.host, "another boot", "1", me.owner).gone()


def test_where_the_system_tells_nothing_only_a_free_number_is_gone(tmp_path: Path) -> None:
    me = Holder.here()

    assert (_born(me.pid, tmp_path), _place(tmp_path)) == ("", "")
    assert not Holder.of(1).gone()


def test_the_state_of_a_run_is_what_its_records_amount_to(journal: SqliteJournal) -> None:
    registry = ToolRegistry([])
    asyncio.run(Agent(ScriptedLLM("done"), registry, journal=journal).run("q", run_id="r1"))

    assert State.of(journal.events("r1")).ended == RunEnded("answered", "done")
