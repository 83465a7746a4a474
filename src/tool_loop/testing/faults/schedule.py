"""Decides which fault strikes when, and puts itself around the ports of an agent.

    faults = Faults()
    faults.at_step(3, rate_limit(retry_after=2))
    faults.at_step(5, cut_stream(after="half a call"))
    faults.on_tool("grep", crash(), call=2)
    result = await faults.agent(agent).run("...")
    faults.assert_struck()

Everything is said beforehand or drawn from a seed, so the same faults strike in the same places every
time. What a fault does is in strike.py, the wrappers are in ports.py. Knows nothing about what a run
should make of it.
"""

from __future__ import annotations

import asyncio
import copy
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tool_loop.errors import UsageError
from tool_loop.ports import rebuilt
from tool_loop.runtime.clock import FakeClock

from .plans import WORDS, Chance, PlannedFault, Struck, counted, where
from .strike import Fault, Point, ProcessDied

if TYPE_CHECKING:
    from tool_loop.api import Agent
    from tool_loop.events import Event, ModelReplied
    from tool_loop.ports import LLM, Journal, Reviewer, Tools
    from tool_loop.testing.server.server import FaultServer
    from tool_loop.toolbox.registry import Tool

    from .wire_model import Asked

T = TypeVar("T")


@dataclass
class Faults:
    """Which faults strike where. Each method that places one returns the same object.

    Steps are requests to the model, counted from 1 over everything that goes through these faults
    (one for a summary counts; a retry of the same request does not). `struck` lists what has
    happened. `clock` is the wall clock that `clock_jump` sets, `seed` that of `sometimes`.
    """

    seed: int = 0
    clock: FakeClock = field(default_factory=FakeClock)
    struck: list[Struck] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    dead: bool = False

    def __post_init__(self) -> None:
        self._plans: list[PlannedFault] = []
        self._chances: list[Chance] = []
        self._random = random.Random(self.seed)  # noqa: S311 - the same every time is the point
        self._steps: dict[str, int] = {}
        self._counts: Counter[tuple[Point, str]] = Counter()
        self._driven: asyncio.Task[Any] | None = None
        self._journals = 0
        self._struck_by: list[PlannedFault | Chance] = []

    # --- placing them -----------------------------------------------------------------------------

    def at_step(self, step: int, *faults: Fault | str, times: int = 1) -> Self:
        """At this request to the model, one fault for each attempt in turn; then it goes through.

        A fault may be named ("overloaded") where its usual form will do. Raises UsageError for one
        that cannot strike a model.
        """
        for fault in faults:
            self._place("model", fault, counted("step", step), left=counted("times", times))
        return self

    def from_step(self, step: int, fault: Fault | str) -> Self:
        """At this request and every later one, each attempt."""
        return self._place("model", fault, counted("step", step), left=None, onwards=True)

    def on_tool(self, name: str, fault: Fault | str, *, call: int | None = 1) -> Self:
        """At this call of the tool, of those that get as far as running; None at every one of them."""
        return self._place(
            "tool", fault, 0 if call is None else counted("call", call), name, None if call is None else 1
        )

    def at_review(self, nth: int, fault: Fault | str) -> Self:
        """When a person is asked about a call for the nth time."""
        return self._place("review", fault, counted("nth", nth))

    def at_append(self, nth: int, fault: Fault | str) -> Self:
        """When the journal writes its nth record, counted over everything that goes through these faults."""
        return self._place("append", fault, counted("nth", nth))

    def on_record(self, kind: type[Event], fault: Fault | str, *, nth: int = 1) -> Self:
        """When the journal writes the nth event of this kind: `on_record(ToolReturned, die())`."""
        return self._place("append", fault, counted("nth", nth), kind.__name__)

    def at_open(self, nth: int, fault: Fault | str) -> Self:
        """When a run is opened for the nth time."""
        return self._place("open", fault, counted("nth", nth))

    def sometimes(self, rate: float, *faults: Fault | str, at_most: int | None = None) -> Self:
        """By chance, wherever one of them can strike: with this probability one of those that can, does."""
        if not 0 <= rate <= 1 or not faults:
            raise UsageError(f"sometimes(rate, fault, ...) takes a probability between 0 and 1, got {rate!r}")
        self._chances.append(Chance(rate, tuple(map(_made, faults)), at_most))
        return self

    def _place(
        self, point: Point, given: Fault | str, nth: int, name: str = "", left: int | None = 1, *, onwards: bool = False
    ) -> Self:
        fault = _made(given)
        if point not in fault.points:
            can = " or ".join(WORDS[p] for p in fault.points)
            raise UsageError(f"{fault} cannot strike {WORDS[point]}, only {can}")
        self._plans.append(PlannedFault(point, fault, nth, name, left, onwards))
        return self

    # --- around an agent --------------------------------------------------------------------------

    def agent(self, agent: Agent, *, llm: LLM | None = None) -> Agent:
        """A copy of the agent with these faults in its model, its tools, its journal and its reviewer.

        They are put below whatever is around the model already (retrying, prices, traces), as in real
        life. `llm` replaces the model itself: a script, in place of one that costs money.
        """
        twin = copy.copy(agent)
        twin.llm = rebuilt(agent.llm, lambda model: self.llm(llm or model))
        twin.tools = self.tools(agent.tools)
        twin.journal = self.journal(agent.journal)
        twin.reviewer = self.reviewer(agent.reviewer) if agent.reviewer else None
        return twin

    def llm(self, llm: LLM) -> LLM:
        """The model with these faults. It belongs inside of `Retrying`, which `Agent` puts around it."""
        from .ports import FaultyLLM

        return FaultyLLM(llm, self)

    def tools(self, tools: Iterable[Tool | Callable[..., Any]] | Tools) -> Tools:
        """The tools with these faults: a registry, a list of tools, or a `Tools` port of your own."""
        from .ports import faulty_tools

        return faulty_tools(tools, self)

    def reviewer(self, reviewer: Reviewer) -> Reviewer:
        """The person with these faults."""
        from .ports import faulty_reviewer

        return faulty_reviewer(reviewer, self)

    def journal(self, journal: Journal) -> Journal:
        """The journal with these faults."""
        from .ports import FaultyJournal

        self._journals += 1
        return FaultyJournal(journal, self)

    def server(self, say: Callable[[Asked], ModelReplied], **options: Any) -> FaultServer:
        """A server of chat completions on 127.0.0.1 that answers with `say`, with these faults on its wire.

        `options` are those of `FaultServer`.
        """
        from .wire_model import WireModel

        return WireModel(say, self).server(**options)

    # --- while a run goes on ----------------------------------------------------------------------

    async def drive(self, run: Awaitable[T]) -> T:
        """Await the run, so that `cancel()` can cancel it: `await faults.drive(agent.run("..."))`.

        Raises `asyncio.CancelledError` when it did.
        """
        self._driven = task = asyncio.ensure_future(run)
        try:
            return await task
        finally:
            self._driven = None

    def cancel(self) -> None:
        """Cancel what `drive` awaits. Safe from any thread."""
        if self._driven is None:
            raise UsageError("cancel() needs to know the run: await faults.drive(agent.run(...))")
        self._driven.get_loop().call_soon_threadsafe(self._driven.cancel)

    def die(self) -> None:
        """From here on, until a run is opened again, nothing is recorded."""
        if not self._journals:
            raise UsageError("die() needs the journal of the run: Agent(..., journal=faults.journal(...))")
        self.dead = True

    def calm(self) -> None:
        """From here on nothing goes wrong any more."""
        self._plans.clear()
        self._chances.clear()

    def release(self) -> None:
        """Let go of the threads in which a plain function hangs."""
        self.gate.set()

    # --- which one strikes now --------------------------------------------------------------------

    def step(self, key: str) -> int:
        """The number of the step whose request has this key; a new one for a key not seen before."""
        if not key:
            key = f"\0{len(self._steps)}"
        return self._steps.setdefault(key, len(self._steps) + 1)

    def next(self, point: Point, name: str = "") -> int:
        """Counts one more of what happens at this point under this name."""
        self._counts[point, name] += 1
        return self._counts[point, name]

    def due(self, point: Point, nth: int, name: str = "", *, by_name: int = 0) -> Fault | None:
        """The fault that strikes now, which is thereby used up. `by_name` is `nth` counted by the name."""
        for plan in self._plans:
            if plan.fits(point, name, by_name if plan.name and by_name else nth):
                if plan.left is not None:
                    plan.left -= 1
                return self._strikes(plan, plan.fault, point, name, nth)
        for chance in self._chances:
            able = [fault for fault in chance.faults if point in fault.points]
            if able and chance.left != 0 and self._random.random() < chance.rate:
                if chance.left is not None:
                    chance.left -= 1
                return self._strikes(chance, self._random.choice(able), point, name, nth)
        return None

    def ahead(self, point: Point, nth: int) -> Fault | None:
        """The fault that is planned for there, without using it up."""
        return next((plan.fault for plan in self._plans if plan.fits(point, "", nth)), None)

    def missed(self, fault: Fault) -> None:
        """It struck, and there was nothing to hit: as if it had not."""
        n = max(n for n, struck in enumerate(self.struck) if struck.fault == str(fault))
        del self.struck[n]
        plan = self._struck_by.pop(n)
        if plan.left is not None:
            plan.left += 1

    def _strikes(self, plan: PlannedFault | Chance, fault: Fault, point: Point, name: str, nth: int) -> Fault:
        self.struck.append(Struck(where(point, name, nth), str(fault)))
        self._struck_by.append(plan)
        return fault

    def assert_struck(self) -> None:
        """Raises AssertionError when a fault that was placed never struck: then the test shows nothing."""
        if left := self.unstruck():
            raise AssertionError(f"never struck: {left}; what did: {', '.join(map(str, self.struck)) or 'none'}")

    def unstruck(self) -> str:
        """The faults that were placed and have not struck so far, "" when all have."""
        return ", ".join(str(plan) for plan in self._plans if plan.left)


def _made(given: Fault | str) -> Fault:
    if isinstance(given, Fault):
        return given
    from .injectors import fault

    return fault(given)


__all__ = ["Faults", "ProcessDied", "Struck"]
