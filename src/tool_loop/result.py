"""What a caller gets back from a run: the answer, why it ended, and everything that happened."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Generic

from tool_loop.records import dataclass

from .console.tally import cost_of, usage_of
from .errors import InvalidAnswer, ToolError
from .events import Event, ModelReplied, ToolReturned, Usage
from .ports import AnswerSpec, PendingApproval
from .state import UNCOUNTED

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Value = TypeVar("Value", default=str)
else:
    from typing import TypeVar

    Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Result(Generic[Value]):
    """How a run stands.

    Everything is about the latest question: `events`, `failures`, `usage`, `steps`, `tool_calls` and
    `cost` begin with it. What is about the whole run, follow-ups and all, says so: `run_events`,
    `run_failures`, `run_usage`, `run_steps`, `run_tool_calls`, `run_cost`. Of a run with one question
    the two are the same.

    `reason` is "answered", the limit that stopped it ("step limit", "token budget", "money budget",
    "tool call limit", "repeated call", "deadline", "empty answer", "invalid answer", "budget"), or "waiting" when a
    person has to decide about the calls in `waiting`: then `answer` is empty and `Agent.resume(run_id)`
    goes on after they did.
    `cost` is in US dollars, None where a price is not known. `source` is "journal" when the model
    gave no last word and the answer was put together from the record. `untrusted` is about the run:
    what strangers wrote stays in its history.
    """

    answer: str
    reason: str
    run_id: str
    events: tuple[Event, ...] = field(repr=False)
    steps: int
    tool_calls: int
    cost: float | None = None
    waiting: tuple[PendingApproval, ...] = ()
    source: str = "model"
    untrusted: bool = False
    run_events: tuple[Event, ...] = field(default=(), repr=False)
    form: AnswerSpec | None = field(default=None, repr=False)

    @property
    def value(self) -> Value:
        """The answer in the form that `run(answer=...)` asked for; its text where nothing was asked for.

        Raises `InvalidAnswer`, which says what is wrong, when the run ended without one that fits (`reason`
        tells why, `answer` holds the text) or has not ended.
        """
        if self.form is None:
            return self.answer  # type: ignore[return-value]
        try:
            return self.form.value(self.answer)  # type: ignore[no-any-return]
        except ToolError as error:
            raise InvalidAnswer(f"the run ended ({self.reason}) without an answer that fits: {error.message}") from None

    @property
    def failures(self) -> tuple[ToolReturned, ...]:
        """The tool calls that failed, in the order in which they were recorded."""
        return _failed(self.events)

    @property
    def run_failures(self) -> tuple[ToolReturned, ...]:
        return _failed(self.run_events)

    @property
    def usage(self) -> Usage:
        """Tokens as the servers counted them, those of summaries too."""
        return usage_of(self.events)

    @property
    def run_usage(self) -> Usage:
        """Everything the server counted in this run, all questions and summaries together."""
        return usage_of(self.run_events)

    @property
    def run_steps(self) -> int:
        return sum(isinstance(event, ModelReplied) for event in self.run_events)

    @property
    def run_tool_calls(self) -> int:
        return sum(isinstance(e, ToolReturned) and e.error not in UNCOUNTED for e in self.run_events)

    @property
    def run_cost(self) -> float | None:
        """What all questions together cost in US dollars, None where a price is not known."""
        return cost_of(self.run_events)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know before trusting the answer."""
        found: list[str] = []
        last = next((e for e in reversed(self.events) if isinstance(e, ModelReplied)), None)
        if self.reason == "answered" and self.tool_calls == 0:
            found.append("no tool was called: the answer is not based on anything that was looked up")
        if last is not None and last.call_in_text:
            found.append("the answer looks like a tool call written as text; nothing was run for it")
        if last is not None and last.stop == "length":
            found.append("the answer was cut at the model's output limit")
        if last is not None and last.stop in ("content_filter", "refusal"):
            found.append(f"the provider ended the answer: {last.stop}")
        if last is not None and last.finish:
            found.append(f"the server ended the answer for a reason that is not known: {last.finish}")
        if self.source == "journal":
            found.append("the model gave no last word; the answer is a summary of what is on record")
        return tuple(found)

    def __str__(self) -> str:
        return self.answer

    def _repr_html_(self) -> str:
        """The run as a page, where a notebook shows this as its result. Notebooks are saved: no key goes in."""
        from .redaction.scrub import scrubbed
        from .report import embedded

        return embedded(scrubbed(self.run_events), run_id=self.run_id, answer=scrubbed(self.answer))


def _failed(events: tuple[Event, ...]) -> tuple[ToolReturned, ...]:
    return tuple(e for e in events if isinstance(e, ToolReturned) and e.error is not None)
