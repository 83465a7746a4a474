"""Faults of tools, of the journal, of the clock, and of the run itself.

A tool's fault happens inside of its function, so that the real harness turns it into what the model
reads. Those of the run (a cancel, a death, a pause, a clock that is set) can strike anywhere. The
words of a row are those of the failure table.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Final

from tool_loop.errors import (
    TOOL_ERROR_KINDS,
    Fenced,
    JournalDamaged,
    JournalError,
    RunBusy,
    RunPoisoned,
    ToolError,
)
from tool_loop.events import ApprovalDecided

from .strike import Fault, Point, ProcessDied
from .wire import hang_before_headers

_ANYWHERE: Final[tuple[Point, ...]] = ("model", "tool", "review", "append")
_INF: Final = float("inf")

DIED: Final = "outcome_unknown"
WRITES: Final = "write_fails"
DRIVEN: Final = "run_busy"

# The row of the table in which a tool's failure of this kind stands.
_KINDS: Final = {
    "not_found": "no_such_file",
    "invalid_argument": "special_file",
    "permission_denied": "permission_denied",
    "timed_out": "timed_out",
    "tool_failed": "tool_failed",
    "limit_reached": "limit_reached",
    "denied": "denied",
    "conflict": "conflict",
    "sandbox_failed": "sandbox_failed",
}


# --- tools ----------------------------------------------------------------------------------------


def crash(error: BaseException | type[BaseException] = RuntimeError, *, first: bool = False) -> Fault:
    """An exception nobody expected; with `first` after the function has done its work."""
    make = error if isinstance(error, type) else partial(_given, error)
    return Fault("crash", "tool", ("tool", "review"), "tool_crashed", error=make, first=first)


def _given(error: BaseException) -> BaseException:
    return error


def tool_error(kind: str = "tool_failed", message: str = "", hint: str = "", **fields: Any) -> Fault:
    """The tool's author says no, with this kind: "not_found", "permission_denied", or one of their own."""
    text = message or TOOL_ERROR_KINDS.get(kind, "the tool says no")
    make = partial(ToolError, text, kind=kind, hint=hint, **fields)
    return Fault("tool_error", "tool", ("tool",), _KINDS.get(kind, "tool_failed"), error=make)


def returns(value: Any) -> Fault:
    """A value in place of the tool's, which is not run."""
    return Fault("returns", "tool", ("tool",), "no_matches", instead=partial(_same, value))


def _same(value: Any) -> Any:
    return value


def returns_too_much(characters: int = 5_000_000) -> Fault:
    """A result that fits no window."""
    return Fault("returns_too_much", "tool", ("tool",), "too_large", instead=partial(_much, characters))


def _much(characters: int) -> str:
    return "all work and no play\n" * (characters // 21 + 1)


# --- a person -------------------------------------------------------------------------------------

_REFUSED: Final = "denied"


def denied(note: str = "not today") -> Fault:
    """The person says no."""
    decision = ApprovalDecided("", allowed=False, by="a person", note=note)
    return Fault("denied", "tool", ("review",), _REFUSED, instead=partial(_same, decision))


def expired() -> Fault:
    """The person says yes, for a time that is over."""
    return Fault("expired", "tool", ("review",), _REFUSED, change=lambda said: replace(said, expires_at=1.0))


# --- the run --------------------------------------------------------------------------------------


def hang() -> Fault:
    """Nothing ever comes. A plain function lets its thread go after a minute, or at `Faults.release`."""
    return Fault("hang", "tool", _ANYWHERE, "timed_out", seconds=_INF, wire=lambda _: hang_before_headers())


def slow(seconds: float = 30.0) -> Fault:
    """It takes so much longer."""
    return Fault("slow", "loop", _ANYWHERE, "limits_used_up", seconds=seconds)


def cancel() -> Fault:
    """Somebody presses Ctrl-C at this moment. Needs `Faults.drive` around the run."""
    return Fault("cancel", "loop", _ANYWHERE, "cancelled", then=lambda faults: faults.cancel())


def die(*, first: bool = False) -> Fault:
    """The process is killed at this moment; with `first` after it was done and before that is on record.

    The run raises `ProcessDied`, and whoever resumes it finds what was on record by then. Needs
    `Faults.journal`.
    """
    return Fault("die", "tool", _ANYWHERE, DIED, first=first, then=lambda faults: faults.die(), error=ProcessDied)


def clock_jump(seconds: float = 3600.0) -> Fault:
    """The wall clock (`Faults.clock`) is set by so much: a laptop that slept, a clock that was corrected."""
    return Fault("clock_jump", "clock", _ANYWHERE, then=lambda faults: faults.clock.advance(seconds))


# --- the journal ----------------------------------------------------------------------------------


def _unwritten(
    name: str, failure: str, error: type[JournalError], text: str, points: tuple[Point, ...] = ("append",)
) -> Fault:
    return Fault(name, "journal", points, failure, error=partial(error, text))


def write_error() -> Fault:
    """A record cannot be written."""
    return _unwritten("write_error", WRITES, JournalError, "cannot write to the journal: I/O error")


def disk_full() -> Fault:
    """There is no room for a record."""
    return _unwritten(
        "disk_full", WRITES, JournalError, "no space left for the journal; make room, then resume the run"
    )


def fenced() -> Fault:
    """Another process has taken the run over, and this one may not write any more."""
    return _unwritten("fenced", DRIVEN, Fenced, "another process took the run over while this one slept")


def busy() -> Fault:
    """Another process drives the run, so it cannot be opened."""
    return _unwritten("busy", DRIVEN, RunBusy, "the run is being driven by another process", ("open",))


def damaged() -> Fault:
    """A record in the middle of the run cannot be read."""
    return _unwritten("damaged", "journal_damaged", JournalDamaged, "record 2 is not JSON", ("open",))


def poisoned() -> Fault:
    """The run has killed its process too often, and is parked."""
    return _unwritten("poisoned", "poisoned", RunPoisoned, "the run was taken over 3 times", ("open",))
