"""The three dialects as tests see them: what a server of each would send, and what one would be sent.

Used by the conformance suite and the fuzzers. A `Dialect` writes good replies in its form, whole and
as a stream, and reads a request body into one form for all three, checking it as strictly as a
provider does.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tool_loop.events import ToolCall
from tool_loop.llm.anthropic.model import AnthropicMessages
from tool_loop.llm.chat.model import OpenAIChat
from tool_loop.llm.dialect import Dialect as Llm
from tool_loop.llm.errors.failures import ProviderErrors
from tool_loop.llm.responses.model import OpenAIResponses
from tool_loop.ports import Request, ToolSpec
from tool_loop.transcript import Transcript, UserMessage

READ = ToolSpec("read_file", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
LIST = ToolSpec("list_dir", "List a directory.", {"type": "object", "properties": {"path": {"type": "string"}}})
TOOLS = (READ, LIST)
FAILURES = ProviderErrors("api.example.com", "m")


@dataclass(frozen=True)
class Said:
    """What a model says. `calls` are (id, name, arguments); `usage` is (input, output)."""

    text: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    usage: tuple[int, int] | None = (50, 12)
    cut: bool = False


@dataclass(frozen=True)
class Asked:
    """A request body in one form. `turns` are ("user" | "assistant" | "result", what)."""

    turns: list[tuple[str, Any]]
    tools: list[str]
    choice: str


def ask(
    *messages: Any, may_call: bool = True, tools: tuple[ToolSpec, ...] = TOOLS, system: str = "Be brief."
) -> Request:
    return Request(Transcript(system, messages or (UserMessage("Look."),)), tools, may_call, key="k")


def sse(events: Iterable[dict[str, Any] | str], *, named: bool = True) -> bytes:
    out = b""
    for event in events:
        if isinstance(event, dict) and named:
            out += b"event: " + event["type"].encode() + b"\n"
        data = event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)
        out += b"data: " + data.encode() + b"\n\n"
    return out


class Dialect:
    """Base of the three below."""

    name: str
    make: type[Llm]
    error_shape: str = "openai"

    def llm(
        self, *replies: httpx2.Response | Exception, base_url: str = "http://127.0.0.1:9", **options: Any
    ) -> Server:
        return Server(self, list(replies), base_url, options)

    def whole(self, said: Said) -> Any:
        raise NotImplementedError

    def stream(self, said: Said) -> bytes:
        raise NotImplementedError

    def read(self, body: dict[str, Any]) -> Asked:
        raise NotImplementedError

    def error(self, message: str, kind: str = "invalid_request_error", code: str | None = None) -> dict[str, Any]:
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}

    def error_event(self, message: str, kind: str) -> dict[str, Any]:
        return self.error(message, kind)


class Chat(Dialect):
    name = "chat"
    make = OpenAIChat

    def whole(self, said: Said) -> Any:
        message: dict[str, Any] = {"role": "assistant", "content": said.text or None}
        if said.calls:
            message["tool_calls"] = [
                {"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in said.calls
            ]
        finish = "length" if said.cut else "tool_calls" if said.calls else "stop"
        body: dict[str, Any] = {"model": "m-1", "choices": [{"index": 0, "message": message, "finish_reason": finish}]}
        if said.usage:
            body["usage"] = {"prompt_tokens": said.usage[0], "completion_tokens": said.usage[1]}
        return body

    def stream(self, said: Said) -> bytes:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": piece} for piece in pieces(said.text)]
        for n, (call_id, name, arguments) in enumerate(said.calls):
            deltas.append({"tool_calls": [{"index": n, "id": call_id, "function": {"name": name, "arguments": ""}}]})
            deltas += [{"tool_calls": [{"index": n, "function": {"arguments": a}}]} for a in pieces(arguments)]
        finish = "length" if said.cut else "tool_calls" if said.calls else "stop"
        chunks: list[Any] = [{"model": "m-1", "choices": [{"index": 0, "delta": d}]} for d in deltas]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        if said.usage:
            counts = {"prompt_tokens": said.usage[0], "completion_tokens": said.usage[1]}
            chunks.append({"choices": [], "usage": counts})
        return sse([*chunks, "[DONE]"], named=False)

    def read(self, body: dict[str, Any]) -> Asked:
        turns: list[tuple[str, Any]] = []
        for message in body["messages"]:
            if message["role"] == "tool":
                turns.append(("result", (message["tool_call_id"], message["content"])))
            elif message["role"] == "assistant":
                calls = [
                    checked_call(c["id"], c["function"]["name"], c["function"]["arguments"], any_id=True)
                    for c in message.get("tool_calls", ())
                ]
                assert message["content"] or calls
                turns.append(("assistant", (message["content"] or "", calls)))
            elif message["role"] == "user":
                turns.append(("user", message["content"]))
        choice = body.get("tool_choice", "")
        return checked(Asked(turns, [t["function"]["name"] for t in body.get("tools", ())], choice))


class Responses(Dialect):
    name = "responses"
    make = OpenAIResponses

    def items(self, said: Said) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        if said.text:
            content = [{"type": "output_text", "text": said.text, "annotations": []}]
            items.append({"type": "message", "id": "msg_1", "role": "assistant", "content": content})
        for n, (call_id, name, arguments) in enumerate(said.calls):
            items.append(
                {"type": "function_call", "id": f"fc_{n}", "call_id": call_id, "name": name, "arguments": arguments}
            )
        return items

    def whole(self, said: Said) -> Any:
        body: dict[str, Any] = {"id": "resp_1", "object": "response", "model": "m-1", "output": self.items(said)}
        body |= {"status": "completed", "error": None, "incomplete_details": None}
        if said.cut:
            body |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        if said.usage:
            body["usage"] = {"input_tokens": said.usage[0], "output_tokens": said.usage[1]}
        return body

    def stream(self, said: Said) -> bytes:
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}}
        ]
        for n, item in enumerate(self.items(said)):
            half = item | ({"arguments": ""} if item["type"] == "function_call" else {"content": []})
            events.append({"type": "response.output_item.added", "output_index": n, "item": half})
            kind = "function_call_arguments" if item["type"] == "function_call" else "output_text"
            text = item.get("arguments", said.text)
            events += [
                {"type": f"response.{kind}.delta", "output_index": n, "item_id": item["id"], "delta": p}
                for p in pieces(text)
            ]
            events.append({"type": "response.output_item.done", "output_index": n, "item": item})
        events.append(
            {"type": "response.incomplete" if said.cut else "response.completed", "response": self.whole(said)}
        )
        return sse(events)

    def read(self, body: dict[str, Any]) -> Asked:
        assert body["store"] is False
        turns: list[tuple[str, Any]] = []
        said: tuple[str, list[ToolCall]] | None = None
        for item in body["input"]:
            kind = item.get("type", item.get("role"))
            if kind == "function_call_output":
                turns.append(("result", (item["call_id"], item["output"])))
            elif kind != "user":
                assert item.get("type") != "item_reference"
                if said is None or not turns or turns[-1][0] != "assistant":
                    said = ("", [])
                    turns.append(("assistant", said))
                if kind == "function_call":
                    said[1].append(checked_call(item["call_id"], item["name"], item["arguments"]))
                elif kind == "assistant":
                    assert item["content"]
                    said = (said[0] + item["content"], said[1])
                    turns[-1] = ("assistant", said)
            else:
                turns.append(("user", item["content"]))
        choice = body.get("tool_choice", "")
        return checked(Asked(turns, [t["name"] for t in body.get("tools", ())], choice))

    def error_event(self, message: str, kind: str) -> dict[str, Any]:
        return {"type": "error", "code": kind, "message": message, "param": None}


class Messages(Dialect):
    name = "messages"
    make = AnthropicMessages

    def blocks(self, said: Said) -> list[dict[str, Any]]:
        text = [{"type": "text", "text": said.text}] if said.text else []
        return [*text, *({"type": "tool_use", "id": i, "name": n, "input": json.loads(a)} for i, n, a in said.calls)]

    def whole(self, said: Said) -> Any:
        stop = "max_tokens" if said.cut else "tool_use" if said.calls else "end_turn"
        body: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1"}
        body |= {"content": self.blocks(said), "stop_reason": stop}
        if said.usage:
            body["usage"] = {"input_tokens": said.usage[0], "output_tokens": said.usage[1]}
        return body

    def stream(self, said: Said) -> bytes:
        start: dict[str, Any] = {"id": "msg_1", "model": "m-1", "content": [], "stop_reason": None}
        if said.usage:
            start["usage"] = {"input_tokens": said.usage[0], "output_tokens": 1}
        events: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
        for n, block in enumerate(self.blocks(said)):
            opened = block | ({"text": ""} if block["type"] == "text" else {"input": {}})
            events.append({"type": "content_block_start", "index": n, "content_block": opened})
            kind, name = ("text_delta", "text") if block["type"] == "text" else ("input_json_delta", "partial_json")
            arguments = said.calls[n - bool(said.text)][2] if block["type"] == "tool_use" else ""
            text = block.get("text", arguments)
            events += [
                {"type": "content_block_delta", "index": n, "delta": {"type": kind, name: p}} for p in pieces(text)
            ]
            events.append({"type": "content_block_stop", "index": n})
        stop = "max_tokens" if said.cut else "tool_use" if said.calls else "end_turn"
        end: dict[str, Any] = {"type": "message_delta", "delta": {"stop_reason": stop}}
        if said.usage:
            end["usage"] = {"output_tokens": said.usage[1]}
        return sse([*events, end, {"type": "message_stop"}])

    def read(self, body: dict[str, Any]) -> Asked:
        assert body["max_tokens"] > 0
        turns: list[tuple[str, Any]] = []
        assert [m["role"] for m in body["messages"]] == [
            ("user", "assistant")[n % 2] for n in range(len(body["messages"]))
        ]
        for message in body["messages"]:
            blocks = message["content"]
            assert blocks
            assert all(b["text"].strip() for b in blocks if b["type"] == "text")
            if message["role"] == "assistant":
                assert all(b["type"] not in ("tool_result", "image", "document") for b in blocks)
                calls = [
                    checked_call(b["id"], b["name"], json.dumps(b["input"])) for b in blocks if b["type"] == "tool_use"
                ]
                turns.append(("assistant", ("".join(b["text"] for b in blocks if b["type"] == "text"), calls)))
                continue
            kinds = [b["type"] for b in blocks]
            assert kinds == sorted(kinds, key=lambda kind: kind != "tool_result")  # results come first
            for block in blocks:
                result = block["type"] == "tool_result"
                turns.append(
                    ("result", (block["tool_use_id"], block["content"])) if result else ("user", block["text"])
                )
        choice = body.get("tool_choice", {}).get("type", "")
        assert json.dumps(body).count("cache_control") <= 4
        return checked(Asked(turns, [t["name"] for t in body.get("tools", ())], choice))

    def error(self, message: str, kind: str = "invalid_request_error", code: str | None = None) -> dict[str, Any]:
        return {"type": "error", "error": {"type": code or kind, "message": message}}


ALL: tuple[Dialect, ...] = (Chat(), Responses(), Messages())


def checked_call(call_id: str, name: str, arguments: str, *, any_id: bool = False) -> ToolCall:
    assert call_id if any_id else re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call_id)
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)
    assert isinstance(json.loads(arguments), dict)
    return ToolCall(call_id, name, arguments)


def checked(asked: Asked) -> Asked:
    """Every call answered once, directly after its turn, in order; nothing answered that was not called."""
    owed: list[str] = []
    for role, what in asked.turns:
        if role == "result":
            assert owed
            assert owed.pop(0) == what[0]
            assert isinstance(what[1], str)
            continue
        assert not owed
        owed = [call.id for call in what[1]] if role == "assistant" else []
    assert not owed
    return asked


def pieces(text: str) -> list[str]:
    """A few deltas, of which one is a single character."""
    third = max(1, len(text) // 3)
    return (
        [p for p in (text[:1], text[1:third], text[third : 2 * third], text[2 * third :]) if p]
        if len(text) > 3
        else [text]
    )


def json_reply(body: Any, status: int = 200, **headers: str) -> httpx2.Response:
    return httpx2.Response(
        status, headers={"content-type": "application/json"} | headers, content=json.dumps(body).encode()
    )


def sse_reply(*chunks: bytes) -> httpx2.Response:
    async def body() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body())


@dataclass
class Server:
    """Answers with the replies in their order and keeps what it was sent; `llm` talks to it."""

    dialect: Dialect
    replies: list[httpx2.Response | Exception]
    base_url: str
    options: dict[str, Any]
    got: list[httpx2.Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        http = httpx2.MockTransport(self._answer)
        options: dict[str, Any] = {"model": "m", "base_url": self.base_url, "api_key": "key-of-the-test"} | self.options
        self.llm: Any = self.dialect.make(http=http, **options)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.got.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(request.content) for request in self.got]

    def asked(self, n: int = -1) -> Asked:
        return self.dialect.read(self.bodies[n])


def chunked(body: bytes, size: int) -> Sequence[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]
