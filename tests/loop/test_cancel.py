"""Cancelled at any turn of the event loop, a run leaves a valid history and nothing running."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from tests.kit.runs import QUESTION, calls, log_of, of, says
from tool_loop import Agent, MemoryJournal, ScriptedLLM, ToolCall, ToolRegistry, tool
from tool_loop.agent import Driver
from tool_loop.events import Event, ModelReplied, RunEnded, RunInterrupted, TextDelta, ToolReturned
from tool_loop.journal.memory import MemoryLog
from tool_loop.limits import Limits
from tool_loop.ports import Emit, Request
from tool_loop.runtime.clock import VirtualLoop, run_virtual
from tool_loop.state import State

TURNS = 160


class Slow(MemoryLog):
    """A log whose writes take a few turns of the event loop, as a disk does."""

    def __init__(self) -> None:
        super().__init__("run", lambda: 0.0)
        self.state.apply(QUESTION)

    async def append(self, event: Event) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        await super().append(event)


class Model:
    """Answers by what is on record, so that a resumed run gets the reply that is due; streams slowly."""

    def __init__(self) -> None:
        self.paid = 0

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        step = sum(1 for m in request.transcript.messages if getattr(m, "calls", None))
        for word in ("thinking", "about", "it"):
            emit(TextDelta(word))
            await asyncio.sleep(0)
        self.paid += 1
        wanted = [calls(("a", "read"), ("b", "read"), text="x"), calls(("c", "pay")), says("done")]
        return wanted[min(step, 2)]


def tools_counting(ran: list[str]) -> ToolRegistry:
    @tool(effect="read")
    async def read() -> str:
        """Read."""
        await asyncio.sleep(0)
        return f"read {len(ran)}"

    @tool(effect="once")
    async def pay() -> str:
        """Pay."""
        ran.append("pay")
        await asyncio.sleep(0)
        return "paid"

    return ToolRegistry([read, pay])


@pytest.mark.parametrize("turns", range(TURNS))
def test_cancelled_at_any_turn_the_history_is_valid_and_the_run_resumes(turns: int) -> None:
    ran: list[str] = []
    tools, log, model = tools_counting(ran), Slow(), Model()

    async def main() -> RunEnded | object:
        shown: list[object] = []
        task = asyncio.ensure_future(Driver(log, model, tools, Limits(), shown.append).drive())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        assert len(asyncio.all_tasks()) == 1, "something still runs"
        assert not log.state.pending, "a call was left open"
        assert [e for e in shown if e in log.state.events] == log.state.events[1:], "shown and recorded differ"
        return await Driver(log, model, tools, Limits(), shown.append).drive()

    assert run_virtual(main()) == RunEnded("answered", "done")
    results = of(ToolReturned, log.state.events)
    asked = [c.id for r in of(ModelReplied, log.state.events) for c in r.calls]
    assert sorted(r.call_id for r in results) == sorted(asked)
    assert model.paid == len(of(ModelReplied, log.state.events)), "a reply was paid for and lost"
    # `pay` may run again only where the model was told that it had been cancelled, and asked for it again.
    done = [r for r in results if r.content == "paid"]
    assert len(ran) == len(done)


def test_the_turns_above_reach_past_the_end_of_the_run() -> None:
    tools, log = tools_counting([]), Slow()
    loop = VirtualLoop()
    count = 0

    async def main() -> None:
        nonlocal count
        task = asyncio.ensure_future(Driver(log, Model(), tools, Limits(), lambda _: None).drive())
        while not task.done():
            count += 1
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
    assert 60 < count < TURNS


def cancel_while(started: asyncio.Event, log: MemoryLog, tools: ToolRegistry) -> Callable[[], object]:
    async def main() -> float:
        script = ScriptedLLM(calls(("1", "work")))
        task = asyncio.ensure_future(Driver(log, script, tools, Limits(), lambda _: None).drive())
        await started.wait()
        before = asyncio.get_running_loop().time()
        task.cancel()
        await asyncio.wait({task})
        return asyncio.get_running_loop().time() - before

    return main


def test_a_once_call_that_lands_within_the_grace_is_on_record() -> None:
    log = log_of()
    started = asyncio.Event()

    @tool(effect="once")
    async def work() -> str:
        """Work."""
        started.set()
        await asyncio.sleep(Limits().grace_seconds / 2)
        return "landed"

    run_virtual(cancel_while(started, log, ToolRegistry([work]))())

    assert [(r.content, r.error) for r in of(ToolReturned, log.state.events)] == [("landed", None)]
    assert of(RunInterrupted, log.state.events) == [RunInterrupted("cancelled")]


@pytest.mark.parametrize(("effect", "errors"), [("once", []), ("read", ["cancelled"])])
def test_of_a_call_that_does_not_land_nothing_is_said_that_nobody_knows(effect: str, errors: list[str]) -> None:
    log = log_of()
    started = asyncio.Event()

    @tool(effect=effect)  # type: ignore[arg-type]
    async def work() -> str:
        """Work."""
        started.set()
        await asyncio.Event().wait()
        return ""

    took = run_virtual(cancel_while(started, log, ToolRegistry([work]))())

    assert [r.error for r in of(ToolReturned, log.state.events)] == errors
    assert took <= 2


def test_calls_that_were_not_started_are_cancelled_and_not_in_doubt() -> None:
    log = log_of()
    started = asyncio.Event()

    @tool(effect="once")
    async def work(n: int) -> str:
        """Work."""
        started.set()
        await asyncio.Event().wait()
        return ""

    async def main() -> None:
        script = ScriptedLLM(calls(("1", "work", '{"n": 1}'), ("2", "work", '{"n": 2}')))
        task = asyncio.ensure_future(Driver(log, script, ToolRegistry([work]), Limits(), lambda _: None).drive())
        await started.wait()
        task.cancel()
        await asyncio.wait({task})

    run_virtual(main())

    assert [(r.call_id, r.error) for r in of(ToolReturned, log.state.events)] == [("2", "cancelled")]
    assert log.state.adrift == {"1"}


Finding = Callable[[], object]
FINDINGS: dict[str, tuple[Finding | None, list[tuple[str, str | None]]]] = {
    "the probe knows the result": (lambda: "found: paid", [("found: paid", None)]),
    "the probe knows that it did not happen": (lambda: False, [("paid the 2nd time", None)]),
    "the probe cannot tell": (lambda: None, [("may or may not have happened", "outcome_unknown")]),
    "there is no probe": (None, [("may or may not have happened", "outcome_unknown")]),
}


@pytest.mark.parametrize("finding", FINDINGS)
@pytest.mark.parametrize("how", ["cancelled", "timed out"])
def test_a_call_that_was_interrupted_is_looked_into_by_the_next_attempt_as_after_a_crash(
    how: str, finding: str
) -> None:
    found, expected = FINDINGS[finding]
    journal, starts = MemoryJournal(), []

    @tool(effect="once")
    async def pay() -> str:
        """Pay."""
        starts.append("pay")
        if len(starts) == 1:
            await asyncio.Event().wait()
        return f"paid the {len(starts)}nd time"

    if found is not None:
        pay.probe(found)

    async def main() -> None:
        agent = Agent(ScriptedLLM(ToolCall("1", "pay"), "done"), [pay], journal=journal, limits=Limits(grace_seconds=3))
        began = asyncio.get_running_loop().time()
        running = asyncio.ensure_future(agent.run("q", run_id="r"))
        if how == "timed out":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(running, 5)
        else:
            await asyncio.sleep(5)
            running.cancel()
            await asyncio.wait({running})
        assert asyncio.get_running_loop().time() - began == pytest.approx(8), "the grace is a setting"
        assert of(ToolReturned, journal.events("r")) == []
        assert (await agent.resume("r")).answer == "done"

    run_virtual(main())

    results = of(ToolReturned, journal.events("r"))
    assert [r.error for r in results] == [error for _, error in expected]
    assert all(text in r.content for r, (text, _) in zip(results, expected, strict=True))


def test_a_call_in_doubt_stays_in_doubt_through_a_second_interruption() -> None:
    journal, probes = MemoryJournal(), []

    @tool(effect="once")
    async def pay() -> str:
        """Pay."""
        await asyncio.Event().wait()
        return ""

    @pay.probe
    async def paid() -> str:
        probes.append(1)
        if len(probes) == 1:
            await asyncio.Event().wait()
        return "paid"

    async def main() -> None:
        agent = Agent(ScriptedLLM(ToolCall("1", "pay"), "done"), [pay], journal=journal)
        for attempt in (agent.run("q", run_id="r"), agent.resume("r")):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(attempt, 5)
        assert (await agent.resume("r")).answer == "done"

    run_virtual(main())

    assert [r.content for r in of(ToolReturned, journal.events("r"))] == ["paid"]


def test_a_call_that_still_runs_here_is_not_started_again_whatever_its_probe_says() -> None:
    """A crash stops a thread, and a cancel does not: an attempt of the same process may find it at work."""
    journal, starts, go = MemoryJournal(), [], threading.Event()

    @tool(effect="once")
    def pay() -> str:
        """Pay."""
        starts.append("pay")
        go.wait(30)
        return "paid"

    pay.probe(lambda: False)

    async def main() -> None:
        limits = Limits(grace_seconds=0.05)
        agent = Agent(ScriptedLLM(ToolCall("1", "pay"), "done"), [pay], journal=journal, limits=limits)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(agent.run("q", run_id="r"), 0.1)
        assert (await agent.resume("r")).answer == "done"

    try:
        asyncio.run(main())
    finally:
        go.set()

    assert starts == ["pay"]
    assert [r.error for r in of(ToolReturned, journal.events("r"))] == ["outcome_unknown"]


@pytest.mark.parametrize(("found", "content"), [("found: paid", "found: paid"), (None, "ran past its limit")])
def test_a_call_whose_time_is_up_is_asked_about_where_a_probe_can_tell(found: str | None, content: str) -> None:
    @tool(effect="once", timeout_seconds=2)
    async def pay() -> str:
        """Pay."""
        await asyncio.Event().wait()
        return ""

    pay.probe(lambda: found)

    result = run_virtual(Agent(ScriptedLLM(ToolCall("1", "pay"), "done"), [pay]).run("q"))

    assert [content in r.content for r in of(ToolReturned, result.events)] == [True]


def test_after_a_cancel_the_same_agent_can_resume() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        asked = asyncio.Event()

        async def first(_request: object) -> str:
            asked.set()
            await asyncio.Event().wait()
            return ""

        agent = Agent(ScriptedLLM(first, "done"), journal=journal)
        task = asyncio.ensure_future(agent.run("q", run_id="r"))
        await asked.wait()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        assert (await agent.resume("r")).answer == "done"

    run_virtual(main())


def test_leaving_a_stream_early_ends_the_run() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        agent = Agent(ScriptedLLM(says("a b c"), pieces=1), journal=journal)
        async with agent.stream("q", run_id="r") as events:
            async for _ in events:
                break
        assert len(asyncio.all_tasks()) == 1
        assert events.result is None
        assert State.of(journal.events("r")).ended is None

    run_virtual(main())


def test_a_stream_shows_text_then_events_and_holds_the_result() -> None:
    async def main() -> None:
        agent = Agent(ScriptedLLM(says("a b"), pieces=2))
        async with agent.stream("q") as events:
            seen = [type(e).__name__ async for e in events]
            again = [e async for e in events]
        assert seen == ["RunStarted", "ModelAsked", "TextDelta", "TextDelta", "ModelReplied", "RunEnded"]
        assert again == []
        assert events.result is not None
        assert events.result.answer == "a b"

    run_virtual(main())


def test_an_error_of_the_run_and_one_of_the_reader_come_out_of_a_stream_unwrapped() -> None:
    async def main() -> None:
        agent = Agent(ScriptedLLM(KeyError("theirs"), says("a b c")), retry=None)
        with pytest.raises(KeyError, match="theirs"):
            async with agent.stream("q") as events:
                async for _ in events:
                    pass
        with pytest.raises(ValueError, match="mine"):
            async with agent.stream("q") as events:
                async for _ in events:
                    raise ValueError("mine")

    run_virtual(main())
