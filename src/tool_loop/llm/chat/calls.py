"""Finds which piece of a streamed tool call belongs to which call. Pure.

The standard way (an index on each piece, the id on the first) is kept by few: pieces come without
index, all with index 0, with the name repeated, cut in two, or sent after the arguments, with ids
that are null, blank or new on each piece. The rules here are the smallest that read all of them.

Knows nothing about chunks, choices or what the arguments mean.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tool_loop.events import ToolCall
from tool_loop.llm.text import Pieces, clean, fits, kept

from .parts import overlaid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tool_loop.llm.text import Names

Json: TypeAlias = Any

# What a provider attaches to a call and wants back with it, under this very key.
_WANTED: Final = ("extra_content", "thought_signature", "provider_specific_fields")

_MOST: Final = 1024  # calls of one turn; a stream that opens calls for ever must not fill the memory


class _CallSlot:
    __slots__ = ("extras", "id", "index", "name", "pieces")

    def __init__(self, index: int | None) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.pieces = Pieces()
        self.extras: dict[str, Json] = {}

    def arguments(self) -> str:
        return str(self.pieces)

    def whole(self) -> bool:
        """Whether the arguments are complete, so that a further name can only begin another call."""
        text = self.arguments().strip()
        if not text.endswith("}"):
            return False
        try:
            return isinstance(json.loads(text), dict)
        except (ValueError, RecursionError):
            return False


class Calls:
    """The calls of one reply, growing piece by piece."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._slots: list[_CallSlot] = []
        self._by_index: dict[int, _CallSlot] = {}

    def __bool__(self) -> bool:
        return bool(self._slots)

    def take(self, pieces: Sequence[Json], *, whole: bool = False) -> None:
        """The `tool_calls` of one delta; with `whole` each is a call of its own, as in a document."""
        touched: list[_CallSlot] = []
        alone = len(pieces) == 1
        for piece in pieces:
            if not isinstance(piece, dict):
                continue
            function = piece.get("function")
            if not isinstance(function, dict):
                # The call laid flat, and calls to free-form tools.
                custom = piece.get("custom")
                function = custom if isinstance(custom, dict) else piece
            call_id, name = _text(piece.get("id")), _text(function.get("name"))
            arguments = function.get("arguments", function.get("input"))
            index = _index(piece.get("index"))
            slot = None
            if not whole and self._slots:
                slot = self._named_by(index, call_id, name, None if alone else len(touched))
                if slot is not None and self._begins(slot, call_id, name, arguments, again=slot in touched):
                    slot = None
            slot = slot or self._open(index)
            touched.append(slot)
            self._fill(slot, call_id, name, arguments)
            for key in _WANTED:
                if piece.get(key):
                    slot.extras[key] = _with(slot.extras.get(key), piece[key])

    def legacy(self, call: dict[str, Json]) -> None:
        """The `function_call` that was there before `tool_calls`; blank where a server always sends it."""
        name, arguments = _text(call.get("name")), call.get("arguments")
        if name or arguments:
            self._fill(self._by_index.get(0) or self._open(0), "", name, arguments)

    def finished(self) -> tuple[tuple[ToolCall, ...], bool]:
        """The calls in the order they began, and whether one of them has no name."""
        slots = [slot for slot in self._slots if slot.name or slot.id or slot.pieces]
        # An id and nothing else, after a call that is there, is a last sign of life of that call.
        if any(slot.name for slot in slots):
            slots = [slot for slot in slots if slot.name or slot.arguments().strip()]
        calls = tuple(self._call(slot) for slot in slots if slot.name)
        return calls, len(calls) < len(slots)

    def _open(self, index: int | None) -> _CallSlot:
        slot = _CallSlot(index)
        if len(self._slots) < _MOST:
            self._slots.append(slot)
        if index is not None:
            self._by_index[index] = slot
        return slot

    def _named_by(self, index: int | None, call_id: str, name: str, position: int | None) -> _CallSlot | None:
        """The slot a piece says it belongs to: by its index, else its id, else its place in the delta."""
        known = next((slot for slot in reversed(self._slots) if slot.id == call_id), None) if call_id else None
        if index is not None:
            # Only a call that began without an index can go on under one that nobody had.
            began = known if known is not None and known.index is None else None
            found = self._by_index.get(index) or began
            return found or (None if call_id or name else self._slots[-1])
        if call_id:
            # A new id opens a call; without a name it is one more id for the call at hand.
            return known or (None if name else self._slots[-1])
        if position is None:
            return self._slots[-1]
        return self._slots[position] if position < len(self._slots) else None

    def _begins(self, slot: _CallSlot, call_id: str, name: str, arguments: Json, *, again: bool) -> bool:
        """Whether a piece begins another call, although it names the slot of one."""
        if not name or (call_id and call_id == slot.id):
            return False
        if call_id and slot.id:
            return True
        if not slot.name:
            return False
        blank = isinstance(arguments, str) and not arguments.strip()
        if again or (arguments and not blank and slot.whole()):
            return True
        # No id tells them apart. Two names of real tools are two calls, unless the first grew into the second.
        both = name != slot.name and slot.name in self._names.known and name in self._names.known
        return both and (bool(slot.pieces) or not name.startswith(slot.name))

    def _fill(self, slot: _CallSlot, call_id: str, name: str, arguments: Json) -> None:
        if slot.id and slot.id == call_id and name and arguments and arguments == slot.arguments():
            return  # the whole call once more, in the last piece of the stream
        slot.id = slot.id or call_id
        if name and name != slot.name:
            slot.name = self._longer(slot.name, name)
        if isinstance(arguments, str):
            if arguments:
                slot.pieces.add(arguments)
        elif isinstance(arguments, dict):
            # An object is never a piece: a server that has one sends it whole, and maybe again.
            slot.pieces.set(json.dumps(arguments, ensure_ascii=False))
        elif arguments is not None:
            slot.pieces.add(json.dumps(arguments, ensure_ascii=False))

    def _longer(self, before: str, piece: str) -> str:
        """A name that comes in pieces, or grows from piece to piece."""
        if before + piece not in self._names.known and (piece in self._names.known or piece.startswith(before)):
            return piece
        return before + piece

    def _call(self, slot: _CallSlot) -> ToolCall:
        name, _, leaked = slot.name.partition("<|")
        if leaked and name in self._names.known:
            slot.name = name  # the model's control tokens leaked into the name of a real tool
        arguments = clean(slot.arguments())
        if arguments.strip() in ("", "null"):
            arguments = "{}"
        call_id = clean(slot.id)
        extras = dict(slot.extras)
        if call_id:
            # The history may need an id of ours in its place; to the provider goes its own.
            extras["id"] = call_id
        opaque = kept(extras) if _worth_keeping(extras, call_id) else ""
        return ToolCall(call_id, self._names.ours(clean(slot.name)), arguments, opaque)


def _with(before: Json, piece: Json) -> Json:
    return overlaid(before, piece) if isinstance(before, dict) and isinstance(piece, dict) else piece


def _worth_keeping(extras: dict[str, Json], call_id: str) -> bool:
    """Our record keeps plain ids as they are, so only an odd one has to be remembered."""
    return len(extras) > bool(call_id) or (bool(call_id) and not fits(call_id))


def _text(value: Json) -> str:
    """A text that says something: null, "" and blanks are absent, a number is its digits."""
    if isinstance(value, str):
        return value if value.strip() else ""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def _index(value: Json) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value[:9])
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
