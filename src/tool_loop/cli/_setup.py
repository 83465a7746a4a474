"""From options, what a run recorded, and the environment, in this order, to the parts of an `Agent`.

What a run needs to go on is recorded with it (`meta`): the root, the model, the endpoint, the tools
and the limits. Never the key.
"""

from __future__ import annotations

import json
import os
import re
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from tool_loop import __version__
from tool_loop.errors import ConfigurationError, UsageError
from tool_loop.events import Event, RunStarted
from tool_loop.limits import Limits

if TYPE_CHECKING:
    from tool_loop.ports import LLM
    from tool_loop.toolbox.registry import Approve, ToolRegistry

T = TypeVar("T", int, float)

NOTHING_SET: Final = """\
no model is configured. `tool-loop demo` needs none; to ask a real one, set
  for OpenAI:         export OPENAI_API_KEY=sk-... OPENAI_MODEL=gpt-4o-mini
  for a local server: export OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_MODEL=its-name"""

_ENVIRONMENT: Final = (
    "OPENAI_API_KEY", "OPENAI_MODEL", "OPENAI_BASE_URL",
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_MODEL", "ANTHROPIC_BASE_URL",
)  # fmt: skip
_OPENAI: Final = ("OPENAI_BASE_URL", "https://api.openai.com/v1")
_ANTHROPIC: Final = ("ANTHROPIC_BASE_URL", "https://api.anthropic.com")
_RECORDED: Final = (
    "root", "model", "base_url", "api", "dialect", "tools", "approve",
    "max_steps", "max_tokens", "max_usd", "timeout", "window",
)  # fmt: skip
_SECRET: Final = re.compile(r"key|token|secret|sig|password|auth|code", re.IGNORECASE)


def with_recorded(args: Namespace, meta: str) -> Namespace:
    """The options, each that was not given taken from what the run recorded."""
    try:
        recorded = json.loads(meta)
    except ValueError:
        recorded = {}
    filled = Namespace(**vars(args), url_from_record=False)
    if getattr(args, "tools", None) is None and isinstance(recorded, dict):
        # From where they were found when the run began. A file of that name in today's directory is
        # somebody else's program, and `resume` must not run it.
        filled.tools_dir = recorded.get("tools_dir", "")
    for name in _RECORDED:
        if getattr(filled, name, None) is None and isinstance(recorded, dict):
            setattr(filled, name, recorded.get(name))
            filled.url_from_record |= name == "base_url" and filled.base_url is not None
    return filled


def limits_of(args: Namespace) -> Limits:
    """The limits that were asked for; 0 is none. Raises `UsageError`."""
    default = Limits()
    return Limits(
        steps=_said(args.max_steps, default.steps),
        tokens=_said(args.max_tokens, default.tokens),
        usd=_said(args.max_usd, default.usd),
        seconds=_said(args.timeout, default.seconds),
        window=_said(args.window, default.window),
    )


def _said(value: T | None, default: T | None) -> T | None:
    return default if value is None else value or None


def tools_of(args: Namespace) -> ToolRegistry:
    """The three tools for the root and the person's own, with the policy for approvals."""
    from tool_loop.toolbox.registry import ToolRegistry
    from tool_loop.tools import workspace_tools

    root = args.root or "."
    approve: Approve = args.approve or "effects"
    place = getattr(args, "tools_dir", None)
    own = [tool for spec in args.tools or () for tool in own_tools(spec, place)]
    # An approval holds for the directory it was given in, and for no other.
    scope = f"{os.path.realpath(root)} {approve}"
    return ToolRegistry([*workspace_tools(root), *own], approve=approve, scope=scope)


def own_tools(spec: str, place: str | None = None) -> list[Any]:
    """What `--tools module:name` (or `file.py:name`) names: a tool, a function, or several of them.

    `place` is the directory it is looked for in; None is this one, and "" is one nobody knows any more.
    """
    if place == "":
        raise UsageError(f"--tools {spec}: the run does not say where that was found; give --tools again")
    found = named(spec, "--tools", place)
    return list(found) if isinstance(found, list | tuple) else [found]


def named(spec: str, option: str, base: str | None = None) -> Any:
    """What `module:name` or `file.py:name` names, seen from `base`. Raises `UsageError` for what is not there."""
    place, colon, name = spec.rpartition(":")
    if not colon or not place or not name:
        raise UsageError(f"{option} {spec!r} is not MODULE:NAME or FILE.py:NAME")
    try:
        base = base or str(Path.cwd())
        module = _from_file(str(Path(base, place))) if place.endswith(".py") else _imported(place, base)
    except Exception as error:  # whatever the person's own module does when it is imported
        raise UsageError(f"{option} {spec}: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        raise UsageError(f"{option} {spec}: there is no {name!r} in {place}")
    return getattr(module, name)


def _imported(name: str, base: str) -> object:
    import sys
    from importlib import import_module

    # As `python -m` does, and as the person expects who named a module of the directory they are in.
    # First of all, and not the directory of today: see `with_recorded`.
    sys.path[:] = [base, *(entry for entry in sys.path if entry not in ("", base, str(Path.cwd())))]
    return import_module(name)


def _from_file(path: str) -> object:
    import sys
    from importlib.util import module_from_spec, spec_from_file_location

    # A name no other module has: two files may have the same one, or that of a package.
    spec = spec_from_file_location(str(Path(path).resolve()), path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pydantic look their module up there
    spec.loader.exec_module(module)
    return module


def llm_of(args: Namespace, notice: Callable[[str], None], environ: Mapping[str, str] = os.environ) -> LLM:
    """The model that was asked for. Raises `ConfigurationError` when there is none, saying what to set."""
    if not (args.model or args.base_url or any(environ.get(name) for name in _ENVIRONMENT)):
        raise ConfigurationError(NOTHING_SET)
    from tool_loop.llm.pick import pick_llm

    options: dict[str, Any] = {"stream": not args.no_stream}
    key = None
    if getattr(args, "url_from_record", False) and not _configured_now(args.base_url, environ):
        # The key of today's endpoint is not for the one the run was made with.
        key = ""
        if args.dialect == "messages":
            options["auth_token"] = ""
        if any(environ.get(name) for name in _ENVIRONMENT if name.endswith(("KEY", "TOKEN"))):
            notice(f"this run was made with {args.base_url}, where no key is sent to now; --base-url with it sends it")
    return pick_llm(args.model, args.base_url, key, api=args.api, **options)


def _configured_now(url: str, environ: Mapping[str, str]) -> bool:
    from tool_loop.llm.endpoint import origin_of

    return origin_of(url) in [origin_of(environ.get(name) or default) for name, default in (_OPENAI, _ANTHROPIC)]


def meta_of(args: Namespace, llm: LLM, environ: Mapping[str, str] = os.environ) -> dict[str, object]:
    """What has to be recorded for the run to go on later. The key is not in it, nor what may be one."""
    said = {name: getattr(args, name, None) for name in _RECORDED}
    said["root"] = os.path.abspath(getattr(args, "root", None) or ".")  # noqa: PTH100  links stay as the person wrote them
    if said["tools"]:
        said["tools_dir"] = getattr(args, "tools_dir", None) or str(Path.cwd())
    said["model"] = getattr(llm, "model", args.model)
    said["dialect"] = str(getattr(llm, "origin", "")).partition(":")[0]
    name, default = _ANTHROPIC if said["dialect"] == "messages" else _OPENAI
    said["base_url"] = _without_secrets(args.base_url or environ.get(name) or default)
    return {name: value for name, value in said.items() if value is not None} | {"version": __version__}


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    query = "&".join(part for part in parts.query.split("&") if not _SECRET.search(part.partition("=")[0]))
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query, fragment="").geturl()


def recorded_meta(events: Sequence[Event]) -> str:
    """What the run recorded when it was started, as JSON text."""
    return events[0].meta if events and isinstance(events[0], RunStarted) else "{}"
