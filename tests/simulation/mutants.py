"""Bugs planted on purpose, one at a time: whoever removes a safeguard has to see a test fail.

The only place in the tests that patches internals, because that is what a planted bug is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from tool_loop import agent, transcript as messages
from tool_loop.agent import Driver
from tool_loop.events import Event, IntentRecorded, ModelReplied, Restarted, ToolCall, ToolReturned
from tool_loop.llm.retry import Retrying
from tool_loop.loop import approvals, compaction
from tool_loop.ports import Request
from tool_loop.runtime import shield
from tool_loop.state import State
from tool_loop.transcript import ToolMessage, Transcript, shown

from . import world

Mutant = Callable[[], AbstractContextManager[object]]


def shield_removed() -> AbstractContextManager[object]:
    async def record(self: Driver, event: Event, held: asyncio.CancelledError | None = None) -> None:
        await self.log.append(event)
        self.emit(event)
        if held:
            raise held

    return patch.object(Driver, "record", record)


@contextmanager
def intent_after_the_effect() -> Iterator[None]:
    record = Driver.record
    late: list[IntentRecorded] = []

    async def delayed(self: Driver, event: Event, held: asyncio.CancelledError | None = None) -> None:
        if isinstance(event, IntentRecorded):
            late.append(event)
            return
        await record(self, event, held)
        if isinstance(event, ToolReturned) and late:
            await record(self, late.pop())

    with patch.object(Driver, "record", delayed):
        yield


def no_intent() -> AbstractContextManager[object]:
    record = Driver.record

    async def skipping(self: Driver, event: Event, held: asyncio.CancelledError | None = None) -> None:
        if not isinstance(event, IntentRecorded):
            await record(self, event, held)

    return patch.object(Driver, "record", skipping)


def ids_not_repaired() -> AbstractContextManager[object]:
    return patch.object(messages, "repaired", lambda reply, *_: reply)


def results_in_the_order_they_land() -> AbstractContextManager[object]:
    def close_turn(self: Transcript) -> None:
        if all(call.id in self._landed for call in self._asked):
            names = {call.id: call.name for call in self._asked}
            for call_id, result in self._landed.items():
                self._add(ToolMessage(call_id, names[call_id], shown(result), result.error is not None))
            self._landed.clear()
            self._asked = ()

    return patch.object(Transcript, "_close_turn", close_turn)


def limits_looked_at_one_step_late() -> AbstractContextManager[object]:
    reached = agent.reached

    def late(state: State, limits: Any, elapsed: float) -> str | None:
        return reached(state, replace(limits, steps=limits.steps + 1, tokens=None), elapsed)

    return patch.object(agent, "reached", late)


@contextmanager
def fencing_dropped() -> Iterator[None]:
    made = world.World.__post_init__

    def unfenced(self: world.World) -> None:
        made(self)
        self.fencing = False

    with patch.object(world.World, "__post_init__", unfenced):
        yield


def approval_not_used_up() -> AbstractContextManager[object]:
    resumed = State._resumed

    def keeping(self: State) -> None:
        decisions, requested = dict(self.decisions), dict(self.requested)
        resumed(self)
        self.decisions.update(decisions)
        self.requested.update(requested)

    return patch.object(State, "_resumed", keeping)


def doubt_forgotten() -> AbstractContextManager[object]:
    return patch.object(State, "_resumed", lambda self: self.intents.clear())


def changed_on_retry(change: Callable[[Request, int], Request]) -> AbstractContextManager[object]:
    reply = Retrying.reply

    class Changing:
        def __init__(self, llm: Any) -> None:
            self.llm, self.n = llm, 0

        async def reply(self, request: Request, emit: Any) -> ModelReplied:
            self.n += 1
            return await self.llm.reply(change(request, self.n), emit)

    async def mutated(self: Retrying, request: Request, emit: Any) -> ModelReplied:
        self.llm = Changing(self.llm)
        return await reply(self, request, emit)

    return patch.object(Retrying, "reply", mutated)


def key_changed_on_retry() -> AbstractContextManager[object]:
    return changed_on_retry(lambda request, n: replace(request, key=f"{request.key}.{n}"))


def body_changed_on_retry() -> AbstractContextManager[object]:
    return changed_on_retry(lambda request, n: replace(request, may_call=n % 2 == 0))


def retry_after_partial_output_not_told() -> AbstractContextManager[object]:
    reply = Retrying.reply

    async def mutated(self: Retrying, request: Request, emit: Any) -> ModelReplied:
        return await reply(self, request, lambda said: None if isinstance(said, Restarted) else emit(said))

    return patch.object(Retrying, "reply", mutated)


def open_calls_left_at_a_cancel() -> AbstractContextManager[object]:
    def left(call: ToolCall) -> ToolReturned:
        raise asyncio.CancelledError

    return patch.object(messages, "cancelled", left)


def doubt_told_as_cancelled() -> AbstractContextManager[object]:
    return patch.object(messages, "outcome_unknown", lambda call, note="": messages.cancelled(call))


def cut_replies_executed() -> AbstractContextManager[object]:
    return patch.object(messages, "cut_off", lambda _call: None)


def tools_not_withheld() -> AbstractContextManager[object]:
    request = Driver.request
    return patch.object(Driver, "request", lambda self, may_call: request(self, True))


def deadline_ignored() -> AbstractContextManager[object]:
    return patch.object(Driver, "until", lambda self, last_word=False: None)


def denials_overlooked() -> AbstractContextManager[object]:
    return patch.object(approvals, "barred", lambda *_: None)


def approvals_not_asked_for() -> AbstractContextManager[object]:
    return patch.object(agent, "waits", lambda *_: False)


@contextmanager
def shown_before_written() -> Iterator[None]:
    async def reversed_(log: Any, event: Event, emit: Any) -> None:
        emit(event)
        await log.append(event)

    with patch.object(shield, "_write_then_show", reversed_):
        yield


def compaction_parts_a_turn() -> AbstractContextManager[object]:
    plan = compaction.plan

    def parting(state: State, window: int | None) -> compaction.CompactionPlan:
        todo = plan(state, window)
        return replace(todo, upto=todo.upto + 1) if todo.upto else todo

    return patch.object(compaction, "plan", parting)


MUTANTS: dict[str, Mutant] = {
    f.__name__: f  # type: ignore[attr-defined]
    for f in (
        shield_removed,
        intent_after_the_effect,
        no_intent,
        ids_not_repaired,
        results_in_the_order_they_land,
        limits_looked_at_one_step_late,
        fencing_dropped,
        approval_not_used_up,
        doubt_forgotten,
        key_changed_on_retry,
        body_changed_on_retry,
        retry_after_partial_output_not_told,
        open_calls_left_at_a_cancel,
        doubt_told_as_cancelled,
        cut_replies_executed,
        tools_not_withheld,
        deadline_ignored,
        denials_overlooked,
        approvals_not_asked_for,
        shown_before_written,
        compaction_parts_a_turn,
    )
}
