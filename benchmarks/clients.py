"""One request and its reply, without a loop around it: ours beside the HTTP clients that are installed.

    python benchmarks/clients.py              asyncio
    python benchmarks/clients.py --uvloop     on uvloop

CPU of the client process for a request of 2 KB and a reply of 0.4 KB on a kept connection, in turns, the
least of all rounds; and the CPU of importing each, in a process of its own. This is what the choice of
docs/transport.md was made by. aiohttp and pyreqwest are no dependencies: what is missing is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.util import find_spec

import common

BODY = b'{"model": "m", "messages": [{"role": "user", "content": "' + b"x" * 2000 + b'"}]}'
HEADERS = {"authorization": "Bearer k", "content-type": "application/json"}
REQUESTS = 200
MODULES = {"ours": "tool_loop.llm.http.dialing", "httpx2": "httpx2", "aiohttp": "aiohttp", "pyreqwest": "pyreqwest"}

Post = Callable[[], Awaitable[bytes]]


def ours(url: str) -> Post:
    transport = common.Transport()

    async def post() -> bytes:
        async with transport.post(url, HEADERS, BODY) as exchange:
            return await exchange.rest()

    return post


def httpx2(url: str) -> Post:
    import httpx2

    client = httpx2.AsyncClient(headers=HEADERS, timeout=60)

    async def post() -> bytes:
        return (await client.post(url, content=BODY)).content

    return post


def aiohttp(url: str) -> Post:
    import aiohttp

    session = aiohttp.ClientSession(headers=HEADERS)

    async def post() -> bytes:
        async with session.post(url, data=BODY) as response:
            return await response.read()

    return post


def pyreqwest(url: str) -> Post:
    from pyreqwest.client import ClientBuilder

    client = ClientBuilder().default_headers(HEADERS).build()

    async def post() -> bytes:
        response = await client.post(url).body_bytes(BODY).build().send()
        return bytes(await response.bytes())

    return post


async def measure(url: str, rounds: int) -> dict[str, float]:
    """Microseconds of CPU for each request."""
    makers = (ours, httpx2, aiohttp, pyreqwest)
    posts = {make.__name__: make(url) for make in makers if find_spec(MODULES[make.__name__])}
    found: dict[str, list[float]] = {name: [] for name in posts}
    for name, post in posts.items():
        assert b"choices" in await post(), name
    for _ in range(rounds):
        for name, post in posts.items():
            began = time.process_time()
            for _ in range(REQUESTS):
                await post()
            found[name].append((time.process_time() - began) / REQUESTS * 1e6)
    return {name: min(times) for name, times in found.items()}


def importing(module: str) -> float:
    """Milliseconds of CPU above those of asyncio, which all of them need."""
    code = f"import asyncio, time; t = time.process_time(); import {module}; print(time.process_time() - t)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    return min(float(run.stdout) for run in runs) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uvloop", action="store_true")
    factory = None
    if parser.parse_args().uvloop:
        import uvloop

        factory = uvloop.new_event_loop
    with common.server() as url, asyncio.Runner(loop_factory=factory) as runner:
        found = runner.run(measure(f"{url}/0/0/v1/chat/completions", 12))
    print("| client | µs a request | ratio | import, ms |\n|---|---|---|---|")
    for name, took in found.items():
        print(f"| {name} | {took:.0f} | {took / found['httpx2']:.2f} | {importing(MODULES[name]):.0f} |")


if __name__ == "__main__":
    main()
