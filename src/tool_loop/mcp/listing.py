"""What a server says it has: page by page, and bounded whatever it says."""

from __future__ import annotations

from typing import Any, Final

# A server that never ends its list of tools, or has more than any model can choose from.
PAGES: Final = 100
MOST_TOOLS: Final = 1_000


async def listed(client: Any) -> tuple[list[Any], bool]:
    """All tools a server has, page by page, and whether that was all. A list that has no end is cut."""
    found: list[Any] = []
    cursor = None
    for _ in range(PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return found[:MOST_TOOLS], len(found) <= MOST_TOOLS
        if len(found) >= MOST_TOOLS:
            break
    return found[:MOST_TOOLS], False
