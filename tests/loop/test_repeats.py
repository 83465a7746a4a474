"""The stall rule, from both sides: no sensible run on record is stopped, and no true stall goes on.

The traces in data/traces are runs of the real loop, written by make_traces.py. How often a result was
a repeat is not taken from them but counted anew, so that they measure the rule as it is today.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tool_loop import Agent, Limits, ModelReplied, Result, ScriptedLLM, ToolCall, ToolError, ToolRegistry, tool
from tool_loop.agent import reached
from tool_loop.events import Compacted, Event, RunEnded, RunStarted, ToolReturned
from tool_loop.journal.codec import decode
from tool_loop.state import State
from tool_loop.testing import check, run_virtual

TRACES = sorted((Path(__file__).parents[1] / "data" / "traces").glob("*.jsonl"))
UNLIMITED = Limits(steps=None, tokens=None, seconds=None)


def events_of(path: Path) -> list[Event]:
    return [decode(line) for line in path.read_text(encoding="utf-8").splitlines()]


def folded(events: list[Event]) -> Iterator[tuple[State, Event]]:
    """The state after each event, and the event with its repeats counted by today's rule."""
    state = State()
    for recorded in events:
        event = recorded
        if isinstance(event, ToolReturned) and event.repeat:  # 0 is a tool that polls
            event = replace(event, repeat=state.repeat(state.pending[event.call_id], event))
        state.apply(event)
        yield state, event


# --- runs that are not to be stopped --------------------------------------------------------------


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_a_normal_run_is_never_stopped_for_repeating_itself(path: Path) -> None:
    events = events_of(path)

    stops = [n for n, (state, _) in enumerate(folded(events)) if not state.pending and reached(state, UNLIMITED, 0.0)]

    assert stops == []
    assert isinstance(events[-1], RunEnded)
    assert events[-1].reason == "answered"
    assert check(events) == []


def test_there_are_enough_normal_runs_to_speak_of_none_stopped() -> None:
    assert len(TRACES) >= 30


def test_the_normal_runs_are_not_easy_ones() -> None:
    """Most of them repeat a call, and a rule that only counted would stop many."""
    runs = [[event for _, event in folded(events_of(path))] for path in TRACES]
    repeating = [run for run in runs if any(isinstance(e, ToolReturned) and e.repeat >= 2 for e in run)]

    assert len(repeating) >= 15
    assert sum(most_identical(run) >= 3 for run in runs) >= 10
    assert sum(any(isinstance(e, Compacted) for e in run) for run in runs) >= 2
    assert max(sum(isinstance(e, ModelReplied) for e in run) for run in runs) > 40


def most_identical(run: list[Event]) -> int:
    """How often the most frequent result came, whatever happened in between."""
    asked = {call.id: call for e in run if isinstance(e, ModelReplied) for call in e.calls}
    results = [(asked[e.call_id].name, e.content) for e in run if isinstance(e, ToolReturned)]
    return max(map(results.count, results), default=0)


# --- runs that are ---------------------------------------------------------------------------------


@tool(effect="read")
async def look(at: str) -> str:
    """Look at something."""
    if at == "nowhere":
        raise ToolError("there is nothing", kind="not_found")
    return f"at {at} there is a chair"


@tool(effect="read", polling=True)
async def wait_for(job: str) -> str:
    """Ask whether a job is done."""
    return f"{job}: not yet"


def changing() -> Callable[..., object]:
    numbers = iter(range(1000))

    @tool(effect="read")
    async def draw() -> str:
        """Draw a number."""
        return f"number {next(numbers)}"

    return draw


def ran(*arguments: str, name: str = "look", limits: Limits = UNLIMITED) -> Result:
    """A run in which the model asks for one call after another, and answers when it has no more or may not."""
    asked = iter(enumerate(arguments))

    def turn(request: object) -> ModelReplied | str:
        number, given = next(asked, (0, None))
        if given is None or not request.may_call:
            return "done"
        return ModelReplied("", (ToolCall(f"c{number}", name, given),), "tool_calls")

    tools = ToolRegistry([look, wait_for, changing()])
    agent = Agent(ScriptedLLM(*[turn] * (len(arguments) + 1)), tools, limits=limits)
    return run_virtual(agent.run("q"))


def at(*places: str) -> list[str]:
    return [f'{{"at": "{place}"}}' for place in places]


@pytest.mark.parametrize(
    ("arguments", "calls"),
    [
        pytest.param(at(*"AAAAA"), 3, id="the same call"),
        pytest.param(at(*"ABABABAB"), 5, id="two in turn"),
        pytest.param(at(*"ABCABCABC"), 7, id="three in turn"),
        pytest.param(at(*"ABCDAAA"), 6, id="the same call after others"),
        pytest.param(at(*["nowhere"] * 5), 3, id="the same error"),
        pytest.param(["{"] * 5, 3, id="the same bad JSON"),
        pytest.param(
            ['{"at":"A"}', '{\n  "at": "A"\n}', '{ "at" : "A" }', '{"at":"A"}'], 3, id="one call in three spellings"
        ),
        pytest.param(at(*["A"] * 60), 3, id="sixty times"),
    ],
)
def test_a_run_that_learns_nothing_new_is_stopped_and_still_answers(arguments: list[str], calls: int) -> None:
    result = ran(*arguments)

    assert (result.reason, result.answer) == ("repeated call", "done")
    assert sum(isinstance(e, ToolReturned) for e in result.events) == calls
    assert check(result.events) == []


def test_how_many_repeats_are_too_many_is_a_setting() -> None:
    result = ran(*at(*"AAAAAA"), limits=replace(UNLIMITED, repeats=5))

    assert result.reason == "repeated call"
    assert result.tool_calls == 5


@pytest.mark.parametrize(
    ("name", "arguments"), [("wait_for", '{"job": "build"}'), ("draw", "{}")], ids=["polling", "changing results"]
)
def test_what_polls_or_changes_may_be_called_sixty_times(name: str, arguments: str) -> None:
    result = ran(*[arguments] * 60, name=name)

    assert (result.reason, result.tool_calls) == ("answered", 60)


def test_asking_which_time_a_result_came_changes_nothing() -> None:
    call = ToolCall("c1", "look", "{}")
    state = State.of([RunStarted("q"), ModelReplied("", (call,), "tool_calls")])
    before = {name: repr(getattr(state, name)) for name in State.__slots__}

    assert state.repeat(call, ToolReturned("c1", "x")) == 1
    assert {name: repr(getattr(state, name)) for name in State.__slots__} == before
