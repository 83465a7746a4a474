"""The scorecard: every kind of failure, played on the package's own agent and on a user's."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kit.cli_case import Cli, cli  # noqa: F401 - cli is a fixture
from tool_loop import (
    Agent,
    Limits,
    ProviderError,
    ScriptedLLM,
    ToolCall,
    ToolContext,
    ToolRegistry,
    ToolReturned,
    UsageError,
    tool,
)
from tool_loop.catalogue import CATALOGUE
from tool_loop.testing import Asked, ScoreLine, markdown, returns, scorecard
from tool_loop.testing.faults.model import auth, overloaded
from tool_loop.testing.scoring.bench import KEY, own_bench, reading
from tool_loop.testing.scoring.card import played
from tool_loop.testing.scoring.case import Case, Second
from tool_loop.testing.scoring.cases import CASES
from tool_loop.testing.scoring.scenes import Scene
from tool_loop.transcript import SUMMARISE

ROOT = Path(__file__).parents[2]

# What has to be tried at least, in the words of the plan.
PROMISED = {
    "unknown tool", "malformed JSON", "wrong type", "missing field", "tool raises", "one of three raises",
    "cut by length, valid arguments", "cut by length, broken JSON", "duplicate ids", "call without a name",
    "empty reply",
    "step limit", "the same call sixty times", "context overflow", "200 with HTML", "connection reset", "503", "529",
    "429 with Retry-After", "500 for ever", "stream cut half way", "401",
}  # fmt: skip


@pytest.fixture(scope="module")
def lines() -> list[ScoreLine]:
    began = time.monotonic()
    found = scorecard()
    assert time.monotonic() - began < 30, "what takes longer is not run before each commit"
    return found


def test_everything_is_handled(lines: list[ScoreLine]) -> None:
    assert [f"{line.fault}: {line.why}" for line in lines if not line.handled] == []
    assert not any(line.skipped for line in lines)


def test_it_has_what_was_promised_and_more(lines: list[ScoreLine]) -> None:
    assert {line.fault for line in lines if line.core} == PROMISED
    assert len({line.fault for line in lines}) == len(lines) == len(CASES)


def test_every_row_of_the_failure_table_is_played_and_every_kind_comes_out(lines: list[ScoreLine]) -> None:
    kinds = {kind for line in lines for kind in line.kinds}

    assert {case.failure for case in CASES} - {""} == {row.id for row in CATALOGUE}
    assert {kind for row in CATALOGUE for kind in row.kinds} <= kinds


def test_it_is_the_same_each_time(lines: list[ScoreLine]) -> None:
    assert scorecard(cases=CASES[::9]) == lines[::9]


def by_name(lines: list[ScoreLine]) -> dict[str, ScoreLine]:
    return {line.fault: line for line in lines}


def test_it_says_what_the_model_saw_and_what_it_cost(lines: list[ScoreLine]) -> None:
    found = by_name(lines)

    assert found["429 with Retry-After"].saw == "nothing"
    assert found["429 with Retry-After"].outcome == "answered after 1 retry"
    assert (found["503 for a minute"].extra_calls, found["503 for a minute"].extra_tokens) == (4, 0)
    assert found["wrong type"].saw == "invalid_arguments: 'path' must be string, got list"
    assert found["401"].outcome == "error: auth; answered when resumed"
    assert found["step limit"].outcome == "stopped by the step limit, with an answer"
    assert found["step limit"].extra_calls == 19
    assert found["the same call sixty times"].extra_calls <= 3
    assert found["stream cut half way"].extra_tokens > 0
    assert found["killed after an effect"].saw.startswith("outcome_unknown: ")
    assert found["call written as text"].saw == "a reminder to call tools, not to describe calls"
    assert found["context overflow"].saw == "a shorter history"


# --- an agent of one's own ------------------------------------------------------------------------


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def shop(ran: list[str]) -> list:
    """Tools of a user's, which tell when they were really run."""

    @tool(effect="read")
    async def stock(item: str, context: ToolContext, size: int = 40) -> str:
        """How many there are."""
        ran.append(f"stock {item}")
        return "3"

    @tool(effect="read")
    def price(item: str) -> str:
        """What it costs."""
        ran.append(f"price {item}")
        return "5"

    @tool
    def order(item: str) -> str:
        """Order it."""
        ran.append("order")
        raise SystemExit

    @tool(needs_approval=True)
    async def refund(amount: float) -> str:
        """Pay back."""
        ran.append("refund")
        return ""

    return [stock, price, order, refund]


def some(*words: str) -> list[Case]:
    return [case for case in CASES if case.name in words]


def test_an_agent_of_ones_own_is_tried_with_its_tools_and_nothing_happens(shop: list, ran: list[str]) -> None:
    bench = own_bench(Agent(ScriptedLLM(), shop, system="Sell shoes.", limits=Limits(steps=8)))
    lines = list(played(bench, [case for n, case in enumerate(CASES) if case.layer in ("tool", "loop") or n % 7 == 0]))

    assert [f"{line.fault}: {line.why}" for line in lines if not line.handled] == []
    assert {line.why for line in lines if line.skipped} == {
        "about the file tools of this package", "it would need the price of the scorecard's model",
    }  # fmt: skip
    assert ran == ["stock ..."], "what reads is run once for each call, what does not is not run at all"


def test_none_of_its_tools_need_be_run(shop: list, ran: list[str]) -> None:
    bench = own_bench(Agent(ScriptedLLM(), shop), ToolCall("", "price", '{"item": "shoe"}'), run_tools=False)

    assert [line.handled for line in played(bench, some("tool raises", "one of three raises"))] == [True, True]
    assert ran == []
    bench = own_bench(Agent(ScriptedLLM(), shop), ToolCall("", "price", '{"item": "shoe"}'))
    assert [line.handled for line in played(bench, some("tool raises"))] == [True]
    assert ran == ["price shoe"]


def test_an_agent_without_patience_is_found_out(shop: list) -> None:
    bench = own_bench(Agent(ScriptedLLM(), shop, retry=None))
    lines = by_name(list(played(bench, some("503", "401", "tool raises"))))

    assert not lines["503"].handled
    assert lines["503"].why == "it ended with 'overloaded', not with 'answered'"
    assert lines["401"].handled
    assert lines["tool raises"].handled


def test_an_agent_with_tight_limits_stops_with_an_answer_and_that_is_fine(shop: list) -> None:
    bench = own_bench(Agent(ScriptedLLM(), shop, limits=Limits(steps=1)))

    assert all(line.handled for line in played(bench, some("503", "unknown tool", "cut by length, broken JSON")))


def test_an_agent_without_limits_is_not_tried_with_them(shop: list) -> None:
    bench = own_bench(Agent(ScriptedLLM(), shop, limits=Limits(steps=None, tokens=None, seconds=None)))
    lines = by_name(list(played(bench, some("step limit", "tokens used up"))))

    assert lines["step limit"].why == "it has no limit of steps"
    assert lines["tokens used up"].why == "it has no limit of tokens"


def test_an_agent_without_tools_is_tried_with_what_happens_to_its_model() -> None:
    lines = list(played(own_bench(Agent(ScriptedLLM()))))

    assert all(line.handled for line in lines)
    assert sum(not line.skipped for line in lines) >= 30
    assert {line.why for line in lines if line.skipped} == {"it has no tools"}


def test_tools_without_arguments_cannot_have_wrong_ones() -> None:
    @tool(effect="read")
    async def now() -> str:
        """The time."""
        return "noon"

    lines = by_name(list(played(own_bench(Agent(ScriptedLLM(), [now])), some("wrong type", "missing field", "Ctrl-C"))))

    assert lines["wrong type"].why == "its tools take no arguments"
    assert lines["missing field"].why == "its tools require no argument"
    assert lines["Ctrl-C"].handled


class Port:
    """Tools that are no registry."""

    def __init__(self, tools: list) -> None:
        self.inner = ToolRegistry(tools)

    def __getattr__(self, name: str):
        return getattr(self.inner, name)


def test_a_port_of_ones_own_is_tried_and_never_run(shop: list, ran: list[str]) -> None:
    bench = own_bench(Agent(ScriptedLLM(), Port(shop)))

    assert all(
        line.handled for line in played(bench, some("tool raises", "wrong type", "killed after an effect", "503"))
    )
    assert ran == []


def test_what_comes_out_of_a_run_and_is_no_typed_error_is_not_handled(shop: list) -> None:
    class Broken(Port):
        def refuse(self, call: ToolCall) -> ToolReturned | None:
            if call.name not in self.inner:
                raise KeyError(call.name)
            return self.inner.refuse(call)

    line = next(iter(played(own_bench(Agent(ScriptedLLM(), Broken(shop))), some("unknown tool"))))

    assert (line.handled, line.why) == (False, "KeyError: 'serach_files' came out of the run")


def test_what_else_can_be_wrong_is_said(shop: list) -> None:
    bench = own_bench(Agent(ScriptedLLM(), shop))

    def wrong(**change: object) -> str:
        given = {"plan": Second(overloaded), "retried": "overloaded"} | change
        return next(iter(played(bench, [Case("x", "", **given)]))).why

    assert wrong() == ""
    assert wrong(told="denied") == "denied is not on record"
    assert wrong(plan=lambda f, _: f.at_step(9, auth())) == "the fault never struck: auth() at step 9"
    assert wrong(ends="auth") == "it ended with 'answered', not with 'auth'"
    assert wrong(plan=lambda f, c: f.on_tool(c.name, returns(KEY)), retried="").startswith("the key is on record")


def test_an_error_that_is_still_there_when_the_run_is_resumed_is_not_handled(shop: list) -> None:
    async def still_down(scene: Scene) -> str:
        scene.agent.llm = ScriptedLLM(*[ProviderError("down", kind="auth")] * 2)
        return await scene.attempt()

    case = Case("x", "", lambda *_: None, ends="auth", scene=still_down)
    line = next(iter(played(own_bench(Agent(ScriptedLLM(), shop)), [case])))

    assert line.why == "when it was resumed it ended with 'auth'"


def test_a_result_in_words_is_shown_as_it_is(shop: list) -> None:
    class Terse(Port):
        def refuse(self, call: ToolCall) -> ToolReturned | None:
            refused = self.inner.refuse(call)
            return refused and ToolReturned(call.id, "not like that", refused.error)

    line = next(iter(scorecard(own_bench(Agent(ScriptedLLM(), Terse(shop))), some("wrong type"))))

    assert (line.saw, line.handled) == ("invalid_arguments: not like that", True)


def test_the_scripted_model_writes_a_summary_when_it_is_asked_for_one() -> None:
    asked = Asked(({"role": "user", "content": SUMMARISE},), ("look",), may_call=False)

    assert reading(ToolCall("", "look"))(asked).text == "The notes were being read."


def test_an_agent_that_does_not_even_work_without_a_fault_says_so() -> None:
    class Broken(Port):
        def specs(self) -> tuple:
            raise LookupError("no tools today")

    with pytest.raises(UsageError, match="without any fault the run ends with"):
        own_bench_of(Broken)


def own_bench_of(port: type[Port]) -> object:
    from tool_loop.testing.scoring.bench import Bench

    @tool(effect="read")
    async def look(at: str) -> str:
        """Look."""
        return at

    agent = Agent(ScriptedLLM(), port([look]))
    return list(played(Bench(agent, {"reads": ToolCall("", "look", '{"at": "x"}')}), some("503")))


def test_a_call_that_cannot_be_made_up_has_to_be_given() -> None:
    @tool(effect="read")
    async def exact(code: str) -> str:
        """Take a code."""
        return code

    picky = ToolRegistry([exact])
    picky.refuse = lambda call: (
        ToolReturned(call.id, "no", "invalid_arguments") if "abc" not in call.arguments else None
    )
    agent = Agent(ScriptedLLM(), picky)
    agent.tools = Port([exact])
    agent.tools.refuse = picky.refuse

    with pytest.raises(UsageError, match="none of the tools takes a call that could be made up"):
        own_bench(agent)
    with pytest.raises(UsageError, match=r"the tools refuse the call exact \{\}: no"):
        own_bench(agent, ToolCall("", "exact", "{}"))
    bench = own_bench(agent, ToolCall("", "exact", '{"code": "abc"}'))
    assert [line.handled for line in played(bench, some("503"))] == [True]


# --- the command ----------------------------------------------------------------------------------


def test_the_command_prints_a_table() -> None:
    command = [sys.executable, "-m", "tool_loop", "chaos", "--only", "tool"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("fault ")
    assert re.search(
        r"^tool raises +tool_crashed: the tool failed with an… +answered +\+1 +\+\d+$", done.stdout, re.MULTILINE
    )
    assert re.search(r"^\d\d faults, \d\d handled, in \d", done.stderr)
    assert "Traceback" not in done.stderr


MINE = """
from tool_loop import Agent, ScriptedLLM, tool

@tool(effect="read")
async def look(at: str) -> str:
    "Look."
    return at

good = Agent(ScriptedLLM(), [look])
hasty = Agent(ScriptedLLM(), [look], retry=None)

def make():
    return good

other = 5
"""


def test_the_command_tries_an_agent_of_ones_own(cli: Cli) -> None:  # noqa: F811
    (cli.root / "mine.py").write_text(MINE)

    good = cli("chaos", "--agent", "mine.py:make", "--only", "503")
    hasty = cli("chaos", "--agent", "mine.py:hasty", "--only", "503")
    given = cli("chaos", "--agent", "mine.py:good", "--call", 'look={"at": "x"}', "--stand-ins", "--only", "huge file")

    assert (good.code, hasty.code, given.code) == (0, 1, 0)
    assert "503 for a minute" in good.out
    assert "not handled: it ended with 'overloaded'" in hasty.out
    assert "skipped: about the file tools of this package" in given.out
    assert "0 faults, 0 handled" in given.err
    assert "1 skipped" in given.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--agent", "mine.py:other"), "is int, not an Agent or a function that makes one"),
        (("--agent", "mine.py:nobody"), "there is no 'nobody' in mine.py"),
        (("--agent", "mine"), "is not MODULE:NAME or FILE.py:NAME"),
        (("--agent", "mine.py:good", "--call", "look"), "is not NAME=JSON"),
        (("--agent", "mine.py:good", "--call", "look={}"), "the tools refuse the call look {}"),
        (("--stand-ins",), "--call and --stand-ins are about an agent of your own"),
        (("--only", "nonsense"), "no fault has 'nonsense' in its name"),
    ],
)
def test_what_cannot_be_tried_says_why(cli: Cli, words: tuple[str, ...], says: str) -> None:  # noqa: F811
    (cli.root / "mine.py").write_text(MINE)
    ran = cli("chaos", *words)

    assert (ran.code, says in ran.err) == (2, True), ran.err


def test_the_command_gives_json_names_and_a_layer_alone(cli: Cli) -> None:  # noqa: F811
    lines = [json.loads(line) for line in cli("chaos", "--json", "--only", "clock").out.splitlines()]
    names = cli("chaos", "--list").out.splitlines()

    assert [line["fault"] for line in lines] == ["our clock is an hour slow", "asleep for an hour"]
    assert all(line["handled"] for line in lines)
    assert len(names) == len(CASES)
    assert "journal    disk full" in names
    assert (
        cli("chaos", "--markdown", "--only", "503 for").out.splitlines()[2].startswith("| 503 for a minute | nothing |")
    )


# --- documents ------------------------------------------------------------------------------------


def test_the_table_for_a_readme_has_a_row_for_each_fault_and_none_for_what_was_skipped() -> None:
    rows = [
        ScoreLine("a|b", "tool", "x|y", "answered", 1, 2),
        ScoreLine("c", "tool", skipped=True),
        ScoreLine("d", "tool", handled=False, why="no"),
    ]

    assert markdown(rows).splitlines()[2:] == [
        r"| a\|b | x\|y | answered | 1 | 2 |",
        "| d |  | **not handled**: no | 0 | 0 |",
    ]


@pytest.mark.parametrize("name", ["README.md", "docs/testing.md"])
def test_the_table_in_the_documents_is_the_one_the_command_prints(name: str, lines: list[ScoreLine]) -> None:
    text = (ROOT / name).read_text(encoding="utf-8") if (ROOT / name).exists() else ""
    begin, end = "<!-- tool-loop chaos --core --markdown -->\n", "\n<!-- end -->"
    if begin not in text:
        pytest.skip(f"{name} has no scorecard")

    shown = text.partition(begin)[2].partition(end)[0].strip()

    assert shown == markdown([line for line in lines if line.core]), "written anew by: python scripts/tables.py"
