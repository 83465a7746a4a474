"""What came of each tool failure: derived from the calls that followed, since nothing records it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .model import CallRow, Recovery


def recover(turns: Sequence[Sequence[CallRow]], *, answered: bool) -> None:
    """Say of every failed call of one question what became of it: the first later call of its tool
    that succeeded; else the first later success of any tool; else the answer.

    Only calls of later turns count: a sibling was asked for before the failure was known.
    """
    same: dict[str, CallRow] = {}
    other: CallRow | None = None
    tries: Counter[str] = Counter()  # failures of a tool between this turn and its next success
    for calls in reversed(turns):
        failed = [call for call in calls if call.error is not None]
        for call in failed:
            call.recovery = _of(call, same.get(call.call.name), other, tries[call.call.name], answered=answered)
        for call in reversed(calls):
            if call.result and call.error is None:
                same[call.call.name] = other = call
                tries[call.call.name] = 0
        tries.update(call.call.name for call in failed)


def _of(call: CallRow, same: CallRow | None, other: CallRow | None, failed: int, *, answered: bool) -> Recovery:
    name = call.call.name
    again = f", after {failed} more failure{'s' if failed > 1 else ''}" if failed else ""
    if same is not None:
        return Recovery("recovered", f"{name} succeeded in step {same.step}{again}", same.anchor)
    if other is not None:
        return Recovery("replaced", f"went on with {other.call.name} in step {other.step}", other.anchor)
    if answered:
        return Recovery("answered", f"answered without it{again}")
    return Recovery("open", f"not recovered{again}")
