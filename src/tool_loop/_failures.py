"""Results in words: what a tool returned as text, and what went wrong as JSON.

Knows nothing about calls or deadlines. Only the rare cases come here; text that needs no change
never leaves `registry.py`.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from .errors import ToolError

# A model reads a result of nothing as a fault of the system, and some servers refuse it.
NOTHING = "(no output)"

_MOST_NAMES = 50


def text_of(value: Any) -> str:
    """What a tool returned, as the text a model reads: a string as it is, everything else as JSON.

    Bytes are decoded, a lone surrogate and a broken byte become U+FFFD, and a number that JSON does
    not have becomes its name. Raises ValueError or RecursionError for what contains itself.
    """
    if value is None:
        return NOTHING
    if isinstance(value, bytes | bytearray | memoryview):
        value = bytes(value).decode("utf-8", "replace")
    if not isinstance(value, str):
        value = _json(value)
    return sendable(value) or NOTHING


def sendable(text: str) -> str:
    """The text without halves of characters, which no request could carry as UTF-8."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def cut(text: str, limit: int) -> str:
    """The beginning of a text that is too long, and a note that says how much there is."""
    return (
        f"{text[:limit]}\n[cut: this is the first {limit:,} of {len(text):,} characters. "
        "Ask for less at a time: narrower arguments, or a part of it.]"
    )


def failure(error: ToolError, limit: int = 8_000) -> str:
    """The JSON a model reads when a call failed: `error`, `message`, `hint`, and fields of the kind."""
    message, hint = str(error.message), str(error.hint)
    said = {"error": str(error.kind), "message": message}
    if hint:
        said["hint"] = hint
    content = _json({**said, **{key: value for key, value in error.fields.items() if key not in said}})
    if len(content) > limit:
        content = _json({**said, "message": cut(message, limit // 2), **({"hint": hint[: limit // 4]} if hint else {})})
    return sendable(content)


def unknown_tool(name: str, known: Iterable[str]) -> ToolError:
    """The error for a name that no tool has, with the nearest one that a tool does have.

    The nearest one is never run instead: nobody asked for it.
    """
    names = list(known)
    listed = ", ".join(names[:_MOST_NAMES]) + (f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else "")
    near = _nearest(name, names)
    hint = f"Did you mean {near!r}? " if near else ""
    return ToolError(
        f"there is no tool {json.dumps(name[:80], ensure_ascii=False)}",
        kind="unknown_tool",
        hint=hint + (f"The tools are: {listed}." if names else "There are no tools: answer without one."),
        tools=names[:_MOST_NAMES],
    )


def _nearest(name: str, names: list[str]) -> str:
    from difflib import get_close_matches

    # Models prefix a name with a namespace and let control tokens leak into it.
    bare = name.split("<|")[0].strip().lower()
    plain = {known.lower(): known for known in names}
    for candidate in (bare, bare.rpartition(".")[2], bare.rpartition("/")[2], bare.rpartition(":")[2]):
        if candidate in plain:
            return plain[candidate]
    near = get_close_matches(bare.rpartition(".")[2], plain, n=1)
    return plain[near[0]] if near else ""


def timed_out(seconds: float, *, by_deadline: bool, started: bool, running: bool) -> ToolError:
    """The error for a call that ran out of time; it says whether it may still have an effect."""
    limit = "the deadline of the run" if by_deadline else f"its limit of {seconds:g} s"
    if not started:
        return ToolError(f"not started: {limit} has passed", kind="timed_out", hint="Answer with what you have.")
    if running:
        message, state = f"ran past {limit}; it could not be stopped and may still be running", "may still happen"
    else:
        message, state = f"ran past {limit} and was stopped", "stays done"
    return ToolError(
        message, kind="timed_out", hint=f"What it had begun {state}: check before you repeat it, or ask for less at a time."
    )


def gave_up() -> ToolError:
    """The error for a tool whose own wait ran out: what it waits for may answer next time."""
    return ToolError(
        "the tool waited too long for something and gave up (TimeoutError)",
        kind="timed_out",
        hint="Try once more, or go on without it.",
    )


def crashed(error: BaseException) -> ToolError:
    """The error for an unexpected exception: only its type, because its text can hold secrets."""
    return ToolError(
        f"the tool failed with an unexpected {type(error).__name__}",
        kind="tool_crashed",
        hint="Repeating this will not help. Use other arguments, another tool, or go on without it.",
        exception=type(error).__name__,
    )


# --- JSON -----------------------------------------------------------------------------------------


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_jsonable)
    except (TypeError, ValueError):
        # A key that is not a string, or a number such as NaN; what contains itself fails once more.
        return json.dumps(_rebuilt(value), ensure_ascii=False, separators=(",", ":"), default=str)


def _jsonable(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {part.name: getattr(value, part.name) for part in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes(bytes(value))
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return str(value)


def _bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()


def _rebuilt(value: Any, depth: int = 0) -> Any:
    if depth > 200:
        message = "the result contains itself"
        raise ValueError(message)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {_key(key): _rebuilt(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rebuilt(item, depth + 1) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return _rebuilt(_jsonable(value), depth + 1)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else text_of(key)
