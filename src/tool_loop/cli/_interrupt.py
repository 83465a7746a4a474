"""Ctrl-C: the first ends the run properly, the second quits at once.

Also a SIGTERM, and a SIGHUP of a terminal that was closed, end the run properly.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Interrupts:
    """While this is entered, the first signal cancels `task` and calls `told`; the next one calls `quit_now`.

    `received` is the signal that came, 0 for none. With `keep` the next one also quits after a run that
    was interrupted has been left. Works only in the main thread; elsewhere it does nothing.
    """

    def __init__(
        self,
        task: asyncio.Task[Any],
        told: Callable[[], None],
        quit_now: Callable[[int], object] = os._exit,
        *,
        keep: bool = False,
    ) -> None:
        self.received = 0
        self._quit_now = quit_now
        self._keep = keep
        self._task = task
        self._told = told
        self._loop = task.get_loop()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        # Not loop.add_signal_handler: a handler of our own also runs while the loop is stuck.
        with contextlib.suppress(ValueError):
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                    self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keep and self.received:
            return  # what is left is to leave, and should that not go on, the next one still quits
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def exit_code(self) -> int:
        return 128 + (self.received or signal.SIGINT)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.received:
            _kill_children()
            # The journal holds everything up to its last whole record: nothing has to be put right.
            self._quit_now(128 + number)
            return
        self.received = number
        self._loop.call_soon_threadsafe(self._first)

    def _first(self) -> None:
        self._told()
        self._task.cancel()


def _kill_children() -> None:
    """A search runs in a session of its own, which the terminal's Ctrl-C does not reach."""
    for child in _children():
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)


def _children() -> list[int]:
    """Our child processes, where the system lists them (Linux)."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():
            found += map(int, (thread / "children").read_text(encoding="ascii").split())
    return found
