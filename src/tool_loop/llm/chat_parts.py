"""The parts of a chat completion that can be read without its context. Pure.

Errors that do not say so, text in parts, streamed values that grow, counts of tokens. Knows nothing
about chunks and their order.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from tool_loop.events import Usage

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
    """Two pieces of one streamed value: texts and lists grow, of anything else the last one counts."""
    if isinstance(before, str) and isinstance(piece, str):
        return before + piece
    if isinstance(before, list) and isinstance(piece, list):
        return _merged(before, piece)
    if isinstance(before, dict) and isinstance(piece, dict):
        return {**before, **piece}
    return piece


def _merged(before: list[Json], piece: list[Json]) -> list[Json]:
    """Streamed lists of reasoning details: the pieces of one entry share its index and type."""
    for item in piece:
        last = before[-1] if before else None
        if not (isinstance(item, dict) and isinstance(last, dict) and _same_entry(last, item)):
            before.append(item)
            continue
        for key, value in item.items():
            if (
                key in ("text", "summary", "data", "thinking")
                and isinstance(last.get(key), str)
                and isinstance(value, str)
            ):
                last[key] += value
            elif value is not None:
                last[key] = value
    return before


def _same_entry(one: dict[str, Json], other: dict[str, Json]) -> bool:
    return one.get("index") is not None and all(one.get(key) == other.get(key) for key in ("index", "type"))


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
