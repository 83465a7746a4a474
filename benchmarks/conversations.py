"""Many conversations at once in one process: what they take, and what each costs while it waits.

    python benchmarks/conversations.py            500 conversations, five calls and an answer each
    python benchmarks/conversations.py --quick    the same, once; exits with 1 when a bound is broken

The model takes 200 ms for each of the six replies, in a server process of its own, so 1.2 s is the
ideal. Beside it runs a loop written by hand on one httpx2 client, with the same number at once. Each
measurement has a fresh process. Memory is how far the resident size grows while all of them wait for
their first reply, divided by their number.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import common
import httpx2

CONVERSATIONS = 500
STEPS, LATENCY_MS = 5, 200
MOST_WALL, MOST_CPU, MOST_KIB = 3.5, 2.5, 35.0


def resident() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


async def measure(which: str, url: str, *, stream: bool) -> dict[str, float]:
    """One round, in this process: seconds of wall and CPU, KiB for each that waits."""
    slow, fast = f"{url}/{STEPS}/{LATENCY_MS}/v1", f"{url}/{STEPS}/0/v1"
    if which == "ours":
        run, warm_up = common.agent(slow, stream=stream).run, common.agent(fast, stream=stream).run
    else:
        no_limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        client = httpx2.AsyncClient(timeout=60, headers={"authorization": "Bearer k"}, limits=no_limits)
        run, warm_up = (common.Bare(a, stream=stream, client=client).run for a in (slow, fast))
    await warm_up("warm up")
    gc.collect()
    before, waiting = resident(), 0

    async def look_when_all_wait() -> None:
        nonlocal waiting
        await asyncio.sleep(LATENCY_MS / 1000 * 0.9)
        waiting = resident()

    cpu, wall = time.process_time(), time.perf_counter()
    looking = asyncio.ensure_future(look_when_all_wait())
    await asyncio.gather(*(run("Where is it decided?") for _ in range(CONVERSATIONS)))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    await looking
    return {"wall": wall, "cpu": cpu, "kib": (waiting - before) / CONVERSATIONS / 1024}


def in_a_process(which: str, url: str, *, stream: bool) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", which, "--url", url, *(["--stream"] if stream else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return json.loads(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of each")
    parser.add_argument("--measure", choices=["ours", "bare"], help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--stream", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(asyncio.run(measure(args.measure, args.url, stream=args.stream))))
        return 0
    broken: list[str] = []
    print(f"| {CONVERSATIONS} at once | replies | wall, s | CPU, s | KiB each while waiting |\n|---|---|---|---|---|")
    with common.server() as url:
        for stream in (False, True):
            for which in ("ours", "bare"):
                rounds = [in_a_process(which, url, stream=stream) for _ in range(1 if args.quick else 3)]
                wall, cpu, kib = (statistics.median(r[key] for r in rounds) for key in ("wall", "cpu", "kib"))
                kind = "streamed" if stream else "whole"
                print(f"| {which} | {kind} | {wall:.2f} | {cpu:.2f} | {kib:.1f} |", flush=True)
                if which == "ours":
                    figures = (("wall", wall, MOST_WALL), ("CPU", cpu, MOST_CPU), ("KiB", kib, MOST_KIB))
                    broken += [
                        f"{kind}, {what}: {value:.2f}, should be at most {most}"
                        for what, value, most in figures
                        if value > most
                    ]
    for line in broken:
        print(f"BOUND BROKEN  {line}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
