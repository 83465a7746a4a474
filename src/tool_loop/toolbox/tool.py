"""`Tool` and `@tool`: a function, what a model is told about it, and what it may do.

Knows nothing about how a call runs. Importing this and decorating a function loads neither pydantic
nor a schema validator.
"""

from __future__ import annotations

import copy
import inspect
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, get_args, overload

from tool_loop.errors import UsageError
from tool_loop.ports import Effect, Preview, ToolSpec
from tool_loop.runtime.context import CURRENT, RunContext
from tool_loop.runtime.lastresort import be_heard

from .schema import ArgumentSchema, checked_schema
from .signature import (
    Signature,
    context_parameter,
    docstring_of,
    is_async,
    local_names,
    name_of,
    read_signature,
    readable_parameters,
    reject_generators,
)
from .typed import TypedForm

logger = logging.getLogger(__name__)
be_heard()

# What every provider accepts as a name.
NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")

# About 8,000 tokens: room for a long file, and twenty of them still fit a usual window.
MAX_RESULT_CHARS: Final = 30_000


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Deps = TypeVar("Deps", default=Any)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")


def context_of(call_id: str, key: str, mark: str = "", say: Callable[[str], None] | None = None) -> ToolContext[Any]:
    """The context of a call in the run that is being driven here."""
    run = CURRENT.get()
    return ToolContext(call_id, key, run.run_id, run.deps, mark, say or _silent)


class NotRun:
    """Return it (or False) from a probe to say that the call did not happen and may be run."""


def _silent(_text: str) -> None:
    """Progress that nobody watches, as in the tests of a tool's author."""


@dataclass(frozen=True, slots=True)
class ToolContext(Generic[Deps]):
    """What a tool may know about its call: annotate a parameter with it, and it is filled in.

    The model never sees that parameter. `idempotency_key` is the same over every retry and resume of
    this call, and belongs to no other. `deps` is what `Agent.run(deps=...)` was given, of the type in
    `ToolContext[Database]`; None where nothing was. `run_id` is the run the call belongs to, "" outside of
    one. `mark` is the one of the call's preview, for a tool that has one: on record, and what an approval was
    given for.
    """

    call_id: str = ""
    idempotency_key: str = ""
    run_id: str = ""
    deps: Deps = None  # type: ignore[assignment]  # of a tool that is tried without a run
    mark: str = ""
    _say: Callable[[str], None] = field(default=_silent, repr=False, compare=False)

    def progress(self, text: str) -> None:
        """Show `text` to whoever watches the run. Works from any thread; ignored once the call is over."""
        self._say(text)


@dataclass(frozen=True, eq=False)
class Tool:
    """A function a model may call, and everything that is known about it.

    `parameters` is a JSON schema of type object, written by hand; None takes it from the signature of
    `func`. The function is called with the arguments by name, and may be plain or async.

    `effect` says what running it twice would do: "read", "idempotent" or "once"; undeclared counts as
    "once". `needs_approval` overrides the registry's policy: True, False, or a function of the
    arguments. `polling` exempts it from the check for repeated calls. `untrusted` says whether its results
    hold words of strangers: once a model has read such, what a person allowed for the whole run does not
    count any more; undeclared counts as True in a registry whose calls people are asked about. Results
    longer than `max_result_chars` are cut, and the rest is gone: a tool that can have more takes an
    offset, as `read_file` does. `max_calls` limits the calls of a run. `scope` says what it works on where
    the arguments do not (a directory, an account): an approval holds for that one only. `preview` is
    called with the arguments before the call and says what it would do (see `Preview`). `when` says (of the
    run's `deps`) in which runs there is such a tool at all: elsewhere it is neither shown nor run.
    `probe_func` is what `probe` registers, and `local` the local names that annotations use; neither is
    usually given.

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
    untrusted: bool | None = None
    max_result_chars: int = MAX_RESULT_CHARS
    max_calls: int | None = None
    scope: str = ""
    preview: Callable[..., Preview] | None = None
    when: Callable[[RunContext], bool] | None = None
    probe_func: Callable[..., Any] | None = None
    local: Mapping[str, Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check_options(self)
        reject_generators(self.func, self.name)
        if self.parameters is None:
            if self.local is None:
                object.__setattr__(self, "local", local_names(self.func))
        else:
            copy = checked_schema(self.name, self.parameters)
            object.__setattr__(self, "parameters", copy)
            if self.context_name in copy.get("properties", {}):
                raise UsageError(f"tool {self.name!r}: {self.context_name!r} is both a field and the ToolContext")
        if self.probe_func is not None:
            _check_probe(self, self.probe_func)
        self.prepare()

    def prepare(self) -> None:
        """Work out now what is cheap, so that faults come out here and calls find everything ready."""
        self.is_async  # noqa: B018
        self.context_name  # noqa: B018
        if self.parameters is not None:
            self.spec  # noqa: B018

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, unchecked, as if it had not been made a tool."""
        return self.func(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Tool:
        """A tool written as a method, bound to its instance or its class."""
        of_class = isinstance(self.func, classmethod)
        if not self.unbound or (instance is None and not of_class):
            return self
        bound = copy.copy(self)
        holder = (owner or type(instance)) if of_class else instance
        object.__setattr__(bound, "func", self.func.__get__(instance, owner))
        for beside in ("probe_func", "preview"):
            if (func := getattr(self, beside)) is not None:
                plain = func.__func__ if isinstance(func, classmethod) else func
                object.__setattr__(bound, beside, plain.__get__(holder, type(holder)))
        bound.__dict__.update(unbound=False)
        return bound

    def with_func(self, func: Callable[..., Any], *, probe: bool = True) -> Tool:
        """The tool as a model sees it, and as people are asked about it, with another function behind it."""
        _ = self.form, self.spec, self.is_async, self.context_name  # read from the real function, and kept
        twin = copy.copy(self)
        object.__setattr__(twin, "func", func)
        if not probe:
            object.__setattr__(twin, "probe_func", None)
        return twin

    def probe(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Register (as a decorator) how to find out what became of a call that a crash cut off.

        It takes any of the tool's arguments by name, `idempotency_key`, `mark`, or a `ToolContext`. What it
        returns is the result of the call; `NotRun` or False: it did not happen; None: cannot tell.
        """
        _check_probe(self, func)
        object.__setattr__(self, "probe_func", func)
        return func

    @cached_property
    def signature(self) -> Signature:
        return read_signature(self.func, self.name, ToolContext, self.local)

    @cached_property
    def unbound(self) -> bool:
        return self.parameters is None and self.signature.unbound

    @cached_property
    def context_name(self) -> str | None:
        if self.parameters is None:
            return self.signature.context
        return context_parameter(self.func, ToolContext)

    @cached_property
    def is_async(self) -> bool:
        return is_async(self.func)

    @cached_property
    def form(self) -> ArgumentSchema:
        """What the tool accepts. Raises UsageError when no schema can be made of its signature."""
        if self.parameters is None:
            return TypedForm(self.name, self.signature)
        return ArgumentSchema(self.name, self.parameters)

    @cached_property
    def spec(self) -> ToolSpec:
        """The tool as the model sees it."""
        return ToolSpec(self.name, self.description, self.form.schema)


def _check_options(tool: Any) -> None:  # noqa: C901 - one option after the other
    # Any, because the annotations of a dataclass hold nobody back.
    problem = ""
    if not isinstance(tool.name, str) or not NAME.fullmatch(tool.name):
        problem = "a name has 1 to 64 of the characters a-z A-Z 0-9 _ -; give one with name=..."
    elif not callable(tool.func) and not isinstance(tool.func, classmethod):
        problem = f"func must be callable, got {type(tool.func).__name__}"
    elif not isinstance(tool.description, str):
        problem = f"description must be text, got {type(tool.description).__name__}"
    elif tool.effect not in (None, *get_args(Effect)):
        problem = f'effect must be "read", "idempotent", "once" or None, got {tool.effect!r}'
    elif tool.timeout_seconds is not None and not _above(tool.timeout_seconds, 0):
        problem = f"timeout_seconds must be a number above zero or None, got {tool.timeout_seconds!r}"
    elif not _above(tool.max_result_chars, 0):
        problem = f"max_result_chars must be above zero, got {tool.max_result_chars!r}"
    elif tool.max_calls is not None and not _above(tool.max_calls, -1):
        problem = f"max_calls must be 0 or more, or None, got {tool.max_calls!r}"
    elif tool.preview is not None and (not callable(tool.preview) or is_async(tool.preview)):
        problem = "preview must be a plain function of the arguments"
    elif callable(tool.needs_approval) and is_async(tool.needs_approval):
        problem = "needs_approval must be a plain function; a coroutine would always count as yes"
    if problem:
        raise UsageError(f"tool {tool.name!r}: {problem}")


def _above(value: object, least: float) -> bool:
    return isinstance(value, int | float) and value > least


def _check_probe(tool: Tool, func: Callable[..., Any]) -> None:
    known = {
        "idempotency_key",
        "mark",
        context_parameter(func, ToolContext),
        *(("self", "cls") if tool.unbound else ()),
    }
    if tool.parameters is None:
        known.update(parameter.name for parameter in tool.signature.parameters)
    else:
        known.update(tool.parameters.get("properties", {}))
    for parameter in readable_parameters(func):
        if parameter.name not in known and parameter.kind is not parameter.VAR_KEYWORD:
            raise UsageError(f"probe of tool {tool.name!r}: {parameter.name!r} is not an argument of the tool")


def probe_arguments(
    func: Callable[..., Any], arguments: dict[str, Any], call_id: str, key: str, mark: str
) -> dict[str, Any]:
    """What a probe is called with: those of the tool's arguments it names, the key and the mark where it wants them."""
    available = {"idempotency_key": key, "mark": mark} | arguments
    context = context_parameter(func, ToolContext)
    if context is not None:
        available[context] = context_of(call_id, key, mark)
    parameters = readable_parameters(func)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return available
    wanted = {parameter.name for parameter in parameters}
    return {name: value for name, value in available.items() if name in wanted}


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
    untrusted: bool | None = None,
    max_result_chars: int = MAX_RESULT_CHARS,
    max_calls: int | None = None,
    scope: str = "",
    preview: Callable[..., Preview] | None = None,
    when: Callable[[RunContext], bool] | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(func: Callable[..., Any] | None = None, /, **options: Any) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a function a tool: `@tool`, or `@tool(effect="read", ...)` with the options of `Tool`.

    The model is told what the signature and the docstring say. The result is a `Tool`, and can still
    be called as the function.
    """
    return (lambda func: as_tool(func, **options)) if func is None else as_tool(func, **options)


def as_tool(func: Any, *, name: str | None = None, description: str | None = None, **options: Any) -> Tool:
    """A tool of a function, named and described by the function itself where nothing else is said."""
    made: Any = func.__func__ if inspect.ismethod(func) else None
    if isinstance(made, Tool):
        # What `@classmethod` above `@tool` gives from Python 3.13 on: the tool as a method of the class.
        return made.__get__(func.__self__, type(func.__self__))
    if (not callable(func) and not isinstance(func, classmethod)) or isinstance(func, Tool):
        raise UsageError(f"a tool is made of a function, got {func!r}")
    named = name_of(func) if name is None else name
    said = docstring_of(func).description if description is None else description
    if description is None and not said:
        logger.warning("tool %s has no docstring, so a model is told nothing but its name: say what it does", named)
    return Tool(named, said, None, func, **options)
