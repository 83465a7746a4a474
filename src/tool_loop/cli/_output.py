"""Where the answer goes: events as JSON lines on stdout, or a file beside it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from tool_loop.console.terminal import OutputLost, Terminal
from tool_loop.errors import UsageError
from tool_loop.events import Event, Signal
from tool_loop.journal.codec import TAGS, encode


class JsonLines:
    """A subscriber that writes every event and signal as one line of JSON.

    An event is as in the journal (`{"run": ..., "at": ..., "event": "tool_returned", ...}`, what
    equals its default left out), a signal has "signal" in its place. `gone` is called once when
    nobody reads any more, or nothing can be written; `lost` then says why.
    """

    def __init__(self, out: Terminal, run_id: str, gone: Callable[[], object]) -> None:
        self._out = out
        self._run_id = run_id
        self._gone = gone
        self.closed = False
        self.lost: OutputLost | None = None

    def __call__(self, happening: Event | Signal) -> None:
        if self.closed:
            return
        try:
            self._out.line(json_line(happening, self._run_id, time.time()))
        except OSError as error:
            self.closed = True
            self.lost = error if isinstance(error, OutputLost) else None
            self._gone()


def json_line(happening: Event | Signal, run_id: str, at: float) -> str:
    """One line of ASCII, so that it shows on a terminal as what it is."""
    if type(happening) in TAGS.values():
        said = json.loads(encode(happening))  # type: ignore[arg-type]
    else:
        said = {"signal": _snake(type(happening).__name__), **asdict(happening)}
    return json.dumps({"run": run_id, "at": round(at, 3), **said}).replace("\x7f", "\\u007f")


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


class AnswerFile:
    """The file of `-o`, opened before the run costs anything. Raises `UsageError` when it cannot be written.

    What was in it stays until there is an answer; a file that was made for nothing is removed.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._new = not self._path.exists()
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise UsageError(f"cannot write the answer to {path}: {error.strerror}") from error
        self._written = False

    def write(self, answer: str) -> None:
        """Raises `OutputLost` when the disk is full."""
        try:
            with os.fdopen(os.dup(self._descriptor), "w", encoding="utf-8", errors="backslashreplace") as file:
                with suppress(OSError):  # a pipe or a device has no length
                    file.truncate(0)
                file.write(answer if answer.endswith("\n") else f"{answer}\n")
        except OSError as error:
            raise OutputLost(f"cannot write the answer to {self._path}: {error.strerror}") from error
        self._written = True

    def close(self) -> None:
        os.close(self._descriptor)
        if self._new and not self._written:
            with suppress(OSError):
                self._path.unlink()
