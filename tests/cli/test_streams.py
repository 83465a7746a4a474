"""What the command line is given and what it writes to: marks of editors, full disks, a tilde."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.cli_case import Cli, cli
from tool_loop.testing import FaultServer, ok_chat

__all__ = ["cli"]
needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")  # noqa: PTH110


def run(cli: Cli, server: FaultServer, *words: str, stdout: str = "/dev/full") -> tuple[int, str]:
    """The command as a process of its own, with a full disk under its standard output: exit code and stderr."""
    cli.at(server)
    env = {"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(cli.home), **cli.env}
    with open(stdout, "w") as out:  # noqa: PTH123
        ran = subprocess.run(
            [sys.executable, "-m", "tool_loop", *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
            cwd=cli.root,
            timeout=60,
            check=False,
        )
    return ran.returncode, ran.stderr


# --- a full disk ----------------------------------------------------------------------------------


@needs_full
def test_a_full_disk_under_the_answer_names_the_saved_run_which_has_it(cli: Cli) -> None:
    with FaultServer([ok_chat("The answer.")]) as server:
        code, err = run(cli, server, "ask", "q")

    assert code == 1
    assert "cannot write to standard output: No space left on device" in err
    assert "Traceback" not in err
    command = err[err.index("tool-loop show ") :].split()[:3]
    assert "The answer." in cli(*command[1:]).out


@needs_full
def test_without_a_saved_run_the_answer_is_shown_where_there_is_room(cli: Cli) -> None:
    with FaultServer([ok_chat("The answer.")]) as server:
        code, err = run(cli, server, "ask", "q", "--no-save")

    assert code == 1
    assert "No space left on device\nThe answer.\n" in err


@needs_full
def test_a_full_disk_under_the_events_says_how_to_go_on(cli: Cli) -> None:
    with FaultServer([ok_chat("The answer."), ok_chat("The answer.")]) as server:
        code, err = run(cli, server, "ask", "q", "--json")
        assert code == 1
        assert "No space left on device\nNothing was lost; resume with: tool-loop resume " in err
        cli.at(server)
        command = err[err.index("tool-loop resume ") :].split()[:3]
        assert cli(*command[1:]).out.strip() == "The answer."


@needs_full
def test_a_full_disk_under_the_answers_file_names_the_saved_run(cli: Cli) -> None:
    with FaultServer([ok_chat("The answer.")]) as server:
        code, err = run(cli, server, "ask", "q", "-o", "/dev/full", stdout="/dev/null")

    assert code == 1
    assert "cannot write the answer to /dev/full: No space left on device" in err
    assert "read it with: tool-loop show " in err


@needs_full
@pytest.mark.parametrize("words", ["runs", "show --last", "report --last", "doctor --help", "--version", "demo"])
def test_every_command_says_in_one_line_that_its_output_is_lost(cli: Cli, words: str) -> None:
    with FaultServer([ok_chat("The answer.")]) as server:
        cli.at(server)
        cli("ask", "q")
        code, err = run(cli, server, *words.split())

    assert code == 1, err
    assert err.count("No space left on device") == 1
    assert "Traceback" not in err
    assert "Exception ignored" not in err


# --- what comes in --------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_the_mark_of_an_editor_on_standard_input_is_no_part_of_the_question(cli: Cli, encoding: str) -> None:
    given = ("\ufeff" if encoding == "utf-16-be" else "") + "What is Grüße?\n"
    with FaultServer([ok_chat("one"), ok_chat("two")]) as server:
        cli.at(server)
        assert cli("ask", "-", stdin=given.encode(encoding)).code == 0
        assert cli("ask", "why?", stdin=given.encode(encoding)).code == 0

    asked = [json.loads(one.body)["messages"][-1]["content"] for one in server.requests]
    assert asked == ["What is Grüße?", "why?\n\nFrom standard input:\n\nWhat is Grüße?\n"]


# --- a tilde --------------------------------------------------------------------------------------


def test_a_tilde_in_the_path_of_a_journal_is_the_home_directory(cli: Cli) -> None:
    with FaultServer([ok_chat("one")]) as server:
        cli.at(server)
        cli.env["HOME"] = str(cli.home)
        assert cli("ask", "q", "--journal=~/runs.sqlite").code == 0
        ran = cli("runs", "--journal", "~/runs.sqlite")

    assert (cli.home / "runs.sqlite").exists()
    assert not (cli.root / "~").exists()
    assert ran.code == 0
    assert "answered" in ran.out or "done" in ran.out


def test_a_journal_of_the_library_expands_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tool_loop.errors import UsageError
    from tool_loop.journal.sqlite import SqliteJournal

    monkeypatch.setenv("HOME", str(tmp_path))
    with SqliteJournal("~/runs.sqlite") as journal:
        assert journal.path == tmp_path / "runs.sqlite"
    with pytest.raises(UsageError, match="give the path without ~"):
        SqliteJournal("~nobody-of-that-name/runs.sqlite")
