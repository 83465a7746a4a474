"""Plays every case of a list on an agent, offline, and says what came of it.

    for line in scorecard():
        print(line.fault, line.outcome, line.handled)

Each case is one run through the real loop, the real client and a real HTTP server in one process, in
virtual time. Beside what the case expects, every run is held against the invariants, every request
against what a provider takes, and everything that left against the key.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tool_loop.audit.invariants import check, check_requests
from tool_loop.console.describe import outcome_line
from tool_loop.errors import TOOL_ERROR_KINDS, UsageError
from tool_loop.events import Compacted, Event, LimitReached, ModelReplied, Reminded, ToolReturned
from tool_loop.journal.memory import MemoryJournal
from tool_loop.runtime.clock import run_virtual
from tool_loop.state import State
from tool_loop.testing.faults.schedule import Faults
from tool_loop.testing.faults.wire_model import WireModel

from .bench import KEY, NO_CALL, Bench, Role, house_bench, reading
from .case import Case
from .cases import CASES
from .scenes import RUN, Scene

if TYPE_CHECKING:
    from tool_loop.testing.server.server import FaultServer

_WIDTH: Final = 74

_LIMITS: Final = frozenset(
    {"step limit", "token budget", "money budget", "tool call limit", "repeated call", "deadline", "empty answer"}
)


@dataclass(frozen=True, slots=True)
class ScoreLine:
    """What came of one case.

    `saw` is what the model was told of the fault, `extra_calls` and `extra_tokens` what it cost more
    than the same run without it, a resume included. `why` says what is wrong when it was not
    `handled`, or why the case was `skipped`.
    """

    fault: str
    layer: str
    saw: str = ""
    outcome: str = ""
    extra_calls: int = 0
    extra_tokens: int = 0
    handled: bool = True
    skipped: bool = False
    why: str = ""
    kinds: tuple[str, ...] = ()
    core: bool = False


def scorecard(bench: Bench | None = None, cases: Sequence[Case] = CASES) -> list[ScoreLine]:
    """One line for each case. Without a bench it is the package's own agent that is tried."""
    if bench is not None:
        return list(played(bench, cases))
    with house_bench() as house:
        return list(played(house, cases))


def played(bench: Bench, cases: Sequence[Case] = CASES) -> Iterable[ScoreLine]:
    """The lines one by one, as the cases are played. Raises UsageError when not even a quiet run works."""
    baselines: dict[Role, _Played] = {}
    for case in cases:
        if why := case.missing(bench):
            yield ScoreLine(case.name, case.layer, skipped=True, why=why, core=case.core)
            continue
        if case.role not in baselines:
            quiet = _play(Case("nothing", "", lambda *_: None, role=case.role), bench)
            if quiet.crash or quiet.ended not in ("answered", *_LIMITS):
                raise UsageError(f"without any fault the run ends with {quiet.crash or quiet.ended}: mend that first")
            baselines[case.role] = quiet
        yield _line(case, bench, _play(case, bench), baselines[case.role])


@dataclass(slots=True)
class _Played:
    """One case as it went. `ended` is the end of the first attempt, `resumed` that of the second if there was one."""

    ended: str = ""
    resumed: str = ""
    crash: str = ""
    events: tuple[Event, ...] = ()
    requests: int = 0
    bodies: tuple[bytes, ...] = ()
    billed: int = 0
    leaked: bool = False
    struck: str = ""


def _play(case: Case, bench: Bench) -> _Played:
    done = _Played()
    with tempfile.TemporaryDirectory(prefix="scorecard-") as folder:
        faults = Faults()
        try:
            run_virtual(_run(case, bench, faults, Path(folder), done), socket_patience=case.patience)
        except Exception as error:  # the very thing that must not happen, whatever it is
            done.crash = f"{type(error).__name__}: {error}"
        finally:
            faults.release()
    return done


async def _run(case: Case, bench: Bench, faults: Faults, folder: Path, done: _Played) -> None:
    call = bench.calls.get(case.role, NO_CALL)
    case.plan(faults, call)
    wire = WireModel(case.model(call) if case.model else reading(call), faults)
    async with wire.server() as server:
        agent = bench.at(server.url, faults)
        agent.limits = case.limits(agent.limits, call) if case.limits else agent.limits
        agent.journal = faults.journal(MemoryJournal())
        scene = Scene(agent, faults, folder)
        try:
            done.ended = await case.scene(scene)
            done.struck = faults.unstruck()
            if done.ended not in ("answered", *_LIMITS):
                faults.calm()
                done.resumed = await scene.attempt()
        finally:
            done.events = tuple(agent.journal.events(RUN))
            done.requests, done.billed = len(server.requests), wire.billed
            done.bodies = tuple(request.body for request in server.requests)
            done.leaked = _leaked(server, done.events)


def _leaked(server: FaultServer, events: Iterable[Event]) -> bool:
    return KEY in repr(tuple(events)) or any(KEY.encode() in request.body for request in server.requests)


# --- what came of it ------------------------------------------------------------------------------


def _line(case: Case, bench: Bench, done: _Played, quiet: _Played) -> ScoreLine:
    why = _wrong(case, bench, done)
    return ScoreLine(
        case.name,
        case.layer,
        _saw(case, done.events),
        done.crash or _outcome(done),
        max(0, done.requests - quiet.requests),
        max(0, done.billed - quiet.billed),
        handled=not why,
        why=why,
        kinds=tuple(sorted(_kinds(done))),
        core=case.core,
    )


def _kinds(done: _Played) -> set[str]:
    """Every word of the failure table that this run had."""
    found = {done.ended, done.resumed}
    for event in done.events:
        if isinstance(event, ModelReplied):
            found.update(retry.kind for retry in event.retries)
        elif isinstance(event, ToolReturned) and event.error:
            found.add(event.error)
    return found - {"", "answered"}


def _wrong(case: Case, bench: Bench, done: _Played) -> str:
    """What is wrong with how it went, "" when nothing is."""
    if done.crash:
        return f"{done.crash} came out of the run"
    # An agent whose limits are tight may stop sooner than expected: that is an end, with an answer.
    stopped = bench.own and done.ended in _LIMITS
    if done.ended != case.ends and not stopped:
        return f"it ended with {done.ended!r}, not with {case.ends!r}"
    if done.resumed and done.resumed not in ("answered", *_LIMITS):
        return f"when it was resumed it ended with {done.resumed!r}"
    if done.struck and not stopped:
        return f"the fault never struck: {done.struck}"
    kinds = _kinds(done)
    if missing := [kind for kind in (case.told, case.retried) if kind and kind not in kinds and not stopped]:
        return f"{missing[0]} is not on record"
    if done.leaked:
        return "the key is on record, or was sent in a body"
    broken = [*check(done.events, effects=bench.effects()), *check_requests(done.bodies)]
    return str(broken[0]) if broken else ""


def _outcome(done: _Played) -> str:
    retries = sum(len(event.retries) for event in done.events if isinstance(event, ModelReplied))
    if done.ended == "answered":
        return f"answered after {retries} {'retry' if retries == 1 else 'retries'}" if retries else "answered"
    if done.ended in _LIMITS:
        state = State.of(done.events)
        source = "with an answer" if state.ended and state.ended.source == "model" else "with what is on record"
        how = {"repeated call": "stopped", "empty answer": "asked once more"}
        return f"{how.get(done.ended, f'stopped by the {done.ended}')}, {source}"
    end = {"died": "killed", "cancelled": "cancelled"}.get(done.ended, f"error: {done.ended}")
    return f"{end}; {done.resumed} when resumed"


def _saw(case: Case, events: Sequence[Event]) -> str:
    """What the model was told of it, in a line."""
    results = [event for event in events if isinstance(event, ToolReturned)]
    told = next((r for r in results if r.error in ({case.told} if case.told else TOOL_ERROR_KINDS)), None)
    if told is not None:
        return _cut(f"{told.error}: {_message(told)}")
    if any(isinstance(event, Reminded) for event in events):
        return "a reminder to call tools, not to describe calls"
    limit = next((event.limit for event in events if isinstance(event, LimitReached)), "")
    if any(r.repeat > 1 for r in results):
        return "a note, then a request for a last word"
    if limit:
        return "a request for a last word, without tools"
    if any(isinstance(event, Compacted) for event in events):
        return "a shorter history"
    if case.failure in _NORMAL and results:
        return _cut(outcome_line(results[0]))
    return "nothing"


_NORMAL: Final = ("no_matches", "too_large")


def _message(result: ToolReturned) -> str:
    try:
        return str(json.loads(result.content)["message"])
    except (ValueError, LookupError, TypeError):
        return result.content


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


# --- tables ---------------------------------------------------------------------------------------


def markdown(lines: Iterable[ScoreLine]) -> str:
    """The lines as a table for a README."""
    rows = ["| fault | the model saw | outcome | extra calls | extra tokens |", "|---|---|---|---:|---:|"]
    for line in lines:
        if not line.skipped:
            cells = (line.fault, line.saw, line.outcome if line.handled else f"**not handled**: {line.why}")
            shown = " | ".join(cell.replace("|", "\\|") for cell in cells)
            rows.append(f"| {shown} | {line.extra_calls} | {line.extra_tokens} |")
    return "\n".join(rows)
