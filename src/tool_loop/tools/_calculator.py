"""The calculator as a tool: `calculator`, which a model sees as `calc`, and `calc` as a function.

What can be written and how it is computed is in `_arithmetic.py`, loaded with the first expression.
"""

from __future__ import annotations

from tool_loop.toolbox.registry import Tool


def calc(expression: str) -> str:
    """The value of an arithmetic expression, as text: `calc("15 * 20")` is "300".

    Integers are exact, and so are decimals as long as no function is involved: `0.1 + 0.2` is "0.3".
    Raises `ToolError` of kind `invalid_argument` that says what is wrong and where.
    """
    from ._arithmetic import evaluate

    return evaluate(expression)


calculator = Tool(
    name="calc",
    description=(
        "Compute an arithmetic expression. Operators: + - * / // % ** and parentheses. "
        "Constants: pi, e. Functions: abs, round, floor, ceil, min, max, sqrt, exp, log, log2, log10, sin, cos, tan."
    ),
    parameters={
        "type": "object",
        "properties": {"expression": {"type": "string", "description": 'For example "15 * 20" or "sqrt(2) / 3".'}},
        "required": ["expression"],
        "additionalProperties": False,
    },
    func=calc,
    effect="read",
    untrusted=False,
    timeout_seconds=5.0,
)
