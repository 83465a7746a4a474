"""Chat completions: OpenAI's first API, which nearly every other provider and local server speaks.

Here are the settings, and what this dialect can change when a server names something it does not
take. The body is made in request.py, the reply read in reply.py, both pure.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final, Literal

from tool_loop.errors import ConfigurationError
from tool_loop.llm.dialect import Change, Dialect, Refusal, Withhold, checked_body, headers, withheld
from tool_loop.llm.endpoint import Endpoint, checked_key, host_of, origin_of
from tool_loop.llm.errors.failures import ProviderErrors
from tool_loop.llm.http.transport import Timeouts, Transport
from tool_loop.llm.openai_settings import configured, key_headers

from .reply import ATTACHED, ChatReply
from .request import ChatEncoder

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence

    from tool_loop.errors import ProviderError
    from tool_loop.llm.http.doubles import Network
    from tool_loop.ports import AnswerSpec, Request

# Servers known to count the tokens of a stream when asked to. Others may refuse a key they do not
# know, so they are not asked; what they do not count is estimated.
_COUNTS_STREAMS: Final = re.compile(
    r"(?:api\.openai\.com|openrouter\.ai|api\.deepseek\.com|api\.groq\.com|api\.together\.xyz|api\.x\.ai"
    r"|.+\.openai\.azure\.com|localhost|127\.0\.0\.1|\[::1\])(?::\d+)?"
)

# The two names of one limit; each is refused somewhere.
_TOKEN_PARAMS: Final = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


class OpenAIChat(Dialect):
    """A model behind `/chat/completions`.

    `model`, `base_url` and `api_key` default to OPENAI_MODEL, OPENAI_BASE_URL and OPENAI_API_KEY; a
    key is needed for api.openai.com only. Raises `ConfigurationError` when something is missing.

    Nothing is sent that was not asked for. `token_param` is the name under which `max_output_tokens`
    goes. `stream_options` asks for the count of tokens of a stream; None asks the servers known to
    take it. `tool_ids` "mistral" makes call ids of nine letters or digits. `withhold` is how tools are
    made impossible for a last word: "omit" leaves them out, "none" sends them with tool_choice none;
    "auto" is "none" for api.openai.com, which enforces it and keeps its prompt cache, else "omit".
    More than `most_tools` are refused before anything is sent; None leaves that to the server.
    `extra_body` and `extra_headers` are added to every request as they are.

    `tls` says whom to trust, and holds a client certificate where a server wants one. `http` replaces
    the network (`httpx2.MockTransport` in tests), `now` the time of day.
    """

    path = "/chat/completions"
    answer_field = "response_format"

    def __init__(
        self,
        model: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        stream: bool = True,
        max_output_tokens: int | None = None,
        token_param: str = "max_tokens",  # noqa: S107 - no password
        temperature: float | None = None,
        parallel_tool_calls: bool | None = None,
        stream_options: bool | None = None,
        tool_ids: Literal["auto", "verbatim", "mistral"] = "auto",
        withhold: Withhold = "auto",
        most_tools: int | None = 128,
        extra_body: Mapping[str, Any] | None = None,
        extra_headers: Mapping[str, str] | None = None,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen
        http: Network | None = None,
        tls: ssl.SSLContext | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.model, url, key = configured(model, base_url, api_key)
        host = host_of(url)
        endpoint = Endpoint(
            url,
            key_headers(host, key) | headers(extra_headers or {}),
            failures=ProviderErrors(host, self.model, secret=checked_key(key, "OPENAI_API_KEY"), now=now),
            transport=Transport(http, tls=tls, timeouts=timeouts),
            now=now,
        )
        settings: dict[str, Any] = {"model": self.model, "stream": stream}
        if stream and (stream_options or (stream_options is None and _COUNTS_STREAMS.fullmatch(host))):
            settings["stream_options"] = {"include_usage": True}
        optional = {
            token_param: max_output_tokens,
            "temperature": temperature,
            "parallel_tool_calls": parallel_tool_calls,
        }
        settings |= {name: value for name, value in optional.items() if value is not None}
        settings |= checked_body(extra_body, ("messages", "tools", "tool_choice", "stream"))
        ours = host == "api.openai.com"
        super().__init__(endpoint, settings, withheld(withhold, enforced=ours), answers_beside_tools=ours)
        self.origin = f"chat:{origin_of(url)}"
        mistral = host == "api.mistral.ai"
        nine = tool_ids == "mistral" or (tool_ids == "auto" and mistral)
        self._encoder: ChatEncoder = ChatEncoder(self.origin, nine=nine, turns=mistral)
        # Known to answer 400 to most of JSON Schema; all others show what they take by refusing it.
        if host.endswith("googleapis.com") or "gemini" in self.model.lower():
            self._encoder.level = "plain"
        self._most_tools = most_tools
        self._swapped = False

    def answer_format(self, answer: AnswerSpec) -> dict[str, Any]:
        form = {"name": answer.name, "schema": answer.schema, "strict": answer.strict}
        return {"type": "json_schema", "json_schema": form}

    def body(self, request: Request) -> bytes:
        if self._most_tools is not None and len(request.tools) > self._most_tools:
            raise ConfigurationError(
                f"{len(request.tools)} tools, and chat completions takes {self._most_tools}: give fewer, "
                "or pass most_tools=None for a server that takes more"
            )
        return self._encoder.body(
            request.transcript,
            request.tools,
            self.settings_for(request),
            tool_choice="" if request.may_call else "none",
            with_tools=request.may_call or self._withhold == "none",
        )

    def assembler(self, request: Request) -> ChatReply:
        return ChatReply(self.endpoint.failures, self.origin, self._encoder.toolset(request.tools).names)

    def changes(self) -> Sequence[Change]:
        ways = (self._adapt_ids, self._adapt_turns, self._adapt_signatures)
        settings = (self._adapt_tokens, self._adapt_settings)
        turns = (*ways, self._adapt_turn)
        others = (self._adapt_echo, self.adapt_attached, self.adapt_schemas)
        return self.adapt_withholding, self.adapt_answer, *turns, *settings, *others

    def explained(self, error: ProviderError) -> ProviderError:
        if "v1/responses" in error.raw and error.kind in ("bad_request", "not_found"):
            error.message += (
                " Use the Responses API for this model: --api responses, or OpenAIResponses in place of OpenAIChat."
            )
            error.args = (error.message,)
        return error

    def _adapt_ids(self, refusal: Refusal) -> str:
        if self._encoder.nine or not re.search(r"length of 9|9 (?:alphanumeric )?characters", refusal.said):
            return ""
        self._encoder.change(nine=True)
        return "it wants ids of nine letters or digits, so call ids are changed to such"

    def _adapt_turns(self, refusal: Refusal) -> str:
        order = r"role '?user'? after role|roles? must alternate|roles should alternate"
        if self._encoder.turns or not re.search(order, refusal.said, re.IGNORECASE):
            return ""
        self._encoder.change(turns=True)
        return "it wants the assistant to speak between two other messages, so it is made to"

    def _adapt_signatures(self, refusal: Refusal) -> str:
        missing = r"missing (?:a |its )?[`'\"]?thought_?signature"
        if self._encoder.signed or not re.search(missing, refusal.said, re.IGNORECASE):
            return ""
        self._encoder.change(signed=True)
        return "it wants a thought signature on every call, so those without one are sent with the word for that"

    def _adapt_tokens(self, refusal: Refusal) -> str:
        old = next((name for name in _TOKEN_PARAMS if name in self._settings), "")
        if self._swapped or not old or not refusal.of(old):
            return ""
        self._swapped = True
        # In its place, so that the order of the members stays as it was.
        new = _TOKEN_PARAMS[old]
        self._settings = {new if name == old else name: value for name, value in self._settings.items()}
        return f"it does not take {old}, so {new} is sent"

    def _adapt_settings(self, refusal: Refusal) -> str:
        return self.adapt_settings(refusal, ("stream_options", "temperature", "parallel_tool_calls"))

    def _adapt_turn(self, refusal: Refusal) -> str:
        # A key that it does not know in one turn it knows in none.
        return (self._adapt_echo(refusal) if refusal.place is not None else "") or self.adapt_turn(refusal)

    def _adapt_echo(self, refusal: Refusal) -> str:
        if not self._encoder.echo or not any(refusal.of(name) for name in ATTACHED):
            return ""
        self._encoder.change(echo=False)
        return "it does not take back what it attached to its turns, so they are sent without"
