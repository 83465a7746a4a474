"""What a run costs, where the extra `prices` is installed.

Its data takes 200 ms of CPU to load. A budget in dollars needs it before the first request; a line at
the end does not, so there it is loaded on a thread once the first request is on its way.
"""

from __future__ import annotations

import asyncio
import re
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tool_loop.events import ModelReplied
    from tool_loop.llm.prices import Prices
    from tool_loop.ports import LLM, Emit, Request

# The host of a provider has a name with a dot in it; a server in the house has no price.
_SOLD = re.compile(r"https?://[^/:]*[a-z][^/:]*\.[^/:]*[a-z]")

# By then the first request has left; loading earlier would hold it up.
LATER_SECONDS = 0.2


def pricing(args: Namespace, llm: LLM) -> tuple[LLM, Prices | None]:
    """The model, and the prices to give the agent. Raises `ConfigurationError` when a budget has none."""
    from tool_loop.llm.prices import GenaiPrices

    if args.max_usd:
        return llm, GenaiPrices()
    known = _SOLD.search(str(getattr(llm, "origin", ""))) and find_spec("genai_prices")
    return (Costed(llm, GenaiPrices) if known else llm), None


class Costed:
    """An `LLM` whose replies carry their cost where it is known; says nothing where it is not."""

    def __init__(self, llm: LLM, prices: Callable[[], Prices]) -> None:
        self.llm = llm
        self._open = prices

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        loading = asyncio.ensure_future(self._loaded())
        try:
            reply = await self.llm.reply(request, emit)
            prices = await loading
            return replace(reply, cost=prices.cost(reply.model, reply.origin, reply.usage) if prices else None)
        finally:
            loading.cancel()

    async def _loaded(self) -> Prices | None:
        from tool_loop.runtime.threads import run_in_thread

        if "_prices" not in vars(self):
            await asyncio.sleep(LATER_SECONDS)
        try:
            return await run_in_thread(lambda: self._prices)
        except Exception:  # a line about money is not worth a reply that was paid for
            return None

    @cached_property
    def _prices(self) -> Prices:
        prices = self._open()
        prices.window("gpt-4o", "")  # any question loads the data
        return prices
