"""A history of one's own: messages that were exchanged elsewhere become the beginning of a run.

They become the events that a run with these messages would have, so that all that works on a run works on
them: they are compacted, shown, forked. They are put on record all at once, or a crash between a call and its
result would leave a call that is run again here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tool_loop.errors import UsageError
from tool_loop.events import (
    Event,
    IntentRecorded,
    ModelReplied,
    RunContinued,
    RunEnded,
    RunStarted,
    ToolCall,
    ToolReturned,
)
from tool_loop.transcript import DEFAULT_SYSTEM, AssistantMessage, Message, ToolMessage, UserMessage

from .opening import Question


async def begun_with(
    history: Sequence[Message | Mapping[str, Any]], journal: Any, run_id: str, question: Question
) -> Question:
    """Put the history on record, where it is not yet, and return the question as one that follows it.

    Raises `UsageError` for messages that are no history.
    """
    events = as_events(history, DEFAULT_SYSTEM if question.system is None else question.system, question.meta)
    create = getattr(journal, "create", None)
    if create is None:
        raise UsageError("history= needs a journal that can begin a run with it: MemoryJournal or SqliteJournal")
    with suppress(UsageError):  # begun before: the same run goes on
        await create(run_id, events)
    return replace(question, behind=len(events))


def as_events(history: Iterable[Message | Mapping[str, Any]], system: str, meta: str = "{}") -> list[Event]:
    """The events of a run in which these messages were exchanged; it has ended with the last one."""
    events: list[Event] = []
    open_calls: dict[str, ToolCall] = {}
    said: AssistantMessage | None = None
    for n, message in enumerate(history):
        one = message if isinstance(message, UserMessage | AssistantMessage | ToolMessage) else _read(n, message)
        if isinstance(one, ToolMessage):
            if one.call_id not in open_calls:
                raise UsageError(f"history[{n}] is the result of {one.call_id!r}, and no call of that id is open")
            del open_calls[one.call_id]
            events.append(ToolReturned(one.call_id, one.content, "tool_failed" if one.error else None, repeat=0))
            continue
        if open_calls:
            raise UsageError(f"history[{n}] comes before the result of the call {next(iter(open_calls))!r}")
        if isinstance(one, UserMessage):
            events += _asked(n, one.text, said, system, meta, first=not events)
            said = None
        elif not events:
            raise UsageError("a history begins with a message of the user: most providers want it so")
        else:
            # It was paid for elsewhere, so it costs nothing here.
            reply = ModelReplied(
                one.text,
                one.calls,
                "tool_calls" if one.calls else "stop",
                origin=one.origin,
                opaque=one.opaque,
                cost=0.0,
            )
            events.append(reply)
            if one.calls:
                events.append(IntentRecorded(tuple(call.id for call in one.calls)))
            open_calls = {call.id: call for call in one.calls}
            said = one
    if said is None or said.calls:
        raise UsageError("a history ends with an answer of the assistant; what is asked now is the question")
    return [*events, RunEnded("answered", said.text)]


def _asked(n: int, text: str, said: AssistantMessage | None, system: str, meta: str, *, first: bool) -> list[Event]:
    if first:
        return [RunStarted(text, system, meta=meta)]
    if said is None or said.calls:
        raise UsageError(f"history[{n}] is a message of the user, and the one before it has no answer")
    return [RunEnded("answered", said.text), RunContinued(text)]


def _read(n: int, message: Mapping[str, Any]) -> Message:
    """A message as OpenAI's chat completions have it. Raises `UsageError`, saying which and why not."""
    role, text = message.get("role"), message.get("content") or ""
    if isinstance(text, list):
        text = "\n".join(str(part.get("text", "")) for part in text if part.get("type") == "text")
    if role == "user":
        return UserMessage(text)
    if role == "tool":
        return ToolMessage(str(message.get("tool_call_id")), str(message.get("name", "")), text)
    if role == "assistant":
        return AssistantMessage(text, tuple(_call(n, call) for call in message.get("tool_calls") or ()))
    if role in ("system", "developer"):
        raise UsageError(f"history[{n}] is a system prompt; give it as system=")
    raise UsageError(f"history[{n}] has the role {role!r}; what is known is user, assistant and tool")


def _call(n: int, call: Any) -> ToolCall:
    try:
        made = call["function"]
        arguments = made["arguments"]
        return ToolCall(call["id"], made["name"], arguments if isinstance(arguments, str) else json.dumps(arguments))
    except (KeyError, TypeError) as error:
        raise UsageError(f"history[{n}] has a tool call without its {error}") from None
