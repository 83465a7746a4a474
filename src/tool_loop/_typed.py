"""Typed functions: pydantic makes a JSON schema of the signature, checks arguments and converts them.

Knows nothing about calls. pydantic is imported when a schema or a check is first wanted, because
`--help` and a waiting conversation must not pay for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from ._schema import Form, Schema
from ._signature import MISSING, Parameter, Signature
from .errors import UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel


class TypedForm(Form):
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
        schema = model.model_json_schema(schema_generator=Quiet)
    except Exception as error:  # the annotations, and pydantic's hooks in them, are code of the author
        reason = str(error).split("\n", 1)[0]
        raise UsageError(f"tool {name!r}: no schema can be made of its signature: {reason}") from error
    return model, schema


def _field(name: str, parameter: Parameter, signature: Signature) -> tuple[Any, Any]:
    from pydantic import Field

    annotation = signature.names.resolve(parameter.annotation)
    if isinstance(annotation, str):
        raise UsageError(f"tool {name!r}: the type of parameter {parameter.name!r} is not known here: {annotation}")
    metadata = getattr(annotation, "__metadata__", ())
    said = " ".join(note for note in metadata if isinstance(note, str)) or parameter.description
    if not said or any(getattr(note, "description", None) for note in metadata):
        details = Field(alias=parameter.name)  # a Field of the author's own says it better
    else:
        details = Field(alias=parameter.name, description=said)
    return Annotated[annotation, details], ... if parameter.default is MISSING else parameter.default


# Words that some servers refuse in the schema of a tool (Gemini answers 400), and how a person would
# say them. Validation keeps the real thing; the model reads the words.
_SAID: Final[dict[str, Callable[[Any], str]]] = {
    "exclusiveMinimum": "greater than {}".format,
    "exclusiveMaximum": "less than {}".format,
    "multipleOf": "a multiple of {}".format,
    "uniqueItems": "no item twice".format,
    "propertyNames": "".format,
    "patternProperties": "".format,
    "discriminator": "".format,
}

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


def _plain(schema: Any, inline: Schema) -> Any:
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
    for key, value in schema.items():
        if key in _SAID:
            said.append(_SAID[key](value))
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
