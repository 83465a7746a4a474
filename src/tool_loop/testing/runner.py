"""Runs agents in a test, and holds every run against what must be true of each.

Knows nothing about pytest; the fixture `agent_run` is one of these.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tool_loop.audit.invariants import check
from tool_loop.errors import ToolLoopError
from tool_loop.runtime.clock import run_virtual
from tool_loop.toolbox.registry import ToolRegistry

if TYPE_CHECKING:
    from tool_loop.api import Agent
    from tool_loop.events import Event
    from tool_loop.limits import Limits
    from tool_loop.result import Result


class InvariantBroken(ToolLoopError, AssertionError):
    """A run broke a rule that holds for every run; the message says which, and lists the events."""


class AgentRun:
    """`agent_run(agent, "question")`, or `agent_run.resume(agent, run_id)`: a run, its result, and its check.

    Time is virtual; `real_time=True` is for what cannot live in it (a server of another process).
    `secrets` must occur nowhere in the record. Other options are those of `Agent.run`. Raises what
    the run raises, and `InvariantBroken`.
    """

    def __init__(self) -> None:
        self._runs: dict[tuple[int, str], tuple[Agent, Limits | None, tuple[str, ...]]] = {}

    def __call__(
        self,
        agent: Agent,
        question: str,
        *,
        run_id: str | None = None,
        real_time: bool = False,
        secrets: Iterable[str] = (),
        **options: Any,
    ) -> Result:
        run_id = options.get("continue_run") or run_id or _new_id()
        which: dict[str, Any] = {} if options.get("continue_run") else {"run_id": run_id}
        return self._drive(agent, run_id, agent.run(question, **which, **options), real_time, secrets)

    def resume(
        self, agent: Agent, run_id: str, *, real_time: bool = False, secrets: Iterable[str] = (), **options: Any
    ) -> Result:
        """Go on with a run, after a crash, a mended error or a decision."""
        return self._drive(agent, run_id, agent.resume(run_id, **options), real_time, secrets)

    def _drive(self, agent: Agent, run_id: str, run: Any, real_time: bool, secrets: Iterable[str]) -> Result:
        # Limits count per attempt, and another agent may have others: then they are not checked.
        key = id(agent.journal), run_id
        limits = agent.limits if self._runs.get(key, (None, agent.limits))[1] == agent.limits else None
        self._runs[key] = agent, limits, tuple(secrets)
        try:
            result: Result = asyncio.run(run) if real_time else run_virtual(run)
        finally:
            broken = self._broken(*key)
        if broken:
            raise InvariantBroken(broken)
        return result

    def check(self) -> None:
        """Hold every run of this test against the rules once more. Raises `InvariantBroken`."""
        for key in self._runs:
            if broken := self._broken(*key):
                raise InvariantBroken(broken)

    def _broken(self, journal: int, run_id: str) -> str:
        agent, limits, hidden = self._runs[journal, run_id]
        try:
            events = agent.journal.events(run_id)
        except ToolLoopError:
            return ""  # nothing is on record, or it cannot be read: the run has said so itself
        found = check(events, effects=effects_of(agent), limits=limits, probed=_probed(agent), secrets=hidden)
        return "\n".join([*map(str, found), "", *_listed(events)]) if found else ""


def _new_id() -> str:
    return secrets.token_hex(6)


def effects_of(agent: Agent) -> Mapping[str, str]:
    """The effect class of each of its tools."""
    return {spec.name: agent.tools.effect(spec.name) or "once" for spec in agent.tools.specs()}


def _probed(agent: Agent) -> list[str]:
    tools = agent.tools if isinstance(agent.tools, ToolRegistry) else ()
    return [tool.name for tool in tools if tool.probe_func is not None]


def _listed(events: Iterable[Event]) -> list[str]:
    return [f"{n:4}  {event!r:.160}" for n, event in enumerate(events)]
