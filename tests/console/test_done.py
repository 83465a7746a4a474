"""What a call that changed something did, below its line in the live view."""

from __future__ import annotations

import json

import pytest

from tests.kit.screen import pty
from tool_loop.changes import change_lines
from tool_loop.console.done import MOST_LINES, done_lines
from tool_loop.console.live import Live
from tool_loop.console.terminal import Terminal
from tool_loop.events import ModelReplied, ToolCall, ToolReturned


def edit(old: str, new: str) -> ToolCall:
    return ToolCall("1", "edit_file", json.dumps({"path": "a.py", "old": old, "new": new}))


EDIT = edit("def f():\n    return 1\n", "def f():\n    return 2\n")
WRITE = ToolCall("1", "write_file", json.dumps({"path": "a.py", "content": "one\ntwo\n"}))
RUN = ToolCall("1", "run", '{"argv": ["pytest"]}')
DONE = ToolReturned("1", "done")


@pytest.mark.parametrize(
    ("call", "lines"),
    [
        (EDIT, [" def f():", "-    return 1", "+    return 2"]),
        (edit("a", ""), ["-a"]),
        (WRITE, ["+one", "+two"]),
        (ToolCall("1", "write_file", '{"path": "a", "content": ""}'), []),
        (ToolCall("1", "write_file", "not JSON"), []),
        (ToolCall("1", "edit_file", '{"old": 1, "new": []}'), []),
        (ToolCall("1", "read_file", '{"path": "a"}'), []),
    ],
)
def test_a_change_is_read_from_the_record(call: ToolCall, lines: list[str]) -> None:
    assert change_lines(call, DONE) == lines


def test_what_failed_changed_nothing() -> None:
    assert change_lines(EDIT, ToolReturned("1", "{}", "conflict")) == []


def test_what_a_person_edited_is_what_is_shown() -> None:
    assert (
        change_lines(EDIT, ToolReturned("1", "done", arguments=EDIT.arguments.replace("2", "3")))[-1] == "+    return 3"
    )


def test_a_change_of_many_lines_is_shown_without_comparing() -> None:
    old, new = "".join(f"{n}\n" for n in range(3_000)), "".join(f"{n} x\n" for n in range(3_000))

    assert len(change_lines(edit(old, new))) == 6_000


def test_output_is_shown_from_its_end_where_failures_are() -> None:
    result = ToolReturned("1", "exit 1, 0.1 s\n" + "".join(f"line {n}\n" for n in range(100)))

    lines = [text for text, _ in done_lines(RUN, result)]
    assert lines[0] == f"... {100 - MOST_LINES} lines before"
    assert lines[-1] == "line 99"


def test_the_live_view_shows_a_diff_in_colour_and_nothing_of_it_raw() -> None:
    call = edit("a\n", "b\x1b[2J\u202e\n")
    with pty() as it:
        live = Live(Terminal(it.stream, {"TERM": "xterm"}))
        live(ModelReplied("", (call,), "tool_calls"))
        live(ToolReturned("1", "edited a.py at line 1: 1 line -> 1 line"))
        live.close()
        it.read()

    assert "\x1b[31m-a\x1b[0m" in it.raw
    assert "\x1b[32m+b\\e[2J\\u202e\x1b[0m" in it.raw


def test_colour_that_a_command_printed_is_left_out() -> None:
    result = ToolReturned("1", "exit 0, 0.1 s\n\x1b[32mok\x1b[0m")

    assert list(done_lines(RUN, result)) == [("ok", "dim")]
