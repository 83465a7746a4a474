"""One request to a model and what came of it, as it is kept in a file, compared and shown.

A recording is a file of JSON lines. The first says what it is, then each exchange is one line that
holds only what was added to an earlier request, so the file grows by what was said and not by its
square. Knows nothing about runs, servers or who replays it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tool_loop.errors import ProviderError, ToolLoopError, UsageError
from tool_loop.events import ModelReplied, ToolCall
from tool_loop.journal import codec
from tool_loop.transcript import AssistantMessage, Message, ToolMessage, UserMessage

if TYPE_CHECKING:
    from tool_loop.ports import Request

RECORDING_FORMAT: Final = 1

Outcome: TypeAlias = ModelReplied | ProviderError
Normalize: TypeAlias = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """What a model was asked, as far as it decides what the model says.

    `tools` are the tools as JSON text, None where they are not known (a journal does not keep them).
    The idempotency key, the deadline and the budget of a request do not count.
    """

    system: str
    messages: tuple[Message, ...]
    tools: tuple[str, ...] | None = None
    may_call: bool = True

    def fits(self, other: AskedQuestion) -> bool:
        """Whether both ask for the same; what one of them does not know counts as the same."""
        known = self.tools is None or other.tools is None or self.tools == other.tools
        return known and replace(self, tools=None) == replace(other, tools=None)

    def lines(self) -> Iterator[str]:
        """The question as lines of text, to be read and compared by people."""
        yield from _spoken("system", self.system)
        yield from self.tools or ()
        for message in self.messages:
            match message:
                case UserMessage(text=text):
                    yield from _spoken("user", text)
                case AssistantMessage(text=text, calls=calls):
                    yield from _spoken("assistant", text)
                    yield from (f"assistant calls {call.name} {call.arguments} ({call.id})" for call in calls)
                case ToolMessage(call_id=call_id, name=name, content=content):
                    yield from _spoken(f"result of {name} ({call_id})", content)
        if not self.may_call:
            yield "(tools are withheld)"


@dataclass(frozen=True, slots=True)
class Exchange:
    question: AskedQuestion
    outcome: Outcome


def question_of(request: Request, normalize: Normalize) -> AskedQuestion:
    """The question a request asks, each text of it through `normalize`."""
    transcript = request.transcript
    tools = tuple(_tool(spec.name, spec.description, dict(spec.parameters)) for spec in request.tools)
    return normalized(AskedQuestion(transcript.system, tuple(transcript.messages), tools, request.may_call), normalize)


def normalized(question: AskedQuestion, normalize: Normalize) -> AskedQuestion:
    messages = tuple(_normal(message, normalize) for message in question.messages)
    tools = None if question.tools is None else tuple(map(normalize, question.tools))
    return AskedQuestion(normalize(question.system), messages, tools, question.may_call)


def _normal(message: Message, normalize: Normalize) -> Message:
    match message:
        case UserMessage(text=text):
            return UserMessage(normalize(text))
        case ToolMessage(content=content):
            return replace(message, content=normalize(content))
        case AssistantMessage():
            calls = tuple(replace(call, arguments=normalize(call.arguments)) for call in message.calls)
            return replace(message, text=normalize(message.text), calls=calls)


def _tool(name: str, description: str, parameters: dict[str, Any]) -> str:
    return f"tool {name} {json.dumps([description, parameters], ensure_ascii=False, sort_keys=True)}"


def _spoken(who: str, text: str) -> Iterator[str]:
    if text:
        yield from (f"{who}: {line}" for line in text.split("\n"))


# --- to JSON and back -----------------------------------------------------------------------------


def packed(question: AskedQuestion, base: int, known: int, outcome: Outcome) -> str:
    """One line: the `known` messages of the `base`th exchange's question, what follows them, and what came of it."""
    record: dict[str, Any] = {"after": base} if base else {"system": question.system, "tools": question.tools}
    record["add"] = [_pack(message) for message in question.messages[known:]]
    if not question.may_call:
        record["may_call"] = False
    if isinstance(outcome, ModelReplied):
        record["reply"] = json.loads(codec.encode(outcome))
    else:
        record["error"] = {name: getattr(outcome, name) for name in _ERROR}
    return json.dumps(record)


_ERROR: Final = ("message", "kind", "status", "retryable", "retry_after", "param", "window", "tokens", "raw")


def _pack(message: Message) -> dict[str, Any]:
    match message:
        case UserMessage(text=text):
            return {"user": text}
        case ToolMessage():
            return {"tool": message.content, "id": message.call_id, "name": message.name, "error": message.error}
        case AssistantMessage():
            calls = [[call.id, call.name, call.arguments, call.opaque] for call in message.calls]
            return {"assistant": message.text, "calls": calls, "opaque": message.opaque, "origin": message.origin}


def _unpack(record: dict[str, Any]) -> Message:
    if "user" in record:
        return UserMessage(record["user"])
    if "tool" in record:
        return ToolMessage(record["id"], record["name"], record["tool"], record["error"])
    calls = tuple(ToolCall(*call) for call in record["calls"])
    return AssistantMessage(record["assistant"], calls, record["opaque"], record["origin"])


def read_recording(path: Path) -> list[Exchange]:
    """All exchanges of a file. Raises UsageError naming the line that is none.

    A last line whose end is missing is left out: the process died while it was written.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the recording {path}: {error}") from error
    *lines, torn = text.split("\n")
    lines = lines or [torn]
    _check_header(lines[0], path)
    found: list[Exchange] = []
    for n, line in enumerate(lines[1:], 2):
        try:
            found.append(_exchange(json.loads(line), found))
        except (ValueError, LookupError, TypeError, AttributeError, ToolLoopError) as error:
            raise UsageError(f"{path}, line {n}: not an exchange: {error}") from error
    return found


def header() -> str:
    return json.dumps({"recording": RECORDING_FORMAT})


def _check_header(line: str, path: Path) -> None:
    try:
        version = json.loads(line)["recording"]
    except (ValueError, LookupError, TypeError):
        raise UsageError(f"{path} is not a recording; make one with Recording(llm, {str(path)!r})") from None
    if version != RECORDING_FORMAT:
        raise UsageError(f"{path} has format {version}, this version of tool-loop reads {RECORDING_FORMAT}")


def _exchange(record: dict[str, Any], earlier: list[Exchange]) -> Exchange:
    added = tuple(map(_unpack, record["add"]))
    if base := record.get("after", 0):
        question = earlier[base - 1].question
        question = replace(question, messages=question.messages + added)
    else:
        tools = record["tools"]
        question = AskedQuestion(record["system"], added, None if tools is None else tuple(tools))
    question = replace(question, may_call=record.get("may_call", True))
    return Exchange(question, _outcome(record))


def _outcome(record: dict[str, Any]) -> Outcome:
    if "error" in record:
        return ProviderError(**record["error"])
    reply = codec.decode(json.dumps(record["reply"]))
    if not isinstance(reply, ModelReplied):
        raise UsageError(f"a reply is expected, not {type(reply).__name__}")
    return reply


def same_outcome(one: Outcome, other: Outcome) -> bool:
    if isinstance(one, ModelReplied) or isinstance(other, ModelReplied):
        return one == other
    return all(getattr(one, name) == getattr(other, name) for name in _ERROR)
