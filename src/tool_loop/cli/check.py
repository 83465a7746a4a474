"""`tool-loop check`: a saved run, held against what must be true of every one."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from . import _options, command

if TYPE_CHECKING:
    from tool_loop.audit.invariants import Broken
    from tool_loop.console.terminal import Terminal
    from tool_loop.journal.sqlite import SqliteJournal

EPILOG = """\
exit codes:
  0 everything is in order   1 a rule was broken   2 wrong usage"""

_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


def register(subparsers: Any) -> None:
    parser = command(subparsers, "check", epilog=EPILOG)
    _options.add_which(parser)
    parser.add_argument("--all", action="store_true", help="every saved run")
    parser.add_argument("--agent", metavar="MODULE:NAME", help="the Agent the run belongs to, or what makes one")
    _options.add_own_tools(parser)
    _options.add_journal(parser)


def run(args: Namespace) -> int:
    from tool_loop.console.tally import plural
    from tool_loop.console.terminal import Terminal, one_line
    from tool_loop.errors import UsageError

    from ._store import find_run, saved_runs

    if args.all and (args.run or args.last):
        raise UsageError("--all is every saved run: leave out which one")
    out, err = Terminal(sys.stdout), Terminal(sys.stderr, quiet_when_gone=True)
    bad = 0
    with saved_runs(args) as journal:
        ids = [info.id for info in journal.runs()] if args.all else [find_run(journal, args.run, last=args.last)]
        for run_id in ids:
            found, count = _checked(journal, run_id, args, err)
            bad += bool(found)
            for broken in found:
                out.line(out.style(one_line(f"run {run_id}: {broken}"), "red"))
            if not found:
                out.line(f"run {run_id}: {plural(count, 'record')} in order")
    return 1 if bad else 0


def _checked(journal: SqliteJournal, run_id: str, args: Namespace, err: Terminal) -> tuple[list[Broken | str], int]:
    from tool_loop.audit.invariants import check
    from tool_loop.errors import JournalDamaged

    from .replay import parts

    try:
        events = journal.events(run_id)
    except JournalDamaged as error:
        return [f"I25: {error}"], 0
    # Limits only where they are sure: those that a run was resumed with are not on record.
    tools, limits = parts(args, events, err)
    limits = limits if args.agent else None
    effects, probed = None, []
    if tools is not None:
        effects = {spec.name: tools.effect(spec.name) or "once" for spec in tools.specs()}
        probed = [tool.name for tool in getattr(tools, "__iter__", list)() if getattr(tool, "probe_func", None)]
    secrets = [value for name in _KEYS if len(value := os.environ.get(name, "")) > 7]
    broken: list[Broken | str] = list(check(events, effects=effects, limits=limits, probed=probed, secrets=secrets))
    return broken, len(events)
