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
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tool_loop.audit.invariants import Broken
from tool_loop.errors import Fenced, JournalError
from tool_loop.events import ApprovalDecided, Event
from tool_loop.journal.codec import decode, encode
from tool_loop.journal.memory import decided
from tool_loop.state import State

RUN = "sim"
ENDLESS = 600  # records; the longest run in order has about 150


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
    under_way: set[str] = field(default_factory=set)
    received: int = 0
    bodies: dict[str, tuple[object, ...]] = field(default_factory=dict)
    keys: dict[tuple[int, int, bool], str] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    broken: list[Broken] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    coverage: Counter[tuple[str, str]] = field(default_factory=Counter)
    calm: bool = False
    dead: bool = False
    bounded: bool = False
    overlap: bool = False
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
        self.seen = len(events)
        world.fence += 1
        self.fence = world.fence

    async def append(self, event: Event) -> None:
        world = self.world
        world.trip()
        await world.pause(0.05)
        await world.alive()
        if world.fencing and self.fence != world.fence:
            raise Fenced("another process took the run over")
        self._fold_decisions()
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
        self.seen += 1
        if world.strikes("crash after a write", 0.5):
            await world.die("after a write")
        self.state.apply(event)
        world.tell(f"  on record: {line[:140]}")

    def _fold_decisions(self) -> None:
        """Decisions are made from elsewhere while the run is driven; nothing else is, with a fence."""
        for line in self.world.disk[self.seen :]:
            event = decode(line)
            if isinstance(event, ApprovalDecided):
                self.state.apply(event)
        self.seen = len(self.world.disk)


class SimJournal:
    """A journal with one run on a disk of its own."""

    def __init__(self, world: World) -> None:
        self.world = world

    @asynccontextmanager
    async def open(self, _run_id: str) -> AsyncIterator[SimLog]:
        yield SimLog(self.world)

    def events(self, _run_id: str) -> Sequence[Event]:
        return self.world.events()

    async def decide(self, _run_id: str, call_id: str, *, allow: bool, by: str = "", note: str = "") -> ApprovalDecided:
        """A decision from elsewhere, while nobody drives the run."""
        decision = decided(State.of(self.world.events()), call_id, allow=allow, by=by, note=note)
        self.world.disk.append(encode(decision))
        return decision
