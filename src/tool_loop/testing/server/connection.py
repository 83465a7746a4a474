"""One connection of the fault server: a request read, a response played byte for byte.

Every read and write has a bound in bytes and seconds. Knows nothing about schedules.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from .behaviours import HttpDate, Received, Response

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

_REQUEST_BYTES: Final = 64 * 2**20
_HEAD_BYTES: Final = 2**20
_TLS_HANDSHAKE: Final = b"\x16"  # the first byte a TLS client sends; no HTTP request starts with it


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What one response may take at most, and the clock for HTTP dates."""

    max_bytes: int
    max_seconds: float
    now: Callable[[], float]


class ServedConnection:
    """A client that has connected. Use `ServedConnection.accept`; `gone` has to be awaited in the end."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        limits: ServerLimits,
        count: Callable[[int], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._limits = limits
        self._count = count
        # `drain` then means that the kernel has everything: a reset throws away what it has not.
        # Under TLS a limit of 0 pauses an empty buffer, and nothing ever wakes it.
        tls = writer.get_extra_info("ssl_object") is not None
        writer.transport.set_write_buffer_limits(high=int(tls), low=0)

    @classmethod
    async def accept(
        cls, sock: socket.socket, context: ssl.SSLContext | None, limits: ServerLimits, count: Callable[[int], None]
    ) -> ServedConnection:
        """Shake hands. Raises OSError when the client does not like the certificate."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_HEAD_BYTES, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        timeout = None if context is None else limits.max_seconds
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, sock, ssl=context, ssl_handshake_timeout=timeout, ssl_shutdown_timeout=timeout and 1.0
        )
        return cls(reader, asyncio.StreamWriter(transport, protocol, reader, loop), limits, count)

    # --- the request ------------------------------------------------------------------------------

    async def receive(self) -> Received | None:
        """The next request, None when the client has left. Raises ValueError when it is not HTTP."""
        try:
            first = await self._reader.readexactly(1)
            if first == _TLS_HANDSHAKE:
                return Received("TLS", "", body=first + await self._reader.read(_HEAD_BYTES))
            head = first + await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        except asyncio.LimitOverrunError:
            raise ValueError(f"the head of the request is longer than {_HEAD_BYTES} bytes") from None
        request, headers = _parsed(head)
        return Received(*request, headers, await self._body({name.lower(): value for name, value in headers}))

    async def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("expect", "").lower() == "100-continue":
            await self._write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return await self._chunked()
        return await self._reader.readexactly(_checked(int(headers.get("content-length", "0"))))

    async def _chunked(self) -> bytes:
        body = b""
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            _checked(len(body) + size)
            body += (await self._reader.readexactly(size + 2))[:-2]
        while await self._reader.readuntil(b"\r\n") != b"\r\n":
            pass  # trailers
        return body

    # --- the response -----------------------------------------------------------------------------

    async def play(self, response: Response) -> bool:
        """Send it. Whether the connection may take another request.

        Raises OSError when the client has left, and TimeoutError when a limit was reached.
        """
        try:
            async with asyncio.timeout(self._limits.max_seconds):
                if response.wait:
                    await asyncio.sleep(response.wait)
                await self._send(response)
                return await self._finish(response)
        except TimeoutError:
            self.reset()
            raise

    async def _finish(self, response: Response) -> bool:
        if response.end == "reset":
            self.reset()
        elif response.end == "hang":
            await self._left()
        elif response.end == "close":
            self._writer.close()
            await self._writer.wait_closed()
        return response.end in ("keep", "reset_on_next")

    async def _left(self) -> None:
        while await self._reader.read(_HEAD_BYTES):
            pass

    async def _send(self, response: Response) -> None:
        chunked = response.framing == "chunked" and not response.raw
        sent = 0
        if not response.raw:
            await self._write(_head(response, self._limits.now()))
        for piece in _pieces(response):
            sent += len(piece)
            if sent > self._limits.max_bytes:
                raise TimeoutError(f"the response is longer than {self._limits.max_bytes} bytes")
            await asyncio.sleep(response.delay)
            await self._write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        # A body that was cut must not look complete.
        if chunked and response.send is None:
            await self._write(b"0\r\n\r\n")

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()
        self._count(len(data))

    # --- the end ----------------------------------------------------------------------------------

    def reset(self) -> None:
        """Close with an RST: what is still on its way is lost."""
        sock = self._writer.get_extra_info("socket")
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def gone(self) -> None:
        """Close, if that has not happened, and wait until the descriptor is free."""
        self._writer.transport.abort()
        with suppress(OSError):
            await self._writer.wait_closed()


def _parsed(head: bytes) -> tuple[tuple[str, str], tuple[tuple[str, str], ...]]:
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    match first.split(" "):
        case [method, path, version] if version.startswith("HTTP/1."):
            pass
        case _:
            raise ValueError(f"not the first line of an HTTP/1 request: {first[:200]!r}")
    pairs = (line.partition(":") for line in lines)
    return (method, path), tuple((name.strip(), value.strip()) for name, _, value in pairs)


def _checked(size: int) -> int:
    if not 0 <= size <= _REQUEST_BYTES:
        raise ValueError(f"the body of the request has {size} bytes, allowed are {_REQUEST_BYTES}")
    return size


def _head(response: Response, now: float) -> bytes:
    try:
        phrase = HTTPStatus(response.status).phrase
    except ValueError:
        phrase = "Unassigned"
    lines = [f"HTTP/1.1 {response.status} {phrase}"]
    for name, value in response.headers:
        text = formatdate(now + value.seconds, usegmt=True) if isinstance(value, HttpDate) else value
        lines.append(f"{name}: {text}")
    named = {name.lower() for name, _ in response.headers}
    if response.framing == "chunked":
        lines.append("transfer-encoding: chunked")
    elif response.framing == "close":
        lines.append("connection: close")
    elif "content-length" not in named:
        lines.append(f"content-length: {len(response.content())}")
    return "\r\n".join((*lines, "", "")).encode("utf-8", "surrogateescape")


def _pieces(response: Response) -> Iterator[bytes]:
    left = response.send
    if left == 0:
        return
    for piece in (response.body,) if isinstance(response.body, bytes) else response.body():
        sendable = piece if left is None else piece[:left]
        for start in range(0, len(sendable), response.write):
            yield sendable[start : start + response.write]
        if left is not None:
            left -= len(sendable)
            if left <= 0:
                return
