"""Whether this command has what drives a run, asked before anything of the run is touched; and the command
that has it, ready to be pasted.

A run of a program goes on with the tools of that program. Driven with others of the same names it would
do something else, and use up an approval that was given for the right ones. Names in a record grant
nothing: they are compared with what the person named, and shown to them.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from tool_loop.console.unseen import exact
from tool_loop.errors import UsageError
from tool_loop.events import Event, ModelReplied, RunEnded
from tool_loop.state import State

from ._setup import ASK, configured_now, parsed_meta, recorded_meta, recorded_tools
from ._store import run_command
from ._work import option_for, said_work, work_options

if TYPE_CHECKING:
    from tool_loop.ports import Tools

_UNTOUCHED = "Nothing of it was touched."

# Options that an agent of the person's own brings with it.
_ITS_OWN = ("tools", "root", "approve", "model", "base_url", "api", "max_usd")


def has_ended(events: Sequence[Event]) -> bool:
    """Whether nothing of the run is left to do: its answer is given again, and no tool is needed for that."""
    return bool(events) and isinstance(events[-1], RunEnded)


def check_options(args: Namespace) -> None:
    """Raises `UsageError` for options that --agent leaves no room for."""
    if said := [name for name in _ITS_OWN if args.agent and getattr(args, name, None) is not None]:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in said)
        raise UsageError(f"--agent brings its own model, tools and prices: leave out {words}")
    if args.agent and (words := ", ".join(said_work(args))):
        raise UsageError(f"--agent brings its own tools: leave out {words}")


def check_tools_said(run_id: str, args: Namespace, events: Sequence[Event]) -> None:
    """Raises `UsageError` when the run had tools of the person's own and none are named now."""
    meta = parsed_meta(recorded_meta(events))
    if args.agent or args.tools is not None or not (specs := recorded_tools(meta)):
        return
    raise UsageError(
        f"this run was made with tools of your own ({_names(specs)}), and a record is no reason to run a "
        f"program. If they are yours, name them again:\n  {going_on(run_id, args.journal, meta)}"
    )


def compared(run_id: str, events: Sequence[Event], tools: Tools, args: Namespace) -> list[str]:
    """What a person should know about tools that are not as they were. Raises `UsageError` when the run cannot
    go on with these."""
    from tool_loop.toolbox.registry import digests

    meta = parsed_meta(recorded_meta(events))
    driver = _driver(meta)
    recorded: Mapping[str, str] = driver.get("tools", {})
    here = digests(tools)
    used = recorded or {call.name for event in events if isinstance(event, ModelReplied) for call in event.calls}
    missing = [name for name in used if name not in here]
    other = [name for name in recorded if name in here and here[name] != recorded[name]]
    ours = not of_a_program(meta)
    strange = not ours and not args.agent and bool(other or (used and not recorded))
    if missing and args.agent:
        raise UsageError(f"run {run_id} uses tools that this agent does not have: {_names(missing)}. {_UNTOUCHED}")
    if missing and ours and all(map(option_for, missing)):
        again = " ".join(dict.fromkeys(map(option_for, missing)))
        raise UsageError(f"run {run_id} uses {_names(missing)}: give {again} again. {_UNTOUCHED}")
    if missing and ours:
        raise UsageError(f"run {run_id} uses {_names(missing)}: name these tools with --tools. {_UNTOUCHED}")
    if missing or strange:
        what = f"has no {_names(missing)}" if missing else f"has {_names(other or used)} only under the same name"
        raise UsageError(
            f"run {run_id} was made by {_whose(driver)}, and this command {what}. {_UNTOUCHED} That program goes on "
            f"with agent.resume({run_id!r}), or name its agent here:\n  {going_on(run_id, args.journal, meta)}"
        )
    if other:
        return [f"not as they were when this run began: {_names(other)}; what was allowed then is asked about again"]
    return []


def _whose(driver: Mapping[str, Any]) -> str:
    return f'agent "{exact(driver["agent"])}" of a program' if driver.get("agent") else "an agent of a program"


def _driver(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What the record says about who drove it, as far as it says so in our form; else nothing."""
    said = meta.get("driver")
    if not isinstance(said, dict) or not isinstance(said.get("tools"), dict):
        return {}
    return {"agent": str(said.get("agent", "")), "tools": {str(n): str(d) for n, d in said["tools"].items()}}


def _names(names: Iterable[str]) -> str:
    found = list(names)
    return ", ".join(map(exact, found[:5])) + (f" and {len(found) - 5} more" if len(found) > 5 else "")


def of_a_program(meta: Mapping[str, Any]) -> bool:
    """Whether the run was made by an agent of somebody's program, and not by this command line."""
    driver = _driver(meta)
    return bool(driver.get("agent") != ASK if driver else "root" not in meta)


def allowed_elsewhere(events: Sequence[Event]) -> list[str]:
    """What a record that anybody could have written says was allowed, and would run now."""
    state = State.of(events)
    made = [(call, state.decisions.get(call.id)) for call in state.pending.values()]
    return [
        f"this journal says that {exact(by.by) or 'somebody'} allowed {exact(call.name)} (call {call.id})"
        for call, by in made
        if by is not None and by.allowed
    ]


def going_on(run_id: str, journal: str | None, meta: Mapping[str, Any], agent: str | None = None) -> str:
    """The command that goes on with a run that recorded this `meta`; it works when it is pasted here."""
    if agent:
        return run_command("resume", run_id, journal, options=["--agent", _placed(agent, str(Path.cwd()))])
    if of_a_program(meta):
        return run_command("resume", run_id, journal, options=["--agent", "MODULE:NAME"])
    where = meta.get("tools_dir")
    where = where if isinstance(where, str) and where and where.isprintable() else str(Path.cwd())
    specs = [spec for spec in recorded_tools(meta) if spec.isprintable()]
    # A module is found from the directory it was found from; a file has a path of its own.
    moved = any(not _is_file(spec) for spec in specs) and where != str(Path.cwd())
    options = [word for spec in specs for word in ("--tools", _placed(spec, where))]
    if journal:  # which can be anybody's, so each of these is said again
        journal = str(Path(journal).absolute()) if moved else journal
        root, url = meta.get("root"), meta.get("base_url")
        if (
            isinstance(root, str)
            and root.isprintable()
            and os.path.realpath(root) != os.path.realpath(where if moved else ".")
        ):
            options += ["--root", root]
        if isinstance(url, str) and url.isprintable() and not configured_now(url):
            options += ["--base-url", url]
        if meta.get("approve") == "never":
            options += ["--approve", "never"]
        options += work_options(meta)
    command = run_command("resume", run_id, journal, options=options)
    return f"cd {quote(where)} && {command}" if moved else command


def _is_file(spec: str) -> bool:
    return spec.rpartition(":")[0].endswith(".py")


def _placed(spec: str, where: str) -> str:
    return str(Path(where, spec)) if _is_file(spec) and where != str(Path.cwd()) else spec
