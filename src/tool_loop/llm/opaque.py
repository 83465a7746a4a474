"""What a provider wants back with a turn, kept so that the turn can be put together again as it came.

A turn is text and calls, and from some providers also items that only they can read: encrypted
reasoning, signed thinking, results of their own tools. Where these stand between the text and the
calls matters to them. The text and the calls are on record anyway, so only the rest is kept, and the
order: a JSON list in which a number stands for so many characters of the text, null for the next
call, and an object for itself. A pair is a number with further fields of that text.

Knows nothing about what is in the items; the dialects decide which ones are kept.
"""

from __future__ import annotations

import json
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

from tool_loop.events import ToolCall
from tool_loop.records import dataclass
from tool_loop.runtime.strict import finite, no_constant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tool_loop.transcript import AssistantMessage

Json: TypeAlias = Any  # an item of the provider's own: never looked into, only sent back


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the visible text, with the fields its provider had put on it."""

    text: str
    fields: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Item:
    """Something of the provider's own, word for word."""

    value: Json


Part: TypeAlias = Text | ToolCall | Item


class Keeper:
    """Notes the parts of a reply in their order. `opaque` is "" when text and calls say it all."""

    __slots__ = ("_needed", "_notes")

    def __init__(self) -> None:
        self._notes: list[Json] = []
        self._needed = False

    def text(self, text: str, **fields: Json) -> None:
        self._notes.append([len(text), fields] if fields else len(text))
        self._needed = self._needed or bool(fields)

    def call(self) -> None:
        self._notes.append(None)

    def item(self, value: dict[str, Json]) -> None:
        self._notes.append(value)
        self._needed = True

    @property
    def opaque(self) -> str:
        # ASCII on purpose: a lone surrogate in an item would make the journal's line no UTF-8. What is
        # no JSON (NaN) or too deep to be written could not be sent back either.
        try:
            return json.dumps(self._notes, separators=(",", ":"), allow_nan=False) if self._needed else ""
        except (ValueError, RecursionError):
            return ""


def parts(message: AssistantMessage, origin: str) -> list[Part]:
    """The turn as it is sent: with the provider's own items only to the `origin` they came from.

    To all others, and when the notes do not fit the turn, it is the text and then the calls.
    """
    plain: list[Part] = [Text(message.text)] if message.text else []
    plain += message.calls
    if not message.opaque or message.origin != origin:
        return plain
    found = _woven(message)
    return plain if found is None else found


def led_out(found: list[Part], *kinds: str) -> list[Part]:
    """The parts without items of these kinds at their end, where nothing follows that they lead to."""
    end = len(found)
    while end and _leads_nowhere(found[end - 1], kinds):
        end -= 1
    return found[:end]


def _leads_nowhere(part: Part, kinds: tuple[str, ...]) -> bool:
    match part:
        case Item(value):
            return value.get("type") in kinds
        case Text(text):
            return not text.strip()
        case _:
            return False


def said(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """An object without its nulls, which say nothing: a key that a server gives out with null it may
    still refuse as unknown, and takes a key that is missing."""
    return {key: value for key, value in pairs if value is not None}


def _woven(message: AssistantMessage) -> list[Part] | None:
    try:
        notes = json.loads(message.opaque, parse_constant=no_constant, parse_float=finite, object_pairs_hook=said)
    except (ValueError, RecursionError):
        return None
    found: list[Part] = []
    at, calls = 0, iter(message.calls)
    for note in notes if isinstance(notes, list) else ():
        match note:
            case int(size) if size >= 0:
                found.append(Text(message.text[at : at + size]))
                at += size
            case [int(size), dict(fields)] if size >= 0:
                found.append(Text(message.text[at : at + size], fields))
                at += size
            case None:
                call = next(calls, None)
                if call is None:
                    return None
                found.append(call)
            case dict(value):
                found.append(Item(value))
            case _:
                return None
    # Notes that leave something out would lose a call whose result follows: the provider refuses that.
    return found if at == len(message.text) and next(calls, None) is None else None
