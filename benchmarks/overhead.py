"""What the loop costs: CPU of the client per step, beside a loop written by hand on the same HTTP client.

    python benchmarks/overhead.py            the full table, about four minutes
    python benchmarks/overhead.py --quick    the same bounds on fewer rounds; exits with 1 when one is broken

The server runs in its own process and thinks nothing. Rounds of both are interleaved, so that a
machine which slows down slows both, and medians are compared. The bare loop encodes its whole
history anew at each request, as hand-written loops do.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time

import common

from tool_loop import Agent, ScriptedLLM, ToolCall, tool
from tool_loop.events import ModelReplied


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
            ours_at: dict[int, float] = {}
            for steps, rounds in ((10, 15 if quick else 60), (50, 5 if quick else 20), (400, 3 if quick else 7)):
                ours, bare = asyncio.run(compare(url, steps, stream=stream, rounds=rounds))
                ours_at[steps] = ours
                print(f"| {name} | {steps} | {ours:.2f} | {bare:.2f} | {ours / bare:.2f} |", flush=True)
                if steps == 400:
                    bound(f"{name}, 400 steps, ours to bare", ours / bare, 1.0)
                else:
                    bound(f"{name}, {steps} steps, ours to bare", ours / bare, 1.5 if quick else 1.3)
            growth = ours_at[400] / ours_at[10]
            print(f"| {name} | 400 to 10 | {growth:.2f} | | |", flush=True)
            bound(f"{name}, step 400 to step 10", growth, 1.25 if quick else 1.2)
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
