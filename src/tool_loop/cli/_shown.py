"""A call as a person sees it who decides about it: all of it, in a form that reads back as one call only.

Every line of it begins in a way that no content can imitate, also where a long one is broken. What does
not fit a screen is folded, and says by how much: what has scrolled away was not seen. Knows nothing
about questions and answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from tool_loop.console.terminal import width
from tool_loop.console.unseen import exact, exact_json
from tool_loop.runtime.strict import once_each

if TYPE_CHECKING:
    from tool_loop.console.terminal import Terminal
    from tool_loop.events import ToolCall

# Longer ones nobody reads to their end, and who has not read it does not know what would be allowed.
MOST_CHARS = 50_000

# How a line begins that goes on where the one before was broken; no other line begins so.
GOES_ON = "    > "
# As many lines that are all the same are said in one.
_ALIKE = 4
# Kept free below a call: what is asked, what can be answered, and the answer.
_BELOW = 8


# How the lines of a diff begin, and in which style they are shown.
_DIFF = {"    | +": "green", "    | -": "red", "    | @": "cyan"}


def too_long(call: ToolCall, preview: str = "") -> bool:
    """Whether it cannot be shown whole, and so cannot be allowed."""
    return len(call.arguments) > MOST_CHARS or len(preview) > MOST_CHARS


def shown_call(
    call: ToolCall, description: str = "", columns: int | None = None, preview: str = "", *, complete: bool = False
) -> Iterator[str]:
    """The whole call, line by line, broken at so many columns; every character that does not show as
    itself is escaped. One of more than `MOST_CHARS` is not shown whole, and says so.

    `preview` is what it would do, as text; where that is `complete`, the arguments are not shown beside it.
    """
    for line in _lines(call, description, preview, complete=complete):
        yield from broken(line, columns) if columns else (line,)


def coloured(line: str, terminal: Terminal) -> str:
    """A line of a diff in the colour of what it says."""
    return terminal.style(line, style) if (style := _DIFF.get(line[:7])) else line


def screenful(lines: Sequence[str], terminal: Terminal) -> list[str]:
    """The lines, if a person at this terminal sees all of them at once; else their beginning and end, with
    a line between that says how much is missing. `fits` tells which of the two it is."""
    if fits(lines, terminal):
        return list(lines)
    room = _room(terminal) - 1
    head = room - room // 2
    hidden = lines[head : len(lines) - room // 2]
    size = sum(map(len, hidden))
    return [
        *lines[:head],
        f"    ... {len(hidden):,} lines, {size:,} characters are folded here ...",
        *lines[-(room // 2) :],
    ]


def fits(lines: Sequence[str], terminal: Terminal) -> bool:
    return len(lines) <= _room(terminal)


def _room(terminal: Terminal) -> int:
    return max(8, terminal.rows - _BELOW)


def _lines(call: ToolCall, description: str, preview: str, *, complete: bool) -> Iterator[str]:
    said = " ".join(description[:1000].split())
    yield f"{exact(call.name)} wants to run" + (f": {exact(said[:200])}" if said else "")
    if too_long(call, preview):
        much = call.arguments if len(call.arguments) > MOST_CHARS else preview
        yield f"  {exact(much[:1000])}... ({len(much):,} characters)"
        return
    if preview:
        yield from _text(preview)
        if complete:
            return
    arguments = _object(call.arguments)
    if arguments is None:
        yield f"  {exact(call.arguments)}"
        return
    for name, value in arguments.items():
        if isinstance(value, str) and "\n" in value:
            yield f"  {_name(name)}:"
            yield from _text(value)
        else:
            yield f"  {_name(name)}: {exact_json(value)}"


def _text(value: str) -> Iterator[str]:
    """Text of several lines is read better as such; each line stands behind a bar of its own, so that none
    can pass for a field."""
    for line, same in groupby(value.split("\n")):
        shown, count = f"    | {exact(line)}", sum(1 for _ in same)
        if shown.endswith(" ") and line:
            shown = f"{shown[:-1]}\\x20"  # at the end of a line nobody sees it
        yield from [shown] * (count if count < _ALIKE else 1)
        if count >= _ALIKE:
            yield f"    ({count - 1:,} more lines like this one)"


def _name(name: str) -> str:
    shown = exact(name)
    return shown if shown and not set(" :\"'|(") & set(shown) else exact_json(name)


def _object(text: str) -> dict[str, object] | None:
    """The arguments; None where showing them field by field would not show what was sent."""
    try:
        value = json.loads(text or "{}", object_pairs_hook=once_each)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def broken(line: str, columns: int) -> Iterator[str]:
    """The line in pieces that fit. Left to the terminal, the rest of it would begin where a line begins,
    and a value could draw a field that is not there."""
    room, start = max(20, columns), ""
    while True:
        used, at = len(start), 0
        while at < len(line) and (used := used + width(line[at])) <= room:
            at += 1
        yield start + line[:at]
        line, start = line[at:], GOES_ON
        if not line:
            return
