"""Run as a program: asks a server for one reply after another and reports what each cost this process.

A process of its own, because memory is counted by process, and the server's shall not count.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from tool_loop.errors import ProviderError
from tool_loop.events import RunStarted
from tool_loop.llm.chat.model import OpenAIChat
from tool_loop.ports import Request
from tool_loop.transcript import Transcript


def highest() -> int:
    """The most memory this process has held since `forget`, in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def forget() -> None:
    Path("/proc/self/clear_refs").write_text("5")


async def main(url: str, names: list[str]) -> None:
    transcript = Transcript()
    transcript.apply(RunStarted("q"))
    for name in ["warm-up", *names]:
        llm = OpenAIChat("m", url, "sk-test", stream=not name.endswith(" document"))
        forget()
        before, began = highest(), time.process_time()
        deadline = asyncio.get_running_loop().time() + 30
        try:
            came = (await llm.reply(Request(transcript, deadline=deadline), lambda _: None)).text[:20]
            kind = "reply"
        except ProviderError as error:
            kind, came = error.kind, error.message
        took = time.process_time() - began
        row = {"name": name, "kind": kind, "came": came, "grew": highest() - before, "took": took}
        sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
