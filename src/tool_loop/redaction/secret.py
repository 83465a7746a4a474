"""A key that cannot be printed, and the removal of a key from what a server sent back.

Knows nothing about HTTP or providers.
"""

from __future__ import annotations

import re
from functools import cache
from threading import Lock
from typing import Final, NoReturn
from weakref import WeakSet

HIDDEN: Final = "[key]"

# A run of the key this long is the key. Shorter ones are words: "sk-", "test-key".
_TELLING: Final = 12
# A key shorter than this ("x", "none", "EMPTY") is a placeholder for a server that wants none. It
# is only removed where it stands alone, or every x of a message would be.
_PLACEHOLDER: Final = 8

# How servers show a key they refuse: `sk-ab**********wxyz`, `sk-ab...wxyz`.
_MASKED: Final = re.compile(r"(?<![\w-])(?P<head>[\w-]*)(?:\*{2,}|\.{3,}|…)(?P<tail>[\w-]*)")


class Secret:
    """A key. `reveal` is the only way to it: it has no text, no hash, no copy and no pickle."""

    __slots__ = ("__weakref__", "_value")

    def __init__(self, value: str) -> None:
        self._value = value
        if value:
            with _LOCK:
                _ALIVE.add(self)

    def reveal(self) -> str:
        return self._value

    def scrub(self, text: str) -> str:
        """The text without the key, nor long parts of it, nor the masked form servers answer with."""
        key = self._value
        if not key or not text:
            return text
        if len(key) < _PLACEHOLDER:
            return re.sub(rf"(?<![\w-]){re.escape(key)}(?![\w-])", HIDDEN, text)
        text = text.replace(key, HIDDEN)
        text = _without_parts(text, key)
        return _MASKED.sub(lambda found: HIDDEN if _shows(found["head"], found["tail"], key) else found[0], text)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not written anywhere")


class SealedHeaders(dict[str, str]):
    """Headers of which only the names are shown, where a traceback or a debugger prints what there is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"SealedHeaders({', '.join(self)})"


# Every key in use, for the exit to logs and traces, where nobody knows any more whose text it is.
_ALIVE: Final[WeakSet[Secret]] = WeakSet()
_LOCK: Final = Lock()  # one thread may log while another makes a model


def alive() -> list[Secret]:
    """The keys that this process holds at the moment."""
    with _LOCK:
        return list(_ALIVE)


def _without_parts(text: str, key: str) -> str:
    """Long parts of the key, as in a message that was cut in the middle of it."""
    for start in range(len(key) - _TELLING + 1):
        if (at := text.find(key[start : start + _TELLING])) >= 0:
            text = _without_part(text, key[start:], at)
    return text


def _without_part(text: str, part: str, at: int) -> str:
    """Without what begins as `part` does, for as long as it goes on so; the first stands at `at`.

    In one pass: a server that sends a key back in ten thousand pieces must not have the text copied
    for each of them.
    """
    kept: list[str] = []
    done = 0
    while at >= 0:
        length = _TELLING
        while length < len(part) and text[at + length : at + length + 1] == part[length]:
            length += 1
        kept += text[done:at], HIDDEN
        done = at + length
        at = text.find(part[:_TELLING], done)
    return "".join(kept) + text[done:]


def _shows(head: str, tail: str, key: str) -> bool:
    if head and tail:
        return len(head) + len(tail) > 3 and key.startswith(head) and key.endswith(tail)
    return (len(head) > 3 and key.startswith(head)) or (len(tail) > 3 and key.endswith(tail))


@cache
def _controls() -> dict[int, str]:
    """Control and bidi characters, each with the escape it is shown as."""
    codes = [*range(0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
    codes += [*range(0xD800, 0xE000), 0x2028, 0x2029, 0xFEFF]
    return {code: " " if code in (9, 10, 13) else rf"\u{code:04x}" for code in codes}


def printable(text: str, most: int = 500) -> str:
    """The text on one line, fit for a terminal: controls and bidi marks escaped, cut to `most` characters."""
    # Cut first: a server may send megabytes, of which nobody reads more than this.
    text = " ".join(text[: most * 4].translate(_controls()).split())
    return text if len(text) <= most else text[: most - 1] + "…"
