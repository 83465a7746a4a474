"""Everything a run can say.

An event happened, is recorded for ever, and is named in the past tense. A signal is for whoever is watching
right now and is not kept. Both unions are closed: the type checker lists the places a new one must be handled.

Knows nothing about models, tools or journals. Everything here is made of strings, numbers, booleans
and tuples of such records, so that a journal can write it down as JSON and compare it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from tool_loop.records import dataclass

Stop = Literal["stop", "tool_calls", "length", "content_filter", "refusal", "pause"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call the model asked for.

    `arguments` is the text as it came, which need not be JSON. `opaque` is JSON text of what the
    provider attached to the call and wants back (a thought signature); "" where there is none.
    """

    id: str
    name: str
    arguments: str = "{}"
    opaque: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the server counted them; None means it did not say, which is not zero. `cached` and
    `cache_write` are parts of `input`, `reasoning` is a part of `output`."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """One failed attempt before a reply came: what failed, how long we waited after it, and the
    tokens it is known to have cost.
    """

    kind: str
    message: str
    waited: float
    status: int | None = None
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Example:
    """A worked example: a question, one call, its result, the answer."""

    question: str
    name: str
    arguments: str
    result: str
    answer: str


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """One call that waits for a person, bound to exactly what they are shown.

    `why` is "policy" (the call needs an approval), "in_doubt" (it was started before a crash and nobody
    knows whether it happened) or "inner" (a sub-agent waits, in the run `inner`). `mark` is the state of
    things that was looked at, and `rule` what a permission for the run would cover; both are those of the
    call's preview, "" where it has none.
    """

    call_id: str
    fingerprint: str
    why: Literal["policy", "in_doubt", "inner"] = "policy"
    mark: str = ""
    rule: str = ""
    inner: str = ""


# --- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The first record of a run. `meta` is JSON text of the caller's own (root, model, version), `answer` the
    JSON schema that the final answer has to fit, "" where any text will do. `untrusted` says that strangers
    may have had a part in the question: it is a sub-agent's, of a run that had read them.
    """

    question: str
    system: str = ""
    examples: tuple[Example, ...] = ()
    meta: str = "{}"
    answer: str = ""
    untrusted: bool = False


@dataclass(frozen=True, slots=True)
class RunContinued:
    """A follow-up question after an end: the conversation goes on in the same history.

    `answer` is as in `RunStarted`; "text" where the run began with a schema and this question has none.
    `system` is the system prompt from here on, None where it is still the same.
    """

    question: str
    answer: str = ""
    system: str | None = None


@dataclass(frozen=True, slots=True)
class RunResumed:
    """A new attempt took the run over where an earlier one left it."""

    by: str = ""


@dataclass(frozen=True, slots=True)
class RunInterrupted:
    """An attempt stopped before the run's end: "cancelled", or the kind of a `FatalError`.

    `by` is who asked for it, with their reason in `message`: such a run goes on when somebody says so. ""
    where the attempt was only cut off (Ctrl-C, the end of a server), and the run may just be driven on.
    """

    kind: str
    message: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class ModelReplied:
    """One complete reply.

    `origin` names the endpoint it came from; `opaque` is JSON text of what that endpoint wants back with the
    turn (reasoning items, signatures), and goes back to no other. `call_in_text` says that the text looks like
    a call written as prose, `dropped_calls` counts calls that came although tools were withheld. `cost` is in
    US dollars, None where the price is not known. `seconds` is how long it took, waits included, `first_token`
    how long until its first text. `finish` is the server's own reason of ending where we know it not: then no
    call of the reply runs.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    stop: Stop = "stop"
    usage: Usage = Usage()
    model: str = ""
    origin: str = ""
    opaque: str = ""
    reasoning: str = ""
    retries: tuple[Retry, ...] = ()
    seconds: float = 0.0
    first_token: float | None = None
    cost: float | None = None
    call_in_text: bool = False
    dropped_calls: int = 0
    finish: str = ""


@dataclass(frozen=True, slots=True)
class Reminded:
    """Words from the loop to the model: it wrote a call as prose, or its answer does not do."""

    text: str
    why: Literal["call_in_text", "invalid_answer", "refused_answer"] = "call_in_text"


@dataclass(frozen=True, slots=True)
class ApprovalRequested:
    """These calls wait for a person."""

    requests: tuple[ApprovalRequest, ...]


@dataclass(frozen=True, slots=True)
class ApprovalDecided:
    """What a person said about one call.

    `fingerprint` is the one they were shown. `arguments` are the edited ones, None when they left them
    alone. `standing` allows the same tool for the rest of the run. `expires_at` is a Unix time.
    """

    call_id: str
    allowed: bool
    by: str = ""
    note: str = ""
    fingerprint: str = ""
    arguments: str | None = None
    standing: bool = False
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class IntentRecorded:
    """These calls are about to run, in this order; recorded before the first one starts.

    `call_ids` are those that must not run twice: this is what a later attempt learns of a crash.
    They run one after another in this order, so of those without a result only the first can have
    started. `approved` are the calls whose approval is used up by running them now. `mark` belongs to
    one call, whose start is recorded again with it: what its probe needs to tell whether it happened.
    """

    call_ids: tuple[str, ...] = ()
    approved: tuple[str, ...] = ()
    mark: str = ""


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """What a tool call came to. An error is a value here: the model reads it and tries something else.

    `content` is what the model sees. `repeat` counts how often this very call has had this very result (0
    for a tool that polls). `arguments` are those that ran, where a person edited them. `tokens` and `cost`
    (US dollars, or None) are what the call itself spent on models.
    """

    call_id: str
    content: str
    error: str | None = None
    seconds: float = 0.0
    repeat: int = 1
    untrusted: bool = False
    arguments: str | None = None
    tokens: int = 0
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class Compacted:
    """What the model sees was shortened; the journal keeps everything.

    The results of the calls in `cleared` are now stubs. With a `summary`, the events before index
    `upto` are represented by it. `window` is how many tokens the provider takes, where a refusal said so.
    """

    cleared: tuple[str, ...] = ()
    summary: str = ""
    upto: int = 0
    usage: Usage = Usage()
    cost: float | None = None
    seconds: float = 0.0
    retries: tuple[Retry, ...] = ()
    window: int | None = None


@dataclass(frozen=True, slots=True)
class LimitReached:
    """A limit was reached: the model gets one last word, without tools."""

    limit: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The end. `reason` is "answered" or the limit; `source` is "journal" when even the last word
    failed and the answer was put together from what is on record.
    """

    reason: str
    answer: str
    source: Literal["model", "journal"] = "model"


Event: TypeAlias = (
    RunStarted | RunContinued | RunResumed | RunInterrupted | ModelReplied | Reminded | ApprovalRequested
    | ApprovalDecided | IntentRecorded | ToolReturned | Compacted | LimitReached | RunEnded
)  # fmt: skip

# --- signals --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelAsked:
    """A request is about to leave. `tools` is False when they are withheld for the last word."""

    step: int
    tools: bool = True


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class Restarted:
    """The text shown since the last `ModelAsked` belongs to an attempt that failed: forget it."""

    kind: str


@dataclass(frozen=True, slots=True)
class RetryWaiting:
    """An attempt failed; the next one, number `attempt`, starts in `seconds`."""

    kind: str
    message: str
    seconds: float
    attempt: int
    status: int | None = None


@dataclass(frozen=True, slots=True)
class ToolRunning:
    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolProgress:
    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Inner:
    """What happens in the run of a sub-agent, which the call asked for."""

    call_id: str
    run_id: str
    happening: Event | Signal


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a person should know once."""

    text: str


Signal: TypeAlias = (
    ModelAsked | TextDelta | ReasoningDelta | Restarted | RetryWaiting | ToolRunning | ToolProgress | Inner | Notice
)
