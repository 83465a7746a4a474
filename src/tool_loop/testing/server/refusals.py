"""Statuses by which a server refuses: the faults in which the wire itself works.

Each factory makes a behaviour for a `FaultServer`'s schedule. `REFUSALS` has them by name, and each
works without arguments. The words are those of well-known providers, because clients read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from .behaviours import Behaviour, Headers, HttpDate, answer, ok_json

if TYPE_CHECKING:
    from collections.abc import Callable

REFUSALS: Final[dict[str, Callable[..., Behaviour]]] = {}

_Factory = TypeVar("_Factory", bound="Callable[..., Behaviour]")


def _fault(factory: _Factory) -> _Factory:
    REFUSALS[factory.__name__] = factory
    return factory


def status(
    code: int, message: str = "", *, kind: str = "server_error", headers: Headers | None = None, name: str = ""
) -> Behaviour:
    """An error of this status in the usual shape: `{"error": {"message", "type", "code"}}`."""
    error = {"message": message or f"injected status {code}", "type": kind, "param": None, "code": kind}
    return ok_json({"error": error}, status=code, headers=headers, name=name or f"status_{code}")


@_fault
def rate_limit(retry_after: float | str | HttpDate | None = 1) -> Behaviour:
    """A 429. `retry_after` is in seconds, or the header's value word for word; None leaves it out."""
    wait = f"{retry_after:g}" if isinstance(retry_after, int | float) else retry_after
    headers: Headers = {} if wait is None else {"retry-after": wait}
    return status(429, "Rate limit reached", kind="rate_limit_exceeded", headers=headers, name="rate_limit")


@_fault
def quota() -> Behaviour:
    """A 429 which no waiting cures: the account is empty."""
    text = "You exceeded your current quota, please check your plan and billing details."
    return status(429, text, kind="insufficient_quota", name="quota")


@_fault
def context_length(window: int = 4096) -> Behaviour:
    """A 400: the request does not fit the model's window."""
    text = f"This model's maximum context length is {window} tokens. However, your messages resulted in more."
    return status(400, text, kind="context_length_exceeded", name="context_length")


@_fault
def overloaded() -> Behaviour:
    """A 529, as some providers say that they are busy."""
    return status(529, "Overloaded", kind="overloaded_error", name="overloaded")


@_fault
def unavailable(retry_after: float | None = None) -> Behaviour:
    """A 503, with or without a wait in seconds."""
    headers: Headers = {} if retry_after is None else {"retry-after": f"{retry_after:g}"}
    return status(503, "Service unavailable", headers=headers, name="unavailable")


@_fault
def server_error() -> Behaviour:
    """A 500."""
    return status(500, "The server had an error while processing your request", name="server_error")


@_fault
def bad_gateway() -> Behaviour:
    """A 502 with a page, from a proxy that lost its server."""
    page = "<html><head><title>502 Bad Gateway</title></head></html>"
    return answer(502, page, {"content-type": "text/html"}, name="bad_gateway")


@_fault
def auth() -> Behaviour:
    """A 401: the key is refused."""
    return status(401, "Incorrect API key provided", kind="invalid_api_key", name="auth")


@_fault
def not_found() -> Behaviour:
    """A 404: there is no such model."""
    return status(404, "The model does not exist", kind="model_not_found", name="not_found")


@_fault
def bad_request() -> Behaviour:
    """A 400 that no repeating cures."""
    return status(400, "Invalid value for 'messages'", kind="invalid_request_error", name="bad_request")


@_fault
def redirect(to: str = "http://127.0.0.1:9/", code: int = 307) -> Behaviour:
    """A redirect to another origin, which must never see the key."""
    return answer(code, "moved", {"location": to}, name="redirect")
