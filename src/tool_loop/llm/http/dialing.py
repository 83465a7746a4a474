"""How a connection comes to be: a name becomes addresses, the first that answers is taken, TLS and proxies on the way.

Sockets are asyncio's, the race of addresses is `aiohappyeyeballs`', TLS is Python's, SOCKS
is `python-socks`'. Only the tunnel through an HTTP proxy is asked for here, which is one request.

Raises `OSError`, `TimeoutError`, `ProxyAbsent` and `ProxyRefused`, and `ConfigurationError` for a proxy that
cannot be used.
"""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tool_loop.runtime.threads import run_in_thread

from .connection import Connection
from .proxies import Proxy, unusable
from .troubles import ProxyAbsent, ProxyRefused, Trouble
from .trust import trusted

if TYPE_CHECKING:
    import asyncio
    import ssl

    from .opening import Origin

# How long one address of a host may be silent before the next one is tried beside it (RFC 8305).
STAGGER_SECONDS: Final = 0.25


async def dial(
    loop: asyncio.AbstractEventLoop, origin: Origin, proxy: Proxy | None, tls: ssl.SSLContext | None, key: Any
) -> Connection:
    """A connection on which a request to there can be sent, TLS and all. `tls` says whom to trust."""
    if proxy is None:
        context = None if origin.scheme == "http" else tls or trusted()
        return await _connected(loop, origin, context, key)
    if proxy.origin.scheme.startswith("socks"):
        context = None if origin.scheme == "http" else tls or trusted()
        return await _made(loop, key, {"sock": await _through_socks(origin, proxy)}, context, origin.host)
    context = None if proxy.origin.scheme == "http" else trusted()
    try:
        to_proxy = await _connected(loop, proxy.origin, context, key)
    except OSError as error:
        raise ProxyAbsent(f"{proxy.origin.host}:{proxy.origin.port}: {error}") from error
    if proxy.forwards:
        return to_proxy
    try:
        return await _tunnel(loop, to_proxy, origin, proxy, tls or trusted())
    except BaseException:
        to_proxy.close()
        raise


async def _connected(
    loop: asyncio.AbstractEventLoop, origin: Origin, context: ssl.SSLContext | None, key: Any
) -> Connection:
    where: dict[str, Any] = {"host": origin.host, "port": origin.port}
    if not _literal(origin.host):
        # On a thread that nobody joins: the loop's own look-up keeps the process from ending while it hangs.
        look_up = partial(socket.getaddrinfo, origin.host, origin.port, type=socket.SOCK_STREAM)
        where = {"sock": await _first(await run_in_thread(look_up))}
    return await _made(loop, key, where, context, origin.host)


async def _made(
    loop: asyncio.AbstractEventLoop, key: Any, where: dict[str, Any], context: ssl.SSLContext | None, host: str
) -> Connection:
    if context is not None:
        where |= {"ssl": context, "server_hostname": host}
    try:
        return (await loop.create_connection(lambda: Connection(loop, key), **where))[1]
    except BaseException:
        if "sock" in where:
            where["sock"].close()
        raise


def _literal(host: str) -> bool:
    """An address: nothing to look up, nothing to race."""
    return ":" in host or host.rpartition(".")[2].isdigit()


async def _first(found: Any) -> socket.socket:
    from aiohappyeyeballs import start_connection

    try:
        return await start_connection(found, happy_eyeballs_delay=STAGGER_SECONDS, interleave=1)
    except RuntimeError as error:  # uvloop's word for some refusals
        raise OSError(str(error)) from error


async def _tunnel(
    loop: asyncio.AbstractEventLoop, to_proxy: Connection, origin: Origin, proxy: Proxy, context: ssl.SSLContext
) -> Connection:
    at = f"[{origin.host}]:{origin.port}" if ":" in origin.host else f"{origin.host}:{origin.port}"
    who = f"Proxy-Authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
    to_proxy.send(f"CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n{who}\r\n".encode("latin-1"), b"")
    try:
        await to_proxy.head()
    except Trouble as trouble:
        raise ProxyRefused(str(trouble) or "it closed the connection") from trouble
    if to_proxy.status // 100 != 2:
        asks = " (it wants a name and a password)" if to_proxy.status == 407 else ""
        raise ProxyRefused(f"it answered with status {to_proxy.status}{asks}")
    through = Connection(loop, to_proxy.key)
    secured = await loop.start_tls(to_proxy.transport, through, context, server_hostname=origin.host)
    if secured is None:  # lost in the very moment at which it was ready
        raise ConnectionResetError("the connection was closed")
    through.take_over(secured)
    return through


async def _through_socks(origin: Origin, proxy: Proxy) -> socket.socket:
    try:
        from python_socks import ProxyError
        from python_socks.async_.asyncio import Proxy as Socks
    except ImportError as error:
        raise unusable(f"{error}. SOCKS needs a package more: pip install 'tool-loop[socks]'") from error
    # socks5h:// says that the proxy looks up names; here it always does, as it alone may know them.
    try:
        way = Socks.from_url(proxy.url.replace("socks5h://", "socks5://", 1), rdns=True)
    except ValueError as error:
        raise unusable(str(error)) from error
    try:
        return await way.connect(origin.host, origin.port)
    except ProxyError as error:
        raise ProxyRefused(str(error)) from error
    except OSError as error:
        raise ProxyAbsent(str(error)) from error
