"""What must be true of every run, as one pure function over what is on record.

    for broken in check(journal.events("r1")):
        print(broken)          # I7 at event 12 (IntentRecorded): ...

The numbers are those of the design's list. Given what was sent, what a tool declares and the limits,
more is checked; none of it is needed. What a record cannot show is tested where it happens, and is not
in here: times (I16, I18, I22), memory (I19), subscribers and reviewers that raise (I21), durability
over crashes (I4, I6, I23 to I25), the root (I26), the terminal (I28), labels (I29). The simulation and
the crash suite hold the record against what really happened.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tool_loop.errors import TRANSIENT
from tool_loop.events import (
    ApprovalDecided,
    ApprovalRequested,
    Compacted,
    Event,
    IntentRecorded,
    LimitReached,
    ModelReplied,
    Reminded,
    RunContinued,
    RunEnded,
    RunInterrupted,
    RunResumed,
    RunStarted,
    ToolCall,
    ToolReturned,
)
from tool_loop.limits import Limits
from tool_loop.state import State

from .sent import Broken, check_messages, check_requests, unclean

__all__ = ["Broken", "check", "check_messages", "check_requests"]

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

# Results of calls that did not run.
NOT_RUN: Final = frozenset(
    {"bad_json", "invalid_arguments", "unknown_tool", "cut_off", "denied", "cancelled", "limit_reached"}
)

# More than any policy asks for; a step's requests have to end somewhere.
MOST_RETRIES: Final = 100


@dataclass(slots=True)
class _Check:
    """Walks the events once, with the state as it was before each."""

    effects: Mapping[str, str]
    limits: Limits | None
    probed: frozenset[str]
    found: list[Broken] = field(default_factory=list)
    state: State = field(default_factory=State)
    intents: set[str] = field(default_factory=set)
    marked: set[str] = field(default_factory=set)
    allowed: set[str] = field(default_factory=set)
    requested: set[str] = field(default_factory=set)
    gated: set[str] = field(default_factory=set)
    in_doubt: set[str] = field(default_factory=set)
    standing: set[tuple[str, str]] = field(default_factory=set)
    calls: dict[str, ToolCall] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    index: int = -1
    event: Event | None = None

    def broken(self, rule: str, why: str) -> None:
        self.found.append(Broken(rule, self.index, type(self.event).__name__, why))

    def walk(self, events: Sequence[Event]) -> None:  # noqa: C901 - one case per event
        for self.index, self.event in enumerate(events):  # where we are is part of every message
            event = self.event
            if self._out_of_place(event):
                return  # from here on the state would be nonsense, and so would every message
            match event:
                case ModelReplied():
                    self._replied(event)
                case ToolReturned():
                    self._returned(event)
                case IntentRecorded():
                    self._intended(event)
                case ApprovalRequested():
                    self._asked(event)
                case ApprovalDecided():
                    self._decided(event)
                case Compacted():
                    self._compacted(event, events)
                case RunResumed():
                    self._resumed()
                case RunEnded():
                    self._ended(event)
                case RunInterrupted(kind="cancelled") if left := sorted(self.state.pending.keys() - self.state.adrift):
                    self.broken("I22", f"cancelled, and the calls {left} have no result and are not in doubt")
                case RunContinued() | RunStarted() | Reminded() | LimitReached() | RunInterrupted():
                    pass
            if any(broken.rule == "I2" and broken.index == self.index for broken in self.found):
                return  # two calls that cannot be told apart
            self.state.apply(event)

    def _out_of_place(self, event: Event) -> bool:
        state, before = self.state, len(self.found)
        if (self.index == 0) != isinstance(event, RunStarted):
            self.broken("I20", "a run begins with RunStarted, once")
        elif state.ended and not isinstance(event, RunContinued):
            self.broken("I13", f"the run had ended with {state.ended.reason!r}")
        elif isinstance(event, RunContinued) and not (state.ended or _given_up(state)):
            self.broken("I20", "a follow-up came before the end of what it follows")
        elif isinstance(event, ModelReplied | RunEnded | LimitReached | Reminded | Compacted) and state.pending:
            self.broken("I1", f"the calls {sorted(state.pending)} have no result yet")
        elif isinstance(event, ToolReturned) and event.call_id not in state.pending:
            why = "has one already" if event.call_id in self.answered else "nobody asked for"
            self.broken("I1", f"a result for {event.call_id!r}, which {why}")
        return len(self.found) > before

    def _replied(self, reply: ModelReplied) -> None:
        state = self.state
        if state.final_reply and state.final_reply.stop != "pause":
            self.broken("I14", "the model was asked again although its answer was on record")
        # One that was cut or filtered before its first word is on record, because it was paid for, and
        # not in the history (`check_messages` sees to that).
        cut = reply.stop in ("length", "content_filter", "refusal")
        if not reply.text and not reply.calls and not reply.dropped_calls and not cut:
            self.broken("I3", "an empty turn entered the history")
        if state.stopping and reply.calls:
            self.broken("I20", "calls entered the history after the limit was reached")
        self._within_budget()
        refused = [retry.kind for retry in reply.retries if retry.kind not in TRANSIENT]
        if refused or len(reply.retries) > MOST_RETRIES:
            self.broken(
                "I15", f"{len(reply.retries)} retries before this reply, {refused or 'more than any policy allows'}"
            )
        for call in reply.calls:
            if not _ID.fullmatch(call.id):
                self.broken("I2", f"the call id {call.id!r} is not one a provider accepts")
            if call.id in self.calls:
                self.broken("I2", f"the call id {call.id!r} was used before in this run")
            self.calls[call.id] = call
        if len({c.id for c in reply.calls}) < len(reply.calls):
            self.broken("I2", "two calls of the reply share an id")

    def _within_budget(self) -> None:
        """A budget that was used up before this reply: it may be overrun by one, and was by two."""
        state, limits = self.state, self.limits
        if limits is None or state.stopping:
            return
        for what, most, used in (
            ("steps", limits.steps, state.steps),
            ("tokens", limits.tokens, state.spent),
            ("US dollars", limits.usd, state.cost),
            ("tool calls", limits.tool_calls, state.tool_calls),
        ):
            if most is not None and used >= most:
                self.broken("I17", f"{used:g} of {most:g} {what} were used up, and the model was asked for more")

    def _returned(self, result: ToolReturned) -> None:
        call = self.calls[result.call_id]
        self.answered.add(call.id)
        ran = result.error not in NOT_RUN and result.error != "outcome_unknown"
        if self.state.cut and ran:
            self.broken("I12", f"{call.name} ran although its reply was cut")
        elif result.error is None and not _is_object(result.arguments or self.state.pending[call.id].arguments):
            self.broken("I12", f"{call.name} ran on arguments that are not a JSON object")
        most = self.limits.per_tool.get(call.name) if self.limits else None
        if ran and most is not None and self.state.tool_count[call.name] >= most:
            self.broken("I17", f"{call.name} ran although it may be called {most} times only")
        if ran and self.effects.get(call.name, "once") == "once" and self.effects:
            if call.id in self.in_doubt and call.name not in self.probed:
                self.broken("I8", f"{call.name} was in doubt, and has an outcome although it was not started anew")
            elif call.id not in self.intents and call.id not in self.in_doubt:
                self.broken("I7", f"{call.name} ran without an intent on record")
        probed = call.id in self.in_doubt and call.name in self.probed
        if (
            ran
            and not probed
            and call.id in self.gated
            and call.id not in self.allowed
            and (call.name, self.state.shown.get(call.id, ("", ""))[1]) not in self.standing
        ):
            self.broken("I10", f"{call.name} ran without being allowed")
        # As it may have run: a person may have edited it before a crash.
        expected = self.state.repeat(self.state.pending[call.id], result)
        if result.repeat and result.repeat != expected:
            self.broken("I30", f"repeat is {result.repeat}, and should be {expected}")
        if unclean(result.content):
            self.broken("I3", "the result holds a lone surrogate")

    def _intended(self, intent: IntentRecorded) -> None:
        for call_id in (*intent.call_ids, *intent.approved):
            if call_id not in self.state.pending:
                self.broken("I7", f"an intent for {call_id!r}, which does not wait to run")
        for call_id in intent.call_ids:
            if intent.mark:
                # What has an intent already, with what its probe needs: once, and of a call alone.
                if len(intent.call_ids) > 1 or call_id not in self.intents or call_id in self.marked:
                    self.broken("I7", f"a mark for {call_id!r}, which is not about to start")
                self.marked.add(call_id)
            elif call_id in self.intents:
                self.broken("I7", f"{call_id!r} was started a second time")
            self.intents.add(call_id)
            self.in_doubt.discard(call_id)
        for call_id in intent.approved:
            decision = self.state.decisions.get(call_id)
            if decision is None or not decision.allowed:
                self.broken("I11", f"an approval of {call_id!r} was used up, and there is none")

    def _asked(self, question: ApprovalRequested) -> None:
        for request in question.requests:
            if request.call_id not in self.state.pending:
                self.broken("I10", f"an approval was asked for {request.call_id!r}, which does not wait to run")
            if self.state.requested.get(request.call_id) == request.fingerprint:
                self.broken("I11", f"an approval of {request.call_id!r} was asked for twice")
            self.gated.add(request.call_id)
            if request.why == "policy" and request.call_id in self.calls:
                self.standing.discard((self.calls[request.call_id].name, request.rule))  # it did not cover this one

    def _decided(self, decision: ApprovalDecided) -> None:
        call_id = decision.call_id
        if call_id not in self.state.requested:
            self.broken("I10", f"a decision about {call_id!r}, which nobody asked for")
        elif call_id in self.state.decisions:
            self.broken("I11", f"a second decision about {call_id!r}")
        elif decision.arguments is None and decision.fingerprint != self.state.requested[call_id]:
            self.broken("I9", f"the decision about {call_id!r} is bound to something else than what was asked")
        elif decision.allowed:
            self.allowed.add(call_id)
            if decision.standing and call_id in self.calls:
                self.standing.add((self.calls[call_id].name, self.state.shown.get(call_id, ("", ""))[1]))

    def _resumed(self) -> None:
        self.marked.clear()
        for intent in self.state.intents:
            waiting = [c for c in intent if c in self.state.pending]
            for n, call_id in enumerate(waiting):
                self.intents.discard(call_id)
                if n == 0:
                    self.in_doubt.add(call_id)
                    self.allowed.discard(call_id)  # its approval was used up when it was started

    def _compacted(self, event: Compacted, events: Sequence[Event]) -> None:
        for call_id in event.cleared:
            if call_id not in self.answered:
                self.broken("I5", f"the result of {call_id!r} was cleared before it was there")
        if bool(event.summary) != bool(event.upto):
            self.broken("I5", "a summary needs a place up to which it speaks, and the other way round")
        if event.upto > self.index:
            self.broken("I5", f"the summary speaks of event {event.upto}, which had not happened")
        elif event.upto and not isinstance(events[event.upto], ModelReplied | RunContinued):
            self.broken("I5", f"the cut before event {event.upto} ({type(events[event.upto]).__name__}) parts a turn")

    def _ended(self, end: RunEnded) -> None:
        state = self.state
        if not end.answer.strip() and end.reason != "answered":
            self.broken("I20", "the run ended without an answer")
        if state.stopping and end.reason != state.stopping.limit:
            self.broken("I20", f"the limit was {state.stopping.limit!r}, and the reason given is {end.reason!r}")
        if not state.stopping and end.reason != "answered":
            self.broken("I20", f"ended with {end.reason!r}, and no limit was reached")
        if end.source == "model" and (state.final_reply is None or state.final_reply.text != end.answer):
            self.broken("I20", "the answer is not what the model said last")


def check(
    events: Iterable[Event],
    *,
    bodies: Sequence[bytes] = (),
    effects: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    probed: Iterable[str] = (),
    secrets: Iterable[str] = (),
) -> list[Broken]:
    """Every rule that these events break, in their order; an empty list for a run that is in order.

    `effects` maps tool names to their effect class (a tool that is not in it counts as "once"); without
    it the rules about effects are not checked. `bodies` are the requests as they were sent. `probed`
    are tools with a probe. `secrets` must occur nowhere.
    """
    given = list(events)
    walk = _Check(effects or {}, limits, frozenset(probed))
    walk.walk(given)
    if not walk.found:
        walk.found += check_messages(walk.state.transcript.messages, open_calls=bool(walk.state.pending))
    walk.found += check_requests(bodies)
    for index, event in enumerate(given):
        walk.found += [
            Broken("I27", index, type(event).__name__, "holds a secret") for s in secrets if s and s in repr(event)
        ]
    return walk.found


def _given_up(state: State) -> bool:
    """A person asked something else: the question before it was closed, and never got its answer."""
    return isinstance(state.events[-1], RunInterrupted) and not state.pending


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments or "{}"), dict | None)
    except (ValueError, RecursionError):
        return False
