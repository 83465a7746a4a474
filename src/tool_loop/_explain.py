"""Says in words what is wrong with the arguments of a call: every offending field, by its path.

Knows nothing about tools or pydantic. Both kinds of tools end here, so that a model reads one shape
of message: typed functions are explained by the JSON schema of their signature, and only what a
schema cannot say (a validator of the author's own) is told in pydantic's words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ._schema import in_place, resolve_pointer
from .errors import ToolError

Path: TypeAlias = tuple[str | int, ...]
Complaint: TypeAlias = tuple[Sequence[Any], str]

# More than this many at once teach nothing more, and a list of 10,000 wrong items would fill the window.
_MOST = 10


@dataclass(frozen=True, slots=True)
class Problem:
    """One field that is wrong: where, what about it, and how it could be right."""

    path: Path
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class _Case:
    tool: str
    schema: Mapping[str, Any]
    value: Any


def invalid_arguments(
    tool: str, schema: Mapping[str, Any], validator: Any, value: dict[str, Any], complaints: Iterable[Complaint] = ()
) -> ToolError:
    """The error that names every offending field of a call that did not validate.

    `complaints` are what another validator found, as (path, text). Only what it complained about is
    reported, in the words of the schema where the schema finds fault with the same place.
    """
    case = _Case(tool, schema, value)
    found = [problem for error in validator.iter_errors(value) for problem in _problems(error, case)]
    found += whole_floats(schema, validator, value, tool)
    complaints = list(complaints)
    if complaints:
        places = [_real_path(loc, value) for loc, _ in complaints]
        found = [problem for problem in found if any(_same_place(problem.path, place) for place in places)]
        for place, (_, text) in zip(places, complaints, strict=True):
            if not any(_same_place(problem.path, place) for problem in found):
                found.append(Problem(place, _in_our_words(text)))
    problems = list({(problem.path, problem.text): problem for problem in found}.values())
    shown = problems[:_MOST]
    more = f"; and {len(problems) - _MOST} more" if len(problems) > _MOST else ""
    return ToolError(
        "; ".join(_sentence(problem) for problem in shown) + more,
        kind="invalid_arguments",
        hint=" ".join(dict.fromkeys(problem.advice for problem in shown if problem.advice)),
        fields={_dotted(problem.path): problem.text for problem in shown},
    )


def whole_floats(schema: Mapping[str, Any], validator: Any, value: Any, tool: str) -> list[Problem]:
    """Where 5.0 stands and only an integer may: JSON Schema lets it pass, Python's `range` does not."""
    case = _Case(tool, schema, value)
    errors = validator.iter_errors(_unwhole(value))
    return [
        problem
        for error in errors
        if isinstance(_at(value, error.instance_path), float) and _wants_integer(error)
        for problem in [_wrong_type(tuple(error.instance_path), _fragment(error, case), case)]
    ]


# --- one error of the validator -------------------------------------------------------------------


def _problems(error: Any, case: _Case) -> Iterator[Problem]:
    path: Path = tuple(error.instance_path)
    word = error.kind.name
    schema = _fragment(error, case)
    got = _at(case.value, path)
    if word == "required":
        yield _missing((*path, error.kind.property), schema, case)
    elif word in ("additionalProperties", "unevaluatedProperties"):
        known = _fields(schema, case)
        yield from (_unknown(path, name, known, case) for name in error.kind.unexpected if name not in known)
    elif word == "type":
        yield _wrong_type(path, schema, case)
    elif word in ("enum", "const"):
        choices = schema.get("enum", [schema.get("const")])
        text = f"must be {'one of ' if len(choices) > 1 else ''}{_listed(choices)}; got {_value(got)}"
        yield Problem(path, text, _nearest(got, choices))
    elif word in ("anyOf", "oneOf"):
        yield from _no_branch(error, path, schema, case)
    else:
        yield Problem(path, _limit(word, schema, got) or f"is not valid: {error.message[:200]}")


def _no_branch(error: Any, path: Path, schema: Mapping[str, Any], case: _Case) -> Iterator[Problem]:
    branches = getattr(error.kind, "context", None)
    if error.kind.name == "oneOf" and not branches:
        yield Problem(path, "fits more than one of the forms it may have; it must fit exactly one")
        return
    # A branch that fails with something about the inside was probably the one that was meant.
    meant = [branch for branch in branches if not any(_about_itself(inner, path) for inner in branch)]
    if not meant:
        yield _wrong_type(path, schema, case)
        return
    for inner in min(meant, key=len):
        yield from _problems(inner, case)


def _about_itself(error: Any, path: Path) -> bool:
    """The branch wants another kind of value altogether, or the object says it is another branch."""
    place = tuple(error.instance_path)
    return (place == path and error.kind.name == "type") or (len(place) > len(path) and error.kind.name == "const")


def _missing(path: Path, schema: Mapping[str, Any], case: _Case) -> Problem:
    wanted = next(
        (
            part["properties"][path[-1]]
            for part in in_place(schema, case.schema)
            if path[-1] in part.get("properties", {})
        ),
        {},
    )
    return Problem(path, "is required", f"Add {_name(path)}: {_example_of(path, wanted, case)}.")


def _unknown(path: Path, name: str, known: Sequence[str], case: _Case) -> Problem:
    owner = _name(path) if path else case.tool
    listed = f"fields are: {', '.join(map(_short, known))}" if known else "it takes no fields"
    near = _nearest(name, known, quote="'") if known else f"Leave out {_name((name,))}."
    return Problem((*path, name), f"is not a field of {owner}; {listed}", near)


def _wrong_type(path: Path, schema: Mapping[str, Any], case: _Case) -> Problem:
    got = _at(case.value, path)
    text = f"must be {_expected(schema, case)}, got {_type(got)}"
    better = _converted(got, schema, case)
    if better is not None:
        return Problem(path, text, f"Write {_name(path)} as {_value(better)}, not {_value(got)}.")
    return Problem(path, text, f"{_name(path)} is {_example_of(path, schema, case)}.")


def _limit(word: str, schema: Mapping[str, Any], got: Any) -> str:
    template = _LIMITS.get(word)
    if template is None:
        return ""
    size = len(got) if isinstance(got, str | list | dict) else 0
    return template.format(limit=_bare(schema.get(word)), got=_value(got), size=size)


_LIMITS: Final = {
    "minimum": "must be at least {limit}, got {got}",
    "maximum": "must be at most {limit}, got {got}",
    "exclusiveMinimum": "must be greater than {limit}, got {got}",
    "exclusiveMaximum": "must be less than {limit}, got {got}",
    "multipleOf": "must be a multiple of {limit}, got {got}",
    "minLength": "must have at least {limit} characters, got {size}",
    "maxLength": "must have at most {limit} characters, got {size}",
    "pattern": "must match the pattern {limit}, got {got}",
    "format": "must be in the format {limit}, got {got}",
    "minItems": "must have at least {limit} items, got {size}",
    "maxItems": "must have at most {limit} items, got {size}",
    "uniqueItems": "must not have the same item twice",
    "minProperties": "must have at least {limit} fields, got {size}",
    "maxProperties": "must have at most {limit} fields, got {size}",
}


# --- what is expected -----------------------------------------------------------------------------


def _expected(schema: Mapping[str, Any], case: _Case) -> str:
    """A short name for what a schema accepts: `integer`, `array of string`, `"c" or "f"`."""
    names: list[str] = []
    for part in in_place(schema, case.schema):
        if "enum" in part or "const" in part:
            names.append(f"one of {_listed(part.get('enum', [part.get('const')]))}")
            continue
        words = part.get("type", [])
        for word in [words] if isinstance(words, str) else words:
            items = part.get("items")
            inner = _expected(items, case) if word == "array" and isinstance(items, Mapping) and items else ""
            names.append(f"array of {inner}" if inner else word)
    return " or ".join(dict.fromkeys(names)) or "valid"


def _example_of(path: Path, schema: Mapping[str, Any], case: _Case) -> str:
    expected = _expected(schema, case)
    example = _value(_example(schema, case))
    return f"{expected}, for example {example}" if expected != "valid" else f"for example {example}"


def _example(schema: Mapping[str, Any], case: _Case, depth: int = 0) -> Any:
    for part in in_place(schema, case.schema):
        for key in ("examples", "enum"):
            if part.get(key):
                return part[key][0]
        for key in ("default", "const"):
            if part.get(key) is not None:
                return part[key]
        words = part.get("type", [])
        word = words if isinstance(words, str) else next(iter(words), "")
        if word == "object" and depth < 3:
            fields = part.get("properties", {})
            return {name: _example(fields.get(name, {}), case, depth + 1) for name in part.get("required", ())}
        if word == "array" and depth < 3:
            return [_example(part["items"], case, depth + 1)] if isinstance(part.get("items"), Mapping) else []
        if word in ("integer", "number"):
            return part.get("minimum", 1 if word == "integer" else 1.5)
        if word == "string":
            return _FORMATS.get(part.get("format", ""), "text")
        if word == "boolean":
            return True
    return "text"


_FORMATS: Final = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "name@example.com",
    "uri": "https://example.com/",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}


def _converted(got: Any, schema: Mapping[str, Any], case: _Case) -> Any:
    """The value that was probably meant, where only its type was wrong: "5" for 5, 5.0 for 5."""
    words = _expected(schema, case).split(" or ")
    if isinstance(got, float) and got.is_integer() and "integer" in words:
        return int(got)
    if isinstance(got, str) and len(got) < 1000:
        try:
            meant = json.loads(got)
        except (ValueError, RecursionError):
            return [got] if "array of string" in words else None
        kinds = {word.split(" ")[0] for word in words}
        return meant if _KINDS.get(type(meant)) in kinds else None
    if isinstance(got, int | float) and "string" in words:
        return json.dumps(got)
    return None


_KINDS: Final = {bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def _fields(schema: Mapping[str, Any], case: _Case) -> list[str]:
    return list(dict.fromkeys(name for part in in_place(schema, case.schema) for name in part.get("properties", {})))


# --- places ---------------------------------------------------------------------------------------


def _fragment(error: Any, case: _Case) -> Mapping[str, Any]:
    """The part of the schema that the failed keyword stands in."""
    place: Any = case.schema
    for step in error.schema_path[:-1]:
        if isinstance(place, Mapping) and step not in place and isinstance(place.get("$ref"), str):
            place = resolve_pointer(case.schema, place["$ref"])
        try:
            place = place[step]
        except (KeyError, IndexError, TypeError):
            return {}
    return place if isinstance(place, Mapping) else {}


def _at(value: Any, path: Iterable[Any]) -> Any:
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _real_path(location: Sequence[Any], value: Any) -> Path:
    """pydantic's location without the names of union branches and validators, which a model never saw."""
    path: list[str | int] = []
    for i, step in enumerate(location):
        known = (isinstance(value, dict) and step in value) or (
            isinstance(value, list) and isinstance(step, int) and step < len(value)
        )
        if known:
            value = value[step]
        elif not (isinstance(value, dict) and i == len(location) - 1 and str(step).isidentifier()):
            continue
        path.append(step)
    return tuple(path)


def _same_place(one: Path, other: Path) -> bool:
    return one[: len(other)] == other or other[: len(one)] == one


def _wants_integer(error: Any) -> bool:
    if error.kind.name == "type":
        return "integer" in error.kind.types
    branches = getattr(error.kind, "context", None) or ()
    return any(_wants_integer(inner) for branch in branches for inner in branch)


def _unwhole(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unwhole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_unwhole(item) for item in value]
    return 0.5 if isinstance(value, float) and value.is_integer() else value


# --- words ----------------------------------------------------------------------------------------


def _sentence(problem: Problem) -> str:
    return f"{_name(problem.path)} {problem.text}"


def _in_our_words(text: str) -> str:
    text = text.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if text.startswith("Input should be "):
        return f"must be {text.removeprefix('Input should be ')}"
    return f"is not valid: {text}"


def _name(path: Path) -> str:
    return f"'{_dotted(path)}'" if path else "the arguments"


def _dotted(path: Path) -> str:
    return ".".join(_short(step) for step in path)


def _short(step: str | int) -> str:
    return json.dumps(str(step), ensure_ascii=False)[1:-1][:80]


def _type(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _bare(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _listed(choices: Sequence[Any]) -> str:
    more = f", and {len(choices) - 20} more" if len(choices) > 20 else ""
    return ", ".join(_value(choice) for choice in choices[:20]) + more


def _nearest(got: Any, choices: Iterable[Any], quote: str = '"') -> str:
    from difflib import get_close_matches

    words = {choice.lower(): choice for choice in choices if isinstance(choice, str)}
    near = get_close_matches(str(got).lower(), words, n=1, cutoff=0.5)
    return f"Did you mean {quote}{words[near[0]]}{quote}?" if near else ""
