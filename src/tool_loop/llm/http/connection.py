"""One HTTP/1.1 connection: a request goes out as bytes, its reply comes back piece by piece.

asyncio moves the bytes and llhttp, the parser of Node.js, reads them (by way of `httptools`). What is
written here is what lies between: pieces wait until they are asked for, a server that is ahead of its
reader has to wait, and whether the reply was whole and the connection is fit for another is known.

Knows nothing about addresses, time limits, pools or what is sent.
"""

from __future__ import annotations

import select
from asyncio import Protocol
from typing import TYPE_CHECKING, Any, Final, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from tool_loop.runtime.waiting import Waiter

from .troubles import Lost, NotHTTP, Trouble

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

# What a server may send ahead of the reader: one full read of asyncio's. Then it has to wait, or a
# stream that comes faster than it is parsed would fill the memory.
AHEAD_BYTES: Final = 256 * 1024

# A body above this goes out by itself: a second system call costs less than another copy.
JOINED_BYTES: Final = 64 * 1024

# Bytes in a row that belong to no body: heads, 1xx replies before the real one, sizes and trailers of
# chunks. Real heads have 1 to 4 KiB; the parser itself has no limit.
NO_BODY_BYTES: Final = 128 * 1024


class Connection(Protocol):
    """For one request at a time: `send`, then `head`, then `piece` until it is empty.

    `status` and `headers` (names in lower case, values of equal names joined) are those of the reply
    once `head` has returned.
    """

    __slots__ = (
        "_arrival", "_bodiless", "_ended", "_headed", "_held", "_keeps", "_loop", "_parser", "_paused", "_pieces",
        "_poll", "_sized", "_transport", "_trouble", "done", "headers", "idle_since", "key", "on_lost", "status",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, key: Any = None) -> None:
        self.key = key  # the pool's: what this connection is good for
        self.idle_since = 0.0
        self.on_lost: Callable[[Connection], None] | None = None
        self.status = 0
        self.headers: dict[str, str] = {}
        self.done = True  # nothing is being asked, or the reply to it is complete
        self._loop = loop
        self._transport: asyncio.Transport
        self._poll: Any = None
        self._parser = HttpResponseParser(self)
        # Some servers end the lines of a head with LF alone, which RFC 9112 (2.2) lets a client accept.
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True)
        self._pieces: list[bytes] = []
        self._held = 0
        self._arrival = Waiter(loop)
        self._trouble: Trouble | None = None
        self._ended = False  # nothing more will come
        self._headed = self._sized = self._paused = False
        self._keeps = True  # the server has not said that it will close
        self._bodiless = 0

    # --- what a request does ----------------------------------------------------------------------

    def send(self, head: bytes, body: bytes) -> None:
        """Begin a request. What the network does not take at once is asyncio's to send."""
        self.done = self._headed = self._sized = self._keeps = False
        self._bodiless = 0
        if len(body) < JOINED_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)

    async def head(self) -> None:
        """Until `status` and `headers` are there. Raises `Lost` and `NotHTTP`."""
        while not self._headed:
            await self._more()

    async def piece(self) -> bytes:
        """What has come of the body since the last time; b"" at its end. Raises `Lost` and `NotHTTP`."""
        pieces = self._pieces
        while not pieces:
            if self.done:
                return b""
            await self._more()
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._held = 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        return data

    def ready(self) -> bool:
        """Whether `piece` would return at once, or raise."""
        return bool(self._pieces) or self.done or self._ended

    async def _more(self) -> None:
        if self._ended:
            raise self._trouble or Lost
        await self._arrival

    # --- what a pool does -------------------------------------------------------------------------

    def reusable(self) -> bool:
        """Whether the reply is complete and the server will take another request."""
        return self.done and self._keeps and not self._ended and not self._transport.is_closing()

    def fresh(self) -> bool:
        """Whether an idle connection is still what it was: nothing has come on it, its end included.

        The event loop knows nothing yet of what came while the program was busy, so the system is
        asked. This is what saves a request from being sent to a server that has hung up.
        """
        if self._ended or self._transport.is_closing():
            return False
        if self._poll is None:
            self._poll = _poll_of(self._transport.get_extra_info("socket"))
        return not self._poll()

    def close(self) -> None:
        """End it, with the goodbye of TLS where that can go out at once; nobody is waited for."""
        self._ended = True
        self.on_lost = None
        if self.done and not self._transport.get_write_buffer_size():
            self._transport.close()
            self._loop.call_soon(self._transport.abort)
        else:
            self._transport.abort()

    def take_over(self, transport: asyncio.Transport) -> None:
        """Go on in TLS: the transport that `start_tls` made, which calls no `connection_made`."""
        self._transport = transport

    @property
    def transport(self) -> asyncio.Transport:
        return self._transport

    # --- what asyncio calls -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are so by their methods only

    def data_received(self, data: bytes) -> None:
        unasked, held = self.done, self._held
        if unasked:  # whatever this is, it is no reply to what will be asked next
            self._ended = True
            self._transport.abort()
            return
        try:
            self._parser.feed_data(data)  # calls the methods at the end
        except (HttpParserError, HttpParserUpgrade) as error:
            self._keeps = False
            if not self.done:  # else what is no HTTP came behind the reply, and is nobody's
                self._fail(NotHTTP(str(error) or type(error).__name__))
        if self._held == held:
            self._bodiless += len(data)
            if self._bodiless > NO_BODY_BYTES and not self.done:
                self._fail(NotHTTP(f"more than {NO_BODY_BYTES:,} bytes outside of the body"))
        elif self._held >= AHEAD_BYTES and not (self._paused or self.done):
            self._paused = True
            self._transport.pause_reading()
        self._arrival.wake()  # last, for what waits here goes on at once

    def eof_received(self) -> None:
        """The server has said its last; asyncio closes the connection on return."""
        self._end(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error)
        del self._parser  # it holds on to this object, and this to it
        if self.on_lost is not None:
            self.on_lost(self)

    def _end(self, error: Exception | None) -> None:
        if not self._ended:
            self._ended = True
            self._trouble = Lost(str(error or ""))
            # Where no length was given, the end of the connection is the end of the body.
            self.done = self.done or (self._headed and not self._sized and error is None)
        self._arrival.wake()  # last, for what waits here goes on at once

    def _fail(self, trouble: Trouble) -> None:
        self._ended = True
        self._trouble = trouble
        self._transport.abort()

    # --- what the parser calls --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.done:
            self._keeps = False  # a second reply right behind the first is nobody's
        else:
            self.headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._headed:
            return  # a trailer
        key, text, headers = name.decode("latin-1").lower(), _text(value.rstrip()), self.headers
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self.done:
            return
        self.status = status
        self._headed = True
        self._keeps = self._parser.should_keep_alive()
        self._sized = "content-length" in self.headers or "transfer-encoding" in self.headers or status in (204, 304)

    def on_body(self, body: bytes) -> None:
        if not self.done:
            self._pieces.append(body)
            self._held += len(body)
            self._bodiless = 0

    def on_message_complete(self) -> None:
        if self._headed:
            self.done = True


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _poll_of(sock: Any) -> Callable[[], object]:
    """Asks whether there is something to read on this socket."""
    if not hasattr(select, "poll"):  # Windows; elsewhere `select` has no room for descriptors above 1023
        return lambda: select.select([sock], [], [], 0)[0]
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return lambda: poll.poll(0)
