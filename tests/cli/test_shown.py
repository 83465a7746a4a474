"""A call as a person sees it: lines that read back as that call and no other, and as many as a screen has."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from tests.console.test_unseen import TEXTS, VALUES, decoded
from tool_loop.cli._shown import GOES_ON, MOST_CHARS, fits, screenful, shown_call
from tool_loop.console.terminal import Terminal, width
from tool_loop.events import ToolCall


class Screen(Terminal):
    """A terminal of this size that nobody looks at."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        super().__init__(None, {})
        self._of = columns, rows

    def _size(self) -> tuple[int, int]:
        return self._of


def shown(arguments: object, columns: int | None = None) -> list[str]:
    return list(shown_call(ToolCall("1", "run", json.dumps(arguments)), columns=columns))


def read(lines: list[str]) -> dict[str, object]:
    """The arguments, out of the lines that show them: what a careful reader does."""
    whole: list[str] = []
    for line in lines[1:]:
        if line.startswith(GOES_ON):
            whole[-1] += line.removeprefix(GOES_ON)
        else:
            whole.append(line)
    found: dict[str, object] = {}
    texts: dict[str, list[str]] = {}
    name = ""
    for line in whole:
        if line.startswith("    | "):
            texts[name].append(decoded(line.removeprefix("    | ")))
        elif line.startswith("    ("):
            texts[name] += [texts[name][-1]] * int(line.removeprefix("    (").split()[0].replace(",", ""))
        else:
            name, value = field(line.removeprefix("  "))
            if value:
                found[name] = json.loads(value)
            else:
                texts[name] = []
    return found | {name: "\n".join(of) for name, of in texts.items()}


def field(line: str) -> tuple[str, str]:
    if line.startswith('"'):
        name, end = json.JSONDecoder().raw_decode(line)
    else:
        end = line.index(":")
        name = decoded(line[:end])
    return name, line[end + 1 :].strip(" ")


SPEAKABLE = TEXTS.filter(lambda text: "\ue000" not in text)  # which `decoded` uses for itself


@pytest.mark.parametrize("columns", [None, 30, 80])
@given(arguments=st.dictionaries(SPEAKABLE, VALUES | SPEAKABLE, max_size=3))
def test_the_lines_read_back_as_the_call_so_no_two_calls_are_shown_alike(
    columns: int | None, arguments: dict[str, object]
) -> None:
    lines = shown(arguments, columns)

    assert read(lines) == arguments
    assert all(line.isprintable() for line in lines)
    assert columns is None or all(width(line) <= columns for line in lines)


def test_empty_lines_do_not_push_the_command_out_of_sight() -> None:
    lines = shown({"command": "\n" * 24_900 + "rm -rf ~"}, 80)

    assert lines == [
        "run wants to run",
        "  command:",
        "    | ",
        "    (24,899 more lines like this one)",
        "    | rm -rf ~",
    ]
    assert fits(lines, Screen())


def test_blanks_that_fill_a_line_do_not_make_a_field_of_what_follows() -> None:
    """The terminal would have broken the line there, and the rest would have begun where fields begin."""
    lines = shown({"memo": "x" * 68 + '  to: "alice"', "to": "mallory"}, 80)

    assert [line.split(":")[0] for line in lines if line.startswith("  ") and line[2] != " "] == ["  memo", "  to"]
    assert lines[2].startswith(GOES_ON)


def test_a_blank_at_the_end_of_a_line_is_seen() -> None:
    assert shown({"text": "a \nb"}) == ["run wants to run", "  text:", "    | a\\x20", "    | b"]


def test_a_field_that_would_pass_for_two_is_quoted() -> None:
    assert shown({'to: "bob"  memo': 1}) == ["run wants to run", '  "to: \\"bob\\"  memo": 1']


def test_a_name_that_occurs_twice_is_shown_as_it_was_sent() -> None:
    call = ToolCall("1", "pay", '{"to": "bob", "to": "eve"}')

    assert list(shown_call(call)) == ["pay wants to run", '  {"to": "bob", "to": "eve"}']


def test_what_a_tool_says_of_itself_stays_on_its_line() -> None:
    said = "Pay.\n  to: \u202e" + " " * 300 + "x"

    assert next(shown_call(ToolCall("1", "pay", "{}"), said)) == "pay wants to run: Pay. to: \\u202e x"


def test_what_does_not_fit_is_folded_and_says_by_how_much() -> None:
    lines = shown({"command": "\n".join(f"echo {n}" for n in range(500))}, 80)
    folded = screenful(lines, Screen())

    assert not fits(lines, Screen())
    assert len(folded) <= 16
    assert "    ... 487 lines, 6,720 characters are folded here ..." in folded
    assert (folded[0], folded[-1]) == ("run wants to run", "    | echo 499")
    assert not [line for line in lines if line.startswith("    ...")], "no content looks like a fold"


def test_a_megabyte_is_not_shown_whole() -> None:
    lines = list(shown_call(ToolCall("1", "run", "x" * (MOST_CHARS + 1)), columns=80))

    assert lines[-1].endswith("... (50,001 characters)")
