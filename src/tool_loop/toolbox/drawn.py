"""Draws what a tool handed out undone: generators, maps, coroutines, async generators, at any depth.

The work of such a tool is in the drawing, so it is done where the tool's own code runs: on its thread,
or in its task where something has to be awaited. Knows nothing about deadlines; whoever sets one says
when to stop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Generator, Mapping
from types import AsyncGeneratorType, GeneratorType
from typing import Any, Final, TypeAlias

from .plain import DEEPEST, Shower, is_lazy
from .results import fitted, text_of

# What a walk asks of whoever drives it: to await something, or (None) for a pause in which to stop.
Step: TypeAlias = Awaitable[Any] | None
Walk: TypeAlias = Generator[Step, Any, Any]

# A task gives the others a turn after so many items.
_TURN: Final = 100


class Stopped(Exception):
    """Nobody waits for the result any more."""


class Later:
    """The text of a result that has to be drawn first. To be used once, by one of the two ways."""

    def __init__(self, value: Any, limit: int, *, drain: bool) -> None:
        self._limit = limit
        self._drain = drain
        self._room = limit
        self._left_out = 0
        self._more = ""
        self._walk: Walk = self._text(value)
        self._step: Step = None

    def on_thread(self, stopped: Callable[[], object]) -> str | Later:
        """Draw here; a `Later` again when there is something to await, which only a task can.

        Raises what the drawn code raises, and `Stopped` as soon as `stopped` says so.
        """
        try:
            while self._step is None:
                if stopped():
                    self._walk.close()
                    raise Stopped
                self._step = self._walk.send(None)
        except StopIteration as end:
            text: str = end.value
            return text
        return self

    def __await__(self) -> Generator[Any, Any, str]:
        return self._in_task().__await__()

    async def _in_task(self) -> str:
        got: Any = None
        error: BaseException | None = None
        paused = 0
        try:
            while True:
                try:
                    error, got = None, await self._step if self._step is not None else None
                    paused += self._step is None
                    if paused % _TURN == 0 and self._step is None:
                        await asyncio.sleep(0)
                except BaseException as raised:  # of the tool's own code, and to be seen by it: a cancel too
                    error = raised
                self._step = self._walk.throw(error) if error is not None else self._walk.send(got)
        except StopIteration as end:
            text: str = end.value
            return text

    # --- the walk ---------------------------------------------------------------------------------

    def _text(self, value: Any) -> Walk:
        shower = Shower(self._limit)
        drawn = yield from self._drawn(value, shower)
        if isinstance(drawn, str) or drawn is None:
            text = text_of(drawn, self._limit)
            assert isinstance(text, str)
            return text
        if self._left_out:
            self._more = f"this is the beginning; {self._left_out:,} more items were run through and are not shown"
        return fitted(shower.json(drawn), self._limit, self._more or shower.more)

    def _drawn(self, value: Any, shower: Shower, depth: int = 0) -> Walk:
        """The value with everything in it drawn, and each object in it as plain as JSON wants it."""
        if depth > DEEPEST:
            raise ValueError("the result is nested too deeply, or contains itself")
        if value is None or isinstance(value, str | int | float):
            return value
        if isinstance(value, Mapping):
            made: dict[str, Any] = {}
            for key, item in value.items():
                made[shower.key(key)] = yield from self._drawn(item, shower, depth + 1)
            return made
        if isinstance(value, list | tuple):
            items: list[Any] = []
            for item in value:
                items.append((yield from self._drawn(item, shower, depth + 1)))  # noqa: PERF401  no comprehension may yield
            return items
        if hasattr(value, "__await__"):
            return (yield from self._drawn((yield value), shower, depth + 1))
        if is_lazy(value):
            return (yield from self._collected(value, shower, depth))
        return (yield from self._drawn(shower.plain(value), shower, depth + 1))

    def _collected(self, value: Any, shower: Shower, depth: int) -> Walk:
        """The items as a list, as many as there is room for; what a generator returned beside them."""
        later = hasattr(value, "__aiter__")
        source: Any = value.__aiter__() if later else iter(value)
        kept: list[Any] = []
        returned = None
        try:
            while self._room > 0 or self._drain:
                yield None
                item = (yield source.__anext__()) if later else next(source)
                if not isinstance(item, str | int):  # by far the most
                    item = yield from self._drawn(item, shower, depth + 1)
                self._keep(item, kept)
            self._more = "this is the beginning; the rest was not asked for"
            if later and isinstance(source, AsyncGeneratorType):
                yield source.aclose()
        except StopAsyncIteration:
            pass
        except StopIteration as end:
            returned = yield from self._drawn(end.value, shower, depth + 1)
        finally:
            if isinstance(source, GeneratorType):
                source.close()  # what it holds open is closed where it was opened
        if returned is None:
            return kept
        return {"items": kept, "returned": returned} if kept else returned

    def _keep(self, item: Any, kept: list[Any]) -> None:
        """Items inside of items have been counted before, so that the count is never too low."""
        if self._room > 0:
            kept.append(item)
            self._room -= 3 + len(item if isinstance(item, str) else json.dumps(item, default=str))
        else:
            self._left_out += 1
