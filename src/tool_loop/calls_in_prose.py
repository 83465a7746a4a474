"""Notices a tool call that a model wrote as text, because the server's template does not fit it.

Only ever used to tell the model (and the person) that nothing was run: a call read out of prose could
be a quotation, an example or half of something. Pure; knows nothing about replies or runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

# A call as an object, in either order of its two members: in a fence, between tags, in doubled
# braces, in a list after a marker. The name stands within an arm's length of the arguments.
_NAME: Final = r'"(?:name|function|tool|tool_name|function_name|action)"\s*:\s*"(?P<{}>[^"\n]{{1,64}})"'
_ARGUMENTS: Final = r'"(?:arguments|parameters|args|kwargs|input|tool_input|action_input)"\s*:'
_OBJECT: Final = re.compile(
    _NAME.format("first") + r'\s*,\s*(?:"\w{1,20}"\s*:\s*"[^"\n]{0,64}"\s*,\s*)?' + _ARGUMENTS
    + r"|" + _ARGUMENTS + r"\s*\{[^{}]{0,1000}\}\s*,\s*" + _NAME.format("last")
)  # fmt: skip

# What providers' models put around a call when their own template is at work.
_MARKS: Final = re.compile(
    r"<tool_calls?>|<tools?>|<function[=_>]|<(?:\w+:)?invoke name=|\[TOOL_CALLS\]|<\|tool_call|<\|python_tag\|>"
    r"|<\uff5c[^>\n]{0,20}(?:tool|invoke)|<\|channel\|>|to=functions\.|functools\[|<\|START_ACTION\|>"
)
# How far behind its mark the name of the tool is looked for.
_REACH: Final = 2000
_MARKS_LOOKED_AT: Final = 100


def looks_like_a_call(text: str, names: Iterable[str]) -> bool:
    """Whether the text holds a call of one of these tools, written as prose."""
    known = {name for name in names if name in text}
    if not known:
        return False
    if any((found["first"] or found["last"]) in known for found in _OBJECT.finditer(text)):
        return True
    word = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, known))})(?![\w-])")
    marks = islice(_MARKS.finditer(text), _MARKS_LOOKED_AT)
    if any(word.search(text, mark.start(), mark.end() + _REACH) for mark in marks):
        return True
    return any(_alone(name).search(text) for name in known)


def _alone(name: str) -> re.Pattern[str]:
    """Forms without a marker: `[grep(pattern="x")]` alone on its line, `<grep>...</grep>`, Action: grep."""
    name = re.escape(name)
    return re.compile(
        rf"^[ \t]*\[{name}\([^\n]*\)\][ \t]*$|<{name}>\s*[<{{]|^[ \t]*Action:[ \t]*{name}[ \t]*\n[ \t]*Action Input:",
        re.MULTILINE,
    )
