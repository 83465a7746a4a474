"""The encoded history of a transcript: each message once, and only what a provider takes.

Whatever the history looks like, it goes out with no call without a result, no result without a call
and no empty turn. The loop keeps it so by itself; this is for transcripts that were put together by
hand, by another program, or out of a damaged record, and that would be refused at every request.

Knows nothing about any dialect: its own history class says what a message looks like.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from weakref import WeakKeyDictionary

from tool_loop.messages import AssistantMessage, ToolMessage, UserMessage

from .text import Names, encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tool_loop.messages import Message, Transcript
    from tool_loop.ports import ToolSpec

# What a call without a result is told to have come to.
NO_RESULT: Final = '{"error": "cancelled", "message": "the run was interrupted before this call was over"}'

# Agents that share an endpoint have a few sets of tools between them; more than this is a program
# that makes a new set for each run.
_TOOLSETS: Final = 8


class Toolset:
    """A set of tools, encoded once: `bytes` is a JSON array, or empty where there are no tools."""

    __slots__ = ("bytes", "names", "tools")

    def __init__(self, tools: tuple[ToolSpec, ...], shape: Callable[[str, ToolSpec], dict[str, Any]]) -> None:
        self.tools = tools
        self.names = Names(tool.name for tool in tools)
        self.bytes = encoded([shape(self.names.sent(tool.name), tool) for tool in tools]) if tools else b""


class History(ABC):
    """The encoded messages of one transcript, which only grows.

    `owed` are the calls of the last assistant turn that have no result yet: our id, and the id sent.
    A dialect says how its messages look in the methods at the end; what they write is never changed again, so that a
    request begins with the bytes of the one before.
    """

    __slots__ = ("_done", "_origin", "_plain", "bytes", "names", "owed")

    def __init__(self, names: Names, origin: str, *, plain: int = 0) -> None:
        self.names = names
        self.owed: dict[str, str] = {}
        self.bytes = bytearray()
        self._origin = origin
        self._plain = plain  # so many messages at the beginning go without what a provider attached
        self._done = 0

    def extend(self, messages: Sequence[Message]) -> None:
        """Encode the messages that are new."""
        for n in range(self._done, len(messages)):
            self._add(messages[n], "" if n < self._plain else self._origin)
        self._done = len(messages)

    def owed_bytes(self) -> bytes:
        """Results for the calls that have none, which are sent but not kept: the true ones may come."""
        return b"".join(b"," + self.result_bytes(sent, NO_RESULT, error=True) for sent in self.owed.values())

    def _add(self, message: Message, origin: str) -> None:
        if isinstance(message, ToolMessage):
            sent = self.owed.pop(message.call_id, None)
            if sent is not None:
                self.result(sent, message.content, error=message.error)
            return
        for sent in self.owed.values():
            self.result(sent, NO_RESULT, error=True)
        self.owed.clear()
        if isinstance(message, UserMessage):
            self.user(message.text)
        else:
            self.assistant(message, origin)

    def _write(self, message: Mapping[str, Any]) -> None:
        if self.bytes:
            self.bytes += b","
        self.bytes += encoded(message)

    @abstractmethod
    def user(self, text: str) -> None: ...

    @abstractmethod
    def assistant(self, message: AssistantMessage, origin: str) -> None:
        """Write the turn, if there is anything to it, and note its calls in `owed`.

        What a provider attached to it is sent back when it came from `origin`.
        """
        ...

    def result(self, sent: str, content: str, *, error: bool) -> None:
        self.bytes += b"," + self.result_bytes(sent, content, error=error)

    @abstractmethod
    def result_bytes(self, sent: str, content: str, *, error: bool) -> bytes: ...


H = TypeVar("H", bound=History)


class Encoder(ABC, Generic[H]):
    """Remembers the encoded tools of an endpoint and the encoded history of each transcript.

    `origin` is the endpoint's own, as in `ModelReplied.origin`.
    """

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self._toolsets: list[Toolset] = []
        self._histories: WeakKeyDictionary[Transcript, H] = WeakKeyDictionary()
        self._plain: WeakKeyDictionary[Transcript, int] = WeakKeyDictionary()

    def toolset(self, tools: tuple[ToolSpec, ...]) -> Toolset:
        for known in self._toolsets:
            if known.tools is tools or known.tools == tools:
                return known
        toolset = Toolset(tools, self.shape)
        self._toolsets = [toolset, *self._toolsets[: _TOOLSETS - 1]]
        return toolset

    def history(self, transcript: Transcript, names: Names) -> H:
        """The transcript's history up to its last message."""
        history = self._histories.get(transcript)
        if history is None or history.names is not names:  # the names in the history depend on the tools
            history = self.new_history(names, self._plain.get(transcript, 0))
            self._histories[transcript] = history
        history.extend(transcript.messages)
        return history

    def forget_opaque(self, transcript: Transcript) -> bool:
        """Send what is there so far without anything a provider attached. False when there is nothing."""
        known = self._plain.get(transcript, 0)
        later = transcript.messages[known:]
        if not any(isinstance(m, AssistantMessage) and m.opaque and m.origin == self.origin for m in later):
            return False
        self._plain[transcript] = len(transcript.messages)
        self._histories.pop(transcript, None)
        return True

    @abstractmethod
    def new_history(self, names: Names, plain: int) -> H: ...

    @abstractmethod
    def shape(self, name: str, tool: ToolSpec) -> dict[str, Any]:
        """One tool as the dialect writes it, under the name it has on the wire."""
        ...
