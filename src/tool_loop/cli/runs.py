"""`tool-loop runs`: the saved runs, the one that got on last first."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from . import _options, command

if TYPE_CHECKING:
    from tool_loop.console.terminal import Terminal
    from tool_loop.journal.runs import RunInfo


def register(subparsers: Any) -> None:
    parser = command(subparsers, "runs")
    parser.add_argument("-n", type=_options.count, default=20, metavar="N", help="how many; default 20, 0 for all")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    _options.add_journal(parser)


def run(args: Namespace) -> int:
    from tool_loop.console.terminal import Terminal

    from ._store import saved_runs

    with saved_runs(args) as journal:
        found = journal.runs()
    out = Terminal(sys.stdout)
    shown = found[: args.n or None]
    if args.json:
        _as_json(shown, out)
    elif found:
        _as_table(shown, out)
        if len(shown) < len(found):
            Terminal(sys.stderr, quiet_when_gone=True).line(f"and {len(found) - len(shown)} more; -n 0 lists all")
    else:
        Terminal(sys.stderr, quiet_when_gone=True).line("no run is saved yet")
    return 0


def _as_json(runs: list[RunInfo], out: Terminal) -> None:
    import json
    from dataclasses import asdict

    for info in runs:
        out.line(json.dumps(asdict(info)).replace("\x7f", "\\u007f"))


def _as_table(runs: list[RunInfo], out: Terminal) -> None:
    import time

    from tool_loop.console.terminal import clip, one_line

    width = max(12, *(len(info.id) for info in runs)) if runs else 12
    width = min(width, 24)
    head = f"{'id':<{width}}  {'when':<16}  {'state':<11}  {'steps':>5}  {'tokens':>9}  question"
    out.line(out.style(head, "bold"))
    for info in runs:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.updated))
        row = (
            f"{clip(one_line(info.id), width):<{width}}  {when}  {info.state:<11}  {info.steps:>5}  {info.tokens:>9,}  "
        )
        # Only a terminal has a width; what is piped into a file or grep is not cut.
        question = one_line(info.question)
        out.line(row + (clip(question, max(10, out.columns - len(row))) if out.tty else question))
