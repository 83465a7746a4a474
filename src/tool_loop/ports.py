"""The three things the loop uses, as small protocols, and what passes through them.

`LLM` turns a request into one complete reply. `Tools` knows the tools and runs a call. `Journal`
keeps runs, and `RunLog` is one of them while it is being driven. Retrying, tracing, replaying and
sandboxing are objects with the same methods that wrap one of these; the loop cannot tell. What such an
object wraps is its `llm`, `tools` or `journal`, by that name, so that whoever has to can look behind it.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

from tool_loop.records import dataclass

from .errors import ToolError
from .events import ApprovalDecided, Event, ModelReplied, Signal, ToolCall, ToolReturned

if TYPE_CHECKING:
    from .state import State
    from .transcript import Transcript

Emit: TypeAlias = Callable[[Event | Signal], None]

# What running a call twice would do. `read` changes nothing; `idempotent` may be repeated with the
# same key; `once` must never be repeated, and is what an undeclared tool counts as.
Effect = Literal["read", "idempotent", "once"]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it: `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class AnswerSpec(Protocol):
    """The form of the final answer: `schema` as a server and a model are shown it, and what validates it.

    `strict` says that the schema keeps within what OpenAI's servers can enforce.
    """

    name: str
    schema: dict[str, Any]
    strict: bool

    def problem(self, text: str) -> ToolError | None:
        """What is wrong with this answer; None when it fits."""
        ...

    def value(self, text: str) -> Any:
        """The answer as it was wanted. Raises what `problem` returns."""
        ...


@dataclass(frozen=True, slots=True)
class Request:
    """One logical request to a model; retries carry the same one.

    `transcript` is what the model sees. `tools` are all tools of the run, in a fixed order;
    `may_call` is False for the last word, when a call must be impossible. `key` is the same over all
    retries and resumes of this request. `deadline` is a time of the running event loop's clock and
    `allowance` the number of tokens the run may still spend; None means unlimited. `pace` is how many
    seconds a reply takes in this run; None before the first. `answer` is the form that the final answer has
    to have, for servers that can enforce one.
    """

    transcript: Transcript
    tools: tuple[ToolSpec, ...] = ()
    may_call: bool = True
    key: str = ""
    deadline: float | None = None
    allowance: int | None = None
    pace: float | None = None
    answer: AnswerSpec | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """What a call would do, seen from now, before it is done.

    `show` makes the text that a person decides by, and is only called when one looks; `kind` is how to
    draw it. `mark` is a digest of what the call works on: an approval holds for that one state of things,
    and a probe gets it back, to tell whether the call happened. `rule` says in the words of a person what
    a permission for the whole run would cover, which is all calls of the tool with the same rule; with
    "" there is none, and each call is asked about by itself. `asks` says that in this state of things the
    call must not run unless a person allowed it: what was asked before may be another state by now.
    `complete` says that the text tells all that the arguments say, so that they need not stand beside it.
    """

    show: Callable[[], str] = str
    mark: str = ""
    rule: str = ""
    kind: Literal["text", "diff"] = "text"
    asks: bool = False
    complete: bool = False


class LLM(Protocol):
    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        """One complete reply, or `ProviderError`. A reply that was cut short is never returned.

        Emits `TextDelta` (and `ReasoningDelta`) as text arrives, where the server streams.
        """
        ...


def behind(llm: LLM) -> Iterator[LLM]:
    """The model, and each that it wraps, from the outside in."""
    below: LLM | None = llm
    while below is not None:
        yield below
        below = _wrapped(below)


def rebuilt(llm: LLM, replace: Callable[[LLM], LLM]) -> LLM:
    """The same wrappers around another model: each is copied, the innermost is replaced."""
    below = _wrapped(llm)
    if below is None:
        return replace(llm)
    twin = copy.copy(llm)
    object.__setattr__(twin, "llm", rebuilt(below, replace))
    return twin


def _wrapped(llm: LLM) -> LLM | None:
    below = getattr(llm, "llm", None)
    return below if hasattr(below, "reply") else None


class Tools(Protocol):
    def specs(self) -> tuple[ToolSpec, ...]:
        """All tools, always in the same order: they are the first bytes of every request."""
        ...

    def effect(self, name: str) -> Effect | None:
        """The declared effect class; None when nothing was declared (treated as `once`)."""
        ...

    def polls(self, name: str) -> bool:
        """Whether asking again for the same thing is what this tool is for."""
        ...

    def needs_approval(self, call: ToolCall) -> bool: ...

    def fingerprint(self, call: ToolCall, preview: Preview | None = None) -> str:
        """A digest of exactly what an approval of this call allows: in the state of things that
        `preview` saw, where the call has one."""
        ...

    def preview(self, call: ToolCall) -> Preview | None:
        """What the call would do; None where its tool cannot say, or the call cannot run. Never raises."""
        ...

    def refuse(self, call: ToolCall) -> ToolReturned | None:
        """The result of a call that cannot run (unknown tool, bad arguments), else None."""
        ...

    async def run(
        self, call: ToolCall, *, key: str = "", emit: Emit = ..., deadline: float | None = None, mark: str = ""
    ) -> ToolReturned:
        """Run one call and return whatever became of it; never raises but for cancellation.

        `key` is the call's idempotency key. `deadline` is a time of the running event loop's clock.
        `mark` is the one of its preview, by now on record.
        """
        ...

    async def probe(self, call: ToolCall, *, key: str = "", mark: str = "") -> ToolReturned | bool | None:
        """What became of a call that was started before a crash.

        A result: it happened, and this was its outcome. False: it did not happen, run it. None: this
        tool cannot tell.
        """
        ...


class RunLog(Protocol):
    """One run, open for writing by this process only."""

    run_id: str
    state: State

    async def append(self, event: Event) -> None:
        """Make the event durable, then fold it into `state`. Raises `JournalError`, having changed nothing."""
        ...


class Journal(Protocol):
    """Keeps runs. `MemoryJournal` forgets them with the process, `SqliteJournal` does not."""

    def open(self, run_id: str) -> AbstractAsyncContextManager[RunLog]:
        """The run, new or not, for this process alone. Raises `RunBusy`, `RunPoisoned`, `JournalDamaged`."""
        ...

    def events(self, run_id: str) -> Sequence[Event]:
        """All events of a run, oldest first. Raises `UnknownRun`."""
        ...

    async def decide(self, run_id: str, call_id: str, *, allow: bool, by: str = "", note: str = "") -> ApprovalDecided:
        """Record what a person decided about a call. The first decision wins. Needs no lease."""
        ...


Reviewer: TypeAlias = Callable[["PendingApproval"], Awaitable[ApprovalDecided]]


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """A call that waits for a person, with all they need to decide.

    `preview` is what the call would do, for a tool that can say it; the fingerprint holds for that.
    `look` gives the preview with other arguments, for a person who edits them: what it gave last is what
    an approval of these arguments holds for. `standing` says whether a permission for the run would
    count: not once the run has read what strangers wrote.
    `run_id` is the run to decide it in: a sub-agent's, where the call is one of those.
    """

    call: ToolCall
    fingerprint: str
    why: str = "policy"
    description: str = ""
    preview: Preview | None = None
    look: Look | None = field(default=None, repr=False, compare=False)
    standing: bool = True
    run_id: str = ""


class Look(Protocol):
    """Previews of one call with other arguments."""

    def __call__(self, arguments: str) -> Preview | None: ...


class Standing(NamedTuple):
    """What was decided about a tool for the rest of the run, and the call it was decided about, with the
    state of things (`mark`) and the words about what it would cover (`rule`) that were shown with it."""

    decision: ApprovalDecided
    call: ToolCall
    mark: str
    rule: str
