"""Warnings of ours reach a person also where nobody has set up logging, as Python's own last resort does.

One line on stderr for each, without its traceback: what a tool raised may hold a key, so its text stays
out of the line and in the log. A program that has any handler of its own decides alone.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path


class LastResort(logging.Handler):
    """Sits on the logger `tool_loop` and speaks only where no other handler would hear."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING or sys.stderr is None or _heard(record.name):
            return
        from tool_loop.redaction.scrub import scrub
        from tool_loop.redaction.secret import printable

        try:
            line = printable(scrub(record.getMessage()) + _cause(record))
            sys.stderr.write(f"tool_loop: {line}\n")
        except Exception:  # who warns must not be what fails: stderr may be closed
            self.handleError(record)


def _cause(record: logging.LogRecord) -> str:
    """The type of what was raised, and the line of its author where that is to be found."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return ""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    where = f" at {Path(last.tb_frame.f_code.co_filename).name}:{last.tb_lineno}" if last else ""
    return f": {type(error).__name__}{where} (logging.basicConfig() shows the traceback)"


def _heard(name: str) -> bool:
    """Whether a handler of the program's own gets this record."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(not isinstance(handler, LastResort) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def be_heard() -> None:
    """Once; called where a program that runs tools or agents cannot go past it."""
    ours = logging.getLogger("tool_loop")
    if not any(isinstance(handler, LastResort) for handler in ours.handlers):
        ours.addHandler(LastResort())
