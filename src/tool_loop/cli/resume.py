"""`tool-loop resume`: go on with a run where it was left, with what it was started with."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from . import EXIT_CODES, _options, command
from ._work import add_work


def register(subparsers: Any) -> None:
    parser = command(subparsers, "resume", epilog=EXIT_CODES)
    _options.add_which(parser)
    _options.add_journal(parser)
    parser.add_argument(
        "--unpark", action="store_true", help="a run that was parked because its process kept dying: try it again"
    )
    _options.add_agent(parser)
    _options.add_tools(parser)
    add_work(parser)
    _options.add_model(parser)
    _options.add_limits(parser)
    _options.add_output(parser)


def run(args: Namespace) -> int:
    from ._session import Session
    from ._store import find_run, saved_runs

    journal = saved_runs(args)
    run_id = find_run(journal, args.run, last=args.last)
    session = Session.of_saved(args, run_id, journal)
    if args.unpark:
        journal.unpark(run_id)
    return session.run(lambda agent, watch: agent.resume(run_id, on_event=watch))
