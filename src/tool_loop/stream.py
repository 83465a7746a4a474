"""Watch a run as it happens. The run lives in the context manager and not in the iterator: leaving
the block is what ends it, so nothing outlives the code that asked for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeAlias, cast, get_args

from .events import Event, Signal
from .journal.runs import Record
from .runtime.shield import done

if TYPE_CHECKING:
    from .ports import RunLog
    from .result import Result

Start: TypeAlias = Callable[[], Awaitable["Result"]]

_EVENTS: Final = get_args(Event)


class Stream:
    """The events and signals of one run, in order. `result` is there when the iteration has ended.

    `async for happening in stream` gives them bare, `stream.records()` gives each event with its number on
    record. `run_id` is the run. An error that ends the run is raised by the iteration, after everything that
    came before it.
    """

    def __init__(self, run_id: str = "", on_event: Callable[[Event | Signal], object] | None = None) -> None:
        self.run_id = run_id
        self.result: Result | None = None
        self._queue: asyncio.Queue[Record | Signal | None] = asyncio.Queue()
        self._error: BaseException | None = None
        self._also = on_event
        self._log: RunLog | None = None
        self._next = 0

    def __aiter__(self) -> AsyncIterator[Event | Signal]:
        return self._bare()

    async def records(self) -> AsyncIterator[Record | Signal]:
        """Each event as a `Record`, whose `seq` is its number in the journal, and the signals in between.

        No number is missing: what others recorded meanwhile (a decision) is among them. A client that comes back
        with the last number it has seen gets the rest from `journal.follow(run_id, after=seq)`. `at` is when
        it was shown.
        """
        while (happening := await self._get()) is not None:
            yield happening

    async def _bare(self) -> AsyncIterator[Event | Signal]:
        # Not an iteration over the one above: whoever breaks out of this one would leave that one open.
        while (happening := await self._get()) is not None:
            yield happening.event if isinstance(happening, Record) else happening

    async def _get(self) -> Record | Signal | None:
        happening = await self._queue.get()
        if happening is None:
            self._queue.put_nowait(None)  # a second iteration ends at once instead of waiting for ever
            if self._error is not None:
                raise self._error
        return happening

    # --- what the run calls -----------------------------------------------------------------------

    def reads(self, log: RunLog) -> None:
        """From here on the events are those of this log."""
        self._log = log
        self._next = len(log.state.events)

    def __call__(self, happening: Event | Signal) -> None:
        if not isinstance(happening, _EVENTS):
            self._queue.put_nowait(cast("Signal", happening))
        elif self._log is not None:
            # It is on record by now, and perhaps more: the next one of ours, and what others have decided.
            events, now = self._log.state.events, time.time()
            for seq in range(self._next, len(events)):
                self._queue.put_nowait(Record(seq, now, events[seq]))
            self._next = len(events)
        if self._also is not None:
            self._also(happening)

    async def _drive(self, start: Start) -> None:
        try:
            self.result = await start()
        except Exception as error:
            self._error = error
        finally:
            self._queue.put_nowait(None)


@asynccontextmanager
async def streamed(stream: Stream, start: Start) -> AsyncIterator[Stream]:
    """Run `start` beside the block; end it, and wait until it is gone, when the block is left."""
    running = asyncio.ensure_future(stream._drive(start))  # noqa: SLF001  one class in two halves
    try:
        yield stream
    finally:
        # Once, and then until it is gone, whatever cancels us meanwhile: the run ends within its grace.
        running.cancel()
        if held := await done((running,)):
            raise held
