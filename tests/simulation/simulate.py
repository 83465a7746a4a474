"""Thousands of runs in small worlds that go wrong, one seed each, in one process.

    python -m tests.simulation.simulate --seeds 20000        find out
    python -m tests.simulation.simulate --seed 4711          tell that story again, line by line

The loop, the registry, the retry policy, the codec and the state are the real ones; the model, the
tools, the disk, the person and the clock are drawn from the seed. After every run its record is held
against the invariants and against what really happened.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tool_loop.api import Agent
from tool_loop.audit.invariants import Broken, check
from tool_loop.errors import FatalError, Fenced
from tool_loop.events import (
    ApprovalDecided,
    Event,
    ModelAsked,
    ModelReplied,
    Restarted,
    RetryWaiting,
    RunEnded,
    Signal,
    TextDelta,
    ToolCall,
)
from tool_loop.journal.codec import encode
from tool_loop.limits import Limits
from tool_loop.llm.retry import Retrying, RetryPolicy
from tool_loop.result import Result
from tool_loop.runtime.clock import VirtualLoop
from tool_loop.state import State, call_key

from .actors import SimModel, SimPerson, Stage, executed_but_denied
from .world import RUN, SimJournal, World

# Tools crash here on purpose, thousands of times: a line on stderr for each tells nobody anything.
logging.getLogger("tool_loop").addHandler(logging.NullHandler())

ATTEMPTS = 24  # the last ones without faults: by then every run has to end
CALM_AFTER = 8
STAGE = Stage()


@dataclass(slots=True)
class Story:
    """What came of one seed. Two stories of a seed are the same, byte for byte."""

    seed: int
    broken: list[Broken]
    lines: list[str] = field(repr=False)
    records: list[str] = field(repr=False)
    coverage: Counter[tuple[str, str]] = field(repr=False)

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join([*self.lines, *self.records]).encode()).hexdigest()


class _Process:
    """One process that drives the run, from its start until it ends, waits, fails or dies."""

    def __init__(self, world: World, limits: Limits) -> None:
        self.world = world
        self.limits = limits
        self.journal = SimJournal(world)
        self.person = SimPerson(world)
        self.attended = world.random.random() < 0.5
        self.shown = False

    def run(self) -> str:
        """The outcome in a word."""
        world, loop = self.world, VirtualLoop()
        world.dead, world.victim = False, None
        world.under_way.clear()  # whoever was at it is dead now
        world.overlap = False
        first, replies, received = len(world.faults), _replies(world), world.received
        asyncio.set_event_loop(None)
        task = loop.create_task(self.live())
        task.add_done_callback(lambda _: loop.stop())
        try:
            loop.run_forever()
            outcome = "crashed" if world.dead else task.result()
        finally:
            world.past += loop.time()
            _bury(loop)
        faults = world.faults[first:]
        for fault in faults:
            world.coverage[fault, outcome] += 1
        if not world.dead and not {"write error", "taken over"} & set(faults):
            if _replies(world) - replies != world.received - received:
                world.complain("I14", "a reply was received, and is not on record")
            state = State.of(world.events())
            if outcome == "cancelled" and (left := state.pending.keys() - state.adrift):
                world.complain("I22", f"the calls {sorted(left)} have no result after a cancel, and are not in doubt")
        return outcome

    async def live(self) -> str:
        world = self.world
        mine = asyncio.ensure_future(self.drive())
        if world.strikes("cancelled", 2.0):
            if world.random.random() < 0.5:
                world.victim, world.tripwire = mine, world.random.randrange(1, 15)
            else:
                await asyncio.sleep(world.random.random() * 3)
                mine.cancel()
        elif world.strikes("taken over", 1.0):
            # Another process believes that this one is dead, and it is not.
            world.overlap = True
            await asyncio.sleep(world.random.random() * 3)
            if not mine.done():
                other = asyncio.ensure_future(self.drive())
                await asyncio.wait({mine, other})
                return other.result()
        await asyncio.wait({mine})
        return "waiting" if mine.cancelled() else mine.result()

    async def drive(self) -> str:
        world = self.world
        llm = Retrying(SimModel(world), RetryPolicy(), random=world.random.random)
        agent = Agent(
            llm, STAGE.tools, limits=self.limits, journal=self.journal, retry=None, on_event=self.watch,
            reviewer=self.person if self.attended else None,
        )  # fmt: skip
        began = asyncio.get_running_loop().time()
        try:
            result = await agent.run("the question", run_id=RUN)
        except asyncio.CancelledError:
            return "cancelled"
        except Fenced:
            return "fenced"
        except FatalError as error:
            return f"error: {error.kind}"
        finally:
            took = asyncio.get_running_loop().time() - began
            if self.limits.seconds is not None and took > self.limits.seconds + 1.0:
                world.complain("I16", f"an attempt took {took:.2f} s of {self.limits.seconds}")
        return await self.ended(result)

    async def ended(self, result: Result) -> str:
        if result.reason != "waiting":
            return "last word of the journal" if result.source == "journal" else result.reason
        if self.world.fencing and self.world.random.random() < 0.9:
            await self.person.decide_later(self.journal, result.waiting)
        return "waiting"

    def watch(self, happening: Event | Signal) -> None:
        if isinstance(happening, Event) and encode(happening) not in self.world.disk[-8:]:
            self.world.complain("I23", f"{type(happening).__name__} was shown before it was on record")
        match happening:
            case TextDelta():
                self.shown = True
            case ModelAsked() | Restarted():
                self.shown = False
            case RetryWaiting() if self.shown and not self.world.overlap:
                self.world.complain("I14", "asked again, and nobody was told to forget what had been shown")
            case _:
                pass
        if self.world.strikes("a subscriber raises", 0.2):
            raise ValueError("a subscriber's own trouble")


def _bury(loop: VirtualLoop) -> None:
    """What a killed process leaves: nothing. Its coroutines are closed without being run on."""
    loop.set_exception_handler(lambda *_: None)  # nobody is left to whom an error could be told
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        with suppress(RuntimeError):  # a task group would like to wait for its children
            task.get_coro().close()
    loop.close()


def limits_of(world: World) -> Limits:
    draw = world.random
    return Limits(
        steps=draw.choice((2, 3, 6, 12)),
        tokens=draw.choice((None, 400, 2_000, 200_000)),
        seconds=draw.choice((None, 8.0, 60.0, 600.0)),
        tool_calls=draw.choice((None, None, 4)),
        per_tool=draw.choice(({}, {}, {"look": 2})),
        window=draw.choice((None, 60, 400)),
    )


def simulate(seed: int) -> Story:
    """One run in the world of this seed, through as many processes as it takes."""
    world = STAGE.world = World(seed)
    limits = limits_of(world)
    world.bounded = limits.seconds is not None
    for attempt in range(ATTEMPTS):
        world.calm = attempt >= CALM_AFTER
        world.story.append(f"--- process {attempt + 1}")
        try:
            outcome = _Process(world, limits).run()
        except Exception as error:  # whatever it is: a run must not end like that
            world.complain("I20", f"the run ended with {type(error).__name__}: {error}")
            break
        world.story.append(f"--- {outcome}")
        if world.disk and _ended(world):
            break
    _judge(world, limits)
    return Story(seed, world.broken, world.story, world.disk, world.coverage)


def _replies(world: World) -> int:
    return sum(isinstance(event, ModelReplied) for event in world.events())


def _ended(world: World) -> bool:
    events = world.events()
    return bool(events) and isinstance(events[-1], RunEnded)


def _judge(world: World, limits: Limits) -> None:
    events = world.events()
    broken = check(events, effects=STAGE.effects, limits=limits, probed=("ship",))
    world.broken += broken
    if broken:
        return  # what follows needs a state that makes sense
    state = State.of(events)
    if not state.ended:
        world.complain("I20", "the run did not end, although nothing was in its way any more")
    calls: list[ToolCall] = [c for e in events if isinstance(e, ModelReplied) for c in e.calls]
    asked = {c.id: c for c in calls}
    edits = [(e.call_id, e.arguments) for e in events if isinstance(e, ApprovalDecided) and e.arguments is not None]
    calls += [replace(asked[call_id], arguments=arguments) for call_id, arguments in edits]
    executed_but_denied(world, events, {call_key(RUN, state.ids[c.id], c): c.id for c in calls})


def _share(seeds: Iterable[int]) -> tuple[list[Story], Counter[tuple[str, str]], int]:
    failed: list[Story] = []
    coverage: Counter[tuple[str, str]] = Counter()
    count = 0
    for seed in seeds:
        story = simulate(seed)
        count += 1
        coverage += story.coverage
        if story.broken:
            failed.append(story)
        if seed % 100 == 0 and simulate(seed).digest != story.digest:
            failed.append(
                Story(seed, [Broken("I30", -1, "the simulation", "two runs of the seed differ")], [], [], Counter())
            )
    return failed, coverage, count


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2_000, help="how many seeds to try (default: 2000)")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="tell the story of this seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes to use")
    args = parser.parse_args(argv)
    if args.seed is not None:
        story = simulate(args.seed)
        print(*story.lines, sep="\n")
        print(*([str(b) for b in story.broken] or ["nothing is broken"]), sep="\n")
        return 1 if story.broken else 0
    began = time.perf_counter()
    shares = [range(args.start + n, args.start + args.seeds, args.jobs) for n in range(args.jobs)]
    with ProcessPoolExecutor(args.jobs) as pool:
        results = list(pool.map(_share, shares))
    took = time.perf_counter() - began
    coverage: Counter[tuple[str, str]] = sum((c for _, c, _ in results), Counter())
    failed = [story for f, _, _ in results for story in f]
    count = sum(n for _, _, n in results)
    print(_report(coverage))
    print(f"{count} seeds in {took:.1f} s, {count / took:.0f} a second; {len(coverage)} pairs of fault and recovery")
    for story in failed[:20]:
        print(f"seed {story.seed}:", *story.broken[:3], sep="\n  ")
    print(f"{count - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


def _report(coverage: Counter[tuple[str, str]]) -> str:
    """How often each fault struck, and how the attempts in which it did came out."""
    lines = []
    for fault in sorted({f for f, _ in coverage}):
        ways = sorted(((n, o) for (f, o), n in coverage.items() if f == fault), reverse=True)
        lines.append(f"{fault:28} {sum(n for n, _ in ways):6}  " + ", ".join(f"{o} {n}" for n, o in ways[:6]))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
