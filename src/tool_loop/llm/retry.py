"""Asks again when waiting can help, and says at once when it cannot. Wraps any `LLM`.

Between attempts it waits: as long as the server asked, or a random time below a ceiling that doubles
("full jitter": clients that failed together do not come back together). How often it asks follows
from what is left of the run's time and tokens, not from a fixed three: an outage of a minute is
sat out, and with five seconds left they are used.

Knows nothing about HTTP or providers: it reads `ProviderError` and the request's deadline.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tool_loop.errors import ProviderError
from tool_loop.events import ModelReplied, ReasoningDelta, Restarted, Retry, RetryWaiting, TextDelta

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tool_loop.events import Event, Signal
    from tool_loop.ports import LLM, Emit, Request

# An attempt that starts too late to be answered before the deadline buys nothing. How much is kept for
# the reply follows from how long replies took in this run. Before the first of them it is what a
# reply takes elsewhere, but no more than a third of what is left: with little time, one late chance
# is worth more than none (four fifths were kept once, and then a limit of 5 s meant no retry at all).
_FOR_THE_REPLY: Final = 5.0
_SHARE_FOR_THE_REPLY: Final = 1 / 3

# A failure that comes back this fast was decided before any work was done.
_INSTANT: Final = 1.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How patient to be. Times are in seconds.

    `attempts` is the most requests for one reply, and `patience` the most waiting; with these waits
    twenty attempts take about two and a half minutes. `max_wait` is the longest single wait a server
    may ask for; a longer one is reported instead. The ceiling of the random wait starts at
    `first_wait` and doubles up to `longest_wait`. `same_answer` is after how many instant and
    identical failures the server is taken at its word, and `paid_for` after how many replies that
    were made, and paid for, but could not be used.
    """

    attempts: int = 20
    max_wait: float = 300.0
    patience: float = 300.0
    first_wait: float = 0.5
    longest_wait: float = 20.0
    same_answer: int = 3
    paid_for: int = 3


class Retrying:
    """The same model, with patience.

    Emits `RetryWaiting` before each further attempt, and `Restarted` when text of the failed one was
    shown. The reply tells what it took (`retries`, `seconds`, `first_token`). Raises the last
    `ProviderError` when no further attempt is worth it; its message says why.
    """

    def __init__(
        self,
        llm: LLM,
        policy: RetryPolicy = RetryPolicy(),
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        random: Callable[[], float] = random.random,
    ) -> None:
        self.llm = llm
        self.policy = policy
        self._sleep = sleep
        self.random = random

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        now = asyncio.get_running_loop().time
        attempts = _Attempts(self.policy, request, now(), self.random)
        while True:
            watch = _RetryWatch(emit, now)
            asked = now()
            try:
                reply = await self.llm.reply(request, watch)
            except ProviderError as error:
                if watch.showed:
                    emit(Restarted(error.kind))
                wait = attempts.wait_after(error, asked, now())
                emit(RetryWaiting(error.kind, error.message, wait, attempts.made + 1, error.status))
                await self._sleep(wait)
            else:
                first = None if watch.first is None else watch.first - attempts.started
                retries = (*attempts.failed, *reply.retries)
                return replace(reply, retries=retries, seconds=now() - attempts.started, first_token=first)


class _RetryWatch:
    """Passes everything on, and remembers whether and when text came."""

    __slots__ = ("_emit", "_now", "first", "showed")

    def __init__(self, emit: Emit, now: Callable[[], float]) -> None:
        self._emit = emit
        self._now = now
        self.first: float | None = None
        self.showed = False

    def __call__(self, said: Event | Signal) -> None:
        if isinstance(said, TextDelta):
            self.showed = True
            if self.first is None:
                self.first = self._now()
        elif isinstance(said, ReasoningDelta):
            self.showed = True
        self._emit(said)


class _Attempts:
    """What was tried for one reply, and whether to try again."""

    __slots__ = (
        "_allowance", "_deadline", "_last", "_pace", "_paid_for", "_policy", "_random", "_same", "failed", "made",
        "started",
    )  # fmt: skip

    def __init__(self, policy: RetryPolicy, request: Request, started: float, random: Callable[[], float]) -> None:
        self.started = started
        self.failed: list[Retry] = []
        self.made = 0
        self._policy = policy
        self._random = random
        self._allowance = request.allowance
        self._same = 0
        self._last: tuple[str, int | None, str] | None = None
        self._paid_for = 0
        self._deadline = request.deadline
        self._pace = request.pace

    def wait_after(self, error: ProviderError, asked: float, now: float) -> float:
        """Seconds until the next attempt. Raises the error when there should be none."""
        self.made += 1
        room = self._room(now)
        wait = self._wait(error, room)
        if why := self._enough(error, wait, now - asked, room):
            raise self._ended(error, why, now)
        self.failed.append(Retry(error.kind, error.message, wait, error.status, error.tokens))
        return wait

    def _room(self, now: float) -> float | None:
        """Seconds there are for waiting; None without a deadline."""
        if self._deadline is None:
            return None
        left = max(0.0, self._deadline - now)
        kept = min(_FOR_THE_REPLY, left * _SHARE_FOR_THE_REPLY) if self._pace is None else self._pace
        return max(0.0, left - kept)

    def _wait(self, error: ProviderError, room: float | None) -> float:
        policy = self._policy
        ceiling = min(policy.longest_wait, policy.first_wait * 2.0 ** min(self.made - 1, 32))
        wait = ceiling * self._random()
        if error.retry_after is None:
            return wait
        # Never earlier than asked, and a little later, each client by another bit: all that were
        # turned away in the same second were told the same time. As much later as there is time for.
        wait = max(wait, error.retry_after + min(1.0, error.retry_after / 4) * self._random())
        return wait if room is None else max(error.retry_after, min(wait, room))

    def _enough(self, error: ProviderError, wait: float, took: float, room: float | None) -> str:
        """Why there should be no further attempt, or ""."""
        policy = self._policy
        if not error.retryable:
            return "final"
        self._count(error, took)
        if self.made >= policy.attempts:
            return "no attempt is left"
        if self._same >= policy.same_answer:
            return f"the same answer came {self._same} times at once, so asking again will not help"
        if self._paid_for >= policy.paid_for:
            return f"{self._paid_for} replies were made and could not be used"
        if error.retry_after is not None and error.retry_after > policy.max_wait:
            return (
                f"it asks to wait {error.retry_after:.0f} s, more than the {policy.max_wait:g} s there are for one wait"
            )
        waited = sum(retry.waited for retry in self.failed)
        if waited + wait > policy.patience:
            return f"it has waited {waited:.0f} s, and another {wait:.0f} s are more than there are"
        if room is not None and wait > room:
            return f"the next attempt is {wait:.1f} s away, and the run has {room:.1f} s left for waiting"
        spent = sum(retry.tokens for retry in self.failed) + error.tokens
        if self._allowance is not None and 0 < spent >= self._allowance:
            return f"the failed attempts have used {spent:,} tokens, all the run may spend"
        return ""

    def _count(self, error: ProviderError, took: float) -> None:
        # A local server answers some mistakes of the client with a 500, and a login page comes with a
        # 200; both look like faults that pass. A gateway in front of a dead server (502, 503) says
        # the same thing every time too, but that one does pass.
        answer = (error.kind, error.status, error.raw)
        comparable = error.status in (200, 500) and took < _INSTANT and error.raw != ""
        self._same = self._same + 1 if comparable and answer == self._last else int(comparable)
        self._last = answer if comparable else None
        if error.kind in ("empty", "model_output"):
            self._paid_for += 1

    def _ended(self, error: ProviderError, why: str, now: float) -> ProviderError:
        if why == "final" and self.made == 1:
            return error
        tries = "1 attempt" if self.made == 1 else f"{self.made} attempts in {now - self.started:.1f} s"
        stop = "" if error.message.endswith((".", "!", "?", ":")) else "."
        error.message = f"{error.message}{stop} Gave up after {tries}" + (f": {why}." if why != "final" else ".")
        error.args = (error.message,)
        error.tokens += sum(retry.tokens for retry in self.failed)
        return error
