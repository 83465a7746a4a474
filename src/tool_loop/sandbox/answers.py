"""Answers for the system calls that a filter cannot judge, because what they mean is in memory.

The kernel holds the process that asks and tells its launcher, which is outside of the walls and has none
of root's rights. It does what may be done in the place of the process (`attributes.py`, `sockets.py`) and
never lets the call itself go on: by then its arguments could be others.
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import struct
from contextlib import suppress
from typing import Final

from .memory import Memory
from .syscalls import ADDRESSES, ATTRIBUTES

# SECCOMP_IOCTL_NOTIF_*, with the sizes of struct seccomp_notif and seccomp_notif_resp
_RECEIVE, _SEND, _STILL_THERE = 0xC0502100, 0xC0182101, 0x40082102
_NOTIFICATION: Final = struct.Struct("=QIIiIQ6Q")  # id, pid, flags, nr, arch, instruction, arguments
_RESPONSE: Final = struct.Struct("=QqiI")  # id, value, error, flags


class Answers:
    """Answers what arrives on the listener `asks`. `own` are the workspace and the private files."""

    def __init__(self, asks: int, own: list[str]) -> None:
        from .attributes import Attributes
        from .sockets import Sockets

        real = tuple(os.path.realpath(path) for path in own)
        machine = int(platform.machine() == "aarch64")
        self._asks = asks
        self._doing: dict[int, tuple[str, Attributes | Sockets]] = {}
        for table, doing in ((ATTRIBUTES, Attributes(real)), (ADDRESSES, Sockets(real))):
            self._doing |= {numbers[machine]: (name, doing) for name, numbers in table.items() if numbers[machine] >= 0}

    def next(self) -> None:
        """Answer one question. One whose process is gone by now needs no answer."""
        asked = bytearray(_NOTIFICATION.size)
        with suppress(OSError):
            fcntl.ioctl(self._asks, _RECEIVE, asked)
            number, process, _flags, call, _arch, _at, *arguments = _NOTIFICATION.unpack(asked)
            error = self._done(number, process, call, arguments)
            fcntl.ioctl(self._asks, _SEND, bytearray(_RESPONSE.pack(number, 0, -error, 0)))

    def _done(self, number: int, process: int, call: int, arguments: list[int]) -> int:
        def is_still_there() -> None:
            # Only with this is it certain that what was read is of the process that asks, and not of another
            # that has got its number.
            fcntl.ioctl(self._asks, _STILL_THERE, bytearray(struct.pack("=Q", number)))

        if call not in self._doing:
            return errno.ENOSYS
        name, doing = self._doing[call]
        try:
            return doing.answer(name, arguments, Memory(process, is_still_there))
        except OSError as error:
            return error.errno or errno.EPERM
