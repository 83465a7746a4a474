"""What the loop itself can do about a reply that did not come. Everything else about it is passed on.

Waiting is not among it: `Retrying` around the model has done the waiting, within the run's deadline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tool_loop import transcript
from tool_loop.errors import BudgetSpent, ProviderError
from tool_loop.events import LimitReached

from . import compaction

if TYPE_CHECKING:
    from tool_loop.agent import Driver


async def mended(driver: Driver, error: BaseException) -> bool:
    """Whether the run can go on: with less history, with its last word, or with an answer from the record."""
    state = driver.log.state
    if state.stopping:
        # The last word is asked for once. When the model gives none, the record tells what was found and why.
        if not isinstance(error, ProviderError | BudgetSpent | TimeoutError):
            return False
        await driver.record(transcript.from_journal(state))
        return True
    if isinstance(error, TimeoutError | BudgetSpent):
        await driver.record(LimitReached("deadline" if isinstance(error, TimeoutError) else "budget"))
        return True
    if isinstance(error, ProviderError) and error.kind == "context_length" and not state.compacted:
        # Only the provider knows for sure how much it takes. Shorten once, and ask again; a second
        # refusal in a row is not about the length of the history, so it is passed on.
        return await compaction.compact(driver, error.window)
    return False
