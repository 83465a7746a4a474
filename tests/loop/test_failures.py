"""Every row of the failure table is injected, and does what the table says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from tests.kit.runs import calls, drive, log_of, of, says
from tool_loop import Agent, Limits, MemoryJournal, ProviderError, ScriptedLLM, ToolError, ToolRegistry, tool
from tool_loop.audit.invariants import check
from tool_loop.catalogue import CATALOGUE
from tool_loop.errors import TOOL_ERROR_KINDS, TRANSIENT, JournalError, ProviderKind
from tool_loop.events import (
    ApprovalDecided,
    Event,
    IntentRecorded,
    ModelReplied,
    Restarted,
    RetryWaiting,
    RunEnded,
    RunInterrupted,
    ToolReturned,
)
from tool_loop.llm.retry import Retrying, RetryPolicy
from tool_loop.llm.scripted import Turn
from tool_loop.ports import PendingApproval
from tool_loop.runtime.clock import run_virtual
from tool_loop.tools import workspace_tools

PROVIDER_KINDS = get_args(ProviderKind)


def fails(kind: str, **more: object) -> ProviderError:
    return ProviderError(f"it failed: {kind}", kind=kind, **more)  # type: ignore[arg-type]


# --- transport and protocol -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(TRANSIENT))
def test_what_waiting_can_mend_is_retried_and_the_loop_never_sees_it(kind: str) -> None:
    seen: list[object] = []
    agent = Agent(ScriptedLLM(fails(kind), fails(kind), "done"), on_event=seen.append)

    result = run_virtual(agent.run("q"))

    assert result.answer == "done"
    assert [r.kind for r in of(ModelReplied, result.events)[0].retries] == [kind, kind]
    assert [w.attempt for w in of(RetryWaiting, seen)] == [2, 3]


@pytest.mark.parametrize("kind", sorted(set(PROVIDER_KINDS) - TRANSIENT))
def test_what_no_waiting_can_mend_is_not_retried_and_the_run_can_be_resumed(kind: str) -> None:
    async def main() -> None:
        journal = MemoryJournal()
        script = ScriptedLLM(fails(kind), "done")
        agent = Agent(script, journal=journal)
        with pytest.raises(ProviderError) as caught:
            await agent.run("q", run_id="r")
        assert (caught.value.kind, caught.value.run_id) == (kind, "r")
        assert len(script.requests) == 1
        assert of(RunInterrupted, journal.events("r"))[0].kind == kind
        assert (await agent.resume("r")).answer == "done"

    run_virtual(main())


def test_a_401_fails_at_once_and_a_429_waits_as_long_as_it_was_told() -> None:
    async def took(error: ProviderError) -> float:
        agent = Agent(ScriptedLLM(error, "done"))
        with contextlib.suppress(ProviderError):
            await agent.run("q")
        return asyncio.get_running_loop().time()

    assert run_virtual(took(fails("auth", status=401))) == 0
    assert 7 <= run_virtual(took(fails("rate_limit", status=429, retry_after=7.0))) <= 9


def test_waits_grow_and_each_stays_below_its_ceiling() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    llm = Retrying(
        ScriptedLLM(*[fails("server_error", status=503)] * 6, "done"), RetryPolicy(), sleep=sleep, random=lambda: 1.0
    )

    run_virtual(Agent(llm, retry=None).run("q"))

    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]


def test_an_outage_of_a_minute_is_sat_out_when_the_deadline_allows_it() -> None:
    async def main() -> str:
        clock = asyncio.get_running_loop().time

        async def down(_request: object) -> str:
            if clock() < 60:
                raise fails("connection")
            return "back"

        return (await Agent(ScriptedLLM(*[down] * 40)).run("q")).answer

    assert run_virtual(main()) == "back"


def test_a_wait_that_does_not_fit_is_reported_at_once_with_the_figure() -> None:
    async def main() -> None:
        agent = Agent(ScriptedLLM(fails("rate_limit", retry_after=30.0)), limits=Limits(seconds=20))
        with pytest.raises(ProviderError, match=r"30|3\d\.\d"):
            await agent.run("q")
        assert asyncio.get_running_loop().time() < 1

    run_virtual(main())


def test_text_of_an_attempt_that_failed_never_enters_the_history() -> None:
    seen: list[object] = []
    cut = Turn(pieces=("half a ", "thou"), then_raise=fails("protocol"))

    result = run_virtual(Agent(ScriptedLLM(cut, "whole"), on_event=seen.append).run("q"))

    assert result.answer == "whole"
    assert len(of(Restarted, seen)) == 1
    assert "half" not in repr(result.events)


def test_tokens_of_failed_attempts_are_paid_from_the_budget() -> None:
    script = ScriptedLLM(fails("protocol", tokens=300), says("done"))
    log = log_of()

    drive(log, Retrying(script), ToolRegistry())

    assert log.state.spent == 315


# --- tools ----------------------------------------------------------------------------------------


def registry_of_trouble(root: Path) -> ToolRegistry:
    @tool(effect="read")
    async def typed(n: int) -> str:
        """Takes a number."""
        return str(n)

    @tool(effect="read", timeout_seconds=0.5)
    async def slow() -> str:
        """Never ends."""
        await asyncio.Event().wait()
        return ""

    @tool(effect="read")
    def crashes() -> str:
        """Crashes."""
        raise RuntimeError("password=hunter2")

    @tool(effect="read")
    def says_no() -> str:
        """Says no."""
        raise ToolError("no such city: Atlantis", hint="try a city on land", city="Atlantis")

    @tool(effect="read", max_calls=1)
    async def rare(n: int = 0) -> str:
        """May be called once."""
        return str(n)

    @tool(effect="once", needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    @tool(effect="read")
    def forbidden() -> str:
        """Not readable."""
        raise ToolError("permission denied: x", kind="permission_denied")

    return ToolRegistry([typed, slow, crashes, says_no, rare, pay, forbidden, *workspace_tools(root)])


async def deny(shown: PendingApproval) -> ApprovalDecided:
    return ApprovalDecided(shown.call.id, False, note="not today")


# What the model asks for, and what it then reads: the kind, and a word of the message.
TROUBLE: dict[str, tuple[list[tuple[str, str]], str]] = {
    "bad_json": ([("typed", '{"n": 1')], "JSON"),
    "invalid_arguments": ([("typed", '{"n": "one"}')], "'n' must be integer, got str"),
    "unknown_tool": ([("tipped", "{}")], "typed"),
    "not_found": ([("read_file", '{"path": "nowhere.py"}')], "no such file"),
    "invalid_argument": ([("grep", '{"pattern": "("}')], "("),
    "permission_denied": ([("forbidden", "{}")], "ermission"),
    "timed_out": ([("slow", "{}")], "0.5"),
    "tool_failed": ([("says_no", "{}")], "Atlantis"),
    "tool_crashed": ([("crashes", "{}")], "RuntimeError"),
    "denied": ([("pay", "{}")], "not today"),
    "limit_reached": ([("rare", '{"n": 1}'), ("rare", '{"n": 2}')], "1 time"),
}


@pytest.mark.parametrize("kind", sorted(TROUBLE))
def test_a_failure_of_a_tool_is_read_by_the_model_and_the_run_goes_on(kind: str, tmp_path: Path) -> None:
    (tmp_path / "here.py").write_text("x = 1\n")
    wanted, word = TROUBLE[kind]
    script = ScriptedLLM(calls(*((str(n), name, args) for n, (name, args) in enumerate(wanted))), "I see")

    result = asyncio.run(Agent(script, registry_of_trouble(tmp_path), reviewer=deny).run("q"))

    assert result.answer == "I see"
    assert [r.error for r in result.failures] == [kind]
    read = json.loads(result.failures[0].content)
    assert read["error"] == kind
    assert word in result.failures[0].content
    assert "hunter2" not in repr(result.events)
    assert check(result.events) == []


def test_calls_of_a_reply_that_was_cut_are_not_run_even_where_they_parse() -> None:
    ran: list[int] = []

    @tool(effect="read")
    async def look(n: int) -> str:
        """Look."""
        ran.append(n)
        return ""

    cut = replace(calls(("1", "look", '{"n": 1}'), ("2", "look", '{"n": 2')), stop="length")
    result = run_virtual(Agent(ScriptedLLM(cut, "shorter"), [look]).run("q"))

    assert ran == []
    assert [r.error for r in result.failures] == ["cut_off", "cut_off"]


def test_a_failing_sibling_disturbs_nobody() -> None:
    @tool(effect="read")
    def maybe(ok: bool) -> str:
        """Maybe."""
        if not ok:
            raise RuntimeError
        return "fine"

    asked = calls(("1", "maybe", '{"ok": true}'), ("2", "maybe", '{"ok": false}'), ("3", "maybe", '{"ok": true}'))
    result = asyncio.run(Agent(ScriptedLLM(asked, "done"), [maybe]).run("q"))

    assert {r.call_id: r.error for r in of(ToolReturned, result.events)} == {"1": None, "2": "tool_crashed", "3": None}


def test_a_tool_that_hangs_in_a_thread_does_not_hold_the_run_past_its_deadline() -> None:
    release = threading.Event()

    @tool(effect="read", timeout_seconds=None)
    def hangs() -> str:
        """Hang."""
        release.wait(20)
        return ""

    async def main() -> float:
        agent = Agent(ScriptedLLM(calls(("1", "hangs")), "in short"), [hangs], limits=Limits(seconds=0.4))
        began = asyncio.get_running_loop().time()
        result = await agent.run("q")
        assert result.reason == "deadline"
        assert [r.error for r in result.failures] == ["timed_out"]
        return asyncio.get_running_loop().time() - began

    try:
        assert asyncio.run(main()) < 1.4
    finally:
        release.set()


# --- the journal ----------------------------------------------------------------------------------


class Full(JournalError):
    pass


@pytest.mark.parametrize("at", range(6))
def test_a_write_that_fails_ends_the_attempt_before_the_effect_it_was_to_record(at: int) -> None:
    ran: list[str] = []

    @tool(effect="once")
    async def pay() -> str:
        """Pay."""
        ran.append("pay")
        return "paid"

    log = log_of()
    real, count = log.append, 0

    class Failing:
        run_id, state = log.run_id, log.state

        async def append(self, event: Event) -> None:
            nonlocal count
            count += 1
            if count == at + 1:
                raise Full("disk full")
            await real(event)

    ended: object = None
    try:
        ended = drive(Failing(), ScriptedLLM(calls(("1", "pay")), "done"), ToolRegistry([pay]))  # type: ignore[arg-type]
    except Full as error:
        ended = error

    intended = bool(of(IntentRecorded, log.state.events))
    assert isinstance(ended, RunEnded if at >= 5 else Full)
    assert bool(ran) <= intended, "an effect without an intent on record"


# --- the catalogue itself -------------------------------------------------------------------------


def test_the_catalogue_names_every_kind_there_is_in_code_and_no_other() -> None:
    listed = {kind for row in CATALOGUE for kind in row.kinds}
    reasons = {
        "repeated call",
        "step limit",
        "token budget",
        "money budget",
        "tool call limit",
        "deadline",
        "empty answer",
    }
    journal = {"journal", "run_busy", "fenced", "journal_damaged", "poisoned"}

    assert listed == set(TOOL_ERROR_KINDS) | set(PROVIDER_KINDS) | reasons | journal


def test_every_kind_of_tool_error_is_injected_somewhere_in_these_tests() -> None:
    # above, test_approvals.py, test_cancel.py, test_guard.py, test_edit.py
    elsewhere = {"cut_off", "outcome_unknown", "cancelled", "sandbox_failed", "conflict"}

    assert set(TROUBLE) | elsewhere == set(TOOL_ERROR_KINDS)
