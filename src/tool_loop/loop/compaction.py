"""How a run's context is shortened before it overflows: first for nothing, then with a summary.

Cheap first: old bulky tool results become stubs that say how to get them again. If that is not
enough, the model summarises everything before a cut. The cut lies at the edge of a turn, so that a
call and its results are never parted; the question, the system prompt and the last turns stay as
they are. `plan` is pure; `compact` carries it out, and the loop records what comes of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tool_loop import transcript
from tool_loop.errors import ProviderError
from tool_loop.events import (
    Compacted,
    Event,
    ModelAsked,
    ModelReplied,
    ReasoningDelta,
    Retry,
    Signal,
    TextDelta,
    ToolReturned,
    Usage,
)
from tool_loop.ports import Emit
from tool_loop.records import dataclass
from tool_loop.runtime.shield import settle
from tool_loop.state import State

if TYPE_CHECKING:
    from tool_loop.agent import Driver

# A result shorter than this is not worth a stub, which has about 150 characters itself.
BULKY_CHARS = 600
STUB_CHARS = 150

# Turns whose results stay whole: the model is working with them.
KEEP_TURNS = 2

# What the context should have shrunk to, as a share of the window: high enough to keep what helps,
# low enough that the next compaction is many steps away. Each one costs the prompt cache: in
# benchmarks/context.py 0.5 leaves 93 % of what is sent to the cache, and 0.3 leaves 96 %.
TARGET = 0.3

# The window that is assumed when a provider says "too long" without saying how long, as a share of
# what was just refused.
ASSUMED = 0.9


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """`cleared` are the calls whose results become stubs; with `upto` > 0 a summary is needed too."""

    cleared: tuple[str, ...]
    upto: int = 0


def plan(state: State, window: int | None) -> CompactionPlan:
    """What to shorten so that the next request fits well into `window` tokens."""
    events = state.events
    turns = [n for n, e in enumerate(events) if isinstance(e, ModelReplied) and n >= state.first]
    fresh = turns[-KEEP_TURNS] if len(turns) >= KEEP_TURNS else state.first
    gone = {call_id for e in events if isinstance(e, Compacted) for call_id in e.cleared}
    summarised = max((e.upto for e in events if isinstance(e, Compacted)), default=0)
    excess = state.context - int((window or state.context * ASSUMED) * TARGET)
    cleared: list[str] = []

    def clear(start: int, stop: int) -> None:
        nonlocal excess
        for event in events[start:stop]:
            if excess <= 0:
                return
            if isinstance(event, ToolReturned) and event.call_id not in gone and len(event.content) >= BULKY_CHARS:
                cleared.append(event.call_id)
                excess -= int((len(event.content) - STUB_CHARS) / state.chars_per_token)

    clear(summarised, fresh)
    # A summary needs something to summarise: more than the opening question, beyond the last summary.
    cut = fresh if excess > 0 and fresh > max(1, summarised) else 0
    if excess > 0 and not cut:
        clear(fresh, len(events))  # one giant turn: better a stub than a request that is refused
    return CompactionPlan(tuple(cleared), cut)


async def compact(driver: Driver, window: int | None = None) -> bool:
    """Shorten what the model sees and put that on record; False when there is nothing left to shorten.

    `window` is what a provider that refused said it takes, recorded so that nobody pays to learn it again.

    The summary is asked for at the end of the very transcript the model has just seen, tools and all,
    so that a provider's cache serves all of it; calls that come instead are not run. When the model
    gives no words, a digest of the record takes their place: that is better than losing the run.
    """
    state, began = driver.log.state, driver.now()
    todo = plan(state, window or state.window or driver.limits.window)
    if not todo.upto:
        # Recorded even when empty, so that the loop sees it was tried and asks the model next.
        await driver.record(Compacted(todo.cleared, window=window))
        return bool(todo.cleared)
    request = driver.request(may_call=True)
    asking = replace(request, transcript=state.transcript.extended(transcript.UserMessage(transcript.SUMMARISE)))
    driver.emit(ModelAsked(state.steps + 1))
    asked = await settle(driver.llm.reply(asking, _all_but_text(driver.emit)), until=driver.until())
    reply = _no_reply(asked.error) if asked.error else asked.value
    if asked.cancel and not reply.text:
        raise asked.cancel
    summary = reply.text.strip() or transcript.digest(state.events[state.first : todo.upto])
    took = driver.now() - began
    await driver.record(
        Compacted(todo.cleared, summary, todo.upto, reply.usage, reply.cost, took, reply.retries, window),
        asked.cancel,
    )
    return True


def _all_but_text(emit: Emit) -> Emit:
    """Whoever watches sees retries and notices; the text of a summary would look like an answer."""

    def watch(happening: Event | Signal) -> None:
        if not isinstance(happening, TextDelta | ReasoningDelta):
            emit(happening)

    return watch


def _no_reply(error: BaseException) -> ModelReplied:
    """What a summary that failed came to: no words, and what is known to have been spent on it."""
    spent = Retry("timeout", "no summary in time", 0.0)
    if isinstance(error, ProviderError):
        spent = Retry(error.kind, error.message, 0.0, error.status, error.tokens)
    return ModelReplied("", usage=Usage(0, 0), cost=0.0, retries=(spent,))
