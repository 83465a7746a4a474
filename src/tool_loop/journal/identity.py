"""Who holds a run, in a form in which another process can tell whether the holder is still alive.

A process number alone is not enough: numbers are given out again, mean something else in another
container, and a killed process keeps its own until its parent has looked. So a holder also says
where its number counts and when it started. Knows nothing about leases or databases.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

from tool_loop.records import dataclass

PROC = Path("/proc")

_SEPARATOR = "|"


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process, or one journal object in it (`owner`). `place` is where `pid` counts."""

    pid: int
    host: str
    place: str
    born: str
    owner: str

    @classmethod
    def here(cls) -> ProcessIdentity:
        """The running process, with a new `owner`."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity:
        """A process of this machine."""
        return cls(pid, socket.gethostname(), _place(), _born(pid), os.urandom(8).hex())

    @classmethod
    def parsed(cls, text: str) -> ProcessIdentity | None:
        """The holder that `str` wrote; None when it is not one."""
        name, *rest = text.split(_SEPARATOR)
        pid, at, host = name.partition("@")
        if len(rest) != 3 or not at or not pid.isdecimal():
            return None
        return cls(int(pid), host, *rest)

    @property
    def name(self) -> str:
        """As a person reads it: process and machine."""
        return f"{self.pid}@{self.host}"

    def __str__(self) -> str:
        return _SEPARATOR.join((self.name, self.place, self.born, self.owner))

    def gone(self) -> bool:
        """Whether this process has certainly ended. False when that cannot be known from here."""
        if os.name != "posix" or self.host != socket.gethostname() or self.place != _place():
            return False  # on Windows, signal 0 is not a question but Ctrl-C
        try:
            with suppress(PermissionError):  # somebody else's: it exists, and may be another one by now
                os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        born = _born(self.pid)
        return bool(self.born and born) and born != self.born


def _born(pid: int, proc: Path = PROC) -> str:
    """When the process started, in ticks since the machine did; "" where the system does not say.

    A process that was killed and not yet waited for still has its number and runs nothing any more:
    "dead" is never equal to a time.
    """
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    # The name of the program comes second and may hold anything, brackets included.
    fields = text.rpartition(")")[2].split()
    return "dead" if fields[0] in "ZX" else fields[19]


def _place(proc: Path = PROC) -> str:
    """The boot and the namespace in which process numbers count; "" where the system does not say."""
    try:
        boot = (proc / "sys" / "kernel" / "random" / "boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {(proc / 'self' / 'ns' / 'pid').readlink()}"
    except OSError:
        return ""
