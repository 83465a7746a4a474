"""The sockets under httpx2's connection pool: asyncio's own, with no other layer in between.

httpx2 runs on two kinds of event loop, and pays for it at each read and write: a scope for time limits
that are not used here, a turn of the loop for each write, a system call for each look at an idle
connection. Measured without that: a fifth less CPU per step, a third less at 500 conversations at once,
and 25 KiB for one that waits in place of 37. The pool, HTTP itself and TLS are httpx2's and Python's.

Knows nothing about requests, and of time only how long a connection may take; the rest is the line's.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from functools import partial
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import httpcore2
import httpx2

from tool_loop.runtime.threads import run_in_thread

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Iterable

# What a server may send ahead of the reader: one full read of asyncio's. Then it has to wait, or a
# stream that comes faster than it is parsed would fill the memory.
AHEAD_BYTES: Final = 256 * 1024

# How long one address of a host may be silent before the next one is tried beside it (RFC 8305).
STAGGER_SECONDS: Final = 0.25

_Address: TypeAlias = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]  # as `getaddrinfo` gives it


class Pool(httpx2.AsyncHTTPTransport):
    """httpx2's transport, on these sockets."""

    def __init__(self, *, verify: ssl.SSLContext, limits: httpx2.Limits) -> None:
        super().__init__(verify=verify, limits=limits)
        # The one thing httpx2 does not let through is the pool's `network_backend`. Should it keep its
        # pool elsewhere one day, the one it has made is used and all that is lost is time.
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=verify,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=Network(),
        )


class Once(httpx2.AsyncByteStream):
    """A body that is sent once and not kept after that."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body, self._body = self._body, b""
        yield body


class Network(httpcore2.AsyncNetworkBackend):
    """Opens connections for the pool."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the pool's interface
        local_address: str | None = None,  # noqa: ARG002 - never set here, as the next one
        socket_options: Iterable[Any] | None = None,  # noqa: ARG002
    ) -> Stream:
        try:
            async with asyncio.timeout(timeout):
                return await _connected(host, port)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error


class Stream(httpcore2.AsyncNetworkStream, asyncio.Protocol):
    """One connection, as asyncio fills it and the pool empties it.

    A `timeout` for reading or writing is not kept: the line has one timer for all of a request, and
    cancels whatever waits here.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._ended = False  # nothing more will come
        self._error: Exception | None = None
        self._paused = False
        self._arrival: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport

    # --- what the pool calls ----------------------------------------------------------------------

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002, ASYNC109
        while not self._buffer:
            if self._error is not None:
                raise httpcore2.ReadError(str(self._error)) from self._error
            if self._ended:
                return b""
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        data = bytes(self._buffer[:max_bytes])
        del self._buffer[:max_bytes]
        if self._paused and not self._buffer:
            self._paused = False
            self._transport.resume_reading()
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109
        if self._transport.is_closing():
            raise httpcore2.WriteError(str(self._error or "closed")) from self._error
        self._transport.write(buffer)
        if self._room is not None:
            await self._room
            if self._error is not None:
                raise httpcore2.WriteError(str(self._error)) from self._error

    async def aclose(self) -> None:
        self._transport.close()
        try:
            # One turn, for the goodbye of TLS. A peer that does not take what is left is not waited for.
            await asyncio.sleep(0)
        finally:
            self._transport.abort()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Stream:
        start = asyncio.get_running_loop().start_tls
        try:
            async with asyncio.timeout(timeout):
                secured = await start(self._transport, self, ssl_context, server_hostname=server_hostname)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(str(error)) from error
        except OSError as error:  # those of TLS among them
            raise httpcore2.ConnectError(str(error)) from error
        if secured is None:  # lost in the very moment at which it was ready
            raise httpcore2.ConnectError("the connection was closed")
        self._transport = secured
        return self

    def get_extra_info(self, info: str) -> Any:
        # The pool asks this of each idle connection at each request. A server that has closed one is
        # known here after the next turn of the loop, without a system call.
        if info == "is_readable":
            return self._ended or bool(self._buffer)
        return self._transport.get_extra_info(info)

    # --- what asyncio calls -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: uvloop's transports have the methods and none of asyncio's classes.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) >= AHEAD_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        _wake(self._arrival)

    def eof_received(self) -> None:
        """The server has said its last; asyncio closes the connection on return."""
        self._ended = True
        _wake(self._arrival)

    def connection_lost(self, error: Exception | None) -> None:
        self._ended = True
        self._error = error
        _wake(self._arrival)
        _wake(self._room)

    def pause_writing(self) -> None:
        self._room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        _wake(self._room)
        self._room = None


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


# --- connecting -----------------------------------------------------------------------------------


async def _connected(host: str, port: int) -> Stream:
    loop = asyncio.get_running_loop()
    if ":" in host or host.rpartition(".")[2].isdigit():  # an address: nothing to look up, nothing to race
        return (await loop.create_connection(Stream, host, port))[1]
    # On a thread that nobody joins: the loop's own look-up keeps the process from ending while it hangs.
    found: Any = await run_in_thread(partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM))
    same = [address for address in found if address[0] == found[0][0]]
    other = [address for address in found if address[0] != found[0][0]]
    reached = await _first([a for a in chain(*zip_longest(same, other)) if a is not None])
    return (await loop.create_connection(Stream, sock=reached))[1]


async def _first(addresses: list[_Address]) -> socket.socket:
    """A socket that is connected to the address that answers first. Raises what came of all of them."""
    waiting = deque(addresses)
    attempts: set[asyncio.Task[socket.socket]] = set()
    errors: list[Exception] = []
    try:
        while waiting or attempts:
            if waiting:
                attempts.add(asyncio.create_task(_reached(waiting.popleft())))
            delay = STAGGER_SECONDS if waiting else None
            await asyncio.wait(attempts, timeout=delay, return_when=asyncio.FIRST_COMPLETED)
            for attempt in [a for a in attempts if a.done()]:
                attempts.remove(attempt)
                try:
                    return attempt.result()
                except OSError as error:
                    errors.append(error)
    finally:
        for attempt in attempts:
            attempt.cancel()
        for late in await asyncio.gather(*attempts, return_exceptions=True):
            if isinstance(late, socket.socket):
                late.close()
    raise OSError("all attempts to connect failed") from ExceptionGroup("one for each address", errors)


async def _reached(address: _Address) -> socket.socket:
    family, kind, protocol, _, where = address
    one = socket.socket(family, kind, protocol)
    try:
        one.setblocking(False)
        await asyncio.get_running_loop().sock_connect(one, where)
    except BaseException:
        one.close()
        raise
    return one
