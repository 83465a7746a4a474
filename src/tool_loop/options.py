"""What may be given with a run, beside the question: the options of `Agent.run`, `resume`, `stream`, `run_sync`.

Typed dictionaries, so that all four doors take the same words, and a type checker and an editor know them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypedDict

from .budget import Budget
from .events import Event, Signal
from .limits import Limits

Subscriber: TypeAlias = Callable[[Event | Signal], object]


class ResumeOptions(TypedDict, total=False):
    """What may be given with a run that is on record.

    `on_event` sees each event and signal. `deps` is for its tools (`ToolContext.deps`), and never on record.
    `limits` are in the place of the agent's. `budget` is shared with other runs.
    """

    on_event: Subscriber | None
    deps: Any
    limits: Limits | None
    budget: Budget | None


class RunOptions(ResumeOptions, total=False):
    """What changes from run to run. Beside the above: `run_id` names the run, `continue_run` is the one that
    the question follows up on, `meta` is recorded beside the agent's, and `system` is the system prompt in
    place of the agent's, as text or as a function of `deps` that is called once.
    """

    run_id: str | None
    continue_run: str | None
    meta: Mapping[str, object] | None
    system: str | Callable[[Any], str] | None
