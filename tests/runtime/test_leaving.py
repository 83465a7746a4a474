"""A program that is told to leave does, whatever a tool still does. As real processes: it is their end that counts."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tool_loop import Agent, ScriptedLLM, ToolCall, tool
from tool_loop.runtime.leaving import lingering, run

SRC = str(Path(__file__).parents[2] / "src")
SECONDS = 20.0

TOOLS = """
import asyncio, threading, time
from tool_loop import Agent, ScriptedLLM, ToolCall, tool

@tool(effect="read", timeout_seconds=0.2)
async def stubborn() -> str:
    "Ignore every cancellation."
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("no", flush=True)

@tool(effect="read", timeout_seconds=0.2)
async def on_the_loops_thread() -> str:
    "Hang on a thread of the event loop."
    return await asyncio.to_thread(time.sleep, 30)

@tool(effect="read")
async def waits() -> str:
    "Wait."
    print("waiting", flush=True)
    await asyncio.sleep(60)
    return ""

def agent(name):
    return Agent(ScriptedLLM(ToolCall("1", name), "done"), [stubborn, on_the_loops_thread, waits])
"""


def python(code: str, *words: str, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", TOOLS + textwrap.dedent(code), *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": SRC}, **options,
    )  # type: ignore[call-overload, no-any-return]  # fmt: skip


def ended(process: subprocess.Popen[str]) -> tuple[str, int]:
    try:
        out, _ = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    return out, process.returncode


def test_a_tool_that_ignores_its_cancellation_does_not_keep_a_program_from_ending() -> None:
    out, code = ended(python("print(agent('stubborn').run_sync('q').answer)"))

    assert (out.split()[-1], code) == ("done", 0)


def test_a_run_returns_while_a_function_hangs_on_a_thread_of_the_loop() -> None:
    code = """
        import os
        print(agent('on_the_loops_thread').run_sync('q').answer, flush=True)
        os._exit(0)  # Python itself would wait for the thread
    """
    began = time.monotonic()
    out, _ = ended(python(code))

    assert out == "done\n"
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("name", ["stubborn", "on_the_loops_thread"])
def test_the_command_line_leaves_whatever_a_tool_still_does(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TOOLS + f"agent_ = agent({name!r})\n")
    began = time.monotonic()
    code = "import sys; from tool_loop.cli import main; sys.exit(main(['ask', 'q', '--agent', sys.argv[1]]))"
    out, returned = ended(python(code, str(tmp_path / "mine.py:agent_"), cwd=tmp_path))

    assert "done" in out.split()
    assert returned == 0
    assert time.monotonic() - began < 15


# --- Ctrl-C ---------------------------------------------------------------------------------------


def test_ctrl_c_ends_run_sync() -> None:
    process = python("""
        try:
            agent('waits').run_sync('q')
        except KeyboardInterrupt:
            print("interrupted")
    """)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)

    assert ended(process) == ("interrupted\n", 0)


# The system's resolver, which hangs. What is looked up is a name; an address is connected to as it is.
HANGING = """
    import os, socket, sys, threading
    def hang(*_, **__):
        print("looking up", flush=True)
        threading.Event().wait(60)
    socket.getaddrinfo = hang
    from tool_loop.cli import main
    sys.exit(main(["ask", "q", "--no-save", "--base-url", "http://model.example.com/v1", "--model", "m"]))
"""


def test_ctrl_c_ends_the_process_while_a_name_is_looked_up(tmp_path: Path) -> None:
    process = python(HANGING, cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "looking up\n"
    began = time.monotonic()
    process.send_signal(signal.SIGINT)

    assert ended(process)[1] == 130
    assert time.monotonic() - began < 5


def test_a_second_ctrl_c_quits_while_what_was_interrupted_is_being_left(tmp_path: Path) -> None:
    code = """
        import sys, time
        import tool_loop.runtime.leaving as leaving
        from tool_loop.cli import main

        @tool(effect="read")
        async def slow_to_leave() -> str:
            "Hold the event loop itself up, once it is told to stop."
            print("waiting", flush=True)
            try:
                await asyncio.sleep(60)
            finally:
                print("holding", flush=True)
                time.sleep(60)
            return ""

        import types
        sys.modules["mine"] = types.ModuleType("mine")
        sys.modules["mine"].agent = Agent(ScriptedLLM(ToolCall("1", "slow_to_leave"), "done"), [slow_to_leave])
        sys.exit(main(["ask", "q", "--no-save", "--agent", "mine:agent"]))
    """
    process = python(code, cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "holding\n"
    began = time.monotonic()
    process.send_signal(signal.SIGINT)

    assert ended(process)[1] == 130
    assert time.monotonic() - began < 5


# --- the pieces -----------------------------------------------------------------------------------


def test_what_is_left_behind_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    over = False

    async def never_stops() -> None:
        while not over:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)

    kept: list[asyncio.Task[None]] = []

    async def main() -> str:
        kept.append(asyncio.ensure_future(never_stops()))
        await asyncio.sleep(0)
        return "over"

    with caplog.at_level(logging.WARNING):
        assert run(main()) == "over"

    assert "left a task behind" in caplog.text
    assert "never_stops" in caplog.text
    over = True
    kept[0]._log_destroy_pending = False
    kept[0].get_coro().close()


def test_a_generator_that_does_not_close_is_left() -> None:
    async def numbers():
        try:
            yield 1
        finally:
            await asyncio.sleep(60)

    async def main() -> int:
        async for n in numbers():
            return n
        return 0

    began = time.monotonic()

    assert run(main()) == 1
    assert time.monotonic() - began < 10


def test_tasks_that_clean_up_are_waited_for() -> None:
    seen: list[str] = []

    async def tidy() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            seen.append("clean")

    async def main() -> None:
        asyncio.ensure_future(tidy())  # noqa: RUF006
        await asyncio.sleep(0)

    run(main())

    assert seen == ["clean"]


def test_a_thread_of_the_loop_that_is_still_at_work_is_known() -> None:
    go = threading.Event()

    async def main() -> None:
        asyncio.get_running_loop().run_in_executor(None, go.wait)

    run(main())
    try:
        assert lingering(0.01)
    finally:
        go.set()
    assert not lingering(10)


def test_a_run_inside_of_a_tools_thread_is_a_run_of_its_own() -> None:
    @tool(effect="read")
    def ask_another() -> str:
        """Ask another agent, from a plain function."""
        return Agent(ScriptedLLM("inner")).run_sync("q").answer

    result = Agent(ScriptedLLM(ToolCall("1", "ask_another"), "outer"), [ask_another]).run_sync("q")

    assert result.answer == "outer"
    assert [e.content for e in result.events if hasattr(e, "call_id")] == ["inner"]
