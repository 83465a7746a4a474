"""What the final answer has to be: a type or a JSON schema, how a model is told, and what is wrong with a text.

An answer that does not fit is data, as a tool's failure is: the model reads each field that is wrong and
answers again. Validation is as strict as for a tool's arguments, whatever a server says it enforces.
Knows nothing about the loop, which decides how often; pydantic is imported when a type is given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar, cast

from tool_loop.errors import ToolError, UsageError

from .call import compiled, parse_arguments
from .explain import invalid_arguments
from .schema import Complaint, checked_schema, sealed
from .typed import shown

T = TypeVar("T")

# What is no object is put into one: every server's format wants an object at the root.
FIELD: Final = "value"

# Where the form is right and the author's own validator says no. Tools may help there; where the form is
# wrong none can.
REFUSED: Final = "refused_answer"
MISFIT: Final = "invalid_answer"


class AnswerForm(Generic[T]):
    """The form of an answer. `wanted` is a pydantic model, a dataclass, a TypedDict, any other type that
    pydantic knows (a union, `list[int]`), or a JSON schema of type object.

    `schema` is what a model is shown, and `strict` says whether it is within what OpenAI's servers can
    enforce. Raises UsageError when no schema can be made of it.
    """

    def __init__(self, wanted: Any) -> None:
        self._adapter: Any = None
        self._wrapped = False
        self._is_valid: Any = None
        raw = self._of_schema(wanted) if isinstance(wanted, Mapping) else self._of_type(wanted)
        self.schema: dict[str, Any] = _closed(raw)
        self.strict = _is_enforceable(self.schema)

    def _of_schema(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        self.name = _name(wanted.get("title"))
        self._sealed = sealed(checked_schema("answer", wanted))
        return {key: value for key, value in wanted.items() if key != "$schema"}

    def _of_type(self, wanted: Any) -> dict[str, Any]:
        from pydantic import TypeAdapter

        self.name = _name(getattr(wanted, "__name__", None))
        try:
            self._adapter = TypeAdapter(wanted)
            raw: dict[str, Any] = self._adapter.json_schema()
        except Exception as error:  # annotations, and pydantic's hooks in them, are code of the author
            reason = str(error).split("\n", 1)[0]
            raise UsageError(f"answer={wanted!r}: no schema can be made of it: {reason}") from error
        if raw.get("type") != "object":
            self._wrapped = True
            definitions = {"$defs": raw.pop("$defs")} if "$defs" in raw else {}
            raw = {"type": "object", "properties": {FIELD: raw}, "required": [FIELD], **definitions}
        self._sealed = raw
        return shown(raw)

    def problem(self, text: str) -> ToolError | None:
        """What is wrong with this answer; None when it fits."""
        try:
            self.value(text)
        except ToolError as error:
            return error
        return None

    def value(self, text: str) -> T:
        """The answer as it was wanted. Raises `ToolError` of kind `invalid_answer` naming each field that is
        wrong, or `refused_answer` when only a validator of the type's author objects.
        """
        body = _unfenced(text.strip()) or '""'  # an empty answer is no object either
        try:
            return cast("T", self._of_object(parse_arguments(body), body))
        except ToolError as error:
            error.kind = error.kind if error.kind == REFUSED else MISFIT
            error.hint = error.hint or "Answer again with the whole object."
            raise

    def _of_object(self, value: dict[str, Any], text: str) -> Any:
        if self._adapter is None:
            self._is_valid = self._is_valid or compiled("answer", self._sealed).is_valid
            if not self._is_valid(value):
                raise invalid_arguments(self.name, self._sealed, value)
            return value
        if self._wrapped:
            if set(value) != {FIELD}:
                raise invalid_arguments(self.name, self._sealed | {"additionalProperties": False}, value)
            text = json.dumps(value[FIELD])
        return self._converted(value, text)

    def _converted(self, value: dict[str, Any], text: str) -> Any:
        from pydantic import ValidationError

        try:
            # From JSON text and strict: "5" is not 5, yet a string is a date, which JSON cannot write otherwise.
            return self._adapter.validate_json(text, strict=True, extra="forbid")
        except ValidationError as error:
            prefix = (FIELD,) if self._wrapped else ()
            found = error.errors(include_url=False, include_input=False)
            complaints = [Complaint((*prefix, *one["loc"]), one["type"], one["msg"]) for one in found]
            told = invalid_arguments(self.name, self._sealed, value, complaints)
            if all(one["type"] in ("value_error", "assertion_error") for one in found):
                told.kind = REFUSED
            raise told from None


def _unfenced(text: str) -> str:
    """Without a fence around all of it: that is typography, and half of the local models write one.

    Nothing else is mended.
    """
    head, line, rest = text.partition("\n")
    if line and head.strip().lower() in ("```", "```json") and rest.endswith("```"):
        return rest.removesuffix("```").strip()
    return text


def _name(title: Any) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", str(title or "answer"))[:64] or "answer"


_NAMES: Final = ("properties", "$defs", "definitions")
_VALUES: Final = ("enum", "required", "default", "const", "examples")


def _closed(schema: Any) -> Any:
    """The schema with unknown fields refused, which OpenAI's and Anthropic's servers want to see written."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    part: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMES and isinstance(value, Mapping):
            part[key] = {name: _closed(inner) for name, inner in value.items()}
        else:
            part[key] = value if key in _VALUES else _closed(value)
    if part.get("type") == "object" and "properties" in part:
        part.setdefault("additionalProperties", False)
    return part


# What OpenAI's strict mode refuses in a schema, by its documentation of structured outputs.
_NOT_ENFORCEABLE: Final = frozenset(
    {
        "oneOf",
        "allOf",
        "not",
        "if",
        "patternProperties",
        "propertyNames",
        "minProperties",
        "dependentSchemas",
        "default",
    }
)


def _is_enforceable(schema: Any) -> bool:
    if isinstance(schema, list):
        return all(map(_is_enforceable, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object":
        every = set(schema.get("required", ())) == set(schema.get("properties", ()))
        if schema.get("additionalProperties") is not False or not every:
            return False
    if schema.keys() & _NOT_ENFORCEABLE:
        return False
    parts = (value.values() if key in _NAMES else (value,) for key, value in schema.items() if key not in _VALUES)
    return all(_is_enforceable(part) for group in parts for part in group)
