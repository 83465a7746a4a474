"""The tools of MCP servers as ordinary tools, so that everything the loop guarantees holds for them too.

    async with mcp_tools("mcp.json") as tools:
        agent = Agent(llm, [*tools, my_tool])

Needs the extra: `pip install tool-loop[mcp]`. The protocol is the official SDK's affair (importing it
takes two seconds, so that nothing of it is loaded before a server is connected to). What is here is
what only a loop with a journal can know: which call may be sent twice, what a call is after its server
died, what a person approved, and who wrote the words a model reads.

Left out, because the specification deprecates them or a tool-calling loop has no use for them:
sampling, roots, logging, prompts, tasks, and the SSE transport of before 2025.
"""

from .config import load_servers
from .deferred import Deferred, deferred
from .servers import McpServer
from .tools import McpTools, mcp_tools

__all__ = ["Deferred", "McpServer", "McpTools", "deferred", "load_servers", "mcp_tools"]
