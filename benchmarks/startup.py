"""What `tool-loop ask` takes before the first byte of its request is at the server.

    python benchmarks/startup.py            15 rounds
    python benchmarks/startup.py --quick    fewer; exits with 1 when the bound is broken

CPU of all threads of the process (/proc/PID/task/*/schedstat), read by the server in the moment in which
the head of the request is there. Beside it a Python that does nothing, and one that loads the parts of
the standard library which any such program needs; all in turns, and the least of each.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path

BOUND_MS = 90.0
ANSWER = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
WHAT = {
    "a Python that does nothing": ["-c", "input()"],
    "asyncio, ssl, json, sqlite3, argparse": ["-c", "import asyncio, ssl, json, sqlite3, argparse; input()"],
    "`ask`, before its first byte": ["-m", "tool_loop", "ask", "q"],
}


def spent(pid: int) -> float:
    """Milliseconds of CPU."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e6


async def once(arguments: list[str], port: int, home: str, asked: asyncio.Queue[None]) -> float:
    environ = {
        **{name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
        "HOME": home,
        "XDG_STATE_HOME": home,
        "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
        "OPENAI_API_KEY": "k",
        "OPENAI_MODEL": "m",
    }
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each round would compile everything
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env=environ, cwd=home, stdin=-1, stdout=-1, stderr=-1
    )
    if "ask" in arguments:
        assert process.stdin is not None
        process.stdin.close()
        await asked.get()
    else:
        await quiet(process.pid)
    took = spent(process.pid)
    if "ask" in arguments:
        asked.task_done()
    await process.communicate(b"\n" if "ask" not in arguments else None)
    assert process.returncode == 0, arguments
    return took


async def quiet(pid: int) -> None:
    """Until it waits for its input: it uses no more CPU."""
    before = -1.0
    while (now := spent(pid)) != before or now < 1:
        before = now
        await asyncio.sleep(0.1)


async def measure(rounds: int) -> dict[str, float]:
    asked: asyncio.Queue[None] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.put_nowait(None)
        await asked.join()  # answered when it has been measured
        size = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(size))
        start = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(ANSWER)
        writer.write(start + ANSWER)
        await reader.read()
        writer.close()

    found: dict[str, list[float]] = {what: [] for what in WHAT}
    with tempfile.TemporaryDirectory() as home:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            for n in range(rounds + 1):
                for what, arguments in WHAT.items():
                    took = await once(arguments, port, home, asked)
                    if n:  # the first one may have had to compile
                        found[what].append(took)
    return {what: min(times) for what, times in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and fail when the bound is broken")
    quick = parser.parse_args().quick
    found = asyncio.run(measure(6 if quick else 15))
    print("| | ms of CPU |\n|---|---|")
    for what, took in found.items():
        print(f"| {what} | {took:.0f} |")
    *_, ask = found.values()
    if ask > BOUND_MS:
        print(f"BOUND BROKEN  ask: {ask:.0f} ms, should be at most {BOUND_MS:g}", file=sys.stderr)
    return 1 if quick and ask > BOUND_MS else 0


if __name__ == "__main__":
    sys.exit(main())
