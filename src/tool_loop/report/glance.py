"""The whole run in one drawing: model and tools over time, and what each reply had to read.

A few paths in place of a thousand rectangles, so that a run of 400 steps costs a few kilobytes.
Calls that ran side by side lie in lanes of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tool_loop.events import Compacted, LimitReached, RunContinued, RunInterrupted, RunResumed

from .clock import Axis
from .model import RunView, StepRow
from .text import attribute, count, escaped, many, seconds

LANES = 6  # more calls at once than this share the last lane
LANE = 11  # its height
THIN = 1.5  # the least width of a bar, in thousandths of the axis


def axis(run: RunView) -> Axis:
    """The time axis of a run; stretches in which nothing ran are drawn short."""
    bars = [(step.start, step.end) for step in run.steps]
    bars += [(c.start, c.end) for s in run.steps for c in s.calls if c.start is not None and c.end is not None]
    bars += [(max(0.0, n.at - n.event.seconds), n.at) for n in run.notes if isinstance(n.event, Compacted)]
    return Axis(bars, max([run.totals.elapsed, *(stop for _, stop in bars)]))


def glance(run: RunView, scale: Axis) -> str:
    """The drawing with its axis and its legend; nothing for a run that has not asked a model yet."""
    if not run.steps:
        return ""
    lanes = _lanes(run)
    height = (len(lanes) or 1) * LANE
    tools = "".join(
        _path("ft", _bars(lane, scale, n, False)) + _path("fb", _bars(lane, scale, n, True))
        for n, lane in enumerate(lanes)
    )
    failed = sum(c.error is not None for s in run.steps for c in s.calls)
    label = (
        f"Timeline: {many(run.totals.steps, 'model reply', 'model replies')} and "
        f"{many(run.totals.calls, 'tool call')}, {failed} failed, in {seconds(run.totals.elapsed)}"
    )
    rows = [
        _lane("model", _svg(LANE, _model(run, scale) + _marks(run, scale, LANE), label)),
        _lane("tools", _svg(height, tools + _marks(run, scale, height))),
        _context(run.steps, scale),
        f"<div></div>{_ticks(scale)}",
    ]
    drawn = f"<div class=glance>{''.join(rows)}</div>"
    return f"<section class=card aria-label=Timeline>{drawn}{_legend(run, scale)}</section>"


def _lane(name: str, drawn: str) -> str:
    return f'<div class=name>{name}</div><div class="lane jump">{drawn}</div>'


def _model(run: RunView, scale: Axis) -> str:
    asked = [(s.start, s.end) for s in run.steps]
    asked += [(max(0.0, n.at - n.event.seconds), n.at) for n in run.notes if isinstance(n.event, Compacted)]
    waits = [(s.start, min(s.end, s.start + s.waited)) for s in run.steps if s.waited]
    draw = _rect
    return _path("fm", (draw(a, b, 0, scale) for a, b in asked)) + _path("fw", (draw(a, b, 0, scale) for a, b in waits))


def _lanes(run: RunView) -> list[list[tuple[float, float, bool]]]:
    """The calls, each in the first lane that is free when it starts."""
    calls = [
        (c.start, c.end, c.error is not None)
        for s in run.steps
        for c in s.calls
        if c.start is not None and c.end is not None
    ]
    lanes: list[list[tuple[float, float, bool]]] = []
    for call in sorted(calls):
        lane = next((lane for lane in lanes if lane[-1][1] <= call[0] + 1e-6), None)
        if lane is None and len(lanes) < LANES:
            lane = []
            lanes.append(lane)
        (lanes[-1] if lane is None else lane).append(call)
    return lanes


def _bars(lane: Iterable[tuple[float, float, bool]], scale: Axis, n: int, failed: bool) -> Iterable[str]:
    return (_rect(a, b, n, scale) for a, b, bad in lane if bad == failed)


def _rect(start: float, stop: float, lane: int, scale: Axis) -> str:
    x = round(scale.at(start), 1)
    return f"M{x:g} {lane * LANE + LANE // 2}h{max(THIN, round(scale.at(stop) - x, 1)):g}"


def _path(kind: str, pieces: Iterable[str]) -> str:
    drawn = "".join(pieces)
    return f'<path class={kind} d="{drawn}"/>' if drawn else ""


def _marks(run: RunView, scale: Axis, height: int) -> str:
    turning = (Compacted, LimitReached, RunContinued, RunInterrupted, RunResumed)
    places = [scale.at(n.at) for n in run.notes if isinstance(n.event, turning)] + [place for place, _ in scale.cuts]
    return _path("fn", (f"M{x:.1f} 0v{height}" for x in places))


def _context(steps: Sequence[StepRow], scale: Axis) -> str:
    """What each reply read: grows with the history, falls at a compaction, and is what is paid for."""
    ends = [after.start for after in steps[1:]] + [steps[-1].last]
    read = [
        (s.start, end, s.reply.usage.input or 0, s.reply.usage.cached or 0) for s, end in zip(steps, ends, strict=True)
    ]
    most = max(tokens for _, _, tokens, _ in read)
    if not most:
        return ""
    tall = 34

    def skyline(kind: str, heights: Sequence[int]) -> str:
        """One outline over all steps, each as long as until the next reply."""
        tops = (tall - tokens / most * tall for tokens in heights)
        corners = "".join(f"H{scale.at(at[0]):.1f}V{top:.1f}" for at, top in zip(read, tops, strict=True))
        return _path(kind, [f"M{scale.at(read[0][0]):.1f} {tall}{corners}H{scale.at(read[-1][1]):.1f}V{tall}z"])

    drawn = skyline("fk", [tokens for _, _, tokens, _ in read])
    drawn += skyline("fr", [tokens - cached for _, _, tokens, cached in read])
    label = f"Tokens read by each reply, at most {count(most)}"
    return _lane(f"read<br>≤ {count(most)}", _svg(tall, drawn, label))


def _svg(height: int, drawn: str, label: str = "") -> str:
    name = f'role=img aria-label="{attribute(label)}"' if label else "aria-hidden=true"
    return f'<svg viewBox="0 0 1000 {height}" height={height} preserveAspectRatio=none {name}>{drawn}</svg>'


def _ticks(scale: Axis) -> str:
    marks = [(x, "", seconds(t) if t else "0") for t, x in scale.ticks()]
    cuts = [(x, " class=gap", f"⋯ {seconds(length)} ⋯") for x, length in scale.cuts]
    shown = [(x, kind, word) for x, kind, word in marks if all(abs(x - cut) > 70 for cut, _, _ in cuts)] + cuts
    spans = "".join(f'<span{kind} style="left:{x / 10:.1f}%">{escaped(word)}</span>' for x, kind, word in shown)
    return f"<div class=ticks>{spans}</div>"


def _legend(run: RunView, scale: Axis) -> str:
    found = [("model", "--model"), ("tool", "--tool")]
    if any(c.error is not None for s in run.steps for c in s.calls):
        found.append(("failed", "--bad"))
    if run.totals.waited:
        found.append((f"waiting to retry, {seconds(run.totals.waited)}", "--wait"))
    if scale.cuts:
        idle = seconds(sum(length for _, length in scale.cuts))
        found.append((f"nothing ran for {idle}, drawn short", "--note"))
    if any(s.reply.usage.cached for s in run.steps):
        found.append(("pale: read from the cache", "--model"))
    keys = "".join(f'<span style="--c:var({colour})">{escaped(word)}</span>' for word, colour in found)
    how = "" if run.exact else "<span>times rebuilt from durations</span>"
    return f"<div class=legend>{keys}{how}</div>"
