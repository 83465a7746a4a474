"""Time that costs nothing: an event loop whose clock jumps to the next timer instead of waiting.

A retry that backs off for a minute, a lease that is renewed for a day and a tool that never answers
are tested in microseconds, through the real asyncio code. Knows nothing about models, runs or tools;
of the package it only asks whether tool threads are at work.
"""

# ruff: noqa: SLF001 - the loop and its selector are one thing that asyncio wants in two classes
from __future__ import annotations

import asyncio
import selectors
import sys
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from tool_loop.errors import ToolLoopError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from concurrent.futures import Executor

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_Ready = list[tuple[selectors.SelectorKey, int]]

# Answers over loopback arrive within a millisecond or two; a busy machine needs a margin, and every
# jump of a test with an open socket pays it in full.
SOCKET_PATIENCE_SECONDS = 0.05
# A tool thread that works for longer than this is taken for hung. Shorter would time out honest
# work on a busy machine, longer makes every test of a hung tool slow.
THREAD_PATIENCE_SECONDS = 1.0
# With no timer to jump to, only the outside can go on. A test that waits this long is stuck.
GIVE_UP_SECONDS = 30.0


class Deadlock(ToolLoopError, RuntimeError):
    """Nothing can ever happen again in this loop; the message lists the tasks and where they wait."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that starts at time 0 and never waits for a timer.

    When nothing is ready, `time()` jumps to the next timer. The same program runs in the same order
    every time. When nothing is ready and nothing could become so, it raises `Deadlock`.

    Work outside of the loop is waited for in real time, and never longer than the next timer is away:
    sockets and child processes for `socket_patience` real seconds before each jump, threads (the
    package's tool threads and the default executor) for `thread_patience` after the last sign of life of
    one, then those still out count as hung. When there is no timer, the wait ends with `Deadlock` after
    `give_up` real seconds. What comes from outside comes in the order of the outside.
    """

    _ssock: Any
    _csock: Any

    def __init__(
        self,
        *,
        socket_patience: float = SOCKET_PATIENCE_SECONDS,
        thread_patience: float = THREAD_PATIENCE_SECONDS,
        give_up: float = GIVE_UP_SECONDS,
    ) -> None:
        self._now = 0.0
        self._woken = False
        self._executor_jobs = 0
        self._children: list[asyncio.SubprocessTransport] = []
        self.socket_patience = socket_patience
        self.thread_patience = thread_patience
        self.give_up = give_up
        super().__init__(_VirtualSelector(self))

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    # These are asyncio's own hooks around the pair of sockets by which another thread wakes the loop.
    # Making the pair costs more than a simulated step, so it waits until something outside exists.

    def _make_self_pipe(self) -> None:
        self._ssock = self._csock = None

    def _write_to_self(self) -> None:
        self._woken = True
        super()._write_to_self()  # type: ignore[misc]

    def _close_self_pipe(self) -> None:
        if self._ssock is not None:
            super()._close_self_pipe()  # type: ignore[misc]

    def _open_to_the_outside(self) -> None:
        if self._ssock is None:
            super()._make_self_pipe()  # type: ignore[misc]

    def add_signal_handler(self, sig: int, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        self._open_to_the_outside()
        super().add_signal_handler(sig, callback, *args)

    # Work that asyncio itself hands to threads and processes is counted, or the clock would run past
    # it: the executor, its shutdown, and children (awaited by a thread on Python 3.11).

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self._executor_jobs += 1
        future.add_done_callback(self._executor_job_done)
        return future

    def _executor_job_done(self, _: object) -> None:
        self._executor_jobs -= 1

    async def shutdown_default_executor(self, *timeout: Any) -> None:  # 3.11 takes no timeout
        self._executor_jobs += 1
        try:
            await super().shutdown_default_executor(*timeout)
        finally:
            self._executor_jobs -= 1

    async def subprocess_exec(self, *args: Any, **options: Any) -> Any:
        return self._adopt(await super().subprocess_exec(*args, **options))

    async def subprocess_shell(self, *args: Any, **options: Any) -> Any:
        return self._adopt(await super().subprocess_shell(*args, **options))

    def _adopt(self, made: Any) -> Any:
        self._children.append(made[0])
        return made

    def _threads_at_work(self) -> int:
        # Not imported here: a program that never loaded the module has no tool threads.
        threads = sys.modules.get("tool_loop.runtime.threads")
        return self._executor_jobs + (threads.in_flight(self) if threads is not None else 0)

    def _children_alive(self) -> bool:
        if self._children:
            self._children = [child for child in self._children if child.get_returncode() is None]
        return bool(self._children)


class _VirtualSelector(selectors.BaseSelector):
    """Where the loop would sleep. Moves its clock instead, unless something outside is at work."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._real: selectors.BaseSelector | None = None
        self._hung = 0

    def select(self, timeout: float | None = None) -> _Ready:
        if timeout == 0:
            return [] if self._real is None else self._real.select(0)
        loop = self._loop
        # The order matters: a thread reports back first and leaves the count second. Whoever is not
        # counted here has set the flag already; whoever is will find the pair of sockets.
        threads = loop._threads_at_work()
        children = loop._children_alive()
        if threads or children:
            loop._open_to_the_outside()
        if loop._woken:
            # A sign of life. The thread that was taken for hung may be the one that came back, and
            # a new one have taken its place in the count, so all get their patience again.
            loop._woken = False
            self._hung = 0
            return []
        if self._real is None:
            self._jump(timeout)
            return []
        sockets = len(self._real.get_map()) - (loop._ssock is not None)
        return self._wait_for_the_outside(self._real, timeout, threads, children or sockets > 0)

    def _wait_for_the_outside(
        self, real: selectors.BaseSelector, timeout: float | None, threads: int, others: bool
    ) -> _Ready:
        self._hung = min(self._hung, threads)
        at_work = threads > self._hung
        if timeout is None:
            patience = self._loop.give_up if threads or others else 0.0
        elif at_work:
            patience = min(timeout, self._loop.thread_patience)
        else:
            patience = min(timeout, self._loop.socket_patience) if others else 0.0
        events = real.select(patience)
        if not events:
            if at_work and timeout is not None and patience < timeout:
                self._hung = threads
            self._jump(timeout)
        return events

    def _jump(self, timeout: float | None) -> None:
        if timeout is None:
            raise Deadlock(_stuck(self._loop))
        self._loop._now += timeout

    # Below: what a selector has to be. The real one appears with the first descriptor.

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self._real is None:
            self._real = selectors.DefaultSelector()
            self._loop._open_to_the_outside()
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        if self._real is None:
            raise KeyError(fileobj)
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self._real is None:
            raise KeyError(fileobj)
        return self._real.modify(fileobj, events, data)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        if self._real is None:
            raise KeyError(fileobj)
        return self._real.get_key(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {} if self._real is None else self._real.get_map()

    def close(self) -> None:
        if self._real is not None:
            self._real.close()


def run_virtual(main: Coroutine[Any, Any, T], **options: float) -> T:
    """Run a coroutine to its end in a fresh `VirtualLoop`, as `asyncio.run` does in a real one.

    `options` are those of `VirtualLoop`. Raises what the coroutine raises, and `Deadlock`.
    """
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(**options)) as runner:
        return runner.run(main)


class FakeClock:
    """A wall clock and a sleep for code that takes them as parameters.

    `now()` is `start` (Unix time) plus what has passed: the time of the running `VirtualLoop`, and
    everything slept or advanced outside of one. `slept` lists every wait that was asked for.
    """

    # 2026-01-01T00:00:00Z: a date in a failing test should be readable, and the same tomorrow.
    START = 1_767_225_600.0

    def __init__(self, start: float = START) -> None:
        self.start = start
        self.slept: list[float] = []
        self._advanced = 0.0

    def now(self) -> float:
        """Unix time, in seconds."""
        loop = _virtual_loop()
        return self.start + self._advanced + (loop.time() if loop is not None else 0.0)

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time. In a real loop: only note it and move the clock, never really wait."""
        self.slept.append(seconds)
        if _virtual_loop() is None:
            self.advance(seconds)
            seconds = 0.0
        await asyncio.sleep(seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass for `now()` alone: a clock that was set, or a machine that was suspended."""
        self._advanced += seconds


def _virtual_loop() -> VirtualLoop | None:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    return loop if isinstance(loop, VirtualLoop) else None


def _stuck(loop: VirtualLoop) -> str:
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    waits = "".join(f"\n  {task.get_name()} waits at {_where(task)}" for task in tasks)
    return (
        f"Nothing can happen any more at virtual time {loop.time():g}: no callback is ready, no timer is set, and no "
        f"socket, thread or child process came back. Someone waits for a future that nobody completes.{waits}"
    )


def _where(task: asyncio.Task[Any]) -> str:
    """The innermost place the task waits at, since the outer ones are the same for every task."""
    place = "an unknown place"
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            place = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return place
