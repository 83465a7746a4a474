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

from ._options import APIS, POLICIES
from ._work import recorded_work, with_recorded_work, work_tools

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
_LIMITS: Final = {
    "max_steps": "steps", "max_tokens": "tokens", "max_usd": "usd", "timeout": "seconds", "window": "window",
}  # fmt: skip
# The name of the agent that this command line is, as its runs record it.
ASK: Final = "tool-loop ask"
_SECRET: Final = re.compile(r"key|token|secret|sig|password|auth|code", re.IGNORECASE)


def with_recorded(args: Namespace, meta: str, *, ours: bool = True, spoken: str = "") -> Namespace:
    """The options, each that was not given taken from what the run recorded; but never its tools, which are
    programs: a record that somebody else wrote could name any.

    `ours` says that the record lies where only this person writes. From any other it takes nothing that
    gives it power: not the directory that is read, not the server that is told, no weaker policy, no wider
    limits. Raises `UsageError` naming the option to give, in words about the command `spoken`.
    """
    recorded = parsed_meta(meta)
    filled = Namespace(**vars(args), url_from_record=False)
    for name in _RECORDED:
        if name == "tools" or getattr(filled, name, None) is not None:
            continue
        value = recorded.get(name)
        if value is not None and not _fits(name, value):
            value = None
        if value is not None and not ours:
            value = _harmless(name, value, spoken)
        setattr(filled, name, value)
        filled.url_from_record |= name == "base_url" and value is not None
    with_recorded_work(filled, recorded, ours=ours)
    return filled


def parsed_meta(meta: str) -> dict[str, Any]:
    """What the run recorded when it was started; empty where that is nothing of ours."""
    try:
        value = json.loads(meta)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def recorded_tools(meta: Mapping[str, Any]) -> list[str]:
    """The `--tools` a run was made with, to be named to a person and to nothing else."""
    said = meta.get("tools")
    return [spec for spec in said if isinstance(spec, str)] if isinstance(said, list) else []


def _fits(name: str, value: object) -> bool:
    if name in _LIMITS:
        return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
    if name in ("approve", "api"):
        return value in (POLICIES if name == "approve" else APIS)
    return isinstance(value, str)


def _harmless(name: str, value: Any, spoken: str) -> Any:
    """What may be taken of this from a record that anybody could have made."""
    if name == "root" and os.path.realpath(value) != os.path.realpath("."):
        raise UsageError(
            f"the journal says that this run reads {value}. A journal given by name can be anybody's: "
            f"{spoken} --root {value} reads that, --root . reads this directory"
        )
    if name == "base_url" and not configured_now(value):
        raise UsageError(
            f"the journal says that this run talks to {value}. A journal given by name can be anybody's: "
            f"{spoken} --base-url {value} sends that server what the run reads"
        )
    if name in _LIMITS:
        usual = getattr(Limits(), _LIMITS[name])
        return value if value and (usual is None or value <= usual) else None
    return None if value == "never" else value


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


def limits_said(args: Namespace) -> dict[str, Any]:
    """The limits that were given in this command, for an agent that has its own."""
    given = {field: getattr(args, option) for option, field in _LIMITS.items()}
    return {field: value or None for field, value in given.items() if value is not None}


def _said(value: T | None, default: T | None) -> T | None:
    return default if value is None else value or None


def tools_of(args: Namespace) -> ToolRegistry:
    """The package's tools for the root, as far as the options go, and the person's own; with the policy."""
    from tool_loop.toolbox.registry import ToolRegistry

    from ._programs import own_tools

    root = args.root or "."
    approve: Approve = args.approve or "effects"
    own = [tool for spec in args.tools or () for tool in own_tools(spec)]
    # An approval holds for the directory it was given in, and for no other.
    scope = f"{os.path.realpath(root)} {approve}"
    return ToolRegistry([*work_tools(args), *own], approve=approve, scope=scope)


def llm_of(args: Namespace, notice: Callable[[str], None], environ: Mapping[str, str] = os.environ) -> LLM:
    """The model that was asked for. Raises `ConfigurationError` when there is none, saying what to set."""
    if not (args.model or args.base_url or any(environ.get(name) for name in _ENVIRONMENT)):
        raise ConfigurationError(NOTHING_SET)
    from tool_loop.llm.pick import pick_llm

    options: dict[str, Any] = {"stream": not args.no_stream}
    key = None
    if getattr(args, "url_from_record", False) and not configured_now(args.base_url, environ):
        # The key of today's endpoint is not for the one the run was made with.
        key = ""
        if args.dialect == "messages":
            options["auth_token"] = ""
        if any(environ.get(name) for name in _ENVIRONMENT if name.endswith(("KEY", "TOKEN"))):
            notice(f"this run was made with {args.base_url}, where no key is sent to now; --base-url with it sends it")
    return pick_llm(args.model, args.base_url, key, api=args.api, **options)


def configured_now(url: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether today's environment names this server, or one at its address."""
    from tool_loop.llm.endpoint import origin_of

    return origin_of(url) in [origin_of(environ.get(name) or default) for name, default in (_OPENAI, _ANTHROPIC)]


def meta_of(args: Namespace, llm: LLM, environ: Mapping[str, str] = os.environ) -> dict[str, object]:
    """What has to be recorded for the run to go on later. The key is not in it, nor what may be one."""
    said = {name: getattr(args, name, None) for name in _RECORDED}
    said["root"] = os.path.abspath(getattr(args, "root", None) or ".")  # noqa: PTH100  links stay as the person wrote them
    if said["tools"]:
        said["tools_dir"] = str(Path.cwd())
    said["model"] = getattr(llm, "model", args.model)
    said["dialect"] = str(getattr(llm, "origin", "")).partition(":")[0]
    name, default = _ANTHROPIC if said["dialect"] == "messages" else _OPENAI
    said["base_url"] = _without_secrets(args.base_url or environ.get(name) or default)
    said["work"] = recorded_work(args) or None
    return {name: value for name, value in said.items() if value is not None} | {"version": __version__}


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    query = "&".join(part for part in parts.query.split("&") if not _SECRET.search(part.partition("=")[0]))
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query, fragment="").geturl()


def recorded_meta(events: Sequence[Event]) -> str:
    """What the run recorded when it was started, as JSON text."""
    return events[0].meta if events and isinstance(events[0], RunStarted) else "{}"
