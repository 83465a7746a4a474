"""Being told when an event loop is about to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable


async def at_loop_end(close: Callable[[], Awaitable[None]]) -> AsyncGenerator[None]:
    """Call `close` before the running loop closes. What this returns is to be kept for as long.

    `asyncio.run` closes the asynchronous generators of its loop before the loop itself. This is the
    only moment at which sockets can still be closed properly, and nobody has to ask for it.
    """
    end = _until_then(close)
    await anext(end)
    return end


async def _until_then(close: Callable[[], Awaitable[None]]) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await close()
