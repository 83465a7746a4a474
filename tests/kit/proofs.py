"""Runs that die at every point at which a run can die, and what must be true of them afterwards.

A `Story` is a scripted run; a `World` is what its tools have really done, which no crash takes back.
The proofs take the loop as a parameter, so that the same proof can be given a loop with a part
missing and be seen to fail (test_mutants_durability.py).
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tool_loop import agent
from tool_loop.agent import Driver
from tool_loop.audit.invariants import check
from tool_loop.errors import JournalError
from tool_loop.events import (
    ApprovalRequested,
    Event,
    ModelReplied,
    RunContinued,
    RunEnded,
    RunStarted,
    ToolCall,
    ToolReturned,
    Usage,
)
from tool_loop.journal.memory import MemoryLog, decided
from tool_loop.limits import Limits
from tool_loop.ports import Emit, Request, RunLog
from tool_loop.toolbox.registry import NotRun, ToolRegistry, tool
from tool_loop.transcript import SUMMARISE, AssistantMessage, UserMessage

EFFECTS = {"look": "read", "store": "idempotent", "pay": "once", "ship": "once", "sign": "once", "book": "once"}


@dataclass
class World:
    """What has happened, whatever the journal says: it survives every crash."""

    effects: list[str] = field(default_factory=list)
    stored: dict[int, set[str]] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    replied: int = 0


@dataclass(frozen=True)
class Story:
    """Replies by step. A step that is asked for twice gets the same reply, as from a patient model."""

    replies: tuple[ModelReplied, ...]
    limits: Limits = field(default_factory=Limits)
    questions: tuple[str, ...] = ()
    allow: bool = True


def step(*calls: tuple[str, str]) -> ModelReplied:
    """A reply that calls (name, arguments)."""
    asked = tuple(ToolCall("", name, arguments) for name, arguments in calls)
    return ModelReplied("", asked, "tool_calls", Usage(20, 5))


DONE = ModelReplied("", usage=Usage(20, 5))
PAY = (("pay", '{"n": 1}'), ("pay", '{"n": 2}'), ("ship", '{"n": 3}'))

STORIES: dict[str, Story] = {
    "reads, stores, pays": Story(
        (step(("look", '{"n": 1}'), ("look", '{"n": 2}'), ("store", '{"n": 1}')), step(*PAY), DONE)
    ),
    "everything in one reply": Story((step(("pay", '{"n": 1}'), ("look", '{"n": 1}'), ("ship", '{"n": 2}')), DONE)),
    "asks a person, who allows": Story((step(("look", '{"n": 1}'), ("sign", '{"n": 1}'), ("pay", '{"n": 2}')), DONE)),
    "asks a person, who denies": Story((step(("sign", '{"n": 1}'), ("sign", '{"n": 2}')), DONE), allow=False),
    "can tell what became of a call": Story((step(("book", '{"n": 1}'), ("book", '{"n": 2}')), DONE)),
    "is wrong in every way": Story(
        (
            step(("nope", "{}"), ("look", '{"n": "one"}'), ("pay", "{")),
            ModelReplied("", (ToolCall("", "pay", '{"n": 1}'),), "length"),
            ModelReplied('{"name": "pay", "arguments": {"n": 5}}', usage=Usage(1, 1)),
            DONE,
        )
    ),
    "stops at a limit": Story((step(("look", '{"n": 1}')), step(("pay", '{"n": 1}')), DONE), Limits(steps=2)),
    "does not fit the window": Story(
        (*(step(("look", f'{{"n": {n}}}')) for n in range(5)), step(("pay", '{"n": 1}')), DONE),
        Limits(window=260),
    ),
    "is asked more": Story((step(("pay", '{"n": 1}')), DONE, step(("ship", '{"n": 2}')), DONE), questions=("more",)),
}


def named(call: ToolCall) -> str:
    """The effect of a call, as `World.effects` has it."""
    return f"{call.name} {''.join(re.findall('[0-9]+', call.arguments))}"


class Model:
    """Answers by what it sees, as a real one does, so that a resumed run gets the reply that is due."""

    def __init__(self, story: Story, world: World) -> None:
        self._story = story
        self._world = world

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        await asyncio.sleep(0)
        messages = request.transcript.messages
        if messages[-1] == UserMessage(SUMMARISE):
            return ModelReplied("what was found so far", usage=Usage(50, 5))
        said = [m for m in messages if isinstance(m, AssistantMessage)]
        found = re.match(r"step (\d+)", said[-1].text) if said else None
        n = int(found[1]) + 1 if found else 0
        self._world.asked.append(n)
        reply = self._story.replies[n]
        self._world.replied += 1
        return ModelReplied(f"step {n} {reply.text}", reply.calls, reply.stop, reply.usage)


class Here:
    """The world the tools work on; proofs run one world at a time."""

    world = World()


@cache
def tools() -> ToolRegistry:
    """Tools that do something to the world, and then take a moment until they can say so."""

    async def happens(what: str) -> str:
        await asyncio.sleep(0)
        Here.world.effects.append(what)
        await asyncio.sleep(0)
        return f"{what} is done"

    @tool(effect="read")
    async def look(n: int) -> str:
        """Look."""
        await asyncio.sleep(0)
        return f"seen {n} " * 100

    @tool(effect="idempotent")
    async def store(n: int, context: Any) -> str:
        """Store."""
        Here.world.stored.setdefault(n, set()).add(context.idempotency_key)
        await asyncio.sleep(0)
        return "stored"

    @tool(effect="once")
    async def pay(n: int) -> str:
        """Pay."""
        return await happens(f"pay {n}")

    @tool(effect="once")
    async def ship(n: int) -> str:
        """Ship."""
        return await happens(f"ship {n}")

    @tool(effect="once", needs_approval=True)
    async def sign(n: int) -> str:
        """Sign."""
        return await happens(f"sign {n}")

    @tool(effect="once")
    async def book(n: int) -> str:
        """Book."""
        return await happens(f"book {n}")

    @book.probe
    def booked(n: int) -> str | NotRun:
        return f"book {n} is done" if f"book {n}" in Here.world.effects else NotRun()

    return ToolRegistry([look, store, pay, ship, sign, book])


async def attempt(
    story: Story, log: RunLog, world: World, loop: type[Driver] = Driver, emit: Emit = lambda _: None
) -> RunEnded:
    """Drive a run to its end, with a person who decides whenever it waits and asks what is to be asked."""
    Here.world = world
    asked = sum(isinstance(event, RunContinued) for event in log.state.events)
    if not log.state.events:
        await log.append(RunStarted("q"))
    for question in (None, *story.questions):
        if question is not None:
            asked -= 1
            if asked >= 0:
                continue  # an earlier attempt has asked this
            await log.append(RunContinued(question))
        for _ in range(6):
            outcome = await loop(log, Model(story, world), tools(), story.limits, emit).drive()
            if isinstance(outcome, RunEnded):
                break
            for call in outcome.calls:
                # Whoever is asked about a call in doubt looks first whether it happened.
                allow = story.allow and named(call) not in world.effects
                await log.append(decided(log.state, call.id, allow=allow, by="ann"))
        else:
            raise AssertionError("it waits for ever")
    return outcome


@dataclass(frozen=True)
class Crash:
    """The events on record and the world as it was, at one moment at which the process can die."""

    events: tuple[Event, ...]
    world: World


class Watched(MemoryLog):
    """A log that remembers how things stood before and after each record."""

    def __init__(self, world: World) -> None:
        super().__init__("run", lambda: 0.0)
        self._world = world
        self.moments: list[Crash] = []

    def _moment(self) -> None:
        self.moments.append(Crash(tuple(self.state.events), deepcopy(self._world)))

    async def append(self, event: Event) -> None:
        self._moment()
        await super().append(event)
        self._moment()


def log_with(events: tuple[Event, ...] | list[Event]) -> MemoryLog:
    log = MemoryLog("run", lambda: 0.0)
    for event in events:
        log.state.apply(event)
    return log


async def told(story: Story, loop: type[Driver] = Driver) -> tuple[list[Event], list[Crash]]:
    """The story without a crash, and every moment at which there could have been one."""
    world = World()
    log = Watched(world)
    await attempt(story, log, world, loop)
    sound(story, log.state.events, world)
    return log.state.events, log.moments


def sound(story: Story, events: list[Event], world: World) -> None:
    """What must be true at the end, whatever happened on the way."""
    broken = [str(broken) for broken in check(events, effects=EFFECTS, limits=story.limits, probed={"book"})]
    assert not broken, broken
    done = Counter(world.effects)
    assert max(done.values(), default=0) <= 1, f"an effect happened twice: {done}"
    assert all(len(keys) == 1 for keys in world.stored.values()), "one call had two idempotency keys"
    names = {call.id: call for event in events if isinstance(event, ModelReplied) for call in event.calls}
    for result in (event for event in events if isinstance(event, ToolReturned)):
        what = named(names[result.call_id])
        if result.error is None and EFFECTS[names[result.call_id].name] == "once":
            assert what in done, f"{what} is said to be done, and is not"
        elif result.error in ("cancelled", "denied"):
            assert what not in done, f"{what} is said not to be done, and is"


async def resumes(crash: Crash, story: Story, full: list[Event], loop: type[Driver] = Driver) -> None:
    """From this moment on a new process comes to the same end, pays for nothing twice and does nothing twice."""
    world = deepcopy(crash.world)
    world.asked.clear()
    log = log_with(crash.events)

    end = await attempt(story, log, world, loop)

    assert end == full[-1]
    paid = [event for event in crash.events if isinstance(event, ModelReplied)]
    assert len(world.asked) == len(story.replies) - len(paid), "a reply on record was asked for again"
    assert log.state.events[: len(crash.events)] == list(crash.events)
    sound(story, log.state.events, world)
    requests = [r.call_id for e in log.state.events if isinstance(e, ApprovalRequested) for r in e.requests]
    assert len(requests) <= 2 * len(set(requests)), "the same person was asked again and again"


async def survives_every_crash(story: Story, loop: type[Driver] = Driver) -> int:
    full, moments = await told(story, loop)
    for crash in moments:
        if crash.events:
            await resumes(crash, story, full, loop)
    return len(moments)


# --- failing writes -------------------------------------------------------------------------------


class Failing(MemoryLog):
    """A log whose `n`th write fails, alone or with all that follow."""

    def __init__(self, n: int, error: Callable[[], Exception], lasting: bool) -> None:
        super().__init__("run", lambda: 0.0)
        self._left = n
        self._error = error
        self._lasting = lasting

    async def append(self, event: Event) -> None:
        self._left -= 1
        if self._left == 0 or (self._left < 0 and self._lasting):
            raise self._error()
        await super().append(event)


async def survives_failing_writes(
    story: Story, error: Callable[[], Exception], lasting: bool, loop: type[Driver] = Driver
) -> int:
    """Fails the first write, then the second, until the run needs no further one."""
    full, _ = await told(story, loop)
    for n in range(1, 200):
        world = World()
        log = Failing(n, error, lasting)
        shown: list[object] = []
        try:
            await attempt(story, log, world, loop, shown.append)
        except JournalError:
            pass
        else:
            return n - 1
        intended = {i for intent in log.state.events for i in getattr(intent, "call_ids", ())}
        asked = (call for event in log.state.events if isinstance(event, ModelReplied) for call in event.calls)
        assert set(world.effects) <= {named(call) for call in asked if call.id in intended}, (
            "an effect before its record"
        )
        recorded = [event for event in shown if isinstance(event, Event)]
        assert all(event in log.state.events for event in recorded), "something was shown that is not on record"
        if log.state.events:
            await resumes(Crash(tuple(log.state.events), world), story, full, loop)
    raise AssertionError("the run never ends")


# --- cancels --------------------------------------------------------------------------------------


async def survives_cancels(
    story: Story, opened: Callable[[int], AbstractAsyncContextManager[RunLog]], loop: type[Driver] = Driver
) -> int:
    """Cancels at the first turn of the event loop, then at the second, until the run is over before it.

    `opened` opens the run of that number; it is opened once more to be resumed.
    """
    full, _ = await told(story, loop)
    for turns in range(1000):
        world = World()

        async def once(turns: int = turns, world: World = world) -> RunEnded:
            async with opened(turns) as log:
                return await attempt(story, log, world, loop)

        task = asyncio.ensure_future(once())
        for _ in range(turns):
            await asyncio.sleep(0)
        done = task.done()
        task.cancel()
        await asyncio.wait({task})
        async with opened(turns) as log:
            if log.state.interrupted:
                assert not log.state.pending, "a call was left open"
            # One request may be on its way when the cancel comes; a reply that was there is on record.
            paid = sum(isinstance(event, ModelReplied) for event in log.state.events)
            assert world.replied == paid, "a reply was paid for and lost"
            if done:
                assert task.result() == full[-1]
                return turns
            if log.state.events:
                sound(story, log.state.events, world)
            await attempt(story, log, world, loop)
            sound(story, log.state.events, world)
    raise AssertionError("the run never ends")


# --- a loop with a part missing -------------------------------------------------------------------


def mutant(*changes: tuple[str, str]) -> type[Driver]:
    """The loop with parts of its source replaced; each must be there exactly once."""
    space: dict[str, Any] = {"__name__": "tool_loop.agent", "__package__": "tool_loop"}
    exec(compile(changed(agent, changes), str(agent.__file__), "exec"), space)
    return space["Driver"]


def changed(module: ModuleType, changes: Iterable[tuple[str, str]]) -> str:
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    for old, new in changes:
        assert source.count(old) == 1, f"{module.__name__} no longer says {old!r}: write this mutant anew"
        source = source.replace(old, new)
    return source
