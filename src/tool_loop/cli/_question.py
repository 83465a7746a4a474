"""The question: from the arguments, from stdin, or from both.

`tool-loop ask "why does this fail?" < log` adds the log to the question; `-`, or no question at all,
takes the question itself from there.
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Sequence
from typing import TextIO

from tool_loop.console.terminal import Terminal
from tool_loop.errors import UsageError
from tool_loop.runtime.text import decoded

# A model's context holds a fraction of this. A larger file is read better from the workspace.
MOST_BYTES = 1 << 20

# A pipe that says nothing may be one that nobody will ever close (a job runner's): say why we wait.
PATIENCE_SECONDS = 2.0


def read_question(words: Sequence[str], stdin: TextIO | None, err: Terminal) -> str:
    """The whole question. Raises `UsageError` when there is none, or when stdin holds too much."""
    asked = " ".join(words).strip()
    from_stdin = asked in ("", "-")
    if from_stdin and _is_tty(stdin):
        if not asked:
            raise UsageError('no question given; for example: tool-loop ask "what does this project do?"')
        err.line("reading the question from the terminal; end it with Ctrl-D")
        return _checked(_read(stdin, err))
    given = _read(stdin, err) if from_stdin or _holds_something(stdin) else ""
    if from_stdin:
        return _checked(given)
    return f"{asked}\n\nFrom standard input:\n\n{given}" if given.strip() else asked


def _checked(question: str) -> str:
    if not question.strip():
        raise UsageError("the question is empty: nothing came from standard input")
    return question.strip()


def _is_tty(stdin: TextIO | None) -> bool:
    return stdin is not None and not stdin.closed and stdin.isatty()


def _holds_something(stdin: TextIO | None) -> bool:
    """Whether something was put into stdin on purpose: a pipe or a file, not a terminal or /dev/null."""
    if stdin is None or stdin.closed:
        return False
    try:
        mode = os.fstat(stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _read(stdin: TextIO | None, err: Terminal) -> str:
    if stdin is None or stdin.closed:
        return ""
    descriptor = stdin.fileno()
    if not stdin.isatty() and not _ready(descriptor, PATIENCE_SECONDS):
        err.line("waiting for standard input to end (close it with < /dev/null if there is none)")
    parts: list[bytes] = []
    size = 0
    while part := os.read(descriptor, 1 << 16):
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            raise UsageError(
                f"standard input holds more than {MOST_BYTES >> 20} MiB; "
                "put it into a file below --root, and ask about that file"
            )
    text = decoded(b"".join(parts))
    if "\0" in text:
        raise UsageError("standard input is not text")
    return text


def _ready(descriptor: int, seconds: float) -> bool:
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    except (OSError, ValueError):
        return True  # cannot be waited for; reading will tell
