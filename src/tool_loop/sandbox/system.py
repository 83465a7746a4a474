"""What of this machine a command may see: the system, and the Python that runs us, read-only.

Knows nothing about how a wall is built. What only some may read is left out, so that a command which
runs as root reads no more of /etc than anybody else.
"""

from __future__ import annotations

import functools
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/gnu", "/etc")

# Where things are that not everybody may read. /usr itself has none but in /usr/local.
_MIXED: Final = ("/etc", "/opt", "/usr/local")
_ENTRIES: Final = 100_000  # looked at there before a whole part is left out instead

DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")

# By name, never by what they are not: a key in a variable of any name stays outside.
_KEPT: Final = ("PATH", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
_QUIET: Final = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",  # `git status` need not write its index
    "DEBIAN_FRONTEND": "noninteractive",
    # Nothing is left in the background, so nothing is to start there; and the workspace may well be
    # another user's, which in here is nobody.
    "GIT_CONFIG_COUNT": "3",
    "GIT_CONFIG_KEY_0": "gc.auto",
    "GIT_CONFIG_VALUE_0": "0",
    "GIT_CONFIG_KEY_1": "maintenance.auto",
    "GIT_CONFIG_VALUE_1": "false",
    "GIT_CONFIG_KEY_2": "safe.directory",
    "GIT_CONFIG_VALUE_2": "*",
}


def environment(
    shown: Iterable[str], home: str, temporary: str, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The variables of a command: a few of ours, and what keeps programs quiet.

    Of PATH only what is beneath `shown`: a directory that is hidden would make "permission denied"
    out of "not found".
    """
    environ = os.environ if environ is None else environ
    kept = {name: value for name, value in environ.items() if name in _KEPT or name.startswith("LC_")}
    tops = tuple(f"{path}/" for path in shown)
    parts = dict.fromkeys(kept.get("PATH", os.defpath).split(os.pathsep))
    kept["PATH"] = os.pathsep.join(part for part in parts if f"{part}/".startswith(tops)) or os.defpath
    return kept | _QUIET | {"HOME": home, "TMPDIR": temporary}


def beneath(path: str, top: str) -> bool:
    """Whether `path` is `top` or below it. Of names without links and dots only."""
    return path == top or path.startswith(f"{top.rstrip('/')}/")


def readable(named: Iterable[str], root: str) -> list[str]:
    """What is shown besides the system: where our Python and this package live, and what the operator named.

    The package is elsewhere where it is being worked on, and a pytest that finds its plugin has to load it.
    """
    home = os.path.realpath(os.path.expanduser("~"))
    own = [os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, Path(__file__).parents[2])]
    # A prefix that holds the home directory would show it; such a Python is then not there.
    own = [path for path in own if not beneath(home, path)]
    found = {path for path in (*map(os.path.realpath, named), *own) if os.path.exists(path)}
    return sorted(path for path in found if not any(beneath(path, top) for top in (*SYSTEM, root)))


def own_places(root: str) -> list[str]:
    """What this process runs from and is inside the workspace: to be changed by no command.

    A virtual environment, the package itself where it is being worked on, the program of the sandbox:
    a command that changes one runs outside, as us, a moment later.
    """
    package = str(Path(__file__).parents[1])
    places = {sys.prefix, sys.base_prefix, os.path.dirname(sys.executable), package}
    inside = {path for place in places for path in (os.path.abspath(place), os.path.realpath(place))}
    inside = {path for path in inside if beneath(path, root) and path != root}
    return sorted(path for path in inside if not any(path != top and beneath(path, top) for top in inside))


@functools.cache
def hidden() -> tuple[str, ...]:
    """Paths of the system that not everybody may read, the topmost of each. Looked up once."""
    return tuple(path for top in _MIXED for path in _private(top))


def shown_parts(top: str, without: Iterable[str]) -> Iterator[str]:
    """`top` as the largest parts of it that hold none of `without`."""
    inside = [path for path in without if beneath(path, top)]
    if not inside:
        yield top
    elif top not in inside:
        with suppress(OSError):
            for entry in list(os.scandir(top)):
                yield from shown_parts(entry.path, inside)


def _private(top: str) -> list[str]:
    found, todo, seen = [], [top], 0
    while todo:
        path = todo.pop()
        with suppress(FileNotFoundError):
            mode = os.lstat(path).st_mode
            wanted = 0o005 if stat.S_ISDIR(mode) else 0o004
            if stat.S_ISLNK(mode):
                continue
            if mode & wanted != wanted:
                found.append(path)
            elif stat.S_ISDIR(mode):
                entries = list(os.scandir(path))
                seen += len(entries)
                todo += [entry.path for entry in entries if not entry.is_symlink()]
        if seen > _ENTRIES:
            return [top]  # rather none of it than a key
    return found


def exposed_kernel() -> tuple[list[str], list[str]]:
    """Of /proc, the directories to be shown read-only and the files to be hidden.

    Root of the machine may write kernel.core_pattern, capabilities or not and in any user namespace: it
    names a program that the kernel then runs outside. Others may write what is the namespace's own.
    """
    if os.geteuid() != 0:
        return ["/proc/sys"], []
    directories, files = [], []
    for entry in sorted(os.scandir("/proc"), key=lambda entry: entry.name):
        with suppress(OSError):
            if entry.name.isdigit() or entry.is_symlink():
                continue
            if entry.is_dir():
                directories.append(entry.path)
            elif entry.stat().st_mode & 0o204 != 0o004:
                files.append(entry.path)
    return directories, files
