"""Reads the signature and the docstring of a function that is to be a tool.

Knows nothing about JSON schemas or pydantic, so that decorating a function costs nothing at import.
Whatever a model could not fill in by name is refused here, before anything has run.
"""

from __future__ import annotations

import inspect
import logging
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType, SimpleNamespace
from typing import Any, Final, get_origin, get_type_hints

from tool_loop.errors import UsageError
from tool_loop.records import dataclass

from .docstring import Docstring, read_docstring

logger = logging.getLogger(__name__)

MISSING: Final[Any] = inspect.Parameter.empty

# A default of one of these says the type of a parameter that has no annotation.
_PLAIN: Final = (str, bool, int, float)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One thing a model fills in. An annotation that cannot be resolved yet is still a string."""

    name: str
    annotation: Any
    default: Any = MISSING
    description: str = ""


@dataclass(frozen=True, slots=True)
class LocalNames:
    """Where the names in annotations are looked up. `module` is alive: it may define them later."""

    module: dict[str, Any]
    local: dict[str, Any]

    def resolve(self, annotation: Any) -> Any:
        """The annotation as a type; a string stays as it is while it names what does not exist.

        One annotation at a time, because a return type that is imported for the type checker only
        must not make the parameters unreadable.
        """
        if annotation is MISSING:
            return annotation
        holder = SimpleNamespace(__annotations__={"it": annotation})
        try:
            return get_type_hints(holder, self.module, self.local, include_extras=True)["it"]
        except Exception:  # an annotation is code and may raise anything; whoever needs it reports it by name
            return annotation


@dataclass(frozen=True, slots=True)
class Signature:
    """What a tool is called with.

    `context` is the parameter that gets the `ToolContext`. `unbound` says that the function is a
    method that nobody has taken from an instance yet.
    """

    parameters: tuple[Parameter, ...]
    context: str | None
    unbound: bool
    names: LocalNames


def read_signature(
    func: Callable[..., Any], tool: str, context_type: type, local: Mapping[str, Any] | None = None
) -> Signature:
    """The parameters a model fills in, in order. `local` are names beside those of the module.

    Raises UsageError naming the parameter that no model could fill in, or whose type is unknown.
    """
    names = names_of(func, local)
    given = parameters_of(func, tool)
    unbound = bool(given) and _is_self(given[0], func)
    doc = docstring_of(func)
    if doc.unknown:
        logger.warning("tool %s: its docstring describes %s, no parameter of it", tool, ", ".join(doc.unknown))
    parameters, context = [], None
    for parameter in given[1:] if unbound else given:
        annotation = names.resolve(parameter.annotation)
        if _is_context(annotation, context_type):
            context = parameter.name
            continue
        _reject(parameter, tool)
        if annotation is MISSING:
            annotation = type(parameter.default)
        parameters.append(
            Parameter(parameter.name, annotation, parameter.default, doc.parameters.get(parameter.name, ""))
        )
    return Signature(tuple(parameters), context, unbound, names)


def context_parameter(func: Callable[..., Any], context_type: type) -> str | None:
    """The parameter that wants the `ToolContext`, for a function whose schema is written by hand."""
    names = names_of(func)
    for parameter in readable_parameters(func):
        if _is_context(names.resolve(parameter.annotation), context_type):
            return parameter.name
    return None


def is_async(func: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine. What a plain wrapper hides comes out when it has run."""
    func = _unpartial(func)
    return inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(getattr(func, "__call__", None))  # noqa: B004


def reject_generators(func: Callable[..., Any], tool: str) -> None:
    """Raises UsageError for a function whose result could not be shown to a model."""
    body = body_of(func)
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise UsageError(f"tool {tool!r}: the function is a generator; return a list or text instead of yielding")


# --- looking at a function ------------------------------------------------------------------------


def body_of(func: Any) -> Any:
    """The function that holds the code: under partials and decorators, or behind a callable object."""
    func = inspect.unwrap(_unpartial(func))
    if inspect.isclass(func):
        return getattr(func, "__init__", func)
    return func if inspect.isroutine(func) else getattr(type(func), "__call__", func)  # noqa: B004


def doc_of(func: Any) -> str:
    bare = _unpartial(func)
    described = bare if inspect.isroutine(bare) or inspect.isclass(bare) else body_of(func)
    return inspect.getdoc(described) or inspect.getdoc(bare) or ""


def name_of(func: Any) -> str:
    bare = _unpartial(func)
    return getattr(bare, "__name__", type(bare).__name__)


def names_of(func: Any, local: Mapping[str, Any] | None = None) -> LocalNames:
    body = body_of(func)
    return LocalNames(getattr(body, "__globals__", {}), {**_closure(body), **(local or {})})


def parameters_of(func: Callable[..., Any], tool: str) -> list[inspect.Parameter]:
    """All parameters but those that a partial has filled: a bound API key is not the model's business."""
    try:
        given = inspect.signature(func.__func__ if isinstance(func, classmethod) else func).parameters.values()
    except (TypeError, ValueError, NameError) as error:
        # NameError: from Python 3.14 on annotations are evaluated when they are first looked at.
        reason = f"the function has no readable signature ({error}); write its JSON schema"
        raise UsageError(f"tool {tool!r}: {reason}") from None
    filled = _filled(func)
    return [parameter for parameter in given if parameter.name not in filled]


def readable_parameters(func: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters, or none for a builtin that does not show them."""
    try:
        return parameters_of(func, "")
    except UsageError:
        return []


def local_names(func: Callable[..., Any]) -> dict[str, Any]:
    """What the annotations of `func` name among the local variables of the functions it is written in.

    With postponed annotations a class that is local to a function is a mere string in the signature.
    Only the names that occur are kept, so that a tool does not keep whole frames alive.
    """
    body: Any = body_of(func)
    code: Any = getattr(body, "__code__", None)
    texts = [parameter.annotation for parameter in readable_parameters(func) if isinstance(parameter.annotation, str)]
    wanted = set(re.findall(r"\w+", " ".join(texts)))
    found: dict[str, Any] = {}
    frame: FrameType | None = sys._getframe(1) if code and wanted else None  # noqa: SLF001 - the documented way
    while frame:
        around = frame.f_code
        if around.co_filename == code.co_filename and body.__qualname__.startswith(f"{around.co_qualname}."):
            found = {name: value for name, value in frame.f_locals.items() if name in wanted} | found
        frame = frame.f_back
    return found


def _unpartial(func: Any) -> Any:
    """Under partials, and under `@classmethod` or `@staticmethod` where those stand below `@tool`."""
    while isinstance(func, partial | classmethod | staticmethod):
        func = func.func if isinstance(func, partial) else func.__func__
    return func


def _filled(func: Any) -> set[str]:
    filled: set[str] = set()
    while isinstance(func, partial):
        filled |= func.keywords.keys()
        func = func.func
    return filled


def _closure(body: Any) -> dict[str, Any]:
    names = getattr(getattr(body, "__code__", None), "co_freevars", ())
    found = {}
    for name, cell in zip(names, getattr(body, "__closure__", None) or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue  # not assigned yet
    return found


def _is_self(first: inspect.Parameter, func: Any) -> bool:
    """A function written in a class: `self` is filled when it is taken from an instance, `cls` from the class."""
    if isinstance(func, classmethod):
        return True
    owner = getattr(func, "__qualname__", "").rpartition(".")[0]
    in_class = inspect.isfunction(func) and owner and not owner.endswith("<locals>")
    return bool(in_class) and first.name in ("self", "cls") and first.annotation is MISSING


def _is_context(annotation: Any, context_type: type) -> bool:
    if isinstance(annotation, str):
        # Imported for the type checker only, so that it is no type at run time.
        name = annotation.replace(" ", "").removesuffix("|None").partition("[")[0]
        return name.rpartition(".")[2] == context_type.__name__
    parts = (annotation, *getattr(annotation, "__args__", ()))
    return any(context_type in (part, get_origin(part)) for part in parts)


def _reject(parameter: inspect.Parameter, tool: str) -> None:
    where = f"tool {tool!r}: parameter {parameter.name!r}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise UsageError(
            f"{where} takes any number of values; name each field, or write the JSON schema with Tool(...)"
        )
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise UsageError(f"{where} is positional-only; a model fills in fields by name")
    if parameter.annotation is MISSING and type(parameter.default) not in _PLAIN:
        raise UsageError(f"{where} needs a type annotation, as in {parameter.name}: str")


# --- docstrings -----------------------------------------------------------------------------------


def docstring_of(func: Callable[..., Any]) -> Docstring:
    """What its author wrote about the function and each of its parameters, also those the model never sees."""
    try:
        names = inspect.signature(_unpartial(func)).parameters
    except (TypeError, ValueError, NameError):
        return read_docstring(doc_of(func), ())
    return read_docstring(doc_of(func), names)
