"""What a run may spend, and when it has spent it.

One object for all of it: retries, summaries and sub-agents pay from the same budget as the steps
themselves. Reaching a limit never raises; the loop asks the model for one last word without tools,
and a part of every budget is kept back so that this last word can be paid for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .errors import UsageError

# What the last word is expected to cost on top of reading the context once more. A long answer has
# about 700 tokens; twice that leaves room for a model that thinks first.
LAST_WORD_TOKENS = 1_500


@dataclass(frozen=True, slots=True)
class Limits:
    """Settings of one run; None switches a limit off. All but `window` count per question.

    `seconds` is wall-clock time of one attempt; a resumed run gets it anew. `last_word_seconds` of
    it, at most a quarter, are kept for the final answer. `grace_seconds` is how long a call that must
    not run twice may go on after the run was cancelled, to land and get onto the record.
    """

    steps: int | None = 20  # recovery from two wrong guesses takes about six
    tokens: int | None = 200_000  # everything sent and received: steps, retries, summaries
    seconds: float | None = 600.0  # longer than any person waits; a batch job sets its own
    usd: float | None = None  # needs prices; unknown prices are said, not guessed
    tool_calls: int | None = None
    per_tool: Mapping[str, int] = field(default_factory=dict)
    answers: int = 3  # of another form than the one asked for; a model that fails three times goes on failing
    repeats: int = 3  # the third identical call with the same result has never helped
    window: int | None = None  # size of the model's context in tokens, where known
    fill: float = 0.8  # compact when the next request would fill this much of the window
    last_word_seconds: float = 30.0
    # An outcome that is known is worth a second of waiting, one that is not costs an investigation.
    # Longer, and whoever pressed Ctrl-C would press it again; a server that shuts down may have more.
    grace_seconds: float = 1.0
    # When to stop asking with tools, so that the last word still fits before `seconds`.
    soft_seconds: float | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        for name in ("steps", "tokens", "seconds", "usd", "tool_calls", "window"):
            value = getattr(self, name)
            whole = name not in ("seconds", "usd")
            if value is not None and (isinstance(value, bool) or not value > 0 or (whole and value != int(value))):
                kind = "a whole number" if whole else "a number"
                raise UsageError(f"Limits.{name} must be {kind} above zero, got {value!r}; None means no limit")
        for tool, most in self.per_tool.items():
            if isinstance(most, bool) or not isinstance(most, int) or most < 0:
                raise UsageError(f"Limits.per_tool[{tool!r}] must be a whole number, got {most!r}")
        _no_less_than_none("last_word_seconds", self.last_word_seconds)
        _no_less_than_none("grace_seconds", self.grace_seconds)
        if isinstance(self.answers, bool) or not isinstance(self.answers, int) or self.answers < 1:
            raise UsageError(f"Limits.answers must be a whole number above zero, got {self.answers!r}")
        if self.repeats < 2:
            raise UsageError(f"Limits.repeats must be at least 2, got {self.repeats}; the first call is not a repeat")
        if not 0 < self.fill <= 1:
            raise UsageError(f"Limits.fill is a share of the window between 0 and 1, got {self.fill}")
        if self.seconds is not None:
            object.__setattr__(self, "soft_seconds", self.seconds - min(self.last_word_seconds, self.seconds / 4))


def _no_less_than_none(name: str, seconds: float) -> None:
    if isinstance(seconds, bool) or not seconds >= 0:  # not a number fails this, too
        raise UsageError(f"Limits.{name} must not be below zero, got {seconds!r}")
