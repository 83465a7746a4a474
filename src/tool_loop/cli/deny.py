"""`tool-loop deny`: refuse a call that waits; `resume` then tells the model, with the reason."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from . import command


def register(subparsers: Any) -> None:
    from ._decide import add_options

    parser = command(subparsers, "deny")
    add_options(parser)
    parser.add_argument("--for-run", action="store_true", help="refuse this tool for the rest of the run")


def run(args: Namespace) -> int:
    from ._decide import decide

    return decide(args, allow=False)
