# ruff: noqa: E501 - one case of a table is one line
"""Chat completions, read: the classes of deviation of which the corpus has examples, in further variants."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from hypothesis import given, settings, strategies as st

from tool_loop.errors import ProviderError
from tool_loop.events import ModelReplied, ReasoningDelta, TextDelta, Usage
from tool_loop.llm.chat.model import OpenAIChat
from tool_loop.llm.chat.reply import ChatReply
from tool_loop.llm.endpoint import Endpoint
from tool_loop.llm.errors.failures import ProviderErrors
from tool_loop.llm.http.sse import EVENT_BYTES, EventTooLarge, SSEReader
from tool_loop.llm.http.transport import Transport
from tool_loop.llm.text import Names
from tool_loop.ports import Request, ToolSpec
from tool_loop.transcript import Transcript, UserMessage

if TYPE_CHECKING:
    from tool_loop.events import Event, Signal

NAMES = ("read_file", "read", "grep", "get_time")
REQUEST = Request(Transcript("", [UserMessage("q")]), tuple(ToolSpec(name, "", {"type": "object"}) for name in NAMES))
DONE = b"data: [DONE]\n\n"


class Read:
    """What came of a body that was served as it is."""

    def __init__(self, body: bytes | str, content_type: str = "text/event-stream", status: int = 200) -> None:
        self.said: list[Event | Signal] = []
        self.reply: ModelReplied | None = None
        self.error: ProviderError | None = None
        data = body.encode() if isinstance(body, str) else body

        def handler(_: httpx2.Request) -> httpx2.Response:
            return httpx2.Response(status, headers={"content-type": content_type}, content=data)

        llm = OpenAIChat("m", "http://x/v1", "", http=httpx2.MockTransport(handler))
        try:
            self.reply = asyncio.run(llm.reply(REQUEST, self.said.append))
        except ProviderError as error:
            self.error = error

    @property
    def good(self) -> ModelReplied:
        assert self.reply is not None, self.error
        return self.reply

    @property
    def bad(self) -> ProviderError:
        assert self.error is not None, self.reply
        return self.error

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        return [(call.id, call.name, call.arguments) for call in self.good.calls]

    @property
    def streamed(self) -> str:
        return "".join(said.text for said in self.said if isinstance(said, TextDelta))


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(delta: Any = None, finish: Any = None, **more: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more})


def stream(*deltas: Any, finish: Any = "stop", done: bool = True, **more: Any) -> Read:
    return Read(b"".join(map(chunk, deltas)) + chunk({}, finish, **more) + (DONE if done else b""))


def pieces(*deltas: Any, finish: Any = "tool_calls") -> Read:
    """A stream whose deltas hold these tool calls, one list for each."""
    return stream(*({"tool_calls": calls if isinstance(calls, list) else [calls]} for calls in deltas), finish=finish)


def call(index: int | str | None = None, id: Any = None, name: Any = None, args: Any = None) -> dict[str, Any]:  # noqa: A002
    found: dict[str, Any] = {"function": {}}
    found |= {} if index is None else {"index": index}
    found |= {} if id is None else {"id": id}
    found["function"] |= {} if name is None else {"name": name}
    found["function"] |= {} if args is None else {"arguments": args}
    return found


def document(message: Any = None, finish: Any = "stop", **more: Any) -> Read:
    choice = {"index": 0, "finish_reason": finish} | ({} if message is None else {"message": message})
    return Read(json.dumps({"choices": [choice], **more}), "application/json")


# --- pieces of calls --------------------------------------------------------------------------------

A, B = '{"path":"a.py"}', '{"path":"b.py"}'

CALLS = [
    pytest.param([call(0, "1", "read_file", '{"pa'), call(0, None, None, 'th":"a.py"}')], [("1", "read_file", A)], id="standard"),
    pytest.param([call("0", "1", "read_file", '{"pa'), call("0", None, None, 'th":"a.py"}')], [("1", "read_file", A)], id="index as text"),
    pytest.param([call(-1, "1", "read_file", A)], [("1", "read_file", A)], id="a negative index is none"),
    pytest.param([call(None, "1", "read_file", '{"pa'), call(None, None, None, 'th":"a.py"}')], [("1", "read_file", A)], id="no index"),
    pytest.param([call(None, "1", "read_file", '{"pa'), call(0, None, None, 'th":"a.py"}')], [("1", "read_file", A)], id="index only later"),
    pytest.param([call(None, "1", "read_file", '{"pa'), call(0, "1", None, 'th":"a.py"}')], [("1", "read_file", A)], id="index later with the id"),
    pytest.param([call(0, "1", "read_file", '{"pa'), call(None, None, None, 'th":"a.py"}')], [("1", "read_file", A)], id="index only first"),
    pytest.param([call(0, "1", "read_file", '{"pa'), call(0, "x", None, 'th":"a.py"}')], [("1", "read_file", A)], id="a new id without a name"),
    pytest.param([call(None, "1", "read_file", '{"pa'), call(None, "x", None, 'th":"a.py"}')], [("1", "read_file", A)], id="a new id without name or index"),
    pytest.param([call(0, None, None, '{"pa'), call(0, None, "read_file", 'th":"a.py"}')], [("", "read_file", A)], id="the name comes last"),
    pytest.param([call(0, None, "read_file", A), call(0, "1", None, None)], [("1", "read_file", A)], id="the id comes last"),
    pytest.param([call(0, 7, "read_file", A)], [("7", "read_file", A)], id="a number as id"),
    pytest.param([call(0, "  ", "read_file", A)], [("", "read_file", A)], id="a blank id is none"),
    pytest.param([call(0, "1", "read_"), call(0, None, "file", A)], [("1", "read_file", A)], id="the name in two pieces"),
    pytest.param([call(0, "1", "read"), call(0, "1", "read_file", A)], [("1", "read_file", A)], id="a name that grows"),
    pytest.param([call(0, None, "read"), call(0, None, "read_file", A)], [("", "read_file", A)], id="a name that grows into another tool's"),
    pytest.param([call(0, "1", "gre"), call(0, None, "p", "{}")], [("1", "grep", "{}")], id="a name of an unknown start"),
    pytest.param([call(0, "1", "unknown_"), call(0, "1", "unknown_tool", "{}")], [("1", "unknown_tool", "{}")], id="an unknown name that grows"),
    pytest.param([call(0, "1", "read_file", A), call(0, "1", "read_file", "")], [("1", "read_file", A)], id="name again at the end"),
    pytest.param([call(0, "1", "read_file", A), call(0, "1", "read_file", A)], [("1", "read_file", A)], id="the whole call again at the end"),
    pytest.param([call(0, "1", "read_file", {"path": "a.py"})], [("1", "read_file", '{"path": "a.py"}')], id="arguments as an object"),
    pytest.param([call(0, "1", "read_file", {}), call(0, "1", None, {"path": "a.py"})], [("1", "read_file", '{"path": "a.py"}')], id="an object that comes again"),
    pytest.param([call(0, "1", "get_time", None)], [("1", "get_time", "{}")], id="no arguments"),
    pytest.param([call(0, "1", "get_time", "  ")], [("1", "get_time", "{}")], id="blank arguments"),
    pytest.param([call(0, "1", "get_time", "null")], [("1", "get_time", "{}")], id="null as arguments"),
    pytest.param([call(0, "1", "get_time", 5)], [("1", "get_time", "5")], id="a number as arguments"),
    pytest.param([call(0, "1", "get_time", [])], [("1", "get_time", "[]")], id="a list as arguments"),
    pytest.param([call(0, "1", "get_time", True)], [("1", "get_time", "true")], id="a boolean as arguments"),
    pytest.param([{"index": 0, "id": "1", "name": "grep", "arguments": "{}"}], [("1", "grep", "{}")], id="laid flat"),
    pytest.param([{"index": 0, "id": "1", "type": "custom", "custom": {"name": "grep", "input": "x"}}], [("1", "grep", "x")], id="free form"),
    pytest.param([[None, "x", call(0, "1", "grep", "{}")]], [("1", "grep", "{}")], id="things that are no call"),
    pytest.param([{"tool_calls": None}, call(0, "1", "grep", "{}")], [("1", "grep", "{}")], id="an empty piece first"),
    # several calls
    pytest.param([call(0, "1", "read_file", A), call(1, "2", "read_file", B)], [("1", "read_file", A), ("2", "read_file", B)], id="two by index"),
    pytest.param([[call(0, "1", "read_file", A), call(1, "2", "read_file", B)]], [("1", "read_file", A), ("2", "read_file", B)], id="two in one delta"),
    pytest.param([call(1, "1", "read_file", A), call(3, "2", "read_file", B)], [("1", "read_file", A), ("2", "read_file", B)], id="indexes with gaps"),
    pytest.param([call(0, "x", "read_file", A), call(1, "x", "read_file", B)], [("x", "read_file", A), ("x", "read_file", B)], id="one id for two indexes"),
    pytest.param([call(0, "1", "read_file", A), call(0, "2", "read_file", B)], [("1", "read_file", A), ("2", "read_file", B)], id="one index for two ids"),
    pytest.param([call(0, None, "grep", A), call(0, None, "grep", B)], [("", "grep", A), ("", "grep", B)], id="one index, no ids"),
    pytest.param([call(0, None, "get_time", ""), call(0, None, "read_file", A)], [("", "get_time", "{}"), ("", "read_file", A)], id="one index, no ids, the first without arguments"),
    pytest.param([call(None, "1", "grep", A), call(None, "2", "grep", B)], [("1", "grep", A), ("2", "grep", B)], id="no index, two ids"),
    pytest.param([call(None, None, "grep", A), call(None, None, "grep", B)], [("", "grep", A), ("", "grep", B)], id="no index, no ids"),
    pytest.param([[call(None, None, "grep", A), call(None, None, "grep", B)]], [("", "grep", A), ("", "grep", B)], id="no index, no ids, one delta"),
    pytest.param([[call(None, None, "grep", '{"path":'), call(None, None, "read_file", '{"path":')], [call(None, None, None, '"a.py"}'), call(None, None, None, '"b.py"}')]], [("", "grep", A), ("", "read_file", B)], id="no index, no ids, side by side"),
    pytest.param([[call(0, None, "grep", A), call(0, None, "grep", B)]], [("", "grep", A), ("", "grep", B)], id="one index twice in one delta"),
    pytest.param([call(None, "1", "grep", '{"path":'), call(None, "2", "grep", '{"path":'), call(None, "1", None, '"a.py"}'), call(None, "2", None, '"b.py"}')], [("1", "grep", A), ("2", "grep", B)], id="interleaved by id"),
    pytest.param([call(0, "1", "grep", '{"path":'), call(1, "2", "grep", '{"path":'), call(0, None, None, '"a.py"}'), call(1, None, None, '"b.py"}')], [("1", "grep", A), ("2", "grep", B)], id="interleaved by index"),
    pytest.param([call(0, "1", "grep", A), call(0, "2", "grep", ""), call(1, None, None, B)], [("1", "grep", A), ("2", "grep", B)], id="the head on the wrong index"),
    pytest.param([call(0, None, "grep", '{"a":}'), call(0, None, "grep", "x")], [("", "grep", '{"a":}x')], id="one index, no ids, broken"),
    # never run with less than was meant
    pytest.param([call(0, "1", "read_file", "{}"), call(0, None, None, A)], [("1", "read_file", "{}" + A)], id="a leading empty object"),
    pytest.param([call(0, "1", "read_file", "{}"), call(0, "1", "read_file", A)], [("1", "read_file", "{}" + A)], id="a leading empty object, id again"),
    pytest.param([call(0, "1", "read_file", '{"path":"a')], [("1", "read_file", '{"path":"a')], id="cut"),
    # names
    pytest.param([call(0, "1", "read_file<|channel|>commentary", A)], [("1", "read_file", A)], id="control tokens in the name"),
    pytest.param([call(0, "1", "other<|x|>", A)], [("1", "other<|x|>", A)], id="control tokens in an unknown name"),
    pytest.param([call(0, "1", "multi_tool_use.parallel", "{}")], [("1", "multi_tool_use.parallel", "{}")], id="an invented name"),
]  # fmt: skip


@pytest.mark.parametrize(("deltas", "expected"), CALLS)
def test_pieces_of_calls_find_each_other(deltas: list[Any], expected: list[tuple[str, str, str]]) -> None:
    read = pieces(*deltas)

    assert read.calls == expected
    assert read.good.stop == "tool_calls"


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([call(None, "1", "grep", A), call(None, "2", "grep", A)], [("1", "grep", A), ("2", "grep", A)]),
        ([call(0, "1", "grep", A), call(0, "1", "grep", A)], [("1", "grep", A), ("1", "grep", A)]),
        ([call(None, None, "grep", A)] * 2, [("", "grep", A)] * 2),
        ({"id": "1", "function": {"name": "grep", "arguments": "{}"}}, [("1", "grep", "{}")]),
        ([{"function": {"name": "", "arguments": ""}}, call(None, "1", "grep", "{}")], [("1", "grep", "{}")]),
    ],
)
def test_each_call_of_a_document_is_one(calls: Any, expected: list[tuple[str, str, str]]) -> None:
    assert document({"content": None, "tool_calls": calls}, "tool_calls").calls == expected


@pytest.mark.parametrize("finish", ["stop", None, "", "tool_calls", "function_call", "something_new"])
def test_the_presence_of_calls_decides_and_not_the_finish_reason(finish: Any) -> None:
    assert document({"tool_calls": [call(0, "1", "grep", "{}")]}, finish).good.stop == "tool_calls"
    assert pieces(call(0, "1", "grep", "{}"), finish=finish).good.stop == "tool_calls"


@pytest.mark.parametrize("finish", ["length", "max_tokens", "MAX_TOKENS", "model_length", {"type": "length"}])
def test_length_wins_over_calls(finish: Any) -> None:
    assert document({"tool_calls": [call(0, "1", "grep", "{}")]}, finish).good.stop == "length"


def test_the_function_call_of_old_is_a_call() -> None:
    legacy = {"function_call": {"name": "grep", "arguments": "{}"}}

    assert document(legacy, "function_call").calls == [("", "grep", "{}")]
    assert stream(
        {"function_call": {"name": "grep", "arguments": ""}},
        {"function_call": {"arguments": "{}"}},
        finish="function_call",
    ).calls == [("", "grep", "{}")]
    both = {"tool_calls": [call(0, "1", "grep", "{}")]} | legacy
    assert document(both, "tool_calls").calls == [("1", "grep", "{}")]
    assert document({"content": "hi", "function_call": {"name": "", "arguments": ""}}).good.calls == ()


@pytest.mark.parametrize("made", [call(0, "1", None, A), call(0, "1"), call(0, None, " ", A)])
def test_a_call_without_a_name_is_asked_for_again(made: Any) -> None:
    error = document({"tool_calls": [made]}, "tool_calls", usage={"prompt_tokens": 5, "completion_tokens": 2}).bad

    assert (error.kind, error.retryable, error.tokens) == ("protocol", True, 7)


def test_calls_without_end_do_not_fill_the_memory() -> None:
    many = [call(n, str(n), "grep", "{}") for n in range(2000)]

    assert len(pieces(many).calls) == 1024


def test_what_a_provider_attached_to_a_call_is_kept_under_its_key() -> None:
    made = call(0, "functions.grep:0", "grep", "{}") | {"extra_content": {"google": {"thought_signature": "s"}}}

    for read in (document({"tool_calls": [made]}), pieces(made)):
        kept = json.loads(read.good.calls[0].opaque)
        assert kept == {"id": "functions.grep:0", "extra_content": {"google": {"thought_signature": "s"}}}
    assert document({"tool_calls": [call(0, "call_1", "grep", "{}")]}).good.calls[0].opaque == ""


# --- text -------------------------------------------------------------------------------------------

CONTENTS = [
    ("hi", "hi", ""),
    ([{"type": "text", "text": "h"}, {"type": "text", "text": "i"}], "hi", ""),
    (["h", "i"], "hi", ""),
    ([{"text": "hi"}], "hi", ""),
    ([{"type": "output_text", "text": "hi"}], "hi", ""),
    ([{"type": "text", "text": {"value": "hi"}}], "hi", ""),
    ([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "hi"}], "hi", "hm"),
    ([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "hi"}], "hi", "hm"),
    ([{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "hi"}], "hi", "hm"),
    ([{"type": "reference", "reference_ids": [1]}, {"type": "text", "text": "hi"}, None, 5], "hi", ""),
    ({"answer": 42}, '{"answer": 42}', ""),
    ([{"type": "text"}, {"type": "thinking"}, {"type": "refusal"}, {"type": "text", "text": "hi"}], "hi", ""),
]


@pytest.mark.parametrize(("content", "text", "reasoning"), CONTENTS)
def test_content_is_read_in_every_form(content: Any, text: str, reasoning: str) -> None:
    for read in (document({"content": content}), stream({"content": content})):
        assert (read.good.text, read.good.reasoning) == (text, reasoning)


@pytest.mark.parametrize(
    ("beside", "reasoning"),
    [
        ({"reasoning_content": "hm"}, "hm"),
        ({"reasoning": "hm"}, "hm"),
        ({"thinking": "hm"}, "hm"),
        ({"reasoning_content": "hm", "reasoning": "hm"}, "hm"),
        ({"reasoning_content": "", "reasoning": "hm"}, "hm"),
        ({"reasoning_content": None, "reasoning": None}, ""),
        ({"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}, "hm"),
        ({"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}, None]}, "hm"),
        ({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}, ""),
        ({"reasoning": {"effort": "low"}}, ""),
    ],
)
def test_reasoning_is_read_once_whatever_its_name(beside: dict[str, Any], reasoning: str) -> None:
    assert document({"content": "hi"} | beside).good.reasoning == reasoning
    read = stream({"role": "assistant", "content": ""} | beside, {"content": "hi"})
    assert (read.good.text, read.good.reasoning) == ("hi", reasoning)
    assert [said.text for said in read.said if isinstance(said, ReasoningDelta)] == ([reasoning] if reasoning else [])


def test_what_a_provider_attached_to_a_turn_is_kept_as_it_came() -> None:
    made = {"tool_calls": [call(0, "1", "grep", "{}")]}
    details = [{"type": "reasoning.encrypted", "data": "x", "index": 0}]

    kept = document(made | {"reasoning_content": "hm", "reasoning_details": details}).good
    assert json.loads(kept.opaque) == {"reasoning_details": details, "reasoning_content": "hm"}
    assert kept.origin == "chat:http://x"
    # Plain reasoning is wanted beside calls only; anywhere else it is dead weight.
    assert document({"content": "hi", "reasoning": "hm"}).good.opaque == ""
    assert json.loads(document({"content": "hi", "reasoning_details": details}).good.opaque) == {
        "reasoning_details": details
    }


def test_what_no_json_can_hold_is_not_kept() -> None:
    body = b'{"choices":[{"message":{"content":"hi","reasoning_details":[{"score":NaN}]}}]}'

    read = Read(body, "application/json")
    assert (read.good.text, read.good.opaque) == ("hi", "")


def test_a_raw_line_feed_in_a_reply_is_read() -> None:
    assert Read(b'{"choices":[{"message":{"content":"a\tb\nc"}}]}', "application/json").good.text == "a\tb\nc"


def test_a_long_reply_of_small_pieces_is_whole_and_is_put_together_in_time() -> None:
    def piece(n: int) -> bytes:
        details = [{"type": "reasoning.text", "index": 0, "text": f"{n} "}]
        return chunk({"content": f"{n} ", "reasoning_content": f"{n} ", "reasoning_details": details})

    counted = "".join(f"{n} " for n in range(20_000))
    made = chunk({"tool_calls": [call(0, "1", "grep", "{}")]}, "tool_calls")
    started = time.process_time()
    reply = assembled(b"".join(map(piece, range(20_000))) + made + DONE)

    assert time.process_time() - started < 5
    assert isinstance(reply, ModelReplied)
    assert reply.text == reply.reasoning == counted
    kept = json.loads(reply.opaque)
    assert kept["reasoning_content"] == kept["reasoning_details"][0]["text"] == counted


def test_streamed_reasoning_goes_back_in_one_piece() -> None:
    made = {"tool_calls": [call(0, "1", "grep", "{}")]}

    read = stream({"reasoning_content": "Need "}, {"reasoning_content": "it."}, made)
    assert json.loads(read.good.opaque) == {"reasoning_content": "Need it."}
    assert read.good.reasoning == "Need it."


def streamed(key: str, *entries: dict[str, Any]) -> Any:
    """What is kept of entries that came one by one under this key."""
    read = stream(*({key: [entry]} for entry in entries), {"content": "hi"})
    return json.loads(read.good.opaque)[key]


def test_thinking_without_an_index_is_one_block_up_to_its_signature() -> None:
    """BerriAI/litellm#29428: a list of unsigned fragments is refused with the next request."""

    def block(words: str, signature: Any = "") -> dict[str, Any]:
        return {"type": "thinking", "thinking": words, "signature": signature}

    assert streamed(
        "thinking_blocks",
        block("One. "),
        block("Two.", None),
        block("", "SIG1"),
        {"type": "redacted_thinking", "data": "x"},
        {"type": "redacted_thinking", "data": "y"},
        block("Three."),
        block("", "SIG2"),
        block("Four.", "SIG3"),
    ) == [
        block("One. Two.", "SIG1"),
        {"type": "redacted_thinking", "data": "x"},
        {"type": "redacted_thinking", "data": "y"},
        block("Three.", "SIG2"),
        block("Four.", "SIG3"),
    ]


def test_entries_that_say_they_are_different_ones_stay_apart() -> None:
    entries = [{"type": "reasoning.summary", "id": name, "summary": name} for name in "ab"]

    assert streamed("reasoning_details", *entries) == entries


@pytest.mark.parametrize("nothing", ["", None])
def test_a_signature_that_came_is_not_lost_to_one_that_says_nothing(nothing: Any) -> None:
    details = [{"type": "reasoning.text", "index": 0, "signature": one} for one in ("SIG", nothing)]
    extra = [{"google": {"thought_signature": one}} for one in ("SIG", nothing)]
    call = [
        {"index": 0, "id": "a", "function": {"name": "read_file", "arguments": "{}"}, "extra_content": extra[0]},
        {"index": 0, "extra_content": extra[1]},
    ]
    read = stream(*({"tool_calls": [piece], "extra_content": one} for piece, one in zip(call, extra, strict=True)))

    assert streamed("reasoning_details", *details) == details[:1]
    assert json.loads(read.good.opaque)["extra_content"] == extra[0]
    assert json.loads(read.good.calls[0].opaque)["extra_content"] == extra[0]


@pytest.mark.parametrize("blank", [" ", "\n", "", None])
@pytest.mark.parametrize("beside", [{"index": 0}, {"index": 0, "id": ""}, {"index": 1, "id": "again"}])
def test_a_blank_piece_after_complete_arguments_begins_no_second_call(beside: dict[str, Any], blank: Any) -> None:
    name = "" if beside.get("id") else "read_file"
    first = {"index": 0, "id": "a", "function": {"name": "read_file", "arguments": '{"path": "a.py"}'}}
    last = beside | {"function": {"name": name, "arguments": blank}}

    calls = stream({"tool_calls": [first]}, {"tool_calls": [last]}).good.calls

    assert [(call.id, call.name, json.loads(call.arguments)) for call in calls] == [
        ("a", "read_file", {"path": "a.py"})
    ]


def test_streamed_reasoning_details_are_put_together_again() -> None:
    def detail(index: Any, kind: str, **more: Any) -> dict[str, Any]:
        return {"reasoning_details": [{"type": kind, "index": index, **more}]}

    read = stream(
        detail(0, "reasoning.text", text="He", format="f"),
        detail(0, "reasoning.text", text="llo", signature=None),
        detail(0, "reasoning.text", signature="s"),
        detail(1, "reasoning.encrypted", data="x"),
        detail(None, "reasoning.text", text="a"),
        detail(None, "reasoning.text", text="b"),
        {"extra_content": {"a": 1}},
        {"extra_content": {"b": 2}},
        {"thought_signature": {"old": 1}},
        {"thought_signature": "new"},
        {"content": "hi"},
    )
    assert json.loads(read.good.opaque) == {
        "reasoning_details": [
            {"type": "reasoning.text", "index": 0, "text": "Hello", "format": "f", "signature": "s"},
            {"type": "reasoning.encrypted", "index": 1, "data": "x"},
            {"type": "reasoning.text", "index": None, "text": "ab"},
        ],
        "extra_content": {"a": 1, "b": 2},
        "thought_signature": "new",
    }


def test_a_refusal_is_the_text_of_its_reply_and_is_marked() -> None:
    for read in (
        document({"content": None, "refusal": "No."}),
        stream({"refusal": "N"}, {"refusal": "o."}),
        document({"content": [{"type": "refusal", "refusal": "No."}]}),
    ):
        assert (read.good.text, read.good.stop) == ("No.", "refusal")
    assert document({"content": "hi", "refusal": None}).good.stop == "stop"
    assert stream({"refusal": "No."}).streamed == "No."


@pytest.mark.parametrize(
    ("finish", "stop"),
    [("stop", "stop"), ("end_turn", "stop"), (None, "stop"), ("", "stop"), ("new", "stop"), ("content-filter", "content_filter"),
     ("SAFETY", "content_filter"), ("length", "length"), ("refusal", "refusal"), ("pause_turn", "pause"), ("tool_calls", "stop")],
)  # fmt: skip
def test_finish_reasons_have_many_names(finish: Any, stop: str) -> None:
    assert document({"content": "hi"}, finish).good.stop == stop
    assert stream({"content": "hi"}, finish=finish).good.stop == stop


@pytest.mark.parametrize("finish", ["error", "failed", "network_error", "insufficient_system_resource", "abort"])
def test_a_turn_that_failed_without_a_word_is_an_error(finish: str) -> None:
    for read in (document({"content": "Par"}, finish), stream({"content": "Par"}, finish=finish)):
        assert (read.bad.kind, read.bad.retryable) == ("server_error", True)
        assert finish in str(read.bad)


def test_a_call_the_server_could_not_read_is_the_models_fault() -> None:
    assert document({"content": ""}, "malformed_function_call").bad.kind == "model_output"


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"content": ""},
        {"content": None},
        {"content": "  \n"},
        {"content": []},
        {"content": "", "reasoning": "hm"},
        "x",
        None,
    ],
)
def test_a_turn_that_says_nothing_is_asked_for_again(message: Any) -> None:
    error = document(message, usage={"prompt_tokens": 5, "completion_tokens": 2}).bad

    assert (error.kind, error.retryable, error.tokens) == ("empty", True, 7)


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_a_turn_that_was_cut_before_its_first_word_says_so_and_is_not_bought_again(finish: str) -> None:
    read = document({"content": "", "reasoning": "hm"}, finish)

    assert (read.good.text, read.good.stop) == ("", finish)


def test_one_character_in_two_escapes_and_two_chunks_is_one_character() -> None:
    first = b'data: {"choices":[{"index":0,"delta":{"content":"a\\ud83d"}}]}\n\n'
    second = b'data: {"choices":[{"index":0,"delta":{"content":"\\ude00b"}}]}\n\n'
    read = Read(first + second + DONE)

    assert read.good.text == read.streamed == "a😀b"
    alone = b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n'
    assert Read(chunk({"content": "a"}) + alone + second + DONE).streamed == "a😀b"
    half = Read(first + DONE)
    assert (half.good.text, half.streamed) == ("a\ufffd", "a")


# --- usage ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2}, Usage(5, 2)),
        ({"input_tokens": 5, "output_tokens": 2}, Usage(5, 2)),
        ({"prompt_tokens": 5.0, "completion_tokens": 2}, Usage(5, 2)),
        ({"prompt_tokens": 5}, Usage(5, None)),
        ({"prompt_tokens": None, "completion_tokens": "2"}, Usage()),
        ({"prompt_tokens": -1, "completion_tokens": True}, Usage()),
        ({}, Usage()),
        (None, Usage()),
        ([], Usage()),
        ({"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": {"reasoning_tokens": 1}}, Usage(9, 4, 3, None, 1)),
        ({"prompt_tokens": 9, "completion_tokens": 4, "prompt_cache_hit_tokens": 3}, Usage(9, 4, 3)),
        ({"prompt_tokens": 9, "completion_tokens": 4, "cached_tokens": 3, "reasoning_tokens": 1}, Usage(9, 4, 3, None, 1)),
        ({"prompt_tokens": 9, "completion_tokens": 4, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2}, Usage(9, 4, 3, 2)),
        ({"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": None}, Usage(9, 4)),
    ],
)  # fmt: skip
def test_usage_is_what_the_server_said_and_no_more(usage: Any, expected: Usage) -> None:
    assert document({"content": "hi"}, usage=usage).good.usage == expected


def test_the_last_count_that_says_something_wins() -> None:
    def count(n: int) -> dict[str, int]:
        return {"prompt_tokens": 5, "completion_tokens": n}

    counted = event({"choices": [], "usage": count(3)})
    assert Read(
        chunk({"content": "hi"}, usage=count(1))
        + chunk({}, "stop", usage=count(2))
        + counted
        + event({"choices": [], "usage": None})
        + DONE
    ).good.usage == Usage(5, 3)
    assert Read(
        event({"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop", "usage": count(4)}]})
        + DONE
    ).good.usage == Usage(5, 4)
    assert stream({"content": "hi"}, x_groq={"usage": count(6)}).good.usage == Usage(5, 6)
    assert stream({"content": "hi"}, timings={"prompt_n": 4, "cache_n": 1, "predicted_n": 7}).good.usage == Usage(
        5, 7, 1
    )
    assert stream({"content": "hi"}, timings="x").good.usage == Usage()


# --- choices ----------------------------------------------------------------------------------------


def test_of_several_choices_the_first_counts() -> None:
    def one(index: Any, text: str, finish: Any = None) -> bytes:
        return event({"choices": [{"index": index, "delta": {"content": text}, "finish_reason": finish}]})

    assert Read(one(1, "x") + one(0, "h") + one(1, "y", "stop") + one(0, "i", "stop") + DONE).good.text == "hi"
    assert Read(one("0", "h") + one(None, "i", "stop") + DONE).good.text == "hi"
    two = {"choices": [{"index": 1, "message": {"content": "x"}}, {"index": 0, "message": {"content": "hi"}}]}
    assert Read(json.dumps(two), "application/json").good.text == "hi"


@pytest.mark.parametrize(
    "body",
    [
        {"choices": None},
        {"choices": []},
        {"id": "x", "object": "chat.completion"},
        {"choices": [{"index": 1, "message": {"content": "x"}}]},
        {"choices": ["x"]},
        {"choices": "x"},
        {},
    ],
)
def test_a_document_without_a_choice_is_shown_and_asked_for_again(body: Any) -> None:
    error = Read(json.dumps(body), "application/json").bad

    assert (error.kind, error.retryable) == ("protocol", True)
    assert json.dumps(body) in str(error)


@pytest.mark.parametrize(
    "body",
    [
        {"choices": {"index": 0, "message": {"content": "hi"}}},
        {"choices": [{"message": {"content": "hi"}}]},
        {"choices": [{"index": 0, "delta": {"content": "hi"}}]},
        {"choices": [{"index": 0, "text": "hi"}]},
        [{"choices": [{"index": 0, "message": {"content": "hi"}}]}],
    ],
)
def test_a_choice_is_found_in_every_form(body: Any) -> None:
    assert Read(json.dumps(body), "application/json").good.text == "hi"


def test_a_stream_may_end_with_the_whole_message_once_more_or_hold_nothing_else() -> None:
    whole = event({"choices": [{"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}]})

    assert Read(whole + DONE).good.text == "hi"
    assert Read(chunk({"content": "hi"}) + whole + DONE).good.text == "hi"
    both = event(
        {"choices": [{"index": 0, "delta": {"content": ""}, "message": {"content": "hi"}, "finish_reason": "stop"}]}
    )
    assert Read(chunk({"content": "hi"}) + both + DONE).good.text == "hi"
    assert Read(event({"choices": [{"index": 0, "text": "hi", "finish_reason": "stop"}]}) + DONE).good.text == "hi"


# --- streams and documents --------------------------------------------------------------------------

GOOD = chunk({"content": "hi"}, "stop") + DONE


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (GOOD, "text/event-stream"),
        (GOOD, "application/json"),
        (GOOD, "text/plain"),
        (b": wait\n\n" + GOOD, "text/plain"),
        (b"\n\n\r\n" + GOOD, ""),
        (b"\xef\xbb\xbf" + GOOD, "text/plain"),
        (b"id: 1\n" + GOOD, "text/plain"),
        (b"event: message\n" + GOOD, "text/plain"),
        (b"retry: 1\n" + GOOD, "text/plain"),
        (b"foo: 1\n" + GOOD, "text/event-stream"),
        (GOOD.replace(b"\n\n", b"\n"), "text/event-stream"),
        (GOOD[:-2], "text/event-stream"),
        (GOOD.replace(b"[DONE]", b'"[DONE]"'), "text/event-stream"),
        (GOOD.replace(b"[DONE]", b" [DONE] "), "text/event-stream"),
        (chunk({"content": "hi"}, "stop"), "text/event-stream"),
        (chunk({"content": "hi"}, "stop")[:-2], "text/event-stream"),
        (chunk({"content": "hi"}, "stop") + b'data: {"choices": [], "us', "text/event-stream"),
        (chunk({"content": "hi"}) + DONE, "text/event-stream"),
        (b"event: ping\ndata: alive\n\n" + b"data: \n\n" + b"data: null\n\n" + b"data: {}\n\n" + GOOD, "text/event-stream"),
        (json.dumps(json.loads(GOOD[6:-16]), indent=1).replace("\n", "\ndata: ").join(["data: ", "\n\n"]).encode() + DONE, "text/event-stream"),
        (b'{"choices":[{"message":{"content":"hi"}}]}', "text/event-stream"),
        (b'  \n {"choices":[{"message":{"content":"hi"}}]}', "text/event-stream"),
        (b'\xef\xbb\xbf{"choices":[{"message":{"content":"hi"}}]}', "application/json"),
    ],
)  # fmt: skip
def test_a_reply_is_read_whatever_form_it_takes_and_claims_to_have(body: bytes, content_type: str) -> None:
    read = Read(body, content_type)

    assert read.good.text == "hi"


def test_what_comes_after_the_last_event_is_not_looked_at() -> None:
    assert Read(GOOD + b"data: {broken\n\n").good.text == "hi"


def test_a_stream_cut_at_any_byte_is_an_error_until_its_finish_reason_is_whole() -> None:
    body = (
        chunk({"role": "assistant", "content": "Grüße 你好"})
        + chunk({"tool_calls": [call(0, "1", "read_file", '{"pa')]})
        + chunk({"tool_calls": [call(0, None, None, 'th":"a.py"}')]})
        + chunk({}, "tool_calls")
        + event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})
        + DONE
    )
    complete = body.index(b'"tool_calls"}]}') + len(b'"tool_calls"}]}')

    for at in range(len(body)):
        read = assembled(body[:at])
        if at < complete:
            assert isinstance(read, ProviderError), body[:at]
            assert read.retryable
        else:
            assert not isinstance(read, ProviderError) or read.kind == "protocol"
            assert isinstance(read, ProviderError) or [c.arguments for c in read.calls] == [A]
    assert isinstance(assembled(body), ModelReplied)


def assembled(body: bytes) -> ModelReplied | ProviderError:
    """The reply in these bytes, without a network: reader and assembler alone."""
    reply, reader = ChatReply(ProviderErrors("x", "m"), "chat:x", Names(NAMES)), SSEReader()
    try:
        for one in (*reader.feed(body), *reader.close()):
            if reply.event(one, lambda _: None):
                break
        if not reply.complete():
            return ProviderError("cut", kind="protocol")
        return reply.reply()
    except ProviderError as error:
        return error


# --- errors in a reply ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (event({"error": {"message": "slow down", "code": 429}}), "rate_limit", "slow down"),
        (event({"error": "broken"}), "server_error", "broken"),
        (event({"choices": [], "error": {"message": "x", "code": 502}}), "server_error", "x"),
        (event({"choices": [{"index": 0, "error": {"message": "x", "code": 400}, "finish_reason": "error"}]}), "bad_request", "x"),
        (event({"choices": [], "x_groq": {"error": "over_capacity"}}), "server_error", "over_capacity"),
        (b"event: error\n" + event({"message": "x", "code": 503}), "overloaded", "x"),
        (b"event: error\ndata: plain words\n\n", "server_error", "plain words"),
        (b"event: error\n" + event(["x"]), "server_error", "x"),
        (event({"detail": "gone", "status": 404}), "not_found", "gone"),
        (event({"object": "error", "message": "bad", "type": "invalid_request_error"}), "bad_request", "bad"),
        (event({"success": False, "msg": "token expired or incorrect", "code": 401}), "auth", "token expired"),
        (b'{"error": {"message": "in a line of its own", "code": 529}}\n', "overloaded", "in a line of its own"),
        (b'error: "not json"\n', "protocol", "not json"),
        (b"data: {broken\n\n", "protocol", "an event that is no chunk: {broken"),
        (b"data: [1]\n\n", "protocol", "an event that is no chunk: [1]"),
        (b"data: " + b'{"a":' * 5000 + b"\n\n", "protocol", "an event that is no chunk"),
        (b"data: \xff\xfe\n\n", "protocol", "an event that is no chunk"),
        (b"data: " + b"x" * (EVENT_BYTES + 1), "protocol", f"an event of more than {EVENT_BYTES:,} bytes"),
        (b"", "protocol", "a stream that ended before the reply was complete"),
    ],
)  # fmt: skip
def test_an_error_is_an_error_wherever_it_stands_in_a_stream(body: bytes, kind: str, words: str) -> None:
    error = (
        Read(chunk({"content": "Par"}) + body).bad
        if kind != "protocol" or b"data" in body
        else Read(b": x\n\n" + body).bad
    )

    assert error.kind == kind
    assert words in str(error)
    assert error.status == 200


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ('{"error": {"message": "slow down", "code": 429}}', "rate_limit", "slow down"),
        ('{"detail": "Unauthorized", "status": 401}', "auth", "Unauthorized"),
        ('[{"error": {"message": "x", "status": "RESOURCE_EXHAUSTED"}}]', "rate_limit", "x"),
        ('{"type": "error", "error": {"type": "overloaded_error", "message": "x"}}', "overloaded", "x"),
        ("<html>sign in</html>", "protocol", "a web page"),
        ("upstream error", "protocol", "something that is not JSON: upstream error"),
        ("", "protocol", "nothing"),
        ("null", "protocol", "something that is not JSON"),
        ("[1, 2]", "protocol", "JSON that is no object: [1, 2]"),
        ('"text"', "protocol", "JSON that is no object"),
        ('{"choices": [', "protocol", "something that is not JSON"),
        ("[" * 100_000, "protocol", "something that is not JSON"),
    ],
)
def test_a_document_that_is_no_reply_is_an_error(body: str, kind: str, words: str) -> None:
    error = Read(body, "application/json").bad

    assert error.kind == kind
    assert words in str(error)
    assert error.status == 200


def test_a_stream_without_any_choice_is_no_reply() -> None:
    counted = event({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}})

    for body, tokens in ((DONE, 0), (counted + DONE, 2)):
        error = Read(body).bad
        assert (error.kind, error.tokens) == ("protocol", tokens)
        assert "no choices" in str(error)


def test_what_is_nested_too_deep_to_be_handled_is_an_error_too() -> None:
    class Deep(ChatReply):
        def document(self, body: Any) -> None:
            raise RecursionError

    http = httpx2.MockTransport(lambda _: httpx2.Response(200, json={}))
    failures = ProviderErrors("x", "m")
    endpoint = Endpoint("http://x/v1", {}, failures=failures, transport=Transport(http))
    deep = Deep(failures, "chat:x", Names())

    with pytest.raises(ProviderError, match="x answered with JSON that is nested too deep") as caught:
        asyncio.run(endpoint.ask("/p", b"{}", deep, lambda _: None))
    assert caught.value.kind == "protocol"


def test_an_error_after_text_costs_what_was_counted() -> None:
    counted = chunk({"content": "Par"}, usage={"prompt_tokens": 5, "completion_tokens": 1})

    assert Read(counted + event({"error": {"message": "x"}})).bad.tokens == 6


def test_a_limit_that_is_told_twice_is_told_once() -> None:
    counted = {"usage": {"prompt_tokens": 5, "completion_tokens": 9}}
    error = event({"error": {"message": "Token limit reached", "code": 400}} | counted)

    read = Read(chunk({"content": "Par"}, "length") + error + DONE)
    assert (read.good.text, read.good.stop, read.good.usage) == ("Par", "length", Usage(5, 9))
    assert Read(chunk({"content": "Par"}, "stop") + error + DONE).bad.kind == "context_length"


def test_an_error_key_that_says_nothing_is_no_error() -> None:
    assert (
        Read(
            event({"error": None, "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]})
        ).good.text
        == "hi"
    )


# --- anything ---------------------------------------------------------------------------------------

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from(["", "x", "stop", "length", "grep", "{}", '{"a":1}', "0"])
)
KEYS = st.sampled_from(
    ["choices", "index", "delta", "message", "content", "tool_calls", "function", "name", "arguments", "id", "type", "text",
     "finish_reason", "error", "usage", "reasoning", "reasoning_details", "refusal", "function_call", "x_groq", "timings",
     "prompt_tokens", "extra_content", "code", "detail"]
)  # fmt: skip
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=25
)
CHUNKS = st.lists(
    VALUES
    | st.builds(
        lambda delta, finish: {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}, VALUES, SCALARS
    ),
    max_size=6,
)


@settings(max_examples=120, deadline=None)
@given(CHUNKS)
def test_any_chunks_give_a_reply_or_a_typed_error(chunks: list[Any]) -> None:
    read = assembled(b"".join(map(event, chunks)) + DONE)

    assert isinstance(read, ModelReplied | ProviderError)
    if isinstance(read, ModelReplied):
        assert all(call.name and isinstance(call.arguments, str) for call in read.calls)
        json.dumps([read.text, read.opaque, read.reasoning]).encode()


@settings(max_examples=100, deadline=None)
@given(VALUES)
def test_any_document_gives_a_reply_or_a_typed_error(body: Any) -> None:
    reply = ChatReply(ProviderErrors("x", "m"), "chat:x", Names(NAMES))
    try:
        reply.document(body)
        made = reply.reply()
    except ProviderError:
        return
    assert made.text or made.calls or made.stop not in ("stop", "tool_calls")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), max_size=6))
def test_mutated_bytes_of_a_good_stream_give_a_reply_or_a_typed_error(changes: list[tuple[int, int]]) -> None:
    body = bytearray(
        chunk({"content": "Grüße"}) + chunk({"tool_calls": [call(0, "1", "read_file", A)]}, "tool_calls") + DONE
    )
    for at, byte in changes:
        body[at % len(body)] = byte

    try:
        assert isinstance(assembled(bytes(body)), ModelReplied | ProviderError)
    except EventTooLarge:
        pytest.fail("nothing here is large")
