"""A model for a shop that answers offline: by what is in the conversation, and with nothing else in mind."""

from __future__ import annotations

import asyncio
import re

from tool_loop import ModelReplied, Request, TextDelta, ToolCall, Usage
from tool_loop.ports import Emit
from tool_loop.transcript import ToolMessage, UserMessage


class Offline:
    """Says a word every `pause` seconds, and refunds what it is asked to refund."""

    def __init__(self, pause: float) -> None:
        self.pause = pause

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        messages = request.transcript.messages
        last = messages[-1]
        asked = next(m.text for m in reversed(messages) if isinstance(m, UserMessage))
        order = re.search(r"refund\D*(\d+)", asked)
        if order and not isinstance(last, ToolMessage) and request.may_call:
            call = ToolCall(f"call_{len(messages)}", "refund", f'{{"order": {order[1]}}}')
            return ModelReplied("", (call,), "tool_calls", Usage(10, 5))
        text = f"You said: {asked}" if not isinstance(last, ToolMessage) else f"Done: {last.content}"
        for word in re.findall(r"\S+\s*", text):
            await asyncio.sleep(self.pause)
            emit(TextDelta(word))
        return ModelReplied(text, usage=Usage(10, 5))
