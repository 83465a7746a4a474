"""The command line in tests: run in this process, against a server of our own, with an empty home."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tool_loop.cli import main
from tool_loop.events import ToolCall
from tool_loop.journal.sqlite import SqliteJournal
from tool_loop.testing import Behaviour, FaultServer, ok_chat

KEY = "sk-test-0123456789abcdef"
_OURS = ("OPENAI_", "ANTHROPIC_", "TOOL_LOOP_", "XDG_", "NO_COLOR", "FORCE_COLOR")


@dataclass
class Ran:
    code: int
    out: str
    err: str


@dataclass
class Cli:
    """`cli("ask", "why?")` is the command in a shell. `home` holds what it saves, `root` is where it stands."""

    home: Path
    root: Path
    patch: pytest.MonkeyPatch
    capture: pytest.CaptureFixture[str]
    server: FaultServer | None = None
    env: dict[str, str] = field(default_factory=dict)

    def __call__(self, *words: str, stdin: bytes | None = None, env: Mapping[str, str] | None = None) -> Ran:
        with self.patch.context() as patch:
            for name in os.environ:
                if name.startswith(_OURS):
                    patch.delenv(name)
            for name, value in {"XDG_STATE_HOME": str(self.home), **self.env, **(env or {})}.items():
                patch.setenv(name, value)
            patch.chdir(self.root)
            with (Path(os.devnull) if stdin is None else self._piped(stdin)).open(encoding="utf-8") as given:
                patch.setattr("sys.stdin", given)
                self.capture.readouterr()
                code = main(words)
        captured = self.capture.readouterr()
        return Ran(code, captured.out, captured.err)

    def _piped(self, data: bytes) -> Path:
        path = self.home / "stdin"
        path.write_bytes(data)
        return path

    @property
    def journal(self) -> SqliteJournal:
        return SqliteJournal(self.home / "tool-loop" / "runs.sqlite")

    def serve(self, *schedule: Behaviour) -> FaultServer:
        """A server for the block, and the environment that names it."""
        self.server = FaultServer(schedule)
        return self.server

    def at(self, server: FaultServer, key: str = KEY) -> None:
        self.env = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_MODEL": "m", "OPENAI_API_KEY": key}


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    home, root = tmp_path / "home", tmp_path / "root"
    home.mkdir()
    root.mkdir()
    (root / "agent.py").write_text("def next_move():\n    return None\n")
    return Cli(home, root, monkeypatch, capsys)


READ = ToolCall("c1", "read_file", '{"path": "agent.py"}')
MISSING = ToolCall("c1", "read_file", '{"path": "src/agent.py"}')


def looks(*calls: ToolCall) -> Behaviour:
    return ok_chat("", calls or (READ,))
