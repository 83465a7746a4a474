"""Bytes of a disk as text a model can read: names, encodings, lines of files of any size.

Knows nothing about roots, tools or models. Memory stays within a few MiB whatever the file is.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

CHUNK = 1 << 20

# The longest line shown whole; a page of source has none, a line of data has no end.
LINE_BYTES = 1_000

# About 7,000 tokens. Below the limit of the harness around every tool (30,000 characters), which can
# only cut: a tool that stops by itself can say how to read on.
OUTPUT_BYTES = 28_000

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before utf-16-le, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

# Control characters, marks that turn the direction of text, and bytes that are no UTF-8 (lone
# surrogates): a name that holds one would break a line, or look like another name. So would one with a
# blank that is none of the keyboard's: macOS puts U+202F into the names of screenshots.
_ODD = re.compile("[\x00-\x1f\x7f-\x9f\\\\\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_BLANK = re.compile("[\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_COMBINED = re.compile("[\u0300-\u036f\u1dc0-\u1dff\u20d0-\u20ff\u3099\u309a]")
_ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|([nrt\\]))")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
_LONG = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}


def shown(name: str | bytes) -> str:
    r"""A file name on one line and in valid UTF-8; a byte that is none is written `\xff`, a blank
    that is not the usual one `\u00a0`.
    """
    return _BLANK.sub(_escape, plain(name))


def plain(name: str | bytes) -> str:
    """`shown`, but with every blank as it is: what a new file may be called."""
    return _ODD.sub(_escape, os.fsdecode(name))


def exactly(name: str | bytes) -> str:
    """`shown`, with the marks that are combined with a letter as well, for names that look alike."""
    return _COMBINED.sub(_escape, shown(name))


def unshown(name: str) -> str:
    """The name that `shown` wrote this way, so that a model can give back what it read."""
    return _ESCAPED.sub(_unescape, name)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if 0xDC80 <= code <= 0xDCFF:  # how os.fsdecode carries a byte that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}"


def _unescape(match: re.Match[str]) -> str:
    byte, code, letter = match.groups()
    if letter:
        return _LONG[letter]
    number = int(byte or code, 16)
    return chr(0xDC00 + number if byte and number >= 0x80 else number)


def read(descriptor: int, size: int) -> bytes:
    """Up to `size` bytes. Less only at the end of the file: a short read is not an end."""
    parts: list[bytes] = []
    while size > 0 and (part := os.read(descriptor, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def decoded(data: bytes) -> str:
    """Bytes as text: by the mark they begin with, which is not part of it, else as UTF-8."""
    mark, encoding = next(((mark, name) for mark, name in _BOMS if data.startswith(mark)), (b"", "utf-8"))
    return data[len(mark) :].decode(encoding, "replace")


class TextFile:
    """The bytes of an open file as chunks in which a line ends with a line feed byte.

    Wide encodings come out as UTF-8. Stops after `limit` bytes; `complete` says whether the end of
    the file came before.
    """

    def __init__(self, descriptor: int, limit: int) -> None:
        self._descriptor = descriptor
        self._left = limit
        self._head = read(descriptor, 8192)
        self.mark, self.encoding = next(((m, name) for m, name in _BOMS if self._head.startswith(m)), (b"", ""))
        self.wide = self.encoding.startswith(("utf-16", "utf-32"))
        self.binary = not self.wide and b"\0" in self._head
        self.complete = False

    def __iter__(self) -> Iterator[bytes]:
        if not self.wide:
            yield from self._raw()
            return
        decoder = codecs.getincrementaldecoder(self.encoding)("replace")
        for chunk in self._raw():
            yield decoder.decode(chunk).encode()
        yield decoder.decode(b"", final=True).encode()

    def _raw(self) -> Iterator[bytes]:
        chunk = self._head[len(self.mark) :]
        while self._left > 0:
            if chunk:
                yield chunk
            self._left -= len(chunk)
            chunk = os.read(self._descriptor, min(CHUNK, max(1, self._left)))
            if not chunk:
                self.complete = True
                return


@dataclass(slots=True)
class TextLine:
    """The beginning of a line and its real length in bytes; `open` when its end was not reached."""

    kept: bytes = b""
    length: int = 0
    open: bool = False

    def add(self, piece: bytes) -> None:
        self.length += len(piece)
        if len(self.kept) < LINE_BYTES:
            self.kept += piece[: LINE_BYTES - len(self.kept)]


@dataclass(frozen=True, slots=True)
class Window:
    """Some lines of a file, and how many lines were counted in all of it."""

    lines: tuple[TextLine, ...]
    total: int


def window(file: TextFile, first: int, last: int) -> Window:
    """Lines `first` to `last` (from 1, both included) as far as they fit into one result.

    The file is read on to its end or limit, to count the lines.
    """
    kept: list[TextLine] = []
    line, number, size, ended = TextLine(), 1, 0, True
    for chunk in file:
        position, number = _forward(chunk, number, first)
        while number >= first and position < len(chunk) and number <= last and size < OUTPUT_BYTES:
            end = chunk.find(b"\n", position)
            line.add(chunk[position : end if end >= 0 else len(chunk)])
            position = end + 1 if end >= 0 else len(chunk)
            if end >= 0:
                kept.append(line)
                size += len(line.kept) + 1
                line, number = TextLine(), number + 1
        number += chunk.count(b"\n", position)
        ended = chunk.endswith(b"\n") if chunk else ended
    if line.length and first <= number <= last:
        line.open = not file.complete
        kept.append(line)
    return Window(tuple(kept), number - 1 if ended else number)


def _forward(chunk: bytes, number: int, first: int) -> tuple[int, int]:
    """Where line `first` begins in the chunk, or its end; and the number of the line there."""
    if number >= first:
        return 0, number
    inside = chunk.count(b"\n")
    if number + inside < first:
        return len(chunk), number + inside
    position = 0
    while number < first:
        position, number = chunk.index(b"\n", position) + 1, number + 1
    return position, number


def decode(lines: tuple[TextLine, ...]) -> tuple[list[str], str]:
    """The lines as text, and "latin-1" when there is one that is not valid UTF-8, else "".

    Line by line, as they are searched: one broken byte must not garble the letters of all the others.
    """
    texts, encoding = [], ""
    for line in lines:
        try:
            text = _utf8(line)
        except UnicodeDecodeError:
            text, encoding = line.kept.decode("latin-1"), "latin-1"
        texts.append(_visible(text, line))
    return texts, encoding


def utf8_or_latin1(piece: bytes, *, cut_before: bool = False, cut_after: bool = False) -> str:
    """A piece of a line as text. A character that is cut at an end is left out."""
    start = 0
    while cut_before and start < min(3, len(piece)) and 0x80 <= piece[start] < 0xC0:
        start += 1
    try:
        text = codecs.utf_8_decode(piece[start:], "strict", not cut_after)[0]
    except UnicodeDecodeError:
        text = piece.decode("latin-1")
    return text.replace("\0", "\\x00")


def _utf8(line: TextLine) -> str:
    # A line that was cut may end in the middle of a character; the rest of it is left out.
    return codecs.utf_8_decode(line.kept, "strict", line.length == len(line.kept))[0]


def _visible(text: str, line: TextLine) -> str:
    # A NUL far into a text file (a log after a crash) is shown: several servers refuse U+0000.
    text = text.replace("\0", "\\x00")
    if line.length > len(line.kept):
        at_least = "at least " if line.open else ""
        return f"{text}... [cut: the line has {at_least}{line.length} bytes]"
    return text.removesuffix("\r")
