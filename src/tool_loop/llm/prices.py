"""What a reply costs, where that is known; and how large a model's window is.

Two sources behind one small protocol: a table the caller gives, or the data of the `genai-prices`
package (extra `prices`, offline, loaded when the first price is asked for). An unknown price is
None and never a guess: a budget in dollars that rests on a guess is worse than none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from tool_loop.errors import ConfigurationError
from tool_loop.events import ModelReplied, Notice, Usage
from tool_loop.ports import LLM, Emit, Request
from tool_loop.records import dataclass

MILLION = 1_000_000


class Prices(Protocol):
    def cost(self, model: str, origin: str, usage: Usage) -> float | None:
        """US dollars for these tokens, None where the price or the tokens are not known."""
        ...

    def window(self, model: str, origin: str) -> int | None:
        """The size of the model's context in tokens, None where it is not known."""
        ...


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens. Cached input costs as much as other input unless said otherwise."""

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None
    window: int | None = None

    def of(self, usage: Usage) -> float | None:
        if usage.input is None or usage.output is None:
            return None
        cached, written = usage.cached or 0, usage.cache_write or 0
        total = (usage.input - cached - written) * self.input + usage.output * self.output
        total += cached * (self.input if self.cached is None else self.cached)
        total += written * (self.input if self.cache_write is None else self.cache_write)
        return total / MILLION


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices by model name, as the caller knows them. The longest name that begins a model's name counts,
    so that "gpt-x" also prices "gpt-x-2026-11-01".
    """

    prices: Mapping[str, Price]

    def cost(self, model: str, origin: str, usage: Usage) -> float | None:  # noqa: ARG002  part of the protocol
        price = self._find(model)
        return price.of(usage) if price else None

    def window(self, model: str, origin: str) -> int | None:  # noqa: ARG002
        price = self._find(model)
        return price.window if price else None

    def _find(self, model: str) -> Price | None:
        names = [name for name in self.prices if model == name or model.startswith(f"{name}-")]
        return self.prices[max(names, key=len)] if names else None


class GenaiPrices:
    """Prices and windows from the `genai-prices` package, which has them as offline data.

    Raises `ConfigurationError` when the package is not installed.
    """

    def __init__(self) -> None:
        from importlib.util import find_spec

        if find_spec("genai_prices") is None:
            message = "prices need the package genai-prices (our extra `prices`): pip install genai-prices"
            raise ConfigurationError(message)

    def cost(self, model: str, origin: str, usage: Usage) -> float | None:
        if usage.input is None or usage.output is None:
            return None
        found = self._price(model, origin, usage)
        return None if found is None else float(found.total_price)

    def window(self, model: str, origin: str) -> int | None:
        found = self._price(model, origin, Usage(1, 1))
        return None if found is None else found.model.context_window

    @staticmethod
    def _price(model: str, origin: str, usage: Usage):  # type: ignore[no-untyped-def]  # noqa: ANN205  the package's own type
        import genai_prices  # 160 ms of CPU: only when a price is really asked for

        counted = genai_prices.Usage(
            input_tokens=usage.input,
            output_tokens=usage.output,
            cache_read_tokens=usage.cached,
            cache_write_tokens=usage.cache_write,
        )
        url = origin[origin.find("http") :] if "http" in origin else None
        # By the endpoint first: the same model has another price elsewhere. An unknown endpoint (a
        # local server) has no price, even where somebody else sells a model of that name.
        try:
            return genai_prices.calc_price(counted, model_ref=model, provider_api_url=url)
        except (LookupError, ValueError):
            return None


class Priced:
    """An `LLM` whose replies carry their cost. Says once when a model's price is not known."""

    def __init__(self, llm: LLM, prices: Prices) -> None:
        self.llm = llm
        self._prices = prices
        self._told: set[str] = set()

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        reply = await self.llm.reply(request, emit)
        cost = self._prices.cost(reply.model, reply.origin, reply.usage)
        if cost is None and reply.model not in self._told:
            self._told.add(reply.model)
            emit(Notice(f"the price of {reply.model or 'this model'} is not known, so what it costs is not counted"))
        return replace(reply, cost=cost)
