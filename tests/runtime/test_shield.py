"""A cancel that comes again and again: every wait ends within its time, and keeps no core busy.

In real time, because under such a cancel a virtual clock never moves: there is always something to do.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit.runs import calls, of
from tool_loop import Agent, MemoryJournal, ScriptedLLM, SqliteJournal, tool
from tool_loop.audit.invariants import check
from tool_loop.errors import ProviderError
from tool_loop.events import ApprovalDecided, Event, IntentRecorded, ModelReplied, RunInterrupted, ToolReturned
from tool_loop.journal.memory import MemoryLog
from tool_loop.limits import Limits
from tool_loop.ports import Emit, PendingApproval, Request
from tool_loop.runtime.grace import UNWIND_SECONDS
from tool_loop.runtime.shield import done, settle

GRACE = 0.4
EARLY = 0.3  # when the cancel comes: late enough for a busy machine to have begun what is to be cancelled
SLACK = 1.0  # of a machine that has other things to do

Leaving = Callable[[], AbstractAsyncContextManager[None]]


# --- what cancels ---------------------------------------------------------------------------------


@asynccontextmanager
async def every_turn() -> AsyncIterator[None]:
    """Cancels at each turn of the event loop, with no class of a library around it."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    over = False

    def again() -> None:
        if not over:
            task.cancel()
            loop.call_soon(again)

    timer = loop.call_later(EARLY, again)
    try:
        yield
    except asyncio.CancelledError:
        while task.uncancel():
            pass
    finally:
        over = True
        timer.cancel()


@asynccontextmanager
async def twice() -> AsyncIterator[None]:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    timers = [loop.call_later(EARLY, task.cancel), loop.call_later(EARLY + GRACE / 2, task.cancel)]
    try:
        yield
    except asyncio.CancelledError:
        while task.uncancel():
            pass
    finally:
        for timer in timers:
            timer.cancel()


@asynccontextmanager
async def timeout() -> AsyncIterator[None]:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(EARLY):
            yield


@asynccontextmanager
async def task_group() -> AsyncIterator[None]:
    async def fail() -> None:
        await asyncio.sleep(EARLY)
        raise LookupError("a sibling")

    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            yield


@asynccontextmanager
async def anyio_scope() -> AsyncIterator[None]:
    anyio = pytest.importorskip("anyio")
    with anyio.move_on_after(EARLY):
        yield


@asynccontextmanager
async def anyio_group() -> AsyncIterator[None]:
    anyio = pytest.importorskip("anyio")

    async def leave() -> None:
        await anyio.sleep(EARLY)
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(leave)
        yield


CANCELS: list[Leaving] = [every_turn, twice, timeout, task_group, anyio_scope, anyio_group]


# --- what waits -----------------------------------------------------------------------------------


@tool(effect="read")
async def look() -> str:
    """Look."""
    await asyncio.sleep(30)
    return "seen"


@tool(effect="once")
async def pay() -> str:
    """Pay."""
    await asyncio.sleep(30)
    return "paid"


@tool(effect="once")
async def pay_quickly() -> str:
    """Pay, and be there soon after the cancel."""
    await asyncio.sleep(EARLY + GRACE / 2)
    return "paid"


@tool(effect="read")
async def stubborn() -> str:
    """Ignore the first cancels, and each for a while."""
    ends = asyncio.get_running_loop().time() + EARLY + GRACE + UNWIND_SECONDS + SLACK
    while asyncio.get_running_loop().time() < ends:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            continue
    return "late"


gate = threading.Event()


@tool(effect="read")
def look_on_a_thread() -> str:
    """Look."""
    gate.wait(30)
    return "seen"


@tool(effect="once")
def pay_on_a_thread() -> str:
    """Pay."""
    gate.wait(30)
    return "paid"


class Slow:
    """A model that takes its time, or a server that asks for it."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses = refuses

    async def reply(self, _request: Request, _emit: Emit) -> ModelReplied:
        if self.refuses:
            raise ProviderError("later", kind="overloaded", status=529, retryable=True, retry_after=20)
        await asyncio.sleep(30)
        raise AssertionError


class Filling(ScriptedLLM):
    """Its first reply fills the window; the summary that is asked for then takes its time."""

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        if any(getattr(m, "calls", ()) for m in request.transcript.messages):
            await asyncio.sleep(30)
        return await super().reply(request, emit)


@tool(effect="read")
def much() -> str:
    """Say much."""
    return "x" * 500


async def never_decides(_pending: PendingApproval) -> ApprovalDecided:
    await asyncio.sleep(30)
    raise AssertionError


def calling(*names: str) -> ScriptedLLM:
    return ScriptedLLM(calls(*((str(n), name) for n, name in enumerate(names))), "ok")


TOOLS = [look, pay, pay_quickly, stubborn, look_on_a_thread, pay_on_a_thread, much]

# For each wait: the agent, how long it may go on after the cancel, and what is on record after it.
WAITS: dict[str, tuple[Callable[[], Any], dict[str, Any], float, list[str | None]]] = {
    "a tool": (lambda: calling("look"), {}, 0.0, ["cancelled"]),
    "several tools": (lambda: calling("look", "look", "look_on_a_thread"), {}, 0.0, ["cancelled"] * 3),
    "a tool that must not run twice": (lambda: calling("pay"), {}, GRACE, []),
    "one that lands within the grace": (lambda: calling("pay_quickly"), {}, GRACE, [None]),
    "some, the first of which is in doubt": (lambda: calling("pay", "pay"), {}, GRACE, ["cancelled"]),
    "a tool that ignores its cancellation": (lambda: calling("stubborn"), {}, UNWIND_SECONDS, ["cancelled"]),
    "a thread": (lambda: calling("look_on_a_thread"), {}, 0.0, ["cancelled"]),
    "a thread that must not run twice": (lambda: calling("pay_on_a_thread"), {}, GRACE, []),
    "a reviewer": (lambda: calling("look"), {"approve": "always", "reviewer": never_decides}, 0.0, ["cancelled"]),
    "a model": (Slow, {}, 0.0, []),
    "a retry": (lambda: Slow(refuses=True), {}, 0.0, []),
    "a summary": (lambda: Filling(*(calls((str(n), "much")) for n in range(4)), "ok"), {"window": 100}, 0.0, None),
}  # type: ignore[dict-item]


def agent_of(wait: str, journal: Any) -> Agent:
    model, options, _, _ = WAITS[wait]
    options = dict(options)
    limits = Limits(grace_seconds=GRACE, window=options.pop("window", None))
    agent = Agent(model(), TOOLS, limits=limits, journal=journal, **options)
    agent.tools.specs()  # built once, and not in the time that is measured
    return agent


async def cancelled(leaving: Leaving, run: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """How long it took until the cancelled run had left, and how much of that the processor was busy."""
    began, busy = time.monotonic(), time.process_time()
    async with leaving():
        await run()
    return time.monotonic() - began - EARLY, time.process_time() - busy


@pytest.mark.parametrize("leaving", CANCELS, ids=lambda leaving: leaving.__name__)
@pytest.mark.parametrize("wait", WAITS)
def test_a_run_ends_within_its_grace_whatever_cancels_it_and_however_often(wait: str, leaving: Leaving) -> None:
    _, _, patience, errors = WAITS[wait]
    journal = MemoryJournal()
    gate.clear()

    async def main() -> tuple[float, float]:
        agent = agent_of(wait, journal)
        return await cancelled(leaving, lambda: agent.run("q", run_id="r"))

    try:
        took, busy = asyncio.run(main())
    finally:
        gate.set()

    events = journal.events("r")
    assert took < patience + SLACK
    if leaving is not every_turn:  # which keeps the processor busy by itself
        assert busy < 0.25 + patience / 3, "it spins"
    assert of(RunInterrupted, events) == [RunInterrupted("cancelled")]
    assert errors is None or [r.error for r in of(ToolReturned, events)] == errors
    assert check(events, effects={t.name: t.effect for t in TOOLS}) == []


@pytest.mark.parametrize("leaving", CANCELS, ids=lambda leaving: leaving.__name__)
@pytest.mark.parametrize("wait", ["a tool", "a tool that must not run twice", "a model"])
def test_leaving_a_stream_ends_the_run_whatever_cancels_the_block(wait: str, leaving: Leaving) -> None:
    journal = MemoryJournal()

    async def main() -> set[asyncio.Task[Any]]:
        agent = agent_of(wait, journal)

        async def watch() -> None:
            async with agent.stream("q", run_id="r") as events:
                async for _ in events:
                    pass

        others = asyncio.all_tasks()
        await cancelled(leaving, watch)
        return {task for task in asyncio.all_tasks() - others if not task.done()}

    assert asyncio.run(main()) == set()
    assert of(RunInterrupted, journal.events("r")) == [RunInterrupted("cancelled")]


# --- writing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaving", CANCELS, ids=lambda leaving: leaving.__name__)
def test_what_waits_for_a_locked_file_is_written_and_the_lease_given_back(leaving: Leaving, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    async def main(journal: SqliteJournal) -> None:
        agent = Agent(calling("pay_quickly"), TOOLS, limits=Limits(grace_seconds=GRACE), journal=journal)
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        unlock = threading.Timer(EARLY + GRACE + 0.3, other.execute, ("ROLLBACK",))

        def lock(happening: object) -> None:
            if isinstance(happening, IntentRecorded):
                other.execute("BEGIN IMMEDIATE")
                unlock.start()

        took, busy = await cancelled(leaving, lambda: agent.run("q", run_id="r", on_event=lock))
        unlock.join()
        other.close()
        assert took < GRACE + 0.3 + SLACK
        if leaving is not every_turn:
            assert busy < 0.3, "it spins"

    with SqliteJournal(path) as journal:
        asyncio.run(main(journal))
        assert [r.content for r in of(ToolReturned, journal.events("r"))] == ["paid"]
        assert of(RunInterrupted, journal.events("r")) == [RunInterrupted("cancelled")]
        assert [(run.state, run.holder) for run in journal.runs()] == [("interrupted", "")], "nobody holds it any more"


@pytest.mark.parametrize("leaving", CANCELS, ids=lambda leaving: leaving.__name__)
def test_a_record_that_takes_long_is_waited_for(leaving: Leaving) -> None:
    class Disk(MemoryLog):
        async def append(self, event: Event) -> None:
            await asyncio.sleep(EARLY / 3)
            await super().append(event)

    class Disks(MemoryJournal):
        @asynccontextmanager
        async def open(self, run_id: str) -> AsyncIterator[MemoryLog]:
            self._logs.setdefault(run_id, Disk(run_id, time.time))
            async with super().open(run_id) as log:
                yield log

    journal = Disks()
    asyncio.run(cancelled(leaving, lambda: Agent(calling("look", "look"), TOOLS, journal=journal).run("q", run_id="r")))

    events = journal.events("r")
    assert [r.error for r in of(ToolReturned, events)] == ["cancelled", "cancelled"]
    assert of(RunInterrupted, events) == [RunInterrupted("cancelled")]


# --- the pieces -----------------------------------------------------------------------------------


def test_a_second_cancel_does_not_begin_the_grace_anew() -> None:
    async def main() -> float:
        began = asyncio.get_running_loop().time()
        async with twice():
            asked = await settle(asyncio.sleep(30), grace=GRACE)
            assert asked.cancel is not None
            raise asked.cancel
        return asyncio.get_running_loop().time() - began

    assert asyncio.run(main()) < EARLY + GRACE + GRACE / 3 + 0.15


def test_waiting_for_several_returns_the_first_cancel() -> None:
    async def main() -> BaseException | None:
        task = asyncio.current_task()
        assert task is not None
        works = [asyncio.ensure_future(asyncio.sleep(0.05)) for _ in range(3)]
        task.cancel("first")
        held = await done(works)
        task.uncancel()
        assert all(work.done() for work in works)
        return held

    assert str(asyncio.run(main())) == "first"
