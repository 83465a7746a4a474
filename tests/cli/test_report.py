"""`tool-loop report`: which run, where the page goes, and that no key goes with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tool_loop import Agent, ScriptedLLM
from tool_loop.cli import main
from tool_loop.cli.report import _in_a_name
from tool_loop.journal.sqlite import SqliteJournal

KEY = "a-key-of-the-environment&<42>"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "runs.sqlite"
    with SqliteJournal(path) as journal:
        for run_id, answer in (("aaaa", "one"), ("aabb", f"two {KEY}")):
            Agent(ScriptedLLM(answer), journal=journal).run_sync("what is it?", run_id=run_id)
    return path


def report(saved: Path, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "tool_loop", "report", "--journal", str(saved), *words]
    environ = os.environ | (env or {})
    return subprocess.run(command, capture_output=True, timeout=60, cwd=saved.parent, env=environ, check=False)


def test_a_pipe_gets_the_page_of_the_run_that_got_on_last_in_utf8_whatever_the_locale(saved: Path) -> None:
    done = report(saved, "--last", env={"LC_ALL": "C", "PYTHONIOENCODING": "ascii"})

    html = done.stdout.decode("utf-8")
    assert done.returncode == 0, done.stderr
    assert html.startswith("<!doctype html>")
    assert "<code>aabb</code>" in html
    assert "◐" in html
    assert done.stderr == b""


def test_a_key_of_the_environment_does_not_go_with_it(saved: Path) -> None:
    assert b"a-key-of" in report(saved, "aabb").stdout
    assert b"two [key]" in report(saved, "aabb", env={"SOME_API_KEY": KEY}).stdout


def test_o_names_the_file_and_a_dash_is_standard_output(saved: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = saved.parent / "run.html"

    assert main(["report", "aaaa", "-o", str(file), "--journal", str(saved)]) == 0
    assert "<code>aaaa</code>" in file.read_text()
    assert capfd.readouterr().err == f"wrote {file}\n"
    assert main(["report", "aaaa", "-o", "-", "--journal", str(saved)]) == 0
    assert capfd.readouterr().out.startswith("<!doctype html>")


def test_on_a_terminal_the_page_goes_to_a_file_named_after_the_run(saved: Path) -> None:
    pty = pytest.importorskip("pty")
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "tool_loop", "report", "--last", "--journal", str(saved)]

    done = subprocess.run(command, stdout=follower, stderr=subprocess.PIPE, timeout=60, cwd=saved.parent, check=False)
    os.close(follower)
    os.close(leader)

    assert (done.returncode, done.stderr) == (0, b"wrote run-aabb.html\n")
    assert (saved.parent / "run-aabb.html").read_text().startswith("<!doctype html>")


def test_two_runs_are_compared(saved: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--diff", "aaaa", "aabb", "-o", "-", "--journal", str(saved)]) == 0

    html = capfd.readouterr().out
    assert "First difference: step 1, what the model said" in html
    assert "<mark>one</mark>" in html


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nope"], "there is no run 'nope'"),
        (["aa"], "is the beginning of 2 runs"),
        ([], "say which run"),
        (["--diff", "aaaa", "nope"], "there is no run 'nope'"),
        (["aaaa", "--diff", "aaaa", "aabb"], "--diff takes its two runs itself"),
        (["aaaa", "-o", "no/such/folder/x.html"], "cannot write the report to no/such/folder/x.html: No such file"),
    ],
)
def test_what_cannot_be_done_is_said(
    saved: Path, capfd: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["report", *words, "--journal", str(saved)]) == 2
    assert said in capfd.readouterr().err


def test_an_id_that_a_program_chose_names_no_other_directory() -> None:
    assert _in_a_name("../../etc/x y") == ".._.._etc_x_y"
    assert _in_a_name("f00d-1.2_b") == "f00d-1.2_b"
