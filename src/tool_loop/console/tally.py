"""A run in figures: what it took, and numbers as a person says them.

Pure; knows nothing about terminals, the loop or where events come from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tool_loop.events import Compacted, Event, ModelReplied, RunContinued, RunEnded, ToolCall, ToolReturned, Usage


@dataclass(slots=True)
class Tally:
    """Counts a run's events as they come. `line` is the last thing a person reads about a run.

    `before` holds the steps, tokens and cost at the last follow-up question: limits count from there.
    """

    steps: int = 0
    calls: int = 0
    failures: int = 0
    retries: int = 0
    input: int | None = None
    output: int | None = None
    cached: int | None = None
    cost: float = 0.0
    unpriced: bool = False
    ended: bool = False
    answered: bool = False
    asked: dict[str, ToolCall] = field(default_factory=dict)
    before: tuple[int, int, float] = (0, 0, 0.0)

    @classmethod
    def of(cls, events: Iterable[Event]) -> Tally:
        tally = cls()
        for event in events:
            tally.add(event)
        return tally

    def add(self, event: Event) -> None:
        match event:
            case ModelReplied():
                self.steps += 1
                self.retries += len(event.retries)
                self.asked.update((call.id, call) for call in event.calls)
                self._pay(event.usage, event.cost)
            case Compacted() if event.summary:
                self._pay(event.usage, event.cost)
            case ToolReturned():
                self.calls += 1
                # A person's no is not a failure that somebody recovered from.
                self.failures += event.error not in (None, "denied", "cancelled")
            case RunContinued():
                self.ended = self.answered = False
                self.before = (self.steps, self.tokens, self.cost)
            case RunEnded():
                self.ended, self.answered = True, event.reason == "answered"
            case _:
                pass

    def _pay(self, usage: Usage, cost: float | None) -> None:
        self.input = _sum(self.input, usage.input)
        self.output = _sum(self.output, usage.output)
        self.cached = _sum(self.cached, usage.cached)
        self.unpriced |= cost is None
        self.cost += cost or 0.0

    @property
    def tokens(self) -> int:
        return (self.input or 0) + (self.output or 0)

    def line(self, seconds: float | None = None) -> str:
        """`7 steps, 6 calls, 3 failures recovered, 12,345 tokens in (8,000 cached), 456 out, 12.3 s`."""
        parts = [plural(self.steps, "step"), plural(self.calls, "call")]
        if self.failures:
            parts.append(plural(self.failures, "failure") + (" recovered" if self.answered else ""))
        if self.retries:
            parts.append(f"{self.retries} {'retry' if self.retries == 1 else 'retries'}")
        parts += tokens(Usage(self.input, self.output, self.cached), "tokens ")
        if self.steps and not self.unpriced:
            parts.append(dollars(self.cost))
        if seconds is not None:
            parts.append(duration(seconds))
        return ", ".join(parts)


def _sum(total: int | None, more: int | None) -> int | None:
    return total if more is None else (total or 0) + more


def tokens(usage: Usage, word: str = "") -> list[str]:
    parts = []
    if usage.input is not None:
        parts.append(f"{usage.input:,} {word}in" + (f" ({usage.cached:,} cached)" if usage.cached else ""))
    if usage.output is not None:
        parts.append(f"{usage.output:,} {'' if parts else word}out")
    return parts


def plural(count: int, word: str) -> str:
    if word.endswith("match") and count != 1:
        word += "e"
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def duration(seconds: float) -> str:
    """`0.4 s`, `12.3 s`, `2 min 05 s`, `10 min`, `3 h 12 min`."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def short(count: int) -> str:
    """A number of tokens where space is scarce: 812, 12.4k, 200k, 3.1M."""
    if count < 1_000:
        return str(count)
    return f"{_rounded(count / 1_000)}k" if count < 999_950 else f"{_rounded(count / 1_000_000)}M"


def _rounded(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def dollars(amount: float) -> str:
    """Money, never rounded down to nothing."""
    if 0 < amount < 0.0001:
        return "<$0.0001"
    return f"${amount:.4f}" if amount < 1 else f"${amount:.2f}"


def usage_of(events: Iterable[Event]) -> Usage:
    """Everything the server counted in these events, replies and summaries together."""
    parts = [e.usage for e in events if isinstance(e, ModelReplied | Compacted)]

    def total(values: Iterable[int | None]) -> int | None:
        known = [v for v in values if v is not None]
        return sum(known) if known else None

    return Usage(
        total(p.input for p in parts),
        total(p.output for p in parts),
        total(p.cached for p in parts),
        total(p.cache_write for p in parts),
        total(p.reasoning for p in parts),
    )


def cost_of(events: Iterable[Event]) -> float | None:
    """What these events cost in US dollars, None where one has no price."""
    costs = [e.cost for e in events if isinstance(e, ModelReplied) or (isinstance(e, Compacted) and e.summary)]
    costs += [e.cost for e in events if isinstance(e, ToolReturned) and e.tokens]
    known = [cost for cost in costs if cost is not None]
    return sum(known, 0.0) if len(known) == len(costs) else None
