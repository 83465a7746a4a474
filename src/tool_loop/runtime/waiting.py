"""Waiting in one turn of the event loop where asyncio's futures take two.

A future that is completed puts the task that waits for it into the queue of the next turn. Where the
event loop itself says that something has come, the task can go on right there; at each step of a run
that is a third of all turns. asyncio lets any object be waited for that has the methods of a future
and says so (`_asyncio_future_blocking`; see the comment at that name in asyncio/futures.py).

Knows nothing about what is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any


class Waiter:
    """`await` it until `wake` is called. For one task at a time, as often as one likes."""

    __slots__ = ("_asyncio_future_blocking", "_context", "_goes_on", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._goes_on: Callable[[Any], object] | None = None
        self._context: Context | None = None

    def __await__(self) -> Generator[Any, None, None]:
        self._asyncio_future_blocking = True
        yield self

    def wake(self, _: object = None) -> None:
        """Let the task that waits here, if one does, go on: now, unless another one is at work."""
        goes_on, context = self._goes_on, self._context
        if goes_on is None or context is None:
            return
        self._goes_on = self._context = None
        if asyncio.current_task(self._loop) is None:
            context.run(goes_on, self)
        else:
            self._loop.call_soon(goes_on, self, context=context)

    # --- what the task calls ----------------------------------------------------------------------

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def add_done_callback(self, goes_on: Callable[[Any], object], *, context: Context) -> None:
        self._goes_on, self._context = goes_on, context

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 - asyncio's signature
        """The task is cancelled: it goes on at the next turn, and since this says no, with the cancel."""
        if self._goes_on is not None:
            self._loop.call_soon(self.wake)
        return False

    def result(self) -> None:
        """There is none."""
