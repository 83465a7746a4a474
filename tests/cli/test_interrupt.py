"""Ctrl-C, a second one, and the other ways in which a run is told to stop; as real processes on a real pty."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.screen import Pty, pty
from tool_loop.cli._interrupt import Interrupts
from tool_loop.events import ToolCall
from tool_loop.journal.sqlite import SqliteJournal
from tool_loop.testing import Behaviour, FaultServer, Received, Response, ok_chat

SECONDS = 20.0


@dataclass
class Running:
    process: subprocess.Popen[bytes]
    it: Pty
    state: Path

    def end(self) -> int:
        return self.process.wait(SECONDS)

    @property
    def screen(self) -> str:
        return str(self.it.read())


@contextmanager
def running(server: FaultServer, tmp_path: Path, *words: str) -> Iterator[Running]:
    """The command as a process whose three streams are one terminal."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "TERM": "xterm",
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "OPENAI_MODEL": "m",
    }
    with pty(120) as it:
        process = subprocess.Popen(
            [sys.executable, "-m", "tool_loop", *words],
            env=env, cwd=tmp_path, stdin=it.slave, stdout=it.slave, stderr=it.slave, start_new_session=True,
        )  # fmt: skip
        try:
            yield Running(process, it, tmp_path / ".local/state/tool-loop/runs.sqlite")
        finally:
            process.kill()
            process.wait()


def silence(asked: threading.Event) -> Behaviour:
    """No answer, and word of the request."""

    def respond(_request: Received) -> Response:
        asked.set()
        return Response(wait=60)

    return Behaviour("silence", respond)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_ends_the_run_so_that_it_can_be_resumed(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    asked = threading.Event()
    with FaultServer([silence(asked)]) as server, running(server, tmp_path, "ask", "q") as run:
        assert asked.wait(SECONDS)
        run.process.send_signal(number)
        ended = run.end()
        screen = run.screen
        with SqliteJournal(run.state) as journal:
            info = journal.runs()[0]

    assert ended == code
    assert screen.splitlines() == [
        "     note: stopping; Ctrl-C again quits at once",
        f"Interrupted. Resume with: tool-loop resume {info.id}",
    ]
    assert info.state == "interrupted"


STUBBORN = """
import asyncio, subprocess
from pathlib import Path
from tool_loop import tool

@tool(effect="read")
async def stubborn() -> str:
    "Never ends, and does not listen."
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            with Path("told").open("w") as told:
                told.write(str(child.pid))
            import time
            time.sleep(60)
"""


def test_the_second_one_quits_at_once_and_leaves_no_child(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(STUBBORN)
    os.mkfifo(tmp_path / "told")
    call = ToolCall("c1", "stubborn", "{}")
    with (
        FaultServer([ok_chat("", [call])]) as server,
        running(server, tmp_path, "ask", "q", "--tools", "mine.py:stubborn") as run,
    ):
        while "stubborn" not in run.screen:
            run.it.wait(SECONDS)
        run.process.send_signal(signal.SIGINT)
        child = int((tmp_path / "told").read_text())  # it has been told, and does not end
        run.process.send_signal(signal.SIGINT)
        code = run.end()
        screen = run.screen

    assert code == 130
    assert "Interrupted." not in screen
    assert _gone(child)


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_person_at_the_terminal_decides_and_the_run_goes_on(tmp_path: Path) -> None:
    call = ToolCall("c1", "list_dir", "{}")
    with (
        FaultServer([ok_chat("", [call]), ok_chat("Done.")]) as server,
        running(server, tmp_path, "ask", "q", "--approve", "always") as run,
    ):
        while "[y] allow once" not in run.screen:
            run.it.wait(SECONDS)
        run.it.type("y\n")
        while "Done." not in run.screen:
            run.it.wait(SECONDS)
        code = run.end()
        screen = run.screen

    assert code == 0
    assert "list_dir wants to run" in screen
    assert "     list_dir: allowed by " in screen
    assert "\n   ✓ list_dir" in screen or "\n 1 ✓ list_dir" in screen


# --- in this process ------------------------------------------------------------------------------------


def stopped(numbers: Sequence[int], quit_codes: list[int]) -> tuple[int, list[str]]:
    """Raise these signals, one after another, in a task that waits; its exit code and what was told."""
    told: list[str] = []

    async def main() -> int:
        task = asyncio.current_task()
        assert task is not None
        with Interrupts(task, lambda: told.append("stopping"), quit_codes.append) as interrupts:
            try:
                for number in numbers:
                    signal.raise_signal(number)
                await asyncio.sleep(SECONDS)
            except asyncio.CancelledError:
                return interrupts.exit_code
        raise AssertionError

    return asyncio.run(main()), told


def test_one_signal_cancels_and_a_second_quits() -> None:
    codes: list[int] = []

    assert stopped([signal.SIGINT], codes) == (130, ["stopping"])
    assert codes == []
    assert stopped([signal.SIGHUP, signal.SIGINT], codes) == (129, ["stopping"])
    assert codes == [130]


def test_a_second_signal_kills_the_children() -> None:
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    stopped([signal.SIGINT, signal.SIGINT], [])

    assert child.wait(SECONDS) == -signal.SIGKILL


def test_handlers_are_put_back_and_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    mine = signal.getsignal(signal.SIGINT)
    try:
        assert stopped([signal.SIGHUP, signal.SIGINT], [])[0] == 130
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGHUP, before)


def test_in_another_thread_it_does_nothing() -> None:
    codes: list[int] = []

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        with Interrupts(task, print) as interrupts:
            codes.append(interrupts.received)

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    thread.join(SECONDS)

    assert codes == [0]
