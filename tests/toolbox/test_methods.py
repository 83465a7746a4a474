"""Methods of every kind are tools: of an instance, of a class, static, wrapped, filled in part.

After public reports: fastmcp #55, smolagents #627, python-genai #2457, anthropic-sdk-python #1110.
"""

from __future__ import annotations

import asyncio
import functools
import json
from typing import Any

import pytest

from tool_loop import tool
from tool_loop.errors import UsageError
from tool_loop.events import ToolCall, ToolReturned
from tool_loop.toolbox.registry import ToolRegistry


class Shop:
    vat = 10

    @tool(effect="read")
    @classmethod
    def below(cls, price: int) -> int:
        """Price with tax.

        Args:
            price: In cents.
        """
        return price + cls.vat

    @classmethod
    @tool(effect="read")
    def above(cls, price: int) -> int:
        """Price with tax.

        Args:
            price: In cents.
        """
        return price + cls.vat

    @tool(effect="read")
    @classmethod
    async def later(cls, price: int) -> int:
        """Price with tax.

        Args:
            price: In cents.
        """
        return price + cls.vat

    @tool(effect="read")
    @staticmethod
    def static_below(price: int) -> int:
        """Price with tax.

        Args:
            price: In cents.
        """
        return price + 10

    @staticmethod
    @tool(effect="read")
    def static_above(price: int) -> int:
        """Price with tax.

        Args:
            price: In cents.
        """
        return price + 10

    @tool(effect="read")
    def own(self, price: int) -> int:
        """Price with tax.

        Args:
            price: In cents.
        """
        return price + self.vat

    @tool(effect="once")
    @classmethod
    def pay(cls, price: int) -> str:
        """Pay."""
        return f"paid {price}"

    @pay.probe
    @classmethod
    def paid(cls, price: int) -> str:
        return f"paid {price + cls.vat} before"

    @tool(effect="once")
    @classmethod
    def send(cls, price: int) -> str:
        """Send."""
        return "sent"

    @send.probe
    def sent(cls, price: int) -> str:  # noqa: N805  a plain function: the tool is one of the class
        return f"sent {price + cls.vat} before"

    def plain(self, price: int) -> int:
        """Price with tax.

        Args:
            price: In cents.
        """
        return price + self.vat

    @classmethod
    def plain_of_class(cls, price: int) -> int:
        """Price with tax.

        Args:
            price: In cents.
        """
        return price + cls.vat

    def __call__(self, price: int) -> int:
        """Price with tax.

        Args:
            price: In cents.
        """
        return price + self.vat


class Corner(Shop):
    vat = 20


NAMES = ["below", "above", "later", "static_below", "static_above", "own", "plain", "plain_of_class"]


def call(registry: ToolRegistry, name: str, **arguments: Any) -> ToolReturned:
    return asyncio.run(registry.run(ToolCall("c", name, json.dumps(arguments))))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shop", [Shop(), Corner()], ids=["Shop", "Corner"])
def test_a_method_of_any_kind_is_a_tool_of_what_it_is_taken_from(name, shop):
    registry = ToolRegistry([getattr(shop, name)])

    assert registry.names == (name,)
    spec = registry.specs()[0]
    assert spec.description == "Price with tax."
    assert spec.parameters["properties"] == {"price": {"type": "integer", "description": "In cents."}}
    assert call(registry, name, price=1).content == str(1 + (10 if "static" in name else shop.vat))


@pytest.mark.parametrize("name", ["below", "above", "later", "static_below", "static_above", "plain_of_class"])
@pytest.mark.parametrize("shop", [Shop, Corner])
def test_a_method_of_a_class_needs_no_instance(name, shop):
    registry = ToolRegistry([getattr(shop, name)])

    assert call(registry, name, price=1).content == str(1 + (10 if "static" in name else shop.vat))


def test_a_method_of_an_instance_has_to_be_taken_from_one():
    with pytest.raises(UsageError, match="'own' is a method; take it from an instance"):
        ToolRegistry([Shop.own])


def test_a_probe_of_a_class_is_asked_for_its_class():
    found = asyncio.run(ToolRegistry([Corner.pay]).probe(ToolCall("c", "pay", '{"price": 1}')))
    assert found.content == "paid 21 before"
    found = asyncio.run(ToolRegistry([Corner.send]).probe(ToolCall("c", "send", '{"price": 1}')))
    assert found.content == "sent 21 before"


def test_objects_and_functions_filled_in_part_are_tools():
    registry = ToolRegistry(
        [
            tool(name="object")(Shop()),
            tool(name="partial")(functools.partial(Shop.plain_of_class)),
            tool(name="filled")(functools.partial(Shop().plain, price=2)),
        ]
    )

    assert call(registry, "object", price=1).content == "11"
    assert call(registry, "partial", price=1).content == "11"
    assert call(registry, "filled").content == "12"


def test_a_tool_is_still_the_method_it_was():
    assert Shop.below(1) == Corner().above(1) - 10 == Shop().own(1) == 11
