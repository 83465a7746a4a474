"""What a change does to a file, as the lines a person reads: a unified diff that hides nothing.

Bounded: what is the same at both ends is never compared, and two texts too large to be compared are
shown one after the other. Escaping is the business of whoever shows it. Knows nothing about tools.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from tool_loop.runtime.text import shown

_CONTEXT = 3
# Comparing takes the square of this in the worst case: about 0.1 s.
_MOST_COMPARED = 3_000
_NO_END = "\\ No newline at end of file"


def diff(path: str, before: bytes | None, after: bytes, coding: str = "utf-8") -> str:
    """A unified diff; "" where nothing changes.

    Lines end at a line feed and nowhere else, so that a carriage return or a U+2028 is seen as what
    it is. Only where all of both have CRLF is that said once, in the header.
    """
    if before == after:
        return ""
    name = shown(path)
    old, new = _text(before or b"", coding), _text(after, coding)
    ends = ""
    if _all_crlf(old) and _all_crlf(new) and "\r" in old + new:
        old, new, ends = old.replace("\r\n", "\n"), new.replace("\r\n", "\n"), " (lines end in CRLF)"
    header = ["--- /dev/null" if before is None else f"--- a/{name}", f"+++ b/{name}{ends}"]
    if before is not None and b"\0" in before and coding == "utf-8":
        old = f"[binary, {len(before):,} bytes]"
    return "\n".join([*header, *_hunks(_lines(old), _lines(new))])


def _text(data: bytes, coding: str) -> str:
    return data.decode(coding, "backslashreplace")


def _all_crlf(text: str) -> bool:
    return text.count("\r\n") == text.count("\n") == text.count("\r")


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    else:
        lines[-1] += f"\n{_NO_END}"
    return lines


def _hunks(old: list[str], new: list[str]) -> Iterator[str]:
    least = min(len(old), len(new))
    start = next((n for n in range(least) if old[n] != new[n]), least)
    end = next((n for n in range(least - start) if old[-1 - n] != new[-1 - n]), least - start)
    first, last = max(0, start - _CONTEXT), max(0, end - _CONTEXT)
    a, b = old[first : len(old) - last], new[first : len(new) - last]
    if max(len(a), len(b)) <= _MOST_COMPARED:
        for group in difflib.SequenceMatcher(None, a, b, autojunk=False).get_grouped_opcodes(_CONTEXT):
            yield _header(first, group[0], group[-1])
            for tag, i1, i2, j1, j2 in group:
                if tag == "equal":
                    yield from (f" {line}" for line in a[i1:i2])
                else:
                    yield from (f"-{line}" for line in a[i1:i2])
                    yield from (f"+{line}" for line in b[j1:j2])
        return
    whole = ("replace", 0, len(a), 0, len(b))
    yield _header(first, whole, whole)
    yield from (f"-{line}" for line in a)
    yield from (f"+{line}" for line in b)


def _header(first: int, begin: tuple[str, int, int, int, int], end: tuple[str, int, int, int, int]) -> str:
    old, new = _range(first + begin[1], end[2] - begin[1]), _range(first + begin[3], end[4] - begin[3])
    return f"@@ -{old} +{new} @@"


def _range(start: int, length: int) -> str:
    return f"{start + (length > 0)},{length}" if length != 1 else f"{start + 1}"
