"""How a list of runs reads: what each one was asked, how it stands, what it took.

Both journals fold an event into a few columns when they record it, so that listing ten thousand runs
reads ten thousand short rows and no history. Knows nothing about where they are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from tool_loop.events import (
    ApprovalDecided,
    ApprovalRequested,
    Compacted,
    Event,
    ModelReplied,
    RunContinued,
    RunEnded,
    RunInterrupted,
    RunResumed,
    RunStarted,
    ToolCall,
)
from tool_loop.records import dataclass
from tool_loop.state import State

# "interrupted" can be resumed at once, and so can "ready": it waited for decisions, and has them.
# "waiting" can after somebody has decided, "poisoned" after it was looked at and unparked.
RunState: TypeAlias = Literal["running", "answered", "stopped", "waiting", "ready", "interrupted", "poisoned"]


# Of a question a list shows a line; a prompt of a megabyte would be written again with every change.
QUESTION_CHARS = 500


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One line of a list of runs.

    `at` and `updated` are Unix times: of the first record, and of the last one that got the run on.
    `question` is the beginning of the first one. `steps` and `tokens` span all questions, tokens as
    the servers counted them. `holder` says who drives the run, "" when nobody does.
    """

    id: str
    at: float
    updated: float
    question: str
    state: RunState
    steps: int = 0
    tokens: int = 0
    holder: str = ""


class Record(NamedTuple):
    """One record of a run: its position, the Unix time at which it was written, and what it says."""

    seq: int
    at: float
    event: Event


def tokens(event: Event) -> int:
    """What the servers counted for this event, attempts that failed included."""
    match event:
        case ModelReplied(usage=usage, retries=retries):
            failed = sum([retry.tokens for retry in retries]) if retries else 0
            return failed + (usage.input or 0) + (usage.output or 0)
        case Compacted(usage=usage):
            return (usage.input or 0) + (usage.output or 0)
        case _:
            return 0


def undecided(state: State, decision: ApprovalDecided | None = None) -> bool:
    """Whether a call waits for a person, once `decision` has been made too."""
    return any(
        call.id in state.requested and not state.decision(call) and not (decision and _settles(state, decision, call))
        for call in state.pending.values()
    )


def _settles(state: State, decision: ApprovalDecided, call: ToolCall) -> bool:
    asked = state.pending.get(decision.call_id)
    if asked is None or call is asked:
        return asked is not None
    same = state.shown.get(call.id) and state.shown[call.id][1] == state.shown.get(asked.id, ("", ""))[1]
    return bool(decision.standing and same and call.name == asked.name and not (decision.allowed and state.tainted))


def summary(run_id: str, times: Sequence[float], state: State, holder: str = "") -> RunInfo:
    """The line of a run whose events are at hand; `holder` is who drives it."""
    standing: RunState = "running" if holder else "interrupted"
    if state.ended:
        standing = "answered" if state.ended.reason == "answered" else "stopped"
    elif undecided(state):
        standing = "waiting"
    elif not holder and isinstance(state.events[-1], ApprovalDecided):
        standing = "ready"
    first, events = state.events[0], state.events
    return RunInfo(
        run_id, times[0], times[-1], first.question[:QUESTION_CHARS] if isinstance(first, RunStarted) else "", standing,
        sum(isinstance(event, ModelReplied) for event in events), sum(map(tokens, events)), holder,
    )  # fmt: skip


def stage(state: State, event: Event) -> RunState | None:
    """How the run stands once `event` has happened in `state`; None where that is as before."""
    match event:
        case RunStarted() | RunContinued():
            return "running"
        case RunResumed():
            return "waiting" if undecided(state) else "running"
        case RunInterrupted():
            return "interrupted"
        case ApprovalRequested():
            return "waiting"
        case ApprovalDecided():
            return "waiting" if undecided(state, event) else "ready"
        case RunEnded(reason=reason):
            return "answered" if reason == "answered" else "stopped"
        case _:
            # The attempt in which a person decided goes on; should it die, it was not ready but interrupted.
            return "running" if state.events and isinstance(state.events[-1], ApprovalDecided) else None
