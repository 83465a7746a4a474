"""`tool-loop replay`: a saved run, driven again through today's code."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _options, command

if TYPE_CHECKING:
    from tool_loop.console.terminal import Terminal
    from tool_loop.events import Event
    from tool_loop.limits import Limits
    from tool_loop.ports import Tools
    from tool_loop.redrive.driving import Difference

EPILOG = """\
No model is asked and no tool is run: replies and results come from the record, and what happened from
outside happens again. Tools and limits are those the run was made with, or those of --agent; limits
that it was resumed with are not on record, so give them again.

exit codes:
  0 today's code would do the same   1 it would act differently   2 wrong usage"""


# What a run was made with, as far as it decides what the loop does.
_RECORDED = ("root", "tools", "approve", "max_steps", "max_tokens", "max_usd", "timeout", "window")


def register(subparsers: Any) -> None:
    parser = command(subparsers, "replay", epilog=EPILOG)
    _options.add_which(parser)
    parser.add_argument("--agent", metavar="MODULE:NAME", help="the Agent the run belongs to, or what makes one")
    _options.add_own_tools(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object per difference")
    _options.add_limits(parser)
    _options.add_journal(parser)


def run(args: Namespace) -> int:
    from tool_loop.console.terminal import Terminal
    from tool_loop.redrive.driving import redrive

    from ._store import find_run, saved_runs

    out, err = Terminal(sys.stdout), Terminal(sys.stderr, quiet_when_gone=True)
    with saved_runs(args) as journal:
        run_id = find_run(journal, args.run, last=args.last)
        events = journal.events(run_id)
        tools, limits = parts(args, events, err)
        found = redrive(journal, run_id, tools=tools, limits=limits)
    if args.json:
        from dataclasses import asdict

        for difference in found:
            out.line(json.dumps({"run": run_id, **asdict(difference)}).replace("\x7f", "\\u007f"))
    else:
        _say(run_id, events, found, out)
    return 1 if found else 0


def parts(args: Namespace, events: Sequence[Event], err: Terminal) -> tuple[Tools | None, Limits | None]:
    """Tools and limits of the run: those of --agent, or those it was made with; None where they are not at hand."""
    from tool_loop.console.terminal import one_line
    from tool_loop.errors import ToolLoopError

    from ._programs import agent_of
    from ._setup import limits_of, parsed_meta, recorded_meta, recorded_tools, tools_of, with_recorded

    if args.agent:
        agent = agent_of(args.agent)
        return agent.tools, agent.limits
    meta = recorded_meta(events)
    recorded = parsed_meta(meta)
    if "root" not in recorded:
        err.line("this run was not made by tool-loop ask: tools and limits are taken from its record (or give --agent)")
        return None, None
    given = with_recorded(Namespace(**dict.fromkeys(_RECORDED) | vars(args)), meta)
    if args.tools is None and (specs := recorded_tools(recorded)):
        err.line(
            f"it had tools of your own ({one_line(', '.join(specs))}): the record answers for them, unless --tools "
            "names them"
        )
        return None, limits_of(given)
    try:
        tools: Tools | None = tools_of(given)
    except ToolLoopError as error:
        err.line(f"its tools are not at hand, so the record answers for them: {error}")
        tools = None
    return tools, limits_of(given)


def _say(run_id: str, events: Sequence[Event], found: Sequence[Difference], out: Terminal) -> None:
    from tool_loop import __version__
    from tool_loop.console.tally import plural
    from tool_loop.console.terminal import one_line, safe

    for difference in found:
        out.line(out.style(one_line(f"record {difference.index}, step {difference.step}: {difference.what}"), "bold"))
        out.line(safe(difference.diff))
    what = plural(len(found), "difference") if found else "it would do the same"
    out.line(f"run {run_id}: {plural(len(events), 'record')} with tool-loop {__version__}: {what}")
