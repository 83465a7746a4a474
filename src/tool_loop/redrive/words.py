"""What differs between a record and what today's code would have written, in words.

Pure; knows nothing about how a run is driven again.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Set as AbstractSet
from dataclasses import fields
from typing import Final

from tool_loop.console.describe import full
from tool_loop.events import (
    ApprovalRequested,
    Event,
    IntentRecorded,
    LimitReached,
    ModelReplied,
    RunEnded,
    ToolReturned,
)
from tool_loop.transcript import clip

_MOST_LINES: Final = 30


def changed(recorded: Event, now: Event, unknown: AbstractSet[str]) -> str:
    """Field by field, `-` as recorded and `+` now; "" when only `unknown` fields differ."""
    lines: list[str] = []
    for field in fields(recorded):
        was, is_ = getattr(recorded, field.name), getattr(now, field.name)
        if was == is_ or field.name in unknown:
            continue
        if isinstance(was, str) and isinstance(is_, str) and ("\n" in was or "\n" in is_):
            diff = difflib.unified_diff(was.split("\n"), is_.split("\n"), n=1, lineterm="")
            lines += [f"  {field.name}:", *list(diff)[2:]]
        else:
            lines += [f"- {field.name}: {was}", f"+ {field.name}: {is_}"]
    more = [f"... and {len(lines) - _MOST_LINES} more lines"] if len(lines) > _MOST_LINES else []
    return "\n".join([*lines[:_MOST_LINES], *more])


def called(event: Event, names: Mapping[str, str]) -> str:
    """What the event is, as in: the result of grep would be another."""
    if isinstance(event, ToolReturned):
        return f"the result of {names.get(event.call_id, event.call_id)}"
    return _NAMES.get(type(event).__name__, type(event).__name__)


_NAMES: Final = {
    "ModelReplied": "the reply",
    "RunEnded": "the end",
    "Compacted": "the compaction",
    "LimitReached": "the limit",
    "ApprovalRequested": "what a person is asked",
    "IntentRecorded": "the calls that must run once",
    "Reminded": "the reminder",
    "RunInterrupted": "the interruption",
}


def described(event: Event, names: Mapping[str, str]) -> str:
    """An event in a few words; `names` has the tool of each call."""
    match event:
        case ModelReplied():
            calls = " ".join(f"-> {call.name} {call.arguments}" for call in event.calls)
            return _short(f"the model is asked, and says: {event.text} {calls}")
        case ToolReturned():
            return _short(f"{names.get(event.call_id, event.call_id)} returns: {event.content}")
        case IntentRecorded():
            return f"these must run once, and are run: {_named(event.call_ids or event.approved, names)}"
        case ApprovalRequested():
            return f"a person is asked about: {_named([r.call_id for r in event.requests], names)}"
        case LimitReached(limit=limit):
            return f"it stops: {limit}"
        case RunEnded():
            return _short(f"it ends ({event.reason}): {event.answer}")
        case _:
            sections = full(event, {}, 0)
            return _short("; ".join(f"{section.heading} {section.body}" for section in sections))


def _named(call_ids: Iterable[str], names: Mapping[str, str]) -> str:
    return ", ".join(f"{names.get(call_id, '?')} ({call_id})" for call_id in call_ids)


def _short(text: str) -> str:
    return clip(text, 300)
