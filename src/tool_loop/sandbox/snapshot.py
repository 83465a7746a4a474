"""What a protected path holds, as a value: taken before a command, compared and put back after it.

Used where nothing keeps a command from writing there. Reads and writes through no link: a command may
have left one anywhere.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

# All that is kept of one workspace. Beyond it commands are refused rather than not looked after.
_BYTES: Final = 64 << 20
_ENTRIES: Final = 20_000

Wanted = Callable[[str], bool]


class TooMuch(Exception):
    """What is protected is more than can be kept; the message says where."""


class NotPutBack(Exception):
    """Some of it is not as it was, and could not be made so. `paths` are those."""

    def __init__(self, paths: list[str]) -> None:
        super().__init__(", ".join(paths[:5]))
        self.paths = paths


@dataclass(frozen=True, slots=True)
class _SavedEntry:
    """One file. `content` is None where it has none to keep (a FIFO, a socket): then its `look` counts."""

    mode: int
    content: bytes | None
    look: tuple[int, ...] = field(compare=False, default=())

    def same(self, other: _SavedEntry | None) -> bool:
        if other is None or self.content is None:
            return other is not None and self.mode == other.mode and self.look == other.look
        return self == other


class Snapshot:
    """The files at and below some paths, as far as they are `wanted`."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._entries: dict[str, _SavedEntry] = {}
        self._bytes = 0

    def take(self, top: str) -> None:
        """Add what is at `top`. Raises `TooMuch`."""
        for path, info in _walk(top, self._wanted):
            self._entries[path] = entry = _read(path, info)
            self._bytes += len(entry.content or b"")
            if self._bytes > _BYTES or len(self._entries) > _ENTRIES:
                raise TooMuch(f"{top} holds more than {_ENTRIES} files or {_BYTES >> 20} MiB")

    def changed(self, top: str, now: str) -> tuple[list[str], list[str]]:
        """What came and what is different, of that which was at `top` and is `now` here."""
        before = {now + path[len(top) :]: entry for path, entry in self._below(top)}
        there = dict(_walk(now, self._wanted))
        new = [path for path in there if path not in before]
        different = []
        for path, entry in before.items():
            with suppress(OSError):
                if path in there and entry.same(_read(path, there[path])):
                    continue
            different.append(path)
        return new, sorted(different)

    def put_back(self, top: str, now: str, paths: list[str], away: Callable[[str], object]) -> None:
        """Make these `paths` again what they were; what is in the way goes `away`. Raises `NotPutBack`."""
        left = []
        for path in paths:  # a directory comes before what is in it
            entry = self._entries[top + path[len(now) :]]
            try:
                _write(path, entry, away)
            except OSError:
                left.append(path)
        if left:
            raise NotPutBack(left)

    def _below(self, top: str) -> Iterator[tuple[str, _SavedEntry]]:
        for path, entry in self._entries.items():
            if path == top or path.startswith(f"{top}/"):
                yield path, entry


def _walk(top: str, wanted: Wanted) -> Iterator[tuple[str, os.stat_result]]:
    todo = [top]
    while todo:
        path = todo.pop()
        if not wanted(path):
            continue
        try:
            info = os.lstat(path)
        except OSError:
            continue
        yield path, info
        if stat.S_ISDIR(info.st_mode):
            with suppress(FileNotFoundError):
                todo += sorted((entry.path for entry in os.scandir(path)), reverse=True)


def _read(path: str, info: os.stat_result) -> _SavedEntry:
    look = (info.st_size, info.st_mtime_ns, info.st_ino)
    if stat.S_ISDIR(info.st_mode):
        return _SavedEntry(info.st_mode, b"")
    if stat.S_ISLNK(info.st_mode):
        return _SavedEntry(info.st_mode, os.fsencode(os.readlink(path)))
    if not stat.S_ISREG(info.st_mode):
        return _SavedEntry(info.st_mode, None, look)
    if info.st_size > _BYTES:
        raise TooMuch(f"{path} is larger than {_BYTES >> 20} MiB")
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        return _SavedEntry(info.st_mode, file.read(_BYTES + 1), look)


def _write(path: str, entry: _SavedEntry, away: Callable[[str], object]) -> None:
    if entry.content is None:
        raise OSError(f"{path}: only its look is known")
    with suppress(FileNotFoundError):
        info = os.lstat(path)
        if stat.S_ISDIR(entry.mode) and stat.S_ISDIR(info.st_mode):
            os.chmod(path, stat.S_IMODE(entry.mode))
            return
        if stat.S_ISDIR(info.st_mode):
            away(path)
        else:
            os.unlink(path)
    if stat.S_ISDIR(entry.mode):
        os.mkdir(path)
        os.chmod(path, stat.S_IMODE(entry.mode))
    elif stat.S_ISLNK(entry.mode):
        os.symlink(os.fsdecode(entry.content), path)
    else:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "wb") as file:
            file.write(entry.content)
            os.fchmod(file.fileno(), stat.S_IMODE(entry.mode))
