"""Readability as a regression test. When one of these is about to break, find the better split."""

from __future__ import annotations

import ast
import asyncio
import io
import os
import re
import resource
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

from tool_loop import Agent, ScriptedLLM, ToolCall, tool

SRC = Path(__file__).parents[2] / "src" / "tool_loop"
FILES = sorted(SRC.rglob("*.py"))


def prose_lines(path: Path) -> set[int]:
    """The lines that explain: comments of their own, and docstrings."""
    text = path.read_text()
    found: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            doc = node.body[0]
            found.update(range(doc.lineno, (doc.end_lineno or doc.lineno) + 1))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            found.add(token.start[0])
    lines = text.splitlines()
    return {n for n in found if lines[n - 1].strip()}


def test_the_loop_is_one_sitting_long() -> None:
    assert len((SRC / "agent.py").read_text().splitlines()) <= 300


@pytest.mark.parametrize("name", ["agent.py"])
def test_a_third_of_what_matters_most_is_prose_that_says_why(name: str) -> None:
    lines = [line for line in (SRC / name).read_text().splitlines() if line.strip()]

    assert len(prose_lines(SRC / name)) / len(lines) >= 1 / 3


def test_the_loop_knows_only_the_vocabulary_and_the_shield() -> None:
    tree = ast.parse((SRC / "agent.py").read_text())
    froms = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    outside = {n.module for n in froms if not n.level}
    outside |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    inside = {name for n in froms if n.level for name in ([n.module] if n.module else [a.name for a in n.names])}

    assert outside <= {
        "__future__",
        "asyncio",
        "collections",
        "collections.abc",
        "dataclasses",
        "hashlib",
        "itertools",
        "time",
    }
    vocabulary = {"errors", "events", "limits", "ports", "state", "transcript", "runtime.shield"}
    assert {name for name in inside if name.partition(".")[0] != "loop"} <= vocabulary


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_the_reading_order_is_one(name: str) -> None:
    """Each file imports only the ones before it. The last is the loop, whose parts are read when they are called."""
    line = next(
        ln
        for ln in (SRC.parents[1] / name).read_text(encoding="utf-8").splitlines()
        if "](src/tool_loop/errors.py)" in ln
    )
    order = re.findall(r"\(src/tool_loop/(\w+)\.py\)", line)

    assert order[-1] == "agent"
    for place, module in enumerate(order):
        tree = ast.parse((SRC / f"{module}.py").read_text())
        ours = {n.module or n.names[0].name for n in tree.body if isinstance(n, ast.ImportFrom) and n.level}
        assert {one for one in ours if one.partition(".")[0] != "loop"} <= {
            *order[:place],
            "calls_in_prose",
            "permissions",
            "runtime.shield",
        }, module


@pytest.mark.slow
def test_an_event_without_a_case_is_a_type_error(tmp_path: Path) -> None:
    case = "            case RunEnded():\n                self.ended = event\n"
    text = (SRC / "state.py").read_text()
    assert case in text
    copy = tmp_path / "state_copy.py"
    absolute = re.sub(r"from \.(\w*) import", lambda found: f"from tool_loop{found[1] and '.'}{found[1]} import", text)
    copy.write_text(absolute.replace(case, ""))

    command = [sys.executable, "-m", "mypy", "--config-file", SRC.parents[1] / "pyproject.toml", copy]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=SRC.parents[1])

    assert 'unhandled case for values of type "RunEnded"' in done.stdout


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_every_file_fits_a_screenful_of_screens_and_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    longest = max(
        (
            (node.end_lineno or 0) - node.lineno + 1
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
        default=0,
    )

    assert longest <= 60
    assert text.count("\n") <= 350
    assert ast.get_docstring(ast.parse(text))


def test_a_request_passes_through_few_files() -> None:
    @tool(effect="read")
    async def look(at: str) -> str:
        """Look."""
        return at

    # Without the patience around the model, which would be a ninth: a script never makes one wait.
    agent = Agent(ScriptedLLM(ToolCall("1", "look", '{"at": "a"}'), "done"), [look], retry=None)
    agent.run_sync("warm up: schemas and validators are built once")
    agent = Agent(ScriptedLLM(ToolCall("1", "look", '{"at": "a"}'), "done"), agent.tools, retry=None)
    seen: set[str] = set()

    def trace(frame: object, _event: str, _arg: object) -> None:
        path = Path(frame.f_code.co_filename)  # type: ignore[attr-defined]
        # What a record has in common with all others would be in no file if the standard library had made it.
        if path.is_relative_to(SRC) and path.name != "records.py":
            seen.add(str(path.relative_to(SRC)))

    async def main() -> None:
        sys.setprofile(trace)
        try:
            await agent.run("q")
        finally:
            sys.setprofile(None)

    asyncio.run(main())

    # How a run is opened and how it is closed are two of them.
    assert len(seen) <= 13, sorted(seen)


def python(code: str, **env: str) -> str:
    # Not measured: what is being looked at is what is loaded, and measuring loads a lot.
    bare = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=bare | env, timeout=30
    )
    return done.stdout.strip()


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = ("pydantic", "httptools", "jsonschema_rs", "asyncio", "sqlite3")
    code = f"import tool_loop, sys; print([m for m in {heavy} if m in sys.modules])"

    assert python(code) == "[]"


def test_the_help_costs_little_more_than_starting_python() -> None:
    """30 ms is the aim; a busy machine needs a margin, and pydantic alone would be 90 ms more."""

    def cost(*words: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        bare = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
        subprocess.run([sys.executable, *words], capture_output=True, check=True, env=bare, timeout=30)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    bare = min(cost("-c", "pass") for _ in range(3))
    assert min(cost("-m", "tool_loop", "--help") for _ in range(3)) - bare < 0.06


def test_making_an_agent_loads_neither_the_validators_nor_the_http_client() -> None:
    code = (
        "from tool_loop import Agent, ScriptedLLM; Agent(ScriptedLLM('a')).run_sync('q'); import sys;"
        "print([m for m in ('pydantic', 'httptools', 'jsonschema_rs', 'sqlite3') if m in sys.modules])"
    )

    assert python(code) == "[]"
