"""Each example runs, offline, and says what it promises."""

from __future__ import annotations

import json
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.cli_case import Cli, cli, looks
from tool_loop.events import ToolCall
from tool_loop.testing import FaultServer, ok_chat

__all__ = ["cli"]

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    (tmp_path / "a.txt").write_text("a tool")
    monkeypatch.chdir(tmp_path)

    def run(name: str, **environ: str) -> tuple[str, str]:
        for key in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"):
            monkeypatch.delenv(key, raising=False)
        for key, value in environ.items():
            monkeypatch.setenv(key, value)
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        captured = capsys.readouterr()
        return captured.out, captured.err

    return run


def test_every_example_is_tried_here() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == [
        "approvals.py", "batch.py", "crash.py", "own_tools.py", "progress_bar.py", "weather.py",
    ]  # fmt: skip


def test_a_batch_that_is_started_again_pays_for_nothing_twice(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["batch.py"])

    assert run("batch.py")[0] == "30 rows, all answered\n" * 2


def test_weather_offline_in_under_thirty_lines(run) -> None:
    assert run("weather.py")[0] == "15 times the temperature in Berlin is 300.\n"
    assert len((EXAMPLES / "weather.py").read_text().splitlines()) < 30


def test_weather_with_a_model(run) -> None:
    weather, calc = (
        ToolCall("w", "get_weather", '{"city": "Berlin"}'),
        ToolCall("c", "calc", json.dumps({"expression": "15 * 20"})),
    )
    with FaultServer([looks(weather), looks(calc), ok_chat("It is 300.")]) as server:
        out, _ = run("weather.py", OPENAI_BASE_URL=f"{server.url}/v1", OPENAI_MODEL="m")
        results = [m["content"] for m in server.requests[-1].json()["messages"] if m["role"] == "tool"]

    assert out == "It is 300.\n"
    assert results == ["It is 20C and sunny in Berlin.", "300"]


def test_the_progress_bar_goes_on_with_the_run(run) -> None:
    out, err = run("progress_bar.py")

    assert out == "I have seen enough.\n"
    assert err.split("\r")[1] == "[....................] step 0 of 4, 0 calls"
    assert err.split("\r")[-1] == "[###############.....] step 3 of 4, 3 calls\n"


def test_own_tools_fail_in_two_ways_and_are_mended(run) -> None:
    missing, mistyped, answer = run("own_tools.py")[0].splitlines()

    assert json.loads(missing)["error"] == "not_found"
    assert "items.0.count" in json.loads(mistyped)["message"]
    assert answer == "Two apples are ordered."


def test_own_tools_on_the_command_line(cli: Cli) -> None:
    with FaultServer([looks(ToolCall("p", "price", '{"fruit": "pear"}')), ok_chat("0.5")]) as server:
        cli.at(server)
        ran = cli("ask", "what is a pear?", "--tools", f"{EXAMPLES}/own_tools.py:tools")

    assert "step 1: price pear → 0.5" in ran.err


def test_approvals_at_once_and_later(run) -> None:
    at_once, waiting, later = run("approvals.py")[0].splitlines()

    assert at_once.startswith("at once: Bob has his three. [")
    assert "too much" in at_once
    assert waiting.count("amount") == 2
    assert later == "later: Bob has his three. (1 call ran)"


def test_the_crash_leaves_one_call_in_doubt_and_repeats_no_effect(tmp_path) -> None:
    command = [sys.executable, str(EXAMPLES / "crash.py"), str(tmp_path / "runs.sqlite")]

    first = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    second = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)

    assert first.returncode == -signal.SIGKILL
    assert "outcome_unknown" in second.stdout
    assert second.stdout.endswith("effects: pay 1, pay 2, ship 3\n")
