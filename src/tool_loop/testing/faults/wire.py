"""Everything that goes wrong between a client and a server, each by its name.

The factories make behaviours for a `FaultServer`'s schedule. `FAULTS` has them all, the refusals too,
and each works without arguments; those with `of` take another behaviour and spoil it. Knows nothing
about sockets, clients or what they should make of it.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from tool_loop.testing.server.behaviours import (
    EVENT_END,
    PIECE_BYTES,
    Behaviour,
    Response,
    answer,
    ok_chat,
    ok_json,
    ok_sse,
)
from tool_loop.testing.server.refusals import REFUSALS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FAULTS: Final[dict[str, Callable[..., Behaviour]]] = dict(REFUSALS)

_Factory = TypeVar("_Factory", bound="Callable[..., Behaviour]")
_HELLO: Final = ok_chat("Hello, world.")


def _fault(factory: _Factory) -> _Factory:
    FAULTS[factory.__name__] = factory
    return factory


# --- connections that break -----------------------------------------------------------------------


@_fault
def reset_before_headers() -> Behaviour:
    """An RST in place of an answer."""
    return answer(raw=True, end="reset", name="reset_before_headers")


@_fault
def reset_after_headers(of: Behaviour | None = None) -> Behaviour:
    """The headers of a good reply, then an RST."""
    return reset_at_byte(0, of).but("reset_after_headers", lambda response: response)


@_fault
def reset_at_byte(at: int = 20, of: Behaviour | None = None) -> Behaviour:
    """An RST after this many bytes of the body."""
    return (of or _HELLO).but("reset_at_byte", lambda r: replace(r, send=at, end="reset"))


@_fault
def close_at_byte(at: int = 20, of: Behaviour | None = None) -> Behaviour:
    """A connection that is closed, politely and too early, after this many bytes of the body."""
    return (of or _HELLO).but("close_at_byte", lambda r: replace(r, send=at, end="close"))


@_fault
def hang_before_headers() -> Behaviour:
    """The request is taken and nothing ever comes."""
    return answer(raw=True, end="hang", name="hang_before_headers")


@_fault
def hang_mid_body(at: int = 20, of: Behaviour | None = None) -> Behaviour:
    """Silence after this many bytes of the body, the connection stays open."""
    return (of or _HELLO).but("hang_mid_body", lambda r: replace(r, send=at, end="hang"))


@_fault
def drip(write: int = 7, delay: float = 0.0, of: Behaviour | None = None) -> Behaviour:
    """A good reply in writes of a few bytes with a pause before each: characters and events are cut anywhere."""
    return (of or ok_chat("Grüße aus Zürich: 你好 🎉")).but("drip", lambda r: replace(r, write=write, delay=delay))


@_fault
def close_after(of: Behaviour | None = None) -> Behaviour:
    """A good reply that promises to keep the connection, which is then closed under the client."""
    return (of or _HELLO).but("close_after", lambda r: replace(r, end="close"))


@_fault
def reset_on_reuse(of: Behaviour | None = None) -> Behaviour:
    """A good reply, and an RST in answer to the next request on the same connection (recorded, not scheduled)."""
    return (of or _HELLO).but("reset_on_reuse", lambda r: replace(r, end="reset_on_next"))


@_fault
def refused(seconds: float = 0.25) -> Behaviour:
    """No request: from the end of the one before, connections are refused for so long, or until `listen()`."""
    return Behaviour("refused", lambda _: Response(), refuse_seconds=seconds)


@_fault
def garbage() -> Behaviour:
    """Bytes that are not HTTP."""
    return answer(body=b"\x00\x01SSH-2.0-OpenSSH\r\n\xff\xfe" * 8, raw=True, end="close", name="garbage")


@_fault
def tls_alert() -> Behaviour:
    """To a TLS handshake: the alert `handshake_failure`."""
    return answer(body=b"\x15\x03\x03\x00\x02\x02\x28", raw=True, end="close", name="tls_alert")


@_fault
def tls_plain_http() -> Behaviour:
    """To a TLS handshake: an answer in plain HTTP, as a proxy on the wrong port gives."""
    body = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    return answer(body=body, raw=True, end="close", name="tls_plain_http")


# --- bodies that are wrong ------------------------------------------------------------------------


@_fault
def truncated_json(of: Behaviour | None = None) -> Behaviour:
    """A complete response whose document stops half way."""

    def cut(response: Response) -> Response:
        content = response.content()
        return replace(response, body=content[: len(content) // 2])

    return (of or _HELLO).but("truncated_json", cut)


@_fault
def truncated_sse(at_event: int = 2, of: Behaviour | None = None) -> Behaviour:
    """A stream that ends properly after this many events. What is no stream is cut in half."""

    def cut(response: Response) -> Response:
        events = _events(response)
        content = response.content()
        body = b"".join(events[:at_event]) if len(events) > 1 else content[: len(content) // 2]
        return replace(response, body=body)

    return (of or _HELLO).but("truncated_sse", cut)


@_fault
def duplicated_chunks(of: Behaviour | None = None) -> Behaviour:
    """A stream in which every event comes twice. What is no stream comes twice as a whole."""
    return (of or _HELLO).but(
        "duplicated_chunks", lambda r: replace(r, body=b"".join(event * 2 for event in _events(r)))
    )


@_fault
def invalid_utf8(of: Behaviour | None = None) -> Behaviour:
    """A reply with two bytes that are no UTF-8, at the start of its first text or arguments where it has some."""

    def spoil(response: Response) -> Response:
        content = response.content()
        first = re.search(rb'"(?:content|arguments)": "(?=[^"])', content)
        at = first.end() if first else len(content) // 2
        return replace(response, body=content[:at] + b"\xff\xfe" + content[at:])

    return (of or _HELLO).but("invalid_utf8", spoil)


@_fault
def wrong_gzip(of: Behaviour | None = None) -> Behaviour:
    """A good body under a `content-encoding: gzip` that is not true."""
    return (of or _HELLO).but("wrong_gzip", lambda r: replace(r, headers=(*r.headers, ("content-encoding", "gzip"))))


@_fault
def html() -> Behaviour:
    """A 200 with a page, as a captive portal or a wrong base URL gives."""
    page = "<!doctype html><html><head><title>Sign in</title></head><body>Please sign in.</body></html>"
    return answer(200, page, {"content-type": "text/html; charset=utf-8"}, name="html")


@_fault
def error_in_200(message: str = "The server had an error", code: int = 500) -> Behaviour:
    """A 200 that carries an `error` object, in the stream where one is asked for."""
    error = {"error": {"message": message, "type": "server_error", "code": code}}
    document, stream = ok_json(error), ok_sse([error], done=False)
    return Behaviour("error_in_200", lambda r: (stream if r.wants_stream() else document).respond(r))


# --- bodies without end ---------------------------------------------------------------------------


@_fault
def gzip_bomb(mebibytes: int = 1024) -> Behaviour:
    """A small valid gzip body that becomes this many MiB, some 64 of them in each read of a client."""

    def pieces() -> Iterator[bytes]:
        block = b"a" * 2**20
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        # After a full flush a packed block stands on its own: it is packed once and sent many times.
        packed = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
        at_once, checksum = PIECE_BYTES // len(packed), 0
        yield b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
        for sent in range(0, mebibytes, at_once):
            count = min(at_once, mebibytes - sent)
            for _ in range(count):
                checksum = zlib.crc32(block, checksum)
            yield packed * count
        yield b"\x03\x00" + struct.pack("<II", checksum, mebibytes * 2**20 % 2**32)

    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    return answer(200, pieces, headers, name="gzip_bomb", framing="chunked")


def endless(start: bytes, again: bytes) -> Callable[[], Iterator[bytes]]:
    """The body of a response that says one thing again and again."""

    def pieces() -> Iterator[bytes]:
        yield start
        while True:
            yield again

    return pieces


@_fault
def infinite_body() -> Behaviour:
    """A document that goes on and on."""
    body = endless(b'{"choices": [{"message": {"content": "', b"la " * (PIECE_BYTES // 3))
    return answer(200, body, {"content-type": "application/json"}, name="infinite_body", framing="chunked")


@_fault
def infinite_line() -> Behaviour:
    """A stream whose first line never ends."""
    body = endless(b'data: {"choices": [{"delta": {"content": "', b"la " * (PIECE_BYTES // 3))
    return answer(200, body, {"content-type": "text/event-stream"}, name="infinite_line", framing="chunked")


@_fault
def infinite_comments(delay: float = 0.0) -> Behaviour:
    """A stream of comments alone: each looks like a sign of life. With a `delay` it idles for ever."""
    body = endless(b": connected\n\n", b": ping\n\n" * (1 if delay else PIECE_BYTES // 8))
    headers = {"content-type": "text/event-stream"}
    return answer(200, body, headers, name="infinite_comments", framing="chunked", delay=delay)


@_fault
def header_bomb() -> Behaviour:
    """Headers without end."""
    body = endless(b"HTTP/1.1 200 OK\r\n", b"".join(b"x-%d: %s\r\n" % (n, b"a" * 100) for n in range(500)))
    return answer(body=body, raw=True, end="close", name="header_bomb")


@_fault
def long_header() -> Behaviour:
    """One header without end."""
    body = endless(b"HTTP/1.1 200 OK\r\nx-long: ", b"a" * PIECE_BYTES)
    return answer(body=body, raw=True, end="close", name="long_header")


@_fault
def empty_body() -> Behaviour:
    """A 200 with nothing in it."""
    return answer(200, b"", {"content-type": "application/json"}, name="empty_body")


@_fault
def no_choices() -> Behaviour:
    """A 200 whose document has an empty list of choices."""
    return ok_json({"id": "chatcmpl-1", "object": "chat.completion", "choices": []}, name="no_choices")


def _events(response: Response) -> list[bytes]:
    *whole, last = response.content().split(EVENT_END)
    return [event + EVENT_END for event in whole] + [last] * bool(last)
