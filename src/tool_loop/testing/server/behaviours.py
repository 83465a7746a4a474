"""What a server receives and what it answers: the words of a schedule, and the good replies.

A `Behaviour` answers one request with a `Response`, which `FaultServer` plays byte for byte. Knows
nothing about sockets, and of APIs only what a good reply of chat completions looks like.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from tool_loop.errors import UsageError
from tool_loop.events import ToolCall

# How a response leaves the connection. "keep" waits for the next request, "close" is a FIN, "reset" an
# RST, "hang" keeps it open and silent, "reset_on_next" resets it when the next request has arrived on it.
End: TypeAlias = Literal["keep", "close", "reset", "hang", "reset_on_next"]

PIECE_BYTES: Final = 64 * 1024
EVENT_END: Final = b"\n\n"


@dataclass(frozen=True, slots=True)
class HttpDate:
    """The value of a header: the date this many seconds from the moment of serving."""

    seconds: float


Headers: TypeAlias = Mapping[str, "str | HttpDate"]


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it came. `at` counts seconds since the server started, `connection` from 1.

    `behaviour` names what answered it. A TLS handshake on a plain port has the method "TLS" and its
    first bytes as the body.
    """

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # the key is one of them
    body: bytes = field(default=b"", repr=False)
    at: float = 0.0
    connection: int = 0
    behaviour: str = ""

    def header(self, name: str) -> str | None:
        """The header's first value, whatever the case of its name."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def json(self) -> Any:
        """The body as JSON. Raises ValueError when it is none."""
        return json.loads(self.body)

    def wants_stream(self) -> bool:
        """Whether it asks for server-sent events, as all chat APIs do: `"stream": true`."""
        try:
            body = self.json()
        except ValueError:
            return False
        return isinstance(body, dict) and body.get("stream") is True


@dataclass(frozen=True, slots=True)
class Response:
    """What leaves the server, byte for byte.

    `body` may be a function that makes its pieces while they are sent, without end if it likes. `raw`
    sends the body alone, with no status line, headers or framing. Only the first `send` bytes of the
    body leave when that is set, in writes of `write` bytes with `delay` seconds before each; `wait` is
    the silence before the first byte.
    """

    status: int = 200
    headers: tuple[tuple[str, str | HttpDate], ...] = ()
    body: bytes | Callable[[], Iterator[bytes]] = b""
    framing: Literal["length", "chunked", "close"] = "length"
    raw: bool = False
    send: int | None = None
    end: End = "keep"
    write: int = PIECE_BYTES
    delay: float = 0.0
    wait: float = 0.0

    def __post_init__(self) -> None:
        if self.framing == "close" and self.end == "keep":
            object.__setattr__(self, "end", "close")
        if self.framing == "length" and not self.raw and not isinstance(self.body, bytes):
            raise UsageError("a body that is made while it is sent has no length: use framing='chunked' or 'close'")

    def content(self) -> bytes:
        """The whole body. Only for bodies that end."""
        return self.body if isinstance(self.body, bytes) else b"".join(self.body())


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Answers one request. `respond` sees the request, so a reply can be a stream when asked for one.

    `refuse_seconds` stands for no request at all: for so long connections are refused.
    """

    name: str
    respond: Callable[[Received], Response]
    refuse_seconds: float | None = None

    def but(self, name: str, change: Callable[[Response], Response]) -> Behaviour:
        """The same, with its response changed."""
        return Behaviour(name, lambda request: change(self.respond(request)))


def answer(
    status: int = 200,
    body: bytes | str | Callable[[], Iterator[bytes]] = b"",
    headers: Headers | None = None,
    *,
    name: str = "",
    **wire: Any,
) -> Behaviour:
    """Any response: the other factories are made of it. `wire` are further fields of `Response`."""
    data = body.encode() if isinstance(body, str) else body
    response = Response(status, tuple((headers or {}).items()), data, **wire)
    return Behaviour(name or f"status_{status}", lambda _: response)


# --- good replies ---------------------------------------------------------------------------------


def ok_json(value: Any, *, status: int = 200, headers: Headers | None = None, name: str = "ok_json") -> Behaviour:
    """A JSON document."""
    return answer(
        status,
        json.dumps(value, ensure_ascii=False),
        {"content-type": "application/json", **(headers or {})},
        name=name,
    )


def ok_sse(events: Iterable[Any], *, done: bool = True, name: str = "ok_sse") -> Behaviour:
    """Server-sent events; what is no string is written as JSON. `done` adds the last one, `[DONE]`."""
    lines = [event if isinstance(event, str) else json.dumps(event, ensure_ascii=False) for event in events]
    body = b"".join(b"data: " + line.encode() + EVENT_END for line in [*lines, *["[DONE]"] * done])
    return answer(200, body, {"content-type": "text/event-stream"}, name=name, framing="chunked")


def ok_chat(
    text: str = "",
    calls: Sequence[ToolCall] = (),
    *,
    finish: str = "",
    usage: tuple[int, int] | None = (12, 5),
    name: str = "ok_chat",
) -> Behaviour:
    """A reply of chat completions: one document, or a stream where the request asks for one.

    `usage` are the tokens in and out. `finish` is "tool_calls" or "stop" unless given.
    """
    finish = finish or ("tool_calls" if calls else "stop")
    tokens = None if usage is None else _usage(*usage)
    document = ok_json(_chat_document(text, calls, finish, tokens))
    stream = ok_sse(_chat_events(text, calls, finish, tokens))
    return Behaviour(name, lambda request: (stream if request.wants_stream() else document).respond(request))


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _chat_document(text: str, calls: Sequence[ToolCall], finish: str, usage: dict[str, int] | None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [_function(call, call.arguments) for call in calls]
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return _chat("chat.completion", [choice], usage)


def _chat_events(
    text: str, calls: Sequence[ToolCall], finish: str, usage: dict[str, int] | None
) -> Iterator[dict[str, Any]]:
    def delta(end: str | None = None, **fields: Any) -> dict[str, Any]:
        return _chat("chat.completion.chunk", [{"index": 0, "delta": fields, "finish_reason": end}])

    yield delta(role="assistant", content="")
    for start in range(0, len(text), 8):
        yield delta(content=text[start : start + 8])
    for index, call in enumerate(calls):
        yield delta(tool_calls=[{"index": index, **_function(call, "")}])
        for start in range(0, len(call.arguments), 8):
            yield delta(tool_calls=[{"index": index, "function": {"arguments": call.arguments[start : start + 8]}}])
    yield delta(end=finish)
    if usage is not None:
        yield _chat("chat.completion.chunk", [], usage)


def _chat(kind: str, choices: list[Any], usage: dict[str, int] | None = None) -> dict[str, Any]:
    whole = {"id": "chatcmpl-1", "object": kind, "created": 0, "model": "fault-model", "choices": choices}
    return whole if usage is None else {**whole, "usage": usage}


def _function(call: ToolCall, arguments: str) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
