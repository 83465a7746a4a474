"""Conversations: begun or gone on with by one call, something else said instead, a history of one's own, numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tool_loop import Agent, MemoryJournal, ScriptedLLM, SqliteJournal, ToolCall, tool
from tool_loop.audit.invariants import check
from tool_loop.errors import RunBusy, UnknownRun, UsageError
from tool_loop.events import ApprovalDecided, Event, RunContinued, RunStarted, ToolReturned
from tool_loop.journal.runs import Record
from tool_loop.redrive.driving import redrive
from tool_loop.transcript import AssistantMessage, ToolMessage, UserMessage


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryJournal | SqliteJournal]:
    if request.param == "memory":
        yield MemoryJournal()
    else:
        with SqliteJournal(tmp_path / "runs.db") as journal:
            yield journal


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 20))


def paying(ran: list[int]) -> Any:
    @tool(effect="once", needs_approval=True)
    def pay(n: int) -> str:
        """Pay."""
        ran.append(n)
        return "paid"

    return pay


PAY = ToolCall("1", "pay", '{"n": 1}')


def test_a_conversation_is_begun_and_gone_on_with_by_the_same_call(journal: Any) -> None:
    async def main() -> None:
        agent = Agent(ScriptedLLM("Hello.", "Fine.", "Bye."), journal=journal)
        chat = agent.chat("ann")
        assert (await chat.ask("Hi")).answer == "Hello."
        assert (await agent.chat("ann").ask("How are you?")).answer == "Fine."
        assert (await agent.run("Bye", chat="ann")).answer == "Bye."
        questions = [e.question for e in journal.events("ann") if isinstance(e, RunStarted | RunContinued)]
        assert questions == ["Hi", "How are you?", "Bye"]
        assert (await chat.resume()).answer == "Bye."

    run(main())


def test_two_messages_at_once_are_not_mixed_up(journal: Any) -> None:
    async def main() -> None:
        asked = asyncio.Event()

        async def slow(_request: object) -> str:
            asked.set()
            await asyncio.Event().wait()
            return ""

        chat = Agent(ScriptedLLM(slow), journal=journal).chat("ann")
        first = asyncio.ensure_future(chat.ask("one"))
        await asked.wait()
        with pytest.raises(RunBusy):
            await chat.ask("two")
        first.cancel()
        await asyncio.wait({first})

    run(main())


def test_what_a_person_says_in_place_of_a_decision_closes_the_call_and_is_answered(journal: Any) -> None:
    ran: list[int] = []

    async def main() -> None:
        agent = Agent(ScriptedLLM(PAY, "It is noon."), [paying(ran)], journal=journal)
        assert (await agent.run("pay", run_id="r")).reason == "waiting"
        with pytest.raises(UsageError, match="instead=True"):
            await agent.run("never mind, what time is it?", continue_run="r")
        assert len(journal.pending()) == 1
        result = await agent.run("never mind, what time is it?", continue_run="r", instead=True)
        assert (result.answer, ran, journal.pending()) == ("It is noon.", [], [])
        (told,) = [e for e in journal.events("r") if isinstance(e, ToolReturned)]
        assert "went on to something else" in told.content
        with pytest.raises(UsageError, match="does not wait"):
            await journal.decide("r", "1", allow=True)
        assert check(journal.events("r")) == []

    run(main())
    assert redrive(journal, "r") == []


def test_a_chat_goes_on_whatever_it_was_about(journal: Any) -> None:
    ran: list[int] = []

    async def main() -> None:
        asked = asyncio.Event()

        async def slow(_request: object) -> str:
            asked.set()
            await asyncio.Event().wait()
            return ""

        agent = Agent(ScriptedLLM(PAY, slow, "after all"), [paying(ran)], journal=journal)
        await agent.chat("ann").ask("pay")
        going = asyncio.ensure_future(agent.chat("ann").ask("what time is it?"))
        await asked.wait()
        await journal.cancel("ann", by="ann")
        await asyncio.wait({going})
        assert (await agent.chat("ann").ask("and now?")).answer == "after all"
        assert check(journal.events("ann")) == []

    run(main())


def test_a_call_that_may_have_happened_is_told_so_when_something_else_is_asked(journal: Any) -> None:
    @tool(effect="once")
    def pay(n: int) -> str:
        """Pay."""
        return f"paid {n}"

    async def main() -> None:
        from tool_loop.events import IntentRecorded, ModelReplied

        agent = Agent(ScriptedLLM("I cannot tell."), [pay], journal=journal)
        async with journal.open("r") as log:
            for event in (RunStarted("pay"), ModelReplied("", (PAY,)), IntentRecorded(("1",))):
                await log.append(event)
        await agent.chat("r").ask("is it paid?")
        (told,) = [e for e in journal.events("r") if isinstance(e, ToolReturned)]
        assert told.error == "outcome_unknown"
        assert check(journal.events("r"), effects={"pay": "once"}) == []

    run(main())


def test_the_same_message_again_goes_on_with_the_one_that_was_cut_off(journal: Any) -> None:
    async def main() -> None:
        async with journal.open("ann") as log:
            await log.append(RunStarted("Hi"))
        assert (await Agent(ScriptedLLM("Hello."), journal=journal).chat("ann").ask("Hi")).answer == "Hello."
        assert sum(isinstance(e, RunStarted | RunContinued) for e in journal.events("ann")) == 1

    run(main())


# --- watching --------------------------------------------------------------------------------------


def test_a_stream_numbers_its_events_as_the_journal_does_and_misses_none(journal: Any) -> None:
    ran: list[int] = []

    async def main() -> None:
        agent = Agent(ScriptedLLM(PAY, "done"), [paying(ran)], journal=journal)
        async with agent.stream("pay", run_id="r") as first:
            seen: list[Event] = []
            last = -1
            async for happening in first.records():
                if isinstance(happening, Record):
                    assert happening.seq == last + 1
                    last = happening.seq
                    seen.append(happening.event)
        assert (first.run_id, seen) == ("r", list(journal.events("r")))
        await journal.decide("r", "1", allow=True, by="ann")
        async with agent.stream(resume="r") as second:
            async for happening in second.records():
                if isinstance(happening, Record):
                    seen.append(happening.event)
                    last = happening.seq
        assert second.result is not None
        assert (second.result.answer, ran) == ("done", [1])
        assert [e for e in seen if not isinstance(e, ApprovalDecided)] == [
            e for e in journal.events("r") if not isinstance(e, ApprovalDecided)
        ]
        assert last == len(journal.events("r")) - 1

    run(main())


def test_a_decision_from_elsewhere_is_among_the_numbered_events(tmp_path: Path) -> None:
    ran: list[int] = []

    async def main(journal: SqliteJournal, desk: SqliteJournal) -> None:
        async def reviewer(pending: Any) -> ApprovalDecided:
            await desk.decide("r", pending.call.id, allow=True, by="desk")
            return ApprovalDecided(pending.call.id, False, "terminal")

        agent = Agent(ScriptedLLM(PAY, "done"), [paying(ran)], journal=journal, reviewer=reviewer)
        async with agent.stream("pay", run_id="r") as stream:
            seen = [r async for r in stream.records() if isinstance(r, Record)]
        assert [(r.seq, r.event) for r in seen] == list(enumerate(journal.events("r")))
        assert ran == [1]

    with SqliteJournal(tmp_path / "r.db") as journal, SqliteJournal(tmp_path / "r.db") as desk:
        run(main(journal, desk))


def test_a_stream_knows_its_run_before_the_first_event_and_other_subscribers_see_the_same() -> None:
    async def main() -> None:
        also: list[object] = []
        agent = Agent(ScriptedLLM("done"))
        async with agent.stream("q", on_event=also.append) as stream:
            assert stream.run_id
            seen = [e async for e in stream]
        assert seen == also
        assert stream.result is not None
        assert stream.result.run_id == stream.run_id
        with pytest.raises(UnknownRun):
            async with agent.stream(resume="nothing") as stream:
                async for _ in stream:
                    pass
        with pytest.raises(UsageError, match="empty"):
            agent.stream()

    run(main())


# --- a history of one's own ------------------------------------------------------------------------

OURS = [
    UserMessage("What is in it?"),
    AssistantMessage("", (ToolCall("a", "look", '{"at": "box"}'),)),
    ToolMessage("a", "look", "a key"),
    AssistantMessage("A key."),
]
OPENAI: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "What is in it?"}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at": "box"}'}}],
    },
    {"role": "tool", "tool_call_id": "a", "content": "a key"},
    {"role": "assistant", "content": "A key."},
]


@pytest.mark.parametrize("history", [OURS, OPENAI], ids=["ours", "openai"])
def test_a_run_begins_with_messages_from_elsewhere(history: list[Any], journal: Any) -> None:
    async def main() -> None:
        with ScriptedLLM("Of brass.") as llm:
            agent = Agent(llm, journal=journal, system="Look.")
            result = await agent.run("Of what?", run_id="r", history=history)
            again = await agent.run("Of what?", run_id="r", history=history)
        sent = llm.requests[0]
        assert sent.system == "Look."
        assert [m for m in sent.messages if not isinstance(m, ToolMessage)] == [
            m for m in [*OURS, UserMessage("Of what?")] if not isinstance(m, ToolMessage)
        ]
        assert (result.answer, again.answer, result.steps) == ("Of brass.", "Of brass.", 1)
        assert check(journal.events("r"), effects={"look": "read"}) == []
        with pytest.raises(UsageError, match="another question"):
            await agent.run("Something else?", run_id="r", history=history)

    run(main())


def test_a_conversation_from_elsewhere_becomes_a_chat(journal: Any) -> None:
    async def main() -> None:
        chat = Agent(ScriptedLLM("Of brass.", "Heavy."), journal=journal).chat("ann")
        assert (await chat.ask("Of what?", history=OURS)).answer == "Of brass."
        assert (await chat.ask("And?", history=OURS)).answer == "Heavy."
        asked = [e.question for e in journal.events("ann") if isinstance(e, RunStarted | RunContinued)]
        assert asked == ["What is in it?", "Of what?", "And?"]

    run(main())


@pytest.mark.parametrize(
    ("history", "says"),
    [
        ([{"role": "system", "content": "x"}], "system="),
        ([{"role": "assistant", "content": "Hello"}], "begins with a message of the user"),
        ([{"role": "user", "content": "x"}], "ends with an answer"),
        ([{"role": "user", "content": "x"}, {"role": "user", "content": "y"}], r"history\[1\].*no answer"),
        ([{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "a"}], r"history\[1\].*'a'"),
        ([*OPENAI[:2], {"role": "user", "content": "y"}], "before the result of the call 'a'"),
        ([{"role": "oracle"}], "'oracle'"),
        ([OPENAI[0], {"role": "assistant", "tool_calls": [{"id": "a"}]}], r"history\[1\].*'function'"),
    ],
)
def test_what_is_no_history_is_refused_and_nothing_is_recorded(history: list[Any], says: str, journal: Any) -> None:
    with pytest.raises(UsageError, match=says):
        run(Agent(ScriptedLLM(), journal=journal).run("q", run_id="r", history=history))
    assert journal.runs() == []


def test_one_question_belongs_to_one_run() -> None:
    with pytest.raises(UsageError, match="one of run_id, continue_run and chat"):
        run(Agent(ScriptedLLM()).run("q", run_id="a", chat="b"))
