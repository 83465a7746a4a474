"""Says in words what is wrong with the arguments of a call: every offending field, by its path.

Knows nothing about tools. Hand-written schemas and typed functions both end here, so that a model
reads one shape of message. A typed function is explained by the JSON schema of its signature, and
only what a schema cannot say (a validator of the author's own) is told in pydantic's words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from tool_loop.errors import ToolError, UsageError

from . import wording as words
from .call import compiled
from .places import at, same_place, unwhole, wanting_integers
from .schema import Complaint, resolve_pointer
from .wording import Path, Schema

# More than this many at once teach nothing more, and a list of 10,000 wrong items would fill the window.
_MOST: Final = 10
_MOST_LOOKED_AT: Final = 1_000


@dataclass(frozen=True, slots=True)
class Problem:
    """One field that is wrong: where, what about it, and how it could be right."""

    path: Path
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class _Case:
    tool: str
    schema: Schema
    value: Any


def invalid_arguments(
    tool: str, schema: Schema, value: dict[str, Any], complaints: Sequence[Complaint] = ()
) -> ToolError:
    """The error that names every offending field of a call that did not validate.

    `complaints` are what pydantic found. With them only what it complained about is told: in the
    words of the schema where that finds fault with the same place, else in its own.
    """
    case = _Case(tool, schema, value)
    try:
        errors = _errors(case, value)
        found = [problem for error in errors for problem in _problems(error, case)] + whole_floats(tool, schema, value)
        found = found or [problem for error in errors for problem in _misfits(error, case)]
    except UsageError:
        found = []  # a hook of the author's made a schema that only pydantic understands
    if complaints:
        found = _agreed(found, complaints, case)
    problems = list({(problem.path, problem.text): problem for problem in found}.values()) or [
        Problem((), "is not valid")
    ]
    told = problems[:_MOST]
    more = f"; and {len(problems) - _MOST} more" if len(problems) > _MOST else ""
    return ToolError(
        "; ".join(f"{words.name(problem.path)} {problem.text}" for problem in told) + more,
        kind="invalid_arguments",
        hint=" ".join(dict.fromkeys(problem.advice for problem in told if problem.advice)),
        fields={words.dotted(problem.path): problem.text for problem in told},
    )


def whole_floats(tool: str, schema: Schema, value: dict[str, Any]) -> list[Problem]:
    """Where 5.0 stands and only an integer may. Found by asking again with 0.5 in its place."""
    case = _Case(tool, schema, value)
    errors = [inner for error in _errors(case, unwhole(value)) for inner in wanting_integers(error)]
    wrong = [error for error in errors if isinstance(at(value, error.instance_path), float)]
    return [_wrong_type(tuple(error.instance_path), _fragment(error, case), case) for error in wrong]


def _errors(case: _Case, value: Any) -> list[Any]:
    return list(islice(compiled(case.tool, case.schema).iter_errors(value), _MOST_LOOKED_AT))


def _agreed(found: Iterable[Problem], complaints: Iterable[Complaint], case: _Case) -> list[Problem]:
    places = [(*_real_path(complaint, case.value), complaint) for complaint in complaints]
    agreed = [problem for problem in found if any(same_place(problem.path, place) for place, _, _ in places)]
    for place, union, complaint in places:
        # Of a union pydantic tells what each branch says. Where the schema has said what is wrong in
        # there, the branches that were not meant only confuse.
        if not any(same_place(problem.path, union) for problem in agreed):
            agreed.append(Problem(place, _in_our_words(place, complaint, case)))
    return agreed


# --- one error of the validator -------------------------------------------------------------------


def _problems(error: Any, case: _Case) -> Iterator[Problem]:
    path: Path = tuple(error.instance_path)
    schema = _fragment(error, case)
    match error.kind.name:
        case "required":
            yield _missing((*path, error.kind.property), schema, case)
        case "additionalProperties" | "unevaluatedProperties":
            # With one wrong field, the fields beside it count as not evaluated; those are no news.
            known = words.fields_of(schema, case.schema)
            yield from (_unknown(path, name, known, case) for name in error.kind.unexpected if name not in known)
        case "type" if not {"enum", "const"} & schema.keys():
            yield _wrong_type(path, schema, case)
        case "type" | "enum" | "const":
            yield _not_one_of(path, words.choices(schema), case)
        case "anyOf" | "oneOf":
            yield from _no_branch(error, path, schema, case)
        case "propertyNames":
            yield _wrong_key(path, error.kind.error, case)
        case "falseSchema":
            yield Problem(path, "is not allowed")
        case word:
            yield _limit(path, word, schema, case) or Problem(path, f"is not valid: {error.message[:200]}")


def _misfits(error: Any, case: _Case) -> Iterator[Problem]:
    """Fields that exist, but not beside the others that were sent: they belong to another form."""
    path: Path = tuple(error.instance_path)
    for name in getattr(error.kind, "unexpected", ()):
        yield Problem((*path, name), f"does not go with the other fields of {_owner(path, case)}")


def _no_branch(error: Any, path: Path, schema: Schema, case: _Case) -> Iterator[Problem]:
    branches = error.kind.context
    if not all(branches):  # one that finds no fault is one that fits
        yield Problem(path, "fits more than one of the forms it may have; it must fit exactly one")
        return
    # A branch that finds fault with the inside, and not with the kind of value, may have been meant.
    meant = [branch for branch in branches if not any(_wrong_kind(inner, path) for inner in branch)]
    if not meant:
        yield _wrong_type(path, schema, case)
        return
    tags = [[inner for inner in branch if _is_tag(inner, path)] for branch in meant]
    if all(tags) and len({tuple(found[0].instance_path) for found in tags}) == 1:
        # Each form is named by a constant, and what stands here is none of those names.
        options = [option for found in tags for option in words.choices(_fragment(found[0], case))]
        yield _not_one_of(tuple(tags[0][0].instance_path), options, case)
        return
    likely = [branch for branch, found in zip(meant, tags, strict=True) if not found] or meant
    for inner in min(likely, key=len):
        yield from _problems(inner, case)


def _wrong_kind(error: Any, path: Path) -> bool:
    return tuple(error.instance_path) == path and error.kind.name == "type"


def _is_tag(error: Any, path: Path) -> bool:
    return len(error.instance_path) > len(path) and error.kind.name in ("const", "enum")


def _missing(path: Path, schema: Schema, case: _Case) -> Problem:
    field = words.field_of(path[-1], schema, case.schema)
    return Problem(path, "is required", f"Add {words.name(path)}: {_described(field, case)}.")


def _unknown(path: Path, field: str, known: Sequence[str], case: _Case) -> Problem:
    place = (*path, field)
    if not known:
        return Problem(
            place, f"is not a field: {_owner(path, case)} takes no fields", f"Leave out {words.name(place)}."
        )
    near = words.nearest(field, known)
    advice = f"Did you mean '{words.short(near)}' instead of '{words.short(field)}'?" if near else ""
    listed = ", ".join(map(words.short, known))
    return Problem(place, f"is not a field of {_owner(path, case)}; fields are: {listed}", advice)


def _wrong_key(path: Path, error: Any, case: _Case) -> Problem:
    key, schema = error.instance, _fragment(error, case)
    place = (*path, key)
    if "enum" not in schema and "const" not in schema:
        return Problem(
            place, f"is not a key that {words.name(path)} may have: {error.message.split(chr(10), 1)[0][:200]}"
        )
    options = [str(option) for option in words.choices(schema)]
    near = words.nearest(key, options)
    advice = f"Did you mean {words.value(near)} instead of {words.value(key)}?" if near else ""
    return Problem(
        place, f"is not a key of {_owner(path, case)}; keys are: {', '.join(map(words.short, options))}", advice
    )


def _owner(path: Path, case: _Case) -> str:
    return words.name(path) if path else case.tool


def _wrong_type(path: Path, schema: Schema, case: _Case) -> Problem:
    got = at(case.value, path)
    text = f"must be {words.expected(schema, case.schema) or 'something else'}, got {words.type_of(got)}"
    better = words.converted(got, schema, case.schema)
    if better is not None and not (isinstance(better, str) and not _fits(better, schema, case)):
        return Problem(path, text, f"Write {words.name(path)} as {words.value(better)}, not {words.value(got)}.")
    return Problem(path, text, f"Send {words.name(path)} as {_described(schema, case)}.")


def _not_one_of(path: Path, options: Sequence[Any], case: _Case) -> Problem:
    got = at(case.value, path)
    near = words.nearest(got, options)
    advice = f"Did you mean {words.value(near)} for {words.name(path)}?" if near else ""
    return Problem(path, f"must be {words.one_of(options)}; got {words.value(got)}", advice)


def _limit(path: Path, word: str, schema: Schema, case: _Case) -> Problem | None:
    if word not in _LIMITS:
        return None
    got, limit = at(case.value, path), schema.get(word)
    text = _LIMITS[word].format(
        limit=limit if isinstance(limit, str) else json.dumps(limit),
        got=words.value(got),
        size=len(got) if isinstance(got, str | list | dict) else 0,
    )
    example = words.example(schema, case.schema) if word == "format" else None
    fits = example is not None and _fits(example, schema, case)
    return Problem(path, text, f"Write {words.name(path)} as in {words.value(example)}." if fits else "")


def _described(schema: Schema, case: _Case) -> str:
    """What a place takes, with an example only where that would be accepted."""
    kind, example = words.described(schema, case.schema), words.example(schema, case.schema)
    if (
        "enum" in schema
        or "const" in schema
        or (isinstance(example, str | int | float) and not _fits(example, schema, case))
    ):
        return kind  # choices are examples themselves
    return f"{kind}, for example {words.value(example)}"


def _fits(value: Any, schema: Schema, case: _Case) -> bool:
    """Whether the schema at one place takes this value: what a hint offers has to be right."""
    defined = {key: case.schema[key] for key in ("$defs", "definitions") if key in case.schema}
    try:
        return bool(compiled(case.tool, {**schema, **defined}).is_valid(value))
    except UsageError:
        return False


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


# --- places ---------------------------------------------------------------------------------------


def _fragment(error: Any, case: _Case) -> Schema:
    """The part of the schema that the failed keyword stands in; what the error says, where that is elsewhere."""
    place: Any = case.schema
    for step in error.evaluation_path[:-1]:
        place = at(place, (step,))
        if step == "$ref":
            place = resolve_pointer(case.schema, place) if isinstance(place, str) else None
    return place if isinstance(place, dict) else {error.kind.name: error.kind.value}


def _real_path(complaint: Complaint, value: Any) -> tuple[Path, Path]:
    """Where pydantic found something, without the names of union branches, which the model never saw;
    and where the outermost of those unions stands (the place itself, when there is none).
    """
    path: list[str | int] = []
    union: Path | None = None
    missing = complaint.kind.startswith("missing")
    for i, step in enumerate(complaint.place):
        if step in value if isinstance(value, dict) else isinstance(value, list) and step in range(len(value)):
            value = value[step]
        elif not (missing and i == len(complaint.place) - 1):
            union = tuple(path) if union is None else union
            continue
        path.append(step)
    return tuple(path), tuple(path) if union is None else union


def _in_our_words(place: Path, complaint: Complaint, case: _Case) -> str:
    if complaint.kind.startswith("missing"):
        return "is required"
    if complaint.kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"is not a field of {_owner(place[:-1], case)}"
    text = complaint.text.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if text.startswith("Input should be "):
        return f"must be {text.removeprefix('Input should be ')}"
    return f"is not valid: {text}"
