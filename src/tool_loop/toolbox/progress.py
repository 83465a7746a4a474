"""What a tool says while it runs, carried to whoever watches: from any thread, for as long as its call is open."""

from __future__ import annotations

import asyncio

from tool_loop.events import ToolProgress
from tool_loop.ports import Emit

from .results import sendable


class Progress:
    """Carries what a tool says to the thread of the loop, for as long as its call is open."""

    __slots__ = ("_call_id", "_emit", "_loop", "open")

    def __init__(self, call_id: str, emit: Emit, loop: asyncio.AbstractEventLoop) -> None:
        self._call_id = call_id
        self._emit = emit
        self._loop = loop
        self.open = True

    def __call__(self, text: str) -> None:
        try:
            # Through the loop also when it is the loop's own thread that speaks: subscribers are not
            # made for other threads, and a subscriber that fails must not fail the tool.
            self._loop.call_soon_threadsafe(self._show, sendable(str(text)))
        except RuntimeError:
            self.open = False  # the loop is closed; a thread that was given up on still talks

    def _show(self, text: str) -> None:
        if self.open:
            self._emit(ToolProgress(self._call_id, text))
