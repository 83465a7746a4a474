"""A box: one workspace, the sandbox around it, and the private directories its commands share.

Knows what is reachable, not how a command is run (`command.py`) or how a wall is built (`bwrap.py`,
`landlock.py`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import sys
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

from tool_loop.errors import UsageError

from . import system
from .choice import Sandbox, SandboxUnavailable
from .guard import Guard
from .limits import CommandLimits

Permission: TypeAlias = Literal["git", "network"]

_PREFIX = "tool-loop-box-"


class Box:
    """Where the commands of one run take place. Close it, or let it go, and its private files are gone.

    `read` are directories that commands may read besides the system and the workspace. `allow` is what
    they may do beyond that: "git" (write what a commit writes below `.git`; what decides which code git
    runs stays as it is) and "network". `env` are further variables.

    Raises UsageError for a workspace that cannot be one, and for names in `read` that are no paths;
    SandboxUnavailable where Landlock would have to protect the very program that runs this.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        sandbox: Sandbox,
        *,
        read: Iterable[str | os.PathLike[str]] = (),
        allow: Iterable[Permission] = (),
        limits: CommandLimits | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.sandbox = sandbox
        self.limits = limits or CommandLimits()
        self.allow = frozenset(allow)
        if unknown := self.allow - {"git", "network"}:
            raise UsageError(f"allow: {min(unknown)!r} is neither 'git' nor 'network'")
        self.root, self.descriptor = _opened(root)
        named = [_checked_read(path) for path in read]
        self.read = tuple(system.readable(named, self.root))
        self.own = tuple(system.own_places(self.root))
        self.env = dict(env or {})
        self.home = _private()
        self.close = weakref.finalize(self, _closed, self.home, self.descriptor)
        self.guard = Guard(self.root, git="git" in self.allow, own=self.own)
        if sandbox.name == "landlock" and self.own:
            raise SandboxUnavailable(
                f"the Python that runs this is inside the workspace ({self.own[0]}), and Landlock cannot keep commands "
                "from changing it; install tool-loop outside of it (pipx, uv tool), or bubblewrap"
            )

    @property
    def temporary(self) -> str:
        """The commands' own /tmp, as a directory of this machine."""
        return f"{self.home}/tmp"

    @property
    def output(self) -> str:
        """Where long output is kept, which commands can read and not write."""
        return f"{self.home}/output"

    @property
    def output_seen(self) -> str:
        """`output` as a command sees it."""
        return "/run/output" if self.sandbox.name == "bwrap" else self.output

    def environment(self) -> dict[str, str]:
        """The variables of a command."""
        if self.sandbox.name == "none":
            home, temporary = os.environ.get("HOME", "/"), self.temporary
            shown = ["/"]
        else:
            temporary = "/tmp" if self.sandbox.name == "bwrap" else self.temporary
            home, shown = f"{temporary}/home", [*system.SYSTEM, *self.read, self.root]
        made = system.environment(shown, home, temporary)
        if self.sandbox.name == "none":
            made["PATH"] = os.environ.get("PATH", os.defpath)
        return made | self.env

    def unchanged(self) -> bool:
        """Whether the workspace's name still means the directory that is held open: mounts go by name."""
        with suppress(OSError):
            return os.path.samestat(os.stat(self.root), os.fstat(self.descriptor))
        return False


def _opened(root: str | os.PathLike[str]) -> tuple[str, int]:
    path = os.path.realpath(root)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise UsageError(f"the workspace {os.fspath(root)!r} cannot be opened: {error}") from None
    # With the system inside the workspace, or the workspace inside what is not the system's disk, there
    # is no wall to build.
    inside = [top for top in (*system.SYSTEM, "/dev", "/proc", "/sys", "/run", "/tmp") if system.beneath(top, path)]
    if inside or any(system.beneath(path, top) for top in ("/dev", "/proc", "/sys")):
        os.close(descriptor)
        raise UsageError(f"{path!r} cannot be the workspace of commands: give a directory of a project")
    return path, descriptor


def _checked_read(path: str | os.PathLike[str]) -> str:
    found = os.path.realpath(path)
    if not os.path.exists(found):
        raise UsageError(f"read: there is no {os.fspath(path)!r}")
    if found == "/" or any(system.beneath(found, top) for top in ("/proc", "/dev", "/sys")):
        raise UsageError(f"read: {os.fspath(path)!r} would show more than files; name the directory that is needed")
    return found


def _private() -> str:
    """A new directory of our own, locked for as long as this process lives."""
    _sweep(tempfile.gettempdir())
    home = os.path.realpath(tempfile.mkdtemp(prefix=_PREFIX))
    for name in ("tmp", "tmp/home", "output"):
        Path(home, name).mkdir(mode=0o700)
    lock = os.open(f"{home}/new", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(f"{home}/new", f"{home}/lock")
    _locks[home] = lock
    return home


_locks: dict[str, int] = {}


def _closed(home: str, descriptor: int) -> None:
    os.close(descriptor)
    os.close(_locks.pop(home))
    remove_tree(home)


def _sweep(place: str) -> None:
    """Remove what processes left that were killed: theirs, but locked by nobody."""
    with suppress(OSError):
        for entry in list(os.scandir(place)):
            if not entry.name.startswith(_PREFIX) or entry.stat(follow_symlinks=False).st_uid != os.geteuid():
                continue
            with suppress(OSError):
                lock = os.open(f"{entry.path}/lock", os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_tree(entry.path)
                finally:
                    os.close(lock)


def remove_tree(top: str) -> None:
    """Remove a directory that a command wrote, however deep and with whatever permissions.

    Each directory is emptied into the topmost one before it is removed, so that neither recursion nor
    a path grows with the depth. What cannot be removed stays; this is for private files that are no
    longer needed, when nobody is at work in them.
    """
    count = 0
    with suppress(OSError):
        while entries := list(os.scandir(top)):
            left = len(entries)
            for entry in entries:
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        os.chmod(entry.path, stat.S_IRWXU)
                        for inner in list(os.scandir(entry.path)):
                            if inner.is_dir(follow_symlinks=False):
                                count += 1
                                os.chmod(inner.path, stat.S_IRWXU)
                                os.rename(inner.path, f"{top}/.{count}")
                            else:
                                os.unlink(inner.path)
                        os.rmdir(entry.path)
                    else:
                        os.unlink(entry.path)
                    left -= 1
            if left == len(entries):
                shutil.rmtree(top, ignore_errors=True)  # no progress: a last try, and then it stays
                return
        os.rmdir(top)


def imports_from(root: str) -> list[str]:
    """The entries of `sys.path` through which a command could choose what this process imports next.

    `python -m` and a script in the workspace put one there. A program that runs commands takes them out.
    """
    kept = system.own_places(root)
    real = [(entry, os.path.realpath(entry or ".")) for entry in sys.path]
    return [e for e, path in real if system.beneath(path, root) and not any(system.beneath(path, top) for top in kept)]
