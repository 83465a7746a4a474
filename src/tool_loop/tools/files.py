"""What is in a directory, and the lines of a file.

Opens once, asks the descriptor what it is, then reads a bounded part. Knows nothing about how a path
is kept inside the root (`workspace.py`) or how bytes become text (`text.py`).
"""

from __future__ import annotations

import heapq
import os
import stat
from collections.abc import Iterator

from tool_loop.errors import ToolError
from tool_loop.runtime.text import OUTPUT_BYTES, TextFile, decode, shown, window

from .workspace import Root

# Models ask for the next part reliably up to about 200 lines.
READ_LINES = 200

# How far into a file lines are looked for and counted: a tenth of a second when the file is cached.
SCAN_BYTES = 256 << 20

LIST_ENTRIES = 500
_COUNT_ENTRIES = 200_000  # counted in about 0.2 s

# What tools write for themselves; in a listing they only hide what was asked for.
_LEFT_OUT = frozenset((".git", ".hg", ".svn", ".jj", ".DS_Store", "__pycache__", ".hypothesis")) | {
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
}

_KINDS = {
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


def list_dir(root: Root, path: str = ".") -> str:
    """The entries of a directory, one a line: `name/`, `name (size)`, `link -> target`."""
    with root.opened(path, want="directory") as directory:
        if not stat.S_ISDIR(os.fstat(directory).st_mode):
            hint = f'read it with read_file, path "{shown(path)}"'
            raise _invalid(f"not a directory: {shown(path)}", hint)
        names, total, complete = _entries(directory)
        lines = list(_fitting(_described(directory, name) for name in names))
    counted = str(total) if complete else f"at least {total}"
    count = f"{counted} {'entry' if total == 1 else 'entries'} in {shown(path or '.')}"
    if len(lines) < total:
        count = f"{len(lines)} of {count} (truncated; list a directory inside it, or search with grep)"
    return "\n".join([count, *lines])


def _entries(directory: int, most: int = _COUNT_ENTRIES) -> tuple[list[str], int, bool]:
    """The first names in order, how many there are, and whether all were counted."""
    total = 0

    def names() -> Iterator[str]:
        nonlocal total
        for entry in entries:
            if entry.name not in _LEFT_OUT:
                total += 1
                yield entry.name
            if total >= most:
                return

    with os.scandir(directory) as entries:
        first = heapq.nsmallest(LIST_ENTRIES, names())
        complete = next(entries, None) is None
    return first, total, complete


def _described(directory: int, name: str) -> str:
    try:
        info = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISLNK(info.st_mode):
            return f"{shown(name)} -> {shown(os.readlink(name, dir_fd=directory))}"
    except OSError:
        return shown(name)  # it went away, or may not be looked at; its name was there
    if stat.S_ISDIR(info.st_mode):
        return f"{shown(name)}/"
    return f"{shown(name)} ({_KINDS.get(stat.S_IFMT(info.st_mode)) or size(info.st_size)})"


def _fitting(lines: Iterator[str]) -> Iterator[str]:
    used = 0
    for line in lines:
        used += len(line) + 1
        if used > OUTPUT_BYTES:
            return
        yield line


def read_file(root: Root, path: str, start_line: int = 1, end_line: int | None = None) -> str:
    """The lines of a text file below a header that says which, how many there are, and how to go on.

    Lines count from 1, both ends are included, and without `end_line` 200 lines are shown.
    """
    first, last = _range(start_line, end_line)
    with root.opened(path) as descriptor:
        file = text_file(descriptor, path)
        part = window(file, first, last)
    total = part.total if file.complete else f"at least {part.total}"
    if not part.total:
        return _empty(first)
    if not part.lines:
        raise _past_the_end(first, part.total, file)
    lines, encoding = decode(part.lines)
    encoding = encoding or file.encoding
    end = first + len(lines) - 1
    header = f"lines {first}-{end} of {total}"
    if end < part.total and (end_line is None or end < end_line):
        header += f" (truncated; read on with start_line={end + 1})"
    if encoding not in ("", "utf-8"):
        header += f", decoded from {encoding}"
    return "\n".join([header, *lines])


def text_file(descriptor: int, path: str) -> TextFile:
    """The open file as text; raises `ToolError` when it is none."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        raise _invalid(f"is a directory: {shown(path)}", f'list it with list_dir, path "{shown(path)}"')
    if not stat.S_ISREG(mode):
        raise _invalid(f"special file: {shown(path)}", "a FIFO, socket or device is not read")
    file = TextFile(descriptor, SCAN_BYTES)
    if file.binary:
        length = size(os.fstat(descriptor).st_size)
        hint = "it holds no text; grep with this path tells whether a pattern is in it"
        raise _invalid(f"binary file: {shown(path)} ({length})", hint)
    return file


def size(count: int) -> str:
    """A number of bytes for a person."""
    if count < 1024:
        return "1 byte" if count == 1 else f"{count} bytes"
    power = min((count.bit_length() - 1) // 10, 3)
    return f"{count / 1024**power:.1f} {('KiB', 'MiB', 'GiB')[power - 1]}"


def _range(start_line: int, end_line: int | None) -> tuple[int, int]:
    if start_line < 1:
        raise _invalid(f"'start_line' must be at least 1, got {start_line}", "lines count from 1", "start_line")
    if end_line is None:
        return start_line, start_line + READ_LINES - 1
    if end_line < start_line:
        message = f"'end_line' must not be before 'start_line' ({start_line}), got {end_line}"
        raise _invalid(message, "leave end_line out to read on from start_line", "end_line")
    return start_line, end_line


def _empty(first: int) -> str:
    if first > 1:
        raise _invalid(f"'start_line' is past the end: the file is empty, got {first}", "", "start_line")
    return "lines 0-0 of 0 (empty file)"


def _past_the_end(first: int, total: int, file: TextFile) -> ToolError:
    lines = f"{total} {'line' if total == 1 else 'lines'}"
    if not file.complete:
        message = f"'start_line' is too far: {size(SCAN_BYTES)} are read, which hold {lines}, got {first}"
        return _invalid(message, "grep finds text in all of the file", "start_line")
    message = f"'start_line' is past the end: the file has {lines}, got {first}"
    return _invalid(message, f"the last lines start at start_line={max(1, total - READ_LINES + 1)}", "start_line")


def _invalid(message: str, hint: str, field: str = "path") -> ToolError:
    return ToolError(message, kind="invalid_argument", hint=hint, field=field)
