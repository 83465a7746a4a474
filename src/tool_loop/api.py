"""The front door: an `Agent` is a model, tools and limits; a run of it is one question.

Puts the ports together (retrying around the model, the registry around the tools, a journal), opens
a run and drives it with the loop in agent.py. Decides nothing about what happens in a run.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, TypeAlias

from .agent import Attempt
from .errors import FatalError, UnknownRun, UsageError
from .events import Event, Example, IntentRecorded, ModelReplied, Notice, RunContinued, RunStarted, Signal
from .journal.memory import MemoryJournal
from .limits import Limits
from .llm.prices import Priced, Prices
from .llm.retry import Retrying, RetryPolicy
from .loop import approvals
from .loop.moves import Hold
from .ports import LLM, Emit, Journal, Reviewer, RunLog, Tools
from .result import Result
from .stream import Stream, streamed
from .toolbox.registry import Approve, Tool, ToolRegistry
from .transcript import DEFAULT_SYSTEM

Subscriber: TypeAlias = Callable[[Event | Signal], object]

# How many ended runs an agent without a journal of its own remembers, for follow-up questions.
REMEMBERED_RUNS = 100

DEFAULT_RETRY = RetryPolicy()

logger = logging.getLogger(__name__)


class Agent:
    """A model with tools and limits. Holds no state of a run, so it can serve many at once.

    `tools` are `Tool`s, plain functions, or a `Tools` port of your own. `system` is the system
    prompt. `approve` says which calls need a person ("never", "effects", "always" or a function) and
    `reviewer` asks one; without a reviewer such a run ends as waiting. `examples` are worked
    examples put before the question. `on_event` sees every event and signal; what it raises is
    logged and ignored. `retry` is None to pass every failure of the model's server on at once.
    `prices` give replies their cost, which `Limits.usd` needs, and the window of a model they know.
    `meta` is recorded with each run.
    """

    def __init__(
        self,
        llm: LLM,
        tools: Iterable[Tool | Callable[..., Any]] | Tools = (),
        *,
        system: str = DEFAULT_SYSTEM,
        limits: Limits | None = None,
        journal: Journal | None = None,
        approve: Approve = "never",
        reviewer: Reviewer | None = None,
        examples: Sequence[Example] = (),
        on_event: Subscriber | None = None,
        retry: RetryPolicy | None = DEFAULT_RETRY,
        prices: Prices | None = None,
        meta: Mapping[str, object] | None = None,
    ) -> None:
        model: LLM = Priced(llm, prices) if prices is not None else llm
        self.llm: LLM = Retrying(model, retry) if retry is not None else model
        # A registry can be iterated too, and one that is rebuilt from its tools would lose its policy.
        if isinstance(tools, Iterable) and not isinstance(tools, ToolRegistry):
            tools = ToolRegistry(tools, approve=approve)
        self.tools: Tools = tools
        self.system = system
        self.limits = _completed(limits or Limits(), self.tools, llm, prices)
        self.journal: Journal = journal or MemoryJournal(keep=REMEMBERED_RUNS)
        self.reviewer = reviewer
        self.examples = tuple(examples)
        self.on_event = on_event
        self.meta = json.dumps(dict(meta or {}), ensure_ascii=False)

    async def run(
        self,
        question: str,
        *,
        run_id: str | None = None,
        continue_run: str | None = None,
        on_event: Subscriber | None = None,
    ) -> Result:
        """Answer a question. The same `run_id` twice is the same run; it is driven on, not started again.

        With `continue_run` the question is a follow-up in the history of a run that has ended.
        Raises a `FatalError` when the run cannot go on (it stays on record and can be resumed), and
        `UsageError` when the id belongs to another question.
        """
        if not question.strip():
            raise UsageError("the question is empty")
        if run_id is not None and continue_run is not None:
            raise UsageError("a follow-up belongs to the run it continues: give run_id or continue_run, not both")
        opening: RunStarted | RunContinued
        if continue_run is not None:
            opening = RunContinued(question)
        else:
            opening = RunStarted(question, self.system, self.examples, self.meta)
        return await self._drive(continue_run or run_id or secrets.token_hex(6), opening, on_event)

    async def resume(self, run_id: str, *, on_event: Subscriber | None = None) -> Result:
        """Go on with a run where it was left: after a crash, a mended error, a decision. An ended run
        gives its result again and costs nothing. Raises `UnknownRun`, and what `run` raises.
        """
        return await self._drive(run_id, None, on_event)

    def run_sync(self, question: str, **options: Any) -> Result:
        """`run` for programs without an event loop: the one synchronous door. Takes the same options."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self.run(question, **options))
        raise UsageError("run_sync cannot be called where an event loop is running; use: await agent.run(...)")

    def stream(self, question: str, **options: Any) -> AbstractAsyncContextManager[Stream]:
        """Watch a run as it happens: `async with agent.stream("...") as events`, then `async for`.

        Leaving the block, however it is left, ends the run and waits until it is gone. At the end
        `events.result` holds the `Result`. Takes the same options as `run`.
        """
        return streamed(lambda emit: self.run(question, on_event=emit, **options))

    async def _drive(
        self, run_id: str, opening: RunStarted | RunContinued | None, on_event: Subscriber | None
    ) -> Result:
        emit = self._emitter(run_id, on_event)
        try:
            async with self.journal.open(run_id) as log:
                attempt = Attempt(log, self.llm, self.tools, self.limits, emit, self.reviewer)
                if opening := self._fresh(log, opening):
                    await attempt.record(opening)
                outcome = await attempt.drive()
                return self._result(log, outcome.calls if isinstance(outcome, Hold) else ())
        except FatalError as error:
            error.run_id = run_id
            raise

    def _fresh(self, log: RunLog, opening: RunStarted | RunContinued | None) -> RunStarted | RunContinued | None:
        """The event that opens this run or question, None when it is on record already."""
        state = log.state
        match opening:
            case RunStarted(question=question) if state.events:
                first = state.events[0]
                if isinstance(first, RunStarted) and first.question != question:
                    raise UsageError(
                        f"run {log.run_id} has another question; to ask more in it, use continue_run={log.run_id!r}"
                    )
                return None
            case RunStarted():
                return opening
            case _ if not state.events:
                raise UnknownRun(f"there is no run {log.run_id} in this journal")
            case RunContinued(question=question) if not state.ended:
                if state.question == question:
                    return None  # asked before and interrupted: the same question goes on
                raise UsageError(f"run {log.run_id} has not ended yet; resume it before asking more")
            case _:
                return opening

    def _result(self, log: RunLog, waiting: Sequence[Any]) -> Result:
        state, ended, events = log.state, log.state.ended, tuple(log.state.events)
        return Result(
            answer=ended.answer if ended else "",
            reason=ended.reason if ended else "waiting",
            run_id=log.run_id,
            events=events[state.first :],
            steps=state.steps,
            tool_calls=state.tool_calls,
            cost=None if state.unpriced else state.cost,
            waiting=tuple(approvals.pending(state, self.tools, call) for call in waiting),
            source=ended.source if ended else "model",
            untrusted=state.untrusted,
            run_events=events,
        )

    def _emitter(self, run_id: str, on_event: Subscriber | None) -> Emit:
        """One function that tells all subscribers. What they raise is theirs: it never ends a run."""
        subscribers = [s for s in (self.on_event, on_event) if s is not None]
        if logging.getLogger(f"{__package__}.logs").isEnabledFor(logging.INFO):
            from .logs import log_events

            subscribers.append(log_events(run_id))

        def emit(happening: Event | Signal) -> None:
            for subscriber in subscribers:
                try:
                    subscriber(happening)
                except Exception:
                    logger.exception("a subscriber failed; the run goes on")

        return _telling_undeclared(self.tools, emit) if subscribers else emit


def _completed(limits: Limits, tools: Tools, llm: LLM, prices: Prices | None) -> Limits:
    """The limits, with what tools and prices know where the caller said nothing."""
    if limits.usd is not None and prices is None:
        raise UsageError("Limits.usd needs prices: Agent(..., prices=GenaiPrices()) or a PriceTable of your own")
    if isinstance(tools, ToolRegistry):
        own = {t.name: t.max_calls for t in tools if t.max_calls is not None}
        limits = replace(limits, per_tool=own | dict(limits.per_tool)) if own else limits
    if limits.window is None and prices is not None and (model := getattr(llm, "model", "")):
        limits = replace(limits, window=prices.window(str(model), str(getattr(llm, "origin", ""))))
    return limits


def _telling_undeclared(tools: Tools, emit: Emit) -> Emit:
    """Says once per tool that its calls ran in order only because it declares no effect."""
    told: set[str] = set()
    asked: dict[str, str] = {}

    def watch(happening: Event | Signal) -> None:
        emit(happening)
        if isinstance(happening, ModelReplied):
            asked.clear()
            asked.update((call.id, call.name) for call in happening.calls)
        elif isinstance(happening, IntentRecorded) and len(happening.call_ids) > 1:
            names = Counter(asked[call_id] for call_id in happening.call_ids if call_id in asked)
            for name, n in names.items():
                if n > 1 and name not in told and tools.effect(name) is None:
                    told.add(name)
                    how = '@tool(effect="read") lets them run together'
                    emit(Notice(f"{name} declares no effect: its {n} calls ran in order; {how}"))

    return watch


def run_agent(
    question: str, tools: Iterable[Tool | Callable[..., Any]], max_steps: int = 5, *, llm: LLM | None = None
) -> str:
    """The answer to one question, and nothing else: the loop in one call, for scripts.

    The model is `OpenAIChat()` from OPENAI_MODEL, OPENAI_BASE_URL and OPENAI_API_KEY unless one is given.
    """
    if llm is None:
        from .llm.chat.model import OpenAIChat  # needs the HTTP client; many runs do not

        llm = OpenAIChat()
    return Agent(llm, tools, limits=Limits(steps=max_steps)).run_sync(question).answer
