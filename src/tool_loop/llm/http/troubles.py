"""What can go wrong below a request, for `timer` to put into words. Connecting fails as `OSError` or `TimeoutError`."""

from __future__ import annotations


class Trouble(Exception):
    """The reply will not come, or not the rest of it."""


class Lost(Trouble):
    """The connection ended before the reply did."""


class NotHTTP(Trouble):
    """What came is no reply of HTTP/1.1."""


class ProxyAbsent(Trouble):
    """Nobody answers at the proxy's address."""


class ProxyRefused(Trouble):
    """The proxy is there and does not connect us."""


class Unsendable(Trouble):
    """The address or a header is none that can be sent."""
