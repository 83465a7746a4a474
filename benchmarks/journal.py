"""What it costs to keep a run: CPU above the journal in memory, runs per second with fsync, bytes on disk.

    python benchmarks/journal.py            the figures, about half a minute
    python benchmarks/journal.py --quick    the same bounds on fewer rounds; exits with 1 when one is broken

A run here has ten steps, nine with one tool call each and the answer, through the whole loop, with a
model and tools that take no time. Rounds of both journals are interleaved, so that a machine which slows
down slows both, and the CPU of all threads counts.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

from tool_loop import Agent, Limits, MemoryJournal, ToolCall
from tool_loop.events import ModelReplied, RunEnded, ToolReturned, Usage
from tool_loop.journal.sqlite import SqliteJournal
from tool_loop.ports import Emit, Journal, Request, ToolSpec
from tool_loop.transcript import ToolMessage

CALLS = 9
SAYS = "I have found the class; let me look at how it is used before I answer."
LINE = "    42 |     return state.events[-1]  # what happened last\n"
SYSTEM = "You answer questions about a source tree. Use the tools. Stop and answer when you are done. " * 4
ids = count()

CPU_BOUND_MS = 1.0
RUNS_BOUND = 200.0
# A file takes more room than the text in it: pages that are not full, keys, the names of fields.
SIZE_BOUND = 2.0
LINEAR_BOUND = 1.2


class Scripted:
    """A model and a tool that take no time, whatever the number of steps."""

    def __init__(self, steps: int = CALLS, lines: int = 12) -> None:
        self._steps = steps
        self._result = LINE * lines

    async def reply(self, request: Request, _emit: Emit) -> ModelReplied:
        done = sum(isinstance(message, ToolMessage) for message in request.transcript.messages[-2 * self._steps :])
        usage = Usage(900 + 200 * done, 40, 800)
        if done >= self._steps:
            return ModelReplied("It is decided in next_move, in agent.py.", usage=usage, model="m", seconds=1.25)
        call = ToolCall(f"call_{done}", "look", f'{{"path": "src/part_{done}.py", "start_line": 40}}')
        return ModelReplied(SAYS, (call,), "tool_calls", usage, "m", "https://api.example.com/v1", seconds=1.25)

    def specs(self) -> tuple[ToolSpec, ...]:
        return ()

    def effect(self, _name: str) -> str:
        return "read"

    def polls(self, _name: str) -> bool:
        return False

    def needs_approval(self, _call: ToolCall) -> bool:
        return False

    def fingerprint(self, _call: ToolCall) -> str:
        return ""

    def refuse(self, _call: ToolCall) -> None:
        return None

    async def probe(self, _call: ToolCall, *, key: str = "") -> None:  # noqa: ARG002
        return None

    async def run(self, call: ToolCall, **_: object) -> ToolReturned:
        return ToolReturned(call.id, call.arguments + self._result, seconds=0.01)


def agent(journal: Journal, steps: int = CALLS, lines: int = 12) -> Agent:
    scripted = Scripted(steps, lines)
    limits = Limits(steps=None, tokens=None, seconds=None)
    return Agent(scripted, scripted, system=SYSTEM, journal=journal, limits=limits, retry=None)  # type: ignore[arg-type]


async def one(journal: Journal) -> None:
    result = await agent(journal).run("Where is it decided?", run_id=f"r{next(ids)}")
    assert result.tool_calls == CALLS


async def alone(journal: Journal, runs: int) -> None:
    for _ in range(runs):
        await one(journal)


async def together(journal: Journal, runs: int) -> None:
    await asyncio.gather(*(one(journal) for _ in range(runs)))


async def measured(work: Awaitable[None], runs: int) -> tuple[float, float]:
    """CPU and wall clock per run, in milliseconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    await work
    return (time.process_time() - cpu) / runs * 1000, (time.perf_counter() - wall) / runs * 1000


def above_memory(
    kept: SqliteJournal, how: Callable[[Journal, int], Awaitable[None]], runs: int, rounds: int
) -> tuple[float, float]:
    """Milliseconds of CPU per run above the journal in memory, and runs per second."""

    async def main() -> tuple[float, float]:
        base, mine, walls = [], [], []
        for journal in (MemoryJournal(keep=0), kept):
            await how(journal, runs)
        for _ in range(rounds):
            base.append((await measured(how(MemoryJournal(keep=0), runs), runs))[0])
            cpu, wall = await measured(how(kept, runs), runs)
            mine.append(cpu)
            walls.append(wall)
        return min(mine) - min(base), 1000 / statistics.median(walls)

    return asyncio.run(main())


def size(home: Path, steps: int, lines: int) -> tuple[int, int]:
    """Bytes of the file and of the text in it, for one run."""
    path = home / f"size-{steps}-{lines}.db"
    with SqliteJournal(path) as journal:
        empty = path.stat().st_size
        asyncio.run(agent(journal, steps, lines).run("Where is it decided?", run_id="r"))
        events = journal.events("r")
    said = len(SYSTEM)
    for event in events:
        match event:
            case ModelReplied():
                said += len(event.text) + sum(
                    len(call.arguments) + len(call.name) + len(call.id) for call in event.calls
                )
            case ToolReturned() | RunEnded():
                said += len(getattr(event, "content", "") or getattr(event, "answer", ""))
            case _:
                pass
    return path.stat().st_size - empty, said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and exit with 1 when a bound is broken")
    options = parser.parse_args()
    rounds = 7 if options.quick else 31
    broken: list[str] = []

    def figure(name: str, value: float, bound: float, unit: str, *, least: bool = False) -> None:
        kept = value >= bound if least else value <= bound
        sign = ">=" if least else "<="
        print(f"{name:58} {value:8.2f} {unit:14} {sign} {bound:g}{'' if kept else '   BROKEN'}", flush=True)
        if not kept:
            broken.append(name)

    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        with SqliteJournal(home / "process.db") as process, SqliteJournal(home / "power.db", durable="power") as power:
            cpu, _ = above_memory(process, alone, 10, rounds)
            figure("a run alone, CPU above memory", cpu, CPU_BOUND_MS, "ms")
            cpu, rate = above_memory(process, together, 200, max(3, rounds // 5))
            figure("one of 200 runs at once, CPU above memory", cpu, CPU_BOUND_MS, "ms")
            print(f"{'200 runs at once':58} {rate:8.0f} runs/s")
            cpu, rate = above_memory(power, together, 200, max(3, rounds // 5))
            figure("200 runs at once with fsync", rate, RUNS_BOUND, "runs/s", least=True)
            figure("one of 200 runs at once with fsync, CPU above memory", cpu, CPU_BOUND_MS, "ms")
            print(f"{'a run alone with fsync':58} {1000 / above_memory(power, alone, 3, 3)[1]:8.2f} ms")
        ratios = {}
        for steps, lines in ((100, 12), (400, 12), (1600, 12), (100, 200), (1600, 0)):
            took, said = size(home, steps, lines)
            ratios[steps, lines] = took / said
            if lines:
                figure(f"bytes in the file per byte said, {steps} steps of {lines} lines", took / said, SIZE_BOUND, "")
            else:
                figure(f"bytes per record beyond what was said, {steps} steps", (took - said) / (2 * steps), 250, "")
        figure("1600 steps against 100, per byte said", ratios[1600, 12] / ratios[100, 12], LINEAR_BOUND, "times")
    if broken:
        print(f"{len(broken)} of the bounds are broken, on {os.cpu_count()} cores; is the machine busy?")
    return 1 if broken and options.quick else 0


if __name__ == "__main__":
    sys.exit(main())
