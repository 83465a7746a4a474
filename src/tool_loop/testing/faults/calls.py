"""Faults in what a model asks for: calls that are spoiled, repeated, cut, or written as text.

Each changes a reply that has calls, the same way at the port and on the wire, and leaves any other
reply alone. They are what small models really do, and what the failure table has a row for.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tool_loop.events import ModelReplied, ToolCall

from .model import _spoiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from .strike import Fault

IDS: Final = "call_ids"
FIELDS: Final = "invalid_arguments"


def _first_call(name: str, failure: str, change: Callable[[ToolCall], ToolCall | None]) -> Fault:
    """The first call of the reply is another one; its siblings stay as they are."""

    def spoil(reply: ModelReplied) -> ModelReplied | None:
        changed = change(reply.calls[0]) if reply.calls else None
        return replace(reply, calls=(changed, *reply.calls[1:])) if changed else None

    return _spoiled(name, "tool", failure, spoil)


# --- arguments ------------------------------------------------------------------------------------


def bad_json() -> Fault:
    """Arguments whose end is missing."""
    return _first_call("bad_json", "bad_json", lambda call: replace(call, arguments=_torn(call.arguments)))


def _torn(arguments: str) -> str:
    # Inside of a string, so that what every JSON parser says about it is the same in every version.
    at = arguments.rfind('"')
    return arguments[:at] if at > 0 else '{"path": "agent.p'


def _field(name: str, change: Callable[[dict[str, Any]], None]) -> Fault:
    def spoil(call: ToolCall) -> ToolCall | None:
        try:
            fields = json.loads(call.arguments)
        except (ValueError, RecursionError):
            return None
        if not isinstance(fields, dict) or not (fields or name == "unknown_field"):
            return None
        change(fields)
        return replace(call, arguments=json.dumps(fields))

    return _first_call(name, FIELDS, spoil)


def wrong_type() -> Fault:
    """The first argument has a type that it cannot have."""

    def mistype(fields: dict[str, Any]) -> None:
        first = next(iter(fields))
        fields[first] = ["twelve"] if not isinstance(fields[first], list) else 12

    return _field("wrong_type", mistype)


def missing_field() -> Fault:
    """The first argument is left out."""
    return _field("missing_field", lambda fields: fields.pop(next(iter(fields))))


def unknown_field(name: str = "verbosely") -> Fault:
    """One more argument, which no tool has."""
    return _field("unknown_field", lambda fields: fields.update({name: True}))


def arguments(text: str) -> Fault:
    """These arguments, word for word."""
    return _first_call("arguments", FIELDS, lambda call: replace(call, arguments=text))


def argument(name: str, value: Any, failure: str = "") -> Fault:
    """One argument has this value; a call that has no such argument is left alone."""

    def spoil(call: ToolCall) -> ToolCall | None:
        try:
            fields = json.loads(call.arguments)
        except (ValueError, RecursionError):
            return None
        if not isinstance(fields, dict) or name not in fields:
            return None
        return replace(call, arguments=json.dumps(fields | {name: value}))

    return _first_call("argument", failure, spoil)


def unknown_tool(name: str = "serach_files") -> Fault:
    """A call of a tool that there is not."""
    return _first_call("unknown_tool", "unknown_tool", lambda call: replace(call, name=name))


def asks_for(*calls: ToolCall, failure: str = "") -> Fault:
    """These calls, whatever the model asked for."""
    return _spoiled("asks_for", "tool", failure, lambda reply: replace(reply, text="", calls=calls, stop="tool_calls"))


# --- the shape of a reply -------------------------------------------------------------------------


def _calls(name: str, failure: str, change: Callable[[ModelReplied], ModelReplied]) -> Fault:
    return _spoiled(name, "protocol", failure, lambda reply: change(reply) if reply.calls else None)


def missing_ids() -> Fault:
    """Calls without ids."""
    return _calls("missing_ids", IDS, lambda reply: replace(reply, calls=tuple(replace(c, id="") for c in reply.calls)))


def duplicate_ids() -> Fault:
    """Calls that all have the same id; a single call comes twice."""

    def same(reply: ModelReplied) -> ModelReplied:
        calls = reply.calls if len(reply.calls) > 1 else reply.calls * 2
        return replace(reply, calls=tuple(replace(c, id=reply.calls[0].id) for c in calls))

    return _calls("duplicate_ids", IDS, same)


def foreign_ids() -> Fault:
    """Ids with characters that no other provider would take back."""

    def foreign(reply: ModelReplied) -> ModelReplied:
        return replace(
            reply, calls=tuple(replace(c, id=f"functions.{c.name}:{n} ü") for n, c in enumerate(reply.calls))
        )

    return _calls("foreign_ids", IDS, foreign)


def cut_by_length(*, whole: bool = False) -> Fault:
    """A reply cut at the output limit in the middle of its last call, or (`whole`) right behind it."""

    def cut(reply: ModelReplied) -> ModelReplied:
        *before, last = reply.calls
        shown = last if whole else replace(last, arguments=last.arguments[: len(last.arguments) // 2])
        return replace(reply, calls=(*before, shown), stop="length")

    return _calls("cut_by_length", "cut_off", cut)


def call_as_text() -> Fault:
    """The call written as text, as small models do whose template does not fit."""

    def written(reply: ModelReplied) -> ModelReplied:
        call = reply.calls[0]
        text = f'{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}'
        return replace(reply, text=text, calls=(), stop="stop")

    return _calls("call_as_text", "call_as_text", written)


def more_calls(count: int = 3) -> Fault:
    """Every call this many times over, side by side."""

    def more(reply: ModelReplied) -> ModelReplied:
        calls = [replace(c, id=f"{c.id}_{n}") for n in range(count) for c in reply.calls]
        return replace(reply, calls=tuple(calls))

    return _calls("more_calls", "", more)


def same_call() -> Fault:
    """The first call that the model made, again and again, whatever it wants now; place it with `from_step`."""
    kept: list[ModelReplied] = []

    def again(reply: ModelReplied) -> ModelReplied | None:
        if reply.calls and not kept:
            kept.append(reply)
        return replace(kept[0], usage=reply.usage) if kept else None

    fault = _spoiled("same_call", "loop", "repeated_call", again)
    return replace(fault, last_word=False)
