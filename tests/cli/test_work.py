"""`ask --write --run`: which tools a run gets, who is asked, and what a resume takes from the record."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.cli_case import Cli, cli
from tool_loop.events import RunStarted, ToolCall
from tool_loop.testing import FaultServer, Received, ok_chat

__all__ = ["cli"]

WRITE = ToolCall("w1", "write_file", '{"path": "new.txt", "content": "made\\n"}')
PROTECTED = ToolCall("w2", "write_file", '{"path": ".git/config", "content": "made\\n"}')
RUN = ToolCall("r1", "run", '{"argv": ["sh", "-c", "echo ran > out.txt; echo said"]}')


def offered(request: Received) -> set[str]:
    return {tool["function"]["name"] for tool in request.json().get("tools", ())}


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ((), set()),
        (("--trust",), set()),
        (("--write",), {"write_file", "edit_file"}),
        (("--run", "--sandbox", "none"), {"run"}),
        (("--write", "--run", "--sandbox", "none"), {"write_file", "edit_file", "run"}),
    ],
)
def test_a_run_only_reads_unless_it_is_told_otherwise(cli: Cli, options: tuple[str, ...], more: set[str]) -> None:
    with FaultServer([ok_chat("Done.")]) as server:
        cli.at(server)
        cli("ask", "q", *options)

        assert offered(server.requests[0]) == {"list_dir", "read_file", "grep"} | more


def test_without_anybody_to_ask_a_change_waits_and_is_resumed_with_the_tools_of_the_run(cli: Cli) -> None:
    with FaultServer([ok_chat("I write.", [WRITE]), ok_chat("Done.")]) as server:
        cli.at(server)
        waiting = cli("ask", "q", "--write")
        assert not (cli.root / "new.txt").exists()
        allowed = cli("approve", "--last", "w1")
        ran = cli("resume", "--last")

    assert (waiting.code, allowed.code, ran.code) == (6, 0, 0)
    assert "    | +++ b/new.txt\n    | @@ -0,0 +1 @@\n    | +made\n" in waiting.err
    assert (cli.root / "new.txt").read_text() == "made\n"
    meta = json.loads(next(e.meta for e in cli.journal.events(cli.journal.last()) if isinstance(e, RunStarted)))
    assert meta["work"] == {"write": True}


def test_auto_asks_nobody_but_about_protected_paths(cli: Cli) -> None:
    with FaultServer([ok_chat("I write.", [WRITE]), ok_chat("And this.", [PROTECTED])]) as server:
        cli.at(server)
        ran = cli("ask", "q", "--write", "--auto")

    assert ran.code == 6
    assert (cli.root / "new.txt").read_text() == "made\n"
    assert not (cli.root / ".git").exists()


def test_a_command_without_a_sandbox_is_asked_about_even_with_auto(cli: Cli) -> None:
    with FaultServer([ok_chat("I run.", [RUN])]) as server:
        cli.at(server)
        ran = cli("ask", "q", "--run", "--auto", "--sandbox", "none")

    assert ran.code == 6
    assert not (cli.root / "out.txt").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--auto",), "give --write or --run too"),
        (("--write", "--allow", "git"), "--allow is about commands"),
        (("--write", "--sandbox", "none"), "--sandbox is about commands"),
        (("--read", "/usr"), "--read is about commands"),
    ],
)
def test_options_that_mean_nothing_together_are_refused(cli: Cli, options: tuple[str, ...], says: str) -> None:
    with FaultServer([]) as server:
        cli.at(server)
        ran = cli("ask", "q", *options)

    assert ran.code == 2
    assert says in ran.err


def test_a_journal_of_somebody_elses_gives_no_power(cli: Cli) -> None:
    """Its run may say that it wrote files without asking; whoever resumes it has to say so themselves."""
    with FaultServer([ok_chat("I write.", [PROTECTED]), ok_chat("Again.", [WRITE]), ok_chat("Done.")]) as server:
        cli.at(server)
        cli("ask", "q", "--write", "--auto", "--journal", "theirs.sqlite")
        cli("deny", "--last", "w2", "--journal", "theirs.sqlite")
        refused = cli("resume", "--last", "--journal", "theirs.sqlite")
        ran = cli("resume", "--last", "--journal", "theirs.sqlite", "--write")

    assert refused.code == 2
    assert "give --write again" in refused.err
    assert ran.code == 6, "without --auto it asks"
    assert not (cli.root / "new.txt").exists()


def test_the_command_that_goes_on_with_it_says_the_options_again(cli: Cli) -> None:
    with FaultServer([ok_chat("I write.", [PROTECTED])]) as server:
        cli.at(server)
        ran = cli("ask", "q", "--write", "--auto", "--trust", "--journal", "theirs.sqlite")

    assert "--write --auto --trust" in ran.err


def test_what_a_command_leaves_in_the_workspace_is_imported_by_nobody(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text("")
    code = (
        "from argparse import Namespace; from tool_loop.cli._work import work_tools\n"
        "import importlib.util, sys; print(importlib.util.find_spec('planted') is not None)\n"
        "work_tools(Namespace(root='.', may_run=True, sandbox='none'))\n"
        "print(importlib.util.find_spec('planted') is not None, 'tool_loop' in sys.modules)"
    )

    # As `python -m tool_loop` starts: with the working directory first among the places of modules.
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=30
    )

    assert done.stdout.split() == ["True", "False", "True"]


def test_a_permission_for_the_run_says_what_it_covers_and_is_refused_where_it_covers_nothing(cli: Cli) -> None:
    read = ToolCall("c0", "read_file", '{"path": "agent.py"}')
    replies = [
        ok_chat("I write.", [WRITE]),
        ok_chat("And this.", [PROTECTED]),
        ok_chat("Read.", [read]),
        ok_chat("Again.", [WRITE]),
    ]
    with FaultServer(replies) as server:
        cli.at(server)
        cli("ask", "q", "--write")
        covers = cli("approve", "--last", "w1", "--for-run")
        cli("resume", "--last")
        protected = cli("approve", "--last", "w2", "--for-run")
        cli("deny", "--last", "w2")
        cli("resume", "--last")
        tainted = cli("approve", "--last", "--for-run")

    assert "for the run: write_file: any file that is not protected" in covers.out
    assert (protected.code, tainted.code) == (2, 2)
    assert "What it changes is protected" in protected.out
    assert "no permission for the run covers this call" in protected.err
    assert "strangers" in tainted.err
