"""One HTTP request, as bytes: the only place of the package that talks to a network.

What every request gets, whatever the server does: a connect timeout, a limit on silence, one
deadline over all of it, a cap on the decoded body, no redirect followed, no cookie kept. Whatever
goes wrong below comes out as `ProviderError` of kind "connection", "timeout" or "protocol".

Knows nothing about JSON, events, providers or keys; the headers it is given are sent as they are.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tool_loop.errors import ProviderError

from .doubles import Double, Doubles, Network
from .opening import Opening, host_of
from .packing import unpacker
from .pool import SHARED
from .timer import RequestTimer, Timeouts

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping
    from typing import Self

    from .connection import Connection
    from .packing import Unpacker
    from .pool import Pool

__all__ = ["Caps", "HttpExchange", "Timeouts", "Transport"]

logger = logging.getLogger(__name__)

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
    """Sends requests over the connections of the running event loop, which all transports share.

    `tls` says whom to trust and with which certificate to answer; without it, the system's
    certificates, or what SSL_CERT_FILE and SSL_CERT_DIR name. `http` replaces the network: any
    transport of httpx2 or httpx, such as `httpx2.MockTransport` in a test.
    """

    def __init__(
        self,
        http: Network | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen
        caps: Caps = Caps(),
    ) -> None:
        self.timeouts = timeouts
        self.caps = caps
        self.tls = tls
        self.doubles = None if http is None else Doubles(http)
        self._opening: Opening | None = None

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, key: str = "", deadline: float | None = None
    ) -> HttpExchange:
        """POST the body when the exchange is entered; what is unread when it is left is given up.

        `headers` are not to change afterwards; `key` goes with them as the idempotency key. `deadline`
        is a time of the running loop's clock.
        """
        return HttpExchange(self, url, headers, body, key, deadline)

    def opening(self, url: str, headers: Mapping[str, str]) -> Opening:
        """The head of requests to there, kept: making it anew each time took a twentieth of a step."""
        opening = self._opening
        if opening is None or opening.url != url or opening.given is not headers:
            opening = self._opening = Opening(url, headers)
        return opening


class HttpExchange:
    """One request and its response: an asynchronous context, because each has to be closed.

    Inside, the response is there and its body still on the wire; `headers` are lower-case. Raises
    `ProviderError`, also while the body is read, and `ConfigurationError` for a URL or a header that
    cannot be sent.
    """

    __slots__ = (
        "_body", "_bytes", "_deadline", "_given", "_key", "_line", "_pool", "_reply", "_transport", "_unpacker",
        "_url", "headers", "status",
    )  # fmt: skip

    def __init__(
        self,
        transport: Transport,
        url: str,
        given: Mapping[str, str],
        body: bytes,
        key: str,
        deadline: float | None,
    ) -> None:
        self._transport = transport
        self._url = url
        self._given = given
        self._body = body
        self._key = key
        self._deadline = deadline
        self._bytes = 0
        self._pool: Pool | None = None
        self._reply: Connection | Double | None = None
        self._unpacker: Unpacker | None = None

    async def __aenter__(self) -> Self:
        self._line = line = RequestTimer(host_of(self._url), self._transport.timeouts, self._deadline)
        try:
            with line:
                self._reply = reply = await self._sent()
                await reply.head()
        except BaseException:
            await self.__aexit__()
            raise
        self.status = reply.status
        self.headers: Mapping[str, str] = reply.headers
        if encoding := reply.headers.get("content-encoding"):
            self._unpacker = unpacker(encoding)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s answered %d %s", line.host, reply.status, dict(reply.headers))
        return self

    async def _sent(self) -> Connection | Double:
        # Once it is on its way nothing here keeps the body: while a model thinks, nobody needs a
        # further copy of the whole conversation.
        transport, body = self._transport, self._body
        self._body = b""
        opening = transport.opening(self._url, self._given)
        if transport.doubles is not None:
            return await transport.doubles.take(opening, body, self._key)
        self._pool = pool = SHARED.here()
        connection = await pool.take(opening.origin, transport.tls, transport.timeouts.connect)
        proxy = pool.proxy(opening.origin)
        body = opening.body(body)
        if proxy is not None and proxy.forwards:
            head = opening.head(len(body), self._key, forwarded=True, authorization=proxy.authorization)
        else:
            head = opening.head(len(body), self._key)
        connection.send(head, body)
        return connection

    async def __aexit__(self, *_: object) -> None:
        self._line.end()
        reply, pool = self._reply, self._pool
        if isinstance(reply, Double):
            await reply.aclose()
        elif reply is not None and pool is not None:
            pool.give(reply)

    async def chunk(self, *, patience: float | None = None) -> bytes:
        """The next bytes of the body, decompressed; b"" at its end.

        `patience` shortens the limit on silence for this once.
        """
        line, reply = self._line, self._reply
        assert reply is not None
        line.began = True
        if not reply.ready():  # what is here already needs no time limit
            line.expect(patience)
        with line:
            piece = await (reply.piece() if self._unpacker is None else self._unpacker.piece(reply.piece))
        self._bytes += len(piece)
        if self._bytes > self._transport.caps.stream:
            raise line.too_large(self._transport.caps.stream)
        return piece

    async def rest(self, start: bytes = b"") -> bytes:
        """`start` and everything that follows. Raises when it is more than a document may have."""
        pieces = [start]
        while piece := await self.chunk():
            pieces.append(piece)
            if self._bytes > self._transport.caps.document:
                raise self._line.too_large(self._transport.caps.document)
        return b"".join(pieces)

    async def drain(self) -> None:
        """Read what may follow the last event, for a moment, so that the connection can be used again."""
        until = self._bytes + DRAIN_BYTES
        with suppress(ProviderError):
            more = True
            while more and self._bytes < until:
                more = bool(await self.chunk(patience=DRAIN_SECONDS))
