"""A port of the loopback interface that stays ours while connections to it are refused.

Knows nothing about HTTP; who connects is handed on as a socket.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

HOST: Final = "127.0.0.1"


class Port:
    """Made inside of a running event loop, deaf at first: connections are refused until `listen()`."""

    def __init__(self, connected: Callable[[socket.socket], object]) -> None:
        self._connected = connected
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        # This socket never listens. Without it, somebody else could be given the port while we refuse.
        self._place = _bound(0)
        self._listener: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.number: int = self._place.getsockname()[1]

    def listen(self) -> None:
        """Accept connections from now on. Safe from any thread, and safe to call twice."""
        if threading.get_ident() == self._thread:
            self._listen()
            return
        done = threading.Event()
        self._loop.call_soon_threadsafe(self._listen)
        self._loop.call_soon_threadsafe(done.set)
        done.wait()

    def refuse(self) -> None:
        """Refuse connections until `listen()`. Those which are open stay open."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def listen_in(self, seconds: float) -> None:
        """Go on refusing for so long, unless `listen()` comes first."""
        self._timer = self._loop.call_later(seconds, self._listen)

    def close(self) -> None:
        self.refuse()
        self._place.close()

    def _listen(self) -> None:
        if self._listener is None:
            self.refuse()
            self._listener = _bound(self.number)
            self._listener.listen(128)
            self._loop.add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        # Whoever knocked may have left between the selector's word and here.
        with suppress(BlockingIOError, ConnectionError):
            sock, _ = listener.accept()
            sock.setblocking(False)
            self._connected(sock)


def _bound(port: int) -> socket.socket:
    # The protocol is named because asyncio looks at it: for 0 it leaves Nagle's algorithm on, which holds
    # small writes back, and a reset then takes with it what the client should have seen.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind((HOST, port))
    return sock
