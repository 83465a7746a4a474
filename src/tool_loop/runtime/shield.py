"""Waiting without losing an outcome, and without being held up by what never ends.

A cancel asks its task to leave; it cannot undo what a tool or a server has already done. So whoever
waits for an outcome holds the cancel back, waits a little longer, and raises it afterwards. Three
rules keep that from becoming a wait without an end:

1. The time at which it ends is fixed once, when the first cancel comes, and compared with the clock
   at each turn. Some cancel again and again: a cancel scope of anyio (Starlette, FastAPI and MCP have
   one around everything) does so at every turn of the event loop, until the task has left.
2. Nothing is begun anew by a further cancel: no timer, and no second cancel of what is waited for.
3. Where anyio is in the process, what is left of the wait is shielded from its scopes. They would
   keep a core busy with cancelling for as long as we hold it back.

Knows nothing about models and tools.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Collection, Coroutine, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from tool_loop.events import Event
from tool_loop.ports import Emit, RunLog

from .grace import UNWIND_SECONDS
from .waiting import Waiter

T = TypeVar("T")

logger = logging.getLogger(__name__)


# asyncio holds its tasks weakly: one that ignores its cancellation would be destroyed midway.
_left_behind: set[asyncio.Future[Any]] = set()


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
    clock) is when the work is cancelled. After the first cancel of the caller it may go on for `grace`
    seconds; None means until it is done, for writes that must not be interrupted.
    """
    clock = asyncio.get_running_loop().time
    task = asyncio.ensure_future(work)
    held = await watched(task, until)
    if held and not task.done() and (grace is None or grace > 0):
        end = None if grace is None else clock() + grace
        await done((task,), until if end is None or (until is not None and until < end) else end)
    late = await stopped(task, UNWIND_SECONDS)
    return Settled(task, held or late)


async def stopped(work: asyncio.Future[Any], seconds: float) -> asyncio.CancelledError | None:
    """Cancel it, unless it is over, and wait until it is, for so long at most; the cancel that came meanwhile."""
    if work.done():
        return None
    work.cancel()
    held = await done((work,), asyncio.get_running_loop().time() + seconds)
    if not work.done():
        left_behind(work)
    return held


def left_behind(work: asyncio.Future[Any]) -> None:
    """Say that it does not end, and keep it: nobody waits for it any more."""
    if work not in _left_behind:
        _left_behind.add(work)
        work.add_done_callback(_left_behind.discard)
        logger.warning("left a task behind that does not end when it is cancelled: %r", work)


async def done(works: Collection[asyncio.Future[Any]], until: float | None = None) -> asyncio.CancelledError | None:
    """Wait until all of these are over or the time has come, whatever cancels the caller; the first cancel."""
    clock = asyncio.get_running_loop().time
    held: asyncio.CancelledError | None = None
    with _shielded():
        while (left := [work for work in works if not work.done()]) and (until is None or clock() < until):
            cancel = await watched(left[0], until)
            held = held or cancel
    return held


def _shielded() -> AbstractContextManager[object]:
    """Keeps the cancel scopes of anyio out, where there are any: asyncio's own cancels come through."""
    anyio = sys.modules.get("anyio")
    return nullcontext() if anyio is None else anyio.CancelScope(shield=True)


async def watched(work: asyncio.Future[Any], until: float | None) -> asyncio.CancelledError | None:
    """Wait until it is over, the time has come, or a cancel comes, which is returned.

    At each step the loop waits twice or more, and `asyncio.wait` for one task takes twice as long.
    """
    if work.done():  # at once, where tasks are started eagerly
        return None
    loop = asyncio.get_running_loop()
    over = Waiter(loop)
    work.add_done_callback(over.wake)
    timer = None if until is None else loop.call_at(until, over.wake)
    try:
        await over
    except asyncio.CancelledError as cancel:
        return cancel
    finally:
        work.remove_done_callback(over.wake)
        if timer is not None:
            timer.cancel()
    return None


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
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    except asyncio.CancelledError as cancel:
        held = cancel
    for task in tasks:
        task.cancel()  # once: each of them holds it back for as long as its own rules allow, and then ends
    again = await done(tasks)
    if error := next((e for e in map(_error, tasks) if e is not None), None):
        raise error
    if first := held or again:
        raise first


def _error(task: asyncio.Task[None]) -> BaseException | None:
    return None if task.cancelled() else task.exception()
