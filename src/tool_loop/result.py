"""What a caller gets back from a run: the answer, why it ended, and everything that happened."""

from __future__ import annotations

from dataclasses import dataclass, field

from .events import Event, ModelReplied, ToolReturned, Usage
from .ports import Pending


@dataclass(frozen=True, slots=True)
class Result:
    """How a run stands.

    `reason` is "answered", the limit that stopped it ("step limit", "token budget", "money budget",
    "tool call limit", "repeated call", "deadline", "empty answer"), or "waiting" when a person has to decide about
    the calls in `waiting`: then `answer` is empty and `Agent.resume(run_id)` goes on after they did.
    `cost` is in US dollars, None where a price is not known. `source` is "journal" when the model
    gave no last word and the answer was put together from the record.
    """

    answer: str
    reason: str
    run_id: str
    events: tuple[Event, ...] = field(repr=False)
    usage: Usage
    steps: int
    tool_calls: int
    cost: float | None = None
    waiting: tuple[Pending, ...] = ()
    source: str = "model"
    untrusted: bool = False

    @property
    def failures(self) -> tuple[ToolReturned, ...]:
        """The tool calls that failed, in the order in which they were recorded."""
        return tuple(e for e in self.events if isinstance(e, ToolReturned) and e.error is not None)

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

        return embedded(scrubbed(self.events), run_id=self.run_id, answer=scrubbed(self.answer))
