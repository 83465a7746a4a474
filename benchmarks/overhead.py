"""What the loop costs: CPU of the client per step, beside a loop written by hand on the same HTTP client.

    python benchmarks/overhead.py            the full table, about a minute
    python benchmarks/overhead.py --quick    the same bounds on fewer rounds; exits with 1 when one is broken

The server runs in its own process and thinks nothing. Rounds of both are in turns, so that a
machine which slows down slows both, and medians are compared. The bare loop encodes its whole
history anew at each request, as hand-written loops do.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import common

from tool_loop import Agent, ScriptedLLM, ToolCall, tool
from tool_loop.events import ModelReplied

# Against the loop written by hand: at most this much of its time at 10 and 50 steps, less than it at
# 400, and step 400 at most this much dearer than step 10.
RATIO_BOUND = 1.3
LONG_BOUND = 1.0
GROWTH_BOUND = 1.2
# Milliseconds of CPU that spans and metrics may add to a step when nobody collects them.
TRACED_BOUND = 0.25


async def cpu_per_step(run, steps: int) -> float:  # noqa: ANN001
    began = time.process_time()
    await run("Where is it decided?")
    return (time.process_time() - began) / (steps + 1) * 1000


async def compare(url: str, steps: int, *, stream: bool, rounds: int) -> tuple[float, float]:
    """Milliseconds of CPU per step: (ours, bare)."""
    address = f"{url}/{steps}/0/v1"
    ours, bare = common.agent(address, stream=stream), common.Bare(address, stream=stream)

    async def run_ours(question: str) -> None:
        result = await ours.run(question)
        assert result.tool_calls == steps, result

    await run_ours("warm up")
    await bare.run("warm up")
    mine, theirs = [], []
    for _ in range(rounds):
        mine.append(await cpu_per_step(run_ours, steps))
        theirs.append(await cpu_per_step(bare.run, steps))
    await bare.client.aclose()
    return statistics.median(mine), statistics.median(theirs)


async def growth(url: str, *, stream: bool, rounds: int) -> float:
    """A step of 400 to a step of ten, in turns: minutes apart they would compare the machine with itself."""
    long, short = (common.agent(f"{url}/{steps}/0/v1", stream=stream) for steps in (400, 10))
    await short.run("warm up")
    ratios = []
    for _ in range(rounds):
        one = await cpu_per_step(long.run, 400)
        ten = statistics.median([await cpu_per_step(short.run, 10) for _ in range(9)])
        ratios.append(one / ten)
    return statistics.median(ratios)


TRACERS = """
import sys

class Absent:
    @staticmethod
    def find_spec(name, *_):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent)
import common
agent = common.agent({url!r}, stream=True)
assert agent.run_sync("Where is it decided?").tool_calls == 10
print(sum(name.startswith("opentelemetry") or name in {own} for name in sys.modules))
"""
OWN = (
    "tool_loop.trace",
    "tool_loop.trace.run",
    "tool_loop.trace.content",
    "tool_loop.trace.telemetry",
    "tool_loop.trace.semconv",
)


def loaded_untraced(url: str) -> int:
    """Modules of tracing that a run without `traced` loads, where OpenTelemetry is not installed."""
    code = TRACERS.format(url=f"{url}/10/0/v1", own=OWN)
    command = [sys.executable, "-c", code]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, cwd=common.HERE).stdout)


async def with_tracing(url: str, rounds: int) -> tuple[float, float]:
    """Milliseconds of CPU per step of ten: (traced and not collected, not traced)."""
    from tool_loop.trace.wrappers import traced

    plain = common.agent(f"{url}/10/0/v1", stream=True)
    runs = traced(plain).run, plain.run
    for run in runs:
        await run("warm up")
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for run, taken in zip(runs, times, strict=True):
            taken.append(await cpu_per_step(run, 10))
    return statistics.median(times[0]), statistics.median(times[1])


async def side_by_side(kind: str, rounds: int) -> float:
    """Milliseconds for a step with eight calls of 50 ms each."""

    @tool(effect="read")
    async def coroutine(n: int) -> str:
        """Wait."""
        await asyncio.sleep(0.05)
        return str(n)

    @tool(effect="read")
    def plain(n: int) -> str:
        """Wait."""
        time.sleep(0.05)
        return str(n)

    times = []
    for _ in range(rounds):
        calls = ModelReplied("", tuple(ToolCall(str(n), kind, f'{{"n": {n}}}') for n in range(8)), "tool_calls")
        agent = Agent(ScriptedLLM(calls, "done"), [coroutine, plain])
        began = time.perf_counter()
        await agent.run("q")
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def trace(url: str, rounds: int, bound: Callable[[str, float, float], None]) -> None:
    print("\n| tracing | |\n|---|---|")
    modules = loaded_untraced(url)
    print(f"| not used, not installed: modules loaded for it | {modules} |")
    bound("modules of tracing in a run without it", modules, 0)
    if importlib.util.find_spec("opentelemetry"):
        used, unused = asyncio.run(with_tracing(url, rounds))
        print(f"| used, not collected: ms/step more | {used - unused:.2f} |", flush=True)
        bound("tracing that nobody collects, ms/step", used - unused, TRACED_BOUND)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and fail when a bound is broken")
    quick = parser.parse_args().quick
    broken: list[str] = []

    def bound(what: str, value: float, most: float) -> None:
        if value > most:
            broken.append(f"{what}: {value:.2f}, should be at most {most:g}")

    print("| reply | steps | ours, ms/step | bare, ms/step | ratio |\n|---|---|---|---|---|")
    with common.server() as url:
        for stream in (False, True):
            name = "streamed" if stream else "whole"
            for steps, rounds in ((10, 15 if quick else 60), (50, 5 if quick else 20), (400, 3 if quick else 7)):
                ours, bare = asyncio.run(compare(url, steps, stream=stream, rounds=rounds))
                print(f"| {name} | {steps} | {ours:.2f} | {bare:.2f} | {ours / bare:.2f} |", flush=True)
                most = LONG_BOUND if steps == 400 else RATIO_BOUND
                bound(f"{name}, {steps} steps, ours to bare", ours / bare, most)
            grown = asyncio.run(growth(url, stream=stream, rounds=3 if quick else 7))
            print(f"| {name} | 400 to 10 | {grown:.2f} | | |", flush=True)
            bound(f"{name}, step 400 to step 10", grown, GROWTH_BOUND)
        trace(url, 15 if quick else 60, bound)
    print("\n| eight calls of 50 ms in one step | ms |\n|---|---|")
    for kind in ("plain", "coroutine"):
        took = asyncio.run(side_by_side(kind, 7))
        print(f"| {kind} functions | {took:.1f} |")
        bound(f"eight {kind} functions", took, 60)
    for line in broken:
        print(f"BOUND BROKEN  {line}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
