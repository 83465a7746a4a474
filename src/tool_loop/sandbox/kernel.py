"""The system calls Python has no words for: Landlock, seccomp, capabilities, and what `prctl` sets.

Says what each does to the process that calls it, and raises OSError where the kernel refuses. Knows
nothing about commands or workspaces. Used by the launcher, so it imports nothing but ctypes.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

# Before ABI 6 (Linux 6.12) a confined process may signal any other of its user.
LANDLOCK_NEEDED: Final = 6

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_SECCOMP: Final = {"x86_64": 317, "aarch64": 277}

_PARENT_DEATH, _SECCOMP_MODE, _DROP_BOUND, _SUBREAPER, _NO_NEW_PRIVILEGES = 1, 22, 24, 36, 38
_AMBIENT, _AMBIENT_CLEAR = 47, 4
_NEW_MOUNTS: Final = 0x20000
_READ_ONLY, _REMOUNT, _BIND, _RECURSIVE, _SLAVE = 1, 1 << 5, 1 << 12, 1 << 14, 1 << 19

# LANDLOCK_ACCESS_FS_*, in the order of their bits
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK, _TRUNCATE, _IOCTL_DEVICE = 1 << 6, 1 << 11, 1 << 14, 1 << 15
_ALL: Final = (1 << 16) - 1
_READ: Final = _EXECUTE | _READ_FILE | _READ_DIR
_OF_A_FILE: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_TCP: Final = 0b11  # bind, connect
_SCOPES: Final = 0b11  # abstract sockets and signals stay inside


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def landlock_version() -> int:
    """The ABI of this kernel's Landlock, 0 where there is none."""
    try:
        return max(0, int(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)))
    except (OSError, AttributeError):
        return 0


def restrict(read: Iterable[str], write: Iterable[str], *, network: bool, alone: bool = True) -> None:
    """From here on, for this process and all it starts, only these files and what is beneath them.

    `write` may be read as well. Without `network` no TCP. `alone`: signals and abstract sockets reach no
    process outside. Nor are there new rights through setuid programs. Paths that do not exist are left
    out. Needs ABI 6.
    """
    libc = _libc()
    # struct landlock_ruleset_attr: handled_access_fs, handled_access_net, scoped
    attributes = (ctypes.c_uint64 * 3)(_ALL, 0 if network else _TCP, _SCOPES if alone else 0)
    made = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(24), 0)
    ruleset = _checked(made, "landlock_create_ruleset")
    for paths, allowed in ((read, _READ), (write, _ALL & ~(_MAKE_CHAR | _MAKE_BLOCK))):
        for path in paths:
            with suppress(FileNotFoundError, PermissionError, NotADirectoryError):
                _allow(libc, ruleset, path, allowed)
    _checked(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no_new_privs")
    _checked(libc.syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def _allow(libc: Any, ruleset: int, path: str, allowed: int) -> None:
    there = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        bits = allowed if os.path.isdir(f"/proc/self/fd/{there}") else allowed & _OF_A_FILE
        # struct landlock_path_beneath_attr, packed: allowed_access, parent_fd
        rule = bits.to_bytes(8, "little") + there.to_bytes(4, "little")
        _checked(libc.syscall(_ADD_RULE, ruleset, 1, ctypes.c_char_p(rule), 0), f"landlock_add_rule {path}")
    finally:
        os.close(there)


def drop_rights() -> None:
    """Root without what makes it root: no capability now, none to be had, none through a setuid program.

    CAP_PERFMON alone reads the environment of any process, Landlock or not.
    """
    libc = _libc()
    for right in range(64):
        libc.prctl(_DROP_BOUND, right, 0, 0, 0)  # fails for a user, and beyond the last one
    libc.prctl(_AMBIENT, _AMBIENT_CLEAR, 0, 0, 0)
    version_3 = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _checked(libc.capset(version_3, (ctypes.c_uint32 * 6)()), "capset")
    _checked(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no_new_privs")


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def filter_calls(program: bytes, *, listen: bool) -> int:
    """Install a seccomp filter. With `listen` the descriptor on which its questions arrive, else -1."""
    what = _Program(len(program) // 8, program)
    libc = _libc()
    if not listen:
        _checked(libc.prctl(_SECCOMP_MODE, 2, ctypes.byref(what), 0, 0), "seccomp")
        return -1
    # SECCOMP_FILTER_FLAG_NEW_LISTENER, and WAIT_KILLABLE_RECV: a signal must not ask a question twice.
    number = _SECCOMP[platform.machine()]
    return _checked(libc.syscall(number, 1, 1 << 3 | 1 << 5, ctypes.byref(what)), "seccomp")


def own_mounts() -> None:
    """Give the calling thread a mount namespace of its own: it sees what is mounted later, and nobody sees its own."""
    libc = _libc()
    _checked(libc.unshare(_NEW_MOUNTS), "unshare")
    _checked(libc.mount(b"none", b"/", None, _RECURSIVE | _SLAVE, None), "mount")


def mount_read_only(path: str) -> None:
    """Mount a file over itself, read-only. A device goes on working."""
    libc, name = _libc(), os.fsencode(path)
    _checked(libc.mount(name, name, None, _BIND, None), "mount")
    _checked(libc.mount(b"none", name, None, _BIND | _REMOUNT | _READ_ONLY, None), "mount")


def adopt_orphans() -> None:
    """Whatever a descendant leaves behind becomes a child of this process, not of the machine's first."""
    _checked(_libc().prctl(_SUBREAPER, 1, 0, 0, 0), "subreaper")


def die_with_parent(signal: int) -> None:
    """Be sent `signal` when the thread that started this process is gone."""
    _checked(_libc().prctl(_PARENT_DEATH, signal, 0, 0, 0), "parent death signal")
