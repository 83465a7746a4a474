"""Which proxy stands in front of a host, by the environment or the system's settings."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from tool_loop.errors import ConfigurationError
from tool_loop.redaction.secret import printable

from .opening import Origin, basic

if TYPE_CHECKING:
    from collections.abc import Mapping


class Proxy(NamedTuple):
    """A way to a host. It `forwards` plain requests whole; for all else a tunnel is asked for."""

    url: str
    origin: Origin  # its scheme is http, https or socks…
    authorization: str
    forwards: bool


def proxy_for(origin: Origin, environ: Mapping[str, str] = os.environ) -> Proxy | None:
    """None: go there directly. Raises `ConfigurationError` for a proxy that cannot be understood."""
    named = _named(origin, environ)
    if not named:
        return None
    url = named if "://" in named else f"http://{named}"
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 1080)
        if not parts.hostname:
            raise ValueError(f"{printable(url, 100)} has no host")  # noqa: TRY301 - one place says what it means
    except ValueError as error:
        raise unusable(str(error)) from error
    kind = parts.scheme.lower()
    if kind not in ("http", "https", "socks4", "socks5", "socks5h"):
        raise unusable(f"{kind}:// is no kind of proxy")
    forwards = origin.scheme == "http" and kind in ("http", "https")
    return Proxy(url, Origin(kind, parts.hostname, port), basic(parts), forwards)


def unusable(why: str) -> ConfigurationError:
    return ConfigurationError(f"the proxy in the environment cannot be used: {printable(why, 200)}")


def _named(origin: Origin, environ: Mapping[str, str]) -> str:
    def variable(name: str) -> str:
        return (environ.get(f"{name}_proxy") or environ.get(f"{name.upper()}_PROXY") or "").strip()

    # A CGI server sets HTTP_PROXY from a header of its client's, `Proxy:`.
    plain = "" if "REQUEST_METHOD" in environ and not environ.get("http_proxy") else variable("http")
    named = (plain if origin.scheme == "http" else variable("https")) or variable("all")
    if named:
        return "" if _excepted(origin, variable("no")) else named
    if sys.platform in ("win32", "darwin") and not any(map(variable, ("http", "https", "all"))):
        from urllib.request import getproxies, proxy_bypass  # 18 ms to load, and elsewhere nothing to find

        found = getproxies()
        named = found.get(origin.scheme) or found.get("all") or ""
        return "" if not named or proxy_bypass(origin.host) else named
    return ""


def _excepted(origin: Origin, exceptions: str) -> bool:
    return any(_matches(entry, origin) for entry in exceptions.lower().replace(",", " ").split())


def _matches(entry: str, origin: Origin) -> bool:
    """As curl has it: a name stands for itself and all below it; also *, a port, an address, a network."""
    scheme, _, entry = entry.rpartition("://")
    if scheme not in ("", "all", origin.scheme):
        return False
    if entry == "*":
        return True
    host = origin.host.lower().rstrip(".")
    if "/" in entry or ":" in host:
        return _in_network(entry, host)
    name, _, port = entry.partition(":")
    if port and port != str(origin.port):
        return False
    name = name.removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _in_network(entry: str, host: str) -> bool:
    from ipaddress import ip_address, ip_network

    try:
        return ip_address(host) in ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        return False
