"""`tool-loop chaos`: try an agent with everything that can go wrong, offline."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from . import command

if TYPE_CHECKING:
    from tool_loop.console.terminal import Terminal
    from tool_loop.events import ToolCall
    from tool_loop.testing.scoring.bench import Bench
    from tool_loop.testing.scoring.card import ScoreLine
    from tool_loop.testing.scoring.case import Case

EPILOG = """\
Nothing leaves this machine: the model is a script behind a server on 127.0.0.1, and waits are virtual.
With --agent it is your own agent, with its tools, limits, prompts and retries. Tools that are declared
to read are run, once for each call; the others are replaced by stand-ins, so nothing happens.

exit codes:
  0 everything was handled   1 something was not   2 wrong usage"""

# What is withheld from a screen that is too narrow for it first.
_WIDTHS = (30, 38, 42)


def register(subparsers: Any) -> None:
    parser = command(subparsers, "chaos", epilog=EPILOG)
    parser.add_argument("--agent", metavar="MODULE:NAME", help="an Agent of your own, or a function that makes one")
    parser.add_argument("--call", metavar="NAME=JSON", help="the call that its model makes, if none can be made up")
    parser.add_argument("--stand-ins", action="store_true", help="run none of its tools, not even those that only read")
    parser.add_argument("--only", metavar="WORD", help="the faults with this word in their name, or of this layer")
    parser.add_argument("--core", action="store_true", help="only the faults that everybody meets")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="one JSON object per fault")
    shape.add_argument("--markdown", action="store_true", help="the table for a README")
    shape.add_argument("--list", action="store_true", help="the names of all faults, and run nothing")


def run(args: Namespace) -> int:
    from tool_loop.console.terminal import Terminal
    from tool_loop.testing.scoring.card import markdown, played

    out = Terminal(sys.stdout)
    cases = _chosen(args)
    if args.list:
        for case in cases:
            out.line(f"{case.layer:<9}  {case.name}")
        return 0
    began = time.monotonic()
    with _quiet(), _bench(args) as bench:
        lines = _shown(played(bench, cases), args, out)
    if args.markdown:
        out.line(markdown(lines))
    _sum_up(lines, time.monotonic() - began)
    return 0 if all(line.handled for line in lines) else 1


def _chosen(args: Namespace) -> Sequence[Case]:
    from tool_loop.errors import UsageError
    from tool_loop.testing.scoring.cases import CASES

    word = (args.only or "").lower()
    found = [
        case
        for case in CASES
        if (case.core or not args.core) and (word in case.name.lower() or word == case.layer or not word)
    ]
    if not found:
        raise UsageError(f"no fault has {args.only!r} in its name; tool-loop chaos --list names them")
    return found


def _bench(args: Namespace) -> AbstractContextManager[Bench]:
    from tool_loop.errors import UsageError
    from tool_loop.testing.scoring.bench import house_bench, own_bench

    from ._programs import agent_of

    if not args.agent:
        if args.call or args.stand_ins:
            raise UsageError("--call and --stand-ins are about an agent of your own: give it with --agent")
        return house_bench()
    agent = agent_of(args.agent)
    return nullcontext(own_bench(agent, _call(args.call), run_tools=not args.stand_ins))


def _call(text: str | None) -> ToolCall | None:
    from tool_loop.errors import UsageError
    from tool_loop.events import ToolCall

    if text is None:
        return None
    name, mark, arguments = text.partition("=")
    if not mark or not name.strip():
        raise UsageError(f'--call {text!r} is not NAME=JSON, as in --call \'read_file={{"path": "a.md"}}\'')
    return ToolCall("", name.strip(), arguments)


def _quiet() -> AbstractContextManager[object]:
    """A tool that crashes on purpose is logged with its traceback, which nobody needs here."""
    import logging
    from contextlib import contextmanager

    @contextmanager
    def muted() -> Any:
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)

    return muted()


# --- what is shown --------------------------------------------------------------------------------


def _shown(lines: Iterable[ScoreLine], args: Namespace, out: Terminal) -> list[ScoreLine]:
    show: Callable[[ScoreLine], None] | None = None
    if args.json:
        show = lambda line: out.line(_as_json(line))  # noqa: E731 - one of three
    elif not args.markdown:
        out.line(out.style(_row("fault", "the model saw", "outcome", "calls", "tokens"), "bold"))
        show = lambda line: _say(line, out)  # noqa: E731
    kept = []
    for line in lines:
        kept.append(line)
        if show is not None:
            show(line)
    return kept


def _say(line: ScoreLine, out: Terminal) -> None:
    from tool_loop.console.terminal import one_line

    if line.skipped:
        out.line(out.style(one_line(f"{line.fault:<{_WIDTHS[0]}}  skipped: {line.why}"), "dim"))
        return
    row = _row(line.fault, line.saw, line.outcome, f"+{line.extra_calls}", f"+{line.extra_tokens:,}")
    out.line(row if line.handled else out.style(row, "red"))
    if not line.handled:
        out.line(out.style(one_line(f"{'':<{_WIDTHS[0]}}  not handled: {line.why}"), "red"))


def _row(fault: str, saw: str, outcome: str, calls: str, tokens: str) -> str:
    from tool_loop.console.terminal import clip, one_line, width

    cells = [clip(one_line(text), room) for text, room in zip((fault, saw, outcome), _WIDTHS, strict=True)]
    padded = [cell + " " * (room - width(cell)) for cell, room in zip(cells, _WIDTHS, strict=True)]
    return f"{'  '.join(padded)}  {calls:>5}  {tokens:>9}"


def _as_json(line: ScoreLine) -> str:
    from dataclasses import asdict

    return json.dumps(asdict(line)).replace("\x7f", "\\u007f")


def _sum_up(lines: Sequence[ScoreLine], seconds: float) -> None:
    from tool_loop.console.tally import duration, plural
    from tool_loop.console.terminal import Terminal

    tried = [line for line in lines if not line.skipped]
    handled = sum(line.handled for line in tried)
    said = f"{plural(len(tried), 'fault')}, {handled} handled, in {duration(seconds)}"
    if skipped := len(lines) - len(tried):
        said += f"; {skipped} skipped"
    Terminal(sys.stderr, quiet_when_gone=True).line(said)
