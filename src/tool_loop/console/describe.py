"""Events in words for a person: a call and its outcome on one line, a message in full.

What comes out holds text of models and tools as it came: whoever writes it to a terminal does so
through terminal.py. Pure; knows nothing about terminals, the loop or where events come from.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from tool_loop.events import (
    ApprovalDecided,
    ApprovalRequested,
    Compacted,
    Event,
    IntentRecorded,
    LimitReached,
    ModelReplied,
    Reminded,
    RetryWaiting,
    RunContinued,
    RunEnded,
    RunInterrupted,
    RunResumed,
    RunStarted,
    ToolCall,
    ToolReturned,
)
from tool_loop.records import dataclass

from .tally import duration, ordinal, plural, tokens

# What a person reads at a glance; the whole of it is in `full` and in the journal.
VALUE_CHARS = 60
LINE_CHARS = 300

# Tools of this package begin their results with a line that says what follows.
_WITH_HEADER = frozenset({"list_dir", "read_file", "grep"})
_CHANGING = frozenset({"write_file", "edit_file"})
# The first line shown may be one before the match: file-line- in place of file:line:
_ONE_FILE = re.compile(r"(\d{1,9} match(?:es)? in )1 file\b[^\n]*\n(.+?)([:-])(\d+)\3 ")


# --- a call and what came of it -------------------------------------------------------------------


def call_line(call: ToolCall) -> str:
    """`grep "class ToolError" path=src`: the name, the first argument by itself, the others by name."""
    arguments = _object(call.arguments)
    if arguments is None:
        return f"{call.name} {_cut(call.arguments, VALUE_CHARS)}".rstrip()
    if call.name == "run" and (line := _command(arguments.get("argv"))):
        return _cut(f"run {line}", LINE_CHARS)
    if call.name in _CHANGING:
        # What they change stands below, as a diff, or is read in full elsewhere.
        arguments = {name: value for name, value in arguments.items() if name not in ("old", "new", "content")}
    # Some models spell out every default; what is null or false says nothing.
    said = [(name, value) for name, value in arguments.items() if value is not None and value is not False]
    words = [f"{name}={_value(value)}" if n else _value(value) for n, (name, value) in enumerate(said)]
    return _cut(" ".join([call.name, *words]), LINE_CHARS)


def outcome_line(result: ToolReturned, call: ToolCall | None = None) -> str:
    """`1 match in agent.py`, or `not_found: no such file (did you mean lib/x?)`."""
    if result.error is not None:
        return _failure_line(result, call)
    if call and call.name == "grep" and (found := _ONE_FILE.match(result.content)):
        # Where it is says more than that it is in one file.
        line = f":{found[4]}" if found[3] == ":" and found[1].startswith("1 ") else ""
        return _cut(f"{found[1]}{found[2]}{line}", LINE_CHARS)
    first, _, rest = result.content.lstrip("\n")[: 4 * LINE_CHARS].partition("\n")
    if rest and (call is None or call.name not in _WITH_HEADER):
        return f"{_cut(first, LINE_CHARS)} ({plural(_lines(result.content), 'line')})"
    return _cut(first, LINE_CHARS) or "nothing"


def _failure_line(result: ToolReturned, call: ToolCall | None) -> str:
    said = _object(result.content) or {}
    message, hint = (str(said[key]) if isinstance(said.get(key), str) else "" for key in ("message", "hint"))
    # The path or name that failed already stands in the call beside it.
    for value in (_object(call.arguments) or {}).values() if call else ():
        if isinstance(value, str) and value:
            message = message.removesuffix(f": {value}")
    line = f"{result.error}: {message}" if message else f"{result.error}"
    return _cut(f"{line} ({hint})" if hint else line, LINE_CHARS)


def retry_line(waiting: RetryWaiting, seconds: float | None = None) -> str:
    """`429 from api.example.com, retrying in 3.0 s (2nd attempt): ...`; `seconds` is what is left of the wait."""
    left = waiting.seconds if seconds is None else seconds
    # The wait comes before the server's words: on a narrow terminal those are what is cut off.
    where, _, said = _cut(waiting.message, LINE_CHARS).partition(": ")
    if len(where) > VALUE_CHARS:
        where, said = waiting.kind, f"{where}: {said}" if said else where
    line = f"{where or waiting.kind}, retrying in {left:.1f} s ({ordinal(waiting.attempt)} attempt)"
    return f"{line}: {said}" if said else line


def decision_line(decision: ApprovalDecided) -> str:
    """`allowed by ada for the rest of the run, with edited arguments: "looks right"`."""
    line = "allowed" if decision.allowed else "denied"
    if decision.by:
        line += f" by {decision.by}"
    if decision.standing:
        line += " for the rest of the run"
    if decision.arguments is not None:
        line += ", with edited arguments"
    return f'{line}: "{_cut(decision.note, LINE_CHARS)}"' if decision.note else line


def compaction_line(event: Compacted) -> str:
    """What the model no longer sees."""
    parts = [f"{plural(len(event.cleared), 'old result')} removed"] if event.cleared else []
    if event.summary:
        parts.append("what came before is now a summary")
    return f"context shortened: {', '.join(parts) or 'nothing to remove'}"


def _command(argv: object) -> str:
    if not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
        return ""
    return shlex.join(argv)


def _value(value: Any) -> str:
    if isinstance(value, str) and value and not any(c.isspace() or c in "\"'=" for c in value):
        return _cut(value, VALUE_CHARS)
    # A string in quotes but not escaped: a regular expression with doubled backslashes is another one.
    return f'"{_cut(value, VALUE_CHARS)}"' if isinstance(value, str) else _cut(json.dumps(value), VALUE_CHARS)


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _cut(text: str, most: int) -> str:
    # Cut before splitting too: a result may be megabytes, of which one line is wanted.
    flat = " ".join(text[: most * 4].split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def _lines(text: str) -> int:
    return text.rstrip("\n").count("\n") + 1


# --- a message in full ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the text below it, as `show`, `--verbose` and the demo's transcript print them."""

    heading: str
    body: str = ""


def full(event: Event, calls: dict[str, ToolCall], step: int) -> list[Section]:  # noqa: C901 - one case per event
    """Everything the event says. `calls` are the calls so far by id, `step` the number of the reply."""
    match event:
        case RunStarted():
            system = [Section("system", event.system)] if event.system else []
            worked = [
                Section("worked example", f"{e.question}\n-> {e.name} {e.arguments}\n{e.result}\n{e.answer}")
                for e in event.examples
            ]
            return [*system, *worked, Section("question", event.question)]
        case RunContinued(question=question):
            return [Section("question", question)]
        case ModelReplied():
            return _reply(event, step)
        case ToolReturned():
            return [_result(event, calls)]
        case Reminded(text=text):
            return [Section("reminder to the model", text)]
        case ApprovalRequested():
            return [Section("waiting for an approval", "\n".join(_named(r.call_id, calls) for r in event.requests))]
        case ApprovalDecided():
            edited = event.arguments or ""
            return [Section(f"{_named(event.call_id, calls)} {decision_line(event)}", edited)]
        case Compacted():
            return [Section(compaction_line(event), event.summary)]
        case LimitReached(limit=limit):
            return [Section(f"stopping: {limit}")]
        case RunResumed(by=by):
            return [Section(f"resumed by {by}" if by else "resumed")]
        case RunInterrupted():
            return [Section(f"interrupted: {event.kind}", event.message)]
        case RunEnded():
            if event.source == "model":  # then the answer is the text of the last reply
                return [Section(f"end: {event.reason}")]
            return [Section(f"end: {event.reason}; put together from the journal", event.answer)]
        case IntentRecorded():
            return []  # what follows it says it: the results of its calls


def _reply(reply: ModelReplied, step: int) -> list[Section]:
    about = [f"step {step}", reply.model, *tokens(reply.usage), duration(reply.seconds) if reply.seconds else ""]
    sections = [Section(f"retried: {r.message or r.kind}, waited {duration(r.waited)}") for r in reply.retries]
    if reply.reasoning:
        sections.append(Section("reasoning", reply.reasoning))
    words = [reply.text] if reply.text else []
    words += [f"-> {call.name} {call.arguments}" for call in reply.calls]
    if reply.dropped_calls:
        words.append(f"({plural(reply.dropped_calls, 'call')} dropped: tools were withheld)")
    return [*sections, Section(", ".join(filter(None, about)), "\n".join(words))]


def _result(result: ToolReturned, calls: dict[str, ToolCall]) -> Section:
    about = [f"result of {_named(result.call_id, calls)}", result.error or ""]
    about.append(duration(result.seconds) if result.seconds >= 0.1 else "")
    about.append("the same as before" if result.repeat > 1 else "")
    body = result.content
    if result.arguments is not None:
        body = f"(ran with edited arguments: {result.arguments})\n{body}"
    return Section(", ".join(filter(None, about)), body)


def _named(call_id: str, calls: dict[str, ToolCall]) -> str:
    return calls[call_id].name if call_id in calls else call_id
