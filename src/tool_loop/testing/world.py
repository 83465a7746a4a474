"""A small world that misbehaves by chance, the same way for the same seed: what the simulation runs in.

A wandering model, tools with and without effects, a disk that fails and tears, a person who is slow or
changes their mind, and a process that dies. Everything is drawn from one `random.Random`, so a seed
tells the whole story again. What really happened (which effect ran how often) is kept beside what is
on record, because the two are compared at the end.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tool_loop.codec import decode, encode
from tool_loop.errors import Fenced, JournalError, ProviderError, ToolError, UsageError
from tool_loop.events import ApprovalDecided, Event, ModelReplied, Stop, TextDelta, ToolCall, ToolReturned, Usage
from tool_loop.journal import decided
from tool_loop.messages import SUMMARISE, UserMessage
from tool_loop.ports import Emit, Pending, Request
from tool_loop.registry import ToolContext, ToolRegistry, tool
from tool_loop.state import State

from .invariants import Broken, check_messages

RUN = "sim"
ENDLESS = 600  # records; the longest run in order has about 150
PROVIDER_FAULTS = (
    "rate_limit", "overloaded", "server_error", "timeout", "connection", "protocol", "empty", "model_output",
    "auth", "not_found", "bad_request", "context_length", "content_filter", "quota",
)  # fmt: skip
# What a model really sends now and then, in place of a clean call.
BAD_ARGUMENTS = ('{"n": 1', "[1]", '{"n": "one"}', "{}", '{"n": 1, "x": 2}', '```json\n{"n": 1}\n```', "nul", "")


@dataclass
class World:
    """Everything that outlives a process: the disk, the effects, the story so far."""

    seed: int
    random: random.Random = field(init=False)
    trouble: float = field(init=False)
    left: int = field(init=False)
    disk: list[str] = field(default_factory=list)
    fence: int = 0
    fencing: bool = True
    done: Counter[str] = field(default_factory=Counter)
    reruns: Counter[str] = field(default_factory=Counter)
    received: int = 0
    bodies: dict[str, tuple[object, ...]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    broken: list[Broken] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    coverage: Counter[tuple[str, str]] = field(default_factory=Counter)
    calm: bool = False
    dead: bool = False
    bounded: bool = False
    tripwire: int = 0
    victim: asyncio.Task[Any] | None = None
    past: float = 0.0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.left = self.random.randrange(1, 12)
        # Some worlds are quiet and some are terrible: faults that come one at a time are found as
        # well as those that need three others first.
        self.trouble = self.random.choice((0.0, 0.02, 0.05, 0.15))

    def tell(self, line: str) -> None:
        self.story.append(f"{self.past + asyncio.get_running_loop().time():9.3f}  {line}")

    def strikes(self, fault: str, weight: float = 1.0) -> bool:
        """Whether this fault happens now."""
        if self.calm or self.random.random() >= self.trouble * weight:
            return False
        self.faults.append(fault)
        self.tell(f"! {fault}")
        return True

    async def pause(self, most: float = 2.0) -> None:
        """A wait of no, little or some time, at most `most` seconds."""
        draw = self.random.random()
        if draw < 0.3:
            return
        await asyncio.sleep(0 if draw < 0.6 else self.random.random() * (0.01 if draw < 0.9 else most))

    async def die(self, why: str) -> None:
        """The process is gone, here and now: nothing after this happens."""
        self.tell(f"! the process dies: {why}")
        self.dead = True
        asyncio.get_running_loop().stop()
        await asyncio.get_running_loop().create_future()

    async def alive(self) -> None:
        """Nothing more from here when the process is dead: the event loop still finishes its turn."""
        if self.dead:
            await asyncio.get_running_loop().create_future()

    def trip(self) -> None:
        """Cancel the run just as it writes, when that is what is to happen: the moments that matter."""
        self.tripwire -= 1
        if self.tripwire == 0 and self.victim is not None:
            self.victim.cancel()
            self.victim = None

    def complain(self, rule: str, why: str) -> None:
        self.broken.append(Broken(rule, -1, "the simulation", why))

    def events(self) -> list[Event]:
        """What is on the disk; a torn last record is dropped, as every journal does."""
        found: list[Event] = []
        for n, line in enumerate(self.disk):
            try:
                found.append(decode(line))
            except JournalError:
                if n < len(self.disk) - 1:
                    self.complain("I25", f"record {n} is damaged")
        return found


class SimLog:
    """The run on the world's disk, as one process holds it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.run_id = RUN
        events = world.events()
        del world.disk[len(events) :]
        self.state = State.of(events)
        world.fence += 1
        self.fence = world.fence

    async def append(self, event: Event) -> None:
        world = self.world
        world.trip()
        await world.pause(0.05)
        await world.alive()
        if world.fencing and self.fence != world.fence:
            raise Fenced("another process took the run over")
        for line in world.disk[len(self.state.events) :]:
            self.state.apply(decode(line))  # a decision that was made elsewhere meanwhile
        if world.strikes("write error", 0.3):
            raise JournalError("disk full")
        if len(world.disk) > ENDLESS:
            raise RuntimeError("the run goes on for ever")
        line = encode(event)
        if world.strikes("crash before a write", 0.5):
            await world.die("before a write")
        if world.strikes("torn write", 0.3):
            world.disk.append(line[: world.random.randrange(len(line))])
            await world.die("in the middle of a write")
        world.disk.append(line)
        if world.strikes("crash after a write", 0.5):
            await world.die("after a write")
        self.state.apply(event)
        world.tell(f"  on record: {line[:140]}")


class SimJournal:
    """A journal with one run on a disk of its own."""

    def __init__(self, world: World) -> None:
        self.world = world

    @asynccontextmanager
    async def open(self, _run_id: str) -> AsyncIterator[SimLog]:
        yield SimLog(self.world)

    def events(self, _run_id: str) -> Sequence[Event]:
        return self.world.events()

    async def decide(self, _run_id: str, call_id: str, **said: Any) -> ApprovalDecided:
        """A decision from elsewhere, while nobody drives the run."""
        decision = decided(State.of(self.world.events()), call_id, **said)
        self.world.disk.append(encode(decision))
        return decision


class SimModel:
    """A model that wanders: it reads what it is told, and asks for whatever comes to its mind."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        world = self.world
        self._read(request)
        if world.bounded and world.strikes("hang", 0.3):
            await asyncio.get_running_loop().create_future()
        await world.pause()
        if world.random.random() < 0.5:
            emit(TextDelta("let me think"))
            await world.pause()
        if world.strikes("provider", 3.0):
            self._fail(request)
        if request.transcript.messages[-1] == UserMessage(SUMMARISE):
            return self._summary()
        reply = self._say(request)
        world.received += 1
        world.tell(f"  model: {reply.text[:40]!r} {[(c.id, c.name, c.arguments[:20]) for c in reply.calls]}")
        return reply

    def _read(self, request: Request) -> None:
        world = self.world
        world.broken += check_messages(request.transcript.messages)
        world.asked[request.key] += 1
        body = (len(request.transcript.messages), request.transcript.chars, request.may_call)
        summary = request.transcript.messages[-1] == UserMessage(SUMMARISE)
        if not summary and world.bodies.setdefault(request.key, body) != body:
            world.complain("I15", f"two requests with the key {request.key} are not the same")
        if request.key in world.bodies and world.asked[request.key] > 30:
            world.complain("I15", f"{world.asked[request.key]} requests with the key {request.key}")

    def _fail(self, request: Request) -> None:
        draw = self.world.random
        kind: Any = draw.choice(PROVIDER_FAULTS if draw.random() < 0.5 else PROVIDER_FAULTS[:8])
        self.world.faults[-1] = f"provider: {kind}"
        wait = draw.choice((None, None, 0.5, 3.0, 3600.0)) if kind == "rate_limit" else None
        window = request.transcript.chars // 4 if kind == "context_length" else None
        raise ProviderError(
            f"{kind} by chance", kind=kind, retry_after=wait, window=window, tokens=draw.choice((0, 0, 50))
        )

    def _summary(self) -> ModelReplied:
        if self.world.strikes("no summary", 3.0):
            return ModelReplied("", (ToolCall("s", "look", '{"n": 1}'),), usage=Usage(50, 5))
        return ModelReplied("what was found so far", usage=Usage(50, 5))

    def _say(self, request: Request) -> ModelReplied:
        draw = self.world.random
        usage = Usage() if draw.random() < 0.2 else Usage(request.transcript.chars // 4, draw.randrange(40))
        self.world.left -= 1
        if not request.may_call:
            calls = (self._call(0),) if self.world.strikes("calls although withheld", 2.0) else ()
            return ModelReplied("" if calls and draw.random() < 0.5 else "in short", calls, usage=usage)
        if self.world.left < 0:
            text = '{"name": "look", "arguments": {"n": 1}}' if self.world.strikes("a call as text", 2.0) else "done"
            return ModelReplied(text, usage=usage)
        stop: Stop = "length" if self.world.strikes("cut by length") else "tool_calls"
        return ModelReplied("", tuple(self._call(n) for n in range(draw.randrange(1, 5))), stop, usage)

    def _call(self, n: int) -> ToolCall:
        draw = self.world.random
        name = draw.choice(("look", "look", "poll", "put", "pay", "ship", "gate", "slow"))
        arguments = f'{{"n": {draw.randrange(6)}}}'
        call_id = f"c{self.world.received}_{n}"
        if self.world.strikes("bad arguments", 2.0):
            arguments = draw.choice(BAD_ARGUMENTS)
        if self.world.strikes("unknown tool"):
            name = "nobody"
        if self.world.strikes("bad id", 2.0):
            call_id = draw.choice(("", "same", "same", "with space", "x" * 80))
        return ToolCall(call_id, name, arguments)


class Stage:
    """The tools. Built once, because their schemas are; each world steps onto it in turn."""

    def __init__(self) -> None:
        self.world = World(0)

        @tool(effect="read")
        async def look(n: int) -> str:
            """Look."""
            await self._work()
            return f"saw {n} " + "x" * (400 if n == 5 else 0)

        @tool(effect="read", polling=True)
        async def poll(n: int) -> str:
            """Poll."""
            await self._work()
            return "not yet"

        @tool(effect="read", timeout_seconds=3)
        async def slow(n: int) -> str:
            """Take long, and hold on to it when asked to stop."""
            try:
                await asyncio.sleep(n * 2)
            except asyncio.CancelledError:
                if self.world.strikes("ignores its cancellation", 5.0):
                    await asyncio.sleep(0.3)
                raise
            return "at last"

        @tool(effect="idempotent")
        async def put(n: int, context: ToolContext) -> str:
            """Put."""
            await self._work()
            return f"put {n}"

        @tool(effect="once")
        async def pay(n: int, context: ToolContext) -> str:
            """Pay."""
            return await self._effect("paid", n, context)

        @tool(effect="once")
        async def ship(n: int, context: ToolContext) -> str:
            """Ship."""
            return await self._effect("shipped", n, context)

        @ship.probe
        async def shipped(n: int, context: ToolContext) -> object:
            if self.world.random.random() < 0.2:
                return None
            return f"shipped {n}, says the probe" if self.world.done[context.idempotency_key] else False

        @tool(effect="once", needs_approval=True)
        async def gate(n: int, context: ToolContext) -> str:
            """Needs a person."""
            return await self._effect("opened", n, context)

        self.tools = ToolRegistry([look, poll, slow, put, pay, ship, gate])
        self.effects = {t.name: t.effect or "once" for t in self.tools}

    async def _work(self) -> None:
        await self.world.pause()
        if self.world.strikes("tool says no"):
            raise ToolError("not like that")
        if self.world.strikes("tool crashes"):
            raise RuntimeError("a bug of the tool")

    async def _effect(self, word: str, n: int, context: ToolContext) -> str:
        """Something that must happen once: the world remembers how often it really did."""
        await self._work()
        await self.world.alive()
        self.world.done[context.idempotency_key] += 1
        self.world.tell(f"  effect: {word} {n} ({context.idempotency_key})")
        await self.world.pause()
        if self.world.strikes("crash after an effect"):
            await self.world.die("after an effect, before its outcome was recorded")
        return f"{word} {n}"


class SimPerson:
    """Decides about calls: at once or slowly, for and against, and now and then not at all."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def __call__(self, shown: Pending) -> ApprovalDecided:
        world, draw = self.world, self.world.random
        await world.pause()
        if world.bounded and world.strikes("the person goes away", 3.0):
            await asyncio.get_running_loop().create_future()
        if world.strikes("the reviewer fails", 3.0):
            raise OSError("the terminal is gone")
        said = self.decide(shown)
        edited = '{"n": 3}' if said["allow"] and draw.random() < 0.2 else None
        standing = draw.random() < 0.1 and shown.why == "policy"
        return ApprovalDecided(
            draw.choice((shown.call.id, "another")),
            said["allow"],
            "sim",
            said["note"],
            arguments=edited,
            standing=standing,
        )

    def decide(self, shown: Pending) -> dict[str, Any]:
        allow = self.world.random.random() < 0.7
        self.world.tell(f"  person: {'yes' if allow else 'no'} to {shown.call.id} ({shown.why})")
        if allow and shown.why == "in_doubt":
            self.world.reruns[shown.call.id] += 1
        return {"allow": allow, "note": "" if allow else "no"}

    async def decide_later(self, journal: SimJournal, waiting: Sequence[Pending]) -> None:
        """Decide from elsewhere, and sometimes twice: only the first may count."""
        for shown in waiting:
            with suppress(UsageError):  # another process was faster
                await journal.decide(RUN, shown.call.id, **self.decide(shown))
            if self.world.random.random() < 0.3:
                try:
                    await journal.decide(RUN, shown.call.id, allow=True)
                except UsageError:
                    continue
                self.world.complain("I11", f"a second decision about {shown.call.id} was taken")


def executed_but_denied(world: World, events: Sequence[Event], keys: dict[str, str]) -> None:
    """What really happened against what the model was told about it."""
    results = {e.call_id: e for e in events if isinstance(e, ToolReturned)}
    for key, count in world.done.items():
        call_id = keys.get(key, "")
        if count > 1 + world.reruns[call_id]:
            world.complain("I7", f"{call_id} ran {count} times")
        told = results.get(call_id)
        if told is None:
            world.complain("I8", f"{call_id} ran, and the model was told nothing about it")
        elif told.error in ("cancelled", "denied", "cut_off", "limit_reached"):
            world.complain("I8", f"{call_id} ran, and the model was told {told.error}")
