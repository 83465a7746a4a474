"""The Responses dialect: what only it has. What all dialects have in common is in test_conformance.py."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest

from tests.kit.dialects import FAILURES, TOOLS, Responses, Said, ask, json_reply, sse, sse_reply
from tool_loop import OpenAIResponses
from tool_loop.errors import ConfigurationError, ProviderError, UsageError
from tool_loop.events import ModelReplied, Notice, RunStarted, TextDelta, ToolCall, ToolReturned, Usage
from tool_loop.journal.codec import decode, encode
from tool_loop.llm.responses.reply import ResponsesReply
from tool_loop.llm.text import Names
from tool_loop.ports import Request
from tool_loop.transcript import AssistantMessage, ToolMessage, Transcript, UserMessage

DIALECT = Responses()
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Hm."}],
    "encrypted_content": "gAA=",
}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_a",
    "name": "read_file",
    "arguments": '{"path": "a.py"}',
}


def said(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": words}]} | more


def response(*output: Any, status: str = "completed", **more: Any) -> dict[str, Any]:
    return {"status": status, "model": "m-1", "output": list(output)} | more


def whole(*output: Any, **more: Any) -> httpx2.Response:
    return json_reply(response(*output, **more))


def stream(*events: Any) -> httpx2.Response:
    return sse_reply(sse(events))


def end(*output: Any, kind: str = "completed", **more: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "response": response(*output, **({"status": kind} | more))}


def item(kind: str, index: int | None, value: dict[str, Any]) -> dict[str, Any]:
    place = {} if index is None else {"output_index": index}
    return {"type": f"response.output_item.{kind}", "item": value} | place


def delta(kind: str, index: int, text: str) -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "output_index": index, "delta": text}


def answer(server: Any, request: Request, seen: list[Any] | None = None) -> ModelReplied:
    reply: ModelReplied = asyncio.run(server.llm.reply(request, (seen if seen is not None else []).append))
    return reply


def failure(server: Any, request: Request | None = None) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        answer(server, request or ask())
    return caught.value


def turn(reply: ModelReplied) -> AssistantMessage:
    """The reply as it is in the history, after it was written to a journal and read again."""
    again = decode(encode(reply))
    assert isinstance(again, ModelReplied)
    return AssistantMessage(again.text, again.calls, again.opaque, again.origin)


def sent_back(*output: Any, to: Any = None) -> list[Any]:
    """The items between question and results, when a reply of this output is sent back."""
    server = DIALECT.llm(whole(*output), whole(said("Hi")))
    reply = answer(server, ask())
    server = to or server
    answer(server, ask(UserMessage("Look."), turn(reply), *(ToolMessage(c.id, c.name, "x") for c in reply.calls)))
    items: list[Any] = server.bodies[-1]["input"][1:]
    return [one for one in items if one.get("type") != "function_call_output"]


# --- stateless ------------------------------------------------------------------------------------------------


def test_nothing_is_stored_and_the_reasoning_is_asked_for() -> None:
    server = DIALECT.llm(whole(said("Hi")))

    answer(server, ask())

    body = server.bodies[0]
    assert body["store"] is False
    assert body["include"] == ["reasoning.encrypted_content"]
    assert body["instructions"] == "Be brief."
    assert body["input"] == [{"role": "user", "content": "Look."}]
    assert body["tools"][0] == {
        "type": "function",
        "name": "read_file",
        "description": "Read a file.",
        "parameters": dict(TOOLS[0].parameters),
        "strict": False,
    }


def test_reasoning_goes_back_word_for_word_and_before_its_call_after_a_journal() -> None:
    more = {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "gBB="}
    other = CALL | {"call_id": "call_b", "id": "fc_2"}

    items = sent_back(REASONING, said("Look."), CALL, more, other)

    call = {"type": "function_call", "name": "read_file", "arguments": '{"path": "a.py"}'}
    assert items == [
        REASONING,
        {"role": "assistant", "content": "Look."},
        call | {"call_id": "call_a"},
        more,
        call | {"call_id": "call_b"},
    ]


def test_reasoning_as_plain_text_goes_back_too() -> None:
    plain = {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}

    assert sent_back(plain, CALL)[0] == plain


def test_a_mere_reference_to_what_was_not_stored_is_dropped() -> None:
    bare = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None}

    assert [one["type"] for one in sent_back(bare, CALL)] == ["function_call"]


def test_the_phase_of_a_message_goes_back_with_it() -> None:
    items = sent_back(said("Looking.", phase="commentary"), CALL, said("Done.", phase="final_answer"))

    assert items[0] == {"role": "assistant", "content": "Looking.", "phase": "commentary"}
    assert items[2] == {"role": "assistant", "content": "Done.", "phase": "final_answer"}


def test_items_of_the_providers_own_tools_go_back_in_their_place() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "score": 0.5}

    assert sent_back(search, said("So."))[0] == search


@pytest.mark.parametrize("kind", ["function_call_output", "computer_call_output", "item_reference"])
def test_items_that_only_a_client_may_send_are_not_sent_back(kind: str) -> None:
    assert [one.get("role") for one in sent_back({"type": kind, "call_id": "x"}, REASONING, said("So."))] == [
        None,
        "assistant",
    ]


def test_an_item_that_is_no_json_is_left_out_with_the_rest_of_its_kind() -> None:
    body = json.dumps(response(REASONING, CALL)).replace('"gAA="', "NaN")
    server = DIALECT.llm(httpx2.Response(200, content=body.encode()))

    assert answer(server, ask()).opaque == ""


def test_reasoning_goes_to_no_other_provider() -> None:
    elsewhere = DIALECT.llm(whole(said("Hi")), base_url="http://127.0.0.1:10")

    assert [one.get("type") for one in sent_back(REASONING, said("Look."), CALL, to=elsewhere)] == [
        None,
        "function_call",
    ]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "The encrypted content gAA= could not be verified."),
        (404, "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."),
    ],
)
def test_reasoning_that_cannot_be_read_any_more_costs_the_reasoning_and_not_the_run(status: int, words: str) -> None:
    refusal = DIALECT.error(words)
    other = REASONING | {"id": "rs_2", "encrypted_content": "gBB="}
    server = DIALECT.llm(whole(REASONING, CALL), json_reply(refusal, status), whole(other, CALL), whole(said("Hi")))
    first = answer(server, ask())
    transcript = Transcript("", [UserMessage("Look."), turn(first), ToolMessage("call_a", "read_file", "x")])
    seen: list[Any] = []

    later = answer(server, Request(transcript, TOOLS), seen)
    transcript._add(turn(later))
    transcript._add(ToolMessage("call_a", "read_file", "x"))
    answer(server, Request(transcript, TOOLS))

    kinds = [[one.get("type") for one in body["input"]] for body in server.bodies]
    assert kinds[2] == [None, "function_call", "function_call_output"]
    assert kinds[3] == [
        None,
        "function_call",
        "function_call_output",
        "reasoning",
        "function_call",
        "function_call_output",
    ]
    assert "without it" in next(s.text for s in seen if isinstance(s, Notice))


def test_a_refusal_of_reasoning_that_was_never_sent_is_an_error() -> None:
    refusal = DIALECT.error("Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.")

    for status in (400, 404):
        server = DIALECT.llm(json_reply(refusal, status))

        assert "not persisted" in str(failure(server))
        assert len(server.got) == 1


# --- replies --------------------------------------------------------------------------------------------------


def test_usage_is_read_with_its_details() -> None:
    usage = {
        "input_tokens": 50,
        "output_tokens": 12,
        "input_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": 7},
    }

    assert answer(DIALECT.llm(whole(said("Hi"), usage=usage)), ask()).usage == Usage(50, 12, 30, 4, 7)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("max_output_tokens", "length"), ("content_filter", "content_filter"), ("new", "length"), (None, "length")],
)
def test_an_incomplete_response_says_why(reason: str | None, stop: str) -> None:
    details = {"reason": reason} if reason else None
    events = (delta("output_text", 0, "Half"), end(said("Half"), kind="incomplete", incomplete_details=details))

    reply = answer(DIALECT.llm(stream(*events)), ask())

    assert (reply.text, reply.stop) == ("Half", stop)


def test_a_reply_that_used_all_it_was_allowed_was_cut_whatever_its_status_says() -> None:
    cut = whole(CALL | {"arguments": '{"path'}, usage={"input_tokens": 166, "output_tokens": 20})
    same = whole(CALL, usage={"input_tokens": 166, "output_tokens": 20})

    assert answer(DIALECT.llm(cut, max_output_tokens=20), ask()).stop == "length"
    assert answer(DIALECT.llm(same, max_output_tokens=21), ask()).stop == "tool_calls"


def test_nothing_of_a_filtered_turn_runs() -> None:
    body = whole(said("Half"), CALL, status="incomplete", incomplete_details={"reason": "content_filter"})

    assert answer(DIALECT.llm(body), ask()).calls == ()


def test_a_refusal_is_shown_and_is_the_visible_text() -> None:
    refused = said("", content=[{"type": "refusal", "refusal": "I can't."}])
    seen: list[Any] = []

    reply = answer(DIALECT.llm(stream(delta("refusal", 0, "I can't."), end(refused))), ask(), seen)

    assert (reply.text, reply.stop) == ("I can't.", "refusal")
    assert seen == [TextDelta("I can't.")]


def test_a_refusal_streamed_without_its_item_is_read() -> None:
    assert answer(DIALECT.llm(stream(delta("refusal", 0, "No."), end())), ask()).stop == "refusal"


def test_a_last_event_without_the_output_leaves_what_was_streamed() -> None:
    events = (
        item("added", 0, said("", content=[])),
        delta("output_text", 0, "Hel"),
        delta("output_text", 0, "lo"),
        item("added", 1, CALL | {"arguments": ""}),
        delta("function_call_arguments", 1, '{"path": '),
        delta("function_call_arguments", 1, '"a.py"}'),
        item("added", 2, CALL | {"call_id": "call_b", "arguments": ""}),
        {"type": "response.function_call_arguments.done", "output_index": 2, "arguments": "{}"},
        item("done", 3, CALL | {"call_id": "call_c"}),
        item("added", 4, REASONING),
        end(),
    )

    reply = answer(DIALECT.llm(stream(*events)), ask())

    assert reply.text == "Hello"
    assert [(c.id, c.arguments) for c in reply.calls] == [
        ("call_a", '{"path": "a.py"}'),
        ("call_b", "{}"),
        ("call_c", '{"path": "a.py"}'),
    ]
    assert reply.reasoning == "Hm."


def test_pieces_without_a_place_find_their_item_by_its_id() -> None:
    events = (
        item("added", None, CALL | {"arguments": ""}),
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": '{"a": 1}'},
        end(),
    )

    assert answer(DIALECT.llm(stream(*events)), ask()).calls[0].arguments == '{"a": 1}'


def test_text_streamed_without_its_item_is_read() -> None:
    assert answer(DIALECT.llm(stream(delta("output_text", 0, "Hi"), end())), ask()).text == "Hi"


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "response.function_call_arguments.done", "output_index": 0},
        {"type": "response.brand_new.delta", "delta": "x"},
        {"type": "response.output_text.delta", "delta": {"text": "x"}},
        {"type": 3},
        {},
    ],
)
def test_odd_events_are_passed_over(odd: dict[str, Any]) -> None:
    body = sse([item("added", 0, CALL), delta("function_call_arguments", 0, ""), odd, end(CALL)], named=False)

    assert answer(DIALECT.llm(sse_reply(body)), ask()).calls[0].arguments == '{"path": "a.py"}'


@pytest.mark.parametrize(
    ("given", "arguments"),
    [({"path": "a"}, '{"path": "a"}'), (None, ""), ("", ""), ([1], "[1]"), ("{broken", "{broken")],
)
def test_arguments_are_kept_as_they_came(given: Any, arguments: str) -> None:
    assert answer(DIALECT.llm(whole(CALL | {"arguments": given})), ask()).calls[0].arguments == arguments


def test_a_call_without_an_id_of_its_own_has_the_items() -> None:
    call = {"type": "function_call", "id": "fc_1", "name": "read_file", "arguments": "{}"}

    assert answer(DIALECT.llm(whole(call)), ask()).calls[0].id == "fc_1"


def test_content_as_a_string_and_items_without_a_type_are_read_or_passed_over() -> None:
    reply = answer(DIALECT.llm(whole({"x": 1}, 3, said("", content="Hi"), said("", content=None))), ask())

    assert (reply.text, reply.opaque) == ("Hi", "")


@pytest.mark.parametrize("named", ["response.done", "response.completed"])
def test_gateways_may_call_the_end_by_another_name(named: str) -> None:
    assert answer(DIALECT.llm(stream(end(said("Hi")) | {"type": named})), ask()).text == "Hi"


def test_an_end_that_contradicts_itself_is_judged_by_the_response() -> None:
    cut = end(said("Half"), status="incomplete", incomplete_details={"reason": "max_output_tokens"})

    assert answer(DIALECT.llm(stream(cut)), ask()).stop == "length"
    assert answer(DIALECT.llm(stream(end(said("Hi"), status="in_progress"))), ask()).stop == "stop"


# --- failures -------------------------------------------------------------------------------------------------


def test_a_failed_response_carries_its_error_and_what_it_cost() -> None:
    broken = end(
        kind="failed",
        error={"code": "rate_limit_exceeded", "message": "Slow"},
        usage={"input_tokens": 9, "output_tokens": 1},
    )

    error = failure(DIALECT.llm(stream(broken)))

    assert (error.kind, error.tokens) == ("rate_limit", 10)
    assert "Slow" in str(error)


def test_a_failed_response_without_a_reason_is_transient() -> None:
    for reply in (stream(end(kind="failed", error=None)), whole(status="failed"), json_reply({"status": "failed"})):
        error = failure(DIALECT.llm(reply))

        assert (error.kind, error.retryable) == ("server_error", True)


@pytest.mark.parametrize("status", ["queued", "in_progress", "pending", "cancelled"])
def test_a_response_that_is_not_finished_is_none(status: str) -> None:
    assert failure(DIALECT.llm(whole(said("Hi"), status=status))).kind == "protocol"


def test_a_cancelled_stream_is_none() -> None:
    assert failure(DIALECT.llm(stream(end(said("Hi"), kind="cancelled")))).kind == "protocol"


def test_done_without_the_last_event_completes_nothing() -> None:
    events = [item("done", 0, CALL)]

    assert failure(DIALECT.llm(sse_reply(sse([*events, "[DONE]"])))).kind == "protocol"


def test_an_assembler_that_is_fed_on_after_the_end_is_still_whole() -> None:
    reply = ResponsesReply(FAILURES, Names(), origin="o")
    reply.document(response(said("Hi")))

    assert reply.complete()
    assert reply.event(type("E", (), {"data": b"[DONE]", "event": ""}), lambda _: None)  # type: ignore[arg-type]


def test_only_reasoning_is_an_empty_reply_and_says_so() -> None:
    error = failure(DIALECT.llm(whole(REASONING)))

    assert error.kind == "empty"
    assert "only reasoning" in str(error)


def test_a_chat_completion_at_this_address_is_not_taken_for_a_reply() -> None:
    assert failure(DIALECT.llm(json_reply({"choices": [{"message": {"content": "Hi"}}]}))).kind == "protocol"


def test_an_error_in_fastapis_words_is_an_error() -> None:
    assert "no such thing" in str(failure(DIALECT.llm(json_reply({"detail": "no such thing"}))))


# --- requests -------------------------------------------------------------------------------------------------


def test_a_model_that_does_not_reason_is_not_asked_for_its_reasoning_again() -> None:
    words = "Encrypted content is not supported with this model."
    refusal = {"error": {"message": words, "type": "invalid_request_error", "param": "include", "code": None}}
    server = DIALECT.llm(json_reply(refusal, 400), whole(said("Hi")), whole(said("Hi")))

    answer(server, ask())
    answer(server, ask())

    assert ["include" in body for body in server.bodies] == [True, False, False]


def test_settings_go_out_as_they_are() -> None:
    options: dict[str, Any] = {"max_output_tokens": 9, "reasoning": {"effort": "low"}, "parallel_tool_calls": False}
    server = DIALECT.llm(extra_body={"service_tier": "flex"}, **options)

    body = json.loads(server.llm.body(ask()))
    last = json.loads(server.llm.body(ask(may_call=False)))

    assert {name: body[name] for name in options} == options
    assert body["service_tier"] == "flex"
    assert "parallel_tool_calls" not in last


def test_an_id_that_is_too_long_is_changed_alike_in_call_and_result() -> None:
    long = "c" * 65
    request = ask(
        UserMessage("Look."), AssistantMessage("", (ToolCall(long, "read_file"),)), ToolMessage(long, "read_file", "x")
    )

    items = json.loads(DIALECT.llm().llm.body(request))["input"]

    assert items[1]["call_id"] == items[2]["call_id"]
    assert len(items[1]["call_id"]) <= 64


def test_a_tool_without_a_description_has_none() -> None:
    from tool_loop.ports import ToolSpec

    body = json.loads(DIALECT.llm().llm.body(ask(tools=(ToolSpec("t", "", {"type": "object"}),))))

    assert "description" not in body["tools"][0]


@pytest.mark.parametrize("name", ["input", "tools", "stream", "store", "instructions"])
def test_what_follows_from_the_conversation_cannot_be_set(name: str) -> None:
    with pytest.raises(UsageError, match=f"extra_body may not set '{name}'"):
        DIALECT.llm(extra_body={name: 1})


# --- where it goes and what is missing --------------------------------------------------------------------------


def test_azure_is_given_the_key_in_its_own_header_too() -> None:
    server = DIALECT.llm(whole(said("Hi")), base_url="https://x.openai.azure.com/openai/v1?api-version=preview")

    answer(server, ask())

    assert str(server.got[0].url) == "https://x.openai.azure.com/openai/v1/responses?api-version=preview"
    assert server.got[0].headers["api-key"] == "key-of-the-test"
    assert server.got[0].headers["authorization"] == "Bearer key-of-the-test"


def test_a_local_server_needs_no_key() -> None:
    server = DIALECT.llm(whole(said("Hi")), api_key="")

    answer(server, ask())

    assert "authorization" not in server.got[0].headers


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_MODEL", "gpt-x")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")

    llm = OpenAIResponses()

    assert (llm.model, llm.origin) == ("gpt-x", "responses:http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("options", "words"),
    [({"api_key": "k"}, "no model: set OPENAI_MODEL"), ({"model": "m"}, "no key for api.openai.com")],
)
def test_what_is_missing_is_said(options: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODEL", "BASE_URL", "API_KEY"):
        monkeypatch.delenv(f"OPENAI_{name}", raising=False)

    with pytest.raises(ConfigurationError, match=words):
        OpenAIResponses(**options)


def test_a_whole_run_goes_through_the_record() -> None:
    """Events only, as the loop has them: reply, results, the next request."""
    server = DIALECT.llm(whole(REASONING, CALL), sse_reply(DIALECT.stream(Said("It is 1."))))
    transcript = Transcript("")
    transcript.apply(RunStarted("What is x?", "Be brief."))
    transcript.apply(decode(encode(answer(server, Request(transcript, TOOLS)))))
    transcript.apply(ToolReturned("call_a", "x = 1"))

    assert answer(server, Request(transcript, TOOLS)).text == "It is 1."
    assert server.asked().turns[-1] == ("result", ("call_a", "x = 1"))
