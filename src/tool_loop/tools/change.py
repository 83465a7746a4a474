"""A change of one file: worked out first, then shown, and then made, or refused if the file is another by then.

Whole files, and exact text in the place of exact text. Nothing is matched loosely: an edit that fits
somewhere else than was meant is worse than one that is refused with the lines that are really there.
Nor does a file have to be read first: the exact text is the proof that it was.
Knows nothing about models, approvals or journals.
"""

from __future__ import annotations

import codecs
import errno
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from tool_loop.errors import ToolError
from tool_loop.runtime.text import shown
from tool_loop.sandbox.protected import protected

from ._diff import diff
from ._nearest import differing, nearest
from ._place import MOST_BYTES, current, invalid, place, refusal
from ._store import forget, store
from .workspace import Root

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before utf-16-le, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ABSENT = "-"
_IN_FILE = 4_000  # characters of the file that a failure carries


@dataclass(frozen=True, slots=True)
class Change:
    """What a call would do to a file, seen from now. `before` is None for a file that is not there yet."""

    parts: tuple[str, ...]
    before: bytes | None
    after: bytes
    note: str
    coding: str = "utf-8"
    repository: str = ""

    @property
    def mark(self) -> str:
        """Digests of the file before and after, and of where it is: what tells later whether it happened."""
        where = hashlib.sha256("/".join(self.parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return f"{_digest(self.before)}:{_digest(self.after)}:{where}"

    @property
    def protected(self) -> str | None:
        return protected(self.parts) or self.repository or None

    def diff(self) -> str:
        return diff("/".join(self.parts), self.before, self.after, self.coding)


def written(root: Root, path: str, content: str) -> Change:
    """The change that makes `content` all of the file. Raises `ToolError`."""
    data = _utf8(content, "content")
    if len(data) > MOST_BYTES:
        raise invalid(
            f"'content' has {len(data):,} bytes; at most {MOST_BYTES >> 20} MiB are written",
            "let a program write it",
            "content",
        )
    with place(root, path) as spot:
        before, _ = current(spot, path)
        note = f"wrote {spot.path}: {_counted(data)}"
        if before is None:
            note += ", a new file"
        elif before == data:
            note = f"{spot.path} has exactly this content already ({_counted(data)})"
        else:
            note += f", in place of {_counted(before)}"
            if b"\r\n" in before and b"\r\n" not in data:
                note += "; its lines ended in CRLF and end in LF now"
        return Change(spot.parts, before, data, note, repository=spot.repository)


def edited(root: Root, path: str, old: str, new: str, every: bool = False) -> Change:
    """The change that puts `new` in the place of `old`: of the one place it is at, or of each with `every`.

    Line ends, encoding and byte order mark stay what they are in the file. Raises `ToolError`, with
    the lines that are really there when `old` is not.
    """
    if not old:
        raise invalid(
            "'old' is empty", "give the text to replace; write_file makes a file or replaces all of it", "old"
        )
    if old == new:
        raise invalid("'old' and 'new' are the same, so nothing would change", "", "new")
    _utf8(old, "old")
    _utf8(new, "new")
    with place(root, path) as spot:
        before, _ = current(spot, path)
        if before is None:
            raise refusal(root, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)), path)
        text = _Text(before, old, path)
        at, used, put = text.find(old, new, overlap=not every)
        if not at:
            raise _not_there(text.body, old, path)
        lines = _lines_of(text.body, at)
        if len(at) > 1 and not every:
            raise invalid(
                f"'old' is in {shown(path)} {len(at)} times, at lines {_listed(lines)}",
                "add the lines before or after it to 'old' until it fits one place; all=true changes each",
                "old",
                lines=lines[:20],
            )
        after = text.encoded(text.body.replace(used, put))
        if len(after) > MOST_BYTES:
            raise invalid(f"the file would have {len(after):,} bytes; at most {MOST_BYTES >> 20} MiB", "", "new")
        where = f"line {lines[0]}" if len(lines) == 1 else f"{len(lines)} places, lines {_listed(lines)}"
        note = f"edited {spot.path} at {where}: {_span(used)} -> {_span(put)}"
        return Change(spot.parts, before, after, note + text.told, text.coding, spot.repository)


def make(root: Root, path: str, change: Change, key: str = "") -> str:
    """Make the change, durably and in one step; returns what to tell about it.

    Raises `ToolError`, of kind `conflict` when the file is not the one the change was worked out on.
    """
    with place(root, path) as spot:
        now, info = current(spot, path)
        if now != change.before or spot.parts != change.parts:
            raise conflict(path)
        if now != change.after:
            try:
                store(spot, change.after, info, key)
            except FileExistsError:
                raise conflict(path) from None
    return change.note


def happened(root: Root, path: str, mark: str, key: str = "") -> bool | None:
    """Whether the change with this mark was made; None when the file is neither the old nor the new."""
    before, after, *_ = f"{mark}::".split(":")
    with place(root, path) as spot:
        forget(spot, key)
        now = _digest(current(spot, path)[0])
    return True if now == after else False if now == before else None


def conflict(path: str) -> ToolError:
    return invalid(
        f"{shown(path)} was changed by somebody else in the meantime, so nothing was done",
        "read it again",
        kind="conflict",
    )


class _Text:
    """The text of a file, with what it takes to write it back byte for byte."""

    def __init__(self, data: bytes, old: str, path: str) -> None:
        self.mark, self.coding = next(((m, name) for m, name in _BOMS if data.startswith(m)), (b"", "utf-8"))
        body = data[len(self.mark) :]
        if self.coding == "utf-8" and b"\0" in data[:8192]:
            raise invalid(f"binary file: {shown(path)}", "only text is edited; a program can change it")
        self.path, self.told = path, ""
        try:
            self.body = body.decode(self.coding)
        except UnicodeDecodeError:
            if self.coding != "utf-8":
                raise invalid(f"not valid {self.coding}: {shown(path)}", "a program can change it") from None
            self.body = self._decoded(body, old)

    def _decoded(self, body: bytes, old: str) -> str:
        """Neither UTF-8 nor anything that says what it is. Most of it may be UTF-8 all the same: then the
        other bytes are carried along. Else a byte is a character, as `read_file` shows it."""
        mostly = body.decode("utf-8", "surrogateescape")
        if not old.isascii() and old in mostly:
            self.coding, self.told = "utf-8", ", which is not all UTF-8"
            return mostly
        self.coding, self.told = "latin-1", ", in latin-1"
        return body.decode("latin-1")

    def find(self, old: str, new: str, *, overlap: bool) -> tuple[list[int], str, str]:
        """Where the text is, and both texts with the line ends of the file.

        With `overlap` also where one begins inside of another: then it is not clear which one is meant.
        """
        crlf = self.body.count("\r\n")
        bare = self.body.count("\n") - crlf
        if crlf and not bare:
            forms = [(_crlf(old), _crlf(new))]
        elif crlf:
            mixed = new if "\n" in old or crlf < bare else _crlf(new)
            forms = [(old, mixed), (_crlf(old), _crlf(new)), (_lf(old), _lf(new))]
        else:
            forms = [(old, new)] + ([(_lf(old), _lf(new))] if bare and "\r\n" in old else [])
        for used, put in forms:
            if at := list(_places(self.body, used, 1 if overlap else len(used))):
                return at, used, put
        return [], old, new

    def encoded(self, text: str) -> bytes:
        errors = "surrogateescape" if self.coding == "utf-8" else "strict"
        try:
            return self.mark + text.encode(self.coding, errors)
        except UnicodeEncodeError as error:
            what = ascii(text[error.start : error.end][:20])
            raise invalid(
                f"'new' has {what}, which {shown(self.path)} cannot hold: it is {self.coding}", "", "new"
            ) from None


def _not_there(text: str, old: str, path: str) -> ToolError:
    """Not found, and the answer: the lines most like it as they are in the file, and what differs."""
    near = nearest(text, old)
    if near is None:
        return invalid(
            f"'old' is not in {shown(path)}, and nothing like it is",
            f"read_file {shown(path)} shows what is in it",
            "old",
        )
    said = f"'old' is not in {shown(path)}; the nearest is at lines {near.first}-{near.last}"
    in_file = "\n".join(near.lines)
    if len(in_file) > _IN_FILE:
        hint = f"read_file with start_line={near.first} and end_line={near.last} shows them exactly"
        return invalid(said + (f": {near.why}" if near.why else ""), hint, "old", in_file=in_file[:_IN_FILE])
    error = invalid(said, "use the text of in_file as 'old', exactly", "old", in_file=in_file)
    if near.why:
        error.message += f": {near.why}"
    else:
        error.fields["differs"] = differing(old, near.lines)
    return error


def _places(text: str, old: str, step: int) -> Iterator[int]:
    at = text.find(old)
    while at >= 0:
        yield at
        at = text.find(old, at + step)


def _lines_of(text: str, places: list[int]) -> list[int]:
    found, number, position = [], 1, 0
    for at in places:
        number += text.count("\n", position, at)
        position = at
        found.append(number)
    return found


def _listed(lines: list[int]) -> str:
    return ", ".join(map(str, lines[:10])) + (" ..." if len(lines) > 10 else "")


def _utf8(text: str, field: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise invalid(f"{field!r} is not valid Unicode", "", field) from None


def _crlf(text: str) -> str:
    return _lf(text).replace("\n", "\r\n")


def _lf(text: str) -> str:
    return text.replace("\r\n", "\n")


def _counted(data: bytes) -> str:
    lines = data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))
    return "1 line" if lines == 1 else f"{lines} lines"


def _span(text: str) -> str:
    lines = text.count("\n") + (bool(text) and not text.endswith("\n"))
    return "1 line" if lines == 1 else f"{lines} lines"


def _digest(data: bytes | None) -> str:
    return _ABSENT if data is None else hashlib.sha256(data).hexdigest()[:32]
