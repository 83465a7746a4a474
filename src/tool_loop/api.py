"""The front door: an `Agent` is a model, tools and limits; a run of it is one question.

Puts the ports together (retrying around the model, the registry around the tools, a journal), opens a run
and drives it with the loop in agent.py. Decides nothing about what happens in it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, TypeVar, Unpack, overload

from .agent import Driver
from .budget import Budget, Budgeted, price_of
from .chat import Chat
from .errors import FatalError, UsageError
from .events import Event, Example, Notice, RetryWaiting, RunContinued, RunStarted, Signal, ToolCall
from .journal.memory import MemoryJournal
from .limits import Limits
from .llm.pick import pick_llm
from .llm.prices import Priced, Prices
from .llm.retry import Retrying, RetryPolicy
from .loop import approvals, notices
from .loop.answers import Wanted
from .loop.closing import CancelRequest, close, unless_cancelled
from .loop.history import begun_with
from .loop.moves import Hold
from .loop.opening import Question, opening, recorded_schema, run_id_of, sets_aside
from .mistakes import check_agent, check_resume, check_run
from .options import ResumeOptions, RunOptions, Subscriber, completed
from .ports import LLM, AnswerSpec, Emit, Journal, PendingApproval, Reviewer, RunLog, Tools
from .result import Result
from .runtime.context import CURRENT, NO_RUN, RunContext
from .state import State
from .stream import Stream, streamed
from .subagents import Host, as_tool, children_budget, started_for
from .toolbox.forms import form_of
from .toolbox.registry import Approve, Tool, ToolRegistry, digests

# How many ended runs an agent without a journal of its own remembers, for follow-up questions.
REMEMBERED_RUNS = 100

DEFAULT_RETRY = RetryPolicy()

T = TypeVar("T")


class Agent:
    """A model with tools and limits. Holds no state of a run, so it can serve many at once.

    `llm` is a model, or the name of one, for what `pick_llm` makes of it and of the environment.
    `tools` are `Tool`s, plain functions, or a `Tools` port of your own. `system` is the system prompt, or a
    function of the run's `deps` that makes it; a short default where nothing is said. `approve` says which
    calls need a person ("never", "effects", "always" or a function) and `reviewer` asks one; without a
    reviewer such a run ends as waiting. `examples` are worked examples put before the question. `on_event`
    sees every event and signal; what it raises is logged and ignored. `retry` is None to pass every failure
    of the model's server on at once.
    `prices` give replies their cost, which `Limits.usd` needs, and the window of a model they know.
    `meta` is recorded with each run, and so is what drives it (as "driver"): this agent's `name`, its
    endpoint, and its tools with a digest of each. `check` gets the final answer (typed where `run(answer=...)` asks for
    a type) and may raise `ToolError`: the model reads that and answers again, `Limits.answers` times at most.
    """

    def __init__(
        self,
        llm: LLM | str,
        tools: Iterable[Tool | Callable[..., Any]] | Tools = (),
        *,
        system: str | Callable[[Any], str] | None = None,
        limits: Limits | None = None,
        journal: Journal | None = None,
        approve: Approve = "never",
        reviewer: Reviewer | None = None,
        examples: Sequence[Example] = (),
        on_event: Subscriber | None = None,
        retry: RetryPolicy | None = DEFAULT_RETRY,
        prices: Prices | None = None,
        meta: Mapping[str, object] | None = None,
        check: Callable[[Any], object] | None = None,
        name: str = "",
    ) -> None:
        check_agent(llm, tools, locals())
        llm = pick_llm(llm) if isinstance(llm, str) else llm
        model: LLM = Priced(llm, prices) if prices is not None else llm
        self.llm: LLM = Retrying(model, retry) if retry is not None else model
        # A registry can be iterated too, and one that is rebuilt from its tools would lose its policy.
        if isinstance(tools, Iterable) and not isinstance(tools, ToolRegistry):
            tools = ToolRegistry(tools, approve=approve)
        self.tools: Tools = tools
        self.system = system
        self.limits = completed(limits or Limits(), self.tools, llm, prices)
        self.journal: Journal = journal or MemoryJournal(keep=REMEMBERED_RUNS)
        self.reviewer = reviewer
        self.examples = tuple(examples)
        self.on_event = on_event
        self.meta = json.dumps(dict(meta or {}), ensure_ascii=False)
        self.check = check
        self.name = name
        self.origin = str(getattr(llm, "origin", ""))
        self._prices = prices
        self._model = llm

    @overload
    async def run(self, question: str, *, answer: None = None, **options: Unpack[RunOptions]) -> Result[str]: ...
    @overload
    async def run(self, question: str, *, answer: type[T], **options: Unpack[RunOptions]) -> Result[T]: ...
    @overload
    async def run(
        self, question: str, *, answer: Mapping[str, Any], **options: Unpack[RunOptions]
    ) -> Result[dict[str, Any]]: ...
    @overload
    async def run(self, question: str, *, answer: Any, **options: Unpack[RunOptions]) -> Result[Any]: ...
    async def run(self, question: str, *, answer: Any = None, **options: Unpack[RunOptions]) -> Result[Any]:
        """Answer a question. The same `run_id` twice is the same run; it is driven on, not started again.

        With `continue_run` the question is a follow-up in the history of a run that has ended, with `chat` it
        begins a conversation or goes on with it. `answer` is the type that the final answer has to be (a
        pydantic model, a dataclass, a TypedDict, a union) or a JSON schema: `Result.value` holds it. The other
        options are those of `RunOptions`.

        Raises a `FatalError` when the run cannot go on (it stays on record and can be resumed), and
        `UsageError` when the id belongs to another question.
        """
        if options or not isinstance(question, str):
            check_run(question, options)
        form, run_id = None if answer is None else form_of(answer), run_id_of(question, options)
        asked = Question(
            question,
            mode="chat" if options.get("chat") else "follow_up" if options.get("continue_run") else "new",
            instead=options.get("instead", bool(options.get("chat"))),
            system=self._system(options),
            meta=self._driven(self._meta(options.get("meta"), options.get("budget"))),
            schema=json.dumps(form.schema, ensure_ascii=False) if form else "",
        )
        if history := options.get("history"):
            asked = await begun_with(history, self.journal, run_id, asked)
        return await self._drive(run_id, asked, form, options)

    @overload
    async def resume(self, run_id: str, *, answer: None = None, **options: Unpack[ResumeOptions]) -> Result[Any]: ...
    @overload
    async def resume(self, run_id: str, *, answer: type[T], **options: Unpack[ResumeOptions]) -> Result[T]: ...
    @overload
    async def resume(self, run_id: str, *, answer: Any, **options: Unpack[ResumeOptions]) -> Result[Any]: ...
    async def resume(self, run_id: str, *, answer: Any = None, **options: Unpack[ResumeOptions]) -> Result[Any]:
        """Go on with a run where it was left: after a crash, a mended error, a decision. An ended run
        gives its result again and costs nothing. Raises `UnknownRun`, and what `run` raises.

        The form of the answer is on record as a schema, so `Result.value` is plain JSON where no `answer` is
        given. What is not on record is given again: `deps`.
        """
        if options:
            check_resume(options)
        return await self._drive(run_id, None, None if answer is None else form_of(answer), options)

    @overload
    def run_sync(self, question: str, *, answer: None = None, **options: Unpack[RunOptions]) -> Result[str]: ...
    @overload
    def run_sync(self, question: str, *, answer: type[T], **options: Unpack[RunOptions]) -> Result[T]: ...
    @overload
    def run_sync(self, question: str, *, answer: Any, **options: Unpack[RunOptions]) -> Result[Any]: ...
    def run_sync(self, question: str, *, answer: Any = None, **options: Unpack[RunOptions]) -> Result[Any]:
        """`run` for programs without an event loop: the one synchronous door.

        It returns soon after the run is over, also when a tool ignores its cancellation; what is left
        behind so is named in the log.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass  # and out of the handler: what the run raises has nothing to do with this one
        else:
            raise UsageError("run_sync cannot be called where an event loop is running; use: await agent.run(...)")
        from .runtime.leaving import run  # not for programs that have a loop of their own

        return run(self.run(question, answer=answer, **options))

    def stream(
        self, question: str = "", *, resume: str | None = None, answer: Any = None, **options: Unpack[RunOptions]
    ) -> AbstractAsyncContextManager[Stream]:
        """Watch a run as it happens: `async with agent.stream("...") as events`, then `async for`; or one that
        goes on where it was left, with `resume=run_id` in place of a question.

        Leaving the block, however it is left, ends the run and waits until it is gone. At the end
        `events.result` holds the `Result`. Takes the same options as `run`.
        """
        check_run(question, options)
        run_id = resume or run_id_of(question, options)
        if resume is None and not options.get("chat") and not options.get("continue_run"):
            options["run_id"] = run_id
        stream = Stream(run_id, options.get("on_event"))

        def start() -> Awaitable[Result[Any]]:
            options["on_event"] = stream
            if resume is None:
                return self.run(question, answer=answer, **options)
            return self._drive(resume, None, None if answer is None else form_of(answer), options)

        return streamed(stream, start)

    def chat(self, run_id: str) -> Chat:
        """The conversation of this name, which need not have begun: `await agent.chat("ann").ask("Hello")`."""
        return Chat(self, run_id)

    def as_tool(self, name: str, description: str, **options: Any) -> Tool:
        """The agent as a tool of another, which gives it a task in words and reads its answer.

        Its run has a record of its own in the other's journal, is paid for from the other's limits, and goes
        on where it was left when the other is resumed. See subagents.py; `options` are those of `Tool`, and
        `deepest`, how many agents may work for each other at once.
        """
        return as_tool(self, name, description, **options)

    async def drive_for(
        self, task: str, run_id: str, outer: RunContext, emit: Emit, seconds: float | None
    ) -> Result[Any]:
        """A run of this agent for another's: what `as_tool` calls."""
        strange = outer.host is not None and outer.host.attempt.log.state.untrusted
        meta = self._driven(self._meta(started_for(outer), None))
        asked = Question(task, system=self._system({}), meta=meta, untrusted=strange)
        own = self.limits.seconds
        limits = replace(self.limits, seconds=min(filter(None, (own, seconds)), default=None))
        options = RunOptions(on_event=emit, deps=outer.deps, limits=limits, budget=children_budget(outer))
        return await self._drive(run_id, asked, None, options, outer)

    async def _drive(
        self,
        run_id: str,
        question: Question | None,
        form: AnswerSpec | None,
        options: ResumeOptions,
        outer: RunContext = NO_RUN,
    ) -> Result[Any]:
        emit = self._emitter(run_id, options.get("on_event"))
        host: Host | None = outer.memo.get("host")
        journal: Journal = host.journal if host else self.journal
        prices = self._prices or (host.prices if host else None)
        reviewer = (host.attempt.reviewer if host else None) or self.reviewer
        limits = options.get("limits")
        limits = self.limits if limits is None else completed(limits, self.tools, self.llm, prices)
        budget = options.get("budget")
        llm = self.llm if self._prices or prices is None else Priced(self.llm, prices)
        if budget is not None:
            llm = Budgeted(llm, budget, price_of(self._model, budget, prices))
        context = RunContext(run_id, options.get("deps"), outer.depth + 1 if host else 0)
        token = CURRENT.set(context)
        try:
            async with journal.open(run_id) as log:
                if isinstance(stream := options.get("on_event"), Stream):
                    stream.reads(log)
                attempt = Driver(log, llm, self.tools, limits, emit, reviewer)
                context.memo["host"] = Host(attempt, journal, prices, budget)
                if sets_aside(log.state, question):
                    request = CancelRequest("the person", "asked something else instead")
                    await close(log.state, attempt.record, request, for_good=True)
                opened = opening(run_id, log.state, question, self.examples)
                form = form or self._form_on_record(opened, log.state)
                attempt.wanted = Wanted(form, self.check) if form or self.check else None
                if opened:
                    await attempt.record(opened)
                    if isinstance(opened, RunContinued) and opened.system is not None:
                        emit(Notice("the system prompt is another one than this run began with; the new one is used"))
                outcome = await unless_cancelled(log, attempt.drive)
                return self._result(log, outcome.calls if isinstance(outcome, Hold) else (), form)
        except FatalError as error:
            error.run_id = run_id
            raise
        finally:
            CURRENT.reset(token)
            if budget is not None:
                budget.release(run_id)

    def _driven(self, meta: str) -> str:
        """With what drives the run: whoever finds its record later can tell whether it has the same tools."""
        try:
            own = json.loads(meta)
        except ValueError:
            return meta  # somebody set it to what it is not
        driver = {"agent": self.name, "origin": self.origin, "tools": digests(self.tools)}
        return json.dumps({**own, "driver": driver}, ensure_ascii=False) if isinstance(own, dict) else meta

    @staticmethod
    def _form_on_record(opened: RunStarted | RunContinued | None, state: State) -> AnswerSpec | None:
        """The form that an earlier attempt was asked for, where this one did not say."""
        schema = "" if opened else recorded_schema(state)
        return form_of(json.loads(schema)) if schema else None

    def _meta(self, given: Mapping[str, object] | None, budget: Budget | None) -> str:
        more = {**(given or {}), **({"budget": budget.name} if budget and budget.name else {})}
        return json.dumps(json.loads(self.meta) | more, ensure_ascii=False) if more else self.meta

    def _system(self, options: RunOptions) -> str | None:
        system = options.get("system", self.system)
        return system(options.get("deps")) if callable(system) else system

    def _result(self, log: RunLog, waiting: Sequence[Any], form: AnswerSpec | None) -> Result[Any]:
        state, ended, events = log.state, log.state.ended, tuple(log.state.events)
        return Result(
            answer=ended.answer if ended else "",
            reason=ended.reason if ended else "waiting",
            run_id=log.run_id,
            events=events[state.first :],
            steps=state.steps,
            tool_calls=state.tool_calls,
            cost=None if state.unpriced else state.cost,
            waiting=tuple(found for call in waiting for found in self._pending(log, call)),
            source=ended.source if ended else "model",
            untrusted=state.untrusted,
            run_events=events,
            form=form,
        )

    def _pending(self, log: RunLog, call: ToolCall) -> Sequence[PendingApproval]:
        """What has to be decided for this call to go on: itself, or what its sub-agent waits for."""
        inner: Sequence[PendingApproval] = CURRENT.get().memo.get(("waiting", call.id), ())
        return inner or [replace(approvals.pending(log.state, self.tools, call), run_id=log.run_id)]

    def _emitter(self, run_id: str, on_event: Subscriber | None) -> Emit:
        """One function that tells all subscribers. What they raise is theirs: it never ends a run."""
        subscribers = [s for s in (self.on_event, on_event) if s is not None]
        if logging.getLogger(f"{__package__}.logs").isEnabledFor(logging.INFO):
            from .logs import log_events

            subscribers.append(log_events(run_id))

        return notices.telling(subscribers, self.tools) if subscribers else _unwatched


def _unwatched(it: Event | Signal) -> None:
    if type(it) is RetryWaiting:
        notices.waiting(it)


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
