"""A person at a terminal decides about a call; they type on a real pty."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
from pathlib import Path

import pytest

from tests.kit.screen import Pty, pty
from tool_loop.cli._review import TerminalReviewer, keyboard
from tool_loop.cli._shown import MOST_CHARS, shown_call
from tool_loop.console.terminal import Terminal
from tool_loop.events import ApprovalDecided, ToolCall
from tool_loop.ports import PendingApproval, Preview

PAY = ToolCall("p1", "pay", '{"amount": 3, "to": "bob"}')
TTY = {"TERM": "xterm", "NO_COLOR": "1"}
MENU = "[y] allow once  [r] allow this tool for the run  [n] deny  [e] edit > "


@pytest.fixture(autouse=True)
def no_editor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDITOR", raising=False)
    monkeypatch.delenv("VISUAL", raising=False)


def decide(it: Pty, typed: str, call: ToolCall = PAY, *, before: str = "", why: str = "policy") -> ApprovalDecided:
    """What a person who types this decides; `before` was typed before they were asked."""

    async def main() -> ApprovalDecided:
        reviewer = TerminalReviewer(Terminal(it.stream, TTY), it.slave, "ada")
        it.type(before)
        asked = asyncio.ensure_future(reviewer(PendingApproval(call, "f", why, "Pay somebody.")))
        await asyncio.sleep(0)  # now it has asked
        it.type(typed)
        return await asyncio.wait_for(asked, 10)

    return asyncio.run(main())


@pytest.mark.parametrize("typed", ["y\n", " YES \n", "what?\n\ny\n"])
def test_allow_once(typed: str) -> None:
    with pty() as it:
        assert decide(it, typed) == ApprovalDecided("p1", allowed=True, by="ada")


def test_the_whole_call_is_shown_before_it_is_asked_about() -> None:
    with pty() as it:
        decide(it, "y\n", ToolCall("p1", "pay", '{"to": "bob\u202e", "memo": "two\\nlines\\u001b[2J"}'))
        shown = it.read().lines

    assert shown[:6] == [
        "",
        "pay wants to run: Pay somebody.",
        '  to: "bob\\u202e"',
        "  memo:",
        "    | two",
        "    | lines\\e[2J",
    ]
    assert shown[6].startswith(MENU.strip())


def test_allow_for_the_run() -> None:
    with pty() as it:
        assert decide(it, "r\n") == ApprovalDecided("p1", allowed=True, by="ada", standing=True)


def test_deny_with_a_reason() -> None:
    with pty() as it:
        assert decide(it, "n\nToo Much\n") == ApprovalDecided("p1", allowed=False, by="ada", note="Too Much")


def test_edited_arguments_are_shown_again_before_they_are_allowed() -> None:
    with pty() as it:
        decision = decide(it, 'e\n{"amount": \n[1]\n{"amount": 4}\ny\n')
        shown = it.read()

    assert decision == ApprovalDecided("p1", allowed=True, by="ada", arguments='{"amount": 4}')
    assert "That is not a JSON object: Expecting value" in str(shown)
    assert "That is not a JSON object: it is a list" in str(shown)
    assert str(shown).count("pay wants to run") == 2
    assert "  amount: 4\n" in str(shown)


def test_edited_arguments_cannot_be_allowed_for_the_run() -> None:
    with pty() as it:
        decision = decide(it, 'e\n{"amount": 4}\nr\ny\n')

    assert decision == ApprovalDecided("p1", allowed=True, by="ada", arguments='{"amount": 4}')


def test_edited_in_the_persons_own_editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = tmp_path / "my editor"
    editor.write_text(
        '#!/bin/sh\n[ -e "$0.ran" ] && echo \'{"amount": 4}\' > "$1" || echo broken > "$1"\ntouch "$0.ran"\n'
    )
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("EDITOR", f"'{editor}'")
    with pty() as it:
        decision = decide(it, "e\n\ny\n")

    assert decision.arguments == '{"amount": 4}'


@pytest.mark.parametrize("editor", ["/no/such/editor", "'unbalanced"])
def test_without_an_editor_that_works_the_arguments_are_typed(editor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", editor)
    with pty() as it:
        decision = decide(it, 'e\n{"amount": 4}\ny\n', ToolCall("p1", "pay", "not json"))
        shown = str(it.read())

    assert decision.arguments == '{"amount": 4}'
    assert "the editor cannot be started: " in shown


def test_an_editor_does_not_outlive_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor, told = tmp_path / "editor", tmp_path / "told"
    os.mkfifo(told)
    editor.write_text(f'#!/bin/sh\necho $$ > "{told}"\nexec sleep 60\n')
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("EDITOR", str(editor))

    async def main(it: Pty) -> int:
        reviewer = TerminalReviewer(Terminal(it.stream, TTY), it.slave)
        asked = asyncio.ensure_future(reviewer(PendingApproval(PAY, "f")))
        await asyncio.sleep(0)
        it.type("e\n")
        pid = int(await asyncio.to_thread(told.read_text))
        asked.cancel()
        await asyncio.wait({asked})
        return pid

    with pty() as it:
        pid = asyncio.run(asyncio.wait_for(main(it), 10))

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_call_that_cannot_be_shown_can_only_be_denied() -> None:
    call = ToolCall("p1", "pay", json.dumps({"memo": "x" * MOST_CHARS}))
    with pty() as it:
        decision = decide(it, "y\nr\ne\nn\n\n", call)
        shown = str(it.read())

    assert decision == ApprovalDecided("p1", allowed=False, by="ada")
    assert "(50,012 characters)" in shown
    assert "so it can only be denied" in shown
    assert "[y]" not in shown


def long_call(lines: int) -> ToolCall:
    return ToolCall("p1", "run", json.dumps({"command": "\n".join(f"echo {n}" for n in range(lines))}))


def test_a_call_that_does_not_fit_the_screen_is_allowed_when_all_of_it_has_been_seen() -> None:
    with pty(rows=12) as it:
        decision = decide(it, "y\nr\ns\n\n\ny\n", long_call(20))
        shown = it.read().lines

    first = next(n for n, line in enumerate(shown) if line.startswith("[y]"))
    assert decision == ApprovalDecided("p1", allowed=True, by="ada")
    assert "    ... 15 lines, 187 characters are folded here ..." in shown[:first]
    assert " ".join(map(str, range(20))) in " ".join(re.findall(r"echo (\d+)", "\n".join(shown[:first])))
    assert "[s] see all of it" in shown[9]


def test_who_has_not_seen_all_of_it_can_deny_it() -> None:
    with pty(rows=12) as it:
        assert decide(it, "y\nn\nno\n", long_call(20)).allowed is False


def test_a_tool_that_says_it_has_no_rule_is_not_allowed_for_the_run() -> None:
    async def main(it: Pty) -> ApprovalDecided:
        reviewer = TerminalReviewer(Terminal(it.stream, TTY), it.slave, "ada")
        asked = asyncio.ensure_future(reviewer(PendingApproval(PAY, "f", "policy", "", Preview(mark="state"))))
        await asyncio.sleep(0)
        it.type("r\ny\n")
        return await asyncio.wait_for(asked, 10)

    with pty() as it:
        assert not asyncio.run(main(it)).standing


def test_what_was_typed_before_the_question_does_not_answer_it() -> None:
    with pty() as it:
        decision = decide(it, "n\nno\n", before="y\n")

    assert not decision.allowed


def test_a_call_in_doubt_is_explained_and_has_no_standing_answer() -> None:
    with pty() as it:
        decision = decide(it, "r\ny\n", why="in_doubt")
        shown = str(it.read())

    assert decision == ApprovalDecided("p1", allowed=True, by="ada")
    assert "it may have happened already" in shown.replace("\n", "")


def test_a_terminal_that_is_closed_decides_nothing() -> None:
    with pty() as it, pytest.raises(EOFError):
        decide(it, "\x04")


def test_a_cancel_while_a_person_is_asked_leaves_no_reader_behind() -> None:
    async def main(it: Pty) -> None:
        reviewer = TerminalReviewer(Terminal(it.stream, TTY), it.slave)
        asked = asyncio.ensure_future(reviewer(PendingApproval(PAY, "f")))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait({asked})
        assert asked.cancelled()
        assert not asyncio.get_running_loop().remove_reader(it.slave)

    with pty() as it:
        asyncio.run(main(it))


def test_a_cancel_in_the_moment_of_an_answer_is_a_cancel() -> None:
    async def main(it: Pty) -> None:
        reviewer = TerminalReviewer(Terminal(it.stream, TTY), it.slave)
        asked = asyncio.ensure_future(reviewer(PendingApproval(PAY, "f")))
        await asyncio.sleep(0)
        it.type("y\n")
        asyncio.get_running_loop().call_soon(asked.cancel)
        await asyncio.wait({asked})
        assert asked.cancelled()

    with pty() as it:
        asyncio.run(main(it))


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ("", []),
        ('{"a": [1, "x"], "b\u202e": null}', ['  a: [1, "x"]', "  b\\u202e: null"]),
        ("not \x1b json", ["  not \\e json"]),
        ("[1]", ["  [1]"]),
        ("[" * 40_000, ["  " + "[" * 40_000]),
        ("[" * 60_000, ["  " + "[" * 1000 + "... (60,000 characters)"]),
    ],
)
def test_a_call_is_shown_whatever_its_arguments_are(arguments: str, lines: list[str]) -> None:
    assert list(shown_call(ToolCall("1", "pay\u200b", arguments))) == ["pay\\u200b wants to run", *lines]


# --- is there a person ------------------------------------------------------------------------------------


def test_a_person_is_there_when_both_ends_are_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    with pty() as it, os.fdopen(os.dup(it.slave)) as stdin:
        monkeypatch.setattr("sys.stderr", it.stream)
        monkeypatch.setattr("sys.stdin", stdin)

        with keyboard() as found:
            assert found == stdin.fileno()


def test_nobody_is_there_when_nothing_can_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)

    with keyboard() as found:
        assert found is None


def test_the_terminal_itself_is_read_when_stdin_is_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    with pty() as it:
        monkeypatch.setattr("sys.stderr", it.stream)
        monkeypatch.setattr("sys.stdin", None)

        with keyboard(os.ttyname(it.slave)) as found:
            assert found is not None
            assert os.isatty(found)
        with keyboard("/no/such/terminal") as found:
            assert found is None


# --- calls that can say what they would do --------------------------------------------------------

EDIT = ToolCall("e1", "edit_file", '{"path": "a.txt", "old": "a", "new": "b\\u001b[2J"}')
DIFF = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a\n+b\x1b[2J"


def changing(text: str = DIFF, **more: object) -> Preview:
    return Preview(lambda: text, "mark", "any file that is not protected", "diff", complete=True, **more)


def answered(it: Pty, typed: str, pending: PendingApproval, environ: dict[str, str] = TTY) -> ApprovalDecided:
    async def main() -> ApprovalDecided:
        asked = asyncio.ensure_future(TerminalReviewer(Terminal(it.stream, environ), it.slave, "ada")(pending))
        await asyncio.sleep(0)
        it.type(typed)
        return await asyncio.wait_for(asked, 10)

    return asyncio.run(main())


def test_a_change_is_shown_as_the_diff_it_makes_and_nothing_in_it_reaches_the_terminal_raw() -> None:
    with pty() as it:
        answered(it, "y\n", PendingApproval(EDIT, "f", preview=changing()))
        shown = it.read().lines

    assert shown[1:8] == [
        "edit_file wants to run",
        "    | --- a/a.txt",
        "    | +++ b/a.txt",
        "    | @@ -1 +1 @@",
        "    | -a",
        "    | +b\\e[2J",
        "  [r] would cover edit_file: any file that is not protected",
    ]


def test_a_diff_is_drawn_in_the_colours_of_one() -> None:
    with pty() as it:
        answered(it, "y\n", PendingApproval(EDIT, "f", preview=changing()), {"TERM": "xterm"})
        it.read()
        raw = it.raw

    assert "\x1b[31m    | -a\x1b[0m" in raw
    assert "\x1b[32m    | +b\\e[2J\x1b[0m" in raw


def test_a_permission_for_the_run_is_given_for_the_rule_that_is_shown() -> None:
    with pty() as it:
        assert answered(it, "r\n", PendingApproval(EDIT, "f", preview=changing())).standing
        assert "[r] allow that for the run" in str(it.read())


@pytest.mark.parametrize(
    "pending",
    [PendingApproval(EDIT, "f", preview=changing(), standing=False), PendingApproval(PAY, "f", standing=False)],
    ids=["with a rule", "without"],
)
def test_no_permission_for_the_run_is_offered_where_it_would_not_count(pending: PendingApproval) -> None:
    with pty() as it:
        assert not answered(it, "r\ny\n", pending).standing
        shown = str(it.read())

    assert "each call is asked about" in shown
    assert "[y] allow once  [n] deny  [e] edit" in shown


def test_a_change_too_long_to_be_shown_can_only_be_denied() -> None:
    with pty() as it:
        pending = PendingApproval(EDIT, "f", preview=changing("+" * (MOST_CHARS + 1)))
        assert not answered(it, "y\nn\n\n", pending).allowed


def test_edited_arguments_are_shown_with_what_they_would_do() -> None:
    asked: list[str] = []

    def look(arguments: str) -> Preview:
        asked.append(arguments)
        return changing("--- a/b.txt\n+++ b/b.txt")

    mine = '{"path": "b.txt", "old": "a", "new": "b"}'
    with pty() as it:
        said = answered(it, f"e\n{mine}\ny\n", PendingApproval(EDIT, "f", preview=changing(), look=look))
        shown = it.read().lines

    assert (said.arguments, asked) == (mine, [mine])
    assert "    | --- a/b.txt" in shown
