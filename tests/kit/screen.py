"""A terminal for tests: a real pty, and what would be on its screen."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from tool_loop.console.terminal import width

_TOKEN = re.compile(r"\x1b\[(\d*)([A-Za-z])|\x1b\[([\d;]*)m|([\r\n])|([^\x1b\r\n]+)")


class Screen:
    """Understands what this package writes, and refuses everything else: an unknown sequence is a fault."""

    def __init__(self, columns: int = 80) -> None:
        self.columns = columns
        self.rows: list[str] = [""]
        self.row = self.column = 0

    def feed(self, text: str) -> None:
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            assert found is not None, f"unknown sequence {text[at : at + 10]!r}"
            at = found.end()
            self._do(found)

    def _do(self, found: re.Match[str]) -> None:
        count, letter, _, control, text = found.groups()
        if letter == "A":
            self.row = max(0, self.row - int(count or 1))
        elif letter == "K":
            self.rows[self.row] = self._left()
        elif letter == "J":
            self.rows[self.row] = self._left()
            del self.rows[self.row + 1 :]
        elif control == "\r":
            self.column = 0
        elif control == "\n":
            self._down()
        elif text:
            for character in text:
                self._put(character)
        else:
            assert letter in (None, "m"), f"unknown sequence {found[0]!r}"

    def _left(self) -> str:
        return self.rows[self.row][: self.column]

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append("")

    def _put(self, character: str) -> None:
        assert character.isprintable() or character == "\t", f"{character!r} reached the terminal"
        if width(self.rows[self.row][: self.column]) + width(character) > self.columns:
            self._down()
            self.column = 0
        line = self.rows[self.row].ljust(self.column)
        self.rows[self.row] = line[: self.column] + character + line[self.column + 1 :]
        self.column += 1

    @property
    def lines(self) -> list[str]:
        return [row.rstrip() for row in self.rows]

    def __str__(self) -> str:
        return "\n".join(self.lines).rstrip()


class Pty:
    """A pty of a given size. `stream` is its terminal side, `read` what was written to it so far."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.master, self.slave = os.openpty()
        self.resize(columns, rows)
        # The terminal's own changes (LF to CR LF) are kept: the screen has to do with them.
        self.stream: TextIO = os.fdopen(os.dup(self.slave), "w", encoding="utf-8")
        os.set_blocking(self.master, False)
        self.screen = Screen(columns)
        self.raw = ""

    def resize(self, columns: int, rows: int = 24) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self) -> Screen:
        got = b""
        try:
            while piece := os.read(self.master, 65536):
                got += piece
        except BlockingIOError:
            pass
        self.raw += got.decode()
        self.screen.feed(got.decode())
        return self.screen

    def wait(self, seconds: float) -> None:
        """Until something more was written."""
        ready, _, _ = select.select([self.master], [], [], seconds)
        assert ready, f"nothing came; so far: {self.screen}"

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def close(self) -> None:
        self.stream.close()
        os.close(self.slave)
        os.close(self.master)


@contextmanager
def pty(columns: int = 80, rows: int = 24) -> Iterator[Pty]:
    made = Pty(columns, rows)
    try:
        yield made
    finally:
        made.close()
