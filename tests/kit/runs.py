"""What several test modules share: a run driven from given events, and short ways to write turns."""

from __future__ import annotations

from tool_loop.agent import Driver
from tool_loop.events import Event, ModelReplied, RunEnded, RunStarted, ToolCall, Usage
from tool_loop.journal.memory import MemoryLog
from tool_loop.limits import Limits
from tool_loop.loop.moves import Hold
from tool_loop.ports import LLM, Emit, Reviewer, Tools
from tool_loop.runtime.clock import run_virtual

QUESTION = RunStarted("q")


def calls(*wanted: tuple[str, str] | tuple[str, str, str], text: str = "", usage: Usage | None = None) -> ModelReplied:
    """A reply that asks for (id, name[, arguments])."""
    asked = tuple(ToolCall(*w) for w in wanted)
    return ModelReplied(text, asked, "tool_calls", usage or Usage(10, 5))


def says(text: str, usage: Usage | None = None) -> ModelReplied:
    return ModelReplied(text, usage=usage or Usage(10, 5))


def log_of(*events: Event) -> MemoryLog:
    """A run with these events on record."""
    log = MemoryLog("run", lambda: 0.0)
    for event in events or (QUESTION,):
        log.state.apply(event)
    return log


def drive(
    log: MemoryLog,
    llm: LLM,
    tools: Tools,
    *,
    limits: Limits | None = None,
    emit: Emit = lambda _: None,
    reviewer: Reviewer | None = None,
) -> RunEnded | Hold:
    """One attempt, on virtual time."""

    async def main() -> RunEnded | Hold:
        return await Driver(log, llm, tools, limits or Limits(), emit, reviewer).drive()

    return run_virtual(main())


def of(kind: type, events: object) -> list:
    return [e for e in events if isinstance(e, kind)]
