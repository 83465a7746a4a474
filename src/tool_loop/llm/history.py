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

from tool_loop.toolbox.portable import LEVELS, Level
from tool_loop.transcript import AssistantMessage, ToolMessage, UserMessage

from .text import Names, encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet

    from tool_loop.ports import ToolSpec
    from tool_loop.transcript import Message, Transcript

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
    `starts` tells which message of the transcript each message on the wire began with.
    A dialect says how its messages look in the methods at the end; what they write is never changed again, so that a
    request begins with the bytes of the one before.
    """

    __slots__ = ("_at", "_origin", "_refused", "bytes", "names", "owed", "starts")

    def __init__(self, names: Names, origin: str, *, refused: AbstractSet[int] = frozenset()) -> None:
        self.names = names
        self.owed: dict[str, str] = {}
        self.bytes = bytearray()
        self.starts: list[int] = []
        self._origin = origin
        self._refused = refused  # what goes without its attachments, see `attachments`
        self._at = 0

    def extend(self, messages: Sequence[Message]) -> None:
        """Encode the messages that are new."""
        while self._at < len(messages):
            message = messages[self._at]
            self._add(message, "" if attachments(message, self._origin) in self._refused else self._origin)
            self._at += 1

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
        self.starts.append(self._at)

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
        self.starts.append(self._at)

    @abstractmethod
    def result_bytes(self, sent: str, content: str, *, error: bool) -> bytes: ...


def attachments(message: Message, origin: str) -> int | None:
    """A digest of what the provider at `origin` attached to a turn and its calls; None for nothing."""
    if not isinstance(message, AssistantMessage) or not origin or message.origin != origin:
        return None
    found = (message.opaque, *(call.opaque for call in message.calls))
    return hash(found) if any(found) else None


H = TypeVar("H", bound=History)

# A provider that refused this many turns takes none of them back, however they are sent.
_REFUSALS: Final = 3


class Encoder(ABC, Generic[H]):
    """Remembers the encoded tools of an endpoint and the encoded history of each transcript.

    `origin` is the endpoint's own, as in `ModelReplied.origin`. Without `echo` nothing goes back that
    the provider attached to its turns. `level` is how much of JSON Schema the endpoint takes.
    """

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self._toolsets: list[Toolset] = []
        self._histories: WeakKeyDictionary[Transcript, H] = WeakKeyDictionary()
        self.echo = True
        self.level: Level = "usual"
        # By content and not by place: a compaction, a summary on the side and the next question have
        # transcripts of their own, in which the same turns stand elsewhere.
        self._refused: set[int] = set()
        self._refusals = 0

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
            history = self.new_history(names, self.origin if self.echo else "", self._refused)
            self._histories[transcript] = history
        history.extend(transcript.messages)
        return history

    def plainer(self, tools: tuple[ToolSpec, ...]) -> bool:
        """From now on send the schemas of tools in fewer words. False when that would change nothing."""
        before = self.toolset(tools).bytes
        for level in LEVELS[LEVELS.index(self.level) + 1 :]:
            self.level = level
            self._toolsets.clear()
            if self.toolset(tools).bytes != before:
                self._histories.clear()  # they hold on to the names of the old toolset
                return True
        return False

    def leave_out(self, transcript: Transcript, place: int | None = None) -> bool:
        """From now on send a turn without what the provider attached to it. False when there is nothing.

        `place` is the number of a message on the wire as a refusal counts them; None means all turns.
        """
        messages = transcript.messages
        span = range(len(messages)) if place is None else self._sent_as(transcript, place)
        found = {attachments(messages[n], self.origin) for n in span} - {None} - self._refused
        if not found or not self.echo:
            return False
        self._refused |= {digest for digest in found if digest is not None}
        self._refusals += 1
        if place is not None and self._refusals >= _REFUSALS:
            self.echo = False
        self._histories.clear()
        return True

    def _sent_as(self, transcript: Transcript, place: int) -> range:
        """The messages of the transcript that went out as this one."""
        history = self._histories.get(transcript)
        starts = history.starts if history else []
        if not 0 <= place < len(starts):
            return range(0)
        end = starts[place + 1] if place + 1 < len(starts) else len(transcript.messages)
        return range(starts[place], max(end, starts[place] + 1))

    @abstractmethod
    def new_history(self, names: Names, origin: str, refused: AbstractSet[int]) -> H: ...

    @abstractmethod
    def shape(self, name: str, tool: ToolSpec) -> dict[str, Any]:
        """One tool as the dialect writes it, under the name it has on the wire."""
        ...
