"""Puts one reply of the Anthropic Messages API together, out of a document or a stream of events.

Pure: bytes in, one `ModelReplied` or one `ProviderError` out. A stream is whole once its stop reason
or its last event came. Events, deltas and blocks of unknown types are passed over, but a block is
kept for the provider: thinking goes back with its signature, word for word.

Knows nothing about requests, retries or HTTP.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tool_loop.events import ModelReplied, ReasoningDelta, TextDelta, ToolCall, Usage
from tool_loop.llm.endpoint import parse
from tool_loop.llm.opaque import Keeper
from tool_loop.llm.stops import ending
from tool_loop.llm.text import Joiner, Names, clean
from tool_loop.redaction.secret import printable

if TYPE_CHECKING:
    from tool_loop.llm.errors.failures import ProviderErrors
    from tool_loop.llm.http.sse import SSEEvent
    from tool_loop.ports import Emit

Json: TypeAlias = Any  # what json.loads gave

# Blocks that stand in a user's turn only. A server that puts one into its own would have it refused
# with every later request.
_OF_USERS: Final = frozenset({"tool_result", "image", "document", "search_result"})

# Which field of its block a delta adds to.
_DELTAS: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}


@dataclass(slots=True)
class _Block:
    """A content block while it is being streamed: as it was opened, and what was added since."""

    opened: dict[str, Json] = field(default_factory=dict)
    added: dict[str, list[str]] = field(default_factory=dict)
    citations: list[Json] = field(default_factory=list)

    def whole(self) -> dict[str, Json]:
        block = dict(self.opened)
        for name, pieces in self.added.items():
            if name != "partial_json":
                block[name] = _str(block.get(name)) + "".join(pieces)
        if self.citations:
            known = block.get("citations")
            block["citations"] = [*(known if isinstance(known, list) else ()), *self.citations]
        text = "".join(self.added.get("partial_json", ()))
        if text.strip():
            # The text itself for a call, which need not be JSON; a value for the provider's own tools.
            block["input"] = text if block.get("type") == "tool_use" else parse(text) or block.get("input", {})
        if "type" not in block:
            block["type"] = next((kind for kind in ("text", "thinking") if kind in block), "tool_use")
        return block


class MessagesReply:
    """An `Assembler` for one reply. `last_word` says that tools were withheld: see `reply`."""

    def __init__(self, failures: ProviderErrors, names: Names, *, origin: str, last_word: bool = False) -> None:
        self._failures = failures
        self._names = names
        self._origin = origin
        self._last_word = last_word
        self._blocks: dict[int, _Block] = {}
        self._whole: list[Json] = []
        self._model = ""
        self._reason = ""
        self._stopped = False
        self._counts: dict[str, int] = {}
        self._text = Joiner()
        self._thought = Joiner()

    # --- a stream ---------------------------------------------------------------------------------

    def event(self, event: SSEEvent, emit: Emit) -> bool:
        if event.data.strip() == b"[DONE]":
            return self.complete()
        body = parse(event.data)
        if not isinstance(body, dict):
            raise self._failures.protocol("an event that is not a JSON object", event.data.decode("utf-8", "replace"))
        match _str(body.get("type")) or event.event:
            case "message_start":
                self._head(_dict(body.get("message")))
            case "content_block_start":
                self._block(body).opened = _dict(body.get("content_block"))
            case "content_block_delta":
                self._delta(self._block(body), _dict(body.get("delta")), emit)
            case "message_delta":
                self._reason = _str(_dict(body.get("delta")).get("stop_reason")) or self._reason
                self._count(body.get("usage"))
            case "message_stop":
                self._stopped = True
            case kind if kind == "error" or body.get("error"):
                raise self._failures.inside(body, tokens=self._tokens())
            case _:
                pass  # a ping, or an event of a later version
        return self._stopped

    def _block(self, body: dict[str, Json]) -> _Block:
        index = body.get("index")
        return self._blocks.setdefault(index if type(index) is int else 0, _Block())

    def _delta(self, block: _Block, delta: dict[str, Json], emit: Emit) -> None:
        kind = _str(delta.get("type"))
        name = _DELTAS.get(kind, "")
        piece = _str(delta.get(name))
        if kind == "citations_delta" and "citation" in delta:
            block.citations.append(delta["citation"])
        elif piece:
            block.added.setdefault(name, []).append(piece)
            if name == "text" and (shown := self._text.shown(piece)):
                emit(TextDelta(shown))
            elif name == "thinking" and (shown := self._thought.shown(piece)):
                emit(ReasoningDelta(shown))

    def complete(self) -> bool:
        return self._stopped or bool(self._reason)

    # --- a document ---------------------------------------------------------------------------------

    def document(self, body: Json) -> None:
        content = body.get("content") if isinstance(body, dict) else None
        if isinstance(content, list):
            self._head(body)
            self._whole = content
            self._stopped = True
        elif isinstance(body, dict) and (body.get("error") or body.get("type") == "error" or "detail" in body):
            raise self._failures.inside(body)
        else:
            raise self._failures.protocol("a message without content", json.dumps(body)[:4096])

    def _head(self, message: dict[str, Json]) -> None:
        self._model = _str(message.get("model"))
        self._reason = _str(message.get("stop_reason"))
        self._count(message.get("usage"))

    # --- tokens -------------------------------------------------------------------------------------

    def _count(self, usage: Json) -> None:
        """The counts are running totals, and some servers send zeros first or last: the largest is the truth."""
        for name, value in _dict(usage).items():
            if type(value) is int and 0 <= value < 10**12:
                self._counts[name] = max(value, self._counts.get(name, 0))

    def _usage(self) -> Usage:
        counts = self._counts
        cached, written = counts.get("cache_read_input_tokens"), counts.get("cache_creation_input_tokens")
        fresh = counts.get("input_tokens")
        # This provider counts what came from the cache beside the input, `Usage` counts it as a part.
        known = None if fresh is None else fresh + (cached or 0) + (written or 0)
        return Usage(known, counts.get("output_tokens"), cached, written)

    def _tokens(self) -> int:
        usage = self._usage()
        return (usage.input or 0) + (usage.output or 0)

    # --- the reply ----------------------------------------------------------------------------------

    def reply(self) -> ModelReplied:
        """The reply. Raises a retryable error for a call without a name, and for an answer of nothing.

        An empty last word is no error: the loop answers from the record, which costs nothing.
        """
        keeper = Keeper()
        texts: list[str] = []
        thoughts: list[str] = []
        calls: list[ToolCall] = []
        end = ending(self._reason)
        stop = end.stop
        if stop == "failed":
            raise self._failures.turn_failed(self._reason, end.kind, tokens=self._tokens())
        for block in self._content():
            match block.get("type"):
                case "text":
                    said = clean(_str(block.get("text")))
                    texts.append(said)
                    keeper.text(said, **({"citations": block["citations"]} if block.get("citations") else {}))
                case "tool_use":
                    calls.append(self._call(block))
                    keeper.call()
                case "thinking" if stop == "length" and not block.get("signature"):
                    thoughts.append(_str(block.get("thinking")))  # cut before it was signed: refused if sent
                case str(kind) if kind not in _OF_USERS:
                    thoughts += [_str(block.get("thinking"))] if kind == "thinking" else []
                    keeper.item(block)
        text = "".join(texts)
        if stop in ("refusal", "content_filter"):
            calls.clear()  # nothing of a turn that was stopped half-way may run
        if stop == "stop" and calls:
            stop = "tool_calls"
        if stop == "stop" and not text.strip() and not self._last_word:
            raise self._failures.empty(tokens=self._tokens())
        return ModelReplied(
            text,
            tuple(calls),
            stop,
            self._usage(),
            self._model,
            self._origin,
            keeper.opaque,
            clean("\n".join(thoughts)),
            finish="" if end.known else printable(self._reason, 80),
        )

    def _content(self) -> list[dict[str, Json]]:
        streamed = (self._blocks[index].whole() for index in sorted(self._blocks))
        return [block for block in (*self._whole, *streamed) if isinstance(block, dict)]

    def _call(self, block: dict[str, Json]) -> ToolCall:
        name = _str(block.get("name")).strip()
        if not name:
            raise self._failures.protocol("a tool call without a name", json.dumps(block)[:4096], tokens=self._tokens())
        given = block.get("input")
        arguments = given if isinstance(given, str) else json.dumps({} if given is None else given, ensure_ascii=False)
        return ToolCall(clean(_str(block.get("id"))), self._names.ours(clean(name)), clean(arguments))


def _dict(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _str(value: Json) -> str:
    return value if isinstance(value, str) else ""
