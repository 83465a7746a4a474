"""`tool-loop demo`: see the loop recover, without a key or a network."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from . import command

LAST_LINES = """\
Four failures on purpose (a missing file, a missing directory, a broken pattern, a file too long for
one read), each handed to the model as data. No key, no network."""


def register(subparsers: Any) -> None:
    parser = command(subparsers, "demo")
    parser.add_argument("--transcript", metavar="FILE", help="write every message and result to a file, as Markdown")


def run(args: Namespace) -> int:
    # Said plainly when it is missing (a clone, and a Python outside its venv); in the run it would be
    # one tool after another that fails.
    import jsonschema_rs  # noqa: F401

    from tool_loop.console.terminal import Terminal, safe
    from tool_loop.demo import QUESTION, Steps, run_demo, transcript
    from tool_loop.errors import UsageError
    from tool_loop.runtime import leaving

    out = Terminal(sys.stdout)
    steps = Steps()
    result = leaving.run(run_demo(steps))
    out.line(safe("\n".join([f"question: {QUESTION}", "", *steps.lines, "", LAST_LINES])))
    if args.transcript:
        try:
            Path(args.transcript).write_text(transcript(result.events), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {args.transcript}: {error.strerror}") from error
    return 0
