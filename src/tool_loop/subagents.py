"""An agent as a tool of another: its run is a run like any other, under the key of the call that asked for it.

    parent run r1 -- call 0, key r1-0-5f3a... -- child run r1-0-5f3a..., in the same journal

So nothing of a child has to be remembered by its parent. When the process dies, or the run is cancelled, the
call is found without a result, runs again under the same key as any idempotent call does, and that drives the
child's run on from its own record: what it must not do twice is guarded there, and what was paid for is not
paid for again. Cancel goes down and approvals come up: a child that waits for a person is a parent that waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from .budget import Budget
from .errors import FatalError, ToolError
from .events import ApprovalRequest, ApprovalRequested, Event, Inner, Signal
from .result import Result
from .runtime.context import CURRENT, RunContext
from .state import State
from .toolbox.registry import Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from .agent import Driver
    from .llm.prices import Prices
    from .ports import Emit, Journal, PendingApproval

# An agent that asks an agent that asks an agent: nobody has needed more, and one that asks itself never ends.
DEEPEST: Final = 3


@dataclass(frozen=True, slots=True)
class Host:
    """The run that a sub-agent works for: what it is driven with."""

    attempt: Driver
    journal: Journal
    prices: Prices | None = None
    budget: Budget | None = None


class Driven(Protocol):
    """The part of `Agent` that is needed to drive a run of it for another."""

    async def drive_for(self, task: str, run_id: str, outer: RunContext, emit: Emit, seconds: float | None) -> Result:
        """The run of that id, started or driven on, with the journal, the reviewer and the budget of `outer`."""
        ...


def as_tool(agent: Driven, name: str, description: str, *, deepest: int = DEEPEST, **options: Any) -> Tool:
    """The agent as a tool that takes a task in words and returns the agent's answer.

    `deepest` is how many agents may be working for each other at once, the outermost counted. The other
    options are those of `Tool`.
    """

    async def delegate(task: str, ctx: ToolContext[Any]) -> ToolResult:
        outer = CURRENT.get()
        if outer.host is None:
            raise ToolError("a sub-agent works for a run, and this call belongs to none")
        if outer.depth + 1 >= deepest:
            message = f"not run: agents may ask each other {deepest} deep, and do"
            raise ToolError(message, kind="limit_reached", hint="do it yourself")
        return await _Delegation(agent, outer, ctx).result(task)

    return Tool(name, description, None, delegate, effect="idempotent", timeout_seconds=None, **options)


class _Delegation:
    """One call of a sub-agent."""

    def __init__(self, agent: Driven, outer: RunContext, ctx: ToolContext[Any]) -> None:
        self.agent = agent
        self.outer = outer
        self.call_id = ctx.call_id
        self.run_id = ctx.idempotency_key
        self.attempt: Driver = outer.host.attempt

    async def result(self, task: str) -> ToolResult:
        # Until it is over, its own record tells how far it got: an interrupted call has no result then.
        self.attempt.adrift.add(self.call_id)
        until = self.attempt.until()
        left = None if until is None else max(0.05, until - self.attempt.now())
        try:
            result = await self.agent.drive_for(task, self.run_id, self.outer, self._emit, left)
        except FatalError as error:
            # Not data for a model: an expired key is mended by a person, and then the same call goes on.
            self.outer.memo["fatal", self.call_id] = error
            raise
        if result.reason == "waiting":
            await self._wait(result.waiting)
        self.attempt.adrift.discard(self.call_id)
        state = State.of(result.run_events)
        note = "" if result.reason == "answered" else f"[it was stopped: {result.reason}]\n"
        cost = None if state.unpriced else state.cost
        return ToolResult(note + result.answer, tokens=state.spent, cost=cost, untrusted=result.untrusted)

    def _emit(self, happening: Event | Signal) -> None:
        self.attempt.emit(Inner(self.call_id, self.run_id, happening))

    async def _wait(self, waiting: tuple[PendingApproval, ...]) -> None:
        self.outer.memo["waiting", self.call_id] = waiting
        call = self.attempt.log.state.pending[self.call_id]
        request = ApprovalRequest(self.call_id, self.attempt.tools.fingerprint(call), "inner", inner=self.run_id)
        await self.attempt.record(ApprovalRequested((request,)))
        raise ToolError("it waits for a person", kind="waiting")


def children_budget(outer: RunContext) -> Budget | None:
    """What the children of a run may spend: what it has left, shared by those that work at the same time.

    Made when the first of them starts, and the same for all of this attempt.
    """
    budget: Budget | None = outer.memo.get("children")
    host, limits, state = outer.host, outer.host.attempt.limits, outer.host.attempt.log.state
    if budget is None:
        tokens = None if limits.tokens is None else max(1, limits.tokens - state.spent - state.context)
        usd = None if limits.usd is None else max(1e-9, limits.usd - state.cost)
        budget = Budget(tokens=tokens, usd=usd, within=host.budget)
        outer.memo["children"] = budget
    return budget


def started_for(outer: RunContext) -> dict[str, object]:
    """What a child's run records of whom it works for."""
    return {"parent": outer.run_id}


def children_of(journal: Any, run_id: str) -> list[str]:
    """The runs that were started for this one, as their records say, oldest first."""
    return [run.id for run in reversed(journal.runs(meta={"parent": run_id}))]
