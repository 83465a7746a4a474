"""What a run costs: from a table, from genai-prices, and said where it is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.kit.runs import calls, of, says
from tool_loop import Agent, GenaiPrices, Limits, Price, PriceTable, ScriptedLLM, ToolRegistry, tool
from tool_loop.audit.invariants import check
from tool_loop.errors import UsageError
from tool_loop.events import ModelReplied, Notice, Usage
from tool_loop.llm.prices import Priced
from tool_loop.runtime.clock import run_virtual

OPENAI = "chat:https://api.openai.com"
TABLE = PriceTable({"m": Price(1.0, 2.0, cached=0.1, cache_write=1.25, window=9_000), "m-mini": Price(0.5, 1.0)})


@tool(effect="read")
async def look(n: int) -> str:
    """Look."""
    return str(n)


def turn(n: int) -> ModelReplied:
    return replace(calls((f"c{n}", "look", f'{{"n": {n}}}'), usage=Usage(100_000, 10_000)), model="m")


@pytest.mark.parametrize(
    ("model", "usage", "cost"),
    [
        ("m", Usage(1_000_000, 500_000), 2.0),
        ("m", Usage(1_000_000, 0, cached=600_000, cache_write=200_000), 0.2 + 0.06 + 0.25),
        ("m-mini", Usage(1_000_000, 0, cached=600_000, cache_write=200_000), 0.5),
        ("m-2026-11-01", Usage(1_000_000, 0), 1.0),
        ("m-mini-2026", Usage(1_000_000, 0), 0.5),
        ("other", Usage(1, 1), None),
        ("m", Usage(None, 5), None),
    ],
)
def test_a_table_prices_what_it_names(model: str, usage: Usage, cost: float | None) -> None:
    assert TABLE.cost(model, "", usage) == (None if cost is None else pytest.approx(cost))


def test_a_window_comes_with_the_price_and_is_used_where_the_caller_named_none() -> None:
    class Named(ScriptedLLM):
        model = "m"

    assert TABLE.window("m", "") == 9_000
    assert TABLE.window("unknown", "") is None
    assert Agent(Named("a"), prices=TABLE).limits.window == 9_000
    assert Agent(Named("a"), prices=TABLE, limits=Limits(window=5)).limits.window == 5
    assert Agent(Named("a")).limits.window is None


def test_the_offline_data_prices_by_endpoint_and_never_guesses() -> None:
    prices = GenaiPrices()

    assert prices.cost("gpt-4o-mini", OPENAI, Usage(1_000_000, 0)) == pytest.approx(0.15)
    assert prices.window("gpt-4o-mini", OPENAI) == 128_000
    assert prices.cost("gpt-4o-mini", "chat:http://127.0.0.1:8080", Usage(1, 1)) is None
    assert prices.window("nobody-knows-this-model", OPENAI) is None
    assert prices.cost("gpt-4o-mini", OPENAI, Usage(None, 1)) is None


def test_money_ends_a_run_with_an_answer_and_is_overrun_by_one_reply_at_most() -> None:
    agent = Agent(ScriptedLLM(*map(turn, range(9)), says("so far")), [look], prices=TABLE, limits=Limits(usd=0.5))

    async def main() -> None:
        script = ScriptedLLM(*map(turn, range(4)), replace(says("so far"), model="m"))
        result = await Agent(script, [look], prices=TABLE, limits=Limits(usd=0.6, tokens=None)).run("q")
        assert (result.reason, result.answer) == ("money budget", "so far")
        assert result.cost is not None
        assert 0.36 < result.cost <= 0.6
        assert check(result.events) == []

    run_virtual(main())
    assert agent.limits.usd == 0.5


def test_a_price_that_is_not_known_is_said_once_and_the_cost_stays_unknown() -> None:
    seen: list[object] = []
    script = ScriptedLLM(calls(("1", "look", '{"n": 1}')), "done", model="nameless")

    result = run_virtual(Agent(Priced(script, TABLE), [look], on_event=seen.append).run("q"))

    assert result.cost is None
    assert [n.text for n in of(Notice, seen)] == ["the price of nameless is not known, so what it costs is not counted"]


def test_a_budget_in_dollars_without_prices_is_refused_before_anything_runs() -> None:
    with pytest.raises(UsageError, match="prices"):
        Agent(ScriptedLLM("a"), limits=Limits(usd=1.0))


def test_tools_of_ones_own_kind_are_taken_as_they_are() -> None:
    class Mine:
        def __init__(self) -> None:
            self.inner = ToolRegistry([look])

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

    mine = Mine()
    agent = Agent(ScriptedLLM(calls(("1", "look", '{"n": 1}')), "done"), mine)  # type: ignore[arg-type]

    assert agent.tools is mine
    assert run_virtual(agent.run("q")).tool_calls == 1
