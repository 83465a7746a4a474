"""One HTTP request, as bytes: the only place of the package that talks to a network.

What every request gets, whatever the server does: a connect timeout, a limit on silence, one
deadline over all of it, a cap on the decoded body, no redirect followed, no cookie kept. Whatever
goes wrong below comes out as `ProviderError` of kind "connection", "timeout" or "protocol".

Knows nothing about JSON, events, providers or keys; the headers it is given are sent as they are.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from tool_loop.errors import ProviderError

from .clients import SHARED, ClientTable
from .line import Line, Timeouts

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Mapping

    import httpx2

__all__ = ["Caps", "Exchange", "Timeouts", "Transport"]

# After the reply's last event, what is still to come is the end of the body; it arrives with it or a
# moment later. Reading it lets the connection be used again; waiting longer than this costs more.
DRAIN_SECONDS: Final = 0.2
DRAIN_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Caps:
    """Bytes after decompression. A document is held in memory as a whole, a stream is not."""

    # Parsed, JSON made of empty objects takes 24 times its size. The longest reply has about 0.5 MiB.
    document: int = 2 * 1024 * 1024
    stream: int = 64 * 1024 * 1024


class Transport:
    """Sends requests through the clients of the running event loop.

    `http` replaces the network: any httpx2 transport, `httpx2.MockTransport` in tests. Without it
    all transports of an event loop share one set of clients, which is closed with the loop.
    """

    def __init__(
        self,
        http: httpx2.AsyncBaseTransport | None = None,
        *,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen
        caps: Caps = Caps(),
    ) -> None:
        self.timeouts = timeouts
        self.caps = caps
        self._clients = SHARED if http is None else ClientTable(http)
        # Of httpx2's own timers only the one for connecting is used, so that a dead host is known
        # early. The others are covered by the line's.
        limits = {"connect": timeouts.connect, "read": None, "write": None, "pool": None}
        self._extensions = {"timeout": limits}

    @asynccontextmanager
    async def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, deadline: float | None = None
    ) -> AsyncIterator[Exchange]:
        """POST the body; the response is there when the block is entered, its body is yet to be read.

        `deadline` is a time of the running loop's clock. Raises `ProviderError`, also while the
        body is read, and `ConfigurationError` for a URL or a header that cannot be sent.
        """
        line = Line(_host(url), self.timeouts, deadline)
        shard = await self._clients.here().take(url)
        response: httpx2.Response | None = None
        try:
            with line:
                request = _request(url, headers, body, self._extensions)
                response = await shard.client.send(request, auth=None, follow_redirects=False, stream=True)
            yield Exchange(response, line, self.caps)
        finally:
            line.end()
            shard.load -= 1
            if response is not None:
                with suppress(Exception):
                    await response.aclose()


class Exchange:
    """A response whose body is still on the wire. `headers` are lower-case."""

    __slots__ = ("_bytes", "_caps", "_chunks", "_line", "headers", "status")

    def __init__(self, response: httpx2.Response, line: Line, caps: Caps) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        # What is not compressed is taken as it comes off the wire: three generators and a decoder that
        # does nothing took a fortieth of a whole step.
        packed = "content-encoding" in response.headers
        self._chunks = response.aiter_bytes() if packed else aiter(cast("AsyncIterable[bytes]", response.stream))
        self._line = line
        self._caps = caps
        self._bytes = 0

    async def chunk(self, *, patience: float | None = None) -> bytes:
        """The next bytes of the body, decompressed; b"" at its end.

        `patience` shortens the limit on silence for this once.
        """
        line = self._line
        line.began = True
        line.expect(patience)
        with line:
            async for piece in self._chunks:  # goes on where it was left
                if piece:
                    break
            else:
                piece = b""
        self._bytes += len(piece)
        if self._bytes > self._caps.stream:
            raise line.too_large(self._caps.stream)
        return piece

    async def rest(self, start: bytes = b"") -> bytes:
        """`start` and everything that follows. Raises when it is more than a document may have."""
        pieces = [start]
        while piece := await self.chunk():
            pieces.append(piece)
            if self._bytes > self._caps.document:
                raise self._line.too_large(self._caps.document)
        return b"".join(pieces)

    async def drain(self) -> None:
        """Read what may follow the last event, for a moment, so that the connection can be used again."""
        until = self._bytes + DRAIN_BYTES
        with suppress(ProviderError):
            more = True
            while more and self._bytes < until:
                more = bool(await self.chunk(patience=DRAIN_SECONDS))


def _request(url: str, headers: Mapping[str, str], body: bytes, extensions: dict[str, Any]) -> httpx2.Request:
    """The request that httpx2 would make of these, without parsing the address and its own headers anew
    each time, which took a twentieth of a whole step.

    With `stream` in place of `content` it adds no headers, so the two that it would add are added here.
    """
    import httpx2

    where, host = _address(url)
    names = {name.lower() for name in headers}
    sent = [("Host", host), *headers.items()] if host and "host" not in names else [*headers.items()]
    if not names & {"content-length", "transfer-encoding"}:
        sent.append(("Content-Length", str(len(body))))
    request = httpx2.Request("POST", where, headers=sent, stream=httpx2.ByteStream(body), extensions=extensions)
    request.read()  # for a transport of the caller's own, which may look at the content
    return request


@lru_cache(maxsize=64)
def _address(url: str) -> tuple[httpx2.URL, str]:
    """The parsed URL, and the Host header that goes with it."""
    import httpx2

    where = httpx2.URL(url)
    return where, where.netloc.decode("ascii")


def _host(url: str) -> str:
    """Host and port, for messages: no user, no password, no path."""
    return urlsplit(url).netloc.rpartition("@")[2] or url
