"""One request to a model's server and what comes of it: what the three dialects have in common.

A dialect builds the bytes of a request and brings an `Assembler` for the reply; both are pure. Here
the bytes are sent, a refusal becomes an error, and the body is handed to the assembler as one
document or event by event, whichever the server chose to send.

Knows nothing about any dialect's fields.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from urllib.parse import urlsplit

from tool_loop.errors import ConfigurationError, ProviderError
from tool_loop.redaction.secret import SealedHeaders, Secret, printable

from .http.sse import EventTooLarge, SSEEvent, SSEReader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tool_loop.events import ModelReplied
    from tool_loop.ports import Emit

    from .errors.failures import ProviderErrors
    from .http.transport import HttpExchange, Transport

Json: TypeAlias = Any  # whatever json.loads gave; an assembler turns it into our own types

# Once the reply is complete but for its last marker, nothing of worth is to come but the count of
# tokens, which follows at once. A server that then neither speaks nor closes is not waited for.
AFTERTHOUGHT_SECONDS: Final = 2.0


class Assembler(Protocol):
    """Puts one reply together. Raises `ProviderError` (made by `ProviderErrors`) for what is none."""

    def event(self, event: SSEEvent, emit: Emit) -> bool:
        """Take one event of a stream. True: it was the dialect's last one, nothing follows."""
        ...

    def document(self, body: Json) -> None:
        """Take a whole reply, parsed."""
        ...

    def complete(self) -> bool:
        """Whether the reply is whole should the stream end here: a finish reason came, or the last event."""
        ...

    def reply(self) -> ModelReplied:
        """The finished reply. Called once, after `document`, or after a stream that is `complete`."""
        ...


class Endpoint:
    """A base URL, the key that belongs to it, and the way to it.

    `headers` go with every request; the key is in them already, in the dialect's form. The key is
    sent to this origin and to no other, because URLs are only ever built here from `base_url`.
    """

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str],
        *,
        failures: ProviderErrors,
        transport: Transport,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.base_url = checked_url(base_url, failures.url_name)
        self._headers = SealedHeaders({**headers, "content-type": "application/json"})
        self.failures = failures
        self._transport = transport
        self._now = now

    def url(self, path: str) -> str:
        """The address of a path: before the query, where the base has one (Azure's api-version does)."""
        base, mark, query = self.base_url.partition("?")
        # People paste the whole address of the chat completions as often as its base.
        return f"{base.rstrip('/').removesuffix(path)}{path}{mark}{query}"

    async def ask(
        self,
        path: str,
        body: bytes,
        assembler: Assembler,
        emit: Emit,
        *,
        key: str = "",
        deadline: float | None = None,
    ) -> ModelReplied:
        """Send one request and read one complete reply; anything less is a `ProviderError`."""
        posted = self._transport.post(self.url(path), self._headers, body, key=_header_value(key), deadline=deadline)
        del body  # the copy that was sent is not kept while the model thinks
        async with posted as exchange:
            if exchange.status != 200:
                raise self.failures.refused(exchange.status, exchange.headers, await _start_of(exchange), self._now())
            try:
                await self._read(exchange, assembler, emit)
                return assembler.reply()
            except ProviderError as error:
                error.status = error.status or 200
                raise
            except RecursionError as error:
                raise self.failures.protocol("JSON that is nested too deep") from error

    async def _read(self, exchange: HttpExchange, assembler: Assembler, emit: Emit) -> None:
        start = b""
        # Blank lines may come first, as a sign of life; what follows them tells which form this is.
        while len(start) < _ENOUGH and (piece := await exchange.chunk()):
            start = start + piece if start else piece.lstrip(_BLANK)
        if _is_stream(start, exchange.headers.get("content-type", "")):
            await self._read_stream(exchange, start, assembler, emit)
        else:
            assembler.document(self._parsed(await exchange.rest(start)))

    async def _read_stream(self, exchange: HttpExchange, chunk: bytes, assembler: Assembler, emit: Emit) -> None:
        reader = SSEReader()
        try:
            while chunk:
                for event in reader.feed(chunk):
                    if assembler.event(event, emit):
                        await exchange.drain()
                        return
                chunk = await self._next(exchange, assembler)
            self._read_end(reader, assembler, emit)
        except EventTooLarge as error:
            raise self.failures.protocol(str(error)) from error
        if not assembler.complete():
            raise self._cut(reader)

    def _read_end(self, reader: SSEReader, assembler: Assembler, emit: Emit) -> None:
        whole = assembler.complete()
        try:
            for event in reader.close():
                if assembler.event(event, emit):
                    return
        except ProviderError:
            # Half of the count of tokens, after an answer that is here and paid for.
            if not whole:
                raise

    async def _next(self, exchange: HttpExchange, assembler: Assembler) -> bytes:
        if not assembler.complete():
            return await exchange.chunk()
        try:
            return await exchange.chunk(patience=AFTERTHOUGHT_SECONDS)
        except ProviderError:
            # The answer is here and paid for. What broke was the wait for the count of tokens.
            return b""

    def _cut(self, reader: SSEReader) -> ProviderError:
        stray = reader.stray.decode("utf-8", "replace").strip()
        body = parse(stray)
        if isinstance(body, dict) and ("error" in body or "detail" in body):
            return self.failures.inside(body)
        return self.failures.protocol("a stream that ended before the reply was complete", stray)

    def _parsed(self, body: bytes) -> Json:
        found = parse(body)
        if found is None:
            text = body[:4096].decode("utf-8", "replace").strip()
            what = "a web page" if text.startswith("<") else "something that is not JSON" if text else "nothing"
            raise self.failures.protocol(what, text)
        return found


# Bytes of a body that tell a document from a stream, whatever the content-type claims.
_ENOUGH: Final = 6
_BLANK: Final = b" \t\r\n\xef\xbb\xbf"


def _is_stream(start: bytes, content_type: str) -> bool:
    """Whether this is a stream of events. Its first byte knows better than its content-type."""
    if start[:1] in (b"{", b"[", b"<"):
        return False
    if start.startswith(_FIELDS):
        return True
    return "event-stream" in content_type.lower()


_FIELDS: Final = (b":", b"data", b"event", b"id:", b"retry:")


def _header_value(key: str) -> str:
    """The key as a header takes it: a run's name may be in any language, and a digest is as good."""
    if key.isascii() and key.isprintable():
        return key
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


async def _start_of(exchange: HttpExchange) -> bytes:
    """The body of a refusal, as much of it as is worth reading; what came before it broke off will do."""
    body = b""
    try:
        while len(body) < 256 * 1024 and (piece := await exchange.chunk(patience=10.0)):
            body += piece
    except ProviderError:
        pass
    return body


def parse(text: bytes | str) -> Json:
    """The JSON value, or None where there is none: not UTF-8, not JSON, nested too deep."""
    try:
        if isinstance(text, bytes):
            text = text.decode()
        if text[:1] in ("{", "["):
            # `decode` looks for blanks around the value with two patterns, which is most of its time.
            value, end = _JSON.raw_decode(text)
            if end == len(text):
                return value
        return _JSON.decode(text)
    except (ValueError, RecursionError):
        return None


# A raw line feed or tab inside a string is against the standard, and harmless in a reply.
_JSON: Final = json.JSONDecoder(strict=False)


def checked_url(base_url: str, name: str) -> str:
    """The URL without its trailing slash. Raises `ConfigurationError` for what is no http(s) URL."""
    url = base_url.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good or any(ord(letter) <= 0x20 for letter in url):
        text = f"{name} is not a URL: {printable(base_url, 100)!r}. It looks like https://api.openai.com/v1"
        raise ConfigurationError(text)
    return url


def origin_of(url: str) -> str:
    """Scheme, host and port: what a key is bound to."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}".lower()


def host_of(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2].lower()


def checked_key(key: str, name: str) -> Secret:
    """The key, fit for a header. Raises `ConfigurationError` that does not show it."""
    key = key.strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigurationError(f"the key in {name} holds a character that no key has; was it pasted whole?")
    return Secret(key)
