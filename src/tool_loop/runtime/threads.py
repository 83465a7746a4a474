"""Runs a plain function on a daemon thread and hands its result to the event loop.

Knows nothing about tools, deadlines or results. Whoever waits decides how long; a thread cannot be
stopped, only no longer waited for.

`asyncio.to_thread` is not used: its threads are not daemons and `asyncio.run` joins them, so one
hung tool would keep the whole process from ending, and it has too few of them (a machine with two
cores would run the seventh of eight calls after the first has finished).
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
_Job: TypeAlias = tuple[Callable[[], Any], contextvars.Context, asyncio.AbstractEventLoop, "asyncio.Future[Any]"]

# Idle workers wait for the next job instead of ending: starting a thread costs about three times as
# much as waking one. More than this many are let go, so that a burst does not keep its threads.
_KEPT = 32

_idle: list[SimpleQueue[_Job]] = []
_waiting: set[asyncio.Future[Any]] = set()

# The child of a fork has the list of idle workers but not their threads: a job given to one of them
# would never run. (A system without fork has nothing to register with.)
getattr(os, "register_at_fork", lambda **_: None)(after_in_child=_idle.clear)


def run_in_thread(func: Callable[[], T]) -> asyncio.Future[T]:
    """A future of the running loop for what `func()` returns or raises, in a copy of this context.

    Cancelling the future means no longer waiting: the function goes on and its result is dropped.
    Raises RuntimeError when the system allows no further thread.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    job: _Job = (func, contextvars.copy_context(), loop, future)
    try:
        worker = _idle.pop()
    except IndexError:
        worker = SimpleQueue()
        threading.Thread(target=_work, args=(worker,), name="tool-loop", daemon=True).start()
    watch(future)
    worker.put(job)
    return future


def watch(future: asyncio.Future[Any]) -> None:
    """Count this future, which another thread will complete, in `in_flight` until it is done."""
    if len(_waiting) > _KEPT:
        _forget_closed()
    _waiting.add(future)
    future.add_done_callback(_waiting.discard)


def in_flight(loop: asyncio.AbstractEventLoop | None = None) -> int:
    """How many functions somebody still waits for, in all loops or in this one.

    An event loop with a virtual clock must not move time on while this is not zero. A function that
    was given up on (its future cancelled) no longer counts, though its thread may still run.
    """
    _forget_closed()
    return sum(1 for future in tuple(_waiting) if loop is None or future.get_loop() is loop)


def _forget_closed() -> None:
    """A loop that was closed with a result still on its way never completes the future it was for."""
    for future in tuple(_waiting):
        if future.get_loop().is_closed():
            _waiting.discard(future)


def _work(jobs: SimpleQueue[_Job]) -> None:
    while True:
        _do(*jobs.get())
        if len(_idle) >= _KEPT:
            return
        _idle.append(jobs)


def _do(
    func: Callable[[], Any],
    context: contextvars.Context,
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[Any],
) -> None:
    value: Any = None
    error: BaseException | None = None
    if future.cancelled():
        return  # given up before it began: what nobody waits for need not happen
    try:
        value = context.run(func)
    except StopIteration as stop:
        # A future refuses to hold a StopIteration; the waiter would hang.
        error = RuntimeError("the function raised StopIteration")
        error.__cause__ = stop
    except BaseException as raised:  # SystemExit here would end this thread and leave the waiter hanging
        error = raised
    try:
        loop.call_soon_threadsafe(_settle, future, value, error)
    except RuntimeError:
        # The loop was closed while we worked: nobody is left to tell.
        _waiting.discard(future)


def _settle(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
