"""JSON and nothing else: what Python's reader lets through and the next reader refuses, refused here.

`STRICT` reads exactly what RFC 8259 calls JSON, with each name of an object once. The rules are here one
by one as well, for readers that need only some of them. All raise ValueError. Knows nothing about calls.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final, NoReturn


def once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names occur once: of two values under one name, readers take different ones."""
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {json.dumps(twice[:80])} occurs twice in one object")
    return members


def no_constant(word: str) -> NoReturn:
    """NaN and the infinities are words of Python's, not of JSON."""
    raise ValueError(f"{word} is not JSON")


def finite(digits: str) -> float:
    """A number that fits: 1e999 would be read as infinity, and written as a word that is no JSON."""
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


# Made once: `json.loads` with settings makes a new one at each call.
STRICT: Final = json.JSONDecoder(object_pairs_hook=once_each, parse_constant=no_constant, parse_float=finite)
