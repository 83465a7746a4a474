"""What wraps a port holds it under the port's name, so that one walk finds everything behind it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tool_loop
from tool_loop import OpenAIChat, Retrying, ScriptedLLM, Tool, ToolRegistry, tool
from tool_loop.cli._cost import Costed
from tool_loop.llm.prices import Priced, PriceTable
from tool_loop.ports import behind, rebuilt
from tool_loop.testing import Faults, Recording

SRC = Path(tool_loop.__file__).parent


def test_a_stack_of_wrappers_is_walked_from_the_outside_in_and_built_anew_around_another_model(tmp_path: Path) -> None:
    model, other = ScriptedLLM("a"), ScriptedLLM("b")
    stack = Retrying(
        Priced(Costed(Recording(Faults().llm(model), tmp_path / "r.jsonl"), lambda: PriceTable({})), PriceTable({}))
    )

    assert list(behind(stack))[-1] is model
    assert len(list(behind(stack))) == 6
    twin = rebuilt(stack, lambda inner: other if inner is model else pytest.fail("not the innermost"))
    assert [type(one) for one in behind(twin)] == [type(one) for one in behind(stack)]
    assert list(behind(twin))[-1] is other
    assert list(behind(stack))[-1] is model


def test_a_model_that_wraps_nothing_stands_alone() -> None:
    llm = OpenAIChat("m", "http://127.0.0.1:9/v1")

    assert list(behind(llm)) == [llm]


def test_nothing_keeps_a_port_under_a_hidden_name() -> None:
    hidden = [
        f"{path.relative_to(SRC)}:{node.lineno}"
        for path in sorted(SRC.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "_llm" and isinstance(node.ctx, ast.Store)
    ]

    assert hidden == []


def test_a_registry_of_other_tools_has_the_same_policy_and_a_tool_with_another_function_the_same_face() -> None:
    @tool(effect="once")
    def pay(cents: int) -> str:
        """Pay."""
        return f"paid {cents}"

    registry = ToolRegistry([pay], approve="effects", scope="shop")
    stand_in = pay.with_func(lambda cents: f"would pay {cents}")
    twin = registry.with_tools([stand_in])

    assert (twin.approve, twin.scope, twin.specs()) == ("effects", "shop", registry.specs())
    assert isinstance(stand_in, Tool)
    assert (pay(5), stand_in(5)) == ("paid 5", "would pay 5")
