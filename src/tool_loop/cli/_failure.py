"""What went wrong, in one or two lines on stderr, and the exit code for it."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Final

from tool_loop.console.terminal import Terminal, one_line, safe
from tool_loop.errors import (
    ConfigurationError,
    FatalError,
    JournalError,
    ProviderError,
    RunBusy,
    UnknownRun,
    UsageError,
)

# The person has to change something; no later attempt would end differently.
_SETUP = frozenset({"auth", "not_found", "quota"})


def exit_code(error: BaseException) -> int:
    match error:
        case UsageError() | UnknownRun() | RunBusy():
            return 2
        case ConfigurationError() | ImportError():
            return 3
        case ProviderError(kind=kind):
            return 3 if kind in _SETUP else 4
        case _:
            return 1


def explain(error: Exception, resume: str = "") -> int:
    """Say on stderr what failed, what is safe and what to do; the exit code. `resume` is the command for it."""
    # The errors of this package never hold a key. This is for the exceptions of others.
    from tool_loop.redaction.scrub import scrub

    err = Terminal(sys.stderr, quiet_when_gone=True)
    if os.environ.get("TOOL_LOOP_DEBUG"):
        err.write(safe(scrub("".join(traceback.format_exception(error)))))
    first, *more = scrub(_words(error)).split("\n")
    err.line(f"tool-loop: {one_line(first)}")
    for line in more:
        err.line(safe(line))
    if resume and isinstance(error, FatalError) and not isinstance(error, UnknownRun):
        err.line(f"Nothing was lost; resume with: {resume}")
    return exit_code(error)


# The packages this one cannot do without.
_NEEDED: Final = ("httptools", "aiohappyeyeballs", "pydantic", "jsonschema_rs")


def _words(error: Exception) -> str:
    match error:
        case FatalError() | UsageError():
            return str(error)
        case ImportError(name=str(name)) if name.partition(".")[0] in _NEEDED:
            package = name.partition(".")[0]
            return f"{package} is not installed here; install tool-loop with pip, or use the venv it is in"
        case JournalError() | OSError():
            return str(error)
        case _:
            return f"internal error: {type(error).__name__}: {error}\nTOOL_LOOP_DEBUG=1 shows where it happened."
