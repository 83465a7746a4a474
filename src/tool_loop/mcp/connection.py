"""One server's connection, from its start to its end, in a task of its own.

The SDK's client lives in anyio's cancel scopes, which have to be left in the task that entered them.
Entered in one task and left in another, they cancel whoever comes by; that is the commonest bug among
the clients built on it. So one task enters, waits, and leaves, and calls only borrow the client. It also
lets a server that died be started again while calls wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final, Self, TypeAlias

from tool_loop.errors import ConfigurationError

from .lastwords import LastWords
from .servers import McpServer

# A server that died three times in one session has something worse than bad luck.
RESTARTS: Final = 3
_BACKOFF_SECONDS: Final = 0.1

# The SDK asks a process to end, then kills it, and bounds all of it by six and a half seconds.
_CLOSE_SECONDS: Final = 8.0

Elicit: TypeAlias = Any  # ElicitationFnT of the SDK, which is not loaded for its types

logger = logging.getLogger(__name__)


class ServerConnection:
    """A server that is up, coming up, or down for good. `async with` it; `client()` waits until it is up.

    `elicit` answers the server's questions to a person, in the SDK's own form; None declines them.
    `changed` is set when the server said that its tools have changed. `restarts` counts.
    """

    def __init__(self, server: McpServer, elicit: Elicit | None = None) -> None:
        self.server = server
        self.restarts = 0
        self.changed = False
        self._elicit = elicit
        self._words = LastWords(server.name)
        self._client: Any = None
        self._failed: ConfigurationError | None = None
        self._settled = asyncio.Event()  # up, or down for good
        self._down = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._serve(), name=f"mcp {self.server.name}")
        try:
            await self.client()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End it, whatever it is doing; bounded, and safe to call again."""
        self._closing = True
        self._down.set()
        if self._task is None:
            return
        if not self._settled.is_set():
            self._task.cancel()  # it is still coming up, and nobody wants it any more
        await asyncio.wait({self._task}, timeout=_CLOSE_SECONDS)
        if not self._task.done():
            logger.warning("the MCP server %s does not end; it is left behind", self.server.name)
            self._task.cancel()

    async def client(self) -> Any:
        """The SDK's client, once it is up. Raises `ConfigurationError` when it is down for good."""
        patience = self.server.connect_seconds * 2 + RESTARTS
        try:
            async with asyncio.timeout(patience):
                await self._settled.wait()
        except TimeoutError:
            raise self._cannot(TimeoutError(f"not up after {patience:g} s")) from None
        if self._failed is not None:
            raise self._failed
        return self._client

    def lost(self, client: Any) -> None:
        """A call found that `client` has nobody behind it. Only the first of several to say so counts."""
        if client is self._client:
            self._settled.clear()
            self._down.set()

    # --- the task ---------------------------------------------------------------------------------

    async def _serve(self) -> None:
        came_up = False
        while True:
            self._down.clear()
            error = await self._once()
            came_up = came_up or self._client is not None
            self._client = None
            if self._closing:
                break
            if not came_up or self.restarts >= RESTARTS:
                # One that never came up is started wrongly, and trying again does not mend that.
                self._failed = self._cannot(error or ConnectionError("it keeps dying"))
                break
            self.restarts += 1
            logger.warning("the MCP server %s died and is started again", self.server.name)
            await asyncio.sleep(_BACKOFF_SECONDS * 2**self.restarts)
        self._settled.set()

    async def _once(self) -> Exception | None:
        """From one start to its end. What the SDK raises on the way out is the server's, not ours."""
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self.server.connect_seconds):
                    self._client = await stack.enter_async_context(await self._make(stack))
                self._settled.set()
                await self._down.wait()
                self._settled.clear()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return ConnectionError("the connection was torn down")  # by a scope of the SDK's, on itself
        except Exception as error:
            return error
        finally:
            if not self._closing:
                self._settled.clear()
        return None

    async def _make(self, stack: AsyncExitStack) -> Any:
        from mcp.client.client import Client

        transport: Any = await self._transport(stack)
        return Client(transport, mode=self.server.mode, elicitation_callback=self._elicit, message_handler=self._said)

    async def _transport(self, stack: AsyncExitStack) -> Any:
        if self.server.url:
            return await self._http(stack)
        from mcp.client.stdio import StdioServerParameters, stdio_client

        program, *arguments = self.server.command
        parameters = StdioServerParameters(
            command=program, args=arguments, env=dict(self.server.env), cwd=self.server.cwd,
            encoding_error_handler="replace",
        )  # fmt: skip
        # What it says there goes to the log: on the terminal it would run through the live view.
        stderr = stack.enter_context(self._words.listening())
        return _noticing(stdio_client(parameters, errlog=stderr), self._ended)

    async def _http(self, stack: AsyncExitStack) -> Any:
        from mcp.client.streamable_http import streamable_http_client

        if not (self.server.auth or self.server.headers):
            return self.server.url
        import httpx2

        timeout = httpx2.Timeout(self.server.connect_seconds, read=max(300.0, self.server.timeout_seconds))
        client = httpx2.AsyncClient(auth=self.server.auth, headers=dict(self.server.headers), timeout=timeout)
        return streamable_http_client(self.server.url, http_client=await stack.enter_async_context(client))

    def _ended(self) -> None:
        """The server closed its side between two calls: it is started again before the next one needs it,
        so that a call that must not run twice is not the one that finds out."""
        self.lost(self._client)

    async def _said(self, message: Any) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            # Believed when the tools are compared, between two questions: several servers say so right
            # after their start, with nothing changed.
            self.changed = True

    def _cannot(self, error: BaseException) -> ConfigurationError:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        why = str(error) or type(error).__name__
        if isinstance(error, TimeoutError):
            why = f"no answer within {self.server.connect_seconds:g} s"
        words = f"; it said last: {said}" if (said := self._words.last) else ""
        return ConfigurationError(f"the MCP server {self.server.name!r} cannot be used: {why[:500]}{words}")


@asynccontextmanager
async def _noticing(
    transport: AbstractAsyncContextManager[Any], ended: Callable[[], None]
) -> AsyncIterator[tuple[Any, Any]]:
    """The transport, with a call of `ended` when the other side closes."""
    async with transport as (read, write):
        yield _Reading(read, ended), write


class _Reading:
    """The reading end of a transport. Everything but its end is the inner one's affair."""

    def __init__(self, inner: Any, ended: Callable[[], None]) -> None:
        self._inner = inner
        self._ended = ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *how: object) -> Any:
        return await self._inner.__aexit__(*how)

    def __aiter__(self) -> _Reading:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._inner.__anext__()
        except StopAsyncIteration:
            self._ended()
            raise
