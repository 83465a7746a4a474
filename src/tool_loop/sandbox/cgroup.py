"""A control group that holds root's commands to their number of processes. For root only.

The kernel does not hold root to RLIMIT_NPROC. Where the person's system lets root make a control group
(most do, most containers do not), it counts instead. Knows both versions of the interface: a file system
for each controller, and one for all.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_EMPTY_SECONDS: Final = 2.0
_NEW_SECONDS: Final = 30.0
_PREFIX: Final = "tool-loop-"


class Group:
    """A group of its own, of at most so many tasks."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def members(self) -> str:
        """The file to which a process is written that is to be in it."""
        return f"{self._path}/cgroup.procs"

    def add(self, process: int) -> None:
        Path(self.members).write_text(f"{process}\n")

    def close(self) -> None:
        """Kill who is still in it, and remove it."""
        ends = time.monotonic() + _EMPTY_SECONDS
        with suppress(OSError):
            (self._path / "cgroup.kill").write_text("1\n")
        while time.monotonic() < ends:
            try:
                self._path.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                self._kill()
                time.sleep(0.002)
            else:
                return

    def _kill(self) -> None:
        with suppress(OSError):
            for process in Path(self.members).read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)


def made(most: int) -> Group | None:
    """A new group of at most `most` tasks; None for who is not root, and where none can be made."""
    if os.geteuid() != 0:
        return None
    for above in _own():
        _sweep(above)
        path = above / f"{_PREFIX}{secrets.token_hex(6)}"
        try:
            path.mkdir()
        except OSError:
            continue
        try:
            # Not made if it is not there: without the controller this is a group that limits nothing.
            with (path / "pids.max").open("r+") as file:
                file.write(f"{most}\n")
        except OSError:
            with suppress(OSError):
                path.rmdir()
            continue
        return Group(path)
    return None


def _sweep(above: Path) -> None:
    """Remove what processes left that were killed: one with anybody in it cannot be removed, and a new one is
    left to whoever just made it."""
    with suppress(OSError):
        for path in list(above.glob(f"{_PREFIX}*")):
            with suppress(OSError):
                if time.time() - path.stat().st_ctime > _NEW_SECONDS:
                    path.rmdir()


def _own() -> Iterator[Path]:
    """The groups this process is in. One below them leaves all other limits that hold for it in force."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "pids" in controllers.split(","):
                yield Path(f"/sys/fs/cgroup/{controllers}{path}")
            elif not controllers:
                yield Path(f"/sys/fs/cgroup{path}")
