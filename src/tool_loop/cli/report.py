"""`tool-loop report`: a run, or two side by side, as one HTML page that opens from disk."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _options, command

if TYPE_CHECKING:
    from tool_loop.journal.runs import Record
    from tool_loop.journal.sqlite import SqliteJournal

EPILOG = """\
The page is one file: it fetches nothing, and reads without JavaScript. Without -o it goes to standard
output when that is a file or a pipe, else to run-RUN.html here. Keys are taken out of it; what the
run read and wrote is in it, so look before you send it to somebody."""


def register(subparsers: Any) -> None:
    parser = command(subparsers, "report", epilog=EPILOG)
    _options.add_which(parser)
    parser.add_argument("--diff", nargs=2, metavar=("A", "B"), help="two runs side by side, from where they part")
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write it; - is standard output")
    _options.add_journal(parser)


def run(args: Namespace) -> int:
    from tool_loop.errors import UsageError
    from tool_loop.report import diff, page

    from ._store import find_run, saved_runs

    if args.diff and (args.run or args.last):
        raise UsageError("--diff takes its two runs itself: tool-loop report --diff A B")
    with saved_runs(args) as journal:
        if args.diff:
            ids = [find_run(journal, word, last=False) for word in args.diff]
            html = diff(*(_records(journal, one) for one in ids), names=(ids[0], ids[1]))
        else:
            ids = [find_run(journal, args.run, last=args.last)]
            html = page(_records(journal, ids[0]), run_id=ids[0])
    _write(html, args.output or ("-" if not sys.stdout.isatty() else f"run-{'-'.join(map(_in_a_name, ids))}.html"))
    return 0


def _in_a_name(run_id: str) -> str:
    """The id as a part of a file's name: one that a program chose may hold anything, also `../`."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in run_id)[:80]


def _records(journal: SqliteJournal, run_id: str) -> list[Record]:
    from tool_loop.redaction.scrub import scrubbed

    # Before it becomes HTML: a key with an & in it would be none any more.
    return [record._replace(event=scrubbed(record.event)) for record in journal.records(run_id)]


def _write(html: str, output: str) -> None:
    from tool_loop.console.terminal import Terminal, one_line
    from tool_loop.errors import UsageError

    if output == "-":
        # As bytes: what a terminal's encoding cannot hold, a page must.
        sys.stdout.buffer.write(html.encode())
        sys.stdout.buffer.flush()
        return
    try:
        Path(output).write_text(html, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write the report to {output}: {error.strerror}") from error
    Terminal(sys.stderr, quiet_when_gone=True).line(f"wrote {one_line(output)}")
