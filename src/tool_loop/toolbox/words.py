"""The words of JSON Schema that some server refuses: how a person would say them, and who refuses them.

A table, with the few functions that make its sentences. What is done with it is in portable.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

Json: TypeAlias = Any  # a schema or a part of one
# How much of a condition that has no sentence of its own is quoted.
_QUOTED: Final = 300


class Word(NamedTuple):
    """How a word of JSON Schema is said ("" for what needs no saying), and who refuses it."""

    said: Callable[[Json], str]
    refused_by: str


# --- the table ------------------------------------------------------------------------------------

_FORMATS: Final[dict[str, str]] = {
    "date": "a date, such as 2026-01-31",
    "time": "a time of day, such as 12:00:00Z",
    "date-time": "a date and time, such as 2026-01-31T12:00:00Z",
    "duration": "a duration in ISO 8601, such as PT1H30M",
    "email": "an email address",
    "uri": "a URL, such as https://example.com/",
    "uuid": "a UUID",
    "path": "a path",
    "ipv4": "an IPv4 address",
    "ipv6": "an IPv6 address",
    "binary": "bytes, written as text",
    "byte": "base64",
    "base64url": "base64url",
    "password": "a secret",
    "regex": "a regular expression",
}


def _format(value: Json) -> str:
    return _FORMATS.get(str(value), f"format {value}")


def _names(value: Json) -> str:
    return f"its names: {_brief(value)}" if value not in ({}, True, {"type": "string"}) else ""


def _patterns(value: Json) -> str:
    return "; ".join(f"names that match {name}: {_brief(part)}" for name, part in value.items())


def _others(value: Json) -> str:
    return f"each further value: {_brief(value)}" if isinstance(value, dict) and value else ""


def _in_order(value: Json) -> str:
    return f"in this order: {'; '.join(map(_brief, value))}"


def _if_given(value: Json) -> str:
    return "; ".join(f"with {name} also {', '.join(more)}" for name, more in value.items() if isinstance(more, list))


def _quoted(word: str) -> Callable[[Json], str]:
    return lambda value: f"{word}: {short(value)}"


def _nothing(_: Json) -> str:
    return ""


_GEMINI: Final = 'Gemini ("Unknown name ... Cannot find field"): '

WORDS: Final[dict[str, Word]] = {
    "format": Word(
        _format,
        "Gemini takes date-time and enum alone, google-gemini/gemini-cli#3178; vLLM, z-lab/paroquant#31",
    ),
    "writeOnly": Word(_nothing, _GEMINI + "its reference has no such field"),
    "readOnly": Word(_nothing, _GEMINI + "the same"),
    "exclusiveMinimum": Word("greater than {}".format, _GEMINI + "zendev-sh/goai#108"),
    "exclusiveMaximum": Word("less than {}".format, _GEMINI + "zendev-sh/goai#108"),
    "multipleOf": Word("a multiple of {}".format, _GEMINI + "its reference"),
    "uniqueItems": Word(lambda yes: "no item twice" if yes else "", _GEMINI + "its reference"),
    "propertyNames": Word(_names, _GEMINI + "router-for-me/CLIProxyAPI#4393, nodetool-ai/nodetool#4388"),
    "patternProperties": Word(_patterns, _GEMINI + "zendev-sh/goai#108"),
    "additionalProperties": Word(_others, _GEMINI + "tailcallhq/forgecode#3426"),
    "unevaluatedProperties": Word(_others, _GEMINI + "its reference"),
    "prefixItems": Word(_in_order, _GEMINI + "its reference has no tuples"),
    "dependentRequired": Word(_if_given, _GEMINI + "its reference"),
    "contains": Word(_quoted("one item or more"), _GEMINI + "its reference"),
    "not": Word(_quoted("not"), "Kimi, nicobailon/pi-subagents#248"),
    "if": Word(_quoted("if"), "Kimi, nicobailon/pi-subagents#248"),
    "then": Word(_quoted("then"), "Kimi, nicobailon/pi-subagents#248"),
    "else": Word(_quoted("else"), "Kimi, nicobailon/pi-subagents#248"),
    "dependentSchemas": Word(_quoted("with these fields also"), _GEMINI + "its reference"),
    "examples": Word(
        lambda given: f"for example {', '.join(map(short, given))}" if given else "", _GEMINI + "the same"
    ),
    "contentEncoding": Word("written in {}".format, _GEMINI + "its reference"),
    "contentMediaType": Word("{}".format, _GEMINI + "its reference"),
    "discriminator": Word(_nothing, _GEMINI + "its reference"),
    # Only where a server refused these too.
    "pattern": Word("matching {}".format, "the strict modes of several servers"),
    "minimum": Word("at least {}".format, "the same"),
    "maximum": Word("at most {}".format, "the same"),
    "minLength": Word("at least {} characters".format, "the same"),
    "maxLength": Word("at most {} characters".format, "the same"),
    "minItems": Word("at least {} items".format, "the same"),
    "maxItems": Word("at most {} items".format, "the same"),
    "minProperties": Word("at least {} fields".format, "the same"),
    "maxProperties": Word("at most {} fields".format, "the same"),
    "default": Word(lambda value: f"{short(value)} when left out", "Gemini, zendev-sh/goai#108"),
    "anyOf": Word(
        lambda options: f"any of: {'; '.join(map(_brief, options))}",
        "Anthropic at the top, anthropics/claude-code#5319; Kimi beside a type, openclaw/openclaw#113130",
    ),
}


# --- in words -------------------------------------------------------------------------------------


def _brief(schema: Json) -> str:
    """A part of a schema in a few words where it is simple, else as it is."""
    if isinstance(schema, dict):
        if schema.keys() == {"type"} and isinstance(schema["type"], str):
            return schema["type"]
        if schema.keys() <= {"type", "pattern"} and "pattern" in schema:
            return f"matching {schema['pattern']}"
        if schema.keys() <= {"type", "enum"} and isinstance(schema.get("enum"), list):
            return f"one of {', '.join(map(short, schema['enum']))}"
    return "anything" if schema in ({}, True) else short(schema)


def short(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _QUOTED else f"{text[: _QUOTED - 3]}..."
