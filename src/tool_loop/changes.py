"""What a call of the package's tools did to a file, read from the record: lines that went and lines that came.

From the arguments alone, which say all of an edit and the new half of a whole file. So a run can be
looked at years later, and where its files never were. Pure; knows nothing about files or terminals.
"""

from __future__ import annotations

import difflib
import json

from .events import ToolCall, ToolReturned

# Compared line by line up to here; what is longer is shown as all of the old and all of the new.
_MOST_COMPARED = 2_000


def change_lines(call: ToolCall, result: ToolReturned | None = None) -> list[str]:
    """Lines that begin with `-`, `+` or a blank; none for a call that changed nothing or is of another tool."""
    if result is not None and result.error is not None:
        return []
    given = _arguments(result.arguments if result and result.arguments is not None else call.arguments)
    old, new = given.get("old"), given.get("new")
    if call.name == "edit_file" and isinstance(old, str) and isinstance(new, str):
        return _compared(_lines(old), _lines(new))
    content = given.get("content")
    if call.name == "write_file" and isinstance(content, str):
        return [f"+{line}" for line in _lines(content)]
    return []


def _compared(old: list[str], new: list[str]) -> list[str]:
    if max(len(old), len(new)) > _MOST_COMPARED:
        return [*(f"-{line}" for line in old), *(f"+{line}" for line in new)]
    found: list[str] = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            found += [f" {line}" for line in old[a:b]]
        else:
            found += [*(f"-{line}" for line in old[a:b]), *(f"+{line}" for line in new[c:d])]
    return found


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _arguments(text: str) -> dict[str, object]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
