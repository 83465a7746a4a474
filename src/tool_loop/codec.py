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
import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, TypeAlias, get_args, get_origin, get_type_hints

from . import events as said
from .errors import JournalDamaged, JournalError
from .events import Event

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

_Convert: TypeAlias = Callable[[Any], Any]

# Compact, readable in every language, and strict: NaN is not JSON, and one such record would make
# the whole journal unreadable for every other program.
_write = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_write_ascii = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def encode(event: Event) -> str:
    """The event as one line of JSON that is valid UTF-8, whatever is in it.

    Lone surrogates are escaped; a pair of them comes back as the one character it stands for. NaN
    and the infinities travel as strings. Raises `JournalError` when a field holds something that is
    neither text nor number: better before it is written than when it is read.
    """
    form = _FORMS.get(type(event))
    if form is None:
        raise JournalError(f"{type(event).__name__} is not an event: only the events in events.py can be recorded")
    try:
        record = form.pack(event, {"event": form.tag})
        try:
            text = _write(record)
            if not text.isascii():
                text.encode()  # a lone surrogate cannot be written to any file
        except ValueError:  # UnicodeEncodeError is one
            text = _write_ascii(_finite(record))
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
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
    event: Event = _FORMS[cls].unpack(record)
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
    """Packs and unpacks one dataclass. Built once per class: an append costs microseconds, not type hints."""

    __slots__ = ("_cls", "_fields", "_names", "_pack", "_required", "_unpack", "_values", "tag")

    def __init__(self, cls: type[Any], tag: str) -> None:
        self._cls = cls
        self.tag = tag
        fields = dataclasses.fields(cls)
        hints = get_type_hints(cls)
        self._names = frozenset(f.name for f in fields)
        self._required = frozenset(f.name for f in fields if f.default is dataclasses.MISSING)
        self._fields = tuple((f.name, f.default) for f in fields)
        self._values = _getter([f.name for f in fields])
        self._pack: dict[str, _Convert] = {}
        self._unpack: dict[str, _Convert] = {}
        for field in fields:
            if converters := _converters(hints[field.name]):
                self._pack[field.name], self._unpack[field.name] = converters

    def pack(self, event: Any, record: dict[str, Any]) -> dict[str, Any]:
        pack = self._pack
        for (name, default), value in zip(self._fields, self._values(event), strict=True):
            if value != default:
                record[name] = pack[name](value) if name in pack else value
        return record

    def unpack(self, record: Any) -> Any:
        if not isinstance(record, dict):
            raise JournalDamaged(f"a part of the record is not {self.tag}: {record!r}")
        if not record.keys() <= self._names:
            unknown = min(record.keys() - self._names)
            raise JournalDamaged(f"{self.tag} has no field {unknown!r} in format {FORMAT}; {_NEWER}")
        if not record.keys() >= self._required:
            missing = min(self._required - record.keys())
            raise JournalDamaged(f"{self.tag} lacks its field {missing!r}")
        for name, convert in self._unpack.items():
            if name in record:
                record[name] = convert(record[name])
        return self._cls(**record)


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """All fields at once. With fewer than two names, `attrgetter` gives no tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda event: (getattr(event, names[0]),)


def _converters(hint: Any) -> tuple[_Convert, _Convert] | None:
    """How a field of this type becomes JSON and comes back; None where JSON holds it as it is."""
    if hint in PARTS:
        form = _part(hint)
        return lambda value: form.pack(value, {}), form.unpack
    if get_origin(hint) is tuple:
        item = _converters(get_args(hint)[0])
        if item is None:
            return list, _listed(lambda value: value)
        pack, unpack = item
        return lambda values: [pack(value) for value in values], _listed(unpack)
    if float in (hint, *get_args(hint)):
        return lambda value: value, _number
    return None


def _listed(convert: _Convert) -> _Convert:
    def unpack(values: Any) -> tuple[Any, ...]:
        if not isinstance(values, list):
            raise JournalDamaged(f"a list is expected where the record has {values!r}")
        return tuple(convert(value) for value in values)

    return unpack


def _number(value: Any) -> Any:
    return float(value) if value in ("nan", "inf", "-inf") else value


def _finite(value: Any) -> Any:
    """The same with NaN and the infinities as strings, which `_number` turns back."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


_PARTS: Final[dict[type[Any], _Form]] = {}


def _part(cls: type[Any]) -> _Form:
    if cls not in _PARTS:
        _PARTS[cls] = _Form(cls, cls.__name__)
    return _PARTS[cls]


_FORMS: Final[dict[type[Any], _Form]] = {cls: _Form(cls, tag) for tag, cls in TAGS.items()}
