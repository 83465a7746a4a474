"""The time limits of one request, and what the errors of the HTTP library mean to a person.

Knows nothing about what is sent or received.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tool_loop.errors import ConfigurationError, ProviderError

from .secret import printable

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits in seconds.

    `idle` is the longest silence within a reply, the wait for its first byte included: a large model
    without streaming is silent for minutes. `total` is for a whole request of a run without deadline.
    """

    connect: float = 10.0
    idle: float = 300.0
    total: float = 1800.0


class Line:
    """The time limits of one request, and the translation of what goes wrong on it."""

    __slots__ = ("_cause", "_deadline", "_idle", "_started", "began", "clock", "extensions", "host")

    def __init__(self, host: str, timeouts: Timeouts, deadline: float | None) -> None:
        loop = asyncio.get_running_loop()
        self.host = host
        self.began = False
        self._started = loop.time()
        self._deadline = self._started + timeouts.total
        if deadline is not None:
            self._deadline = min(deadline, self._deadline)
        self._idle = timeouts.idle
        # httpx2 sets a timer of its own for each read and write; ours covers them all at a tenth of
        # the cost. Only connecting keeps its own limit, so that a dead host is known early.
        self.extensions = {"timeout": {"connect": timeouts.connect, "read": None, "write": None, "pool": None}}
        self.clock = self.watch(None)

    def watch(self, patience: float | None) -> asyncio.Timeout:
        now = asyncio.get_running_loop().time()
        silent = now + (self._idle if patience is None else patience)
        self._cause: Literal["deadline", "silence"] = "deadline" if self._deadline <= silent else "silence"
        return asyncio.timeout_at(min(self._deadline, silent))

    def translated(self) -> _Translated:
        return _Translated(self)

    def too_large(self, most: int) -> ProviderError:
        text = f"{self.host} sent more than {most:,} bytes in one reply; the rest was not read"
        return ProviderError(text, kind="protocol")

    def timed_out(self) -> ProviderError:
        waited = asyncio.get_running_loop().time() - self._started
        if self._cause == "deadline":
            text = f"no complete reply from {self.host} within the time there was ({waited:.1f} s)"
        else:
            text = f"{self.host} sent nothing for {self._idle:g} s"
        return ProviderError(text, kind="timeout")

    def broken(self, error: Exception) -> Exception:
        """What the error of httpx2 means to the caller."""
        import httpx2

        if isinstance(error, TimeoutError):
            return self.timed_out()
        if isinstance(error, httpx2.ConnectTimeout):
            text = f"could not connect to {self.host} within {self.extensions['timeout']['connect']:g} s"
            return ProviderError(text, kind="connection")
        if isinstance(error, httpx2.ProxyError):
            return ProviderError(f"the proxy in front of {self.host} refused: {_said(error)}", kind="connection")
        if isinstance(error, httpx2.ConnectError):
            return ProviderError(_not_connected(self.host, error), kind="connection")
        if isinstance(error, httpx2.DecodingError):
            text = f"the reply of {self.host} is not what its content-encoding says: {_said(error)}"
            return ProviderError(text, kind="protocol")
        if isinstance(error, httpx2.UnsupportedProtocol | httpx2.InvalidURL | httpx2.LocalProtocolError):
            return ConfigurationError(
                f"cannot send a request to {self.host}: {_said(error)}. Check the base URL and the key."
            )
        if isinstance(error, httpx2.HTTPError):
            return self._lost(error)
        return error

    def _lost(self, error: Exception) -> ProviderError:
        import httpx2

        if isinstance(error, httpx2.RemoteProtocolError) and "disconnected" not in str(error) and not self.began:
            return ProviderError(f"{self.host} does not speak HTTP as it should: {_said(error)}", kind="protocol")
        if not self.began:
            return ProviderError(
                f"{self.host} closed the connection without an answer: {_said(error)}", kind="connection"
            )
        return ProviderError(
            f"the connection to {self.host} broke in the middle of the reply: {_said(error)}", kind="protocol"
        )


class _Translated:
    """Turns the exceptions of a block into ours; a class, because a generator costs five times as much."""

    __slots__ = ("_line",)

    def __init__(self, line: Line) -> None:
        self._line = line

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, ProviderError):
            ours = self._line.broken(error)
            if ours is not error:
                raise ours from error


# --- words ----------------------------------------------------------------------------------------


def _said(error: BaseException) -> str:
    return printable(str(error), 200) or type(error).__name__


def _chain(error: BaseException) -> Sequence[BaseException]:
    chain: list[BaseException] = []
    todo: list[BaseException | None] = [error]
    while todo and len(chain) < 20:
        one = todo.pop(0)
        if one is None or one in chain:
            continue
        chain.append(one)
        todo += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            todo += one.exceptions
    return chain


def _not_connected(host: str, error: Exception) -> str:
    for cause in _chain(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate of {host} is not trusted: {cause.verify_message or _said(cause)}"
        if isinstance(cause, ssl.SSLError):
            return f"no TLS connection to {host}: {_said(cause)}. Is it an http:// server?"
        if isinstance(cause, socket.gaierror):
            return f"there is no host {host}: {_said(cause)}. Check the base URL and the network."
        if isinstance(cause, OSError) and cause.errno == errno.ECONNREFUSED:
            return f"could not connect to {host} (connection refused): is the server running?"
        if isinstance(cause, OSError) and cause.errno:
            return f"could not connect to {host}: {_said(cause)}"
    return f"could not connect to {host}: {_said(error)}"
