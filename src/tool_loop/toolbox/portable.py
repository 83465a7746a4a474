"""A tool's schema in the words that a model's server takes, and the rest of it as a person would say it.

Servers know different parts of JSON Schema, and one word that is unknown to them fails every request
with a 400. So what a server may refuse is said in the description instead. Nothing is lost by it: the
toolbox checks arguments against the schema as its author wrote it, and the model reads both.

Three levels, each sent in fewer words than the one before. Everyone gets at least "usual". Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from .schema import resolve_pointer
from .words import WORDS, short

Json: TypeAlias = Any  # a schema or a part of one
Level = Literal["usual", "plain", "bare"]
LEVELS: Final[tuple[Level, ...]] = ("usual", "plain", "bare")

# What is sent as it is; of "usual" everything is but these.
_NEVER: Final = frozenset({"$schema", "writeOnly", "readOnly"})
_BARE: Final = frozenset({"type", "properties", "required", "items", "enum"})
_PLAIN: Final = _BARE | {
    "anyOf", "default", "maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength", "minProperties",
    "minimum", "pattern",
}  # fmt: skip

# --- usual: as it is, but for what no server needs -------------------------------------------------


def portable(schema: Mapping[str, Any], level: Level = "usual") -> dict[str, Any]:
    """The schema of a tool's parameters, with the same meaning, as it is sent at this level."""
    if level == "usual":
        return _usual(schema)
    kept = _PLAIN if level == "plain" else _BARE
    # The parameters are an object whatever else they are, and not a choice between several.
    return {"type": "object", "properties": {}} | _put({**schema, "type": "object"}, schema, kept, frozenset())


def _usual(schema: Mapping[str, Any]) -> dict[str, Any]:
    kind, values = schema.get("type"), dict(schema)
    is_array = kind == "array" or (isinstance(kind, list) and "array" in kind)
    if is_array and "items" not in values and "prefixItems" not in values:
        values["items"] = {}  # Gemini refuses an array that does not say what its items are
    said = ""
    if isinstance(values.get("format"), str) and values["format"] != "date-time":
        said = WORDS["format"].said(values.pop("format"))
    sent = {key: _usual_part(key, value) for key, value in values.items() if key not in _NEVER}
    return _described(sent, schema.get("description", ""), [said])


def _usual_part(key: str, value: Json) -> Json:
    if isinstance(value, dict) and key in ("properties", "patternProperties", "$defs", "definitions"):
        return {name: _usual(one) if isinstance(one, dict) else one for name, one in value.items()}
    if isinstance(value, dict) and key in ("items", "additionalProperties", "not", "if", "then", "else"):
        return _usual(value)
    if isinstance(value, list) and key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        return [_usual(one) if isinstance(one, dict) else one for one in value]
    return value


def _described(sent: dict[str, Any], words: Json, said: Sequence[str]) -> dict[str, Any]:
    limits = ", ".join(filter(None, said))
    words = words if isinstance(words, str) else ""
    if limits:
        # Where there is a description it keeps its place; the bytes of a tool are the same every time.
        sent["description"] = f"{words} ({limits})" if words else limits
    return sent


# --- plain and bare: only words that are known everywhere ------------------------------------------


def _put(schema: Json, root: Json, kept: frozenset[str], seen: frozenset[str]) -> dict[str, Any]:  # noqa: C901 - one word after the other
    """A part of a schema in the words of `kept`, the others said. `seen` are the references it is behind."""
    part, followed = _flat(schema, root)
    if followed & seen:
        return {"type": "object", "description": "the same again as what it is in"}
    seen |= followed
    if "anyOf" in part and (part.get("type") == "object" or "properties" in part):
        _merge_branches(part, root)
    if "anyOf" in part and "anyOf" in kept:
        # It is refused beside a type (Kimi), and beside anything but a description (Gemini on Vertex).
        kept = frozenset({"anyOf"})
    sent: dict[str, Any] = {}
    said: list[str] = []
    for key, value in part.items():
        if key == "enum" and not _is_text(value):
            said.append(f"one of {', '.join(map(short, value))}" if len(value) > 1 else f"always {short(value[0])}")
        elif key == "null":
            said.append("or null")
        elif key in kept:
            sent[key] = _put_inside(key, value, root, _PLAIN if key == "anyOf" else kept, seen)
        elif key in WORDS:
            said.append(WORDS[key].said(value))
    if sent.get("type") == "array":
        sent.setdefault("items", {})
    if isinstance(words := part.get("description"), str):
        sent["description"] = words
    return _described(sent, words, said)


def _put_inside(key: str, value: Json, root: Json, kept: frozenset[str], seen: frozenset[str]) -> Json:
    if key == "properties" and isinstance(value, dict):
        return {name: _put(one, root, kept, seen) for name, one in value.items()}
    if key == "items":
        return _put(value, root, kept, seen)
    if key == "anyOf":
        return [_put(one, root, kept, seen) for one in value]
    return value


def _flat(schema: Json, root: Json, before: frozenset[str] = frozenset()) -> tuple[dict[str, Any], frozenset[str]]:  # noqa: C901
    """One level of a schema: what stands behind `$ref` and `allOf` is merged into it, and what may be
    chosen is one list, under `anyOf` or `enum`. With the references that were followed.
    """
    part: dict[str, Any] = {}
    parts, followed = _all_of(schema, root, before)
    for one in parts:
        for key, value in one.items():
            if key == "properties" and isinstance(value, dict):
                part[key] = part.get(key, {}) | value
            elif key == "required" and isinstance(value, list):
                part[key] = list(dict.fromkeys([*part.get(key, ()), *value]))
            elif key not in ("$ref", "allOf"):
                part.setdefault(key, value)
    if "const" in part:
        part["enum"] = [part.pop("const")]
    options = [*part.pop("anyOf", ()), *part.pop("oneOf", ())]
    if isinstance(part.get("type"), list):
        options = options or [{"type": kind} for kind in part["type"]]
        del part["type"]
    real = [one for one in options if not (isinstance(one, dict) and one.get("type") == "null")]
    if len(real) == 1:
        inner, more = _flat(real[0], root, followed)
        part = {**inner, **part}
        followed |= more
    elif real:
        kind = {"type": part["type"]} if "type" in part else {}
        part["anyOf"] = [{**kind, **one} if isinstance(one, dict) and "$ref" not in one else one for one in real]
    if len(real) < len(options):
        part["null"] = True
    if isinstance(part.get("enum"), list):
        _choices(part)
    return part, followed


def _all_of(schema: Json, root: Json, before: frozenset[str]) -> tuple[list[Mapping[str, Any]], frozenset[str]]:
    """The schema and what holds with it in any case: behind `$ref` and `allOf`. Each reference once."""
    found: list[Mapping[str, Any]] = []
    followed = before
    todo: list[Json] = [schema]
    while todo:
        part = todo.pop(0)
        if not isinstance(part, Mapping):
            continue
        found.append(part)
        reference = part.get("$ref")
        if isinstance(reference, str) and reference not in followed:
            followed |= {reference}
            todo.append(resolve_pointer(root, reference))
        todo += part.get("allOf", ())
    return found, followed


def _merge_branches(part: dict[str, Any], root: Json) -> None:
    """An object that is to have one set of fields or another: all of them are its fields."""
    branches = [_flat(one, root)[0] for one in part.pop("anyOf")]
    part["properties"] = {
        **{name: one for branch in branches for name, one in branch.get("properties", {}).items()},
        **part.get("properties", {}),
    }
    sets = [" and ".join(branch.get("required", ())) or "none of these" for branch in branches]
    said = f"needs one of these sets of fields: {'; or '.join(dict.fromkeys(sets))}"
    words = part.get("description", "")
    part["description"] = f"{words} ({said})" if words else said
    part["type"] = "object"


_KINDS: Final = {str: "string", bool: "boolean", int: "integer", float: "number"}


def _choices(part: dict[str, Any]) -> None:
    if None in part["enum"]:
        part["enum"] = [one for one in part["enum"] if one is not None]
        part["null"] = True
    if not part["enum"]:
        del part["enum"]
        return
    kinds = {_KINDS.get(type(one), "") for one in part["enum"]}
    if "type" not in part and len(kinds) == 1 and (kind := kinds.pop()):
        part["type"] = kind


def _is_text(choices: Sequence[Json]) -> bool:
    return all(isinstance(one, str) for one in choices)
