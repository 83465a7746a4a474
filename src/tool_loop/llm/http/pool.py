"""The connections of an event loop: opened when none is idle, used again, closed with the loop.

Knows nothing about requests, replies, or how a connection comes to be.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final, TypeAlias
from weakref import WeakKeyDictionary

from tool_loop.redaction.scrub import guard

from .loop_end import at_loop_end
from .proxies import Proxy, proxy_for

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator

    from .connection import Connection
    from .opening import Origin

    Key: TypeAlias = tuple[Origin, ssl.SSLContext | None]

# An idle connection is closed after this. Servers close theirs after 5 to 60 seconds, which is noticed.
KEEP_SECONDS: Final = 30.0


class Pool:
    """The connections of one event loop. As many are kept as were in use at once within `KEEP_SECONDS`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        # Of each kind those used last come last, and are taken first, so that the rest grow old.
        self._idle: dict[Key, dict[Connection, None]] = {}
        self._used: set[Connection] = set()
        self._proxies: dict[Origin, Proxy | None] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._end: AsyncGenerator[None] | None = None
        self._closed = False

    @property
    def usable(self) -> bool:
        """Whether it is open, and not that of a process this one was forked from."""
        return not self._closed and self._process == os.getpid()

    async def take(self, origin: Origin, tls: ssl.SSLContext | None, connect: float) -> Connection:
        """An idle connection to there, or a new one, made within `connect` seconds; give it back."""
        if self._end is None:
            guard()
            self._end = await at_loop_end(self._close)
        key = origin, tls
        idle = self._idle.get(key)
        while idle:
            connection, _ = idle.popitem()
            if connection.fresh():
                connection.on_lost = None
                break
            connection.close()
        else:
            from .dialing import dial  # a program that only makes a model need not load the parser

            async with asyncio.timeout(connect):
                connection = await dial(self._loop, origin, self.proxy(origin), tls, key)
        self._used.add(connection)
        return connection

    def give(self, connection: Connection) -> None:
        """The reply on it has been read, or is not wanted any more."""
        self._used.discard(connection)
        if self._closed or not connection.reusable():
            connection.close()
            return
        connection.idle_since = self._loop.time()
        connection.on_lost = self._lost
        self._idle.setdefault(connection.key, {})[connection] = None
        if self._sweep is None:
            self._sweep = self._loop.call_later(KEEP_SECONDS, self._close_old)

    def proxy(self, origin: Origin) -> Proxy | None:
        """The proxy in front of there, as it was named when it was first asked for."""
        if origin not in self._proxies:
            self._proxies[origin] = proxy_for(origin)
        return self._proxies[origin]

    def _lost(self, connection: Connection) -> None:
        self._idle[connection.key].pop(connection, None)

    def _close_old(self) -> None:
        self._sweep = None
        now = self._loop.time()
        for key, idle in list(self._idle.items()):
            for connection in list(idle):
                if connection.idle_since + KEEP_SECONDS <= now:
                    del idle[connection]
                    connection.close()
            if not idle:
                del self._idle[key]
        if self._idle:
            oldest = min(next(iter(idle)).idle_since for idle in self._idle.values())
            self._sweep = self._loop.call_at(oldest + KEEP_SECONDS, self._close_old)

    async def _close(self) -> None:
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        every = [*self._used, *(connection for idle in self._idle.values() for connection in idle)]
        self._idle.clear()
        for connection in every:
            connection.close()
        for _ in range(3):  # until the last of them has been let go
            await asyncio.sleep(0)


class Pools:
    """The pool of each event loop: sockets belong to the loop they were opened in."""

    def __init__(self) -> None:
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, Pool] = WeakKeyDictionary()

    def here(self) -> Pool:
        """That of the running loop."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None or not pool.usable:
            pool = self._pools[loop] = Pool()
        return pool


SHARED: Final = Pools()
