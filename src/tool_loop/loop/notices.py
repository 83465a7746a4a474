"""What a person should hear once, worked out from what happens in a run. Only watches."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence

from tool_loop.events import Event, IntentRecorded, ModelReplied, Notice, RetryWaiting, Signal
from tool_loop.ports import Emit, Tools

logger = logging.getLogger(__name__)

# A wait that somebody without a view of the run takes for a program that hangs.
_LONG: float = 5.0


def failed(subscriber: object, told: set[int]) -> None:
    """Logs what a subscriber raised: as an error once, then for DEBUG only, for one that fails at all fails at
    every event. `told` are those that an error was logged of."""
    level = logging.DEBUG if id(subscriber) in told else logging.ERROR
    told.add(id(subscriber))
    logger.log(level, "a subscriber failed (on_event); the run goes on", exc_info=True)


def waiting(it: RetryWaiting) -> None:
    """A server that is not there, or a long wait, is said also where nobody watches: it looks like silence."""
    if it.seconds >= _LONG or (it.kind == "connection" and it.attempt == 2):
        logger.warning("%s (asked again in %.1f s, attempt %d)", it.message, it.seconds, it.attempt)


def telling(subscribers: Sequence[Callable[[Event | Signal], object]], tools: Tools) -> Emit:
    """One function that tells all subscribers. What they raise is theirs: it never ends a run."""
    told: set[int] = set()

    def emit(happening: Event | Signal) -> None:
        for subscriber in subscribers:
            try:
                subscriber(happening)
            except Exception:
                failed(subscriber, told)
        if type(happening) is RetryWaiting:
            waiting(happening)

    return telling_undeclared(tools, emit)


def telling_undeclared(tools: Tools, emit: Emit) -> Emit:
    """Says once per tool that its calls ran in order only because it declares no effect."""
    told: set[str] = set()
    asked: dict[str, str] = {}

    def watch(happening: Event | Signal) -> None:
        emit(happening)
        if isinstance(happening, ModelReplied):
            asked.clear()
            asked.update((call.id, call.name) for call in happening.calls)
        elif isinstance(happening, IntentRecorded) and len(happening.call_ids) > 1:
            names = Counter(asked[call_id] for call_id in happening.call_ids if call_id in asked)
            for name, n in names.items():
                if n > 1 and name not in told and tools.effect(name) is None:
                    told.add(name)
                    how = '@tool(effect="read") lets them run together'
                    emit(Notice(f"{name} declares no effect: its {n} calls ran in order; {how}"))

    return watch
