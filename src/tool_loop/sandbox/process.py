"""One command in a box as a process of this machine: started, limited, ended, and how it ended.

Two of them: behind bubblewrap, and under the launcher (Landlock, or nothing). Both leave no process when
`gone` has returned. Knows nothing about time, output or protected paths.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from tool_loop.errors import ToolError

from . import birthplace, bwrap, cgroup, landlock, syscalls, system
from .box import Box

_SET_UP_SECONDS: Final = 15.0
_GONE_SECONDS: Final = 3.0
_TICK: Final = 10_000_000  # nanoseconds; the clock of files may be so late

# What the gate (a shell) says, and as the only thing, when there is no such program.
_NOT_STARTED: Final = re.compile(rb"run: (?:line )?\d*:? ?exec: (?:line \d+: )?[^\n]*\n\Z")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a command ended: its exit code, or the signal that killed it."""

    code: int | None
    signal: int = 0


class Process(Protocol):
    """A command that runs. `pid` is the process whose end is the command's."""

    pid: int
    output: int

    def end(self) -> None:
        """Kill it and all it started. Does not wait."""
        ...

    def gone(self) -> None:
        """Wait until there is nothing left of it, killing what is."""
        ...

    def ending(self, begins: bytes) -> Ending:
        """How it ended, when it did so by itself. Raises ToolError when it was never started."""
        ...

    def close(self) -> None: ...


def start(box: Box, argv: Sequence[str], cwd: str, *, network: bool, mounts: Sequence[str]) -> Process:
    """Start a command. Raises ToolError (`sandbox_failed`) when the sandbox cannot be set up."""
    if box.sandbox.name == "bwrap":
        return _Bubblewrapped(box, argv, cwd, network=network, mounts=mounts)
    return _Launched(box, argv, cwd, network=network)


class _Bubblewrapped:
    def __init__(self, box: Box, argv: Sequence[str], cwd: str, *, network: bool, mounts: Sequence[str]) -> None:
        self._first = -1  # the first process of the namespace: with it all others are gone
        self._argv = argv
        self._group = cgroup.made(box.limits.processes)
        with ExitStack() as started, ExitStack() as failed:
            self.output, written = _pipe(failed, started)
            info, info_written = _pipe(failed, started)
            block, unblock = _pipe(started, failed)
            gate, open_gate = _pipe(started, failed)
            given = [info_written, block]
            program = syscalls.program(landlock=False, network="shared" if network else "own")
            if program:
                seccomp = os.memfd_create("filter", os.MFD_CLOEXEC)
                started.callback(os.close, seccomp)
                os.write(seccomp, program)
                os.lseek(seccomp, 0, os.SEEK_SET)
                given.append(seccomp)
            full = bwrap.arguments(box, cwd, network=network, mounts=mounts, seccomp=seccomp if program else None)
            full += ["--info-fd", str(info_written), "--block-fd", str(block), "--", *bwrap.GATE, *argv]
            start = partial(_popen, full, stdin=gate, stdout=written, env=box.environment(), pass_fds=given)
            self._process = birthplace.started(start, system.DEVICES)
            self.pid = self._process.pid
            started.close()  # theirs: the pipes end when they do
            self._let_go(box, info, unblock, open_gate)
            failed.pop_all()
            for descriptor in (info, unblock, open_gate):
                os.close(descriptor)

    def _let_go(self, box: Box, info: int, unblock: int, open_gate: int) -> None:
        """Limit what is to come, and let it begin."""
        try:
            child = _child(info)
            self._first = os.pidfd_open(child)
            if self._group:
                self._group.add(child)
            for name, value in landlock.limits(box).items():
                resource.prlimit(child, getattr(resource, name), (value, value))
            os.write(unblock, b"x")
            os.write(open_gate, b"go\n")
        except (OSError, ValueError) as error:
            self.end()
            self.gone()
            if self._first >= 0:
                os.close(self._first)
            said = os.read(self.output, 2000).decode("utf-8", "replace").strip() or str(error)
            raise ToolError(f"the sandbox could not be set up: {said}", kind="sandbox_failed") from None

    def end(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        if self._first >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)

    def gone(self) -> None:
        if self._first >= 0:
            poll = select.poll()
            poll.register(self._first, select.POLLIN)
            poll.poll(_GONE_SECONDS * 1000)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GONE_SECONDS)
        if self._group:
            self._group.close()

    def ending(self, begins: bytes) -> Ending:
        code = self._process.returncode
        if code in (126, 127) and _NOT_STARTED.match(begins):
            raise _not_started(errno.ENOENT if code == 127 else errno.EACCES, self._argv[0])
        # 128 + n is how bubblewrap, like a shell, reports a signal; a command may also exit so.
        return Ending(None, code - 128) if 128 < code < 128 + signal.NSIG else Ending(code)

    def close(self) -> None:
        os.close(self.output)
        if self._first >= 0:
            os.close(self._first)


class _Launched:
    def __init__(self, box: Box, argv: Sequence[str], cwd: str, *, network: bool) -> None:
        self._argv = argv
        self._group = cgroup.made(box.limits.processes)
        members = self._group.members if self._group else ""
        with ExitStack() as started, ExitStack() as failed:
            self.output, written = _pipe(failed, started)
            self._status, said = _pipe(failed, started)
            self._swept_since = time.time_ns() if box.sandbox.name == "landlock" and landlock.shared_memory() else 0
            full = [*landlock.arguments(box, cwd, network=network, status=said, members=members), *argv]
            self._process = _popen(
                full, stdin=subprocess.DEVNULL, stdout=written, env=box.environment(), pass_fds=[said]
            )
            self.pid = self._process.pid
            started.close()
            failed.pop_all()

    def end(self) -> None:
        # It ends all that it watches over, and only it can: they are its children, not ours.
        with suppress(ProcessLookupError):
            self._process.terminate()

    def gone(self) -> None:
        try:
            self._process.wait(_GONE_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        if self._group:
            self._group.close()
        if self._swept_since:
            landlock.sweep_shared_memory(self._swept_since - _TICK)

    def ending(self, begins: bytes) -> Ending:
        os.set_blocking(self._status, False)
        said: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            said = json.loads(os.read(self._status, 65536).partition(b"\n")[0])
        if "error" in said:
            raise _not_started(said["error"][0], self._argv[0], said["error"][1])
        if "code" not in said:
            what = begins.decode("utf-8", "replace").strip()[:500] or "its launcher ended without a word"
            raise ToolError(f"the sandbox could not be set up: {what}", kind="sandbox_failed")
        code = said["code"]
        return Ending(None, -code) if code < 0 else Ending(code)

    def close(self) -> None:
        os.close(self.output)
        os.close(self._status)


def _popen(argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603
            argv, stderr=options["stdout"], cwd="/", start_new_session=True, close_fds=True, **options
        )
    except OSError as error:
        raise ToolError(f"the sandbox could not be started: {error}", kind="sandbox_failed") from None


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """A pipe whose ends are closed with these two."""
    read, write = os.pipe()
    reader.callback(os.close, read)
    writer.callback(os.close, write)
    return read, write


def _child(info: int) -> int:
    """The first process inside, once bubblewrap has made it. Raises OSError when it fails before that."""
    poll, said = select.poll(), b""
    poll.register(info, select.POLLIN)
    while b"}" not in said:
        if not poll.poll(_SET_UP_SECONDS * 1000):
            raise TimeoutError(f"bubblewrap did not begin within {_SET_UP_SECONDS:g} s")
        if not (more := os.read(info, 4096)):
            raise OSError(errno.EPIPE, "bubblewrap ended before it began")
        said += more
    return int(json.loads(said)["child-pid"])


def _not_started(number: int, program: str, what: str = "") -> ToolError:
    from tool_loop.runtime.text import shown

    name = shown(program)[:200]
    if number == errno.ENOENT:
        hint = "programs outside of the system's directories are hidden; a file of the workspace is run as ./name"
        return ToolError(f"there is no program {name!r} in the sandbox", kind="not_found", hint=hint, field="argv")
    if number in (errno.EACCES, errno.ENOEXEC, errno.ENOTDIR, errno.EISDIR):
        hint = 'give its interpreter, as in ["python", "script.py"], or make it executable'
        return ToolError(f"{name!r} cannot be executed", kind="permission_denied", hint=hint, field="argv")
    return ToolError(f"{name!r} could not be started: {what}", kind="sandbox_failed", field="argv")
