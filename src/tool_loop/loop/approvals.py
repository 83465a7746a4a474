"""What an approval allows, and what becomes of a call that a crash or a cancel left in doubt.

An approval is bound to a fingerprint of exactly what was shown (tool, definition, arguments, scope),
and is used up by the one `IntentRecorded` that names it. No allow means no run.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from tool_loop import permissions, transcript
from tool_loop.errors import UsageError
from tool_loop.events import ApprovalDecided, ApprovalRequest, ApprovalRequested, IntentRecorded, ToolCall, ToolReturned
from tool_loop.ports import PendingApproval, Preview, Reviewer, Tools
from tool_loop.runtime.context import CURRENT
from tool_loop.runtime.shield import Settled, settle
from tool_loop.state import State

if TYPE_CHECKING:
    from tool_loop.agent import Driver

logger = logging.getLogger(__name__)


def effective(call: ToolCall, made: ApprovalDecided) -> ToolCall:
    """The call that will run: as asked, or with the arguments a person put in their place."""
    if made.arguments is None or made.call_id != call.id:
        return call
    return replace(call, arguments=made.arguments)


def decision(state: State, tools: Tools, call: ToolCall) -> ApprovalDecided | None:
    """What was decided about this call, as far as it still holds.

    A standing approval was given for one call that a person saw, and says yes to others of that tool. It
    covers those with the rule that was shown with it, and none where that was that there is none. It is
    about the tool with that definition, in that scope and under that policy: it holds for as long as that
    first call, in the state of things of then, would have the same fingerprint today. A standing denial
    always holds.
    """
    if call.id in state.decisions or state.decision(call) is None:
        return state.decisions.get(call.id)
    preview = previewed(tools, call)
    rule = preview.rule if preview else ""
    made = permissions.about(state, call.name, rule)
    if made is None or not made.allowed:
        return made
    if preview and not rule:
        return None
    first = state.standing[call.name, rule]
    then = Preview(mark=first.mark, rule=first.rule) if hasattr(tools, "preview") else None
    return made if made.fingerprint == fingerprint(tools, first.call, then) else None


def barred(state: State, tools: Tools, call: ToolCall, now: float) -> ToolReturned | None:
    """The result of a call that a person did not allow, or that is no longer what they allowed."""
    made = decision(state, tools, call)
    if made is None:
        # What was allowed for the run covers others of its tool; this one has to need nobody.
        return _not_covered(call, state.decision(call)) if tools.needs_approval(call) else None
    if not made.allowed:
        return (
            transcript.outcome_unknown(call, made.note) if call.id in state.doubtful else transcript.denied(call, made)
        )
    if made.expires_at is not None and now > made.expires_at:
        return transcript.denied(call, made, "the approval expired before the call could run")
    if made.call_id == call.id and made.fingerprint != fingerprint(tools, effective(call, made)):
        return _not_covered(call, made)
    return None


def _not_covered(call: ToolCall, made: ApprovalDecided | None) -> ToolReturned | None:
    why = "the call or its tool is not what was approved; it has to be approved again"
    return transcript.denied(call, made, why) if made else None


def previewed(tools: Tools, call: ToolCall) -> Preview | None:
    """What the call would do, where these tools can say it: a port of somebody's own may be older than this."""
    look = getattr(tools, "preview", None)
    return look(call) if look else None


def fingerprint(tools: Tools, call: ToolCall, preview: Preview | None = None) -> str:
    return tools.fingerprint(call, preview) if preview else tools.fingerprint(call)


async def marked(driver: Driver, call: ToolCall) -> dict[str, str]:
    """The mark of the call's preview, on record before it starts, as `Tools.run` takes it.

    After a crash it is what the probe tells by whether the call happened. The tool refuses to work on
    another state of things than this one, and without a mark at all, so what was allowed is what is done.
    """
    preview = previewed(driver.tools, call)
    if preview is None or not preview.mark:
        return {}
    if preview.asks and decision(driver.log.state, driver.tools, driver.log.state.pending[call.id]) is None:
        return {}  # it needed nobody when that was looked at, and it does by now
    await driver.record(IntentRecorded((call.id,), mark=preview.mark))
    return {"mark": preview.mark}


async def ask_person(driver: Driver, calls: Sequence[ToolCall]) -> bool:
    """Put the question on record, then to the reviewer; False when the run has to wait for a decision."""
    state, tools = driver.log.state, driver.tools
    calls = [c for c in calls if c.id not in state.inner]  # whoever decides there resumes this run
    if not calls:
        return False
    seen = {c.id: previewed(tools, c) for c in calls}
    # Asked anew where the tool, or what it works on, has changed since: what is shown is what an answer
    # is bound to, and an approval of something else would only be refused afterwards.
    requests = [_request(state, tools, c, seen[c.id]) for c in calls if not decision(state, tools, c)]
    if new := tuple(r for r in requests if state.requested.get(r.call_id) != r.fingerprint):
        await driver.record(ApprovalRequested(new))
    if driver.reviewer is None:
        return False
    for call in calls:
        if decision(state, tools, call):
            continue  # a standing answer to an earlier one covers it
        shown = pending(state, tools, call, seen[call.id])
        asked = await settle(_ask(driver.reviewer, shown), until=driver.until())
        if asked.landed:
            _heard(asked.error)
        if asked.cancel:
            raise asked.cancel
        if asked.error:
            return False
        if not decision(state, tools, call):  # somebody may have been faster, from elsewhere
            await driver.record(_bound(asked.value, shown, tools))
    return True


async def look_into(driver: Driver, call: ToolCall) -> ToolReturned | None:
    """What became of a call that an earlier attempt started: what its probe says, or what a person will.

    Returns its result; or None, either with the question to a person on record, or with a new
    intent on record because it certainly did not happen and is to run now.
    """
    state, tools = driver.log.state, driver.tools
    if (never_ran := tools.refuse(call)) is not None:
        return never_ran
    mark = {"mark": state.marks[call.id]} if call.id in state.marks else {}
    found = await _probed(driver, call, mark)
    if isinstance(found, ToolReturned):
        return found
    gated = tools.needs_approval(call) or call.id in state.reviewed
    if found is False and not gated:
        await driver.record(IntentRecorded((call.id,)))
        return None
    if gated or driver.reviewer is not None:
        await driver.record(ApprovalRequested((_request(state, tools, call, previewed(tools, call)),)))
        return None
    return transcript.outcome_unknown(call)


async def outcome(driver: Driver, call: ToolCall, ran: Settled[ToolReturned], mark: Mapping[str, str]) -> ToolReturned:
    """The result of a call that ran, from which a cancel may have called us away.

    Raises that cancel when the call must not run twice and did not land: then it has no result and is
    `adrift`, as a crash would leave it, and the next attempt looks into it. A call of a sub-agent has none
    either, as its run goes on; and an error that only a person can mend is raised here, not told to a model.
    """
    alone = driver.alone(call)
    if fatal := CURRENT.get().memo.pop(("fatal", call.id), None):
        raise ran.cancel or fatal
    if not ran.landed and ran.cancel and (alone or call.id in driver.adrift):
        driver.adrift.add(call.id)
        raise ran.cancel
    if not ran.landed:
        return transcript.outcome_unknown(call) if alone else transcript.cancelled(call)
    if alone and not ran.cancel and ran.value.error == "timed_out":
        # It was stopped somewhere in between, or still runs. Where its probe knows its result, that counts.
        found = await _probed(driver, call, mark)
        return found if isinstance(found, ToolReturned) else ran.value
    return ran.value


async def _probed(driver: Driver, call: ToolCall, mark: Mapping[str, str]) -> ToolReturned | bool | None:
    """What the probe says; None, which is always safe, when it cannot tell, fails, or takes too long."""
    asked = await settle(driver.tools.probe(call, key=driver.key(call), **mark), until=driver.until())
    if asked.cancel:
        driver.adrift.add(call.id)
        raise asked.cancel
    if asked.error is not None:
        logger.warning("a probe failed: nobody knows whether the call happened", exc_info=asked.error)
        return None
    return asked.value


def pending(state: State, tools: Tools, call: ToolCall, preview: Preview | None = None) -> PendingApproval:
    """Everything a person needs to decide about this call."""
    about = next((s.description for s in tools.specs() if s.name == call.name), "")
    preview = preview or previewed(tools, call)
    bound = state.requested.get(call.id) or fingerprint(tools, call, preview)
    why = "in_doubt" if call.id in state.doubtful else "policy"
    return PendingApproval(call, bound, why, about, preview, Looks(tools, call), standing=not state.tainted)


class Looks:
    """Previews of a call with the arguments that a person tries. The last one of each is kept, so that
    their approval is bound to what they saw and not to what is there afterwards."""

    def __init__(self, tools: Tools, call: ToolCall) -> None:
        self._tools, self._call = tools, call
        self.seen: dict[str, Preview | None] = {}

    def __call__(self, arguments: str) -> Preview | None:
        self.seen[arguments] = previewed(self._tools, replace(self._call, arguments=arguments))
        return self.seen[arguments]


def _request(state: State, tools: Tools, call: ToolCall, preview: Preview | None) -> ApprovalRequest:
    why: Literal["policy", "in_doubt"] = "in_doubt" if call.id in state.doubtful else "policy"
    seen = preview or Preview()
    return ApprovalRequest(call.id, fingerprint(tools, call, preview), why, seen.mark, seen.rule)


def _bound(said: ApprovalDecided, shown: PendingApproval, tools: Tools) -> ApprovalDecided:
    """The decision, tied to the call that was shown, whatever the reviewer returned: one that mixes
    two calls up cannot allow the one it did not show.
    """
    bound = shown.fingerprint
    if said.arguments is not None:
        seen = shown.look.seen.get(said.arguments) if isinstance(shown.look, Looks) else None
        bound = fingerprint(tools, replace(shown.call, arguments=said.arguments), seen)
    return replace(said, call_id=shown.call.id, fingerprint=bound)


def _heard(error: BaseException | None) -> None:
    """A reviewer that cannot work would fail at every call, and the run would only seem to wait."""
    if isinstance(error, UsageError):
        raise error
    if error:
        logger.warning("the reviewer failed; the call goes on waiting", exc_info=error)


async def _ask(reviewer: Reviewer, shown: PendingApproval) -> ApprovalDecided:
    said: object = await awaited(reviewer(shown))
    if not isinstance(said, ApprovalDecided):
        how = "return ApprovalDecided(pending.call.id, allowed=True)"
        raise UsageError(f"a reviewer returns an ApprovalDecided, as in `{how}`; this one returned {said!r:.80}")
    return said


def awaited(answer: Awaitable[ApprovalDecided]) -> Awaitable[ApprovalDecided]:
    if not inspect.isawaitable(answer):
        raise UsageError("the reviewer has to be async: write `async def`; what it returned cannot be awaited")
    return answer
