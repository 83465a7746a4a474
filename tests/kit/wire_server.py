"""Serves recorded exchanges over a real loopback socket, byte for byte.

One server per case, in the event loop of the test. It keeps the requests it got. A request after the
last reply of a list is a failure of the client and is answered with a status that no case has.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import time
from base64 import b64decode
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any, Self

BEYOND_THE_LAST = 418


@dataclass
class Served:
    """One reply: `writes` are the bodies of the single writes; `end` as the corpus has it."""

    status: int
    headers: dict[str, str]
    writes: list[bytes]
    end: str = "close"


@dataclass
class Got:
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class WireServer:
    """`async with WireServer(replies) as server`: `server.url`, then `server.got`.

    With `again` the last reply is given to every further request.
    """

    replies: list[Served]
    again: bool = False
    got: list[Got] = field(default_factory=list)
    url: str = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.got.append(Got(head[0].split()[1], headers, body))
        n = len(self.got) - 1
        if n < len(self.replies):
            reply = self.replies[n]
        elif self.again and self.replies:
            reply = self.replies[-1]
        else:
            reply = Served(BEYOND_THE_LAST, {"content-type": "application/json"}, [b'{"error":"one request too many"}'])
        return await self._answer(reply, writer)

    async def _answer(self, reply: Served, writer: asyncio.StreamWriter) -> bool:
        size = sum(map(len, reply.writes))
        chunked = reply.end in ("reset", "hold-open") or "event-stream" in reply.headers.get("content-type", "")
        framing = "transfer-encoding: chunked" if chunked else f"content-length: {size}"
        lines = [f"{name.title()}: {_now(value)}" for name, value in reply.headers.items()]
        writer.write("\r\n".join([f"HTTP/1.1 {reply.status} Recorded", framing, *lines, "", ""]).encode("latin-1"))
        for piece in reply.writes:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
            await writer.drain()
            if len(reply.writes) > 1:
                await asyncio.sleep(0)
        if reply.end == "hold-open":
            await asyncio.sleep(60)
        if reply.end == "reset":
            await asyncio.sleep(0.01)  # what was written has to arrive before the reset overtakes it
            sock: socket.socket = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return False
        if chunked:
            writer.write(b"0\r\n\r\n")
        return True


def _now(value: str) -> str:
    return re.sub(r"\{\{http-date (-?\d+)\}\}", lambda m: formatdate(int(time.time()) + int(m[1]), usegmt=True), value)


def served(response: dict[str, Any], wire: dict[str, Any] | None) -> Served:
    """A reply as the corpus describes it."""
    wire = wire or {}
    body = b64decode(response["body_base64"]) if "body_base64" in response else response.get("body_text", "").encode()
    size = wire.get("chunk_bytes") or max(1, len(body))
    writes = [body[at : at + size] for at in range(0, len(body), size)]
    return Served(response["status"], response.get("headers") or {}, writes, wire.get("end", "close"))
