"""The pytest plugin: fixtures to test an agent with. Installed with the package, nothing to import.

    def test_my_agent_survives(agent_run, scripted_model, faults):
        model = scripted_model(ToolCall("1", "grep", '{"pattern": "x"}'), "found it")
        faults.at_step(2, "overloaded").on_tool("grep", "crash")
        result = agent_run(faults.agent(my_agent, llm=model), "where is x?")
        assert result.answer == "found it"

pytest loads this for everybody who has the package installed, so at the top it imports nothing:
what a fixture needs is loaded when a test asks for it.

PYTEST_DONT_REWRITE: there is no assertion of a test in here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tool_loop.runtime.clock import FakeClock

    from .faults.schedule import Faults
    from .runner import AgentRun


# Whether the test itself has failed: then what it left undone is no news, and would hide the failure.
_FAILED = pytest.StashKey[bool]()


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.when == "call" and call.excinfo is not None:
        item.stash[_FAILED] = True


def _passed(request: pytest.FixtureRequest) -> bool:
    return not request.node.stash.get(_FAILED, False)


@pytest.fixture
def scripted_model(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """`scripted_model(*turns)`: a `ScriptedLLM`. When the test has passed, all its turns must have been asked for."""
    from tool_loop.llm.scripted import ScriptedLLM

    made = []

    def make(*turns: Any, **options: Any) -> ScriptedLLM:
        made.append(ScriptedLLM(*turns, **options))
        return made[-1]

    yield make
    if _passed(request):
        for model in made:
            model.assert_finished()


@pytest.fixture
def faults(request: pytest.FixtureRequest) -> Iterator[Faults]:
    """`Faults`, all of which must have struck by the end; a fault that never struck shows nothing."""
    from .faults.schedule import Faults

    made = Faults()
    yield made
    made.release()
    if _passed(request):
        made.assert_struck()


@pytest.fixture
def fault_server() -> Iterator[Callable[..., Any]]:
    """`fault_server(*behaviours)`: a `FaultServer` that runs until the test is over; its `url` is where."""
    from contextlib import ExitStack

    from .server.server import FaultServer

    with ExitStack() as stack:

        def start(*schedule: Any, **options: Any) -> FaultServer:
            return stack.enter_context(FaultServer(schedule, **options))

        yield start


@pytest.fixture
def fake_clock() -> FakeClock:
    """A wall clock that stands still until it is advanced, and follows virtual time."""
    from tool_loop.runtime.clock import FakeClock

    return FakeClock()


@pytest.fixture
def virtual_run() -> Callable[..., Any]:
    """`virtual_run(coroutine)`: run it in virtual time, where no wait takes any."""
    from tool_loop.runtime.clock import run_virtual

    return run_virtual


@pytest.fixture
def make_workspace(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """`make_workspace({"a.py": "x = 1"})`: a folder with these files (see `tool_loop.testing.workspace`)."""
    from contextlib import ExitStack

    from .workspace import workspace

    with ExitStack() as stack:
        count = 0

        def make(files: Any = None) -> Path:
            nonlocal count
            count += 1
            root = tmp_path / f"workspace-{count}"
            root.mkdir()
            return stack.enter_context(workspace(files, root))

        yield make


@pytest.fixture
def agent_run(request: pytest.FixtureRequest) -> Iterator[AgentRun]:
    """`agent_run(agent, question)`: the `Result` of a run in virtual time, held against the invariants.

    They are checked when the run ends, however it ends, and once more when the test is over.
    """
    from .runner import AgentRun

    runs = AgentRun()
    yield runs
    if _passed(request):
        runs.check()
