"""Every error of the package, in one tree, split by who can act on it.

    ToolLoopError
    ├── ToolError              raised by a tool, never leaves a run: the model reads it as data
    ├── UsageError             the caller's program is wrong: a bad tool, a bad setting
    ├── InvalidAnswer          the run ended without an answer of the form that was asked for
    └── FatalError             ends this attempt, never the journal: mend the cause, then resume
        ├── ConfigurationError     no model, no endpoint, no key where one is needed
        ├── BudgetSpent            a budget that several runs share has no more for this one
        ├── RunCancelled           somebody stopped the run through the journal; says who
        ├── ProviderError          the model's server refused or failed; `kind` says how
        └── JournalError           the record could not be written or read
            ├── JournalDamaged         a record in the middle does not parse; names the record
            ├── RunBusy                another process drives this run; says which
            ├── Fenced                 another process took this run over while we slept
            ├── RunPoisoned            the run keeps killing the process that drives it
            └── UnknownRun             no run of that id

What the model can mend (a wrong path, a wrong type) is data: `ToolError` becomes a tool result.
What it cannot mend (an expired key, a dead server) is a `FatalError`.
"""

from __future__ import annotations

from typing import Any, Final, Literal

ProviderKind = Literal[
    "auth",
    "not_found",
    "bad_request",
    "context_length",
    "content_filter",
    "rate_limit",
    "quota",
    "overloaded",
    "server_error",
    "timeout",
    "connection",
    "protocol",
    "empty",
    "model_output",
]

# Waiting can cure these. `quota` is a 429 too, but no waiting cures an empty account.
TRANSIENT: Final[frozenset[str]] = frozenset(
    {
        "rate_limit",
        "overloaded",
        "server_error",
        "timeout",
        "connection",
        "protocol",
        "empty",
        "model_output",
    }
)

# The catalogue of what a model can read as `error` in a tool result. The README's failure table is
# compared with it by a test, and each kind has an injected fault. A tool's author may add kinds of
# their own; these are the ones the package itself produces.
TOOL_ERROR_KINDS: Final[dict[str, str]] = {
    "bad_json": "the arguments are not one JSON object",
    "invalid_arguments": "a field is missing, unknown or of the wrong type; each is named",
    "unknown_tool": "no tool of that name; the real ones are listed",
    "not_found": "no such file or directory; the hint names the nearest existing paths",
    "invalid_argument": "a value that can never work: a path outside the root, a broken regex, a binary file",
    "permission_denied": "the operating system refused",
    "timed_out": "the tool ran past its deadline",
    "conflict": "the file is not the one the change was worked out on; nothing was done",
    "sandbox_failed": "a command would have run without its walls, or left what they protect changed",
    "tool_failed": "the tool's author raised ToolError without a kind of their own",
    "tool_crashed": "an unexpected exception; its text is withheld, it can hold secrets",
    "cut_off": "the reply was cut, filtered, or ended for an unknown reason, so its calls were not run",
    "outcome_unknown": "started, and the process died before the outcome was recorded",
    "denied": "a person or a policy refused the call, or the approval did not fit",
    "cancelled": "the run was interrupted before the call was over",
    "limit_reached": "the budget for this tool, or for all tool calls, is used up",
}


class ToolLoopError(Exception):
    """Base of everything this package raises on purpose."""


class ToolError(ToolLoopError):
    """Raise it in a tool to tell the model what went wrong; it becomes the call's result.

    `message` is shown to the model word for word, so it names the field and what was expected.
    `kind` is a short stable word (see `TOOL_ERROR_KINDS`), `hint` says what to try next, and
    further keyword arguments become fields of the JSON the model reads. Set `untrusted` on it when it
    quotes what strangers wrote and the tool's results do not.
    """

    untrusted = False

    def __init__(self, message: str, *, kind: str = "tool_failed", hint: str = "", **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.hint = hint
        self.fields = fields


class UsageError(ToolLoopError, ValueError):
    """The calling program is wrong, and says so before anything has run."""


class InvalidAnswer(ToolLoopError):
    """`Result.value` where the answer has not the form that was asked for; `Result.answer` holds its text."""


class FatalError(ToolLoopError):
    """Ends this attempt of the run. What is on record stays; resume after the cause is mended.

    `kind` is a short stable word and `run_id` the run to resume ("" when it was not started).
    """

    kind: str = "fatal"

    def __init__(self, message: str, *, kind: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.run_id = ""
        if kind is not None:
            self.kind = kind


class ConfigurationError(FatalError):
    """Something the person has to set is missing or contradicts itself; the message says what."""

    kind = "configuration"


class BudgetSpent(FatalError):
    """A request does not fit into the budget that the run shares; the loop ends the run as "budget"."""

    kind = "budget"


class RunCancelled(FatalError):
    """Somebody stopped the run, from here or from another process: `journal.cancel(run_id, by=...)`.

    It is no `asyncio.CancelledError`, since nobody has cancelled the caller.
    """

    kind = "cancelled"

    def __init__(self, by: str, note: str = "") -> None:
        super().__init__(f"the run was cancelled by {by}{f': {note}' if note else ''}")
        self.by = by
        self.note = note


class ProviderError(FatalError):
    """The model's server refused, failed, or answered with something that is not an answer.

    `kind` is one of `ProviderKind`. `status` is the HTTP status where there was a response, and
    `retry_after` the wait in seconds the server asked for. `retryable` says that the same request
    may succeed later; `Retrying` acts on it, the loop never does. `param` names the request's
    parameter that was refused, where the server said so. `window` is the size of the context in
    tokens when a `context_length` error told it. `tokens` counts what the failed attempt is known
    to have cost. `raw` is what the server said (scrubbed, cut), for logs and for people.
    """

    kind: str

    def __init__(
        self,
        message: str,
        *,
        kind: ProviderKind,
        status: int | None = None,
        retryable: bool | None = None,
        retry_after: float | None = None,
        param: str = "",
        window: int | None = None,
        tokens: int = 0,
        raw: str = "",
    ) -> None:
        super().__init__(message, kind=kind)
        self.status = status
        self.retryable = kind in TRANSIENT if retryable is None else retryable
        self.retry_after = retry_after
        self.param = param
        self.window = window
        self.tokens = tokens
        self.raw = raw


class JournalError(FatalError):
    """The journal could not be written or read. Nothing runs that is not on record."""

    kind = "journal"


class JournalDamaged(JournalError):
    """A record before the last one does not parse. The message names the run and the record."""

    kind = "journal_damaged"


class RunBusy(JournalError):
    """Another process holds the run; the message says which and until when."""

    kind = "run_busy"


class Fenced(JournalError):
    """Another process took the run over; this one may not write to it any more."""

    kind = "fenced"


class RunPoisoned(JournalError):
    """The run was taken over too often after its process died; a person has to look at it."""

    kind = "poisoned"


class UnknownRun(JournalError):
    """There is no run of that id in this journal."""

    kind = "unknown_run"
