"""The Messages dialect: what only it has. What all dialects have in common is in test_conformance.py."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest

from tests.kit.dialects import TOOLS, Messages, Said, ask, json_reply, sse, sse_reply
from tool_loop import AnthropicMessages
from tool_loop.errors import ConfigurationError, ProviderError, UsageError
from tool_loop.events import ModelReplied, Notice, RunStarted, TextDelta, ToolCall, ToolReturned, Usage
from tool_loop.journal.codec import decode, encode
from tool_loop.ports import Request
from tool_loop.transcript import AssistantMessage, ToolMessage, Transcript, UserMessage

HOME = "https://api.anthropic.com"
MARK = {"type": "ephemeral"}
DIALECT = Messages()
THINKING = {"type": "thinking", "thinking": "Need the file.", "signature": "c2ln+/="}
REDACTED = {"type": "redacted_thinking", "data": "b3BhcXVl"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a.py"}}


def message(*content: Any, stop: str | None = "end_turn", **more: Any) -> httpx2.Response:
    body = {"type": "message", "role": "assistant", "model": "m-1", "content": list(content), "stop_reason": stop}
    return json_reply(body | {"usage": {"input_tokens": 5, "output_tokens": 7}} | more)


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def answer(server: Any, request: Request, seen: list[Any] | None = None) -> ModelReplied:
    reply: ModelReplied = asyncio.run(server.llm.reply(request, (seen if seen is not None else []).append))
    return reply


def turn(reply: ModelReplied) -> AssistantMessage:
    """The reply as it is in the history, after it was written to a journal and read again."""
    again = decode(encode(reply))
    assert isinstance(again, ModelReplied)
    return AssistantMessage(again.text, again.calls, again.opaque, again.origin)


def results(reply: ModelReplied) -> list[ToolMessage]:
    return [ToolMessage(call.id, call.name, "x = 1") for call in reply.calls]


def blocks(*events: dict[str, Any], stop: str | None = "end_turn") -> httpx2.Response:
    start = {"type": "message_start", "message": {"model": "m-1", "usage": {"input_tokens": 5, "output_tokens": 1}}}
    end = {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 7}}
    return sse_reply(sse([start, *events, end, {"type": "message_stop"}]))


def opened(index: int, block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def added(index: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


# --- thinking and other blocks of the provider ------------------------------------------------------------


def test_thinking_goes_back_word_for_word_and_in_its_place_after_a_journal() -> None:
    server = DIALECT.llm(message(REDACTED, THINKING, text("Look."), USE, stop="tool_use"), message(text("Hi")))
    reply = answer(server, ask())

    answer(server, ask(UserMessage("Look."), turn(reply), *results(reply)))

    assert reply.reasoning == "Need the file."
    assert server.bodies[1]["messages"][1] == {"role": "assistant", "content": [REDACTED, THINKING, text("Look."), USE]}


def test_streamed_thinking_goes_back_as_if_it_had_come_whole() -> None:
    stream = blocks(
        opened(0, {"type": "thinking", "thinking": "", "signature": ""}),
        added(0, type="thinking_delta", thinking="Need the"),
        added(0, type="thinking_delta", thinking=" file."),
        added(0, type="signature_delta", signature="c2ln+/="),
        opened(1, REDACTED),
        opened(2, {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {}}),
        added(2, type="input_json_delta", partial_json=""),
        added(2, type="input_json_delta", partial_json='{"path": "a.py"}'),
        stop="tool_use",
    )
    server = DIALECT.llm(stream, message(text("Hi")))
    reply = answer(server, ask())

    answer(server, ask(UserMessage("Look."), turn(reply), *results(reply)))

    assert server.bodies[1]["messages"][1]["content"] == [THINKING, REDACTED, USE]


def test_thinking_without_words_is_kept_for_its_signature() -> None:
    hidden = THINKING | {"thinking": ""}
    server = DIALECT.llm(message(hidden, USE, stop="tool_use"), message(text("Hi")))
    reply = answer(server, ask())

    answer(server, ask(UserMessage("Look."), turn(reply), *results(reply)))

    assert server.bodies[1]["messages"][1]["content"] == [hidden, USE]


def test_thinking_goes_to_no_other_provider() -> None:
    elsewhere = DIALECT.llm(message(text("Hi")), base_url="http://127.0.0.1:10")
    reply = answer(DIALECT.llm(message(THINKING, text("Look."), USE, stop="tool_use")), ask())

    answer(elsewhere, ask(UserMessage("Look."), turn(reply), *results(reply)))

    assert elsewhere.bodies[0]["messages"][1]["content"] == [text("Look."), USE]


def test_thinking_that_was_cut_before_its_signature_is_not_sent_back() -> None:
    server = DIALECT.llm(message({"type": "thinking", "thinking": "Well, "}, text("A"), stop="max_tokens"))

    reply = answer(server, ask())

    assert (reply.stop, reply.reasoning, reply.opaque) == ("length", "Well, ", "")


def test_a_signature_that_is_refused_costs_the_thinking_and_not_the_run() -> None:
    refusal = DIALECT.error("messages.1.content.0: Invalid `signature` in `thinking` block")
    server = DIALECT.llm(
        message(THINKING, USE, stop="tool_use"), json_reply(refusal, 400), message(text("Hi")), json_reply(refusal, 400)
    )
    reply = answer(server, ask())
    history = ask(UserMessage("Look."), turn(reply), *results(reply))
    seen: list[Any] = []

    assert answer(server, history, seen).text == "Hi"
    assert server.bodies[2]["messages"][1]["content"] == [USE]
    assert "without it" in next(s.text for s in seen if isinstance(s, Notice))
    with pytest.raises(ProviderError):
        answer(server, history)
    assert len(server.got) == 4


def test_blocks_of_the_providers_own_tools_are_kept_and_a_pause_goes_on_from_them() -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "web_search_result"}]}
    server = DIALECT.llm(
        blocks(
            opened(0, search | {"input": {}}),
            added(0, type="input_json_delta", partial_json='{"query":'),
            added(0, type="input_json_delta", partial_json=' "x"}'),
            opened(1, found),
            stop="pause_turn",
        ),
        message(text("Hi")),
    )
    reply = answer(server, ask())
    transcript = Transcript("")
    for event in (RunStarted("Look."), reply):
        transcript.apply(event)

    answer(server, Request(transcript, TOOLS))

    assert (reply.stop, reply.text) == ("pause", "")
    assert server.bodies[1]["messages"] == [
        {"role": "user", "content": [text("Look.")]},
        {"role": "assistant", "content": [search, found]},
    ]


@pytest.mark.parametrize("kind", ["tool_result", "image", "document"])
def test_blocks_that_only_a_user_may_send_are_not_sent_back(kind: str) -> None:
    server = DIALECT.llm(message({"type": kind}, THINKING, text("So.")), message(text("Hi")))
    reply = answer(server, ask())

    answer(server, ask(UserMessage("Look."), turn(reply), UserMessage("More.")))

    assert server.bodies[1]["messages"][1]["content"] == [THINKING, text("So.")]


def test_citations_go_back_with_their_text() -> None:
    cited = {"type": "char_location", "cited_text": "x"}
    stream = blocks(
        opened(0, text("") | {"citations": []}),
        added(0, type="text_delta", text="So."),
        added(0, type="citations_delta", citation=cited),
        opened(1, text("")),
        added(1, type="text_delta", text=" Done."),
    )
    server = DIALECT.llm(stream, message(text("Hi")))
    reply = answer(server, ask())

    answer(server, ask(UserMessage("Look."), turn(reply), UserMessage("More.")))

    assert reply.text == "So. Done."
    assert server.bodies[1]["messages"][1]["content"] == [text("So.") | {"citations": [cited]}, text(" Done.")]


# --- replies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("pause_turn", "pause"),
        ("brand_new", "stop"),
        (None, "stop"),
    ],
)
def test_stop_reasons_are_read(reason: str | None, stop: str) -> None:
    assert answer(DIALECT.llm(message(text("Hi"), stop=reason)), ask()).stop == stop


@pytest.mark.parametrize("reason", ["end_turn", "stop_sequence", "tool_use", None])
def test_calls_decide_whatever_the_reason_says(reason: str | None) -> None:
    assert answer(DIALECT.llm(message(USE, stop=reason)), ask()).stop == "tool_calls"


def test_nothing_of_a_refused_turn_runs() -> None:
    reply = answer(DIALECT.llm(message(text("No"), USE, stop="refusal")), ask())

    assert (reply.stop, reply.calls) == ("refusal", ())


def test_an_empty_last_word_is_left_to_the_loop_which_answers_from_the_record() -> None:
    reply = answer(DIALECT.llm(message()), ask(may_call=False))

    assert (reply.text, reply.calls, reply.stop) == ("", (), "stop")


def test_what_came_from_the_cache_is_part_of_the_input() -> None:
    usage = {"input_tokens": 5, "output_tokens": 7, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 10}

    reply = answer(DIALECT.llm(message(text("Hi"), usage=usage)), ask())

    assert reply.usage == Usage(115, 7, 100, 10)


def test_counts_of_a_stream_are_totals_and_the_largest_is_the_truth() -> None:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 0, "output_tokens": 1}}}
    end = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"input_tokens": 40, "output_tokens": 9},
    }
    late = {"type": "message_delta", "delta": {}, "usage": {"input_tokens": 0, "output_tokens": True, "x": "y"}}
    said = [opened(0, text("Hi"))]

    reply = answer(DIALECT.llm(sse_reply(sse([start, *said, end, late, {"type": "message_stop"}]))), ask())

    assert (reply.usage.input, reply.usage.output) == (40, 9)


def test_blocks_without_a_type_are_passed_over() -> None:
    assert answer(DIALECT.llm(message({"x": 1}, 3, text("Hi"))), ask()).text == "Hi"


def test_input_that_came_with_the_start_of_a_block_is_read() -> None:
    assert answer(DIALECT.llm(blocks(opened(0, USE), stop="tool_use")), ask()).calls[0].arguments == '{"path": "a.py"}'


def test_deltas_without_a_start_are_read_by_their_type() -> None:
    seen: list[Any] = []
    stream = blocks(added(0, type="thinking_delta", thinking="Hm"), added(1, type="text_delta", text="Hi"))

    reply = answer(DIALECT.llm(stream), ask(), seen)

    assert (reply.text, reply.reasoning) == ("Hi", "Hm")
    assert [s.text for s in seen if isinstance(s, TextDelta)] == ["Hi"]


def test_input_without_a_start_is_a_call_without_a_name() -> None:
    with pytest.raises(ProviderError, match="without a name"):
        answer(DIALECT.llm(blocks(added(0, type="input_json_delta", partial_json="{}"))), ask())


@pytest.mark.parametrize("given", [[1], "text", 3])
def test_input_that_is_no_object_is_kept_as_it_came(given: Any) -> None:
    reply = answer(DIALECT.llm(message(USE | {"input": given}, stop="tool_use")), ask())

    assert reply.calls[0].arguments == (given if isinstance(given, str) else json.dumps(given))


def test_broken_input_of_a_call_is_kept_for_the_model_and_sent_as_an_empty_object() -> None:
    stream = blocks(
        opened(0, USE | {"input": {}}), added(0, type="input_json_delta", partial_json='{"path": "a'), stop="tool_use"
    )
    server = DIALECT.llm(stream, message(text("Hi")))
    reply = answer(server, ask())

    answer(server, ask(UserMessage("Look."), turn(reply), *results(reply)))

    assert reply.calls[0].arguments == '{"path": "a'
    assert server.bodies[1]["messages"][1]["content"] == [USE | {"input": {}}]


def test_broken_input_of_the_providers_own_tool_is_left_as_it_began() -> None:
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}
    stream = blocks(opened(0, search), added(0, type="input_json_delta", partial_json='{"q'), opened(1, text("Hi")))

    assert json.loads(answer(DIALECT.llm(stream), ask()).opaque) == [search, 2]


def test_a_stream_of_a_gateway_that_ends_with_done_is_complete() -> None:
    body = DIALECT.stream(Said("Hi")).replace(b'event: message_stop\ndata: {"type": "message_stop"}', b"data: [DONE]")

    assert answer(DIALECT.llm(sse_reply(body)), ask()).text == "Hi"


def test_done_alone_completes_nothing() -> None:
    with pytest.raises(ProviderError) as caught:
        answer(DIALECT.llm(sse_reply(sse(["[DONE]"]))), ask())
    assert caught.value.kind == "protocol"


def test_a_frame_of_the_stream_that_is_named_but_not_typed_is_read_by_its_name() -> None:
    body = (
        DIALECT.stream(Said("Hi")).replace(b'"type": "message_start", ', b"").replace(b'"type": "message_delta", ', b"")
    )

    assert answer(DIALECT.llm(sse_reply(body)), ask()).usage == Usage(50, 12)


# --- requests -----------------------------------------------------------------------------------------------


def body_of(request: Request, **options: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(DIALECT.llm(**options).llm.body(request))
    return body


def test_on_the_providers_own_server_the_conversation_is_cached_by_a_field_of_the_request() -> None:
    body = body_of(ask(), base_url=HOME)

    assert body["cache_control"] == MARK
    assert body["system"] == [text("Be brief.") | {"cache_control": MARK}]
    assert "cache_control" not in json.dumps([body["messages"], body["tools"]])


def test_elsewhere_the_last_block_is_marked_and_never_the_one_before() -> None:
    request = ask(UserMessage("a"), AssistantMessage("b"), UserMessage("c"))

    marked = [b for m in body_of(request)["messages"] for b in m["content"] if "cache_control" in b]

    assert marked == [text("c") | {"cache_control": MARK}]


def test_a_result_that_stands_in_for_a_missing_one_is_marked_as_the_last_block() -> None:
    request = ask(UserMessage("a"), AssistantMessage("b", (ToolCall("x", "read_file"),)))

    last = body_of(request)["messages"][2]["content"][0]

    assert (last["type"], last["cache_control"]) == ("tool_result", MARK)


def test_without_a_system_prompt_the_tools_are_marked() -> None:
    body = body_of(ask(system=""))

    assert "system" not in body
    assert ["cache_control" in tool for tool in body["tools"]] == [False, True]


def test_caching_can_be_switched_off() -> None:
    assert "cache_control" not in json.dumps(body_of(ask(), caching="off", base_url=HOME))


@pytest.mark.parametrize("base_url", [HOME, "http://127.0.0.1:9"])
def test_a_turn_that_is_wider_than_the_cache_looks_back_is_marked_on_both_sides(base_url: str) -> None:
    calls = tuple(ToolCall(f"c{n}", "read_file") for n in range(12))
    wide = [UserMessage("a"), AssistantMessage("b", calls), *(ToolMessage(c.id, c.name, "x") for c in calls)]

    body = body_of(ask(*wide), base_url=base_url)

    assert body["messages"][0]["content"][0]["cache_control"] == MARK
    assert json.dumps(body).count("cache_control") == 3
    assert "cache_control" not in json.dumps(
        body_of(ask(*wide[:1], UserMessage("b")), base_url=base_url)["messages"][0]["content"][0]
    )


def test_on_the_providers_own_server_a_request_begins_with_exactly_the_bytes_of_the_one_before() -> None:
    llm = DIALECT.llm(base_url=HOME).llm
    transcript = Transcript("Be brief.", [UserMessage("Look.")])
    before = llm.body(Request(transcript, TOOLS))
    transcript._add(AssistantMessage("", (ToolCall("a", "read_file"),)))
    transcript._add(ToolMessage("a", "read_file", "x"))

    after = llm.body(Request(transcript, TOOLS))

    assert after.startswith(before.removesuffix(b"]}"))


def test_results_and_what_the_loop_says_after_them_are_one_message() -> None:
    said = AssistantMessage("", (ToolCall("a", "read_file"), ToolCall("b", "list_dir")))
    request = ask(
        UserMessage("Look."),
        said,
        ToolMessage("a", "read_file", "x"),
        ToolMessage("b", "list_dir", "{}", error=True),
        UserMessage("Stop."),
    )

    messages = body_of(request, caching="off")["messages"]

    assert [m["role"] for m in messages] == ["user", "assistant", "user"]
    assert messages[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": "x"},
        {"type": "tool_result", "tool_use_id": "b", "content": "{}", "is_error": True},
        text("Stop."),
    ]


def test_what_would_be_an_empty_block_is_a_word() -> None:
    said = AssistantMessage(" \n", (ToolCall("a", "read_file"),))
    request = ask(UserMessage(" "), said, ToolMessage("a", "read_file", "", error=True))

    messages = body_of(request, caching="off")["messages"]

    assert messages[0]["content"] == [text("(empty)")]
    assert [b["type"] for b in messages[1]["content"]] == ["tool_use"]
    assert messages[2]["content"][0]["content"] == "(empty)"


def test_ids_that_are_not_taken_are_changed_alike_in_call_and_result() -> None:
    said = AssistantMessage("", (ToolCall("a b", "read_file"),))
    again = AssistantMessage("", (ToolCall("x", "read_file"),))
    request = ask(
        UserMessage("Look."),
        said,
        ToolMessage("a b", "read_file", "1"),
        again,
        ToolMessage("x", "read_file", "2"),
        again,
        ToolMessage("x", "read_file", "3"),
    )

    asked = DIALECT.read(body_of(request))

    ids = [call.id for role, what in asked.turns if role == "assistant" for call in what[1]]
    assert len(set(ids)) == 3
    assert "x" in ids


def test_a_transcript_of_nothing_is_still_json() -> None:
    assert body_of(Request(Transcript("")))["messages"] == []


def test_settings_go_out_as_they_are() -> None:
    body = body_of(
        ask(), max_tokens=99, temperature=0.5, thinking={"type": "adaptive"}, extra_body={"metadata": {"user_id": "u"}}
    )

    assert (body["max_tokens"], body["temperature"], body["thinking"]) == (99, 0.5, {"type": "adaptive"})
    assert body["metadata"] == {"user_id": "u"}


# --- what is worth one more request ---------------------------------------------------------------------------


def test_a_model_that_writes_less_is_asked_for_less() -> None:
    words = "max_tokens: 16000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-haiku"
    server = DIALECT.llm(json_reply(DIALECT.error(words), 400), message(text("Hi")), message(text("Hi")))

    answer(server, ask())
    answer(server, ask())

    assert [body["max_tokens"] for body in server.bodies] == [16_000, 8192, 8192]


def test_a_limit_that_is_no_smaller_changes_nothing() -> None:
    words = "max_tokens: 16000 > 16000, which is strange"
    server = DIALECT.llm(json_reply(DIALECT.error(words), 400))

    with pytest.raises(ProviderError, match="strange"):
        answer(server, ask())
    assert len(server.got) == 1


def test_a_server_that_takes_no_cache_marks_gets_none() -> None:
    refusal = json_reply(DIALECT.error("cache_control: Extra inputs are not permitted"), 400)
    again = json_reply(DIALECT.error("messages.0.content.0.cache_control: Extra inputs are not permitted"), 400)
    server = DIALECT.llm(refusal, again, message(text("Hi")), base_url=HOME)

    answer(server, ask())

    assert [json.dumps(body).count("cache_control") for body in server.bodies] == [2, 2, 0]


def test_a_request_that_is_too_large_is_a_matter_of_the_context() -> None:
    error = DIALECT.error("Request exceeds the maximum size", code="request_too_large")

    with pytest.raises(ProviderError) as caught:
        answer(DIALECT.llm(json_reply(error, 413)), ask())
    assert caught.value.kind == "context_length"


# --- where it goes and what is missing --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "address"),
    [
        ("https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com/v1/", "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com/v1/messages", "https://api.anthropic.com/v1/messages"),
        ("https://api.deepseek.com/anthropic", "https://api.deepseek.com/anthropic/v1/messages"),
        ("https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1/messages"),
    ],
)
def test_the_address_is_made_from_any_form_of_the_base(base_url: str, address: str) -> None:
    server = DIALECT.llm(message(text("Hi")), base_url=base_url)

    answer(server, ask())

    assert str(server.got[0].url) == address


def test_the_key_goes_in_the_providers_header_and_a_token_as_a_bearer() -> None:
    key = DIALECT.llm(message(text("Hi")), api_key=" key-1\n", extra_headers={"Anthropic-Beta": "b"})
    token = DIALECT.llm(message(text("Hi")), api_key=None, auth_token="token-1")
    answer(key, ask())
    answer(token, ask())

    sent, other = key.got[0].headers, token.got[0].headers

    assert (sent["x-api-key"], sent["anthropic-version"], sent["anthropic-beta"]) == ("key-1", "2023-06-01", "b")
    assert "authorization" not in sent
    assert other["authorization"] == "Bearer token-1"
    assert "x-api-key" not in other


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_MODEL", "claude-x")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token-1")

    llm = AnthropicMessages()

    assert llm.model == "claude-x"
    assert llm.origin == "messages:http://127.0.0.1:9"
    assert llm.endpoint.failures.key_name == "ANTHROPIC_AUTH_TOKEN"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"api_key": "k"}, "no model: set ANTHROPIC_MODEL"),
        ({"model": "m"}, "no key for api.anthropic.com: set ANTHROPIC_API_KEY"),
        ({"model": "m", "api_key": "k", "base_url": "nonsense"}, "ANTHROPIC_BASE_URL is not a URL"),
        ({"model": "m", "api_key": "k\u00e9"}, "ANTHROPIC_API_KEY holds a character"),
    ],
)
def test_what_is_missing_is_said(options: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODEL", "BASE_URL", "API_KEY", "AUTH_TOKEN"):
        monkeypatch.delenv(f"ANTHROPIC_{name}", raising=False)

    with pytest.raises(ConfigurationError, match=words):
        AnthropicMessages(**options)


@pytest.mark.parametrize("extra", [{"messages": []}, {"cache_control": {}}, {"x": float("nan")}])
def test_the_callers_own_members_of_the_body_are_checked(extra: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="extra_body"):
        DIALECT.llm(extra_body=extra)


def test_a_refused_key_is_named_as_what_it_is() -> None:
    server = DIALECT.llm(json_reply(DIALECT.error("invalid x-api-key", "authentication_error"), 401))

    with pytest.raises(ProviderError, match="the key in ANTHROPIC_API_KEY was refused"):
        answer(server, ask())


def test_a_whole_run_goes_through_the_record() -> None:
    """Events only, as the loop has them: reply, results, the next request."""
    server = DIALECT.llm(message(THINKING, USE, stop="tool_use"), message(text("It is 1.")))
    transcript = Transcript("")
    transcript.apply(RunStarted("What is x?", "Be brief."))
    transcript.apply(decode(encode(answer(server, Request(transcript, TOOLS)))))
    transcript.apply(ToolReturned("toolu_1", "x = 1"))

    assert answer(server, Request(transcript, TOOLS)).text == "It is 1."
    assert server.asked().turns[-1] == ("result", ("toolu_1", "x = 1"))
