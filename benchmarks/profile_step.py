"""What one step is made of, for `overhead.py --profile`: turns of the event loop, tasks, timers, copies, calls."""

from __future__ import annotations

import asyncio
import cProfile
import gc
import pstats
import time
import tracemalloc
from collections import Counter
from pathlib import Path

import common

STEPS = 20


class Counting(asyncio.SelectorEventLoop):
    """Counts what it is asked for while `counts` is set."""

    counts: Counter[str] | None = None

    def _count(self, what: str) -> None:
        if self.counts is not None:
            self.counts[what] += 1

    def _run_once(self) -> None:
        self._count("turns of the event loop")
        super()._run_once()

    def create_task(self, *args, **more) -> asyncio.Task:  # noqa: ANN002, ANN003
        self._count("tasks")
        return super().create_task(*args, **more)

    def create_future(self) -> asyncio.Future:
        self._count("futures")
        return super().create_future()

    def call_at(self, *args, **more) -> asyncio.TimerHandle:  # noqa: ANN002, ANN003
        self._count("timers")
        return super().call_at(*args, **more)


def counted(make) -> dict[str, float]:  # noqa: ANN001
    """Counts for each step of a run; `make` makes what runs."""

    async def main() -> Counter[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Counting)
        run = make()
        await run("warm up")
        loop.counts = Counter()
        await run("Where is it decided?")
        counts, loop.counts = loop.counts, None
        return counts

    with asyncio.Runner(loop_factory=Counting) as runner:
        return {what: count / (STEPS + 1) for what, count in runner.run(main()).items()}


async def copies(make) -> float:  # noqa: ANN001
    """How often the history is in memory at once while a request is sent, the history itself included."""
    run = make()
    await run("warm up")
    question = "x" * 8 * 2**20
    gc.collect()
    tracemalloc.start()
    try:
        await run(question)
        return tracemalloc.get_traced_memory()[1] / len(question)
    finally:
        tracemalloc.stop()


async def calls(make, rounds: int) -> pstats.Stats:  # noqa: ANN001
    run = make()
    await run("warm up")
    profile = cProfile.Profile(time.process_time)
    profile.enable()
    for _ in range(rounds):
        await run("Where is it decided?")
    profile.disable()
    return pstats.Stats(profile)


def show(url: str, *, stream: bool) -> None:
    address = f"{url}/{STEPS}/0/v1"

    def ours():  # noqa: ANN202
        return common.agent(address, stream=stream).run

    def floor():  # noqa: ANN202
        return common.Floor(address, stream=stream).run

    mine, least = counted(ours), counted(floor)
    print(f"\n| one {'streamed' if stream else 'whole'} step | ours | floor |\n|---|---|---|")
    for what in sorted(mine.keys() | least.keys()):
        print(f"| {what} | {mine.get(what, 0):.1f} | {least.get(what, 0):.1f} |")
    print(f"| the history in memory, times | {asyncio.run(copies(ours)):.1f} | {asyncio.run(copies(floor)):.1f} |")
    rounds = 20
    stats, bare = asyncio.run(calls(ours, rounds)), asyncio.run(calls(floor, rounds))
    steps = rounds * (STEPS + 1)
    of_ours, of_floor = (sum(row[1] for row in s.stats.values()) / steps for s in (stats, bare))
    print(f"| calls of functions | {of_ours:.0f} | {of_floor:.0f} |")
    table(stats, steps)


def table(stats: pstats.Stats, steps: int) -> None:
    """Own time by file, as shares: the profiler makes all of it slower, and functions of C less so."""
    files: dict[str, list[float]] = {}
    for (path, _, _), (_, count, own, _, callers) in stats.stats.items():
        if path != "~":
            add(files, path, count, own)
            continue
        for (caller, _, _), (count_there, _, own_there, _) in callers.items():  # a function of C: its caller's
            add(files, caller, count_there, own_there)
    whole = sum(own for _, own in files.values())
    print("\n| file | calls a step | share |\n|---|---|---|")
    for name, (count, own) in sorted(files.items(), key=lambda item: -item[1][1])[:24]:
        print(f"| {name} | {count / steps:.1f} | {100 * own / whole:.1f} % |")


def add(files: dict[str, list[float]], path: str, count: float, own: float) -> None:
    found = files.setdefault("/".join(Path(path).parts[-2:]), [0, 0.0])
    found[0] += count
    found[1] += own
