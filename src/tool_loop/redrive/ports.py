"""A model and tools that do again what is on record: the ports through which a saved run is driven.

They ask nothing and run nothing. Where the loop comes to them at a moment that the record does not
have, they say so, and the attempt is over.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, get_args

from tool_loop.errors import FatalError, ProviderError, ProviderKind
from tool_loop.events import (
    ApprovalDecided,
    ApprovalRequested,
    Compacted,
    Event,
    IntentRecorded,
    LimitReached,
    ModelReplied,
    RunEnded,
    RunInterrupted,
    ToolCall,
    ToolReturned,
)
from tool_loop.loop.approvals import fingerprint
from tool_loop.ports import Preview
from tool_loop.transcript import SUMMARISE, UserMessage

if TYPE_CHECKING:
    from tool_loop.ports import Effect, Emit, Request, Tools, ToolSpec

    from .driving import Recorded

# Results of calls that a registry refuses without running anything.
_REFUSED: Final = frozenset({"bad_json", "invalid_arguments", "unknown_tool"})
# How late the record of a deadline may be: what was cancelled is given a moment to clean up.
_LATE: Final = 1.0


class RecordedLLM:
    """Gives the reply that is on record next, or fails as it failed then."""

    def __init__(self, record: Recorded) -> None:
        self._record = record

    async def reply(self, request: Request, _emit: Emit) -> ModelReplied:  # noqa: C901 - one case per event
        record = self._record
        expected = record.expected
        if expected is None or record.over:
            raise record.end()
        if request.transcript.messages[-1] == UserMessage(SUMMARISE):
            return await self._summary(expected)
        match expected:
            case ModelReplied():
                if request.may_call != (record.state.stopping is None):
                    record.note("the tools would be withheld or not", f"+ may_call: {request.may_call}")
                await record.until(record.at)
                return expected
            case Compacted():
                # The loop would have asked, and it compacted: because the provider said it was too much.
                raise ProviderError("too long, as on record", kind="context_length", window=expected.window)
            case LimitReached() if not record.limits_known:
                raise record.end()
            case LimitReached(limit="deadline"):
                await record.until(record.at)
                if request.deadline is None or request.deadline > asyncio.get_running_loop().time() + _LATE:
                    raise record.differs("the model is still waited for")
                raise TimeoutError
            case RunEnded(source="journal") if not request.may_call:
                raise ProviderError("no last word, as on record", kind="server_error")
            case RunInterrupted(kind=kind, message=message):
                raise _failed(kind, message)
            case _:
                raise record.differs(f"the model is asked{'' if request.may_call else ' for a last word'}")

    async def _summary(self, expected: Event) -> ModelReplied:
        if not isinstance(expected, Compacted):
            return ModelReplied("")  # the loop is about to compact, which is noted when it does
        await self._record.until(self._record.at)
        return ModelReplied(expected.summary, usage=expected.usage, cost=expected.cost)


def _failed(kind: str, message: str) -> FatalError:
    if kind in get_args(ProviderKind):
        return ProviderError(message, kind=kind)  # type: ignore[arg-type]  # just checked
    return FatalError(message, kind=kind)


class RecordedTools:
    """Today's tools, for what they declare and refuse; results come from the record.

    Without today's tools the record answers for them: what had an intent must run once, what was
    asked about needs an approval.
    """

    def __init__(self, record: Recorded, tools: Tools | None) -> None:
        self._record = record
        self._tools = tools
        events = record.events
        calls = {c.id: c for e in events if isinstance(e, ModelReplied) for c in e.calls}
        self._once = {calls[i].name for e in events if isinstance(e, IntentRecorded) for i in e.call_ids if i in calls}
        self._asked = {r.call_id: r.fingerprint for e in events if isinstance(e, ApprovalRequested) for r in e.requests}
        # The state of things as it was: the files of today are not those of then.
        self._seen = {
            r.call_id: (r.mark, r.rule) for e in events if isinstance(e, ApprovalRequested) for r in e.requests
        }
        self._seen |= {e.call_ids[0]: (e.mark, "") for e in events if isinstance(e, IntentRecorded) if e.mark}
        self._edited = {(e.call_id, e.arguments): e.fingerprint for e in events if isinstance(e, ApprovalDecided)}
        self._gated = {
            r.call_id for e in events if isinstance(e, ApprovalRequested) for r in e.requests if r.why == "policy"
        }
        results = [e for e in events if isinstance(e, ToolReturned)]
        self._results = {e.call_id: e for e in results}
        told = [(calls[e.call_id].name, e.repeat) for e in results if e.error is None and e.call_id in calls]
        self._polling = {name for name, repeat in told if repeat == 0}

    def specs(self) -> tuple[ToolSpec, ...]:
        return self._tools.specs() if self._tools else ()

    def effect(self, name: str) -> Effect | None:
        if self._tools:
            return self._tools.effect(name)
        return None if name in self._once else "read"

    def polls(self, name: str) -> bool:
        return self._tools.polls(name) if self._tools else name in self._polling

    def needs_approval(self, call: ToolCall) -> bool:
        return self._tools.needs_approval(call) if self._tools else call.id in self._gated

    def fingerprint(self, call: ToolCall, preview: Preview | None = None) -> str:
        if self._tools:
            return fingerprint(self._tools, call, preview or self.preview(call))
        return self._edited.get((call.id, call.arguments)) or self._asked.get(call.id, "")

    def preview(self, call: ToolCall) -> Preview | None:
        if call.id not in self._seen:
            return None
        mark, rule = self._seen[call.id]
        return Preview(mark=mark, rule=rule) if mark or rule else None

    def refuse(self, call: ToolCall) -> ToolReturned | None:
        if self._tools:
            return self._tools.refuse(call)
        recorded = self._results.get(call.id)
        return recorded if recorded and recorded.error in _REFUSED else None

    async def run(self, call: ToolCall, **_given: Any) -> ToolReturned:
        record = self._record
        n = record.result_of(call.id)
        if n is None or record.over:
            raise record.end()
        await record.until(n)
        await record.turn_of(call.id)
        recorded = record.events[n] if (m := record.result_of(call.id)) is None else record.events[m]
        assert isinstance(recorded, ToolReturned)
        refused = self.refuse(call)
        if refused is None and recorded.error in _REFUSED:
            record.note(f"{call.name} would run", f"- {recorded.error}: {recorded.content}\n+ it runs")
        return refused or recorded

    async def probe(self, call: ToolCall, **_given: Any) -> ToolReturned | bool | None:
        """What was found out about the call then: from what was recorded next about it."""
        events = self._record.events
        for n in range(self._record.at, len(events)):
            match events[n]:
                case IntentRecorded(call_ids=ids) if call.id in ids:
                    return False
                case ApprovalRequested(requests=requests) if any(r.call_id == call.id for r in requests):
                    return None
                case ToolReturned(call_id=call.id) as result:
                    return None if result.error == "outcome_unknown" else result
                case _:
                    pass
        return None
