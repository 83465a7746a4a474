"""A scripted model that does what hints say, and nothing else: the plumbing of the eval, tried without a model.

It recovers exactly where the answer is in what it reads. So in the arm "ours" it does, and in the others
it does not: if the table shows anything else, the eval is broken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from tool_loop.events import ToolCall, Usage
from tool_loop.llm.scripted import ScriptedLLM
from tool_loop.ports import Request
from tool_loop.transcript import AssistantMessage, ToolMessage

_PATH: Final = re.compile(r"(?:lib|core/store|app/conf)/[a-z]+\.py")
_LIMIT: Final = re.compile(r"LIMIT = ([1-9][0-9]{4})")
_NEXT: Final = re.compile(r"start_line=([0-9]+)")


def reader() -> ScriptedLLM:
    """The model, with replies for one run."""
    return ScriptedLLM(*[_turn] * 30, usage=Usage(400, 30))


def _turn(request: Request) -> ToolCall | str:
    messages = request.transcript.messages
    last, number = messages[-1], f"c{len(messages)}"
    if not isinstance(last, ToolMessage):
        return _searching(request, number)
    if found := _LIMIT.search(last.content):
        return f"LIMIT is {found[1]}."
    return _paying(messages, number) or _reading(request, last, number)


def _paying(messages: Sequence[object], number: str) -> ToolCall | str:
    calls = [call for m in messages if isinstance(m, AssistantMessage) for call in m.calls]
    last = messages[-1]
    assert isinstance(last, ToolMessage)
    if "check with payments" in last.content:
        return ToolCall(number, "payments", "{}")
    if last.name == "payments" and last.content == "[]":
        return ToolCall(number, "pay", next(call.arguments for call in calls if call.name == "pay"))
    return "It is done." if last.name in ("payments", "pay") and not last.error else ""


def _reading(request: Request, last: ToolMessage, number: str) -> ToolCall | str:
    asked = request.transcript.messages[-2]
    planted = asked.calls[0] if isinstance(asked, AssistantMessage) and asked.calls else None
    if "mirror" in last.content or ("not ready" in last.content and planted):
        name = re.search(r"LIMIT of the ([a-z]+)", str(request.transcript.messages[0]))
        return ToolCall(number, "fetch_limit", json.dumps({"name": name[1] if name else "", "source": "mirror"}))
    if more := _NEXT.search(last.content):
        path = _PATH.search(str(asked)) or _PATH.search(last.content)
        return ToolCall(number, "read_file", json.dumps({"path": path[0] if path else "", "start_line": int(more[1])}))
    if last.content == "Error":
        return "I could not find it."
    if path := _PATH.search(last.content) or _PATH.search(planted.arguments if planted else ""):
        return ToolCall(number, "read_file", json.dumps({"path": path[0]}))
    return _searching(request, number) if last.error else "I could not find it."


def _searching(request: Request, number: str) -> ToolCall:
    question = str(request.transcript.messages[0])
    name = question.partition("code of the ")[2].partition("?")[0]
    return ToolCall(number, "grep", json.dumps({"pattern": f"The {name}"}))
