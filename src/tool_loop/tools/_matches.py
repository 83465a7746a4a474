"""What a search engine wrote, as records; and records as what a model reads.

Knows nothing about engines but the form of their output: `path NUL line:column:offset:text`, with
dashes for a line of context. A path may hold anything but NUL, line breaks too.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Self

from tool_loop.records import dataclass
from tool_loop.runtime.text import OUTPUT_BYTES, TextFile, decode, shown, utf8_or_latin1, window

from ._beneath import READ
from .workspace import Root

MOST = 100

# A line of this many bytes is shown whole, of a longer one so many bytes around the match.
COLUMNS = 300
_BEFORE = 100
_WIDE_BYTES = 16 << 20

_HEAD = re.compile(rb"(?:(\d+):(\d+):(\d+):|(\d+)-(\d+)-)")
_HEAD_WITHOUT_COLUMN = re.compile(rb"(?:(\d+)():(\d+):|(\d+)-(\d+)-)")
_NOTICE = re.compile(rb" \(found .{1,8} byte around offset \d+\)\n")


@dataclass(frozen=True, slots=True)
class MatchRecord:
    """One line that was found. `column` counts bytes from 1, and is 0 for context or where it is not known."""

    path: bytes
    line: int
    column: int
    offset: int
    text: bytes
    matched: bool

    @property
    def order(self) -> tuple[list[bytes], int]:
        return self.path.split(b"/"), self.line


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to. `more`: there is more than was read; `files`: looked at, where that is known.

    `notes` say what was left out.
    """

    engine: str
    records: Sequence[MatchRecord] = ()
    more: bool = False
    files: int | None = None
    notes: tuple[str, ...] = ()
    binary: bool = False


def parse(out: bytes, *, above: bytes, name: bytes | None, columns: bool) -> tuple[list[MatchRecord], bool]:
    """The records in an engine's output, and whether it says that a binary file matches.

    `above` comes before each path; `name`, when given, in place of it. A record that was cut off is
    left out.
    """
    head = _HEAD if columns else _HEAD_WITHOUT_COLUMN
    records: list[MatchRecord] = []
    position = 0
    while (nul := out.find(b"\0", position)) >= 0:
        match = head.match(out, nul + 1)
        end = out.find(b"\n", match.end() if match else nul)
        if end < 0:
            break
        if match:
            path = name if name is not None else above + _path(out[position:nul])
            line, column, offset, context_line, context_offset = match.groups()
            text = out[match.end() : end]
            if line:
                records.append(MatchRecord(path, int(line), int(column or 0), int(offset), text, matched=True))
            else:
                records.append(MatchRecord(path, int(context_line), 0, int(context_offset), text, matched=False))
        position = end + 1
    return sorted(records, key=lambda record: record.order), b": binary file matches (" in out[position:]


def _path(raw: bytes) -> bytes:
    """The path alone: notices about binary files stand on lines of their own, with nothing to mark them."""
    start = 0
    if b"\n" in raw:
        for notice in _NOTICE.finditer(raw):
            start = notice.end()
    return raw[start:].removeprefix(b"./")


def render(root: Root, found: Found, context: int) -> str:
    """The matches as text; every byte of a line is read through the root."""
    matched = [record for record in found.records if record.matched]
    lines, gone = _lines(root, _wanted(found.records, matched[:MOST], context), context)
    matched = [record for record in matched if record not in gone]
    notes = list(found.notes)
    if gone:
        notes.append(f"{_counted(len(gone), 'line')} changed during the search and left out")
    if not matched:
        return _none(found, notes)
    total, shown_count = len(matched), sum(record.matched for record, _ in lines)
    counted = f"{_counted(total, 'match')} in {_counted(len({record.path for record in matched}), 'file')}"
    if shown_count < total or found.more:
        notes.append("narrow it with path, glob or a longer pattern")
        some = _counted(shown_count, "match")
        counted = f"first {some}, there may be more" if found.more else f"first {shown_count} of {counted}"
    rest = [_rest(matched[shown_count:])] if shown_count < total and not found.more else []
    return "\n".join([f"{counted} ({'; '.join([found.engine, *notes])})", *(text for _, text in lines), *rest])


def _none(found: Found, notes: list[str]) -> str:
    if found.binary:
        return f"binary file matches ({found.engine}; its lines are not text)"
    if found.files == 0:
        why = "all are hidden, ignored or do not fit glob"
        return f"no matches: no file was searched ({'; '.join([found.engine, *notes, why])})"
    searched = [f"{found.files} files searched"] if found.files else []
    why = "hidden and git-ignored files are not searched"
    return f"no matches ({'; '.join([found.engine, *searched, *notes, why])})"


def _wanted(records: Sequence[MatchRecord], matched: Sequence[MatchRecord], context: int) -> list[MatchRecord]:
    """The first matches with their context, in order."""
    if not context:
        return list(matched)
    near = {(m.path, line) for m in matched for line in range(m.line - context, m.line + context + 1)}
    keep = set(matched)
    return [r for r in records if r in keep or (not r.matched and (r.path, r.line) in near)]


def _lines(
    root: Root, records: Sequence[MatchRecord], context: int
) -> tuple[list[tuple[MatchRecord, str]], set[MatchRecord]]:
    """What to show for each record, and the matches that are no longer what was found."""
    lines: list[tuple[MatchRecord, str]] = []
    gone: set[MatchRecord] = set()
    used = 0
    for path, group in groupby(records, key=lambda record: record.path):
        with _Source(root, path) as source:
            for record in group:
                text = source.text(record)
                if text is None:
                    gone |= {record} if record.matched else set()
                    continue
                apart = lines and (lines[-1][0].path, lines[-1][0].line + 1) != (path, record.line)
                mark = ":" if record.matched else "-"
                line = f"{shown(path)}{mark}{record.line}{mark} {text}"
                lines.append((record, f"--\n{line}" if context and apart else line))
                used += len(lines[-1][1]) + 1
                if used > OUTPUT_BYTES:
                    return lines, gone
    return lines, gone


def _counted(count: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def _rest(matched: Sequence[MatchRecord]) -> str:
    counts = Counter(shown(record.path) for record in matched)
    most = ", ".join(f"{name} ({count})" for name, count in counts.most_common(5))
    more = f" and {_counted(len(counts) - 5, 'more file')}" if len(counts) > 5 else ""
    return f"not shown: {most}{more}"


class _Source:
    """One file that was found in, opened again through the root; nothing is there when it went away."""

    def __init__(self, root: Root, path: bytes) -> None:
        self._root = root
        self._path = path
        self._descriptor = -1
        self._file: TextFile | None = None

    def __enter__(self) -> Self:
        try:
            self._descriptor = self._root.open_bytes(self._path, READ)
            self._file = TextFile(self._descriptor, _WIDE_BYTES)
        except OSError:
            self._file = None
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def text(self, record: MatchRecord) -> str | None:
        """The line as it is in the root now; None when it is not what was found."""
        if self._file is None:
            return None
        if self._file.wide:
            return self._wide(record)
        start = record.offset + len(self._file.mark)  # engines count from behind the mark
        text = record.text.removesuffix(b"\r")  # which ripgrep adds where the last line has no end
        whole = len(text) <= COLUMNS
        kept = text if whole else text[: COLUMNS // 4]
        there = os.pread(self._descriptor, len(kept) + 2, start)
        after = there[len(kept) :]
        if not there.startswith(kept) or (
            whole and after not in (b"", b"\r") and not after.startswith((b"\n", b"\r\n"))
        ):
            return None
        if not whole:
            return self._around(record, start)
        return utf8_or_latin1(kept if after else kept.removesuffix(b"\r"))

    def _around(self, record: MatchRecord, start: int) -> str:
        """So much of a long line as surrounds the match."""
        skip = max(0, record.column - 1 - _BEFORE)
        piece = os.pread(self._descriptor, COLUMNS + 1, start + skip).partition(b"\n")[0]
        goes_on = len(piece) > COLUMNS
        text = utf8_or_latin1(piece[:COLUMNS], cut_before=skip > 0, cut_after=goes_on)
        return f"{'...' if skip else ''}{text}{'...' if goes_on else ''}"

    def _wide(self, record: MatchRecord) -> str | None:
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        part = window(TextFile(self._descriptor, _WIDE_BYTES), record.line, record.line)
        return decode(part.lines)[0][0] if part.lines else None
