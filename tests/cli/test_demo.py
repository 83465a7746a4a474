from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit.cli_case import Cli, cli
from tool_loop.demo import ROOT, _fenced

__all__ = ["cli"]

TRANSCRIPT = Path(__file__).parents[2] / "examples" / "transcript.md"
COMMAND = "python demo.py --transcript examples/transcript.md"


def test_it_fails_four_times_and_recovers_in_seven_steps(cli: Cli) -> None:
    ran = cli("demo")
    steps = [line for line in ran.out.splitlines() if line.startswith("step ")]

    assert ran.code == 0
    assert ran.err == ""
    assert steps[0] == "step 1: read_file  src/agent.py      -> not_found: no such file"
    assert steps[1] == "step 2: list_dir   src               -> not_found: no such directory"
    assert re.fullmatch(r"step 3: list_dir   \.                 -> \d+ entries in \.", steps[2])
    assert steps[3].startswith("step 4: grep       def next_move(    -> invalid_argument: ")
    assert re.fullmatch(r"step 5: grep       \^def next_move\\\(  -> 1 match in agent\.py:\d+", steps[4])
    assert re.fullmatch(r"step 6: read_file  agent\.py          -> lines 1-200 of \d+ \(truncated\)", steps[5])
    assert steps[6].startswith("step 7: answer     next_move, in agent.py, line ")
    assert len(steps) == 7


def test_the_line_it_names_is_the_line_it_is_on(cli: Cli) -> None:
    number = re.search(r"agent\.py, line (\d+)", cli("demo").out)

    assert number is not None
    assert (ROOT / "agent.py").read_text().splitlines()[int(number[1]) - 1].startswith("def next_move(")


def test_it_is_the_same_every_time_and_everywhere(cli: Cli, tmp_path: Path) -> None:
    first = cli("demo")
    elsewhere = Cli(cli.home, tmp_path, cli.patch, cli.capture)
    second = elsewhere("demo", env={"TOOL_LOOP_RG": "/no/such/program", "OPENAI_API_KEY": "x", "COLUMNS": "20"})

    assert first.out == second.out


def test_it_needs_no_network_and_no_home(cli: Cli) -> None:
    ran = cli("demo", env={"HOME": "/no/such/home", "OPENAI_BASE_URL": "http://127.0.0.1:9"})

    assert ran.code == 0
    assert list(cli.home.iterdir()) == []


def test_the_transcript_is_the_whole_run_as_it_is_now(cli: Cli, tmp_path: Path) -> None:
    cli("demo", "--transcript", str(tmp_path / "transcript.md"))
    written = (tmp_path / "transcript.md").read_text(encoding="utf-8")

    assert written == TRANSCRIPT.read_text(encoding="utf-8"), f"the sources have changed; run: {COMMAND}"
    assert COMMAND in written
    assert all(f"## Step {n}\n" in written for n in range(1, 8))


def test_a_transcript_that_cannot_be_written_is_said(cli: Cli) -> None:
    ran = cli("demo", "--transcript", "no/such/dir/x.md")

    assert ran.code == 2
    assert "cannot write no/such/dir/x.md" in ran.err


@pytest.mark.parametrize(("text", "fence"), [("plain", "```"), ("a ```` b", "`````"), ("``x``", "```")])
def test_a_fence_is_longer_than_any_in_the_text(text: str, fence: str) -> None:
    assert _fenced(text) == f"{fence}text\n{text}\n{fence}"
