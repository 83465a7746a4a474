"""`tool-loop eval`: does this model use what a failure tells it?"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import EXIT_CODES, _options, command

if TYPE_CHECKING:
    from tool_loop.evals import Outcome

EPILOG = f"""\
Each task leads the model into a failure by a planted first call, and asks for a result that code can check.
The arms tell the failure differently: "ours" with the answer in the hint, "direction" with where to look,
"bare" with the word Error. --scripted tries the plumbing without a model. Every run is kept in the journal:
look at one with tool-loop report RUN, and run the command again to go on where it was left.

{EXIT_CODES}"""


def register(subparsers: Any) -> None:
    parser = command(subparsers, "eval", epilog=EPILOG)
    parser.add_argument("--scripted", action="store_true", help="a scripted model that does what hints say; no server")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="worlds of each task; default 1")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first world; default 0")
    parser.add_argument("--kinds", metavar="KIND,...", help="only these kinds of failure")
    parser.add_argument("--arms", metavar="ARM,...", help="only these arms; default ours,direction,bare")
    parser.add_argument("--example", choices=("none", "success"), default="none", help="a worked example before each")
    parser.add_argument("--concurrency", type=int, default=1, metavar="N", help="runs at the same time; default 1")
    parser.add_argument("--output", "-o", metavar="FILE", help="the outcomes as JSON lines, one for each run")
    parser.add_argument("--max-usd", type=_options.amount, metavar="X", help="over all runs; needs tool-loop[prices]")
    parser.set_defaults(no_save=False)
    _options.add_journal(parser)
    _options.add_model(parser)


def run(args: Namespace) -> int:
    import asyncio

    return asyncio.run(_evaluate(args))


async def _evaluate(args: Namespace) -> int:
    from tool_loop.budget import Budget
    from tool_loop.evals import ARMS, KINDS, Plan, run_all, table

    from ._store import journal_to_write

    plan = Plan(
        repeat=args.repeat, seed=args.seed, kinds=_chosen("kinds", args.kinds, KINDS),
        arms=_chosen("arms", args.arms, tuple(ARMS)), example=args.example, concurrency=args.concurrency,
    )  # fmt: skip
    make, label = _model(args)
    budget = Budget(usd=args.max_usd, name=f"eval {label}") if args.max_usd else None
    outcomes = []
    journal = journal_to_write(args, lambda text: print(text, file=sys.stderr))
    with closing(journal) if hasattr(journal, "close") else nullcontext():
        async for outcome in run_all(plan, make, journal, label=label, budget=budget):
            outcomes.append(outcome)
            word = "recovered" if outcome.recovered else "lost" if outcome.lost else "not recovered"
            print(f"{len(outcomes)}: {outcome.task}, {outcome.arm}, world {outcome.seed}: {word}", file=sys.stderr)
    if args.output:
        _write(args.output, outcomes)
    print(table(outcomes))
    return 0


def _write(path: str, outcomes: Sequence[Outcome]) -> None:
    lines = "".join(json.dumps(outcome.as_json()) + "\n" for outcome in outcomes)
    Path(path).write_text(lines, encoding="utf-8")


def _chosen(option: str, said: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    from tool_loop.errors import UsageError

    chosen = tuple(word.strip() for word in said.split(",")) if said else known
    if unknown := [word for word in chosen if word not in known]:
        raise UsageError(f"--{option}: there is no {unknown[0]!r}; there are: {', '.join(known)}")
    return chosen


def _model(args: Namespace) -> tuple[Any, str]:
    if args.scripted:
        from tool_loop.evals.reader import reader

        return reader, "scripted"
    from ._cost import pricing
    from ._setup import llm_of

    llm = llm_of(args, lambda text: print(text, file=sys.stderr))
    priced, _ = pricing(args, llm)
    label = "".join(c if c.isalnum() or c in "_." else "_" for c in str(getattr(llm, "model", "model")))
    return lambda: priced, label
