"""Tools of one's own: a typed function, a schema by hand, an error the model can mend, an effect that happens once.

Offline as it stands. With a model: `tool-loop ask "order two apples" --tools examples/own_tools.py:tools`.
"""

from typing import Literal

from pydantic import BaseModel, Field

from tool_loop import Agent, ScriptedLLM, Tool, ToolCall, ToolContext, ToolError, tool

PRICES = {"apple": 0.4, "pear": 0.5}


class Item(BaseModel):
    """What is ordered, and how many of it."""

    fruit: Literal["apple", "pear", "plum"]
    count: int = Field(ge=1, le=100)


@tool(effect="read")
def price(fruit: str) -> float:
    """The price of a fruit, in euros."""
    if fruit not in PRICES:
        # The model reads this as data, and tries something else.
        raise ToolError(f"no such fruit: {fruit}", kind="not_found", hint=f"there is {' and '.join(PRICES)}")
    return PRICES[fruit]


@tool(effect="once")
async def order(items: list[Item], context: ToolContext) -> str:
    """Place an order."""
    context.progress("talking to the shop")
    # The same over every retry and resume of this call: the shop can tell a repeat from a second order.
    return f"ordered {sum(item.count for item in items)} pieces under {context.idempotency_key}"


stock = Tool(
    "stock",
    "How many of a fruit there are.",
    {"type": "object", "properties": {"fruit": {"enum": sorted(PRICES)}}, "required": ["fruit"]},
    lambda fruit: {"apple": 7, "pear": 0}[fruit],
    effect="read",
)

tools = [price, order, stock]

if __name__ == "__main__":
    script = ScriptedLLM(
        [ToolCall("1", "price", '{"fruit": "aple"}'), ToolCall("2", "stock", '{"fruit": "apple"}')],
        ToolCall("3", "order", '{"items": [{"fruit": "apple", "count": "2"}]}'),  # a string: refused, and told why
        ToolCall("4", "order", '{"items": [{"fruit": "apple", "count": 2}]}'),
        "Two apples are ordered.",
    )
    result = Agent(script, tools).run_sync("Order two apples.", run_id="fruit")
    for failure in result.failures:
        print(failure.content)
    print(result.answer)
