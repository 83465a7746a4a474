"""The head of a request: where it goes and what goes with it, made once for all requests to one address."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit

from .troubles import Unsendable

if TYPE_CHECKING:
    from collections.abc import Mapping


class Origin(NamedTuple):
    """Where a request goes."""

    scheme: str
    host: str
    port: int


class Opening:
    """Shows none of what it holds, for the key is in there. Raises `Unsendable`."""

    __slots__ = ("_fields", "_target", "chunked", "fields", "given", "host", "origin", "url")

    def __init__(self, url: str, given: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        self.url = url
        self.given = given
        self.host = host_of(url)
        self.origin = origin_of(parts)
        target = parts.path or "/"
        self._target = quote(f"{target}?{parts.query}" if parts.query else target, safe=_SAFE)
        own = {name.lower() for name in given}
        self.chunked = "transfer-encoding" in own
        fields = {} if "host" in own else {"Host": _host_field(self.origin, parts)}
        fields |= given
        if credentials := basic(parts):
            fields = {name: value for name, value in fields.items() if name.lower() != "authorization"}
            fields["Authorization"] = credentials
        for name, value in fields.items():
            if not name or not _TOKEN.issuperset(name) or not _fits(value):
                raise Unsendable(f"the header {name!r} cannot be sent")
        self.fields = fields
        self._fields = "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode("latin-1")

    def head(self, size: int, key: str, *, forwarded: bool = False, authorization: str = "") -> bytes:
        """The bytes before the body. `forwarded` is how a proxy is asked, `authorization` who asks it."""
        where = f"http://{self.host}{self._target}" if forwarded else self._target
        more = "" if self.chunked else f"Content-Length: {size}\r\n"
        if key:
            if not _fits(key):
                raise Unsendable("the idempotency key cannot be sent")
            more += f"idempotency-key: {key}\r\n"
        if authorization:
            more += f"Proxy-Authorization: {authorization}\r\n"
        return b"POST %b HTTP/1.1\r\n%b%b\r\n" % (where.encode("latin-1"), self._fields, more.encode("latin-1"))

    def body(self, body: bytes) -> bytes:
        """The body as it is framed: whole, or as one chunk where the caller's headers say so."""
        if not self.chunked:
            return body
        return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"


# RFC 9110 (5.1, 5.5) and RFC 3986; what is neither is percent-encoded as a browser would.
_TOKEN: Final = frozenset("!#$%&'*+.^_`|~0123456789-ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_CONTROLS: Final = frozenset(map(chr, (*range(9), *range(10, 32), 127)))
_SAFE: Final = "/:@!$&'()*+,;=?%~-._[]"


def _fits(value: str) -> bool:
    """Whether a header can hold it: Latin-1, and no control character that would end the line."""
    return _CONTROLS.isdisjoint(value) and max(value, default="") <= "\xff"


def host_of(url: str) -> str:
    """Host and port, for messages: no user, no password, no path."""
    return urlsplit(url).netloc.rpartition("@")[2] or url


def origin_of(parts: SplitResult) -> Origin:
    """Raises `Unsendable` for what is no http:// or https:// address."""
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = parts.hostname or ""
        host = host if host.isascii() else host.encode("idna").decode()
    except ValueError as error:  # of a port or of a name; UnicodeError is one
        raise Unsendable(str(error)) from error
    if parts.scheme not in ("http", "https") or not host:
        raise Unsendable("it is no http:// or https:// address")
    return Origin(parts.scheme, host, port)


def _host_field(origin: Origin, parts: SplitResult) -> str:
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    return host if parts.port is None else f"{host}:{origin.port}"


def basic(parts: SplitResult) -> str:
    """The header value for the name and password in an address; "" where it has none."""
    if parts.username is None and parts.password is None:
        return ""
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return f"Basic {b64encode(pair.encode()).decode()}"
