"""`tool-loop ask`: one question, one answer."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

from . import EXIT_CODES, _options, command
from ._work import add_work

EPILOG = f"""\
On a terminal the answer appears as it is written. Into a pipe or a file goes only what is final, because
a reply can fail halfway and be asked for again; --json lets a program follow all of it.

{EXIT_CODES}"""


def register(subparsers: Any) -> None:
    parser = command(subparsers, "ask", epilog=EPILOG)
    parser.add_argument("question", nargs="*", help='the question; "-" reads it from stdin; piped stdin is added to it')
    parser.add_argument("--system", metavar="TEXT", help="the system prompt, in place of the short default")
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--continue", dest="continue_run", metavar="RUN", help="ask more in the history of a run")
    again.add_argument("--last", action="store_true", help="ask more in the history of the last run")
    keep = parser.add_mutually_exclusive_group()
    keep.add_argument("--no-save", action="store_true", help="do not keep the run")
    _options.add_journal(keep)
    _options.add_agent(parser)
    _options.add_tools(parser)
    add_work(parser)
    _options.add_model(parser)
    _options.add_limits(parser)
    _options.add_output(parser)


def run(args: Namespace) -> int:
    from tool_loop.console.terminal import Terminal

    from ._question import read_question

    question = read_question(args.question, sys.stdin, Terminal(sys.stderr, quiet_when_gone=True))
    return _follow_up(args, question) if args.continue_run or args.last else _first(args, question)


def _first(args: Namespace, question: str) -> int:
    import os

    from ._session import Session
    from ._store import journal_to_write

    notices: list[str] = []
    run_id = os.urandom(6).hex()
    session = Session(args, run_id, journal_to_write(args, notices.append), notices=notices)
    return session.run(lambda agent, watch: agent.run(question, run_id=run_id, on_event=watch), args.system)


def _follow_up(args: Namespace, question: str) -> int:
    from tool_loop.errors import UsageError

    from ._session import Session
    from ._store import find_run, saved_runs

    if args.no_save or args.system:
        raise UsageError("a follow-up belongs to a saved run, with the system prompt it began with")
    journal = saved_runs(args)
    run_id = find_run(journal, args.continue_run, last=args.last)
    session = Session.of_saved(args, run_id, journal, asks_more=True)
    return session.run(lambda agent, watch: agent.run(question, continue_run=run_id, on_event=watch))
