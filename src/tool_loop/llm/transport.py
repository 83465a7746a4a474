"""One HTTP request, as bytes: the only place of the package that talks to a network.

What every request gets, whatever the server does: a connect timeout, a limit on silence, one
deadline over all of it, a cap on the decoded body, no redirect followed, no cookie kept. Whatever
goes wrong below comes out as `ProviderError` of kind "connection", "timeout" or "protocol".

Knows nothing about JSON, events, providers or keys; the headers it is given are sent as they are.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal
from weakref import WeakKeyDictionary

from tool_loop.errors import ConfigurationError, ProviderError

from .secret import printable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence

    import httpx2

# The pool of httpx2 walks all of its connections at each request, so one client with 500 requests in
# flight spends most of its time there (11.7 s for what ten clients do in 3.0 s). A further client is
# opened when all others have this many requests in flight; opening one costs about 0.1 ms.
PER_CLIENT: Final = 16

# After the reply's last event, what is still to come is the end of the body; it arrives with it or a
# moment later. Reading it lets the connection be used again; waiting longer than this costs more.
DRAIN_SECONDS: Final = 0.2
DRAIN_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. `idle` is the longest silence within a reply, the wait for its first byte included:
    a large model without streaming is silent for minutes. `total` is a whole request's, for runs
    that have no deadline of their own.
    """

    connect: float = 10.0
    idle: float = 300.0
    total: float = 1800.0


@dataclass(frozen=True, slots=True)
class Caps:
    """Bytes after decompression. A document is held in memory as a whole, a stream is not."""

    document: int = 8 * 1024 * 1024
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
        timeouts: Timeouts = Timeouts(),
        caps: Caps = Caps(),
    ) -> None:
        self.timeouts = timeouts
        self.caps = caps
        self._http = http
        self._own: WeakKeyDictionary[asyncio.AbstractEventLoop, _Clients] = WeakKeyDictionary()

    @asynccontextmanager
    async def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, deadline: float | None = None
    ) -> AsyncIterator[Exchange]:
        """POST the body; the response is there when the block is entered, its body is yet to be read.

        `deadline` is a time of the running loop's clock. Raises `ProviderError`, also while the
        body is read, and `ConfigurationError` for a URL that is none.
        """
        import httpx2

        clients = self._clients()
        line = _Line(_host(url), self.timeouts, deadline)
        shard = await clients.take(url)
        response: httpx2.Response | None = None
        try:
            with line.translated():
                async with line.clock:
                    request = httpx2.Request(
                        "POST", url, headers=list(headers.items()), content=body, extensions=line.extensions
                    )
                    response = await shard.client.send(request, auth=None, follow_redirects=False, stream=True)
            yield Exchange(response, line, self.caps)
        finally:
            shard.load -= 1
            if response is not None:
                with suppress(Exception):
                    await response.aclose()

    def _clients(self) -> _Clients:
        loop = asyncio.get_running_loop()
        table = _SHARED if self._http is None else self._own
        clients = table.get(loop)
        if clients is None:
            clients = table[loop] = _Clients(self._http, forget=lambda: table.pop(loop, None))
        return clients


class Exchange:
    """A response whose body is still on the wire. `headers` are lower-case."""

    __slots__ = ("_bytes", "_caps", "_chunks", "_line", "headers", "status")

    def __init__(self, response: httpx2.Response, line: _Line, caps: Caps) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._chunks = response.aiter_bytes()
        self._line = line
        self._caps = caps
        self._bytes = 0

    async def chunk(self, *, patience: float | None = None) -> bytes:
        """The next bytes of the body, decompressed; b"" at its end.

        `patience` shortens the limit on silence for this once.
        """
        line = self._line
        line.began = True
        with line.translated():
            async with line.watch(patience):
                piece = await anext(self._chunks, b"")
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
            while self._bytes < until and await self.chunk(patience=DRAIN_SECONDS):
                pass


class _Line:
    """The time limits of one request, and the translation of what goes wrong on it."""

    __slots__ = ("_cause", "_deadline", "_idle", "_started", "began", "clock", "extensions", "host")

    def __init__(self, host: str, timeouts: Timeouts, deadline: float | None) -> None:
        loop = asyncio.get_running_loop()
        self.host = host
        self.began = False
        self._started = loop.time()
        self._deadline = self._started + timeouts.total
        if deadline is not None:
            self._deadline = min(deadline, self._deadline)
        self._idle = timeouts.idle
        # httpx2 sets a timer of its own for each read and write; ours covers them all at a tenth of
        # the cost. Only connecting keeps its own limit, so that a dead host is known early.
        self.extensions = {"timeout": {"connect": timeouts.connect, "read": None, "write": None, "pool": None}}
        self.clock = self.watch(None)

    def watch(self, patience: float | None) -> asyncio.Timeout:
        now = asyncio.get_running_loop().time()
        silent = now + (self._idle if patience is None else patience)
        self._cause: Literal["deadline", "silence"] = "deadline" if self._deadline <= silent else "silence"
        return asyncio.timeout_at(min(self._deadline, silent))

    def translated(self) -> _Translated:
        return _Translated(self)

    def too_large(self, most: int) -> ProviderError:
        text = f"{self.host} sent more than {most:,} bytes in one reply; the rest was not read"
        return ProviderError(text, kind="protocol")

    def timed_out(self) -> ProviderError:
        waited = asyncio.get_running_loop().time() - self._started
        if self._cause == "deadline":
            text = f"no complete reply from {self.host} within the time there was ({waited:.1f} s)"
        else:
            text = f"{self.host} sent nothing for {self._idle:g} s"
        return ProviderError(text, kind="timeout")

    def broken(self, error: Exception) -> Exception:
        """What the error of httpx2 means to the caller."""
        import httpx2

        if isinstance(error, TimeoutError):
            return self.timed_out()
        if isinstance(error, httpx2.ConnectTimeout):
            text = f"could not connect to {self.host} within {self.extensions['timeout']['connect']:g} s"
            return ProviderError(text, kind="connection")
        if isinstance(error, httpx2.ProxyError):
            return ProviderError(f"the proxy in front of {self.host} refused: {_said(error)}", kind="connection")
        if isinstance(error, httpx2.ConnectError):
            return ProviderError(_not_connected(self.host, error), kind="connection")
        if isinstance(error, httpx2.DecodingError):
            text = f"the reply of {self.host} is not what its content-encoding says: {_said(error)}"
            return ProviderError(text, kind="protocol")
        if isinstance(error, httpx2.UnsupportedProtocol | httpx2.InvalidURL | httpx2.LocalProtocolError):
            return ConfigurationError(
                f"cannot send a request to {self.host}: {_said(error)}. Check the base URL and the key."
            )
        if isinstance(error, httpx2.HTTPError):
            return self._lost(error)
        return error

    def _lost(self, error: Exception) -> ProviderError:
        import httpx2

        if isinstance(error, httpx2.RemoteProtocolError) and "disconnected" not in str(error) and not self.began:
            return ProviderError(f"{self.host} does not speak HTTP as it should: {_said(error)}", kind="protocol")
        if not self.began:
            return ProviderError(
                f"{self.host} closed the connection without an answer: {_said(error)}", kind="connection"
            )
        return ProviderError(
            f"the connection to {self.host} broke in the middle of the reply: {_said(error)}", kind="protocol"
        )


class _Translated:
    """Turns the exceptions of a block into ours; a class, because a generator costs five times as much."""

    __slots__ = ("_line",)

    def __init__(self, line: _Line) -> None:
        self._line = line

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, ProviderError):
            ours = self._line.broken(error)
            if ours is not error:
                raise ours from error


# --- clients --------------------------------------------------------------------------------------


class _Shard:
    __slots__ = ("client", "load")

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client
        self.load = 0


class _Clients:
    """The clients of one event loop: as few as will do, so that connections are used again."""

    def __init__(self, http: httpx2.AsyncBaseTransport | None, forget: Callable[[], object]) -> None:
        self._http = http
        self._forget = forget
        self._shards: dict[str, list[_Shard]] = {}
        self._ssl: dict[str, ssl.SSLContext] = {}
        self._end: AsyncGenerator[None] | None = None

    async def take(self, url: str) -> _Shard:
        """The first client with room, with one more request counted on it; give it back by `load -= 1`."""
        if self._end is None:
            self._end = self._until_the_loop_ends()
            await anext(self._end)
        scheme = url[:6].partition(":")[0].lower()
        shards = self._shards.setdefault(scheme, [])
        shard = next((s for s in shards if s.load < PER_CLIENT or self._http is not None), None)
        if shard is None:
            shard = _Shard(self._client(scheme))
            shards.append(shard)
        shard.load += 1
        return shard

    def _client(self, scheme: str) -> httpx2.AsyncClient:
        import httpx2

        if self._http is not None:
            return httpx2.AsyncClient(transport=self._http, trust_env=False)
        if scheme not in self._ssl:
            # Reading the certificates takes 40 ms: once, and never for a local server without TLS.
            # The empty context trusts nobody, so nothing is lost if it were ever used.
            bare = scheme == "http"
            self._ssl[scheme] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if bare else httpx2.create_ssl_context()
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=PER_CLIENT, keepalive_expiry=30.0)
        try:
            return httpx2.AsyncClient(verify=self._ssl[scheme], limits=limits)
        except (ImportError, ValueError, httpx2.InvalidURL) as error:
            # HTTP_PROXY, HTTPS_PROXY and ALL_PROXY are read here; a SOCKS proxy needs another package.
            raise ConfigurationError(f"the proxy in the environment cannot be used: {_said(error)}") from error

    async def _until_the_loop_ends(self) -> AsyncGenerator[None]:
        # `asyncio.run` closes the asynchronous generators of its loop before the loop itself. This is
        # the only moment at which sockets can still be closed properly, and nobody has to ask for it.
        try:
            yield
        finally:
            self._forget()
            for shard in (one for shards in self._shards.values() for one in shards):
                with suppress(Exception):
                    await shard.client.aclose()


_SHARED: WeakKeyDictionary[asyncio.AbstractEventLoop, _Clients] = WeakKeyDictionary()


# --- words ----------------------------------------------------------------------------------------


def _host(url: str) -> str:
    """Host and port, for messages: no user, no password, no path."""
    from urllib.parse import urlsplit

    with suppress(ValueError):
        return urlsplit(url).netloc.rpartition("@")[2] or url
    return url


def _said(error: BaseException) -> str:
    return printable(str(error), 200) or type(error).__name__


def _chain(error: BaseException) -> Sequence[BaseException]:
    chain: list[BaseException] = []
    todo: list[BaseException | None] = [error]
    while todo and len(chain) < 20:
        one = todo.pop(0)
        if one is None or one in chain:
            continue
        chain.append(one)
        todo += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            todo += one.exceptions
    return chain


def _not_connected(host: str, error: Exception) -> str:
    for cause in _chain(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate of {host} is not trusted: {cause.verify_message or _said(cause)}"
        if isinstance(cause, ssl.SSLError):
            return f"no TLS connection to {host}: {_said(cause)}. Is it an http:// server?"
        if isinstance(cause, socket.gaierror):
            return f"there is no host {host}: {_said(cause)}. Check the base URL and the network."
        if isinstance(cause, OSError) and cause.errno == errno.ECONNREFUSED:
            return f"could not connect to {host} (connection refused): is the server running?"
        if isinstance(cause, OSError) and cause.errno:
            return f"could not connect to {host}: {_said(cause)}"
    return f"could not connect to {host}: {_said(error)}"


def wall_clock() -> float:
    """The time of day in seconds, which HTTP dates are compared with."""
    return time.time()
