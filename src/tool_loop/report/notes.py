"""The rows for everything that is neither a reply nor a call: questions, approvals, crashes, limits, ends."""

from __future__ import annotations

from dataclasses import dataclass

from tool_loop.events import (
    ApprovalDecided,
    ApprovalRequested,
    Compacted,
    Example,
    LimitReached,
    ModelReplied,
    Reminded,
    RunContinued,
    RunEnded,
    RunInterrupted,
    RunResumed,
    RunStarted,
)

from . import pieces
from .model import NoteRow
from .pieces import pairs, say, skim, titled
from .text import arguments, block, escaped, many, seconds


@dataclass(frozen=True, slots=True)
class _Line:
    """`word` is what happened, `said` the beginning of what was said about it, `body` all of it."""

    word: str
    said: str = ""
    body: str = ""
    colour: str = ""
    failure: str = ""
    end: str | None = None


def note(item: NoteRow) -> str:
    it = _line(item)
    failed = pieces.failed(it.failure) if it.failure else ""
    end = seconds(item.at) if it.end is None else it.end
    head = f"<b>{escaped(it.word)}</b>{failed}{skim(it.said) or '<span></span>'}<small>{end}</small>"
    fold = pieces.row(f"n {it.colour}".rstrip(), head, it.body, anchor=item.anchor, failures=it.failure)
    return f"<section class=o>{fold}</section>"


def _line(item: NoteRow) -> _Line:  # noqa: C901 - one case per event
    event = item.event
    match event:
        case RunStarted():
            return _Line("question", event.question, _opening(event), end="")
        case RunContinued():
            return _Line("follow-up", event.question, say(event.question))
        case RunResumed():
            return _Line("resumed", event.by, "<p>A new attempt took the run over where the last one left it.")
        case RunInterrupted():
            return _Line("interrupted", event.message, block(event.message), "bad", event.kind)
        case Reminded():
            return _Line("told the model", event.text, say(event.text), "warn")
        case ApprovalRequested():
            return _Line("asked a person", ", ".join(c.call.name for c in item.about), _requests(item, event))
        case ApprovalDecided():
            name = item.about[0].call.name if item.about else event.call_id
            said = " ".join(part for part in (name, f"by {event.by}" if event.by else "", event.note) if part)
            word, colour = ("allowed", "end") if event.allowed else ("denied", "bad")
            return _Line(word, said, f"<p>{decided(event)}", colour)
        case Compacted():
            cost = pieces.spent(ModelReplied("", usage=event.usage, cost=event.cost)) if event.summary else ""
            return _Line("compacted", _forgot(item), _compaction(item, event), end=cost)
        case LimitReached():
            return _Line("limit", event.limit, "<p>The model gets one last word, without tools.", "warn")
        case RunEnded():
            made = (
                "" if event.source == "model" else "<p class=cut>Put together from the record: there was no last word."
            )
            word = "answered" if event.reason == "answered" else f"stopped: {event.reason}"
            return _Line(word, event.answer, made + say(event.answer), "end")


def decided(event: ApprovalDecided) -> str:
    word = "Allowed" if event.allowed else "Denied"
    by = f" by {escaped(event.by)}" if event.by else ""
    more = ", for the rest of the run" if event.standing else ""
    text = f": {escaped(event.note)}" if event.note else ""
    return f"{word}{by}{more}{text}"


def _opening(event: RunStarted) -> str:
    parts = [titled("Question", say(event.question))]
    if event.system:
        parts.append(titled("System prompt", block(event.system)))
    for n, example in enumerate(event.examples, 1):
        parts.append(f"<details class=in><summary>Worked example {n}</summary>{_example(example)}</details>")
    if event.meta not in ("", "{}"):
        parts.append(titled("Recorded with the run", pieces.given(event.meta)))
    return "".join(parts)


def _example(it: Example) -> str:
    called = f"{it.name} {it.arguments}"
    return pairs([("Question", it.question), ("Call", called), ("Result", it.result), ("Answer", it.answer)])


def _requests(item: NoteRow, event: ApprovalRequested) -> str:
    why = {request.call_id: request.why for request in event.requests}
    words = {"policy": "needs an approval", "in_doubt": "started before a crash: nobody knows whether it happened"}
    return "".join(
        f'<p><a href="#{c.anchor}">{escaped(c.call.name)}</a> '
        f"<code>{escaped(arguments(c.call.arguments, pieces.LINE))}</code> <small>{words[why[c.call.id]]}</small>"
        for c in item.about
    )


def _forgot(item: NoteRow) -> str:
    parts = [f"{_steps(item.steps)} became a summary"] if item.steps else []
    parts += (
        [f"{many(len(item.about), 'result')} became {'a stub' if len(item.about) == 1 else 'stubs'}"]
        if item.about
        else []
    )
    return "; ".join(parts) or "nothing could be shortened"


def _steps(steps: tuple[int, int]) -> str:
    return f"step {steps[0]}" if steps[0] == steps[1] else f"steps {steps[0]} to {steps[1]}"


def _compaction(item: NoteRow, event: Compacted) -> str:
    parts = ["<p>What the model no longer sees from here on. The journal keeps everything."]
    if event.summary:
        steps = f", in place of {_steps(item.steps)} (dashed)" if item.steps else ""
        parts.append(titled(f"The summary it sees{steps}", block(event.summary)))
    if item.about:
        links = "".join(
            f'<li><a href="#{c.anchor}">step {c.step}, {escaped(c.call.name)}</a> '
            f"<small>{many(len(c.result.content) if c.result else 0, 'character')}</small>"
            for c in item.about
        )
        parts.append(titled("Results that became stubs", f"<ul>{links}</ul>"))
    return "".join(parts)
