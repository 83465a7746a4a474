"""A model that says again what was recorded: no network, no key, no cost.

    llm = ReplayLLM("tests/data/weather.jsonl")            # what `Recording` wrote
    llm = ReplayLLM.from_journal(journal, "7f3a")          # a run's own record

A request that was not recorded is an error that shows the nearest one, and what differs.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from tool_loop.errors import FatalError
from tool_loop.events import Compacted, Event, ModelReplied, ReasoningDelta, TextDelta
from tool_loop.redaction.scrub import scrub
from tool_loop.state import State
from tool_loop.transcript import SUMMARISE, Transcript, UserMessage

from .exchange import AskedQuestion, Exchange, Normalize, normalized, question_of, read_recording

if TYPE_CHECKING:
    import os

    from tool_loop.ports import Emit, Journal, Request

_MOST_LINES: Final = 60
_MOST_CHARS: Final = 240


class ReplayMismatch(FatalError, AssertionError):
    """A request that is not in the recording. `nearest` is the exchange it is most like (counted from
    1, 0 for none) and `diff` what differs, as a unified diff from what was recorded to what came.
    """

    kind = "replay"

    def __init__(self, message: str, nearest: int = 0, diff: str = "") -> None:
        super().__init__(f"{message}\n{diff}" if diff else message)
        self.nearest = nearest
        self.diff = diff


class ReplayLLM:
    """Plays a recording: the reply, or the error, that this request had.

    Requests may come in any order, and each exchange is played once; with `repeat` the last one of a
    request is played as often as it is asked for. `errors` False leaves out the failed attempts. `pieces` is the
    number of characters per piece of streamed text (0: all at once). `normalize` makes texts alike
    that differ from run to run, on both sides. Raises UsageError for a file that is no recording.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | Iterable[Exchange],
        *,
        normalize: Normalize = str,
        repeat: bool = False,
        errors: bool = True,
        pieces: int = 0,
    ) -> None:
        found = source if isinstance(source, Iterable) and not isinstance(source, str) else read_recording(Path(source))
        self._normalize = normalize
        self._exchanges = [
            Exchange(normalized(e.question, normalize), e.outcome)
            for e in found
            if errors or isinstance(e.outcome, ModelReplied)
        ]
        self._played = [False] * len(self._exchanges)
        self._repeat = repeat
        self._pieces = pieces

    @classmethod
    def from_journal(
        cls, journal: Journal, run_id: str, *, normalize: Normalize = str, repeat: bool = False, pieces: int = 0
    ) -> Self:
        """Plays the replies of a saved run, its summaries included. What tools it had is not on record."""
        return cls(exchanges_of(journal.events(run_id)), normalize=normalize, repeat=repeat, pieces=pieces)

    @property
    def left(self) -> int:
        """How many exchanges have not been played."""
        return self._played.count(False)

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        """Raises `ReplayMismatch`, and the `ProviderError` that was recorded."""
        question = question_of(request, lambda text: self._normalize(scrub(text)))
        outcome = self._exchanges[self._find(question)].outcome
        if isinstance(outcome, Exception):
            raise outcome
        if outcome.reasoning:
            emit(ReasoningDelta(outcome.reasoning))
        size = self._pieces or len(outcome.text) or 1
        for at in range(0, len(outcome.text), size):
            emit(TextDelta(outcome.text[at : at + size]))
        return outcome

    def _find(self, question: AskedQuestion) -> int:
        fitting = [n for n, exchange in enumerate(self._exchanges) if exchange.question.fits(question)]
        for n in fitting:
            if not self._played[n]:
                self._played[n] = True
                return n
        if fitting and self._repeat:
            return fitting[-1]
        if fitting:
            raise ReplayMismatch(
                f"this request was recorded {len(fitting)} time{'s' * (len(fitting) > 1)} and comes once more; "
                "repeat=True plays its reply again",
                fitting[-1] + 1,
            )
        if not self._exchanges:
            raise ReplayMismatch("the recording is empty")
        n = _nearest(question, self._exchanges)
        recorded = self._exchanges[n].question
        diff = _diff(recorded, question, f"exchange {n + 1}, as recorded")
        raise ReplayMismatch(f"this request was not recorded; the nearest is exchange {n + 1}", n + 1, diff)


def exchanges_of(events: Sequence[Event]) -> list[Exchange]:
    """The exchanges that a run's events are the record of."""
    state, found = State(), []
    for event in events:
        match event:
            case ModelReplied():
                asked = _asked(state.transcript, may_call=state.stopping is None)
                found.append(Exchange(asked, event))
            case Compacted(summary=str(summary)) if summary:
                asking = state.transcript.extended(UserMessage(SUMMARISE))
                reply = ModelReplied(summary, usage=event.usage, cost=event.cost)
                found.append(Exchange(_asked(asking, may_call=True), reply))
            case _:
                pass
        state.apply(event)
    return found


def _asked(transcript: Transcript, *, may_call: bool) -> AskedQuestion:
    question = AskedQuestion(transcript.system, tuple(transcript.messages), None, may_call)
    return normalized(question, scrub)


# --- what differs ---------------------------------------------------------------------------------


def _nearest(question: AskedQuestion, exchanges: Sequence[Exchange]) -> int:
    """The exchange that begins with the most messages alike; of those the one of the same length, then
    the one that reads most alike.
    """
    alike = [_common(question.messages, exchange.question.messages) for exchange in exchanges]
    best = [n for n, count in enumerate(alike) if count == max(alike)]
    here = "\n".join(question.lines())[-2000:]

    def likeness(n: int) -> tuple[int, float]:
        there = "\n".join(exchanges[n].question.lines())[-2000:]
        size = len(exchanges[n].question.messages) - len(question.messages)
        return -abs(size), difflib.SequenceMatcher(None, here, there, autojunk=False).quick_ratio()

    return max(best[:50], key=likeness)


def _common(one: Sequence[object], other: Sequence[object]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _diff(recorded: AskedQuestion, came: AskedQuestion, name: str) -> str:
    if recorded.tools is None:
        came = AskedQuestion(came.system, came.messages, None, came.may_call)
    was, now = list(recorded.lines()), list(came.lines())
    # The common start is cut off first: comparing takes the product of the lengths.
    start = max(0, _common(was, now) - 2)
    lines = list(difflib.unified_diff(was[start:], now[start:], name, "this request", n=2, lineterm=""))
    shown = [line if len(line) <= _MOST_CHARS else f"{line[:_MOST_CHARS]}…" for line in lines[:_MOST_LINES]]
    if len(lines) > _MOST_LINES:
        shown.append(f"... and {len(lines) - _MOST_LINES} more lines")
    return "\n".join(shown)
