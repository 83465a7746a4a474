"""What the arguments of a system call point to, in the memory of the process that made it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable


class Memory:
    """Of `process`. `check` raises OSError when that is another one by now; it is called after each look."""

    def __init__(self, process: int, check: Callable[[], None]) -> None:
        self.process = process
        self.check = check

    def read(self, address: int, size: int, *, until_nul: bool = False) -> bytes:
        found = self._read(address, size, until_nul=until_nul)
        self.check()
        return found

    def _read(self, address: int, size: int, *, until_nul: bool) -> bytes:
        with open(f"/proc/{self.process}/mem", "rb", buffering=0) as memory:
            if not until_nul:
                return os.pread(memory.fileno(), size, address)
            found = b""
            while len(found) < size and b"\0" not in found:
                # To the end of the page only: the next one may not be there.
                room = min(4096 - (address + len(found)) % 4096, size - len(found))
                found += os.pread(memory.fileno(), room, address + len(found))
        text, nul, _ = found.partition(b"\0")
        if not nul:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        return text
