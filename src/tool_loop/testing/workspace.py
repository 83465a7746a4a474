"""A folder for tools to work in, with everything that makes files difficult.

Knows nothing about tools: it writes what it is told, links that lead nowhere included.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from tool_loop.errors import UsageError


@dataclass(frozen=True, slots=True)
class File:
    """A file with a mode of its own. A `size` beyond the content makes it sparse: it takes no room."""

    content: str | bytes = b""
    mode: int = 0o644
    size: int = 0


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder, for one that is empty or has a mode of its own. The mode is set when all is in it."""

    mode: int = 0o755


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link to `to`, word for word: outside of the workspace, or nowhere, if it says so."""

    to: str


@dataclass(frozen=True, slots=True)
class Fifo:
    """A named pipe: to open it for reading blocks until somebody writes."""


Entry: TypeAlias = "str | bytes | File | Folder | Link | Fifo"


@contextmanager
def workspace(files: Mapping[str, Entry] | None = None, root: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """A folder with these files, by their path with slashes. Text is written as UTF-8, newlines as they are.

    Missing folders are made. The folder is temporary and deleted at the end; with `root`, the files
    are put there and stay, with modes by which they can be deleted. Raises UsageError for a path that
    leads out of the folder, before anything is written.
    """
    entries = {_inside(path): entry for path, entry in (files or {}).items()}
    if root is not None:
        with _filled(Path(root), entries):
            yield Path(root)
        return
    with tempfile.TemporaryDirectory(prefix="workspace-") as folder:
        # Resolved, because the folder for temporary files may itself be a link, as on macOS.
        path = Path(folder).resolve()
        with _filled(path, entries):
            yield path


def _inside(path: str) -> PurePosixPath:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise UsageError(f"{path!r} is not a path inside of the workspace: leave out the leading slash and '..'")
    return pure


@contextmanager
def _filled(root: Path, entries: Mapping[PurePosixPath, Entry]) -> Iterator[None]:
    modes: list[tuple[Path, int]] = []
    for relative, entry in entries.items():
        path = root / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = _make(path, entry)
        if mode is not None:
            modes.append((path, mode))
    # The innermost first: a folder that may not be entered hides what is in it.
    modes.sort(key=lambda item: -len(item[0].parts))
    for path, mode in modes:
        path.chmod(mode)
    try:
        yield
    finally:
        for path, _ in reversed(modes):
            if path.exists() and not path.is_symlink():
                path.chmod(0o755)


def _make(path: Path, entry: Entry) -> int | None:
    """Write one entry; the mode it is to have in the end, where it has one."""
    if isinstance(entry, Link):
        path.symlink_to(entry.to)
        return None
    if isinstance(entry, Fifo):
        os.mkfifo(path)
        return None
    if isinstance(entry, Folder):
        path.mkdir(exist_ok=True)
        return entry.mode
    file = entry if isinstance(entry, File) else File(entry)
    path.write_bytes(file.content.encode() if isinstance(file.content, str) else file.content)
    if file.size:
        os.truncate(path, file.size)
    return file.mode
