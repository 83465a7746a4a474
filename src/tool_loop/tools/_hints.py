"""What was probably meant by a path that does not exist.

A hint carries the answer where there is one, and nothing beside it that could be done instead. Measured
on a small model (1.5B, temperature 0.7) in whole runs after a wrong path: it recovered in 21 of 24 with
"a file of that name is at X", in 13 of 24 when "else list the directory Y" followed, in 9 of 12 with
"(in the directory Y)" instead, and in 0 of 12 with only a directory to list. So the tree is searched
for the name first, then for a close spelling, and only then a direction is given.
Looks at names only, never at what is in a file, and at a bounded number of them.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tool_loop.runtime.text import shown

from ._beneath import DIRECTORY, READ

if TYPE_CHECKING:
    from .workspace import Root, Want

# A tree of this many names is read in about 50 ms; a name nearer to the root is found first.
MAX_NAMES = 20_000

# Where nobody who asks about a source tree means a file to be.
SKIPPED = frozenset(
    b".git .hg .svn .jj node_modules __pycache__ .venv venv .tox .nox .mypy_cache .pytest_cache .ruff_cache "
    b".hypothesis site-packages".split()
)

_MOST = 3  # answers in one hint
_MAX_PARTS = 32  # components of a path that are looked at
_CLOSE_NAMES = 5_000  # names compared letter by letter, about 50 ms
_AT_LINE = re.compile(r"(.+?):(\d+)(?::\d+)?:?")


@dataclass(frozen=True, slots=True)
class _NameEntry:
    path: bytes
    directory: bool

    @property
    def name(self) -> str:
        return os.fsdecode(self.path.rpartition(b"/")[2])

    def fits(self, want: Want) -> bool:
        return want == "file or directory" or self.directory == (want == "directory")


def nearest(root: Root, path: str, want: Want) -> str:
    """One line for the model: the nearest existing paths, or else which directory to list."""
    if match := _AT_LINE.fullmatch(path):  # src/agent.py:35, as grep writes it
        path = match[1]
        if _exists(root, path):
            return f"the path is {shown(path)}, without the line; read_file takes it as start_line={match[2][:9]}"
    parts = [part for part in re.split(r"[/\\]", path) if part not in ("", ".", "..")][-_MAX_PARTS:]
    if not parts:
        return 'paths are relative to the workspace, whose root is "."'
    there = _deepest(root, [part for part in path.split("/") if part not in ("", ".")][:_MAX_PARTS])
    return _inside(root, parts) or _named(root, parts, want, there) or f'list the directory "{shown(there)}"'


def _inside(root: Root, parts: list[str]) -> str:
    """A path that is right but for what stands before it: `/src/agent.py`, `/home/me/project/src/agent.py`."""
    for start in range(len(parts) - 1):
        path = "/".join(parts[start:])
        if _exists(root, path):
            return f"in the workspace this is {shown(path)}"
    return ""


def _named(root: Root, parts: list[str], want: Want, there: bytes) -> str:
    entries = [entry for entry in _tree(root) if entry.fits(want)]
    for key in _KEYS:
        wanted = key(parts[-1])
        if wanted and (found := [entry for entry in entries if key(entry.name) == wanted]):
            return _at(found, parts, want)
    siblings = [entry for entry in _listed(root, b"" if there == b"." else there + b"/", MAX_NAMES) if entry.fits(want)]
    close = _close(parts[-1], siblings) or _close(parts[-1], entries)
    if len(close) > 1:
        return f"similar names are {', '.join(map(shown, close))}"
    return f"a similar name is {_where(close[0])}" if close else ""


def _where(path: bytes) -> str:
    above = path.rpartition(b"/")[0] or b"."
    return f'{shown(path)} (in the directory "{shown(above)}")'


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.casefold()))


# From strict to loose: the same name, the same but for case, the same but for case and punctuation.
_KEYS: tuple[Callable[[str], str], ...] = (str, str.casefold, _letters)


def _at(found: list[_NameEntry], parts: list[str], want: Want) -> str:
    """Where these entries are; first those that share most of the wanted path's end."""

    def rank(entry: _NameEntry) -> tuple[int, int, bytes]:
        own = os.fsdecode(entry.path).split("/")
        pairs = zip(reversed(own), reversed(parts), strict=False)
        common = next((i for i, (a, b) in enumerate(pairs) if a.casefold() != b.casefold()), min(len(own), len(parts)))
        return -common, len(own), entry.path

    best = sorted(found, key=rank)
    if len(best) == 1:
        return f"a {want} of that name is at {_where(best[0].path)}"
    names = ", ".join(shown(entry.path) for entry in best[:_MOST])
    plural = {"file": "files", "directory": "directories"}.get(want, "files or directories")
    more = f" and {len(best) - _MOST} more" if len(best) > _MOST else ""
    return f"{plural} of that name are at {names}{more}"


def _close(name: str, entries: Iterable[_NameEntry]) -> list[bytes]:
    import difflib  # 7 ms to load, and only a wrong path needs it

    paths: dict[str, list[bytes]] = {}
    for entry in entries:
        other = entry.name.casefold()
        # Names whose lengths differ by more cannot be close, and the longest are slow to compare.
        if abs(len(other) - len(name)) <= len(name) // 2 and len(name) <= 100 and len(paths) < _CLOSE_NAMES:
            paths.setdefault(other, []).append(entry.path)
    close = difflib.get_close_matches(name.casefold(), paths, _MOST, cutoff=0.75)
    return [path for word in close for path in paths[word]][:_MOST]


def _exists(root: Root, path: str) -> bool:
    try:
        os.close(root.open_bytes(os.fsencode(path), READ))
    except (OSError, ValueError):
        return False
    return True


def _deepest(root: Root, parts: list[str]) -> bytes:
    """The deepest directory on the way to this path that exists."""
    for count in range(len(parts) - 1, 0, -1):
        try:
            path = os.fsencode("/".join(parts[:count]))
            os.close(root.open_bytes(path, DIRECTORY))
        except (OSError, ValueError):
            continue
        return path
    return b"."


def _tree(root: Root, most: int = MAX_NAMES) -> Iterator[_NameEntry]:
    """Files and directories, nearest first. Links are left out: they name what is elsewhere too."""
    todo, seen = deque([b""]), 0
    while todo and seen < most:
        for entry in _listed(root, todo.popleft(), most - seen):
            seen += 1
            yield entry
            if entry.directory and entry.path.rpartition(b"/")[2] not in SKIPPED:
                todo.append(entry.path + b"/")


def _listed(root: Root, above: bytes, most: int) -> list[_NameEntry]:
    """Files and directories in a directory ("" or ending in a slash), at most so many, in order."""
    found: list[_NameEntry] = []
    try:
        descriptor = root.open_bytes(above or b".", DIRECTORY)
    except OSError:
        return found
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if not entry.is_symlink():
                    found.append(_NameEntry(above + os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)))
                if len(found) >= most:
                    break
    except OSError:
        pass  # a directory that cannot be read has no names to offer
    finally:
        os.close(descriptor)
    return sorted(found, key=lambda entry: entry.path)
