"""Drives a saved run again through today's code, and says where it would act differently.

    for difference in redrive(journal, "7f3a", tools=agent.tools, limits=agent.limits):
        print(difference)

The real loop runs with the replies and the tool results that are on record; no model is asked and no
tool is run. After each record the recorded one is taken for true, whatever today's code made of it,
so one difference does not hide the next. What came from outside (a cancel, a crash, a decision, an
outage) happens again where it happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tool_loop.agent import Driver
from tool_loop.errors import FatalError, JournalError, UsageError
from tool_loop.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    ModelReplied,
    RunContinued,
    RunInterrupted,
    RunResumed,
    ToolReturned,
)
from tool_loop.limits import Limits
from tool_loop.runtime.clock import run_virtual
from tool_loop.state import State

from .words import called, changed, described

if TYPE_CHECKING:
    from tool_loop.ports import Journal, Tools

# What differs from one time to the next, and says nothing about what was done.
_VOLATILE: Final = frozenset({"seconds", "first_token", "by", "message"})
# How many turns of the event loop a result waits for those that landed before it.
_TURNS: Final = 500


@dataclass(frozen=True, slots=True)
class Difference:
    """A record that today's code would not have written. `diff` is what differs, `-` as recorded, `+` now."""

    index: int
    step: int
    what: str
    diff: str

    def __str__(self) -> str:
        return f"record {self.index} (step {self.step}): {self.what}\n{self.diff}"


class Over(JournalError):
    """The record of this attempt ends here, or today's code has left it."""


def redrive(
    journal: Journal, run_id: str, *, tools: Tools | None = None, limits: Limits | None = None
) -> list[Difference]:
    """Where today's code would act differently in this run; an empty list when it would not.

    `tools` are those of today, of which only what they refuse and declare is used; without them the
    record says that too. `limits` are those the run had; without them its limits are taken as they
    came. Raises `UnknownRun`, `JournalDamaged`, and UsageError for a run that has not begun.
    """
    records = getattr(journal, "records", None)
    if records is not None:
        kept = [(record.event, record.at) for record in records(run_id)]
    else:
        kept = [(event, 0.0) for event in journal.events(run_id)]
    if not kept:
        raise UsageError(f"run {run_id} has no record")
    record = Recorded(run_id, [event for event, _ in kept], [at for _, at in kept], limits_known=limits is not None)
    if tools is None:
        record.unknown = _VOLATILE | {"call_in_text"}  # whether a text is a call depends on the names of the tools
    run_virtual(_drive(record, tools, limits))
    return record.differences


async def _drive(record: Recorded, tools: Tools | None, limits: Limits | None) -> None:
    from .ports import RecordedLLM, RecordedTools

    record.fold()
    limits = limits or Limits(steps=None, tokens=None, seconds=None)
    loop = asyncio.get_running_loop()
    began = loop.time()
    while record.more():
        at = record.at
        if isinstance(record.expected, RunContinued):
            record.fold()
        if not record.set_in:
            await record.until(record.at)
            began = loop.time()
        reviewer = record.reviewer()
        record.over = False
        attempt = Driver(
            record, RecordedLLM(record), RecordedTools(record, tools), limits, lambda _: None, reviewer, began
        )
        with suppress(Over, FatalError):
            await attempt.drive()
        record.catch_up()
        if record.at == at:  # nothing was gained: never stand still
            record.fold()


class Recorded:
    """The record of a run, and how far today's code has followed it; the loop takes it for its log.

    `set_in` says that an attempt is joined in its middle, after a difference.
    """

    def __init__(self, run_id: str, events: list[Event], times: list[float], *, limits_known: bool) -> None:
        self.run_id = run_id
        self.state = State()
        self.events = events
        self.at = 0
        self.set_in = False
        self.over = False
        self.limits_known = limits_known
        self.differences: list[Difference] = []
        self.unknown = _VOLATILE
        self._times = times
        self._outside = _interruptions(events)

    # --- where it stands --------------------------------------------------------------------------

    @property
    def expected(self) -> Event | None:
        """What the record has next; None where this attempt of it ends."""
        if self.at >= len(self.events) or self.at in self._outside:
            return None
        return self.events[self.at]

    def more(self) -> bool:
        return self.at < len(self.events)

    def fold(self) -> None:
        """Take the next record for true."""
        self.state.apply(self.events[self.at])
        self.at += 1

    def catch_up(self) -> None:
        """Go on to where the next attempt begins, or to the next step where today's code left this one."""
        self.set_in = self.over and self.more() and self.at not in self._outside
        if self.set_in and not isinstance(self.events[self.at], RunResumed | RunContinued):
            self.fold()
            while self.more() and (self.state.pending or isinstance(self.events[self.at], ToolReturned)):
                if isinstance(self.events[self.at], RunResumed):
                    break
                self.fold()
        while self.more() and (
            self.at in self._outside or isinstance(self.events[self.at], ApprovalDecided | RunInterrupted)
        ):
            self.fold()
        self.set_in = self.set_in and self.more() and not isinstance(self.events[self.at], RunResumed | RunContinued)

    async def until(self, index: int) -> None:
        """Wait until the time at which this record was written, counted from the first one."""
        passed = max(self._times[: index + 1]) - self._times[0]
        await asyncio.sleep(max(0.0, passed - asyncio.get_running_loop().time()))

    def result_of(self, call_id: str) -> int | None:
        """Where the result of a call is on record, if this attempt lived to see it."""
        for n in range(self.at, len(self.events)):
            event = self.events[n]
            if isinstance(event, ToolReturned) and event.call_id == call_id:
                return None if n in self._outside else n
            if isinstance(event, RunResumed):
                return None
        return None

    async def turn_of(self, call_id: str) -> None:
        """Wait until the results that landed before this call's have landed."""
        for _ in range(_TURNS):
            n = self.result_of(call_id)
            if n is None or n <= self.at or self.over:
                return
            await asyncio.sleep(0)

    # --- what the loop sees of it -----------------------------------------------------------------

    def reviewer(self) -> _Reviewer | None:
        """A person who decides as on record, where this attempt had one beside it."""
        end = next((n for n in range(self.at + 1, len(self.events)) if isinstance(self.events[n], RunResumed)), None)
        here = self.events[self.at : end]
        asked = any(r.why == "in_doubt" for e in here if isinstance(e, ApprovalRequested) for r in e.requests)
        decided = [n for n, e in enumerate(here) if isinstance(e, ApprovalDecided)]
        went_on = any(not isinstance(e, ApprovalDecided) for n in decided for e in here[n + 1 :])
        return _Reviewer(self) if asked or went_on else None

    async def append(self, event: Event) -> None:
        if self.over:
            raise Over("this attempt is over")
        expected = self.expected
        while isinstance(expected, ApprovalDecided) and not isinstance(event, ApprovalDecided):
            self.fold()  # made elsewhere, while this process was at work
            expected = self.expected
        if isinstance(event, RunResumed) and not isinstance(expected, RunResumed):
            return  # only because we join in the middle
        if expected is None or (isinstance(expected, RunResumed) and not isinstance(event, RunResumed)):
            raise self.end()
        if isinstance(event, ToolReturned) and isinstance(expected, ToolReturned):
            expected = self._in_turn(event, expected)
        if type(event) is not type(expected):
            raise self.differs(self.words(event))
        if diff := changed(expected, event, self.unknown):
            self.note(f"{called(event, self.names())} would be another", diff)
        self.fold()

    def _in_turn(self, event: ToolReturned, expected: ToolReturned) -> ToolReturned:
        n = self.result_of(event.call_id)
        if event.call_id == expected.call_id or n is None:
            return expected
        self.note("the calls would end in another order", f"- {expected.call_id} first\n+ {event.call_id} first")
        self.events.insert(self.at, self.events.pop(n))
        found = self.events[self.at]
        assert isinstance(found, ToolReturned)
        return found

    def end(self) -> Over:
        self.over = True
        return Over("the record of this attempt ends here")

    def differs(self, now: str) -> Over:
        """Today's code does something else altogether: note it, and leave this attempt."""
        self.note("something else would happen", f"- {self.words(self.events[self.at])}\n+ {now}")
        return self.end()

    def words(self, event: Event) -> str:
        return described(event, self.names())

    def names(self) -> dict[str, str]:
        """The tool of each call."""
        replies = (e for e in self.events if isinstance(e, ModelReplied))
        return {call.id: call.name for reply in replies for call in reply.calls}

    def note(self, what: str, diff: str) -> None:
        steps = sum(isinstance(event, ModelReplied) for event in self.events[: self.at])
        self.differences.append(Difference(self.at, steps, what, diff))


class _Reviewer:
    def __init__(self, record: Recorded) -> None:
        self._record = record

    async def __call__(self, _shown: object) -> ApprovalDecided:
        expected = self._record.expected
        if not isinstance(expected, ApprovalDecided):
            raise self._record.end()  # nobody decided it while this attempt lived
        await self._record.until(self._record.at)
        return expected


def _interruptions(events: Sequence[Event]) -> set[int]:
    """The records of a cancel: it came from outside, and so did what it made of the calls that were open."""
    found: set[int] = set()
    for n, event in enumerate(events):
        if isinstance(event, RunInterrupted) and event.kind == "cancelled":
            found.add(n)
            while n > 0 and _cut_short(events[n - 1]):
                n -= 1  # noqa: PLW2901 - backwards over what belongs to it
                found.add(n)
    return found


def _cut_short(event: Event) -> bool:
    return isinstance(event, ToolReturned) and event.error in ("cancelled", "outcome_unknown")
