"""The tools as a model meets them: through the registry, by name, with arguments as text."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tool_loop.errors import UsageError
from tool_loop.events import ToolCall, ToolReturned
from tool_loop.runtime.text import OUTPUT_BYTES
from tool_loop.toolbox.registry import ToolRegistry
from tool_loop.tools import calculator, workspace_tools
from tool_loop.tools.search import Engine

RE = Engine("re", sys.executable)


@pytest.fixture
def registry(tmp_path: Path) -> ToolRegistry:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/agent.py").write_text("class Agent:\n    pass\n")
    return ToolRegistry([*workspace_tools(tmp_path, engine=RE), calculator])


def call(registry: ToolRegistry, name: str, **arguments: object) -> ToolReturned:
    return asyncio.run(registry.run(ToolCall("1", name, json.dumps(arguments))))


def test_the_three_tools_of_a_workspace_and_the_calculator_only_read(registry):
    assert [tool.name for tool in registry] == ["list_dir", "read_file", "grep", "calc"]
    assert {tool.effect for tool in registry} == {"read"}


@pytest.mark.parametrize(
    ("name", "arguments", "content"),
    [
        ("list_dir", {}, "1 entry in .\nsrc/"),
        ("list_dir", {"path": "src"}, "1 entry in src\nagent.py (22 bytes)"),
        ("read_file", {"path": "src/agent.py"}, "lines 1-2 of 2\nclass Agent:\n    pass"),
        ("read_file", {"path": "src/agent.py", "start_line": 2, "end_line": 2}, "lines 2-2 of 2\n    pass"),
        ("read_file", {"path": "src/agent.py", "start_line": 2, "end_line": None}, "lines 2-2 of 2\n    pass"),
        ("grep", {"pattern": "class"}, "1 match in 1 file (Python re)\nsrc/agent.py:1: class Agent:"),
        (
            "grep",
            {"pattern": "CLASS", "path": "src", "glob": "*.py", "context": 1, "ignore_case": True},
            "1 match in 1 file (Python re)\nsrc/agent.py:1: class Agent:\nsrc/agent.py-2-     pass",
        ),
        ("grep", {"pattern": "pass", "glob": None}, "1 match in 1 file (Python re)\nsrc/agent.py:2:     pass"),
        ("calc", {"expression": "15 * 20"}, "300"),
    ],
)
def test_a_call_gives_its_result(registry, name, arguments, content):
    returned = call(registry, name, **arguments)

    assert (returned.content, returned.error) == (content, None)


@pytest.mark.parametrize(
    ("name", "arguments", "error", "message"),
    [
        ("list_dir", {"path": "gone"}, "not_found", "no such directory: gone"),
        ("read_file", {"path": "agent.py"}, "not_found", "no such file: agent.py"),
        ("read_file", {"path": "../x"}, "invalid_argument", "path leaves the workspace: ../x"),
        ("grep", {"pattern": "["}, "invalid_argument", "regex parse error: unterminated character set at position 0"),
        ("calc", {"expression": "1/0"}, "invalid_argument", "division by zero: 1 / 0"),
        ("read_file", {}, "invalid_arguments", None),
        ("read_file", {"path": 1}, "invalid_arguments", None),
        ("read_file", {"path": "a", "start_line": "1"}, "invalid_arguments", None),
        ("read_file", {"path": "a", "start_line": True}, "invalid_arguments", None),
        ("read_file", {"path": "a", "start_line": 1.0}, "invalid_arguments", None),
        ("list_dir", {"path": ".", "depth": 2}, "invalid_arguments", None),
        ("grep", {"pattern": "x", "context": 99}, "invalid_arguments", None),
    ],
)
def test_a_failure_is_data_that_names_what_is_wrong(registry, name, arguments, error, message):
    returned = call(registry, name, **arguments)
    said = json.loads(returned.content)

    assert returned.error == said["error"] == error
    assert message is None or said["message"] == message


def test_a_hint_carries_the_answer(registry):
    said = json.loads(call(registry, "read_file", path="agent.py").content)

    assert said["hint"] == 'a file of that name is at src/agent.py (in the directory "src")'


def test_results_are_shorter_than_what_the_harness_cuts(registry):
    assert all(tool.max_result_chars > OUTPUT_BYTES + 1_500 for tool in registry)


def test_the_calls_of_a_reply_can_run_side_by_side(registry):
    calls = [ToolCall(str(i), "grep", '{"pattern": "class"}') for i in range(4)]
    calls += [ToolCall(str(i), "read_file", '{"path": "src/agent.py"}') for i in range(4, 12)]

    async def main():
        return await asyncio.gather(*map(registry.run, calls))

    assert all(returned.error is None for returned in asyncio.run(main()))


@pytest.mark.parametrize("missing", ["gone", "file"])
def test_a_workspace_that_is_no_directory_is_an_error_of_the_caller(tmp_path, missing):
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match="the workspace "):
        workspace_tools(tmp_path / missing)


def test_the_engine_is_chosen_when_the_tools_are_made(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOL_LOOP_RG", "/no/such/program")

    with pytest.raises(UsageError, match="TOOL_LOOP_RG"):
        workspace_tools(tmp_path)


COST = """
import sys
before = set(sys.modules)
from tool_loop.tools import calculator, workspace_tools
tools = workspace_tools(".")
print(" ".join(sorted(set(sys.modules) - before)))
"""


def test_making_the_tools_loads_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", COST], capture_output=True, text=True, check=True, cwd="/")
    loaded = set(done.stdout.split())

    assert not loaded & {
        "pydantic",
        "httptools",
        "jsonschema_rs",
        "fractions",
        "decimal",
        "difflib",
        "sqlite3",
    }


def test_the_module_and_the_tool_of_one_name_do_not_hide_each_other():
    code = (
        "import tool_loop.tools._calculator; from tool_loop.tools._calculator import calc; "
        "from tool_loop.tools import calculator; from tool_loop import calculator as top; "
        "print(calculator.name, top is calculator, calc('1+1'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["calc", "True", "2"]
