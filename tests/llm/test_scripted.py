"""The scripted model plays its turns, and fails loudly where a provider would refuse or the script does not fit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tool_loop import Agent, tool
from tool_loop.errors import ProviderError
from tool_loop.events import ModelReplied, ReasoningDelta, TextDelta, ToolCall, Usage
from tool_loop.llm.scripted import ScriptedLLM, ScriptError, Sent, Turn, calls
from tool_loop.ports import Request, ToolSpec
from tool_loop.testing import run_virtual
from tool_loop.transcript import AssistantMessage, Message, ToolMessage, Transcript, UserMessage

if TYPE_CHECKING:
    from tool_loop.events import Event, Signal

LOOK = ToolCall("1", "look", '{"at": "a"}')
QUESTION = UserMessage("q")


def ask(llm: ScriptedLLM, *messages: Message, **details: Any) -> tuple[ModelReplied, list[Event | Signal]]:
    said: list[Event | Signal] = []
    request = Request(Transcript("", messages or (QUESTION,)), **details)
    return asyncio.run(llm.reply(request, said.append)), said


# --- turns ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turn", "text", "made"),
    [
        ("hello", "hello", ()),
        (LOOK, "", (LOOK,)),
        ([LOOK, ToolCall("2", "look")], "", (LOOK, ToolCall("2", "look"))),
        (calls(LOOK, text="Let me look."), "Let me look.", (LOOK,)),
        (calls(text="nothing"), "nothing", ()),
        (ModelReplied("hi", (LOOK,), "length"), "hi", (LOOK,)),
        (Turn("hello"), "hello", ()),
        (lambda request: f"{len(request.transcript.messages)} message", "1 message", ()),
        (lambda _: LOOK, "", (LOOK,)),
    ],
)
def test_a_turn_is_whatever_says_it_shortest(turn: Any, text: str, made: tuple[ToolCall, ...]) -> None:
    reply, _ = ask(ScriptedLLM(turn))

    assert (reply.text, reply.calls, reply.model) == (text, made, "scripted")
    assert reply.stop == ("length" if reply.stop == "length" else "tool_calls" if made else "stop")


def test_a_turn_may_be_a_coroutine_function() -> None:
    async def later(request: Request) -> str:
        await asyncio.sleep(0)
        return request.transcript.messages[0].text  # type: ignore[union-attr]

    assert ask(ScriptedLLM(later))[0].text == "q"


def test_a_turn_may_fail() -> None:
    error = ProviderError("down", kind="overloaded")

    with pytest.raises(ProviderError) as caught:
        ask(ScriptedLLM(error, "unused"))
    assert caught.value is error


def test_a_turn_may_fail_after_it_showed_something() -> None:
    said: list[Event | Signal] = []
    llm = ScriptedLLM(Turn("Hello", pieces=("Hel",), then_raise=ProviderError("cut", kind="protocol")))

    with pytest.raises(ProviderError):
        asyncio.run(llm.reply(Request(Transcript("", [QUESTION])), said.append))
    assert said == [TextDelta("Hel")]


def test_text_is_streamed_whole_in_pieces_or_as_given() -> None:
    assert ask(ScriptedLLM("Hello"))[1] == [TextDelta("Hello")]
    assert ask(ScriptedLLM("Hello", pieces=2))[1] == [TextDelta("He"), TextDelta("ll"), TextDelta("o")]
    assert ask(ScriptedLLM(Turn("Hello", pieces=("H", "ello"))))[1] == [TextDelta("H"), TextDelta("ello")]
    assert ask(ScriptedLLM(ModelReplied("a", reasoning="hm")))[1] == [ReasoningDelta("hm"), TextDelta("a")]
    assert ask(ScriptedLLM(LOOK))[1] == []


def test_a_turn_may_take_its_time() -> None:
    async def main() -> float:
        await ScriptedLLM(Turn("a", seconds=5)).reply(Request(Transcript("", [QUESTION])), lambda _: None)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 5


def test_usage_and_model_are_given_to_replies_that_say_nothing_of_their_own() -> None:
    llm = ScriptedLLM("a", ModelReplied("b", usage=Usage(1, 2), model="own"), usage=Usage(10, 5), model="m")

    assert [(r.usage, r.model) for r, _ in (ask(llm), ask(llm))] == [(Usage(10, 5), "m"), (Usage(1, 2), "own")]


# --- what was sent ----------------------------------------------------------------------------------


def test_requests_are_kept_as_they_were_however_the_conversation_grows() -> None:
    llm = ScriptedLLM("a", "b")
    transcript = Transcript("be brief", [QUESTION])

    async def main() -> None:
        tools = (ToolSpec("look", "", {}),)
        await llm.reply(Request(transcript, tools, key="k", deadline=9.0, allowance=7), lambda _: None)
        longer = transcript.extended(AssistantMessage("a"), UserMessage("more"))
        await llm.reply(Request(longer, may_call=False), lambda _: None)

    asyncio.run(main())
    assert llm.requests == [
        Sent("be brief", (QUESTION,), ("look",), True, "k", 9.0, 7),
        Sent("be brief", (QUESTION, AssistantMessage("a"), UserMessage("more")), (), False),
    ]
    assert llm.requests[1].last == UserMessage("more")


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([AssistantMessage("", (LOOK,)), UserMessage("x")], r"the calls \['1'\] have no result before message 2"),
        ([AssistantMessage("", (LOOK,))], r"the calls \['1'\] have no result"),
        ([ToolMessage("1", "look", "r")], "a result for '1', which nobody asked for"),
        (
            [AssistantMessage("", (LOOK, ToolCall("2", "look"))), ToolMessage("2", "look", "r")],
            "a result for '2', where the one for '1' is due",
        ),
        ([AssistantMessage("", (LOOK,)), *[ToolMessage("1", "look", "r")] * 2], "'1', which nobody asked for"),
        ([AssistantMessage("")], "message 1 is an assistant turn with neither text nor calls"),
        ([AssistantMessage("", (LOOK, LOOK))], r"message \d uses the id '1' a second time"),
        (
            [AssistantMessage("", (LOOK,)), ToolMessage("1", "look", "r"), AssistantMessage("", (LOOK,))],
            r"message \d uses the id '1' a second time",
        ),
        ([AssistantMessage("done")], "it ends with an assistant turn"),
    ],
)
def test_a_history_that_a_provider_would_refuse_is_refused(messages: list[Message], fault: str) -> None:
    with pytest.raises(ScriptError, match=fault):
        ask(ScriptedLLM("never"), QUESTION, *messages)


def test_a_conversation_without_a_user_is_refused() -> None:
    with pytest.raises(ScriptError, match="there is no user message"):
        ask(ScriptedLLM("never"), AssistantMessage("", (LOOK,)), ToolMessage("1", "look", "r"))


def test_a_turn_may_expect_something_of_its_request() -> None:
    def about_q(sent: Sent) -> bool:
        return sent.last == QUESTION

    def strict(sent: Sent) -> None:
        assert sent.may_call

    assert ask(ScriptedLLM(Turn("a", expects=about_q)))[0].text == "a"
    assert ask(ScriptedLLM(Turn("a", expects=strict)))[0].text == "a"
    with pytest.raises(ScriptError, match="request 1 is not what its turn expects; it ends with UserMessage"):
        ask(ScriptedLLM(Turn("a", expects=about_q)), UserMessage("other"))


# --- too few, too many ------------------------------------------------------------------------------


def test_a_request_after_the_last_turn_says_what_it_ended_with() -> None:
    llm = ScriptedLLM("only one")
    ask(llm)

    with pytest.raises(ScriptError, match=r"request 2 came, but the script has 1 turns; .*UserMessage\(text='q'\)"):
        ask(llm)
    llm.assert_finished()  # one too many is not one too few


def test_turns_that_nobody_asked_for_are_told() -> None:
    llm = ScriptedLLM("a", "b", "c")
    ask(llm)

    with pytest.raises(ScriptError, match="2 of 3 turns were never asked for; the next is 'b'"):
        llm.assert_finished()


def test_as_a_context_it_checks_at_the_end_and_does_not_hide_another_failure() -> None:
    with ScriptedLLM("a") as llm:
        ask(llm)
    with pytest.raises(ScriptError, match="never asked for"), ScriptedLLM("a"):
        pass
    with pytest.raises(KeyError), ScriptedLLM("a"):
        raise KeyError


def test_a_script_error_is_an_assertion_error_so_that_a_test_fails_and_not_the_run() -> None:
    assert issubclass(ScriptError, AssertionError)


def test_a_story_reads_as_one() -> None:
    @tool(effect="read")
    def look(at: str) -> str:
        """Look."""
        return f"{at} is fine"

    with ScriptedLLM(
        calls(LOOK, text="Let me look."),
        Turn("It is fine.", expects=lambda sent: sent.last == ToolMessage("1", "look", "a is fine")),
    ) as llm:
        assert Agent(llm, [look]).run_sync("Is a fine?").answer == "It is fine."
