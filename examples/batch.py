"""Many questions from a file of JSON lines, a few at a time, under one budget.

Ctrl-C, and again: nothing is paid twice.

    python examples/batch.py questions.jsonl answers.jsonl

Each line in has an "id" and a "question"; each line out has the id, the answer and why the run ended. Runs
are kept in batch.sqlite. Without arguments it makes its own questions and asks a scripted model.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from tool_loop import Agent, Budget, FatalError, Limits, OpenAIChat, ScriptedLLM, SqliteJournal, Usage

AT_ONCE = 8
BUDGET = 2_000_000  # tokens, over all rows and all starts


async def answered(agent: Agent, rows: Iterable[dict[str, Any]], budget: Budget) -> AsyncIterator[dict[str, Any]]:
    """Each row's outcome as it comes. A row that fails does not disturb the others."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(row: dict[str, Any]) -> dict[str, Any]:
        async with gate:
            try:
                # The same id is the same run: what is done gives its answer again, what was cut off goes on.
                result = await agent.run(row["question"], run_id=str(row["id"]), budget=budget)
            except FatalError as error:
                return {"id": row["id"], "error": error.kind}
        return {"id": row["id"], "answer": result.answer, "reason": result.reason}

    for done in asyncio.as_completed([one(row) for row in rows]):
        yield await done


def progress(rows: list[dict[str, Any]]) -> Any:
    """A bar where tqdm is installed, and something that does nothing where it is not."""
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(total=len(rows), unit="row")


def read(source: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines() if line.strip()]


async def run(agent: Agent, rows: list[dict[str, Any]], target: Path) -> int:
    budget, bar, n = Budget(tokens=BUDGET, name="batch").restore(agent.journal), progress(rows), 0
    with target.open("w", encoding="utf-8") as out:
        async for outcome in answered(agent, rows, budget):
            out.write(json.dumps(outcome, ensure_ascii=False) + "\n")
            out.flush()
            n += 1
            if bar is not None:
                bar.update()
    return n


def main(arguments: list[str]) -> None:
    if arguments:
        source, target = map(Path, arguments)
        with SqliteJournal("batch.sqlite") as journal:
            print(asyncio.run(run(Agent(OpenAIChat(), journal=journal), read(source), target)), "rows")
        return
    with tempfile.TemporaryDirectory() as folder, SqliteJournal(Path(folder, "batch.sqlite")) as journal:
        source, target = Path(folder, "in.jsonl"), Path(folder, "out.jsonl")
        source.write_text("".join(json.dumps({"id": f"row-{n}", "question": f"{n}?"}) + "\n" for n in range(30)))
        model = ScriptedLLM(*["an answer"] * 30, usage=Usage(40, 4))
        for llm in (model, ScriptedLLM()):  # the second start has a model that has nothing more to say
            agent = Agent(llm, journal=journal, limits=Limits(steps=3))
            print(asyncio.run(run(agent, read(source), target)), "rows, all answered")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        print("stopped; the same command goes on", file=sys.stderr)
