"""Text that a person decides by: every character either shows as itself, or is spelled out.

What is shown decodes to exactly one text. So a backslash is doubled, and whatever looks like nothing,
joins its neighbour, moves it, or is drawn as another character is escaped. What stays is that some
letters of two alphabets are drawn alike: a whole word in the other one shows as it is, a word that
mixes them does not. Knows nothing about terminals or calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e", "\0": "\\0"}

# Printable and no mark by Unicode's own classes, and yet they are drawn as nothing or as a blank: the
# fillers of Hangul, an empty note, braille without dots, blanks among the hieroglyphs. The vowels and
# finals of Hangul are drawn into the letter before them, as the one syllable that has a code of its own.
_DRAWN_AS_NOTHING: Final = frozenset("\u115f\u2800\u3164\uffa0\ufffc\U0001d159\U00013441\U00013442") | {
    chr(code) for code in (*range(0x1160, 0x1200), *range(0xD7B0, 0xD800))
}

_WORD: Final = re.compile(r"[^\W\d_]+")
_FROM_THE_RIGHT: Final = frozenset(("R", "AL", "AN"))


def escaped(character: str) -> str:
    r"""The character spelled out as in a Python string; an escape is `\e`."""
    code = ord(character)
    if character in SHORT:
        return SHORT[character]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def exact(text: str) -> str:
    """One line that decodes to this text and to no other: backslashes doubled, what does not show escaped."""
    return _spelled(text, _of_one_length, "\\\\")


def exact_json(value: object) -> str:
    """The value as JSON on one line; reading it back gives the value, and what does not show is escaped."""
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str):
        return f'"{_spelled(text[1:-1], _as_json, None)}"'
    return _spelled(text, _as_json, None)


def _of_one_length(character: str) -> str:
    return escaped(character) if character != "\0" else "\\x00"  # a digit may follow: \01 is another character


def _as_json(character: str) -> str:
    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"


def _spelled(text: str, escape: Callable[[str], str], backslash: str | None) -> str:
    if text.isascii() and text.isprintable():
        return text.replace("\\", backslash) if backslash else text
    spelled = {ord(c): escape(c) for c in set(text) if not _shows(c)}
    if backslash:
        spelled[ord("\\")] = backslash
    spelled |= {ord(c): escape(c) for c in _turned(text) | _mixed(text)}
    return text.translate(spelled)


def _shows(character: str) -> bool:
    """Whether it is drawn as itself, wherever it stands."""
    if character.isascii():
        return character.isprintable()
    from unicodedata import category, normalize  # only text that is not ASCII needs it

    return (
        character.isprintable()
        and not category(character).startswith("M")  # accents, overlays, joiners, selectors
        and character not in _DRAWN_AS_NOTHING
        and normalize("NFC", character) == character  # a second code for the very same letter
    )


def _turned(text: str) -> set[str]:
    """Letters that are written from the right, unless the text has nothing else: a terminal that turns
    them round moves what stands between and beside them, so that two texts are drawn as one."""
    if text.isascii():
        return set()
    from unicodedata import bidirectional

    found = {c for c in set(text) if bidirectional(c) in _FROM_THE_RIGHT}
    return found if found and any(c not in found and c != " " for c in text) else set()


def _mixed(text: str) -> set[str]:
    """Letters of other alphabets in a word with Latin ones, where they pass for them."""
    if text.isascii():
        return set()
    from unicodedata import east_asian_width, name

    found: set[str] = set()
    for word in _WORD.findall(text):
        if not word.isascii() and any(c.isascii() for c in word):
            found |= {
                c
                for c in word
                if not c.isascii() and not name(c, "").startswith("LATIN ") and east_asian_width(c) not in ("W", "H")
            }
    return found
