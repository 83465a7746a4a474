"""Runs the tasks, arm beside arm, and says what became of each.

Resumable: a run that is on record is not paid for again.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tool_loop.api import Agent
from tool_loop.budget import Budget
from tool_loop.errors import FatalError
from tool_loop.events import ApprovalDecided, Example
from tool_loop.limits import Limits
from tool_loop.ports import LLM, Journal, PendingApproval

from .arms import ARMS, Planted, Told
from .tasks import KINDS, Task, tasks

# What shows a small model how to go about it. One that shows success only teaches it to stop after one call:
# with it, recovery fell from 4 of 4 to nothing. So the other one has a failure in it that is mended.
EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "none": (),
    "success": (
        Example("Which colour is in docs/a.txt?", "read_file", '{"path": "docs/a.txt"}', "1: colour = red", "Red."),
    ),
}

# Two wrong guesses and their recovery take about six steps.
LIMITS: Final = Limits(steps=8, seconds=600.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run. `repeat` worlds of each task, from `seed` on; `kinds` and `arms` choose among them."""

    repeat: int = 1
    seed: int = 0
    kinds: Sequence[str] = KINDS
    arms: Sequence[str] = tuple(ARMS)
    example: str = "none"
    concurrency: int = 1
    limits: Limits = field(default=LIMITS)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run. `recovered`: the job was done. `false_claim`: it was not, and the answer says that it was.
    `lost`: no verdict about the model, as the time ran out or the server failed; counted apart."""

    kind: str
    task: str
    arm: str
    seed: int
    run_id: str
    recovered: bool
    false_claim: bool
    lost: bool
    reason: str
    steps: int = 0
    tokens: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


async def run_all(
    plan: Plan, llm: Callable[[], LLM], journal: Journal, *, label: str = "model", budget: Budget | None = None
) -> AsyncIterator[Outcome]:
    """Every run of the plan, as it ends. Arms are interleaved, so that a server that gets slow slows all of them.

    `label` names the model in the ids of the runs; the same label, plan and journal go on where they were left.
    """
    gate = asyncio.Semaphore(plan.concurrency)

    async def one(seed: int, index: int, arm: str) -> Outcome:
        async with gate:
            # A world for each run: what one arm does must not be there for the next.
            with tempfile.TemporaryDirectory() as folder:
                task = tasks(seed, Path(folder))[index]
                return await _run(task, arm, seed, plan, llm(), journal, label, budget)

    with tempfile.TemporaryDirectory() as folder:
        chosen = [n for n, task in enumerate(tasks(plan.seed, Path(folder))) if task.kind in plan.kinds]
    seeds = range(plan.seed, plan.seed + plan.repeat)
    running = [asyncio.ensure_future(one(seed, n, arm)) for seed in seeds for n in chosen for arm in plan.arms]
    try:
        for done in asyncio.as_completed(running):
            yield await done
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _run(
    task: Task, arm: str, seed: int, plan: Plan, llm: LLM, journal: Journal, label: str, budget: Budget | None
) -> Outcome:
    examples = EXAMPLES[plan.example]
    model = Planted(Told(llm, ARMS[arm]), task.first, 4 * len(examples) + 1)
    run_id = "-".join((label, plan.example, task.name.replace(" ", "_"), arm, str(seed)))[:120]
    agent = Agent(
        model, task.tools, examples=examples, limits=plan.limits, journal=journal, name="eval",
        reviewer=_refusing if task.denied else _allowing,
    )  # fmt: skip
    try:
        result = await agent.run(task.question, run_id=run_id, budget=budget)
    except FatalError as error:
        return Outcome(
            task.kind, task.name, arm, seed, run_id, recovered=False, false_claim=False, lost=True, reason=error.kind
        )
    lost = result.reason in ("deadline", "budget")
    good = task.good(result.answer)
    usage = result.usage
    return Outcome(
        task.kind, task.name, arm, seed, run_id, recovered=good and not lost,
        false_claim=not good and not lost and task.claims(result.answer), lost=lost, reason=result.reason,
        steps=result.steps - (task.first is not None), tokens=(usage.input or 0) + (usage.output or 0),
    )  # fmt: skip


async def _refusing(pending: PendingApproval) -> ApprovalDecided:
    return ApprovalDecided(pending.call.id, allowed=False, note='not the primary source; use source="mirror"')


async def _allowing(pending: PendingApproval) -> ApprovalDecided:
    return ApprovalDecided(pending.call.id, allowed=True)
