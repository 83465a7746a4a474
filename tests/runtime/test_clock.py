from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
import time

import pytest

from tool_loop.runtime.clock import Deadlock, FakeClock, VirtualLoop, run_virtual


def elapsed_since(start: float) -> float:
    return time.monotonic() - start


def test_a_sleep_of_a_day_takes_no_time_and_moves_the_clock_by_a_day():
    async def main() -> float:
        await asyncio.sleep(86_400 * 3)
        return asyncio.get_running_loop().time()

    start = time.monotonic()
    now = run_virtual(main())

    assert now == 86_400 * 3
    assert elapsed_since(start) < 1


def test_sleepers_wake_in_the_order_of_their_timers_every_time():
    async def main() -> list[tuple[str, float]]:
        woke: list[tuple[str, float]] = []

        async def sleeper(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            woke.append((name, asyncio.get_running_loop().time()))

        async with asyncio.TaskGroup() as group:
            for name, seconds in (("c", 0.3), ("a", 0.1), ("b", 0.2), ("a2", 0.1), ("z", 0)):
                group.create_task(sleeper(name, seconds))
        return woke

    runs = [run_virtual(main()) for _ in range(20)]

    assert runs[0] == [("z", 0.0), ("a", 0.1), ("a2", 0.1), ("b", 0.2), ("c", 0.3)]
    assert all(run == runs[0] for run in runs)


def test_a_timeout_fires_exactly_at_its_time():
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 60


def test_cancelled_timers_do_not_hold_the_clock_back_or_push_it_on():
    async def main() -> float:
        for _ in range(500):
            async with asyncio.timeout(1_000):
                await asyncio.sleep(0.5)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 250


def test_a_loop_in_which_nothing_can_happen_says_which_task_waits_where():
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.sleep(5)
        async with asyncio.TaskGroup() as group:
            group.create_task(waits_for_ever(), name="the culprit")

    start = time.monotonic()
    with pytest.raises(Deadlock) as caught:
        run_virtual(main())

    assert "virtual time 5" in str(caught.value)
    assert "the culprit waits at" in str(caught.value)
    assert "locks.py" in str(caught.value)
    assert elapsed_since(start) < 1


def test_a_deadlock_in_something_that_is_no_coroutine_is_still_reported():
    class Odd:
        def __await__(self):
            return asyncio.get_running_loop().create_future().__await__()

    async def main() -> None:
        await Odd()

    with pytest.raises(Deadlock, match="Task-"):
        run_virtual(main())


def test_the_simplest_loop_opens_no_descriptor():
    async def main() -> int:
        await asyncio.sleep(1)
        with socket.socket() as probe:
            return probe.fileno()

    with socket.socket() as probe:
        free = probe.fileno()

    assert run_virtual(main()) == free


def test_a_thread_of_the_executor_is_waited_for_before_the_clock_moves():
    async def main() -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(1_000):
            said = await loop.run_in_executor(None, lambda: (threading.Event().wait(0.05), "done")[1])
        return said, loop.time()

    assert run_virtual(main()) == ("done", 0.0)


def test_a_hung_thread_costs_its_patience_once_and_then_time_goes_on():
    release = threading.Event()

    async def main() -> float:
        loop = asyncio.get_running_loop()
        hung = loop.run_in_executor(None, release.wait, 20)
        for _ in range(50):
            await asyncio.sleep(3_600)
        now = loop.time()
        release.set()
        await hung
        return now

    start = time.monotonic()

    assert run_virtual(main(), thread_patience=0.05) == 50 * 3_600
    assert elapsed_since(start) < 2


def test_a_thread_that_starts_after_a_hung_one_came_back_is_waited_for():
    release = threading.Event()

    async def main() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        hung = loop.run_in_executor(None, release.wait, 20)
        await asyncio.sleep(3_600)
        release.set()
        await hung
        before = loop.time()
        async with asyncio.timeout(1_000):
            await loop.run_in_executor(None, threading.Event().wait, 0.02)
        return before, loop.time()

    before, after = run_virtual(main(), thread_patience=0.3)

    assert before == after


def test_waiting_for_a_thread_without_any_timer_ends_with_a_deadlock_and_not_never():
    release = threading.Event()
    loop = VirtualLoop(give_up=0.02)
    try:
        with pytest.raises(Deadlock):
            loop.run_until_complete(loop.run_in_executor(None, release.wait, 20))
    finally:
        release.set()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

    assert loop.is_closed()


def test_a_tool_thread_is_counted_by_the_helper_that_starts_it():
    threads = pytest.importorskip("tool_loop.runtime.threads")

    async def main() -> tuple[str, float]:
        async with asyncio.timeout(1_000):
            said = await threads.run_in_thread(lambda: (threading.Event().wait(0.05), "done")[1])
        return said, asyncio.get_running_loop().time()

    assert run_virtual(main()) == ("done", 0.0)


def test_a_callback_from_a_foreign_thread_is_never_lost():
    async def main() -> int:
        loop = asyncio.get_running_loop()
        arrived = 0
        for _ in range(200):
            future = loop.create_future()
            await loop.run_in_executor(None, loop.call_soon_threadsafe, future.set_result, None)
            await future
            arrived += 1
        return arrived

    assert run_virtual(main(), give_up=2) == 200


def test_a_socket_that_answers_is_faster_than_the_timer_behind_it():
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"echo " + await reader.readline())
        await writer.drain()
        writer.close()

    async def main() -> tuple[bytes, float]:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server, asyncio.timeout(30):
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"hello\n")
            said = await reader.read()
            writer.close()
            await writer.wait_closed()
        return said, asyncio.get_running_loop().time()

    assert run_virtual(main()) == (b"echo hello\n", 0.0)


def test_a_socket_that_stays_silent_does_not_stop_the_clock():
    ours, theirs = socket.socketpair()

    async def main() -> float:
        reader, writer = await asyncio.open_connection(sock=ours)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(600):
                await reader.read()
        writer.close()
        return asyncio.get_running_loop().time()

    start = time.monotonic()
    with theirs:
        now = run_virtual(main(), socket_patience=0.01)

    assert now == 600
    assert elapsed_since(start) < 2


def test_a_silent_socket_without_any_timer_ends_with_a_deadlock():
    ours, theirs = socket.socketpair()

    async def main() -> None:
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            await reader.read()
        finally:
            writer.close()

    with theirs, pytest.raises(Deadlock, match="socket"):
        run_virtual(main(), give_up=0.02)


def test_a_child_process_is_waited_for_before_the_clock_moves(request):
    if request.config.getoption("--loop") == "uvloop" and sys.version_info < (3, 14):
        pytest.skip("before 3.14 asyncio asks the policy how to watch a child, and uvloop's does not know")

    async def main() -> tuple[int | None, int | None, float]:
        async with asyncio.timeout(1_000):
            one = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", "-c", "raise SystemExit(3)")
            two = await asyncio.create_subprocess_shell("exit 4")
            codes = await one.wait(), await two.wait()
        await asyncio.sleep(5)
        return *codes, asyncio.get_running_loop().time()

    assert run_virtual(main(), socket_patience=5) == (3, 4, 5.0)


def test_ctrl_c_reaches_a_handler_of_the_loop():
    async def main() -> bool:
        loop = asyncio.get_running_loop()
        got = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, got.set)
        signal.raise_signal(signal.SIGUSR1)
        async with asyncio.timeout(10):
            await got.wait()
        return loop.time() == 0 and loop.remove_signal_handler(signal.SIGUSR1)

    assert run_virtual(main())


def test_descriptors_that_were_never_watched_are_unknown():
    loop = VirtualLoop()
    try:
        assert loop.remove_reader(0) is False
        assert loop.remove_writer(0) is False
        for ask in (loop._selector.unregister, loop._selector.get_key, lambda fd: loop._selector.modify(fd, 1)):
            with pytest.raises(KeyError):
                ask(0)
        assert dict(loop._selector.get_map()) == {}
    finally:
        loop.close()


def test_a_socket_is_watched_for_both_directions_at_once():
    ours, theirs = socket.socketpair()

    async def main() -> set[str]:
        loop = asyncio.get_running_loop()
        seen: set[str] = set()
        done = asyncio.Event()
        loop.add_reader(ours, lambda: (seen.add("read"), len(seen) == 2 and done.set()))
        loop.add_writer(ours, lambda: (seen.add("write"), len(seen) == 2 and done.set()))
        theirs.send(b"!")
        await done.wait()
        loop.remove_reader(ours)
        loop.remove_writer(ours)
        return seen

    with ours, theirs:
        seen = run_virtual(main(), give_up=5)

    assert seen == {"read", "write"}


def test_the_fake_clock_follows_the_virtual_loop():
    clock = FakeClock(start=1_000)

    async def main() -> list[float]:
        times = [clock.now()]
        await clock.sleep(2)
        times.append(clock.now())
        await asyncio.sleep(3)
        times.append(clock.now())
        clock.advance(100)
        times.append(clock.now())
        return times

    assert run_virtual(main()) == [1_000, 1_002, 1_005, 1_105]
    assert clock.slept == [2]


def test_the_fake_clock_never_waits_in_a_real_loop():
    clock = FakeClock(start=1_000)

    async def main() -> float:
        await clock.sleep(3_600)
        return clock.now()

    start = time.monotonic()

    assert asyncio.run(main()) == 4_600
    assert clock.now() == 4_600
    assert clock.slept == [3_600]
    assert elapsed_since(start) < 1
