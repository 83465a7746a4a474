"""Waiting without losing an outcome: how the loop waits for anything whose outcome must get onto the record."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from tool_loop.events import Event
from tool_loop.ports import Emit, RunLog

T = TypeVar("T")

logger = logging.getLogger(__name__)

# How long cancelled work may take to clean up. After that it is left behind: a run has to end within
# a second of its deadline, whatever a tool or a server does.
UNWIND_SECONDS = 0.8


@dataclass(frozen=True, slots=True)
class Settled(Generic[T]):
    """What became of work that was waited for; `cancel` is the caller's own that arrived meanwhile."""

    task: asyncio.Task[T]
    cancel: asyncio.CancelledError | None = None

    @property
    def landed(self) -> bool:
        """Whether it came to an end of its own, with a value or with an error; else it was cut off."""
        return self.task.done() and not self.task.cancelled()

    @property
    def error(self) -> BaseException | None:
        """What it raised; `TimeoutError` where it was cut off; None where there is a value."""
        return self.task.exception() if self.landed else TimeoutError()

    @property
    def value(self) -> T:
        """What it returned. Raises what it raised; not to be asked of work that was cut off."""
        return self.task.result()


async def settle(work: Coroutine[Any, Any, T], *, until: float | None = None, grace: float | None = 0.0) -> Settled[T]:
    """Wait for `work` and return what it came to, with the cancel that arrived meanwhile, if one did.

    The caller looks at the outcome first and raises the cancel afterwards, so that a result that was
    there is never lost to a cancel in the same turn of the event loop. `until` (a time of the loop's
    clock) is when the work is cancelled. After a cancel of the caller it may go on for `grace`
    seconds; None means until it is done, for writes that must not be interrupted.
    """
    clock = asyncio.get_running_loop().time
    task = asyncio.ensure_future(work)
    held: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await _done(task, until)
        except asyncio.CancelledError as cancel:
            held = cancel
            if grace is not None:
                end = clock() + grace
                until = end if until is None else min(until, end)
            continue
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=UNWIND_SECONDS)
            if not task.done():
                logger.warning("left a task behind that does not end when it is cancelled", extra={"task": repr(task)})
            break
    return Settled(task, held)


async def _done(task: asyncio.Task[Any], until: float | None) -> None:
    """Until the task is over or the time has come. At each step the loop waits twice or more, and
    `asyncio.wait` for one task takes half as long again."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def wake(_: object) -> None:
        if not over.done():
            over.set_result(None)

    task.add_done_callback(wake)
    timer = None if until is None else loop.call_at(until, wake, None)
    try:
        await over
    finally:
        task.remove_done_callback(wake)
        if timer is not None:
            timer.cancel()


async def recorded(log: RunLog, event: Event, emit: Emit) -> asyncio.CancelledError | None:
    """Write, then show, whatever cancels the caller; returns the cancel that arrived meanwhile.

    Both are one piece of work, so that what is shown comes in the order in which it was written. Its
    first step is taken right here: a journal in memory is done with that, no cancel can have come in
    between, and no task is needed (which would be 50 µs of the 900 that a whole step costs).
    """
    work = _write_then_show(log, event, emit)
    try:
        waiting = work.send(None)
    except StopIteration:
        return None
    written = await settle(_finish(work, waiting), grace=None)
    written.value  # noqa: B018 - raises what the journal raised
    return written.cancel


async def _write_then_show(log: RunLog, event: Event, emit: Emit) -> None:
    await log.append(event)
    emit(event)


async def _finish(work: Coroutine[Any, Any, None], waiting: object) -> None:
    await _Begun(work, waiting)


class _Begun:
    """The rest of a coroutine that has taken its first step and waits for `waiting`."""

    def __init__(self, work: Coroutine[Any, Any, None], waiting: object) -> None:
        self.work = work
        self.waiting = waiting

    def __await__(self) -> Generator[Any, Any, None]:
        waiting = self.waiting
        while True:
            try:
                sent = yield waiting
            except BaseException as error:
                step = partial(self.work.throw, error)
            else:
                step = partial(self.work.send, sent)
            try:
                waiting = step()
            except StopIteration:
                return


async def together(works: Sequence[Coroutine[Any, Any, None]], *, one_by_one: bool = False) -> None:
    """Do all of this side by side, or in order. A cancel ends it all, and an error is raised bare."""
    if one_by_one or len(works) == 1:
        try:
            for work in works:
                await work
        finally:
            for work in works:
                work.close()  # what an error or a cancel left undone
        return
    # In the order of the calls, always: a TaskGroup keeps its tasks in a set, and cancels them in
    # another order at each run, so that two runs of the same seed had different records.
    tasks = [asyncio.ensure_future(work) for work in works]
    held: asyncio.CancelledError | None = None
    stopping = False
    while waiting := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_EXCEPTION)
        except asyncio.CancelledError as cancel:
            held, stopping = cancel, False
        if not stopping and (held or any(task.done() and _error(task) for task in tasks)):
            stopping = True
            for task in waiting:
                task.cancel()
    if error := next((e for e in map(_error, tasks) if e is not None), None):
        raise error
    if held:
        raise held


def _error(task: asyncio.Task[None]) -> BaseException | None:
    return None if task.cancelled() else task.exception()
