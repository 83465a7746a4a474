"""Runs a program until its deadline: in its own session, with nothing of ours, and gone afterwards.

Knows nothing about what the program does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

from tool_loop.records import dataclass
from tool_loop.runtime.grace import REAP_SECONDS

# Heap of a child. ripgrep reserves 16 bytes for each match in a line and the whole of a line it has
# to look at: one line of 1 GB took it to 17 GB. Within this it is refused the memory and ends.
_HEAP_BYTES = 256 << 20
_STDERR_BYTES = 16_384
_START_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ChildOutcome:
    """What a child wrote and how it ended. `full`: killed because it wrote too much; `late`: at its deadline."""

    code: int
    out: bytes
    err: str
    full: bool = False
    late: bool = False


async def run(
    argv: Sequence[str], *, cwd: str, seconds: float, most: int, descriptors: Sequence[int] = ()
) -> ChildOutcome:
    """Run a program and return what became of it. Raises OSError when it cannot be started.

    At most `most` bytes of output are kept. The child is gone when this returns, raises or is
    cancelled; it gets an empty environment and none of our descriptors but `descriptors`.
    """
    loop = asyncio.get_running_loop()
    start = loop.subprocess_exec(
        lambda: _Capture(most),
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env=_environment(argv[0]),
        start_new_session=True,
        pass_fds=descriptors,
    )
    transport, capture, cancelled = await _started(loop.create_task(start), _START_SECONDS)
    try:
        if cancelled:
            raise asyncio.CancelledError
        _limit_heap(transport.get_pid())
        done, _ = await asyncio.wait((capture.done,), timeout=seconds)
    finally:
        await _end(transport, capture)
    code = transport.get_returncode()
    err = capture.err.decode("utf-8", "replace")
    return ChildOutcome(-1 if code is None else code, bytes(capture.out), err, capture.full, late=not done)


class _Capture(asyncio.SubprocessProtocol):
    """Keeps a bounded part of what a child writes. `done` when it ended or wrote too much, `gone` when it ended."""

    def __init__(self, most: int) -> None:
        loop = asyncio.get_running_loop()
        self.out, self.err = bytearray(), bytearray()
        self.done: asyncio.Future[None] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        self.full = False
        self._most = most

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.err += data[: _STDERR_BYTES - len(self.err)]
            return
        room = self._most - len(self.out)
        self.out += data[:room]
        if len(data) > room and not self.done.done():
            self.full = True
            self.done.set_result(None)

    def connection_lost(self, _error: Exception | None) -> None:
        for future in (self.done, self.gone):
            if not future.done():
                future.set_result(None)


_Child: TypeAlias = tuple[asyncio.SubprocessTransport, _Capture]


async def _started(
    starting: asyncio.Task[_Child], seconds: float
) -> tuple[asyncio.SubprocessTransport, _Capture, bool]:
    """The child, and whether a cancel came while it was started.

    A cancel waits until the child is ours: asyncio would kill the child alone, not what it started.
    """
    cancelled = await _settled(starting, seconds)
    if starting.cancel():
        raise TimeoutError(f"the program was not started within {seconds:g} s")
    if cancelled and starting.exception():
        raise asyncio.CancelledError
    return (*starting.result(), cancelled)


async def _end(transport: asyncio.SubprocessTransport, capture: _Capture) -> None:
    """Kill the child and whatever it started, and wait until it is gone; a second cancel waits too."""
    if transport.get_returncode() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(transport.get_pid(), signal.SIGKILL)
    transport.close()
    if await _settled(capture.gone, REAP_SECONDS):
        raise asyncio.CancelledError


async def _settled(future: asyncio.Future[Any], seconds: float) -> bool:
    """Wait for it through any number of cancels, but not for longer; whether there was one."""
    loop = asyncio.get_running_loop()
    ends, cancelled = loop.time() + seconds, False
    while not future.done() and (left := ends - loop.time()) > 0:
        try:
            await asyncio.wait((future,), timeout=left)
        except asyncio.CancelledError:
            cancelled = True
    return cancelled


def _environment(program: str) -> dict[str, str]:
    """Nothing, but for what some Pythons need to find their own library. A key in ours goes nowhere."""
    if program != sys.executable:
        return {}
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in os.environ}


def _limit_heap(pid: int) -> None:
    # Linux only; elsewhere the deadline is the bound. The child may have ended already.
    with contextlib.suppress(ImportError, AttributeError, OSError, ValueError):
        import resource

        resource.prlimit(pid, resource.RLIMIT_DATA, (_HEAP_BYTES, _HEAP_BYTES))
