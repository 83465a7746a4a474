"""Chooses the dialect for an endpoint and a model, so that nobody has to know which one it speaks.

    llm = pick_llm("claude-sonnet-5")                      # ANTHROPIC_API_KEY is set
    llm = pick_llm("gpt-6-astra")                          # OPENAI_API_KEY is set
    llm = pick_llm("qwen3", "http://127.0.0.1:8080/v1")    # a local server

Knows nothing about requests or replies. What cannot be told from address and model is chat
completions, which nearly everybody speaks; `api` says it outright.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from tool_loop.errors import ProviderError, UsageError
from tool_loop.events import Notice

if TYPE_CHECKING:
    from tool_loop.events import ModelReplied
    from tool_loop.ports import LLM, Emit, Request

    from .chat.model import OpenAIChat
    from .responses.model import OpenAIResponses

Api: TypeAlias = Literal["chat", "responses", "messages"]
APIS: Final[tuple[Api, ...]] = ("chat", "responses", "messages")

_PATHS: Final[dict[str, Api]] = {"/chat/completions": "chat", "/responses": "responses", "/messages": "messages"}

# OpenAI's own models which take function tools through the Responses API only: from gpt-5.4 on they
# reason unless told not to, and refuse tools beside that; the others never were on the older API.
_GPT: Final = re.compile(r"(?:^|:)gpt-(\d+)(?:\.(\d+))?")
_RESPONSES_ONLY: Final = re.compile(r"(?:^|-)(?:codex|pro|deep-research|computer-use)(?:-|$)")
_FROM: Final = (5, 4)

_OF_CHAT: Final = ("token_param", "stream_options", "tool_ids")


def pick_llm(
    model: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    api: Api | None = None,
    **options: Any,
) -> LLM:
    """A model in the dialect its endpoint speaks.

    `options` are those of the class that is picked (`OpenAIChat`, `OpenAIResponses`,
    `AnthropicMessages`); `max_output_tokens`, `temperature`, `stream`, `extra_body`, `extra_headers`
    and `timeouts` fit all three. Without `api`, a model of api.openai.com that turns out to need the
    Responses API goes over to it by itself and says so in a `Notice`. Raises `ConfigurationError`
    when the model or a key is missing, `UsageError` for an option that the dialect does not have.
    """
    if api is not None and api not in APIS:
        raise UsageError(f"api is {api!r}; there are {', '.join(APIS)}")
    picked = api or _spoken(model, base_url)
    try:
        if picked == "messages":
            return _messages(model, base_url, api_key, options)
        if picked == "responses":
            return _responses(model, base_url, api_key, options)
        chat = _chat(model, base_url, api_key, options)
        if api is None and _is_openai(chat.endpoint.base_url):
            return _pick_by_model(chat, api_key, options)
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        raise UsageError(f"{str(error).partition('() ')[2] or error} (the dialect is {picked!r})") from None
    return chat


def _spoken(model: str | None, base_url: str | None) -> Api:
    """What the address says; and where there is none, whose the model is."""
    env = os.environ.get
    if not base_url and not env("OPENAI_BASE_URL"):
        own = any(env(name) for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"))
        named = model or env("OPENAI_MODEL") or ""
        if own and (named.startswith("claude") or (not named and env("ANTHROPIC_MODEL"))):
            return "messages"
    url = base_url or env("OPENAI_BASE_URL") or ""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "chat"  # whose constructor says what is wrong with it
    path = parts.path.rstrip("/")
    for ending, api in _PATHS.items():
        if path.endswith(ending):
            return api
    # Others than Anthropic offer its dialect under this name, beside their chat completions.
    if parts.hostname == "api.anthropic.com" or "anthropic" in path.split("/"):
        return "messages"
    return "chat"


def _is_openai(url: str) -> bool:
    return urlsplit(url).hostname == "api.openai.com"


def needs_responses(model: str) -> bool:
    """Whether this model of OpenAI's is known to take tools through the Responses API only."""
    name = model.lower()
    found = _GPT.search(name)
    version = (int(found[1]), int(found[2] or 0)) if found else (0, 0)
    return version >= _FROM or _RESPONSES_ONLY.search(name) is not None


def _pick_by_model(chat: OpenAIChat, api_key: str | None, options: dict[str, Any]) -> LLM:
    # These mean something on chat completions only, and have done their work there.
    options = {name: value for name, value in options.items() if name not in _OF_CHAT}
    if needs_responses(chat.model):
        return _responses(chat.model, chat.endpoint.base_url, api_key, options)
    return _Switching(chat, api_key, options)


class _Switching:
    """Chat completions until the server says that this model's tools need the Responses API."""

    def __init__(self, chat: OpenAIChat, api_key: str | None, options: dict[str, Any]) -> None:
        self.model = chat.model
        self._chosen: OpenAIChat | OpenAIResponses = chat
        self._chat = chat
        self._api_key = api_key
        self._options = options

    @property
    def origin(self) -> str:
        return self._chosen.origin

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        if self._chosen is self._chat:
            try:
                return await self._chat.reply(request, emit)
            except ProviderError as error:
                if "v1/responses" not in error.raw or error.kind not in ("bad_request", "not_found"):
                    raise
            if self._chosen is self._chat:  # another run that shares this model may have been first
                self._chosen = _responses(self.model, self._chat.endpoint.base_url, self._api_key, self._options)
                text = "takes tools through the Responses API only, which is used from now on (--api responses)"
                emit(Notice(f"{self._chat.endpoint.failures.host}: {self.model} {text}"))
        # The refusal belongs to the old key.
        return await self._chosen.reply(replace(request, key=request.key and f"{request.key}-responses"), emit)


# --- the classes, loaded when they are picked -------------------------------------------------------


def _chat(model: str | None, base_url: str | None, api_key: str | None, options: dict[str, Any]) -> OpenAIChat:
    from .chat.model import OpenAIChat

    return OpenAIChat(model, base_url, api_key, **options)


def _responses(
    model: str | None, base_url: str | None, api_key: str | None, options: dict[str, Any]
) -> OpenAIResponses:
    from .responses.model import OpenAIResponses

    return OpenAIResponses(model, base_url, api_key, **options)


def _messages(model: str | None, base_url: str | None, api_key: str | None, options: dict[str, Any]) -> LLM:
    from .anthropic.model import AnthropicMessages

    options = dict(options)
    most = options.pop("max_output_tokens", None)
    if most is not None:
        options.setdefault("max_tokens", most)
    named = model or os.environ.get("ANTHROPIC_MODEL") or os.environ.get("OPENAI_MODEL")
    return AnthropicMessages(named, base_url, api_key, **options)
