"""What a person should know before trusting an answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.kit.runs import calls, says
from tool_loop import Agent, Limits, ProviderError, ScriptedLLM, tool
from tool_loop.events import Usage
from tool_loop.result import Result
from tool_loop.runtime.clock import run_virtual


@tool(effect="read")
async def look(n: int = 0) -> str:
    """Look."""
    return str(n)


def result_of(*turns: object, **limits: int) -> Result:
    return run_virtual(Agent(ScriptedLLM(*turns), [look], limits=Limits(**limits)).run("q"))  # type: ignore[arg-type]


PROSE = '{"name": "look", "arguments": {}}'


@pytest.mark.parametrize(
    ("result", "word"),
    [
        (result_of("42"), "no tool was called"),
        (result_of(PROSE, PROSE), "written as text"),
        (result_of(replace(says("half of it"), stop="length")), "cut"),
        (result_of(replace(says("I will not"), stop="refusal")), "refusal"),
        (result_of(replace(says("some"), stop="content_filter")), "content_filter"),
        (result_of(calls(("1", "look")), ProviderError("down", kind="quota"), steps=1), "no last word"),
    ],
)
def test_a_warning_says_what_is_wrong_with_the_answer(result: Result, word: str) -> None:
    assert any(word in warning for warning in result.warnings)


def test_an_answer_in_order_has_no_warnings_and_is_the_text_of_its_result() -> None:
    result = result_of(calls(("1", "look")), "it is 0")

    assert result.warnings == ()
    assert str(result) == "it is 0"
    assert (result.steps, result.tool_calls) == (2, 1)


def test_tokens_of_all_replies_are_added_up_and_what_nobody_counted_stays_unknown() -> None:
    counted = result_of(calls(("1", "look"), usage=Usage(10, 5, cached=4)), says("done", Usage(20, 6)))
    silent = result_of("done")

    assert counted.usage == Usage(30, 11, cached=4)
    assert silent.usage == Usage()


def test_a_result_is_about_its_question_and_the_run_is_beside_it_under_names_that_say_so() -> None:
    """After a follow-up the steps of the question stood beside the tokens and the failures of the run."""
    script = ScriptedLLM(
        replace(calls(("1", "look", '{"n": "x"}'), usage=Usage(10, 5)), cost=0.5),
        says("one", Usage(20, 6)),
        replace(calls(("2", "look"), usage=Usage(30, 7)), cost=0.25),
        replace(says("two", Usage(40, 8)), cost=0.25),
    )
    agent = Agent(script, [look])

    async def both() -> tuple[Result, Result]:
        return await agent.run("q", run_id="r"), await agent.run("and?", continue_run="r")

    first, then = run_virtual(both())

    assert [type(e).__name__ for e in then.events] == [
        "RunContinued", "ModelReplied", "ToolReturned", "ModelReplied", "RunEnded",
    ]  # fmt: skip
    assert (then.steps, then.tool_calls, then.usage, then.cost, then.failures) == (2, 1, Usage(70, 15), 0.5, ())
    assert (first.cost, [f.error for f in first.failures]) == (None, ["invalid_arguments"])
    assert (then.run_steps, then.run_tool_calls, then.run_usage, then.run_cost) == (4, 2, Usage(100, 26), None)
    assert then.run_failures == first.failures == first.run_failures
    assert then.run_events == (*first.events, *then.events)
    assert first.run_usage == first.usage
