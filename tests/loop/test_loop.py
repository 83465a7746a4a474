"""What happens next: the policy as a table, then termination, limits and the shape of the history."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.kit.runs import QUESTION, calls, drive, log_of, of, says
from tool_loop import Agent, Example, Limits, MemoryJournal, ScriptedLLM, ToolRegistry, tool
from tool_loop.agent import next_move, reached
from tool_loop.errors import UnknownRun, UsageError
from tool_loop.events import (
    ApprovalDecided,
    ApprovalRequest,
    ApprovalRequested,
    Compacted,
    IntentRecorded,
    LimitReached,
    ModelAsked,
    ModelReplied,
    Notice,
    Reminded,
    RunContinued,
    RunEnded,
    RunInterrupted,
    RunResumed,
    RunStarted,
    ToolCall,
    ToolReturned,
    ToolRunning,
    Usage,
)
from tool_loop.loop.moves import Act, Ask, Compact, End, Hold, Remind, Stop
from tool_loop.runtime.clock import run_virtual
from tool_loop.state import State
from tool_loop.transcript import NO_CALL_FOUND, AssistantMessage, ToolMessage, UserMessage


@tool(effect="read")
async def look(at: str = "") -> str:
    """Look at something."""
    return f"saw {at}"


@tool(effect="read", polling=True)
async def poll() -> str:
    """Ask whether it is done."""
    return "not yet"


@tool(effect="once", needs_approval=True)
async def pay(amount: int = 1) -> str:
    """Pay."""
    return f"paid {amount}"


TOOLS = ToolRegistry([look, poll, pay])

LOOK = ToolCall("1", "look", "{}")
PAY = ToolCall("2", "pay", "{}")
ASKED_LOOK = (QUESTION, calls(("1", "look")))
DONE_LOOK = (*ASKED_LOOK, ToolReturned("1", "saw"))
THRICE = (*DONE_LOOK, calls(("2", "look")), ToolReturned("2", "saw", repeat=2), calls(("3", "look")))
ASKED_PAY = (QUESTION, calls(("2", "pay")))
WAITING = (*ASKED_PAY, ApprovalRequested((ApprovalRequest("2", "f"),)))
IN_PROSE = ModelReplied("<tool_call>look", call_in_text=True)


@pytest.mark.parametrize(
    ("events", "limits", "move"),
    [
        pytest.param((QUESTION,), {}, Ask(), id="a question is asked"),
        pytest.param(ASKED_LOOK, {}, Act((LOOK,)), id="calls are run"),
        pytest.param(DONE_LOOK, {}, Ask(), id="results are shown to the model"),
        pytest.param(
            (QUESTION, says("hi")), {}, End(RunEnded("answered", "hi")), id="text without calls is the answer"
        ),
        pytest.param(
            (*DONE_LOOK, says("hi")),
            {"steps": 2},
            End(RunEnded("answered", "hi")),
            id="an answer on the last step counts",
        ),
        pytest.param((QUESTION, ModelReplied("hm", stop="pause")), {}, Ask(), id="a pause is not an answer"),
        pytest.param(
            (QUESTION, ModelReplied("", stop="length")), {}, Stop("empty answer"), id="nothing said before the cut"
        ),
        pytest.param(DONE_LOOK, {"steps": 1}, Stop("step limit"), id="steps used up"),
        pytest.param(
            (QUESTION, calls(("1", "look"), usage=Usage(900, 90)), ToolReturned("1", "x")),
            {"tokens": 1000},
            Stop("token budget"),
            id="tokens used up",
        ),
        pytest.param(DONE_LOOK, {"tool_calls": 1}, Stop("tool call limit"), id="tool calls used up"),
        pytest.param(
            (*THRICE, ToolReturned("3", "saw", repeat=3)), {}, Stop("repeated call"), id="a third identical call"
        ),
        pytest.param((*ASKED_LOOK, ToolReturned("1", "x", repeat=2)), {}, Ask(), id="a second identical call"),
        pytest.param(
            (*DONE_LOOK, LimitReached("step limit")), {}, Ask(may_call=False), id="the last word is without tools"
        ),
        pytest.param(
            (*DONE_LOOK, LimitReached("step limit"), says("so far")),
            {},
            End(RunEnded("step limit", "so far")),
            id="the last word is the answer",
        ),
        pytest.param(DONE_LOOK, {"window": 16}, Compact(), id="the window is filling"),
        pytest.param((*DONE_LOOK, Compacted(("1",))), {"window": 1}, Ask(), id="compacted once between two replies"),
        pytest.param((QUESTION, IN_PROSE), {}, Remind(NO_CALL_FOUND), id="a call in prose is pointed out"),
        pytest.param(
            (QUESTION, IN_PROSE, Reminded("x"), IN_PROSE),
            {},
            End(RunEnded("answered", "<tool_call>look")),
            id="a call in prose twice is the answer",
        ),
        pytest.param(
            (QUESTION, LimitReached("step limit"), IN_PROSE),
            {},
            End(RunEnded("step limit", "<tool_call>look")),
            id="no reminder after the last word",
        ),
        pytest.param(ASKED_PAY, {}, Hold((PAY,)), id="a gated call waits"),
        pytest.param(WAITING, {}, Hold((PAY,)), id="an undecided call goes on waiting"),
        pytest.param(
            (*WAITING, ApprovalDecided("2", True, fingerprint="f")), {}, Act((PAY,)), id="an allowed call runs"
        ),
        pytest.param((*WAITING, ApprovalDecided("2", False)), {}, Act((PAY,)), id="a denied call gets its result"),
        pytest.param(
            (QUESTION, calls(("1", "look"), ("2", "pay"))), {}, Act((LOOK,)), id="siblings of a gated call run first"
        ),
        pytest.param(
            (QUESTION, calls(("2", "pay", "{"))),
            {},
            Act((ToolCall("2", "pay", "{"),)),
            id="a call that cannot run needs nobody",
        ),
        pytest.param(
            (QUESTION, replace(calls(("2", "pay")), stop="length")),
            {},
            Act((PAY,)),
            id="a call of a cut reply needs nobody",
        ),
        pytest.param(
            (QUESTION, says("hi"), RunEnded("answered", "hi")),
            {},
            End(RunEnded("answered", "hi")),
            id="an ended run stays ended",
        ),
        pytest.param(
            (QUESTION, says("hi"), RunEnded("answered", "hi"), RunContinued("and?")),
            {},
            Ask(),
            id="a follow-up is asked",
        ),
        pytest.param(
            (QUESTION, says("hi"), RunResumed()), {}, End(RunEnded("answered", "hi")), id="an answer survives a crash"
        ),
        pytest.param((QUESTION, RunInterrupted("auth"), RunResumed()), {}, Ask(), id="a mended run asks again"),
        pytest.param(
            (*ASKED_PAY, IntentRecorded(("2",)), RunResumed()), {}, Act((PAY,)), id="a call in doubt is looked into"
        ),
    ],
)
def test_next_move(events: tuple, limits: dict, move: object) -> None:
    assert next_move(State.of(events), TOOLS, Limits(**{"tokens": None} | limits)) == move


def test_the_deadline_is_reached_early_enough_for_a_last_word() -> None:
    state, limits = State.of(DONE_LOOK), Limits(seconds=100)

    assert reached(state, limits, 74.9) is None
    assert reached(state, limits, 75.0) == "deadline"


def test_money_is_kept_back_for_the_last_word() -> None:
    priced = replace(calls(("1", "look")), cost=0.3)
    state = State.of(
        (
            QUESTION,
            priced,
            ToolReturned("1", "x"),
            replace(priced, calls=(ToolCall("2", "look"),)),
            ToolReturned("2", "y"),
        )
    )

    assert reached(state, Limits(usd=1.0), 0) == "money budget"
    assert reached(state, Limits(usd=2.0), 0) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"tokens": -1},
        {"seconds": 0},
        {"usd": 0},
        {"repeats": 1},
        {"fill": 0},
        {"fill": 1.5},
        {"window": 0},
        {"steps": 2.5},
        {"steps": True},
        {"per_tool": {"look": -1}},
        {"last_word_seconds": -50},
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_by_name(wrong: dict) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Limits(**wrong)


# --- termination ----------------------------------------------------------------------------------


def test_an_answer_ends_the_run() -> None:
    log = log_of()

    assert drive(log, ScriptedLLM("hello"), TOOLS) == RunEnded("answered", "hello")
    assert [type(e) for e in log.state.events] == [RunStarted, ModelReplied, RunEnded]


def test_a_run_that_has_ended_costs_nothing_when_it_is_driven_again() -> None:
    log, llm = log_of(), ScriptedLLM("hello")
    drive(log, llm, TOOLS)

    assert drive(log, llm, TOOLS) == RunEnded("answered", "hello")
    assert len(llm.requests) == 1


def test_at_the_step_limit_the_model_has_the_last_word_without_tools() -> None:
    log, llm = log_of(), ScriptedLLM(calls(("1", "look")), "what I know")

    ended = drive(log, llm, TOOLS, limits=Limits(steps=1))

    assert ended == RunEnded("step limit", "what I know")
    assert [r.may_call for r in llm.requests] == [True, False]


def test_calls_that_come_with_the_last_word_are_dropped() -> None:
    log = log_of()
    script = ScriptedLLM(calls(("1", "look")), calls(("2", "look"), text="what I know"))

    ended = drive(log, script, TOOLS, limits=Limits(steps=1))

    assert ended == RunEnded("step limit", "what I know")
    assert of(ModelReplied, log.state.events)[-1].dropped_calls == 1
    assert [r.call_id for r in of(ToolReturned, log.state.events)] == ["1"]


def test_an_empty_last_word_on_record_does_not_become_an_empty_answer_after_a_crash() -> None:
    """Found by the simulation, seed 630."""
    log = log_of(QUESTION, LimitReached("step limit"), ModelReplied("", dropped_calls=1))

    ended = drive(log, ScriptedLLM(), TOOLS)

    assert isinstance(ended, RunEnded)
    assert ended.source == "journal"


def test_when_the_model_gives_no_last_word_the_record_does() -> None:
    log = log_of(RunStarted("where is it?"))
    script = ScriptedLLM(calls(("1", "look", '{"at": "attic"}')), calls(("2", "look")))

    ended = drive(log, script, TOOLS, limits=Limits(steps=1))

    assert isinstance(ended, RunEnded)
    assert (ended.reason, ended.source) == ("step limit", "journal")
    assert "where is it?" in ended.answer
    assert "saw attic" in ended.answer


@pytest.mark.parametrize("polling", [False, True])
def test_the_third_identical_call_stops_the_run_unless_the_tool_polls(polling: bool) -> None:
    name = "poll" if polling else "look"
    script = ScriptedLLM(*(calls((str(n), name)) for n in range(3)), "done")

    ended = drive(log_of(), script, TOOLS, limits=Limits(steps=3 if polling else 9))

    assert isinstance(ended, RunEnded)
    assert ended.reason == ("step limit" if polling else "repeated call")


def test_the_second_identical_call_is_answered_with_a_note() -> None:
    script = ScriptedLLM(
        calls(("1", "look")), calls(("2", "look", '{ "at" : "" }')), calls(("3", "look", "{}")), "done"
    )
    log = log_of()

    drive(log, script, TOOLS)

    results = [m.content for m in log.state.transcript.messages if isinstance(m, ToolMessage)]
    assert results[0] == "saw "
    assert "nothing has changed" in results[2]


def test_a_cycle_of_two_calls_is_a_repeat() -> None:
    a, b = '{"at": "a"}', '{"at": "b"}'
    script = ScriptedLLM(*(calls((str(n), "look", a if n % 2 == 0 else b)) for n in range(5)), "done")

    ended = drive(log_of(), script, TOOLS)

    assert ended == RunEnded("repeated call", "done")


def test_reading_again_after_something_new_was_learnt_is_not_a_repeat() -> None:
    again = '{"at": "index"}'
    turns = [
        calls((f"{n}a", "look", again)) if n % 2 else calls((f"{n}b", "look", f'{{"at": "{n}"}}')) for n in range(12)
    ]

    ended = drive(log_of(), ScriptedLLM(*turns, "done"), TOOLS)

    assert ended == RunEnded("answered", "done")


def test_a_deadline_during_a_model_call_leads_to_the_last_word() -> None:
    async def slow(_request: object) -> str:
        await asyncio.sleep(1000)
        return "too late"

    log = log_of()
    ended = drive(log, ScriptedLLM(slow, "in short"), TOOLS, limits=Limits(seconds=10))

    assert ended == RunEnded("deadline", "in short")


def test_a_model_that_never_answers_ends_within_the_deadline_all_the_same() -> None:
    async def never(_request: object) -> str:
        await asyncio.Event().wait()
        return ""

    async def main() -> float:
        agent = Agent(ScriptedLLM(never, never), limits=Limits(seconds=10))
        result = await agent.run("q")
        assert (result.reason, result.source) == ("deadline", "journal")
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) <= 11


def test_a_per_tool_limit_is_told_to_the_model_and_the_run_goes_on() -> None:
    log = log_of()
    script = ScriptedLLM(calls(("1", "look", '{"at": "a"}'), ("2", "look", '{"at": "b"}')), "done")

    ended = drive(log, script, TOOLS, limits=Limits(per_tool={"look": 1}))

    assert ended == RunEnded("answered", "done")
    assert {r.call_id: r.error for r in of(ToolReturned, log.state.events)} == {"1": None, "2": "limit_reached"}


def test_a_tool_may_bring_its_own_limit() -> None:
    @tool(effect="read", max_calls=1)
    async def rare(n: int) -> str:
        """Rare."""
        return str(n)

    script = ScriptedLLM(calls(("1", "rare", '{"n": 1}'), ("2", "rare", '{"n": 2}')), "done")
    result = run_virtual(Agent(script, [rare]).run("q"))

    assert {r.call_id: r.error for r in of(ToolReturned, result.events)} == {"1": None, "2": "limit_reached"}


# --- the history ----------------------------------------------------------------------------------


def test_results_are_shown_in_call_order_and_recorded_as_they_land() -> None:
    @tool(effect="read")
    async def wait(seconds: int) -> str:
        """Wait."""
        await asyncio.sleep(seconds)
        return str(seconds)

    log = log_of()
    script = ScriptedLLM(calls(("a", "wait", '{"seconds": 3}'), ("b", "wait", '{"seconds": 1}')), "done")

    drive(log, script, ToolRegistry([wait]))

    assert [r.call_id for r in of(ToolReturned, log.state.events)] == ["b", "a"]
    assert [m.call_id for m in log.state.transcript.messages if isinstance(m, ToolMessage)] == ["a", "b"]


def test_results_are_on_record_while_a_slower_sibling_still_runs() -> None:
    log = log_of()
    seen: list[int] = []

    @tool(effect="read")
    async def wait(seconds: int) -> str:
        """Wait."""
        await asyncio.sleep(seconds)
        seen.append(len(of(ToolReturned, log.state.events)))
        return ""

    script = ScriptedLLM(calls(("a", "wait", '{"seconds": 3}'), ("b", "wait", '{"seconds": 1}')), "done")
    drive(log, script, ToolRegistry([wait]))

    assert seen == [0, 1]


def test_reading_calls_run_together_and_undeclared_ones_in_the_order_asked() -> None:
    active: list[str] = []
    most: dict[str, int] = {}

    async def visit(name: str) -> str:
        active.append(name)
        most[name] = max(most.get(name, 0), len(active))
        await asyncio.sleep(1)
        active.remove(name)
        return name

    @tool(effect="read")
    async def reads(n: int) -> str:
        """Read."""
        return await visit(f"r{n}")

    @tool
    async def acts(n: int) -> str:
        """Act."""
        return await visit(f"a{n}")

    asked = calls(
        *(
            (f"{k}{n}", k, f'{{"n": {n}}}')
            for k, n in (("reads", 1), ("reads", 2), ("acts", 3), ("acts", 4), ("reads", 5))
        )
    )
    told: list = []
    result = run_virtual(Agent(ScriptedLLM(asked, "done"), [reads, acts], on_event=told.append).run("q"))

    assert most == {"r1": 1, "r2": 2, "a3": 1, "a4": 1, "r5": 1}
    assert [r.content for r in of(ToolReturned, result.events)] == ["r1", "r2", "a3", "a4", "r5"]
    assert [n.text for n in of(Notice, told)] == [
        'acts declares no effect: its 2 calls ran in order; @tool(effect="read") lets them run together'
    ]


def test_ids_that_are_missing_or_used_before_are_made_unique_in_call_and_result() -> None:
    log = log_of()
    first = calls(("", "look", '{"at": "1"}'), ("x", "look", '{"at": "2"}'), ("x", "look", '{"at": "3"}'))
    script = ScriptedLLM(first, calls(("x", "look", '{"at": "4"}')), "done")

    drive(log, script, TOOLS)

    asked = [c.id for r in of(ModelReplied, log.state.events) for c in r.calls]
    assert asked[1] == "x"
    assert len(set(asked)) == 4
    assert {r.call_id for r in of(ToolReturned, log.state.events)} == set(asked)


def test_examples_come_before_the_question_and_never_collide_with_real_calls() -> None:
    example = Example("where is a?", "look", '{"at": "a"}', "saw a", "It is in a.")
    script = ScriptedLLM("done")

    run_virtual(Agent(script, [look], examples=[example]).run("where is b?"))

    sent = script.requests[0].messages
    assert [type(m) for m in sent] == [UserMessage, AssistantMessage, ToolMessage, AssistantMessage, UserMessage]
    assert sent[-1] == UserMessage("where is b?")


def test_a_call_written_as_prose_is_told_once_and_never_run() -> None:
    script = ScriptedLLM(
        '{"name": "look", "arguments": {"at": "a"}}', calls(("1", "look", '{"at": "a"}')), "It is in a."
    )

    result = run_virtual(Agent(script, [look]).run("q"))

    assert result.answer == "It is in a."
    assert len(of(Reminded, result.events)) == 1
    assert result.tool_calls == 1


def test_a_run_without_any_call_says_so() -> None:
    result = run_virtual(Agent(ScriptedLLM("42"), [look]).run("q"))

    assert any("no tool was called" in w for w in result.warnings)


# --- the front door -------------------------------------------------------------------------------


def test_subscribers_see_events_after_they_are_on_record_and_their_errors_are_ignored() -> None:
    seen: list = []

    def subscriber(happening: object) -> None:
        seen.append(type(happening))
        raise ValueError("mine")

    result = run_virtual(Agent(ScriptedLLM(calls(("1", "look")), "done"), [look], on_event=subscriber).run("q"))

    assert result.answer == "done"
    assert [s for s in seen if s in (RunStarted, ModelAsked, ToolRunning, ToolReturned, RunEnded)] == [
        RunStarted, ModelAsked, ToolRunning, ToolReturned, ModelAsked, RunEnded,
    ]  # fmt: skip


def test_the_same_run_id_is_the_same_run() -> None:
    async def main() -> None:
        script = ScriptedLLM("first")
        agent = Agent(script, journal=MemoryJournal())
        one = await agent.run("q", run_id="r1")
        two = await agent.run("q", run_id="r1")
        assert one.answer == two.answer == "first"
        assert len(script.requests) == 1
        with pytest.raises(UsageError, match="continue_run"):
            await agent.run("something else", run_id="r1")

    run_virtual(main())


def test_a_follow_up_goes_on_in_the_same_history_with_fresh_limits() -> None:
    async def main() -> None:
        script = ScriptedLLM(calls(("1", "look")), "first", calls(("2", "look", '{"at": "x"}')), "second")
        agent = Agent(script, [look], limits=Limits(steps=2))
        one = await agent.run("q1")
        two = await agent.run("q2", continue_run=one.run_id)
        assert (two.answer, two.reason, two.run_id) == ("second", "answered", one.run_id)
        said = [m.text for m in script.requests[-1].messages if isinstance(m, UserMessage)]
        assert said == ["q1", "q2"]

    run_virtual(main())


def test_what_cannot_be_continued_or_resumed_is_said_clearly() -> None:
    async def main() -> None:
        agent = Agent(ScriptedLLM(ValueError("a bug of the model's author")), retry=None)
        with pytest.raises(UnknownRun, match="nowhere"):
            await agent.resume("nowhere")
        with pytest.raises(UnknownRun, match="nowhere"):
            await agent.run("q", continue_run="nowhere")
        with pytest.raises(UsageError, match="empty"):
            await agent.run("  ")
        with pytest.raises(UsageError, match="one of run_id, continue_run and chat"):
            await agent.run("q", run_id="a", continue_run="b")
        with pytest.raises(ValueError, match="a bug"):
            await agent.run("q", run_id="r")
        with pytest.raises(UsageError, match="not ended"):
            await agent.run("another", continue_run="r")

    run_virtual(main())


def test_the_synchronous_door_refuses_to_stand_inside_an_event_loop() -> None:
    agent = Agent(ScriptedLLM("a", "b"))

    async def main() -> None:
        with pytest.raises(UsageError, match=r"await agent\.run"):
            agent.run_sync("q")

    asyncio.run(main())
    assert agent.run_sync("q").answer == "a"


def test_an_agent_without_a_journal_remembers_a_bounded_number_of_ended_runs() -> None:
    async def main() -> None:
        journal = MemoryJournal(keep=2)
        agent = Agent(ScriptedLLM(*"abcd"), journal=journal)
        for n in range(4):
            await agent.run("q", run_id=f"r{n}")
        with pytest.raises(UnknownRun):
            journal.events("r0")
        assert isinstance(journal.events("r3")[-1], RunEnded)

    run_virtual(main())


def test_a_run_in_which_more_is_asked_is_the_newest_again() -> None:
    async def main() -> None:
        journal = MemoryJournal(keep=2)
        agent = Agent(ScriptedLLM(*"abcd"), journal=journal)
        await agent.run("q", run_id="first")
        await agent.run("q", run_id="second")
        await agent.run("and then?", continue_run="first")
        await agent.run("q", run_id="third")
        with pytest.raises(UnknownRun):
            journal.events("second")
        assert {run.id for run in journal.runs()} == {"first", "third"}

    run_virtual(main())
