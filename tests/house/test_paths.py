"""The paths in docs/architecture.md, walked: the files in the order in which a run first enters them.

python -m tests.house.test_paths        prints the paths as they are today
"""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tool_loop
from tool_loop import Agent, ApprovalDecided, MemoryJournal, PendingApproval, ScriptedLLM, ToolCall, tool
from tool_loop.testing import Faults, ProcessDied, die

SRC = Path(tool_loop.__file__).parent
PAGE = SRC.parents[1] / "docs" / "architecture.md"
LOOK, PAY = ToolCall("1", "look", '{"at": "a"}'), ToolCall("1", "pay", '{"cents": 5}')


@tool(effect="read")
async def look(at: str) -> str:
    """Look."""
    return at


@tool(effect="once")
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


async def allow(shown: PendingApproval) -> ApprovalDecided:
    return ApprovalDecided(shown.call.id, allowed=True, fingerprint=shown.fingerprint)


@contextmanager
def watched(entered: list[str]) -> Iterator[None]:
    """Notes each of our files when a function of it is first called; the bodies of modules and classes are not."""

    def see(frame: object, event: str, _arg: object) -> None:
        code = frame.f_code  # type: ignore[attr-defined]
        path = Path(code.co_filename)
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and path.is_relative_to(SRC):
            name = path.relative_to(SRC).as_posix()
            if name not in entered and name != "__init__.py":
                entered.append(name)

    sys.setprofile(see)
    try:
        yield
    finally:
        sys.setprofile(None)


def request(entered: list[str]) -> None:
    agent = Agent(ScriptedLLM(LOOK, "done"), [look])
    with watched(entered):
        assert agent.run_sync("q").answer == "done"


def failure(entered: list[str]) -> None:
    agent = Agent(ScriptedLLM(ToolCall("1", "look", '{"att": 5}'), "done"), [look])
    with watched(entered):
        assert agent.run_sync("q").answer == "done"


def approval(entered: list[str]) -> None:
    agent = Agent(ScriptedLLM(PAY, "done"), [pay], approve="always", reviewer=allow)
    with watched(entered):
        assert agent.run_sync("q").answer == "done"


def resume(entered: list[str]) -> None:
    journal = MemoryJournal()
    agent = Agent(ScriptedLLM(PAY, "done"), [pay], journal=journal)
    with pytest.raises(ProcessDied):
        Faults().on_tool("pay", die()).agent(agent).run_sync("q", run_id="r")
    again = Agent(ScriptedLLM("it may have been paid"), [pay], journal=journal)
    with watched(entered):
        assert asyncio.run(again.resume("r")).answer == "it may have been paid"


PATHS: dict[str, Callable[[list[str]], None]] = {f.__name__: f for f in (request, failure, approval, resume)}


def walked(name: str) -> list[str]:
    PATHS[name]([])  # once to warm up: schemas and validators are built, and modules loaded, at the first
    entered: list[str] = []
    PATHS[name](entered)
    return entered


@pytest.mark.parametrize("name", PATHS)
def test_the_page_tells_the_files_in_the_order_in_which_they_are_entered(name: str) -> None:
    text = PAGE.read_text(encoding="utf-8").partition(f"<!-- path: {name} -->")[2].partition("<!-- end -->")[0]
    told = re.findall(r"^\d+\. `([\w/]+\.py)`", text, re.MULTILINE)

    assert told == walked(name), "see python -m tests.house.test_paths"


if __name__ == "__main__":
    for path in PATHS:
        print(path, *walked(path), sep="\n    ")  # noqa: T201
