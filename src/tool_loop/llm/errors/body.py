"""What a server says in the body of an error, whatever shape it gave it. Pure.

An object under `error`, a string there, a list around it, a message at the top, FastAPI's details,
one provider's error inside another's, a web page, plain text or nothing. Knows nothing about what
the words mean.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tool_loop.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

Json: TypeAlias = Any  # whatever json.loads gave: looked at here, and nothing of it travels further

# How much of what a server said is kept for logs.
KEPT: Final = 2000
# How much of it is looked at: what matters is said at the beginning, and the rest may be megabytes.
READ: Final = 4 * KEPT


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The parts of an error body that matter, whatever shape it had."""

    text: str = ""
    codes: frozenset[str] = frozenset()
    status: int | None = None
    param: str = ""
    window: int | None = None


def read_error(text: str) -> ErrorBody:
    """The error in a body: JSON of any shape, an HTML page, plain text or nothing."""
    try:
        return read_object(json.loads(text))
    except (ValueError, RecursionError):
        pass
    if text.startswith("<"):
        title = re.search(r"<title>([^<]{1,200})", text) or re.search(r"<h1>([^<]{1,200})", text)
        text = title[1] if title else re.sub(r"<[^>]{0,2000}>", " ", text[:KEPT])
    return ErrorBody(text.strip()[:READ])


def read_object(body: Json) -> ErrorBody:
    objects = list(_objects(body))
    codes: set[str] = set()
    status: int | None = None
    param, window = "", None
    for one in objects:
        for key in ("code", "type", "status", "error_type", "error_code", "status_code", "__type", "name", "reason"):
            value = one.get(key)
            if isinstance(value, str):
                codes.add(re.sub(r"[^a-z]", "", value.lower()))
            status = status or _http_status(value)
        param = param or _param(one)
        room = one.get("n_ctx")
        window = window or (room if isinstance(room, int) and room > 0 else None)
    text = _words(body)[:READ]
    return ErrorBody(text, frozenset(codes), status, param or _param_in(text), window)


def _http_status(value: Json) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"[45]\d\d", value):
        value = int(value)
    return value if type(value) is int and 400 <= value < 600 else None


_DEPTH: Final = 5


def _objects(body: Json, depth: int = 0) -> Iterator[dict[str, Json]]:
    """The objects of an error, outermost first: servers wrap each other's errors."""
    if isinstance(body, dict):
        yield body
        for key in (
            "error",
            "errors",
            "detail",
            "details",
            "message",
            "metadata",
            "raw",
            "innererror",
            "response",
            "body",
        ):
            if key in body and depth < _DEPTH:
                yield from _objects(body[key], depth + 1)
    elif isinstance(body, list) and depth < _DEPTH:
        for item in body[:5]:
            yield from _objects(item, depth + 1)
    elif isinstance(body, str) and body.lstrip()[:1] in ("{", "[") and depth < _DEPTH:
        yield from _objects(_parsed(body), depth + 1)


def _parsed(text: str) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# Where a sentence for people may stand, the most telling place first.
_PLACES: Final = (
    "error",
    "message",
    "msg",
    "detail",
    "errors",
    "error_message",
    "error_description",
    "Message",
    "title",
    "reason",
)


def _words(body: Json, depth: int = 0) -> str:
    if isinstance(body, str):
        inner = _words(_parsed(body), depth + 1) if body.lstrip()[:1] in ("{", "[") and depth < _DEPTH else ""
        return inner or body.strip()
    if isinstance(body, list) and depth < _DEPTH:
        return "; ".join(words for item in body[:5] if (words := _words(item, depth + 1)))
    if not isinstance(body, dict) or depth > _DEPTH:
        return ""
    text = next((words for place in _PLACES if (words := _words(body.get(place), depth + 1))), "")
    loc = body.get("loc")
    if text and isinstance(loc, list):
        text = f"{'.'.join(str(part) for part in loc[:8])}: {text}"
    metadata = body.get("metadata")
    raw = _words(metadata.get("raw"), depth + 1) if isinstance(metadata, dict) else ""
    if raw and raw not in text:
        text = f"{text} ({raw})" if text else raw
    if not text:
        code = body.get("code") or body.get("type")
        text = str(code) if isinstance(code, str | int) else ""
    return text


_QUOTED: Final = re.compile(
    r"(?:parameter|argument|property|field|key)s?\b[^'\"`:]{0,40}:? ?['\"`](?P<a>[\w.\[\]-]{1,80})['\"`]"
    r"|['\"`](?P<b>[\w.\[\]-]{1,80})['\"`] (?:is|are|was) (?:not (?:support|allow|permit)|unsupport|deprecat|unknown)"
    r"|(?:argument|parameter)s?(?: supplied)?: (?P<c>\w{1,80})",
    re.IGNORECASE,
)


def _param(one: dict[str, Json]) -> str:
    param = one.get("param")
    if isinstance(param, str) and param:
        return param
    loc = one.get("loc")
    if isinstance(loc, list):
        return ".".join(str(part) for part in loc[:8] if part != "body")
    return ""


def _param_in(text: str) -> str:
    found = _QUOTED.search(text[:KEPT])
    return next((group for group in found.groups() if group), "") if found else ""
