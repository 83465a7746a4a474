"""One budget for many: runs side by side, a batch, an agent and those it asks.

    budget = Budget(usd=5)
    results = await asyncio.gather(*(agent.run(q, budget=budget) for q in questions))

A counter that is looked at before a request and raised after it is overrun by everything that is under way:
24 runs at once spent a third more than they had. So a request is paid for twice: an estimate is reserved
before it is sent, and what it really cost replaces that afterwards. With it each run holds the price of its
last word, so that one whose request no longer fits still ends with an answer.

Knows nothing about the loop: it is an `LLM` around the model, and a refusal is an error that the loop reads
as a limit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from .errors import BudgetSpent, ProviderError, UsageError
from .events import Compacted, ModelReplied, ToolReturned, Usage
from .limits import LAST_WORD_TOKENS
from .ports import LLM, Emit, Request
from .runtime.context import CURRENT

# Before the first reply has told better; as in state.py, too low a guess only reserves too much.
_CHARS_PER_TOKEN: Final = 3.0

# What a run is called that has no id: a model that is asked outside of one.
_NOBODY: Final = "-"


@dataclass(frozen=True, slots=True)
class Amount:
    """So many tokens and US dollars."""

    tokens: float = 0
    usd: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.usd + other.usd)


class Budget:
    """What several runs may spend together: US dollars, tokens, and seconds from the first request.

    None is no bound. The runs of it need `prices` where `usd` is given. A run whose next request does not
    fit ends as "budget", with the last word that it has kept the price of. With a `name`, which each run
    records, `restore` finds again what was spent before a restart. `within` is a larger budget that pays
    too. Safe to share between event loops and threads. Raises `UsageError` for a bound that is none.
    """

    def __init__(
        self,
        *,
        usd: float | None = None,
        tokens: int | None = None,
        seconds: float | None = None,
        name: str = "",
        within: Budget | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for word, bound in (("usd", usd), ("tokens", tokens), ("seconds", seconds)):
            if bound is not None and (isinstance(bound, bool) or not bound > 0):
                raise UsageError(f"Budget({word}=...) must be a number above zero, got {bound!r}; None is no bound")
        self.usd = usd
        self.tokens = tokens
        self.seconds = seconds
        self.name = name
        self._within = within
        self._clock = clock
        self._began: float | None = None
        self._lock = threading.Lock()
        self._spent = Amount()
        self._held: dict[str, Amount] = {}
        self._longest = float(LAST_WORD_TOKENS)
        self._chars_per_token = _CHARS_PER_TOKEN

    @property
    def spent_usd(self) -> float:
        """What the replies cost so far, in US dollars."""
        return self._spent.usd

    @property
    def spent_tokens(self) -> int:
        """What was sent and received so far."""
        return int(self._spent.tokens)

    def restore(self, journal: Any) -> Budget:
        """Count what the runs that recorded this budget's name have spent, as their journal has it; itself.

        For the start of a program, before any of its runs. Raises `UsageError` for a budget without a name.
        """
        if not self.name:
            raise UsageError("a budget that is restored needs a name, as in Budget(usd=5, name='nightly')")
        for run in journal.runs(meta={"budget": self.name}):
            for event in journal.events(run.id):
                if isinstance(event, ModelReplied | Compacted):
                    self.pay(_tokens(event.usage), event.cost or 0.0)
                elif isinstance(event, ToolReturned):  # what a sub-agent spent, in a run of its own
                    self.pay(event.tokens, event.cost or 0.0)
        return self

    def pay(self, tokens: float, usd: float) -> None:
        """Count something that was spent."""
        with self._lock:
            self._spent += Amount(tokens, usd)
        if self._within:
            self._within.pay(tokens, usd)

    # --- what a request does ----------------------------------------------------------------------

    def expected(self, chars: int) -> tuple[float, float]:
        """Tokens that a request of so many characters is expected to read, and its reply to have."""
        return chars / self._chars_per_token, self._longest

    def reserve(self, who: str, request: Amount, last_word: Amount, *, is_last: bool) -> bool:
        """Set aside the price of a request and of the last word after it; False when they do not fit."""
        with self._lock:
            now = self._clock()
            self._began = now if self._began is None else self._began
            late = self.seconds is not None and now - self._began >= self.seconds
            mine = who in self._held
            need = request if is_last else request + last_word
            # A last word whose price was set aside is owed to the run, whatever else has happened since.
            if not (is_last and mine) and (late or not self._fits(who, need)):
                return False
            self._held[who] = need
        if self._within and not self._within.reserve(who, request, last_word, is_last=is_last):
            with self._lock:
                self._held[who] = last_word
            return False
        return True

    def settle(self, who: str, paid: Amount, last_word: Amount) -> None:
        """Put what a request really cost in the place of what was reserved for it."""
        with self._lock:
            self._spent += paid
            self._held[who] = last_word
        if self._within:
            self._within.settle(who, paid, last_word)

    def learn(self, chars: int, usage: Usage) -> None:
        """Make the next estimate better than the last one."""
        with self._lock:
            if usage.input:
                self._chars_per_token = min(6.0, max(1.0, chars / usage.input))
            self._longest = max(self._longest, float(usage.output or 0))
        if self._within:
            self._within.learn(chars, usage)

    def release(self, who: str) -> None:
        """What a run held is free again, since it asks no more."""
        with self._lock:
            self._held.pop(who, None)
        if self._within:
            self._within.release(who)

    def _fits(self, who: str, need: Amount) -> bool:
        others = sum((held for name, held in self._held.items() if name != who), Amount())
        total = self._spent + others + need
        return (self.usd is None or total.usd <= self.usd) and (self.tokens is None or total.tokens <= self.tokens)


class Budgeted:
    """A model whose requests a budget pays for. `price` says what tokens cost, None where nobody knows.

    Raises `BudgetSpent` in place of a request that does not fit.
    """

    def __init__(self, llm: LLM, budget: Budget, price: Callable[[Usage], float | None] | None = None) -> None:
        self.llm = llm
        self.budget = budget
        self._price = price

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        who = CURRENT.get().run_id or _NOBODY
        chars = request.transcript.chars
        read, written = self.budget.expected(chars)
        last_word = self._amount(read + written, LAST_WORD_TOKENS)
        if not self.budget.reserve(who, self._amount(read, written), last_word, is_last=not request.may_call):
            raise BudgetSpent(f"the budget{f' {self.budget.name!r}' if self.budget.name else ''} has no more for this")
        paid = Amount()
        try:
            reply = await self.llm.reply(request, emit)
            failed = sum(retry.tokens for retry in reply.retries)
            used = _tokens(reply.usage) if reply.usage.input is not None else read + written
            paid = Amount(used + failed, self._cost(reply, read, written))
            self.budget.learn(chars, reply.usage)
        except ProviderError as error:
            paid = Amount(error.tokens)
            raise
        else:
            return reply
        finally:
            self.budget.settle(who, paid, last_word)

    def _amount(self, read: float, written: float) -> Amount:
        usage = Usage(int(read), int(written))
        return Amount(read + written, (self._price(usage) if self._price else None) or 0.0)

    def _cost(self, reply: ModelReplied, read: float, written: float) -> float:
        return self._amount(read, written).usd if reply.cost is None else reply.cost


def price_of(llm: LLM, budget: Budget, prices: Any) -> Callable[[Usage], float | None] | None:
    """What tokens of this model cost, where `prices` (a `Prices`) can say it. Raises `UsageError` for a bound
    in dollars that nothing can be held against."""
    if prices is None:
        if budget.usd is not None:
            raise UsageError("Budget(usd=...) needs prices: Agent(..., prices=GenaiPrices()) or a PriceTable")
        return None
    model, origin = str(getattr(llm, "model", "")), str(getattr(llm, "origin", ""))
    return lambda usage: prices.cost(model, origin, usage)


def _tokens(usage: Usage) -> float:
    return float((usage.input or 0) + (usage.output or 0))
