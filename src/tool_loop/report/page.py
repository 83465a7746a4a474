"""One run as one HTML file: nothing to fetch, nothing to install, readable without JavaScript.

`page` is a pure function of a journal's records: the same records give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import pkgutil
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache

from tool_loop.events import Event

from .clock import Axis, Record
from .glance import axis, glance
from .model import FailureRow, RunView
from .pieces import failed
from .rows import named, row
from .text import attribute, count, dollars, escaped, line, many, seconds
from .view import view

# A run of more steps than this gets bars that are scaled to their step: on the scale of the run
# each of them would be a pixel wide.
SHORT_RUN = 30

_STATES = {
    "answered": "answered",
    "stopped": "stopped",
    "waiting": "waiting for a person",
    "interrupted": "interrupted",
    "unfinished": "not finished",
    "empty": "nothing on record",
}


def page(records: Iterable[Record], *, run_id: str = "") -> str:
    """The report of a run. `records` are (number, Unix time or None, event), as a journal gives them."""
    run = view(records, run_id)
    scale = axis(run)
    title = line(run.questions[0], 70) if run.questions else run_id or "run"
    body = (
        f"<header>{_top(run)}{_question(run)}{_answer(run)}{_facts(run)}{glance(run, scale)}{_failures(run)}</header>"
        f"<main id=steps>{tools(Counter(f.kind for f in run.failures))}{_rows(run, scale)}</main>"
    )
    return frame(title, body, by_step=len(run.steps) > SHORT_RUN)


def embedded(events: Iterable[Event], *, run_id: str = "", answer: str = "") -> str:
    """The page as an element for a notebook, in a frame of its own: its style and its script stay inside.

    Where a viewer strips frames, the answer is what is left.
    """
    html = page(((n, None, event) for n, event in enumerate(events, 1)), run_id=run_id)
    size = "width:100%;height:40rem;border:1px solid #8884;border-radius:8px"
    return (
        f'<iframe title="Report of a run" sandbox="allow-scripts" style="{size}" srcdoc="{attribute(html)}">'
        f"{escaped(answer)}</iframe>"
    )


def frame(title: str, body: str, *, by_step: bool = False) -> str:
    """A whole document around `body`, with the one style sheet and the one script it may run."""
    style, script = asset("page.css"), asset("page.js")
    # Everything from the run is escaped. Should that ever fail, the browser still runs no script but
    # this one, fetches nothing and sends nothing.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        f"<!doctype html>\n<html lang=en{' data-scale=step' if by_step else ''}>\n<head>\n<meta charset=utf-8>\n"
        f'<meta http-equiv=Content-Security-Policy content="{policy}">\n'
        '<meta name=viewport content="width=device-width,initial-scale=1">\n<meta name=referrer content=no-referrer>\n'
        f"<title>{escaped(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"<a class=skip href=#steps>Skip to the steps</a>\n{body}\n{_KEYS}\n"
        f"<footer>Made by tool-loop from the run's journal.</footer>\n<script>{script}</script>\n</body>\n</html>\n"
    )


def tools(kinds: Mapping[str, int], *, bars: bool = True) -> str:
    """The bar with search, filter and folding; it appears only where JavaScript runs."""
    chips = "".join(
        f'<button type=button aria-pressed=false data-k="{attribute(name)}">{escaped(name)} {n}</button>'
        for name, n in sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
    )
    group = f'<span class=chips role=group aria-label="Show only failures of a kind">{chips}</span>' if chips else ""
    scale = "<button type=button id=scale>Bars: run</button>" if bars else ""
    return (
        "<div class=tools role=search>"
        '<input id=search type=search placeholder="Search the run" aria-label="Search the run">'
        "<span id=found class=found role=status></span>"
        f"<button type=button id=fold>Fold / unfold</button>{scale}"
        f'<button type=button id=help aria-label="Keyboard shortcuts">?</button>{group}</div>'
    )


def top(left: str) -> str:
    """The line above everything, with the switch between light and dark."""
    switch = '<button type=button id=theme aria-label="Light or dark">◐</button>'
    return f"<div class=top>{left}<span class=grow></span>{switch}</div>"


def state(run: RunView) -> str:
    more = f": {run.reason}" if run.state in ("stopped", "interrupted") else ""
    return f'<span class="pill {run.state}">{escaped(_STATES[run.state] + more)}</span>'


def _top(run: RunView) -> str:
    began = "" if run.began is None else f"<time>{datetime.fromtimestamp(run.began, UTC):%Y-%m-%d %H:%M:%S} UTC</time>"
    name = f"<span>run <code>{escaped(run.run_id)}</code></span>" if run.run_id else ""
    return top(f"{state(run)}{name}{began}")


def _question(run: RunView) -> str:
    asked = run.questions[-1] if run.questions else "No question on record"
    before = len(run.questions) - 1
    earlier = f"<h2>after {many(before, 'earlier question')}</h2>" if before > 0 else ""
    return f"{earlier}<h1{' class=long' if len(asked) > 220 else ''}>{escaped(asked)}</h1>"


def _answer(run: RunView) -> str:
    if not run.answer:
        return ""
    return f'<section class="card answer {run.state}"><h2>Answer</h2><p>{escaped(run.answer)}</p></section>'


def _facts(run: RunView) -> str:
    return f"<dl class=facts>{''.join(fact(*one) for one in facts(run))}</dl>"


def fact(name: str, value: str, more: str = "") -> str:
    small = f"<small>{escaped(more)}</small>" if more else ""
    return f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}{small}</dd></div>"


def facts(run: RunView) -> Iterable[tuple[str, str, str]]:
    """The figures of a run: name, value, and what qualifies it."""
    sums = run.totals
    if run.models:
        yield "Model", run.models[-1], "" if len(run.models) == 1 else f"and {many(len(run.models) - 1, 'other')}"
    idle = sum(length for _, length in axis(run).cuts)
    parts = [f"{seconds(sums.elapsed - idle)} at work"] if idle else []
    parts += [f"{seconds(sums.waited)} waiting to retry"] if sums.waited else []
    yield "Time", seconds(sums.elapsed), ", ".join(parts)
    yield "Steps", f"{sums.steps:,}", many(sums.calls, "tool call")
    failed = len(run.failures)
    yield "Failures", f"{failed:,}", f"{run.recovered:,} recovered" if failed else ""
    if sums.input is not None:
        yield (
            "Tokens read",
            count(sums.input),
            f"{sums.cached / sums.input:.0%} cached" if sums.cached and sums.input else "",
        )
    if sums.output is not None:
        yield "Tokens written", count(sums.output), f"{count(sums.reasoning)} reasoning" if sums.reasoning else ""
    if sums.priced:
        yield (
            "Cost",
            dollars(sums.cost),
            f"{many(sums.unpriced, 'reply', 'replies')} without a price" if sums.unpriced else "",
        )


def _failures(run: RunView) -> str:
    if not run.failures:
        return ""
    rows = "".join(_failure(failure) for failure in run.failures)
    head = "<tr>" + "".join(f"<th scope=col>{word}" for word in ("Kind", "Where", "What happened", "What came of it"))
    # Scrolls by itself when long, so it takes the focus: else no keyboard could scroll it.
    box = f"<div class=more tabindex=0 role=region aria-label=Failures><table><thead>{head}</thead>{rows}</table></div>"
    return f"<section class=card><h2>Failures</h2>{box}</section>"


def _failure(failure: FailureRow) -> str:
    came = failure.recovery
    link = f'<a href="#{came.anchor}">{escaped(came.text)}</a>' if came.anchor else escaped(came.text)
    where = f"step {failure.step}, {failure.name}" if failure.where != "run" else f"after step {failure.step}"
    return (
        f"<tr><td>{failed(failure.kind)}"
        f'<td><a href="#{failure.anchor}">{escaped(where)}</a>'
        f"<td>{escaped(line(failure.message, 180))}<td class={'good' if came.good else 'open'}>{link}"
    )


def _rows(run: RunView, scale: Axis) -> str:
    usual = next((named(step.reply) for step in run.steps), "")
    return "".join(row(item, scale, usual) for item in run.rows)


@cache
def asset(name: str) -> str:
    data = pkgutil.get_data(__package__ or "", name)
    assert data is not None
    return data.decode()


_KEYS = (
    '<div class=help id=keys hidden role=dialog aria-label="Keyboard shortcuts"><dl>'
    "<dt><kbd>j</kbd> <kbd>k</kbd><dd>next, previous row"
    "<dt><kbd>n</kbd> <kbd>p</kbd><dd>next, previous failure"
    "<dt><kbd>g</kbd> <kbd>G</kbd><dd>first, last row"
    "<dt><kbd>Enter</kbd> <kbd>o</kbd><dd>fold or unfold it"
    "<dt><kbd>e</kbd><dd>fold or unfold all"
    "<dt><kbd>/</kbd><dd>search"
    "<dt><kbd>Esc</kbd><dd>show everything again"
    "<dt><kbd>s</kbd><dd>bars to the scale of the run or of each step"
    "<dt><kbd>t</kbd><dd>light or dark"
    "<dt><kbd>?</kbd><dd>these keys</dl></div>"
)
