"""What a server writes to stderr: into the log, and its last lines into the error when it fails.

Read from a pipe by a thread, so that a server that writes much never blocks on a full one, and bounded
in what is kept. Knows nothing about the protocol.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final, TextIO

_LINES: Final = 5
_LINE_BYTES: Final = 2_000
_SHOWN: Final = 400
_JOIN_SECONDS: Final = 0.5  # a grandchild may hold the pipe open for ever


class LastWords:
    """The last lines of a server, over all its starts. `last` is them as one line, "" when there are none."""

    def __init__(self, name: str) -> None:
        self._log = logging.getLogger(f"{__package__}.{name}")
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._reader: threading.Thread | None = None

    @property
    def last(self) -> str:
        if self._reader is not None:
            self._reader.join(_JOIN_SECONDS)
        return " | ".join(self._lines)[-_SHOWN:]

    @contextmanager
    def listening(self) -> Iterator[TextIO]:
        """A file to give the server as its stderr. Closed here; what is still in the pipe is read."""
        reading, writing = os.pipe()
        self._reader = threading.Thread(target=self._read, args=(os.fdopen(reading, "rb"),), daemon=True)
        self._reader.start()
        with os.fdopen(writing, "w") as stderr:
            yield stderr

    def _read(self, pipe: IO[bytes]) -> None:
        with pipe:
            while line := pipe.readline(_LINE_BYTES):
                if text := line.decode("utf-8", "backslashreplace").strip():
                    self._lines.append(text)
                    self._log.info("%s", text)
