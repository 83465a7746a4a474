"""A run has one driver at a time, whoever dies, sleeps or keeps dying."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from tests.kit import sqlite_case
from tests.kit.sqlite_case import ONE_RUN, Clock, dies_with, fill, keep, state_of, tamper
from tool_loop.errors import Fenced, RunBusy, RunPoisoned
from tool_loop.events import (
    Event,
    Reminded,
    RunResumed,
    RunStarted,
    ToolReturned,
)
from tool_loop.journal.identity import ProcessIdentity, _born, _place
from tool_loop.journal.sqlite import SqliteJournal

# Fixtures are found where they have a name.
path = sqlite_case.path
dead = sqlite_case.dead


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


def test_the_run_of_a_dead_process_is_taken_over_at_once(path: Path, dead: ProcessIdentity) -> None:
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


def test_a_run_that_keeps_killing_its_process_is_parked_until_a_person_lifts_it(
    path: Path, dead: ProcessIdentity
) -> None:
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


# --- who holds a run -------------------------------------------------------------------------------


def test_a_living_process_is_not_gone_and_comes_back_from_its_text() -> None:
    me = ProcessIdentity.here()

    assert not me.gone()
    assert ProcessIdentity.parsed(str(me)) == me
    assert me != ProcessIdentity.here(), "two journals of one process are two holders"


@pytest.mark.parametrize("text", ["", "12@host", "x@host|a|b|c", "12host|a|b|c", "12@host|a|b|c|d"])
def test_what_is_no_holder_is_nobody(text: str) -> None:
    assert ProcessIdentity.parsed(text) is None


def test_a_process_that_ended_is_gone_waited_for_or_not(dead: ProcessIdentity) -> None:
    assert dead.gone()
    os.waitpid(dead.pid, 0)
    assert dead.gone()


def test_a_number_that_was_given_to_another_process_is_not_the_holder() -> None:
    me = ProcessIdentity.here()

    assert ProcessIdentity(me.pid, me.host, me.place, "1", me.owner).gone()
    assert not ProcessIdentity(me.pid, me.host, me.place, "", me.owner).gone(), "not known is not gone"
    assert not ProcessIdentity(me.pid, "elsewhere", me.place, "1", me.owner).gone()
    assert not ProcessIdentity(me.pid, me.host, "another boot", "1", me.owner).gone()


def test_where_the_system_tells_nothing_only_a_free_number_is_gone(tmp_path: Path) -> None:
    me = ProcessIdentity.here()

    assert (_born(me.pid, tmp_path), _place(tmp_path)) == ("", "")
    assert not ProcessIdentity.of(1).gone()
