"""The figures: intervals, paired tests, and the table. Small numbers say little, and the intervals say so."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .runs import Outcome

_Z: Final = 1.959964  # 95 %


def wilson(good: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share, after Wilson (1927): right also for few runs, and for none or all of them."""
    if of == 0:
        return 0.0, 1.0
    share, z2 = good / of, _Z * _Z
    centre = share + z2 / (2 * of)
    spread = _Z * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of))
    return max(0.0, (centre - spread) / (1 + z2 / of)), min(1.0, (centre + spread) / (1 + z2 / of))


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> float:
    """The exact two-sided p of a paired difference: only pairs that differ count."""
    only_first = sum(a and not b for a, b in zip(first, second, strict=True))
    only_second = sum(b and not a for a, b in zip(first, second, strict=True))
    n = only_first + only_second
    tail = sum(math.comb(n, k) for k in range(min(only_first, only_second) + 1)) / 2**n
    return float(min(1.0, 2 * tail))


def table(outcomes: Iterable[Outcome]) -> str:
    """A row for each kind of failure: how many recovered in each arm, what it took, what was claimed falsely."""
    rows = list(outcomes)
    arms = list(dict.fromkeys(row.arm for row in rows))
    kinds = list(dict.fromkeys(row.kind for row in rows))
    head = ["failure", *(f"{arm}: recovered (95 %)" for arm in arms), "p", "steps", "tokens", "false claims", "lost"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for kind in [*kinds, "all"]:
        mine = [row for row in rows if kind in (row.kind, "all")]
        lines.append("| " + " | ".join([kind, *(_recovered(mine, arm) for arm in arms), *_rest(mine, arms)]) + " |")
    return "\n".join(lines)


def _recovered(rows: Sequence[Outcome], arm: str) -> str:
    judged = [row for row in rows if row.arm == arm and not row.lost]
    good = sum(row.recovered for row in judged)
    low, high = wilson(good, len(judged))
    return f"{good} of {len(judged)} ({low:.0%} to {high:.0%})"


def _rest(rows: Sequence[Outcome], arms: Sequence[str]) -> list[str]:
    by_pair = {(row.task, row.seed, row.arm): row.recovered for row in rows if not row.lost}
    first, last = arms[0], arms[-1]
    pairs = [key[:2] for key in by_pair if key[2] == first and (*key[:2], last) in by_pair]
    p = mcnemar([by_pair[*pair, first] for pair in pairs], [by_pair[*pair, last] for pair in pairs])
    ours = [row for row in rows if row.arm == first and row.recovered]
    steps = f"{sum(row.steps for row in ours) / len(ours):.1f}" if ours else "-"
    tokens = f"{sum(row.tokens for row in ours) / len(ours):,.0f}" if ours else "-"
    false, lost = sum(row.false_claim for row in rows), sum(row.lost for row in rows)
    return ["-" if first == last else f"{p:.3f}", steps, tokens, str(false), str(lost)]
