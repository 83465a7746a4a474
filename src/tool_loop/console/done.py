"""What a call that changed something did, below its line in the live view: the diff, or the end of the output.

A few lines, each with the style it is drawn in. Escaping and cutting to the width are the terminal's
business. Pure; knows nothing about runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tool_loop.changes import change_lines
from tool_loop.events import ToolCall, ToolReturned

# More scrolls away what stands above; `show` and the report have all of it.
MOST_LINES = 16

_STYLES = {"+": "green", "-": "red"}
# Colour and the like of a program that was not told that nobody looks; escaped it would only be in the way.
_ANSI = re.compile("\x1b\\[[0-9;:]*m")


def done_lines(call: ToolCall | None, result: ToolReturned) -> Iterator[tuple[str, str]]:
    """(text, style) of the lines; none for a call that only looked."""
    if call is None:
        return
    if call.name == "run":
        yield from _tail(_ANSI.sub("", result.content).rstrip().split("\n")[1:], failed=result.error is not None)
        return
    lines = change_lines(call, result)
    shown = lines[:MOST_LINES] if len(lines) > MOST_LINES + 1 else lines
    yield from ((line, _STYLES.get(line[:1], "dim")) for line in shown)
    if len(shown) < len(lines):
        yield f"... {len(lines) - len(shown)} more lines", "dim"


def _tail(lines: Sequence[str], *, failed: bool) -> Iterator[tuple[str, str]]:
    """The end of it: what went wrong is said last."""
    if failed:
        return  # what the line above says is the failure itself
    if len(lines) > MOST_LINES + 1:
        yield f"... {len(lines) - MOST_LINES} lines before", "dim"
        lines = lines[-MOST_LINES:]
    yield from ((line.rstrip("\r"), "dim") for line in lines)
