"""The one exit to the terminal: escaping, display width, colour, and lines that are redrawn in place.

Text of a model, a tool or a server may hold anything: an escape sequence that retitles the window, a
bidi mark that makes `rm` read as `cat`. Nothing reaches a terminal except through `safe` (or `exact`, in
unseen.py, where a person decides by what they see). Knows nothing about runs or events.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Final, TextIO

from .unseen import escaped

# Controls (but for tab and line feed), what turns the direction of text, separators that some
# terminals take for a line feed, annotation marks, invisible tag letters, and lone surrogates, which
# no encoding can write.
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)


def safe(text: str) -> str:
    """The text with every control and bidi character made visible; tabs and line feeds stay."""
    text = text.replace("\r\n", "\n")
    return _UNSAFE.sub(_escape, text) if _UNSAFE.search(text) else text


def one_line(text: str, most: int = 2_000) -> str:
    """`safe` on one line: a line break and the blanks around it become one space. Cut to `most` characters."""
    # Cut first: a result may be megabytes, of which no terminal shows more than this on a line.
    return safe(" ".join(filter(None, map(str.strip, text[:most].split("\n")))).replace("\t", " "))


def _escape(match: re.Match[str]) -> str:
    return escaped(match[0])


# --- width ----------------------------------------------------------------------------------------


def width(text: str) -> int:
    """How many columns the text takes. Too many rather than too few where terminals disagree."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if character.isascii():
        return 1
    from unicodedata import category, combining, east_asian_width  # only text that is not ASCII needs it

    if character == "\ufe0f":
        return 1  # asks for the emoji form of a narrow character, which is one column wider
    if combining(character) or category(character) in ("Mn", "Me", "Cf"):
        return 0
    # Python's tables are older than the newest emoji: what is unassigned among them counts as wide.
    wide = east_asian_width(character) in "WF" or 0x1F300 <= ord(character) <= 0x1FAFF
    return 2 if wide else 1


def clip(text: str, columns: int, mark: str = "…") -> str:
    """The text in at most so many columns, with a mark at its end where something was cut off."""
    if width(text) <= columns:
        return text
    room = columns - width(mark)
    if room < 0:
        return ""
    used = 0
    for at, character in enumerate(text):
        used += _columns(character)
        if used > room:
            return text[:at] + mark
    raise AssertionError  # it was wider than `columns`


# --- a terminal -----------------------------------------------------------------------------------

_STYLE: Final = re.compile("\x1b\\[[0-9;]*m")
_STYLES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class OutputLost(OSError):
    """What a program has to say cannot be written, though somebody may be there to read it: a full disk."""


class Terminal:
    """A text stream, and what may be done with it.

    `tty`: a person looks at it. `moves`: lines can be redrawn. Colour follows NO_COLOR, FORCE_COLOR
    and TERM. A stream that is closed (None, or a reader that went away) swallows what is written when
    `quiet_when_gone`; else `BrokenPipeError` comes through, and `OutputLost` when the disk is full.
    """

    def __init__(
        self, stream: TextIO | None, environ: Mapping[str, str] = os.environ, *, quiet_when_gone: bool = False
    ) -> None:
        self._stream = stream
        self._quiet_when_gone = quiet_when_gone
        self.gone = stream is None
        self.tty = _is_tty(stream)
        term = environ.get("TERM", "")
        self.moves = self.tty and term not in ("", "dumb")
        forced = environ.get("FORCE_COLOR", "") not in ("", "0")
        self.color = not environ.get("NO_COLOR") and (self.moves or forced)
        encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "")
        self.unicode = encoding.startswith("utf")
        if not self.unicode and (reconfigure := getattr(stream, "reconfigure", None)):
            reconfigure(errors="backslashreplace")

    @property
    def columns(self) -> int:
        return self._size()[0]

    @property
    def rows(self) -> int:
        return self._size()[1]

    def _size(self) -> tuple[int, int]:
        # Asked each time: a window is resized while a run goes on, and the call takes a microsecond.
        try:
            columns, rows = os.get_terminal_size(self._stream.fileno())  # type: ignore[union-attr]
        except (OSError, ValueError, AttributeError):
            columns, rows = 0, 0
        return columns or 80, rows or 24

    def write(self, text: str) -> None:
        """Write and flush. The text has been through `safe`; this adds and takes nothing."""
        if self.gone:
            return
        assert self._stream is not None
        try:
            self._stream.write(text)
            self._stream.flush()
        except (BrokenPipeError, ValueError):  # ValueError: the stream is closed
            self.gone = True
            if not self._quiet_when_gone:
                raise
        except OSError as error:  # the disk is full, the terminal was hung up
            self.gone = True
            if not self._quiet_when_gone:
                raise OutputLost(f"cannot write to standard output: {error.strerror}") from error

    def line(self, text: str = "") -> None:
        self.write(text + "\n")

    def style(self, text: str, *styles: str) -> str:
        """The text in these styles ("bold", "dim", "red", ...), plain where colour is not wanted."""
        if not self.color or not text:
            return text
        codes = ";".join(_STYLES[style] for style in styles)
        return f"\x1b[{codes}m{text}\x1b[0m"


def _is_tty(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


class Region:
    """The last lines of a terminal, redrawn in place; what scrolls by goes above them.

    Each frame is one write, and each line is overwritten before the rest of it is erased, so nothing
    flickers. Lines are cut to the width, because one that wraps could not be found again.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._shown: list[str] = []

    def draw(self, lines: Iterable[str], above: str = "") -> None:
        """Show these lines in place of the ones before; `above` (whole lines) scrolls by over them.

        Lines come unstyled or styled as a whole by `Terminal.style`; they must already fit.
        """
        new = list(lines)[: max(1, self._terminal.rows - 1)]
        if new == self._shown and not above:
            return
        parts = [self._home(), *(f"{line}\x1b[K\n" for line in above.splitlines())]
        parts.append("\x1b[K\n".join(new))
        parts.append("\x1b[J")
        self._shown = new
        self._terminal.write("".join(parts))

    def clear(self) -> None:
        """Leave an empty line where the region was."""
        if self._shown:
            self._terminal.write(f"{self._home()}\x1b[J")
            self._shown = []

    def _home(self) -> str:
        # A window that was made narrower has wrapped what was there: each line may be several now.
        columns = self._terminal.columns
        up = sum(max(1, -(-width(_STYLE.sub("", line)) // columns)) for line in self._shown) - 1
        return "\r" + (f"\x1b[{up}A" if up > 0 else "")
