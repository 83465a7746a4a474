"""JSON schemas that were written by hand: checked for sense, and closed to unknown fields.

Knows nothing about calls, and imports no validator: what it can see, it sees when a tool is made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from tool_loop.errors import ToolError, UsageError

Schema: TypeAlias = dict[str, Any]


class Complaint(NamedTuple):
    """What pydantic found wrong: where, its word for it, and its sentence."""

    place: Sequence[Any]
    kind: str
    text: str


class ArgumentSchema:
    """What a tool accepts, here by a hand-written schema.

    `schema` is what a model is shown, and `strict` what decides; `is_valid` is compiled from it at
    the first call.
    """

    is_valid: Callable[[Any], bool] | None = None

    # Where pydantic decides: from JSON text to an object with the values, which are to be passed on
    # under these names.
    convert: Callable[[str], Any] | None = None
    names: Mapping[str, str] = {}

    # Whether the schema has a say; formats are only text to it where pydantic reads them.
    by_schema = True
    formats = True

    def __init__(self, name: str, schema: Mapping[str, Any]) -> None:
        self.name = name
        self.schema = presentable(schema)
        self.strict = sealed(schema)

    def explain(self, value: dict[str, Any], error: Any = None) -> ToolError:
        """The error that names every field which is wrong. `error` is pydantic's, where that refused."""
        from .explain import invalid_arguments

        found = () if error is None else error.errors(include_url=False, include_input=False)
        complaints = [Complaint(one["loc"], one["type"], one["msg"]) for one in found]
        return invalid_arguments(self.name, self.strict, value, complaints)

    def reject_whole_floats(self, value: dict[str, Any]) -> None:
        """Raises ToolError where 5.0 stands for an integer.

        It is one by the letter of JSON Schema, but `range(5.0)` fails, and a typed function refuses it.
        """
        from .explain import whole_floats

        if whole_floats(self.name, self.strict, value):
            raise self.explain(value)


def presentable(schema: Mapping[str, Any]) -> Schema:
    """A hand-written schema as a model is shown it: as it is, but for what servers stumble over."""
    shown = {key: value for key, value in schema.items() if key != "$schema"}
    shown.setdefault("properties", {})
    return shown


# --- written by hand ------------------------------------------------------------------------------

_TYPES: Final = ("string", "integer", "number", "boolean", "array", "object", "null")
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_PARTS: Final = ("items", "contains", "not", "if", "then", "else", "additionalProperties", "propertyNames")
_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS: Final = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")


def checked_schema(name: str, schema: Any) -> Schema:
    """A copy of a hand-written schema, which nobody can change any more.

    Raises UsageError, naming the place, where it cannot be right. Looks at shapes only and imports
    nothing; what is left (a broken pattern, say) comes out when it is compiled, at the first call.
    """
    if not isinstance(schema, Mapping):
        raise UsageError(f"tool {name!r}: parameters must be a JSON schema (a mapping), got {type(schema).__name__}")
    try:
        copy: Schema = json.loads(json.dumps(dict(schema), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"tool {name!r}: parameters are not JSON: {error}") from None
    if copy.get("type") != "object":
        raise UsageError(f'tool {name!r}: parameters must have "type": "object", as a call names its fields')
    for at, part in _walk(copy, "parameters"):
        problem = _fault(part, at) or _dangling(part, at, copy)
        if problem:
            raise UsageError(f"tool {name!r}: {problem}")
    return copy


def _walk(schema: Any, at: str) -> Iterator[tuple[str, Any]]:
    """The schema and every schema in it, with its place. Outer ones first, so that a check can stop in time."""
    yield at, schema
    for key, value in schema.items() if isinstance(schema, dict) else ():
        if key in _PARTS and not isinstance(value, list):
            yield from _walk(value, f"{at}.{key}")
        elif key in _LISTS:
            for i, part in enumerate(value):
                yield from _walk(part, f"{at}.{key}.{i}")
        elif key in _MAPS:
            for name, part in value.items():
                yield from _walk(part, f"{at}.{key}.{name}")


def _fault(schema: Any, at: str) -> str:
    """What is wrong with this schema, leaving those in it aside, or ""."""
    if isinstance(schema, bool):
        return ""
    if not isinstance(schema, dict):
        return f"{at} must be a schema, got {type(schema).__name__}"
    words = schema.get("type", [])
    for word in words if isinstance(words, list) else [words]:
        if word not in _TYPES:
            return f"{at}.type must be one of {', '.join(_TYPES)}, got {word!r}"
    wrong = ((key, _wrong_value(key, value), value) for key, value in schema.items())
    return next((f"{at}.{key} must be {wanted}, got {value!r:.80}" for key, wanted, value in wrong if wanted), "")


def _wrong_value(key: str, value: Any) -> str:
    """What the value of this keyword has to be, where it is not."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    listed = isinstance(value, list)
    if key in _NUMBERS:
        return "" if number else "a number"
    if key in _COUNTS:
        return "" if number and value >= 0 and value == int(value) else "a whole number"
    if key == "enum":
        return "" if listed else "a list"
    if key == "required":
        return "" if listed and all(isinstance(name, str) for name in value) else "a list of names"
    if key in ("pattern", "format", "$ref", "description"):
        return "" if isinstance(value, str) else "text"
    if key in _LISTS:
        return "" if listed and value else "a list of schemas that is not empty"
    if key in _MAPS:
        return "" if isinstance(value, dict) else "a mapping from names to schemas"
    return ""


def _dangling(schema: Any, at: str, root: Schema) -> str:
    reference = schema.get("$ref") if isinstance(schema, dict) else None
    if reference is None or not reference.startswith("#/") or '"$id"' in json.dumps(root):
        return ""  # not a path into this schema, or perhaps into a part with an address of its own
    return "" if resolve_pointer(root, reference) is not None else f"{at}.$ref points to nothing: {reference}"


# --- unknown fields -------------------------------------------------------------------------------

_BRANCHES: Final = ("allOf", "anyOf", "oneOf")
_IN_PLACE: Final = ("if", "then", "else")


def sealed(schema: Mapping[str, Any]) -> Schema:
    """The schema with unknown fields refused wherever it names fields and does not say otherwise."""
    root: Schema = {"properties": {}} | _seal(schema, schema)
    if not _says(root):
        root[_closing_word(root)] = False
    return root


def in_place(schema: Any, root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A schema and all those that apply to the same value: behind `$ref`, `allOf`, `anyOf` and the like.

    Each `$ref` is followed once, since one may lead back to itself.
    """
    followed: set[str] = set()
    todo = [schema]
    while todo:
        part = todo.pop()
        if not isinstance(part, Mapping):
            continue
        yield part
        inner = [each for key in _BRANCHES for each in part.get(key, ())]
        inner += [part[key] for key in _IN_PLACE if key in part]
        reference = part.get("$ref")
        if isinstance(reference, str) and reference not in followed:
            followed.add(reference)
            inner.append(resolve_pointer(root, reference))
        todo += reversed(inner)


def resolve_pointer(root: Mapping[str, Any], reference: str) -> Any:
    """What a local `$ref` points to; None for anything else."""
    place: Any = root
    if reference != "#" and not reference.startswith("#/"):
        return None
    for step in reference[1:].split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(place, list) and key.isdigit():
            place = place[int(key)] if int(key) < len(place) else None
        else:
            place = place.get(key) if isinstance(place, Mapping) else None
    return place


def _seal(schema: Any, root: Mapping[str, Any], *, closed: bool = False) -> Any:
    """Copies a schema and closes the objects at places where a value stands.

    The branches of an `allOf` or `anyOf` are not closed: each would refuse the fields of the others.
    """
    if not isinstance(schema, Mapping):
        return schema
    result: Schema = dict(schema)
    for key, value in schema.items():
        if key in ("properties", "patternProperties") and isinstance(value, Mapping):
            result[key] = {name: _seal(part, root, closed=True) for name, part in value.items()}
        elif key in ("$defs", "definitions", "dependentSchemas") and isinstance(value, Mapping):
            result[key] = {name: _seal(part, root) for name, part in value.items()}
        elif key in ("items", "additionalProperties", "unevaluatedProperties"):
            result[key] = _seal(value, root, closed=True)
        elif key == "prefixItems":
            result[key] = [_seal(part, root, closed=True) for part in value]
        elif key in _BRANCHES:
            result[key] = [_seal(part, root) for part in value]
        elif key in _IN_PLACE:
            result[key] = _seal(value, root)
    if closed and not _says(schema) and _names_fields(schema, root):
        result[_closing_word(schema)] = False
    return result


def _says(schema: Mapping[str, Any]) -> bool:
    return "additionalProperties" in schema or "unevaluatedProperties" in schema


def _closing_word(schema: Mapping[str, Any]) -> str:
    # Fields may also come from an `allOf` or a `$ref` beside `properties`; only `unevaluatedProperties`
    # sees those. Elsewhere it is avoided: with one wrong field it calls its siblings unknown too.
    composed = any(key in schema for key in ("$ref", "$dynamicRef", "dependentSchemas", *_BRANCHES, *_IN_PLACE))
    return "unevaluatedProperties" if composed else "additionalProperties"


def _names_fields(schema: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    parts = list(in_place(schema, root))
    free = any(_is_free(part) for part in parts)
    return not free and any("properties" in part for part in parts)


def _is_free(schema: Mapping[str, Any]) -> bool:
    """An object of which the schema says nothing: any fields are welcome."""
    named = any(key in schema for key in ("properties", "$ref", *_BRANCHES))
    return schema.get("type") == "object" and not named
