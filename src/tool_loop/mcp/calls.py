"""One call to a server: what is sent, what may be sent again, and what it came to.

A server that died in the middle of a call has done the work or has not, and nobody can ask it. Only a
tool that may be repeated is called again, and only once; any other call is in doubt, and says so to the
model in place of an answer.
"""

from __future__ import annotations

from typing import Any, Final

from tool_loop.errors import ConfigurationError, ToolError
from tool_loop.ports import Effect
from tool_loop.toolbox.registry import ToolContext

from .connection import ServerConnection
from .listing import listed
from .results import is_lost, text_of, told

# Reverse-DNS, as the specification asks of whoever adds to `_meta`. The same over every retry and resume
# of a call: a server that knows it can refuse to do the work twice.
KEY: Final = "io.tool-loop/idempotency-key"


class Caller:
    """Calls one tool of one server. `definition` is the SDK's, as it was when the session began."""

    def __init__(self, connection: ServerConnection, definition: Any, effect: Effect | None) -> None:
        self.connection = connection
        self.effect = effect
        self._name = definition.name
        self._definition = definition
        self._checked = connection.restarts

    async def __call__(self, context: ToolContext, arguments: dict[str, Any]) -> str:
        repeatable = self.effect in ("read", "idempotent")
        for last in (not repeatable, True):
            client = await self._client()
            try:
                return text_of(await self._send(client, context, arguments))
            except ToolError:
                raise
            except Exception as error:
                if not is_lost(error):
                    raise told(error, self.connection.server.timeout_seconds) from None
                self.connection.lost(client)
                if last:
                    raise _died(repeatable=repeatable) from None
        raise AssertionError("the second try returns or raises")

    async def _client(self) -> Any:
        try:
            client = await self.connection.client()
        except ConfigurationError as error:
            raise ToolError(str(error), hint="go on without it") from None
        if self._checked != self.connection.restarts:
            await self._same_as_before(client)
        return client

    async def _same_as_before(self, client: Any) -> None:
        """The server was started again: is this still the tool that the model and the person were shown?"""
        try:
            tools, _ = await listed(client)
        except Exception as error:
            raise told(error, self.connection.server.timeout_seconds) from None
        now = next((each for each in tools if each.name == self._name), None)
        if now is None or now.model_dump() != self._definition.model_dump():
            raise ToolError(
                "the server was started again and offers this tool no more, or another one under its name",
                hint="go on without it; with the next question its tools are looked at again",
            )
        self._checked = self.connection.restarts

    async def _send(self, client: Any, context: ToolContext, arguments: dict[str, Any]) -> Any:
        async def progress(done: float, total: float | None, text: str | None) -> None:
            context.progress(text or (f"{done:g} of {total:g}" if total else f"{done:g}"))

        return await client.call_tool(
            self._name,
            arguments,
            read_timeout_seconds=self.connection.server.timeout_seconds,
            progress_callback=progress,
            meta={KEY: context.idempotency_key},
        )


def _died(*, repeatable: bool) -> ToolError:
    if repeatable:
        return ToolError("the MCP server died during this call, twice", hint="go on without it")
    return ToolError(
        "the MCP server died during this call: it may or may not have happened",
        kind="outcome_unknown",
        hint="check first whether it happened; only if it certainly did not, ask for it again",
    )
