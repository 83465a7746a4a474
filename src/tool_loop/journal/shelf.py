"""What can be done with runs wherever they are kept: look for them, follow one, decide, cancel, copy, delete.

Both journals are shelves. What differs between memory and a file are the few methods at the end.
"""

from __future__ import annotations

import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import replace
from typing import Any

from tool_loop.errors import RunBusy, UnknownRun, UsageError
from tool_loop.events import Event, ModelReplied, RunEnded, RunStarted
from tool_loop.loop.closing import CancelRequest, close
from tool_loop.ports import RunLog
from tool_loop.state import State

from .bells import Bell
from .runs import ENDED, Record, RunInfo, RunState, WaitingCall, waiting_calls


class Shelf(ABC):
    """A journal, as far as it is the same in memory and in a file."""

    # --- looking ----------------------------------------------------------------------------------

    def runs(
        self, *, state: RunState | Collection[RunState] | None = None, meta: Mapping[str, Any] | None = None
    ) -> list[RunInfo]:
        """The runs in one of these states whose meta has all of these values; the one that got on last first.

        `CAN_GO_ON` are the states of runs that just need to be driven on. Reads no history.
        """
        states = {state} if isinstance(state, str) else None if state is None else set(state)
        return [
            run
            for run in self._listed()
            if (states is None or run.state in states) and (meta is None or _has(run.meta, meta))
        ]

    def last(self) -> str | None:
        """The id of the run that got on last; None when there is none."""
        return next((run.id for run in self._listed()), None)

    def pending(self, *, meta: Mapping[str, Any] | None = None) -> list[WaitingCall]:
        """Every call that waits for a person, the one that waits longest first: what a page of approvals shows."""
        # A run that is being driven can wait as well: for a reviewer who is asked in that process.
        waiting = self.runs(state=("waiting", "running"), meta=meta)
        found = [call for run in waiting for call in self._waiting(run)]
        return sorted(found, key=lambda call: call.at)

    def _waiting(self, run: RunInfo) -> list[WaitingCall]:
        try:
            return waiting_calls(run, self.records(run.id))
        except UnknownRun:
            return []  # deleted meanwhile

    def events(self, run_id: str) -> Sequence[Event]:
        """All events of a run, oldest first. Raises `UnknownRun` and `JournalDamaged`."""
        return tuple(record.event for record in self.records(run_id))

    async def follow(self, run_id: str, after: int = -1, *, forever: bool = False) -> AsyncIterator[Record]:
        """The records behind number `after`, and then each further one as it is written, by whatever process.

        Ends when the run has ended, or was deleted; with `forever` it waits for the next question too. A
        run that waits for a person, or that nobody drives, has not ended. Raises `UnknownRun`.
        """
        with self._following(Bell(run_id, after)) as bell:
            ended = False
            while True:
                bell.rung.clear()
                try:
                    ended = self._has_ended(run_id)  # asked first: what ended it is then among the records
                    fresh = self.records(run_id, after=bell.seen)
                except UnknownRun:
                    if bell.seen == after:
                        raise
                    return
                for record in fresh:
                    yield record
                    bell.seen = record.seq
                if not fresh and ended and not forever:
                    return
                if not fresh:
                    await bell.rung.wait()

    # --- changing ---------------------------------------------------------------------------------

    async def cancel(self, run_id: str, *, by: str = "", note: str = "") -> bool:
        """Stop a run, whoever drives it: that process gives its calls up within a second, and records who
        asked. Where nobody drives it, its open calls are closed here. It goes on only when somebody resumes
        it, or asks something else in it.

        False when there was nothing to stop, since the run has ended. Raises `UnknownRun`.
        """
        request = CancelRequest(by or "somebody", note)
        if not self._ask_to_stop(run_id, request):
            return False
        try:
            async with self.open(run_id) as log:
                if not log.state.ended:
                    await close(log.state, log.append, request)
        except RunBusy:
            pass  # whoever drives it has been told
        return True

    @abstractmethod
    async def delete(self, run_id: str) -> None:
        """Forget a run and everything in it. Raises `UnknownRun`, and `RunBusy` while somebody drives it."""

    async def prune(
        self,
        *,
        older_than: float | None = None,
        meta: Mapping[str, Any] | None = None,
        state: RunState | Collection[RunState] = ENDED,
    ) -> list[str]:
        """Delete the runs that have not got on for `older_than` seconds and have this meta; returns their ids.

        Only runs that have ended, unless `state` says otherwise, and never one that is being driven. Raises
        `UsageError` when it is not said which.
        """
        if older_than is None and meta is None:
            raise UsageError("say which runs: prune(older_than=30 * 86400), prune(meta={...}) or both")
        before = None if older_than is None else self._now() - older_than
        gone: list[str] = []
        for run in self.runs(state=state, meta=meta):
            if before is None or run.updated < before:
                try:
                    await self.delete(run.id)
                except (RunBusy, UnknownRun):
                    continue  # somebody has taken it up, or deleted it, since it was listed
                gone.append(run.id)
        return gone

    async def fork(self, run_id: str, steps: int | None = None, *, new_id: str = "") -> str:
        """Copy a run, up to and with its first `steps` replies of the model and the results of their calls (all
        of them where nothing is said); returns the id of the copy.

        The copy is a run of its own: `resume` goes on from there, `continue_run` asks something else. Its
        meta says where it came from. Raises `UnknownRun`, and `UsageError` when it cannot be cut there.
        """
        kept = _kept(run_id, self.events(run_id), steps)
        began, new_id = kept[0], new_id or secrets.token_hex(6)
        assert isinstance(began, RunStarted)
        meta = json.loads(began.meta) | {"forked_from": run_id, "forked_at": len(kept)}
        await self.create(new_id, [replace(began, meta=json.dumps(meta, ensure_ascii=False)), *kept[1:]])
        return new_id

    @abstractmethod
    async def create(self, run_id: str, events: Sequence[Event]) -> None:
        """Make a run with these events on record, all at once. Raises `UsageError` when there is one of that id."""

    # --- where a memory and a file differ ---------------------------------------------------------

    @abstractmethod
    def open(self, run_id: str) -> AbstractAsyncContextManager[RunLog]: ...
    @abstractmethod
    def records(self, run_id: str, after: int = -1) -> list[Record]: ...
    @abstractmethod
    def _listed(self) -> list[RunInfo]: ...
    @abstractmethod
    def _following(self, bell: Bell) -> AbstractContextManager[Bell]: ...
    @abstractmethod
    def _has_ended(self, run_id: str) -> bool: ...
    @abstractmethod
    def _ask_to_stop(self, run_id: str, request: CancelRequest) -> bool: ...
    @abstractmethod
    def _now(self) -> float: ...


def _has(meta: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(name in meta and meta[name] == value for name, value in wanted.items())


def _kept(run_id: str, events: Iterable[Event], steps: int | None) -> list[Event]:
    """The first events of a run, up to the end of that step."""
    state, replies = State(), 0
    for event in events:
        is_next = isinstance(event, ModelReplied)
        through = replies == steps and not state.pending and bool(state.events)
        if through and not isinstance(event, RunEnded):
            break
        replies += is_next
        state.apply(event)
    if steps is not None and replies < steps:
        raise UsageError(f"run {run_id} has {replies} steps, so it cannot be forked after step {steps}")
    if state.pending:
        raise UsageError(
            f"run {run_id} cannot be forked at a step with open calls ({', '.join(state.pending)}): "
            f"they would run twice; fork it before, with steps={max(0, replies - 1)}"
        )
    return state.events
