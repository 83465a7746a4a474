"""Content made fit for a page: escaped, its invisible characters made visible, nothing of it trusted.

Everything a model, a tool, a server or a person wrote passes through `escaped` (between tags) or
`attribute` (inside quotes). Knows nothing about runs.
"""

from __future__ import annotations

import html
import json
import math
import re
from typing import Any, Final

from tool_loop.runtime.strict import once_each

# Characters that a reader cannot see, or that change how their neighbours are read: controls, bidi
# marks, zero-width and filler characters, "tags" and selectors (which smuggle text past the eye), line
# separators that HTML does not break at, and halves of surrogate pairs (which cannot even be written as
# UTF-8). Left alone are the joiners U+200C and U+200D and the selectors of emoji, which text needs.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U00013430-\U00013455"
    "\U00016fe4\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)

# A text longer than this is cut in the middle: a browser that lays out more of one block than this
# no longer scrolls. Whoever needs all of it has the journal.
MOST_CHARS: Final = 2_000_000


# JSON nested deeper than this is shown as it came: two spaces more per level make megabytes of a line
# of brackets.
DEEPEST: Final = 40


def escaped(text: str) -> str:
    """The text as HTML: markup means nothing, line breaks stay, what is invisible is shown as a mark."""
    return _UNSEEN.sub(lambda m: f"<b class=u>{_mark(m[0])}</b>", html.escape(_whole_lines(text), quote=False))


def attribute(text: str) -> str:
    """The text inside a double-quoted attribute."""
    return _UNSEEN.sub(lambda m: _mark(m[0]), html.escape(_whole_lines(text), quote=True))


def block(text: str) -> str:
    """A scrollable block of text as it came."""
    if len(text) > MOST_CHARS:
        half = MOST_CHARS // 2
        gone = f"{len(text) - MOST_CHARS:,} characters left out here; the journal has them"
        return f"<pre>{escaped(text[:half])}</pre><p class=cut>{gone}</p><pre>{escaped(text[-half:])}</pre>"
    return f"<pre>{escaped(text)}</pre>" if text else "<p class=cut>empty</p>"


def line(text: str, most: int) -> str:
    """The beginning of the text on one line, not escaped yet."""
    # Cut before splitting: a megabyte needs no splitting to be shown in a hundred characters.
    flat = " ".join(text[: most * 8].split())
    return flat if len(flat) <= most and len(text) <= most * 8 else flat[: most - 1] + "…"


def pretty(text: str) -> str:
    """JSON with one field per line; anything else as it came."""
    value = parsed(text)
    return _said(value, indent=2) if isinstance(value, dict | list) and value else text


def parsed(text: str) -> Any:
    """The JSON value; None where there is none, or where showing it would hide a part of the text."""
    if not text[:64].lstrip().startswith(("{", "[")):
        return None
    try:
        value = json.loads(text, object_pairs_hook=once_each)
    except (ValueError, RecursionError):
        return None
    return value if _shallow(value, DEEPEST) else None


def fields(text: str) -> dict[str, str] | None:
    """A JSON object as names and values, each value as a person reads it; None for anything else."""
    value = parsed(text)
    if not isinstance(value, dict):
        return None
    return {name: _plain(it) if isinstance(it, str) else _said(it, indent=2) for name, it in value.items()}


def arguments(text: str, most: int) -> str:
    """Arguments on one line, as a person would say them: path="a.py" start_line=3. Not escaped yet."""
    value = parsed(text)
    if not isinstance(value, dict):
        return line(text, most)
    parts: list[str] = []
    room = most
    for name, given in value.items():
        if room <= 0:
            break
        parts.append(f"{name}={_said(given[:most] if isinstance(given, str) else given)}")
        room -= len(parts[-1]) + 1
    return line(" ".join(parts), most)


def seconds(value: float) -> str:
    """A duration as a person says it: 840 ms, 3.2 s, 2 m 05 s, 3 h 12 m; "?" for what is none."""
    if not 0 <= value < math.inf:
        return "?"
    if value < 0.9995:
        return f"{value * 1000:.0f} ms" if value >= 0.0005 or value == 0 else "<1 ms"
    if value < 59.95:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 172_800:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def count(value: int) -> str:
    """A number of tokens, short: 812, 12.4k, 3.1M."""
    if value < 10_000:
        return f"{value:,}"
    return f"{value / 1000:.1f}k" if value < 999_950 else f"{value / 1_000_000:.1f}M"


def dollars(value: float) -> str:
    """Money: never rounded down to nothing."""
    if value == 0:
        return "$0"
    return f"${value:.2f}" if value >= 1 else f"${value:.4f}" if value >= 0.0001 else "<$0.0001"


def many(number: int, one: str, more: str = "") -> str:
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def _shallow(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(levels > 0 and _shallow(item, levels - 1) for item in inner)


def _said(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False)


def _plain(text: str) -> str:
    """A string without its quotes, unless it would then look like something else: "5" is not 5."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text if text.strip() else _said(text)
    return _said(text)


def _whole_lines(text: str) -> str:
    # A page's own line break is LF; a lone CR would be turned into one by the parser and vanish.
    return text.replace("\r\n", "\n") if "\r" in text else text


def _mark(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)  # the picture of the control: an escape sequence stays readable
    return "\u2421" if code == 0x7F else f"U+{code:04X}"
