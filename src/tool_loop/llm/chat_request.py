"""The body of a chat completions request, from a transcript. Pure: no network, no clock.

Each message is encoded once. The body is joined from bytes that are the same at every request up to
the new messages: the server's prompt cache hits, and a step costs the same at 400 steps as at 10.

What a provider would refuse is not sent, whatever the history looks like: no call without a result,
no result without a call, no empty turn, no arguments that are not a JSON object, no name or id
outside the charset, nothing that another provider attached.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from tool_loop.messages import AssistantMessage, ToolMessage, UserMessage

from .text import Names, arguments_object, encoded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tool_loop.events import ToolCall
    from tool_loop.messages import Message, Transcript
    from tool_loop.ports import ToolSpec

_NINE: Final = re.compile(r"[a-zA-Z0-9]{9}")

# What a call without a result is told to have come to. The loop answers every call itself; this is
# for a transcript that was put together by hand or by another program.
NO_RESULT: Final = '{"error": "cancelled", "message": "the run was interrupted before this call was over"}'


class ChatEncoder:
    """Encodes requests for one endpoint; remembers the encoded messages of each transcript.

    `origin` is the endpoint's own, as in `ModelReplied.origin`. With `nine` the ids of calls become
    nine letters or digits, the only ones Mistral takes.
    """

    def __init__(self, origin: str, *, nine: bool = False) -> None:
        self.origin = origin
        self.nine = nine
        self._toolsets: list[_Toolset] = []
        self._histories: WeakKeyDictionary[Transcript, _History] = WeakKeyDictionary()

    def use_nine(self) -> None:
        """From now on ids are nine letters or digits, also those of past messages."""
        self.nine = True
        self._histories.clear()

    def names(self, tools: tuple[ToolSpec, ...]) -> Names:
        """How these tools are called on the wire."""
        return self._toolset(tools).names

    def body(
        self,
        transcript: Transcript,
        tools: tuple[ToolSpec, ...],
        settings: Mapping[str, Any],
        *,
        tool_choice: str = "",
        with_tools: bool = True,
    ) -> bytes:
        """The request. What changes from request to request stands last: messages, then the tool choice."""
        toolset = self._toolset(tools)
        history = self._histories.get(transcript)
        if history is None or history.names is not toolset.names:  # names in the history depend on the tools
            history = _History(transcript.system, toolset.names, self.origin, nine=self.nine)
            self._histories[transcript] = history
        history.extend(transcript.messages)
        shown = toolset.bytes if with_tools else b""
        choice = b',"tool_choice":' + encoded(tool_choice) if tool_choice and shown else b""
        return b"".join(
            (encoded(settings)[:-1], shown, b',"messages":[', history.bytes, history.owed_bytes(), b"]", choice, b"}")
        )

    def _toolset(self, tools: tuple[ToolSpec, ...]) -> _Toolset:
        for toolset in self._toolsets:
            if toolset.tools is tools or toolset.tools == tools:
                return toolset
        toolset = _Toolset(tools)
        # Agents that share this endpoint have a few sets between them; more than this is a program
        # that makes a new set for each run.
        self._toolsets = [toolset, *self._toolsets[:7]]
        return toolset


class _Toolset:
    """A set of tools, encoded once. `bytes` is the whole member of the body, or empty."""

    __slots__ = ("bytes", "names", "tools")

    def __init__(self, tools: tuple[ToolSpec, ...]) -> None:
        self.tools = tools
        self.names = Names(tool.name for tool in tools)
        self.bytes = b',"tools":' + encoded([self._tool(tool) for tool in tools]) if tools else b""

    def _tool(self, tool: ToolSpec) -> dict[str, Any]:
        function: dict[str, Any] = {"name": self.names.sent(tool.name)}
        if tool.description:
            function["description"] = tool.description
        function["parameters"] = dict(tool.parameters)
        return {"type": "function", "function": function}


class _History:
    """The encoded messages of one transcript, which only grows.

    `owed` are the calls of the last assistant turn that have no result yet: our id, and the id sent.
    """

    __slots__ = ("_done", "_nine", "_origin", "_used", "bytes", "names", "owed")

    def __init__(self, system: str, names: Names, origin: str, *, nine: bool) -> None:
        self.names = names
        self._origin = origin
        self._nine = nine
        self._done = 0
        self._used: set[str] = set()
        self.owed: dict[str, str] = {}
        self.bytes = bytearray()
        if system:
            self._write({"role": "system", "content": system})

    def extend(self, messages: Sequence[Message]) -> None:
        for n in range(self._done, len(messages)):
            self._add(messages[n])
        self._done = len(messages)

    def owed_bytes(self) -> bytes:
        """Results for the calls that have none, which are sent but not kept: the true ones may come."""
        return b"".join(b"," + encoded(_result(sent, NO_RESULT)) for sent in self.owed.values())

    def _add(self, message: Message) -> None:
        if isinstance(message, ToolMessage):
            sent = self.owed.pop(message.call_id, None)
            if sent is not None:
                self._write(_result(sent, message.content))
            return
        for sent in self.owed.values():
            self._write(_result(sent, NO_RESULT))
        self.owed.clear()
        if isinstance(message, UserMessage):
            self._write({"role": "user", "content": message.text})
        elif message.text or message.calls:
            self._write(self._assistant(message))

    def _write(self, message: Mapping[str, Any]) -> None:
        if self.bytes:
            self.bytes += b","
        self.bytes += encoded(message)

    def _assistant(self, message: AssistantMessage) -> dict[str, Any]:
        ours = bool(message.origin) and message.origin == self._origin
        # null and not "" beside calls: Anthropic's layer refuses an empty text, all take null.
        body: dict[str, Any] = {"role": "assistant", "content": message.text or None}
        if message.calls:
            body["tool_calls"] = [self._call(call, ours=ours) for call in message.calls]
        return body | (_opaque(message.opaque) if ours else {})

    def _call(self, call: ToolCall, *, ours: bool) -> dict[str, Any]:
        extras = _opaque(call.opaque) if ours else {}
        sent = self.owed[call.id] = self._sent_id(call.id, str(extras.pop("id", "")))
        function = {"name": self.names.sent(call.name), "arguments": arguments_object(call.arguments)}
        return {"id": sent, "type": "function", "function": function, **extras}

    def _sent_id(self, ours: str, theirs: str) -> str:
        """The id on the wire: the provider's own where it is not taken yet, as some read meaning into theirs."""
        sent = theirs if theirs and theirs not in self._used else ours
        if self._nine and not _NINE.fullmatch(sent):
            sent = _nine(sent)
        self._used.add(sent)
        return sent


def _result(call_id: str, content: str) -> dict[str, str]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def _opaque(text: str) -> dict[str, Any]:
    value = json.loads(text) if text else {}
    return value if isinstance(value, dict) else {}


_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _nine(text: str) -> str:
    number = int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())
    return "".join(_DIGITS[number // 62**n % 62] for n in range(9))
