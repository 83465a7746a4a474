"""`Tool` and `@tool`: a function, what a model is told about it, and what it may do.

Knows nothing about calls; `registry.py` runs them. Importing this, and decorating a function, loads
neither pydantic nor a schema validator.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, Final, get_args, overload

from . import _signature
from .errors import UsageError
from .events import ToolProgress
from .ports import Effect, Emit, ToolSpec

# Every provider accepts exactly these names.
NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")

# About 8,000 tokens: room for a long file, and a run of 20 steps still fits a usual window.
MAX_RESULT_CHARS: Final = 30_000


class NotRun:
    """Return it (or False) from a probe to say that the call did not happen and may be run."""


def _silent(_text: str) -> None:
    """Progress of a tool that nobody watches, as in an author's own tests."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know about its call: annotate a parameter with it and it is filled in.

    `idempotency_key` is the same over every retry and resume of this call. The model never sees the
    parameter.
    """

    call_id: str = ""
    idempotency_key: str = ""
    _say: Callable[[str], None] = field(default=_silent, repr=False, compare=False)

    def progress(self, text: str) -> None:
        """Show `text` to whoever watches the run. Works from any thread; ignored once the call is over."""
        self._say(text)


class Progress:
    """Carries what a tool says to the loop's thread, as long as its call is open."""

    __slots__ = ("_call_id", "_emit", "_loop", "open")

    def __init__(self, call_id: str, emit: Emit, loop: asyncio.AbstractEventLoop) -> None:
        self._call_id = call_id
        self._emit = emit
        self._loop = loop
        self.open = True

    def __call__(self, text: str) -> None:
        try:
            # Always through the loop: subscribers are not made for other threads, and what one tool
            # says stays in order whichever thread says it.
            self._loop.call_soon_threadsafe(self._show, str(text))
        except RuntimeError:
            self.open = False  # the loop is closed: a thread that was given up on still talks

    def _show(self, text: str) -> None:
        if self.open:
            self._emit(ToolProgress(self._call_id, text))


@dataclass(frozen=True, eq=False)
class Tool:
    """A function a model may call, and everything that is known about it.

    `parameters` is a JSON schema of type object, written by hand; None takes it from the signature of
    `func`. The function is called with the arguments by name, and may be plain or async.

    `effect` says what running it twice would do: "read", "idempotent" or "once"; undeclared counts as
    "once". `needs_approval` overrides the registry's policy: True, False, or a function of the
    arguments. `polling` exempts it from the check for repeated calls. `untrusted` marks results that
    strangers wrote. Longer results than `max_result_chars` are cut. `max_calls` limits it per run.

    Raises UsageError for whatever cannot work, before anything has run.
    """

    name: str
    description: str
    parameters: Mapping[str, Any] | None
    func: Callable[..., Any]
    _: KW_ONLY
    effect: Effect | None = None
    timeout_seconds: float | None = 60.0
    needs_approval: bool | Callable[[dict[str, Any]], bool] | None = None
    polling: bool = False
    untrusted: bool = False
    max_result_chars: int = MAX_RESULT_CHARS
    max_calls: int | None = None
    probe_func: Callable[..., Any] | None = None
    names: Mapping[str, Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check_options(self)
        _signature.refuse_generators(self.func, self.name)
        if self.parameters is None:
            self.signature  # noqa: B018 - read now, so that a parameter no model can fill is refused here
        else:
            from ._schema import check_schema

            check_schema(self.name, self.parameters)
            if self.context_name in self.parameters.get("properties", {}):
                message = f"tool {self.name!r}: {self.context_name!r} is both a field and the ToolContext"
                raise UsageError(message)
        if self.probe_func is not None:
            _check_probe(self, self.probe_func)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, unchecked, as if it had not been made a tool."""
        return self.func(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Tool:
        """A tool written as a method, bound to its instance."""
        if instance is None or self.parameters is not None or not self.signature.unbound:
            return self
        bound = copy.copy(self)
        object.__setattr__(bound, "func", self.func.__get__(instance, owner))
        bound.__dict__.pop("signature", None)
        return bound

    def probe(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Register (as a decorator) how to find out what became of a call that a crash cut off.

        It takes any of the tool's arguments by name, `idempotency_key`, or a `ToolContext`. What it
        returns is the call's result; `NotRun` or False: it did not happen; None: cannot tell.
        """
        _check_probe(self, func)
        object.__setattr__(self, "probe_func", func)
        return func

    @cached_property
    def signature(self) -> _signature.Signature:
        return _signature.read_signature(self.func, self.name, ToolContext, self.names)

    @cached_property
    def context_name(self) -> str | None:
        if self.parameters is None:
            return self.signature.context
        return _signature.context_parameter(self.func, ToolContext)

    @cached_property
    def is_async(self) -> bool:
        return _signature.is_async(self.func)

    @cached_property
    def form(self) -> Any:
        """What the tool accepts (a `Form`). Raises UsageError when the signature has no schema."""
        from ._schema import Form, TypedForm

        if self.parameters is None:
            return TypedForm(self.name, self.signature)
        return Form(self.name, dict(self.parameters))

    @cached_property
    def spec(self) -> ToolSpec:
        """The tool as the model sees it."""
        return ToolSpec(self.name, self.description, self.form.schema)


def _check_options(tool: Tool) -> None:
    where = f"tool {tool.name!r}"
    message = ""
    if not isinstance(tool.name, str) or not NAME.fullmatch(tool.name):
        message = f"{where}: a name has 1 to 64 of the characters a-z A-Z 0-9 _ -; give one with name=..."
    elif not callable(tool.func):
        message = f"{where}: func must be callable, got {type(tool.func).__name__}"
    elif not isinstance(tool.description, str):
        message = f"{where}: description must be text, got {type(tool.description).__name__}"
    elif tool.effect is not None and tool.effect not in get_args(Effect):
        message = f'{where}: effect must be "read", "idempotent", "once" or None, got {tool.effect!r}'
    elif tool.timeout_seconds is not None and not tool.timeout_seconds > 0:
        message = f"{where}: timeout_seconds must be above zero or None, got {tool.timeout_seconds!r}"
    elif tool.max_result_chars < 1:
        message = f"{where}: max_result_chars must be at least 1, got {tool.max_result_chars!r}"
    elif tool.max_calls is not None and tool.max_calls < 0:
        message = f"{where}: max_calls must be 0 or more, or None, got {tool.max_calls!r}"
    elif _signature.is_async(tool.needs_approval) if callable(tool.needs_approval) else False:
        message = f"{where}: needs_approval must be a plain function; a coroutine would always count as yes"
    if message:
        raise UsageError(message)


def _check_probe(tool: Tool, func: Callable[..., Any]) -> None:
    given = inspect.signature(func).parameters.values()
    known = {*_field_names(tool), "idempotency_key", _signature.context_parameter(func, ToolContext)}
    for parameter in given:
        if parameter.name not in known and parameter.kind is not parameter.VAR_KEYWORD:
            message = f"probe of tool {tool.name!r}: {parameter.name!r} is not an argument of the tool"
            raise UsageError(message)


def _field_names(tool: Tool) -> list[str]:
    if tool.parameters is None:
        return [parameter.name for parameter in tool.signature.parameters]
    return list(tool.parameters.get("properties", {}))


@overload
def tool(func: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect | None = None,
    timeout_seconds: float | None = 60.0,
    needs_approval: bool | Callable[[dict[str, Any]], bool] | None = None,
    polling: bool = False,
    untrusted: bool = False,
    max_result_chars: int = MAX_RESULT_CHARS,
    max_calls: int | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    func: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Any,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a function a tool: `@tool`, or `@tool(effect="read", ...)` with the options of `Tool`.

    The model is told what the signature and the docstring say. The result is a `Tool` and can still
    be called as the function.
    """
    names = _signature.caller_names(1)

    def make(func: Callable[..., Any]) -> Tool:
        return as_tool(func, name=name, description=description, names=names, **options)

    return make if func is None else make(func)


def as_tool(
    func: Callable[..., Any], *, name: str | None = None, description: str | None = None, **options: Any
) -> Tool:
    """A tool of a plain function, named and described by itself where nothing else is said."""
    if not callable(func):
        message = f"not a tool: {func!r}; pass a Tool or a function"
        raise UsageError(message)
    named = name if name is not None else getattr(func, "__name__", type(func).__name__)
    told = description if description is not None else _signature.summary(inspect.getdoc(func) or "")
    return Tool(named, told, None, func, **options)
