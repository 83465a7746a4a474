"""Events to JSON text and back: the format in which a journal keeps them, for ever.

One record is one JSON object: "event" holds a tag from the table below, the other keys are the
fields of that event. What equals a field's default is left out, so that a journal grows by what was
said and by nothing else. Names in the tables are the format: renaming a class changes nothing here,
and renaming a field or changing a default needs a new `FORMAT` and a translation of the old one
(tests/data/journal_format_1.jsonl holds every event as format 1 wrote it).

Knows nothing about runs, files or SQL. Records are checked for their shape, not for their sense.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, TypeAlias, get_args, get_origin, get_type_hints

from tool_loop import events as said
from tool_loop.errors import JournalDamaged, JournalError
from tool_loop.events import Event

FORMAT: Final = 1

# Spelled out and not taken from the classes: a journal outlives a renaming.
TAGS: Final[dict[str, type[Event]]] = {
    "run_started": said.RunStarted,
    "run_continued": said.RunContinued,
    "run_resumed": said.RunResumed,
    "run_interrupted": said.RunInterrupted,
    "model_replied": said.ModelReplied,
    "reminded": said.Reminded,
    "approval_requested": said.ApprovalRequested,
    "approval_decided": said.ApprovalDecided,
    "intent_recorded": said.IntentRecorded,
    "tool_returned": said.ToolReturned,
    "compacted": said.Compacted,
    "limit_reached": said.LimitReached,
    "run_ended": said.RunEnded,
}

# The records inside records. A closed set too, so that a new one cannot slip into the format unseen.
PARTS: Final = (said.ToolCall, said.Usage, said.Retry, said.Example, said.ApprovalRequest)

_Write: TypeAlias = Callable[[Any], str]
_Read: TypeAlias = Callable[[Any], Any]

# The one in C. Whatever is not a string it refuses: better when it is written than when it is read.
_text: _Write = json.encoder.encode_basestring

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def encode(event: Event) -> str:
    """The event as one line of JSON that is valid UTF-8, whatever is in it.

    Lone surrogates are escaped; a pair of them comes back as the one character it stands for. NaN
    and the infinities travel as strings, since JSON has none. Raises `JournalError` when a field
    holds something of another type than it should: what is written can be read.
    """
    form = _FORMS.get(type(event))
    if form is None:
        raise JournalError(f"{type(event).__name__} is not an event: only the events in events.py can be recorded")
    try:
        text = form.write(event)
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:
        text = _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    except (AttributeError, TypeError, ValueError) as error:
        raise JournalError(f"{form.tag} holds a value that cannot be recorded: {error}") from None
    return text


def decode(text: str | bytes) -> Event:
    """The event that `encode` wrote. Raises `JournalDamaged`, saying what is wrong with the record."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise JournalDamaged(f"not JSON: {error}") from None
    if not isinstance(record, dict):
        raise JournalDamaged("not a JSON object")
    tag = record.pop("event", None)
    cls = TAGS.get(tag) if isinstance(tag, str) else None
    if cls is None:
        raise JournalDamaged(f"format {FORMAT} has no event {tag!r}; {_NEWER}")
    event: Event = _FORMS[cls].read(record)
    return event


def is_torn(text: str | bytes) -> bool:
    """Whether this is the beginning of a record whose end is missing (or no record at all).

    An object is not JSON before its last brace, so no proper beginning of a record passes for one.
    """
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return True
    return False


_NEWER: Final = "it was written by a newer version (then upgrade tool-loop) or is damaged"


# --- how one class is written ---------------------------------------------------------------------


class _Form:
    """Writes and reads one dataclass. Built once per class: an append costs microseconds, not type hints."""

    __slots__ = ("_cls", "_fields", "_head", "_names", "_read", "_required", "_values", "tag")

    def __init__(self, cls: type[Any], tag: str, head: str) -> None:
        self._cls = cls
        self.tag = tag
        self._head = head
        fields = dataclasses.fields(cls)
        hints = get_type_hints(cls)
        ways = {field.name: _ways(hints[field.name]) for field in fields}
        self._names = frozenset(ways)
        self._required = frozenset(field.name for field in fields if field.default is dataclasses.MISSING)
        self._fields = tuple((f'"{field.name}":', field.default, ways[field.name][0]) for field in fields)
        self._values = _getter([field.name for field in fields])
        self._read = {name: read for name, (_, read) in ways.items() if read is not None}

    def write(self, event: Any) -> str:
        parts = [
            name + write(value)
            for (name, default, write), value in zip(self._fields, self._values(event), strict=True)
            if value is not default and value != default
        ]
        return f"{{{self._head}{','.join(parts)}}}" if parts else f"{{{self._head.rstrip(',')}}}"

    def read(self, record: Any) -> Any:
        if not isinstance(record, dict):
            raise JournalDamaged(f"a part of the record is not {self.tag}: {record!r}")
        if not record.keys() <= self._names:
            unknown = min(record.keys() - self._names)
            raise JournalDamaged(f"{self.tag} has no field {unknown!r} in format {FORMAT}; {_NEWER}")
        if not record.keys() >= self._required:
            missing = min(self._required - record.keys())
            raise JournalDamaged(f"{self.tag} lacks its field {missing!r}")
        for name, read in self._read.items():
            if name in record:
                record[name] = read(record[name])
        return self._cls(**record)


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """All fields at once. With fewer than two names, `attrgetter` gives no tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda event: (getattr(event, names[0]),)


def _ways(hint: Any) -> tuple[_Write, _Read | None]:
    """How a field of this type is written, and read back; None where JSON gives it as it is."""
    if hint in PARTS:
        form = _part(hint)
        return form.write, form.read
    if get_origin(hint) is tuple:
        write, read = _ways(get_args(hint)[0])
        return _list_of(write), _tuple_of(read)
    for kind, write, read in _SIMPLE:
        # A union with None has None as its default, which is left out.
        if kind in (hint, *get_args(hint)):
            return write, read
    return _text, None


def _list_of(write: _Write) -> _Write:
    return lambda values: f"[{','.join([write(value) for value in values])}]"


def _tuple_of(read: _Read | None) -> _Read:
    def tuple_of(values: Any) -> tuple[Any, ...]:
        if not isinstance(values, list):
            raise JournalDamaged(f"a list is expected where the record has {values!r}")
        return tuple(values) if read is None else tuple([read(value) for value in values])

    return tuple_of


def _float(value: Any) -> str:
    text = repr(value + 0.0)
    return text if text[-1] not in "fn" else f'"{text}"'  # inf, nan


def _number(value: Any) -> Any:
    return float(value) if value in ("nan", "inf", "-inf") else value


def _bool(value: Any) -> str:
    return "true" if value else "false"


_SIMPLE: Final[tuple[tuple[type[Any], _Write, _Read | None], ...]] = (
    (bool, _bool, None),
    (int, int.__repr__, None),
    (float, _float, _number),
)

_PARTS: Final[dict[type[Any], _Form]] = {}


def _part(cls: type[Any]) -> _Form:
    if cls not in _PARTS:
        _PARTS[cls] = _Form(cls, cls.__name__, "")
    return _PARTS[cls]


_FORMS: Final[dict[type[Any], _Form]] = {cls: _Form(cls, tag, f'"event":"{tag}",') for tag, cls in TAGS.items()}
