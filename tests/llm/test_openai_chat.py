# ruff: noqa: E501 - the sentences are as servers send them
"""Chat completions: what is sent, what is changed after a refusal, and what is said when something is missing."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tool_loop.errors import ConfigurationError, ProviderError, UsageError
from tool_loop.events import Notice, ToolCall
from tool_loop.llm.chat.model import OpenAIChat
from tool_loop.llm.chat.request import HEARD
from tool_loop.ports import Request, ToolSpec
from tool_loop.testing import FaultServer
from tool_loop.transcript import AssistantMessage, Message, ToolMessage, Transcript, UserMessage

if TYPE_CHECKING:
    from tool_loop.events import Event, Signal

QUESTION = UserMessage("q")
LOOK = ToolSpec("look", "Look at it.", {"type": "object", "properties": {"at": {"type": "string"}}})
CALL = ToolCall("call_1", "look", '{"at": "a"}')
ASKED = (QUESTION, AssistantMessage("", (CALL,)), ToolMessage("call_1", "look", "fine"))
GOOD = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]}


class Server:
    """Answers each request with the next reply, the last one for ever, and keeps what it got."""

    def __init__(self, *replies: Any) -> None:
        self.replies = replies or (GOOD,)
        self.got: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        reply = self.replies[min(len(self.got), len(self.replies) - 1)]
        self.got.append(request)
        return reply if isinstance(reply, httpx2.Response) else httpx2.Response(200, json=reply)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(request.content) for request in self.got]


def refusal(message: str, status: int = 400, **more: Any) -> httpx2.Response:
    return httpx2.Response(status, json={"error": {"message": message, **more}})


def chat(
    server: Server | None = None, url: str = "https://api.example.com/v1", key: str = "k", **options: Any
) -> OpenAIChat:
    return OpenAIChat("some-model", url, key, http=httpx2.MockTransport(server or Server()), **options)


def ask(llm: OpenAIChat, *messages: Message, system: str = "", **details: Any) -> list[Event | Signal]:
    said: list[Event | Signal] = []
    asyncio.run(llm.reply(Request(Transcript(system, messages or (QUESTION,)), **details), said.append))
    return said


def body(
    *messages: Message, system: str = "", tools: tuple[ToolSpec, ...] = (), may_call: bool = True, **options: Any
) -> dict[str, Any]:
    request = Request(Transcript(system, messages or (QUESTION,)), tools, may_call=may_call)
    found: dict[str, Any] = json.loads(chat(**options).body(request))
    return found


# --- what is set ------------------------------------------------------------------------------------


def test_without_a_model_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_MODEL", "OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(ConfigurationError, match="set OPENAI_MODEL, or pass model="):
        OpenAIChat()


def test_without_a_key_it_says_what_to_set_where_one_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)

    with pytest.raises(ConfigurationError, match="set OPENAI_API_KEY, or OPENAI_BASE_URL for another server"):
        OpenAIChat("m")
    server = Server()
    ask(OpenAIChat("m", "http://127.0.0.1:8080/v1", http=httpx2.MockTransport(server)))
    assert "authorization" not in server.got[0].headers


def test_the_environment_says_what_the_program_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_MODEL", "env-model")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://env.example.com/v1/")
    monkeypatch.setenv("OPENAI_API_KEY", " env-key\n")
    server = Server()

    ask(OpenAIChat(http=httpx2.MockTransport(server)))
    (request,) = server.got
    assert request.url == "https://env.example.com/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer env-key"
    assert server.bodies[0]["model"] == "env-model"


@pytest.mark.parametrize(
    "url", ["api.example.com/v1", "ftp://x", "http://", "https://x:port/v1", "http://x y/v1", "https://[::1/v1"]
)
def test_an_address_that_is_none_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"OPENAI_BASE_URL is not a URL: .* It looks like https://api.openai.com/v1"
    ):
        chat(url=url)


@pytest.mark.parametrize("key", ["sk-\u2026abc", "sk-a b", "sk-a\x00b"])
def test_a_key_that_was_not_pasted_whole_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ConfigurationError, match="a character that no key has") as caught:
        chat(key=key)
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://x/v1", "https://x/v1/chat/completions"),
        ("https://x/v1/", "https://x/v1/chat/completions"),
        ("https://x/v1/chat/completions", "https://x/v1/chat/completions"),
        ("https://x/deployments/d?api-version=1", "https://x/deployments/d/chat/completions?api-version=1"),
        ("https://x", "https://x/chat/completions"),
    ],
)
def test_the_address_is_the_base_with_its_path(base: str, url: str) -> None:
    server = Server()

    ask(chat(server, base))
    assert server.got[0].url == url


def test_headers_are_few_and_extra_ones_are_added() -> None:
    server = Server()
    ask(chat(server, extra_headers={"X-Team": "red"}), key="run:1")

    headers = server.got[0].headers
    assert headers["x-team"] == "red"
    assert headers["idempotency-key"] == "run:1"
    assert headers["content-type"] == "application/json"
    assert headers["user-agent"].startswith("tool-loop/")
    assert "idempotency-key" not in _headers_without_key()
    ask(chat(server), key="отчёт:1")
    assert re.fullmatch("[0-9a-f]{32}", server.got[1].headers["idempotency-key"])


def _headers_without_key() -> Any:
    server = Server()
    ask(chat(server))
    return server.got[0].headers


@pytest.mark.parametrize("value", ["Ж", "a\nb"])
def test_a_header_that_cannot_be_sent_is_the_configurations_fault(value: str) -> None:
    async def main() -> None:
        async with FaultServer([]) as server:
            llm = OpenAIChat("m", server.url, "k", extra_headers={"x-team": value})
            await llm.reply(Request(Transcript("", [QUESTION])), lambda _: None)

    with pytest.raises(
        ConfigurationError, match=r"cannot send a request to .* Check the base URL, the key and extra headers"
    ):
        asyncio.run(main())


def test_the_key_is_in_no_text_of_the_model() -> None:
    key = "sk-proj-0123456789"
    llm = chat(key=key, url="https://me.openai.azure.com/v1")

    for shown in (llm, vars(llm), vars(llm.endpoint), llm.endpoint.failures):
        assert key not in repr(shown)
    with pytest.raises(UsageError) as caught:
        chat(key=key, extra_body={"stream": 1})
    assert key not in str(caught.value)


def test_azure_gets_the_key_in_the_header_of_its_older_api_too() -> None:
    server = Server()

    ask(chat(server, "https://me.openai.azure.com/openai/v1"))
    assert server.got[0].headers["api-key"] == "k"
    assert "api-key" not in _headers_without_key()


# --- what is sent -----------------------------------------------------------------------------------


def test_nothing_is_sent_that_was_not_asked_for() -> None:
    assert body() == {"model": "some-model", "stream": True, "messages": [{"role": "user", "content": "q"}]}


def test_what_was_asked_for_is_sent() -> None:
    sent = body(
        tools=(LOOK,),
        stream=False,
        max_output_tokens=100,
        temperature=0.0,
        parallel_tool_calls=False,
        extra_body={"seed": 1},
    )

    assert {name: value for name, value in sent.items() if name not in ("messages", "tools")} == {
        "model": "some-model", "stream": False, "max_tokens": 100, "temperature": 0.0, "parallel_tool_calls": False, "seed": 1,
    }  # fmt: skip
    assert "parallel_tool_calls" not in body(parallel_tool_calls=False)
    assert body(max_output_tokens=5, token_param="max_completion_tokens")["max_completion_tokens"] == 5


@pytest.mark.parametrize("name", ["messages", "tools", "tool_choice", "stream"])
def test_extra_members_may_not_take_the_place_of_the_conversation(name: str) -> None:
    with pytest.raises(UsageError, match=f"extra_body may not set '{name}'"):
        chat(extra_body={name: 1})


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_extra_members_have_to_be_json(value: object) -> None:
    with pytest.raises(UsageError, match="extra_body is not JSON"):
        chat(extra_body={"x": value})


@pytest.mark.parametrize(
    ("url", "option", "sent"),
    [
        ("https://api.openai.com/v1", None, True),
        ("http://127.0.0.1:8080/v1", None, True),
        ("https://api.example.com/v1", None, False),
        ("https://api.example.com/v1", True, True),
        ("https://api.openai.com/v1", False, False),
    ],
)
def test_the_count_of_a_stream_is_asked_of_servers_known_to_give_it(url: str, option: bool | None, sent: bool) -> None:
    assert ("stream_options" in body(url=url, stream_options=option)) == sent
    assert "stream_options" not in body(url=url, stream_options=option, stream=False)


def test_tools_are_sent_as_functions_and_left_out_when_there_are_none() -> None:
    assert body(tools=(LOOK, ToolSpec("bare", "", {"type": "object"})))["tools"] == [
        {
            "type": "function",
            "function": {"name": "look", "description": "Look at it.", "parameters": dict(LOOK.parameters)},
        },
        {"type": "function", "function": {"name": "bare", "parameters": {"type": "object"}}},
    ]
    assert "tools" not in body()


def test_more_tools_than_the_api_takes_are_refused_before_anything_is_sent() -> None:
    many = tuple(ToolSpec(f"t{n}", "", {"type": "object"}) for n in range(129))

    with pytest.raises(ConfigurationError, match="129 tools, and chat completions takes 128"):
        body(tools=many)
    assert len(body(tools=many, most_tools=None)["tools"]) == 129


def test_schemas_are_sent_with_what_every_provider_wants_and_without_what_one_refuses() -> None:
    schema = {
        "$schema": "x",
        "type": "object",
        "properties": {
            "list": {"type": "array"},
            "maybe": {"type": ["array", "null"]},
            "pair": {"type": "array", "prefixItems": [{"type": "array"}, True]},
            "deep": {"type": "object", "additionalProperties": {"type": "array"}},
            "either": {"anyOf": [{"type": "array"}, {"type": "string"}]},
            "$schema": {"type": "string"},
            "any": True,
        },
        "items": {"$schema": "y"},
        "enum": [["a"]],
    }
    (tool,) = body(tools=(ToolSpec("t", "", schema),))["tools"]

    assert tool["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "list": {"type": "array", "items": {}},
            "maybe": {"type": ["array", "null"], "items": {}},
            "pair": {"type": "array", "prefixItems": [{"type": "array", "items": {}}, True]},
            "deep": {"type": "object", "additionalProperties": {"type": "array", "items": {}}},
            "either": {"anyOf": [{"type": "array", "items": {}}, {"type": "string"}]},
            "$schema": {"type": "string"},
            "any": True,
        },
        "items": {},
        "enum": [["a"]],
    }
    assert schema["$schema"] == "x"


def test_names_that_no_provider_takes_are_changed_everywhere_and_back() -> None:
    tools = tuple(
        ToolSpec(name, "", {"type": "object"}) for name in ("docs.get", "docs_get", "docs/get", "x" * 80, "文")
    )
    reply = {"choices": [{"index": 0, "message": {"tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "PLACEHOLDER", "arguments": "{}"}}]}}]}  # fmt: skip
    names = [tool["function"]["name"] for tool in body(tools=tools)["tools"]]
    assert len(set(names)) == 5
    assert names[1] == "docs_get"
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in names)

    for name, tool in zip(names, tools, strict=True):
        reply["choices"][0]["message"]["tool_calls"][0]["function"]["name"] = name  # type: ignore[index]
        got = asyncio.run(chat(Server(reply)).reply(Request(Transcript("", [QUESTION]), tools), lambda _: None))
        assert got.calls[0].name == tool.name
        history = body(QUESTION, AssistantMessage("", got.calls), tools=tools)["messages"]
        assert history[1]["tool_calls"][0]["function"]["name"] == name


# --- history ----------------------------------------------------------------------------------------


def test_a_conversation_is_sent_as_it_was() -> None:
    assert body(*ASKED, AssistantMessage("It is fine."), UserMessage("thanks"), system="be brief", tools=(LOOK,))[
        "messages"
    ] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": "a"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "fine"},
        {"role": "assistant", "content": "It is fine."},
        {"role": "user", "content": "thanks"},
    ]


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ('{ "a" : 1 }', '{ "a" : 1 }'),
        ('{"path": "a.p', "{}"),
        ("[1]", "{}"),
        ("", "{}"),
        ('{"a": NaN}', "{}"),
        ("```json\n{}\n```", "{}"),
        ('{"a":' * 10_000, "{}"),
    ],
)
def test_arguments_of_past_calls_are_always_a_json_object(arguments: str, sent: str) -> None:
    calls = body(QUESTION, AssistantMessage("", (ToolCall("1", "look", arguments),)))["messages"][1]["tool_calls"]

    assert calls[0]["function"]["arguments"] == sent


def test_an_empty_turn_is_not_sent() -> None:
    assert [m["role"] for m in body(QUESTION, AssistantMessage(""), QUESTION)["messages"]] == ["user", "user"]


def test_half_a_character_never_leaves() -> None:
    sent = body(UserMessage("a\ud83d"), AssistantMessage("", (ToolCall("1", "look", '{"a": "\ud83d\ude00"}'),)))[
        "messages"
    ]

    assert sent[0]["content"] == "a\ufffd"
    assert json.loads(sent[1]["tool_calls"][0]["function"]["arguments"]) == {"a": "😀"}


def test_what_the_provider_attached_goes_back_to_it_and_to_no_other() -> None:
    call = ToolCall("call_1", "look", "{}", opaque='{"id": "functions.look:0", "extra_content": {"signature": "s"}}')
    turn = AssistantMessage("", (call,), '{"reasoning_content": "hm"}', "chat:https://api.example.com")
    result = ToolMessage("call_1", "look", "fine")

    ours = body(QUESTION, turn, result)["messages"]
    assert ours[1]["reasoning_content"] == "hm"
    assert ours[1]["tool_calls"][0]["extra_content"] == {"signature": "s"}
    assert ours[1]["tool_calls"][0]["id"] == ours[2]["tool_call_id"] == "functions.look:0"
    foreign = body(QUESTION, turn, result, url="https://other.example.com/v1")["messages"]
    assert set(foreign[1]) == {"role", "content", "tool_calls"}
    assert set(foreign[1]["tool_calls"][0]) == {"id", "type", "function"}
    assert foreign[1]["tool_calls"][0]["id"] == foreign[2]["tool_call_id"] == "call_1"


def test_an_id_the_provider_gives_twice_is_its_own_only_once() -> None:
    def turn(call_id: str) -> list[Message]:
        call = ToolCall(call_id, "look", "{}", opaque='{"id": "functions.look:0"}')
        said = AssistantMessage("", (call,), origin="chat:https://api.example.com")
        return [said, ToolMessage(call_id, "look", "fine")]

    sent = body(QUESTION, *turn("call_1"), *turn("call_2"))["messages"]
    assert [m["tool_call_id"] for m in sent if m["role"] == "tool"] == ["functions.look:0", "call_2"]
    assert [m["tool_calls"][0]["id"] for m in sent if m["role"] == "assistant"] == ["functions.look:0", "call_2"]


@pytest.mark.parametrize("opaque", ["[]", '"x"'])
def test_what_is_attached_and_no_object_is_left_out(opaque: str) -> None:
    turn = AssistantMessage("hi", (), opaque, "chat:https://api.example.com")

    assert body(QUESTION, turn, QUESTION)["messages"][1] == {"role": "assistant", "content": "hi"}


def test_mistral_gets_ids_of_nine_and_an_assistant_between_tool_and_user() -> None:
    more = (*ASKED, UserMessage("stop now"), UserMessage("really"))
    sent = body(*more, url="https://api.mistral.ai/v1")["messages"]

    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "assistant", "user", "assistant", "user"]
    assert sent[3]["content"] == sent[5]["content"] == HEARD
    call_id = sent[1]["tool_calls"][0]["id"]
    assert len(call_id) == 9
    assert call_id.isalnum()
    assert sent[2]["tool_call_id"] == call_id
    kept = ToolCall("abcDEF123", "look", "{}")
    assert (
        body(QUESTION, AssistantMessage("", (kept,)), tool_ids="mistral")["messages"][1]["tool_calls"][0]["id"]
        == kept.id
    )
    assert body(*ASKED, url="https://api.mistral.ai/v1", tool_ids="verbatim")["messages"][2]["tool_call_id"] == "call_1"


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_begins_with_the_bytes_of_the_one_before(stream: bool) -> None:
    llm = chat(stream=stream)
    messages: list[Message] = [QUESTION]
    transcript = Transcript("be brief", messages)
    shares = []
    before = b""
    for n in range(50):
        now = llm.body(Request(transcript, (LOOK,), key=str(n)))
        same = next((at for at, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), len(before))
        shares.append(same / len(before) if before else 1.0)
        assert json.loads(now)["messages"][-1]
        before = now
        call = ToolCall(f"call_{n}", "look", '{"at": "a"}')
        transcript._add(AssistantMessage("Looking.", (call,)))
        transcript._add(ToolMessage(call.id, "look", "a long result " * 20))

    assert min(shares) >= 0.99
    assert len(json.loads(before)["messages"]) == 100


def test_agents_that_share_a_model_do_not_disturb_each_other() -> None:
    llm = chat()
    other = ToolSpec("docs.get", "", {"type": "object"})
    transcript = Transcript("", ASKED)

    first = [llm.body(Request(transcript, (tool,))) for tool in (LOOK, other, LOOK, other)]
    assert first[0] == first[2] != first[1] == first[3]


# --- the last word ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "withhold", "tools", "choice"),
    [
        ("https://api.example.com/v1", "auto", False, None),
        ("https://api.openai.com/v1", "auto", True, "none"),
        ("https://api.example.com/v1", "none", True, "none"),
        ("https://api.openai.com/v1", "omit", False, None),
    ],
)
def test_tools_are_made_impossible_for_a_last_word(url: str, withhold: str, tools: bool, choice: str | None) -> None:
    sent = body(*ASKED, tools=(LOOK,), may_call=False, url=url, withhold=withhold, parallel_tool_calls=True)

    assert ("tools" in sent, sent.get("tool_choice")) == (tools, choice)
    assert "parallel_tool_calls" not in sent


def test_a_server_that_wants_the_tools_beside_a_history_with_calls_gets_them_once_and_for_ever() -> None:
    wants = refusal(
        "litellm.UnsupportedParamsError: Bedrock doesn't support tool calling without `tools=` param specified."
    )
    server = Server(wants, GOOD)
    llm = chat(server)

    said = ask(llm, *ASKED, tools=(LOOK,), may_call=False, key="k")
    assert ["tools" in sent for sent in server.bodies] == [False, True]
    assert server.bodies[1]["tool_choice"] == "none"
    assert any(isinstance(one, Notice) and "api.example.com: it wants the tools" in one.text for one in said)
    assert [request.headers["idempotency-key"] for request in server.got] == ["k", "k-1"]
    ask(llm, *ASKED, tools=(LOOK,), may_call=False)
    assert "tools" in server.bodies[2]


def test_a_server_that_takes_no_tool_choice_gets_no_tools() -> None:
    server = Server(refusal("Unknown parameter: tool_choice", param="tool_choice"), GOOD)

    ask(chat(server, withhold="none"), *ASKED, tools=(LOOK,), may_call=False)
    assert ["tool_choice" in sent for sent in server.bodies] == [True, False]
    assert "tools" not in server.bodies[1]


# --- refusals that are worth one more request -------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said", "before", "after"),
    [
        (
            {"max_output_tokens": 9},
            refusal("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", param="max_tokens"),
            "max_tokens",
            "max_completion_tokens",
        ),
        (
            {"max_output_tokens": 9, "token_param": "max_completion_tokens"},
            refusal("Unrecognized request argument supplied: max_completion_tokens"),
            "max_completion_tokens",
            "max_tokens",
        ),
        ({"temperature": 0.2}, refusal("Unsupported value: 'temperature' does not support 0.2 with this model.", param="temperature"), "temperature", None),
        (
            {"stream_options": True},
            httpx2.Response(422, json={"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options", "include_usage"], "msg": "Extra inputs are not permitted"}]}),
            "stream_options",
            None,
        ),
        ({"parallel_tool_calls": True}, refusal("property 'parallel_tool_calls' is unsupported"), "parallel_tool_calls", None),
    ],
)  # fmt: skip
def test_a_setting_that_is_refused_by_name_is_changed_once_and_remembered(
    options: dict[str, Any], said: httpx2.Response, before: str, after: str | None
) -> None:
    server = Server(said, GOOD)
    llm = chat(server, **options)

    signals = ask(llm, tools=(LOOK,))
    ask(llm, tools=(LOOK,))
    assert [before in sent for sent in server.bodies] == [True, False, False]
    assert after is None or all(sent[after] == 9 for sent in server.bodies[1:])
    assert sum(isinstance(signal, Notice) for signal in signals) == 1


def test_a_server_that_refuses_both_names_of_the_limit_is_asked_twice() -> None:
    server = Server(refusal("'max_tokens' is not supported"), refusal("'max_completion_tokens' is not supported"))

    with pytest.raises(ProviderError, match="'max_completion_tokens'"):
        ask(chat(server, max_output_tokens=5))
    assert len(server.got) == 2


@pytest.mark.parametrize(
    "said",
    [
        refusal(
            "max_tokens is too large: 9000. This model supports at most 4096 completion tokens.", param="max_tokens"
        ),
        refusal("Invalid value for 'messages'"),
        refusal("Unsupported parameter: 'max_tokens'", status=401),
    ],
)
def test_a_refusal_of_anything_else_is_not_worked_around(said: httpx2.Response) -> None:
    server = Server(said)

    with pytest.raises(ProviderError):
        ask(chat(server, max_output_tokens=9000))
    assert len(server.got) == 1


def test_ids_of_nine_are_made_when_a_server_asks_for_them() -> None:
    wants = refusal("Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.", code="3280")
    server = Server(wants, GOOD)

    ask(chat(server), *ASKED, tools=(LOOK,))
    assert [len(sent["messages"][2]["tool_call_id"]) for sent in server.bodies] == [6, 9]


def test_the_assistant_is_made_to_speak_when_a_server_asks_for_it() -> None:
    wants = refusal("Unexpected role 'user' after role 'tool'", type="invalid_request_message_order", code="3230")
    server = Server(wants, GOOD)

    ask(chat(server), *ASKED, UserMessage("stop"), tools=(LOOK,))
    assert [len(sent["messages"]) for sent in server.bodies] == [4, 5]


def test_what_a_server_attached_is_left_out_when_it_does_not_take_it_back() -> None:
    server = Server(refusal("property 'messages.1.assistant.reasoning_content' is unsupported"), GOOD)
    turn = AssistantMessage("", (CALL,), '{"reasoning_content": "hm"}', "chat:https://api.example.com")

    ask(chat(server), QUESTION, turn, ToolMessage("call_1", "look", "fine"))
    assert ["reasoning_content" in sent["messages"][1] for sent in server.bodies] == [True, False]


def test_a_model_that_wants_the_other_api_says_the_switch() -> None:
    said = refusal(
        "Function tools are not supported for this model in /v1/chat/completions. Please use /v1/responses instead."
    )
    server = Server(said)

    with pytest.raises(ProviderError, match="--api responses, or OpenAIResponses in place of OpenAIChat") as caught:
        ask(chat(server), tools=(LOOK,))
    assert (caught.value.kind, len(server.got)) == ("bad_request", 1)


def test_two_conversations_that_meet_the_same_refusal_make_the_change_once() -> None:
    def handler(request: httpx2.Request) -> httpx2.Response:
        sent = json.loads(request.content)
        return refusal("'temperature' is not supported") if "temperature" in sent else httpx2.Response(200, json=GOOD)

    async def main() -> list[Event | Signal]:
        said: list[Event | Signal] = []
        llm = OpenAIChat("m", "http://x/v1", "", temperature=0.5, http=httpx2.MockTransport(handler))
        await asyncio.gather(*(llm.reply(Request(Transcript("", [QUESTION])), said.append) for _ in range(5)))
        return said

    assert sum(isinstance(one, Notice) for one in asyncio.run(main())) == 1
