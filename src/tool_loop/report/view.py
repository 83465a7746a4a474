"""What a page says about a run: its records become steps, calls, failures and sums.

A pure function of the journal's records. Knows nothing about HTML. It never raises for a record that
does not fit the others: a report is what one reads when something went wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tool_loop.events import (
    ApprovalDecided,
    ApprovalRequested,
    Compacted,
    Event,
    IntentRecorded,
    ModelReplied,
    RunContinued,
    RunEnded,
    RunInterrupted,
    RunResumed,
    RunStarted,
    ToolReturned,
)

from .clock import Record, duration, timed
from .model import CallRow, FailureRow, Note, NoteRow, Recovery, Row, RunView, StateWord, StepRow, Totals
from .recovery import recover


def view(records: Iterable[Record], run_id: str = "", prefix: str = "") -> RunView:
    """The run as a page shows it; `prefix` keeps the anchors of two runs on one page apart."""
    events, times, began, exact = timed(records)
    rows = _Rows(prefix)
    for event, at in zip(events, times, strict=True):
        rows.add(event, at)
    questions = tuple(e.question for e in events if isinstance(e, RunStarted | RunContinued))
    ended = next((e for e in reversed(events) if isinstance(e, RunEnded)), None)
    state, reason = _state(events)
    models = tuple(dict.fromkeys(e.model for e in events if isinstance(e, ModelReplied) and e.model))
    return RunView(
        run_id=run_id,
        rows=rows.rows,
        failures=_failures(rows.rows),
        totals=_totals(rows.rows, times[-1] if times else 0.0),
        state=state,
        reason=reason,
        answer=ended.answer if ended and state in ("answered", "stopped") else "",
        questions=questions,
        models=models,
        began=began,
        exact=exact,
    )


class _Rows:
    """Puts events into rows, in order; an outcome finds the call it belongs to."""

    def __init__(self, prefix: str) -> None:
        self.rows: list[Row] = []
        self._prefix = prefix
        self._calls: dict[str, CallRow] = {}
        self._seen: list[int] = []  # index of event -> steps known by then
        self._steps = 0
        self._compactions = 0

    def add(self, event: Event, at: float) -> None:  # noqa: C901 - one case per event
        self._seen.append(self._steps)
        match event:
            case ModelReplied():
                self._step(event, at)
            case ToolReturned():
                self._result(event, at)
            case IntentRecorded():
                for call_id in event.call_ids:
                    if call_id in self._calls:
                        self._calls[call_id].once = True
            case ApprovalRequested():
                about = tuple(self._calls[r.call_id] for r in event.requests if r.call_id in self._calls)
                for call in about:
                    call.requested = True
                self._note(event, at, about)
            case ApprovalDecided():
                about = tuple(c for c in (self._calls.get(event.call_id),) if c is not None)
                for call in about:
                    call.decision = call.decision or event
                self._note(event, at, about)
            case Compacted():
                self._compacted(event, at)
            case _:
                self._note(event, at)

    def _step(self, reply: ModelReplied, at: float) -> None:
        self._steps += 1
        number = self._steps
        row = StepRow(f"{self._prefix}s{number}", number, reply, max(0.0, at - duration(reply.seconds)), at)
        for n, call in enumerate(reply.calls, 1):
            found = CallRow(f"{self._prefix}s{number}c{n}", number, call)
            self._calls[call.id] = found
            row.calls.append(found)
        self.rows.append(row)

    def _result(self, result: ToolReturned, at: float) -> None:
        call = self._calls.get(result.call_id)
        if call is None:
            return  # a result without its call: the journal's reader refuses it long before this
        call.result = result
        call.start, call.end = max(0.0, at - duration(result.seconds)), at

    def _compacted(self, event: Compacted, at: float) -> None:
        self._compactions += 1
        name = f"{self._prefix}k{self._compactions}"
        about = tuple(self._calls[call_id] for call_id in event.cleared if call_id in self._calls)
        for call in about:
            call.hidden = call.hidden or name
        steps: tuple[int, int] | None = None
        if event.summary and 0 < event.upto < len(self._seen):
            last = self._seen[event.upto]
            gone = [row for row in self.rows if isinstance(row, StepRow) and row.number <= last and not row.hidden]
            for row in gone:
                row.hidden = name
            steps = (gone[0].number, gone[-1].number) if gone else None
        self.rows.append(NoteRow(name, event, at, about, steps))

    def _note(self, event: Note, at: float, about: tuple[CallRow, ...] = ()) -> None:
        self.rows.append(NoteRow(f"{self._prefix}n{len(self.rows)}", event, at, about))


def _state(events: list[Event]) -> tuple[StateWord, str]:
    """How the run stands after its last record."""
    if not events:
        return "empty", ""
    asked: set[str] = set()
    for event in events:
        if isinstance(event, ApprovalRequested):
            asked.update(request.call_id for request in event.requests)
        elif isinstance(event, ApprovalDecided | ToolReturned):
            asked.discard(event.call_id)
    match events[-1]:
        case RunEnded(reason="answered"):
            return "answered", "answered"
        case RunEnded(reason=reason):
            return "stopped", reason
        case RunInterrupted(kind=kind):
            return "interrupted", kind
        case _:
            return ("waiting", "approval") if asked else ("unfinished", "")


def _failures(rows: list[Row]) -> list[FailureRow]:
    calls = [call for row in rows if isinstance(row, StepRow) for call in row.calls]
    for turns, answered in _questions(rows):
        recover(turns, answered=answered)
    found: list[FailureRow] = []
    resumed = [n for n, row in enumerate(rows) if isinstance(row, NoteRow) and isinstance(row.event, RunResumed)]
    step = 0
    for n, row in enumerate(rows):
        if isinstance(row, StepRow):
            step = row.number
            for retry in row.reply.retries:
                came = Recovery("recovered", f"a later attempt of step {step} answered", row.anchor)
                name = row.reply.model or "model"
                found.append(FailureRow("model", retry.kind, name, step, row.anchor, retry.message, came))
        elif isinstance(row.event, RunInterrupted):
            later = next((r for r in resumed if r > n), None)
            how = (
                Recovery("open", "not resumed")
                if later is None
                else Recovery("recovered", "resumed", rows[later].anchor)
            )
            found.append(FailureRow("run", row.event.kind, "run", step, row.anchor, row.event.message, how))
    for call in calls:
        if call.result and call.result.error is not None and call.recovery:
            text = _message(call.result.content)
            found.append(
                FailureRow("tool", call.result.error, call.call.name, call.step, call.anchor, text, call.recovery)
            )
    return sorted(found, key=lambda failure: failure.step)


def _questions(rows: list[Row]) -> list[tuple[list[list[CallRow]], bool]]:
    """The calls of each question, step by step, and whether the model answered it in the end."""
    found: list[tuple[list[list[CallRow]], bool]] = [([], False)]
    for row in rows:
        if isinstance(row, StepRow):
            found[-1][0].append(row.calls)
        elif isinstance(row.event, RunContinued):
            found.append(([], False))
        elif isinstance(row.event, RunEnded):
            found[-1] = (found[-1][0], row.event.source == "model")
    return found


def _totals(rows: list[Row], elapsed: float) -> Totals:
    steps = [row for row in rows if isinstance(row, StepRow)]
    summaries = [row.event for row in rows if isinstance(row, NoteRow) and isinstance(row.event, Compacted)]
    usages = [row.reply.usage for row in steps] + [e.usage for e in summaries]
    costs = [row.reply.cost for row in steps] + [e.cost for e in summaries if e.summary]

    def total(values: Iterable[int | None]) -> int | None:
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    priced = [cost for cost in costs if cost is not None]
    return Totals(
        steps=len(steps),
        calls=sum(len(row.calls) for row in steps),
        input=total(u.input for u in usages),
        output=total(u.output for u in usages),
        cached=total(u.cached for u in usages),
        reasoning=total(u.reasoning for u in usages),
        cost=sum(priced),
        priced=len(priced),
        unpriced=len(costs) - len(priced),
        elapsed=elapsed,
        retries=sum(len(row.reply.retries) for row in steps),
        waited=sum(row.waited for row in steps),
    )


def _message(content: str) -> str:
    """The message of a failed result, which is JSON unless the tool's author made it otherwise."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return content
    found = value.get("message") if isinstance(value, dict) else None
    return found if isinstance(found, str) else content
