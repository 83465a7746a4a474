"""What the model reads of a failure, in each arm. The record keeps the real one.

ours        the kind, what is wrong, and a hint that carries the answer
direction   the same with a hint that only says where to look, as the original design had it
bare        "Error"
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from tool_loop.events import ModelReplied, ToolCall, Usage
from tool_loop.ports import LLM, Emit, Request
from tool_loop.transcript import ToolMessage, Transcript

Telling: TypeAlias = Callable[[str], str]

DIRECTION: Final = "Look at what there is, then try again."


def _direction(content: str) -> str:
    try:
        said = json.loads(content)
    except ValueError:
        return content
    return json.dumps({"error": said.get("error"), "message": said.get("message"), "hint": DIRECTION})


def _ours(content: str) -> str:
    return content


def _bare(_content: str) -> str:
    return "Error"


ARMS: Final[Mapping[str, Telling]] = {"ours": _ours, "direction": _direction, "bare": _bare}


class Told:
    """The model of one arm: it reads failures as the arm tells them."""

    def __init__(self, llm: LLM, telling: Telling) -> None:
        self.llm = llm
        self._telling = telling

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        seen = request.transcript
        messages = [
            replace(message, content=self._telling(message.content))
            if isinstance(message, ToolMessage) and message.error
            else message
            for message in seen.messages
        ]
        return await self.llm.reply(replace(request, transcript=Transcript(seen.system, messages)), emit)


class Planted:
    """A model whose first reply is the mistake that was planted, and costs nothing. All else is its own.

    By what is on record, so that a resumed run is not led into the mistake twice.
    """

    def __init__(self, llm: LLM, call: ToolCall | None, before: int) -> None:
        self.llm = llm
        self._call = call
        self._before = before  # messages of the examples and the question

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        if self._call is not None and len(request.transcript.messages) <= self._before:
            return ModelReplied("", (self._call,), "tool_calls", Usage(0, 0), cost=0.0)
        return await self.llm.reply(request, emit)
