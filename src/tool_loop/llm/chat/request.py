"""The body of a chat completions request, from a transcript. Pure: no network, no clock.

Each message is encoded once. The body is joined from bytes that are the same at every request up to
the new messages: the server's prompt cache hits, and a step costs the same at 400 steps as at 10.

What a provider would refuse is not sent: no arguments that are not a JSON object, no name or id it
does not take, nothing that another provider attached.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Final

from tool_loop.llm.chat.parts import overlaid
from tool_loop.llm.history import Encoder, History
from tool_loop.llm.opaque import said
from tool_loop.llm.text import arguments_object, encoded
from tool_loop.toolbox.portable import portable

if TYPE_CHECKING:
    from collections.abc import Mapping, Set as AbstractSet

    from tool_loop.events import ToolCall
    from tool_loop.llm.text import Names
    from tool_loop.ports import ToolSpec
    from tool_loop.transcript import AssistantMessage, Transcript

# What the assistant is made to say where a provider wants it to speak between two other messages.
HEARD: Final = "Understood."

# What Google's page on thought signatures gives for calls that have none, because another model made
# them, or an earlier version kept none.
UNSIGNED: Final = {"google": {"thought_signature": "skip_thought_signature_validator"}}

_NINE: Final = re.compile(r"[a-zA-Z0-9]{9}")


class ChatEncoder(Encoder["_Messages"]):
    """Encodes requests for one endpoint.

    Two ways of Mistral, which are told in its refusals: with `nine` the ids of calls become nine
    letters or digits, with `turns` the user never speaks twice in a row, nor right after a tool. And
    one of Gemini: with `signed` each call has a thought signature, if only the one that says there is none.
    """

    def __init__(self, origin: str, *, nine: bool = False, turns: bool = False) -> None:
        super().__init__(origin)
        self.nine = nine
        self.turns = turns
        self.signed = False

    def change(self, *, nine: bool = False, turns: bool = False, signed: bool = False, echo: bool = True) -> None:
        """Encode everything anew in another way, also what was sent before."""
        self.nine = self.nine or nine
        self.turns = self.turns or turns
        self.signed = self.signed or signed
        self.echo = self.echo and echo
        self._histories.clear()

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
        system = encoded({"role": "system", "content": transcript.system}) if transcript.system else b""
        comma = b"," if system and history.bytes else b""
        shown = b',"tools":' + toolset.bytes if with_tools and tools else b""
        choice = b',"tool_choice":' + encoded(tool_choice) if tool_choice and shown else b""
        head = encoded(settings)[:-1]
        messages = (b',"messages":[', system, comma, history.bytes, history.owed_bytes(), b"]")
        return b"".join((head, shown, *messages, choice, b"}"))

    def new_history(self, names: Names, origin: str, refused: AbstractSet[int]) -> _Messages:
        return _Messages(self, names, origin, refused)

    def _sent_as(self, transcript: Transcript, place: int) -> range:
        return super()._sent_as(transcript, place - bool(transcript.system))

    def shape(self, name: str, tool: ToolSpec) -> dict[str, Any]:
        function: dict[str, Any] = {"name": name}
        if tool.description:
            function["description"] = tool.description
        function["parameters"] = portable(tool.parameters, self.level)
        return {"type": "function", "function": function}


class _Messages(History):
    __slots__ = ("_assistant_spoke", "_nine", "_signed", "_turns", "_used")

    def __init__(self, way: ChatEncoder, names: Names, origin: str, refused: AbstractSet[int]) -> None:
        super().__init__(names, origin, refused=refused)
        self._nine = way.nine
        self._turns = way.turns
        self._signed = way.signed
        self._assistant_spoke = False
        self._used: dict[str, None] = {}  # a set of so few takes three times as much

    def user(self, text: str) -> None:
        if self._turns and self.bytes and not self._assistant_spoke:
            self._write({"role": "assistant", "content": HEARD})
        self._assistant_spoke = False
        self._write({"role": "user", "content": text})

    def assistant(self, message: AssistantMessage, origin: str) -> None:
        if not message.text and not message.calls:
            return
        ours = bool(origin) and message.origin == origin
        # null and not "" beside calls: Anthropic's layer refuses an empty text, all take null.
        body: dict[str, Any] = {"role": "assistant", "content": message.text or None}
        if message.calls:
            body["tool_calls"] = [self._call(call, ours=ours) for call in message.calls]
        self._assistant_spoke = not message.calls
        self._write(body | (_attached(message.opaque) if ours else {}))

    def result_bytes(self, sent: str, content: str, *, error: bool) -> bytes:  # noqa: ARG002 - said in the content
        return encoded({"role": "tool", "tool_call_id": sent, "content": content})

    def _call(self, call: ToolCall, *, ours: bool) -> dict[str, Any]:
        extras = _attached(call.opaque) if ours else {}
        sent = self.owed[call.id] = self._sent_id(call.id, str(extras.pop("id", "")))
        if self._signed:
            extras["extra_content"] = overlaid(UNSIGNED, extras.get("extra_content") or {})
        function = {"name": self.names.sent(call.name), "arguments": arguments_object(call.arguments)}
        return {"id": sent, "type": "function", "function": function, **extras}

    def _sent_id(self, ours: str, theirs: str) -> str:
        """The id on the wire: the provider's own where it is not taken yet, as some read meaning into theirs."""
        sent = theirs if theirs and theirs not in self._used else ours
        if self._nine and not _NINE.fullmatch(sent):
            sent = _nine(sent)
        self._used[sent] = None
        return sent


def _attached(text: str) -> dict[str, Any]:
    """What the provider had put on a turn or a call, under its own keys."""
    value = json.loads(text, object_pairs_hook=said) if text else {}
    return value if isinstance(value, dict) else {}


_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _nine(text: str) -> str:
    number = int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())
    return "".join(_DIGITS[number // 62**n % 62] for n in range(9))
