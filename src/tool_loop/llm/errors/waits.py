"""How long a server asked us to wait, in every spelling seen: seconds, dates, durations, resets.

Pure: the time of day is a parameter. Knows nothing about when it is worth waiting.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_UNITS: Final = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_NUMBER: Final = re.compile(r"\d{1,15}(?:\.\d{1,15})?")
_PART: Final = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*(ms|us|µs|ns|d|h|m|s)")

# "Please try again in 1m3.2s", "retry in 12 seconds", "retryDelay": "36s".
_IN_WORDS: Final = re.compile(
    r"(?:try again|retry|available again|wait)[^.\d]{0,40}?(?:in|after|for|at least)?[^.\d]{0,12}?\b"
    r"(?P<time>\d[\d.hms]*)\s*(?P<unit>milliseconds?|ms|seconds?|sec|s|minutes?|min|hours?)?\b",
    re.IGNORECASE,
)
_DELAY: Final = re.compile(r'"retry_?[dD]elay"\s*:\s*"?(?P<time>[\d.hms]+)')

# A number this large is a time of day, not a wait: in seconds since 1970, or in milliseconds.
_EPOCH: Final = 1e9
_EPOCH_MS: Final = 1e12


def asked_wait(headers: Mapping[str, str], now: float, text: str = "") -> float | None:
    """Seconds to wait as the server asked, never negative; None where it did not say so readably.

    `now` is the time of day in seconds. `text` is the error's message, where some servers write it.
    The most exact header wins: milliseconds, then Retry-After, then the reset of the limit that is
    used up (the other limit's reset may be minutes away and has nothing to do with it).
    """
    with suppress(ValueError):
        return max(0.0, float(_number(headers.get("retry-after-ms", ""))) / 1000)
    # A server's clock and ours may differ by minutes; its own Date header is the right "now" for it.
    there = _date(headers.get("date", ""))
    wait = seconds(headers.get("retry-after", ""), now if there is None else there)
    if wait is None:
        wait = _exhausted(headers, now)
    if wait is None and text:
        wait = _in_words(text)
    return wait


def seconds(text: str, now: float) -> float | None:
    """A wait spelt as a number, a duration (`1m3s`, `12ms`), a date (HTTP or ISO) or a time since 1970."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        value = float(text)
        if value >= _EPOCH_MS:
            return max(0.0, value / 1000 - now)
        return max(0.0, value - now) if value >= _EPOCH else value
    parts = _PART.findall(text)
    if parts and _PART.sub("", text).strip() == "":
        return sum(float(amount) * _UNITS[unit] for amount, unit in parts)
    when = _date(text)
    return None if when is None else max(0.0, when - now)


def _exhausted(headers: Mapping[str, str], now: float) -> float | None:
    """The reset of the limit whose remainder is zero; the longest when there are several.

    A server that tells no remainder at all tells at least when its nearest limit starts anew.
    """
    limits = {name.lower(): value.strip() for name, value in headers.items() if "ratelimit" in name.lower()}
    left = {name: value for name, value in limits.items() if "remaining" in name}
    if not left:
        return min(_known(seconds(value, now) for name, value in limits.items() if "reset" in name), default=None)
    used_up = [name for name, value in left.items() if value in ("0", "0.0")]
    resets = [name.replace("remaining", word) for name in used_up for word in ("reset", "reset-after")]
    return max(_known(seconds(limits.get(name, ""), now) for name in resets), default=None)


def _known(waits: Iterable[float | None]) -> list[float]:
    return [wait for wait in waits if wait is not None]


def _in_words(text: str) -> float | None:
    if found := _DELAY.search(text):
        return seconds(found["time"], 0.0)
    found = _IN_WORDS.search(text)
    if not found:
        return None
    time, unit = found["time"].rstrip("."), (found["unit"] or "").lower()
    if not _NUMBER.fullmatch(time):
        return seconds(time, 0.0)
    if not unit:
        return None
    return float(time) * (0.001 if unit.startswith(("ms", "mil")) else _UNITS[unit[0]])


def _number(text: str) -> str:
    return text.strip() if _NUMBER.fullmatch(text.strip()) else "not a number"


def _date(text: str) -> float | None:
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        with suppress(ValueError, TypeError, IndexError, OverflowError):
            when = parse(text.strip())
            return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    return None
