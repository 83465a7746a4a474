"""Two runs side by side, from where they part. Times, costs, ids and token counts do not count as
differences: what was said, called and returned does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

from tool_loop.events import ApprovalDecided, ApprovalRequested, Compacted, RunStarted
from tool_loop.state import canonical

from .clock import Axis, Record
from .glance import axis
from .model import CallRow, NoteRow, Row, RunView, StepRow
from .page import fact, facts, frame, state, tools, top
from .rows import row
from .text import escaped, line, many
from .view import view

# Aligning takes the product of the two lengths at worst. Runs longer than this are paired by number.
MOST_CELLS = 2_000_000


@dataclass(frozen=True, slots=True)
class _Part:
    """One thing that was said: where it stands on the page, which it is in words, and its text."""

    anchor: str
    where: str
    text: str


def diff(a: Iterable[Record], b: Iterable[Record], *, names: tuple[str, str] = ("A", "B")) -> str:
    """The report of two runs. Takes what `page` takes, twice."""
    left, right = view(a, names[0], "a"), view(b, names[1], "b")
    scales = axis(left), axis(right)
    heads = "".join(_head(run) for run in (left, right))
    question = line(left.questions[0], 200) if left.questions else "Two runs"
    alike, rest = _split(left.rows, right.rows)
    body = (
        f"<header>{top('<span>two runs compared</span>')}<h1>{escaped(question)}</h1>"
        f"<div class=two>{heads}</div>{_first(left, right)}</header>"
        f"<main id=steps>{tools({}, bars=False)}{_alike(alike, scales)}{''.join(_pair(p, scales) for p in rest)}</main>"
    )
    return frame(f"{names[0]} and {names[1]}: {question}", body)


def _head(run: RunView) -> str:
    numbers = "".join(fact(*one) for one in facts(run))
    answer = f"<p>{escaped(run.answer)}</p>" if run.answer else "<p class=cut>no answer</p>"
    name = f"<h2>{state(run)} run <code>{escaped(run.run_id)}</code></h2>"
    card = f'<div class="card answer {run.state}"><h2>Answer</h2>{answer}</div>'
    return f"<div>{name}<dl class=facts>{numbers}</dl>{card}</div>"


# --- the first difference -------------------------------------------------------------------------


def _first(left: RunView, right: RunView) -> str:
    for one, other in zip_longest(_parts(left), _parts(right)):
        if one and other and (one.where, one.text) == (other.where, other.text):
            continue
        where = escaped(one.where if one else other.where if other else "")
        if one and other and one.where != other.where:
            where = f"{where} in one, {escaped(other.where)} in the other"
        texts = _marked(one.text if one else "", other.text if other else "")
        shown = "".join(_side(part, text) for part, text in zip((one, other), texts, strict=True))
        return f'<section class="card diff"><h2>First difference: {where}</h2><div class=two>{shown}</div></section>'
    return "<section class=card><h2>No difference</h2><p>Both runs said, called and returned the same.</p></section>"


def _side(part: _Part | None, text: str) -> str:
    if part is None:
        return _void("this run ends before")
    return f'<div><a href="#{part.anchor}">{escaped(part.where)}</a><pre>{text}</pre></div>'


def _parts(run: RunView) -> Iterable[_Part]:
    for item in run.rows:
        if isinstance(item, StepRow):
            yield from _step_parts(item)
        else:
            yield from _note_parts(item)


def _step_parts(item: StepRow) -> Iterable[_Part]:
    step = f"step {item.number}"
    yield _Part(item.anchor, f"{step}, what the model said", item.reply.text)
    names = ", ".join(c.call.name for c in item.calls) or "none"
    yield _Part(item.anchor, f"{step}, its calls", names)
    for call in item.calls:
        yield _Part(call.anchor, f"{step}, arguments of {call.call.name}", canonical(call.call.arguments))
    for call in item.calls:
        yield _Part(
            call.anchor, f"{step}, result of {call.call.name}", call.result.content if call.result else "no result"
        )


def _note_parts(item: NoteRow) -> Iterable[_Part]:
    event, word = item.event, type(item.event).__name__
    match event:
        case RunStarted():
            yield _Part(item.anchor, "the question", event.question)
            yield _Part(item.anchor, "the system prompt", event.system)
            yield _Part(item.anchor, "the worked examples", "\n".join(" ".join(astuple(e)) for e in event.examples))
        case ApprovalRequested():
            yield _Part(item.anchor, "what a person was asked", ", ".join(c.call.name for c in item.about))
        case ApprovalDecided():
            said = f"{'allowed' if event.allowed else 'denied'} {event.note} {event.arguments or ''}".strip()
            yield _Part(item.anchor, "what a person decided", said)
        case Compacted():
            cleared = " ".join(c.anchor[1:] for c in item.about)
            yield _Part(item.anchor, "a compaction", f"{event.summary}\n{cleared}".strip())
        case _:
            yield _Part(item.anchor, _WORDS[word], "\n".join(str(value) for value in astuple(event)))


_WORDS = {
    "RunContinued": "a follow-up question",
    "RunResumed": "a resume",
    "RunInterrupted": "an interruption",
    "Reminded": "a reminder",
    "LimitReached": "a limit",
    "RunEnded": "the end",
}


def _marked(one: str, other: str) -> tuple[str, str]:
    """Both texts, escaped, with the part marked in which they differ; a long common start is cut."""
    start = _common(one, other)
    stop = _common(one[start:][::-1], other[start:][::-1])
    before = one[max(0, start - 300) : start]
    lead = ("…" if start > 300 else "") + before

    def shown(text: str) -> str:
        middle, after = text[start : len(text) - stop], text[len(text) - stop :]
        tail = after[:300] + ("…" if len(after) > 300 else "")
        return f"{escaped(lead)}<mark>{escaped(middle[:4000])}</mark>{escaped(tail)}"

    return shown(one), shown(other)


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with alike; halves, so that a megabyte takes no time."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


# --- side by side ---------------------------------------------------------------------------------

_Pair = tuple[Row | None, Row | None]


def _split(left: Sequence[Row], right: Sequence[Row]) -> tuple[list[_Pair], list[_Pair]]:
    """The rows both begin with, and all others in pairs; None where one run has no counterpart."""
    mine, theirs = [_said(item) for item in left], [_said(item) for item in right]
    same = 0
    while same < min(len(mine), len(theirs)) and mine[same] == theirs[same]:
        same += 1
    alike: list[_Pair] = list(zip(left[:same], right[:same], strict=True))
    rest: list[_Pair] = []
    if (len(mine) - same) * (len(theirs) - same) > MOST_CELLS:
        return alike, list(zip_longest(left[same:], right[same:]))
    matcher = SequenceMatcher(None, mine[same:], theirs[same:], autojunk=False)
    for _, a, a_end, b, b_end in matcher.get_opcodes():
        rest += zip_longest(left[same + a : same + a_end], right[same + b : same + b_end])
    return alike, rest


def _said(item: Row) -> tuple[str, ...]:
    """What counts when two rows are compared: the words, without the numbers of the steps."""
    parts = _step_parts(item) if isinstance(item, StepRow) else _note_parts(item)
    return tuple(text for part in parts for text in (part.where.partition(", ")[2], part.text))


def _alike(pairs: Sequence[_Pair], scales: tuple[Axis, Axis]) -> str:
    if not pairs:
        return ""
    steps = sum(isinstance(one, StepRow) for one, _ in pairs)
    said = f"Both begin with the same {'step' if steps == 1 else many(steps, 'step')}" if steps else "Both begin alike"
    rows = "".join(_pair(pair, scales) for pair in pairs)
    return f"<details class=in><summary>{said}</summary>{rows}</details>"


def _pair(pair: _Pair, scales: tuple[Axis, Axis]) -> str:
    one, other = pair
    same = one is not None and other is not None and _said(one) == _said(other)
    changed = _changed(one, other)
    sides = "".join(
        f"<div>{row(item, scale, changed=changed) if item else _void('nothing here')}</div>"
        for item, scale in zip(pair, scales, strict=True)
    )
    return f'<div class="pair two{"" if same else " differs"}">{sides}</div>'


def _changed(one: Row | None, other: Row | None) -> frozenset[str]:
    """The anchors of the calls in which two steps differ, on both sides."""
    if not isinstance(one, StepRow) or not isinstance(other, StepRow):
        return frozenset()
    found: set[str] = set()
    for mine, theirs in zip_longest(one.calls, other.calls):
        if mine is None or theirs is None or _call(mine) != _call(theirs):
            found.update(call.anchor for call in (mine, theirs) if call is not None)
    return frozenset(found)


def _call(item: CallRow) -> tuple[str, str, str]:
    return item.call.name, canonical(item.call.arguments), item.result.content if item.result else ""


def _void(word: str) -> str:
    return f"<div class=void>{word}</div>"
