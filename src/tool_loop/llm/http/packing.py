"""A body that came compressed although nobody asked for that, a bounded piece at a time."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

# What a packed piece may become at once; the rest of it stays packed until it is asked for.
UNPACKED_BYTES: Final = 256 * 1024

_GZIP: Final = zlib.MAX_WBITS | 16
_BITS: Final = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": zlib.MAX_WBITS}


def unpacker(encoding: str) -> Unpacker | None:
    """For the value of a content-encoding; None where the body is to be taken as it comes.

    That includes encodings nobody here can undo: servers say such things of plain text as well, and
    where it is true the reply turns out to be no JSON.
    """
    bits = _BITS.get(encoding.strip().lower())
    return None if bits is None else Unpacker(bits)


class Unpacker:
    """Raises `zlib.error` for what is not packed as was said."""

    __slots__ = ("_begun", "_packed", "_zlib")

    def __init__(self, bits: int) -> None:
        self._zlib = zlib.decompressobj(bits)
        self._packed = b""
        self._begun = bits != zlib.MAX_WBITS

    async def piece(self, more: Callable[[], Awaitable[bytes]]) -> bytes:
        """The next bytes, unpacked from as much of `more` as it takes; b"" at the end."""
        while self._packed or (packed := await more()):
            if not self._packed:
                self._packed = packed
            data = self._unpack()
            self._packed = self._zlib.unconsumed_tail
            if data:
                return data
        return b""

    def _unpack(self) -> bytes:
        try:
            data = self._zlib.decompress(self._packed, UNPACKED_BYTES)
        except zlib.error:
            if self._begun:
                raise
            # "deflate" means zlib (RFC 9110, 8.4.1.2), and some servers send it without zlib's header.
            self._zlib = zlib.decompressobj(-zlib.MAX_WBITS)
            data = self._zlib.decompress(self._packed, UNPACKED_BYTES)
        self._begun = True
        return data
