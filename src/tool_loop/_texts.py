"""What a tool returned, as the text a model reads.

Knows nothing about calls. Text that needs no change never comes here.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

# A model reads a result of nothing as a fault of the system, and some servers refuse it.
NOTHING: Final = "(no output)"

# JSON writers recurse; what is deeper than this contains itself.
_DEEPEST = 200


def text_of(value: Any) -> str:
    """A string as it is, nothing as `NOTHING`, everything else as JSON.

    Bytes are decoded, a lone surrogate and a broken byte become U+FFFD, and a number that JSON does
    not have becomes its name. Raises ValueError or RecursionError for what contains itself.
    """
    if value is None:
        return NOTHING
    if isinstance(value, bytes | bytearray | memoryview):
        value = bytes(value).decode("utf-8", "replace")
    return sendable(value if isinstance(value, str) else as_json(value)) or NOTHING


def sendable(text: str) -> str:
    """The text without halves of characters, which no request could carry as UTF-8."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def cut(text: str, limit: int) -> str:
    """The beginning of a text that is too long, and a note that says how much there is."""
    return (
        f"{text[:limit]}\n[cut: these are the first {limit:,} of {len(text):,} characters; "
        "narrower arguments give a shorter result]"
    )


def as_json(value: Any) -> str:
    """Compact JSON of whatever a tool may return: models, dataclasses, dates, sets, enums."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain)
    except (TypeError, ValueError):
        # A key that is not a string, or a number such as NaN. What contains itself fails once more.
        return json.dumps(_rebuilt(value), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """One step from an object towards JSON; the writer asks again for what is inside."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)  # the same result for the same set, in every process
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes | bytearray | memoryview):
        return _text_or_base64(bytes(value))
    if not isinstance(value, type):
        if callable(dump := getattr(value, "model_dump", None)):
            return dump(mode="json")
        if dataclasses.is_dataclass(value):
            return {part.name: getattr(value, part.name) for part in dataclasses.fields(value)}
        if callable(written := getattr(value, "isoformat", None)):
            return written()
    return str(value)


def _text_or_base64(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()


def _rebuilt(value: Any, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        raise ValueError("the result is nested too deeply, or contains itself")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {_key(key): _rebuilt(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rebuilt(item, depth + 1) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return _rebuilt(_plain(value), depth + 1)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else as_json(key)
