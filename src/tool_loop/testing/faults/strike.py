"""One thing that goes wrong, as data: where in a run it can strike, and what happens when it does.

A fault is made by a factory (`rate_limit(retry_after=2)`, `crash()`, `disk_full()`), placed by
`Faults`, and carried out here. Knows nothing about which fault strikes when.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from tool_loop.events import ModelReplied
    from tool_loop.testing.server.behaviours import Behaviour

    from .schedule import Faults

T = TypeVar("T")

# Where a fault comes from, in the words of the failure table; time is the one layer it has no rows for.
Layer: TypeAlias = Literal["transport", "protocol", "tool", "loop", "journal", "clock"]

# Where a fault can strike: a request to the model, a call of a tool that runs, a question to a person,
# a record that is written, a run that is opened.
Point: TypeAlias = Literal["model", "tool", "review", "append", "open"]

# A plain function that hangs holds a thread that nobody can stop, so it lets go at last.
MAX_HANG_SECONDS: Final = 60.0


class ProcessDied(BaseException):
    """The process is gone, as far as the run can tell: from here on nothing can be recorded.

    Not an `Exception`, because a process that was killed catches nothing either.
    """


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens at one point of a run, in the order of the fields; each part may be left out.

    `first`: what was asked for is done before the rest, which then has an `error`, so its outcome is lost.
    `seconds` pass, for ever when infinite. `then` does something to the run (a cancel, a death, a
    clock that is set). `error` is raised. `instead` is the outcome, and what was asked for is not
    done. `change` makes another outcome of the real one; None says that it cannot (a reply without
    calls has no arguments to spoil) and leaves it alone.

    `pieces` are shown as text before the error, as of a stream that breaks. `wire` is the same fault
    as a server commits it, given the reply that would have been sent; None where it is none of the
    server's. `last_word` says whether it also strikes a request in which tools are withheld.
    `failure` is the row of the failure table that this is about, "" for none.
    """

    name: str
    layer: Layer
    points: tuple[Point, ...]
    failure: str = ""
    first: bool = False
    seconds: float = 0.0
    then: Callable[[Faults], None] | None = None
    error: Callable[[], BaseException] | None = None
    instead: Callable[[], Any] | None = None
    change: Callable[[Any], Any] | None = None
    pieces: tuple[str, ...] = ()
    wire: Callable[[ModelReplied], Behaviour] | None = None
    last_word: bool = True

    def __str__(self) -> str:
        return f"{self.name}()"


async def inject(fault: Fault, real: Callable[[], Awaitable[T]], faults: Faults) -> T:
    """What comes of `real` when this fault strikes it."""
    if fault.first:
        await real()
    if fault.seconds:
        await _pause(fault.seconds)
    if fault.then:
        fault.then(faults)
    if fault.error:
        raise fault.error()
    return _changed(fault, fault.instead() if fault.instead else await real(), faults)


def inject_in_thread(fault: Fault, real: Callable[[], T], faults: Faults) -> T:
    """The same for a plain function, which is held up in real time."""
    if fault.first:
        real()
    if fault.seconds:
        faults.gate.wait(min(fault.seconds, MAX_HANG_SECONDS))
    if fault.then:
        fault.then(faults)
    if fault.error:
        raise fault.error()
    return _changed(fault, fault.instead() if fault.instead else real(), faults)


def _changed(fault: Fault, outcome: T, faults: Faults) -> T:
    if fault.change is not None:
        changed = fault.change(outcome)
        if changed is None:
            faults.missed(fault)
        else:
            outcome = changed
    return outcome


async def _pause(seconds: float) -> None:
    if math.isinf(seconds):
        await asyncio.get_running_loop().create_future()
    await asyncio.sleep(seconds)
