"""The body of a request to the Messages API, from a transcript. Pure: no network, no clock.

Messages are lists of blocks, and turns of user and assistant alternate: what follows on the same
side joins the open message, so the results of a turn, and what the loop says after them, are one
user message. Each block is encoded once, and the body of a request begins with the bytes of the one
before. Cache breakpoints are spliced in when the body is joined; the blocks never hold them.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from tool_loop.errors import ToolError
from tool_loop.llm.history import Encoder, History
from tool_loop.llm.opaque import Item, Text, led_out, parts
from tool_loop.llm.text import encoded
from tool_loop.toolbox.call import parse_arguments
from tool_loop.toolbox.portable import portable

if TYPE_CHECKING:
    from collections.abc import Mapping, Set as AbstractSet

    from tool_loop.events import ToolCall
    from tool_loop.llm.text import Names
    from tool_loop.ports import ToolSpec
    from tool_loop.transcript import AssistantMessage, Transcript

Caching: TypeAlias = Literal["request", "blocks", "off"]

_MARK: Final = b',"cache_control":{"type":"ephemeral"}'

# A breakpoint finds the cache of an earlier one no further back than 20 blocks. A turn with ten
# parallel calls is longer than that, and without a second breakpoint at the end of the request
# before, the whole conversation would be paid in full again.
_LOOKBACK: Final = 18

_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")

# An empty block is refused, and so would be every later request.
_NOTHING: Final = "(empty)"


class MessagesEncoder(Encoder["_Turns"]):
    """Encodes requests for one endpoint.

    `caching` says how the end of the conversation is marked for the provider's cache. "request": by
    a field of the request, so that a request begins with exactly the bytes of the one before.
    "blocks": on the last block, which every server of this dialect takes, or at least passes over.
    """

    def __init__(self, origin: str, caching: Caching) -> None:
        super().__init__(origin)
        self.caching = caching

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
        toolset = self.toolset(tools)
        history = self.history(transcript, toolset.names)
        mark = b"" if self.caching == "off" else _MARK
        pieces: list[bytes | memoryview] = [encoded(settings)[:-1]]
        if self.caching == "request":
            pieces.append(mark)
        if with_tools and tools:
            # The tools are cached with the system prompt, which they come before; or by themselves.
            pieces += (b',"tools":', toolset.bytes[:-2], b"" if transcript.system else mark, b"}]")
        if transcript.system:
            pieces += (b',"system":[', encoded({"type": "text", "text": transcript.system})[:-1], mark, b"}]")
        pieces += (b',"messages":[', *history.marked(mark, last=self.caching == "blocks"), b"]")
        if tool_choice and with_tools and tools:
            pieces += (b',"tool_choice":', encoded({"type": tool_choice}))
        pieces.append(b"}")
        return b"".join(pieces)

    def new_history(self, names: Names, origin: str, refused: AbstractSet[int]) -> _Turns:
        return _Turns(names, origin, refused=refused)

    def shape(self, name: str, tool: ToolSpec) -> dict[str, Any]:
        shape: dict[str, Any] = {"name": name}
        if tool.description:
            shape["description"] = tool.description
        return shape | {"input_schema": portable(tool.parameters, self.level)}


class _Turns(History):
    """Its last message is left open: what comes next on the same side belongs to it."""

    __slots__ = ("_blocks", "_role", "_turn", "_used")

    def __init__(self, names: Names, origin: str, *, refused: AbstractSet[int] = frozenset()) -> None:
        super().__init__(names, origin, refused=refused)
        self._role = ""
        self._used: set[str] = set()
        # Where the last assistant turn began, and how many blocks there have been since.
        self._turn = 0
        self._blocks = 0

    def marked(self, mark: bytes, *, last: bool) -> list[bytes | memoryview]:
        """The messages, closed, with the cache breakpoints they need; to be joined before the next is added."""
        if not self._role:
            return []
        owed = self.owed_bytes()
        whole = memoryview(self.bytes)  # half a megabyte at 400 steps, which the joining copies anyway
        pieces: list[bytes | memoryview] = []
        done = 0
        if mark and self._turn and self._blocks + len(self.owed) > _LOOKBACK:
            pieces += (whole[: self._turn - 1], mark, b"}")
            done = self._turn
        if mark and last and owed:
            pieces += (whole[done:], owed[:-1], mark, b"}")
        elif mark and last and self._role == "user":
            pieces += (whole[done:-1], mark, b"}")
        else:
            pieces += (whole[done:], owed)
        pieces.append(b"]}")
        return pieces

    def user(self, text: str) -> None:
        self._block("user", {"type": "text", "text": text if text.strip() else _NOTHING})

    def assistant(self, message: AssistantMessage, origin: str) -> None:
        # A message that ends in thinking is refused with every later request.
        for part in led_out(parts(message, origin), "thinking", "redacted_thinking"):
            match part:
                case Text(text, fields):
                    if text.strip():
                        self._block("assistant", {"type": "text", "text": text, **fields})
                case Item(value):
                    self._block("assistant", value)
                case call:
                    self._block("assistant", self._call(call))

    def result(self, sent: str, content: str, *, error: bool) -> None:
        self._append("user", self.result_bytes(sent, content, error=error))

    def result_bytes(self, sent: str, content: str, *, error: bool) -> bytes:
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": sent, "content": content}
        return encoded(block | {"content": content or _NOTHING, "is_error": True} if error else block)

    def owed_bytes(self) -> bytes:
        owed = super().owed_bytes()
        if owed and self._role == "assistant":
            return b']},{"role":"user","content":[' + owed[1:]
        return owed

    def _call(self, call: ToolCall) -> dict[str, Any]:
        sent = self.owed[call.id] = self._sent_id(call.id)
        try:
            given = parse_arguments(call.arguments)
        except ToolError:
            given = {}  # it was answered with what is wrong with them; the field takes nothing but an object
        return {"type": "tool_use", "id": sent, "name": self.names.sent(call.name), "input": given}

    def _sent_id(self, ours: str) -> str:
        """The id on the wire. Ours fit; this is for transcripts that were put together by hand."""
        sent = ours
        if not _ID.fullmatch(sent) or sent in self._used:
            number = f"{ours}\0{len(self._used)}".encode("utf-8", "surrogatepass")
            sent = "call_" + hashlib.blake2b(number, digest_size=12).hexdigest()
        self._used.add(sent)
        return sent

    def _block(self, role: str, block: Mapping[str, Any]) -> None:
        self._append(role, encoded(block))

    def _append(self, role: str, block: bytes) -> None:
        if role != self._role:
            if role == "assistant":
                self._turn, self._blocks = len(self.bytes), 0
            start = "]},{" if self._role else "{"
            self.bytes += f'{start}"role":"{role}","content":['.encode()
            self._role = role
            self.starts.append(self._at)
        else:
            self.bytes += b","
        self.bytes += block
        self._blocks += 1
