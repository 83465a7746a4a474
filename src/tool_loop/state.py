"""What a list of events amounts to. No I/O, no clock: the same events always give the same state.

Folding is incremental: an event costs the same at step 400 as at step 10, so a run does not slow
down as it grows. Nothing here decides anything; `next_move` in agent.py does.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from .events import (  # isort: skip
    ApprovalDecided, ApprovalRequested, Compacted, Event, IntentRecorded, LimitReached, ModelReplied, Reminded,
    RunContinued, RunEnded, RunInterrupted, RunResumed, RunStarted, ToolCall, ToolReturned,
)  # fmt: skip
from . import permissions
from .ports import Standing
from .transcript import Transcript

# Characters per token before the run has told us better. English prose has about 4, code about 3,
# Chinese about 1.5: too low a guess only compacts early, too high a guess overflows the window.
CHARS_PER_TOKEN = 3.0

# Results of calls that nothing was run for, and that no limit counts.
UNCOUNTED: frozenset[str | None] = frozenset({"cancelled", "denied", "cut_off", "limit_reached"})

# A set takes 200 bytes, and in most runs all three of a state stay empty.
_NO_CALLS: frozenset[str] = frozenset()


class State:
    """The sum of a run's events. Only `apply` changes it.

    `pending` are the calls without a result, in the order the model asked. `doubtful` are those
    among them that an earlier attempt may have run. `cut` says why none of them may run, "" where they
    may. `refusals` counts the answers that did not do, and `misfit` says that the last one had not the form
    that was asked for. `steps`, `spent` (tokens), `cost` and `tool_calls` count since the last question,
    because limits are per question; `ids` (each call's id with its position), `pace` (seconds a reply takes),
    `window` (what a provider that refused said it takes) and `transcript` span the whole run.
    """

    # Without them a state takes 2 KiB more, most of it a table with room to spare.
    __slots__ = (
        "_base_chars", "_base_tokens", "_learnt", "_most_repeated", "_news", "_ratio", "_seen",
        "compacted", "cost", "cut", "decisions", "doubtful", "edited", "ended", "estimated", "events", "final_reply",
        "first",
        "ids", "inner", "intents", "interrupted", "marks", "misfit", "pace", "pending", "question", "refusals",
        "reminded", "requested", "reviewed", "shown", "spent", "standing", "steps", "stopping", "tainted",
        "tool_calls", "tool_count", "transcript", "unpriced", "untrusted", "window",
    )  # fmt: skip

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.transcript = Transcript()
        self.ids: dict[str, int] = {}
        self.intents: list[tuple[str, ...]] = []
        self.decisions: dict[str, ApprovalDecided] = {}
        self.requested: dict[str, str] = {}
        self.inner: dict[str, str] = {}  # calls that wait for a sub-agent's run, until that is looked at again
        self.shown: dict[str, tuple[str, str]] = {}
        self.standing: dict[tuple[str, str], Standing] = {}
        self.doubtful = self.reviewed = self.edited = _NO_CALLS
        self.marks: dict[str, str] = {}
        self.pending: dict[str, ToolCall] = {}
        self.untrusted = self.tainted = False
        self.estimated = False
        self.interrupted: RunInterrupted | None = None
        self.pace: float | None = None
        self.window: int | None = None
        self._ratio = CHARS_PER_TOKEN
        self._base_tokens = 0
        self._base_chars = 0
        self._begin("")

    def _begin(self, question: str) -> None:
        self.question = question
        self.first = len(self.events)
        self.steps = 0
        self.spent = 0
        self.cost = 0.0
        self.unpriced = False
        self.tool_calls = 0
        self.tool_count: Counter[str] = Counter()
        self.final_reply: ModelReplied | None = None
        self.cut = ""
        self.reminded = 0
        self.refusals = 0
        self.misfit = False
        self.compacted = False
        self.stopping: LimitReached | None = None
        self.ended: RunEnded | None = None
        self._seen: dict[bytes, tuple[int, int]] = {}
        self._news = 0  # the last step before this one that brought something new
        self._learnt = False
        self._most_repeated = 0

    @classmethod
    def of(cls, events: Iterable[Event]) -> State:
        state = cls()
        for event in events:
            state.apply(event)
        return state

    def apply(self, event: Event) -> None:  # noqa: C901 - one case per event
        match event:
            case RunStarted(question=question) | RunContinued(question=question):
                self._begin(question)
                self.untrusted |= isinstance(event, RunStarted) and event.untrusted
            case ModelReplied():
                self._replied(event)
            case ToolReturned():
                self._returned(event)
            case Reminded():
                self.final_reply = None
                self.reminded += event.why == "call_in_text"
                self.refusals += event.why != "call_in_text"
                self.misfit = event.why == "invalid_answer"
            case ApprovalRequested():
                permissions.requested(self, event)
            case ApprovalDecided():
                permissions.decided(self, event)
            case IntentRecorded():
                self.intents.append(event.call_ids)
                if event.mark:
                    self.marks[event.call_ids[0]] = event.mark
            case RunResumed():
                self._resumed()
            case RunInterrupted():
                self.interrupted = event
            case LimitReached():
                self.stopping = event
                self.final_reply = None
            case RunEnded():
                self.ended = event
            case Compacted():
                self._compacted(event)
        self.events.append(event)
        if isinstance(event, Compacted):
            self._rebuild(event)
        else:
            self.transcript.apply(event)

    def _replied(self, reply: ModelReplied) -> None:
        if self._learnt:
            self._news = self.steps
        self._learnt, self._most_repeated = False, 0
        self.steps += 1
        self.tainted = self.untrusted
        self.interrupted = None
        self.compacted = False
        read, written = self._tokens(reply)
        self.spent += read + written + sum(retry.tokens for retry in reply.retries)
        self._pay(reply.cost)
        self._base_tokens = read + written
        self._base_chars = (
            self.transcript.chars + len(reply.text) + sum(len(c.name) + len(c.arguments) for c in reply.calls)
        )
        if (took := reply.seconds - sum(retry.waited for retry in reply.retries)) > 0:
            # The later ones count for more: a conversation grows, and a server is slower at noon.
            self.pace = took if self.pace is None else (self.pace + took) / 2
        self.pending = {call.id: call for call in reply.calls}
        for call_id in self.pending:
            self.ids[call_id] = len(self.ids)
        # A turn that was stopped by somebody, or nobody knows why, is half a thought like one that was cut.
        self.cut = reply.finish or (reply.stop if reply.stop in ("length", "content_filter", "refusal") else "")
        self.misfit = False
        self.final_reply = None if reply.calls else reply
        self.intents.clear()

    def _tokens(self, reply: ModelReplied) -> tuple[int, int]:
        """What the reply cost: as the server counted it, estimated where it said nothing."""
        read, written = reply.usage.input, reply.usage.output
        if read is None:
            self.estimated = True
            read = int(self.transcript.chars / self._ratio)
        elif read > 0:
            # The schemas of the tools are in the count and not in the characters: the ratio comes
            # out low and the estimate high, which is the safe side.
            self._ratio = min(6.0, max(1.0, self.transcript.chars / read))
        if written is None:
            self.estimated = True
            written = int((len(reply.text) + sum(len(c.arguments) for c in reply.calls)) / self._ratio)
        return read, written

    def _pay(self, cost: float | None) -> None:
        if cost is None:
            self.unpriced = True
        else:
            self.cost += cost

    def _returned(self, result: ToolReturned) -> None:
        call = self.pending.pop(result.call_id)
        self.marks.pop(call.id, None)
        if call.id in self.doubtful:
            self.doubtful -= {call.id}
        self.untrusted |= result.untrusted
        if result.tokens:
            self.spent += result.tokens
            self._pay(result.cost)
        if result.error not in UNCOUNTED:
            self.tool_calls += 1
            self.tool_count[call.name] += 1
        if result.repeat:
            key = _digest(call.name, call.arguments, result.error or "", result.content)
            self._learnt |= key not in self._seen
            self._seen[key] = (result.repeat, self.steps)
            self._most_repeated = max(self._most_repeated, result.repeat)
        else:
            # Waiting for something is progress of its own: who looks at a log between two polls is not stuck.
            self._learnt |= result.error is None

    def repeat(self, call: ToolCall, result: ToolReturned) -> int:
        """Which time this call has this result, counted from the last time the run learnt something new.

        One is a first time. Two deserves a note. Three in a row, or in a cycle with others that bring
        nothing new either, has never helped. A call that comes back after something new was learnt
        is read again for a reason, so it is never more than a second time. And what one reply asks
        for twice was asked at once, so it counts once.
        """
        key = _digest(call.name, call.arguments, result.error or "", result.content)
        count, step = self._seen.get(key, (0, 0))
        if count and step == self.steps:
            return count
        return min(count + 1, 2) if step < self._news else count + 1

    @property
    def stalled(self) -> int:
        """How often the latest reply's calls brought what they had brought before; 0 if one brought news."""
        return 0 if self._learnt else self._most_repeated

    def decision(self, call: ToolCall) -> ApprovalDecided | None:
        """What was decided about this call: exactly, or for the whole run about what it may be one of. Exact wins.

        Whether a standing approval is about this call and the tool of today, `approvals.decision` says:
        only the tool knows which rule a call belongs to, unless it was asked about.
        """
        if (exact := self.decisions.get(call.id)) or call.id in self.doubtful or not self.standing:
            return exact
        if call.id in self.shown:
            return permissions.about(self, call.name, self.shown[call.id][1])
        return permissions.maybe_about(self, call.name)

    def edited_arguments(self, call: ToolCall) -> str | None:
        """The arguments a person put in the place of the model's, now or before a crash; else None."""
        decision = self.decisions.get(call.id)
        if decision is not None and decision.arguments is not None:
            return decision.arguments
        return call.arguments if call.id in self.edited else None

    def may_start(self, call: ToolCall) -> bool:
        """Whether running it would start it: it was not cut off, not denied, and is not first to be looked into.

        A denial must not be used up by an intent, or a crash after it would leave the call in doubt.
        """
        decision = self.decision(call)
        return not self.cut and (decision.allowed if decision else call.id not in self.doubtful)

    @property
    def adrift(self) -> frozenset[str]:
        """The open calls that may have happened, should this attempt be over: those that were in doubt
        before, and those that were started and are without a result."""
        return self.doubtful.union(self._started())

    def _started(self) -> list[str]:
        """They run one after another, each result recorded before the next starts: so of the open calls
        of an intent the first may have happened, and the others certainly have not."""
        firsts = (next((c for c in intent if c in self.pending), None) for intent in self.intents)
        return [call_id for call_id in firsts if call_id is not None]

    def _resumed(self) -> None:
        for call_id in self._started():
            self._doubt(call_id)
        self.intents.clear()
        for call_id in self.inner:  # whether they still wait, their own records tell
            self.requested.pop(call_id, None)
        self.inner.clear()

    def _doubt(self, call_id: str) -> None:
        """Its approval was used up when it was started: whoever was asked about it is asked again, and
        about the arguments that may have run."""
        self.doubtful |= {call_id}
        if self.requested.pop(call_id, None) is not None:
            self.reviewed |= {call_id}
        decision = self.decisions.pop(call_id, None)
        if decision is not None and decision.arguments is not None:
            self.pending[call_id] = replace(self.pending[call_id], arguments=decision.arguments)
            self.edited |= {call_id}

    def _compacted(self, event: Compacted) -> None:
        self.compacted = True
        self.window = event.window or self.window
        if event.summary:
            asked = ModelReplied(event.summary, usage=event.usage)
            self.spent += sum(self._tokens(asked)) + sum(retry.tokens for retry in event.retries)
            self._pay(event.cost)
        # What was cleared may be fetched again for good reason.
        self._seen.clear()

    def _rebuild(self, event: Compacted) -> None:
        done = [e for e in self.events if isinstance(e, Compacted)]
        cleared = frozenset(call_id for e in done for call_id in e.cleared)
        last = next((e for e in reversed(done) if e.summary), event)
        self.transcript = Transcript.rebuilt(self.events, cleared, last.summary, last.upto)
        self._base_tokens = int(self.transcript.chars / self._ratio)
        self._base_chars = self.transcript.chars

    @property
    def context(self) -> int:
        """Tokens the next request is expected to read: the last count, plus what was added since."""
        return self._base_tokens + int(max(0, self.transcript.chars - self._base_chars) / self._ratio)

    @property
    def chars_per_token(self) -> float:
        return self._ratio


@lru_cache(maxsize=16)  # asked when a result is looked up, and again when it is recorded
def _digest(name: str, arguments: str, error: str, content: str) -> bytes:
    """A key for (name, canonical arguments, result): the same call pretty-printed is the same call."""
    text = "\0".join((name, canonical(arguments), error, content))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@lru_cache(maxsize=256)
def canonical(arguments: str) -> str:
    """The arguments in one spelling: models send the same ones compact and pretty-printed."""
    try:
        return _CANONICAL.encode(json.loads(arguments or "{}"))
    except (ValueError, RecursionError):
        return arguments


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))  # once: `json.dumps` makes one at each call


def call_key(run_id: str, position: int, call: ToolCall) -> str:
    """A call's idempotency key: the same over every retry, resume and compaction, and for no other call."""
    what = hashlib.sha256(f"{call.name}\0{canonical(call.arguments)}".encode("utf-8", "surrogatepass"))
    return f"{run_id}-{position}-{what.hexdigest()[:16]}"
