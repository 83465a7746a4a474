"""What the model sees: a pure function of the events, kept up to date one event at a time.

A `Transcript` grows only at its end, except when the run is compacted, so that a dialect can encode
each message once and a provider's prompt cache sees the same first bytes at every request.

Also here: every sentence the loop itself says to a model, and the repair of a reply's call ids.
Knows nothing about any provider's format; the files in `llm/` turn these messages into bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from tool_loop.records import dataclass

from .calls_in_prose import looks_like_a_call
from .events import (
    ApprovalDecided,
    Event,
    LimitReached,
    ModelReplied,
    Reminded,
    RunContinued,
    RunEnded,
    RunStarted,
    ToolCall,
    ToolReturned,
)

if TYPE_CHECKING:
    from .ports import Request
    from .state import State

DEFAULT_SYSTEM = "Use the tools when you need them. Stop and answer when you are done."


@dataclass(frozen=True, slots=True)
class UserMessage:
    text: str


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """One reply. `opaque` goes back to the endpoint named in `origin`, and to no other."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    opaque: str = ""
    origin: str = ""


@dataclass(frozen=True, slots=True)
class ToolMessage:
    call_id: str
    name: str
    content: str
    error: bool = False


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage


class Transcript:
    """The messages of one run, in order, with every call directly followed by its results.

    Results are recorded as they land but shown in call order, so they wait in `_landed` until the
    last one of their reply is in. Messages already there never change: a compaction makes a new
    transcript, so whatever was derived from this one (its encoded bytes) can be kept beside it in a
    `WeakKeyDictionary`. `chars` is the size of it all, the basis for estimating tokens.
    """

    __slots__ = ("__weakref__", "_asked", "_landed", "chars", "messages", "system")

    def __init__(self, system: str = "", messages: Iterable[Message] = ()) -> None:
        self.system = system
        self.messages: list[Message] = []
        self.chars = len(system)
        self._asked: tuple[ToolCall, ...] = ()
        self._landed: dict[str, ToolReturned] = {}
        for message in messages:
            self._add(message)

    def apply(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._open(event)
            case RunContinued():
                if event.system is not None:
                    self.chars += len(event.system) - len(self.system)
                    self.system = event.system
                self._add(UserMessage(follow_up(event)))
            case Reminded(text=text):
                self._add(UserMessage(text))
            case ModelReplied():
                # An empty assistant turn is refused by several providers and says nothing; but one that
                # pauses goes on from what the provider's own tools left in it.
                if event.text or event.calls or (event.stop == "pause" and event.opaque):
                    self._add(AssistantMessage(event.text, event.calls, event.opaque, event.origin))
                self._asked = event.calls
            case ToolReturned():
                self._landed[event.call_id] = event
                self._close_turn()
            case LimitReached(limit=limit):
                self._add(UserMessage(last_word(limit)))
            case RunEnded(source="journal", answer=text):
                self._add(AssistantMessage(text))
            case _:
                pass  # nothing the model sees; `Compacted` needs the whole list, see `rebuilt`

    def extended(self, *more: Message) -> Transcript:
        """A copy with further messages at its end, for a question asked on the side."""
        return Transcript(self.system, (*self.messages, *more))

    @classmethod
    def rebuilt(cls, events: Sequence[Event], cleared: frozenset[str], summary: str, upto: int) -> Transcript:
        """The same in fewer words: a summary for what lies before `upto`, stubs for the results in `cleared`.

        The system prompt, the examples and the current question stay word for word.
        """
        opening, later = events[0], events[1:]
        assert isinstance(opening, RunStarted)
        if summary:
            before = [e for e in events[:upto] if isinstance(e, RunContinued)]
            asked = [opening.question, *map(follow_up, before)]
            system = [opening.system, *(e.system for e in before if e.system is not None)]
            opening = replace(opening, question=f"{asked[-1]}\n\n{summary_note(summary)}", system=system[-1])
            later = events[upto:]
        self = cls()
        self.apply(opening)
        calls: dict[str, ToolCall] = {}
        for event in later:
            if isinstance(event, ModelReplied):
                calls.update((call.id, call) for call in event.calls)
            if isinstance(event, ToolReturned) and event.call_id in cleared:
                self.apply(replace(event, content=stub(calls[event.call_id], event.content), repeat=1))
            else:
                self.apply(event)
        return self

    def _open(self, event: RunStarted) -> None:
        self.system = event.system
        self.chars += len(event.system)
        for n, example in enumerate(event.examples):
            call = ToolCall(f"example_{n}", example.name, example.arguments)
            self._add(UserMessage(example.question))
            self._add(AssistantMessage("", (call,)))
            self._add(ToolMessage(call.id, call.name, example.result))
            self._add(AssistantMessage(example.answer))
        self._add(UserMessage(event.question))

    def _close_turn(self) -> None:
        if not all(call.id in self._landed for call in self._asked):
            return
        for call in self._asked:
            result = self._landed.pop(call.id)
            self._add(ToolMessage(call.id, call.name, shown(result), result.error is not None))
        self._asked = ()

    def _add(self, message: Message) -> None:
        self.messages.append(message)
        match message:
            case UserMessage(text=text) | ToolMessage(content=text):
                self.chars += len(text)
            case AssistantMessage():
                self.chars += len(message.text) + len(message.opaque)
                self.chars += sum(len(c.name) + len(c.arguments) + len(c.opaque) for c in message.calls)


# --- what the model is told -----------------------------------------------------------------------


def failure(kind: str, message: str, hint: str = "", **fields: Any) -> str:
    """The one form in which a model reads a failure: JSON with the kind, the message and a hint."""
    body: dict[str, Any] = {"error": kind, "message": message}
    if hint:
        body["hint"] = hint
    return json.dumps(body | fields, ensure_ascii=False, default=str)


def failed(call: ToolCall, kind: str, message: str, hint: str = "", **fields: Any) -> ToolReturned:
    return ToolReturned(call.id, failure(kind, message, hint, **fields), kind)


def shown(result: ToolReturned) -> str:
    """A result as the model reads it: the record, with what the loop has to say about it."""
    text = result.content
    if result.arguments is not None:
        text = f"[a person edited the arguments; these ran: {result.arguments}]\n{text}"
    if result.repeat > 1:
        text += (
            "\n\n[note: the same call gave the same result before; nothing has changed. Try something else, or answer.]"
        )
    return text


def cut_off(call: ToolCall, why: str = "length") -> ToolReturned:
    """`why` is how the reply ended: a `Stop`, or the server's own word for it."""
    if why == "length":
        message = "the reply was cut at the output limit, so none of its calls was run"
        return failed(call, "cut_off", message, "send fewer or smaller calls in one reply")
    message = f"the reply did not end as one with calls does ({clip(why, 80)}), so none of its calls was run"
    return failed(call, "cut_off", message, "if the call is still needed, send it again")


def denied(call: ToolCall, decision: ApprovalDecided, why: str = "") -> ToolReturned:
    message = why or (f"not allowed: {decision.note}" if decision.note else "not allowed")
    return failed(call, "denied", message, "do not repeat it; go on without it or ask what is wanted instead")


def cancelled(call: ToolCall) -> ToolReturned:
    message = "the run was interrupted before this call was over; it has no result"
    return _no_result(failed(call, "cancelled", message, "call it again if it is still needed"))


def set_aside(call: ToolCall) -> ToolReturned:
    message = "not run: nobody decided about it, and the person went on to something else"
    return _no_result(failed(call, "cancelled", message, "do not call it again unless that asks for it"))


def outcome_unknown(call: ToolCall, note: str = "") -> ToolReturned:
    message = "this call was started, then the run was interrupted: it may or may not have happened"
    hint = "check first whether it happened; only if it certainly did not, ask for it again"
    return _no_result(failed(call, "outcome_unknown", message, hint, **({"person": note} if note else {})))


def _no_result(told: ToolReturned) -> ToolReturned:
    """What stands in the place of a result is none: it is never counted as the same one again."""
    return replace(told, repeat=0)


def over_limit(call: ToolCall, most: int) -> ToolReturned:
    message = f"not run: {call.name} may be called {most} times in this run, and has been"
    return failed(call, "limit_reached", message, "answer from what you have, or use another tool")


def answer_form(schema: str) -> str:
    """What the system prompt, or a follow-up question, says of the form of the answer."""
    return (
        "When you have what you need, answer with one JSON object that fits this schema, "
        f"and write nothing around it: {schema}"
    )


def follow_up(event: RunContinued) -> str:
    """A follow-up question as the model reads it: with the form of its answer, where that is another one."""
    if not event.answer:
        return event.question
    form = "Answer this one in plain text." if event.answer == "text" else answer_form(event.answer)
    return f"{event.question}\n\n{form}"


def last_word(limit: str) -> str:
    return (
        f"Stop here: {limit}. No more tools can be called. "
        "Answer the question now, from what you have found so far, and say what is missing."
    )


def summary_note(summary: str) -> str:
    return f"[The work so far, summarised; the details before this point are gone]\n{summary}"


def stub(call: ToolCall, content: str) -> str:
    return (
        f"[{len(content)} characters removed to save space; to read them again, call {call.name} with {call.arguments}]"
    )


NO_CALL_FOUND = (
    "Your reply contains a tool call written as text. Nothing was run. "
    "If you want a tool to run, call it through the tool-calling interface; otherwise answer in plain words."
)

SUMMARISE = (
    "Pause here and write a summary for yourself, because the conversation is about to be shortened. Keep: "
    "what was asked, what was found (file names, line numbers, figures, exact names), what was tried and failed, "
    "decisions, and what is still to be done. Do not call tools. Write plain text only."
)


def from_journal(state: State) -> RunEnded:
    """An honest end when the model gives no answer: what was asked, what was found, why it stopped."""
    limit = state.stopping.limit if state.stopping else "no answer"
    head = f"No answer: the run stopped ({limit}) and the model gave no last word.\nAsked: {clip(state.question, 300)}"
    return RunEnded(limit, f"{head}\n{digest(state.events[state.first :])}", "journal")


def digest(events: Sequence[Event]) -> str:
    """What the record holds, in a few lines: the model's last words and the latest results."""
    calls = {c.id: c for e in events if isinstance(e, ModelReplied) for c in e.calls}
    results = [e for e in events if isinstance(e, ToolReturned) and e.call_id in calls]
    good = [r for r in results if r.error is None]
    said = [e.text for e in events if isinstance(e, ModelReplied) and e.text.strip()]
    lines = [f"The model's last words: {clip(said[-1], 500)}"] if said else []
    lines.append(f"Found so far ({len(good)} of {len(results)} calls gave a result):")
    lines += [
        f"- {calls[r.call_id].name} {clip(calls[r.call_id].arguments, 80)}: {clip(r.content, 160)}" for r in good[-8:]
    ]
    return "\n".join(lines)


def clip(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


# --- repairing a reply ----------------------------------------------------------------------------

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Without one of these no text holds a call; most answers have none.
_CALL_SIGN = re.compile(r"[{\[<]|Action:")


def repaired(reply: ModelReplied, taken: Container[str], step: int, request: Request) -> ModelReplied:
    """The reply as it may enter the history: every call with an id of its own, calls in prose marked,
    and no calls at all where they were not allowed.

    Ids that are missing, repeated or outside the charset get a new one made from the step and the
    position, so that the same run always mints the same ids. All others stay as they came: some
    providers refuse an id they did not make.
    """
    if reply.calls and not request.may_call:
        # What the provider wants back with the turn may speak of the calls, so it goes too.
        reply = replace(reply, calls=(), opaque="", dropped_calls=len(reply.calls))
    calls: dict[str, ToolCall] = {}
    for n, call in enumerate(reply.calls):
        fresh = call.id
        if not _ID.fullmatch(fresh) or fresh in taken or fresh in calls:
            fresh = f"call_{step}_{n}"
        while fresh in taken or fresh in calls:
            fresh += "x"
        calls[fresh] = call if fresh == call.id else replace(call, id=fresh)
    in_text = not calls and bool(_CALL_SIGN.search(reply.text))
    in_text = in_text and looks_like_a_call(reply.text, (spec.name for spec in request.tools))
    if in_text and request.answer is not None:
        in_text = request.answer.problem(reply.text) is not None  # an answer of JSON may well look like a call
    if tuple(calls.values()) == reply.calls and in_text == reply.call_in_text:
        return reply
    return replace(reply, calls=tuple(calls.values()), call_in_text=in_text)
