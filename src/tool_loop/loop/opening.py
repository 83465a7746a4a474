"""How a question gets into a run that is on record: as a follow-up, or not at all since it is there already.

Pure functions of the state and the question, so that the same call starts a run, goes on with one that
was killed, and asks more in one that has ended.
"""

from __future__ import annotations

from collections.abc import Sequence

from tool_loop.errors import UnknownRun, UsageError
from tool_loop.events import Event, RunContinued, RunStarted
from tool_loop.records import dataclass
from tool_loop.state import State
from tool_loop.transcript import answer_form


@dataclass(frozen=True, slots=True)
class Question:
    """What a caller asks. `system` is None for the one on record, or the default in a new run; `schema` is the
    JSON schema of the answer, "" where any text will do."""

    text: str
    follow_up: bool = False
    system: str | None = None
    meta: str = "{}"
    schema: str = ""


def asked_again(run_id: str, state: State, question: str) -> None:
    """Raises `UsageError` where this run, which is on record, has another question."""
    began = state.events[0]
    if isinstance(began, RunStarted) and began.question != question:
        raise UsageError(f"run {run_id} has another question; to ask more in it, use continue_run={run_id!r}")


def follow_up(run_id: str, state: State, question: Question) -> RunContinued | None:
    """The event that asks more in this run; None when it is on record already, and only to be driven on.

    Raises `UnknownRun` for a follow-up of nothing, `UsageError` where the run has not ended.
    """
    if not state.events:
        raise UnknownRun(f"there is no run {run_id} in this journal")
    if not state.ended:
        if state.question == question.text:
            return None  # asked before and interrupted: the same question goes on
        raise UsageError(f"run {run_id} has not ended yet; resume it before asking more")
    began = state.events[0]
    assert isinstance(began, RunStarted)
    changed = question.system is not None and question.system != system_of(state.events)
    answer = question.schema or ("text" if began.answer else "")
    return RunContinued(question.text, answer, question.system if changed else None)


def system_of(events: Sequence[Event]) -> str:
    """The system prompt in force, without what was added to it about the form of the answer."""
    began = events[0]
    assert isinstance(began, RunStarted)
    form = answer_form(began.answer) if began.answer else ""
    system = began.system.removesuffix(form).removesuffix("\n\n") if form else began.system
    later = [event.system for event in events if isinstance(event, RunContinued) and event.system is not None]
    return later[-1] if later else system


def recorded_schema(state: State) -> str:
    """The schema that the answer to the current question has to fit, as JSON text; "" where any text will do."""
    last = next((e for e in reversed(state.events) if isinstance(e, RunStarted | RunContinued)), None)
    return "" if last is None or last.answer == "text" else last.answer
