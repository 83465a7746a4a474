"""A person decides: at once where a reviewer is there, later and from elsewhere where none is."""

import asyncio
import json
import tempfile
from pathlib import Path

from tool_loop import Agent, ApprovalDecided, PendingApproval, ScriptedLLM, ToolCall, tool
from tool_loop.journal.sqlite import SqliteJournal


@tool(effect="once")
def pay(amount: int, to: str) -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


async def reviewer(pending: PendingApproval) -> ApprovalDecided:
    """Stands in for a person: sees the whole call, and says yes to small sums."""
    small = json.loads(pending.call.arguments)["amount"] <= 10
    return ApprovalDecided(pending.call.id, allowed=small, by="ada", note="" if small else "too much")


def script() -> ScriptedLLM:
    asked = [ToolCall("1", "pay", '{"amount": 3, "to": "bob"}'), ToolCall("2", "pay", '{"amount": 300, "to": "bob"}')]
    return ScriptedLLM(asked, "Bob has his three.")


async def at_once() -> None:
    result = await Agent(script(), [pay], approve="effects", reviewer=reviewer).run("Pay Bob.")
    print("at once:", result.answer, [failure.content for failure in result.failures])


async def later(path: Path) -> None:
    with SqliteJournal(path) as journal:
        waiting = await Agent(script(), [pay], approve="effects", journal=journal).run("Pay Bob.", run_id="bob")
        print("waiting for:", [pending.call.arguments for pending in waiting.waiting])

    # Days later, in another process: `tool-loop approve bob 1 --journal FILE` does the same.
    with SqliteJournal(path) as journal:
        await journal.decide("bob", "1", allow=True, by="ada")
        await journal.decide("bob", "2", allow=False, by="ada", note="too much")

    with SqliteJournal(path) as journal:
        rest = ScriptedLLM("Bob has his three.")  # the model's first reply is on record and is not asked for again
        result = await Agent(rest, [pay], approve="effects", journal=journal).resume("bob")
        print("later:", result.answer, f"({result.tool_calls} call ran)")


if __name__ == "__main__":
    asyncio.run(at_once())
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(later(Path(directory, "runs.sqlite")))
