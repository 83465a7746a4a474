"""What a server asks a person for in the middle of a call, put to the reviewer of the run.

It arrives as a call that waits: its arguments are what the server suggests, and a reviewer that allows it
may edit them, as with any other call. What is sent back is checked against the schema the server asked
with, so that nothing a person typed reaches it in a shape nobody meant. Without a reviewer every question
is declined: nobody is there, and an agent does not answer for a person.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from tool_loop.errors import ToolError, UsageError
from tool_loop.events import ToolCall
from tool_loop.ports import PendingApproval, Reviewer
from tool_loop.toolbox.registry import parse_arguments

from .names import plain_name

logger = logging.getLogger(__name__)


def asking(server: str, reviewer: Reviewer | None) -> Callable[[Any, Any], Awaitable[Any]] | None:
    """The SDK's callback for this server, or None, which tells the server that nobody can be asked."""
    if reviewer is None:
        return None
    numbers = count(1)

    async def elicit(_context: Any, asked: Any) -> Any:
        from mcp_types import ElicitResult

        schema = dict(getattr(asked, "requested_schema", None) or {})
        call = ToolCall(f"elicitation-{next(numbers)}", plain_name(server, "asks")[:64], _suggested(schema))
        pending = PendingApproval(call, "", "elicitation", _description(server, asked, schema))
        try:
            decision = await reviewer(pending)
        except Exception:
            logger.exception("the reviewer failed; the question of MCP server %s is declined", server)
            return ElicitResult(action="cancel")
        if not decision.allowed:
            return ElicitResult(action="decline")
        if not schema:
            return ElicitResult(action="accept")
        content = _fitting(server, schema, call.arguments if decision.arguments is None else decision.arguments)
        return ElicitResult(action="cancel") if content is None else ElicitResult(action="accept", content=content)

    return elicit


def _suggested(schema: dict[str, Any]) -> str:
    fields = schema.get("properties", {})
    return json.dumps({name: each["default"] for name, each in fields.items() if "default" in each})


def _description(server: str, asked: Any, schema: dict[str, Any]) -> str:
    lines = [f"The MCP server {server!r} asks: {asked.message}"]
    if url := getattr(asked, "url", None):
        lines.append(f"It wants you to open {url}")
    required = schema.get("required", ())
    for name, each in schema.get("properties", {}).items():
        kind = each.get("enum") or each.get("type", "anything")
        more = f": {each['description']}" if each.get("description") else ""
        lines.append(f"  {name} ({kind}{'' if name in required else ', optional'}){more}")
    return "\n".join(lines)


def _fitting(server: str, schema: dict[str, Any], text: str) -> dict[str, Any] | None:
    from tool_loop.toolbox.call import compiled

    try:
        content = parse_arguments(text)
        if compiled(f"{server} elicitation", schema).is_valid(content):
            return content
    except (ToolError, UsageError) as error:
        logger.warning("MCP server %s: its question cannot be answered: %s", server, error)
        return None
    logger.warning("MCP server %s: the answer does not fit what was asked for, so it is not sent", server)
    return None
