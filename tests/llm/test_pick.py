"""Which dialect is spoken: told by address, model and environment, or said outright."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from tests.kit.dialects import ALL, TOOLS, Said, ask, json_reply, sse_reply
from tool_loop import AnthropicMessages, OpenAIChat, OpenAIResponses
from tool_loop.errors import ConfigurationError, ProviderError, UsageError
from tool_loop.events import Notice
from tool_loop.llm.pick import needs_responses, pick_llm
from tool_loop.transcript import AssistantMessage, ToolMessage, UserMessage

CHAT, RESPONSES, MESSAGES = ALL
OPENAI = "https://api.openai.com/v1"
REFUSAL = {
    "error": {
        "message": "Function tools with reasoning_effort are not supported for gpt-5-x in /v1/chat/completions. "
        "To use function tools, use /v1/responses or set reasoning_effort to 'none'.",
        "type": "invalid_request_error",
        "param": "reasoning_effort",
        "code": None,
    }
}
NAMES = [
    f"{owner}_{what}" for owner in ("OPENAI", "ANTHROPIC") for what in ("MODEL", "BASE_URL", "API_KEY", "AUTH_TOKEN")
]


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("model", "base_url", "kind"),
    [
        ("claude-sonnet-5", "https://api.anthropic.com", AnthropicMessages),
        ("deepseek-chat", "https://api.deepseek.com/anthropic", AnthropicMessages),
        ("kimi-k3", "https://api.moonshot.ai/anthropic/v1/", AnthropicMessages),
        ("m", "http://127.0.0.1:9/v1/messages", AnthropicMessages),
        ("m", "http://127.0.0.1:9/v1/responses", OpenAIResponses),
        ("m", "http://127.0.0.1:9/v1/chat/completions", OpenAIChat),
        ("qwen3", "http://127.0.0.1:8080/v1", OpenAIChat),
        ("anthropic/claude-sonnet-5", "https://openrouter.ai/api/v1", OpenAIChat),
        ("claude-sonnet-5", "http://127.0.0.1:4000", OpenAIChat),
        ("gpt-5.4", "https://x.openai.azure.com/openai/v1", OpenAIChat),
        ("gpt-5.4", OPENAI, OpenAIResponses),
    ],
)
def test_the_address_and_the_model_tell_the_dialect(model: str, base_url: str, kind: type) -> None:
    assert type(pick_llm(model, base_url, "k")) is kind


@pytest.mark.parametrize(
    ("model", "needed"),
    [
        ("gpt-4o", False),
        ("gpt-4.1-mini", False),
        ("gpt-5", False),
        ("gpt-5-mini-2025-08-07", False),
        ("gpt-5.3", False),
        ("o3", False),
        ("gpt-5.4", True),
        ("gpt-5.4-2026-03-05", True),
        ("gpt-5.6-terra", True),
        ("gpt-5.10", True),
        ("gpt-6-astra", True),
        ("GPT-6", True),
        ("gpt-5.1-codex-max", True),
        ("codex-mini-latest", True),
        ("o3-pro", True),
        ("o4-mini-deep-research", True),
        ("ft:gpt-5.4:org", True),
        ("ft:gpt-4.1:org", False),
        ("improved-product", False),
    ],
)
def test_models_that_take_tools_through_responses_only_are_known(model: str, needed: bool) -> None:
    assert needs_responses(model) is needed


@pytest.mark.parametrize(
    ("env", "model", "kind", "named"),
    [
        ({"ANTHROPIC_API_KEY": "k"}, "claude-x", AnthropicMessages, "claude-x"),
        ({"ANTHROPIC_AUTH_TOKEN": "t", "ANTHROPIC_MODEL": "kimi"}, None, AnthropicMessages, "kimi"),
        ({"ANTHROPIC_API_KEY": "k", "OPENAI_MODEL": "claude-x"}, None, AnthropicMessages, "claude-x"),
        ({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k", "OPENAI_MODEL": "gpt-6"}, None, OpenAIResponses, "gpt-6"),
        ({"OPENAI_API_KEY": "k", "OPENAI_MODEL": "gpt-6"}, None, OpenAIResponses, "gpt-6"),
        ({"ANTHROPIC_API_KEY": "k", "OPENAI_BASE_URL": "http://127.0.0.1:4000"}, "claude-x", OpenAIChat, "claude-x"),
        ({"OPENAI_BASE_URL": "http://127.0.0.1:9/anthropic", "ANTHROPIC_API_KEY": "k"}, "m", AnthropicMessages, "m"),
    ],
)
def test_without_an_address_the_environment_tells(
    env: dict[str, str], model: str | None, kind: type, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)

    llm: Any = pick_llm(model)

    assert (type(llm), llm.model) == (kind, named)


@pytest.mark.parametrize(
    ("api", "kind"), [("chat", OpenAIChat), ("responses", OpenAIResponses), ("messages", AnthropicMessages)]
)
def test_it_can_be_said_outright(api: Any, kind: type) -> None:
    assert type(pick_llm("gpt-5.4", OPENAI, "k", api)) is kind


def test_what_does_not_exist_is_refused_with_what_does() -> None:
    with pytest.raises(UsageError, match="there are chat, responses, messages"):
        pick_llm("m", api="assistants")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"unexpected keyword argument 'colour' \(the dialect is 'messages'\)"):
        pick_llm("m", "https://api.anthropic.com", "k", colour="blue")
    with pytest.raises(ConfigurationError, match="OPENAI_BASE_URL is not a URL"):
        pick_llm("m", "http://[", "k")
    with pytest.raises(ConfigurationError, match="no model"):
        pick_llm()


def test_an_option_of_the_wrong_type_is_not_mistaken_for_an_unknown_one() -> None:
    with pytest.raises(TypeError, match=r"not iterable|object is not"):
        pick_llm("m", "http://127.0.0.1:9", "k", extra_body=3)


@pytest.mark.parametrize("base_url", ["https://api.anthropic.com", OPENAI, "http://127.0.0.1:9"])
def test_the_common_options_fit_all_dialects(base_url: str) -> None:
    llm: Any = pick_llm("gpt-6", base_url, "k", stream=False, max_output_tokens=9, temperature=0.5)

    settings = llm._settings

    assert 9 in (settings.get("max_tokens"), settings.get("max_output_tokens"))
    assert (settings["stream"], settings["temperature"]) == (False, 0.5)


# --- going over by itself -----------------------------------------------------------------------------------


def server(*replies: httpx2.Response) -> tuple[httpx2.MockTransport, list[httpx2.Request]]:
    got: list[httpx2.Request] = []
    left = list(replies)

    def reply(request: httpx2.Request) -> httpx2.Response:
        got.append(request)
        return left.pop(0)

    return httpx2.MockTransport(reply), got


def test_openais_own_server_is_asked_through_responses_once_it_says_so_and_that_is_told_once() -> None:
    http, got = server(json_reply(REFUSAL, 400), *(sse_reply(RESPONSES.stream(Said("Hi"))) for _ in range(2)))
    llm: Any = pick_llm("gpt-5-x", OPENAI, "k", http=http, stream_options=True, token_param="max_tokens")
    seen: list[Any] = []
    before = llm.origin

    replies = [asyncio.run(llm.reply(ask(), seen.append)).text for _ in range(2)]

    assert replies == ["Hi", "Hi"]
    assert [request.url.path for request in got] == ["/v1/chat/completions", "/v1/responses", "/v1/responses"]
    (notice,) = [s.text for s in seen if isinstance(s, Notice)]
    assert notice.startswith("api.openai.com: gpt-5-x takes tools through the Responses API only")
    assert (before, llm.origin) == ("chat:https://api.openai.com", "responses:https://api.openai.com")
    assert got[1].headers["idempotency-key"] != got[0].headers["idempotency-key"]


def test_what_chat_completions_attached_does_not_go_over() -> None:
    http, got = server(json_reply(REFUSAL, 400), sse_reply(RESPONSES.stream(Said("Hi"))))
    llm: Any = pick_llm("gpt-5-x", OPENAI, "k", http=http)
    said = AssistantMessage("Hm.", (), '{"reasoning_details": ["SECRET"]}', llm.origin)

    asyncio.run(llm.reply(ask(UserMessage("a"), said, UserMessage("b")), lambda _: None))

    assert b"SECRET" in got[0].content
    assert b"SECRET" not in got[1].content


def test_runs_that_share_the_model_go_over_together() -> None:
    seen: list[Any] = []

    async def together() -> list[str]:
        all_asked = asyncio.Barrier(4)

        async def reply(request: httpx2.Request) -> httpx2.Response:
            if request.url.path.endswith("responses"):
                return sse_reply(RESPONSES.stream(Said("Hi")))
            await all_asked.wait()
            return json_reply(REFUSAL, 400)

        llm = pick_llm("gpt-5-x", OPENAI, "k", http=httpx2.MockTransport(reply))
        return [one.text for one in await asyncio.gather(*(llm.reply(ask(), seen.append) for _ in range(4)))]

    assert asyncio.run(together()) == ["Hi"] * 4
    assert len([s for s in seen if isinstance(s, Notice)]) == 1


def test_other_errors_of_openais_own_server_are_errors() -> None:
    http, got = server(json_reply(CHAT.error("Bad key", "authentication_error"), 401))
    llm = pick_llm("gpt-5-x", OPENAI, "k", http=http)

    with pytest.raises(ProviderError, match="Bad key"):
        asyncio.run(llm.reply(ask(), lambda _: None))
    assert len(got) == 1


@pytest.mark.parametrize("api", [None, "chat"])
def test_elsewhere_and_where_chat_was_asked_for_the_error_names_the_switch(api: Any) -> None:
    http, got = server(json_reply(REFUSAL, 400))
    llm = pick_llm("gpt-5-x", OPENAI if api else "http://127.0.0.1:9/v1", "k", api, http=http)

    with pytest.raises(ProviderError, match="--api responses"):
        asyncio.run(llm.reply(ask(), lambda _: None))
    assert len(got) == 1


def test_a_run_goes_from_one_provider_to_another_and_takes_only_its_words_along() -> None:
    thinking = {"type": "thinking", "thinking": "SECRET", "signature": "s"}
    use = {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {}}
    body = {"content": [thinking, {"type": "text", "text": "Look."}, use], "stop_reason": "tool_use"}
    reply = asyncio.run(MESSAGES.llm(json_reply(body)).llm.reply(ask(), lambda _: None))
    said = AssistantMessage(reply.text, reply.calls, reply.opaque, reply.origin)
    history = ask(UserMessage("Look."), said, ToolMessage("toolu_1", "read_file", "x"), tools=TOOLS)

    for dialect in ALL:
        there = dialect.llm(sse_reply(dialect.stream(Said("Hi"))), base_url="http://127.0.0.1:10")
        asyncio.run(there.llm.reply(history, lambda _: None))

        assert "SECRET" not in there.got[0].content.decode()
        assert there.asked().turns[1][1][0] == "Look."
        assert there.asked().turns[2] == ("result", ("toolu_1", "x"))
