"""The body of a request to the Responses API, from a transcript. Pure: no network, no clock.

Stateless: the server stores nothing, so the whole conversation is sent as a list of items, with the
provider's own items (encrypted reasoning) where they stood. Each message is encoded once, and the
body of a request begins with the bytes of the one before, up to the new items.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from tool_loop.llm.history import Encoder, History
from tool_loop.llm.opaque import Item, Text, led_out, parts
from tool_loop.llm.text import arguments_object, encoded
from tool_loop.toolbox.portable import portable

if TYPE_CHECKING:
    from collections.abc import Mapping, Set as AbstractSet

    from tool_loop.events import ToolCall
    from tool_loop.llm.text import Names
    from tool_loop.ports import ToolSpec
    from tool_loop.transcript import AssistantMessage, Transcript

_ID_LENGTH = 64  # a longer call_id is refused


class ResponsesEncoder(Encoder["_Items"]):
    """Encodes requests for one endpoint."""

    def body(
        self,
        transcript: Transcript,
        tools: tuple[ToolSpec, ...],
        settings: Mapping[str, Any],
        *,
        tool_choice: str = "",
        with_tools: bool = True,
    ) -> bytes:
        """The request. What changes from request to request stands last: the items, then the tool choice."""
        toolset = self.toolset(tools)
        history = self.history(transcript, toolset.names)
        head = dict(settings)
        if transcript.system:
            head["instructions"] = transcript.system
        shown = b',"tools":' + toolset.bytes if with_tools and tools else b""
        choice = b',"tool_choice":' + encoded(tool_choice) if tool_choice and shown else b""
        return b"".join(
            (encoded(head)[:-1], shown, b',"input":[', history.bytes, history.owed_bytes(), b"]", choice, b"}")
        )

    def new_history(self, names: Names, origin: str, refused: AbstractSet[int]) -> _Items:
        return _Items(names, origin, refused=refused)

    def shape(self, name: str, tool: ToolSpec) -> dict[str, Any]:
        flat: dict[str, Any] = {"type": "function", "name": name}
        if tool.description:
            flat["description"] = tool.description
        # Said outright, because this API is strict where nothing is said, and then refuses a schema
        # that has an optional field.
        return flat | {"parameters": portable(tool.parameters, self.level), "strict": False}


class _Items(History):
    __slots__ = ()

    def user(self, text: str) -> None:
        self._write({"role": "user", "content": text})

    def assistant(self, message: AssistantMessage, origin: str) -> None:
        # Reasoning that nothing follows is refused with every later request.
        for part in led_out(parts(message, origin), "reasoning"):
            match part:
                case Text(text, fields):
                    self._write({"role": "assistant", "content": text, **fields})
                case Item({"type": "reasoning"} as value):
                    # The summary has to be there, if only as an empty list; the status must not.
                    self._write({"summary": []} | {key: one for key, one in value.items() if key != "status"})
                case Item(value):
                    self._write(value)
                case call:
                    self._write(self._call(call))

    def result_bytes(self, sent: str, content: str, *, error: bool) -> bytes:  # noqa: ARG002 - said in the content
        return encoded({"type": "function_call_output", "call_id": sent, "output": content})

    def _call(self, call: ToolCall) -> dict[str, str]:
        sent = self.owed[call.id] = sent_id(call.id)
        name = self.names.sent(call.name)
        return {"type": "function_call", "call_id": sent, "name": name, "arguments": arguments_object(call.arguments)}


def sent_id(ours: str) -> str:
    """The id on the wire. Ours fit; this is for transcripts that were put together by hand."""
    if 0 < len(ours) <= _ID_LENGTH:
        return ours
    return "call_" + hashlib.blake2b(ours.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
