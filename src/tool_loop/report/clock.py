"""When things happened: seconds since the start of a run, and a time axis without empty stretches.

A journal's records carry the time at which each was written; the events of a `Result` do not. For
those the times are rebuilt from how long each reply and call took, which is right but for the
pauses between them. Knows nothing about HTML.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from tool_loop.events import Compacted, Event, IntentRecorded, ModelReplied, ToolReturned

# One record of a journal: its number, the Unix time at which it was written (None: not known), the event.
Record: TypeAlias = tuple[int, float | None, Event]


def timed(records: Iterable[Record]) -> tuple[list[Event], list[float], float | None, bool]:
    """The events, the second of the run at which each was recorded, the Unix time of the first, and
    whether these times were on record (True) or had to be rebuilt (False).

    Times never go backwards, whatever the machine's clock did.
    """
    rows = list(records)
    events = [event for _, _, event in rows]
    stamps = [at for _, at, _ in rows if at is not None and math.isfinite(at)]
    if not rows or len(stamps) != len(rows):
        return events, _rebuilt(events), None, False
    # The first reply's own duration may reach back before its record, but not before the run's start.
    first, latest = stamps[0], 0.0
    times: list[float] = []
    for at in stamps:
        latest = max(latest, at - first)
        times.append(latest)
    return events, times, first, True


def _rebuilt(events: Sequence[Event]) -> list[float]:
    now = began = 0.0
    once: set[str] = set()
    times: list[float] = []
    for event in events:
        match event:
            case ModelReplied(seconds=took) | Compacted(seconds=took):
                now = began = now + duration(took)
            case IntentRecorded(call_ids=ids):
                once.update(ids)
            case ToolReturned(call_id=call_id, seconds=took):
                if call_id in once:
                    now = began = now + duration(took)
                else:
                    now = max(now, began + duration(took))
            case _:
                pass
        times.append(now)
    return times


class Axis:
    """Seconds of the run to a place between 0 and `width`.

    Stretches in which nothing ran (a night before somebody approved, the time between a crash and
    the resume) would squeeze all else into a few pixels, so long ones are drawn short; `cuts` are
    their places and their lengths.
    """

    def __init__(self, bars: Iterable[tuple[float, float]], end: float, width: float = 1000.0) -> None:
        busy = _merged(bars)
        longest = max(2.0, 0.25 * sum(b - a for a, b in busy)) if busy else math.inf
        self._from: list[float] = [0.0]
        self._to: list[float] = [0.0]
        cuts: list[tuple[float, float]] = []
        for start, stop in _gaps(busy, end):
            if stop - start > longest:
                self._piece(start, start - self._from[-1])
                cuts.append((start, stop))
                self._piece(stop, longest / 3)
        self._piece(max(end, self._from[-1]), max(end, self._from[-1]) - self._from[-1])
        whole = self._to[-1] or 1.0
        self._to = [value * width / whole for value in self._to]
        self.cuts = [(self.at((a + b) / 2), b - a) for a, b in cuts]
        self.end = self._from[-1]
        self.width = width

    def _piece(self, until: float, length: float) -> None:
        self._from.append(until)
        self._to.append(self._to[-1] + length)

    def at(self, second: float) -> float:
        n = min(max(bisect_right(self._from, second) - 1, 0), len(self._from) - 2)
        start, stop = self._from[n], self._from[n + 1]
        if stop <= start:
            return self._to[n]
        share = min(1.0, max(0.0, (second - start) / (stop - start)))
        return self._to[n] + share * (self._to[n + 1] - self._to[n])

    def ticks(self) -> list[tuple[float, float]]:
        """Round moments, as (second, place), up to the first stretch that was cut: behind it a moment's
        place says nothing any more.
        """
        until = self._from[1]
        step = _round_step((self._from[-1] - sum(length for _, length in self.cuts)) / 6)
        found = [(n * step, self.at(n * step)) for n in range(min(12, int(until / step) + 1))] if step else []
        return [tick for tick in found if tick[1] <= self.width * 0.96]


def _merged(bars: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for start, stop in sorted(bars):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return found


def _gaps(busy: Sequence[tuple[float, float]], end: float) -> list[tuple[float, float]]:
    edges = [0.0, *(edge for bar in busy for edge in bar), end]
    return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]


def _round_step(rough: float) -> float:
    """The next round number of seconds: 1, 2 or 5 times a power of ten, or of minutes, hours, days."""
    for step in (60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21_600.0, 43_200.0, 86_400.0):
        if 20 < rough <= step:
            return step
    if rough <= 0:
        return 0.0
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next((m * power for m in (1.0, 2.0, 5.0) if m * power >= rough), 10 * power)


def duration(value: float) -> float:
    """A recorded duration, if it is one: a clock that was set back must not draw a bar backwards."""
    return value if math.isfinite(value) and value > 0 else 0.0
