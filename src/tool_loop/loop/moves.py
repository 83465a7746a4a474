"""What the loop can do next. `next_move` in agent.py chooses one, and `Attempt` carries it out."""

from __future__ import annotations

from typing import TypeAlias

from tool_loop.events import RunEnded, ToolCall
from tool_loop.records import dataclass


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the model; `may_call` is False for the last word."""

    may_call: bool = True


@dataclass(frozen=True, slots=True)
class Act:
    """Run these calls."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class Hold:
    """Nothing can be done until a person has decided about these calls."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class Compact:
    """Shorten what the model sees, before it overflows the window."""


@dataclass(frozen=True, slots=True)
class Remind:
    """Tell the model something it got wrong."""

    text: str


@dataclass(frozen=True, slots=True)
class Stop:
    """A limit is reached: from here on the model only gets its last word."""

    limit: str


@dataclass(frozen=True, slots=True)
class End:
    """The run is over."""

    event: RunEnded


Move: TypeAlias = Ask | Act | Hold | Compact | Remind | Stop | End
