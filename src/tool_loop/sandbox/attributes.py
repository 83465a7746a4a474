"""Answers for system calls that change a file's mode, owner, times or extended attributes.

Landlock does not know these: a command behind it could open a private key to everybody with chmod, or
date back a file outside of the workspace. So the filter hands them to the launcher, which looks where
the file is and, if that is in the workspace or its private files, does it in the command's place. It acts on the very
file it looked at, through a descriptor, so that no rename or link in between can make it another one.

Part of the launcher, as `answers.py` says.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Callable
from typing import Any, Final

from .memory import Memory

_HERE: Final = -100  # AT_FDCWD
_NO_FOLLOW, _EMPTY_PATH = 0x100, 0x1000
_PATH_BYTES, _VALUE_BYTES, _NAME_BYTES = 4096, 65536, 256


class Attributes:
    """Does for a command what it asks for, to files beneath `own`.

    Not whatever may be written: a device may, and its mode is the machine's.
    """

    def __init__(self, own: tuple[str, ...]) -> None:
        self._own = own
        self._libc: Any = ctypes.CDLL(None, use_errno=True)

    def answer(self, name: str, arguments: list[int], memory: Memory) -> int:
        """Do it: 0, or the number of the error. Raises OSError for what cannot be done here at all."""
        change = _change(name, arguments, memory, self._libc)
        there = _target(name, arguments, memory).open()
        try:
            memory.check()  # its directory was looked up by its number
            if not self._is_own(there):
                return errno.EPERM
            ctypes.set_errno(0)
            return 0 if change(b"/proc/self/fd/%d" % there) == 0 else ctypes.get_errno()
        finally:
            os.close(there)

    def _is_own(self, there: int) -> bool:
        path = os.readlink(f"/proc/self/fd/{there}")
        return any(path == top or path.startswith(f"{top}/") for top in self._own)


class _MarkedFile:
    """A file as a process named it: a path seen from a directory, or one of its descriptors."""

    def __init__(self, process: int, directory: int, path: bytes | None, *, follow: bool) -> None:
        here = b"/proc/%d" % process
        self._base = here + (b"/cwd" if directory == _HERE else b"/fd/%d" % directory)
        if path is not None:
            # What these mean depends on who asks, and it is us who will look.
            for own in (b"/proc/self/", b"/proc/thread-self/"):
                if path.startswith(own):
                    path = here + b"/" + path[len(own) :]
            if path.startswith(b"/dev/fd/"):
                path = here + b"/fd/" + path[len(b"/dev/fd/") :]
        self._path = path
        self._follow = follow

    def open(self) -> int:
        if self._path is None:
            return os.open(self._base, os.O_PATH | os.O_CLOEXEC)
        if not self._path:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        flags = os.O_PATH | os.O_CLOEXEC | (0 if self._follow else os.O_NOFOLLOW)
        if self._path.startswith(b"/"):
            return os.open(self._path, flags)
        directory = os.open(self._base, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return os.open(self._path, flags, dir_fd=directory)
        finally:
            os.close(directory)


def _target(name: str, arguments: list[int], memory: Memory) -> _MarkedFile:
    first = ctypes.c_int(arguments[0]).value
    if name in ("fchmod", "fchown", "fsetxattr", "fremovexattr"):
        return _MarkedFile(memory.process, first, None, follow=True)
    if name in ("fchmodat", "fchownat", "utimensat", "futimesat"):
        flags = {"fchownat": arguments[4], "utimensat": arguments[3]}.get(name, 0)
        path = memory.read(arguments[1], _PATH_BYTES, until_nul=True) if arguments[1] else None
        if path == b"" and flags & _EMPTY_PATH:
            path = None
        return _MarkedFile(memory.process, first, path, follow=not flags & _NO_FOLLOW)
    path = memory.read(arguments[0], _PATH_BYTES, until_nul=True)
    return _MarkedFile(memory.process, _HERE, path, follow=not name.startswith("l"))


_Change = Callable[[bytes], int]


def _change(name: str, arguments: list[int], memory: Memory, libc: Any) -> _Change:
    """What to do to the file, as a function of a path that names exactly that file."""
    behind = arguments[1:] if name not in ("fchmodat", "fchownat", "utimensat", "futimesat") else arguments[2:]
    if "chmod" in name:
        mode = behind[0] & 0o7777
        return lambda path: int(libc.chmod(path, mode))
    if "chown" in name:
        owner, group = ctypes.c_uint32(behind[0]), ctypes.c_uint32(behind[1])
        return lambda path: int(libc.chown(path, owner, group))
    if "utim" in name:
        times = _times(name, behind[0], memory)
        return lambda path: int(libc.utimensat(_HERE, path, times, 0))
    attribute = memory.read(behind[0], _NAME_BYTES, until_nul=True)
    if "remove" in name:
        return lambda path: int(libc.removexattr(path, attribute))
    size, flags = behind[2], ctypes.c_int(behind[3]).value
    if size > _VALUE_BYTES:
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
    value = memory.read(behind[1], size) if size else b""
    return lambda path: int(libc.setxattr(path, attribute, value, ctypes.c_size_t(size), flags))


def _times(name: str, address: int, memory: Memory) -> bytes | None:
    """Two `struct timespec`, whatever the call has them in; None is now."""
    if not address:
        return None
    if name == "utime":
        accessed, modified = struct.unpack("=qq", memory.read(address, 16))
        return struct.pack("=qqqq", accessed, 0, modified, 0)
    raw = memory.read(address, 32)
    if name == "utimensat":
        return raw
    seconds, micro, seconds_2, micro_2 = struct.unpack("=qqqq", raw)
    return struct.pack("=qqqq", seconds, micro * 1000, seconds_2, micro_2 * 1000)
