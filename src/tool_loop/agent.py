"""The loop. Look at what is on record, take one step, write it down, look again.

Nothing is remembered from one turn to the next except what the journal holds. So a run that starts,
a run that resumes after a crash, and a run that wakes after a person decided are the same call.
Read `next_move` for what happens and why, then `Driver` for how. `Agent`, in api.py, is the door
that people come in by.

What may enter this file, and what may not:

1. It changes what happens next: a branch of `next_move`, an event, a case in state.py. All three.
2. It changes how a step is done: an object with the same methods that wraps a port, as `Retrying` does.
3. It only watches: a subscriber of `emit`.
4. It changes what the model sees: a pure function of the events, in transcript.py.

A failure goes to whoever can mend it. What a model can mend, such as a wrong path, is a result that
it reads. What waiting can mend is mended around the model port and never seen here. What only a
person can mend ends the attempt with a typed error, and the run goes on from its record afterwards.
The loop knows nothing about HTTP, schemas, files, SQL or terminals.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from . import events, transcript
from .errors import FatalError, JournalError
from .events import RunEnded, ToolCall
from .limits import LAST_WORD_TOKENS, Limits
from .loop import answers, approvals, closing, compaction, mending
from .loop.moves import Act, Ask, Compact, End, Hold, Move, Remind, Stop
from .ports import LLM, Emit, Request, Reviewer, RunLog, Tools
from .runtime.shield import recorded, settle, together
from .state import State, call_key

# --- what happens next, and why -------------------------------------------------------------------


def next_move(state: State, tools: Tools, limits: Limits, elapsed: float = 0.0) -> Move:
    """The whole policy of the loop, without doing anything: easy to read, and to test as a table."""
    if state.ended:
        return End(state.ended)

    if state.pending:
        # A call that waits for a person holds up only itself: the others run first, so that the
        # person decides with everything else already known.
        waiting = tuple(c for c in state.pending.values() if waits(state, tools, c))
        ready = tuple(c for c in state.pending.values() if c not in waiting)
        return Act(ready) if ready else Hold(waiting)

    if (reply := state.final_reply) and reply.stop != "pause":
        # A call written as prose ran nothing. Small models do this when their server's template does
        # not fit; told once, most recover. Told twice, none has, so then it is the answer.
        if reply.call_in_text and not state.reminded and not state.stopping:
            return Remind(transcript.NO_CALL_FOUND)
        if not reply.text.strip():
            # Cut or filtered before it said anything. A run ends with an answer: it is asked for once
            # more, and when the model gives none even then, the record tells what was found and why.
            return End(transcript.from_journal(state)) if state.stopping else Stop("empty answer")
        return End(RunEnded(state.stopping.limit if state.stopping else "answered", reply.text))

    # Asking a model politely to stop is a request. Making calls impossible is a guarantee: an answer
    # is the only move it has left.
    if state.stopping:
        return Ask(may_call=False)
    if limit := reached(state, limits, elapsed):
        return Stop(limit)

    # Compacted before the window is full, not after the provider refused: by then a turn is lost.
    # Once between two replies: if that was not enough, more of the same is not either.
    if (window := state.window or limits.window) and state.context >= window * limits.fill and not state.compacted:
        return Compact()
    # Where only the form of the answer is wrong no tool can help, and without tools any server can enforce it.
    return Ask(may_call=not state.misfit)


def waits(state: State, tools: Tools, call: ToolCall) -> bool:
    """Whether this call has to wait for a person who has not decided yet.

    Asked again at each look at the record, so a decision made elsewhere is seen by the next attempt.
    """
    if state.cut or (state.decision(call) and approvals.decision(state, tools, call)):
        return False
    if call.id in state.requested:
        return True
    # What a crash left in doubt is looked into first; a call that cannot run at all needs nobody.
    return call.id not in state.doubtful and tools.needs_approval(call) and tools.refuse(call) is None


def reached(state: State, limits: Limits, elapsed: float) -> str | None:
    """The limit that ends this question, in the words of `Result.reason`, or None.

    Of tokens and money the price of the last word is kept back: reading it all once more, and
    answering. Nothing is kept back before the first step, and never more than half: a budget that
    small is a wish for one short answer, not for none.
    """
    last_word = min(0.5, (state.context + LAST_WORD_TOKENS) / limits.tokens) if state.steps and limits.tokens else 0.0
    one_step = min(0.5, 1 / state.steps) if state.steps else 0.0
    for limit, most, used in (
        ("step limit", limits.steps, state.steps),
        ("repeated call", limits.repeats, state.stalled),
        ("token budget", limits.tokens and limits.tokens * (1 - last_word), state.spent),
        ("money budget", limits.usd and limits.usd * (1 - one_step), state.cost),
        ("tool call limit", limits.tool_calls, state.tool_calls),
        ("deadline", limits.soft_seconds, elapsed),
    ):
        if most is not None and used >= most:
            return limit
    return None


# --- how ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Driver:
    """One process driving one run until it ends, or until a person is needed; then drive it again.

    `limits.seconds` counts from `began`: the time of one attempt and not of the run, or a run that
    waited for a person over the weekend would wake up with its time used up. `emit` tells whoever
    watches. Without a `reviewer` a call that needs a person ends the attempt as waiting. `adrift` are
    the calls that a cancel left behind while they ran: nobody knows yet what becomes of them.
    """

    log: RunLog
    llm: LLM
    tools: Tools
    limits: Limits
    emit: Emit
    reviewer: Reviewer | None = None
    began: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    wanted: answers.Wanted | None = None
    adrift: set[str] = field(default_factory=set)

    async def drive(self) -> RunEnded | Hold:  # noqa: C901 - the loop: one case per move
        """The loop. Raises `FatalError` for what it cannot mend, with the reason on record.

        `RunResumed` comes first where an earlier attempt left something behind: it is the moment in
        which `State` works out which calls that attempt may have run.
        """
        state = self.log.state
        try:
            if not state.ended and not isinstance(state.events[-1], events.RunStarted | events.RunContinued):
                await self.record(events.RunResumed())
            while True:
                match next_move(state, self.tools, self.limits, self.now() - self.began):
                    case Ask(may_call):
                        await self.ask(may_call)
                    case Act(calls):
                        await self.act(calls)
                    case Compact():
                        await compaction.compact(self)
                    case Remind(text):
                        await self.record(events.Reminded(text))
                    case Stop(limit):
                        await self.record(events.LimitReached(limit))
                    case Hold(calls) as hold:
                        if not await approvals.ask_person(self, calls):
                            return hold
                    case End(event):
                        if self.wanted and (objection := await answers.objection(self, self.wanted, event.answer)):
                            await self.record(objection)
                            continue
                        if not state.ended:
                            await self.record(event)
                        return event
        except JournalError:
            raise  # where nothing can be written, nothing may be pretended
        except asyncio.CancelledError as cancel:
            # Every open call gets a result, so that whoever reads the history next finds it valid; all but
            # one that may have happened. That is left open, as a crash would leave it: in doubt, and the
            # next attempt asks its probe or a person. Further cancels do not keep this from being written.
            for call in [c for c in state.pending.values() if c.id not in state.doubtful | self.adrift]:
                await recorded(self.log, transcript.cancelled(call), self.emit)
            if not state.ended:
                await recorded(self.log, closing.interruption(cancel), self.emit)
            raise
        except Exception as error:
            # This attempt is over, the run is not: whoever mends the cause resumes it from here.
            fatal = error if isinstance(error, FatalError) else FatalError(type(error).__name__, kind="internal")
            await self.record(events.RunInterrupted(fatal.kind, fatal.message))
            raise

    async def record(self, event: events.Event, held: asyncio.CancelledError | None = None) -> None:
        """Write, then show; then raise the cancel that arrived meanwhile, or one `held` from before.

        With no cancellation point between an outcome and its record, what happened is always on
        record, what is not on record did not happen, and nobody ever sees what a crash could undo.
        Cancel a run at each turn of the event loop in turn: without this, some of them lose a result.
        """
        late = await recorded(self.log, event, self.emit)
        if cancel := held or late:
            raise cancel

    async def ask(self, may_call: bool) -> None:
        """One reply onto the record, or the reason why there is none.

        What a provider can mend by waiting never gets here: `Retrying` around the model has done
        the waiting, within the run's deadline. What does get here ends the attempt, except for what
        the loop itself can mend (see mending.py): a context that is too long, time that has run out.
        """
        state, request = self.log.state, self.request(may_call)
        self.emit(events.ModelAsked(state.steps + 1, may_call))
        asked = await settle(self.llm.reply(request, self.emit), until=request.deadline)
        if asked.error is None:
            # Even when a cancel came in the same moment: a reply that was paid for is kept.
            await self.record(transcript.repaired(asked.value, state.ids, state.steps + 1, request), asked.cancel)
        elif asked.cancel:
            raise asked.cancel
        elif not await mending.mended(self, asked.error):
            raise asked.error

    async def act(self, calls: Sequence[ToolCall]) -> None:
        """Run calls, and record each result when it lands. One that fails does not disturb the others.

        What reads, or may be repeated, runs side by side. What must not run twice, or declares
        nothing, runs alone and in the order the model asked: nobody knows that it is independent.
        All are started and awaited in here, and no generator yields in between, so when the run is
        cancelled no tool outlives it.
        """
        state = self.log.state
        run = [c for c in calls if state.may_start(c)]
        once = [c.id for c in run if self.alone(c)]
        approved = [c.id for c in run if c.id in state.decisions]
        if once or approved:
            # One record for all of them, durable before the first starts: after a crash the order
            # tells which one may have happened, and a record for each would cost a disk write each.
            await self.record(events.IntentRecorded(tuple(once), tuple(approved)))
        taken = state.tool_count.copy()
        for alone, group in groupby(calls, self.alone):
            await together([self.one(call, taken) for call in group], one_by_one=alone)

    async def one(self, call: ToolCall, taken: Counter[str]) -> None:
        """Exactly one result for this call, whatever becomes of it.

        A failure of a tool is a value: `Tools.run` returns it like any other outcome, and the model
        reads it and decides. So nothing here catches exceptions, and siblings cannot cancel each other.
        """
        state, began, result, held = self.log.state, self.now(), None, None
        decision, most, alone = state.decision(call), self.limits.per_tool.get(call.name), self.alone(call)
        if state.cut:
            # Half a thought, even where it happens to parse: what came after the cut is missing.
            result = transcript.cut_off(call, state.cut)
        elif decision:
            result = approvals.barred(state, self.tools, call, time.time())
        elif call.id in state.doubtful:
            result = await approvals.look_into(self, call)
            if result is None and call.id in state.requested:
                return  # the question is on record now; `next_move` holds the call until it is decided
        if result is None and most is not None and taken[call.name] >= most:
            result = transcript.over_limit(call, most)
        if result is None:
            taken[call.name] += 1
            real = approvals.effective(call, decision) if decision else call
            mark = await approvals.marked(self, real) if alone else {}
            self.emit(events.ToolRunning(real))
            work = self.tools.run(real, key=self.key(real), emit=self.emit, deadline=self.until(), **mark)
            ran = await settle(work, grace=self.limits.grace_seconds if alone else 0.0)
            # A call that must not run twice, and did not land within the grace, gets no result: it is in
            # doubt. To say that it did not happen would be a guess, and so would that nobody can know.
            plain, held = ran.landed and not alone and call.id not in self.adrift, ran.cancel
            result = ran.value if plain else await approvals.outcome(self, real, ran, mark)
            if call.id in state.inner:
                return  # a sub-agent waits for a person, and so does this call
            result = replace(result, seconds=self.now() - began, arguments=state.edited_arguments(call))
        repeat = state.repeat(call, result) if result.repeat and not self.tools.polls(call.name) else 0
        await self.record(replace(result, repeat=repeat), held)

    def request(self, may_call: bool) -> Request:
        """What to send: the same bytes as last time and what was added, so that caches can serve it."""
        state, tokens, form = self.log.state, self.limits.tokens, self.wanted.form if self.wanted else None
        left, key = tokens and max(0, tokens - state.spent), f"{self.log.run_id}-{len(state.events)}"
        until = self.until(last_word=state.stopping is not None)
        return Request(state.transcript, self.tools.specs(), may_call, key, until, left, state.pace, form)

    def until(self, last_word: bool = False) -> float | None:
        """When to stop waiting. A part of the time is kept back for the last word."""
        seconds = self.limits.seconds if last_word else self.limits.soft_seconds
        return None if seconds is None else self.began + seconds

    def alone(self, call: ToolCall) -> bool:
        """Undeclared counts as the most dangerous, and so does a tool that does not exist."""
        return self.tools.effect(call.name) not in ("read", "idempotent")

    def key(self, call: ToolCall) -> str:
        """The same for this call over every retry, resume and compaction, and for no other."""
        return call_key(self.log.run_id, self.log.state.ids[call.id], call)

    def now(self) -> float:
        return asyncio.get_running_loop().time()
