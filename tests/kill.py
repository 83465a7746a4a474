# ruff: noqa: T201  it is a command
"""Real processes, a real file, a real SIGKILL: what a run is after its process died at a random moment.

    python -m tests.kill --rounds 50

Each round starts a process that drives one run, kills it at a random moment, starts the next one, and
in the end looks at what really happened: every tool writes its effect to a file before it returns,
and the model notes each question. A few rounds of it are in the unit tests (test_kill.py).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tool_loop import Agent, JournalError, Tool, ToolCall, UsageError
from tool_loop.audit.invariants import check
from tool_loop.events import Event, ModelReplied, RunEnded, ToolReturned, Usage
from tool_loop.journal.sqlite import SqliteJournal
from tool_loop.ports import Emit, Request
from tool_loop.transcript import AssistantMessage

# Long enough for any machine; every wait ends here at the latest.
PATIENCE_SECONDS = 60.0
LEASE_SECONDS = 1.0
RUN = "r1"

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
EFFECTS = {"look": "read", "store": "idempotent", "pay": "once", "ship": "once"}
# By step; an empty one is the answer.
SCRIPT = ("look 1, look 2, store 3", "pay 1, pay 2, ship 3", "store 4, pay 5", "look 6, ship 7", "")


# --- the process that is killed -------------------------------------------------------------------


def note(path: Path, word: str) -> None:
    """One line in one write, which no kill can cut in two."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{word}\n".encode())
    os.close(descriptor)


@dataclass
class Slow:
    """A model and tools that take `pause` seconds for everything, so that there is time to die.

    With `hang`, the model or the tool of that name says so and waits until it is told to go on.
    """

    notes: Path
    script: tuple[str, ...]
    pause: float
    hang: str

    async def reply(self, request: Request, _emit: Emit) -> ModelReplied:
        step = sum(isinstance(message, AssistantMessage) for message in request.transcript.messages)
        note(self.notes, f"asked {step}")
        await self.takes("model")
        named = [word.split() for word in self.script[step].split(", ") if word]
        calls = tuple(ToolCall(f"c{step}_{m}", name, f'{{"n": {n}}}') for m, (name, n) in enumerate(named))
        text = "" if calls else last_results(request)
        return ModelReplied(text, calls, "tool_calls" if calls else "stop", Usage(10, 5))

    async def takes(self, what: str) -> None:
        if self.hang == what:
            print("hanging", flush=True)
            until = time.monotonic() + PATIENCE_SECONDS
            while not self.notes.with_name("go").exists() and time.monotonic() < until:  # noqa: ASYNC110  no event crosses processes
                await asyncio.sleep(0.02)
        await asyncio.sleep(self.pause)

    def tools(self) -> list[Tool]:
        def make(name: str) -> Tool:
            async def work(n: int) -> str:
                await asyncio.sleep(self.pause)
                note(self.notes, f"{name} {n}")
                await self.takes(name)
                return f"{name} {n} is done"

            return Tool(name, name, NUMBER, work, effect=EFFECTS[name])  # type: ignore[arg-type]

        return [make(name) for name in EFFECTS]


def last_results(request: Request) -> str:
    return " ".join(getattr(message, "content", "") for message in request.transcript.messages) or "done"


def work(options: argparse.Namespace) -> None:
    """Drive the run to its end, or say on the last line why not."""
    slow = Slow(options.notes, tuple(options.script.split("/")), options.pause, options.hang)
    journal = SqliteJournal(options.journal, durable=options.durable, lease_seconds=LEASE_SECONDS, max_takeovers=99)
    agent = Agent(slow, slow.tools(), journal=journal)
    print("started", flush=True)
    try:
        print(agent.run_sync("do it all", run_id=RUN).reason)
    except JournalError as error:
        print(f"{error.kind}: {error.message}")


# --- the one that kills ---------------------------------------------------------------------------


@dataclass
class Site:
    """A directory with a journal, and the notes about what really happened."""

    home: Path
    script: tuple[str, ...] = SCRIPT
    durable: str = "process"
    pause: float = 0.004

    @property
    def notes(self) -> list[str]:
        path = self.home / "notes"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def effects(self) -> Counter[str]:
        return Counter(word for word in self.notes if word.split()[0] in ("pay", "ship"))

    @property
    def events(self) -> list[Event]:
        path = self.home / "runs.db"
        if not path.exists():
            return []
        with SqliteJournal(path) as journal:
            return list(journal.events(RUN)) if journal.runs() else []

    @contextmanager
    def worker(self, hang: str = "") -> Iterator[subprocess.Popen[str]]:
        """A process that drives the run; it is gone when the block is left."""
        command = [sys.executable, "-m", "tests.kill", "--work", "--journal", self.home / "runs.db"]
        command += ["--notes", self.home / "notes", "--script", "/".join(self.script), "--durable", self.durable]
        command += ["--pause", str(self.pause), "--hang", hang]
        root = Path(__file__).parents[1]
        child = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)
        try:
            yield child
        finally:
            child.kill()
            child.communicate()

    def go(self) -> None:
        """Let whoever hangs go on."""
        (self.home / "go").touch()

    def to_the_end(self) -> str:
        """What the last line of a process says that nobody kills."""
        with self.worker() as child:
            said, _ = child.communicate(timeout=PATIENCE_SECONDS)
            return said.splitlines()[-1]


def waits_for(child: subprocess.Popen[str], word: str) -> None:
    assert child.stdout is not None
    for line in child.stdout:
        if line.strip() == word:
            return
    raise AssertionError(f"the process ended and never said {word!r}")


def at_random_moments(site: Site, chance: random.Random, kills: int = 3) -> int:
    """Kill a run up to so many times, then let it end; returns how often it was killed before its end."""
    died = 0
    before: list[Event] = []
    for _ in range(kills):
        seen = len(site.notes)
        with site.worker() as child:
            waits_for(child, "started")
            time.sleep(chance.uniform(0.0, 60 * site.pause))
            died += child.poll() is None
            child.kill()
            child.wait()
        events = site.events
        assert events[: len(before)] == before, "what was on record is not on record any more"
        assert_nothing_is_asked_twice(before, site.notes[seen:])
        before = events
    seen = len(site.notes)
    said = site.to_the_end()
    assert said == "answered", said
    assert_nothing_is_asked_twice(before, site.notes[seen:])
    sound(site, died)
    return died


def assert_nothing_is_asked_twice(before: list[Event], notes: list[str]) -> None:
    paid = sum(isinstance(event, ModelReplied) for event in before)
    again = [word for word in notes if word.startswith("asked ") and int(word.split()[1]) < paid]
    assert not again, f"replies that were on record were asked for again: {again}"


def sound(site: Site, deaths: int) -> None:
    """What must be true when the run has ended, whenever it was killed."""
    events, effects = site.events, site.effects
    broken = [str(each) for each in check(events, effects=EFFECTS)]
    assert not broken, broken
    assert isinstance(events[-1], RunEnded)
    assert max(effects.values(), default=0) <= 1, f"done twice: {effects}"
    calls = {call.id: call for event in events if isinstance(event, ModelReplied) for call in event.calls}
    for result in (event for event in events if isinstance(event, ToolReturned)):
        call = calls[result.call_id]
        what = f"{call.name} {call.arguments.strip('{}').rpartition(' ')[2]}"
        if EFFECTS[call.name] == "once":
            assert result.error in (None, "outcome_unknown")
            assert effects[what] == 1 or result.error == "outcome_unknown", f"{what} is said to be done, and is not"
    # They run one after another, so a death leaves one call in doubt and no more.
    assert unknown(events) <= deaths


def unknown(events: list[Event]) -> int:
    return sum(isinstance(event, ToolReturned) and event.error == "outcome_unknown" for event in events)


def three_payments(site: Site) -> None:
    """pay, pay, ship: killed while ship has happened and not returned. Effects 1/1/1, one reported in doubt."""
    site.script = ("pay 1, pay 2, ship 3", "")
    with site.worker(hang="ship") as child:
        waits_for(child, "hanging")
    assert site.effects == {"pay 1": 1, "pay 2": 1, "ship 3": 1}

    assert site.to_the_end() == "answered"

    assert site.effects == {"pay 1": 1, "pay 2": 1, "ship 3": 1}
    results = [event for event in site.events if isinstance(event, ToolReturned)]
    assert [result.error for result in results] == [None, None, "outcome_unknown"]
    ended = site.events[-1]
    assert isinstance(ended, RunEnded)
    assert "may or may not have happened" in ended.answer, "the model was not told"


def two_drivers(site: Site) -> None:
    """One drives and the other says who; the first is stopped, loses the run, wakes up and is fenced."""
    site.script = ("pay 1", "pay 2", "")
    with site.worker(hang="model") as first:
        waits_for(first, "hanging")
        said = site.to_the_end()
        assert said.startswith("run_busy: "), said
        assert f"driven by {first.pid}@" in said, said

        os.kill(first.pid, signal.SIGSTOP)
        until = time.monotonic() + PATIENCE_SECONDS
        while (said := site.to_the_end()).startswith("run_busy: ") and time.monotonic() < until:
            time.sleep(LEASE_SECONDS / 4)
        assert said == "answered", said
        events = site.events

        os.kill(first.pid, signal.SIGCONT)
        site.go()
        woken, _ = first.communicate(timeout=PATIENCE_SECONDS)
        assert woken.splitlines()[-1].startswith("fenced: "), woken
    assert site.events == events, "a process that slept has written to a run it no longer had"
    assert site.effects == {"pay 1": 1, "pay 2": 1}
    sound(site, 0)


def renewed(site: Site) -> None:
    """A model call that takes twice as long as the lease keeps the run all the same."""
    site.script = ("pay 1", "")
    with site.worker(hang="model") as first:
        waits_for(first, "hanging")
        time.sleep(2 * LEASE_SECONDS)
        assert site.to_the_end().startswith("run_busy: ")
        site.go()
        said, _ = first.communicate(timeout=PATIENCE_SECONDS)
    assert said.splitlines()[-1] == "answered"


def main() -> None:
    parser = argparse.ArgumentParser(description="Kills runs at random moments and looks at what is left.")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=None, help="the same moments again, as far as a machine allows")
    for name in ("--journal", "--notes"):
        parser.add_argument(name, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--script", help=argparse.SUPPRESS)
    parser.add_argument("--durable", help=argparse.SUPPRESS)
    parser.add_argument("--pause", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--hang", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options)
        return
    if options.rounds < 1:
        raise UsageError("--rounds must be at least 1")
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory() as home:
        for name, proof in (("three payments", three_payments), ("two drivers", two_drivers), ("renewed", renewed)):
            proof(Site(made(Path(home), name)))
            print(f"{name}: ok", flush=True)
        killed = doubts = 0
        for n in range(options.rounds):
            durable = ("process", "power")[n % 2]
            site = Site(made(Path(home), f"round {n}"), durable=durable)
            killed += at_random_moments(site, random.Random(seed + n), kills=3)
            doubts += unknown(site.events)
            print(f"round {n + 1} of {options.rounds}: ok; killed {killed} times, {doubts} calls in doubt", flush=True)


def made(home: Path, name: str) -> Path:
    (home / name).mkdir()
    return home / name


if __name__ == "__main__":
    main()
