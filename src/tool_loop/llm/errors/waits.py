"""How long a server asked us to wait, in every spelling seen: seconds, dates, durations, resets.

Pure: the time of day is a parameter. Knows nothing about when it is worth waiting.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_UNITS: Final = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_NUMBER: Final = re.compile(r"\d{1,15}(?:\.\d{1,15})?")
_PART: Final = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*(ms|us|µs|ns|d|h|m|s)")

# Members of an error's body, at whatever depth, also inside a JSON text: {"resets_in_seconds": 8000},
# {"X-RateLimit-Reset": "1741305600000"}, {"retryDelay": "36s"}. What is left of a time is more exact
# than when it ends, whose clock is not ours.
_MEMBER: Final = r"""\b{}\\?["']\s{{0,5}}:\s{{0,5}}(?:\\?["'](?P<text>[^"'\\]{{1,60}})|(?P<number>\d[\d.]{{0,20}}))"""
_LEFT: Final = re.compile(
    _MEMBER.format(
        r"(?:resets?_?(?:in|after)|retry_?after|retry_?delay|quota_?reset_?delay|wait|cooldown)"
        r"(?:_?(?:seconds|secs?|s))?(?P<ms>_?ms|_?milliseconds)?"
    ),
    re.IGNORECASE,
)
_WHEN: Final = re.compile(
    _MEMBER.format(
        r"(?:resets?_?(?:at|time(?:_?stamp)?|date)?|retry_?at|available_?at|quota_?reset_?time_?stamp"
        r"|(?:x-)?rate-?limit-(?:[a-z]{1,20}-){0,3}reset)"
    ),
    re.IGNORECASE,
)

# "Please try again in 1m3.2s", "retry in 12 seconds", "resets in 2h13m", "resets in 2 hours and 13 minutes".
_CUE: Final = (
    r"(?:try again|retry|available again|wait|reset(?:s|ting)?|renews?|refresh(?:es)?|lifted|replenish\w{0,4})"
)
_UNIT: Final = r"(?:milliseconds?|msecs?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)"
_SPAN: Final = rf"\d{{1,12}}(?:\.\d{{1,9}})?\s{{0,2}}{_UNIT}"
_IN_WORDS: Final = re.compile(
    rf"{_CUE}[^.\d]{{0,40}}?(?:in|after|for|at least)?[^.\d]{{0,12}}?\b"
    rf"(?P<time>{_SPAN}(?:(?:,|\s|and){{0,4}}{_SPAN}){{0,4}})(?![a-z])",
    re.IGNORECASE,
)
_PIECE: Final = re.compile(rf"(\d{{1,12}}(?:\.\d{{1,9}})?)\s{{0,2}}({_UNIT})", re.IGNORECASE)

# "Your limit will reset at 2026-01-11 20:55:18", "resets on Sun, 11 Jan 2026 20:55:18 GMT", "limit reached|1760000400".
_AT: Final = re.compile(
    rf"(?:{_CUE}|until|limit reached)[^\d\n]{{0,40}}?"
    r"(?P<when>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)\b)?"
    r"|(?:mon|tue|wed|thu|fri|sat|sun)\w{0,6},? \d{1,2} \w{3,9} \d{4} \d\d:\d\d(?::\d\d)?(?: ?(?:GMT|UTC|[+-]\d{4}))?"
    r"|\d{10}(?:\d{3})?(?!\d))",
    re.IGNORECASE,
)
# "resets 8pm (America/New_York)", "will reset at 14:30 UTC": the next time that it is that late there.
_HOUR: Final = re.compile(
    rf"(?:{_CUE}|until)[^\d\n]{{0,20}}?(?P<hour>\d{{1,2}})(?::(?P<minute>\d\d))?\s?(?P<half>[ap]m)?\s?"
    r"\(?(?P<zone>UTC|GMT|[A-Za-z]{2,20}/[A-Za-z_/]{2,40})\)?",
    re.IGNORECASE,
)

# A number this large is a time of day, not a wait: in seconds since 1970, or in milliseconds.
_EPOCH: Final = 1e9
_EPOCH_MS: Final = 1e12


def asked_wait(headers: Mapping[str, str], now: float, text: str = "") -> float | None:
    """Seconds to wait as the server asked, never negative; None where it did not say so readably.

    `now` is the time of day in seconds. `text` is the error's body or message, where some servers write it.
    The most exact header wins: milliseconds, then Retry-After, then the reset of the limit that is
    used up (the other limit's reset may be minutes away and has nothing to do with it).
    """
    with suppress(ValueError):
        return max(0.0, float(_number(headers.get("retry-after-ms", ""))) / 1000)
    # A server's clock and ours may differ by minutes; its own Date header is the right "now" for it.
    there = _date(headers.get("date", ""))
    there = now if there is None else there
    wait = seconds(headers.get("retry-after", ""), there)
    if wait is None:
        wait = _exhausted(headers, now)
    if wait is None and text:
        wait = _in_body(text, there)
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


def _in_body(text: str, now: float) -> float | None:
    if found := _LEFT.search(text):
        wait = seconds(found["text"] or found["number"], now)
        if wait is not None:
            return wait / 1000 if found["ms"] else wait
    if found := _WHEN.search(text):
        wait = seconds(found["text"] or found["number"], now)
        if wait:  # what has passed says nothing
            return wait
    if found := _IN_WORDS.search(text):
        return sum(float(amount) * _unit(unit) for amount, unit in _PIECE.findall(found["time"]))
    if found := _AT.search(text):
        return seconds(re.sub(r" ?(?:UTC|GMT)$", "", found["when"], flags=re.IGNORECASE), now) or None
    if found := _HOUR.search(text):
        return _until_hour(found, now)
    return None


def _unit(word: str) -> float:
    word = word.lower()
    return 0.001 if word.startswith(("ms", "mil")) else _UNITS[word[0]]


def _until_hour(found: re.Match[str], now: float) -> float | None:
    hour, minute = int(found["hour"]), int(found["minute"] or 0)
    if found["half"]:
        hour = hour % 12 + (12 if found["half"].lower() == "pm" else 0)
    elif not found["minute"]:
        return None
    try:
        zone = UTC if found["zone"].upper() in ("UTC", "GMT") else ZoneInfo(found["zone"])
        here = datetime.fromtimestamp(now, zone)
        then = here.replace(hour=hour, minute=minute, second=0, microsecond=0)
    except (ValueError, OSError, KeyError):  # no such hour, or a zone that this machine does not know
        return None
    return (then if then > here else then + timedelta(days=1)).timestamp() - now


def _number(text: str) -> str:
    return text.strip() if _NUMBER.fullmatch(text.strip()) else "not a number"


def _date(text: str) -> float | None:
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        with suppress(ValueError, TypeError, IndexError, OverflowError):
            when = parse(text.strip())
            return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    return None
