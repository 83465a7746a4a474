"""What a person decides needs no lease, and the first decision is the only one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.kit import sqlite_case
from tests.kit.sqlite_case import ASKED, tamper, waiting
from tool_loop import Agent, ScriptedLLM, tool
from tool_loop.errors import JournalDamaged, UnknownRun, UsageError
from tool_loop.events import (
    ApprovalDecided,
    Reminded,
    ToolCall,
)
from tool_loop.journal.sqlite import SqliteJournal

# Fixtures are found where they have a name.
path = sqlite_case.path
journal = sqlite_case.journal


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
