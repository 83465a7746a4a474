"""One HTTP request, as bytes: the only place of the package that talks to a network.

What every request gets, whatever the server does: a connect timeout, a limit on silence, one
deadline over all of it, a cap on the decoded body, no redirect followed, no cookie kept. Whatever
goes wrong below comes out as `ProviderError` of kind "connection", "timeout" or "protocol".

Knows nothing about JSON, events, providers or keys; the headers it is given are sent as they are.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from tool_loop.errors import ProviderError

from .clients import SHARED, ClientTable
from .timer import Line, Timeouts

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Mapping
    from typing import Self

    import httpx2

    from .clients import Shard

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
        self.clients = SHARED if http is None else ClientTable(http)
        self.keeps = http is not None  # a network of the caller's own may look at the content
        # Of httpx2's own timers only the one for connecting is used, so that a dead host is known
        # early. The others are covered by the line's.
        limits = {"connect": timeouts.connect, "read": None, "write": None, "pool": None}
        self.extensions = {"timeout": limits}
        self._opening: _Opening | None = None

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, key: str = "", deadline: float | None = None
    ) -> Exchange:
        """POST the body when the exchange is entered; what is unread when it is left is given up.

        `headers` are not to change afterwards; `key` goes with them as the idempotency key. `deadline`
        is a time of the running loop's clock.
        """
        opening = self._opening
        if opening is None or opening.url != url or opening.given is not headers:
            opening = self._opening = _Opening(url, headers)
        return Exchange(self, opening, body, key, deadline)


class _Opening:
    """What all requests to one address have in common, made once: parsing the address and the headers
    anew each time took a twentieth of a whole step. Shows none of it, for the key is in there."""

    __slots__ = ("_auth", "_headers", "_where", "given", "host", "url")

    def __init__(self, url: str, given: Mapping[str, str]) -> None:
        self.url = url
        self.given = given
        self.host = _host(url)
        self._where: httpx2.URL | None = None
        self._headers: httpx2.Headers | None = None
        self._auth: httpx2.BasicAuth | None = None

    def request(self, body: bytes, key: str, extensions: dict[str, Any], *, keep: bool) -> httpx2.Request:
        """The request that httpx2 makes of `content`. Raises what it raises where it cannot be sent.

        Unless it is to `keep` the body, that is gone as soon as it is on the wire: while a model thinks,
        nobody needs a further copy of the whole conversation.
        """
        import httpx2

        from .sockets import Once

        if self._where is None:
            self._parse()
        # With `stream` httpx2 adds no headers of its own, so what it would add is added here.
        stream = httpx2.ByteStream(body) if keep else Once(body)
        request = httpx2.Request("POST", self._where or "", headers=self._headers, stream=stream, extensions=extensions)
        if "transfer-encoding" not in self.given:
            request.headers["Content-Length"] = str(len(body))
        if key:
            request.headers["idempotency-key"] = key
        if self._auth is not None:
            next(self._auth.auth_flow(request))
        if keep:
            request.read()
        return request

    def _parse(self) -> None:
        import httpx2

        where = httpx2.URL(self.url)
        host = where.netloc.decode("ascii")
        self._headers = httpx2.Headers({"Host": host} if host and "host" not in self.given else {})
        self._headers.update(self.given)
        if where.username or where.password:
            self._auth = httpx2.BasicAuth(where.username, where.password)
        self._where = where


class Exchange:
    """One request and its response: an asynchronous context, because each has to be closed.

    Inside, the response is there and its body still on the wire; `headers` are lower-case. Raises
    `ProviderError`, also while the body is read, and `ConfigurationError` for a URL or a header that
    cannot be sent.
    """

    __slots__ = (
        "_body", "_bytes", "_caps", "_chunks", "_deadline", "_key", "_line", "_opening", "_response", "_shard",
        "_transport", "headers", "status",
    )  # fmt: skip

    def __init__(self, transport: Transport, opening: _Opening, body: bytes, key: str, deadline: float | None) -> None:
        self._transport = transport
        self._caps = transport.caps
        self._opening = opening
        self._body = body
        self._key = key
        self._deadline = deadline
        self._bytes = 0
        self._shard: Shard | None = None
        self._response: httpx2.Response | None = None

    async def __aenter__(self) -> Self:
        opening, transport = self._opening, self._transport
        self._line = line = Line(opening.host, transport.timeouts, self._deadline)
        try:
            self._shard = shard = await transport.clients.here().take(opening.url)
            with line:
                request = opening.request(self._body, self._key, transport.extensions, keep=transport.keeps)
                self._body = b""
                self._response = response = await shard.http.handle_async_request(request)
        except BaseException:
            await self.__aexit__()
            raise
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        # What is not compressed is taken as it comes off the wire: three generators and a decoder that
        # does nothing took a fortieth of a whole step.
        packed = "content-encoding" in response.headers
        self._chunks = response.aiter_bytes() if packed else aiter(cast("AsyncIterable[bytes]", response.stream))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._line.end()
        if self._shard is not None:
            self._shard.load -= 1
        if self._response is not None:
            with suppress(Exception):
                await self._response.aclose()

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


def _host(url: str) -> str:
    """Host and port, for messages: no user, no password, no path."""
    return urlsplit(url).netloc.rpartition("@")[2] or url
