"""A run of many times its window: does it fit, what does it send, what can a prompt cache serve?

    python benchmarks/context.py            200 steps over a tree of 400 files, window 32k tokens
    python benchmarks/context.py --quick    80 steps; exits with 1 when a bound is broken

The model is scripted behind the real dialect: it sees the bytes of each request, counts four of them
as a token, refuses what is over the window as providers do, and reads one file after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from tool_loop import Agent, Limits, OpenAIChat, Result, workspace_tools
from tool_loop.events import Compacted
from tool_loop.transcript import SUMMARISE

WINDOW = 32_000


@dataclass
class Server:
    """Answers like a model that reads file after file; keeps count of what it was sent."""

    steps: int
    window: int | None
    step: int = 0
    tokens: int = 0
    sent: int = 0
    shared: int = 0
    largest: int = 0
    refused: int = 0
    last: bytes = b""
    entered: list[float] = field(default_factory=list)
    left: list[float] = field(default_factory=list)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.entered.append(time.process_time())
        try:
            return self._answer(request.content)
        finally:
            self.left.append(time.process_time())

    def _answer(self, body: bytes) -> httpx2.Response:
        size = len(body) // 4
        if self.window is not None and size > self.window:
            self.refused += 1
            message = f"This model's maximum context length is {self.window} tokens, you sent {size}."
            return httpx2.Response(400, json={"error": {"message": message, "code": "context_length_exceeded"}})
        self.tokens += size
        self.sent += len(body)
        self.shared += _common(self.last, body)
        self.largest = max(self.largest, size)
        self.last = body
        return httpx2.Response(200, json=self._reply(json.dumps(SUMMARISE).encode()[1:40] in body, size))

    def _reply(self, summary: bool, size: int) -> dict:
        usage = {"prompt_tokens": size, "completion_tokens": 40}
        if summary:
            message: dict = {
                "role": "assistant",
                "content": f"Read the first {self.step} files; nothing unusual so far.",
            }
        elif self.step >= self.steps:
            message = {"role": "assistant", "content": "All files were read."}
        else:
            self.step += 1
            arguments = json.dumps({"path": f"pkg{self.step % 20}/module_{self.step}.py"})
            call = {
                "id": f"c{self.step}",
                "type": "function",
                "function": {"name": "read_file", "arguments": arguments},
            }
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        return {"choices": [{"index": 0, "message": message, "finish_reason": finish}], "model": "m", "usage": usage}


def _common(before: bytes, after: bytes) -> int:
    """Bytes of `after` that repeat the beginning of `before`: what a prompt cache can serve."""
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if before[:middle] == after[:middle] else (low, middle - 1)
    return low


def tree(root: Path, files: int) -> None:
    for n in range(1, files + 1):
        path = root / f"pkg{n % 20}" / f"module_{n}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            "".join(f"def f{n}_{k}(x):  # part {k} of module {n}\n    return x + {k * n}\n" for k in range(25))
        )


async def run(root: Path, steps: int, window: int | None, known: bool) -> tuple[Server, Result]:
    server = Server(steps, window)
    llm = OpenAIChat("m", "http://model.invalid/v1", stream=False, http=httpx2.MockTransport(server))
    limits = Limits(steps=None, tokens=None, seconds=None, window=window if known else None)
    return server, await Agent(llm, workspace_tools(root), limits=limits).run("Is there anything unusual in this tree?")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer steps, and fail when a bound is broken")
    quick = parser.parse_args().quick
    steps, broken = (80 if quick else 200), []
    print(
        "| window | steps | compactions | refused | largest request | tokens sent | of it repeats the request before |"
    )
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        tree(Path(folder), 400)
        for name, window, known in (
            ("32k, known", WINDOW, True),
            ("32k, learnt", WINDOW, False),
            ("unlimited", None, False),
        ):
            server, result = asyncio.run(run(Path(folder), steps, window, known))
            compactions = sum(isinstance(e, Compacted) for e in result.events)
            share = server.shared / server.sent
            print(
                f"| {name} | {result.steps} | {compactions} | {server.refused} | {server.largest:,} "
                f"| {server.tokens:,} | {share:.1%} |"
            )
            if result.reason != "answered" or result.tool_calls != steps:
                broken.append(f"{name}: {result.reason} after {result.tool_calls} calls")
            if window and share < 0.95:
                broken.append(
                    f"{name}: {share:.1%} of what was sent repeats the request before, should be at least 95 %"
                )
        server, _ = asyncio.run(run(Path(folder), 200 if quick else 400, None, known=False))
        # The model's own time is left out: it compares whole requests, which grows with the run.
        cost = [(b - a) * 1000 for a, b in zip(server.left, server.entered[1:], strict=False)]
        early, late = statistics.median(cost[9:49]), statistics.median(cost[-40:])
        print(f"\nCPU of the client per step: {early:.2f} ms from step 10 on, {late:.2f} ms at step {len(cost)}")
        # Flat, but for the one copy of the whole body that each request is.
        # The less a step costs by itself, the more shows what grows with the body: 260 KB at the end.
        if late > early * 1.6:
            broken.append(f"a late step costs {late / early:.2f} times an early one, should be at most 1.6")
    for line in broken:
        print(f"BOUND BROKEN  {line}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
