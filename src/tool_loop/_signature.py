"""Reads the signature and the docstring of a function that is to be a tool.

Knows nothing about JSON schemas or pydantic, so that decorating a function at import costs nothing.
Whatever a model could not fill by name is refused here, before anything has run.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, get_type_hints

from .errors import UsageError

MISSING: Any = inspect.Parameter.empty

# What a default says about a parameter without an annotation. Anything else has to be annotated.
_PLAIN = (str, bool, int, float)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One thing a model fills in. An annotation that could not be resolved yet is still a string."""

    name: str
    annotation: Any
    default: Any = MISSING
    description: str = ""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a tool is called with. `context` is the name of the parameter that gets the `ToolContext`."""

    parameters: tuple[Parameter, ...]
    context: str | None
    unbound: bool
    namespace: Mapping[str, Any]


def is_async(func: Callable[..., Any]) -> bool:
    """Whether calling `func` gives a coroutine; looks through partials and callable objects."""
    return inspect.iscoroutinefunction(_body(func))


def refuse_generators(func: Callable[..., Any], name: str) -> None:
    """Raises UsageError for a function whose result could not be shown to a model."""
    body = _body(func)
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        message = f"tool {name!r}: the function is a generator; return a list or a string instead of yielding"
        raise UsageError(message)


def read_signature(
    func: Callable[..., Any], name: str, context_type: type, names: Mapping[str, Any] | None = None
) -> Signature:
    """The parameters a model fills in, in order. `names` are local names that annotations may use.

    Raises UsageError naming the parameter which no model could fill by name or whose type is unknown.
    """
    body = _body(func)
    namespace = {**getattr(body, "__globals__", {}), **_closure(body), **(names or {})}
    given = _parameters(func, name)
    unbound = bool(given) and _is_self(given[0], func)
    notes = describe_args(inspect.getdoc(body) or "")
    parameters, context = [], None
    for parameter in given[1:] if unbound else given:
        annotation = resolve(parameter.annotation, namespace)
        if _is_context(annotation, context_type):
            context = parameter.name
            continue
        _refuse(parameter, name)
        if annotation is MISSING:
            annotation = type(parameter.default)
        parameters.append(Parameter(parameter.name, annotation, parameter.default, notes.get(parameter.name, "")))
    return Signature(tuple(parameters), context, unbound, namespace)


def context_parameter(func: Callable[..., Any], context_type: type) -> str | None:
    """The parameter of a function with a hand-written schema that wants the `ToolContext`, if any."""
    try:
        given = inspect.signature(func).parameters.values()
    except (TypeError, ValueError):
        return None  # a builtin without a readable signature
    body = _body(func)
    namespace = {**getattr(body, "__globals__", {}), **_closure(body)}
    for parameter in given:
        if _is_context(resolve(parameter.annotation, namespace), context_type):
            return parameter.name
    return None


def resolve(annotation: Any, namespace: Mapping[str, Any]) -> Any:
    """The annotation as a type; itself when it names something that does not exist (yet).

    One at a time, because a return type that is only imported for the type checker must not make the
    parameters unreadable.
    """
    holder = SimpleNamespace(__annotations__={"it": annotation})
    if annotation is MISSING:
        return annotation
    try:
        return get_type_hints(holder, dict(namespace), include_extras=True)["it"]
    except Exception:  # noqa: BLE001 - an annotation is arbitrary code; the caller reports it by name
        return annotation


# --- docstrings -----------------------------------------------------------------------------------

_SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Params|Raises|Returns|Yields|Examples?|Notes?):[ \t]*$", re.MULTILINE
)
_ENTRY = re.compile(r"^\*{0,2}(\w+)[ \t]*(?:\([^)]*\))?:[ \t]*(.*)$")


def summary(doc: str) -> str:
    """The docstring without the sections that are about parameters and exceptions."""
    kept, last, dropped = [], 0, False
    for section in _SECTION.finditer(doc):
        if not dropped:
            kept.append(doc[last : section.start()])
        last, dropped = section.start(), section[1] in {"Args", "Arguments", "Parameters", "Params", "Raises", "Yields"}
    if not dropped:
        kept.append(doc[last:])
    return "".join(kept).strip()


def describe_args(doc: str) -> dict[str, str]:
    """What a Google-style `Args:` section says about each parameter."""
    start = re.search(r"^(?:Args|Arguments|Parameters|Params):[ \t]*$", doc, re.MULTILINE)
    notes: dict[str, str] = {}
    if start is None:
        return notes
    current, indent = "", None
    for line in doc[start.end() :].splitlines()[1:]:
        text = line.strip()
        depth = len(line) - len(line.lstrip())
        if not text:
            continue
        if depth == 0:
            break
        indent = depth if indent is None else indent
        entry = _ENTRY.match(text) if depth <= indent else None
        if entry:
            current = entry[1]
            notes[current] = entry[2].strip()
        elif current:
            notes[current] = f"{notes[current]} {text}".strip()
    return notes


# --- details --------------------------------------------------------------------------------------


def _body(func: Any) -> Any:
    """The function that holds the code: under partials and decorators, or behind `__call__`."""
    while isinstance(func, partial):
        func = func.func
    if not inspect.isroutine(func) and not inspect.isclass(func):
        func = getattr(type(func), "__call__", func)  # noqa: B004 - not a question, the method itself is wanted
    return inspect.unwrap(func)


def _parameters(func: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(func).parameters.values())
    except (TypeError, ValueError):
        message = f"tool {name!r}: the function has no readable signature; give it a JSON schema with Tool(...)"
        raise UsageError(message) from None


def _closure(body: Any) -> dict[str, Any]:
    names = getattr(getattr(body, "__code__", None), "co_freevars", ())
    cells = getattr(body, "__closure__", None) or ()
    found = {}
    for name, cell in zip(names, cells, strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue  # not assigned yet
    return found


def _is_self(first: inspect.Parameter, func: Any) -> bool:
    """A plain function that is written in a class: `self` is filled when it is taken from an instance."""
    owner = getattr(func, "__qualname__", "").rpartition(".")[0]
    in_class = inspect.isfunction(func) and owner and not owner.endswith("<locals>")
    return bool(in_class) and first.name == "self" and first.annotation is MISSING


def _is_context(annotation: Any, context_type: type) -> bool:
    if isinstance(annotation, str):
        # Imported for the type checker only, so it has no value at run time.
        return annotation.replace(" ", "").removesuffix("|None").rpartition(".")[2] == context_type.__name__
    return annotation is context_type or context_type in getattr(annotation, "__args__", ())


def _refuse(parameter: inspect.Parameter, name: str) -> None:
    where = f"tool {name!r}: parameter {parameter.name!r}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        message = f"{where} takes any number of values; name each field, or write the JSON schema with Tool(...)"
    elif parameter.kind is parameter.POSITIONAL_ONLY:
        message = f"{where} is positional-only; a model fills fields by name"
    elif parameter.annotation is MISSING and type(parameter.default) not in _PLAIN:
        message = f"{where} needs a type annotation, such as {parameter.name}: str"
    else:
        return
    raise UsageError(message)


def caller_names(depth: int) -> Mapping[str, Any]:
    """The local names where a decorator is used, so that annotations can name local classes."""
    return dict(sys._getframe(depth + 1).f_locals)  # noqa: SLF001 - the documented way to look at a caller
