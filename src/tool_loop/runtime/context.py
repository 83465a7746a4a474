"""What is true of the run that is being driven in this task: its id, and what its caller gave it.

A context variable, so that neither the loop nor any wrapper of a port has to hand it on, and runs side by
side never see each other's. Read where a tool's `ToolContext` is made. Never on record: a database
connection cannot be written down, so whoever resumes a run gives it again.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import field
from typing import Any, Final

from tool_loop.records import dataclass


@dataclass(frozen=True, slots=True)
class RunContext:
    """`deps` is what `Agent.run(deps=...)` was given. `depth` counts the runs
    that this one works for. `memo` keeps what is to be worked out once for this attempt, by whoever works it out."""

    run_id: str = ""
    deps: Any = None
    depth: int = 0
    memo: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def host(self) -> Any:
        """What the run is driven with, for sub-agents to be driven with too; None outside of a run."""
        return self.memo.get("host")


NO_RUN: Final = RunContext()
CURRENT: Final[ContextVar[RunContext]] = ContextVar("tool_loop_run", default=NO_RUN)
