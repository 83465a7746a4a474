"""The records a page is made of: what a run amounts to for somebody who looks at it afterwards.

Made by view.py out of events, turned into HTML by the others. Knows nothing about either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tool_loop.events import (
    ApprovalDecided,
    ApprovalRequested,
    Compacted,
    LimitReached,
    ModelReplied,
    Reminded,
    RunContinued,
    RunEnded,
    RunInterrupted,
    RunResumed,
    RunStarted,
    ToolCall,
    ToolReturned,
)

Note: TypeAlias = (
    RunStarted
    | RunContinued
    | RunResumed
    | RunInterrupted
    | Reminded
    | ApprovalRequested
    | ApprovalDecided
    | Compacted
    | LimitReached
    | RunEnded
)

StateWord = Literal["answered", "stopped", "waiting", "interrupted", "unfinished", "empty"]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What came of a failure. `how` is "recovered" (the same thing worked later), "replaced" (the
    model went on with another tool), "answered" (it answered without it) or "open". `anchor` is
    where on the page to look.
    """

    how: Literal["recovered", "replaced", "answered", "open"]
    text: str
    anchor: str = ""

    @property
    def good(self) -> bool:
        return self.how != "open"


@dataclass(slots=True)
class CallRow:
    """One tool call with all that became of it. `hidden` names the compaction after which the model
    no longer saw its result. `anchor` is its place on the page.
    """

    anchor: str
    step: int
    call: ToolCall
    result: ToolReturned | None = None
    start: float | None = None
    end: float | None = None
    once: bool = False
    requested: bool = False
    decision: ApprovalDecided | None = None
    hidden: str = ""
    recovery: Recovery | None = None

    @property
    def error(self) -> str | None:
        return self.result.error if self.result else None


@dataclass(slots=True)
class StepRow:
    """One reply of the model and its calls."""

    anchor: str
    number: int
    reply: ModelReplied
    start: float
    end: float
    calls: list[CallRow] = field(default_factory=list)
    hidden: str = ""

    @property
    def waited(self) -> float:
        return sum(retry.waited for retry in self.reply.retries if 0 < retry.waited < math.inf)

    @property
    def last(self) -> float:
        return max([self.end, *(call.end for call in self.calls if call.end is not None)])


@dataclass(slots=True)
class NoteRow:
    """Anything else that happened. `about` are the calls it speaks of."""

    anchor: str
    event: Note
    at: float
    about: tuple[CallRow, ...] = ()
    steps: tuple[int, int] | None = None


Row: TypeAlias = StepRow | NoteRow


@dataclass(slots=True)
class FailureRow:
    """One thing that went wrong, and what came of it. `where` is "tool", "model" or "run"."""

    where: Literal["tool", "model", "run"]
    kind: str
    name: str
    step: int
    anchor: str
    message: str
    recovery: Recovery


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the run. None is "the server did not say", which is not zero; `unpriced` counts
    the replies without a known price. `elapsed` is from the first record to the last.
    """

    steps: int = 0
    calls: int = 0
    input: int | None = None
    output: int | None = None
    cached: int | None = None
    reasoning: int | None = None
    cost: float = 0.0
    priced: int = 0
    unpriced: int = 0
    elapsed: float = 0.0
    retries: int = 0
    waited: float = 0.0


@dataclass(slots=True)
class RunView:
    run_id: str
    rows: list[Row]
    failures: list[FailureRow]
    totals: Totals
    state: StateWord
    reason: str
    answer: str
    questions: tuple[str, ...]
    models: tuple[str, ...]
    began: float | None
    exact: bool

    @property
    def steps(self) -> list[StepRow]:
        return [row for row in self.rows if isinstance(row, StepRow)]

    @property
    def notes(self) -> list[NoteRow]:
        return [row for row in self.rows if isinstance(row, NoteRow)]

    @property
    def recovered(self) -> int:
        return sum(failure.recovery.good for failure in self.failures)
