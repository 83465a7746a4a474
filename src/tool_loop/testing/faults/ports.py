"""The ports of an agent with faults in them: a model, tools, a journal.

Each asks `Faults` what strikes now and passes everything else through untouched, so that a run
without a fault is the same run. Knows nothing about what is planned.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from tool_loop.errors import UsageError
from tool_loop.events import ApprovalDecided, Event, ModelReplied, TextDelta, ToolCall, ToolReturned
from tool_loop.loop.approvals import previewed
from tool_loop.toolbox.registry import Tool, ToolRegistry

from .strike import Fault, ProcessDied, inject, inject_in_thread

if TYPE_CHECKING:
    from tool_loop.ports import (
        LLM,
        Effect,
        Emit,
        Journal,
        PendingApproval,
        Preview,
        Request,
        Reviewer,
        RunLog,
        Tools,
        ToolSpec,
    )
    from tool_loop.state import State

    from .schedule import Faults

# The fault of the call that runs in this task or, as a copy of its context, on this thread.
_DUE: ContextVar[Fault | None] = ContextVar("due", default=None)


# --- the model ------------------------------------------------------------------------------------


class FaultyLLM:
    """A model with faults. A fault in place of a reply leaves the model unasked: it was never reached."""

    def __init__(self, llm: LLM, faults: Faults) -> None:
        self.llm = llm
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "llm":
            raise AttributeError(name)
        return getattr(self.llm, name)  # what an agent wants to know of its model: its name, its origin

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        fault = self._faults.due("model", self._faults.step(request.key))
        if fault is not None and not (request.may_call or fault.last_word):
            self._faults.missed(fault)
            fault = None
        if fault is None:
            return await self.llm.reply(request, emit)
        if fault.wire and not (fault.error or fault.seconds or fault.then):
            raise UsageError(f"{fault} is a fault of the wire alone: inject it with faults.server(...)")
        for piece in fault.pieces:
            emit(TextDelta(piece))
        return await inject(fault, partial(self.llm.reply, request, emit), self._faults)


# --- tools ----------------------------------------------------------------------------------------


def faulty_tools(tools: Iterable[Tool | Callable[..., Any]] | Tools, faults: Faults) -> Tools:
    if type(tools) is ToolRegistry:
        return FaultyRegistry(tools, faults)
    if hasattr(tools, "specs"):
        return FaultyTools(cast("Tools", tools), faults)
    return FaultyRegistry(ToolRegistry(cast("Iterable[Tool]", tools)), faults)


class FaultyRegistry(ToolRegistry):
    """A registry whose functions have faults: what becomes of one is up to the registry's own code.

    Calls are counted when they are given to the registry, so the count does not depend on which
    thread is faster.
    """

    def __init__(self, registry: ToolRegistry, faults: Faults) -> None:
        super().__init__(
            [_faulty(item, faults) for item in registry],
            approve=registry.approve,
            scope=registry.scope,
        )
        self._faults = faults

    async def run(self, call: ToolCall, **given: Any) -> ToolReturned:
        if self.refuse(call) is not None:
            return await super().run(call, **given)
        nth = self._faults.next("tool", call.name)
        token = _DUE.set(self._faults.due("tool", nth, call.name))
        try:
            return await super().run(call, **given)
        finally:
            _DUE.reset(token)


def _faulty(item: Tool, faults: Faults) -> Tool:
    """The tool with a fault in its function; schema, policy and everything else are the tool's own."""
    return item.with_func((_struck if item.is_async else _struck_in_thread)(item.func, faults))


def _struck(func: Callable[..., Any], faults: Faults) -> Callable[..., Any]:
    @functools.wraps(func)
    async def call(**arguments: Any) -> Any:
        fault, real = _DUE.get(), partial(func, **arguments)
        return await (real() if fault is None else inject(fault, real, faults))

    return call


def _struck_in_thread(func: Callable[..., Any], faults: Faults) -> Callable[..., Any]:
    @functools.wraps(func)
    def call(**arguments: Any) -> Any:
        fault, real = _DUE.get(), partial(func, **arguments)
        return real() if fault is None else inject_in_thread(fault, real, faults)

    return call


class FaultyTools:
    """A `Tools` port of somebody's own with faults around its `run`."""

    def __init__(self, tools: Tools, faults: Faults) -> None:
        self.tools = tools
        self._faults = faults

    def specs(self) -> tuple[ToolSpec, ...]:
        return self.tools.specs()

    def effect(self, name: str) -> Effect | None:
        return self.tools.effect(name)

    def polls(self, name: str) -> bool:
        return self.tools.polls(name)

    def needs_approval(self, call: ToolCall) -> bool:
        return self.tools.needs_approval(call)

    def fingerprint(self, call: ToolCall, preview: Preview | None = None) -> str:
        return self.tools.fingerprint(call, preview) if preview else self.tools.fingerprint(call)

    def preview(self, call: ToolCall) -> Preview | None:
        return previewed(self.tools, call)

    def refuse(self, call: ToolCall) -> ToolReturned | None:
        return self.tools.refuse(call)

    async def probe(self, call: ToolCall, **given: Any) -> ToolReturned | bool | None:
        return await self.tools.probe(call, **given)

    async def run(self, call: ToolCall, **given: Any) -> ToolReturned:
        real = partial(self.tools.run, call, **given)
        if self.refuse(call) is not None:
            return await real()
        nth = self._faults.next("tool", call.name)
        fault = self._faults.due("tool", nth, call.name)
        return await real() if fault is None else await self._struck(fault, call, real, given)

    async def _struck(
        self, fault: Fault, call: ToolCall, real: Callable[[], Any], given: dict[str, Any]
    ) -> ToolReturned:
        """The fault happens in a function of ours, so that it becomes a result as any tool's does."""
        landed: list[ToolReturned] = []

        async def run() -> Any:
            landed.append(await real())
            return landed[0].content

        stage = Tool(call.name, "", _ANYTHING, partial(inject, fault, run, self._faults))
        result = await ToolRegistry([stage]).run(replace(call, arguments="{}"), **given)
        whole = landed and result.error is None and result.content == landed[0].content
        return landed[0] if whole else result


_ANYTHING = {"type": "object", "properties": {}}


# --- a person -------------------------------------------------------------------------------------


def faulty_reviewer(reviewer: Reviewer, faults: Faults) -> Reviewer:
    async def review(shown: PendingApproval) -> ApprovalDecided:
        fault = faults.due("review", faults.next("review"))
        real = partial(reviewer, shown)
        return await (real() if fault is None else inject(fault, real, faults))

    return review


# --- the journal ----------------------------------------------------------------------------------


class FaultyJournal:
    """A journal with faults. A process that died can write nothing, until a run is opened anew."""

    def __init__(self, journal: Journal, faults: Faults) -> None:
        self.journal = journal
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "journal":
            raise AttributeError(name)
        return getattr(self.journal, name)  # runs, records, close: whatever else this journal has

    @asynccontextmanager
    async def open(self, run_id: str) -> AsyncIterator[FaultyLog]:
        self._faults.dead = False
        fault = self._faults.due("open", self._faults.next("open"))
        if fault is not None:
            await inject(fault, _nothing, self._faults)
        async with self.journal.open(run_id) as log:
            yield FaultyLog(log, self._faults)

    def events(self, run_id: str) -> Sequence[Event]:
        return self.journal.events(run_id)

    async def decide(self, run_id: str, call_id: str, **said: Any) -> ApprovalDecided:
        return await self.journal.decide(run_id, call_id, **said)


async def _nothing() -> None:
    """What opening a run does before it is opened."""


class FaultyLog:
    """One run of such a journal."""

    def __init__(self, log: RunLog, faults: Faults) -> None:
        self.log = log
        self.run_id = log.run_id
        self.state: State = log.state
        self._faults = faults

    async def append(self, event: Event) -> None:
        faults, kind = self._faults, type(event).__name__
        if faults.dead:
            raise ProcessDied
        nth, by_name = faults.next("append"), faults.next("append", kind)
        fault = faults.due("append", nth, kind, by_name=by_name)
        if fault is None:
            await self.log.append(event)
            return
        await inject(fault, partial(self.log.append, event), faults)
