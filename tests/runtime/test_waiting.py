"""What a task waits for without a future: it is woken at once, cancelled like any other, and used again."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING

import pytest

from tests.kit.http_case import run
from tool_loop.runtime.waiting import Waiter

if TYPE_CHECKING:
    from tests.kit.http_case import Run

__all__ = ["run"]  # a fixture


def test_who_waits_goes_on_where_it_is_woken_and_may_wait_again(run: Run) -> None:
    seen: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        waiter = Waiter(loop)
        waiter.wake()  # nobody waits: nothing happens, and it is not kept for later

        async def waits() -> None:
            for n in range(3):
                await waiter
                seen.append(f"went on {n}")

        def comes() -> None:
            seen.append("comes")
            waiter.wake()
            seen.append("came")

        task = loop.create_task(waits())
        for _ in range(3):
            await asyncio.sleep(0)
            loop.call_soon(comes)
        await task

    run(main())
    assert seen == ["comes", "went on 0", "came", "comes", "went on 1", "came", "comes", "went on 2", "came"]


def test_a_task_that_wakes_another_is_not_interrupted_by_it(run: Run) -> None:
    seen: list[str] = []

    async def main() -> None:
        waiter = Waiter(asyncio.get_running_loop())

        async def waits() -> None:
            await waiter
            seen.append("went on")

        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        waiter.wake()
        seen.append("said so")
        await task

    run(main())
    assert seen == ["said so", "went on"]


def test_a_task_that_waits_is_cancelled_and_a_wake_in_the_same_moment_changes_nothing(run: Run) -> None:
    async def main() -> list[object]:
        loop = asyncio.get_running_loop()
        ended: list[object] = []
        for wakes in (False, True):
            waiter = Waiter(loop)

            async def waits(on: Waiter = waiter) -> None:
                await on

            task = loop.create_task(waits())
            await asyncio.sleep(0)
            task.cancel()
            if wakes:
                waiter.wake()
            ended += await asyncio.gather(task, return_exceptions=True)
            waiter.wake()
        return ended

    assert [type(end) for end in run(main())] == [asyncio.CancelledError] * 2


def test_a_timeout_ends_the_wait_and_the_next_one_is_as_good_as_new(run: Run) -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()
        waiter = Waiter(loop)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await waiter
        loop.call_soon(waiter.wake)
        await waiter
        return "woken"

    assert run(main()) == "woken"


def test_the_task_goes_on_in_its_own_context(run: Run) -> None:
    who: ContextVar[str] = ContextVar("who", default="nobody")

    async def main() -> str:
        loop = asyncio.get_running_loop()
        waiter = Waiter(loop)

        async def waits() -> str:
            who.set("the task")
            await waiter
            return who.get()

        task = loop.create_task(waits())
        await asyncio.sleep(0)
        loop.call_soon(waiter.wake)
        return await task

    assert run(main()) == "the task"


def test_an_error_in_the_task_that_goes_on_stays_its_own(run: Run) -> None:
    async def main() -> tuple[str, object]:
        loop = asyncio.get_running_loop()
        waiter = Waiter(loop)

        async def waits() -> None:
            await waiter
            raise ValueError("mine")

        task = loop.create_task(waits())
        await asyncio.sleep(0)
        loop.call_soon(waiter.wake)
        return "undisturbed", (await asyncio.gather(task, return_exceptions=True))[0]

    said, error = run(main())
    assert said == "undisturbed"
    assert str(error) == "mine"
