"""Many conversations in one process: 500 of five steps each, all at once, and what one that waits takes.

    python benchmarks/conversations.py            the full table, about three minutes
    python benchmarks/conversations.py --quick    fewer rounds; exits with 1 when a bound is broken
    python benchmarks/conversations.py --many     500 beside 2,000, in turns: is there a cliff?

The server runs in its own process and answers after 200 ms, so six replies in a row take 1.2 s at
best. The loop written by hand runs all its conversations on one client of the same HTTP library.

Each figure comes from a fresh process, and is the best of its rounds, for whatever else the machine
does only adds to it. Memory is the resident set (/proc/self/statm) while every conversation waits for
a reply, less what it was after one conversation had been held, divided by their number. "All wait" is
when the process has used no CPU for a while.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import common
import httpx2

CONVERSATIONS = int(os.environ.get("CONVERSATIONS", "500"))
MANY = 2000
STEPS = 5
LATENCY_MS = 200

WALL_BOUND = 1.8
CPU_BOUND = 1.2
CLIFF_BOUND = 1.2  # CPU of a conversation among 2,000 to that of one among 500
MEMORY_BOUND = 25.0  # while it waits for its first reply; then it holds what has been said as well

# Long enough that all are still waiting when the last one has begun to.
WAITING_MS = 3000

Run = Callable[[str], Awaitable[object]]


def talker(client: str, url: str) -> Run:
    """The client's way to hold a conversation."""
    who, kind = client.split()
    if who == "ours":
        return common.agent(url, stream=kind == "streamed").run
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    http = httpx2.AsyncClient(timeout=60, headers={"authorization": "Bearer k"}, limits=limits)
    return common.Bare(url, stream=kind == "streamed", client=http).run


# --- in a process of its own ------------------------------------------------------------------------


async def speed(client: str, server: str) -> dict[str, float]:
    """Wall clock and CPU of all conversations."""
    await talker(client, f"{server}/{STEPS}/0/v1")("warm up")
    run = talker(client, f"{server}/{STEPS}/{LATENCY_MS}/v1")
    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(run("Where is it decided?") for _ in range(CONVERSATIONS)))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"wall": wall, "cpu": cpu}


async def memory(client: str, server: str, replies: int) -> dict[str, float]:
    """KiB for each conversation while all wait for the first reply, and for each one up to `replies`."""
    await talker(client, f"{server}/{STEPS}/0/v1")("warm up")
    run = talker(client, f"{server}/{STEPS}/{WAITING_MS}/v1")
    gc.collect()
    before = resident()
    tasks = [asyncio.ensure_future(run("Where is it decided?")) for _ in range(CONVERSATIONS)]
    found: list[float] = []
    async with asyncio.timeout(20 * (replies + 1)):
        for reply in range(replies):
            if reply:
                await busy()
            await quiet()
            found.append((resident() - before) / CONVERSATIONS / 1024)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {"first": found[0], "last": found[-1]}


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def quiet() -> None:
    """Until nothing has happened for 0.3 s."""
    still = 0
    while still < 3:
        still = still + 1 if await spent(0.1) < 0.006 else 0


async def busy() -> None:
    while await spent(0.05) < 0.006:
        pass


async def spent(seconds: float) -> float:
    before = time.process_time()
    await asyncio.sleep(seconds)
    return time.process_time() - before


def child(what: list[str]) -> None:
    name, client, server, *more = what
    figures = memory(client, server, int(more[0])) if name == "memory" else speed(client, server)
    print(json.dumps(asyncio.run(figures)))


def with_room_for_all() -> None:
    """As many open files as the system allows: each conversation has a socket, here and in the server."""
    with contextlib.suppress(ImportError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


# --- the table --------------------------------------------------------------------------------------


def measured(*what: str, conversations: int = CONVERSATIONS) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", *what]
    environ = {**os.environ, "CONVERSATIONS": str(conversations)}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300, env=environ)
    return json.loads(done.stdout)


def cliff(server: str, rounds: int) -> bool:
    """CPU of one conversation among many, beside that of one among few; whether it stays within the bound."""
    print("| at once | CPU each, ms | wall, s |\n|---|---|---|")
    got: dict[int, list[dict[str, float]]] = {CONVERSATIONS: [], MANY: []}
    for _ in range(rounds):
        for count, runs in got.items():
            runs.append(measured("speed", "ours whole", server, conversations=count))
    each = {count: min(run["cpu"] for run in runs) / count * 1000 for count, runs in got.items()}
    for count, runs in got.items():
        print(f"| {count} | {each[count]:.2f} | {min(run['wall'] for run in runs):.2f} |", flush=True)
    ratio = each[MANY] / each[CONVERSATIONS]
    print(f"| ratio | {ratio:.2f} (at most {CLIFF_BOUND:g}) | |")
    return ratio <= CLIFF_BOUND


def best(client: str, server: str, rounds: int, replies: int) -> dict[str, float]:
    runs = [measured("speed", client, server) for _ in range(rounds)]
    kept = measured("memory", client, server, str(replies)) if Path("/proc/self/statm").exists() else {}
    fastest = {name: min(run[name] for run in runs) for name in runs[0]}
    return {**dict.fromkeys(("first", "last"), 0.0), **kept, **fastest}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and exit with 1 when a bound is broken")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--many", action="store_true", help="500 beside 2,000; exits with 1 when there is a cliff")
    options = parser.parse_args()
    with_room_for_all()
    if options.child:
        child(options.child)
        return 0
    if options.many:
        with common.server() as server:
            return 0 if cliff(server, 2) else 1
    rounds, replies = (2, 1) if options.quick else (5, STEPS + 1)
    broken: list[str] = []
    print(f"| {CONVERSATIONS} at once | wall, s | CPU, s | KiB each, first reply | last reply |")
    print("|---|---|---|---|---|")
    with common.server() as server:
        for client in ("ours whole", "bare whole", "ours streamed", "bare streamed"):
            got = best(client, server, rounds, replies)
            last = f"{got['last']:.1f}" if replies > 1 else ""
            took = f"{got['wall']:.2f} | {got['cpu']:.2f}"
            print(f"| {client} | {took} | {got['first']:.1f} | {last} |", flush=True)
            if client.startswith("ours"):
                bounds = (("wall", WALL_BOUND), ("cpu", CPU_BOUND), ("first", MEMORY_BOUND))
                broken += [
                    f"{client}, {key}: {got[key]:.2f}, at most {most:g}" for key, most in bounds if got[key] > most
                ]
    for line in broken:
        print(f"BOUND BROKEN  {line}", file=sys.stderr)
    if broken:
        print(f"on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; is the machine busy?", file=sys.stderr)
    return 1 if broken and options.quick else 0


if __name__ == "__main__":
    sys.exit(main())
