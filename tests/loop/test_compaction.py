"""Long runs fit their window: what the model sees is shortened, what is on record is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.kit.runs import QUESTION, calls, drive, log_of, of, says
from tool_loop import Agent, Limits, MemoryJournal, ProviderError, ScriptedLLM, ToolRegistry, tool
from tool_loop.events import (
    Compacted,
    ModelReplied,
    Retry,
    RetryWaiting,
    RunEnded,
    RunResumed,
    RunStarted,
    TextDelta,
    ToolReturned,
    Usage,
)
from tool_loop.llm.scripted import Sent
from tool_loop.loop.compaction import KEEP_TURNS, CompactionPlan, plan
from tool_loop.ports import Emit, Request
from tool_loop.runtime.clock import run_virtual
from tool_loop.state import State
from tool_loop.transcript import SUMMARISE, AssistantMessage, ToolMessage, UserMessage


@tool(effect="read")
async def read(n: int) -> str:
    """Read."""
    return f"{n}: " + "word " * 800


@tool(effect="read", name="read")
async def read_short(n: int) -> str:
    """Read."""
    return f"{n}: short"


TOOLS = ToolRegistry([read])
# Results that are not worth a stub, so that only a summary helps.
SHORT = ToolRegistry([read_short])


def turn(n: int, tokens: int = 0) -> ModelReplied:
    return calls((f"c{n}", "read", f'{{"n": {n}}}'), usage=Usage(tokens or 1000 * n, 10))


def events(turns: int, size: int = 4000) -> list:
    found: list = [QUESTION]
    for n in range(1, turns + 1):
        found += [turn(n), ToolReturned(f"c{n}", "x" * size)]
    return found


class Counting:
    """A model that really counts: the tokens it reports follow from what it was sent."""

    def __init__(self, steps: int, window: int) -> None:
        self.steps, self.window, self.seen, self.biggest = steps, window, 0, 0

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        size = request.transcript.chars // 4 + 100
        self.biggest = max(self.biggest, size)
        if size > self.window:
            raise ProviderError("too long", kind="context_length", window=self.window)
        usage = Usage(size, 20)
        if request.transcript.messages[-1] == UserMessage(SUMMARISE):
            return ModelReplied("read the first files", usage=usage)
        self.seen += 1
        if self.seen > self.steps:
            return ModelReplied("done", usage=usage)
        return replace(turn(self.seen), usage=usage)


def test_a_run_of_many_times_its_window_completes_inside_it() -> None:
    llm = Counting(60, 8_000)
    result = run_virtual(Agent(llm, [read], limits=Limits(steps=100, tokens=None, window=8_000)).run("q"))

    assert (result.answer, result.reason) == ("done", "answered")
    assert llm.biggest <= 8_000
    assert len(of(ToolReturned, result.events)) == 60
    assert all(len(r.content) > 3000 for r in of(ToolReturned, result.events)), "the journal keeps everything"


def test_a_window_that_only_the_provider_knows_is_learnt_from_its_refusal() -> None:
    llm = Counting(30, 8_000)
    result = run_virtual(Agent(llm, [read], limits=Limits(steps=100, tokens=None)).run("q"))

    assert (result.answer, result.reason) == ("done", "answered")
    assert len(of(Compacted, result.events)) > 1


def test_a_window_that_was_learnt_is_on_record_and_a_follow_up_does_not_pay_for_it_again() -> None:
    journal, limits = MemoryJournal(), Limits(steps=100, tokens=None)
    first = run_virtual(Agent(Counting(30, 8_000), [read], journal=journal, limits=limits).run("q", run_id="r"))
    refused = 0

    class Refusing(Counting):
        async def reply(self, request: Request, emit: Emit) -> ModelReplied:
            nonlocal refused
            try:
                return await super().reply(request, emit)
            except ProviderError:
                refused += 1
                raise

    again = Agent(Refusing(30, 8_000), [read], journal=journal, limits=limits)
    result = run_virtual(again.run("and now?", continue_run="r"))

    assert [c.window for c in of(Compacted, first.events)].count(8_000) == 1
    assert result.answer == "done"
    assert refused == 0
    assert State.of(journal.events("r")).window == 8_000


def test_old_bulky_results_go_first_and_cost_no_model_call() -> None:
    state = State.of(events(6))
    small = plan(state, 18_000)

    assert small == CompactionPlan(("c1", "c2"), 0)


def test_the_last_turns_stay_whole() -> None:
    state = State.of(events(8))
    todo = plan(state, 100)

    assert set(todo.cleared) == {f"c{n}" for n in range(1, 8 - KEEP_TURNS + 1)}
    assert isinstance(state.events[todo.upto], ModelReplied)
    assert state.events[todo.upto :] == state.events[-2 * KEEP_TURNS :]


def test_one_giant_turn_is_shortened_too() -> None:
    assert plan(State.of(events(1, 90_000)), 1000) == CompactionPlan(("c1",), 0)


def test_nothing_is_planned_where_nothing_can_be_shortened() -> None:
    assert plan(State.of(events(1, 10)), 100) == CompactionPlan((), 0)


def test_a_stub_says_how_to_get_the_result_again() -> None:
    state = State.of([*events(3), Compacted(("c1",))])
    first, second, *_ = [m for m in state.transcript.messages if isinstance(m, ToolMessage)]

    assert first.content == '[4000 characters removed to save space; to read them again, call read with {"n": 1}]'
    assert second.content == "x" * 4000


def test_after_a_summary_pairs_are_whole_and_the_question_stays_word_for_word() -> None:
    found = events(4)
    cut = next(n for n, e in enumerate(found) if e == turn(3))
    state = State.of([*found, Compacted(("c1", "c2"), "read two files", cut)])
    opening, *rest = state.transcript.messages

    assert isinstance(opening, UserMessage)
    assert opening.text.startswith(QUESTION.question)
    assert opening.text.endswith("read two files")
    assert [type(m) for m in rest] == [AssistantMessage, ToolMessage] * 2


def test_the_summary_is_asked_at_the_end_of_the_very_same_prefix() -> None:
    seen: list[Sent] = []
    turns = [turn(n) for n in range(1, 6)]
    script = ScriptedLLM(*turns, "what I found", "done")
    log = log_of()

    ended = drive(log, script, SHORT, limits=Limits(window=6_000, tokens=None))

    seen = script.requests
    at = next(n for n, r in enumerate(seen) if r.last == UserMessage(SUMMARISE))
    assert ended == RunEnded("answered", "done")
    assert seen[at].messages[: len(seen[at - 1].messages)] == seen[at - 1].messages
    assert seen[at].tools == seen[at - 1].tools
    assert seen[at].may_call == seen[at - 1].may_call, "without the tools nothing of the prefix would be the same"
    assert of(Compacted, log.state.events)[0].summary == "what I found"


def test_when_the_model_gives_no_summary_a_digest_of_the_record_takes_its_place() -> None:
    turns = [turn(n) for n in range(1, 6)]
    script = ScriptedLLM(*turns, ProviderError("down", kind="server_error"), "done")
    log = log_of()

    ended = drive(log, script, SHORT, limits=Limits(window=6_000, tokens=None))

    assert ended == RunEnded("answered", "done")
    assert 'read {"n": 1}' in of(Compacted, log.state.events)[0].summary


def test_a_context_that_is_too_long_even_when_shortened_is_a_typed_error() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        too_long = ProviderError("too long", kind="context_length")
        agent = Agent(ScriptedLLM(turn(1), too_long, too_long), [read], journal=journal)
        with pytest.raises(ProviderError, match="too long"):
            await agent.run("q", run_id="r")
        assert [type(e).__name__ for e in journal.events("r")][-2:] == ["Compacted", "RunInterrupted"]

    run_virtual(main())


def test_a_compacted_run_resumes_to_the_same_view() -> None:
    found = [*events(4), Compacted(("c1",)), turn(5), ToolReturned("c5", "y"), RunResumed()]
    once, again = State.of(found), State.of(found)

    assert once.transcript.messages == again.transcript.messages
    assert once.context == again.context


def test_a_summary_that_nobody_counted_or_that_failed_is_paid_for_too() -> None:
    found = events(3)
    uncounted = State.of([*found, Compacted((), "s", 3)])
    failed = State.of(
        [*found, Compacted((), "s", 3, Usage(0, 0), cost=0.0, retries=(Retry("timeout", "", 0, tokens=70),))]
    )

    assert uncounted.estimated
    assert uncounted.spent > State.of(found).spent + 3000
    assert failed.spent == State.of(found).spent + 70


def test_whoever_watches_sees_the_retries_of_a_summary_and_not_its_text() -> None:
    turns = [turn(n) for n in range(1, 6)]
    seen: list[object] = []
    script = ScriptedLLM(*turns, ProviderError("busy", kind="overloaded"), "what I found", "done")
    agent = Agent(script, SHORT, limits=Limits(window=6_000, tokens=None), on_event=seen.append)

    result = run_virtual(agent.run("q"))

    assert result.answer == "done"
    assert [w.kind for w in of(RetryWaiting, seen)] == ["overloaded"]
    assert [t.text for t in of(TextDelta, seen)] == ["done"]
    assert [r.kind for r in of(Compacted, result.events)[0].retries] == ["overloaded"]


def test_a_summary_is_paid_for_from_the_same_budget() -> None:
    before = State.of(events(3))
    after = State.of([*events(3), Compacted((), "s", 3, Usage(500, 50))])

    assert after.spent == before.spent + 550


def test_an_estimate_takes_the_place_of_tokens_the_server_does_not_count() -> None:
    state = State.of([RunStarted("x" * 300), replace(says("y" * 30), usage=Usage())])

    assert state.estimated
    assert state.spent == 110


def test_the_context_is_the_last_count_plus_what_was_added_since() -> None:
    state = State.of([RunStarted("x" * 4000), replace(turn(1), usage=Usage(1000, 50))])
    before = state.context
    state.apply(ToolReturned("c1", "z" * 4000))

    assert before == 1050
    assert 1900 < state.context < 2200
