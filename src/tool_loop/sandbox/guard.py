"""Keeps commands from changing what decides what runs outside of the sandbox (`tools/protected.py`).

Where there are mounts, what is there is mounted read-only. What is not there yet cannot be: a mount on
a missing path would leave an empty file in the person's workspace. So the workspace is looked through
before and after each command. What came under a protected name is taken away; where there are no
mounts, what was changed is put back. What cannot be guarded is not run, and when something could not
be put back, nothing runs any more: this wall fails closed.

With `git` allowed a command may write what a commit writes below `.git`, and the rest stays protected:
not what is known to be dangerous, but all that is not known to be data.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from .marks import Mark, Marks, TooMany
from .protected import GIT_DATA
from .snapshot import NotPutBack, Snapshot, TooMuch

_MOUNTS: Final = 300
_SAID: Final = 20  # of what was undone; a command could make thousands
_LOOKED_AT: Final = 10_000
_TICK: Final = 50_000_000


class Unguarded(Exception):
    """Protected paths cannot be looked after here. The message says why, for the person."""


class Guard:
    """Looks after the protected paths of `root`. `own` are further ones, which hold this program."""

    def __init__(self, root: str, *, git: bool, own: Iterable[str] = ()) -> None:
        self.root, self.git = root, git
        self._own = tuple(own)
        self._marks = Marks(root)
        self._broken = ""

    def before(self, *, mounted: bool) -> GuardWatch:
        """Look at everything as it is. `mounted`: the caller mounts `GuardWatch.mounts`. Raises `Unguarded`."""
        if self._broken:
            raise Unguarded(self._broken)
        try:
            return GuardWatch(self, self._marks.find(), self._own, mounted=mounted)
        except (TooMany, TooMuch, OSError) as error:
            raise Unguarded(f"the workspace's protected paths cannot be looked after: {error}") from None

    def broken(self, why: str) -> Unguarded:
        """From now on no command runs."""
        self._broken = why
        return Unguarded(why)

    def find(self) -> dict[str, Mark]:
        return self._marks.find()


class GuardWatch:
    """The protected paths around one command."""

    def __init__(self, guard: Guard, marks: dict[str, Mark], own: tuple[str, ...], *, mounted: bool) -> None:
        self._guard, self._root = guard, guard.root
        self._began = time.time_ns()
        self._marks, self._mounted = marks, mounted
        self._tops = _tops(marks, self._root)
        self._snapshot, self._kept = Snapshot(self._wanted), list[str]()
        self.mounts: list[str] = []
        for path in (*self._tops, *own):
            self.mounts += self._protect(path)
        if len(self.mounts) > 3 * _MOUNTS:
            raise TooMuch(f"there are {len(self.mounts) // 3} of them, at most {_MOUNTS}; choose a smaller workspace")
        self._parts = {top: set(os.listdir(top)) for top in self._repositories()}
        self._with_objects = [path for path in self._tops if _has_objects(path)]

    def _protect(self, path: str) -> list[str]:
        """The mounts for a path; without any, or where it is a link, it is kept to be put back."""
        out: list[str] = []
        if not self._mounted or os.path.islink(path):
            self._snapshot.take(path)
            self._kept.append(path)
        elif self._guard.git and self._is_repository(path):
            # A mount of its own, or it could be moved away and made anew.
            out += ["--bind", path, path]
            for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
                if entry.name not in GIT_DATA:
                    out += self._protect(entry.path)
        else:
            out += ["--ro-bind", path, path]
        target = os.path.realpath(path)
        if target not in (path, self._root) and target.startswith(f"{self._root}/") and os.path.lexists(target):
            out += self._protect(target)
        return out

    def _is_repository(self, top: str) -> bool:
        return os.path.isdir(top) and self._tops.get(top) in ("repository", "bare")

    def _repositories(self) -> list[str]:
        """Those of which a command may write a part."""
        return [top for top in self._tops if self._guard.git and self._is_repository(top)]

    def _wanted(self, path: str) -> bool:
        """Whether a file belongs to what has to stay as it is.

        Objects do not: they can be gigabytes, say nothing until a reference names them, and to take new
        ones away after `git gc` has removed the old ones would lose both.
        """
        top, name = os.path.split(path)
        if name in ("objects", "lfs") and os.path.lexists(f"{top}/HEAD"):
            return False
        return not (self._guard.git and name in GIT_DATA and self._tops.get(top) in ("repository", "bare"))

    def after(self) -> list[str]:
        """Undo what may not be: what that was, in words. Raises `Unguarded` for what could not be undone."""
        try:
            now = self._guard.find()
            said = [word for path in self._came(now) if (word := self._take_away(path))]
            for top in self._kept:
                said += self._put_back(top, self._moved_to(top, now))
            self._check_objects(now)
        except NotPutBack as error:
            paths = ", ".join(os.path.relpath(path, self._root) for path in error.paths[:5])
            why = f"a command changed protected paths, and they could not be put back: {paths}"
            raise self._guard.broken(why) from None
        except (TooMany, TooMuch, OSError) as error:
            why = f"a command left the protected paths of the workspace so that they cannot be looked at: {error}"
            raise self._guard.broken(why) from None
        return said if len(said) <= _SAID else [*said[:_SAID], f"and {len(said) - _SAID} more"]

    def _check_objects(self, now: dict[str, Mark]) -> None:
        for top in self._with_objects:
            there = self._moved_to(top, now)
            if not _has_objects(there) and os.path.isdir(os.path.dirname(there)):
                raise NotPutBack([f"{top}/objects"])

    def _came(self, now: dict[str, Mark]) -> Iterator[str]:
        """What was not there before, under no name it had."""
        known = {mark.identity: path for path, mark in self._marks.items()}
        for path, mark in now.items():
            before = known.get(mark.identity)
            if path not in self._marks and (before is None or os.path.lexists(before)):
                yield path
        for top, parts in self._parts.items():
            for name in os.listdir(top) if os.path.isdir(top) else ():
                if name not in parts and name not in GIT_DATA:
                    yield f"{top}/{name}"

    def _moved_to(self, top: str, now: dict[str, Mark]) -> str:
        """Where it is: a directory with a repository in it may be renamed."""
        mark = self._marks.get(top)
        if mark and not os.path.lexists(top):
            return next((path for path, each in now.items() if each.identity == mark.identity), top)
        return top

    def _put_back(self, top: str, now: str) -> list[str]:
        above = os.path.dirname(now)
        if os.path.realpath(above) != above or not os.path.isdir(above):
            return [f"{self._named(top)} (gone, with the directory it was in)"]
        new, different = self._snapshot.changed(top, now)
        said = [word for path in sorted(new) if os.path.lexists(path) and (word := self._take_away(path))]
        self._snapshot.put_back(top, now, different, self._take_away)
        return said + [f"{self._named(path)} (put back)" for path in different]

    def _take_away(self, path: str) -> str:
        """Remove what a command made. What was there before it, under another name, is given a third one."""
        from .box import remove_tree

        name = self._named(path)
        with suppress(FileNotFoundError):
            if _is_older(path, self._began - _TICK):
                kept = next(
                    f"{path}.undone{n}" for n in ("", *range(2, 1000)) if not os.path.lexists(f"{path}.undone{n}")
                )
                os.rename(path, kept)
                return f"{name} (it is {os.path.basename(kept)} now)"
            if os.path.isdir(path) and not os.path.islink(path):
                remove_tree(path)
            else:
                os.unlink(path)
            if os.path.lexists(path):
                raise NotPutBack([path])
            return f"{name} (taken away)"
        return ""

    def _named(self, path: str) -> str:
        from tool_loop.runtime.text import shown

        return shown(os.path.relpath(path, self._root))


def _tops(marks: dict[str, Mark], root: str) -> dict[str, str]:
    """The paths to be protected, each with its kind."""
    tops: dict[str, str] = {}
    for mark in marks.values():
        path = mark.path
        if mark.kind == "bare":
            path = os.path.dirname(path)
        if path != root:
            tops[path] = mark.kind
        else:
            # The workspace is a repository itself, without a .git: then it is these.
            names = ("HEAD", "config", "config.worktree", "hooks", "commondir", "info", "worktrees", "modules")
            tops |= {f"{root}/{name}": "protected" for name in names if os.path.lexists(f"{root}/{name}")}
    inside = {path for path in tops if any(path.startswith(f"{top}/") for top in tops if not os.path.islink(top))}
    return {path: kind for path, kind in sorted(tops.items()) if path not in inside}


def _has_objects(top: str) -> bool:
    """Whether it is a repository with anything in it."""
    with suppress(OSError):
        return bool(os.listdir(f"{top}/objects"))
    return False


def _is_older(path: str, began: int) -> bool:
    """Whether it, or anything in it, was there when the command began, as far as can be told.

    A rename changes the change time of what is renamed, but not of what is in it.
    """
    info = os.lstat(path)
    if not stat.S_ISDIR(info.st_mode):
        return stat.S_ISREG(info.st_mode) and info.st_mtime_ns < began
    todo, seen = [path], 0
    while todo:
        with suppress(OSError):
            for entry in list(os.scandir(todo.pop())):
                seen += 1
                if entry.stat(follow_symlinks=False).st_ctime_ns < began or seen > _LOOKED_AT:
                    return True
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
    return False
