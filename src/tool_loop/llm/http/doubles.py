"""A network made up for a test, or another client's: any transport of httpx2 or httpx in place of a connection.

Neither library is needed for anything else, so the one is loaded that the transport comes from.
"""

from __future__ import annotations

import asyncio
import zlib
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from tool_loop.errors import UsageError
from tool_loop.redaction.scrub import guard

from .loop_end import at_loop_end
from .troubles import Lost, NotHTTP, ProxyRefused, Unsendable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping

    from .opening import Opening


class Network(Protocol):
    """What `httpx2.AsyncBaseTransport` is, and `httpx.AsyncBaseTransport`."""

    async def handle_async_request(self, request: Any, /) -> Any: ...

    async def aclose(self) -> None: ...


class Doubles:
    """Requests to a transport of another library. It is closed with each event loop it was used in."""

    def __init__(self, http: Network) -> None:
        self._http = http
        self._library = _library_of(http)
        self._ends: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncGenerator[None]] = WeakKeyDictionary()

    async def take(self, opening: Opening, body: bytes, key: str) -> Double:
        """The request, not yet sent."""
        loop = asyncio.get_running_loop()
        if loop not in self._ends:
            guard()  # at DEBUG these libraries log headers, and some servers send the key back in them
            self._ends[loop] = await at_loop_end(self._close)
        headers = self._library.Headers(opening.fields)
        if not opening.chunked:
            headers["content-length"] = str(len(body))
        if key:
            headers["idempotency-key"] = key
        # Of all the timers of the other side only the one for connecting would be of use, and what
        # connects there is its own business; the line's own watches over all of it.
        return Double(
            self._http, self._library, self._library.Request("POST", opening.url, headers=headers, content=body)
        )

    async def _close(self) -> None:
        self._ends.pop(asyncio.get_running_loop(), None)
        with suppress(Exception):
            await self._http.aclose()


class Double:
    """One request and its reply, with the manners of a `Connection`."""

    def __init__(self, http: Any, library: Any, request: Any) -> None:
        self._http = http
        self._library = library
        self._request = request
        self._response: Any = None
        self._pieces: AsyncIterator[bytes]
        self.status = 0
        self.headers: Mapping[str, str] = {}

    async def head(self) -> None:
        try:
            self._response = await self._http.handle_async_request(self._request)
        except Exception as error:
            raise self._translated(error) from error
        self.status, self.headers = self._response.status_code, self._response.headers
        self._pieces = aiter(self._response.stream)

    def ready(self) -> bool:
        return False  # nobody knows

    async def piece(self) -> bytes:
        try:
            async for piece in self._pieces:
                if piece:
                    return piece
        except Exception as error:
            raise self._translated(error) from error
        return b""

    async def aclose(self) -> None:
        if self._response is not None:
            with suppress(Exception):
                await self._response.aclose()

    def _translated(self, error: Exception) -> Exception:
        of, said = self._library, str(error)
        if isinstance(error, of.ConnectTimeout):
            return TimeoutError(said)
        if isinstance(error, of.ProxyError):
            return ProxyRefused(said)
        if isinstance(error, of.ConnectError):
            return OSError(said or type(error).__name__)
        if isinstance(error, of.DecodingError):
            return zlib.error(said)
        if isinstance(error, of.UnsupportedProtocol | of.LocalProtocolError | of.InvalidURL):
            return Unsendable(said)
        if isinstance(error, of.RemoteProtocolError) and "disconnected" not in said:
            return NotHTTP(said)
        return Lost(said) if isinstance(error, of.HTTPError) else error


def _library_of(http: Any) -> Any:
    for kind in type(http).__mro__:
        library = kind.__module__.partition(".")[0]
        if library in ("httpx2", "httpx"):
            return import_module(library)
    raise UsageError(f"http= takes a transport of httpx2, such as httpx2.MockTransport, not {type(http).__name__}")
