"""What can be done with runs, in memory and in a file alike: follow, cancel, fork, delete, look for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import sqlite_case
from tests.kit.runs import calls, says
from tests.kit.sqlite_case import ASKED, ONE_RUN, Clock, fill
from tool_loop import Agent, MemoryJournal, ScriptedLLM, Tool, ToolCall, tool
from tool_loop.audit.invariants import check
from tool_loop.errors import RunBusy, RunCancelled, UnknownRun, UsageError
from tool_loop.events import (
    Event,
    ModelReplied,
    RunContinued,
    RunEnded,
    RunInterrupted,
    RunResumed,
    RunStarted,
    ToolReturned,
)
from tool_loop.journal.runs import CAN_GO_ON, Record
from tool_loop.journal.sqlite import SqliteJournal
from tool_loop.state import State

path = sqlite_case.path

AnyJournal = SqliteJournal | MemoryJournal
PATIENCE_SECONDS = 20


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite"])
def shelf(request: pytest.FixtureRequest, path: Path, clock: Clock) -> Iterator[AnyJournal]:
    if request.param == "memory":
        yield MemoryJournal(clock=clock)
    else:
        with SqliteJournal(path, clock=clock) as journal:
            yield journal


def run(coroutine: object) -> object:
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE_SECONDS))  # type: ignore[arg-type]


def other(shelf: AnyJournal) -> AnyJournal:
    """The same runs as another process sees them."""
    return SqliteJournal(shelf.path, clock=shelf._clock) if isinstance(shelf, SqliteJournal) else shelf


# --- reading and following -------------------------------------------------------------------------


def test_records_behind_a_number_are_the_rest_of_all_records(shelf: AnyJournal) -> None:
    run(fill(shelf))
    whole = shelf.records("r1")

    assert [record.seq for record in whole] == list(range(len(ONE_RUN)))
    for after in range(-1, len(ONE_RUN) + 1):
        assert shelf.records("r1", after=after) == whole[after + 1 :]


def test_a_follower_gets_each_record_once_in_order_and_ends_with_the_run(shelf: AnyJournal) -> None:
    async def main() -> None:
        async with shelf.open("r1") as log:
            await log.append(ONE_RUN[0])
            seen: list[Record] = []

            async def follow() -> None:
                async for record in other(shelf).follow("r1"):
                    seen.append(record)

            following = asyncio.ensure_future(follow())
            for n, event in enumerate(ONE_RUN[1:], 1):
                while len(seen) < n:  # noqa: ASYNC110 - it is the follower that is waited for
                    await asyncio.sleep(0.001)
                await log.append(event)
        await following
        assert [(r.seq, r.event) for r in seen] == list(enumerate(ONE_RUN))

    run(main())


def test_a_follower_that_comes_back_goes_on_where_it_was(shelf: AnyJournal) -> None:
    async def main() -> list[int]:
        await fill(shelf)
        return [record.seq async for record in shelf.follow("r1", after=3)]

    assert run(main()) == [4, 5, 6]


def test_a_follower_of_a_whole_conversation_waits_for_the_next_question(shelf: AnyJournal) -> None:
    async def main() -> list[Event]:
        await fill(shelf)
        seen: list[Event] = []
        async for record in shelf.follow("r1", after=5, forever=True):
            seen.append(record.event)
            if len(seen) == 1:
                await fill(shelf, [RunContinued("and?")])
            else:
                break
        return seen

    assert run(main()) == [RunEnded("answered", "a key"), RunContinued("and?")]


def test_a_follower_of_nothing_is_told_and_one_of_a_deleted_run_ends(shelf: AnyJournal) -> None:
    async def main() -> None:
        with pytest.raises(UnknownRun):
            await anext(shelf.follow("r1"))
        await fill(shelf, ONE_RUN[:3])
        following = shelf.follow("r1", after=1)
        assert (await anext(following)).seq == 2
        waiting = asyncio.ensure_future(anext(following, None))
        await asyncio.sleep(0)
        await shelf.delete("r1")
        assert await waiting is None

    run(main())


def test_a_hundred_followers_see_what_another_process_records(path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from tool_loop import *\n"
        "Agent(ScriptedLLM('a', 'b'), journal=SqliteJournal(sys.argv[1])).run_sync('more?', continue_run='r1')\n"
    )

    async def main(journal: SqliteJournal) -> None:
        await fill(journal)

        async def follow() -> list[type]:
            found = []
            async for record in journal.follow("r1", after=len(ONE_RUN) - 1, forever=True):
                found.append(type(record.event))
                if found[-1] is RunEnded:
                    return found
            return found

        following = [asyncio.ensure_future(follow()) for _ in range(100)]
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(path))
        assert await child.wait() == 0
        assert await asyncio.gather(*following) == [[RunContinued, ModelReplied, RunEnded]] * 100

    with SqliteJournal(path) as journal:
        run(main(journal))


# --- looking for runs ------------------------------------------------------------------------------


def started(**meta: object) -> RunStarted:
    import json

    return RunStarted("q", meta=json.dumps(meta))


def test_runs_are_found_by_what_they_were_started_with_and_how_they_stand(shelf: AnyJournal) -> None:
    end = [says("a"), RunEnded("answered", "a")]
    run(fill(shelf, [started(user="ann", n=1), *end], "a"))
    run(fill(shelf, [started(user="bob", n=1), *end], "b"))
    run(fill(shelf, [started(user="ann", n=2)], "c"))
    run(fill(shelf, [RunStarted("q", meta="not JSON")], "d"))

    assert {r.id for r in shelf.runs(meta={"user": "ann"})} == {"a", "c"}
    assert {r.id for r in shelf.runs(meta={"user": "ann", "n": 1})} == {"a"}
    assert {r.id for r in shelf.runs(meta={"nobody": None})} == set()
    assert {r.id for r in shelf.runs(state="answered")} == {"a", "b"}
    assert {r.id for r in shelf.runs(state=CAN_GO_ON)} == {"c", "d"}
    assert {r.id: dict(r.meta) for r in shelf.runs()}["b"] == {"user": "bob", "n": 1}
    assert {r.id for r in shelf.runs() if r.can_go_on} == {"c", "d"}
    assert {r.id for r in shelf.runs() if r.ended} == {"a", "b"}


@pytest.mark.parametrize(
    ("costs", "total"), [((0.25, 0.5), 0.75), ((0.25, None), None), ((), 0.0), ((0.1, 0.2, 0.3), 0.6)]
)
def test_a_run_says_what_it_cost_and_nothing_where_a_price_is_missing(
    costs: tuple[float | None, ...], total: float | None, shelf: AnyJournal, clock: Clock
) -> None:
    async def main() -> None:
        async with shelf.open("r1") as log:
            await log.append(RunStarted("q"))
            for cost in costs:
                clock.time += 0.4
                await log.append(ModelReplied("", (ToolCall(f"c{cost}", "x"),), cost=cost))
                await log.append(ToolReturned(f"c{cost}", "y"))
        async with shelf.open("r1"):
            pass

    run(main())
    assert shelf.runs()[0].cost == (total if total is None else pytest.approx(total))


def test_every_call_that_waits_is_listed_until_it_is_decided(shelf: AnyJournal, clock: Clock) -> None:
    async def main() -> None:
        await fill(shelf, [started(user="ann"), *ASKED[1:]], "a")
        clock.time += 60
        await fill(shelf, ASKED, "b")
        first, *_, last = waiting = shelf.pending()
        assert [(c.run_id, c.call.id) for c in waiting] == [("a", "1"), ("a", "2"), ("b", "1"), ("b", "2")]
        assert (first.call.name, first.fingerprint, first.why, first.question) == ("pay", "f1", "policy", "q")
        assert (dict(first.meta), last.at - first.at) == ({"user": "ann"}, 60)
        await shelf.decide("a", "1", allow=True)
        await shelf.decide("b", "1", allow=False, standing=True)
        assert [(c.run_id, c.call.id) for c in shelf.pending()] == [("a", "2")]
        assert shelf.pending(meta={"user": "bob"}) == []

    run(main())


# --- deleting --------------------------------------------------------------------------------------


def test_what_is_deleted_is_gone_and_its_id_can_be_used_again(shelf: AnyJournal) -> None:
    async def main() -> None:
        await fill(shelf)
        async with shelf.open("r1"):
            with pytest.raises(RunBusy):
                await shelf.delete("r1")
        await shelf.delete("r1")
        assert shelf.runs() == []
        for look in (shelf.records, shelf.events):
            with pytest.raises(UnknownRun):
                look("r1")
        with pytest.raises(UnknownRun):
            await shelf.delete("r1")
        await fill(shelf, ONE_RUN[:1])
        assert len(shelf.records("r1")) == 1

    run(main())


def test_what_is_deleted_is_not_left_in_the_file(path: Path) -> None:
    async def main() -> None:
        with SqliteJournal(path) as journal:
            await fill(journal, [RunStarted("the word is xyzzy " * 50)])
        with SqliteJournal(path) as journal:
            await journal.delete("r1")

    assert path.exists() is False
    run(main())
    assert b"xyzzy" not in b"".join(file.read_bytes() for file in path.parent.iterdir())


def test_old_runs_are_pruned_and_those_that_are_not_over_are_kept(shelf: AnyJournal, clock: Clock) -> None:
    async def main() -> None:
        end = [says("a"), RunEnded("answered", "a")]
        await fill(shelf, [started(user="ann"), *end], "old")
        await fill(shelf, [started(user="ann")], "old and not over")
        clock.time += 100
        await fill(shelf, [started(user="ann"), *end], "new")
        await fill(shelf, [started(user="bob"), *end], "bob's")
        with pytest.raises(UsageError, match="older_than"):
            await shelf.prune()
        assert await shelf.prune(older_than=50) == ["old"]
        assert await shelf.prune(older_than=0, meta={"user": "bob"}) == []  # it got on in this very moment
        assert await shelf.prune(meta={"user": "bob"}) == ["bob's"]
        async with shelf.open("old and not over"):
            assert await shelf.prune(older_than=50, state="running") == []
        assert await shelf.prune(older_than=50, state=CAN_GO_ON) == ["old and not over"]
        assert [r.id for r in shelf.runs()] == ["new"]

    run(main())


# --- cancelling ------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["read", "once"])
def test_a_run_is_cancelled_from_elsewhere_and_says_who_did_it(effect: str, shelf: AnyJournal) -> None:
    started = asyncio.Event()

    @tool(effect=effect)  # type: ignore[arg-type]
    async def work() -> str:
        """Work."""
        started.set()
        await asyncio.Event().wait()
        return ""

    async def main() -> None:
        agent = Agent(ScriptedLLM(ToolCall("1", "work"), "done after all"), [work], journal=shelf)
        running = asyncio.ensure_future(agent.run("q", run_id="r1"))
        await started.wait()
        assert await other(shelf).cancel("r1", by="ann", note="no longer needed")
        with pytest.raises(RunCancelled, match="cancelled by ann: no longer needed") as told:
            await running
        assert (told.value.run_id, told.value.by, running.cancelled()) == ("r1", "ann", False)
        assert shelf.events("r1")[-1] == RunInterrupted("cancelled", "no longer needed", "ann")
        assert shelf.runs()[0].state == "cancelled"
        assert shelf.runs(state=CAN_GO_ON) == []
        assert (await agent.resume("r1")).answer == "done after all"
        (result,) = [e for e in shelf.events("r1") if isinstance(e, ToolReturned)]
        assert result.error == ("cancelled" if effect == "read" else "outcome_unknown")
        assert not await shelf.cancel("r1")
        assert check(shelf.events("r1"), effects={"work": effect}) == []

    run(main())


def test_a_run_that_nobody_drives_is_cancelled_at_once(shelf: AnyJournal) -> None:
    async def main() -> None:
        with pytest.raises(UnknownRun):
            await shelf.cancel("r1")
        await fill(shelf, ASKED)
        assert await shelf.cancel("r1")
        assert [type(e) for e in shelf.events("r1")[3:]] == [RunResumed, ToolReturned, ToolReturned, RunInterrupted]
        assert shelf.runs()[0].state == "cancelled"
        assert shelf.pending() == []
        assert [broken.rule for broken in check(shelf.events("r1"))] == ["I15"], "its retry is no real one"
        with pytest.raises(UsageError, match="does not wait"):
            await shelf.decide("r1", "1", allow=True)

    run(main())


def test_what_a_dead_process_had_begun_is_in_doubt_when_it_is_cancelled(shelf: AnyJournal) -> None:
    async def main() -> None:
        await fill(shelf, ONE_RUN[:4])
        await shelf.cancel("r1", by="ann")
        found = [e for e in shelf.events("r1") if isinstance(e, ToolReturned)]
        assert [(e.call_id, e.error) for e in found] == [("1", None)]
        assert State.of(shelf.events("r1")).pending.keys() == {"2"}
        tools = [Tool(name, name, {"type": "object"}, list) for name in ("look", "pay")]
        result = await Agent(ScriptedLLM("I cannot tell."), tools, journal=shelf).resume("r1")
        assert [f.error for f in result.failures] == ["outcome_unknown"]

    run(main())


def test_a_cancel_that_came_while_the_driver_died_is_heard_by_the_next_one(path: Path) -> None:
    async def main(dead: SqliteJournal) -> None:
        async with dead.open("r1") as log:
            await log.append(RunStarted("q"))
            with SqliteJournal(path) as desk:
                assert await desk.cancel("r1", by="ann")
            assert isinstance(log.state.events[-1], RunStarted)  # it had no time to hear of it
        agent = Agent(ScriptedLLM("late"), journal=dead)
        with pytest.raises(RunCancelled):
            await agent.resume("r1")
        assert (await agent.resume("r1")).answer == "late"

    with SqliteJournal(path) as journal:
        run(main(journal))


def test_a_cancel_of_the_task_itself_stays_one_though_somebody_else_asked_too(shelf: AnyJournal) -> None:
    started = asyncio.Event()

    async def hang(_request: object) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    async def main() -> None:
        running = asyncio.ensure_future(Agent(ScriptedLLM(hang), journal=shelf).run("q", run_id="r1"))
        await started.wait()
        running.cancel()
        await shelf.cancel("r1")
        await asyncio.wait({running})
        assert running.cancelled()

    run(main())


def test_a_timeout_around_a_run_is_still_a_timeout(shelf: AnyJournal) -> None:
    async def hang(_request: object) -> str:
        await asyncio.Event().wait()
        return ""

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await Agent(ScriptedLLM(hang), journal=shelf).run("q", run_id="r1")
        assert shelf.runs()[0].state == "interrupted"

    run(main())


# --- copying ---------------------------------------------------------------------------------------


LONG: list[Event] = [
    RunStarted("one", meta='{"user": "ann"}'), calls(("1", "look")), ToolReturned("1", "x"), says("first"),
    RunEnded("answered", "first"), RunContinued("two"), calls(("2", "look")), ToolReturned("2", "y"),
]  # fmt: skip


@pytest.mark.parametrize(("steps", "kept"), [(0, 1), (1, 3), (2, 5), (3, 8), (None, 8)])
def test_a_run_is_forked_at_the_end_of_a_step(steps: int | None, kept: int, shelf: AnyJournal) -> None:
    run(fill(shelf, LONG))

    copy = run(shelf.fork("r1", steps))

    events = shelf.events(str(copy))
    assert list(events[1:]) == LONG[1:kept]
    assert dict(shelf.runs(meta={"forked_from": "r1"})[0].meta) == {
        "user": "ann", "forked_from": "r1", "forked_at": kept,
    }  # fmt: skip
    assert list(shelf.events("r1")) == LONG
    assert check(events) == []


def test_a_fork_goes_its_own_way(shelf: AnyJournal) -> None:
    async def main() -> None:
        agent = Agent(ScriptedLLM("first", "second", "another second"), journal=shelf)
        await agent.run("one", run_id="r1")
        await agent.run("two", continue_run="r1")
        copy = await shelf.fork("r1", 1, new_id="copy")
        assert copy == "copy"
        assert (await agent.run("other two", continue_run=copy)).answer == "another second"
        assert [r.answer for r in shelf.events("r1") if isinstance(r, RunEnded)] == ["first", "second"]

    run(main())


def test_a_run_cannot_be_forked_where_calls_are_open_or_where_it_has_not_been(shelf: AnyJournal) -> None:
    run(fill(shelf, ASKED))

    with pytest.raises(UsageError, match=r"open calls.*steps=0"):
        run(shelf.fork("r1"))
    with pytest.raises(UsageError, match="has 1 steps"):
        run(shelf.fork("r1", 2))
    with pytest.raises(UnknownRun):
        run(shelf.fork("r2"))
    run(shelf.fork("r1", 0, new_id="r2"))
    with pytest.raises(UsageError, match="there is a run r2"):
        run(shelf.fork("r1", 0, new_id="r2"))


def test_processes_that_only_list_runs_start_no_thread(path: Path) -> None:
    sqlite_case.keep(path)
    code = f"import threading, tool_loop as t; t.SqliteJournal({str(path)!r}).runs(); print(threading.active_count())"

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)

    assert said.stdout == "1\n"
