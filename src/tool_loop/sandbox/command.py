"""Runs one command in a box, from the look at what is protected to the last process of it gone.

Blocks: the caller gives it a thread. `CommandStop` ends it from another one.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tool_loop.errors import ToolError

from . import process, usage
from .box import Box
from .capture import Capture
from .guard import GuardWatch, Unguarded
from .process import Ending, Process

Why: TypeAlias = Literal["", "timed_out", "stopped", "memory", "processes", "disk"]

_ONE_ARGUMENT, _ALL_ARGUMENTS = 128 << 10, 1 << 20
_CHUNK: Final = 1 << 18
_LOOK_SECONDS: Final = 0.05
_GLANCE_SECONDS: Final = 0.01
_DRAIN_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """What became of a command.

    `code` is its exit code, `signal` what killed it, and `why` which limit of ours ended it; at most
    one of them says something. `head` and `tail` are what it wrote, standard output and error as they
    came; `left_out` bytes between them are only in `file`, a path as the next command sees it (""
    where everything is here). `undone` names what it did to protected paths. `peak_processes` and
    `peak_memory` (bytes) are as far as was looked.
    """

    code: int | None
    signal: int
    why: Why
    seconds: float
    head: bytes
    tail: bytes
    left_out: int
    file: str
    undone: tuple[str, ...]
    peak_processes: int
    peak_memory: int


class CommandStop:
    """Asks a command to end, from any thread and any number of times."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.descriptor, self._wake = os.pipe()

    def __call__(self) -> None:
        if not self._event.is_set():
            self._event.set()
            with suppress(OSError):
                os.write(self._wake, b"x")

    @property
    def wanted(self) -> bool:
        return self._event.is_set()

    def close(self) -> None:
        self._event.set()
        os.close(self.descriptor)
        os.close(self._wake)


def _nobody(_data: bytes) -> None:
    """Output that nobody watches."""


def run(
    box: Box,
    argv: Sequence[str],
    *,
    cwd: str = ".",
    seconds: float | None = None,
    network: bool = False,
    show: Callable[[bytes], None] = _nobody,
    stop: CommandStop | None = None,
) -> CommandOutcome:
    """Run a program with arguments, and wait until nothing of it is left.

    `cwd` is relative to the workspace, which the caller has made sure of. `show` gets the output as it
    comes, on this thread. Raises ToolError: `invalid_argument` for what no program can be given,
    `not_found` and `permission_denied` when there is nothing to execute, `sandbox_failed` when it would
    have run without its walls.
    """
    checked(argv)
    if not box.unchanged():
        raise ToolError("the workspace was replaced by another directory", kind="sandbox_failed")
    watch = _guarded(box)
    capture = Capture(box.limits.output_head, box.limits.output_tail, box.limits.output_kept, box.output)
    began = time.monotonic()
    limit = min(seconds or box.limits.seconds, box.limits.longest)
    try:
        where = os.path.normpath(f"{box.root}/{cwd}")
        allowed = network or "network" in box.allow
        running = process.start(box, argv, where, network=allowed, mounts=watch.mounts if watch else ())
        try:
            why, ending, meter = _attend(box, running, capture, began + limit, show, stop)
        finally:
            running.close()
    finally:
        capture.close()
        undone = _undone(watch)
    head, tail = capture.parts()
    file = f"{box.output_seen}/{capture.name}" if capture.name else ""
    return CommandOutcome(
        code=ending.code,
        signal=ending.signal,
        why=why,
        seconds=time.monotonic() - began,
        head=head,
        tail=tail,
        left_out=capture.left_out,
        file=file,
        undone=undone,
        peak_processes=meter.peak_processes,
        peak_memory=meter.peak_memory,
    )


def checked(argv: Sequence[str]) -> None:
    """Raises ToolError for what no program can be given."""
    problem, hint = "", ""
    if not argv or not argv[0].strip():
        problem, hint = "names no program", 'its first entry is the program: ["pytest", "-q"]'
    elif any("\0" in each for each in argv):
        problem = "holds a NUL character"
    else:
        try:
            sizes = [len(each.encode()) for each in argv]
        except UnicodeEncodeError:
            problem = "is not valid Unicode"
        else:
            if max(sizes) >= _ONE_ARGUMENT or sum(sizes) > _ALL_ARGUMENTS:
                problem = f"is too long: {max(sizes)} bytes in one entry, at most {_ONE_ARGUMENT - 1}"
                hint = "write it into a file, and name the file"
    if problem:
        raise ToolError(f"'argv' {problem}", kind="invalid_argument", hint=hint, field="argv")


def _guarded(box: Box) -> GuardWatch | None:
    if box.sandbox.name == "none":
        return None
    try:
        return box.guard.before(mounted=box.sandbox.name == "bwrap")
    except Unguarded as error:
        raise ToolError(str(error), kind="sandbox_failed", hint="the person who runs this has to look at it") from None


def _undone(watch: GuardWatch | None) -> tuple[str, ...]:
    try:
        return tuple(watch.after()) if watch else ()
    except Unguarded as error:
        raise ToolError(str(error), kind="sandbox_failed", hint="the person who runs this has to look at it") from None


def _attend(
    box: Box, running: Process, capture: Capture, ends: float, show: Callable[[bytes], None], stop: CommandStop | None
) -> tuple[Why, Ending, usage.Meter]:
    """Take its output until it is over, by itself or because it has to be; then see that it is gone."""
    meter = usage.Meter(box.limits, [box.root, box.home])
    over = os.pidfd_open(running.pid)
    try:
        with _ahead():
            why = _until_over(box, running, capture, ends, show, stop, over, meter)
    finally:
        # Also when `show` raised: whatever happens here, it does not go on.
        running.end()
        running.gone()
        os.close(over)
    _drain(running.output, capture, show)
    return why, Ending(None) if why else running.ending(b"".join(capture.parts())[:4096]), meter


@contextmanager
def _ahead() -> Iterator[None]:
    """Put this thread before the command, where root has to count what the kernel does not."""
    me = threading.get_native_id()
    usual = os.getpriority(os.PRIO_PROCESS, me)
    if os.geteuid() == 0:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, me, -10)
    try:
        yield
    finally:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, me, usual)


def _until_over(  # noqa: C901 - one wait, every way it ends
    box: Box,
    running: Process,
    capture: Capture,
    ends: float,
    show: Callable[[bytes], None],
    stop: CommandStop | None,
    over: int,
    meter: usage.Meter,
) -> Why:
    poll = select.poll()
    for descriptor in (running.output, over, *((stop.descriptor,) if stop else ())):
        poll.register(descriptor, select.POLLIN)
    # Root's processes are not counted by the kernel, so it is we who have to be quick.
    glance = _GLANCE_SECONDS if os.geteuid() == 0 or box.sandbox.name == "none" else _LOOK_SECONDS
    first_tasks, looked, glanced = usage.all_tasks(), 0.0, 0.0
    while True:
        now = time.monotonic()
        if stop and stop.wanted:
            return "stopped"
        if now >= ends:
            return "timed_out"
        if now - glanced >= glance:
            glanced = now
            many = usage.all_tasks() - first_tasks > box.limits.processes
            if many or now - looked >= _LOOK_SECONDS:
                looked = now
                if exceeded := meter.exceeded(usage.descendants(running.pid)):
                    return exceeded  # type: ignore[return-value]  # one of the words of `Why`
        events = dict(poll.poll(min(glance, ends - now) * 1000))
        if running.output in events:
            data = os.read(running.output, _CHUNK)
            if data:
                capture.add(data)
                show(data)
            else:
                poll.unregister(running.output)  # closed; the command itself may go on
        elif over in events:
            return ""


def _drain(output: int, capture: Capture, show: Callable[[bytes], None]) -> None:
    """What was still in the pipe. Nobody writes any more, so it ends; the bound is for what nobody foresaw."""
    poll = select.poll()
    poll.register(output, select.POLLIN)
    ends = time.monotonic() + _DRAIN_SECONDS
    while time.monotonic() < ends and poll.poll(_DRAIN_SECONDS * 1000):
        data = os.read(output, _CHUNK)
        if not data:
            return
        capture.add(data)
        show(data)
