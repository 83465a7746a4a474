"""How a question gets into a run that is on record: as a follow-up, or not at all since it is there already.

Pure functions of the state and the question, so that the same call starts a run, goes on with one that
was killed, and asks more in one that has ended.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tool_loop.errors import UnknownRun, UsageError
from tool_loop.events import Event, Example, RunContinued, RunInterrupted, RunStarted
from tool_loop.records import dataclass
from tool_loop.state import State
from tool_loop.transcript import DEFAULT_SYSTEM, answer_form


@dataclass(frozen=True, slots=True)
class Question:
    """What a caller asks. `system` is None for the one on record, or the default in a new run; `schema` is the
    JSON schema of the answer, "" where any text will do.

    `mode` is "new", "follow_up" of a run that is there, or "chat": whichever of the two it is. `instead` closes
    what the run was still about. `behind` is how many records a history of the caller's own has made.
    `untrusted` says that strangers may have had a part in the question.
    """

    text: str
    mode: Literal["new", "follow_up", "chat"] = "new"
    instead: bool = False
    system: str | None = None
    meta: str = "{}"
    schema: str = ""
    behind: int = 0
    untrusted: bool = False


def run_id_of(question: str, options: Mapping[str, Any]) -> str:
    """The run that this question is for; a new one where nothing is said. Raises `UsageError`."""
    named = [options.get(name) for name in ("run_id", "continue_run", "chat") if options.get(name) is not None]
    if not question.strip():
        raise UsageError("the question is empty")
    if len(named) > 1:
        raise UsageError("a question belongs to one run: give one of run_id, continue_run and chat")
    return str(named[0]) if named else os.urandom(6).hex()


def opening(
    run_id: str, state: State, question: Question | None, examples: tuple[Example, ...]
) -> RunStarted | RunContinued | None:
    """The event that opens this run or question, None when it is on record already."""
    if question is None:
        if not state.events:
            raise UnknownRun(f"there is no run {run_id} in this journal")
        return None
    if question.mode == "follow_up" or (state.events and question.mode == "chat"):
        return follow_up(run_id, state, question)
    if state.events and len(state.events) == question.behind:
        return follow_up(run_id, state, question)
    if state.events:
        asked_again(run_id, state, question)
        return None
    system = DEFAULT_SYSTEM if question.system is None else question.system
    if question.schema:
        system = f"{system}\n\n{answer_form(question.schema)}".lstrip("\n")
    return RunStarted(question.text, system, examples, question.meta, question.schema, question.untrusted)


def sets_aside(state: State, question: Question | None) -> bool:
    """Whether something else is asked than what this run is still about, so that it has to be closed first."""
    if question is None or not question.instead or not state.events or state.ended:
        return False
    return state.question != question.text and not _closed(state)


def _closed(state: State) -> bool:
    """Nothing is left open of a question that was given up, so that the next one fits behind it."""
    return isinstance(state.events[-1], RunInterrupted) and not state.pending


def asked_again(run_id: str, state: State, question: Question) -> None:
    """Raises `UsageError` where this run, which is on record, has another question."""
    began = state.events[min(question.behind, len(state.events) - 1)]
    if not isinstance(began, RunStarted | RunContinued) or began.question != question.text:
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
        if not (question.instead and _closed(state)):
            raise UsageError(
                f"run {run_id} has not ended yet; resume it before asking more, or give instead=True to ask this "
                "in the place of what it is still about"
            )
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
