"""What a server says when it refuses or fails, read from every shape, as one `ProviderError`.

The kind decides what happens next (wait and retry, compact, stop), so it is sorted by the words of
the error as well as by its status: a 429 may be an empty account, a 413 or a 500 a full context. The
message says what to do, then what the server said, without the key and without control characters.

Knows nothing about HTTP libraries, streams or the shape of a good reply.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tool_loop.errors import TRANSIENT, ProviderError, ProviderKind
from tool_loop.records import dataclass
from tool_loop.redaction.secret import Secret, printable

from .body import KEPT, READ, ErrorBody, read_error, read_object

# What sorts an error, with its thirty patterns, is loaded with the first one: most programs see none.
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Json: TypeAlias = Any  # whatever json.loads gave; see body.py

# How much of what a server said is shown.
SHOWN: Final = 500

_ADVICE: Final[dict[ProviderKind, str]] = {
    "quota": "the account is used up, and no waiting cures that. Check its balance and limits.",
    "context_length": "the conversation is longer than the model's context.",
    "content_filter": "the request was stopped by the content filter.",
    "rate_limit": "too many requests or tokens for now.",
    "overloaded": "the server is overloaded.",
    "timeout": "the server ran out of time.",
    "model_output": "the server refused what its own model wrote.",
    "bad_request": "the request was refused.",
}


@dataclass(frozen=True, slots=True)
class ProviderErrors:
    """Makes the errors of one endpoint.

    `host` and `model` are named in messages; `key_name`, `url_name` and `model_name` are what a
    person sets to change them. `secret` is removed from everything that is shown. `now` is the time
    of day, for errors that say when a limit ends.
    """

    host: str
    model: str
    key_name: str = "OPENAI_API_KEY"
    url_name: str = "OPENAI_BASE_URL"
    model_name: str = "OPENAI_MODEL"
    secret: Secret = field(default_factory=lambda: Secret(""))
    now: Callable[[], float] = time.time

    def refused(self, status: int, headers: Mapping[str, str], body: bytes, now: float) -> ProviderError:
        """The error of a response whose status is not 200. `now` is the time of day in seconds."""
        text = body[: 64 * KEPT].decode("utf-8", "replace").strip().removeprefix("\ufeff")
        if status < 300:
            # A 204 from a proxy that lost the body, a 202 that queued the request: nothing was refused.
            return self.protocol(f"status {status} and no reply", text, status=status)
        if status < 400:
            return self._redirected(status, headers)
        from .vocabulary import sort_error
        from .waits import asked_wait

        said = read_error(text)
        kind = sort_error(status, said.codes, said.text)
        wait = asked_wait(headers, now, text[:READ])
        kind = _or_a_limit(kind, wait, status, said)
        return self._error(kind, said, status, wait=wait, should=headers.get("x-should-retry", ""))

    def inside(self, body: Json, *, status: int = 200, tokens: int = 0) -> ProviderError:
        """The error of an `error` object that came with a 200 or in a stream; its own code decides."""
        from .vocabulary import sort_error
        from .waits import asked_wait

        said = read_object(body)
        kind = sort_error(said.status, said.codes, said.text)
        wait = asked_wait({}, self.now(), _text_of(body))
        return self._error(_or_a_limit(kind, wait, said.status, said), said, status, wait=wait, tokens=tokens)

    def protocol(self, what: str, raw: str = "", *, status: int | None = 200, tokens: int = 0) -> ProviderError:
        """The reply is not what the API promises. `raw` is shown, so that a person can see what it is."""
        shown = self._shown(raw, 200)
        text = f"{self.host} answered with {what}" + (f": {shown}" if shown else "")
        return ProviderError(text, kind="protocol", status=status, tokens=tokens, raw=self._shown(raw, KEPT))

    def turn_failed(self, finish: str, kind: ProviderKind, *, tokens: int = 0) -> ProviderError:
        """The reply says itself that its turn failed, by its reason of ending and no error beside it."""
        said = f"the model's turn failed ({self._shown(finish, 80)})"
        text = f"an error in the reply of {self.host}: {said}"
        return ProviderError(text, kind=kind, status=200, tokens=tokens, raw=said)

    def empty(self, *, tokens: int = 0, why: str = "") -> ProviderError:
        """The reply is well formed and says nothing."""
        text = f"{self.host} answered with neither text nor tool calls" + (f" ({why})" if why else "")
        return ProviderError(text, kind="empty", status=200, tokens=tokens)

    def _error(
        self,
        kind: ProviderKind,
        said: ErrorBody,
        status: int,
        *,
        wait: float | None = None,
        should: str = "",
        tokens: int = 0,
    ) -> ProviderError:
        shown = self._shown(said.text, SHOWN)
        place = f"an error in the reply of {self.host}" if status == 200 else f"{status} from {self.host}"
        advice = self._advice(kind, said)
        text = f"{place}: {advice}" + (f" It said: {shown}" if shown else "")
        return ProviderError(
            text,
            kind=kind,
            status=status,
            # The server's own word, where it has one, on what waiting could cure.
            retryable=kind in TRANSIENT and should.lower() != "false",
            retry_after=wait if kind in TRANSIENT else None,
            param=self._shown(said.param, 100),
            window=_window(said) if kind == "context_length" else None,
            tokens=tokens,
            raw=self._shown(said.text, KEPT),
        )

    def _advice(self, kind: ProviderKind, said: ErrorBody) -> str:
        if kind == "auth":
            if not self.secret:
                return f"it wants a key and none was sent. Set {self.key_name}."
            return f"the key in {self.key_name} was refused, or may not use this model."
        if kind == "not_found":
            return f"no such model or path. Check {self.model_name} ({printable(self.model, 80)}) and {self.url_name}."
        if kind == "bad_request" and said.param:
            return f"the request was refused because of '{self._shown(said.param, 100)}'."
        return _ADVICE.get(kind, "the server failed.")

    def _redirected(self, status: int, headers: Mapping[str, str]) -> ProviderError:
        # Never followed: the key is for this origin only. The origin alone is shown, because login
        # pages are given tokens in their paths.
        to = re.match(r"\w+://[^/?#\s]*", headers.get("location", ""))
        where = f" to {self._shown(to[0].rpartition('@')[2] if '@' in to[0] else to[0], 100)}" if to else ""
        text = f"{status} from {self.host}: a redirect{where}, which is not followed. Check {self.url_name}."
        return ProviderError(text, kind="bad_request", status=status)

    def _shown(self, text: str, most: int) -> str:
        # Scrubbed before it is cut, or the cut could leave the first half of a key behind.
        return printable(self.secret.scrub(text[: 16 * KEPT]), most)


def _window(said: ErrorBody) -> int | None:
    from .vocabulary import window_in

    return said.window or window_in(said.text)


def _or_a_limit(kind: ProviderKind, wait: float | None, status: int | None, said: ErrorBody) -> ProviderKind:
    """A quota that ends by itself is a limit: some call that of a minute "your current quota"."""
    by_itself = kind == "quota" and wait and status in (429, None) and "insufficientquota" not in said.codes
    return "rate_limit" if by_itself else kind


def _text_of(body: Json) -> str:
    if isinstance(body, str):
        return body[:READ]
    try:
        return json.dumps(body, ensure_ascii=False)[:READ]
    except (ValueError, RecursionError):
        return ""
