"""Where faults are placed, and how a place is said in words: the bookkeeping of `Faults`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tool_loop.errors import UsageError

from .strike import Fault, Point


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that struck.

    `where` is "step 3", "grep, call 2", "question 1", "record 7 (ToolReturned)" or "opening 1".
    """

    where: str
    fault: str

    def __str__(self) -> str:
        return f"{self.fault} at {self.where}"


@dataclass(slots=True)
class PlannedFault:
    """`left` is how often it may still strike, None for ever; from `nth` on when `onwards`, 0 for any."""

    point: Point
    fault: Fault
    nth: int
    name: str = ""
    left: int | None = 1
    onwards: bool = False

    def fits(self, point: Point, name: str, nth: int) -> bool:
        there = self.nth in (0, nth) or (self.onwards and nth > self.nth)
        return self.point == point and self.left != 0 and self.name in ("", name) and there

    def __str__(self) -> str:
        if self.point == "append" and self.name:
            return f"{self.fault} at {self.name} {self.nth}"
        return f"{self.fault} at {where(self.point, self.name, self.nth)}"


@dataclass(slots=True)
class Chance:
    rate: float
    faults: tuple[Fault, ...]
    left: int | None


WORDS: Final[dict[Point, str]] = {
    "model": "a request to the model",
    "tool": "a call of a tool",
    "review": "a question to a person",
    "append": "a record that is written",
    "open": "a run that is opened",
}


def where(point: Point, name: str, nth: int) -> str:
    if point == "tool":
        return f"{name}, call {nth}" if nth else f"every call of {name}"
    word = {"model": "step", "review": "question", "append": "record", "open": "opening"}[point]
    return f"{word} {nth}" + (f" ({name})" if name else "")


def counted(name: str, number: int) -> int:
    if number < 1:
        raise UsageError(f"{name} is counted from 1, got {number}")
    return number
