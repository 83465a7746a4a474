"""What a sandbox costs, and what it holds: `python benchmarks/sandbox.py [--quick]`.

For each sandbox that works here: the time of a command that does nothing, beside a plain subprocess;
100 MB of output, with the memory that takes; and a fork bomb (which ends by itself: about 4,000
processes without a limit). Exits with 1 when a bound is broken; times are of a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Self

from tool_loop.sandbox import Box, CommandLimits, Sandbox, SandboxUnavailable, choose, run
from tool_loop.sandbox.usage import all_tasks

OVERHEAD_MS = {"none": 60, "bwrap": 25, "landlock": 80}
OUTPUT_SECONDS, OUTPUT_MIB = 3.0, 16
TASKS, GONE_SECONDS = 256, 3.0

BOMB = "bomb() { [ $1 -gt 0 ] && { bomb $(($1-1)) & bomb $(($1-1)) & }; sleep 3; }; bomb 10"


def median_ms(work: Callable[[], object], times: int) -> float:
    took = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)


def resident_mib() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


class Watching(threading.Thread):
    """The most that `look` said while a block ran, over what it said before."""

    def __init__(self, look: Callable[[], float]) -> None:
        super().__init__(daemon=True)
        self._look, self._over = look, threading.Event()
        self._first = look()
        self.most = 0.0

    def run(self) -> None:
        while not self._over.wait(0.005):
            self.most = max(self.most, self._look() - self._first)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def measured(sandbox: Sandbox, times: int) -> list[str]:
    """Print what was measured; the bounds that are broken."""
    broken = []
    with tempfile.TemporaryDirectory() as place:
        box = Box(place, sandbox)
        run(box, ["/bin/true"])
        overhead = median_ms(lambda: run(box, ["/bin/true"]), times)
        print(f"{sandbox.name:<10} a command that does nothing: {overhead:.1f} ms")
        if overhead > OVERHEAD_MS[sandbox.name]:
            broken.append(f"{sandbox.name}: {overhead:.1f} ms, at most {OVERHEAD_MS[sandbox.name]}")
        with Watching(resident_mib) as memory:
            outcome = run(box, ["sh", "-c", "head -c 100000000 /dev/zero | tr '\\0' x"])
        shown = len(outcome.head) + len(outcome.tail)
        print(
            f"{'':<10} 100 MB of output: {outcome.seconds:.2f} s, {memory.most:.1f} MiB of memory, {shown} bytes kept"
        )
        if outcome.seconds > OUTPUT_SECONDS or memory.most > OUTPUT_MIB or outcome.left_out + shown != 100_000_000:
            broken.append(f"{sandbox.name}: 100 MB took {outcome.seconds:.2f} s and {memory.most:.1f} MiB")
        box.close()
        if sandbox.name != "none":
            broken += bombed(sandbox, place)
    return broken


def bombed(sandbox: Sandbox, place: str) -> list[str]:
    box = Box(place, sandbox, limits=CommandLimits(processes=TASKS))
    with Watching(all_tasks) as tasks:
        outcome = run(box, ["bash", "-c", BOMB], seconds=20)
    box.close()
    how = "ended" if outcome.why else "outlasted"
    print(f"{'':<10} a fork bomb: at most {tasks.most:.0f} tasks more than before, {how} after {outcome.seconds:.1f} s")
    held = tasks.most <= TASKS * 1.2 or (outcome.why == "processes" and outcome.seconds <= GONE_SECONDS)
    return [] if held else [f"{sandbox.name}: a fork bomb had {tasks.most:.0f} tasks"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few commands in place of many")
    times = 15 if parser.parse_args().quick else 100
    plain = median_ms(lambda: subprocess.run(["/bin/true"], check=True), times)
    print(f"{'subprocess':<10} a command that does nothing: {plain:.1f} ms, as uid {os.geteuid()}")
    broken = []
    for name in ("none", "bwrap", "landlock"):
        try:
            broken += measured(choose(name), times)
        except SandboxUnavailable as error:
            print(f"{name:<10} not here: {error}")
    for each in broken:
        print(f"BROKEN: {each}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
