"""Watch a run as it happens. The run lives in the context manager and not in the iterator: leaving
the block is what ends it, so nothing outlives the code that asked for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

from .events import Event, Signal
from .runtime.shield import done

if TYPE_CHECKING:
    from .result import Result

Start: TypeAlias = Callable[[Callable[[Event | Signal], None]], Awaitable["Result"]]


class Stream:
    """The events and signals of one run, in order. `result` is there when the iteration has ended.

    An error that ends the run is raised by the iteration, after everything that came before it.
    """

    def __init__(self) -> None:
        self.result: Result | None = None
        self._queue: asyncio.Queue[Event | Signal | None] = asyncio.Queue()
        self._error: BaseException | None = None

    def __aiter__(self) -> AsyncIterator[Event | Signal]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Event | Signal]:
        while (happening := await self._queue.get()) is not None:
            yield happening
        self._queue.put_nowait(None)  # a second iteration ends at once instead of waiting for ever
        if self._error is not None:
            raise self._error

    async def _drive(self, start: Start) -> None:
        try:
            self.result = await start(self._queue.put_nowait)
        except Exception as error:
            self._error = error
        finally:
            self._queue.put_nowait(None)


@asynccontextmanager
async def streamed(start: Start) -> AsyncIterator[Stream]:
    """Run `start` beside the block; end it, and wait until it is gone, when the block is left."""
    stream = Stream()
    running = asyncio.ensure_future(stream._drive(start))  # noqa: SLF001  one class in two halves
    try:
        yield stream
    finally:
        # Once, and then until it is gone, whatever cancels us meanwhile: the run ends within its grace.
        running.cancel()
        if held := await done((running,)):
            raise held
