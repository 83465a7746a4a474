"""Server-sent events out of bytes, however the network cut them.

Written over bytes on purpose. The HTTP libraries' line iterators use `str.splitlines`, which also
cuts at U+2028, U+0085 and others, and so tears any answer that holds one; and they drop an event
that is not followed by a blank line. `bytes.splitlines` cuts at CR, LF and CRLF only, which is the
standard's rule, and a character whose bytes arrive in two chunks is never looked at in halves.

Knows nothing about HTTP, JSON or any provider.
"""

from __future__ import annotations

from typing import Final, NamedTuple

# The largest event seen in recorded traffic has 40 KB (a whole reply with its reasoning in one
# event). A server that sends a line without end must not fill the memory, so there is a ceiling.
# An event of empty JSON objects takes 24 times its size when it is parsed.
EVENT_BYTES: Final = 2 * 1024 * 1024

# Comments and unknown fields between two events: signs of life have 30 bytes and come every few
# seconds. A server that sends nothing else would be read to the end of the run.
NOISE_BYTES: Final = 1024 * 1024

# What is kept of lines that are no field: some servers write an error as plain JSON into the stream.
STRAY_BYTES: Final = 4096

_BOM: Final = b"\xef\xbb\xbf"


class SSEEvent(NamedTuple):
    """One event: its type ("" where the server named none) and its data lines joined by LF."""

    event: str
    data: bytes


class EventTooLarge(Exception):
    """A line or an event grew past the ceiling; the stream cannot be read any further."""


class SSEReader:
    """Feed it chunks, get the events that are complete.

    `feed` raises `EventTooLarge`. `close` gives the last event even when the blank line after it is
    missing: the standard would drop it, but there a browser reconnects and we would lose an answer.
    `stray` holds the first lines that were no field of the standard.
    """

    __slots__ = ("_after_cr", "_data", "_event", "_first", "_limit", "_noise", "_pieces", "_size", "stray")

    def __init__(self, limit: int = EVENT_BYTES) -> None:
        self._limit = limit
        # The unfinished line, in pieces: joined once it is whole, because joining at each chunk
        # takes the square of the line's length when it drips in byte by byte.
        self._pieces: list[bytes] = []
        self._size = 0
        self._noise = 0
        self._data: list[bytes] = []
        self._event = ""
        self._first = True
        self._after_cr = False
        self.stray = b""

    def feed(self, chunk: bytes) -> list[SSEEvent]:
        if self._after_cr and chunk:
            # CRLF cut in two: its CR ended the line already, at once, so as not to delay the event.
            self._after_cr = False
            if chunk[0] == 0x0A:
                chunk = chunk[1:]
        events: list[SSEEvent] = []
        for line in chunk.splitlines(keepends=True):
            end = line[-1]
            if end not in (0x0A, 0x0D):
                self._grow(len(line))
                self._pieces.append(line)
                break
            self._after_cr = end == 0x0D
            if self._pieces:
                self._grow(len(line))
                self._pieces.append(line)
                self._line(self._joined().rstrip(b"\r\n"), events)
            else:
                self._line(line.rstrip(b"\r\n"), events)
        self._after_cr = self._after_cr and chunk.endswith(b"\r")
        return events

    def close(self) -> list[SSEEvent]:
        """The end of the stream: whatever is there is complete now."""
        events: list[SSEEvent] = []
        if self._pieces:
            self._line(self._joined(), events)
        self._dispatch(events)
        return events

    def _joined(self) -> bytes:
        line = b"".join(self._pieces)
        self._pieces.clear()
        self._size -= len(line)
        return line

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            raise EventTooLarge(f"an event of more than {self._limit:,} bytes")

    def _line(self, line: bytes, events: list[SSEEvent]) -> None:
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line:
            self._dispatch(events)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._grow(len(value) + 1)  # one more, so that empty lines without end are counted too
            self._data.append(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        else:
            self._noise += len(line)
            if self._noise > NOISE_BYTES:
                raise EventTooLarge(f"more than {NOISE_BYTES:,} bytes without an event")
            if name and name not in (b"id", b"retry") and len(self.stray) < STRAY_BYTES:
                self.stray += line[:STRAY_BYTES] + b"\n"

    def _dispatch(self, events: list[SSEEvent]) -> None:
        if self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            self._size -= len(data) + 1  # as many as were counted: one for each line
            events.append(SSEEvent(self._event, data))
            self._data.clear()
            self._noise = 0
        self._event = ""
