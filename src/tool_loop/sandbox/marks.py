"""Where in a workspace the protected paths are: found once, then only where a directory has changed.

Looks at every directory before and after each command, so it has to be cheap: a directory whose
change time is the one it had was not written to, and no command can set that time. Knows which names
are protected from `sandbox.protected`, and nothing about what is done with them.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from .protected import VERSION_CONTROL, folded, protected_from_commands

# Packages as their authors published them, editor settings and all. No editor opens one of them; but
# git still runs where somebody goes to look.
_PACKAGES: Final = frozenset(("node_modules", "site-packages", "dist-packages", ".venv", "venv", ".tox", ".nox"))

_DIRECTORIES: Final = 200_000
_TICK: Final = 50_000_000  # nanoseconds; the kernel's clock for files ticks every 1 to 10 ms

Kind: TypeAlias = Literal["protected", "repository", "bare"]


class TooMany(Exception):
    """The workspace is too large to be looked through; the message says how large."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A protected path, and which file it is.

    `kind`: "repository" is one of version control, "bare" the HEAD of a directory that git takes for a
    repository as it is.
    """

    path: str
    kind: Kind
    device: int
    inode: int
    mode: int

    @property
    def identity(self) -> tuple[int, int]:
        return self.device, self.inode


@dataclass(frozen=True, slots=True)
class _Directory:
    changed: int
    identity: tuple[int, int]
    inner: tuple[str, ...]
    marked: tuple[tuple[str, Kind], ...]


class Marks:
    """The protected paths below `root`, which is an absolute path without links."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._known: dict[str, _Directory] = {}

    def find(self) -> dict[str, Mark]:
        """Every one that is there now, by path. Raises `TooMany`."""
        known, found, todo = {}, {}, [self.root]
        while todo:
            path = todo.pop()
            directory = self._look(path)
            if directory is None:
                continue
            known[path] = directory
            if len(known) > _DIRECTORIES:
                raise TooMany(f"more than {_DIRECTORIES} directories")
            for name, kind in directory.marked:
                with suppress(OSError):
                    info = os.lstat(f"{path}/{name}")
                    mark = Mark(f"{path}/{name}", kind, info.st_dev, info.st_ino, info.st_mode)
                    found[mark.path] = mark
            todo += [f"{path}/{name}" for name in directory.inner]
        self._known = known
        return found

    def _look(self, path: str) -> _Directory | None:
        try:
            info = os.lstat(path)
            if not stat.S_ISDIR(info.st_mode):
                return None
            identity, known = (info.st_dev, info.st_ino), self._known.get(path)
            if known and known.changed == info.st_ctime_ns and known.identity == identity:
                return known
            inner, names = _entries(path, info)
        except OSError:
            return None  # gone meanwhile, or with a name longer than git itself could use
        # Changed within this tick of the clock, it could change again and keep its time.
        settled = time.time_ns() - info.st_ctime_ns > _TICK
        marked = tuple(_marked(path.removeprefix(self.root), names))
        inner = tuple(name for name in inner if all(name != each or kind == "bare" for each, kind in marked))
        return _Directory(info.st_ctime_ns if settled else -1, identity, inner, marked)


def _entries(path: str, info: os.stat_result) -> tuple[tuple[str, ...], list[str]]:
    try:
        entries = list(os.scandir(path))
    except PermissionError:
        if info.st_uid != os.geteuid():
            raise
        # A command cannot hide what it made by closing the door behind it.
        os.chmod(path, info.st_mode | stat.S_IRWXU)
        try:
            entries = list(os.scandir(path))
        finally:
            os.chmod(path, stat.S_IMODE(info.st_mode))
    return tuple(e.name for e in entries if e.is_dir(follow_symlinks=False)), [e.name for e in entries]


def _marked(path: str, names: Iterable[str]) -> Iterable[tuple[str, Kind]]:
    package = not _PACKAGES.isdisjoint(path.split("/"))
    spelled: dict[str, str] = {}
    for name in names:
        same = folded(name)
        spelled[same] = name
        if same in VERSION_CONTROL or same == "git~1":
            yield name, "repository"
        elif not package and protected_from_commands(name):
            yield name, "protected"
    # What git itself looks for. With `commondir` the other two are somewhere else.
    if "head" in spelled and ("commondir" in spelled or ("objects" in spelled and "refs" in spelled)):
        yield spelled["head"], "bare"
