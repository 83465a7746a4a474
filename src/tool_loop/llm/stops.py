"""Why a reply ended, judged by the words of the reason its server gives.

There is no list of reasons that would hold: each provider adds some (Gemini has twenty), and each
gateway passes them on in its own spelling. What most of them share is their words, and the words
tell which of four things happened: the model was done, it was stopped at a limit, somebody stopped
it, or the turn broke. Only the first may run its calls and pass as an answer without a word.

Sources: the reference pages of the APIs of OpenAI, Anthropic, Gemini (Candidate.FinishReason),
Bedrock (StopReason), Cohere and Mistral, vLLM's and TGI's code, and the reports named in the tests.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from tool_loop.errors import ProviderKind
    from tool_loop.events import Stop

Verdict: TypeAlias = "Stop | Literal['failed']"


class ReplyEnding(NamedTuple):
    """`stop` as the record has it, or "failed": the turn is none. `known` is False for words not known."""

    stop: Verdict
    known: bool = True
    kind: ProviderKind = "server_error"


def _words(*stems: str) -> re.Pattern[str]:
    return re.compile("|".join(stems))


# The turn broke in the model's hands: a call nobody can read, or that nobody offered. It goes first:
# Gemini's "function_call_filter: MALFORMED_FUNCTION_CALL" is no filter.
_BROKEN: Final = _words(
    "malform", "unexpected", "undeclared", "unpars", "parse", "hallucinat", "corrupt", "missing", "too_?many",
    "invalid", "model_error", "no_image",
)  # fmt: skip

# A guardrail. Before what fails: Cohere's ERROR_TOXIC is one.
_FILTERED: Final = _words(
    "filter", "guard", "safety", "unsafe", "blocked|blocklist|^block$", "prohibit", "moderat", "toxic", "sensitiv",
    "recitation", "copyright", "censor", "violat", "flagged", "harm", "inappropriate", "policy", "armor", "language",
    "risk", "pii",
)  # fmt: skip

# The server broke, or somebody stopped it on its side.
_FAILED: Final = _words(
    "error", "fail", "fault", "abort", "cancel", "crash", "exception", "network", "overload", "insufficient",
    "unavailable", "disconnect", "interrupt", "time_?out", "rate_limit", "preempt", "killed",
)  # fmt: skip

_REFUSED: Final = _words("refus")
# Anthropic's "compaction" is a pause too: the turn goes on when it is sent back.
_PAUSED: Final = _words("pause", "compaction")
_CUT: Final = _words("length", "limit", "max", "budget", "truncat", "incomplete", "window", "exceed", "too_long")

# A reason that is made of nothing but these says that the model was done.
_DONE: Final = re.compile(
    r"(?:stop(?:ped)?|end(?:ed)?|of|turn|eo[stm]|im|tokens?|sequences?|str(?:ing)?s?|words?|tools?|functions?|calls?"
    r"|us(?:e|es|age)|complet(?:e|ed|ion)|finish(?:ed)?|done|success(?:ful)?|succeeded|ok|normal(?:ly)?|natural"
    r"|message|text|answer|final|response|reached|requires?|required|action|model|output|reason|null|none"
    r"|unspecified|default|ids?|\d+|_)*"
)

_ORDER: Final[tuple[tuple[re.Pattern[str], ReplyEnding], ...]] = (
    (_words("^error_limit$"), ReplyEnding("length")),  # Cohere's name for a full context
    (_BROKEN, ReplyEnding("failed", kind="model_output")),
    (_FILTERED, ReplyEnding("content_filter")),
    (_REFUSED, ReplyEnding("refusal")),
    (_FAILED, ReplyEnding("failed")),
    (_PAUSED, ReplyEnding("pause")),
    (_CUT, ReplyEnding("length")),
)


@lru_cache(maxsize=256)
def ending(reason: str) -> ReplyEnding:
    """What a reason of ending says. No reason ("") says nothing against the reply."""
    # A gateway may pass on a whole sentence; what matters stands at its beginning.
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", reason[:200]).lower()
    text = re.sub(r"[^a-z0-9]+", "_", text)
    if _DONE.fullmatch(text):
        return ReplyEnding("stop")
    return next((found for words, found in _ORDER if words.search(text)), ReplyEnding("stop", known=False))
