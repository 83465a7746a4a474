"""What `approve` and `deny` share: find the call that waits, show it whole, record the decision."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace

from tool_loop.console.terminal import Terminal, one_line
from tool_loop.console.unseen import exact
from tool_loop.errors import UsageError
from tool_loop.events import ToolCall
from tool_loop.runtime import leaving
from tool_loop.state import State

from . import _options
from ._driver import going_on, of_a_program
from ._setup import parsed_meta, recorded_meta
from ._shown import fits, screenful, shown_call, too_long
from ._store import find_run, person, saved_runs


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", metavar="RUN", help="the run's id, or enough of its beginning")
    parser.add_argument("call", nargs="?", metavar="CALL", help="the call's id; not needed where only one waits")
    parser.add_argument("--last", action="store_true", help="the run that got on last")
    parser.add_argument("--note", default="", metavar="TEXT", help="why; the model is told with a refusal")
    parser.add_argument("--by", default="", metavar="NAME", help="who decides; default: this account's name")
    _options.add_journal(parser)


def decide(args: Namespace, *, allow: bool) -> int:
    """Record one decision. Raises `UsageError` when it is not clear which call is meant, or none waits."""
    out = Terminal(sys.stdout)
    if args.last and args.run and not args.call:
        args.run, args.call = None, args.run  # with --last the one word is the call
    with saved_runs(args) as journal:
        run_id = find_run(journal, args.run, last=args.last)
        events = journal.events(run_id)
        state = State.of(events)
        call = _meant(run_id, state, args.call)
        _show(call, out, allow=allow, whole=getattr(args, "whole", False))
        mark, rule = state.shown.get(call.id, ("", ""))
        if mark and not rule:
            out.line(
                "  What it changes is protected, wherever its path seems to lead; `resume` at a terminal shows it."
            )
        if getattr(args, "for_run", False):
            out.line(f"for the run: {_covered(state, call)}")
        expires = getattr(args, "expires", None)
        leaving.run(
            journal.decide(
                run_id,
                call.id,
                allow=allow,
                by=args.by or person(),
                note=args.note,
                standing=getattr(args, "for_run", False),
                expires_at=time.time() + expires if expires else None,
            )
        )
        left = _waiting(State.of(journal.events(run_id)))
    out.line(f"{'allowed' if allow else 'denied'}: call {call.id}")
    if left:
        out.line(f"still waiting: {', '.join(one_line(f'{other.id} ({other.name})') for other in left)}")
        return 0
    meta = parsed_meta(recorded_meta(events))
    if of_a_program(meta):
        out.line(f"a program made this run, and goes on with it: agent.resume({run_id!r})")
        out.line(f"or name its agent: {going_on(run_id, args.journal, meta)}")
    else:
        out.line(f"go on with: {going_on(run_id, args.journal, meta)}")
    return 0


def _covered(state: State, call: ToolCall) -> str:
    """What a permission for the run covers beside this call. Raises `UsageError` where it would cover nothing."""
    mark, rule = state.shown.get(call.id, ("", ""))
    if state.tainted:
        raise UsageError(
            "the run has read what strangers may have written, so a permission for the run would not count: "
            "leave out --for-run"
        )
    if mark and not rule:
        raise UsageError("no permission for the run covers this call: leave out --for-run")
    return exact(f"{call.name}: {rule}" if rule else f"any call of {call.name}")


def _show(call: ToolCall, out: Terminal, *, allow: bool, whole: bool) -> None:
    """The call, before it is decided about. Raises `UsageError` when nobody could have seen what they allow."""
    lines = list(shown_call(call, columns=out.columns if out.tty else None))
    for line in screenful(lines, out) if out.tty and not whole else lines:
        out.line(line)
    if allow and too_long(call):
        raise UsageError(f"the call has {len(call.arguments):,} characters, too long to be shown whole: deny it")
    if allow and not whole and out.tty and not fits(lines, out):
        raise UsageError("the call does not fit the screen: --whole shows all of it, and allows it")


def _waiting(state: State) -> list[ToolCall]:
    return [call for call in state.pending.values() if call.id in state.requested and not state.decision(call)]


def _meant(run_id: str, state: State, call_id: str | None) -> ToolCall:
    waiting = _waiting(state)
    if not waiting:
        raise UsageError(f"no call of run {run_id} waits for an approval")
    names = ", ".join(one_line(f"{call.id} ({call.name})") for call in waiting)
    if call_id is None:
        if len(waiting) > 1:
            raise UsageError(f"{len(waiting)} calls wait, say which: {names}")
        return waiting[0]
    for call in waiting:
        if call.id == call_id:
            return call
    raise UsageError(f"no call {call_id!r} waits in run {run_id}; there is {names}")
