# ruff: noqa: T201  it is a command
"""A bug in a small real repository is found, mended, tested and committed, by a scripted model with real tools.

    python -m tests.tools.real_work DIRECTORY [--say CALL]

`--say` prints the id of that call when it starts, so that whoever started this can kill it there. Run again
it goes on with the same run.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from tool_loop import Agent, ToolCall, coding_tools
from tool_loop.events import Event, ModelReplied, Signal, ToolReturned, ToolRunning
from tool_loop.journal.sqlite import SqliteJournal
from tool_loop.ports import Emit, Request
from tool_loop.transcript import AssistantMessage

SOURCE = '''\
def mean(values):
    """The arithmetic mean; 0.0 for no values."""
    return sum(values) / len(values)
'''
TEST = """\
import unittest

from calc import mean


class TestMean(unittest.TestCase):
    def test_of_some(self):
        self.assertEqual(mean([1, 2, 3]), 2)

    def test_of_none(self):
        self.assertEqual(mean([]), 0.0)
"""


def call(call_id: str, name: str, **arguments: object) -> ToolCall:
    return ToolCall(call_id, name, json.dumps(arguments))


CHECK = ["python3", "-B", "-m", "unittest", "-q"]
STEPS = (
    call("test", "run", argv=CHECK),
    call("find", "grep", pattern=r"def mean\("),
    call("read", "read_file", path="calc.py"),
    call("edit", "edit_file", path="calc.py", old="len(values)\n", new="len(values) if values else 0.0\n"),
    call("again", "run", argv=CHECK),
    call("commit", "run", argv=["git", "commit", "-qam", "mean: 0.0 for no values"]),
    call("log", "run", argv=["git", "log", "--format=%s"]),
)


class Model:
    async def reply(self, request: Request, _emit: Emit) -> ModelReplied:
        step = sum(isinstance(message, AssistantMessage) for message in request.transcript.messages)
        return ModelReplied("", (STEPS[step],), "tool_calls") if step < len(STEPS) else ModelReplied("Mended.")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--say", default="")
    options = parser.parse_args()
    home: Path = options.directory

    def watch(happening: Event | Signal) -> None:
        if isinstance(happening, ToolRunning) and happening.call.id == options.say:
            print(options.say, flush=True)
            if options.say != "edit":  # an edit is killed while it works, or after
                time.sleep(60)

    journal = SqliteJournal(home / "runs.db", lease_seconds=0.5)
    agent = Agent(Model(), coding_tools(home / "repo", auto=True, allow=["git"]), journal=journal)
    result = agent.run_sync("Mend test_of_none and commit.", run_id="r", on_event=watch)
    failed = [e.error for e in result.run_events if isinstance(e, ToolReturned) and e.error]
    print(json.dumps([result.answer, failed]))


if __name__ == "__main__":
    main()
