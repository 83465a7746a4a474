"""The tools together on a real repository: looked at, mended, tested, committed; killed in the middle and resumed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tool_loop.sandbox import SandboxUnavailable, choose

from .real_work import SOURCE, TEST

ROOT = Path(__file__).parents[2]


def git(home: Path, *words: str) -> str:
    given = ["git", "-c", "user.email=a@b", "-c", "user.name=a", *words]
    return subprocess.run(given, cwd=home / "repo", check=True, capture_output=True, text=True, timeout=20).stdout


@pytest.fixture
def home(tmp_path: Path) -> Path:
    try:
        choose()
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "calc.py").write_text(SOURCE)
    (repo / "test_calc.py").write_text(TEST)
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "user.email", "a@b")
    git(tmp_path, "config", "user.name", "a")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def work(home: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.tools.real_work", str(home), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def finished(home: Path) -> tuple[str, list[str]]:
    with work(home) as process:
        said, _ = process.communicate(timeout=120)
    answer, failed = json.loads(said.splitlines()[-1])
    return answer, failed


def mended(home: Path) -> bool:
    return (
        git(home, "log", "--format=%s").split("\n")[:2] == ["mean: 0.0 for no values", "first"]
        and git(home, "show", "HEAD:calc.py").count("if values else 0.0") == 1
    )


def test_a_bug_is_found_mended_tested_and_committed(home: Path) -> None:
    assert finished(home) == ("Mended.", [])
    assert mended(home)
    assert git(home, "status", "--short") == ""


@pytest.mark.parametrize(("at", "unknown"), [("edit", 0), ("again", 1), ("commit", 1)])
def test_a_run_that_is_killed_in_the_middle_goes_on(home: Path, at: str, unknown: int) -> None:
    """Of an edit it is known whether it happened; of a command nobody can know, and the model is told so."""
    with work(home, "--say", at) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == at
        process.kill()

    answer, failed = finished(home)

    assert (answer, failed) == ("Mended.", ["outcome_unknown"] * unknown)
    assert mended(home) == (at != "commit")  # a command that may have run is never run again
