"""How a list of runs reads: what each one was asked, how it stands, what it took.

Both journals fold an event into a few columns when they record it, so that listing ten thousand runs
reads ten thousand short rows and no history. Knows nothing about where they are kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from tool_loop.errors import TRANSIENT
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

# "interrupted" lost its process, or a server that failed for a while: it can just be driven on, and so can
# "ready", which waited for decisions and has them. "waiting" needs a person who decides, "cancelled" one who
# says that it goes on after all. "failed" needs somebody who mends the cause (a key, a setting, a program),
# and "poisoned" one who looks why it kills its processes, and unparks it. "answered" and "stopped" have ended.
RunState: TypeAlias = Literal[
    "running", "answered", "stopped", "waiting", "ready", "interrupted", "cancelled", "failed", "poisoned"
]
ENDED: Final[tuple[RunState, ...]] = ("answered", "stopped")
CAN_GO_ON: Final[tuple[RunState, ...]] = ("interrupted", "ready")

# An attempt that ended so is followed by the next one: nobody has to do anything first.
_PASSING: Final = TRANSIENT | {"cancelled"}

# Of a question a list shows a line; a prompt of a megabyte would be written again with every change.
QUESTION_CHARS = 500


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One line of a list of runs.

    `at` and `updated` are Unix times: of the first record, and of the last one that got the run on.
    `question` is the beginning of the first one. `steps`, `tokens` and `cost` span all questions, tokens as
    the servers counted them, `cost` in US dollars and None where a price is not known. `holder` says who
    drives the run, "" when nobody does. `meta` is what the run was started with.
    """

    id: str
    at: float
    updated: float
    question: str
    state: RunState
    steps: int = 0
    tokens: int = 0
    holder: str = ""
    cost: float | None = 0.0
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether the last question has its answer."""
        return self.state in ENDED

    @property
    def can_go_on(self) -> bool:
        """Whether `Agent.resume` gets it on with nobody having to do anything first."""
        return self.state in CAN_GO_ON


class Record(NamedTuple):
    """One record of a run: its position, the Unix time at which it was written, and what it says."""

    seq: int
    at: float
    event: Event


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call that waits for a person, for a page of approvals: `journal.decide(run_id, call.id, allow=...)`.

    `why` is "policy" or "in_doubt", `at` the Unix time since when it waits, `rule` what a permission for the
    rest of the run would cover, "" where there is none. `question` and `meta` are those of the run.
    """

    run_id: str
    call: ToolCall
    fingerprint: str
    why: str
    at: float
    question: str
    rule: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)


def waiting_calls(info: RunInfo, records: Sequence[Record]) -> list[WaitingCall]:
    """The calls of this run that nobody has decided about."""
    state = State.of(record.event for record in records)
    found: dict[str, WaitingCall] = {}
    for record in records:
        for request in record.event.requests if isinstance(record.event, ApprovalRequested) else ():
            call = state.pending.get(request.call_id)
            if call is not None and state.requested.get(call.id) == request.fingerprint and not state.decision(call):
                found[call.id] = WaitingCall(
                    info.id, call, request.fingerprint, request.why, record.at, state.question, request.rule, info.meta
                )
    return list(found.values())


def meta_of(event: Event) -> str | None:
    """The JSON text of what a run is started with; None where this event does not start one."""
    return event.meta.encode("utf-8", "replace").decode() if isinstance(event, RunStarted) else None


def as_mapping(meta: str) -> dict[str, Any]:
    """What a run was started with; empty where that is no JSON object, which other programs may have written."""
    try:
        found = json.loads(meta)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def cost(event: Event) -> float | None:
    """What this event cost in US dollars, None where that is not known."""
    if isinstance(event, ModelReplied) or (isinstance(event, Compacted) and event.summary):
        return event.cost
    return 0.0


def sum_of(costs: Sequence[float | None]) -> float | None:
    known = [one for one in costs if one is not None]
    return sum(known, 0.0) if len(known) == len(costs) else None


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
    elif not holder and isinstance(last := state.events[-1], RunInterrupted):
        standing = interrupted(last)
    first, events = state.events[0], state.events
    return RunInfo(
        run_id, times[0], times[-1], first.question[:QUESTION_CHARS] if isinstance(first, RunStarted) else "", standing,
        sum(isinstance(event, ModelReplied) for event in events), sum(map(tokens, events)), holder,
        sum_of([cost(event) for event in events]), as_mapping(meta_of(first) or "{}"),
    )  # fmt: skip


def interrupted(event: RunInterrupted) -> RunState:
    """What has to happen before this run can go on."""
    if event.by:
        return "cancelled"
    return "interrupted" if event.kind in _PASSING else "failed"


def stage(state: State, event: Event) -> RunState | None:
    """How the run stands once `event` has happened in `state`; None where that is as before."""
    match event:
        case RunStarted() | RunContinued():
            return "running"
        case RunResumed():
            return "waiting" if undecided(state) else "running"
        case RunInterrupted():
            return interrupted(event)
        case ApprovalRequested():
            return "waiting"
        case ApprovalDecided():
            return "waiting" if undecided(state, event) else "ready"
        case RunEnded(reason=reason):
            return "answered" if reason == "answered" else "stopped"
        case _:
            # The attempt in which a person decided goes on; should it die, it was not ready but interrupted.
            return "running" if state.events and isinstance(state.events[-1], ApprovalDecided) else None
