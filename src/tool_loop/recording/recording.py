"""Keeps what a model said in a file, so that a test can have it again for nothing: see `ReplayLLM`.

    llm = Recording(OpenAIChat("gpt-5.4"), "tests/data/weather.jsonl")

Put it where the model is, inside of `Retrying` (an `Agent` does that): then failed attempts are kept
too, and played back. No key gets into the file.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tool_loop.errors import ProviderError, UsageError
from tool_loop.redaction.scrub import scrub, scrubbed

from .exchange import (
    AskedQuestion,
    Exchange,
    Normalize,
    Outcome,
    header,
    packed,
    question_of,
    read_recording,
    same_outcome,
)

if TYPE_CHECKING:
    from tool_loop.events import ModelReplied
    from tool_loop.ports import LLM, Emit, Request

# How many earlier exchanges are looked at for one that this one goes on from: runs side by side.
_LOOK_BACK: Final = 200


class Recording:
    """A model that is written down as it speaks: one line for each exchange, when it is complete.

    An exchange that the file has already is not written again, so a test that records may run twice.
    `normalize` makes texts the same from one run to the next (a temporary path, a date); give the
    same function to `ReplayLLM`. Raises UsageError when the file cannot be written, or is another.
    """

    def __init__(self, llm: LLM, path: str | os.PathLike[str], *, normalize: Normalize = str) -> None:
        self.llm = llm
        self.path = Path(path)
        self._normalize = normalize
        self._known: list[Exchange] = []
        try:
            if self.path.exists() and self.path.stat().st_size:
                self._known = read_recording(self.path)
                self._drop_torn_line()
            else:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.write_text(header() + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write the recording {self.path}: {error.strerror}") from error

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "llm":
            raise AttributeError(name)
        return getattr(self.llm, name)  # what an agent wants to know of its model: its name, its origin

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        question = question_of(request, lambda text: self._normalize(scrub(text)))
        try:
            reply = await self.llm.reply(request, emit)
        except ProviderError as error:
            self._keep(question, error)
            raise
        self._keep(question, reply)
        return reply

    def _keep(self, question: AskedQuestion, outcome: Outcome) -> None:
        outcome = _clean(outcome)
        if any(e.question == question and same_outcome(e.outcome, outcome) for e in self._known):
            return
        base, known = self._base(question)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(packed(question, base, known, outcome) + "\n")
        self._known.append(Exchange(question, outcome))

    def _base(self, question: AskedQuestion) -> tuple[int, int]:
        """The exchange, counted from 1, whose whole history this one begins with; (0, 0) for none."""
        for n in range(len(self._known), max(0, len(self._known) - _LOOK_BACK), -1):
            earlier = self._known[n - 1].question
            size = len(earlier.messages)
            same = earlier.system == question.system and earlier.tools == question.tools
            if same and earlier.messages == question.messages[:size]:
                return n, size
        return 0, 0

    def _drop_torn_line(self) -> None:
        data = self.path.read_bytes()
        if not data.endswith(b"\n"):
            os.truncate(self.path, data.rfind(b"\n") + 1)


def _clean(outcome: Outcome) -> Outcome:
    """Without a key, and without how long it took: a recording made twice is the same file."""
    if isinstance(outcome, ProviderError):
        return ProviderError(
            scrub(outcome.message),
            kind=outcome.kind,  # type: ignore[arg-type]  # an error has the kind it was made with
            status=outcome.status,
            retryable=outcome.retryable,
            retry_after=outcome.retry_after,
            param=outcome.param,
            window=outcome.window,
            tokens=outcome.tokens,
            raw=scrub(outcome.raw),
        )
    return replace(scrubbed(outcome), seconds=0.0, first_token=None)
