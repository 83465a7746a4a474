"""Faults of a model and of the way to it, each in two forms that come to the same.

At the port (`faults.llm(model)`) a fault is the error the real client raises, or a reply that is
spoiled; on the wire (`faults.server(...)`) it is the bytes a server sends, and the real client makes
the error of them. What the model is made to ask for (unknown tools, broken arguments) is in
calls.py. The words of a row are those of the failure table.
"""

from __future__ import annotations

from dataclasses import replace
from email.utils import formatdate
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from tool_loop.errors import ProviderError, ProviderKind, UsageError
from tool_loop.events import ModelReplied, ToolCall, Usage
from tool_loop.runtime.clock import FakeClock
from tool_loop.testing.server import refusals
from tool_loop.testing.server.behaviours import Behaviour, HttpDate, Received, ok_chat

from .strike import Fault
from .wire import FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable

ASK_AGAIN: Final = "rate_limit"
SERVER: Final = "server_error"
CONNECTION: Final = "connection"
KEY: Final = "auth"
NO_REPLY: Final = "not_a_reply"
CUT_STREAM: Final = "cut_stream"

# The finish reason that stands for a reply's `stop` on the wire.
_FINISH: Final = {"tool_calls": "tool_calls", "length": "length", "content_filter": "content_filter"}


def said(reply: ModelReplied) -> Behaviour:
    """The reply as a server of chat completions sends it."""
    usage = (reply.usage.input or 0, reply.usage.output or 0)
    finish = _FINISH.get(reply.stop, "")
    return ok_chat(reply.text, reply.calls, usage=usage, finish=finish, name="said")


# --- refusals: the status says it -----------------------------------------------------------------


def _refusal(
    name: str, failure: str, behaviour: Behaviour, layer: Literal["transport", "protocol"] = "transport"
) -> Fault:
    return Fault(name, layer, ("model",), failure, error=partial(_refused, behaviour), wire=lambda _: behaviour)


def _refused(behaviour: Behaviour) -> ProviderError:
    """What the real client makes of this response: sorted by the same code, so the two cannot differ."""
    from tool_loop.llm.errors.failures import ProviderErrors

    response = behaviour.respond(Received("POST", "/"))
    now = FakeClock.START
    headers = {
        name.lower(): formatdate(now + value.seconds, usegmt=True) if isinstance(value, HttpDate) else value
        for name, value in response.headers
    }
    return ProviderErrors("the server", "m").refused(response.status, headers, response.content(), now)


def rate_limit(retry_after: float | str | HttpDate | None = 1) -> Fault:
    """429. `retry_after` is in seconds, or the header word for word; None leaves it out."""
    return _refusal("rate_limit", ASK_AGAIN, refusals.rate_limit(retry_after))


def http_status(code: int, message: str = "") -> Fault:
    """Any other status, with the usual body."""
    failure = next((row for row, codes in _ROWS if code in codes or str(code)[:2] in codes), "bad_request")
    return _refusal("http_status", failure, refusals.status(code, message))


_ROWS: Final[tuple[tuple[str, tuple[int | str, ...]], ...]] = (
    (ASK_AGAIN, (408, 409, 425, 429)),
    (SERVER, ("50", "52")),
    (KEY, (401, 403)),
    ("not_found", (404,)),
    ("quota", (402,)),
)


def server_error() -> Fault:
    """500."""
    return _refusal("server_error", SERVER, refusals.server_error())


def bad_gateway() -> Fault:
    """502 with a page."""
    return _refusal("bad_gateway", SERVER, refusals.bad_gateway())


def unavailable(retry_after: float | None = None) -> Fault:
    """503."""
    return _refusal("unavailable", SERVER, refusals.unavailable(retry_after))


def overloaded() -> Fault:
    """529."""
    return _refusal("overloaded", SERVER, refusals.overloaded())


def auth() -> Fault:
    """401: the key is refused."""
    return _refusal("auth", KEY, refusals.auth())


def not_found() -> Fault:
    """404: no such model."""
    return _refusal("not_found", "not_found", refusals.not_found())


def bad_request() -> Fault:
    """400 that no repeating cures."""
    return _refusal("bad_request", "bad_request", refusals.bad_request())


def redirect() -> Fault:
    """307 to another origin."""
    return _refusal("redirect", "bad_request", refusals.redirect())


def quota() -> Fault:
    """429 that no waiting cures: the account is empty."""
    return _refusal("quota", "quota", refusals.quota())


def content_filter() -> Fault:
    """400: the prompt was stopped by the provider's filter."""
    text = "The request was stopped by the content management policy."
    behaviour = refusals.status(400, text, kind="content_filter", name="content_filter")
    return _refusal("content_filter", "content_filter", behaviour)


def context_length(window: int = 4096) -> Fault:
    """400: the conversation does not fit. `window` is what the server says it takes, in tokens."""
    return _refusal("context_length", "context_length", refusals.context_length(window))


def model_output() -> Fault:
    """400: the server could not read what its own model wrote."""
    text = "Failed to call a function. Please adjust your prompt."
    behaviour = refusals.status(400, text, kind="tool_use_failed", name="model_output")
    return _refusal("model_output", "model_output", behaviour, "protocol")


# --- a wire that breaks ---------------------------------------------------------------------------


def _broken(name: str, failure: str, kind: ProviderKind | None, *, of: bool = False) -> Callable[..., Fault]:
    """A fault of the table `FAULTS`; `of` spoils the reply that would have been sent."""

    def make(**options: Any) -> Fault:
        def wire(reply: ModelReplied) -> Behaviour:
            return FAULTS[name](**options, of=said(reply)) if of else FAULTS[name](**options)

        error = None if kind is None else partial(_error, name, kind, 200 if kind == "protocol" else None)
        return Fault(name, "transport", ("model",), failure, error=error, wire=wire)

    make.__name__ = name
    make.__doc__ = FAULTS[name].__doc__
    return make


def _error(name: str, kind: ProviderKind, status: int | None) -> ProviderError:
    return ProviderError(f"injected: {name}", kind=kind, status=status)


# What each one is to a client that is in order; None: nothing at all.
_KINDS: Final[tuple[tuple[str, ProviderKind | None, str], ...]] = (
    (CONNECTION, "connection", "refused reset_before_headers"),
    (CONNECTION, "timeout", "hang_before_headers hang_mid_body"),
    (CONNECTION, "protocol", "reset_after_headers reset_at_byte close_at_byte garbage header_bomb long_header"),
    (NO_REPLY, "protocol", "html truncated_json wrong_gzip no_choices empty_body invalid_utf8 gzip_bomb"),
    (NO_REPLY, "protocol", "infinite_body infinite_line infinite_comments"),
    (NO_REPLY, "server_error", "error_in_200"),
    (CUT_STREAM, "protocol", "truncated_sse"),
    ("", None, "drip close_after reset_on_reuse"),
)
BROKEN: Final[dict[str, Callable[..., Fault]]] = {
    name: _broken(name, failure, kind, of="of" in FAULTS[name].__annotations__)
    for failure, kind, names in _KINDS
    for name in names.split()
}


def name_not_found() -> Fault:
    """There is no such host."""
    return _lost("name_not_found")


def tls_error() -> Fault:
    """The certificate is nobody's. (On the wire: `FaultServer(tls=True)`.)"""
    return _lost("tls_error")


def _lost(name: str) -> Fault:
    return Fault(name, "transport", ("model",), CONNECTION, error=partial(_error, name, "connection", None))


# --- replies that are none ------------------------------------------------------------------------

After: TypeAlias = Literal["the headers", "half a text", "half a call", "the last word"]


def cut_stream(after: After = "half a call") -> Fault:
    """A stream that ends too early; "the last word" leaves out only the sign that it is complete."""
    if after not in _CUTS:
        raise UsageError(f"cut_stream(after=...) is one of {', '.join(map(repr, _CUTS))}, got {after!r}")
    pieces = () if after == "the headers" else ("Let me ", "look at")
    return Fault(
        "cut_stream",
        "protocol",
        ("model",),
        CUT_STREAM,
        error=partial(_error, "cut_stream", "protocol", 200),
        pieces=pieces,
        wire=lambda reply: said(reply).but("cut_stream", lambda r: replace(r, body=_cut(r.content(), after))),
    )


_CUTS: Final[dict[str, tuple[bytes, int]]] = {
    "the headers": (b"", 0),
    "half a text": (b'"content": "', 14),
    "half a call": (b'"arguments": "', 16),
    "the last word": (b'"finish_reason": "', 0),
}


def _cut(body: bytes, after: After) -> bytes:
    """The body up to the place; one that has no such place is cut in half."""
    mark, more = _CUTS[after]
    if not mark:
        return b""
    at = body.rfind(mark)
    if after == "the last word":
        # The whole event goes: half of one would be noticed by any client.
        at = body.rfind(b"data: ", 0, max(at, 0))
        return body[:at] if at > 0 else body[: len(body) // 2]
    return body[: at + more] if at > 0 else body[: len(body) // 2]


def empty_reply() -> Fault:
    """A reply with neither text nor calls."""
    empty = ModelReplied("")
    return Fault(
        "empty_reply",
        "protocol",
        ("model",),
        "empty_reply",
        error=partial(_error, "empty_reply", "empty", 200),
        wire=lambda reply: said(replace(empty, usage=reply.usage)),
    )


def nameless_call() -> Fault:
    """A tool call without a name."""
    nameless = (ToolCall("call_1", "", "{}"),)
    return Fault(
        "nameless_call",
        "protocol",
        ("model",),
        "nameless_call",
        error=partial(_error, "nameless_call", "protocol", 200),
        wire=lambda reply: said(replace(reply, calls=nameless, stop="tool_calls")),
    )


def filtered_answer(text: str = "I cannot") -> Fault:
    """An answer that the provider's filter cut short."""
    return _spoiled(
        "filtered_answer",
        "transport",
        "content_filter",
        lambda reply: replace(reply, text=text, calls=(), stop="content_filter"),
    )


def cut_thought() -> Fault:
    """A reply cut at the output limit before its first word: all of it went into thinking."""
    return _spoiled(
        "cut_thought",
        "protocol",
        "empty_answer",
        lambda reply: replace(reply, text="", calls=(), stop="length"),
    )


def costly(tokens: int = 1_000_000) -> Fault:
    """A reply that took this many tokens."""
    limits = "limits_used_up"
    return _spoiled("costly", "loop", limits, lambda reply: replace(reply, usage=Usage(tokens, 10)))


def _spoiled(
    name: str,
    layer: Literal["transport", "protocol", "tool", "loop"],
    failure: str,
    change: Callable[[ModelReplied], ModelReplied | None],
) -> Fault:
    """A reply that is changed: the same at the port and on the wire."""
    return Fault(name, layer, ("model",), failure, change=change)
