"""The HTTP connections of an event loop: in as few pools as will do, closed with the loop.

Of httpx2 this takes the transports and not the client: cookies, redirects, authentication and events
are not wanted here, and at each request they take time and, while it waits, 2 KiB of memory. Only where
the environment names a proxy there is a client, which knows the rules for who goes through it.

Knows nothing about requests, replies or errors of theirs.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from tool_loop.errors import ConfigurationError
from tool_loop.redaction.secret import printable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx2

# The pool of httpx2 walks all of its connections at each request, so one with 500 requests in flight
# spends most of its time there (11.7 s for what ten do in 3.0 s). A further one is opened when all
# others have this many requests in flight; opening one costs about 0.1 ms.
PER_CLIENT: Final = 16


class Shard:
    """A pool of connections, and how many requests are in flight on it."""

    __slots__ = ("http", "load")

    def __init__(self, http: httpx2.AsyncBaseTransport) -> None:
        self.http = http
        self.load = 0


class Clients:
    """The pools of one event loop: as few as will do, so that connections are used again."""

    def __init__(self, http: httpx2.AsyncBaseTransport | None) -> None:
        self._http = http
        self._shards: dict[str, list[Shard]] = {}
        self._ssl: dict[str, ssl.SSLContext] = {}
        self._end: AsyncGenerator[None] | None = None
        self.closed = False

    async def take(self, url: str) -> Shard:
        """The first pool with room, with one more request counted on it; give it back by `load -= 1`."""
        if self._end is None:
            self._end = self._until_the_loop_ends()
            await anext(self._end)
        scheme = url[:6].partition(":")[0].lower()
        shards = self._shards.setdefault(scheme, [])
        shard = next((s for s in shards if s.load < PER_CLIENT or self._http is not None), None)
        if shard is None:
            shard = Shard(self._http or self._pool(scheme))
            shards.append(shard)
        shard.load += 1
        return shard

    def _pool(self, scheme: str) -> httpx2.AsyncBaseTransport:
        import httpx2

        from tool_loop.redaction.scrub import guard

        guard()  # at DEBUG httpx2 logs the headers of replies, and some servers send the key back in them
        if scheme not in self._ssl:
            # Reading the certificates takes 40 ms: once, and never for a local server without TLS.
            # The empty context trusts nobody, so nothing is lost if it were ever used.
            bare = scheme == "http"
            self._ssl[scheme] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if bare else httpx2.create_ssl_context()
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=PER_CLIENT, keepalive_expiry=30.0)
        if not _proxied():
            from .sockets import Pool  # loads httpx2

            return Pool(verify=self._ssl[scheme], limits=limits)
        try:
            return _client_as_transport(httpx2.AsyncClient(verify=self._ssl[scheme], limits=limits))
        except (ImportError, ValueError, httpx2.InvalidURL) as error:
            # HTTP_PROXY, HTTPS_PROXY and ALL_PROXY are read here; a SOCKS proxy needs another package.
            raise ConfigurationError(
                f"the proxy in the environment cannot be used: {printable(str(error), 200)}"
            ) from error

    async def _until_the_loop_ends(self) -> AsyncGenerator[None]:
        # `asyncio.run` closes the asynchronous generators of its loop before the loop itself. This is
        # the only moment at which sockets can still be closed properly, and nobody has to ask for it.
        try:
            yield
        finally:
            self.closed = True
            for shard in (one for shards in self._shards.values() for one in shards):
                with suppress(Exception):
                    await shard.http.aclose()
            self._shards.clear()


def _proxied() -> bool:
    """Whether the environment, or the system's settings, name a proxy; the same look as httpx2's own."""
    from urllib.request import getproxies

    return any(getproxies().get(scheme) for scheme in ("http", "https", "all"))


def _client_as_transport(client: httpx2.AsyncClient) -> httpx2.AsyncBaseTransport:
    import httpx2

    class Proxied(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            return await client.send(request, auth=None, follow_redirects=False, stream=True)

        async def aclose(self) -> None:
            await client.aclose()

    return Proxied()


class ClientTable:
    """The pools of each event loop: their sockets belong to the loop they were opened in."""

    def __init__(self, http: httpx2.AsyncBaseTransport | None = None) -> None:
        self._http = http
        self._table: WeakKeyDictionary[asyncio.AbstractEventLoop, Clients] = WeakKeyDictionary()

    def here(self) -> Clients:
        """Those of the running loop."""
        loop = asyncio.get_running_loop()
        clients = self._table.get(loop)
        if clients is None or clients.closed:
            clients = self._table[loop] = Clients(self._http)
        return clients


SHARED: Final = ClientTable()
