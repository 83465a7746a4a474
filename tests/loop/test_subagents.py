"""An agent as a tool of another: one effect per call over every crash, one purse, cancel down and approvals up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tool_loop import Agent, Limits, MemoryJournal, Request, ScriptedLLM, ToolCall, ToolContext, Usage, tool
from tool_loop.audit.invariants import check
from tool_loop.errors import FatalError, ProviderError, UsageError
from tool_loop.events import ApprovalDecided, Inner, RunEnded, ToolReturned
from tool_loop.state import State
from tool_loop.subagents import children_of
from tool_loop.transcript import ToolMessage

COST = Usage(100, 20)


def model(*turns: Any, replies: int = 30) -> ScriptedLLM:
    """Goes by what is on record, so that it says the same after a restart."""

    def turn(request: Request) -> Any:
        done = sum(isinstance(message, ToolMessage) for message in request.transcript.messages)
        said = turns[min(done, len(turns) - 1)]
        return said(request) if callable(said) else said

    return ScriptedLLM(*[turn] * replies, usage=COST)


def ask(call_id: str, task: str) -> ToolCall:
    return ToolCall(call_id, "worker", json.dumps({"task": task}))


def parent_of(child: Agent, *turns: Any, **options: Any) -> Agent:
    return Agent(model(*turns), [child.as_tool("worker", "Does things.")], **options)


class Ledger:
    """What really happened, outside of any journal."""

    def __init__(self) -> None:
        self.done: list[str] = []
        ledger = self

        @tool(effect="once")
        async def pay(amount: int, ctx: ToolContext[str]) -> str:
            """Pay."""
            ledger.done.append(f"pay {amount} for {ctx.deps}")
            return f"paid {amount}"

        @tool(effect="once", needs_approval=True)
        def ship(what: str) -> str:
            """Ship."""
            ledger.done.append(f"ship {what}")
            return f"shipped {what}"

        self.pay, self.ship = pay, ship

    def can_tell(self) -> None:
        """Give `pay` a probe: the ledger is the truth."""

        @self.pay.probe
        def paid() -> Any:
            return "paid 1" if self.done else False


PAY = ToolCall("c", "pay", '{"amount": 1}')
SHIP = ToolCall("c", "ship", '{"what": "x"}')


def results(result: Any) -> list[str]:
    return [event.content for event in result.events if isinstance(event, ToolReturned)]


def test_a_child_has_a_run_of_its_own_in_the_journal_and_the_data_of_its_parent() -> None:
    ledger, journal, seen = Ledger(), MemoryJournal(), list[Any]()
    child = Agent(model(PAY, "I paid."), [ledger.pay])

    result = parent_of(child, [ask("1", "pay")], "all done", journal=journal, on_event=seen.append).run_sync(
        "go", run_id="r", deps="ann"
    )

    assert (result.answer, results(result), ledger.done) == ("all done", ["I paid."], ["pay 1 for ann"])
    (inner,) = children_of(journal, "r")
    assert journal.events(inner)[-1] == RunEnded("answered", "I paid.")
    nested = [event for event in seen if isinstance(event, Inner)]
    assert {event.call_id for event in nested} == {"1"}
    assert any(isinstance(event.happening, RunEnded) for event in nested)


def test_what_a_child_spends_its_parent_pays_for() -> None:
    child = Agent(model(PAY, "I paid."), [Ledger().pay])

    result = parent_of(child, [ask("1", "pay")], "done").run_sync("go")

    assert State.of(result.events).spent == 4 * 120


@pytest.mark.parametrize("children", [1, 2, 4])
def test_children_at_work_together_keep_within_what_their_parent_has_left(children: int) -> None:
    @tool(effect="read")
    async def look(n: int) -> str:
        """Look."""
        await asyncio.sleep(0)
        return str(n)

    def endless(request: Request) -> Any:
        n = len(request.transcript.messages)
        return ToolCall(f"l{n}", "look", json.dumps({"n": n})) if request.may_call else "stopped"

    child = Agent(ScriptedLLM(*[endless] * 900, usage=COST), [look], limits=Limits(steps=200))
    asks = [ask(str(n), f"look {n}") for n in range(children)]

    result = parent_of(child, asks, "ok", limits=Limits(tokens=20_000)).run_sync("go")

    spent = State.of(result.events).spent
    assert 5_000 < spent <= 20_000 + children * 120
    assert result.answer


def test_a_child_that_waits_for_a_person_is_a_parent_that_waits() -> None:
    ledger, journal = Ledger(), MemoryJournal()
    child = Agent(model(SHIP, "Shipped."), [ledger.ship])
    parent = parent_of(child, [ask("1", "ship"), ask("2", "ship more")], "ok", journal=journal)

    async def run() -> Any:
        first = await parent.run("go", run_id="r")
        again = await parent.resume("r")
        with pytest.raises(UsageError, match="waits for its sub-agent"):
            await journal.decide("r", "1", allow=True)
        for n, pending in enumerate(again.waiting):
            await journal.decide(pending.run_id, pending.call.id, allow=n == 0, note="too dear")
        return first, again, await parent.resume("r")

    first, again, ended = asyncio.run(run())

    assert (first.reason, again.reason) == ("waiting", "waiting")
    assert [pending.call.name for pending in again.waiting] == ["ship", "ship"]
    assert {pending.run_id for pending in again.waiting} == set(children_of(journal, "r"))
    assert (ended.answer, ledger.done) == ("ok", ["ship x"])


def test_the_reviewer_of_the_parent_is_asked_about_the_calls_of_its_child() -> None:
    ledger, asked = Ledger(), list[str]()

    async def reviewer(pending: Any) -> ApprovalDecided:
        asked.append(pending.call.arguments)
        return ApprovalDecided(pending.call.id, allowed=True)

    child = Agent(model(SHIP, "Shipped."), [ledger.ship])
    result = parent_of(child, [ask("1", "ship")], "ok", reviewer=reviewer).run_sync("go")

    assert (result.answer, asked, ledger.done) == ("ok", [SHIP.arguments], ["ship x"])


def test_a_cancel_goes_down_and_a_resume_goes_on_where_the_child_was() -> None:
    done, journal = list[str](), MemoryJournal()

    async def run() -> tuple[list[str], Any]:
        begun = asyncio.Event()

        @tool(effect="read")
        async def slow() -> str:
            """Take long, the first time."""
            done.append("begun")
            begun.set()
            if len(done) == 1:
                await asyncio.sleep(60)
            return "looked"

        child = Agent(model(ToolCall("c", "slow", "{}"), "Looked."), [slow])
        parent = parent_of(child, [ask("1", "look")], "ok", journal=journal)
        running = asyncio.ensure_future(parent.run("go", run_id="r"))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        states = [run.state for run in journal.runs()]
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
        return states, await parent.resume("r")

    states, resumed = asyncio.run(run())

    assert states == ["interrupted", "interrupted"]
    assert (resumed.answer, results(resumed)) == ("ok", ["Looked."])


def test_an_error_that_a_person_has_to_mend_ends_the_attempt_and_not_the_call() -> None:
    ledger, journal = Ledger(), MemoryJournal()
    bad = Agent(ScriptedLLM(PAY, ProviderError("the key expired", kind="auth"), usage=COST), [ledger.pay])
    with pytest.raises(FatalError, match="expired"):
        parent_of(bad, [ask("1", "pay")], "ok", journal=journal).run_sync("go", run_id="r")

    good = Agent(model(PAY, "Paid."), [ledger.pay])
    resumed = asyncio.run(parent_of(good, [ask("1", "pay")], "ok", journal=journal).resume("r"))

    assert (resumed.answer, ledger.done) == ("ok", ["pay 1 for None"])


def test_agents_ask_each_other_three_deep_and_no_deeper() -> None:
    deep = Agent(model("deep"), [])
    two = Agent(
        model([ask("x", "deeper")], lambda q: f"two: {q.transcript.messages[-1].content}"),
        [deep.as_tool("worker", "W")],
    )
    one = Agent(
        model([ask("x", "deep")], lambda q: f"one: {q.transcript.messages[-1].content}"), [two.as_tool("worker", "W")]
    )

    result = parent_of(one, [ask("1", "t")], lambda q: q.transcript.messages[-1].content).run_sync("go")

    assert "agents may ask each other 3 deep" in result.answer


def test_a_sub_agent_outside_of_a_run_is_an_error_and_no_run() -> None:
    from tool_loop import ToolRegistry

    registry = ToolRegistry([Agent(model("x")).as_tool("worker", "W")])

    assert asyncio.run(registry.run(ask("1", "t"))).error == "tool_failed"


class Died(BaseException):
    """The process is gone."""


class DyingJournal(MemoryJournal):
    """Dies right before, or right after, the n-th record of all its runs: a dead process writes no more."""

    def __init__(self, at: int, *, before: bool) -> None:
        super().__init__()
        self.at, self.before, self.written, self.dead = at, before, 0, False

    def open(self, run_id: str) -> Any:
        opened, journal = super().open(run_id), self

        class Opened:
            async def __aenter__(self) -> Any:
                log = await opened.__aenter__()
                append = log.append

                async def dying(event: Any) -> None:
                    journal.written += 1
                    journal.dead |= journal.written == journal.at
                    if journal.dead and (journal.before or journal.written != journal.at):
                        raise Died
                    await append(event)
                    if journal.dead:
                        raise Died

                return Wrapped(log, dying)

            async def __aexit__(self, *how: object) -> Any:
                return await opened.__aexit__(*how)

        return Opened()


class Wrapped:
    def __init__(self, log: Any, append: Callable[[Any], Any]) -> None:
        self._log = log
        self.append = append

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


@pytest.mark.parametrize("before", [True, False])
def test_killed_at_every_write_of_parent_and_child_nothing_is_done_twice(before: bool) -> None:
    """As a process that dies would leave it: what was in doubt is looked into, by a probe that knows."""
    for at in range(1, 60):
        ledger, journal = Ledger(), DyingJournal(at, before=before)

        ledger.can_tell()
        child = Agent(model(PAY, "I paid."), [ledger.pay])
        parent = parent_of(child, [ask("1", "pay")], "all done", journal=journal)
        try:
            result = parent.run_sync("go", run_id="r")
        except Died:
            journal.dead = False
            result = parent.run_sync("go", run_id="r")

        assert (result.answer, len(ledger.done)) == ("all done", 1), at
        for run in journal.runs():
            assert not check(journal.events(run.id)), at
        if journal.written < at:
            return
    raise AssertionError("the run never ended without a crash")
