"""Killed in the middle of an effect, and resumed. Run it twice: python examples/crash.py runs.sqlite

The model asks for two payments and a shipment in one reply. While the shipment is under way (its effect
is done, its outcome is not recorded yet) the process kills itself with SIGKILL. The second start goes
on from the record: nothing is done twice, and the one call nobody can be sure about is told as such.
"""

import os
import signal
import sys
from pathlib import Path

from tool_loop import Agent, ScriptedLLM, SqliteJournal, ToolCall, tool
from tool_loop.transcript import ToolMessage

JOURNAL = Path(sys.argv[1] if len(sys.argv) > 1 else "runs.sqlite")
EFFECTS = JOURNAL.with_suffix(".effects")


def effect(line: str) -> None:
    with EFFECTS.open("a") as file:
        file.write(line + "\n")
    print("  effect:", line, flush=True)


@tool(effect="once")
def pay(amount: int) -> str:
    """Pay an amount."""
    effect(f"pay {amount}")
    return f"paid {amount}"


@tool(effect="once")
def ship(order: int) -> str:
    """Ship an order."""
    effect(f"ship {order}")
    os.kill(os.getpid(), signal.SIGKILL)
    return f"shipped {order}"


def model(request: object) -> object:
    """Asks for all three at first; then says what it was told."""
    told = [m.content for m in request.transcript.messages if isinstance(m, ToolMessage)]
    if not told:
        return (
            ToolCall("a", "pay", '{"amount": 1}'),
            ToolCall("b", "pay", '{"amount": 2}'),
            ToolCall("c", "ship", '{"order": 3}'),
        )
    return "I was told:\n  " + "\n  ".join(told)


with SqliteJournal(JOURNAL) as journal:
    result = Agent(ScriptedLLM(model, model), [pay, ship], journal=journal).run_sync(
        "Pay 1 and 2, ship 3.", run_id="r1"
    )
print(result.answer)
print("effects:", ", ".join(EFFECTS.read_text().splitlines()))
