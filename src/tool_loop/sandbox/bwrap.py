"""A command behind bubblewrap: what it is started with, and what that leaves it.

The system read-only, the workspace writable but for what is protected, a private /tmp, no network but
a loopback of its own, no process but its own, no rights, and descriptors 0 to 2 only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from . import system
from .box import Box

# Starts the command, if whoever started us is still there to say so: bubblewrap itself goes on when it
# is not, and would die with a parent only from then on. Its name is what a shell calls itself in errors.
GATE = ("/bin/sh", "-c", 'IFS= read -r go && [ "$go" = go ] || exit 125; exec "$@" </dev/null', "run")

_NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")


def arguments(box: Box, cwd: str, *, network: bool, mounts: Iterable[str], seccomp: int | None) -> list[str]:
    """Everything up to the command. `mounts` are the protected paths; `seccomp` a descriptor of the filter."""
    out = [box.sandbox.program, *_NAMESPACES, "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    if not network:
        out += ["--unshare-net"]
    if seccomp is None:
        out += ["--disable-userns"]
    else:
        out += ["--seccomp", str(seccomp)]
    out += [*_system(), *_kernel(), *_devices(box)]
    if network:
        # Where it is a link into /run, which is not shown.
        target = os.path.realpath("/etc/resolv.conf")
        out += ["--ro-bind-try", target, target] if target != "/etc/resolv.conf" else []
    for path in box.read:
        out += ["--ro-bind", path, path]
    out += ["--bind", box.root, box.root, *mounts, "--remount-ro", "/", "--chdir", cwd]
    return out


def _system() -> list[str]:
    out: list[str] = []
    for path in system.SYSTEM:
        if os.path.islink(path):
            out += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            out += ["--ro-bind", path, path]
    return out + _masked(system.hidden())


def _masked(paths: Sequence[str]) -> list[str]:
    out: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            out += ["--tmpfs", path, "--remount-ro", path]
        elif os.path.lexists(path):
            out += ["--ro-bind", "/dev/null", path]
    return out


def _kernel() -> list[str]:
    # Whoever writes into the first process could tell it to outlive us.
    out = ["--proc", "/proc", "--ro-bind", "/dev/null", "/proc/1/mem"]
    directories, files = system.exposed_kernel()
    for path in directories:
        out += ["--ro-bind", path, path]
    out += _masked(files)
    # The mode of a file in here is the machine's, and root owns it.
    return [*out, "--remount-ro", "/proc"] if files else out


def _devices(box: Box) -> list[str]:
    # Their own /tmp is on the disk. What is in memory has a bound, as all of it may be used.
    return [
        *("--dev", "/dev", "--remount-ro", "/dev"),
        *("--size", str(box.limits.memory // 4), "--tmpfs", "/dev/shm"),
        *("--bind", box.temporary, "/tmp", "--symlink", "/tmp", "/var/tmp"),
        *("--ro-bind", box.output, box.output_seen),
    ]
