"""What a provider attached to its turns and refuses to take back: the conversation goes on without it.

Such a refusal comes back with every later request, so it would be the end of a conversation.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest

from tests.kit.dialects import Chat, Messages, Responses, json_reply
from tool_loop import Agent, MemoryJournal, tool
from tool_loop.errors import ProviderError
from tool_loop.events import Notice
from tool_loop.ports import Request
from tool_loop.transcript import AssistantMessage, Transcript, UserMessage

THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "SIG"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {"type": "web_search_result", "url": "https://a.example", "encrypted_content": "ENC", "page_age": None}
    ],
}
USE = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"x": 1}}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ENC", "status": None}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_a", "name": "look", "arguments": '{"x": 1}'}


@tool(effect="read")
def look(x: int) -> str:
    """Look."""
    return "seen"


def blocks(*content: Any, stop: str = "end_turn") -> Any:
    return json_reply({"type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": stop})


def items(*output: Any) -> Any:
    return json_reply({"status": "completed", "model": "m", "output": output})


def chat(message: dict[str, Any]) -> Any:
    return json_reply({"model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})


CALLED = {"id": "call_a", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}
SIGNED = {"role": "assistant", "content": None, "tool_calls": [CALLED], "thinking_blocks": [THINKING]}
DETAILED = {**SIGNED, "reasoning_details": [{"type": "reasoning.encrypted", "data": "ENC", "id": None}]}
del DETAILED["thinking_blocks"]

CASES = [
    # code-yeongyu/senpi#150, can1357/oh-my-pi#6496
    ("messages", "messages.1.content.1: Invalid `encrypted_content` in `search_result` block", "ENC"),
    ("messages", "messages.1.content.1: web_search_tool_result block requires a matching server_tool_use", "ENC"),
    ("messages", "messages.1.content.0.type: Input tag 'server_tool_use' does not match the expected tags", "ENC"),
    # bastani-inc/atomic#1720, anthropics/claude-code#46843, and without a number
    ("messages", "messages.1.content.0: `thinking` blocks in the latest assistant message cannot be modified.", "SIG"),
    ("messages", "messages.1.content.0.thinking: each thinking block must contain thinking", "SIG"),
    ("messages", "messages.1: the final assistant content cannot start with what it starts with", "SIG"),
    ("messages", "Invalid `signature` in `thinking` block", "SIG"),
    # 1jehuang/jcode#1028, openai/codex#8119, continuedev/continue#8933
    ("responses", "Unknown parameter: 'input[1].namespace'.", "ENC"),
    ("responses", "Invalid type for 'input[1].content': expected an array, but got null instead.", "ENC"),
    ("responses", "The encrypted content gAAA...c90= could not be verified.", "ENC"),
    ("responses", "Item 'rs_1' of type 'reasoning' was provided without its required following item.", "ENC"),
    # Behind a gateway that counts the messages as its own provider does.
    ("chat", "messages.1.content.0: Invalid `signature` in `thinking` block", "SIG"),
    ("chat", "messages.57.content.0: Invalid `signature` in `thinking` block", "SIG"),
    ("chat", "body.messages.2.assistant.reasoning_details.0.data: could not be decrypted", "ENC"),
]


def first_reply(dialect: str, blob: str) -> Any:
    if dialect == "messages":
        content = (SEARCH, FOUND, USE) if blob == "ENC" else (THINKING, USE)
        return blocks(*content, stop="tool_use")
    return items(REASONING, CALL) if dialect == "responses" else chat(SIGNED if blob == "SIG" else DETAILED)


DIALECTS: dict[str, Any] = {"messages": Messages(), "responses": Responses(), "chat": Chat()}
LAST = {
    "messages": lambda: blocks({"type": "text", "text": "done"}),
    "responses": lambda: items({"type": "message", "role": "assistant", "content": "done"}),
    "chat": lambda: chat({"role": "assistant", "content": "done"}),
}


class Picky:
    """A server that refuses every request in which `blob` comes back, in these words."""

    def __init__(self, dialect: str, words: str, blob: str, status: int = 400) -> None:
        self.dialect, self.words, self.blob, self.status = dialect, words, blob, status
        self.refused = 0
        self.bodies: list[Any] = []
        self.refuses = True

    def llm(self) -> Any:
        http = httpx2.MockTransport(self._answer)
        made = DIALECTS[self.dialect].make
        return made(model="m", base_url="http://127.0.0.1:9", api_key="k", stream=False, http=http)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        self.bodies.append(body)
        conversation = body.get("messages") or body["input"]
        if self.blob in json.dumps(conversation) and self.refuses:
            self.refused += 1
            return json_reply(DIALECTS[self.dialect].error(self.words), self.status)  # type: ignore[no-any-return]
        answered = any("seen" in json.dumps(one) for one in conversation)
        return LAST[self.dialect]() if answered else first_reply(self.dialect, self.blob)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("dialect", "words", "blob"), CASES)
@pytest.mark.parametrize("status", [400, 502])
def test_what_is_refused_of_an_echoed_turn_is_left_out_once_with_a_notice(
    dialect: str, words: str, blob: str, status: int
) -> None:
    server = Picky(dialect, words, blob, status)
    journal = MemoryJournal()
    agent = Agent(server.llm(), [look], journal=journal, retry=None)
    notices: list[str] = []

    async def main() -> list[str]:
        first = await agent.run(
            "go", run_id="r", on_event=lambda e: notices.append(e.text) if isinstance(e, Notice) else None
        )
        later = await agent.run("and now?", continue_run="r")
        return [first.answer, later.answer]

    assert asyncio.run(main()) == ["done", "done"]
    assert server.refused <= 2  # the number may be another one's; then all of it goes, and the second time helps
    assert len(notices) == server.refused
    assert "sent without" in notices[0]


@pytest.mark.parametrize(("dialect", "words", "blob"), CASES)
def test_a_run_that_such_a_refusal_had_ended_goes_on_when_it_is_resumed(dialect: str, words: str, blob: str) -> None:
    server = Picky(dialect, "no words that help", blob)
    journal = MemoryJournal()
    with pytest.raises(ProviderError):
        Agent(server.llm(), [look], journal=journal, retry=None).run_sync("go", run_id="r")
    server.words = words

    resumed = Agent(server.llm(), [look], journal=journal, retry=None).resume("r")
    assert asyncio.run(resumed).answer == "done"


def test_a_refusal_in_a_stream_is_one_too() -> None:
    """anomalyco/opencode#43557: the gateway begins to answer, and then says so."""
    error = {"code": "invalid_encrypted_content", "message": "The encrypted content gAA= could not be verified."}
    server = Responses().llm(
        items(REASONING, CALL), json_reply({"status": "failed", "output": [], "error": error}), LAST["responses"]()
    )

    assert Agent(server.llm, [look], retry=None).run_sync("go").answer == "done"


def test_only_the_turn_that_is_pointed_at_loses_what_was_attached() -> None:
    def turn(n: int) -> list[Any]:
        item = json.dumps([REASONING | {"id": f"rs_{n}"}, len("Said.")])
        return [UserMessage("?"), AssistantMessage("Said.", opaque=item, origin="responses:http://127.0.0.1:9")]

    transcript = Transcript("", [*turn(1), *turn(2), *turn(3), UserMessage("?")])
    refusal = json_reply(Responses().error("Unknown parameter: 'input[4].status'."), 400)
    server = Responses().llm(refusal, LAST["responses"]())

    asyncio.run(server.llm.reply(Request(transcript), lambda _: None))

    before, after = ([one.get("id") for one in body["input"] if "id" in one] for body in server.bodies)
    assert before == ["rs_1", "rs_2", "rs_3"]
    assert after == ["rs_1", "rs_3"]


def test_the_system_prompt_counts_as_a_message_of_a_chat() -> None:
    def turn(n: int) -> list[Any]:
        attached = json.dumps({"reasoning_details": [{"type": "reasoning.text", "signature": f"S{n}"}]})
        return [UserMessage("?"), AssistantMessage("Said.", opaque=attached, origin="chat:http://127.0.0.1:9")]

    transcript = Transcript("Be brief.", [*turn(1), *turn(2), UserMessage("?")])
    server = Chat().llm(json_reply(Chat().error("messages[4]: Invalid signature"), 400), LAST["chat"]())

    asyncio.run(server.llm.reply(Request(transcript), lambda _: None))

    assert [["S1" in json.dumps(b["messages"]), "S2" in json.dumps(b["messages"])] for b in server.bodies] == [
        [True, True],
        [True, False],
    ]


def test_what_was_refused_stays_out_of_every_transcript_that_holds_the_turn() -> None:
    """A compaction, a summary on the side and a follow-up have transcripts of their own."""
    item = json.dumps([REASONING, len("Said.")])
    turns = [UserMessage("?"), AssistantMessage("Said.", opaque=item, origin="responses:http://127.0.0.1:9")]
    refusal = json_reply(Responses().error("Unknown parameter: 'input[1].status'."), 400)
    server = Responses().llm(refusal, LAST["responses"](), LAST["responses"]())

    for transcript in (Transcript("", [*turns, UserMessage("?")]), Transcript("", [UserMessage("!"), *turns])):
        asyncio.run(server.llm.reply(Request(transcript.extended(UserMessage("?"))), lambda _: None))

    assert ["ENC" in json.dumps(body) for body in server.bodies] == [True, False, False]


def test_a_provider_that_refuses_every_turn_gets_none_of_it_any_more() -> None:
    turns: list[Any] = []
    for n in range(5):
        item = json.dumps([REASONING | {"id": f"rs_{n}"}, len("Said.")])
        turns += [UserMessage("?"), AssistantMessage("Said.", opaque=item, origin="responses:http://127.0.0.1:9")]
    refusals = [json_reply(Responses().error(f"Unknown parameter: 'input[{n}].status'."), 400) for n in (1, 3, 5)]
    server = Responses().llm(*refusals, LAST["responses"]())

    asyncio.run(server.llm.reply(Request(Transcript("", [*turns, UserMessage("?")])), lambda _: None))

    assert [json.dumps(body).count("ENC") for body in server.bodies] == [5, 4, 3, 0]


def test_a_refusal_of_what_was_not_attached_is_the_error_it_is() -> None:
    server = Messages().llm(json_reply(Messages().error("messages.0.content: text must be non-empty"), 400))

    with pytest.raises(ProviderError):
        asyncio.run(server.llm.reply(Request(Transcript("", [UserMessage("Look.")])), lambda _: None))

    assert len(server.got) == 1


@pytest.mark.parametrize(
    "words",
    [
        "Function call is missing a thought_signature in functionCall parts. Function call `look`, position 2.",
        "Unable to submit: function call `look` in the 2. content block is missing a `thought_signature`.",
    ],
)
def test_calls_without_a_signature_say_so_to_a_server_that_wants_one(words: str) -> None:
    """allenhutchison/obsidian-gemini#228, askimo-ai/askimo#543: calls that another model had made, say."""
    signed = {"extra_content": {"google": {"thought_signature": "SIG", "more": 1}}}
    first = chat({"role": "assistant", "content": None, "tool_calls": [CALLED | signed, CALLED | {"id": "call_b"}]})
    server = Chat().llm(first, json_reply(Chat().error(words), 400), LAST["chat"]())
    notices: list[str] = []
    told = lambda e: notices.append(e.text) if isinstance(e, Notice) else None  # noqa: E731

    assert Agent(server.llm, [look], retry=None, on_event=told).run_sync("go").answer == "done"

    sent = [call["extra_content"] for call in server.bodies[-1]["messages"][-3]["tool_calls"]]
    none = {"google": {"thought_signature": "skip_thought_signature_validator"}}
    assert sent == [signed["extra_content"], none]
    assert len(notices) == 1


# --- what is never sent ---------------------------------------------------------------------------


@pytest.mark.parametrize("stop", ["end_turn", "max_tokens"])
@pytest.mark.parametrize("last", [THINKING, {"type": "redacted_thinking", "data": "x"}])
def test_a_message_never_ends_in_thinking(stop: str, last: dict[str, Any]) -> None:
    """tontinton/maki#807, tailcallhq/forgecode#2107: refused with every later request."""
    text = {"type": "text", "text": "Partly."}
    server = Messages().llm(blocks(THINKING, text, last, {"type": "text", "text": " "}, stop=stop), LAST["messages"]())
    agent = Agent(server.llm, [look], journal=MemoryJournal(), retry=None)

    agent.run_sync("go", run_id="r")
    agent.run_sync("and now?", continue_run="r")

    assert server.bodies[-1]["messages"][1]["content"] == [THINKING, text]


def test_reasoning_that_nothing_follows_is_not_sent() -> None:
    answer = {"type": "message", "role": "assistant", "content": "Partly."}
    server = Responses().llm(items(REASONING, answer, REASONING | {"id": "rs_2"}), LAST["responses"]())
    agent = Agent(server.llm, [look], journal=MemoryJournal(), retry=None)

    agent.run_sync("go", run_id="r")
    agent.run_sync("and now?", continue_run="r")

    assert [one.get("id") for one in server.bodies[-1]["input"]] == [None, "rs_1", None, None]


@pytest.mark.parametrize(("dialect", "blob"), [("messages", "ENC"), ("responses", "ENC"), ("chat", "ENC")])
def test_a_null_is_never_echoed(dialect: str, blob: str) -> None:
    server = Picky(dialect, "", blob)
    server.refuses = False

    Agent(server.llm(), [look], retry=None).run_sync("go")

    sent = json.dumps(server.bodies[-1].get("messages") or server.bodies[-1]["input"])
    assert blob in sent
    assert "null" not in sent.replace('"content": null', "")  # beside calls, a chat says it has no text


def test_a_reasoning_item_goes_back_with_its_summary_and_without_its_status() -> None:
    """1jehuang/jcode#1028 refuses the one, newo-ether/Agora#141 misses the other."""
    given = {"type": "reasoning", "id": "rs_1", "summary": None, "encrypted_content": "E", "status": "completed"}
    server = Responses().llm(items(given, CALL), LAST["responses"]())

    Agent(server.llm, [look], retry=None).run_sync("go")

    assert server.bodies[1]["input"][1] == {"summary": [], "type": "reasoning", "id": "rs_1", "encrypted_content": "E"}
