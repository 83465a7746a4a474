"""One budget for many: reserved before a request, settled after it, on record over a restart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tool_loop import (
    Agent,
    Budget,
    Limits,
    MemoryJournal,
    ModelReplied,
    Price,
    PriceTable,
    Request,
    ScriptedLLM,
    ToolCall,
    Usage,
    tool,
)
from tool_loop.budget import Amount
from tool_loop.errors import UsageError

FREE = Limits(steps=None, tokens=None)
COST = Usage(900, 100)
PRICES = PriceTable({"m": Price(1.0, 1.0)})  # a tenth of a cent for each reply below


@tool(effect="read")
async def look(n: int) -> str:
    """Look."""
    return f"{n} {'x' * 300}"


class Endless:
    """A model that calls for ever, takes a moment, and counts what it was really asked."""

    model = "m"
    origin = "test:m"

    def __init__(self) -> None:
        self.replies = 0
        self.last_words = 0

    async def reply(self, request: Request, _emit: Any) -> ModelReplied:
        await asyncio.sleep(0)
        self.replies += 1
        if not request.may_call:
            self.last_words += 1
            return ModelReplied("the last word", usage=COST, model="m")
        n = len(request.transcript.messages)
        return ModelReplied("", (ToolCall(f"c{n}", "look", f'{{"n": {n}}}'),), usage=COST, model="m")


async def together(agent: Agent, runs: int, budget: Budget) -> list[Any]:
    return await asyncio.gather(*(agent.run(f"q{n}", budget=budget) for n in range(runs)))


def test_many_at_once_keep_within_what_they_share_and_each_ends_with_an_answer() -> None:
    llm, budget = Endless(), Budget(tokens=200_000)

    results = asyncio.run(together(Agent(llm, [look], limits=FREE), 24, budget))

    assert {result.reason for result in results} == {"budget"}
    assert all(result.answer for result in results)
    assert llm.last_words == 24
    assert budget.spent_tokens == llm.replies * 1_000
    assert 150_000 < budget.spent_tokens <= 200_000


def test_money_is_shared_in_the_same_way() -> None:
    llm, budget = Endless(), Budget(usd=0.2)

    results = asyncio.run(together(Agent(llm, [look], prices=PRICES, limits=FREE), 24, budget))

    assert {result.reason for result in results} == {"budget"}
    assert 0.1 < budget.spent_usd <= 0.2 + 1e-9
    assert budget.spent_usd == pytest.approx(sum(result.cost for result in results))


def test_a_run_for_which_there_is_nothing_left_asks_no_model_at_all() -> None:
    budget = Budget(tokens=10)
    llm = Endless()

    result = Agent(llm, [look], limits=FREE).run_sync("?", budget=budget)

    assert (llm.replies, result.reason, result.source) == (0, "budget", "journal")


def test_what_a_run_did_not_need_is_free_for_the_others() -> None:
    budget = Budget(tokens=5_000)
    agent = Agent(ScriptedLLM(*["done"] * 9, usage=Usage(10, 5)), [look])

    results = [agent.run_sync("?", budget=budget) for _ in range(9)]

    assert {result.reason for result in results} == {"answered"}
    assert budget.spent_tokens == 9 * 15


def test_seconds_count_from_the_first_request() -> None:
    now = [100.0]
    budget = Budget(seconds=10, clock=lambda: now[0])
    agent = Agent(ScriptedLLM("one", "two"))

    assert agent.run_sync("?", budget=budget).reason == "answered"
    now[0] += 10
    assert agent.run_sync("?", budget=budget).reason == "budget"


def test_a_budget_within_another_is_bound_by_both() -> None:
    outer = Budget(tokens=20_000)
    inner = Budget(tokens=1_000_000, within=outer)
    llm = Endless()

    result = Agent(llm, [look], limits=FREE).run_sync("?", budget=inner)

    assert result.reason == "budget"
    assert inner.spent_tokens == outer.spent_tokens <= 20_000


def test_a_restart_knows_what_was_spent() -> None:
    journal = MemoryJournal()
    first = Budget(tokens=50_000, name="nightly")
    asyncio.run(together(Agent(Endless(), [look], journal=journal), 2, first))
    Agent(ScriptedLLM("not of it", usage=COST), journal=journal).run_sync("?")

    again = Budget(tokens=50_000, name="nightly").restore(journal)

    assert again.spent_tokens == first.spent_tokens > 0
    with pytest.raises(UsageError, match="needs a name"):
        Budget(tokens=1).restore(journal)


def test_a_restart_knows_what_sub_agents_spent_too() -> None:
    journal, first = MemoryJournal(), Budget(tokens=500_000, name="nightly")
    child = Agent(ScriptedLLM("found", usage=COST))
    call = ToolCall("c", "ask", '{"task": "find"}')
    parent = Agent(ScriptedLLM(call, "done", usage=COST), [child.as_tool("ask", "Asks.")], journal=journal)

    parent.run_sync("?", budget=first)

    assert Budget(tokens=500_000, name="nightly").restore(journal).spent_tokens == first.spent_tokens == 3_000


def test_bounds_that_are_none_and_money_without_prices_are_refused() -> None:
    with pytest.raises(UsageError, match="above zero"):
        Budget(usd=0)
    with pytest.raises(UsageError, match="needs prices"):
        Agent(ScriptedLLM("x")).run_sync("?", budget=Budget(usd=1))


def test_a_last_word_that_was_set_aside_is_owed_even_when_others_overran() -> None:
    budget = Budget(tokens=1_000)
    assert budget.reserve("a", Amount(300), Amount(200), is_last=False)
    budget.settle("a", Amount(300), Amount(200))
    budget.pay(5_000, 0)

    assert not budget.reserve("a", Amount(300), Amount(200), is_last=False)
    assert budget.reserve("a", Amount(200), Amount(), is_last=True)
