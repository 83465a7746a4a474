"""One case of the scorecard: what goes wrong, and how a run has to come out of it.

The list of them is in cases.py, how one is played in card.py, what needs a stage of its own (a
disk that is full, a process that is killed) in scenes.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from tool_loop.catalogue import CATALOGUE
from tool_loop.events import ModelReplied, ToolCall
from tool_loop.testing.faults.strike import Fault

from . import scenes
from .bench import Bench, Role
from .scenes import Scene

if TYPE_CHECKING:
    from tool_loop.limits import Limits
    from tool_loop.testing.faults.schedule import Faults
    from tool_loop.testing.faults.strike import Layer
    from tool_loop.testing.faults.wire_model import Asked

Plan: TypeAlias = Callable[["Faults", ToolCall], object]
Model: TypeAlias = "Callable[[ToolCall], Callable[[Asked], ModelReplied]]"


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that goes wrong.

    `plan` places the faults; it is given the call the model makes. `ends` is how the first attempt
    ends: "answered", the limit that stops it, the kind of its error, "cancelled", "died"; whatever is
    no end of the run has to be resumed to an answer. `told` is the kind of failure that the model
    reads, `retried` that of an attempt which failed before the reply came. `role` is which of the
    bench's calls the model makes, `model` makes another one of it, `limits` changes its limits.
    `needs` says what an agent lacks for this to make sense. `core` marks the ones that everybody
    meets. `patience` is for how many real seconds a silent socket or child process is waited for:
    client and server share one event loop, so few.
    """

    name: str
    failure: str
    plan: Plan
    ends: str = "answered"
    told: str = ""
    retried: str = ""
    role: Role = "reads"
    model: Model | None = None
    limits: Callable[[Limits, ToolCall], Limits] | None = None
    needs: Callable[[Bench], str] | None = None
    scene: Callable[[Scene], Awaitable[str]] = scenes.attempt
    core: bool = False
    patience: float = 0.01

    @property
    def layer(self) -> Layer:
        return next((row.layer for row in CATALOGUE if row.id == self.failure), "clock")

    def missing(self, bench: Bench) -> str:
        """Why this agent cannot be tried with it, "" when it can."""
        if not bench.calls:
            return "" if isinstance(self.plan, Second) and self.scene is scenes.attempt else "it has no tools"
        return _LACKS[self.role] if self.role not in bench.calls else self.needs(bench) if self.needs else ""


_LACKS: Final[dict[Role, str]] = {
    "reads": "it has no tool that reads",
    "async": "it has no tool that reads",
    "once": "it has no tool that must run once and takes a call that could be made up",
    "gated": "it has no tool that needs an approval and takes a call that could be made up",
}


# --- where a fault is placed ----------------------------------------------------------------------


def first(fault: Callable[[], Fault]) -> Plan:
    """At the first request, whose reply has the call."""
    return lambda faults, _: faults.at_step(1, fault())


@dataclass(frozen=True, slots=True)
class Second:
    """At the second request, when there is a result to lose; at the first one of an agent without tools."""

    fault: Callable[[], Fault]

    def __call__(self, faults: Faults, call: ToolCall) -> object:
        return faults.at_step(2 if call.name else 1, self.fault())


def in_tool(fault: Callable[[], Fault]) -> Plan:
    return lambda faults, call: faults.on_tool(call.name, fault())


# --- what an agent needs --------------------------------------------------------------------------


def fields(bench: Bench) -> str:
    return "" if bench.calls["reads"].arguments != "{}" else "its tools take no arguments"


def required(bench: Bench) -> str:
    spec = next(s for s in bench.agent.tools.specs() if s.name == bench.calls["reads"].name)
    return "" if spec.parameters.get("required") else "its tools require no argument"


def our_tools(bench: Bench) -> str:
    return "about the file tools of this package" if bench.own else ""


def priced(bench: Bench) -> str:
    return "it would need the price of the scorecard's model" if bench.own else ""


def limited(name: str) -> Callable[[Bench], str]:
    return lambda bench: "" if getattr(bench.agent.limits, name) else f"it has no limit of {name}"
