"""What a command writes: its beginning and its end in memory, all of it in a file. Nothing of it is read here."""

from __future__ import annotations

import os
import secrets
from collections import deque
from contextlib import suppress
from typing import Final

_FILES: Final = 30  # of earlier commands; older ones are removed


class Capture:
    """Keeps the first `head` and the last `tail` bytes, and up to `kept` of all in a file in `place`.

    The file is made when there is more than fits, in a directory no command can write to.
    """

    def __init__(self, head: int, tail: int, kept: int, place: str) -> None:
        self.total = 0
        self.name = ""
        self._room, self._tail, self._left = head, tail, kept
        self._head = bytearray()
        self._end: deque[bytes] = deque()
        self._held = 0
        self._place, self._file = place, -1

    def add(self, data: bytes) -> None:
        self.total += len(data)
        if room := self._room - len(self._head):
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        if not self.name:
            self._spill(bytes(self._head))
        self._spill(data)
        self._end.append(data)
        self._held += len(data)
        while self._held - len(self._end[0]) >= self._tail:
            self._held -= len(self._end.popleft())

    def parts(self) -> tuple[bytes, bytes]:
        """The beginning and the end. They follow each other where `left_out` is 0."""
        return bytes(self._head), b"".join(self._end)[-self._tail :]

    @property
    def left_out(self) -> int:
        return self.total - sum(map(len, self.parts()))

    def close(self) -> None:
        """No more will come. A file that holds nothing more than what is shown is removed."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self.name and not self.left_out:
            with suppress(OSError):
                os.unlink(f"{self._place}/{self.name}")
            self.name = ""

    def _spill(self, data: bytes) -> None:
        if not self.name:
            _remove_oldest(self._place)
            self.name = f"{secrets.token_hex(4)}.txt"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(f"{self._place}/{self.name}", flags, 0o644)
        data = data[: self._left]
        with suppress(OSError):  # a full disk costs the file, not the result
            while data:
                written = os.write(self._file, data)
                self._left -= written
                data = data[written:]


def _remove_oldest(place: str) -> None:
    with suppress(OSError):
        files = sorted(os.scandir(place), key=lambda entry: entry.stat().st_mtime_ns)
        for entry in files[: max(0, len(files) - _FILES + 1)]:
            os.unlink(entry.path)
