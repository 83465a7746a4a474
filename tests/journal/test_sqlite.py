"""Runs in one SQLite file: what is recorded comes back, in any process and for any reader."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.kit import sqlite_case
from tests.kit.runs import says
from tests.kit.sqlite_case import ASKED, ONE_RUN, Clock, fill, keep, state_of, tamper
from tool_loop import Agent, MemoryJournal, ScriptedLLM, ToolRegistry, tool
from tool_loop.errors import UnknownRun, UsageError
from tool_loop.events import (
    ApprovalDecided,
    Compacted,
    Event,
    IntentRecorded,
    RunContinued,
    RunEnded,
    RunInterrupted,
    RunResumed,
    RunStarted,
    ToolCall,
    Usage,
)
from tool_loop.journal import codec
from tool_loop.journal.sqlite import SqliteJournal
from tool_loop.state import State

# Fixtures are found where they have a name.
path = sqlite_case.path
journal = sqlite_case.journal


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
    assert first.events == same.events == more.run_events[: len(first.events)]


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


def test_the_state_of_a_run_is_what_its_records_amount_to(journal: SqliteJournal) -> None:
    registry = ToolRegistry([])
    asyncio.run(Agent(ScriptedLLM("done"), registry, journal=journal).run("q", run_id="r1"))

    assert State.of(journal.events("r1")).ended == RunEnded("answered", "done")


# --- the list of runs ------------------------------------------------------------------------------


STANDS: dict[str, tuple[list[Event], str, int, int]] = {
    "answered": (ONE_RUN, "answered", 2, 30),
    "stopped by a limit": ([*ONE_RUN[:-1], RunEnded("step limit", "a key")], "stopped", 2, 30),
    "left in the middle": (ONE_RUN[:4], "interrupted", 1, 15),
    "interrupted": ([*ONE_RUN[:2], RunInterrupted("rate_limit")], "interrupted", 1, 15),
    "cut off by the end of its server": ([*ONE_RUN[:2], RunInterrupted("cancelled")], "interrupted", 1, 15),
    "failed for good": ([*ONE_RUN[:2], RunInterrupted("auth")], "failed", 1, 15),
    "cancelled by somebody": ([*ONE_RUN[:2], RunInterrupted("cancelled", "", "ann")], "cancelled", 1, 15),
    "waiting": (ASKED, "waiting", 1, 22),
    "waiting for the other half": ([*ASKED, ApprovalDecided("1", True)], "waiting", 1, 22),
    "decided": ([*ASKED, ApprovalDecided("1", True), ApprovalDecided("2", False)], "ready", 1, 22),
    "decided for good": ([*ASKED, ApprovalDecided("1", True, standing=True)], "ready", 1, 22),
    "left after a decision": (
        [*ASKED, ApprovalDecided("1", True, standing=True), IntentRecorded(("1",), ("1",))],
        "interrupted",
        1,
        22,
    ),
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
