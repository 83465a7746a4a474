"""What people decided for the rest of a run, folded from the record: the part of `State` about permissions.

A permission for a run is about the calls of one tool that have the same rule (see `Preview`), and ""
is the rule of tools that have none. Pure; whether one still fits the tool of today, approvals.py says.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tool_loop.events import ApprovalDecided, ApprovalRequested
from tool_loop.ports import Standing

if TYPE_CHECKING:
    from tool_loop.state import State


def requested(state: State, event: ApprovalRequested) -> None:
    for request in event.requests:
        state.requested[request.call_id] = request.fingerprint
        state.shown[request.call_id] = request.mark, request.rule
        if request.why == "inner":
            state.inner[request.call_id] = request.inner
        call = state.pending.get(request.call_id)
        before = state.standing.get((call.name, request.rule)) if call else None
        # Asked about all the same: that approval is about another tool by now, or does not count any
        # more. Forgotten, so that whoever looks without tools sees a call that waits, too.
        if call and before and before.decision.allowed and request.why == "policy":
            del state.standing[call.name, request.rule]


def decided(state: State, decision: ApprovalDecided) -> None:
    # The first decision about a call wins; the journal refuses a second one, and so do we.
    state.decisions.setdefault(decision.call_id, decision)
    call = state.pending.get(decision.call_id)
    if decision.standing and call is not None:
        mark, rule = state.shown.get(call.id, ("", ""))
        before = state.standing.get((call.name, rule))
        if before is None or before.decision.allowed:  # deny beats allow
            if decision.arguments is not None:
                call = replace(call, arguments=decision.arguments)
            state.standing[call.name, rule] = Standing(decision, call, mark, rule)


def about(state: State, name: str, rule: str) -> ApprovalDecided | None:
    """What was decided for the whole run about the calls of a tool that have this rule.

    What was allowed in advance was allowed to a model that had read nothing of strangers. Once it had,
    when it asked for a call, the call is asked about by itself: whoever wrote what it read must find no
    permission lying about. What was denied stays denied.
    """
    all_of_it, some = state.standing.get((name, "")), state.standing.get((name, rule))
    if all_of_it and not all_of_it.decision.allowed:
        return all_of_it.decision
    return some.decision if some and not (some.decision.allowed and state.tainted) else None


def maybe_about(state: State, name: str) -> ApprovalDecided | None:
    """One that may be about a call of this tool whose rule nobody has looked up."""
    rules = sorted(rule for tool, rule in state.standing if tool == name)
    return next((found for rule in rules if (found := about(state, name, rule))), None)
