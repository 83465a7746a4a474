"""What an object is in JSON: models, dataclasses, dates, sets, views, files.

Knows nothing about calls. Takes one step at a time, as the writer of JSON asks for what is inside;
arrays and tables of other libraries are in `foreign.py`.
"""

from __future__ import annotations

import base64
import dataclasses
import itertools
import json
import math
import re
from collections import UserString
from collections.abc import Iterator, Mapping, MappingView, Sequence, Sized
from contextlib import suppress
from enum import Enum
from io import BytesIO, IOBase, StringIO
from typing import Any, Final

from .foreign import NOT_ONE, can, foreign

# JSON writers recurse; what is deeper than this contains itself.
DEEPEST: Final = 200

# No text has these, though the bytes that do may well be valid UTF-8.
_BINARY: Final = re.compile("[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f]")

# How Python shows what cannot show itself. The address is another one at every call, so that a model
# which asks for the same thing for ever would seem to get news each time.
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]{4,16}| id='\d+'")

# Endless, and nothing happens in them: never drawn further than can be shown.
_ENDLESS: Final = (itertools.count, itertools.cycle, itertools.repeat)


class NoText(TypeError):
    """An object of which nothing can be shown. The text is for its author; `kind` is the name of its type."""

    def __init__(self, value: Any) -> None:
        kind = type(value)
        self.kind = kind.__name__
        super().__init__(
            f"the result is or holds an object of type {kind.__module__}.{kind.__qualname__}, which shows nothing but "
            "its address; return text, a dict, a list, a dataclass or a pydantic model, or give the type a __str__"
        )


class Lazy(Exception):
    """The writer of JSON came to something that has to be drawn first."""


def text_in(value: bytes) -> str:
    """Bytes as text where they are some, else in base64, which a model can name and pass on."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    return base64.b64encode(value).decode() if _BINARY.search(text) else text


def is_lazy(value: Any) -> bool:
    """Whether it has to be drawn or awaited before there is anything to show."""
    if isinstance(value, type):
        return False
    if hasattr(value, "__await__") or hasattr(value, "__aiter__") or isinstance(value, Iterator):
        return True
    # An object of the author's own with rows in it, which shows nothing of itself.
    rows = hasattr(value, "__iter__") or (hasattr(value, "__getitem__") and hasattr(value, "__len__"))
    return rows and _is_bare(value)


def _is_bare(value: Any) -> bool:
    kind: Any = type(value)
    return kind.__repr__ is object.__repr__ and kind.__str__ is object.__str__


class Shower:
    """Writes JSON. Of what is long it takes as much as fills `limit` characters; `more` says that it did."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.more = ""

    def json(self, value: Any) -> str:
        """Compact JSON. Raises `Lazy` where something has to be drawn first, `NoText` where nothing can be shown."""
        try:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=self.plain)
        except NoText:
            raise
        except (TypeError, ValueError):
            # A key that is not a string, or a number such as NaN. What contains itself fails once more.
            return json.dumps(self._rebuilt(value), ensure_ascii=False, separators=(",", ":"))

    def key(self, key: Any) -> str:
        return key if isinstance(key, str) else self.json(key)

    def plain(self, value: Any) -> Any:
        """One step from an object towards JSON."""
        if isinstance(value, Mapping):
            return dict(value)
        if isinstance(value, set | frozenset):
            return sorted(value, key=repr)  # the same result for the same set, in every process
        if isinstance(value, Enum):
            return value.value
        if isinstance(value, bytes | bytearray | memoryview):
            return text_in(bytes(value))
        if isinstance(value, IOBase):
            return self._in_file(value)
        if isinstance(value, type):
            return str(value)
        for form in (_of_its_own, self._foreign, _fields, self._listed):
            if (found := form(value)) is not NOT_ONE:
                return found
        if is_lazy(value):
            raise Lazy
        return _said(value)

    def _rebuilt(self, value: Any, depth: int = 0) -> Any:
        if depth > DEEPEST:
            raise ValueError("the result is nested too deeply, or contains itself")
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        if isinstance(value, Mapping):
            return {self.key(key): self._rebuilt(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._rebuilt(item, depth + 1) for item in value]
        if value is None or isinstance(value, str | int | float):
            return value
        return self._rebuilt(self.plain(value), depth + 1)

    def _foreign(self, value: Any) -> Any:
        found, total = foreign(value, self._limit)
        if total:
            self.more = f"this is the beginning of {total}"
        return found

    def _listed(self, value: Any) -> Any:
        """A view, a range, a deque: all of it is there, and only its beginning may be wanted."""
        if not isinstance(value, (MappingView, Sequence, *_ENDLESS)) or isinstance(value, UserString):
            return NOT_ONE
        items: Any = value  # a view of a mapping is one that can be iterated, which the type does not say
        kept = list(itertools.islice(items, self._limit + 1))
        if len(kept) > self._limit:
            total = f"{len(value):,} items" if isinstance(value, Sized) else "a list without end"
            self.more = f"this is the beginning of {total}"
        return kept

    def _in_file(self, file: IOBase) -> Any:
        if isinstance(file, StringIO | BytesIO):
            return file.getvalue()  # after a write its position is at the end
        read: Any = getattr(file, "read", None)
        if not file.readable() or read is None:
            raise NoText(file)
        found = read(self._limit + 1)
        if len(found) > self._limit:
            self.more = "this is the beginning of a file"
        return found


def _of_its_own(value: Any) -> Any:
    if can(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value):
        return {part.name: getattr(value, part.name) for part in dataclasses.fields(value)}
    if can(value, "isoformat"):
        return value.isoformat()
    if can(value, "_asdict"):
        return value._asdict()
    return NOT_ONE


def _fields(value: Any) -> Any:
    """What an object that shows nothing of itself would be as a mapping, by the usual names for that."""
    if not _is_bare(value):
        return NOT_ONE
    if can(value, "keys") and hasattr(value, "__getitem__"):
        return {key: value[key] for key in value.keys()}  # noqa: SIM118  a row of sqlite3, which iterates its values
    if can(value, "to_dict"):
        with suppress(TypeError):  # it wants to be told more than we know
            return value.to_dict()
    return NOT_ONE


def _said(value: Any) -> str:
    text = str(value)
    if _is_bare(value) or (text.startswith("<") and text.endswith(">") and _ADDRESS.search(text)):
        raise NoText(value)
    return _ADDRESS.sub("", text)
