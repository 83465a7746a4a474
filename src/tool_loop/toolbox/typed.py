"""Typed functions: pydantic makes a JSON schema of the signature, checks arguments and converts them.

Knows nothing about calls. pydantic is imported when a schema or a check is first wanted, because
`--help` and a waiting conversation must not pay for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_origin

from tool_loop.errors import UsageError

from .schema import ArgumentSchema, Schema, resolve_pointer
from .signature import MISSING, Parameter, Signature
from .words import WORDS

if TYPE_CHECKING:
    from pydantic import BaseModel


class TypedForm(ArgumentSchema):
    """What a typed function accepts: pydantic makes the schema, checks, and converts.

    The text of a call is read twice, here and by pydantic, because only from JSON text does pydantic
    take a string for a date or an enum although everything is strict: JSON cannot write them otherwise.
    """

    formats = False

    def __init__(self, name: str, signature: Signature) -> None:
        model, raw = _model(name, signature)
        super().__init__(name, raw)
        self.schema = shown(raw)
        # Unknown fields are refused in nested models too, whatever their own setting, unless one of
        # them says outright that it takes any: then pydantic has to be left to their settings, and
        # the schema refuses the unknown fields of the others.
        extra: Literal["forbid"] | None = None if _opens(raw) else "forbid"
        self.by_schema = extra is None or _names_numbers(raw)
        self.convert = partial(model.model_validate_json, strict=True, extra=extra)
        self.names = {f"p{i}": parameter.name for i, parameter in enumerate(signature.parameters)}


def _opens(schema: Any) -> bool:
    return any(part.get("additionalProperties") is True for part in _parts(schema))


def _names_numbers(schema: Any) -> bool:
    """Whether a number is one of the choices somewhere: to pydantic's `Literal[1]` true is 1 as well."""
    choices = [choice for part in _parts(schema) for choice in (*part.get("enum", ()), part.get("const"))]
    return any(isinstance(choice, int) for choice in choices)


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for part in inner:
        yield from _parts(part)
    if isinstance(schema, dict):
        yield schema


# --- from a signature -----------------------------------------------------------------------------


def _model(name: str, signature: Signature) -> tuple[type[BaseModel], Schema]:
    """The pydantic model of the parameters and its JSON schema. Raises UsageError when there is none."""
    from pydantic import ConfigDict, create_model
    from pydantic.json_schema import GenerateJsonSchema

    class Quiet(GenerateJsonSchema):
        # A default that is not JSON only means that the model is not told about it.
        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    # The fields are called p0, p1, ... with the real names as aliases: a parameter may be called
    # `schema`, `copy` or `_x`, which the attributes of a model forbid.
    fields: dict[str, Any] = {f"p{i}": _field(name, part, signature) for i, part in enumerate(signature.parameters)}
    try:
        model = create_model(name, __config__=ConfigDict(extra="forbid", strict=True), **fields)
        schema = _with_keys_as_text(model.model_json_schema(schema_generator=Quiet))
    except Exception as error:  # the annotations, and pydantic's hooks in them, are code of the author
        reason = str(error).split("\n", 1)[0]
        raise UsageError(f"tool {name!r}: no schema can be made of its signature: {reason}") from error
    shown_names = [field.validation_alias for field in model.model_fields.values()]
    if len(set(shown_names)) < len(shown_names):
        raise UsageError(f"tool {name!r}: two parameters have the same name for the model; see their aliases")
    return model, schema


def _field(name: str, parameter: Parameter, signature: Signature) -> tuple[Any, Any]:
    from pydantic import Field
    from pydantic.fields import FieldInfo

    annotation = signature.names.resolve(parameter.annotation)
    if isinstance(annotation, str):
        raise UsageError(f"tool {name!r}: the type of parameter {parameter.name!r} is not known here: {annotation}")
    if keys := _keys_no_json_has(annotation):
        raise UsageError(
            f"tool {name!r}: {parameter.name!r} has keys that JSON cannot write ({keys}): use text, or int"
        )
    metadata = getattr(annotation, "__metadata__", ())
    fields = [*metadata, parameter.default]  # a Field may stand in either place
    shown_name = _alias(fields) or parameter.name
    said = " ".join(note for note in metadata if isinstance(note, str)) or parameter.description
    if not said or any(getattr(note, "description", None) for note in fields if type(note) is FieldInfo):
        details = Field(alias=shown_name, validation_alias=shown_name)  # a Field of the author's own says it better
    else:
        details = Field(alias=shown_name, validation_alias=shown_name, description=said)
    default = parameter.default
    if type(default) is FieldInfo:
        return Annotated[annotation, default, details], ... if default.is_required() else default.get_default()
    return Annotated[annotation, details], ... if default is MISSING else default


def _alias(fields: Iterable[Any]) -> str:
    """The name its author gave the model for a parameter: the first of several that would be accepted."""
    found = ""
    for field in fields:
        for alias in (getattr(field, "alias", None), getattr(field, "validation_alias", None)):
            choices = getattr(alias, "choices", (alias,))
            found = next((choice for choice in choices if isinstance(choice, str)), found)
    return found


def _keys_no_json_has(annotation: Any) -> str:
    """The choices among which no key of a JSON object can ever be, such as those of `dict[Literal[1, 2], str]`."""
    arguments = get_args(annotation)
    origin = get_origin(annotation)
    if origin is not Literal and isinstance(origin, type) and issubclass(origin, Mapping) and arguments:
        keys = get_args(arguments[0]) if get_origin(arguments[0]) is Literal else ()
        if keys and not any(isinstance(key, str | bool | Enum) for key in keys):
            return ", ".join(map(repr, keys))
    return next(filter(None, map(_keys_no_json_has, arguments)), "") if origin is not Literal else ""


def _with_keys_as_text(raw: Schema) -> Schema:
    """The schema with the names of closed mappings as JSON has them: text, also where an enum has numbers.

    pydantic takes "1" for a member of an IntEnum, and refuses it for one of an Enum that mixes both.
    """
    for part in list(_parts(raw)):
        names = part.get("propertyNames")
        if not isinstance(names, dict):
            continue
        there = resolve_pointer(raw, names["$ref"]) if "$ref" in names else names
        choices = there.get("enum", [there["const"]] if "const" in there else None)
        if choices is not None:
            numbers = there.get("type") == "integer"
            part["propertyNames"] = {"enum": [str(c) for c in choices if numbers or isinstance(c, str)]}
    return raw


# Words that some servers refuse in the schema of a tool (Gemini answers 400), and how a person would
# say them. Validation keeps the real thing; the model reads the words.
_SAID: Final = frozenset(
    {
        "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems", "propertyNames", "patternProperties",
        "discriminator",
    }
)  # fmt: skip

# With more keys than this, listing them as fields would only repeat the type of each.
_MOST_KEYS: Final = 50

# Not schemas, whatever they look like.
_VALUES: Final = frozenset({"default", "enum", "examples", "required", "const"})


def shown(raw: Schema) -> Schema:
    """A schema of pydantic's without its noise, and with definitions in the place where they are used."""
    definitions = raw.get("$defs", {})
    looping = [name for name in definitions if _contains_itself(name, definitions)]
    inline = {name: part for name, part in definitions.items() if name not in looping}
    schema: Schema = _plain({key: part for key, part in raw.items() if key not in ("$defs", "description")}, inline)
    if looping:
        # A type that contains itself cannot be written in its place; a few servers refuse such tools.
        schema["$defs"] = {name: _plain(definitions[name], inline) for name in looping}
    schema.setdefault("properties", {})
    return schema


def _plain(schema: Any, inline: Schema) -> Any:  # noqa: C901 - one type after the other
    if isinstance(schema, list):
        return [_plain(part, inline) for part in schema]
    if not isinstance(schema, dict):
        return schema
    target = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if target in inline:
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return _plain({**inline[target], **beside}, inline)
    result: Schema = {}
    said = []
    keys = schema.get("propertyNames", {}).get("enum", ())
    if 0 < len(keys) <= _MOST_KEYS and "properties" not in schema:
        # A mapping with a closed set of keys is an object with those fields, and every server knows that.
        each = schema.get("additionalProperties", {})
        result["properties"] = {name: _plain(each, inline) if isinstance(each, dict) else {} for name in keys}
        schema = {key: value for key, value in schema.items() if key not in ("propertyNames", "additionalProperties")}
    for key, value in schema.items():
        if key in _SAID:
            said.append(WORDS[key].said(value))
        elif key == "const":
            result["enum"] = [value]
        elif key == "properties":
            result[key] = {name: _plain(part, inline) for name, part in value.items()}
        elif not _is_noise(key, value):
            result[key] = value if key in _VALUES else _plain(value, inline)
    if result.get("type") == "array":
        result.setdefault("items", {})
    if described := _described(schema.get("description", ""), ", ".join(filter(None, said))):
        result["description"] = described
    return result


def _described(words: str, limits: str) -> str:
    return f"{words} ({limits})" if words and limits else words or limits


def _is_noise(key: str, value: Any) -> bool:
    # That unknown fields are refused needs no saying, and that a field may be left out `required` says.
    closed = key == "additionalProperties" and isinstance(value, bool)
    return closed or key in ("title", "description") or (key == "default" and value is None)


def _contains_itself(name: str, definitions: Schema) -> bool:
    seen: set[str] = set()
    todo = [name]
    while todo:
        text = json.dumps(definitions[todo.pop()])
        found = {part for part in definitions if f'"#/$defs/{part}"' in text}
        if name in found:
            return True
        todo += found - seen
        seen |= found
    return False
