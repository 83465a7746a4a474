"""A command behind Landlock: what the launcher is started with. Also a command behind nothing.

For files the same as with bubblewrap, but that /proc shows the machine's processes (not what is in
them), that its loopback is the machine's, on which it reaches its own servers only, and that protected
paths inside of the workspace are put back after the command and not kept from being written.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import syscalls, system
from .box import Box

# Isolated from the person's variables, from site-packages' start-up files and from the directory we
# are in: from there it takes this package and nothing else.
_START = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from tool_loop.sandbox.launcher import main; main()"
)  # fmt: skip

_WRITABLE = ("/dev/null", "/dev/full", "/dev/zero")


def arguments(box: Box, cwd: str, *, network: bool, status: int, members: str = "") -> list[str]:
    """The launcher, up to the command; it says on the descriptor `status` how it went.

    `members` is the file through which it joins a control group, if it is to.
    """
    confined = box.sandbox.name == "landlock"
    job: dict[str, Any] = {
        "status": status,
        "parent": os.getpid(),
        "cwd": cwd,
        "members": members,
        "confined": confined,
        "network": network,
        "limits": limits(box),
        "asks": True,
        "filter": "",
        "read": [],
        "write": [],
        "own": [box.root, box.temporary],
    }
    if confined:
        job["filter"] = (syscalls.program(landlock=True, network="shared" if network else "watched") or b"").hex()
        job["read"] = [*_readable(), *box.read, box.output]
        job["write"] = [box.root, box.temporary, *_WRITABLE, *shared_memory()]
        if network:
            job["read"] += [os.path.realpath("/etc/resolv.conf")]
    package = str(Path(__file__).parents[2])
    return [_python(), "-I", "-S", "-c", _START, package, json.dumps(job)]


def limits(box: Box) -> dict[str, int]:
    """What the kernel holds, by the names of `resource`."""
    return {
        "RLIMIT_DATA": box.limits.memory,
        "RLIMIT_FSIZE": box.limits.file,
        "RLIMIT_NOFILE": box.limits.open_files,
        "RLIMIT_CORE": 0,
        "RLIMIT_NPROC": box.limits.processes + (0 if box.sandbox.name == "bwrap" else _tasks_of_user()),
    }


def _python() -> str:
    # Not the virtual environment's, which is only a link: the one that is started without it.
    return getattr(sys, "_base_executable", "") or sys.executable


def _readable() -> Iterable[str]:
    for top in system.SYSTEM:
        yield from system.shown_parts(top, system.hidden())
    yield from ("/proc", "/sys/devices/system/cpu", *system.DEVICES[:-1])


def shared_memory() -> list[str]:
    """/dev/shm, where locks between processes are made, if nobody's shared memory is in it now.

    A named lock is not counted: there is nothing in it to be read, and commands that run side by side
    would take each other's place.
    """
    with suppress(OSError):
        for entry in list(os.scandir("/dev/shm")):
            info = entry.stat(follow_symlinks=False)
            if not entry.name.startswith("sem.") and (info.st_uid == os.geteuid() or info.st_mode & 0o006):
                return []
    return ["/dev/shm"]


def sweep_shared_memory(since: int) -> None:
    """Remove what a command left in /dev/shm, where it would take up memory: files of ours that are newer than
    `since` (nanoseconds, of the clock files have) and that no process has in use."""
    left = []
    with suppress(OSError):
        for entry in list(os.scandir("/dev/shm")):
            info = entry.stat(follow_symlinks=False)
            if info.st_uid == os.geteuid() and info.st_ctime_ns >= since and not stat.S_ISDIR(info.st_mode):
                left.append((entry.path, info.st_ino))
    used = _mapped() if left else set()
    for path, number in left:
        if number not in used:
            with suppress(OSError):
                os.unlink(path)


def _mapped() -> set[int]:
    """The numbers of the files in /dev/shm that are in the memory of a process, as far as we may know it.

    Not their names: a lock is made under another one than it gets.
    """
    found: set[int] = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/maps", encoding="utf-8", errors="replace") as maps:
                # address, permissions, offset, device, number, path
                found |= {int(line.split(maxsplit=5)[4]) for line in maps if " /dev/shm/" in line}
    return found


def _tasks_of_user() -> int:
    """How many the kernel counts already: its limit is one for all of a user's processes."""
    me, found = os.getuid(), 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == me:
                    found += len(os.listdir(f"/proc/{name}/task"))
    return found
