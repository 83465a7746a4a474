"""What the benchmarks share: the server in its own process, and a loop written by hand to compare with."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2

from tool_loop import Agent, Limits, OpenAIChat, tool
from tool_loop.llm.http.transport import Transport

HERE = Path(__file__).parent
SCHEMA = {
    "type": "object",
    "properties": {"at": {"type": "string"}, "times": {"type": "integer"}},
    "required": ["at", "times"],
}
SYSTEM = "Use the tools when you need them. Stop and answer when you are done."
RESULT = "lines 1-12 of 12\n" + "    return state.events[-1]  # what happened last\n" * 12


@contextlib.contextmanager
def server() -> Iterator[str]:
    """The address of a model server that lives as long as the block."""
    process = subprocess.Popen(
        [sys.executable, str(HERE / "model_server.py")], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.terminate()
        process.wait()


def look(at: str, times: int) -> str:
    return f"{at} {times}\n{RESULT}"


@tool(effect="read", name="look")
async def look_tool(at: str, times: int) -> str:
    """Look at a part."""
    return look(at, times)


def agent(url: str, *, stream: bool) -> Agent:
    """Ours, as a user has it: validation, journal in memory, limits, repeats, retry policy, compaction watch."""
    llm = OpenAIChat(model="m", base_url=url, api_key="k", stream=stream)
    return Agent(
        llm, [look_tool], system=SYSTEM, limits=Limits(steps=None, tokens=None, seconds=None, window=10_000_000)
    )


class Floor:
    """What a step has to cost on our own client: each message encoded once, no checks, no journal."""

    def __init__(self, url: str, *, stream: bool) -> None:
        self.url = f"{url}/chat/completions"
        self.stream = stream
        self.transport = Transport()
        self.headers = {"authorization": "Bearer k", "content-type": "application/json"}
        tools = [
            {"type": "function", "function": {"name": "look", "description": "Look at a part.", "parameters": SCHEMA}}
        ]
        self.tail = b'],"tools":' + encoded(tools) + (b',"stream":true}' if stream else b"}")

    async def run(self, question: str) -> str:
        said = bytearray(b'{"model":"m","messages":[' + encoded({"role": "system", "content": SYSTEM}))
        said += b"," + encoded({"role": "user", "content": question})
        while True:
            async with self.transport.post(self.url, self.headers, bytes(said) + self.tail) as exchange:
                data = await exchange.rest()
            message = whole(data) if not self.stream else streamed(data)
            said += b"," + encoded(message)
            if not message.get("tool_calls"):
                return message["content"]
            for call in message["tool_calls"]:
                result = look(**json.loads(call["function"]["arguments"]))
                said += b"," + encoded({"role": "tool", "tool_call_id": call["id"], "content": result})


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def whole(data: bytes) -> dict:
    return json.loads(data)["choices"][0]["message"]


def streamed(data: bytes) -> dict:
    text, calls = "", {}
    for line in data.split(b"\n\n"):
        if line.startswith(b"data: ") and line != b"data: [DONE]":
            for choice in json.loads(line[6:])["choices"]:
                text += choice["delta"].get("content") or ""
                collect(calls, choice["delta"])
    return spoken(text, calls)


def collect(calls: dict[int, dict], delta: dict) -> None:
    """Add the pieces of calls in one delta to those that came before."""
    for piece in delta.get("tool_calls", ()):
        slot = calls.setdefault(piece["index"], {"type": "function", "function": {"name": "", "arguments": ""}})
        if "id" in piece:
            slot["id"] = piece["id"]
        slot["function"]["name"] += piece["function"].get("name") or ""
        slot["function"]["arguments"] += piece["function"].get("arguments") or ""


def spoken(text: str, calls: dict[int, dict]) -> dict:
    message: dict = {"role": "assistant", "content": text or None}
    return message | ({"tool_calls": list(calls.values())} if calls else {})


class Bare:
    """What one writes by hand on the same client: post, parse, call, append. No checks, no journal."""

    def __init__(self, url: str, *, stream: bool, client: httpx2.AsyncClient | None = None) -> None:
        self.url = f"{url}/chat/completions"
        self.stream = stream
        self.client = client or httpx2.AsyncClient(timeout=60, headers={"authorization": "Bearer k"})
        self.tools = [
            {"type": "function", "function": {"name": "look", "description": "Look at a part.", "parameters": SCHEMA}}
        ]

    async def run(self, question: str) -> str:
        messages: list[dict] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
        while True:
            body = {"model": "m", "messages": messages, "tools": self.tools}
            message = await (self._streamed(body) if self.stream else self._whole(body))
            messages.append(message)
            if not message.get("tool_calls"):
                return message["content"]
            for call in message["tool_calls"]:
                result = look(**json.loads(call["function"]["arguments"]))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    async def _whole(self, body: dict) -> dict:
        response = await self.client.post(self.url, json=body)
        response.raise_for_status()
        return response.json()["choices"][0]["message"]

    async def _streamed(self, body: dict) -> dict:
        text, calls = "", {}
        async with self.client.stream("POST", self.url, json={**body, "stream": True}) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                for choice in json.loads(line[6:])["choices"]:
                    text += choice["delta"].get("content") or ""
                    collect(calls, choice["delta"])
        return spoken(text, calls)
