r"""Text that is neither UTF-8 nor marked as anything else: bytes of some code page of the last century.

`read_file` shows each such line as latin-1, so a search has to find what is shown there. ripgrep takes a
second pattern in the same pass, in which a letter beyond ASCII is one byte: `na.ve` beside `(?-u:na.ve)`.
That costs next to nothing (measured 98 and 99 ms over a tree of 13,000 files), where a second pass costs as
much as the first. The price is that the second one may fit a line of UTF-8 that the first does not, so
lines in question are asked about once more, alone. Nothing here runs a program.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace

from ._matches import COLUMNS, MatchRecord

# What a letter beyond ASCII can be part of a match by, where the pattern names none.
_ANY_LETTER = re.compile(r"\.|\[\^|\\[DSW]")

_PIECE = re.compile(r"\\.|[\[\]]|[^\\\[\]]", re.DOTALL)


def in_bytes(pattern: str, *, ignore_case: bool) -> str:
    """The pattern for lines in which each byte is a letter; "" where that could find nothing else."""
    if pattern.isascii() and not _ANY_LETTER.search(pattern):
        return ""
    try:
        return f"(?-u:{''.join(_bytes_of(pattern, ignore_case=ignore_case))})"
    except UnicodeEncodeError:
        return ""  # a letter that no such line has


def _bytes_of(pattern: str, *, ignore_case: bool) -> Iterator[str]:
    depth = 0  # of character classes, which may stand in one another
    for piece in _PIECE.findall(pattern):
        depth += (piece == "[") - (piece == "]" and depth > 0)
        if piece.isascii():
            yield piece
            continue
        letter = piece.removeprefix("\\")
        # Outside of UTF-8 only the letters of ASCII are known to have two cases.
        letters = {letter, letter.lower(), letter.upper()} if ignore_case else {letter}
        codes = sorted(f"\\x{_byte(each):02x}" for each in letters if len(each) == 1 and (each == letter or _has(each)))
        yield "".join(codes) if depth else f"(?:{'|'.join(codes)})"


def _byte(letter: str) -> int:
    """The byte of a letter: as Windows has it, or as latin-1, where `read_file` shows a control character."""
    return ord(letter) if ord(letter) < 0x100 else letter.encode("cp1252")[0]


def _has(letter: str) -> bool:
    try:
        return _byte(letter) >= 0x80
    except UnicodeEncodeError:
        return False


def in_question(records: list[MatchRecord]) -> list[MatchRecord]:
    """The matches that only a pattern in bytes may have found although their line is UTF-8."""
    return [one for one in records if one.matched and _is_wide_utf8(one.text) and len(one.text) <= COLUMNS]


def without(records: list[MatchRecord], wrong: Collection[MatchRecord]) -> list[MatchRecord]:
    """The records without wrong matches, which may still stand beside a right one."""
    return [replace(one, matched=False) if one in wrong else one for one in records]


def _is_wide_utf8(line: bytes) -> bool:
    try:
        return not line.decode().isascii()
    except UnicodeDecodeError:
        return False
