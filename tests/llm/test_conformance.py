"""One suite, every dialect: what must be true of each of them, through the real HTTP stack.

A new dialect joins by a class in tests/kit/dialects.py. What only one of them has is in its own file.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from tests.kit.dialects import ALL, LIST, READ, TOOLS, Dialect, Said, ask, chunked, json_reply, sse, sse_reply
from tool_loop import Agent, Limits, tool
from tool_loop.errors import ProviderError
from tool_loop.events import ModelReplied, Notice, ReasoningDelta, TextDelta, ToolCall, ToolReturned, Usage
from tool_loop.ports import Request, ToolSpec
from tool_loop.runtime.clock import run_virtual
from tool_loop.transcript import AssistantMessage, ToolMessage, Transcript, UserMessage, repaired

pytestmark = pytest.mark.parametrize("dialect", ALL, ids=lambda d: d.name)

CALL = ("call_a", "read_file", '{"path": "a.py"}')
BOTH = (CALL, ("call_b", "list_dir", "{}"))
FORMS = [pytest.param(True, id="stream"), pytest.param(False, id="json")]


def reply_of(dialect: Dialect, said: Said, *, stream: bool, size: int = 10**6) -> httpx2.Response:
    return sse_reply(*chunked(dialect.stream(said), size)) if stream else json_reply(dialect.whole(said))


def answer(server: Any, request: Request, seen: list[Any] | None = None) -> ModelReplied:
    reply: ModelReplied = asyncio.run(server.llm.reply(request, (seen if seen is not None else []).append))
    return reply


def failure(server: Any, request: Request, seen: list[Any] | None = None) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        answer(server, request, seen)
    return caught.value


# --- replies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", FORMS)
def test_text_is_read_with_its_usage_and_its_origin(dialect: Dialect, stream: bool) -> None:
    server = dialect.llm(reply_of(dialect, Said("Hello, world."), stream=stream), stream=stream)

    reply = answer(server, ask())

    assert (reply.text, reply.calls, reply.stop) == ("Hello, world.", (), "stop")
    assert (reply.usage.input, reply.usage.output) == (50, 12)
    assert reply.model == "m-1"
    assert reply.origin == f"{dialect.name}:http://127.0.0.1:9" == server.llm.origin
    assert server.bodies[0]["stream"] is stream


@pytest.mark.parametrize("stream", FORMS)
def test_parallel_calls_keep_their_order_ids_and_arguments(dialect: Dialect, stream: bool) -> None:
    server = dialect.llm(reply_of(dialect, Said("Look.", BOTH), stream=stream))

    reply = answer(server, ask())

    assert reply.stop == "tool_calls"
    assert [(c.id, c.name, json.loads(c.arguments)) for c in reply.calls] == [
        ("call_a", "read_file", {"path": "a.py"}),
        ("call_b", "list_dir", {}),
    ]


def test_text_is_shown_as_it_arrives(dialect: Dialect) -> None:
    seen: list[Any] = []

    answer(dialect.llm(reply_of(dialect, Said("Hello, world."), stream=True)), ask(), seen)

    assert len(seen) > 1
    assert "".join(s.text for s in seen if isinstance(s, TextDelta)) == "Hello, world."


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_characters_split_across_chunks_stay_whole(dialect: Dialect, size: int) -> None:
    text = "naïve \u2028 中文 \U0001f9ff \x85 end"
    arguments = json.dumps({"path": text}, ensure_ascii=False)
    seen: list[Any] = []

    reply = answer(
        dialect.llm(reply_of(dialect, Said(text, (("call_a", "read_file", arguments),)), stream=True, size=size)),
        ask(),
        seen,
    )

    assert reply.text == text == "".join(s.text for s in seen if isinstance(s, TextDelta))
    assert json.loads(reply.calls[0].arguments) == {"path": text}


def test_halves_of_a_character_in_two_deltas_are_joined_and_a_lone_half_is_replaced(dialect: Dialect) -> None:
    body = dialect.stream(Said("ABCD")).replace(b'"A"', b'"\\ud83e"').replace(b'"B"', b'"\\uddff"')
    body = body.replace(b'"C"', b'"\\ud83e"').replace(b'"D"', b'"!"').replace(b'"CD"', b'"\\ud83e!"')
    body = body.replace(b'"ABCD"', b'"\\ud83e\\uddff\\ud83e!"')
    assert b"\\ud83e" in body
    seen: list[Any] = []

    reply = answer(dialect.llm(sse_reply(body)), ask(), seen)

    assert reply.text == "\U0001f9ff\ufffd!"
    assert "".join(s.text for s in seen if isinstance(s, TextDelta)).encode()


@pytest.mark.parametrize("stream", FORMS)
def test_usage_that_is_missing_is_unknown_and_not_zero(dialect: Dialect, stream: bool) -> None:
    reply = answer(dialect.llm(reply_of(dialect, Said("Hi", usage=None), stream=stream)), ask())

    assert reply.usage == Usage(None, None)


@pytest.mark.parametrize("stream", FORMS)
def test_an_empty_reply_is_a_transient_error(dialect: Dialect, stream: bool) -> None:
    error = failure(dialect.llm(reply_of(dialect, Said(""), stream=stream)), ask())

    assert (error.kind, error.retryable, error.tokens) == ("empty", True, 62)


@pytest.mark.parametrize("stream", FORMS)
def test_a_reply_that_was_cut_says_so_and_keeps_its_calls_for_the_record(dialect: Dialect, stream: bool) -> None:
    reply = answer(dialect.llm(reply_of(dialect, Said("Half", (CALL,), cut=True), stream=stream)), ask())

    assert reply.stop == "length"
    assert reply.calls[0].name == "read_file"


def test_a_call_without_a_name_is_a_transient_error(dialect: Dialect) -> None:
    error = failure(dialect.llm(reply_of(dialect, Said("", (("call_a", "", "{}"),)), stream=False)), ask())

    assert (error.kind, error.retryable) == ("protocol", True)


def test_calls_that_come_although_tools_were_withheld_are_handed_to_the_loop(dialect: Dialect) -> None:
    server = dialect.llm(reply_of(dialect, Said("Well.", (CALL,)), stream=True))

    reply = answer(server, ask(may_call=False))

    assert [c.name for c in reply.calls] == ["read_file"]  # the loop drops and counts them
    assert server.asked().tools == []


# --- streams that are not whole -----------------------------------------------------------------------


def test_a_stream_cut_at_any_byte_is_an_error_or_the_whole_reply(dialect: Dialect) -> None:
    said = Said("Hé.", (("call_a", "list_dir", '{"path":"."}'),))
    body = dialect.stream(said)
    whole = answer(dialect.llm(sse_reply(body)), ask())

    async def cut_everywhere() -> list[ModelReplied | ProviderError]:
        server = dialect.llm(*(sse_reply(body[:at]) for at in range(len(body))))
        return [await outcome(server.llm.reply(ask(), lambda _: None)) for _ in range(len(body))]

    found = asyncio.run(cut_everywhere())
    replies = [one for one in found if isinstance(one, ModelReplied)]
    errors = [one for one in found if isinstance(one, ProviderError)]

    # What follows the finish reason may be missing: at most the count of tokens is lost with it.
    assert all(replace(one, usage=whole.usage) == whole for one in replies)
    assert len(errors) >= len(body) * 0.7
    assert all(error.retryable and error.kind == "protocol" for error in errors)


async def outcome(coroutine: Any) -> ModelReplied | ProviderError:
    try:
        reply: ModelReplied = await coroutine
    except ProviderError as error:
        return error
    return reply


def test_a_connection_that_breaks_in_the_middle_is_a_transient_error(dialect: Dialect) -> None:
    async def body() -> Any:
        yield dialect.stream(Said("Hello"))[:200]
        raise httpx2.ReadError("reset")

    server = dialect.llm(httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body()))

    error = failure(server, ask())

    assert (error.kind, error.retryable) == ("protocol", True)


def test_events_of_unknown_types_and_comments_are_passed_over(dialect: Dialect) -> None:
    body = dialect.stream(Said("Hello, world."))
    strange = b': keep-alive\n\nevent: brand.new\ndata: {"type": "brand.new", "x": [1]}\n\n'
    first, rest = body.split(b"\n\n", 1)

    reply = answer(dialect.llm(sse_reply(strange + first + b"\n\n" + strange + rest)), ask())

    assert reply.text == "Hello, world."


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html><title>Sign in</title></html>",
        b"[1]",
        b'"text"',
        b"3",
        b"{}",
        b'{"output": 3, "content": 3, "choices": 3}',
    ],
    ids=repr,
)
def test_a_200_that_is_no_reply_is_a_transient_error_that_shows_it(dialect: Dialect, body: bytes) -> None:
    server = dialect.llm(httpx2.Response(200, headers={"content-type": "application/json"}, content=body))

    error = failure(server, ask())

    assert (error.kind, error.retryable, error.status) == ("protocol", True, 200)
    assert "127.0.0.1:9" in str(error)


@pytest.mark.parametrize("data", ["no json", "[1]", "null"])
def test_an_event_that_is_no_object_is_a_transient_error(dialect: Dialect, data: str) -> None:
    error = failure(dialect.llm(sse_reply(sse([data]))), ask())

    assert (error.kind, error.retryable) == ("protocol", True)


# --- errors -------------------------------------------------------------------------------------------


def test_an_error_inside_a_200_decides_by_its_own_code(dialect: Dialect) -> None:
    error = failure(dialect.llm(json_reply(dialect.error("Slow down", "rate_limit_error"))), ask())

    assert (error.kind, error.retryable, error.status) == ("rate_limit", True, 200)
    assert "Slow down" in str(error)


def test_an_error_event_ends_a_stream_whatever_came_before(dialect: Dialect) -> None:
    body = dialect.stream(Said("Hello, world."))
    half = b"\n\n".join(body.split(b"\n\n")[:4]) + b"\n\n"
    seen: list[Any] = []

    error = failure(
        dialect.llm(sse_reply(half + sse([dialect.error_event("Busy", "overloaded_error")], named=False))), ask(), seen
    )

    assert (error.kind, error.retryable) == ("overloaded", True)
    assert "Busy" in str(error)
    assert any(isinstance(s, TextDelta) for s in seen)


def test_a_full_context_is_told_apart_with_its_size(dialect: Dialect) -> None:
    body = dialect.error("prompt is too long: 210000 tokens > 200000 maximum")

    error = failure(dialect.llm(json_reply(body, 400)), ask())

    assert (error.kind, error.retryable, error.window) == ("context_length", False, 200_000)


@pytest.mark.parametrize(
    ("status", "body", "kind", "retryable"),
    [
        (401, ("Bad key", "authentication_error"), "auth", False),
        (404, ("model: m", "not_found_error"), "not_found", False),
        (429, ("Slow down", "rate_limit_error"), "rate_limit", True),
        (500, ("Oops", "api_error"), "server_error", True),
        (529, ("Overloaded", "overloaded_error"), "overloaded", True),
    ],
)
def test_statuses_become_kinds(
    dialect: Dialect, status: int, body: tuple[str, str], kind: str, retryable: bool
) -> None:
    error = failure(dialect.llm(json_reply(dialect.error(*body), status)), ask())

    assert (error.kind, error.retryable, error.status) == (kind, retryable, status)
    assert body[0] in str(error)


def test_the_servers_word_on_retrying_counts(dialect: Dialect) -> None:
    reply = json_reply(dialect.error("Overloaded", "overloaded_error"), 529, **{"x-should-retry": "false"})

    assert failure(dialect.llm(reply), ask()).retryable is False


def test_the_wait_a_server_asks_for_is_passed_on(dialect: Dialect) -> None:
    reply = json_reply(dialect.error("Slow down", "rate_limit_error"), 429, **{"retry-after": "7"})

    assert failure(dialect.llm(reply), ask()).retry_after == 7.0


def test_the_key_is_sent_and_never_shown(dialect: Dialect) -> None:
    server = dialect.llm(json_reply(dialect.error("the key key-of-the-test is wrong", "authentication_error"), 401))

    error = failure(server, ask())

    assert "key-of-the-test" in " ".join(server.got[0].headers.values())
    assert "key-of-the-test" not in str(error) + error.raw + repr(server.llm)


# --- requests -----------------------------------------------------------------------------------------


def test_a_first_request_holds_the_question_the_tools_and_little_else(dialect: Dialect) -> None:
    server = dialect.llm(reply_of(dialect, Said("Hi"), stream=True))

    answer(server, ask())

    asked = server.asked()
    assert asked.turns == [("user", "Look.")]
    assert asked.tools == ["read_file", "list_dir"]
    assert asked.choice == ""
    assert "Be brief." in server.got[0].content.decode()
    needed = {
        "model",
        "stream",
        "tools",
        "messages",
        "input",
        "instructions",
        "system",
        "max_tokens",
        "store",
        "include",
    }
    assert set(server.bodies[0]) <= needed | {"stream_options"}
    assert server.got[0].headers["idempotency-key"] == "k"


def test_without_tools_there_is_no_word_of_them(dialect: Dialect) -> None:
    server = dialect.llm(reply_of(dialect, Said("Hi"), stream=True))

    answer(server, ask(tools=(), may_call=False))

    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(server.bodies[0])


def test_a_reply_can_be_sent_back_as_history(dialect: Dialect) -> None:
    server = dialect.llm(*(reply_of(dialect, Said("Look.", BOTH), stream=True) for _ in range(2)))
    reply = repaired(answer(server, ask()), set(), 1, ask())
    said = AssistantMessage(reply.text, reply.calls, reply.opaque, reply.origin)

    answer(
        server,
        ask(
            UserMessage("Look."),
            said,
            ToolMessage("call_a", "read_file", "x = 1"),
            ToolMessage("call_b", "list_dir", ""),
        ),
    )

    assert [(role, what) if role != "assistant" else (role, what[0]) for role, what in server.asked().turns] == [
        ("user", "Look."),
        ("assistant", "Look."),
        ("result", ("call_a", "x = 1")),
        ("result", ("call_b", "")),
    ]


def called(*calls: tuple[str, ...], text: str = "") -> AssistantMessage:
    return AssistantMessage(text, tuple(ToolCall(*call) for call in calls))


def got(call_id: str, content: str = "x") -> ToolMessage:
    return ToolMessage(call_id, "read_file", content)


GO_ON = UserMessage("Go on.")
A = ("a", "read_file")
BROKEN: dict[str, list[Any]] = {
    "a call without a result": [called(A, ("b", "list_dir")), got("a")],
    "a call without a result, and on": [called(A), GO_ON],
    "a result without a call": [got("gone"), GO_ON],
    "a result that comes twice": [called(A), got("a"), got("a", "y")],
    "an empty turn": [called(), GO_ON],
    "a call as the last word": [called(A, text="Hm.")],
    "arguments that are no JSON": [called((*A, '{"path": "a')), got("a")],
    "arguments that are no object": [called((*A, "[1]")), got("a")],
    "arguments that are not finite": [called((*A, '{"a": 1e999}')), got("a")],
    "a name outside the charset": [called(("a", "multi_tool_use.parallel")), got("a")],
    "a name of nothing": [called(("a", "")), got("a")],
    "a lone surrogate": [called((*A, '{"a": "\ud800"}'), text="\ud800 hm"), got("a", "\udfff")],
}


@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_whatever_the_history_holds_the_request_is_one_that_is_taken(dialect: Dialect, case: str) -> None:
    server = dialect.llm(reply_of(dialect, Said("Hi"), stream=True))

    answer(server, ask(UserMessage("Look."), *BROKEN[case]))

    assert server.asked().turns[0] == ("user", "Look.")
    assert server.got[0].content.decode("utf-8")


def test_a_result_that_was_missing_takes_its_place_when_it_comes(dialect: Dialect) -> None:
    server = dialect.llm(*(reply_of(dialect, Said("Hi"), stream=True) for _ in range(2)))
    transcript = Transcript("", [UserMessage("Look."), AssistantMessage("", (ToolCall("a", "read_file"),))])
    answer(server, Request(transcript, TOOLS))

    transcript._add(ToolMessage("a", "read_file", "the true one"))
    answer(server, Request(transcript, TOOLS))

    assert "interrupted" in server.asked(0).turns[-1][1][1]
    assert server.asked(1).turns[-1] == ("result", ("a", "the true one"))


def test_names_outside_the_charset_are_changed_on_the_way_out_and_back_on_the_way_in(dialect: Dialect) -> None:
    spec = ToolSpec("docs.getText", "", {"type": "object"})
    server = dialect.llm(reply_of(dialect, Said("", (("call_a", "docs_getText", "{}"),)), stream=True))

    reply = answer(server, ask(tools=(spec,)))

    assert server.asked().tools == ["docs_getText"]
    assert reply.calls[0].name == "docs.getText"


def test_what_a_provider_attached_goes_to_no_other(dialect: Dialect) -> None:
    opaque = json.dumps([{"type": "thinking", "thinking": "SECRET", "signature": "s"}, 3, None])
    said = AssistantMessage(
        "Hm.", (ToolCall("a", "read_file", opaque='{"extra_content": "SECRET"}'),), opaque, "elsewhere:https://x"
    )
    server = dialect.llm(reply_of(dialect, Said("Hi"), stream=True))

    answer(server, ask(UserMessage("Look."), said, ToolMessage("a", "read_file", "x")))

    assert "SECRET" not in server.got[0].content.decode()


def test_notes_that_do_not_fit_their_turn_are_left_out(dialect: Dialect) -> None:
    odd = ('["x", 3, null]', '[{"x": NaN}, 3, null]', '[{"x": 1e999}, 3, null]', "[" * 5000)
    for opaque in ("no json", "{}", "[99]", "[null, null, null]", "[-1, 4]", "[3]", *odd):
        server = dialect.llm(reply_of(dialect, Said("Hi"), stream=True))
        if dialect.name == "chat" and opaque in ("no json", "[" * 5000):
            continue
        said = AssistantMessage("Hm.", (ToolCall("a", "read_file"),), opaque, server.llm.origin)

        answer(server, ask(UserMessage("Look."), said, ToolMessage("a", "read_file", "x")))

        assert server.asked().turns[1][1][0] == "Hm."
        assert "NaN" not in server.got[0].content.decode()
        assert "Infinity" not in server.got[0].content.decode()


# --- the prompt's prefix --------------------------------------------------------------------------------


def fifty_steps(dialect: Dialect, **options: Any) -> list[bytes]:
    server = dialect.llm(**options)
    tools = tuple(ToolSpec(f"tool_{n}", "Does one thing, and says what came of it.", READ.parameters) for n in range(6))
    transcript = Transcript(
        "Use the tools when you need them. Stop and answer when you are done.", [UserMessage("Find it.")]
    )
    bodies = []
    for step in range(50):
        bodies.append(server.llm.body(Request(transcript, tools)))
        call = ToolCall(f"call_{step}", "tool_1", json.dumps({"path": f"src/file_{step}.py"}))
        transcript._add(AssistantMessage("" if step % 2 else "Looking.", (call,)))
        transcript._add(ToolMessage(call.id, "tool_1", f"{step}: " + "line\n" * 40, error=step % 7 == 0))
    return bodies


def test_each_request_begins_with_the_bytes_of_the_one_before(dialect: Dialect) -> None:
    bodies = fifty_steps(dialect)
    kept = 0

    for before, after in itertools.pairwise(bodies):
        shared = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
        # All that may differ are the closing brackets of the old one; and, for servers which know no
        # other way to be told where the conversation ends, the cache mark on its last block.
        assert len(before) - shared <= (42 if dialect.name == "messages" else 4)
        kept += shared
    assert kept / sum(map(len, bodies[:-1])) >= 0.99


def test_each_message_is_encoded_once(dialect: Dialect) -> None:
    server = dialect.llm()
    transcript = Transcript("", [UserMessage("a" * 10)])
    server.llm.body(Request(transcript, TOOLS))
    history = server.llm._encoder._histories[transcript]
    before = bytes(history.bytes)

    transcript._add(AssistantMessage("b"))
    transcript._add(UserMessage("c"))
    server.llm.body(Request(transcript, TOOLS))

    assert server.llm._encoder._histories[transcript] is history
    assert bytes(history.bytes).startswith(before)


def test_two_sets_of_tools_on_one_model_do_not_disturb_each_other(dialect: Dialect) -> None:
    server = dialect.llm()
    one, other = Transcript("", [UserMessage("a")]), Transcript("", [UserMessage("b")])
    for _ in range(2):
        server.llm.body(Request(one, (READ,)))
        kept = server.llm._encoder._histories[one]
        server.llm.body(Request(other, (LIST,)))

        assert server.llm._encoder._histories[one] is kept


# --- making calls impossible ------------------------------------------------------------------------------


def with_history(*, may_call: bool = False) -> Request:
    said = AssistantMessage("", (ToolCall("a", "read_file"),))
    return ask(
        UserMessage("Look."), said, ToolMessage("a", "read_file", "x"), UserMessage("Answer now."), may_call=may_call
    )


def test_the_providers_own_server_is_sent_the_tools_with_tool_choice_none(dialect: Dialect) -> None:
    home = "https://api.anthropic.com" if dialect.name == "messages" else "https://api.openai.com/v1"
    server = dialect.llm(reply_of(dialect, Said("Hi"), stream=True), base_url=home)

    answer(server, with_history())

    assert server.asked().tools == ["read_file", "list_dir"]
    assert server.asked().choice == "none"
    assert server.got[0].content.rstrip(b"}").endswith(b'"none"')  # last, so that the prefix stays


def test_a_server_that_wants_the_tools_beside_calls_gets_them_once_and_it_is_remembered(dialect: Dialect) -> None:
    refusal = dialect.error("Requests which include `tool_use` or `tool_result` blocks must define tools")
    good = [reply_of(dialect, Said("Hi"), stream=True) for _ in range(2)]
    server = dialect.llm(json_reply(refusal, 400), *good)
    seen: list[Any] = []

    answer(server, with_history(), seen)
    answer(server, with_history())

    assert [a.tools for a in map(server.asked, range(3))] == [[], ["read_file", "list_dir"], ["read_file", "list_dir"]]
    assert server.asked(1).choice == "none"
    assert [type(s) for s in seen if isinstance(s, Notice)] == [Notice]
    assert server.got[1].headers["idempotency-key"] != server.got[0].headers["idempotency-key"]


def test_a_server_that_does_not_know_tool_choice_none_is_asked_without_tools(dialect: Dialect) -> None:
    refusal = dialect.error("Unsupported value: 'tool_choice' does not support 'none'")
    server = dialect.llm(json_reply(refusal, 400), reply_of(dialect, Said("Hi"), stream=True), withhold="none")

    answer(server, with_history())

    assert [a.tools for a in map(server.asked, range(2))] == [["read_file", "list_dir"], []]


def test_a_refusal_that_stays_is_an_error_after_one_more_request(dialect: Dialect) -> None:
    refusal = dialect.error("tools are required; tool_choice is wrong")
    server = dialect.llm(*(json_reply(refusal, 400) for _ in range(5)))

    error = failure(server, with_history())

    assert error.kind == "bad_request"
    assert len(server.got) == 2


def test_runs_that_share_a_model_are_all_adapted_by_one_change(dialect: Dialect) -> None:
    refusal = dialect.error("Requests which include `tool_use` blocks must define tools")
    seen: list[Any] = []

    async def together() -> list[ModelReplied]:
        all_asked = asyncio.Barrier(8)

        async def reply(request: httpx2.Request) -> httpx2.Response:
            if dialect.read(json.loads(request.content)).tools:
                return reply_of(dialect, Said("Hi"), stream=True)
            await all_asked.wait()
            return json_reply(refusal, 400)

        llm: Any = dialect.make("m", "http://127.0.0.1:9", "k", http=httpx2.MockTransport(reply))
        return await asyncio.gather(*(llm.reply(with_history(), seen.append) for _ in range(8)))

    assert [one.text for one in asyncio.run(together())] == ["Hi"] * 8
    assert len([s for s in seen if isinstance(s, Notice)]) == 1


def test_a_refusal_of_something_else_is_an_error_at_once(dialect: Dialect) -> None:
    refusal = dialect.error("one of the tools has a parameter we do not like")
    server = dialect.llm(json_reply(refusal, 400), withhold="none")

    assert "do not like" in str(failure(server, with_history()))
    assert len(server.got) == 1


def test_a_setting_that_is_refused_is_left_out_from_then_on(dialect: Dialect) -> None:
    refusal = dialect.error("Unsupported parameter: 'temperature' is not supported with this model.")
    good = [reply_of(dialect, Said("Hi"), stream=True) for _ in range(2)]
    server = dialect.llm(json_reply(refusal, 400), *good, temperature=0.5)

    answer(server, ask())
    answer(server, ask())

    assert ["temperature" in body for body in server.bodies] == [True, False, False]


def test_reasoning_is_shown_apart_from_the_text(dialect: Dialect) -> None:
    events: dict[str, list[Any]] = {
        "chat": [{"choices": [{"index": 0, "delta": {"reasoning_content": "Hm."}}]}],
        "responses": [{"type": "response.reasoning_summary_text.delta", "output_index": 7, "delta": "Hm."}],
        "messages": [
            {"type": "content_block_delta", "index": 7, "delta": {"type": "thinking_delta", "thinking": "Hm."}}
        ],
    }
    body = sse(events[dialect.name], named=False) + dialect.stream(Said("Hi"))
    seen: list[Any] = []

    reply = answer(dialect.llm(sse_reply(body)), ask(), seen)

    assert [s.text for s in seen if isinstance(s, ReasoningDelta)] == ["Hm."]
    assert reply.text == "Hi"


# --- through the loop -----------------------------------------------------------------------------------


@tool(effect="read")
def read_file(path: str) -> str:
    """Read a file."""
    return f"{path}: x = 1"


def test_a_run_asks_calls_and_answers(dialect: Dialect) -> None:
    server = dialect.llm(*(reply_of(dialect, said, stream=True) for said in (Said("", (CALL,)), Said("x is 1."))))

    result = Agent(server.llm, [read_file]).run_sync("What is x?")

    assert (result.answer, result.reason) == ("x is 1.", "answered")
    assert server.asked().turns[-1] == ("result", ("call_a", "a.py: x = 1"))


def test_a_call_in_the_last_word_never_runs_and_is_counted(dialect: Dialect) -> None:
    last = Said("As far as I can see: 1.", (("call_b", "read_file", '{"path": "b.py"}'),))
    server = dialect.llm(*(reply_of(dialect, said, stream=True) for said in (Said("", (CALL,)), last)))

    result = Agent(server.llm, [read_file], limits=Limits(steps=1)).run_sync("What is x?")

    assert (result.answer, result.reason) == ("As far as I can see: 1.", "step limit")
    assert [e.dropped_calls for e in result.events if isinstance(e, ModelReplied)] == [0, 1]
    assert not any("b.py" in e.content for e in result.events if isinstance(e, ToolReturned))


def test_an_empty_last_word_still_ends_in_an_answer(dialect: Dialect) -> None:
    empty = [Said("")] * 3  # asked again a few times where emptiness may be an accident
    server = dialect.llm(*(reply_of(dialect, said, stream=True) for said in (Said("", (CALL,)), *empty)))

    result = run_virtual(Agent(server.llm, [read_file], limits=Limits(steps=1)).run("What is x?"))

    assert "a.py: x = 1" in result.answer
    assert result.source == "journal"


def test_arguments_that_are_no_json_are_told_to_the_model_and_poison_nothing(dialect: Dialect) -> None:
    broken = dialect.stream(Said("", (("call_a", "read_file", '{"path": "a.py"}'),))).replace(b'a.py\\"}', b"a.py")
    assert broken != dialect.stream(Said("", (CALL,)))
    server = dialect.llm(sse_reply(broken), reply_of(dialect, Said("Sorry."), stream=True))

    result = Agent(server.llm, [read_file]).run_sync("What is x?")

    assert result.answer == "Sorry."
    assert "bad_json" in server.asked().turns[-1][1][1]
    assert server.asked().turns[-2][1][1][0].arguments == "{}"
