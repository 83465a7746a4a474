"""Schemas and validation: from signatures, or written by hand; one shape of message for both."""

# ruff: noqa: E501, B006, B008 - a table reads best with a row on one line; defaults are what is tested
from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import enum
import functools
import json
import pathlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pydantic import BaseModel, ConfigDict, Field, field_validator
from typing_extensions import TypedDict

from tool_loop.errors import UsageError
from tool_loop.events import ToolCall
from tool_loop.toolbox.registry import Tool, ToolContext, ToolRegistry, tool

if TYPE_CHECKING:
    from collections import OrderedDict as OnlyForTheTypeChecker


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Item(BaseModel):
    """One line of an order."""

    sku: str
    qty: int = Field(gt=0, description="How many.")


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str] = []


class Node(BaseModel):
    value: int
    children: list[Node] = []


class Order(BaseModel):
    node: Node
    items: list[Item] = []


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


@dataclass
class Point:
    x: int
    y: int = 0


class Pair(TypedDict):
    left: int


class Even(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def even(cls, n: int) -> int:
        if n % 2:
            raise ValueError("n has to be even")
        if n >= 100:
            raise AssertionError("n is far too large")
        return n


def schema(func: Any) -> dict[str, Any]:
    return ToolRegistry([func]).schemas()[0]["function"]["parameters"]


def call(func: Any, arguments: str) -> Any:
    """What the tool was called with, or (message, hint) of the refusal."""
    got = {}

    async def spy(**kwargs: Any) -> str:
        got.update(kwargs)
        return "ok"

    made = next(iter(ToolRegistry([func])))
    object.__setattr__(made, "func", spy)
    made.__dict__["is_async"] = True
    result = asyncio.run(ToolRegistry([made]).run(ToolCall("c", made.name, arguments)))
    if result.error is None:
        return got
    told = json.loads(result.content)
    assert result.error == told["error"] == "invalid_arguments"
    assert set(told) <= {"error", "message", "hint", "fields"}
    for place, text in told["fields"].items():
        assert (f"'{place}' {text}" if place else f"the call {text}") in told["message"]
    return told["message"], told.get("hint", "")


# --- schemas of signatures ------------------------------------------------------------------------


def test_the_schema_says_what_the_signature_and_the_docstring_say():
    @tool
    def get_weather(
        city: str,
        unit: Literal["c", "f"] = "c",
        days: Annotated[int, "How many days ahead."] = 1,
        *,
        verbose: Annotated[bool, Field(description="Say more.")] = False,
    ) -> str:
        """Current weather for a city.

        It may be a little late.

        Args:
            city (str): Its name,
                in English.
            days: Overruled by the annotation.
            nobody: Not a parameter.

        Returns:
            A sentence.

        Raises:
            ValueError: never
        """
        return city

    assert ToolRegistry([get_weather]).schemas() == [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Current weather for a city.\n\nIt may be a little late.\n\nReturns:\n    A sentence.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "city": {"type": "string", "description": "Its name, in English."},
                        "unit": {"enum": ["c", "f"], "type": "string", "default": "c"},
                        "days": {"type": "integer", "default": 1, "description": "How many days ahead."},
                        "verbose": {"type": "boolean", "default": False, "description": "Say more."},
                    },
                    "required": ["city"],
                },
            },
        }
    ]


def test_nested_models_stand_in_their_place_and_without_noise():
    def order(items: list[Item], colour: Colour = Colour.RED, note: str | None = None) -> None:
        """Order."""

    assert schema(order) == {
        "type": "object",
        "properties": {
            "items": {
                "type": "array",
                "items": {
                    "type": "object",
                    "description": "One line of an order.",
                    "properties": {
                        "sku": {"type": "string"},
                        "qty": {"type": "integer", "description": "How many. (greater than 0)"},
                    },
                    "required": ["sku", "qty"],
                },
            },
            "colour": {"type": "string", "enum": ["red", "green"], "default": "red"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["items"],
    }


def test_a_type_that_contains_itself_keeps_its_definition_and_no_other():
    def grow(order: Order) -> None:
        """Grow."""

    grown = schema(grow)

    assert set(grown["$defs"]) == {"Node"}
    assert grown["properties"]["order"]["properties"]["node"] == {"$ref": "#/$defs/Node"}
    assert grown["properties"]["order"]["properties"]["items"]["items"]["properties"]["sku"] == {"type": "string"}


def test_schemas_avoid_what_some_servers_refuse():
    def odd(
        positive: Annotated[float, Field(gt=0, lt=1)],
        steps: Annotated[int, Field(multiple_of=5)],
        unique: set[str],
        mapping: dict[Literal["a", "b"], int],
        one: Literal["only"],
        pet: Annotated[Cat | Dog, Field(discriminator="kind")],
        anything: list,
        pair: tuple[int, str],
        title: str = "a field called title",
        description: str = "and one called description",
    ) -> None:
        """Odd."""

    text = json.dumps(schema(odd))
    refused = ["$schema", "exclusiveMinimum", "exclusiveMaximum", "propertyNames", "patternProperties", "const"]

    assert not [word for word in [*refused, "uniqueItems", "multipleOf", "$ref", "$defs"] if f'"{word}"' in text]
    assert schema(odd)["properties"]["positive"]["description"] == "less than 1, greater than 0"
    assert schema(odd)["properties"]["unique"]["description"] == "no item twice"
    assert schema(odd)["properties"]["anything"] == {"type": "array", "items": {}}
    assert schema(odd)["properties"]["title"] == {"type": "string", "default": "a field called title"}
    assert "items" in schema(odd)["properties"]["pair"]


def test_a_default_that_is_not_json_is_not_told():
    def later(when: Any = object(), factory: list[int] = Field(default_factory=list)) -> None:
        """Later."""

    assert schema(later)["properties"] == {"when": {}, "factory": {"type": "array", "items": {"type": "integer"}}}
    assert call(later, "{}")["factory"] == []


def test_plain_defaults_say_the_type_of_what_has_no_annotation():
    def plain(text="x", number=3, share=1.5, flag=True):
        """Plain."""

    types = {name: field["type"] for name, field in schema(plain)["properties"].items()}

    assert types == {"text": "string", "number": "integer", "share": "number", "flag": "boolean"}


def test_any_name_of_a_parameter_will_do():
    def names(schema: int, copy: str, json: int, model_config: int, _hidden: int = 1, self: int = 2) -> None:
        """Names."""

    filled = call(names, '{"schema": 1, "copy": "x", "json": 2, "model_config": 3}')

    assert filled == {"schema": 1, "copy": "x", "json": 2, "model_config": 3, "_hidden": 1, "self": 2}


def test_what_a_partial_has_filled_is_hidden_from_the_model():
    def send(to: str, api_key: str, retries: int = 3) -> str:
        """Send it."""
        return f"{to} {api_key}"

    bound = functools.partial(functools.partial(send, api_key="secret"), retries=5)
    registry = ToolRegistry([bound])

    assert "secret" not in json.dumps(registry.schemas())
    assert registry.schemas()[0]["function"]["description"] == "Send it."
    assert asyncio.run(registry.run(ToolCall("c", "send", '{"to": "me"}'))).content == "me secret"
    assert "'api_key' is not a field" in call(bound, '{"to": "me", "api_key": "mine"}')[0]


def test_local_classes_can_be_named_although_annotations_are_text():
    class Local(BaseModel):
        n: int

    secret = object()

    def plain(local: Local) -> OnlyForTheTypeChecker:
        """Plain."""

    @tool
    def decorated(local: Local) -> None:
        """Decorated."""

    assert call(plain, '{"local": {"n": 1}}') == {"local": Local(n=1)}
    assert call(decorated, '{"local": {"n": 1}}') == {"local": Local(n=1)}
    assert decorated.local == {"Local": Local}, "the frame's other variables are not kept"
    assert secret


def test_a_type_may_be_defined_after_the_tool():
    made = tool(_uses_a_later_type)

    assert schema(made)["properties"]["later"]["properties"] == {"n": {"type": "integer"}}


def _uses_a_later_type(later: Later) -> None:
    """Later."""


class Later(BaseModel):
    n: int


# --- conversion and strictness of typed functions -------------------------------------------------


def test_json_becomes_the_types_of_the_signature():
    def types(
        day: dt.date,
        colour: Colour,
        key: uuid.UUID,
        path: pathlib.Path,
        price: decimal.Decimal,
        tags: set[str],
        pair: tuple[int, str],
        point: Point,
        typed: Pair,
        maybe: Optional[int],  # noqa: UP045 - the old spelling has to work too
        share: float,
    ) -> None:
        """Types."""

    key = "123e4567-e89b-12d3-a456-426614174000"
    text = json.dumps(
        {
            "day": "2026-01-31",
            "colour": "red",
            "key": key,
            "path": "a/b",
            "price": "2.50",
            "tags": ["a", "b"],
            "pair": [1, "x"],
            "point": {"x": 1},
            "typed": {"left": 1},
            "maybe": None,
            "share": 2,
        }
    )

    assert call(types, text) == {
        "day": dt.date(2026, 1, 31),
        "colour": Colour.RED,
        "key": uuid.UUID(key),
        "path": pathlib.Path("a/b"),
        "price": decimal.Decimal("2.50"),
        "tags": {"a", "b"},
        "pair": (1, "x"),
        "point": Point(1),
        "typed": {"left": 1},
        "maybe": None,
        "share": 2.0,
    }


def one(n: int = 1) -> None:
    """One integer."""


def choice(n: Literal[1, 2]) -> None:
    """Choose a number."""


def nested(items: list[Item], point: Point | None = None, pair: Pair | None = None) -> None:
    """Nested."""


def pets(pet: Annotated[Cat | Dog, Field(discriminator="kind")], others: list[Cat | Dog] = []) -> None:
    """Pets."""


def mixed(value: int | list[int] | None = None) -> None:
    """Several types."""


def optional(n: int | None = 3) -> None:
    """May be null."""


def even(even: Even, other: int = 0) -> None:
    """A validator of the author's own."""


def opened(open_: Open, point: Point | None = None, item: Item | None = None) -> None:
    """One part takes any field."""


def dated(day: dt.date | None = None, colour: Colour = Colour.RED) -> None:
    """Formats."""


def bounded(text: str = Field("abc", min_length=2, max_length=3, pattern="^a"), n: int = Field(1, ge=1, le=9)) -> None:
    """Limits."""


HAND = Tool(
    "hand",
    "By hand.",
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where to look."},
            "start_line": {"type": "integer", "minimum": 1},
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "only": {"const": "this"},
            "items": {
                "type": "array",
                "minItems": 1,
                "maxItems": 3,
                "uniqueItems": True,
                "items": {"type": "object", "properties": {"qty": {"type": "integer"}}, "required": ["qty"]},
            },
            "either": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
            "nullable": {"type": ["integer", "null"]},
            "share": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "multipleOf": 0.25},
            "day": {"type": "string", "format": "date"},
            "names": {"type": "array", "items": {"type": "string"}},
            "tiny": {"type": "string", "minLength": 2, "maxLength": 3},
            "free": {"type": "object"},
            "sized": {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 2,
                "additionalProperties": {"type": "integer"},
            },
            "closed": {"type": "object", "additionalProperties": False},
            "ref": {"$ref": "#/$defs/Thing"},
            "refs": {"type": "array", "items": {"$ref": "#/$defs/Thing"}},
            "both": {
                "allOf": [{"properties": {"x": {"type": "integer"}}}, {"properties": {"y": {"type": "integer"}}}],
            },
            "form": {
                "oneOf": [
                    {
                        "type": "object",
                        "properties": {"k": {"const": "a"}, "v": {"type": "integer"}},
                        "required": ["k"],
                    },
                    {
                        "type": "object",
                        "properties": {"k": {"const": "b"}, "w": {"type": "string"}},
                        "required": ["k", "w"],
                    },
                ]
            },
            "twice": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
            "indexed": {"$ref": "#/properties/form/oneOf/0"},
            "never": False,
            "tuple": {"type": "array", "prefixItems": [{"type": "integer"}], "items": False},
            "not_zero": {"not": {"const": 0}},
            "loop": {"$ref": "#/properties/loop"},
            "a/b~c": {"type": "string"},
            "escaped": {"$ref": "#/properties/a~1b~0c"},
            "anchored": {"$ref": "#anchor"},
            "embedded": {"$ref": "inner.json"},
            "dynamic": {"$dynamicRef": "#node"},
            "cond": {
                "properties": {"a": {"type": "integer"}},
                "if": {"required": ["a"]},
                "then": {"properties": {"b": {"type": "string"}}, "required": ["b"]},
            },
            "schema": {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        },
        "$defs": {
            "Dynamic": {"$dynamicAnchor": "node", "type": "object", "properties": {"n": {"type": "integer"}}},
            "Anchored": {"$anchor": "anchor", "enum": ["x", "y"]},
            "Embedded": {"$id": "inner.json", "type": "integer", "minimum": 5},
            "Thing": {
                "type": "object",
                "properties": {"q": {"type": "integer"}, "r": {"type": "string"}},
                "required": ["q"],
            },
        },
    },
    lambda **given: given,
)
NOTHING = Tool("nothing", "No fields.", {"type": "object"}, lambda: "ok")
REQUIRED = Tool(
    "required",
    "Required.",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where to look."},
            "n": {"type": "integer", "minimum": 4},
            "unit": {"enum": ["c", "f"]},
            "when": {"type": "string", "format": "date-time"},
            "deep": {
                "type": "object",
                "properties": {"a": {"type": "array", "items": {"type": "boolean"}}},
                "required": ["a"],
            },
            "given": {"type": "string", "examples": ["like this"]},
            "any": {},
            "null": {"type": "null"},
        },
        "required": ["path", "n", "unit", "when", "deep", "given", "any", "null", "unnamed"],
        "additionalProperties": True,
    },
    lambda **given: given,
)

FIELDS = "path, start_line, unit, only, items, either, nullable, share, day, names, tiny, free, sized, closed, ref, refs, both, form, twice, indexed, never, tuple, not_zero, loop, a/b~c, escaped, anchored, embedded, dynamic, cond, schema"

# The tool, what a model sent, the whole message, the whole hint.
WRONG = [
    # types: the design's own example first, then the three that a lax validator lets through
    (HAND, '{"start_line": "twelve"}', "'start_line' must be integer, got str", "Send 'start_line' as integer, for example 1."),
    (HAND, '{"start_line": "12"}', "'start_line' must be integer, got str", "Write 'start_line' as 12, not \"12\"."),
    (HAND, '{"start_line": true}', "'start_line' must be integer, got bool", "Send 'start_line' as integer, for example 1."),
    (HAND, '{"start_line": 5.0}', "'start_line' must be integer, got float", "Write 'start_line' as 5, not 5.0."),
    (HAND, '{"start_line": null}', "'start_line' must be integer, got null", "Send 'start_line' as integer, for example 1."),
    (one, '{"n": "12"}', "'n' must be integer, got str", "Write 'n' as 12, not \"12\"."),
    (one, '{"n": true}', "'n' must be integer, got bool", "Send 'n' as integer, for example 1."),
    (one, '{"n": 5.0}', "'n' must be integer, got float", "Write 'n' as 5, not 5.0."),
    (one, '{"n": 1e0}', "'n' must be integer, got float", "Write 'n' as 1, not 1.0."),
    (one, '{"n": [1]}', "'n' must be integer, got list", "Send 'n' as integer, for example 1."),
    (choice, '{"n": true}', "'n' must be one of 1, 2; got true", ""),
    (choice, '{"n": "1"}', "'n' must be one of 1, 2; got \"1\"", ""),
    (optional, '{"n": "x"}', "'n' must be integer or null, got str", "Send 'n' as integer or null, for example 3."),
    (HAND, '{"nullable": "x"}', "'nullable' must be integer or null, got str", "Send 'nullable' as integer or null, for example 1."),
    (HAND, '{"path": 5}', "'path' must be string, got int", "Write 'path' as \"5\", not 5."),
    (HAND, '{"path": false}', "'path' must be string, got bool", "Send 'path' as string (Where to look.), for example \"...\"."),
    (HAND, '{"names": "x"}', "'names' must be array of string, got str", "Write 'names' as [\"x\"], not \"x\"."),
    (HAND, '{"names": "[\\"x\\"]"}', "'names' must be array of string, got str", 'Write \'names\' as ["x"], not "[\\"x\\"]".'),
    (HAND, '{"share": "0.5"}', "'share' must be number, got str", "Write 'share' as 0.5, not \"0.5\"."),
    (HAND, '{"share": "1"}', "'share' must be number, got str", "Write 'share' as 1, not \"1\"."),
    # missing and unknown
    (nested, "{}", "'items' is required", 'Add \'items\': array of object, for example [{"sku": "...", "qty": 1}].'),
    (NOTHING, '{"x": 1}', "'x' is not a field: nothing takes no fields", "Leave out 'x'."),
    (HAND, '{"pth": "a"}', f"'pth' is not a field of hand; fields are: {FIELDS}", "Did you mean 'path' instead of 'pth'?"),
    (one, '{"m": 1, "n": "1"}', "'n' must be integer, got str; 'm' is not a field of one; fields are: n", "Write 'n' as 1, not \"1\"."),
    (one, '{"p0": 1}', "'p0' is not a field of one; fields are: n", ""),
    (one, '{"a\\nb": 1}', "'a\\nb' is not a field of one; fields are: n", ""),
    # choices
    (HAND, '{"unit": "Celcius"}', "'unit' must be one of \"celsius\", \"fahrenheit\"; got \"Celcius\"", "Did you mean \"celsius\" for 'unit'?"),
    (HAND, '{"only": "that"}', "'only' must be \"this\"; got \"that\"", "Did you mean \"this\" for 'only'?"),
    (dated, '{"colour": "redd"}', "'colour' must be one of \"red\", \"green\"; got \"redd\"", "Did you mean \"red\" for 'colour'?"),
    # inside of lists, models, dataclasses, references
    (HAND, '{"items": [{"qty": "5"}, {}]}', "'items.0.qty' must be integer, got str; 'items.1.qty' is required", "Write 'items.0.qty' as 5, not \"5\". Add 'items.1.qty': integer, for example 1."),
    (HAND, '{"items": [{"qty": 1, "x": 2}]}', "'items.0.x' is not a field of 'items.0'; fields are: qty", ""),
    (HAND, '{"ref": {"q": "1", "r": "ok"}}', "'ref.q' must be integer, got str", "Write 'ref.q' as 1, not \"1\"."),
    (HAND, '{"ref": {"q": 1, "z": 2}}', "'ref.z' is not a field of 'ref'; fields are: q, r", ""),
    (HAND, '{"refs": [{"r": "x"}]}', "'refs.0.q' is required", "Add 'refs.0.q': integer, for example 1."),
    (HAND, '{"both": {"x": "1", "y": 2}}', "'both.x' must be integer, got str", "Write 'both.x' as 1, not \"1\"."),
    (HAND, '{"both": {"x": 1, "z": 2}}', "'both.z' is not a field of 'both'; fields are: x, y", ""),
    (nested, '{"items": [{"sku": 1, "qty": 1, "z": 1}]}', "'items.0.z' is not a field of 'items.0'; fields are: sku, qty; 'items.0.sku' must be string, got int", "Write 'items.0.sku' as \"1\", not 1."),
    (nested, '{"items": [{"sku": "x", "qty": 0}]}', "'items.0.qty' must be greater than 0, got 0", ""),
    (nested, '{"items": [], "point": {"x": 1, "z": 1}}', "'point.z' is not a field of 'point'; fields are: x, y", ""),
    (nested, '{"items": [], "pair": {"left": 1, "z": 1}}', "'pair.z' is not a field of 'pair'; fields are: left", ""),
    (HAND, '{"escaped": 1}', "'escaped' must be string, got int", "Write 'escaped' as \"1\", not 1."),
    (HAND, '{"anchored": 1}', "'anchored' must be one of \"x\", \"y\"; got 1", ""),
    (HAND, '{"embedded": "7"}', "'embedded' must be integer, got str", "Write 'embedded' as 7, not \"7\"."),
    (HAND, '{"embedded": 1}', "'embedded' must be at least 5, got 1", ""),
    (HAND, '{"schema": {"type": 5}}', "'schema.type' must be one of \"array\", \"boolean\", \"integer\", \"null\", \"number\", \"object\", \"string\"; got 5", ""),
    (HAND, '{"dynamic": "7"}', "'dynamic' must be object, got str", "Send 'dynamic' as object, for example {}."),
    (HAND, '{"dynamic": {"n": "7"}}', "'dynamic.n' must be integer, got str", "Write 'dynamic.n' as 7, not \"7\"."),
    (HAND, '{"cond": {"a": 1}}', "'cond.b' is required", "Add 'cond.b': string, for example \"...\"."),
    (HAND, '{"cond": {"c": 1}}', "'cond.c' is not a field of 'cond'; fields are: a, b", ""),
    # unions: the branch that was meant is told, and only that
    (HAND, '{"either": [true]}', "'either.0' must be integer, got bool", "Send 'either.0' as integer, for example 1."),
    (HAND, '{"either": [5.0]}', "'either.0' must be integer, got float", "Write 'either.0' as 5, not 5.0."),
    (HAND, '{"either": "x"}', "'either' must be integer or array of integer, got str", "Send 'either' as integer or array of integer, for example 1."),
    (mixed, '{"value": ["1"]}', "'value.0' must be integer, got str", "Write 'value.0' as 1, not \"1\"."),
    (mixed, '{"value": {}}', "'value' must be integer or array of integer or null, got dict", "Send 'value' as integer or array of integer or null, for example 1."),
    (pets, '{"pet": {"kind": "catt", "lives": 9}}', "'pet.kind' must be one of \"cat\", \"dog\"; got \"catt\"", "Did you mean \"cat\" for 'pet.kind'?"),
    (pets, '{"pet": {"lives": 9}}', "'pet.kind' is required", "Add 'pet.kind': \"cat\"."),
    (pets, '{"pet": {"kind": "cat", "tricks": []}}', "'pet.lives' is required", "Add 'pet.lives': integer, for example 1."),
    (pets, '{"pet": {"kind": "dog", "lives": 9}}', "'pet.lives' does not go with the other fields of 'pet'", ""),
    (pets, '{"pet": {"kind": "dog"}, "others": [{"kind": "dog", "tricks": [1]}]}', "'others.0.tricks.0' must be string, got int", "Write 'others.0.tricks.0' as \"1\", not 1."),
    (HAND, '{"form": {"k": "a", "v": "x"}}', "'form.v' must be integer, got str", "Send 'form.v' as integer, for example 1."),
    (HAND, '{"form": {"k": "b"}}', "'form.w' is required", "Add 'form.w': string, for example \"...\"."),
    (HAND, '{"form": {"k": "c"}}', "'form.k' must be one of \"a\", \"b\"; got \"c\"", ""),
    (HAND, '{"form": {"k": "a", "w": "x"}}', "'form.w' does not go with the other fields of 'form'", ""),
    (HAND, '{"form": 5}', "'form' must be object, got int", 'Send \'form\' as object, for example {"k": "a"}.'),
    (HAND, '{"twice": 5}', "'twice' fits more than one of the forms it may have; it must fit exactly one", ""),
    # limits
    (HAND, '{"start_line": 0}', "'start_line' must be at least 1, got 0", ""),
    (HAND, '{"share": 0}', "'share' must be greater than 0, got 0", ""),
    (HAND, '{"share": 1.25}', "'share' must be less than 1, got 1.25", ""),
    (HAND, '{"share": 0.3}', "'share' must be a multiple of 0.25, got 0.3", ""),
    (HAND, '{"day": "nope"}', "'day' must be in the format date, got \"nope\"", "Write 'day' as in \"2026-01-31\"."),
    (HAND, '{"tiny": "x"}', "'tiny' must have at least 2 characters, got 1", ""),
    (HAND, '{"tiny": "xxxx"}', "'tiny' must have at most 3 characters, got 4", ""),
    (HAND, '{"items": []}', "'items' must have at least 1 items, got 0", ""),
    (HAND, '{"items": [{"qty": 1}, {"qty": 1}]}', "'items' must not have the same item twice", ""),
    (HAND, '{"sized": {}}', "'sized' must have at least 1 fields, got 0", ""),
    (HAND, '{"sized": {"a": 1, "b": 2, "c": 3}}', "'sized' must have at most 2 fields, got 3", ""),
    (HAND, '{"sized": {"a": "1"}}', "'sized.a' must be integer, got str", "Write 'sized.a' as 1, not \"1\"."),
    (HAND, '{"closed": {"a": 1}}', "'closed' is not allowed", ""),
    (HAND, '{"never": 1}', "'never' is not allowed", ""),
    (HAND, '{"tuple": [1, 2]}', "'tuple.1' is not allowed", ""),
    (HAND, '{"not_zero": 0}', "'not_zero' is not valid: {\"const\":0} is not allowed for 0", ""),
    (bounded, '{"text": "b", "n": 10}', "'text' must have at least 2 characters, got 1; 'text' must match the pattern ^a, got \"b\"; 'n' must be at most 9, got 10", ""),
    (dated, '{"day": "tomorrow"}', "'day' must be in the format date, got \"tomorrow\"", "Write 'day' as in \"2026-01-31\"."),
    # what only the author's code can say
    (even, '{"even": {"n": 3}}', "'even.n' is not valid: n has to be even", ""),
    (even, '{"even": {"n": 100}, "other": "1"}', "'other' must be integer, got str; 'even.n' is not valid: n is far too large", "Write 'other' as 1, not \"1\"."),
    # one part takes any field, the others still do not
    (opened, '{"open_": {"a": 1, "b": 2}, "item": {"sku": "x", "qty": 1, "z": 1}}', "'item.z' is not a field of 'item'; fields are: sku, qty", ""),
    (opened, '{"open_": {"a": 1, "b": 2}, "point": {"x": 1, "z": 1}}', "'point.z' is not a field of 'point'; fields are: x, y", ""),
]  # fmt: skip


@pytest.mark.parametrize(("func", "sent", "message", "hint"), WRONG, ids=range(len(WRONG)))
def test_every_offending_field_is_named_and_told_how_to_be_right(func, sent, message, hint):
    assert call(func, sent) == (message, hint)


RIGHT = [
    (HAND, '{"start_line": 1, "share": 0.5, "free": {"any": {"thing": 1}}, "form": {"k": "a"}, "nullable": null}'),
    (HAND, '{"path": "1.0 and 2e5", "both": {"x": 1, "y": 2}, "refs": [{"q": 1}]}'),
    (HAND, '{"share": 0.25, "either": [1, 2]}'),
    (NOTHING, ""),
    (opened, '{"open_": {"a": 1, "b": 2}}'),
    (mixed, '{"value": [1]}'),
]


@pytest.mark.parametrize(("func", "sent"), RIGHT, ids=range(len(RIGHT)))
def test_what_is_right_is_let_through(func, sent):
    assert isinstance(call(func, sent), dict)


def test_a_hand_written_schema_that_says_so_takes_any_field():
    free = Tool("free", "Free.", {"type": "object", "additionalProperties": True}, lambda **given: given)
    named = Tool("named", "N.", {"type": "object", "additionalProperties": {"type": "integer"}}, lambda **given: given)

    assert call(free, '{"a": 1}') == {"a": 1}
    assert call(named, '{"a": 1}') == {"a": 1}
    assert call(named, '{"a": "x"}') == ("'a' must be integer, got str", "Send 'a' as integer, for example 1.")


def test_each_missing_field_comes_with_its_kind_and_an_example():
    message, hint = call(REQUIRED, "{}")

    assert message.startswith("'path' is required; 'n' is required; ")
    assert hint == (
        "Add 'path': string (Where to look.), for example \"...\". Add 'n': integer, for example 4. "
        'Add \'unit\': one of "c", "f". Add \'when\': string, for example "2026-01-31T12:00:00Z". '
        "Add 'deep': object, for example {\"a\": [true]}. Add 'given': string, for example \"like this\". "
        "Add 'any': a value, for example \"...\". Add 'null': null, for example null. "
        "Add 'unnamed': a value, for example \"...\"."
    )


def test_a_flood_of_faults_is_told_in_part():
    message, _ = call(nested, json.dumps({"items": [{"sku": 1, "qty": 1}] * 50}))

    assert message.count("must be string") == 10
    assert message.endswith("; and 40 more")


def test_long_values_and_long_lists_of_choices_are_cut():
    many = Tool("many", "Many.", {"type": "object", "properties": {"a": {"enum": list(range(50))}}}, lambda **_: "")

    message, _ = call(many, json.dumps({"a": "x" * 500}))

    assert message.endswith('19, and 30 more; got "' + "x" * 76 + "...")


def test_a_second_call_is_checked_as_the_first():
    registry = ToolRegistry([choice, HAND])
    results = [
        asyncio.run(registry.run(ToolCall("c", name, sent))).error
        for name, sent in [("choice", '{"n": 1}'), ("choice", '{"n": true}')] * 2 + [("hand", '{"path": 1}')] * 2
    ]

    assert results == [None, "invalid_arguments"] * 2 + ["invalid_arguments"] * 2


def test_a_changed_copy_of_a_tool_still_knows_its_types():
    class Local(BaseModel):
        n: int

    @tool
    def func(local: Local) -> None:
        """Do it."""

    changed = _changed(func)

    assert changed.effect == "read"
    assert call(changed, '{"local": {"n": 1}}') == {"local": Local(n=1)}


def _changed(made: Tool) -> Tool:
    return replace(made, effect="read")


def test_a_docstring_may_be_written_in_any_way():
    def loose(a: int, b: int, c: int) -> None:
        """
        Args:
            Some words before the first.
            a: First.

            b: Second:
                with more.
        Not a section any more.
            c: Not told.
        """

    def last(a: int) -> None:
        """Last.

        Args:
            a: The end."""

    def silent(a: int) -> None: ...

    fields = schema(loose)["properties"]

    assert [field.get("description") for field in fields.values()] == ["First.", "Second: with more.", None]
    assert schema(last)["properties"]["a"]["description"] == "The end."
    assert ToolRegistry([last, silent]).specs()[0].description == "Last."
    assert ToolRegistry([last, silent]).specs()[1].description == ""


def test_a_local_variable_that_has_no_value_yet_is_no_hindrance():
    def func(a: int) -> int:
        """Do it."""
        return later

    made = tool(func)
    later = 5

    assert schema(made)["properties"] == {"a": {"type": "integer"}}
    assert made(1) == 5 == later


def test_an_older_draft_of_json_schema_is_understood():
    old = Tool(
        "old",
        "Old.",
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {"a": {"$ref": "#/definitions/A"}, "pair": {"type": "array", "items": [{"type": "integer"}]}},
            "definitions": {"A": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        },
        lambda **given: given,
    )

    assert call(old, '{"a": {"n": 1}, "pair": [1, "x"]}') == {"a": {"n": 1}, "pair": [1, "x"]}
    assert call(old, '{"b": 1}') == ("'b' is not a field of old; fields are: a, pair", "")
    assert call(old, '{"a": {"n": "x"}}')[0] == "'a.n' must be integer, got str"
    assert "$schema" not in schema(old)


def test_a_schema_that_only_pydantic_understands_is_explained_by_pydantic():
    class Strange:
        @classmethod
        def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
            return handler(int)

        @classmethod
        def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> Any:
            return {"type": "string", "pattern": "("}

    def strange(a: Strange, b: list[Item], c: int = 1) -> None:
        """Strange."""

    assert call(strange, '{"a": "x", "b": [{}], "z": 1}') == (
        "'a' must be a valid integer; 'b.0.sku' is required; 'b.0.qty' is required; 'z' is not a field of strange",
        "",
    )


# --- what is refused before anything runs ---------------------------------------------------------


def refuses(words: str, make: Callable[[], Any]) -> None:
    with pytest.raises(UsageError, match=words):
        make()


def test_signatures_that_no_model_could_fill_are_refused():  # noqa: C901
    def star(*args: int) -> None: ...
    def stars(**kwargs: int) -> None: ...
    def positional(a: int, /) -> None: ...
    def bare(a): ...
    def bare_none(a=None): ...
    def generator(a: int):
        yield a

    async def async_generator(a: int):
        yield a

    class Opaque:
        """As functions of extension modules may be."""

        __signature__ = "none"

        def __call__(self, a: int) -> None: ...

    refuses("'star': parameter 'args' takes any number", lambda: tool(star))
    refuses("'stars': parameter 'kwargs' takes any number", lambda: tool(stars))
    refuses("'positional': parameter 'a' is positional-only", lambda: tool(positional))
    refuses("'bare': parameter 'a' needs a type annotation", lambda: tool(bare))
    refuses("'bare_none': parameter 'a' needs a type annotation", lambda: tool(bare_none))
    refuses("'generator': the function is a generator", lambda: tool(generator))
    refuses("'async_generator': the function is a generator", lambda: tool(async_generator))
    refuses("'<lambda>': a name has 1 to 64", lambda: tool(lambda: 1))

    class Unnamed:
        @property
        def __signature__(self) -> None:
            raise NameError("name 'Nowhere' is not defined")

        def __call__(self, a: int) -> None: ...

    refuses("'Unnamed': the function has no readable signature .name 'Nowhere'", lambda: tool(Unnamed()))
    refuses("'Opaque': the function has no readable signature", lambda: tool(Opaque()))
    refuses("made of a function, got 5", lambda: ToolRegistry([5]))
    refuses("made of a function", lambda: tool(tool(one)))


def test_types_without_a_schema_are_refused_when_the_schema_is_wanted():
    class Weird:
        pass

    def weird(a: Weird) -> None: ...
    def unknown(a: Nowhere) -> None: ...  # noqa: F821
    def callback(a: Callable[[int], int]) -> None: ...

    refuses("'weird': no schema can be made", lambda: schema(weird))
    refuses("'unknown': the type of parameter 'a' is not known here: Nowhere", lambda: schema(unknown))
    refuses("'callback': no schema can be made", lambda: schema(callback))


def hand(parameters: Any, **options: Any) -> Tool:
    return Tool("hand", "By hand.", parameters, lambda **given: given, **options)


def field(**words: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": words}}


BAD_SCHEMAS = [
    ([], "must be a JSON schema .a mapping., got list"),
    ({}, '"type": "object"'),
    ({"type": "array"}, '"type": "object"'),
    ({"type": "object", "x": {1, 2}}, "not JSON"),
    ({"type": "object", "default": float("nan")}, "not JSON"),
    ({"type": "object", "properties": []}, r"parameters.properties must be a mapping from names to schemas, got \[\]"),
    ({"type": "object", "properties": {"a": 5}}, "parameters.properties.a must be a schema, got int"),
    ({"type": "object", "required": "a"}, "parameters.required must be a list of names"),
    ({"type": "object", "required": [1]}, "parameters.required must be a list of names"),
    (field(type="strin"), "parameters.properties.a.type must be one of string, .*, got 'strin'"),
    (field(type=["integer", "nil"]), "got 'nil'"),
    (field(type=None), "got None"),
    (field(enum="x"), "enum must be a list, got 'x'"),
    (field(minimum="1"), "minimum must be a number, got '1'"),
    (field(maximum=True), "maximum must be a number, got True"),
    (field(minLength=-1), "minLength must be a whole number, got -1"),
    (field(maxItems=1.5), "maxItems must be a whole number, got 1.5"),
    (field(pattern=1), "pattern must be text, got 1"),
    (field(anyOf=[]), "anyOf must be a list of schemas that is not empty"),
    (field(anyOf=[{"type": "foo"}]), "parameters.properties.a.anyOf.0.type"),
    (field(items={"type": "foo"}), "parameters.properties.a.items.type"),
    ({"type": "object", "$defs": {"B": {"type": "foo"}}}, r"parameters.\$defs.B.type"),
    (field(**{"$ref": "#/$defs/B"}), r"parameters.properties.a.\$ref points to nothing: #/\$defs/B"),
    (field(**{"$ref": "#/properties/a/anyOf/2", "anyOf": [{}, {}]}), "points to nothing"),
    (field(**{"$ref": "#/properties/a/anyOf/x", "anyOf": [{}, {}]}), "points to nothing"),
]


@pytest.mark.parametrize(("parameters", "words"), BAD_SCHEMAS, ids=range(len(BAD_SCHEMAS)))
def test_a_schema_that_cannot_be_right_is_refused_naming_the_place(parameters, words):
    refuses(words, lambda: hand(parameters))


def test_a_schema_may_be_written_with_tuples_and_is_copied():
    written = {"type": "object", "properties": {"a": {"enum": ("x", "y")}, "b": {"$ref": "#/properties/a"}}}
    made = Tool("hand", "By hand.", written, lambda **given: given)
    written["properties"]["a"]["enum"] = ("z",)

    assert call(made, '{"a": "x", "b": "y"}') == {"a": "x", "b": "y"}
    assert made.parameters["properties"]["a"] == {"enum": ["x", "y"]}


def test_a_type_that_contains_itself_is_described_to_some_depth_only():
    deep = {"type": "array", "items": {"anyOf": [{"$ref": "#/properties/a"}, {"$ref": "#/properties/a"}]}}
    made = Tool("hand", "By hand.", {"type": "object", "properties": {"a": deep}}, lambda **given: given)

    assert call(made, '{"a": 1}') == (
        "'a' must be array of array of array of array, got int",
        "Send 'a' as array of array of array of array, for example [[[[]]]].",
    )


OPTIONS = [
    ({"effect": "writes"}, "effect must be"),
    ({"timeout_seconds": 0}, "timeout_seconds must be"),
    ({"timeout_seconds": float("nan")}, "timeout_seconds must be"),
    ({"timeout_seconds": "60"}, "timeout_seconds must be"),
    ({"max_result_chars": 0}, "max_result_chars must be"),
    ({"max_calls": -1}, "max_calls must be"),
    ({"needs_approval": asyncio.sleep}, "needs_approval must be a plain function"),
]


@pytest.mark.parametrize(("options", "words"), OPTIONS, ids=range(len(OPTIONS)))
def test_options_that_make_no_sense_are_refused(options, words):
    refuses(words, lambda: hand({"type": "object"}, **options))


@pytest.mark.parametrize("name", ["", "a b", "é", "x" * 65, "a.b", "a\n", None, 5])
def test_names_that_a_provider_would_refuse_are_refused(name):
    refuses("1 to 64 of the characters", lambda: Tool(name, "d", {"type": "object"}, print))


def test_a_tool_needs_a_function_and_a_description():
    refuses("func must be callable, got str", lambda: Tool("a", "d", {"type": "object"}, "print"))
    refuses("description must be text, got NoneType", lambda: Tool("a", None, {"type": "object"}, print))


def test_the_context_is_no_field():
    def func(city: str, note: ToolContext) -> None: ...

    refuses(
        "'note' is both a field and the ToolContext",
        lambda: Tool("a", "d", field() | {"properties": {"note": {}}}, func),
    )


# --- any schema, any call ------------------------------------------------------------------------

fields = st.sampled_from(["a", "b", "c"])
scalars = st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from([0.5, 1.0, "x", "1", "[1]"])
sent = st.recursive(scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(fields, v, max_size=3), max_leaves=6)
kinds = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])
leaves = (
    st.fixed_dictionaries({"type": kinds | st.lists(kinds, min_size=1, max_size=2, unique=True)})
    | st.fixed_dictionaries({"enum": st.lists(scalars, min_size=1, max_size=3)})
    | st.fixed_dictionaries({"const": scalars})
    | st.sampled_from([True, False, {}, {"$ref": "#"}, {"$ref": "#/$defs/D"}])
)


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=3)
    words = {"anyOf": some, "oneOf": some, "allOf": some, "not": inner, "if": inner, "then": inner, "items": inner}
    words |= {
        "properties": st.dictionaries(fields, inner, max_size=3),
        "required": st.lists(fields, max_size=2, unique=True),
    }
    words |= {"prefixItems": some, "additionalProperties": inner, "minProperties": st.integers(0, 2)}
    return st.fixed_dictionaries({}, optional=words)


schemas = st.recursive(leaves, larger, max_leaves=10)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(fields, schemas, max_size=3), schemas, st.dictionaries(fields, sent, max_size=3))
def test_any_call_of_any_schema_is_let_through_or_told_what_is_wrong(properties, definition, value):
    made = hand({"type": "object", "properties": properties, "$defs": {"D": definition}})
    refused = ToolRegistry([made]).refuse(ToolCall("c", "hand", json.dumps(value)))

    if refused is not None:
        content = json.loads(refused.content)
        assert refused.error == "invalid_arguments"
        assert content["fields"]
        assert "the call is not valid" not in content["message"]
