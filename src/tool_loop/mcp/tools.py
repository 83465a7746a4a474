"""`mcp_tools`: connects servers and makes ordinary tools of theirs. `McpTools` is the list of them.

Pinned for the session: the tools are the first bytes of every request, and what a person approved, so a
server that says they changed is heard between two questions (`refresh`) and not before. A tool whose
definition is another one after its server died and came back is not called any more: what was
approved, and shown to the model, is not what would run.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from os import PathLike
from typing import Any, Final, TypeAlias, overload

from tool_loop.errors import ConfigurationError, FatalError, UsageError
from tool_loop.ports import Reviewer
from tool_loop.toolbox.registry import Tool, ToolContext

from .calls import Caller
from .config import load_servers
from .connection import ServerConnection
from .elicitation import asking
from .listing import listed
from .names import wire_names
from .servers import McpServer

MOST_DESCRIPTION: Final = 10_000

Notice: TypeAlias = Callable[[str], None]

logger = logging.getLogger(__name__)


def _log(text: str) -> None:
    logger.warning("%s", text)


@asynccontextmanager
async def mcp_tools(
    *servers: McpServer | str | PathLike[str], reviewer: Reviewer | None = None, notice: Notice = _log
) -> AsyncIterator[McpTools]:
    """The tools of all these servers, connected for as long as the block lasts.

    A server is an `McpServer`, or the path of an `mcp.json` as editors write it. `reviewer` answers what
    a server asks a person for in the middle of a call (elicitation); without one it is declined.
    `notice` gets a sentence for each tool that had to be left out. Raises `ConfigurationError` when a
    server cannot be reached, with the last words of a program that ended, and `UsageError` for two
    servers of one name.
    """
    try:
        import mcp.client.client  # noqa: F401
    except ImportError:
        raise ConfigurationError("MCP needs the extra: pip install 'tool-loop[mcp]'") from None
    chosen = [each for given in servers for each in _servers(given)]
    names = [server.name for server in chosen]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"two MCP servers are called {twice!r}; give one another name")
    async with AsyncExitStack() as stack:
        sessions = [
            await stack.enter_async_context(ServerConnection(server, asking(server.name, reviewer)))
            for server in chosen
        ]
        tools = McpTools(sessions, notice)
        await tools.refresh()
        yield tools


def _servers(given: McpServer | str | PathLike[str]) -> Sequence[McpServer]:
    return [given] if isinstance(given, McpServer) else load_servers(given)


class McpTools(Sequence[Tool]):
    """The tools of the connected servers, in the servers' order. A plain sequence of `Tool`."""

    def __init__(self, connections: Sequence[ServerConnection], notice: Notice) -> None:
        self._connections = connections
        self._notice = notice
        self._tools: list[Tool] = []

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    @overload
    def __getitem__(self, index: int) -> Tool: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Tool]: ...
    def __getitem__(self, index: int | slice) -> Tool | Sequence[Tool]:
        return self._tools[index]

    @property
    def stale(self) -> bool:
        """Whether a server has said, since the last `refresh`, that its tools have changed."""
        return any(connection.changed for connection in self._connections)

    async def refresh(self) -> list[str]:
        """Ask all servers for their tools again; returns the names of those that are new, gone or changed.

        For between two questions: an `Agent` made afterwards sees the new ones, and one that was made
        before keeps what it was given.
        """
        offered = [(connection, each) for connection in self._connections for each in await self._offered(connection)]
        names = wire_names((connection.server.name, each.name) for connection, each in offered)
        before = {tool.name: digest(tool) for tool in self._tools}
        self._tools = []
        for connection, each in offered:
            try:
                self._tools.append(_tool(connection, each, names[connection.server.name, each.name]))
            except (UsageError, ValueError) as error:  # one bad schema must not cost the other tools
                self._notice(f"MCP server {connection.server.name}: left out {each.name!r}: {error}")
        after = {tool.name: digest(tool) for tool in self._tools}
        return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))

    async def _offered(self, connection: ServerConnection) -> list[Any]:
        connection.changed = False
        try:
            tools, whole = await listed(await connection.client())
        except FatalError:
            raise
        except Exception as error:  # whatever the SDK makes of what a stranger sent
            why = str(error).partition("\n")[0][:300]
            raise ConfigurationError(
                f"the MCP server {connection.server.name!r} cannot be used: what it offers is not MCP: {why}"
            ) from None
        if not whole:
            self._notice(f"MCP server {connection.server.name}: only its first {len(tools)} tools are used")
        seen: dict[str, Any] = {}
        for each in tools:
            if connection.server.offers(each.name):
                seen.setdefault(each.name, each)
        return list(seen.values())


def _tool(connection: ServerConnection, each: Any, name: str) -> Tool:
    server = connection.server
    caller = Caller(connection, each, server.effect_of(each.name, each.annotations))

    # The schema may have a field of any name but this one, which is refused when the tool is made.
    async def call(*, tool_loop_context: ToolContext, **arguments: Any) -> str:
        return await caller(tool_loop_context, arguments)

    return Tool(
        name,
        (each.description or each.title or "")[:MOST_DESCRIPTION],
        {"type": "object"} | dict(each.input_schema),
        call,
        effect=caller.effect,
        timeout_seconds=server.timeout_seconds + 1,  # the server's own limit comes first, and tells it to stop
        untrusted=server.is_untrusted(each.annotations),
        scope=server.identity,
    )


def digest(tool: Tool) -> str:
    """Two definitions with the same digest are the same to a model and to whoever approved it."""
    return json.dumps([tool.description, tool.spec.parameters, tool.effect, tool.untrusted], sort_keys=True)
