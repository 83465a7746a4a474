"""Drives one run for the command line: who watches, who is asked, how it is interrupted, how it ends.

`ask` and `resume` differ only in what they tell the agent to do. Knows nothing about parsing options.
"""

from __future__ import annotations

import asyncio
import copy
import sys
import time
from argparse import Namespace
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from tool_loop.api import Agent
from tool_loop.console.live import Live
from tool_loop.console.tally import Tally
from tool_loop.console.terminal import OutputLost, Terminal, one_line, safe
from tool_loop.events import Event, Notice, Signal
from tool_loop.journal.memory import MemoryJournal
from tool_loop.options import Subscriber
from tool_loop.result import Result
from tool_loop.runtime import leaving

from . import PIPE_CLOSED
from ._cost import pricing
from ._driver import allowed_elsewhere, check_options, check_tools_said, compared, going_on, has_ended
from ._failure import explain
from ._interrupt import Interrupts
from ._output import AnswerFile, JsonLines
from ._programs import agent_of
from ._review import TerminalReviewer, keyboard
from ._setup import ASK, limits_of, limits_said, llm_of, meta_of, recorded_meta, tools_of, with_recorded
from ._shown import screenful, shown_call
from ._store import is_ours, person, run_command

if TYPE_CHECKING:
    from tool_loop.journal.sqlite import SqliteJournal
    from tool_loop.ports import Reviewer, Tools

Begin: TypeAlias = Callable[[Agent, Subscriber], Awaitable[Result]]

STOPPED = 5
WAITING = 6


@dataclass(slots=True)
class Session:
    """One run and the terminal it is followed on. `notices` are said before anything else."""

    args: Namespace
    run_id: str
    journal: SqliteJournal | MemoryJournal
    earlier: tuple[Event, ...] = ()
    notices: list[str] = field(default_factory=list)
    recorded: bool = False
    meta: dict[str, object] = field(default_factory=dict)
    own: Agent | None = field(init=False)
    tools: Tools = field(init=False)

    def __post_init__(self) -> None:
        check_options(self.args)
        self.own = agent_of(self.args.agent) if self.args.agent else None
        self.tools = self.own.tools if self.own else tools_of(self.args)

    @classmethod
    def of_saved(cls, args: Namespace, run_id: str, journal: SqliteJournal, *, asks_more: bool = False) -> Session:
        """A session that goes on with a run, with nothing of it touched yet. Raises `UsageError` when this
        command has not got what drives it."""
        earlier = tuple(journal.events(run_id))
        goes_on = asks_more or not has_ended(earlier)
        check_options(args)
        if not args.agent:
            if goes_on:
                check_tools_said(run_id, args, earlier)
            ours = is_ours(args) or not goes_on
            spoken = run_command("resume", run_id, args.journal)
            args = with_recorded(args, recorded_meta(earlier), ours=ours, spoken=spoken)
        session = cls(args, run_id, journal, earlier)
        if goes_on and not is_ours(args):
            session.notices += allowed_elsewhere(earlier)
        if goes_on:
            session.notices += compared(run_id, earlier, session.tools, args)
        return session

    def run(self, begin: Begin, system: str | None = None) -> int:
        """Drive it to its end and return the exit code. Raises what is wrong before it starts."""
        args = self.args
        with ExitStack() as stack:
            if not isinstance(self.journal, MemoryJournal):
                stack.enter_context(self.journal)
            file = AnswerFile(args.output) if args.output else None
            if file:
                stack.callback(file.close)
            keys = stack.enter_context(keyboard())
            err = Terminal(sys.stderr, quiet_when_gone=True)
            reviewer = TerminalReviewer(err, keys, person()) if keys is not None else None
            agent = self._of_the_person(reviewer) if self.own else self._of_the_options(reviewer, system)
            return leaving.run(self._conduct(agent, begin, err, file))

    def _of_the_options(self, reviewer: Reviewer | None, system: str | None) -> Agent:
        args = self.args
        llm = llm_of(args, self.notices.append)
        priced, prices = pricing(args, llm)
        self.meta = meta_of(args, llm)
        return Agent(
            priced,
            self.tools,
            system=system,
            limits=limits_of(args),
            journal=self.journal,
            reviewer=reviewer,
            prices=prices,
            meta=self.meta,
            name=ASK,
        )

    def _of_the_person(self, reviewer: Reviewer | None) -> Agent:
        """Their own agent, on this journal, with the limits that were given, asking at this terminal."""
        assert self.own is not None
        agent = copy.copy(self.own)
        agent.journal = self.journal
        agent.reviewer = reviewer or agent.reviewer
        agent.limits = replace(agent.limits, **limits_said(self.args))
        return agent

    async def _conduct(self, agent: Agent, begin: Begin, err: Terminal, file: AnswerFile | None) -> int:  # noqa: C901
        args, out = self.args, Terminal(sys.stdout)
        task = asyncio.current_task()
        assert task is not None
        lines = JsonLines(out, self.run_id, task.cancel) if args.json else None
        live = Live(
            err, out, limits=agent.limits, quiet=args.quiet or args.json, verbose=args.verbose, earlier=self.earlier
        )
        began = time.monotonic()
        for notice in self.notices:
            live(Notice(notice))
        with Interrupts(task, lambda: live(Notice("stopping; Ctrl-C again quits at once")), keep=True) as interrupts:
            try:
                result = await begin(agent, self._noting(lines or live))
            except asyncio.CancelledError:
                live.close()
                if lines and lines.lost:
                    return self._lost(lines.lost, "", err)
                if lines and lines.closed:
                    return PIPE_CLOSED
                self._say_resume(err)
                return interrupts.exit_code
            except Exception as error:
                live.close()
                return explain(error, self._resume() if self._resumable else "")
        live.close()
        if result.waiting:
            return self._waiting(result, err)
        try:
            if file:
                file.write(result.answer)
            if not args.json and not live.show_answer(result.answer):
                out.line(safe(result.answer.rstrip()))
        except OutputLost as error:
            return self._lost(error, result.answer, err)
        if not (args.quiet or args.json):
            self._summary(result, time.monotonic() - began, err)
        return 0 if result.reason == "answered" else STOPPED

    def _noting(self, watch: Subscriber) -> Subscriber:
        """`watch`, with a note that something is on record, which can then be resumed."""

        def noted(happening: Event | Signal) -> None:
            self.recorded = True
            watch(happening)

        return noted

    @property
    def _saved(self) -> bool:
        return not isinstance(self.journal, MemoryJournal)

    @property
    def _resumable(self) -> bool:
        return self._saved and (self.recorded or bool(self.earlier))

    def _command(self, name: str, *words: str) -> str:
        return run_command(name, self.run_id, self.args.journal, *words)

    def _resume(self) -> str:
        return going_on(self.run_id, self.args.journal, self.meta, self.args.agent)

    def _say_resume(self, err: Terminal) -> None:
        err.line(f"Interrupted. Resume with: {self._resume()}" if self._resumable else "Interrupted; nothing is saved.")

    def _lost(self, error: OutputLost, answer: str, err: Terminal) -> int:
        """What was paid for is not lost with the output: say where it is, or else show it here."""
        err.line(f"tool-loop: {one_line(str(error))}")
        if not self._resumable:
            err.line(safe(answer.rstrip()) if answer else "The run is not saved.")
        elif answer:
            err.line(f"The run is saved, with its answer; read it with: {self._command('show')}")
        else:
            err.line(f"Nothing was lost; resume with: {self._resume()}")
        return 1

    def _waiting(self, result: Result, err: Terminal) -> int:
        """Nobody is here to decide: say what waits, and how to decide about it later."""
        for pending in result.waiting:
            err.line("Waiting for an approval:")
            text, complete = (pending.preview.show(), pending.preview.complete) if pending.preview else ("", False)
            about, columns = "" if complete else pending.description, err.columns if err.tty else None
            lines = list(shown_call(pending.call, about, columns, text, complete=complete))
            for line in screenful(lines, err) if err.tty else lines:
                err.line(line)
            if self._saved:
                err.line(f"Allow it:  {self._command('approve', pending.call.id)}")
                err.line(f"Refuse it: {self._command('deny', pending.call.id)}")
        if self._saved:
            err.line(f"Then go on with: {self._resume()}")
        else:
            err.line("The run is not saved, so nobody can decide later: leave out --no-save, or use --approve never.")
        return WAITING

    def _summary(self, result: Result, seconds: float, err: Terminal) -> None:
        for warning in result.warnings:
            err.line(err.style(f"note: {one_line(warning)}", "yellow"))
        line = Tally.of(result.events).line(seconds)
        if result.reason != "answered":
            line = f"stopped: {one_line(result.reason)}; {line}"
        if self._saved:
            line += f"; run {self.run_id}"
        if err.tty:
            err.line()
        err.line(err.style(line, "dim"))
