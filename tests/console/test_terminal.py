from __future__ import annotations

import io
import unicodedata

import pytest
from hypothesis import given, strategies as st

from tests.kit.screen import Screen, pty
from tool_loop.console.terminal import Region, Terminal, clip, one_line, safe, width

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
TTY = {"TERM": "xterm"}


class Stream(io.StringIO):
    def __init__(self, *, tty: bool = False, encoding: str = "utf-8") -> None:
        super().__init__()
        self._tty = tty
        self._encoding = encoding

    def isatty(self) -> bool:
        return self._tty

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding


class Gone(Stream):
    def write(self, _text: str) -> int:
        raise BrokenPipeError


# --- escaping ---------------------------------------------------------------------------------------


@given(st.text())
def test_no_control_and_no_bidi_character_comes_through(text: str) -> None:
    shown = safe(text)

    assert not [c for c in shown if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cs")]
    assert not set(shown) & set(BIDI + "\u2028\u2029")
    shown.encode()


@given(st.text())
def test_plain_text_is_left_alone(text: str) -> None:
    plain = "".join(c for c in text if c.isprintable())

    assert safe(plain) == plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", "\\e]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("rm\u202etxt", "rm\\u202etxt"),
        ("a\r\nb\rc", "a\nb\\rc"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("half \ud800", "half \\ud800"),
        ("null\0", "null\\0"),
        ("del\x7f", "del\\x7f"),
        ("family 👨‍👩‍👧 stays", "family 👨‍👩‍👧 stays"),
    ],
)
def test_what_would_act_on_the_terminal_is_shown_instead(text: str, shown: str) -> None:
    assert safe(text) == shown


def test_one_line_joins_lines_and_is_bounded() -> None:
    assert one_line("  a \n\n  b\tc  ") == "a b c"
    assert len(one_line("x" * 10_000_000)) == 2_000


# --- width ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "columns"),
    [("abc", 3), ("中文", 4), ("e\u0301", 1), ("👍", 2), ("ｱ", 1), ("Ａ", 2), ("\u200d", 0), ("❤\ufe0f", 2), ("", 0)],
)
def test_width_in_columns(text: str, columns: int) -> None:
    assert width(text) == columns


def test_emoji_newer_than_the_tables_of_this_python_are_wide() -> None:
    assert width("\U0001fadf") == 2


@given(st.text(alphabet=st.sampled_from("ab中文é👍\u0301 ")), st.integers(0, 12))
def test_clip_never_exceeds_the_width(text: str, columns: int) -> None:
    cut = clip(text, columns)

    assert width(cut) <= columns
    assert cut == text or columns == 0 or cut.endswith("…")


def test_clip_keeps_what_fits() -> None:
    assert clip("中文字", 6) == "中文字"
    assert clip("中文字", 5) == "中文…"
    assert clip("中文字", 4) == "中…"
    assert clip("abc", 0) == ""


# --- what may be done with a stream -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("tty", "environ", "moves", "color"),
    [
        (True, {"TERM": "xterm"}, True, True),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        (True, {"TERM": "xterm", "NO_COLOR": ""}, True, True),
        (True, {"TERM": "dumb"}, False, False),
        (True, {}, False, False),
        (False, {"TERM": "xterm"}, False, False),
        (False, {"FORCE_COLOR": "1"}, False, True),
        (False, {"FORCE_COLOR": "0"}, False, False),
        (False, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
    ],
)
def test_colour_and_movement(tty: bool, environ: dict[str, str], moves: bool, color: bool) -> None:
    terminal = Terminal(Stream(tty=tty), environ)

    assert (terminal.moves, terminal.color) == (moves, color)
    assert terminal.style("x", "bold") == ("\x1b[1mx\x1b[0m" if color else "x")


def test_a_stream_that_cannot_hold_a_character_gets_its_escape() -> None:
    raw = io.BytesIO()
    terminal = Terminal(io.TextIOWrapper(raw, encoding="ascii"), {})

    terminal.line("→ 中")

    assert raw.getvalue() == b"\\u2192 \\u4e2d\n"
    assert not terminal.unicode


def test_without_a_stream_nothing_happens() -> None:
    terminal = Terminal(None, {})

    terminal.line("x")

    assert terminal.gone
    assert (terminal.columns, terminal.rows) == (80, 24)


def test_a_closed_stream_is_no_terminal() -> None:
    stream = Stream(tty=True)
    stream.close()

    assert not Terminal(_Closed(), TTY).tty
    with pytest.raises(ValueError, match="closed"):
        Terminal(stream, {}).line("x")


class _Closed(Stream):
    def isatty(self) -> bool:
        raise ValueError("I/O operation on closed file")


def test_a_reader_that_went_away_is_told_once_or_not_at_all() -> None:
    loud, quiet = Terminal(Gone(), {}), Terminal(Gone(), {}, quiet_when_gone=True)

    with pytest.raises(BrokenPipeError):
        loud.write("x")
    loud.write("x")
    quiet.write("x")

    assert loud.gone
    assert quiet.gone


def test_the_size_is_asked_each_time() -> None:
    with pty(100, 30) as it:
        terminal = Terminal(it.stream, TTY)
        before = terminal.columns, terminal.rows
        it.resize(50, 10)

        assert before == (100, 30)
        assert (terminal.columns, terminal.rows) == (50, 10)


# --- lines that are redrawn ---------------------------------------------------------------------------


def test_a_region_is_redrawn_in_place_and_scrolls_others_above() -> None:
    with pty() as it:
        terminal = Terminal(it.stream, TTY)
        region = Region(terminal)

        region.draw(["one", "two"])
        region.draw(["a longer one", "2"], above="done: x")
        region.draw(["last"], above="done: y\ndone: z")

        assert it.read().lines == ["done: x", "done: y", "done: z", "last"]


def test_a_region_leaves_nothing_behind() -> None:
    with pty() as it:
        terminal = Terminal(it.stream, TTY)
        region = Region(terminal)
        terminal.line("before")

        region.draw(["one", "two", "three"])
        region.clear()
        region.clear()
        terminal.line("after")

        assert str(it.read()) == "before\nafter"


def test_a_frame_that_did_not_change_is_not_written() -> None:
    with pty() as it:
        region = Region(Terminal(it.stream, TTY))
        region.draw(["same"])
        it.read()
        before = len(it.raw)

        region.draw(["same"])
        it.read()

        assert len(it.raw) == before


def test_a_frame_is_one_write() -> None:
    stream = _Counting(tty=True)
    region = Region(Terminal(stream, TTY))

    region.draw(["a", "b", "c"], above="x\ny")

    assert stream.writes == 1


class _Counting(Stream):
    writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)


def test_a_region_is_never_higher_than_the_terminal() -> None:
    with pty(80, 4) as it:
        region = Region(Terminal(it.stream, TTY))

        region.draw([str(n) for n in range(10)])

        assert it.read().lines == ["0", "1", "2"]


def test_a_window_made_narrower_is_cleaned_up_whole() -> None:
    with pty(40) as it:
        terminal = Terminal(it.stream, TTY)
        region = Region(terminal)
        region.draw([terminal.style("x" * 30, "dim"), "y" * 30])
        it.read()

        it.resize(20)  # the terminal wraps both lines: four rows
        region.clear()
        it.screen = Screen(20)
        it.screen.feed("x" * 30 + "\n\r" + "y" * 30)
        it.read()

        assert str(it.screen) == ""
