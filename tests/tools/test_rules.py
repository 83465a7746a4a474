"""What "allow this for the run" covers of a command."""

from __future__ import annotations

import pytest

from tool_loop.tools.rules import command_rule
from tool_loop.tools.run import command_line


def rule(*argv: str) -> str:
    return command_rule(argv, command_line(argv))


@pytest.mark.parametrize(
    ("argv", "covers"),
    [
        (("pytest", "-q"), "pytest, with any arguments"),
        (("ruff", "check", "."), "ruff, with any arguments"),
        (("make",), "make, with any arguments"),
        (("git", "status", "-s"), "git status, with any arguments"),
        (("cargo", "test"), "cargo test, with any arguments"),
    ],
)
def test_a_program_is_covered_with_any_arguments(argv: tuple[str, ...], covers: str) -> None:
    assert rule(*argv) == covers


@pytest.mark.parametrize(
    "argv",
    [
        ("python", "-m", "pytest"),
        ("python3.12", "-c", "1"),
        ("/usr/bin/python3", "x.py"),
        ("Python", "x.py"),
        ("bash", "-c", "pytest"),
        ("env", "pytest"),
        ("xargs", "rm"),
        ("find", ".", "-exec", "rm", "{}", ";"),
        ("npx", "thing"),
        ("npm", "run", "build"),
        ("uv", "run", "x.py"),
        ("git", "-c", "core.pager=x", "log"),
        ("git", "config", "core.fsmonitor", "x"),
        ("git",),
        ("./test.sh",),
        ("bin/tool", "x"),
        ("../x",),
        ("-x",),
        ("a b",),
        ("py\u200btest",),
    ],
)
def test_what_can_run_any_program_is_covered_for_exactly_these_arguments(argv: tuple[str, ...]) -> None:
    assert rule(*argv) == f"exactly {command_line(argv)}"


def test_two_commands_of_one_rule_are_told_from_two_that_only_look_alike() -> None:
    assert rule("pytest", "-q") == rule("pytest", "-x")
    assert rule("git", "status") != rule("git", "push")
    assert rule("bash", "-c", "a b") != rule("bash", "-c", "a", "b")
    assert rule("exactly", "pytest") != rule("bash", "-c", "x")
