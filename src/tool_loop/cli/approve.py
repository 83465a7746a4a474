"""`tool-loop approve`: allow a call that waits, from any process; `resume` then runs it."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from . import _options, command


def register(subparsers: Any) -> None:
    from ._decide import add_options

    parser = command(subparsers, "approve")
    add_options(parser)
    parser.add_argument("--for-run", action="store_true", help="allow this tool for the rest of the run")
    parser.add_argument("--whole", action="store_true", help="show all of a call that does not fit the screen")
    parser.add_argument("--expires", type=_options.amount, metavar="SECONDS", help="the approval ends after this time")


def run(args: Namespace) -> int:
    from ._decide import decide

    return decide(args, allow=True)
