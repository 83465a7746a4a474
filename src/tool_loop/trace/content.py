"""What was said in a run, as the JSON that the conventions want on a span, and without keys.

The shapes are those of the conventions' messages: a role and parts. Knows nothing about tracing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tool_loop.redaction.scrub import scrub, scrubbed
from tool_loop.transcript import AssistantMessage, Message, ToolMessage, UserMessage

if TYPE_CHECKING:
    from tool_loop.events import ModelReplied, RunEnded, ToolCall
    from tool_loop.ports import ToolSpec

# The conventions' own words for why a reply ended, where they are not ours.
_FINISH = {"tool_calls": "tool_call"}


def question(text: str) -> str:
    return _json([{"role": "user", "parts": [_text(text)]}])


def answer(ended: RunEnded | None) -> str | None:
    if ended is None:
        return None
    finish = "stop" if ended.reason == "answered" else "length"
    return _json([{"role": "assistant", "parts": [_text(ended.answer)], "finish_reason": finish}])


def system(text: str) -> str | None:
    return _json([_text(text)]) if text else None


def input_messages(messages: Sequence[Message]) -> str:
    return _json([_message(message) for message in messages])


def output_messages(reply: ModelReplied) -> str:
    parts = [{"type": "reasoning", "content": reply.reasoning}] if reply.reasoning else []
    parts += [_text(reply.text)] if reply.text else []
    finish = _FINISH.get(reply.stop, reply.stop)
    return _json([{"role": "assistant", "parts": [*parts, *map(_call, reply.calls)], "finish_reason": finish}])


def definitions(specs: Sequence[ToolSpec]) -> str | None:
    shown = [
        {"type": "function", "name": s.name, "description": s.description, "parameters": dict(s.parameters)}
        for s in specs
    ]
    return _json(shown) if shown else None


def tool_text(text: str) -> str:
    return scrub(text)


def _message(message: Message) -> dict[str, Any]:
    match message:
        case UserMessage(text=text):
            return {"role": "user", "parts": [_text(text)]}
        case AssistantMessage(text=text, calls=calls):
            return {"role": "assistant", "parts": [*([_text(text)] if text else []), *map(_call, calls)]}
        case ToolMessage():
            part = {"type": "tool_call_response", "id": message.call_id, "response": message.content}
            return {"role": "tool", "parts": [part]}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _call(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = call.arguments  # the text as it came: a model's mistake is what one looks for
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments}


def _json(value: Any) -> str:
    return json.dumps(scrubbed(value), ensure_ascii=False, default=str)
