"""`tool-loop show`: a saved run, message by message."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

from . import _options, command


def register(subparsers: Any) -> None:
    parser = command(subparsers, "show")
    _options.add_which(parser)
    parser.add_argument("--json", action="store_true", help="the events, one JSON object per line, as ask --json")
    _options.add_journal(parser)


def run(args: Namespace) -> int:
    from tool_loop.console.terminal import Terminal

    from ._store import find_run, saved_runs

    out = Terminal(sys.stdout)
    with saved_runs(args) as journal:
        run_id = find_run(journal, args.run, last=args.last)
        records = journal.records(run_id)
    if args.json:
        from ._output import json_line

        for record in records:
            out.line(json_line(record.event, run_id, record.at))
        return 0
    from time import localtime, strftime

    from tool_loop.console.describe import full
    from tool_loop.console.tally import Tally
    from tool_loop.console.terminal import one_line, safe

    out.line(f"run {run_id}, {strftime('%Y-%m-%d %H:%M', localtime(records[0].at))}")
    tally = Tally()
    for record in records:
        tally.add(record.event)
        for section in full(record.event, tally.asked, tally.steps):
            out.line(f"\n{out.style(f'--- {one_line(section.heading)}', 'bold')}")
            if section.body:
                out.line(safe(section.body.rstrip("\n")))
    out.line(f"\n{tally.line()}")
    return 0
