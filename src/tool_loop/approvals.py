"""What an approval allows, and what becomes of a call that a crash left in doubt.

An approval is bound to a fingerprint of exactly what was shown (tool, definition, arguments, scope),
and is used up by the one `IntentRecorded` that names it. No allow means no run.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from . import messages as say
from .events import ApprovalDecided, ApprovalRequest, ApprovalRequested, IntentRecorded, ToolCall, ToolReturned
from .journal import settle
from .ports import Pending, Reviewer, Tools
from .state import State

if TYPE_CHECKING:
    from .agent import Attempt

logger = logging.getLogger(__name__)


def effective(call: ToolCall, decision: ApprovalDecided) -> ToolCall:
    """The call that will run: as asked, or with the arguments a person put in their place."""
    if decision.arguments is None or decision.call_id != call.id:
        return call
    return replace(call, arguments=decision.arguments)


def refused(state: State, tools: Tools, call: ToolCall, now: float) -> ToolReturned | None:
    """The result of a call that a person did not allow, or that is no longer what they allowed."""
    decision = state.decision(call)
    if decision is None:
        return None
    if not decision.allowed:
        return say.outcome_unknown(call, decision.note) if call.id in state.doubtful else say.denied(call, decision)
    if decision.expires_at is not None and now > decision.expires_at:
        return say.denied(call, decision, "the approval expired before the call could run")
    # A standing approval names the tool and not the arguments, so only an exact one is compared.
    if decision.call_id == call.id and decision.fingerprint != tools.fingerprint(effective(call, decision)):
        return say.denied(call, decision, "the call or its tool is not what was approved; it has to be approved again")
    return None


async def ask_person(attempt: Attempt, calls: Sequence[ToolCall]) -> bool:
    """Put the question on record, then to the reviewer; False when the run has to wait for a decision."""
    state, tools = attempt.log.state, attempt.tools
    new = [c for c in calls if c.id not in state.requested]
    if new:
        await attempt.record(ApprovalRequested(tuple(_request(state, tools, c) for c in new)))
    if attempt.reviewer is None:
        return False
    for call in calls:
        if state.decision(call):
            continue  # a standing answer to an earlier one covers it
        shown = pending(state, tools, call)
        task, held = await settle(_ask(attempt.reviewer, shown), until=attempt.until())
        error = task.exception() if task.done() and not task.cancelled() else None
        if error:
            logger.warning("the reviewer failed; the call goes on waiting", exc_info=error)
        if held:
            raise held
        if error or not task.done() or task.cancelled():
            return False
        if not state.decision(call):  # somebody may have been faster, from elsewhere
            await attempt.record(_bound(task.result(), shown, tools))
    return True


async def look_into(attempt: Attempt, call: ToolCall) -> ToolReturned | None:
    """What became of a call that an earlier attempt started: what its probe says, or what a person will.

    Returns its result; or None, either with the question to a person on record, or with a new
    intent on record because it certainly did not happen and is to run now.
    """
    state, tools = attempt.log.state, attempt.tools
    if (never_ran := tools.refuse(call)) is not None:
        return never_ran
    found = await tools.probe(call, key=attempt.key(call))
    if isinstance(found, ToolReturned):
        return found
    gated = tools.needs_approval(call) or call.id in state.reviewed
    if found is False and not gated:
        await attempt.record(IntentRecorded((call.id,)))
        return None
    if gated or attempt.reviewer is not None:
        await attempt.record(ApprovalRequested((_request(state, tools, call),)))
        return None
    return say.outcome_unknown(call)


def pending(state: State, tools: Tools, call: ToolCall) -> Pending:
    """Everything a person needs to decide about this call."""
    about = next((s.description for s in tools.specs() if s.name == call.name), "")
    fingerprint = state.requested.get(call.id) or tools.fingerprint(call)
    return Pending(call, fingerprint, "in_doubt" if call.id in state.doubtful else "policy", about)


def _request(state: State, tools: Tools, call: ToolCall) -> ApprovalRequest:
    return ApprovalRequest(call.id, tools.fingerprint(call), "in_doubt" if call.id in state.doubtful else "policy")


def _bound(said: ApprovalDecided, shown: Pending, tools: Tools) -> ApprovalDecided:
    """The decision, tied to the call that was shown, whatever the reviewer returned: one that mixes
    two calls up cannot allow the one it did not show.
    """
    fingerprint = shown.fingerprint
    if said.arguments is not None:
        fingerprint = tools.fingerprint(replace(shown.call, arguments=said.arguments))
    return replace(said, call_id=shown.call.id, fingerprint=fingerprint)


async def _ask(reviewer: Reviewer, shown: Pending) -> ApprovalDecided:
    return await reviewer(shown)
