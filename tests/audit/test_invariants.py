"""The invariants accept what is in order and reject each of the histories kept in data/histories."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.runs import calls, says
from tool_loop import Agent, Limits, ScriptedLLM, tool
from tool_loop.audit.invariants import check, check_messages, check_requests
from tool_loop.events import ModelReplied, RunEnded, RunStarted, ToolReturned, Usage
from tool_loop.journal.codec import decode
from tool_loop.runtime.clock import run_virtual
from tool_loop.transcript import AssistantMessage, ToolMessage, UserMessage

EFFECTS = {"look": "read", "put": "idempotent", "pay": "once"}
HISTORIES = sorted((Path(__file__).parents[1] / "data" / "histories").glob("*.jsonl"))


@pytest.mark.parametrize("path", HISTORIES, ids=lambda p: p.stem)
def test_a_corrupted_history_is_rejected_for_the_rule_in_its_name(path: Path) -> None:
    events = [decode(line) for line in path.read_text().splitlines()]
    found = check(events, effects=EFFECTS, limits=Limits(steps=3, tokens=1000, tool_calls=5))

    assert path.stem.split("-")[0] in {b.rule for b in found}
    assert all(b.rule in str(b) and b.event in str(b) for b in found)


def test_there_are_enough_of_them() -> None:
    assert len(HISTORIES) >= 40


def test_a_run_with_everything_in_it_is_in_order() -> None:
    @tool(effect="read")
    async def look(n: int) -> str:
        """Look."""
        return str(n)

    @tool(effect="once")
    async def pay() -> str:
        """Pay."""
        return "paid"

    turns = [
        replace(calls(("a", "look", '{"n": 1}'), ("a", "look", "{"), ("p", "pay"), text="x"), usage=Usage(500, 50)),
        replace(calls(("c", "look", '{"n": 2}')), stop="length"),
        calls(("d", "nobody")),
        "enough",
    ]
    agent = Agent(ScriptedLLM(*turns), [look, pay], limits=Limits(steps=3))
    result = run_virtual(agent.run("q"))

    assert result.reason == "step limit"
    assert check(result.events, effects=EFFECTS, limits=Limits(steps=3)) == []


def test_a_secret_anywhere_in_a_journal_is_found() -> None:
    events = [RunStarted("q"), says("the key is sk-123"), RunEnded("answered", "the key is sk-123")]

    assert {b.rule for b in check(events, secrets=["sk-123"])} == {"I27"}
    assert check(events, secrets=["sk-456", ""]) == []


def test_a_lone_surrogate_is_found_in_results_and_messages() -> None:
    events = [
        RunStarted("q"),
        calls(("a", "look")),
        ToolReturned("a", "bad \ud800"),
        says("ok"),
        RunEnded("answered", "ok"),
    ]

    assert {b.rule for b in check(events)} == {"I3"}


@pytest.mark.parametrize(
    ("messages", "rule"),
    [
        ([UserMessage("q"), ToolMessage("a", "look", "x")], "I1"),
        ([UserMessage("q"), AssistantMessage("", calls(("a", "look")).calls), UserMessage("and?")], "I1"),
        ([UserMessage("q"), AssistantMessage("", calls(("a", "look")).calls)], "I1"),
        ([UserMessage("q"), AssistantMessage("")], "I3"),
        ([AssistantMessage("hi")], "I5"),
    ],
)
def test_a_history_a_provider_would_refuse_is_found(messages: list, rule: str) -> None:
    assert rule in {b.rule for b in check_messages(messages)}


@pytest.mark.parametrize("body", [b"{", b'{"x": NaN}', b'{"tools": []}', b"\xff", b"[]"])
def test_a_request_that_is_no_request_is_found(body: bytes) -> None:
    assert [b.rule for b in check_requests([body])] == ["I3"]
    assert check_requests([b'{"model": "m"}', b'{"tools": [1]}']) == []


def test_a_pause_may_be_followed_by_another_reply() -> None:
    events = [RunStarted("q"), ModelReplied("hm", stop="pause"), says("ok"), RunEnded("answered", "ok")]

    assert check(events) == []
