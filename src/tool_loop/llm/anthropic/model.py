"""The Messages API of Anthropic, which several other providers speak as well.

The system prompt, the tools and the conversation so far are marked for the provider's prompt cache, so
that a step pays for what is new. The body is made in request.py, the reply read in
reply.py, both pure.
"""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Any, Final

from tool_loop.errors import ConfigurationError
from tool_loop.llm.dialect import Change, Dialect, Refusal, Withhold, checked_body, headers, withheld
from tool_loop.llm.endpoint import Endpoint, checked_key, checked_url, host_of, origin_of
from tool_loop.llm.errors.failures import ProviderErrors
from tool_loop.llm.http.transport import Timeouts, Transport

from .reply import MessagesReply
from .request import Caching, MessagesEncoder

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence

    from tool_loop.llm.http.doubles import Network
    from tool_loop.ports import AnswerSpec, Request

ANTHROPIC: Final = "https://api.anthropic.com"
VERSION: Final = "2023-06-01"

# The API has no default and refuses more than the model can write, so this is what all current
# models can; an older one is asked again with the limit it names.
MAX_TOKENS: Final = 16_000

_MOST: Final = re.compile(r"max_tokens: \d+ > (\d+)|max_tokens\D{1,80}at most (\d+)")


class AnthropicMessages(Dialect):
    """A model behind `/v1/messages`.

    `model`, `base_url` and `api_key` default to ANTHROPIC_MODEL, ANTHROPIC_BASE_URL (with or without
    /v1) and ANTHROPIC_API_KEY; a key is needed for api.anthropic.com only. `auth_token`, from
    ANTHROPIC_AUTH_TOKEN, is for gateways that want a bearer token instead. Raises
    `ConfigurationError` when something is missing.

    `max_tokens` is the most tokens of one reply, thinking included. `thinking` goes out as it is:
    {"type": "adaptive"}. `caching` is how the conversation is marked for the prompt cache: "request"
    by a field of the request, "blocks" on its last block, "off"; None is "request" for
    api.anthropic.com, else "blocks". `withhold` is how tools are made impossible for a last word:
    "omit" leaves them out, "none" sends them with tool_choice none; "auto" is "none" for
    api.anthropic.com, else "omit". `extra_body` and `extra_headers` (anthropic-beta) are added to
    every request as they are.

    `tls` says whom to trust, and holds a client certificate where a server wants one. `http` replaces
    the network (`httpx2.MockTransport` in tests), `now` the time of day.
    """

    path = "/v1/messages"
    answer_field = "output_config"

    def __init__(
        self,
        model: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        auth_token: str | None = None,
        stream: bool = True,
        max_tokens: int = MAX_TOKENS,
        temperature: float | None = None,
        thinking: Mapping[str, Any] | None = None,
        caching: Caching | None = None,
        withhold: Withhold = "auto",
        extra_body: Mapping[str, Any] | None = None,
        extra_headers: Mapping[str, str] | None = None,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen
        http: Network | None = None,
        tls: ssl.SSLContext | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.model, url, key, token = _configured(model, base_url, api_key, auth_token)
        host = host_of(url)
        name = "ANTHROPIC_API_KEY" if key else "ANTHROPIC_AUTH_TOKEN"
        endpoint = Endpoint(
            url.removesuffix("/v1/messages").removesuffix("/v1"),
            _headers(key, token, extra_headers or {}),
            failures=ProviderErrors(
                host,
                self.model,
                key_name=name if key or token else "ANTHROPIC_API_KEY",
                url_name="ANTHROPIC_BASE_URL",
                model_name="ANTHROPIC_MODEL",
                secret=checked_key(key or token, name),
                now=now,
            ),
            transport=Transport(http, tls=tls, timeouts=timeouts),
            now=now,
        )
        settings: dict[str, Any] = {"model": self.model, "max_tokens": max_tokens, "stream": stream}
        optional = {"temperature": temperature, "thinking": None if thinking is None else dict(thinking)}
        settings |= {name: value for name, value in optional.items() if value is not None}
        settings |= checked_body(extra_body, ("messages", "tools", "tool_choice", "stream", "system", "cache_control"))
        ours = host == "api.anthropic.com"
        super().__init__(endpoint, settings, withheld(withhold, enforced=ours), answers_beside_tools=ours)
        self.origin = f"messages:{origin_of(url)}"
        self._encoder: MessagesEncoder = MessagesEncoder(self.origin, caching or ("request" if ours else "blocks"))

    def answer_format(self, answer: AnswerSpec) -> dict[str, Any]:
        return {"format": {"type": "json_schema", "schema": answer.schema}}

    def body(self, request: Request) -> bytes:
        return self._encoder.body(
            request.transcript,
            request.tools,
            self.settings_for(request),
            tool_choice="" if request.may_call else "none",
            with_tools=request.may_call or self._withhold == "none",
        )

    def assembler(self, request: Request) -> MessagesReply:
        names = self._encoder.toolset(request.tools).names
        return MessagesReply(self.endpoint.failures, names, origin=self.origin, last_word=not request.may_call)

    def changes(self) -> Sequence[Change]:
        return (
            self.adapt_withholding,
            self.adapt_answer,
            self._adapt_max_tokens,
            self._adapt_caching,
            self.adapt_turn,
            self._adapt_settings,
            self.adapt_attached,
            self.adapt_schemas,
        )

    def _adapt_max_tokens(self, refusal: Refusal) -> str:
        found = _MOST.search(refusal.said)
        most = int(found[1] or found[2]) if found else 0
        if not 0 < most < self._settings["max_tokens"]:
            return ""
        self._settings = self._settings | {"max_tokens": most}
        return f"this model writes at most {most} tokens, so max_tokens is {most}"

    def _adapt_caching(self, refusal: Refusal) -> str:
        if self._encoder.caching == "off" or not refusal.of("cache_control"):
            return ""
        self._encoder.caching = "blocks" if self._encoder.caching == "request" else "off"
        return f"it does not take cache_control there; caching is {self._encoder.caching!r} from now on"

    def _adapt_settings(self, refusal: Refusal) -> str:
        return self.adapt_settings(refusal, ("temperature", "thinking"))


def _configured(
    model: str | None, base_url: str | None, api_key: str | None, auth_token: str | None
) -> tuple[str, str, str, str]:
    model = model or os.environ.get("ANTHROPIC_MODEL", "")
    url = checked_url(base_url or os.environ.get("ANTHROPIC_BASE_URL", "") or ANTHROPIC, "ANTHROPIC_BASE_URL")
    given = api_key is not None or auth_token is not None  # then the environment has no say in it
    key = (api_key or "") if given else os.environ.get("ANTHROPIC_API_KEY", "")
    token = (auth_token or "") if given else os.environ.get("ANTHROPIC_AUTH_TOKEN", "")
    if not model:
        raise ConfigurationError("no model: set ANTHROPIC_MODEL, or pass model=, for example claude-sonnet-5")
    if not key and not token and host_of(url) == "api.anthropic.com":
        raise ConfigurationError("no key for api.anthropic.com: set ANTHROPIC_API_KEY, or pass api_key=")
    return model, url, key, "" if key else token


def _headers(key: str, token: str, extra: Mapping[str, str]) -> dict[str, str]:
    found = {"anthropic-version": VERSION}
    if key := key.strip():
        found["x-api-key"] = key
    if token := token.strip():
        found["authorization"] = f"Bearer {token}"
    return found | headers(extra)
