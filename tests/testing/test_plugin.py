"""The pytest plugin, in the tests of somebody who has the package installed; and its documentation."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tool_loop import Agent, Limits, MemoryJournal, ScriptedLLM, ToolCall, tool
from tool_loop.errors import UnknownRun
from tool_loop.events import ModelReplied, RunEnded, ToolReturned
from tool_loop.testing import AgentRun, InvariantBroken

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]

# Other plugins cost more than what is tested here.
QUIET = [
    word
    for name in ("xdist", "cacheprovider", "hypothesispytest", "_hypothesis_pytestplugin")
    for word in ("-p", f"no:{name}")
]

PREAMBLE = """
from tool_loop import Agent, Limits, ScriptedLLM, ToolCall, tool

@tool(effect="read")
async def look(at: str) -> str:
    "Look."
    return f"at {at}"

LOOK = ToolCall("1", "look", '{"at": "home"}')
"""


def passed(pytester: pytest.Pytester, code: str, **expected: int) -> pytest.RunResult:
    """The outcome of a test file, with nothing imported and nothing configured."""
    pytester.makepyfile(PREAMBLE + code)
    result = pytester.runpytest_inprocess(*QUIET)
    result.assert_outcomes(**expected)
    return result


def test_the_fixtures_are_there_without_an_import(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--fixtures", *QUIET)

    names = ("scripted_model", "faults", "fault_server", "fake_clock", "virtual_run", "make_workspace", "agent_run")
    result.stdout.fnmatch_lines_random([f"{name}*plugin.py*" for name in names])


def test_an_agent_is_run_with_a_script_and_faults(pytester: pytest.Pytester) -> None:
    passed(
        pytester,
        """
def test_it(agent_run, scripted_model, faults):
    model = scripted_model(LOOK, "found it")
    faults.at_step(2, "overloaded").on_tool("look", "crash")
    result = agent_run(faults.agent(Agent(model, [look])), "where?")
    assert result.answer == "found it"
    assert [failure.error for failure in result.failures] == ["tool_crashed"]
""",
        passed=1,
    )


def test_every_other_fixture_does_what_it_says(pytester: pytest.Pytester) -> None:
    passed(
        pytester,
        """
import asyncio
from urllib.request import urlopen
from tool_loop.testing import ok_json

def test_server(fault_server):
    server = fault_server(ok_json({"a": 1}), max_seconds=5)
    assert urlopen(server.url, data=b"x").status == 200
    server.assert_done()

def test_clock(fake_clock, virtual_run):
    before = fake_clock.now()
    virtual_run(fake_clock.sleep(3600))
    assert fake_clock.slept == [3600]

def test_workspace(make_workspace):
    one, other = make_workspace({"a/b.txt": "hello"}), make_workspace()
    assert (one / "a/b.txt").read_text() == "hello"
    assert list(other.iterdir()) == []

def test_real_time_and_follow_ups(agent_run, scripted_model):
    agent = Agent(scripted_model("one", "two", "three"))
    first = agent_run(agent, "q", real_time=True, run_id="r")
    assert agent_run(agent, "and?", continue_run="r").answer == "two"
    assert agent_run.resume(agent, "r").answer == "two"
    assert agent_run(agent, "another").run_id != "r"
""",
        passed=4,
    )


def test_what_was_left_over_fails_the_test(pytester: pytest.Pytester) -> None:
    result = passed(
        pytester,
        """
def test_turns(agent_run, scripted_model):
    agent_run(Agent(scripted_model("done", "never")), "q")

def test_faults(agent_run, faults):
    agent_run(faults.at_step(2, "auth").agent(Agent(ScriptedLLM("done"))), "q")
""",
        passed=2,
        errors=2,
    )
    result.stdout.fnmatch_lines(["*1 of 2 turns were never asked for*", "*never struck: auth() at step 2*"])


def test_what_was_left_over_does_not_hide_why_a_test_failed(pytester: pytest.Pytester) -> None:
    passed(
        pytester,
        """
def test_it(agent_run, scripted_model, faults):
    scripted_model("never")
    faults.at_step(1, "auth")
    assert agent_run
    assert not agent_run
""",
        failed=1,
    )


BROKEN = """
class Forgetful:
    "A journal that loses a result."
    def __init__(self):
        from tool_loop import MemoryJournal
        self.inner = MemoryJournal()
    def open(self, run_id):
        return self.inner.open(run_id)
    def events(self, run_id):
        return [e for e in self.inner.events(run_id) if type(e).__name__ != "ToolReturned" or not LOSES]
"""


def test_a_run_that_breaks_an_invariant_fails_the_test_at_once(pytester: pytest.Pytester) -> None:
    result = passed(
        pytester,
        BROKEN
        + """
LOSES = True
def test_it(agent_run):
    agent_run(Agent(ScriptedLLM(LOOK, "done"), [look], journal=Forgetful()), "q")
    assert False, "not reached"
""",
        failed=1,
    )
    result.stdout.fnmatch_lines(["*InvariantBroken: I1 at event 2 (ModelReplied): *have no result yet"])
    assert "AssertionError: not reached" not in result.stdout.str()


def test_the_invariants_are_checked_once_more_after_the_test(pytester: pytest.Pytester) -> None:
    result = passed(
        pytester,
        BROKEN
        + """
LOSES = False
def test_it(agent_run):
    global LOSES
    agent_run(Agent(ScriptedLLM(LOOK, "done"), [look], journal=Forgetful()), "q")
    LOSES = True
""",
        passed=1,
        errors=1,
    )
    result.stdout.fnmatch_lines(["*InvariantBroken: I1 at event 2*"])


# --- the runner by itself -------------------------------------------------------------------------


def test_a_run_that_fails_is_checked_too_and_raises_its_own_error() -> None:
    runs = AgentRun()

    with pytest.raises(ValueError, match="a bug"):
        runs(Agent(ScriptedLLM(ValueError("a bug"))), "q")
    with pytest.raises(UnknownRun):
        runs.resume(Agent(ScriptedLLM()), "nobody")
    runs.check()


def test_a_secret_in_the_record_is_found() -> None:
    runs = AgentRun()

    with pytest.raises(InvariantBroken, match="I27 at event 1"):
        runs(Agent(ScriptedLLM("it is sk-123")), "q", secrets=["sk-123"])


def test_effects_probes_and_limits_are_the_agents_own() -> None:
    @tool(effect="once")
    async def pay(n: int) -> str:
        """Pay."""
        return "paid"

    @pay.probe
    def paid(n: int) -> str:
        return "paid"

    runs, journal = AgentRun(), MemoryJournal()
    call = ToolCall("p", "pay", '{"n": 1}')
    agent = Agent(
        ScriptedLLM(call, ToolCall("q", "pay", '{"n": 2}'), "in short"), [pay], journal=journal, limits=Limits(steps=2)
    )
    result = runs(agent, "q", run_id="r")
    more = Agent(ScriptedLLM(), [pay], journal=journal, limits=Limits(steps=1))

    assert result.reason == "step limit"
    assert runs.resume(more, "r").answer == "in short", (
        "other limits are not held against what was done under the first"
    )
    assert [type(e) for e in result.events[-2:]] == [ModelReplied, RunEnded]
    assert len([e for e in result.events if isinstance(e, ToolReturned)]) == 2


# --- what it costs --------------------------------------------------------------------------------


def test_loading_the_plugin_imports_nothing_heavy_and_takes_no_time() -> None:
    code = (
        "import sys, pytest, time; before = set(sys.modules); began = time.process_time(); "
        "import tool_loop.testing.plugin; took = time.process_time() - began; "
        "new = {m.partition('.')[0] for m in set(sys.modules) - before}; "
        "print(sorted(new), sorted(m for m in sys.modules if m.startswith('tool_loop.')), took < 0.2)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == (
        "['tool_loop'] ['tool_loop.errors', 'tool_loop.testing', 'tool_loop.testing.plugin', "
        "'tool_loop.testing.workspace'] True"
    )


def test_every_name_of_the_testing_package_is_where_it_says() -> None:
    from tool_loop import testing

    assert set(dir(testing)) == set(testing.__all__)
    assert sorted({*testing._HOMES, "workspace"}) == sorted(testing.__all__)
    for name in testing.__all__:
        assert not isinstance(getattr(testing, name), type(testing)), f"{name} is hidden by a module of that name"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        testing.nothing  # noqa: B018


# --- the documentation ----------------------------------------------------------------------------


def blocks() -> list[str]:
    text = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_every_example_of_the_documentation_passes(pytester: pytest.Pytester) -> None:
    for n, block in enumerate(blocks()):
        pytester.makepyfile(**{f"test_block_{n}" if "def test_" in block else "agents": block})
    result = pytester.runpytest_inprocess(*QUIET)

    outcome = result.parseoutcomes()
    assert outcome.keys() == {"passed"}, result.stdout.str()
    assert outcome["passed"] == sum(block.count("def test_") for block in blocks())
