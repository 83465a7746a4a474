"""Plain functions on daemon threads of our own."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tool_loop.runtime import threads as _threads
from tool_loop.runtime.threads import in_flight, run_in_thread

SRC = str(Path(__file__).parents[2] / "src")


def test_a_function_runs_on_another_thread_and_its_result_comes_back():
    async def main() -> tuple[int, bool]:
        worker = await run_in_thread(threading.current_thread)
        return await run_in_thread(lambda: 6 * 7), worker.daemon and worker is not threading.current_thread()

    assert asyncio.run(main()) == (42, True)


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_what_a_function_raises_comes_back_and_ends_nothing_else(error):
    def fail() -> None:
        raise error

    async def main() -> BaseException:
        future = run_in_thread(fail)
        await asyncio.wait([future])
        return future.exception()

    assert asyncio.run(main()) is error


def test_a_stop_iteration_does_not_leave_the_waiter_hanging():
    async def main() -> None:
        await run_in_thread(lambda: next(iter(())))

    with pytest.raises(RuntimeError, match="StopIteration") as caught:
        asyncio.run(main())
    assert isinstance(caught.value.__cause__, StopIteration)


def test_a_function_sees_the_context_of_its_caller_and_changes_only_a_copy():
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")

    def look() -> str:
        seen = variable.get()
        variable.set("changed")
        return seen

    async def main() -> tuple[str, str]:
        variable.set("mine")
        return await run_in_thread(look), variable.get()

    assert asyncio.run(main()) == ("mine", "mine")


def test_twenty_calls_run_at_the_same_time():
    together = threading.Barrier(20, timeout=20)  # nobody passes before all have arrived

    async def main() -> set[int]:
        return set(await asyncio.gather(*(run_in_thread(together.wait) for _ in range(20))))

    assert asyncio.run(main()) == set(range(20))


def test_idle_threads_are_used_again():
    async def main() -> set[int]:
        return {await run_in_thread(threading.get_ident) for _ in range(20)}

    # A thread is idle a moment after its result has arrived, so that two may take turns.
    assert len(asyncio.run(main())) <= 3


def test_a_burst_does_not_keep_its_threads():
    gate = threading.Event()

    async def main() -> None:
        many = [run_in_thread(gate.wait) for _ in range(_threads._KEPT + 20)]
        gate.set()
        await asyncio.gather(*many)

    asyncio.run(main())
    deadline = time.monotonic() + 10
    while sum(t.name == "tool-loop" for t in threading.enumerate()) > _threads._KEPT and time.monotonic() < deadline:
        threading.Event().wait(0.001)

    assert sum(t.name == "tool-loop" for t in threading.enumerate()) <= _threads._KEPT


def test_work_in_flight_is_counted_until_it_lands_or_is_given_up_on():
    gate = threading.Event()

    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        counts = [in_flight(loop)]
        first, second = run_in_thread(gate.wait), run_in_thread(gate.wait)
        counts.append(in_flight(loop))
        first.cancel()
        await asyncio.sleep(0)
        counts.append(in_flight(loop))
        gate.set()
        await second
        await asyncio.sleep(0)
        counts.append(in_flight(loop))
        return counts

    others = in_flight()  # what other tests of this process left with a loop that still runs

    assert asyncio.run(main()) == [0, 2, 1, 0]
    assert in_flight() == others


def test_a_result_that_nobody_waits_for_any_more_is_dropped():
    gate, done = threading.Event(), threading.Event()

    def work() -> str:
        gate.wait()
        return "late"

    async def main() -> bool:
        future = run_in_thread(work)
        future.cancel()
        gate.set()
        await run_in_thread(done.is_set)  # a round trip, so that the late result has had its turn too
        return future.cancelled()

    assert asyncio.run(main())


def test_a_thread_that_outlives_its_loop_does_no_harm():
    gate, started = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        gate.wait()

    async def main() -> None:
        run_in_thread(work)
        await run_in_thread(started.wait)

    others = in_flight()
    asyncio.run(main())
    gate.set()
    deadline = time.monotonic() + 10
    while in_flight() > others and time.monotonic() < deadline:
        threading.Event().wait(0.001)

    assert in_flight() <= others


def test_a_hung_thread_does_not_keep_the_process_from_ending():
    code = (
        "import asyncio, threading; from tool_loop.runtime.threads import run_in_thread\n"
        "async def main():\n"
        "    await asyncio.wait([run_in_thread(threading.Event().wait)], timeout=0.05)\n"
        "asyncio.run(main()); print('over')"
    )
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env=os.environ | {"PYTHONPATH": SRC},
    )

    assert (done.stdout, done.stderr, done.returncode) == ("over\n", "", 0)
    assert time.monotonic() - started < 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_the_child_of_a_fork_starts_threads_of_its_own():
    code = (
        "import asyncio, os; from tool_loop.runtime.threads import run_in_thread\n"
        "async def once(): return await run_in_thread(lambda: 7)\n"
        "asyncio.run(once())\n"
        "child = os.fork()\n"
        "if child == 0: os._exit(asyncio.run(once()))\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env=os.environ | {"PYTHONPATH": SRC},
    )

    assert (done.stdout, done.stderr) == ("7\n", "")


def test_a_future_that_another_thread_completes_can_be_counted_too():
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        _threads.watch(future)
        counts = [in_flight(loop)]
        future.set_result(None)
        await asyncio.sleep(0)
        return [*counts, in_flight(loop)]

    assert asyncio.run(main()) == [1, 0]


def test_a_loop_that_is_closed_with_a_result_on_its_way_leaves_nothing_in_flight() -> None:
    """Whatever asyncio.run did not get to any more: the future would be counted, and kept, for ever."""
    landed = threading.Event()
    loop = asyncio.new_event_loop()

    async def main() -> None:
        run_in_thread(landed.set)

    loop.run_until_complete(main())
    assert landed.wait(10)
    loop.close()

    assert in_flight(loop) == 0
