"""The time limits of one request, and what goes wrong with it, in words for a person.

Knows nothing about what is sent or received.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tool_loop.errors import ConfigurationError, ProviderError
from tool_loop.redaction.secret import printable

from .troubles import Lost, NotHTTP, ProxyAbsent, ProxyRefused, Unsendable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tool_loop.errors import ToolLoopError


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits in seconds.

    `idle` is the longest silence within a reply, the wait for its first byte included: a large model
    without streaming is silent for minutes. `total` is for a whole request of a run without deadline.
    """

    connect: float = 10.0
    idle: float = 300.0
    total: float = 1800.0


class RequestTimer:
    """The time limits of one request, and the translation of what goes wrong on it.

    One timer watches over the whole request. `expect` sets what it allows for the next wait, and only
    moves a mark: a timer for each chunk of a stream (as `asyncio.timeout` has one) took a tenth
    of all the time of a streamed reply. When the time is over the task is cancelled, and leaving
    the block tells that cancellation from others.
    """

    __slots__ = (
        "_deadline",
        "_expired",
        "_idle",
        "_limit",
        "_loop",
        "_started",
        "_task",
        "_timer",
        "_waiting",
        "began",
        "host",
    )

    def __init__(self, host: str, timeouts: Timeouts, deadline: float | None) -> None:
        self.host = host
        self.began = False
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._started = self._loop.time()
        self._deadline = self._started + timeouts.total
        if deadline is not None:
            self._deadline = min(deadline, self._deadline)
        self._idle = timeouts.idle
        self._expired = False
        self._waiting = False
        self._limit = min(self._deadline, self._started + timeouts.idle)
        self._timer: asyncio.TimerHandle | None = self._loop.call_at(self._limit, self._look)

    def expect(self, patience: float | None = None) -> None:
        """Something must come within the limit on silence, or within `patience`, and before the deadline."""
        limit = self._loop.time() + (self._idle if patience is None else patience)
        self._limit = min(limit, self._deadline)
        if self._timer is None or self._limit < self._timer.when():
            self.end()
            self._timer = self._loop.call_at(self._limit, self._look)

    def end(self) -> None:
        """Nothing is waited for any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        if self._loop.time() < self._limit:
            self._timer = self._loop.call_at(self._limit, self._look)
            return
        self._timer = None
        # Whatever the task does between two waits is not ours to interrupt.
        if self._waiting and self._task is not None:
            self._expired = True
            self._task.cancel()

    def __enter__(self) -> None:
        """Around everything that is waited for; what goes wrong in there leaves as one of our errors."""
        self._waiting = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._waiting = False
        if error is None:
            return
        if self._was_ours():
            raise self.timed_out() from error
        if isinstance(error, Exception) and (told := self.broken(error)) is not None:
            raise told from error

    def _was_ours(self) -> bool:
        """Whether a cancellation was the timer's, and nobody else wants the task to end as well."""
        if not self._expired:
            return False
        self._expired = False
        return self._task is not None and self._task.uncancel() == 0

    def too_large(self, most: int) -> ProviderError:
        text = f"{self.host} sent more than {most:,} bytes in one reply; the rest was not read"
        return ProviderError(text, kind="protocol")

    def timed_out(self) -> ProviderError:
        waited = asyncio.get_running_loop().time() - self._started
        if self._limit >= self._deadline:
            text = f"no complete reply from {self.host} within the time there was ({waited:.1f} s)"
        else:
            text = f"{self.host} sent nothing for {self._idle:g} s"
        return ProviderError(text, kind="timeout")

    def broken(self, error: Exception) -> ToolLoopError | None:
        """What an error from below means to the caller; None for one that is not of the network's making."""
        match error:
            case Lost() if self.began:
                text = f"the connection to {self.host} broke in the middle of the reply{_because(error)}"
                return ProviderError(text, kind="protocol")
            case Lost():
                text = f"{self.host} closed the connection without an answer{_because(error)}"
                return ProviderError(text, kind="connection")
            case NotHTTP():
                return ProviderError(f"{self.host} does not speak HTTP as it should: {_said(error)}", kind="protocol")
            case zlib.error():
                text = f"the reply of {self.host} is not what its content-encoding says: {_said(error)}"
                return ProviderError(text, kind="protocol")
            case Unsendable():
                hint = "Check the base URL, the key and extra headers."
                return ConfigurationError(f"cannot send a request to {self.host}: {_said(error)}. {hint}")
            case ProxyRefused():
                text = f"the proxy in front of {self.host} refused: {_said(error)}"
                return ProviderError(text, kind="connection")
            case ProxyAbsent():
                text = f"the proxy in front of {self.host} cannot be reached: {_said(error)}"
                return ProviderError(text, kind="connection")
            case TimeoutError():
                return ProviderError(f"could not connect to {self.host} in time", kind="connection")
            case OSError():
                return ProviderError(_not_connected(self.host, error), kind="connection")
            case _:
                return None


# --- words ----------------------------------------------------------------------------------------


def _because(error: BaseException) -> str:
    said = printable(str(error), 200)
    return f" ({said})" if said else ""


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
    """Why there is no connection. Of several attempts (IPv6, IPv4) the one that tells most is told."""
    causes = [cause for cause in _chain(error) if isinstance(cause, OSError)]
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate of {host} is not trusted: {cause.verify_message or _said(cause)}"
        if isinstance(cause, ssl.SSLError):
            return f"no TLS connection to {host}: {_said(cause)}. Is it an http:// server?"
        if isinstance(cause, socket.gaierror):
            return f"there is no host {host}: {_said(cause)}. Check the base URL and the network."
    if any(cause.errno == errno.ECONNREFUSED for cause in causes):
        return f"could not connect to {host} (connection refused): is the server running?"
    return f"could not connect to {host}: {_said(next((cause for cause in causes if cause.errno), error))}"
