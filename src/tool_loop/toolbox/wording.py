"""Words for pieces of a JSON schema and of a JSON value: types, examples, names of fields.

Knows nothing about errors or calls. `root` is always the whole schema, which a `$ref` points into.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from .schema import in_place

Path: TypeAlias = tuple[str | int, ...]
Schema: TypeAlias = Mapping[str, Any]

_LONGEST = 80
_MOST_CHOICES = 20
_LEVELS = 3


# --- what a schema wants --------------------------------------------------------------------------


def expected(schema: Schema, root: Schema, level: int = 0) -> str:
    """A short name for what it accepts, such as `integer or null` or `array of string`; "" for anything."""
    names: list[str] = []
    for part in in_place(schema, root):
        if "enum" in part or "const" in part:
            names.append(one_of(choices(part)))
            continue
        for word in types(part):
            items = part.get("items")
            inner = ""
            if word == "array" and isinstance(items, Mapping) and level < _LEVELS:
                inner = expected(items, root, level + 1)
            names.append(f"array of {inner}" if inner else word)
    return " or ".join(dict.fromkeys(names))


def described(schema: Schema, root: Schema) -> str:
    """What it accepts, and what its author said about it."""
    kind, about = expected(schema, root), schema.get("description", "")
    if isinstance(about, str) and about:
        kind += f" ({about[:_LONGEST]})"
    return kind or "a value"


def example(schema: Schema, root: Schema, level: int = 0) -> Any:
    """A value that fits, as far as a glance at the schema can tell."""
    for part in in_place(schema, root):
        given = [*part.get("examples", ()), part.get("default"), part.get("const"), *part.get("enum", ())]
        for one in given:
            if one is not None:
                return one
        for word in types(part):
            return _of_type(word, part, root, level)
    return "..."


def _of_type(word: str, schema: Schema, root: Schema, level: int) -> Any:
    if word == "object":
        fields = schema.get("properties", {})
        inside = schema.get("required", ()) if level < _LEVELS else ()
        return {name: example(fields.get(name, {}), root, level + 1) for name in inside}
    if word == "array":
        items = schema.get("items")
        return [example(items, root, level + 1)] if isinstance(items, Mapping) and level < _LEVELS else []
    if word == "string":
        return _FORMATS.get(schema.get("format", ""), "...")
    if word in ("integer", "number"):
        return schema.get("minimum", 1 if word == "integer" else 1.5)
    return True if word == "boolean" else None


# Those of JSON Schema, then those that pydantic writes.
_FORMATS: Final = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "name@example.com",
    "idn-email": "name@example.com",
    "hostname": "example.com",
    "idn-hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uri-reference": "/a/page",
    "iri": "https://example.com/",
    "iri-reference": "/a/page",
    "uri-template": "https://example.com/{name}",
    "json-pointer": "/field/0",
    "relative-json-pointer": "1/field",
    "regex": "^a+$",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "ipv4network": "192.0.2.0/24",
    "ipv4interface": "192.0.2.1/24",
    "ipv6network": "2001:db8::/32",
    "ipv6interface": "2001:db8::1/32",
    "ipvanyaddress": "192.0.2.1",
    "ipvanynetwork": "192.0.2.0/24",
    "ipvanyinterface": "192.0.2.1/24",
    "multi-host-uri": "https://example.com/",
    "name-email": "Name <name@example.com>",
    "path": "directory/file.txt",
    "file-path": "directory/file.txt",
    "directory-path": "directory",
    "json-string": "{}",
    "base64url": "AAAA",
    "base64": "AAAA",
}


def converted(got: Any, schema: Schema, root: Schema) -> Any:
    """The value that was probably meant where only its type is wrong ("5" for 5, 5.0 for 5), else None."""
    wanted = {word for part in in_place(schema, root) for word in types(part)}
    if isinstance(got, float) and got.is_integer() and "integer" in wanted:
        return int(got)
    if isinstance(got, str) and len(got) <= _LONGEST:
        try:
            meant = json.loads(got)
        except (ValueError, RecursionError):
            meant = None
        if _KINDS.get(type(meant)) in wanted or (type(meant) is int and "number" in wanted):
            return meant
        return [got] if "array" in wanted and "array of string" in expected(schema, root) else None
    if isinstance(got, int | float) and not isinstance(got, bool) and "string" in wanted:
        return str(got)
    return None


_KINDS: Final = {bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def types(schema: Schema) -> Sequence[str]:
    words = schema.get("type", ())
    return (words,) if isinstance(words, str) else words


def choices(schema: Schema) -> list[Any]:
    return list(schema["enum"]) if "enum" in schema else [schema.get("const")]


def field_of(name: str | int, schema: Schema, root: Schema) -> Schema:
    found = (part.get("properties", {}).get(name) for part in in_place(schema, root))
    return next((field for field in found if isinstance(field, Mapping)), {})


def fields_of(schema: Schema, root: Schema) -> list[str]:
    return list(dict.fromkeys(name for part in in_place(schema, root) for name in part.get("properties", {})))


# --- names and values -----------------------------------------------------------------------------


def name(path: Path) -> str:
    return f"'{dotted(path)}'" if path else "the call"


def dotted(path: Path) -> str:
    return ".".join(map(short, path))


def short(step: str | int) -> str:
    """A field's name without line breaks and control characters; a model may invent any."""
    return json.dumps(str(step), ensure_ascii=False)[1:-1][:_LONGEST]


def type_of(got: Any) -> str:
    return "null" if got is None else type(got).__name__


def value(got: Any) -> str:
    text = json.dumps(got, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def one_of(options: Sequence[Any]) -> str:
    more = f", and {len(options) - _MOST_CHOICES} more" if len(options) > _MOST_CHOICES else ""
    return ("one of " if len(options) > 1 else "") + ", ".join(map(value, options[:_MOST_CHOICES])) + more


def nearest(got: Any, options: Iterable[Any]) -> str | None:
    from difflib import get_close_matches

    words = {option.lower(): option for option in options if isinstance(option, str)}
    near = get_close_matches(str(got)[:_LONGEST].lower(), words, n=1, cutoff=0.5)
    return words[near[0]] if near else None
