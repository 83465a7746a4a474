"""The Responses API: the one through which OpenAI's current models take function tools.

Stateless. The server is told to store nothing, and what it reasoned comes back encrypted and is sent
again with the conversation, so a run resumes anywhere and the journal is all there is. The body is
made in request.py, the reply read in reply.py, both pure.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tool_loop.llm.dialect import Change, Dialect, Refusal, Withhold, checked_body, headers, withheld
from tool_loop.llm.endpoint import Endpoint, checked_key, host_of, origin_of
from tool_loop.llm.errors.failures import ProviderErrors
from tool_loop.llm.http.transport import Timeouts, Transport
from tool_loop.llm.openai_settings import configured, key_headers

from .reply import ResponsesReply
from .request import ResponsesEncoder

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence

    from tool_loop.llm.http.doubles import Network
    from tool_loop.ports import AnswerSpec, Request


class OpenAIResponses(Dialect):
    """A model behind `/responses`.

    `model`, `base_url` and `api_key` default to OPENAI_MODEL, OPENAI_BASE_URL and OPENAI_API_KEY; a
    key is needed for api.openai.com only. Raises `ConfigurationError` when something is missing.

    `reasoning` goes out as it is: {"effort": "high", "summary": "auto"}. `withhold` is how tools are
    made impossible for a last word: "omit" leaves them out, "none" sends them with tool_choice none;
    "auto" is "none" for api.openai.com, which enforces it and keeps its prompt cache, else "omit".
    `extra_body` and `extra_headers` are added to every request as they are.

    `tls` says whom to trust, and holds a client certificate where a server wants one. `http` replaces
    the network (`httpx2.MockTransport` in tests), `now` the time of day.
    """

    path = "/responses"
    answer_field = "text"

    def __init__(
        self,
        model: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        stream: bool = True,
        max_output_tokens: int | None = None,
        temperature: float | None = None,
        reasoning: Mapping[str, Any] | None = None,
        parallel_tool_calls: bool | None = None,
        withhold: Withhold = "auto",
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
        settings: dict[str, Any] = {
            "model": self.model,
            "stream": stream,
            "store": False,
            "include": ["reasoning.encrypted_content"],
        }
        optional = {
            "max_output_tokens": max_output_tokens,
            "temperature": temperature,
            "reasoning": None if reasoning is None else dict(reasoning),
            "parallel_tool_calls": parallel_tool_calls,
        }
        settings |= {name: value for name, value in optional.items() if value is not None}
        settings |= checked_body(extra_body, ("input", "tools", "tool_choice", "stream", "instructions", "store"))
        ours = host == "api.openai.com"
        super().__init__(endpoint, settings, withheld(withhold, enforced=ours), answers_beside_tools=ours)
        self.origin = f"responses:{origin_of(url)}"
        self._encoder: ResponsesEncoder = ResponsesEncoder(self.origin)

    def answer_format(self, answer: AnswerSpec) -> dict[str, Any]:
        form = {"name": answer.name, "schema": answer.schema, "strict": answer.strict}
        return {"format": {"type": "json_schema"} | form}

    def body(self, request: Request) -> bytes:
        return self._encoder.body(
            request.transcript,
            request.tools,
            self.settings_for(request),
            tool_choice="" if request.may_call else "none",
            with_tools=request.may_call or self._withhold == "none",
        )

    def assembler(self, request: Request) -> ResponsesReply:
        names = self._encoder.toolset(request.tools).names
        most = self._settings.get("max_output_tokens")
        return ResponsesReply(self.endpoint.failures, names, origin=self.origin, most=most)

    def changes(self) -> Sequence[Change]:
        first = (self.adapt_withholding, self.adapt_answer, self.adapt_turn)
        return *first, self._adapt_settings, self.adapt_attached, self.adapt_schemas

    def _adapt_settings(self, refusal: Refusal) -> str:
        # A model that does not reason refuses to be asked for its reasoning; one that does, to be
        # given a temperature.
        names = ("include", "temperature", "reasoning", "parallel_tool_calls", "max_output_tokens", "store")
        return self.adapt_settings(refusal, names)
