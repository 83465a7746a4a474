"""JSON schemas of tools: taken from a signature by pydantic, or written by hand and checked here.

Knows nothing about calls. pydantic and jsonschema-rs are imported at the first schema or validation,
because `--help` and a waiting conversation must not pay for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final

from ._signature import MISSING, Parameter, Signature, resolve
from .errors import ToolError, UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel

Schema = dict[str, Any]

# A `$ref` may lead back to itself; nothing sensible is deeper.
MAX_NESTING: Final = 32


class Form:
    """What a hand-written schema accepts."""

    typed = False

    def __init__(self, name: str, schema: Schema) -> None:
        self.name = name
        self.schema = schema
        self._strict = sealed(schema)

    @cached_property
    def validator(self) -> Any:
        """The compiled schema. Raises UsageError when no validator can be made of it."""
        import jsonschema_rs

        try:
            # Offline on purpose: a foreign schema must not make this process fetch a URL.
            return jsonschema_rs.validator_for(self._strict, validate_formats=True, offline=True)
        except ValueError as error:
            message = f"tool {self.name!r}: the schema of the parameters is not valid: {str(error)[:500]}"
            raise UsageError(message) from None

    @cached_property
    def is_valid(self) -> Callable[[Any], bool]:
        check: Callable[[Any], bool] = self.validator.is_valid
        return check

    def explain(self, value: dict[str, Any], complaints: Sequence[tuple[Sequence[Any], str]] = ()) -> ToolError:
        """The error that names every field which is wrong."""
        from ._explain import invalid_arguments

        return invalid_arguments(self.name, self._strict, self.validator, value, complaints)

    def refuse_whole_floats(self, value: dict[str, Any]) -> None:
        """Raises ToolError where 5.0 stands for an integer: valid by the letter of JSON Schema, but
        the function would crash on it, and a typed one refuses it too."""
        from ._explain import whole_floats

        if whole_floats(self._strict, self.validator, value, self.name):
            raise self.explain(value)


class TypedForm(Form):
    """What a typed function accepts: pydantic makes the schema, checks, and converts."""

    typed = True

    def __init__(self, name: str, signature: Signature) -> None:
        self._model = _model(name, signature)
        self._names = {f"p{i}": parameter.name for i, parameter in enumerate(signature.parameters)}
        raw = _raw_schema(name, self._model)
        super().__init__(name, raw)
        self.schema = shown(raw)
        # Unknown fields are refused in nested models too, whatever their own setting, unless one of
        # them says outright that it takes any.
        self._extra = None if '"additionalProperties": true' in json.dumps(raw) else "forbid"

    def read(self, text: str, value: dict[str, Any]) -> dict[str, Any]:
        """What the function is called with. Raises ToolError naming every field that is wrong.

        The text is read a second time, by pydantic, because only there may a string be a date or an
        enum although everything is strict: JSON has no other way to write them.
        """
        from pydantic import ValidationError

        try:
            filled = self._model.model_validate_json(text, strict=True, extra=self._extra)
        except ValidationError as error:
            complaints = [(entry["loc"], entry["msg"]) for entry in error.errors(include_url=False)]
            raise self.explain(value, complaints) from None
        names = self._names
        return {names[key]: item for key, item in filled.__dict__.items()}


# --- from a signature -----------------------------------------------------------------------------


def _model(name: str, signature: Signature) -> type[BaseModel]:
    from pydantic import ConfigDict, create_model
    from pydantic.errors import PydanticUserError

    # The fields are called p0, p1, ... with the real names as aliases: a parameter may be called
    # `schema`, `copy` or `_x`, which a model's own attributes forbid.
    fields: dict[str, Any] = {
        f"p{i}": _field(name, parameter, signature) for i, parameter in enumerate(signature.parameters)
    }
    settings = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=False)
    try:
        return create_model(name, __config__=settings, **fields)
    except (PydanticUserError, TypeError, NameError) as error:
        reason = str(error).split("\n", 1)[0]
        message = f"tool {name!r}: no schema can be made from its signature: {reason}"
        raise UsageError(message) from error


def _field(name: str, parameter: Parameter, signature: Signature) -> tuple[Any, Any]:
    from pydantic import Field

    annotation = resolve(parameter.annotation, signature.namespace)
    if isinstance(annotation, str):
        message = f"tool {name!r}: the type of parameter {parameter.name!r}, {annotation}, is not known here"
        raise UsageError(message)
    notes = [note for note in getattr(annotation, "__metadata__", ()) if isinstance(note, str)]
    described = any(getattr(note, "description", None) for note in getattr(annotation, "__metadata__", ()))
    description = None if described else " ".join(notes) or parameter.description or None
    details = Field(alias=parameter.name, description=description)
    default = ... if parameter.default is MISSING else parameter.default
    return Annotated[annotation, details], default


def _raw_schema(name: str, model: type[BaseModel]) -> Schema:
    from pydantic.errors import PydanticUserError

    try:
        return model.model_json_schema()
    except PydanticUserError as error:
        reason = str(error).split("\n", 1)[0]
        message = f"tool {name!r}: no schema can be made from its signature: {reason}"
        raise UsageError(message) from error


# Words that some servers refuse in a tool's schema (Gemini answers 400), and how a person would say
# them. Validation keeps the real thing; the model reads the words.
_SAID: Final[dict[str, Callable[[Any], str]]] = {
    "exclusiveMinimum": lambda n: f"greater than {n}",
    "exclusiveMaximum": lambda n: f"less than {n}",
    "multipleOf": lambda n: f"a multiple of {n}",
    "uniqueItems": lambda _: "no item twice",
    "propertyNames": lambda _: "",
    "patternProperties": lambda _: "",
    "discriminator": lambda _: "",
    "$schema": lambda _: "",
}


def shown(raw: Schema) -> Schema:
    """The schema as a model reads it: without noise, with definitions put in place where they end."""
    definitions = raw.get("$defs", {})
    schema = _plain({key: value for key, value in raw.items() if key != "$defs"}, definitions, ())
    if "#/$defs/" in json.dumps(schema):
        # A type that contains itself cannot be written in place; its definitions stay.
        kept = [name for name in definitions if _contains_itself(name, definitions)]
        schema["$defs"] = {name: _plain(definitions[name], definitions, (name,)) for name in kept}
    schema.pop("description", None)
    schema.setdefault("properties", {})
    return schema


def _plain(schema: Any, definitions: Schema, inside: tuple[str, ...]) -> Any:
    if isinstance(schema, list):
        return [_plain(part, definitions, inside) for part in schema]
    if not isinstance(schema, dict):
        return schema
    target = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if target in definitions and target not in inside and not _contains_itself(target, definitions):
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return _plain({**definitions[target], **beside}, definitions, (*inside, target))
    result: Schema = {}
    said = [schema["description"]] if isinstance(schema.get("description"), str) else []
    for key, value in schema.items():
        if key in ("title", "description") and isinstance(value, str):
            continue
        if (key == "additionalProperties" and isinstance(value, bool)) or (key == "default" and value is None):
            continue
        if key in _SAID:
            said.append(_SAID[key](value))
        elif key == "const":
            result["enum"] = [value]
        elif key == "properties":
            result[key] = {name: _plain(part, definitions, inside) for name, part in value.items()}
        elif key in ("default", "enum", "examples", "required"):
            result[key] = value
        else:
            result[key] = _plain(value, definitions, inside)
    if result.get("type") == "array" and "items" not in result:
        result["items"] = {}
    if any(said):
        result["description"] = "; ".join(filter(None, said))
    return result


def _contains_itself(name: str, definitions: Schema) -> bool:
    seen: set[str] = set()
    todo = [name]
    while todo:
        text = json.dumps(definitions[todo.pop()])
        for part in definitions:
            if f'"#/$defs/{part}"' not in text:
                continue
            if part == name:
                return True
            if part not in seen:
                seen.add(part)
                todo.append(part)
    return False


# --- written by hand ------------------------------------------------------------------------------

_TYPES: Final = ("string", "integer", "number", "boolean", "array", "object", "null")
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_PARTS: Final = ("items", "contains", "not", "if", "then", "else", "additionalProperties", "propertyNames")
_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS: Final = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")


def check_schema(name: str, schema: Any) -> None:
    """Raises UsageError, naming the place, for a hand-written schema that cannot be right.

    It looks at shapes only and imports nothing. What is left (a broken pattern, say) comes out when
    the schema is compiled, at the first call.
    """
    if not isinstance(schema, Mapping):
        message = f"tool {name!r}: parameters must be a JSON schema (a mapping), got {type(schema).__name__}"
        raise UsageError(message)
    try:
        json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        message = f"tool {name!r}: parameters are not JSON: {error}"
        raise UsageError(message) from None
    if schema.get("type") != "object":
        message = f'tool {name!r}: parameters must have "type": "object", as a call names its fields'
        raise UsageError(message)
    problem = _fault(schema, "parameters")
    if problem:
        message = f"tool {name!r}: {problem}"
        raise UsageError(message)


def _fault(schema: Any, at: str) -> str:
    """The first thing wrong in a schema and where it is, or ""."""
    if isinstance(schema, bool):
        return ""
    if not isinstance(schema, Mapping):
        return f"{at} must be a schema, got {type(schema).__name__}"
    words = schema.get("type", [])
    for word in [words] if not isinstance(words, list) else words:
        if word not in _TYPES:
            return f"{at}.type must be one of {', '.join(_TYPES)}, got {word!r}"
    for key, value in schema.items():
        problem = _fault_in(key, value, f"{at}.{key}")
        if problem:
            return problem
    return ""


def _fault_in(key: str, value: Any, at: str) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if key in _NUMBERS and not number:
        return f"{at} must be a number, got {value!r}"
    if key in _COUNTS and not (number and value >= 0 and value == int(value)):
        return f"{at} must be a whole number, got {value!r}"
    if key == "enum" and not isinstance(value, list):
        return f"{at} must be a list, got {type(value).__name__}"
    if key == "required" and not (isinstance(value, list) and all(isinstance(name, str) for name in value)):
        return f"{at} must be a list of field names"
    if key in ("pattern", "format", "$ref", "description") and not isinstance(value, str):
        return f"{at} must be text, got {type(value).__name__}"
    if key in _LISTS and not (isinstance(value, list) and value):
        return f"{at} must be a list of schemas that is not empty"
    if key in _MAPS and not isinstance(value, Mapping):
        return f"{at} must map names to schemas, got {type(value).__name__}"
    parts: dict[str, Any] = {}
    if key in _PARTS and not isinstance(value, list):
        parts = {at: value}
    elif key in _LISTS:
        parts = {f"{at}.{i}": part for i, part in enumerate(value)}
    elif key in _MAPS:
        parts = {f"{at}.{name}": part for name, part in value.items()}
    return next(filter(None, (_fault(part, place) for place, part in parts.items())), "")


# --- unknown fields -------------------------------------------------------------------------------

_BRANCHES: Final = ("allOf", "anyOf", "oneOf")
_IN_PLACE: Final = ("if", "then", "else")


def sealed(schema: Mapping[str, Any]) -> Schema:
    """The schema with unknown fields refused wherever it names fields and does not say otherwise."""
    root: Schema = _seal(schema, schema)
    if not _says(root):
        root[_closing_word(root)] = False
    return root


def in_place(schema: Any, root: Mapping[str, Any], depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """A schema and all those that apply to the same value: behind `$ref`, `allOf`, `anyOf` and the like."""
    if not isinstance(schema, Mapping) or depth > MAX_NESTING:
        return
    yield schema
    reference = schema.get("$ref")
    parts = [resolve_pointer(root, reference)] if isinstance(reference, str) else []
    parts += [part for key in _BRANCHES for part in schema.get(key, ())]
    parts += [schema[key] for key in _IN_PLACE if key in schema]
    for part in parts:
        yield from in_place(part, root, depth + 1)


def resolve_pointer(root: Mapping[str, Any], reference: str) -> Any:
    """What a local `$ref` points to; None for anything else."""
    place: Any = root
    if not reference.startswith("#"):
        return None
    for step in reference.lstrip("#").strip("/").split("/") if reference.strip("#/") else ():
        key = step.replace("~1", "/").replace("~0", "~")
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
