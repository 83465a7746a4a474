"""Puts one chat completion together, from a document or from the chunks of a stream. Pure.

Servers that call themselves compatible differ in every place where this file has a branch; each was
seen in recorded traffic or reported with its bytes (the cases are in the tests' corpus). What is no
reply at all becomes a `ProviderError`; a cut stream never becomes half a message.

Knows nothing about HTTP. How the pieces of calls find each other is in calls.py.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tool_loop.events import ModelReplied, ReasoningDelta, TextDelta, Usage
from tool_loop.llm.endpoint import parse
from tool_loop.llm.http.sse import SSEEvent
from tool_loop.llm.stops import ending
from tool_loop.llm.text import Joiner, Pieces, clean, kept
from tool_loop.redaction.secret import printable

from .calls import Calls
from .parts import flat, is_error, joined, read_usage, timed_usage, whole

if TYPE_CHECKING:
    from tool_loop.llm.errors.failures import ProviderErrors
    from tool_loop.llm.text import Names
    from tool_loop.ports import Emit

Json: TypeAlias = Any  # a parsed chunk; everything of it that stays becomes one of our types

# What a provider attaches to a turn and wants back, under this very key. Reasoning as plain text is
# wanted with calls (DeepSeek and Kimi refuse the turn without it) and is dead weight otherwise.
_WANTED: Final = ("reasoning_details", "extra_content", "thinking_blocks", "reasoning_opaque", "thought_signature")
_WANTED_WITH_CALLS: Final = ("reasoning_content", "reasoning")
ATTACHED: Final = (*_WANTED, *_WANTED_WITH_CALLS)

# Names of events that carry no chunk; some have data that is not JSON.
_SIGNS_OF_LIFE: Final = frozenset({"ping", "heartbeat", "keepalive", "keep-alive", "keep_alive"})


class ChatReply:
    """An `Assembler` for chat completions.

    `origin` is put on the reply, `names` leads from the names on the wire to those of the tools.
    """

    def __init__(self, failures: ProviderErrors, origin: str, names: Names) -> None:
        self._failures = failures
        self._origin = origin
        self._text = Pieces()
        self._reasoning = Pieces()
        self._refusal = Pieces()
        self._calls = Calls(names)
        self._extras: dict[str, Json] = {}
        self._usage = Usage()
        self._model = ""
        self._finish: str | None = None
        self._started = False
        self._done = False
        self._joiner = Joiner()

    # --- in ---------------------------------------------------------------------------------------

    def event(self, event: SSEEvent, emit: Emit) -> bool:
        data = event.data
        if data[:1] != b"{":
            data = data.strip()
            if not data or event.event in _SIGNS_OF_LIFE:
                return False
            if data.strip(b'"') == b"[DONE]":
                self._done = True
                return True
        chunk = parse(data)
        if not isinstance(chunk, dict):
            lines = data.split(b"\n")
            if len(lines) > 1 and chunk is None:
                # Events without the blank line between them arrive as the lines of one.
                return any(self.event(SSEEvent(event.event, line), emit) for line in lines)
            if data == b"null":
                return False
            raise self._no_chunk(event, chunk)
        choice = self._choice(chunk, named=event.event)
        if choice is not None:
            self._delta(choice, emit)
        return False

    def document(self, body: Json) -> None:
        if isinstance(body, list) and len(body) == 1:
            body = body[0]
        if not isinstance(body, dict):
            raise self._failures.protocol("JSON that is no object", json.dumps(body)[:400])
        choice = self._choice(body)
        if choice is None:
            raise self._failures.protocol("no choices", json.dumps(body)[:400], tokens=self._spent())
        message = choice.get("message")
        if message is None:
            # Text completions, and servers that answer with a single chunk.
            message = choice.get("delta") or ({"content": choice["text"]} if "text" in choice else None)
        self._take(message if isinstance(message, dict) else {}, _silent, whole=True)
        self._done = True

    def complete(self) -> bool:
        return self._done or self._finish is not None

    # --- one chunk --------------------------------------------------------------------------------

    def _choice(self, body: dict[str, Json], named: str = "") -> dict[str, Json] | None:  # noqa: C901 - one field after the other
        """Choice 0 of a chunk or a document, after a look at everything that stands beside it."""
        error = body.get("error")
        if error or named == "error":
            if ending(self._finish or "").stop == "length":
                # One router reports the limit a second time, as an error. The reply is here, and cut.
                self._count(body.get("usage"))
                return None
            raise self._failures.inside(body, tokens=self._spent())
        choices = body.get("choices")
        if not choices and is_error(body):
            raise self._failures.inside(body, tokens=self._spent())
        model = body.get("model")
        if model and isinstance(model, str):
            self._model = model
        groq = body.get("x_groq")
        if isinstance(groq, dict):
            self._count(groq.get("usage"))
            if groq.get("error"):
                raise self._failures.inside(groq, tokens=self._spent())
        if usage := body.get("usage"):
            self._count(usage)
        timings = body.get("timings")
        if timings and self._usage.input is None:
            self._usage = timed_usage(timings)
        if isinstance(choices, dict):
            choices = [choices]
        if not isinstance(choices, list):
            return None
        found = next((c for c in choices if isinstance(c, dict) and c.get("index") in (0, None, "0")), None)
        if found is None:
            return None
        if usage := found.get("usage"):
            self._count(usage)
        if found.get("error"):
            raise self._failures.inside(found, tokens=self._spent())
        self._started = True
        finish = found.get("finish_reason")
        if finish is not None:
            self._finish = str(finish.get("type", "") if isinstance(finish, dict) else finish)
        return found

    def _delta(self, choice: dict[str, Json], emit: Emit) -> None:
        delta = choice.get("delta")
        if isinstance(delta, dict):
            self._take(delta, emit)
            return
        message = choice.get("message")
        # Some end with the whole message once more; only where nothing else came it is the message.
        if isinstance(message, dict) and not (self._text or self._refusal or self._calls):
            self._take(message, emit)
        elif isinstance(text := choice.get("text"), str):
            self._take({"content": text}, emit)

    def _take(self, message: dict[str, Json], emit: Emit, *, whole: bool = False) -> None:
        content = message.get("content")
        if content:
            self._content(content, emit)
        calls = message.get("tool_calls")
        if calls:
            self._calls.take(calls if isinstance(calls, list) else [calls], whole=whole)
        legacy = message.get("function_call")
        if isinstance(legacy, dict) and not calls:
            self._calls.legacy(legacy)
        # The usual piece has nothing else, and a reply has a hundred of them.
        if len(message) > ("content" in message) + ("role" in message) + ("tool_calls" in message):
            self._beside(message, emit)

    def _content(self, content: Json, emit: Emit) -> None:
        if isinstance(content, str):
            self._say(content, emit)
        elif isinstance(content, list):
            for part in content:
                self._part(part, emit)
        else:
            # One provider puts the object there when a schema was asked for.
            self._say(json.dumps(content, ensure_ascii=False), emit)

    def _part(self, part: Json, emit: Emit) -> None:
        if isinstance(part, str):
            self._say(part, emit)
        if not isinstance(part, dict):
            return
        kind = str(part.get("type", "text"))
        if "text" in kind:
            self._say(flat(part.get("text")), emit)
        elif kind in ("thinking", "reasoning"):
            self._think(flat(part.get("thinking") or part.get("reasoning") or part.get("text")), emit)
        elif kind == "refusal":
            self._note_refusal(flat(part.get("refusal")), emit)

    def _beside(self, message: dict[str, Json], emit: Emit) -> None:
        """Everything of a delta that is neither text nor a call."""
        # Some send the same text under two of these keys; it counts once.
        found = (message.get(key) for key in ("reasoning_content", "reasoning", "thinking", "reasoning_text"))
        reasoning = next((text for text in found if text and isinstance(text, str)), "")
        details = message.get("reasoning_details")
        if not reasoning and isinstance(details, list):
            reasoning = "".join(flat(d.get("text") or d.get("summary")) for d in details if isinstance(d, dict))
        if reasoning:
            self._think(reasoning, emit)
        refusal = message.get("refusal")
        if refusal and isinstance(refusal, str):
            self._note_refusal(refusal, emit)
        for key in ATTACHED:
            value = message.get(key)
            if value:
                self._extras[key] = joined(self._extras.get(key), value)

    def _say(self, text: str, emit: Emit) -> None:
        if text:
            self._text.add(text)
            if shown := self._joiner.shown(text):
                emit(TextDelta(shown))

    def _think(self, text: str, emit: Emit) -> None:
        if text:
            self._reasoning.add(text)
            emit(ReasoningDelta(clean(text)))

    def _note_refusal(self, text: str, emit: Emit) -> None:
        if text:
            self._refusal.add(text)
            emit(TextDelta(clean(text)))

    def _count(self, usage: Json) -> None:
        """The last count that says something wins: some send a running one, some a null after it."""
        if usage and isinstance(usage, dict):
            found = read_usage(usage)
            if found.input is not None or found.output is not None:
                self._usage = found

    def _spent(self) -> int:
        return (self._usage.input or 0) + (self._usage.output or 0)

    # --- out --------------------------------------------------------------------------------------

    def reply(self) -> ModelReplied:
        end = ending(self._finish or "")
        if not self._started:
            raise self._failures.protocol("no choices", tokens=self._spent())
        if end.stop == "failed":
            raise self._failures.turn_failed(self._finish or "", end.kind, tokens=self._spent())
        calls, nameless = self._calls.finished()
        if nameless:
            raise self._failures.protocol("a tool call without a name", tokens=self._spent())
        text, refusal = clean(str(self._text)), clean(str(self._refusal))
        stop = end.stop
        if calls and stop in ("stop", "pause"):
            stop = "tool_calls"
        elif refusal and stop == "stop":
            stop = "refusal"
        # Cut before the first word (all of it went into reasoning), or filtered: that is what
        # happened, and asking again would only buy the same once more.
        if not text.strip() and not refusal and not calls and stop in ("stop", "refusal", "pause"):
            raise self._failures.empty(tokens=self._spent(), why="only reasoning" if self._reasoning else "")
        return ModelReplied(
            text=text or refusal,
            calls=calls,
            stop=stop,
            usage=self._usage,
            model=self._model,
            origin=self._origin,
            opaque=self._opaque(with_calls=bool(calls)),
            reasoning=clean(str(self._reasoning)),
            finish="" if end.known else printable(self._finish or "", 80),
        )

    def _opaque(self, *, with_calls: bool) -> str:
        keys = ATTACHED if with_calls else _WANTED
        return kept({key: whole(self._extras[key]) for key in keys if key in self._extras})

    def _no_chunk(self, event: SSEEvent, chunk: Json) -> Exception:
        text = event.data.decode("utf-8", "replace")
        if event.event == "error":
            return self._failures.inside(chunk if chunk is not None else text, tokens=self._spent())
        return self._failures.protocol("an event that is no chunk", text, tokens=self._spent())


def _silent(_: object) -> None:
    """Takes what a document says: it is there all at once, so there is nothing to show meanwhile."""
