"""Tool schemas in the words that servers take: nothing else is sent, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from tool_loop.toolbox.portable import LEVELS, Level, portable
from tool_loop.toolbox.words import WORDS

PLAIN = {
    "type", "description", "properties", "required", "items", "enum", "anyOf", "default", "pattern", "minimum",
    "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
}  # fmt: skip
BARE = {"type", "description", "properties", "required", "items", "enum"}


def fields(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(schema, dict):
        return
    yield schema
    inside = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    for one in [*inside, *([schema["items"]] if "items" in schema else [])]:
        yield from parts(one)


# A schema, and arguments that it allows.
SCHEMAS: list[tuple[dict[str, Any], list[Any]]] = [
    (fields(day={"type": "string", "format": "date"}), [{"day": "2026-01-31"}]),
    (fields(url={"type": "string", "format": "uri", "writeOnly": True}), [{"url": "https://a.example"}]),
    (fields(level={"type": "integer", "enum": [1, 2]}, on={"const": True}), [{"level": 1, "on": True}]),
    (fields(mixed={"enum": ["a", 1, None]}), [{"mixed": "a"}, {"mixed": 1}]),
    (fields(name={"enum": ["low", "high"]}), [{"name": "low"}]),
    (
        fields(pair={"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]}),
        [{"pair": [1, "a"]}],
    ),
    (
        fields(by={"type": "object", "propertyNames": {"pattern": "^x"}, "additionalProperties": {"type": "integer"}}),
        [{"by": {"x": 1}}],
    ),
    (fields(any={"type": "object", "patternProperties": {"^x": {"type": "integer"}}}), [{"any": {"x1": 1}}]),
    (fields(n={"type": "integer", "exclusiveMinimum": 0, "multipleOf": 5}), [{"n": 5}]),
    (fields(maybe={"type": ["string", "null"], "minLength": 1}), [{"maybe": "a"}]),
    (fields(either={"type": ["string", "integer"], "minimum": 1}), [{"either": "a"}, {"either": 2}]),
    (fields(either={"type": "string", "anyOf": [{"pattern": "^a"}, {"minLength": 9}]}), [{"either": "a"}]),
    (fields(either={"oneOf": [{"type": "string"}, fields(a={"type": "integer"})]}), [{"either": {"a": 1}}]),
    (
        {**fields(a={"type": "string"}), "anyOf": [{"required": ["a"]}, {**fields(b={}), "required": ["b"]}]},
        [{"a": "x"}, {"b": 2}],
    ),
    (
        fields(x={"type": "object", "allOf": [{"$ref": "#/$defs/A"}, fields(q={"type": "string"})]})
        | {"$defs": {"A": {**fields(p={"type": "integer"}), "required": ["p"]}}},
        [{"x": {"p": 1, "q": "a"}}],
    ),
    (
        fields(tree={"$ref": "#/$defs/Tree"})
        | {"$defs": {"Tree": fields(kids={"type": "array", "items": {"$ref": "#/$defs/Tree"}}, n={"type": "integer"})}},
        [{"tree": {"n": 1, "kids": [{"n": 2}]}}],
    ),
    (
        fields(next={"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]})
        | {"$defs": {"Node": {**fields(next={"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]})}}},
        [{"next": {"next": {}}}],
    ),
    (fields(all={"allOf": [{"$ref": "#/properties/all"}]}), [{"all": {}}]),
    (fields(a={"if": {"type": "string"}, "then": {"minLength": 2}, "not": {"const": "no"}}), [{"a": "yes"}]),
    (
        fields(properties={"type": "object", "propertyNames": {"type": "string"}}, format={"type": "string"}),
        [{"format": "x"}],
    ),
    (fields(a=True, b={}, c={"type": "array"}, d={"type": "array", "items": True}), [{"a": 1, "c": [1], "d": ["x"]}]),
    (fields(a={"title": "A", "$comment": "c", "deprecated": True, "examples": [1], "x-mine": 1}), [{"a": 1}]),
    ({"type": "object", "$schema": "http://json-schema.org/draft-07/schema#"}, [{}]),
]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("schema", "allowed"), SCHEMAS)
def test_only_words_of_the_level_are_sent_and_what_was_allowed_is_allowed(
    schema: dict[str, Any], allowed: list[Any], level: Level
) -> None:
    sent = portable(schema, level)

    if level != "usual":
        words = {word for part in parts(sent) for word in part}
        assert words <= (PLAIN if level == "plain" else BARE)
        assert all(isinstance(one, str) for part in parts(sent) for one in part.get("enum", ()))
        assert not any("anyOf" in part and part.keys() - {"anyOf", "description"} for part in parts(sent))
        assert all("items" in part for part in parts(sent) if part.get("type") == "array")
        assert sent["type"] == "object"
        assert "anyOf" not in sent
    assert all("format" not in part or part["format"] == "date-time" for part in parts(sent))
    assert not any("writeOnly" in part for part in parts(sent))
    valid = jsonschema_rs.validator_for(sent)
    for value in allowed:
        if level != "usual" or "#/properties/all" not in json.dumps(schema):
            assert valid.is_valid(value), sent


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "string", "format": "date"}, "a date, such as 2026-01-31"),
        ({"type": "string", "format": "iri-reference"}, "format iri-reference"),
        ({"type": "string", "format": "uri", "description": "Where."}, "Where. (a URL, such as https://example.com/)"),
        ({"type": "integer", "enum": [1, 2]}, "one of 1, 2"),
        ({"const": True}, "always true"),
        ({"enum": ["a", 1, None]}, 'one of "a", 1, or null'),
        ({"type": ["string", "null"]}, "or null"),
        ({"prefixItems": [{"type": "integer"}, {"enum": ["a"]}]}, 'in this order: integer; one of "a"'),
        ({"propertyNames": {"pattern": "^x"}}, "its names: matching ^x"),
        ({"patternProperties": {"^x": {"type": "integer"}}}, "names that match ^x: integer"),
        ({"additionalProperties": {"type": "integer"}}, "each further value: integer"),
        ({"exclusiveMinimum": 0, "multipleOf": 5}, "greater than 0, a multiple of 5"),
        ({"dependentRequired": {"a": ["b", "c"]}}, "with a also b, c"),
        ({"not": {"const": "no"}}, 'not: {"const": "no"}'),
    ],
)
def test_what_is_not_sent_is_said(part: dict[str, Any], words: str) -> None:
    assert portable(fields(it=part), "plain")["properties"]["it"]["description"] == words


def test_a_choice_between_sets_of_fields_is_said_and_all_of_them_are_fields() -> None:
    schema = {**fields(a={"type": "string"}), "oneOf": [{"required": ["a"]}, {**fields(b={}), "required": ["b", "c"]}]}

    sent = portable(schema, "plain")

    assert sent["properties"] == {"b": {}, "a": {"type": "string"}}
    assert sent["description"] == "needs one of these sets of fields: a; or b and c"


def test_the_last_level_says_limits_too() -> None:
    part = {"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^a", "default": "a"}

    sent = portable(fields(it=part), "bare")["properties"]["it"]

    assert sent == {
        "type": "string",
        "description": 'at least 1 characters, at most 9 characters, matching ^a, "a" when left out',
    }


def test_every_word_of_the_table_names_who_refuses_it() -> None:
    assert all(word.refused_by for word in WORDS.values())


def test_the_schema_that_is_given_is_not_changed() -> None:
    for schema, _ in SCHEMAS:
        before = json.dumps(schema)
        for level in LEVELS:
            portable(schema, level)
        assert json.dumps(schema) == before
