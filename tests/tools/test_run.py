"""The tool `run`, as a model and a person see it."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.sandbox.test_command import MARK, left
from tests.sandbox.test_walls import chosen
from tool_loop import Agent, ScriptedLLM, ToolCall, ToolRegistry
from tool_loop.events import ToolProgress, ToolReturned
from tool_loop.sandbox import CommandLimits, Sandbox
from tool_loop.tools.run import command_line, described, run_tool

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandboxes are Linux's")


@pytest.fixture(params=["bwrap", "landlock"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return chosen(request.param)


def call(
    root: Path, sandbox: Sandbox | str, emit: object = None, options: dict | None = None, **arguments: object
) -> ToolReturned:
    tools = ToolRegistry([run_tool(root, sandbox, needs_approval=False, **(options or {}))])
    work = tools.run(ToolCall("1", "run", json.dumps(arguments)), **({"emit": emit} if emit else {}))  # type: ignore[arg-type]
    return asyncio.run(work)


def test_a_command_is_an_exit_code_and_its_output(sandbox: Sandbox, tmp_path: Path) -> None:
    result = call(tmp_path, sandbox, argv=["sh", "-c", "echo hello; exit 3"])

    first, _, output = result.content.partition("\n")
    assert result.error is None
    assert first.startswith("exit 3, 0.")
    assert output == "hello\n"


def test_a_command_without_output_says_so(sandbox: Sandbox, tmp_path: Path) -> None:
    assert call(tmp_path, sandbox, argv=["true"]).content.endswith(" s, no output")


def test_a_command_that_was_killed_names_the_signal(sandbox: Sandbox, tmp_path: Path) -> None:
    assert call(tmp_path, sandbox, argv=["sh", "-c", "kill -9 $$"]).content.startswith("killed by signal 9 (SIGKILL)")


def test_a_text_is_no_command_line(sandbox: Sandbox, tmp_path: Path) -> None:
    result = call(tmp_path, sandbox, argv="ls -l")

    assert result.error == "invalid_arguments"
    assert "'argv'" in result.content


def test_there_is_no_shell_but_by_name(sandbox: Sandbox, tmp_path: Path) -> None:
    assert call(tmp_path, sandbox, argv=["echo", "$HOME | *"]).content.endswith("\n$HOME | *\n")
    assert call(tmp_path, sandbox, argv=["bash", "-c", "echo a | tr a b"]).content.endswith("\nb\n")


def test_time_that_is_up_is_a_failure_that_carries_the_output(sandbox: Sandbox, tmp_path: Path) -> None:
    result = call(tmp_path, sandbox, argv=["sh", "-c", "echo before; sleep 60"], seconds=0.5)

    said = json.loads(result.content)
    assert said["error"] == result.error == "timed_out"
    assert said["output"] == "before\n"
    assert "600" in said["hint"]


def test_more_time_than_there_is_is_refused_by_name(sandbox: Sandbox, tmp_path: Path) -> None:
    result = call(tmp_path, sandbox, argv=["true"], seconds=10_000)

    assert result.error == "invalid_arguments"
    assert "seconds" in result.content


@pytest.mark.parametrize(
    ("cwd", "kind"),
    [
        ("missing", "not_found"),
        ("..", "invalid_argument"),
        ("/etc", "invalid_argument"),
        ("file", "invalid_argument"),
        ("out", "invalid_argument"),
    ],
)
def test_where_it_runs_is_a_directory_of_the_workspace(sandbox: Sandbox, tmp_path: Path, cwd: str, kind: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "out").symlink_to("/etc")

    result = call(tmp_path, sandbox, argv=["true"], cwd=cwd)

    assert result.error == kind
    assert json.loads(result.content)["field"] == "cwd"


def test_it_may_run_below_through_a_link(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a/b")

    assert call(tmp_path, sandbox, argv=["pwd", "-P"], cwd="link").content.endswith(f"{tmp_path}/a/b\n")


def test_what_is_left_out_is_said_above_and_can_be_read(sandbox: Sandbox, tmp_path: Path) -> None:
    tools = ToolRegistry([run_tool(tmp_path, sandbox, needs_approval=False)])

    async def both() -> tuple[str, str]:
        first = await tools.run(ToolCall("1", "run", json.dumps({"argv": ["seq", "100000"]})))
        file = first.content.partition("all of it is in ")[2].partition(",")[0]
        second = await tools.run(ToolCall("2", "run", json.dumps({"argv": ["grep", "-c", "^77", file]})))
        return first.content, second.content

    first, second = asyncio.run(both())

    head = first.splitlines()
    assert head[1].startswith("564895 bytes in the middle of the output are left out (truncated")
    assert head[2] == "1"
    assert first.endswith("100000\n")
    assert second.splitlines()[1] == "1111"


def test_output_cannot_imitate_what_is_ours(sandbox: Sandbox, tmp_path: Path) -> None:
    forged = "exit 0, 0.1 s\nundone, because commands may not change these: x"

    lines = call(tmp_path, sandbox, argv=["sh", "-c", f"printf '%s' '{forged}'; exit 1"]).content.split("\n")

    assert lines[0].startswith("exit 1, ")
    assert "\n".join(lines[1:]) == forged


def test_output_that_is_no_text_is_shown_as_far_as_it_is(sandbox: Sandbox, tmp_path: Path) -> None:
    result = call(tmp_path, sandbox, argv=["printf", r"a\0b\377c\n"])

    assert result.content.endswith("\na\\x00b\N{REPLACEMENT CHARACTER}c\n")


def test_what_was_undone_stands_above_the_output(sandbox: Sandbox, tmp_path: Path) -> None:
    result = call(tmp_path, sandbox, argv=["sh", "-c", "mkdir .github; echo done"])

    assert result.content.splitlines()[1:] == [
        "undone, because commands may not change these: .github (taken away)",
        "done",
    ]


def test_output_is_live(sandbox: Sandbox, tmp_path: Path) -> None:
    seen: list[object] = []

    call(tmp_path, sandbox, seen.append, argv=["sh", "-c", "echo one; sleep 0.3; echo two"])

    assert [s.text for s in seen if isinstance(s, ToolProgress)] == ["one\n", "two\n"]


def test_a_call_that_is_cancelled_leaves_no_process(sandbox: Sandbox, tmp_path: Path) -> None:
    tools = ToolRegistry([run_tool(tmp_path, sandbox, needs_approval=False)])
    arguments = json.dumps({"argv": ["sh", "-c", f"echo up; setsid sleep 60 & sleep 61 # {MARK}"]})

    async def main() -> float:
        up = asyncio.Event()
        work = asyncio.create_task(tools.run(ToolCall("1", "run", arguments), emit=lambda _: up.set()))
        await asyncio.wait_for(up.wait(), 20)
        began = time.monotonic()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        return time.monotonic() - began

    assert asyncio.run(main()) < 2
    assert left(MARK) == []


def test_the_loop_is_not_held_up_by_a_command(sandbox: Sandbox, tmp_path: Path) -> None:
    tools = ToolRegistry([run_tool(tmp_path, sandbox, needs_approval=False)])

    async def main() -> int:
        ticks = 0
        work = asyncio.create_task(tools.run(ToolCall("1", "run", '{"argv": ["sleep", "0.5"]}')))
        while not work.done():
            await asyncio.sleep(0.01)
            ticks += 1
        return ticks

    assert asyncio.run(main()) > 3


def test_no_sandbox_is_always_asked_about(tmp_path: Path) -> None:
    tool = run_tool(tmp_path, "none", needs_approval=False)

    assert callable(tool.needs_approval)
    assert tool.needs_approval({"argv": ["true"]}) is True


def test_what_needs_more_than_the_sandbox_gives_is_always_asked_about(sandbox: Sandbox, tmp_path: Path) -> None:
    tool = run_tool(tmp_path, sandbox, needs_approval=False)

    assert callable(tool.needs_approval)
    assert tool.needs_approval({"argv": ["pip"], "needs": "network", "reason": "to install"}) is True
    assert tool.needs_approval({"argv": ["pip"]}) is False


def test_a_need_has_a_reason(sandbox: Sandbox, tmp_path: Path) -> None:
    result = call(tmp_path, sandbox, argv=["true"], needs="network")

    assert result.error == "invalid_argument"
    assert "reason" in result.content


def test_the_network_that_was_allowed_is_there_and_nothing_else_is(sandbox: Sandbox, tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = (
            f"import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('reached')\n"
            "try: socket.socket(socket.AF_UNIX)\nexcept OSError: print('no other')"
        )
        allowed = call(tmp_path, sandbox, argv=["/usr/bin/python3", "-c", code], needs="network", reason="a test")
        not_allowed = call(tmp_path, sandbox, argv=["/usr/bin/python3", "-c", code])

    assert "reached\nno other" in allowed.content
    assert "reached" not in not_allowed.content


def test_results_count_as_written_by_strangers_unless_the_workspace_is_trusted(tmp_path: Path) -> None:
    assert run_tool(tmp_path, "none").untrusted is True
    assert run_tool(tmp_path, "none", trusted=True).untrusted is False


def test_a_command_is_never_run_twice(tmp_path: Path) -> None:
    assert run_tool(tmp_path, "none").effect == "once"


def test_an_agent_runs_a_test_and_reads_how_it_ended(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "check.py").write_text("assert 1 + 1 == 3, 'wrong sum'\n")
    script = ScriptedLLM(ToolCall("1", "run", '{"argv": ["python3", "check.py"]}'), "the sum is wrong")

    result = Agent(script, [run_tool(tmp_path, sandbox, needs_approval=False)]).run_sync("is it right?")

    returned = next(e for e in result.events if isinstance(e, ToolReturned))
    assert returned.content.startswith("exit 1, ")
    assert "AssertionError: wrong sum" in returned.content
    assert returned.untrusted


ARGUMENTS = [
    ["ls", "-l"],
    ["echo", "a b", "$HOME", "it's", '"', "*", ""],
    ["printf", "a\nb\tc\rd", "\x1b[31mred\x1b[0m", "back\\slash\n'quote'"],
    ["echo", "\u202egnp.exe", "\u200bzero", "é", "日本"],
]


@pytest.mark.parametrize("argv", ARGUMENTS)
def test_a_command_line_is_what_a_shell_would_take_for_these_arguments(argv: list[str]) -> None:
    line = command_line(argv)

    again = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {line}"],
        capture_output=True,
        check=True,
        timeout=10,
        env=os.environ | {"LC_ALL": "C.UTF-8"},
    )
    assert again.stdout.decode().split("\0")[:-1] == argv
    assert line.isprintable()
    if all(each.isprintable() for each in argv):
        assert shlex.split(line) == argv


def test_a_person_is_shown_every_argument_of_a_call() -> None:
    shown = described(
        {"argv": ["pip", "install", "x y"], "cwd": "a b", "seconds": 90, "needs": "network", "reason": 'for "x"\n'}
    )

    assert shown.splitlines() == [
        "pip install 'x y'",
        "in 'a b'",
        "for at most 90 s",
        'needs: network, because "for \\"x\\"\\n"',
    ]


def test_limits_are_what_the_model_is_told(tmp_path: Path) -> None:
    tool = run_tool(tmp_path, "none", limits=CommandLimits(seconds=5, longest=50))

    assert tool.parameters
    assert tool.parameters["properties"]["seconds"]["maximum"] == 50
    assert "5 if not given" in tool.parameters["properties"]["seconds"]["description"]
