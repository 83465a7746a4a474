"""The model is wrong, reads the error, and corrects itself: why a failure of a tool is data."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.kit.runs import of
from tool_loop import Agent, ScriptedLLM, ToolCall, calculator, tool
from tool_loop.audit.invariants import check
from tool_loop.events import ModelReplied, ToolReturned
from tool_loop.llm.scripted import Sent
from tool_loop.tools import workspace_tools
from tool_loop.transcript import ToolMessage


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "lib" / "queue").mkdir(parents=True)
    (tmp_path / "lib" / "queue" / "store.py").write_text('class Store:\n    """Keeps jobs."""\n')
    (tmp_path / "README.md").write_text("# A queue\n")
    return tmp_path


def reads(word: str):
    """What the model must have before it when it takes this turn."""

    def expects(sent: Sent) -> bool:
        return isinstance(sent.last, ToolMessage) and word in sent.last.content

    return expects


# Each story: what the model does wrong, what it reads, what it does then.
STORIES: dict[str, tuple[ToolCall, str, ToolCall, str]] = {
    "a wrong path: the hint holds the right one": (
        ToolCall("1", "read_file", '{"path": "src/store.py"}'),
        "lib/queue/store.py",
        ToolCall("2", "read_file", '{"path": "lib/queue/store.py"}'),
        "class Store",
    ),
    "a broken regex: the engine says what is wrong with it": (
        ToolCall("1", "grep", '{"pattern": "class Store("}'),
        "invalid_argument",
        ToolCall("2", "grep", '{"pattern": "class Store"}'),
        "store.py:1",
    ),
    "a wrong type: the field is named": (
        ToolCall("1", "read_file", '{"path": "README.md", "start_line": "one"}'),
        "'start_line' must be integer, got str",
        ToolCall("2", "read_file", '{"path": "README.md", "start_line": 1}'),
        "A queue",
    ),
    "a missing field: it is named": (
        ToolCall("1", "read_file", "{}"),
        "'path' is required",
        ToolCall("2", "read_file", '{"path": "README.md"}'),
        "A queue",
    ),
    "an invented field: the real ones are listed": (
        ToolCall("1", "read_file", '{"path": "README.md", "encoding": "utf-8"}'),
        "start_line",
        ToolCall("2", "read_file", '{"path": "README.md"}'),
        "A queue",
    ),
    "a tool that does not exist: the nearest is named": (
        ToolCall("1", "readfile", '{"path": "README.md"}'),
        "read_file",
        ToolCall("2", "read_file", '{"path": "README.md"}'),
        "A queue",
    ),
    "arguments in a code fence: the likely cause is named": (
        ToolCall("1", "read_file", '```json\n{"path": "README.md"}\n```'),
        "fence",
        ToolCall("2", "read_file", '{"path": "README.md"}'),
        "A queue",
    ),
    "a directory read as a file": (
        ToolCall("1", "read_file", '{"path": "lib"}'),
        "list_dir",
        ToolCall("2", "list_dir", '{"path": "lib"}'),
        "queue",
    ),
    "a path out of the root": (
        ToolCall("1", "read_file", '{"path": "../../etc/passwd"}'),
        "invalid_argument",
        ToolCall("2", "list_dir", '{"path": "."}'),
        "README.md",
    ),
    "an expression the calculator refuses": (
        ToolCall("1", "calc", '{"expression": "__import__(1)"}'),
        "invalid_argument",
        ToolCall("2", "calc", '{"expression": "15 * 20"}'),
        "300",
    ),
}


@pytest.mark.parametrize("story", STORIES)
def test_the_model_reads_its_mistake_and_corrects_it(story: str, root: Path) -> None:
    from tool_loop.llm.scripted import Turn

    wrong, told, right, found = STORIES[story]
    script = ScriptedLLM(wrong, Turn(right, expects=reads(told)), Turn("That is it.", expects=reads(found)))

    with script:
        result = asyncio.run(Agent(script, [*workspace_tools(root), calculator]).run("q"))

    assert result.answer == "That is it."
    first, second = of(ToolReturned, result.events)
    assert json.loads(first.content)["error"] == first.error
    assert second.error is None
    assert check(result.events) == []


def test_a_hint_that_is_only_half_right_costs_one_more_step_and_no_more(root: Path) -> None:
    script = ScriptedLLM(
        ToolCall("1", "read_file", '{"path": "app/main.py"}'),
        ToolCall("2", "list_dir", '{"path": "app"}'),
        ToolCall("3", "list_dir", '{"path": "."}'),
        "There is no app, only lib.",
    )

    result = asyncio.run(Agent(script, workspace_tools(root)).run("q"))

    assert [r.error for r in of(ToolReturned, result.events)] == ["not_found", "not_found", None]
    assert result.answer == "There is no app, only lib."


def test_a_crashed_tool_is_not_hidden_the_model_goes_another_way(root: Path) -> None:
    @tool(effect="read")
    def index() -> str:
        """Look the answer up."""
        raise ZeroDivisionError

    script = ScriptedLLM(
        ToolCall("1", "index"), ToolCall("2", "grep", '{"pattern": "Store"}'), "In lib/queue/store.py."
    )

    result = asyncio.run(Agent(script, [index, *workspace_tools(root)]).run("q"))

    assert [r.error for r in of(ToolReturned, result.events)] == ["tool_crashed", None]
    assert "repeating this will not help" in of(ToolReturned, result.events)[0].content.lower()


def test_a_model_that_answers_in_prose_after_an_error_is_taken_at_its_word(root: Path) -> None:
    script = ScriptedLLM(ToolCall("1", "read_file", '{"path": "no"}'), "I could not find it.")

    result = asyncio.run(Agent(script, workspace_tools(root)).run("q"))

    assert (result.answer, result.reason) == ("I could not find it.", "answered")
    assert len(of(ModelReplied, result.events)) == 2
