"""Typed answers: what fits becomes a value, what does not is data for the model, a bounded number of times."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, Field
from typing_extensions import TypedDict

from tool_loop import Agent, InvalidAnswer, Limits, MemoryJournal, ScriptedLLM, ToolCall, ToolError, tool
from tool_loop.errors import FatalError, UsageError
from tool_loop.events import LimitReached, Reminded, RunStarted
from tool_loop.llm.anthropic.model import AnthropicMessages
from tool_loop.llm.chat.model import OpenAIChat
from tool_loop.llm.responses.model import OpenAIResponses
from tool_loop.ports import Request
from tool_loop.toolbox.answers import AnswerForm
from tool_loop.transcript import Transcript, UserMessage

CALL = ToolCall("1", "look", '{"name": "Berlin"}')
GOOD = '{"name": "Berlin", "inhabitants": 3700000, "kind": "capital"}'


class City(BaseModel):
    name: str
    inhabitants: int
    kind: Literal["town", "capital"] = "town"


@dataclasses.dataclass
class Trip:
    when: dt.date
    tags: list[str]


class Count(TypedDict):
    n: int


@tool(effect="read")
def look(name: str) -> str:
    """Look a city up."""
    return f"{name}: 3,700,000, capital"


def answered(llm: ScriptedLLM, answer: Any = City, **options: Any) -> Any:
    return Agent(llm, [look], **options).run_sync("Berlin?", answer=answer)


def told(result: Any) -> list[dict[str, Any]]:
    return [json.loads(event.text) for event in result.events if isinstance(event, Reminded)]


def test_an_answer_that_fits_is_a_value_of_the_type() -> None:
    result = answered(ScriptedLLM(CALL, GOOD))

    assert result.value == City(name="Berlin", inhabitants=3_700_000, kind="capital")
    assert (result.reason, result.steps, result.answer) == ("answered", 2, GOOD)


def test_a_fence_around_all_of_it_is_typography() -> None:
    assert answered(ScriptedLLM(f"```json\n{GOOD}\n```")).value.name == "Berlin"


def test_what_does_not_fit_is_told_field_by_field_and_mended() -> None:
    wrong = '{"name": "Berlin", "inhabitants": "3700000", "x": 1}'
    llm = ScriptedLLM(CALL, "It has 3.7 million.", wrong, GOOD)

    result = answered(llm)

    assert result.value.inhabitants == 3_700_000
    prose, fields = told(result)
    assert prose["error"] == fields["error"] == "invalid_answer"
    assert set(fields["fields"]) == {"inhabitants", "x"}


def test_where_only_the_form_is_wrong_the_next_request_cannot_call() -> None:
    llm = ScriptedLLM(CALL, "prose", GOOD)

    answered(llm)

    assert [request.may_call for request in llm.requests] == [True, True, False]


def test_a_type_whose_own_validator_refuses_keeps_the_tools() -> None:
    def known(name: str) -> str:
        if name != "Berlin":
            raise ValueError("there is no such city; look it up")
        return name

    class Checked(BaseModel):
        name: Annotated[str, AfterValidator(known)]

    llm = ScriptedLLM('{"name": "Berlni"}', CALL, '{"name": "Berlin"}')
    result = answered(llm, Checked)

    assert result.value.name == "Berlin"
    assert [request.may_call for request in llm.requests] == [True, True, True]
    assert "look it up" in told(result)[0]["message"]


def test_three_answers_that_do_not_fit_stop_the_run_which_still_holds_the_text() -> None:
    llm = ScriptedLLM("a", "b", "c", "the last")
    result = answered(llm)

    assert (result.reason, result.answer) == ("invalid answer", "the last")
    assert len(told(result)) == 2
    assert LimitReached("invalid answer") in result.events
    with pytest.raises(InvalidAnswer, match=r"the run ended \(invalid answer\)"):
        result.value  # noqa: B018


def test_how_often_is_a_limit_of_the_run() -> None:
    assert answered(ScriptedLLM("a", "last"), limits=Limits(answers=1)).reason == "invalid answer"


def test_the_last_word_of_any_limit_may_fit() -> None:
    result = answered(ScriptedLLM(CALL, GOOD), limits=Limits(steps=1))

    assert (result.reason, result.value.name) == ("step limit", "Berlin")


@pytest.mark.parametrize(
    ("wanted", "text", "value"),
    [
        (Trip, '{"when": "2026-11-30", "tags": []}', Trip(dt.date(2026, 11, 30), [])),
        (Count, '{"n": 1}', {"n": 1}),
        (list[int], '{"value": [1, 2]}', [1, 2]),
        (bool, '{"value": true}', True),
        (City | Count, '{"value": {"n": 3}}', {"n": 3}),
        ({"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}}, '{"n": 4}', {"n": 4}),
    ],
)
def test_models_dataclasses_dicts_unions_and_schemas_are_wanted_alike(wanted: Any, text: str, value: Any) -> None:
    assert answered(ScriptedLLM(text), wanted).value == value


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (City, '{"name": "B", "inhabitants": 1.0}'),
        (City, '{"name": "B", "inhabitants": true}'),
        (City, f"{GOOD} I hope this helps."),
        (City, '{"name": "B", "name": "C", "inhabitants": 1}'),
        (list[int], "[1]"),
        (list[int], '{"value": [1], "more": 2}'),
        (Count, '{"n": 1, "m": 2}'),
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, '{"n": 1, "m": 2}'),
        (City, ""),
    ],
)
def test_nothing_is_guessed_or_repaired(wanted: Any, text: str) -> None:
    problem = AnswerForm(wanted).problem(text)

    assert problem is not None
    assert problem.kind == "invalid_answer"


def test_an_answer_of_json_that_looks_like_a_call_is_an_answer() -> None:
    class Plan(BaseModel):
        name: str
        arguments: dict[str, int] = Field(default_factory=dict)

    result = answered(ScriptedLLM(CALL, '{"name": "look", "arguments": {}}'), Plan)

    assert (result.reason, result.value.name, result.steps) == ("answered", "look", 2)


def test_a_type_of_which_no_schema_can_be_made_is_refused_before_anything_runs() -> None:
    llm = ScriptedLLM("x")
    with pytest.raises(UsageError, match="no schema can be made"):
        answered(llm, object())

    assert llm.requests == []


# --- a check of the caller's ----------------------------------------------------------------------


def test_a_check_that_refuses_sends_the_answer_back() -> None:
    def check(answer: str) -> None:
        if "!" in answer:
            raise ToolError("do not shout", hint="say it calmly")

    result = Agent(ScriptedLLM("Berlin!", "Berlin."), check=check).run_sync("?")

    assert (result.answer, result.reason) == ("Berlin.", "answered")
    assert told(result) == [{"error": "refused_answer", "message": "do not shout", "hint": "say it calmly"}]


def test_an_asynchronous_check_gets_the_typed_value() -> None:
    seen: list[Any] = []

    async def check(city: City) -> None:
        await asyncio.sleep(0)
        seen.append(city.name)

    answered(ScriptedLLM("prose", GOOD), check=check)

    assert seen == ["Berlin"]


def test_a_check_that_is_broken_has_not_said_that_all_is_well() -> None:
    def check(_answer: str) -> None:
        raise KeyError("secret")

    journal = MemoryJournal()
    with pytest.raises(FatalError, match="check of the answer failed: KeyError") as raised:
        Agent(ScriptedLLM("x"), check=check, journal=journal).run_sync("?", run_id="r")

    assert "secret" not in str(raised.value)
    assert Agent(ScriptedLLM(), journal=journal).run_sync("?", run_id="r").answer == "x"


def test_a_check_that_hangs_ends_with_the_deadline() -> None:
    async def check(_answer: str) -> None:
        await asyncio.sleep(60)

    result = Agent(ScriptedLLM("x", "y"), check=check, limits=Limits(seconds=0.4)).run_sync("?")

    assert (result.reason, result.answer) == ("deadline", "y")


# --- over a crash, a follow-up, a compaction ------------------------------------------------------


class Died(BaseException):
    pass


def test_a_run_that_was_killed_goes_on_with_the_form_that_is_on_record() -> None:
    journal = MemoryJournal()
    with pytest.raises(Died):
        Agent(ScriptedLLM(CALL, "prose", Died()), [look], journal=journal).run_sync("?", answer=City, run_id="r")

    resumed = asyncio.run(Agent(ScriptedLLM("still prose", GOOD), [look], journal=journal).resume("r"))

    assert resumed.value == json.loads(GOOD), "plain JSON where the type is not given again"
    assert len(told(resumed)) == 2
    typed = asyncio.run(Agent(ScriptedLLM(), [look], journal=journal).resume("r", answer=City))
    assert typed.value.name == "Berlin"


def test_the_schema_stands_in_the_recorded_system_prompt() -> None:
    result = answered(ScriptedLLM(GOOD), system="Be short.")

    began = result.events[0]
    assert isinstance(began, RunStarted)
    assert began.system.startswith("Be short.\n\n")
    assert '"inhabitants"' in began.system


def test_a_follow_up_may_want_another_form_or_none() -> None:
    journal = MemoryJournal()
    llm = ScriptedLLM(GOOD, '{"n": 2}', "Plain.")
    agent = Agent(llm, [look], journal=journal)

    async def run() -> Sequence[Any]:
        first = await agent.run("?", answer=City, run_id="r")
        second = await agent.run("How many?", answer=Count, continue_run="r")
        third = await agent.run("Why?", continue_run="r")
        return first.value, second.value, third.value

    assert asyncio.run(run()) == (City(name="Berlin", inhabitants=3_700_000, kind="capital"), {"n": 2}, "Plain.")
    asked = [m.text for m in llm.requests[-1].messages if isinstance(m, UserMessage)]
    assert '"n"' in asked[1]
    assert "plain text" in asked[2]


# --- on the wire ----------------------------------------------------------------------------------

OPENAI, ANTHROPIC, LOCAL = "https://api.openai.com/v1", "https://api.anthropic.com", "http://127.0.0.1:1/v1"


@pytest.mark.parametrize(
    ("llm", "field", "beside"),
    [
        (lambda: OpenAIChat("m", OPENAI, "k"), "response_format", True),
        (lambda: OpenAIChat("m", LOCAL, "k"), "response_format", False),
        (lambda: OpenAIResponses("m", OPENAI, "k"), "text", True),
        (lambda: OpenAIResponses("m", LOCAL, "k"), "text", False),
        (lambda: AnthropicMessages("m", ANTHROPIC, "k"), "output_config", True),
        (lambda: AnthropicMessages("m", LOCAL, "k"), "output_config", False),
    ],
)
def test_a_server_enforces_the_form_beside_tools_only_where_that_is_known_to_work(
    llm: Any, field: str, beside: bool
) -> None:
    specs, transcript = Agent(ScriptedLLM(), [look]).tools.specs(), Transcript("s", [UserMessage("q")])

    def body(may_call: bool, tools: Any = specs) -> dict[str, Any]:
        return json.loads(llm().body(Request(transcript, tools, may_call, answer=AnswerForm(City))))  # type: ignore[no-any-return]

    assert (field in body(may_call=True)) is beside
    assert field in body(may_call=False)
    assert field in body(may_call=True, tools=())


def test_a_schema_within_what_openai_enforces_is_sent_as_strict_and_others_are_not() -> None:
    class Whole(BaseModel):
        n: int
        inner: list[City]

    class Closed(BaseModel):
        n: int
        when: dt.date

    assert AnswerForm(Closed).strict
    assert not AnswerForm(Whole).strict, "a field of City has a default"
    assert AnswerForm(Closed).schema["additionalProperties"] is False
