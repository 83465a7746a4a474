# ruff: noqa: T201  it is a command
"""Proofs about the tools that change files, each a command that says what it counted and fails when it is wrong.

    python -m tests.tools.edit_proofs random --rounds 10000     edits equal str.replace, byte for byte
    python -m tests.tools.edit_proofs writer --rounds 100       a writer that is killed: old or new, nothing left
    python -m tests.tools.edit_proofs kill --rounds 80          whole runs, killed at random moments and resumed
    python -m tests.tools.edit_proofs points                    killed before and after each rename, in turn
    python -m tests.tools.edit_proofs points --mutant once      an edit without a mark: has to fail (unknown)
    python -m tests.tools.edit_proofs points --mutant idempotent   and one that is repeated (twice)

In a run each edit inserts a line before one that stays, so that it would fit a second time: applied twice
it shows. Counted are edits that are missing, that are there twice, and calls whose outcome nobody knew.
A few rounds of each are in the unit tests.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tool_loop import Agent, Tool, ToolCall
from tool_loop.audit.invariants import check
from tool_loop.errors import ToolError
from tool_loop.events import ModelReplied, ToolReturned
from tool_loop.journal.sqlite import SqliteJournal
from tool_loop.ports import Emit, Request
from tool_loop.tools.change import edited, make, written
from tool_loop.tools.edit import edit_tools
from tool_loop.tools.workspace import Root
from tool_loop.transcript import AssistantMessage

PATIENCE_SECONDS = 60.0
SIZE = 3 << 20


# --- edits are those of str.replace ---------------------------------------------------------------


def random_edits(rounds: int, seed: int, directory: Path) -> int:
    """Random texts and replacements, a part of them in odd encodings; returns how many were as they should be."""
    rng, root, good = random.Random(seed), Root(directory), 0
    for n in range(rounds):
        letters = rng.choice(("ab\n", "abcdefgh \n\t", "aé\u2028\n", "\U0001f600x\n", "{}\n    ", "\\n\"'$\n"))
        text = "".join(rng.choice(letters) for _ in range(rng.randrange(1, 80)))
        start = rng.randrange(len(text))
        old = text[start : start + rng.randrange(1, 9)] if rng.random() < 0.8 else rng.choice(letters) * 3
        new = "".join(rng.choice(letters) for _ in range(rng.randrange(0, 9)))
        coding = rng.choice(("utf-8", "utf-8-sig", "utf-16", "utf-8"))
        every = rng.random() < 0.3
        path = directory / f"f{n % 10}"
        path.write_bytes(text.encode(coding))
        places = sum(text.startswith(old, at) for at in range(len(text)))
        possible = old != new and (places > 0 if every else places == 1)
        try:
            make(root, path.name, edited(root, path.name, old, new, every))
            after = text.replace(old, new)
        except ToolError:
            after = text if not possible else "it should have been edited"
        good += path.read_bytes() == after.encode(coding)
    return good


# --- a writer that is killed ----------------------------------------------------------------------


def write_for_ever(directory: Path) -> None:
    root, n = Root(directory), 0
    print("started", flush=True)
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        n += 1
        make(root, "f", written(root, "f", f"{n % 10}" * SIZE), "the same call")


def killed_writers(rounds: int, seed: int) -> int:
    """Kill a process that writes one file again and again; returns how often it was neither old nor new, or more."""
    rng, wrong, seen = random.Random(seed), 0, set()
    with tempfile.TemporaryDirectory(prefix="tool-loop-proof-") as home:
        path = Path(home, "f")
        path.write_bytes(b"0" * SIZE)
        for _ in range(rounds):
            command = [sys.executable, "-m", "tests.tools.edit_proofs", "write", "--directory", home]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                process.stdout.readline()
                time.sleep(rng.uniform(0.0, 0.05))
                process.kill()
            data = path.read_bytes()
            seen.add(data[:1])
            wrong += data != data[:1] * SIZE
            wrong += [entry.name for entry in Path(home).iterdir()] != ["f"]
        print(f"{rounds} writers killed: {len(seen)} different contents, {wrong} times half of one, or something left")
    return wrong


# --- runs that are killed -------------------------------------------------------------------------

EDITS, PER_REPLY = 24, 3
RUN = "r"


def script() -> list[tuple[ToolCall, ...]]:
    def call(n: int) -> ToolCall:
        what = {"path": f"f{n % 2}.txt", "old": "END\n", "new": f"edit {n}\nEND\n"}
        return ToolCall(f"c{n}", "edit_file", json.dumps(what))

    return [tuple(call(n) for n in range(first, first + PER_REPLY)) for first in range(0, EDITS, PER_REPLY)]


class Model:
    """Asks for the edits, three in a reply, two of them in one file."""

    async def reply(self, request: Request, _emit: Emit) -> ModelReplied:
        turns = script()
        step = sum(isinstance(message, AssistantMessage) for message in request.transcript.messages)
        return ModelReplied("", turns[step], "tool_calls") if step < len(turns) else ModelReplied("done")


def mutant(root: Root, effect: Literal["once", "idempotent"]) -> list[Tool]:
    """The edit as it would be without a mark: declared as what must not run twice, or as what may."""

    def edit_file(path: str, old: str, new: str) -> str:
        return make(root, path, edited(root, path, old, new))

    return [Tool("edit_file", "", None, edit_file, effect=effect)]


def drive(home: Path, *, effect: Literal["once", "idempotent"] | None, die_at: int = 0, after: bool = False) -> None:
    """One attempt. With `die_at` the process ends before (or after) that many renames."""
    count, rename = 0, os.rename

    def counted(*names: Any, **where: Any) -> None:
        nonlocal count
        count += 1
        if count == die_at and not after:
            os._exit(9)
        rename(*names, **where)
        if count == die_at:
            os._exit(9)

    if die_at:
        os.rename = counted  # as close to the effect as anything of ours can be
    root = Root(home / "ws")
    journal = SqliteJournal(home / "runs.db", lease_seconds=0.5, max_takeovers=99)
    agent = Agent(Model(), mutant(root, effect) if effect else edit_tools(root, auto=True), journal=journal)
    print("started", flush=True)
    result = agent.run_sync("go", run_id=RUN)
    found = check(result.events)
    kinds = [event.error for event in result.events if isinstance(event, ToolReturned) and event.error]
    print(json.dumps([result.reason, kinds, [str(broken) for broken in found]]))


@dataclass
class Tally:
    killed: int = 0
    unknown: int = 0
    twice: int = 0
    missing: int = 0
    other: int = 0

    def add(self, home: Path, said: bytes) -> None:
        reason, kinds, broken = json.loads(said.splitlines()[-1])
        lines = [line for n in (0, 1) for line in (home / f"ws/f{n}.txt").read_text().splitlines()]
        self.unknown += kinds.count("outcome_unknown")
        self.other += len(kinds) - kinds.count("outcome_unknown") + len(broken) + (reason != "answered")
        for n in range(EDITS):
            self.twice += lines.count(f"edit {n}") > 1
            self.missing += lines.count(f"edit {n}") == 0
        self.other += sorted(path.name for path in (home / "ws").iterdir()) != ["f0.txt", "f1.txt"]

    @property
    def good(self) -> bool:
        return self.unknown + self.twice + self.missing + self.other == 0

    def __str__(self) -> str:
        return (
            f"{self.killed} times killed: {self.unknown} outcomes unknown, {self.twice} edits there twice, "
            f"{self.missing} missing, {self.other} other faults"
        )


@contextmanager
def site() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tool-loop-proof-") as directory:
        home = Path(directory)
        (home / "ws").mkdir()
        for n in (0, 1):
            (home / f"ws/f{n}.txt").write_text("BEGIN\nEND\n")
        yield home


def attempt(home: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.tools.edit_proofs", "drive", "--directory", str(home), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def finished(process: subprocess.Popen[bytes]) -> bytes:
    said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    return said.strip() if process.returncode == 0 else b""


def killed_runs(rounds: int, seed: int) -> Tally:
    """Each run is killed three times at a random moment, and then driven to its end."""
    rng, tally = random.Random(seed), Tally()
    for _ in range(rounds):
        with site() as home:
            for _ in range(3):
                with attempt(home) as process:
                    assert process.stdout is not None
                    process.stdout.readline()
                    try:
                        process.wait(rng.uniform(0.0, 0.25))
                    except subprocess.TimeoutExpired:
                        process.kill()
                        tally.killed += 1
            with attempt(home) as process:
                tally.add(home, finished(process))
    return tally


def crash_points(points: Iterable[int], effect: str = "") -> Tally:
    tally = Tally()
    mutant = ("--mutant", effect) if effect else ()
    for n in points:
        for when in ((), ("--after",)):
            with site() as home:
                with attempt(home, "--die-at", str(n), *when, *mutant) as process:
                    process.communicate(timeout=PATIENCE_SECONDS)
                    tally.killed += process.returncode == 9
                with attempt(home, *mutant) as process:
                    tally.add(home, finished(process))
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("proof", choices=("random", "writer", "write", "kill", "points", "drive"))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutant", choices=("once", "idempotent"))
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--die-at", type=int, default=0)
    parser.add_argument("--after", action="store_true")
    options = parser.parse_args()
    match options.proof:
        case "write":
            write_for_ever(options.directory)
        case "drive":
            drive(options.directory, effect=options.mutant, die_at=options.die_at, after=options.after)
        case "random":
            with tempfile.TemporaryDirectory(prefix="tool-loop-proof-") as home:
                good = random_edits(options.rounds, options.seed, Path(home))
            print(f"{good} of {options.rounds} random edits are those of str.replace, byte for byte")
            return int(good != options.rounds)
        case "writer":
            return int(killed_writers(options.rounds, options.seed) > 0)
        case "kill" | "points":
            tally = (
                killed_runs(options.rounds, options.seed)
                if options.proof == "kill"
                else crash_points(range(1, EDITS + 1), options.mutant or "")
            )
            print(tally)
            return int(not tally.good)
    return 0


if __name__ == "__main__":
    sys.exit(main())
