"""The public API as a user writes it. Never run, only checked by mypy --strict."""

from __future__ import annotations

from typing import Annotated, Any, Literal, assert_type

from tool_loop import (
    Agent,
    ApprovalDecided,
    Example,
    Limits,
    MemoryJournal,
    OpenAIChat,
    PendingApproval,
    Price,
    PriceTable,
    Result,
    RetryPolicy,
    ScriptedLLM,
    Tool,
    ToolCall,
    ToolError,
    ToolRegistry,
    ToolReturned,
    calculator,
    run_agent,
    tool,
    workspace_tools,
)
from tool_loop.events import Event, Signal, TextDelta


@tool(effect="read")
def get_weather(city: str, unit: Annotated[Literal["c", "f"], "degrees"] = "c") -> str:
    """Current weather for a city."""
    if not city:
        raise ToolError("'city' is empty", hint="name a city", city=city)
    return f"20 {unit} in {city}"


@tool
async def send(text: str) -> None:
    """Send a message."""


by_hand = Tool(
    name="add",
    description="Add two numbers",
    parameters={"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
    func=lambda a, b: a + b,
)


async def ask_person(call: PendingApproval) -> ApprovalDecided:
    return ApprovalDecided(call.call.id, allowed=True, by="me")


def watch(happening: Event | Signal) -> None:
    if isinstance(happening, TextDelta):
        assert_type(happening.text, str)


async def main() -> None:
    agent = Agent(
        OpenAIChat(model="m", base_url="http://127.0.0.1:8080/v1"),
        tools=[get_weather, send, by_hand, calculator, *workspace_tools(".")],
        system="Be brief.",
        limits=Limits(steps=20, tokens=200_000, seconds=600, usd=1.0),
        journal=MemoryJournal(),
        approve="effects",
        reviewer=ask_person,
        examples=[Example("q", "add", '{"a": 1, "b": 2}', "3", "It is 3.")],
        on_event=watch,
        retry=RetryPolicy(attempts=3),
        prices=PriceTable({"m": Price(1.0, 2.0)}),
    )
    result = await agent.run("...", run_id="r1")
    assert_type(result, Result)
    assert_type(result.answer, str)
    assert_type(result.cost, float | None)
    assert_type(await agent.resume("r1"), Result[Any])
    assert_type(agent.run_sync("..."), Result)
    async with agent.stream("...") as events:
        async for event in events:
            watch(event)
    registry = ToolRegistry([get_weather])
    assert_type(await registry.run(ToolCall("1", "get_weather", "{}")), ToolReturned)
    get_weather("Berlin")


assert_type(run_agent("q", [get_weather], max_steps=5, llm=ScriptedLLM("a")), str)
