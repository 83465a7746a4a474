"""The loop. Look at what is on record, take one step, write it down, look again.

Nothing is remembered from one turn to the next except what the journal holds. So a run that starts,
a run that resumes after a crash, and a run that wakes after a person decided are the same call.
Read `next_move` for what happens and why, then `Attempt` for how. `Agent`, in front.py, is the door
that people come in by.

What may enter this file, and what may not:

1. It changes what happens next: a branch of `next_move`, an event, a case in state.py. All three.
2. It changes how a step is done: an object with the same methods that wraps a port, as `Retrying` does.
3. It only watches: a subscriber of `emit`.
4. It changes what the model sees: a pure function of the events, in messages.py.

The loop knows nothing about HTTP, schemas, files, SQL or terminals.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from . import approvals, compaction
from . import messages as say
from .errors import FatalError, JournalError, ProviderError
from .events import (
    Event,
    IntentRecorded,
    LimitReached,
    ModelAsked,
    Reminded,
    RunContinued,
    RunEnded,
    RunInterrupted,
    RunResumed,
    RunStarted,
    ToolCall,
    ToolRunning,
)
from .journal import settle
from .limits import LAST_WORD_TOKENS, Limits
from .moves import Act, Ask, Compact, End, Hold, Move, Remind, Stop
from .ports import LLM, Emit, Request, Reviewer, RunLog, Tools
from .state import State, canonical

# A `once` call that is cancelled while it runs may still land: an outcome that is known is worth a
# second of waiting, one that is not costs a person an investigation.
GRACE_SECONDS = 1.0


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

    if (reply := state.answer) and reply.stop != "pause":
        # A call written as prose ran nothing. Small models do this when their server's template does
        # not fit; told once, most recover. Told twice, none has, so then it is the answer.
        if reply.call_in_text and not state.reminded and not state.stopping:
            return Remind(say.NO_CALL_FOUND)
        return End(RunEnded(state.stopping.limit if state.stopping else "answered", reply.text))

    # Asking a model politely to stop is a request. Making calls impossible is a guarantee: an answer
    # is the only move it has left.
    if state.stopping:
        return Ask(may_call=False)
    if limit := reached(state, limits, elapsed):
        return Stop(limit)

    # Compacted before the window is full, not after the provider refused: by then a turn is lost.
    # Once between two replies: if that was not enough, more of the same is not either.
    if limits.window and state.context >= limits.window * limits.fill and not state.compacted:
        return Compact()
    return Ask()


def waits(state: State, tools: Tools, call: ToolCall) -> bool:
    """Whether this call has to wait for a person who has not decided yet."""
    if state.cut or state.decision(call):
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
        ("repeated call", limits.repeats, state.latest.repeat if state.latest else 0),
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
class Attempt:
    """One process driving one run until it ends, or until a person is needed; then drive it again."""

    log: RunLog
    llm: LLM
    tools: Tools
    limits: Limits
    emit: Emit
    reviewer: Reviewer | None = None
    began: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    async def drive(self) -> RunEnded | Hold:
        state = self.log.state
        if not state.ended and not isinstance(state.events[-1], RunStarted | RunContinued):
            await self.record(RunResumed())
        try:
            while True:
                match next_move(state, self.tools, self.limits, self.now() - self.began):
                    case Ask(may_call):
                        await self.ask(may_call)
                    case Act(calls):
                        await self.act(calls)
                    case Compact():
                        await compaction.compact(self)
                    case Remind(text):
                        await self.record(Reminded(text))
                    case Stop(limit):
                        await self.record(LimitReached(limit))
                    case Hold(calls) as hold:
                        if not await approvals.ask_person(self, calls):
                            return hold
                    case End(event):
                        if not state.ended:
                            await self.record(event)
                        return event
        except JournalError:
            raise  # where nothing can be written, nothing may be pretended
        except asyncio.CancelledError:
            # Every open call gets a result, so that whoever reads the history next finds it valid.
            for call in tuple(state.pending.values()):
                await self.record(say.cancelled(call))
            await self.record(RunInterrupted("cancelled"))
            raise
        except Exception as error:
            typed = isinstance(error, FatalError)
            await self.record(RunInterrupted(error.kind, error.message) if typed else RunInterrupted("internal"))
            raise

    async def record(self, event: Event, held: asyncio.CancelledError | None = None) -> None:
        """Write, then show; then raise the cancel that arrived meanwhile, or one `held` from before.

        With no cancellation point between an outcome and its record, what happened is always on
        record, what is not on record did not happen, and nobody ever sees what a crash could undo.
        """
        task, late = await settle(self.log.append(event), grace=None)
        task.result()
        self.emit(event)
        if held or late:
            raise held or late  # type: ignore[misc]

    async def ask(self, may_call: bool) -> None:
        """One reply onto the record, or the reason why there is none."""
        state, request = self.log.state, self.request(may_call)
        self.emit(ModelAsked(state.steps + 1, may_call))
        task, held = await settle(self.llm.reply(request, self.emit), until=request.deadline)
        error = task.exception() if task.done() and not task.cancelled() else TimeoutError()
        if error is None:
            # Even when a cancel came in the same moment: a reply that was paid for is kept.
            reply = say.repaired(task.result(), state.ids, state.steps + 1, (s.name for s in request.tools))
            if not may_call and reply.calls:
                reply = replace(reply, calls=(), opaque="", dropped_calls=len(reply.calls))
            await self.record(reply, held)
        elif held:
            raise held
        elif isinstance(error, ProviderError | TimeoutError) and not may_call:
            pass
        elif isinstance(error, ProviderError) and error.kind == "context_length" and not state.compacted:
            self.limits = replace(self.limits, window=error.window or self.limits.window)
            if not await compaction.compact(self):
                raise error
        elif isinstance(error, TimeoutError):
            await self.record(LimitReached("deadline"))
        else:
            raise error
        if state.stopping and not may_call and not (state.answer and state.answer.text.strip()):
            # Every limit ends in an answer. When the model gives none, the record does.
            text = say.from_journal(state.question, state.events[state.first :], state.stopping.limit)
            await self.record(RunEnded(state.stopping.limit, text, "journal"))

    async def act(self, calls: Sequence[ToolCall]) -> None:
        """Run calls, and record each result when it lands. One that fails does not disturb the others.

        What reads, or may be repeated, runs side by side. What must not run twice, or declares
        nothing, runs alone and in the order the model asked: nobody knows that it is independent.
        """
        state = self.log.state
        run = [c for c in calls if not state.cut and (c.id not in state.doubtful or c.id in state.decisions)]
        once = [c.id for c in run if self.alone(c)]
        approved = [c.id for c in run if c.id in state.decisions]
        if once or approved:
            # One record for all of them, durable before the first starts.
            await self.record(IntentRecorded(tuple(once), tuple(approved)))
        taken = state.tool_count.copy()
        for alone, group in groupby(calls, self.alone):
            batch = list(group)
            if alone or len(batch) == 1:
                for call in batch:
                    await self.one(call, taken)
                continue
            try:
                async with asyncio.TaskGroup() as together:
                    for call in batch:
                        together.create_task(self.one(call, taken))
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None  # results are data: only a journal raises here

    async def one(self, call: ToolCall, taken: Counter[str]) -> None:
        """Exactly one result for this call, whatever becomes of it."""
        state, began, held = self.log.state, self.now(), None
        decision, in_doubt, alone = state.decision(call), call.id in state.doubtful, self.alone(call)
        most = self.limits.per_tool.get(call.name)
        result = None
        if state.cut:
            result = say.cut_off(call)  # half a thought, even where it happens to parse
        elif decision:
            result = approvals.refused(state, self.tools, call, time.time())
        elif in_doubt:
            result = await approvals.look_into(self, call)
            if result is None and call.id in state.requested:
                return  # now a person has to look at it
        if result is None and most is not None and taken[call.name] >= most:
            result = say.over_limit(call, most)
        if result is None:
            taken[call.name] += 1
            real = approvals.effective(call, decision) if decision else call
            self.emit(ToolRunning(real))
            work = self.tools.run(real, key=self.key(call), emit=self.emit, deadline=self.until())
            task, held = await settle(work, grace=GRACE_SECONDS if alone else 0.0)
            lost = say.outcome_unknown if alone else say.cancelled
            result = task.result() if task.done() and not task.cancelled() else lost(call)
            result = replace(result, seconds=self.now() - began, arguments=real.arguments if real is not call else None)
        repeat = 0 if self.tools.polls(call.name) else state.repeat(call, result)
        await self.record(replace(result, repeat=repeat), held)

    def request(self, may_call: bool) -> Request:
        state, tokens = self.log.state, self.limits.tokens
        left = None if tokens is None else max(0, tokens - state.spent)
        key = f"{self.log.run_id}-{len(state.events)}"
        return Request(state.transcript, self.tools.specs(), may_call, key, self.until(last_word=not may_call), left)

    def until(self, last_word: bool = False) -> float | None:
        seconds = self.limits.seconds if last_word else self.limits.soft_seconds
        return None if seconds is None else self.began + seconds

    def alone(self, call: ToolCall) -> bool:
        return self.tools.effect(call.name) not in ("read", "idempotent")

    def key(self, call: ToolCall) -> str:
        """The same for the same call over every retry, resume and compaction, and for no other."""
        what = hashlib.sha256(f"{call.name}\0{canonical(call.arguments)}".encode("utf-8", "surrogatepass"))
        return f"{self.log.run_id}-{self.log.state.ids[call.id]}-{what.hexdigest()[:16]}"

    def now(self) -> float:
        return asyncio.get_running_loop().time()
