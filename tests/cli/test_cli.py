from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.cli_case import KEY, Cli, cli
from tool_loop import __version__
from tool_loop.cli import COMMANDS, _fill, main
from tool_loop.cli._failure import exit_code, explain
from tool_loop.errors import (
    ConfigurationError,
    FatalError,
    JournalDamaged,
    ProviderError,
    RunBusy,
    UnknownRun,
    UsageError,
)

__all__ = ["cli"]

HEAVY = {"asyncio", "httptools", "pydantic", "jsonschema_rs", "sqlite3", "genai_prices", "opentelemetry"}


def shell(*words: object, code: str = "", **options: object) -> subprocess.CompletedProcess[str]:
    program = ["-c", code] if code else words or ["-m", "tool_loop"]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run([sys.executable, *program], check=False, text=True, timeout=60, **options)


# --- which subcommand ---------------------------------------------------------------------------------


def test_without_arguments_the_help_is_shown_as_a_mistake(cli: Cli) -> None:
    ran = cli()

    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("usage: tool-loop")


def test_the_help_lists_every_command_and_every_exit_code(cli: Cli) -> None:
    ran = cli("--help")

    assert ran.code == 0
    assert all(f"    {name}" in ran.out for name in COMMANDS)
    assert "130 interrupted" in ran.out


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself(cli: Cli, name: str) -> None:
    ran = cli(name, "--help")

    assert ran.code == 0
    assert ran.out.startswith(f"usage: tool-loop {name}")


def test_the_version(cli: Cli) -> None:
    assert cli("--version").out == f"tool-loop {__version__}\n"


@pytest.mark.parametrize(
    "words",
    [["frob"], ["ask", "--frob"], ["ask", "q", "--max-steps", "x"], ["ask", "q", "--timeout", "soon"], ["--frob"]],
)
def test_what_is_not_understood_is_wrong_usage(cli: Cli, words: list[str]) -> None:
    ran = cli(*words)

    assert ran.code == 2
    assert "error:" in ran.err


def test_help_loads_nothing_that_a_run_needs() -> None:
    code = (
        "import sys; from tool_loop.cli import main\n"
        "for words in (['--help'], ['ask', '--help'], ['--version']): assert main(words) == 0\n"
        f"print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)"
    )

    # Not measured: what is being looked at is what is loaded, and measuring loads a lot.
    bare = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    assert shell(code=code, env=bare).stderr.strip() == "[]"


def test_python_m_is_the_command() -> None:
    assert shell("-m", "tool_loop", "--version").stdout == f"tool-loop {__version__}\n"


@pytest.mark.parametrize("door", ["main.py", "demo.py"])
def test_the_doors_in_a_clone_lead_to_the_command(door: str, tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / door
    ran = shell(script, "--help", cwd=tmp_path)

    assert ran.returncode == 0
    assert ran.stdout.startswith(f"usage: tool-loop {'ask' if door == 'main.py' else 'demo'}")


# --- how it ended ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (UnknownRun("x"), 2),
        (RunBusy("x"), 2),
        (ConfigurationError("x"), 3),
        (ImportError("x"), 3),
        (ProviderError("x", kind="auth"), 3),
        (ProviderError("x", kind="not_found"), 3),
        (ProviderError("x", kind="quota"), 3),
        (ProviderError("x", kind="rate_limit"), 4),
        (ProviderError("x", kind="connection"), 4),
        (JournalDamaged("x"), 1),
        (FatalError("x"), 1),
        (ValueError("x"), 1),
    ],
)
def test_exit_codes(error: Exception, code: int) -> None:
    assert exit_code(error) == code


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UsageError("no root"), "tool-loop: no root\n"),
        (ConfigurationError("set one:\n  this\n  or that"), "tool-loop: set one:\n  this\n  or that\n"),
        (OSError(28, "No space left"), "tool-loop: [Errno 28] No space left\n"),
        (
            ImportError("No module named 'httptools'", name="httptools.parser"),
            "tool-loop: httptools is not installed here; install tool-loop with pip, or use the venv it is in\n",
        ),
        (
            ZeroDivisionError("by \x1b[31m0"),
            "tool-loop: internal error: ZeroDivisionError: by \\e[31m0\nTOOL_LOOP_DEBUG=1 shows where it happened.\n",
        ),
    ],
)  # fmt: skip
def test_an_error_is_one_or_two_lines(error: Exception, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    explain(error)

    assert capsys.readouterr().err == said


def test_a_run_that_can_be_resumed_says_how(capsys: pytest.CaptureFixture[str]) -> None:
    explain(ProviderError("500", kind="server_error"), "tool-loop resume 7f3a")
    explain(UnknownRun("none"), "tool-loop resume 7f3a")

    said = capsys.readouterr().err
    assert said == "tool-loop: 500\nNothing was lost; resume with: tool-loop resume 7f3a\ntool-loop: none\n"


def test_debug_shows_the_traceback_and_no_error_shows_the_key(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOL_LOOP_DEBUG", "1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    explain(ValueError(f"Authorization: Bearer {KEY}"))

    said = capsys.readouterr().err
    assert "Traceback" not in said.splitlines()[-1]
    assert "ValueError" in said
    assert KEY not in said
    assert "[key]" in said


# --- streams that are not there -------------------------------------------------------------------------


def test_a_reader_that_went_away_is_no_error_and_leaves_no_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ran = shell("-m", "tool_loop", "demo", stdout=writing)
    os.close(writing)

    assert ran.returncode == 141
    assert ran.stderr == ""


def test_nothing_takes_the_place_of_a_closed_stdout() -> None:
    code = (
        "import os; os.close(1)\n"
        "from tool_loop.cli import main; main(['--version'])\n"
        "os.write(2, os.readlink('/proc/self/fd/1').encode())"
    )

    assert shell(code=code).stderr.endswith("/dev/null")


def test_a_descriptor_that_is_missing_is_filled() -> None:
    missing = os.open(os.devnull, os.O_RDONLY)
    os.close(missing)
    _fill([missing, missing + 50])

    assert os.path.sameopenfile(missing, missing + 50)
    for descriptor in (missing, missing + 50):
        os.close(descriptor)


def test_what_is_buffered_for_a_reader_that_went_away_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        monkeypatch.setattr("sys.stderr", None)
        stream.write("never read")

        assert main(["--version"]) == 141


def test_without_a_stderr_all_else_works(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr", None)

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tool-loop {__version__}\n"


def test_ctrl_c_before_a_run_begins_is_quiet(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupting(io.StringIO):
        def write(self, _text: str) -> int:
            raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdout", Interrupting())

    assert main(["runs", "--journal", str(cli.home / "none"), "--help"]) == 130
