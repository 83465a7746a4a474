"""What stands against ending with an answer: a form it does not have, or a check of the author's that refuses it.

Both are data, as a tool's failure is: the model reads what is wrong and answers again, a bounded number of
times. Then the run stops as "invalid answer", with one last word, and still holds the text.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tool_loop import transcript
from tool_loop.errors import FatalError, ToolError
from tool_loop.events import LimitReached, Reminded
from tool_loop.ports import AnswerSpec
from tool_loop.records import dataclass
from tool_loop.runtime.shield import settle
from tool_loop.runtime.threads import run_in_thread

if TYPE_CHECKING:
    from tool_loop.agent import Driver


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the final answer has to be. `check` gets the typed value where there is a form, else the text."""

    form: AnswerSpec | None = None
    check: Callable[[Any], object] | None = None


async def objection(driver: Driver, wanted: Wanted, text: str) -> Reminded | LimitReached | None:
    """The event to record in place of the end, or None when the answer is good, or is the last word.

    Raises `FatalError` when the check itself fails: a check that is broken has not said that all is well.
    """
    state = driver.log.state
    if state.ended or state.stopping:
        return None
    error = wanted.form.problem(text) if wanted.form else None
    if error is None and wanted.check is not None:
        value = wanted.form.value(text) if wanted.form else text
        checked = await settle(_checked(wanted.check, value), until=driver.until())
        if checked.cancel:
            raise checked.cancel
        if not checked.landed:
            return LimitReached("deadline")
        error = checked.value
    if error is None:
        return None
    if state.refusals + 1 >= driver.limits.answers:
        return LimitReached("invalid answer")
    why: Any = "invalid_answer" if error.kind == "invalid_answer" else "refused_answer"
    return Reminded(transcript.failure(error.kind, error.message, error.hint, **error.fields), why)


async def _checked(check: Callable[[Any], object], value: Any) -> ToolError | None:
    try:
        # A plain function may wait for a database or compute for long: not on the loop's own thread.
        found = await (check(value) if inspect.iscoroutinefunction(check) else run_in_thread(partial(check, value)))
        if inspect.isawaitable(found):
            await found
    except ToolError as error:
        error.kind = "refused_answer" if error.kind == "tool_failed" else error.kind
        return error
    except asyncio.CancelledError:
        raise
    except Exception as error:
        raise FatalError(f"the check of the answer failed: {type(error).__name__}", kind="check") from error
    return None
