"""Chat completions: OpenAI's first API, which nearly every other provider and local server speaks.

Here are the settings, and the few things that are worth one more request: a server that names a
parameter it does not take gets the same request without it, once, and that is remembered. The body
is made in chat_request.py, the reply read in chat_reply.py, both pure.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import TYPE_CHECKING, Any, Final, Literal

from tool_loop.errors import ConfigurationError, ProviderError, UsageError
from tool_loop.events import Notice

from .chat_reply import ChatReply
from .chat_request import ChatEncoder
from .endpoint import Endpoint, checked_key, checked_url, host_of, origin_of
from .failures import Failures
from .transport import Timeouts, Transport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import httpx2

    from tool_loop.events import ModelReplied
    from tool_loop.messages import Transcript
    from tool_loop.ports import Emit, Request

OPENAI: Final = "https://api.openai.com/v1"
PATH: Final = "/chat/completions"

# Servers known to count the tokens of a stream when asked to. Others may refuse a key they do not
# know, so they are not asked; what they do not count is estimated.
_COUNTS_STREAMS: Final = re.compile(
    r"(?:api\.openai\.com|openrouter\.ai|api\.deepseek\.com|api\.groq\.com|api\.together\.xyz|api\.x\.ai"
    r"|.+\.openai\.azure\.com|localhost|127\.0\.0\.1|\[::1\])(?::\d+)?"
)

Withhold = Literal["auto", "omit", "none"]
ToolIds = Literal["auto", "verbatim", "mistral"]


class OpenAIChat:
    """A model behind `/chat/completions`.

    `model`, `base_url` and `api_key` default to OPENAI_MODEL, OPENAI_BASE_URL and OPENAI_API_KEY; a
    key is needed for api.openai.com only. Raises `ConfigurationError` when something is missing.

    Nothing is sent that was not asked for. `token_param` is the name under which `max_output_tokens`
    goes. `stream_options` asks for the count of tokens of a stream; None asks the servers known to
    take it. `tool_ids` "mistral" makes call ids of nine letters or digits. `withhold` is how tools are
    made impossible for a last word: "omit" leaves them out, "none" sends them with tool_choice none;
    "auto" is "none" for api.openai.com, which enforces it and keeps its prompt cache, else "omit".
    `extra_body` and `extra_headers` are added to every request as they are.

    `http` replaces the network (`httpx2.MockTransport` in tests), `now` the time of day.
    """

    def __init__(
        self,
        model: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        stream: bool = True,
        max_output_tokens: int | None = None,
        token_param: str = "max_tokens",
        temperature: float | None = None,
        parallel_tool_calls: bool | None = None,
        stream_options: bool | None = None,
        tool_ids: ToolIds = "auto",
        withhold: Withhold = "auto",
        extra_body: Mapping[str, Any] | None = None,
        extra_headers: Mapping[str, str] | None = None,
        timeouts: Timeouts = Timeouts(),
        http: httpx2.AsyncBaseTransport | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.model, url, key = _configured(model, base_url, api_key)
        host = host_of(url)
        self._endpoint = Endpoint(
            url,
            _headers(host, key, extra_headers or {}),
            failures=Failures(host, self.model, secret=checked_key(key, "OPENAI_API_KEY")),
            transport=Transport(http, timeouts=timeouts),
            now=now,
        )
        self.origin = f"chat:{origin_of(url)}"
        nine = tool_ids == "mistral" or (tool_ids == "auto" and host == "api.mistral.ai")
        self._encoder = ChatEncoder(self.origin, nine=nine)
        self._withhold: Literal["omit", "none"]
        self._withhold = "none" if withhold == "none" or (withhold == "auto" and host == "api.openai.com") else "omit"
        if stream_options is None:
            stream_options = _COUNTS_STREAMS.fullmatch(host) is not None
        self._settings: dict[str, Any] = {"model": self.model, "stream": stream}
        if stream and stream_options:
            self._settings["stream_options"] = {"include_usage": True}
        optional = {
            token_param: max_output_tokens,
            "temperature": temperature,
            "parallel_tool_calls": parallel_tool_calls,
        }
        self._settings |= {name: value for name, value in optional.items() if value is not None}
        self._settings |= _checked_body(extra_body or {})
        self._token_param = token_param
        self._adapted: set[str] = set()

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        while True:
            try:
                return await self._ask(request, emit)
            except ProviderError as error:
                notice = self._adapt(error, request)
                if not notice:
                    raise _explained(error) from error.__cause__
                emit(Notice(notice))

    def body(self, request: Request) -> bytes:
        """The body of the request as it would be sent."""
        settings, with_tools, choice = self._settings, True, ""
        if not request.tools:
            settings = {name: value for name, value in settings.items() if name != "parallel_tool_calls"}
        elif not request.may_call:
            with_tools, choice = self._withhold == "none", "none"
            settings = {name: value for name, value in settings.items() if name != "parallel_tool_calls"}
        return self._encoder.body(
            request.transcript, request.tools, settings, tool_choice=choice, with_tools=with_tools
        )

    async def _ask(self, request: Request, emit: Emit) -> ModelReplied:
        body = self.body(request)
        reply = ChatReply(self._endpoint.failures, self.origin, self._encoder.names(request.tools))
        # A server that keeps answers by key would answer a changed body with the old refusal.
        key = f"{request.key}-{len(self._adapted)}" if request.key and self._adapted else request.key
        return await self._endpoint.ask(PATH, body, reply, emit, key=key, deadline=request.deadline)

    def _adapt(self, error: ProviderError, request: Request) -> str:
        """Change what the server refused, each thing once; what was done, or "" when nothing helps."""
        if error.kind != "bad_request" and not (error.status or 0) >= 500:
            return ""
        said = f"{error.param} {error.raw}"
        for name, change in (
            ("tools", self._adapt_withholding),
            ("ids", self._adapt_ids),
            ("tokens", self._adapt_token_param),
            ("settings", self._adapt_settings),
        ):
            notice = change(error, said, request) if name == "settings" or name not in self._adapted else ""
            if notice:
                self._adapted.add(name)
                return f"{self._endpoint.failures.host}: {notice}"
        return ""

    def _adapt_withholding(self, error: ProviderError, said: str, request: Request) -> str:
        if request.may_call or not request.tools or "tool" not in said.lower():
            return ""
        if self._withhold == "none" and "choice" in said.lower():
            self._withhold = "omit"
            return "it does not take tool_choice none, so the tools are left out of the last request"
        if self._withhold == "omit" and _has_calls(request.transcript):
            self._withhold = "none"
            return "it wants the tools beside a history with calls, so they are sent with tool_choice none"
        return ""

    def _adapt_ids(self, error: ProviderError, said: str, request: Request) -> str:
        if self._encoder.nine or not re.search(r"length of 9|9 (?:alphanumeric )?characters", said):
            return ""
        self._encoder.use_nine()
        return "it wants ids of nine letters or digits, so call ids are changed to such"

    def _adapt_token_param(self, error: ProviderError, said: str, request: Request) -> str:
        old = self._token_param
        new = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}.get(old, "")
        if not new or old not in self._settings or not _refuses(error, said, old):
            return ""
        # In its place, so that the order of the members stays as it was.
        self._settings = {new if name == old else name: value for name, value in self._settings.items()}
        self._token_param = new
        return f"it does not take {old}, so {new} is sent"

    def _adapt_settings(self, error: ProviderError, said: str, request: Request) -> str:
        for name in ("stream_options", "temperature", "parallel_tool_calls"):
            if name in self._settings and _refuses(error, said, name):
                self._settings = {other: value for other, value in self._settings.items() if other != name}
                return f"it does not take {name}, which is left out from now on"
        return ""


def _refuses(error: ProviderError, said: str, name: str) -> bool:
    """Whether the server refuses the parameter itself, not a value out of its range."""
    if not re.search(rf"\b{name}\b", said):
        return False
    return bool(
        re.search(
            r"unsupported|not support|not permitted|not allowed|unrecognized|unknown|unexpected|extra|does not",
            said,
            re.IGNORECASE,
        )
    ) or (error.param.split(".")[0] == name and error.status == 422)


def _has_calls(transcript: Transcript) -> bool:
    return any(getattr(message, "calls", ()) for message in transcript.messages)


def _explained(error: ProviderError) -> ProviderError:
    if "v1/responses" in error.raw and error.kind in ("bad_request", "not_found"):
        error.message += (
            " Use the Responses API for this model: --api responses, or OpenAIResponses in place of OpenAIChat."
        )
        error.args = (error.message,)
    return error


def _configured(model: str | None, base_url: str | None, api_key: str | None) -> tuple[str, str, str]:
    model = model or os.environ.get("OPENAI_MODEL", "")
    url = checked_url(base_url or os.environ.get("OPENAI_BASE_URL", "") or OPENAI, "OPENAI_BASE_URL")
    key = os.environ.get("OPENAI_API_KEY", "") if api_key is None else api_key
    if not model:
        raise ConfigurationError("no model: set OPENAI_MODEL, or pass model=, for example gpt-5-mini")
    if not key and host_of(url) == "api.openai.com":
        text = "no key for api.openai.com: set OPENAI_API_KEY, or OPENAI_BASE_URL for a local server (http://127.0.0.1:8080/v1)"
        raise ConfigurationError(text)
    return model, url, key


def _headers(host: str, key: str, extra: Mapping[str, str]) -> dict[str, str]:
    from tool_loop import __version__

    headers = {
        "accept": "application/json, text/event-stream",
        # Compressed streams are held back by proxies until a block is full.
        "accept-encoding": "identity",
        "user-agent": f"tool-loop/{__version__}",
    }
    if key := key.strip():
        headers["authorization"] = f"Bearer {key}"
        if host.endswith(".azure.com"):
            headers["api-key"] = key  # the older of Azure's two APIs takes no other
    return headers | {name.lower(): value for name, value in extra.items()}


def _checked_body(extra: Mapping[str, Any]) -> dict[str, Any]:
    for name in ("messages", "tools", "tool_choice", "stream"):
        if name in extra:
            raise UsageError(f"extra_body may not set {name!r}: it follows from the conversation and the settings")
    try:
        json.dumps(dict(extra), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"extra_body is not JSON: {error}") from error
    return dict(extra)
