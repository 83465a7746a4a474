"""Programs that a person names on the command line: tools of their own, an agent of their own.

Only what was named in this very command is ever imported. Knows nothing about runs or their records.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tool_loop.errors import UsageError

if TYPE_CHECKING:
    from tool_loop.api import Agent


def own_tools(spec: str) -> list[Any]:
    """What `--tools module:name` (or `file.py:name`) names: a tool, a function, or several of them."""
    found = named(spec, "--tools")
    return list(found) if isinstance(found, list | tuple) else [found]


def agent_of(spec: str) -> Agent:
    """What `--agent module:name` (or `file.py:name`) names: an `Agent`, or a function that makes one.

    Raises `UsageError` for anything else, for a function that wants arguments, and for what it raises.
    """
    from tool_loop.api import Agent
    from tool_loop.toolbox.tool import Tool

    found = named(spec, "--agent")
    if callable(found) and not isinstance(found, Agent | Tool):
        found = _made(spec, found)
    if not isinstance(found, Agent):
        raise UsageError(f"--agent {spec} is {type(found).__name__}, not an Agent or a function that makes one")
    return found


def _made(spec: str, factory: Any) -> Any:
    import inspect

    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # some builtins have none
        signature = inspect.Signature()
    try:
        signature.bind()
    except TypeError:
        raise UsageError(
            f"--agent {spec} wants arguments, {signature}; name a function that makes the agent without any"
        ) from None
    if inspect.iscoroutinefunction(factory):
        raise UsageError(f"--agent {spec} is a coroutine function; name a plain function that returns the agent")
    try:
        return factory()
    except Exception as error:  # whatever the person's own function does
        raise UsageError(f"--agent {spec}: {type(error).__name__}: {error}") from error


def named(spec: str, option: str) -> Any:
    """What `module:name` or `file.py:name` names, seen from here. Raises `UsageError` for what is not there."""
    place, colon, name = spec.rpartition(":")
    if not colon or not place or not name:
        raise UsageError(f"{option} {spec!r} is not MODULE:NAME or FILE.py:NAME")
    try:
        module = _from_file(Path(place)) if place.endswith(".py") else _imported(place)
    except Exception as error:  # whatever the person's own module does when it is imported
        raise UsageError(f"{option} {spec}: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        raise UsageError(f"{option} {spec}: there is no {name!r} in {place}")
    return getattr(module, name)


def _imported(name: str) -> object:
    from importlib import import_module

    # As `python -m` does, and as the person expects who named a module of the directory they are in.
    with _first(str(Path.cwd())):
        return import_module(name)


def _from_file(path: Path) -> object:
    from importlib.util import module_from_spec, spec_from_file_location

    # A name no other module has: two files may have the same one, or that of a package.
    spec = spec_from_file_location(str(path.resolve()), path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pydantic look their module up there
    with _first(str(path.resolve().parent)):  # as `python file.py` does: it may import its neighbours
        spec.loader.exec_module(module)
    return module


@contextmanager
def _first(directory: str) -> Iterator[None]:
    """The directory is looked in first while the person's module is imported, and last from then on: what
    this package imports later is not what happens to lie there under the same name."""
    sys.path[:] = [directory, *(entry for entry in sys.path if entry)]
    try:
        yield
    finally:
        sys.path.remove(directory)
        if directory not in sys.path:
            sys.path.append(directory)
