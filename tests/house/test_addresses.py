"""The modules that programs import by path, under the names they had before the rooms."""

from __future__ import annotations

from importlib import import_module

import pytest

import tool_loop


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("tool_loop.registry", "ToolRegistry"),
        ("tool_loop.llm.openai_chat", "OpenAIChat"),
        ("tool_loop.llm.openai_responses", "OpenAIResponses"),
        ("tool_loop.llm.anthropic", "AnthropicMessages"),
    ],
)
def test_a_public_class_is_found_at_its_old_address_and_is_the_same(module: str, name: str) -> None:
    assert getattr(import_module(module), name) is getattr(tool_loop, name)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        import_module("tool_loop.llm.anthropic").OpenAIChat  # noqa: B018
