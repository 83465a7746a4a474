# ruff: noqa: T201  it is a command
"""Proofs about the tools that change files, each a command that says what it counted and fails when it is wrong.

    python -m tests.edit_proofs random --rounds 10000     edits equal str.replace, byte for byte
    python -m tests.edit_proofs writer --rounds 100       a writer that is killed: old or new, nothing left

A few rounds of each are in the unit tests.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tool_loop.errors import ToolError
from tool_loop.tools.change import edited, make, written
from tool_loop.tools.workspace import Root

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


def write_for_ever(directory: str) -> None:
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
            command = [sys.executable, "-m", "tests.edit_proofs", "write", "--directory", home]
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("proof", choices=("random", "writer", "write"))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory")
    options = parser.parse_args()
    match options.proof:
        case "write":
            write_for_ever(options.directory)
        case "random":
            with tempfile.TemporaryDirectory(prefix="tool-loop-proof-") as home:
                good = random_edits(options.rounds, options.seed, Path(home))
            print(f"{good} of {options.rounds} random edits are those of str.replace, byte for byte")
            return int(good != options.rounds)
        case "writer":
            return int(killed_writers(options.rounds, options.seed) > 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
