"""Places in the arguments of a call, and in what a validator says about them.

Knows nothing about words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .wording import Path


def at(value: Any, path: Iterable[Any]) -> Any:
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def same_place(one: Path, other: Path) -> bool:
    return one[: len(other)] == other or other[: len(one)] == one


def wanting_integers(error: Any) -> Iterator[Any]:
    if error.kind.name == "type" and "integer" in error.kind.types:
        yield error
    for branch in getattr(error.kind, "context", None) or ():
        for inner in branch:
            yield from wanting_integers(inner)


def unwhole(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: unwhole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [unwhole(item) for item in value]
    return 0.5 if isinstance(value, float) and value.is_integer() else value
