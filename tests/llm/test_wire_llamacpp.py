"""Real traffic of a local llama.cpp server, replayed byte for byte and, in virtual time, second by second.

What is right is read here by a second, much simpler reader, which may trust that this one server
keeps to the API.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.kit.wire_server import Served, WireServer
from tool_loop.errors import ProviderError
from tool_loop.events import ModelReplied, ReasoningDelta, TextDelta
from tool_loop.llm.chat.model import OpenAIChat
from tool_loop.llm.retry import Retrying, RetryPolicy
from tool_loop.ports import Request, ToolSpec
from tool_loop.testing import run_virtual
from tool_loop.transcript import Transcript, UserMessage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tool_loop.events import Event, Signal

FOLDER = Path(__file__).parents[1] / "data" / "wire" / "llamacpp"

# What each refusal of this server comes to. Its 500s for mistakes of the client are told apart from
# faults that pass only by coming back at once and unchanged, so `Retrying` is what stops them.
REFUSALS = {
    "err-context-overflow": "context_length",
    "err-context-overflow-stream": "context_length",
    "err-no-messages": "bad_request",
    "err-bad-json": "server_error",
    "err-not-json-type": "server_error",
    "err-tools-not-array": "server_error",
    "err-tools-missing-function": "server_error",
    "err-tools-bad-schema": "bad_request",
    "err-tool-choice-bad": "bad_request",
    "err-history-bad-arguments-json": "server_error",
    "err-content-image": "server_error",
    "err-n-2": "bad_request",
    "err-not-found-path": "not_found",
    "err-models-post": "not_found",
}


@dataclass(frozen=True)
class Exchange:
    name: str
    status: int
    headers: dict[str, str]
    pieces: list[tuple[float, bytes]]

    @property
    def body(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)

    @property
    def stream(self) -> bool:
        return "event-stream" in self.headers.get("content-type", "")


def exchanges() -> Iterator[Any]:
    for path in sorted(FOLDER.glob("*.meta.json")):
        stem = path.name.removesuffix(".meta.json")
        yield pytest.param(path, id=f"llamacpp/{stem}")


def read(path: Path) -> Exchange:
    meta = json.loads(path.read_text())
    stem = path.name.removesuffix(".meta.json")
    body = next(FOLDER.glob(f"{stem}.response.*")).read_bytes()
    left_out = ("content-length", "transfer-encoding", "keep-alive", "connection")
    headers = {name.lower(): value for name, value in meta["headers"] if name.lower() not in left_out}
    pieces, at = [], 0
    for seconds, size in meta["chunk_times"]:
        pieces.append((seconds, body[at : at + size]))
        at += size
    assert at == len(body)
    return Exchange(re.sub(r"^\d+-q15-", "", stem), meta["status"], headers, pieces)


def asked(exchange: Exchange) -> Request:
    names = set(re.findall(rb'"name"\s*:\s*"(\w+)"', exchange.body))
    return Request(
        Transcript("s", [UserMessage("q")]), tuple(ToolSpec(n.decode(), "", {"type": "object"}) for n in sorted(names))
    )


def simply_read(exchange: Exchange) -> tuple[str, list[tuple[str, str, str]], str, int, int]:
    """Text, calls (id, name, arguments), finish reason, tokens read and written."""
    if not exchange.stream:
        body = json.loads(exchange.body)
        choice, usage = body["choices"][0], body["usage"]
        calls = [
            (c["id"], c["function"]["name"], c["function"]["arguments"])
            for c in choice["message"].get("tool_calls", [])
        ]
        return (
            choice["message"]["content"] or "",
            calls,
            choice["finish_reason"],
            usage["prompt_tokens"],
            usage["completion_tokens"],
        )
    text, finish, found = "", "", {}
    read_tokens = written = 0
    for line in exchange.body.decode().split("\n"):
        if not line.startswith("data: {"):
            continue
        chunk = json.loads(line[6:])
        if timings := chunk.get("timings"):
            read_tokens, written = timings["cache_n"] + timings["prompt_n"], timings["predicted_n"]
        if chunk.get("usage"):
            read_tokens, written = chunk["usage"]["prompt_tokens"], chunk["usage"]["completion_tokens"]
        for choice in chunk["choices"]:
            text += choice["delta"].get("content") or ""
            finish = choice["finish_reason"] or finish
            for piece in choice["delta"].get("tool_calls", []):
                call = found.setdefault(piece["index"], ["", "", ""])
                call[0] += piece.get("id", "")
                call[1] += piece["function"].get("name", "")
                call[2] += piece["function"].get("arguments", "")
    return text, [tuple(call) for call in found.values()], finish, read_tokens, written  # type: ignore[misc]


@pytest.mark.parametrize("path", list(exchanges()))
def test_an_exchange_is_read_as_it_was_meant(path: Path) -> None:
    exchange = read(path)

    async def ask() -> ModelReplied:
        replies = [Served(exchange.status, exchange.headers, [piece for _, piece in exchange.pieces])]
        async with WireServer(replies, again=True) as server:
            return await OpenAIChat("m", f"{server.url}/v1", "").reply(asked(exchange), lambda _: None)

    if exchange.status != 200:
        with pytest.raises(ProviderError) as caught:
            asyncio.run(ask())
        assert caught.value.kind == REFUSALS[exchange.name]
        assert caught.value.status == exchange.status
        said = json.loads(exchange.body)["error"]["message"]
        assert " ".join(said.split())[:300] in str(caught.value)
        return
    reply = asyncio.run(ask())
    text, calls, finish, read_tokens, written = simply_read(exchange)
    assert reply.text == text
    assert [(c.id, c.name, c.arguments) for c in reply.calls] == calls
    assert (reply.usage.input, reply.usage.output) == (read_tokens, written)
    assert reply.stop == ("length" if finish == "length" else "tool_calls" if calls else "stop")


@pytest.mark.parametrize("path", list(exchanges()))
def test_an_exchange_takes_as_long_as_it_took(path: Path) -> None:
    exchange = read(path)
    shown: list[float] = []

    async def ask() -> tuple[ModelReplied, float]:
        loop = asyncio.get_running_loop()

        def emit(said: Event | Signal) -> None:
            if isinstance(said, TextDelta | ReasoningDelta):
                shown.append(loop.time())

        started = loop.time()
        llm = OpenAIChat("m", "http://127.0.0.1:1/v1", "", http=httpx2.MockTransport(lambda _: paced(exchange)))
        reply = await Retrying(llm, RetryPolicy(attempts=1)).reply(asked(exchange), emit)
        return reply, loop.time() - started

    if exchange.status != 200:
        with pytest.raises(ProviderError):
            run_virtual(ask())
        return
    reply, took = run_virtual(ask())
    assert took == pytest.approx(exchange.pieces[-1][0], abs=0.3)
    assert reply.seconds == pytest.approx(took)
    text, *_ = simply_read(exchange)
    if exchange.stream and text:
        times = [at for at, piece in exchange.pieces if re.search(rb'"content":"[^"]', piece)]
        assert shown == pytest.approx(times)
        assert reply.first_token == pytest.approx(times[0])


def paced(exchange: Exchange) -> httpx2.Response:
    async def body() -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        started = loop.time()
        for at, piece in exchange.pieces:
            await asyncio.sleep(max(0.0, started + at - loop.time()))
            yield piece

    return httpx2.Response(exchange.status, headers=exchange.headers, content=body())


@pytest.mark.parametrize("name", [name for name, kind in REFUSALS.items() if kind == "server_error"])
def test_a_500_that_comes_back_at_once_and_unchanged_is_not_asked_for_ever(name: str) -> None:
    exchange = read(next(FOLDER.glob(f"*-{name}.meta.json")))

    async def ask() -> int:
        async with WireServer([Served(500, exchange.headers, [exchange.body])], again=True) as server:

            async def sleep(_: float) -> None:
                pass

            llm = Retrying(OpenAIChat("m", f"{server.url}/v1", ""), sleep=sleep)
            with pytest.raises(ProviderError, match="the same answer came 3 times at once"):
                await llm.reply(asked(exchange), lambda _: None)
            return len(server.got)

    assert asyncio.run(ask()) == 3
