"""A run that dies comes to the end it would have come to, with nothing done or paid for twice.

Every point, not some points: the process dies before and after each record, each write fails, the
run is cancelled at each turn of the event loop.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path

import pytest

from tests.kit.proofs import (
    STORIES,
    Crash,
    World,
    attempt,
    resumes,
    sound,
    survives_cancels,
    survives_every_crash,
    survives_failing_writes,
    told,
)
from tests.kit.sqlite_case import Plan
from tool_loop import Agent, ScriptedLLM, ToolCall, tool
from tool_loop.errors import JournalError
from tool_loop.events import Event, IntentRecorded, RunStarted, ToolReturned
from tool_loop.journal import codec, statements as store
from tool_loop.journal.memory import MemoryLog
from tool_loop.journal.sqlite import SqliteJournal
from tool_loop.ports import RunLog
from tool_loop.runtime.clock import run_virtual

each_story = pytest.mark.parametrize("name", STORIES)


@each_story
def test_a_run_that_dies_at_any_moment_comes_to_the_same_end_and_repeats_nothing(name: str) -> None:
    moments = run_virtual(survives_every_crash(STORIES[name]))

    assert moments >= 14


@each_story
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
def test_a_write_that_fails_ends_the_attempt_before_the_effect(name: str, lasting: bool) -> None:
    writes = run_virtual(survives_failing_writes(STORIES[name], lambda: JournalError("disk full"), lasting))

    assert writes >= 7


class SlowLog(MemoryLog):
    """A log whose writes take a few turns of the event loop, as a disk does."""

    async def append(self, event: Event) -> None:
        for _ in range(2):
            await asyncio.sleep(0)
        await super().append(event)
        await asyncio.sleep(0)


def slow_logs() -> Callable[[int], AbstractAsyncContextManager[RunLog]]:
    kept: dict[int, SlowLog] = {}

    @asynccontextmanager
    async def opened(number: int) -> AsyncIterator[RunLog]:
        yield kept.setdefault(number, SlowLog(str(number), lambda: 0.0))

    return opened


@each_story
def test_a_run_that_is_cancelled_at_any_turn_of_the_loop_loses_nothing(name: str) -> None:
    turns = run_virtual(survives_cancels(STORIES[name], slow_logs()))

    assert turns >= 40


# --- the same in a file ---------------------------------------------------------------------------


def run_of(journal: SqliteJournal) -> Callable[[int], AbstractAsyncContextManager[RunLog]]:
    return lambda number: journal.open(f"run {number}")


@pytest.mark.parametrize("name", ["reads, stores, pays", "asks a person, who allows"])
def test_a_run_in_a_file_that_is_cancelled_at_any_turn_of_the_loop_loses_nothing(name: str, tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "runs.db") as journal:

        async def main() -> int:
            return await survives_cancels(STORIES[name], run_of(journal))

        assert run_virtual(main()) >= 20


@each_story
def test_a_run_goes_on_from_every_record_in_a_file_the_last_one_whole_or_torn(name: str, tmp_path: Path) -> None:
    story = STORIES[name]

    async def main() -> None:
        full, moments = await told(story)
        worlds = {len(crash.events): crash.world for crash in moments}
        for n in range(1, len(full) + 1):
            text = codec.encode(full[n - 1]).encode()
            for m, size in enumerate((1, len(text) // 2, len(text) - 1, len(text))):
                run_id = f"run {n}.{m}"
                async with journal.open(run_id) as log:
                    for event in full[:n]:
                        await log.append(event)
                tear(path, run_id, n - 1, text[:size])
                whole = n if size == len(text) else n - 1
                async with journal.open(run_id) as log:
                    assert log.state.events == full[:whole]
                    if m == 1 and whole:
                        world = worlds[whole]
                        assert await attempt(story, log, world) == full[-1]
                        sound(story, log.state.events, world)

    path = tmp_path / "runs.db"
    with SqliteJournal(path) as journal:
        run_virtual(main())


def tear(path: Path, run_id: str, seq: int, text: bytes) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        n = store.number(db, run_id)
        db.execute("UPDATE records SET record = CAST(? AS TEXT) WHERE run = ? AND seq = ?", (text, n, seq))


@each_story
def test_every_beginning_of_every_record_is_seen_to_be_torn(name: str) -> None:
    full, _ = run_virtual(told(STORIES[name]))
    rows = [(n, 0.0, codec.encode(event).encode()) for n, event in enumerate(full)]

    for n, (seq, at, text) in enumerate(rows):
        assert store.untorn(rows[: n + 1]) == rows[: n + 1]
        for cut in range(len(text)):
            assert store.untorn([*rows[:n], (seq, at, text[:cut])]) == rows[:n]


class BrokenDisk:
    """A disk whose `n`th write of a record fails, alone or with all that follow."""

    def __init__(self, n: int, lasting: bool) -> None:
        self.left = n
        self.lasting = lasting

    def fails(self, statement: str, _values: object) -> Exception | None:
        self.left -= statement.startswith("INSERT INTO records")
        if not statement.startswith("INSERT INTO records") or self.left > 0 or (self.left < 0 and not self.lasting):
            return None
        return sqlite3.OperationalError("disk I/O error")


@pytest.mark.parametrize("durable", ["process", "power"])
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
def test_a_disk_that_fails_at_any_write_ends_the_attempt_before_the_effect(
    durable: str, lasting: bool, tmp_path: Path
) -> None:
    story = STORIES["reads, stores, pays"]

    async def main() -> int:
        full, _ = await told(story)
        for n in range(1, 50):
            world, disk = World(), BrokenDisk(n, lasting)
            with SqliteJournal(tmp_path / f"{n}.db", durable=durable, connect=Plan(disk.fails).connect) as journal:  # type: ignore[arg-type]
                try:
                    async with journal.open("r") as log:
                        await attempt(story, log, world)
                except JournalError as error:
                    assert "disk I/O error" in error.message
                finally:
                    failed, disk.left, disk.lasting = disk.left <= 0, 0, False
                events = journal.events("r") if journal.runs() else ()
            if events:
                await resumes(Crash(tuple(events), world), story, full)
            if not failed:
                return n
        raise AssertionError("the run never ends")

    assert run_virtual(main()) >= 13


# --- the scenario of the other frameworks ---------------------------------------------------------


def test_of_three_payments_the_one_in_doubt_is_reported_and_not_repeated(tmp_path: Path) -> None:
    """The process died while `ship` had happened and not returned: they repeat it, silently or with the batch."""
    done = ["pay 1", "pay 2", "ship 3"]

    @tool(effect="once")
    def pay(n: int) -> str:
        """Pay."""
        done.append(f"pay {n}")
        return "paid"

    @tool(effect="once")
    def ship(n: int) -> str:
        """Ship."""
        done.append(f"ship {n}")
        return "shipped"

    asked = tuple(ToolCall(str(n), name, f'{{"n": {n}}}') for n, name in ((1, "pay"), (2, "pay"), (3, "ship")))
    script = ScriptedLLM(lambda request: request.transcript.messages[-1].content)  # type: ignore[union-attr]
    with SqliteJournal(tmp_path / "runs.db") as journal:
        asyncio.run(killed_in_ship(journal, asked))
        result = asyncio.run(Agent(script, [pay, ship], journal=journal).resume("r1"))

    assert done == ["pay 1", "pay 2", "ship 3"]
    assert [r.error for r in result.events if isinstance(r, ToolReturned)] == [None, None, "outcome_unknown"]
    assert "may or may not have happened" in result.answer


async def killed_in_ship(journal: SqliteJournal, asked: tuple[ToolCall, ...]) -> None:
    from tests.kit.runs import calls

    async with journal.open("r1") as log:
        await log.append(RunStarted("pay twice, then ship"))
        await log.append(calls(*((c.id, c.name, c.arguments) for c in asked)))
        await log.append(IntentRecorded(("1", "2", "3")))
        await log.append(ToolReturned("1", "paid"))
        await log.append(ToolReturned("2", "paid"))
