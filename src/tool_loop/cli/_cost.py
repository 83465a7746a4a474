"""What a run costs, where the extra `prices` is installed.

Its data takes 160 ms of CPU to load. A budget in dollars needs it before the first request; a line at
the end does not, so there it is loaded on a thread while the first reply is waited for.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tool_loop.events import ModelReplied
    from tool_loop.ports import LLM, Emit, Request
    from tool_loop.prices import Prices


def pricing(args: Namespace, llm: LLM) -> tuple[LLM, Prices | None]:
    """The model, and the prices to give the agent. Raises `ConfigurationError` when a budget has none."""
    from tool_loop.prices import GenaiPrices

    if args.max_usd:
        return llm, GenaiPrices()
    return (Costed(llm, GenaiPrices) if find_spec("genai_prices") else llm), None


class Costed:
    """An `LLM` whose replies carry their cost where it is known; says nothing where it is not."""

    def __init__(self, llm: LLM, prices: Callable[[], Prices]) -> None:
        self._llm = llm
        self._open = prices
        self._prices: Prices | None = None

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        from tool_loop._threads import run_in_thread

        loading = run_in_thread(self._load) if self._prices is None else None
        reply = await self._llm.reply(request, emit)
        try:
            prices = await loading if loading else self._prices
            cost = prices.cost(reply.model, reply.origin, reply.usage) if prices else None
        except Exception:
            cost = None  # a line about money is not worth a reply that was paid for
        return replace(reply, cost=cost)

    def _load(self) -> Prices:
        prices = self._open()
        prices.window("gpt-4o", "")  # any question loads the data
        self._prices = prices
        return prices
