"""The parts of a chat completion that can be read without its context. Pure.

Errors that do not say so, text in parts, streamed values that grow, counts of tokens. Knows nothing
about chunks and their order.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from tool_loop.events import Usage
from tool_loop.llm.text import Pieces

Json: TypeAlias = Any  # a parsed chunk or a part of one


def is_error(body: dict[str, Json]) -> bool:
    """An error without the word: a top-level message, FastAPI's detail, an object that says so."""
    if body.get("object") == "error" or body.get("type") == "error" or body.get("success") is False:
        return True
    if body.get("usage") or str(body.get("object", "")).startswith("chat.completion"):
        return False
    return any(body.get(key) for key in ("detail", "errors", "message", "error_message", "msg"))


def flat(value: Json) -> str:
    """The text of a part: a string, or parts once more."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(flat(item) for item in value[:1000])
    if isinstance(value, dict):
        return flat(value.get("text") or value.get("value"))
    return ""


def joined(before: Json, piece: Json) -> Json:
    """Two pieces of one streamed value: texts and lists grow, of anything else the last one counts.

    A text that grows becomes `Pieces`; `whole` makes it a text again.
    """
    if isinstance(piece, str) and isinstance(before, str | Pieces):
        grown = before if isinstance(before, Pieces) else Pieces(before)
        grown.add(piece)
        return grown
    if isinstance(before, list) and isinstance(piece, list):
        return _merged(before, piece)
    if isinstance(before, dict) and isinstance(piece, dict):
        return overlaid(before, piece)
    return piece


def overlaid(before: dict[str, Json], piece: dict[str, Json]) -> dict[str, Json]:
    """The later values, but for those that say nothing: a signature that came is not lost to a "" after it."""
    found = dict(before)
    for key, value in piece.items():
        known = found.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            found[key] = overlaid(known, value)
        elif _says(value) or key not in found:
            found[key] = value
    return found


def _says(value: Json) -> bool:
    return value is not None and value not in ("", [], {})


_GROWS: Final = ("text", "summary", "data", "thinking")


def _merged(before: list[Json], piece: list[Json]) -> list[Json]:
    """Streamed lists of thinking: the pieces of one entry share its index and type, see `_same_entry`."""
    for item in piece:
        last = before[-1] if before else None
        if isinstance(item, dict) and isinstance(last, dict) and _same_entry(last, item):
            for key, value in item.items():
                if _says(value) or key not in last:
                    last[key] = joined(last.get(key), value) if key in _GROWS else value
        else:
            before.append(item)
    return before


def whole(value: Json) -> Json:
    """A streamed value with its texts joined."""
    if isinstance(value, Pieces):
        return str(value)
    if isinstance(value, list):
        return [{k: whole(v) for k, v in item.items()} if isinstance(item, dict) else item for item in value]
    return value


def _same_entry(one: dict[str, Json], other: dict[str, Json]) -> bool:
    """Whether an entry goes on in another.

    Without an index (LiteLLM's thinking_blocks, some of OpenRouter's providers) it goes on while the
    type is the same, until the signature that closes it came. What is encrypted comes whole.
    """
    kind, place = one.get("type"), one.get("index")
    if kind != other.get("type") or place != other.get("index"):
        return False
    if place is not None:
        return True
    encrypted = any(word in str(kind) for word in ("encrypted", "redacted"))
    another = _says(one.get("id")) and _says(other.get("id")) and one["id"] != other["id"]
    return not (encrypted or another or _says(one.get("signature")))


def read_usage(usage: dict[str, Json]) -> Usage:
    """The counts, under either of their names; what is no count is unknown."""
    read = _details(usage, "prompt_tokens_details", "input_tokens_details")
    wrote = _details(usage, "completion_tokens_details", "output_tokens_details")
    cached = _first(
        read.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"), usage.get("cache_read_input_tokens")
    )
    return Usage(
        input=_first(usage.get("prompt_tokens"), usage.get("input_tokens")),
        output=_first(usage.get("completion_tokens"), usage.get("output_tokens")),
        cached=cached if cached is not None else _first(usage.get("cached_tokens")),
        cache_write=_first(usage.get("cache_creation_input_tokens"), read.get("cache_write_tokens")),
        reasoning=_first(wrote.get("reasoning_tokens"), usage.get("reasoning_tokens")),
    )


def timed_usage(timings: Json) -> Usage:
    """The count of a llama.cpp server that was not asked for one: what it timed."""
    if not isinstance(timings, dict):
        return Usage()
    new, cached = _first(timings.get("prompt_n")), _first(timings.get("cache_n"))
    return Usage(
        input=None if new is None else new + (cached or 0), output=_first(timings.get("predicted_n")), cached=cached
    )


def _details(usage: dict[str, Json], *keys: str) -> dict[str, Json]:
    return next((value for key in keys if isinstance(value := usage.get(key), dict)), {})


def _first(*counts: Json) -> int | None:
    for count in counts:
        if isinstance(count, int | float) and not isinstance(count, bool) and 0 <= count < 1e12:
            return int(count)
    return None
