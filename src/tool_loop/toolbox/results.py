"""What a tool returned, as the text a model reads.

Knows nothing about calls. Text that needs no change never comes here; what one object is in JSON
says `plain.py`, and what has to be drawn first (a generator, a coroutine) is drawn by `drawn.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import IOBase
from typing import TYPE_CHECKING, Any, Final

from .plain import Lazy, Shower, text_in

if TYPE_CHECKING:
    from .drawn import Later

# A model reads a result of nothing as a fault of the system, and some servers refuse it.
NOTHING: Final = "(no output)"

# Room for whatever the fields of a failure hold; the failure as a whole is cut to its own size.
_FIELDS_CHARS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool may return in place of its content, when there is more to say about it.

    `tokens` and `cost` (US dollars, None where it is not known) are what the call spent on models: the run
    pays for them from its limits. `untrusted` marks this one result as written by strangers.
    """

    content: Any
    tokens: int = 0
    cost: float | None = None
    untrusted: bool = False


def text_of(value: Any, limit: int, *, drain: bool = False) -> str | Later:
    """A string as it is, nothing as `NOTHING`, everything else as JSON; cut where it is too long.

    Bytes are text where they are UTF-8 and base64 where not, a lone surrogate becomes U+FFFD, and a
    number that JSON does not have becomes its name. A value that has to be drawn first comes out as
    a `Later`, which does so where it is told to; with `drain` to its end, also when no more of it can be
    shown. Raises `NoText` for an object that has nothing but an address, ValueError or RecursionError
    for what contains itself.
    """
    if value is None:
        return NOTHING
    shower = Shower(limit)
    if isinstance(value, bytes | bytearray | memoryview | IOBase):
        value = shower.plain(value)
    if isinstance(value, bytes):
        value = text_in(value)  # a file of bytes
    if isinstance(value, str):
        return fitted(value, limit, shower.more)
    try:
        return fitted(shower.json(value), limit, shower.more)
    except Lazy:
        from .drawn import Later

        return Later(value, limit, drain=drain)


def fitted(text: str, limit: int, more: str = "") -> str:
    """The text, or `NOTHING` for none; its beginning and a note where it is too long, or `more` was left out."""
    text = sendable(text)
    if more:
        return f"{text[:limit]}\n[cut: {more}; narrower arguments give a shorter result]"
    return (text if len(text) <= limit else cut(text, limit)) or NOTHING


def sendable(text: str) -> str:
    """The text without halves of characters, which no request could carry as UTF-8."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def cut(text: str, limit: int) -> str:
    """The beginning of a text that is too long, and a note that says how much there is."""
    return (
        f"{text[:limit]}\n[cut: these are the first {limit:,} of {len(text):,} characters; "
        "narrower arguments give a shorter result]"
    )


def as_json(value: Any) -> str:
    """Compact JSON of what a failure carries. Raises what `text_of` raises, and `Lazy`: nothing is drawn."""
    return Shower(_FIELDS_CHARS).json(value)
