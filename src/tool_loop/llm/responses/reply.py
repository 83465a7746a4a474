"""Puts one reply of the Responses API together, out of a document or out of a stream of events.

Pure: bytes in, one `ModelReplied` or one `ProviderError` out. A stream is whole only with its
terminal event; what it holds counts for more than the pieces before it, which fill in where a server
leaves the terminal event's list empty. Events and items of unknown types are passed over.

Knows nothing about requests, retries or HTTP.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tool_loop.events import ModelReplied, ReasoningDelta, Stop, TextDelta, ToolCall
from tool_loop.llm.chat.parts import overlaid, read_usage
from tool_loop.llm.endpoint import parse
from tool_loop.llm.opaque import Keeper
from tool_loop.llm.stops import ReplyEnding, ending
from tool_loop.llm.text import Joiner, Names, clean
from tool_loop.redaction.secret import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tool_loop.llm.errors.failures import ProviderErrors
    from tool_loop.llm.http.sse import SSEEvent
    from tool_loop.ports import Emit

Json: TypeAlias = Any  # what json.loads gave

# How a response can end. "done" is what some gateways say for "completed".
_ENDS: Final = {
    "response.completed": "completed",
    "response.done": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
    "response.canceled": "cancelled",
}
_REASONING: Final = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")


@dataclass(slots=True)
class _ItemSlot:
    """One item of the output while it is being streamed; `item` is as it was last seen whole."""

    item: dict[str, Json] = field(default_factory=dict)
    done: bool = False
    text: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    all_arguments: str | None = None

    def whole(self) -> dict[str, Json]:
        """The item, put together from its pieces where its end was never announced."""
        if self.done:
            return self.item
        kind = _str(self.item.get("type")) or ("function_call" if self.arguments else "message")
        if kind == "function_call":
            text = "".join(self.arguments) if self.all_arguments is None else self.all_arguments
            return self.item | {"type": kind, "arguments": text or self.item.get("arguments")}
        if kind == "message" and (self.text or self.refusal):
            said = [{"type": "output_text", "text": "".join(self.text)}] if self.text else []
            refused = [{"type": "refusal", "refusal": "".join(self.refusal)}] if self.refusal else []
            return self.item | {"type": kind, "content": [*said, *refused]}
        return self.item


@dataclass(slots=True)
class _Parts:
    """What the items of a response come to."""

    keeper: Keeper = field(default_factory=Keeper)
    text: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)


class ResponsesReply:
    """An `Assembler` for one reply.

    `origin` is put on the reply, `names` leads from the names on the wire to those of the tools.
    `most` is the number of tokens the reply was allowed.
    """

    def __init__(self, failures: ProviderErrors, names: Names, *, origin: str, most: int | None = None) -> None:
        self._failures = failures
        self._names = names
        self._origin = origin
        self._most = most
        self._slots: dict[int | str, _ItemSlot] = {}
        self._response: dict[str, Json] = {}
        self._status = ""
        self._text = Joiner()
        self._thought = Joiner()

    # --- a stream ---------------------------------------------------------------------------------

    def event(self, event: SSEEvent, emit: Emit) -> bool:
        if event.data.strip() == b"[DONE]":
            return self.complete()  # a habit of gateways; not this dialect's end, so alone it proves nothing
        body = parse(event.data)
        if not isinstance(body, dict):
            raise self._failures.protocol("an event that is not a JSON object", event.data.decode("utf-8", "replace"))
        kind = _str(body.get("type")) or event.event
        if kind in _ENDS:
            self._end(_dict(body.get("response")), _ENDS[kind])
            return True
        if kind == "error" or body.get("error"):
            raise self._failures.inside(body, tokens=self._tokens())
        self._piece(kind, body, emit)
        return False

    def _piece(self, kind: str, body: dict[str, Json], emit: Emit) -> None:
        delta = body.get("delta")
        if kind in ("response.created", "response.in_progress"):
            self._response = _dict(body.get("response"))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            slot = self._slot(body)
            item = _dict(body.get("item"))
            slot.item = overlaid(slot.item if slot.item.get("type") == item.get("type") else {}, item) or slot.item
            slot.done = kind.endswith("done")
        elif kind == "response.function_call_arguments.done":
            whole = body.get("arguments")
            self._slot(body).all_arguments = whole if isinstance(whole, str) else None
        elif not isinstance(delta, str) or not delta:
            pass
        elif kind == "response.output_text.delta":
            self._slot(body).text.append(delta)
            _show(TextDelta, self._text.shown(delta), emit)
        elif kind == "response.refusal.delta":
            self._slot(body).refusal.append(delta)
            _show(TextDelta, self._text.shown(delta), emit)
        elif kind == "response.function_call_arguments.delta":
            self._slot(body).arguments.append(delta)
        elif kind in _REASONING:
            _show(ReasoningDelta, self._thought.shown(delta), emit)

    def _slot(self, body: dict[str, Json]) -> _ItemSlot:
        """By place, else by id. Some gateways change an item's id between its events, none its place."""
        key = body.get("output_index")
        if type(key) is not int:
            key = _str(body.get("item_id")) or _str(_dict(body.get("item")).get("id"))
        return self._slots.setdefault(key, _ItemSlot())

    # --- a document, and the end of a stream --------------------------------------------------------

    def document(self, body: Json) -> None:
        if not isinstance(body, dict):
            raise self._failures.protocol("something that is not a response", json.dumps(body)[:4096])
        output = body.get("output")
        if isinstance(output, list):
            self._end(body, _str(body.get("status")) or "completed")
        elif body.get("error") or "detail" in body or body.get("status") == "failed":
            raise self._failures.inside(body)
        else:
            raise self._failures.protocol("a response without output", json.dumps(body)[:4096])

    def _end(self, response: dict[str, Json], status: str) -> None:
        self._response = self._response | response
        self._status = _str(self._response.get("status")) if status == "completed" else status
        self._status = self._status if self._status not in ("", "in_progress") else status
        error = self._response.get("error")
        if error or self._status == "failed":
            body = {"error": error or {"code": "server_error", "message": "the response failed, without a reason"}}
            raise self._failures.inside(body, tokens=self._tokens())
        if self._status in ("queued", "pending", "in_progress", "cancelled"):
            raise self._failures.protocol(f"a response that is {self._status!r}", tokens=self._tokens())

    def complete(self) -> bool:
        return bool(self._status)

    def _tokens(self) -> int:
        usage = read_usage(_dict(self._response.get("usage")))
        return (usage.input or 0) + (usage.output or 0)

    # --- the reply --------------------------------------------------------------------------------

    def reply(self) -> ModelReplied:
        """The reply. Raises a retryable error for a call without a name, and for an answer of nothing."""
        found = _Parts()
        for item in self._items():
            self._take(item, found)
        end = self._ending()
        if end.stop == "failed":
            raise self._failures.turn_failed(self._reason(), end.kind, tokens=self._tokens())
        stop = self._stop(end.stop, found)
        if stop == "content_filter":
            found.calls.clear()  # nothing of a turn that was stopped half-way may run
        text, refusal = clean("".join(found.text)), clean("".join(found.refusal))
        if stop == "stop" and not text.strip():
            raise self._failures.empty(tokens=self._tokens(), why="only reasoning" if found.reasoning else "")
        return ModelReplied(
            # A refusal is what the person gets to read: an empty answer would hide it.
            text or refusal,
            tuple(found.calls),
            stop,
            read_usage(_dict(self._response.get("usage"))),
            _str(self._response.get("model")),
            self._origin,
            found.keeper.opaque,
            clean("\n".join(found.reasoning)),
            finish="" if end.known else printable(self._reason(), 80),
        )

    def _items(self) -> list[dict[str, Json]]:
        output = self._response.get("output")
        final = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
        if len(final) >= len(self._slots):
            # Some gateways leave out of the last event what they had sent before: signatures, above all.
            return [self._filled(place, item) for place, item in enumerate(final)]
        # Gateways that forget the list in their last event have sent its items one by one.
        places = sorted(self._slots, key=lambda key: (isinstance(key, str), key if type(key) is int else 0))
        return [self._slots[key].whole() for key in places]

    def _filled(self, place: int, item: dict[str, Json]) -> dict[str, Json]:
        slot = self._slots.get(place)
        if item.get("type") != "reasoning" or slot is None or slot.item.get("type") != "reasoning":
            return item
        same = not item.get("id") or item["id"] == slot.item.get("id")
        return overlaid(slot.item, item) if same else item

    def _take(self, item: dict[str, Json], found: _Parts) -> None:
        match item.get("type"):
            case "message":
                self._take_message(item, found)
            case "function_call":
                found.calls.append(self._call(item))
                found.keeper.call()
            case "reasoning":
                found.reasoning += _reasoning(item)
                if item.get("encrypted_content") or item.get("content"):
                    # Without either it is only a reference to what the server was told not to store.
                    found.keeper.item(item)
            case str(kind) if not kind.endswith("_output") and kind != "item_reference":
                found.keeper.item(item)
            case _:
                pass  # a result of a call is ours to send, and a reference leads to what was not stored

    def _take_message(self, item: dict[str, Json], found: _Parts) -> None:
        content = item.get("content")
        if isinstance(content, str):
            content = [{"type": "output_text", "text": content}]
        parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
        said = clean("".join(_str(part.get("text")) for part in parts if part.get("type") in ("output_text", "text")))
        found.refusal += [_str(part.get("refusal")) for part in parts if part.get("type") == "refusal"]
        if said:
            found.text.append(said)
            # "commentary" or "final_answer": a model that is not told its own mistakes one for the other.
            phase = _str(item.get("phase"))
            found.keeper.text(said, **({"phase": phase} if phase else {}))

    def _call(self, item: dict[str, Json]) -> ToolCall:
        name = _str(item.get("name")).strip()
        if not name:
            raise self._failures.protocol("a tool call without a name", json.dumps(item)[:4096], tokens=self._tokens())
        arguments = item.get("arguments")
        if not isinstance(arguments, str):
            arguments = "" if arguments is None else json.dumps(arguments, ensure_ascii=False)
        ident = _str(item.get("call_id")) or _str(item.get("id"))
        return ToolCall(clean(ident), self._names.ours(clean(name)), clean(arguments))

    def _reason(self) -> str:
        """Why it ended, as far as its server says more than whether it was completed."""
        reason = _str(_dict(self._response.get("incomplete_details")).get("reason"))
        return reason or ("" if self._status in ("completed", "incomplete") else self._status)

    def _ending(self) -> ReplyEnding:
        found = ending(self._reason())
        # Incomplete for whatever reason is cut.
        return found._replace(stop="length") if self._status == "incomplete" and found.stop == "stop" else found

    def _stop(self, stop: Stop, found: _Parts) -> Stop:
        used = read_usage(_dict(self._response.get("usage"))).output
        if stop == "stop" and self._most and used is not None and used >= self._most:
            return "length"  # llama.cpp calls a reply completed that it has cut, and half a call too
        if stop == "stop" and any(found.refusal) and not found.calls:
            return "refusal"
        return "tool_calls" if found.calls and stop in ("stop", "pause") else stop


def _reasoning(item: dict[str, Json]) -> Iterator[str]:
    """The words of a reasoning item: its summary, or what it is the summary of."""
    for place in ("summary", "content"):
        parts = item.get(place)
        texts = [_str(_dict(part).get("text")) for part in parts] if isinstance(parts, list) else []
        if any(texts):
            yield from texts
            return


def _show(signal: type[TextDelta | ReasoningDelta], text: str, emit: Emit) -> None:
    if text:
        emit(signal(text))


def _dict(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _str(value: Json) -> str:
    return value if isinstance(value, str) else ""
