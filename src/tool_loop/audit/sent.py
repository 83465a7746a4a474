"""What is wrong with a history or a request as it would be sent: the rules I1 to I3 and I5.

Knows nothing about events; invariants.py checks those.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tool_loop.runtime.strict import no_constant
from tool_loop.transcript import AssistantMessage, Message, ToolMessage, UserMessage


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that was broken, by which event (-1: by the whole), and how."""

    rule: str
    index: int
    event: str
    why: str

    def __str__(self) -> str:
        where = f"at event {self.index} ({self.event})" if self.index >= 0 else f"in {self.event}"
        return f"{self.rule} {where}: {self.why}"


def check_messages(messages: Sequence[Message], *, open_calls: bool = False) -> list[Broken]:  # noqa: C901 - one rule after the other
    """What a provider would refuse about a history: I1 to I3 for what is really sent.

    `open_calls` allows the last turn to wait for its results, as between a reply and the next request.
    """
    found: list[Broken] = []
    owed: list[str] = []
    seen: set[str] = set()

    def broken(rule: str, n: int, why: str) -> None:
        found.append(Broken(rule, n, type(messages[n]).__name__, why))

    for n, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            if owed[:1] != [message.call_id]:
                broken("I1", n, f"a result for {message.call_id!r} where {owed[:1] or 'none'} is due")
            owed = owed[1:]
        elif owed:
            broken("I1", n, f"the calls {owed} have no result before this")
            owed = []
        if isinstance(message, AssistantMessage):
            owed = [call.id for call in message.calls]
            if not message.text and not message.calls:
                broken("I3", n, "an assistant turn with neither text nor calls")
            if again := [i for i in owed if i in seen]:
                broken("I2", n, f"the ids {again} were used before")
            seen.update(owed)
        text = message.content if isinstance(message, ToolMessage) else message.text
        if unclean(text):
            broken("I3", n, "text with a lone surrogate, which is not UTF-8")
    if owed and not open_calls:
        found.append(Broken("I1", -1, "the history", f"the calls {owed} have no result"))
    if not any(isinstance(m, UserMessage) for m in messages):
        found.append(Broken("I5", -1, "the history", "the question is gone"))
    return found


def check_requests(bodies: Sequence[bytes]) -> list[Broken]:
    """What is wrong with request bodies as they went over the wire: I3, in every dialect."""
    found: list[Broken] = []
    for n, body in enumerate(bodies):
        try:
            read = json.loads(body.decode("utf-8"), parse_constant=no_constant)
        except ValueError as error:
            found.append(Broken("I3", n, "request", f"not valid JSON in UTF-8: {error}"))
            continue
        if not isinstance(read, dict) or ("tools" in read and not read["tools"]):
            found.append(Broken("I3", n, "request", "`tools` is there and empty"))
    return found


def unclean(text: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in text) if not text.isascii() else False
