"""Everything that can fail, and what happens then: the failure table of the README, as data.

`python -m tool_loop.catalogue` prints the table. A test compares it with the README and with the
kinds of error in errors.py, and another one injects each of them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

Layer = Literal["transport", "protocol", "tool", "loop", "journal"]


@dataclass(frozen=True, slots=True)
class Failure:
    """One row. `id` is how faults and cases name it, `failure` how people read it. `kinds` are the words
    for it in `ProviderError.kind`, `ToolReturned.error`, `Result.reason`
    or `JournalError.kind`; some rows share a kind and some have none."""

    id: str
    layer: Layer
    failure: str
    kinds: tuple[str, ...]
    what: str


CATALOGUE: tuple[Failure, ...] = (
    Failure(
        "rate_limit",
        "transport",
        "429, 408, 409, 425",
        ("rate_limit", "timeout"),
        "retried, after the wait the server asks for (retry-after-ms, Retry-After in seconds or as a date, the reset "
        "of the exhausted limit, in a header or in the body), else with exponential backoff and full jitter; a wait "
        "that does not fit the deadline is reported at once, with the figure",
    ),
    Failure(
        "server_error",
        "transport",
        "500, 502, 503, 504, 52x, 529",
        ("server_error", "overloaded"),
        "retried like a 429; three identical 500s that come at once are taken as final",
    ),
    Failure(
        "connection",
        "transport",
        "refused, reset, name not found, TLS, time out",
        ("connection", "timeout"),
        "retried for as long as the deadline and the retry policy allow, so an outage of a minute is sat out",
    ),
    Failure(
        "auth",
        "transport",
        "401, 403",
        ("auth",),
        "no retry: a typed error that says which setting to mend, never showing the key",
    ),
    Failure("not_found", "transport", "404, unknown model or path", ("not_found",), "no retry: a typed error"),
    Failure(
        "bad_request",
        "transport",
        "other 4xx, a redirect",
        ("bad_request",),
        "no retry: a typed error naming the parameter; a parameter with a known substitute is swapped once, "
        "and what was attached to an echoed turn, or a word of a tool's schema, is left out when it is refused",
    ),
    Failure(
        "quota",
        "transport",
        "402, quota used up",
        ("quota",),
        "no retry, although it may come as a 429: no waiting fills an account",
    ),
    Failure(
        "content_filter",
        "transport",
        "prompt or answer filtered",
        ("content_filter",),
        "no retry: a typed error, or an answer marked as filtered",
    ),
    Failure(
        "context_length",
        "transport",
        "context too long",
        ("context_length",),
        "compacted once and asked again; else a typed error",
    ),
    Failure(
        "not_a_reply",
        "transport",
        "200 with HTML, broken JSON, wrong gzip, no choices, an error object",
        ("protocol",),
        "retried as transient; the error object's own code decides where there is one",
    ),
    Failure(
        "cut_stream",
        "protocol",
        "stream without its terminal event",
        ("protocol",),
        "asked again; half a text and half a call never enter the history, and viewers are told to forget them",
    ),
    Failure("empty_reply", "protocol", "empty reply", ("empty",), "asked again, three times at most"),
    Failure("nameless_call", "protocol", "call without a name", ("protocol",), "asked again"),
    Failure(
        "model_output",
        "protocol",
        "the server rejects its own model's call",
        ("model_output",),
        "asked again, three times at most; so is a turn whose reason of ending says that it failed",
    ),
    Failure(
        "call_ids",
        "protocol",
        "call ids that are missing, repeated, or not allowed elsewhere",
        (),
        "made unique, in call and result alike",
    ),
    Failure(
        "cut_off",
        "protocol",
        "reply cut at the output limit, with calls",
        ("cut_off",),
        "no call of it is run; the model is told to send less. The same beside a filter, a refusal, or a reason of "
        "ending that is not known",
    ),
    Failure(
        "empty_answer",
        "protocol",
        "a reply that was cut or filtered before it said anything",
        ("empty answer",),
        "asked for once more, without tools; when nothing comes then either, the record gives the answer",
    ),
    Failure(
        "call_as_text",
        "protocol",
        "a call written as text",
        (),
        "never run; the model is told once, then it counts as the answer, with a warning",
    ),
    Failure(
        "bad_json",
        "tool",
        "arguments are not a JSON object",
        ("bad_json",),
        "a result with the position and the likely cause; nothing is guessed",
    ),
    Failure(
        "invalid_arguments",
        "tool",
        "missing, mistyped or unknown field",
        ("invalid_arguments",),
        "a result naming each field, what was expected and what came",
    ),
    Failure(
        "unknown_tool",
        "tool",
        "unknown tool",
        ("unknown_tool",),
        "a result listing the real ones, the nearest name first",
    ),
    Failure(
        "no_such_file",
        "tool",
        "no such file or directory",
        ("not_found",),
        "a result whose hint names the nearest existing paths, then where to look",
    ),
    Failure(
        "outside_root",
        "tool",
        "path outside of the root",
        ("invalid_argument",),
        "refused before anything outside is touched",
    ),
    Failure(
        "special_file",
        "tool",
        "binary or special file",
        ("invalid_argument",),
        "refused; a FIFO or a device never blocks",
    ),
    Failure(
        "bad_regex", "tool", "regex does not compile", ("invalid_argument",), "a result with the engine's own message"
    ),
    Failure(
        "too_large",
        "tool",
        "file, line or output too large",
        (),
        "cut; the header says the real size and how to read on",
    ),
    Failure("no_matches", "tool", "no matches", (), "a normal result"),
    Failure("permission_denied", "tool", "permission denied", ("permission_denied",), "a result"),
    Failure(
        "timed_out",
        "tool",
        "past its deadline",
        ("timed_out",),
        "a process is killed with its children; a thread is left, and the result says so",
    ),
    Failure(
        "conflict",
        "tool",
        "a file is changed by somebody else before an edit of it is made",
        ("conflict",),
        "a result; nothing was done, and the model reads the file again",
    ),
    Failure(
        "sandbox_failed",
        "tool",
        "the sandbox of a command cannot be set up, or what it protects cannot be put back",
        ("sandbox_failed",),
        "a result; the command is not run, and in the second case no other either",
    ),
    Failure("tool_failed", "tool", "the tool says no", ("tool_failed",), "the text of the ToolError its author raised"),
    Failure(
        "tool_crashed",
        "tool",
        "the tool crashes",
        ("tool_crashed",),
        'a result with the type of the exception, never its text: "repeating this will not help"',
    ),
    Failure(
        "outcome_unknown",
        "tool",
        "the process died, or the run was cancelled, while it ran",
        ("outcome_unknown",),
        "`read` and `idempotent` run again under the same key; `once` never: its probe tells, or a person, or the "
        "model is told to check",
    ),
    Failure(
        "denied",
        "tool",
        "approval denied, expired or for something else",
        ("denied",),
        "a result with the person's reason; siblings are not disturbed",
    ),
    Failure(
        "limit_reached", "tool", "called more often than it may be", ("limit_reached",), "a result; the run goes on"
    ),
    Failure(
        "repeated_call",
        "loop",
        "the same call with the same result",
        ("repeated call",),
        "the 2nd gets a note, the 3rd without anything new stops the run with a last word",
    ),
    Failure(
        "limits_used_up",
        "loop",
        "steps, tokens, money, calls or time used up",
        ("step limit", "token budget", "money budget", "tool call limit", "deadline"),
        "a last word with tools made impossible; when the model gives none, the record does",
    ),
    Failure(
        "cancelled",
        "loop",
        "cancelled, Ctrl-C",
        ("cancelled",),
        "it ends within its grace, however often it is cancelled; nothing is left running, open calls get a result, "
        "the run can be resumed. A `once` call has a second to land (`Limits.grace_seconds`), else it is in doubt as "
        "after a death",
    ),
    Failure(
        "write_fails",
        "journal",
        "a write fails",
        ("journal",),
        "a typed error before the effect: what is not on record does not happen",
    ),
    Failure(
        "run_busy",
        "journal",
        "another process drives the run",
        ("run_busy", "fenced"),
        "refused, naming it; one that wakes up after a takeover cannot write",
    ),
    Failure(
        "journal_damaged",
        "journal",
        "a damaged record",
        ("journal_damaged",),
        "a torn last record is dropped; anywhere else it is refused, naming the record",
    ),
    Failure(
        "poisoned",
        "journal",
        "the run keeps killing its process",
        ("poisoned",),
        "parked until a person releases it with `resume --unpark`",
    ),
)


def table() -> str:
    """The catalogue as a Markdown table."""
    rows = ["| layer | failure | kind | what happens |", "|---|---|---|---|"]
    for row in CATALOGUE:
        kinds = ", ".join(f"`{kind}`" for kind in row.kinds)
        rows.append(f"| {row.layer} | {row.failure} | {kinds} | {row.what} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
