"""A model behind a `FaultServer`: it answers what it is asked, and the wire between has faults.

For agents that are tested through their real HTTP client. `say` gets the request in a few words and
returns the reply; it is asked again for each attempt, so it should be a function of what it reads.
Counts what a provider would charge for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tool_loop.events import ModelReplied, Usage
from tool_loop.testing.server.behaviours import Behaviour, Received, Response
from tool_loop.testing.server.server import FaultServer

from .model import said

if TYPE_CHECKING:
    from .schedule import Faults
    from .strike import Fault

_CHARS_PER_TOKEN: Final = 4
_LONG: Final = 1e6


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of chat completions: its messages as they came, the names of its tools, and its number.

    `may_call` is False for a last word, when no call is possible.
    """

    messages: tuple[dict[str, Any], ...]
    tools: tuple[str, ...]
    may_call: bool
    step: int = 0

    @property
    def last(self) -> dict[str, Any]:
        return self.messages[-1]

    def results(self) -> list[str]:
        """The contents of all tool results, oldest first."""
        return [str(m.get("content", "")) for m in self.messages if m.get("role") == "tool"]


class WireModel:
    """Serves `say` over HTTP with the faults on its wire; `billed` counts the tokens of what was generated."""

    def __init__(self, say: Callable[[Asked], ModelReplied], faults: Faults) -> None:
        self._say = say
        self._faults = faults
        self._server: FaultServer | None = None
        self.billed = 0

    def server(self, **options: Any) -> FaultServer:
        """The server, for one `with` or `async with`."""
        first = self._refusal(1)
        # A silence ends when the client has had enough of it, which in virtual time costs nothing.
        options.setdefault("max_seconds", _LONG)
        self._server = FaultServer(
            [] if first is None else [first],
            otherwise=Behaviour("model", self._respond),
            now=self._faults.clock.now,
            **options,
        )
        return self._server

    def _respond(self, received: Received) -> Response:
        asked = self._read(received)
        reply = self._counted(self._say(asked), received)
        fault = self._faults.due("model", asked.step)
        if fault is not None and not (asked.may_call or fault.last_word):
            self._faults.missed(fault)
            fault = None
        behaviour = said(reply) if fault is None else self._struck(fault, reply)
        if fault is None or (fault.wire and fault.layer != "transport"):
            self._bill(reply)  # what broke on its way was paid for; what never got to the model was not
        refusal = self._refusal(asked.step + 1)
        if refusal is not None and self._server is not None:
            self._server.add(refusal)
        return behaviour.respond(received)

    def _struck(self, fault: Fault, reply: ModelReplied) -> Behaviour:
        if fault.then is not None:
            fault.then(self._faults)
        if fault.wire is not None:
            return fault.wire(reply)
        spoiled = reply if fault.change is None else fault.change(reply)
        if spoiled is None:
            self._faults.missed(fault)
        self._bill(spoiled or reply)
        return said(spoiled or reply).but(fault.name, lambda response: replace(response, wait=fault.seconds))

    def _bill(self, reply: ModelReplied) -> None:
        self.billed += (reply.usage.input or 0) + (reply.usage.output or 0)

    def _refusal(self, step: int) -> Behaviour | None:
        """A refused connection is no request, so it has to be planned before the one that finds it."""
        ahead = self._faults.ahead("model", step)
        if ahead is None or ahead.name != "refused" or ahead.wire is None:
            return None
        self._faults.due("model", step)
        return ahead.wire(ModelReplied(""))

    def _read(self, received: Received) -> Asked:
        body = received.json()
        key = received.header("idempotency-key") or hashlib.sha256(received.body).hexdigest()
        names = tuple(tool["function"]["name"] for tool in body.get("tools", ()))
        may_call = bool(names) and body.get("tool_choice") != "none"
        return Asked(tuple(body["messages"]), names, may_call, self._faults.step(key))

    def _counted(self, reply: ModelReplied, received: Received) -> ModelReplied:
        if reply.usage.input is not None:
            return reply
        written = len(reply.text) + sum(len(call.name) + len(call.arguments) for call in reply.calls)
        return replace(reply, usage=Usage(len(received.body) // _CHARS_PER_TOKEN, written // _CHARS_PER_TOKEN + 1))
