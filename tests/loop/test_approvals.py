"""What a person allowed is what runs, once; and what a crash left in doubt is never guessed."""

from __future__ import annotations

import asyncio

import pytest

from tests.kit.runs import QUESTION, calls, drive, log_of, of
from tool_loop import Agent, MemoryJournal, PendingApproval, ScriptedLLM, Tool, ToolRegistry, tool
from tool_loop.errors import ProviderError, UnknownRun, UsageError
from tool_loop.events import (
    ApprovalDecided,
    ApprovalRequest,
    ApprovalRequested,
    IntentRecorded,
    ModelReplied,
    RunEnded,
    RunResumed,
    ToolCall,
    ToolReturned,
)
from tool_loop.limits import Limits
from tool_loop.loop.moves import Hold
from tool_loop.runtime.clock import run_virtual
from tool_loop.testing import check
from tool_loop.toolbox.registry import NotRun


class Till:
    """Counts what was really paid; its tools are what the tests run."""

    def __init__(self) -> None:
        self.paid: list[int] = []

        @tool(effect="once", needs_approval=True, untrusted=False)
        async def pay(amount: int) -> str:
            """Pay somebody."""
            self.paid.append(amount)
            return f"paid {amount}"

        @tool(effect="read", untrusted=False)
        async def look(at: str = "") -> str:
            """Look."""
            return f"saw {at}"

        @tool(effect="once")
        async def ship(to: str) -> str:
            """Ship."""
            self.paid.append(len(to))
            return f"shipped to {to}"

        self.pay, self.look, self.ship = pay, look, ship
        self.tools = ToolRegistry([pay, look, ship])


def allowing(**fields: object):
    async def reviewer(shown: PendingApproval) -> ApprovalDecided:
        return ApprovalDecided(shown.call.id, True, by="ann", **fields)  # type: ignore[arg-type]

    return reviewer


PAY = calls(("p", "pay", '{"amount": 5}'), ("l", "look", '{"at": "a"}'))


def test_without_a_reviewer_the_run_waits_and_its_siblings_have_run() -> None:
    till, log = Till(), log_of()

    held = drive(log, ScriptedLLM(PAY), till.tools)

    assert isinstance(held, Hold)
    assert [c.id for c in held.calls] == ["p"]
    assert till.paid == []
    assert [r.call_id for r in of(ToolReturned, log.state.events)] == ["l"]


def test_asked_twice_without_a_decision_the_question_is_on_record_once() -> None:
    till, log = Till(), log_of()
    drive(log, ScriptedLLM(PAY), till.tools)

    drive(log, ScriptedLLM(), till.tools)

    assert len(of(ApprovalRequested, log.state.events)) == 1


def test_allowed_from_elsewhere_the_call_runs_once_at_the_next_resume() -> None:
    async def main() -> None:
        till, journal = Till(), MemoryJournal()
        agent = Agent(ScriptedLLM(PAY, "done"), till.tools, journal=journal)
        first = await agent.run("q", run_id="r")
        assert (first.reason, first.answer, [p.call.id for p in first.waiting]) == ("waiting", "", ["p"])
        await journal.decide("r", "p", allow=True, by="ann")
        assert (await agent.resume("r")).answer == "done"
        assert till.paid == [5]
        assert [i.approved for i in of(IntentRecorded, journal.events("r"))] == [("p",)]

    run_virtual(main())


def test_denied_the_model_reads_the_reason_and_the_run_goes_on() -> None:
    async def main() -> None:
        till, journal = Till(), MemoryJournal()
        agent = Agent(ScriptedLLM(PAY, "done"), till.tools, journal=journal)
        await agent.run("q", run_id="r")
        await journal.decide("r", "p", allow=False, note="too much")
        result = await agent.resume("r")
        assert result.answer == "done"
        assert till.paid == []
        assert ["too much" in r.content for r in result.failures if r.error == "denied"] == [True]

    run_virtual(main())


def test_the_first_decision_wins_and_only_waiting_calls_can_be_decided() -> None:
    async def main() -> None:
        till, journal = Till(), MemoryJournal()
        await Agent(ScriptedLLM(PAY), till.tools, journal=journal).run("q", run_id="r")
        await journal.decide("r", "p", allow=False, by="ann")
        with pytest.raises(UsageError, match="already denied by ann"):
            await journal.decide("r", "p", allow=True)
        with pytest.raises(UsageError, match="does not wait"):
            await journal.decide("r", "l", allow=True)
        with pytest.raises(UnknownRun):
            await journal.decide("nowhere", "p", allow=True)
        with pytest.raises(UsageError, match="fingerprint"):
            fresh = MemoryJournal()
            await Agent(ScriptedLLM(PAY), till.tools, journal=fresh).run("q", run_id="r")
            await fresh.decide("r", "p", allow=True, arguments="{}")

    run_virtual(main())


def test_with_a_reviewer_the_person_is_asked_and_sees_the_whole_call() -> None:
    till, log = Till(), log_of()
    seen: list[PendingApproval] = []

    async def reviewer(shown: PendingApproval) -> ApprovalDecided:
        seen.append(shown)
        return ApprovalDecided("some other call", True)

    ended = drive(log, ScriptedLLM(PAY, "done"), till.tools, reviewer=reviewer)

    assert ended == RunEnded("answered", "done")
    assert [(s.call.arguments, s.description, s.why) for s in seen] == [('{"amount": 5}', "Pay somebody.", "policy")]
    assert till.paid == [5]


def test_edited_arguments_are_the_ones_that_run_and_the_model_is_told() -> None:
    till, log = Till(), log_of()
    script = ScriptedLLM(PAY, "done")

    drive(log, script, till.tools, reviewer=allowing(arguments='{"amount": 3}'))

    assert till.paid == [3]
    assert '{"amount": 3}' in script.requests[-1].messages[2].content
    assert of(ToolReturned, log.state.events)[-1].arguments == '{"amount": 3}'


def test_a_standing_approval_covers_the_tool_for_the_run_and_an_exact_denial_beats_it() -> None:
    till, log = Till(), log_of()
    asked: list[str] = []

    async def reviewer(shown: PendingApproval) -> ApprovalDecided:
        asked.append(shown.call.id)
        return ApprovalDecided(shown.call.id, True, standing=True)

    script = ScriptedLLM(PAY, calls(("p2", "pay", '{"amount": 6}')), "done")
    drive(log, script, till.tools, reviewer=reviewer)

    assert asked == ["p"]
    assert till.paid == [5, 6]


PAY_2 = calls(("p2", "pay", '{"amount": 6}'))


def other_pay(paid: list[int], **options: object) -> Tool:
    @tool(effect="once", needs_approval=True, **options)  # type: ignore[call-overload]
    async def pay(amount: int) -> str:
        """Pay somebody."""
        paid.append(amount)
        return f"paid {amount}"

    assert isinstance(pay, Tool)
    return pay


@pytest.mark.parametrize(
    ("options", "scope"),
    [({}, "/elsewhere"), ({"scope": "another account"}, ""), ({"description": "Pay anybody."}, "")],
)
def test_a_standing_approval_is_about_the_tool_it_was_given_for_and_no_other_of_that_name(
    options: dict[str, object], scope: str
) -> None:
    """The same name with another definition, another schema or another directory is asked about again."""
    till, log = Till(), log_of()
    with pytest.raises(ProviderError):
        drive(
            log, ScriptedLLM(PAY, ProviderError("refused", kind="auth")), till.tools, reviewer=allowing(standing=True)
        )
    today = ToolRegistry([other_pay(till.paid, **options), till.look], scope=scope)

    held = drive(log, ScriptedLLM(PAY_2), today)
    waiting = [call.name for call in log.state.pending.values() if not log.state.decision(call)]
    drive(log, ScriptedLLM("done"), today, reviewer=allowing(note="again"))

    assert isinstance(held, Hold)
    assert waiting == ["pay"], "whoever looks without the tools sees that it waits"
    assert till.paid == [5, 6]
    assert [d.note for d in of(ApprovalDecided, log.state.events)] == ["", "again"]
    assert check(log.state.events) == []


def test_a_standing_approval_of_an_old_record_is_held_against_what_it_was_given_for() -> None:
    """It was never written down what tool that was, but the fingerprint of the one call it was given for was."""
    till = Till()
    old = ApprovalDecided("p", True, fingerprint=till.tools.fingerprint(PAY.calls[0]), standing=True)
    begun = (
        QUESTION, PAY, ToolReturned("l", "saw a"), ApprovalRequested((ApprovalRequest("p", old.fingerprint),)), old,
        IntentRecorded(("p",), ("p",)), ToolReturned("p", "paid 5"), PAY_2,
    )  # fmt: skip

    same = drive(log_of(*begun), ScriptedLLM("done"), till.tools)
    other = drive(log_of(*begun), ScriptedLLM("done"), ToolRegistry([other_pay(till.paid, scope="x"), till.look]))

    assert isinstance(same, RunEnded)
    assert isinstance(other, Hold)
    assert till.paid == [6]


def test_a_call_that_is_no_longer_what_was_asked_about_is_asked_about_again() -> None:
    """An approval of what it was would only have been refused afterwards."""
    till, log = Till(), log_of()
    drive(log, ScriptedLLM(PAY), till.tools)
    today = ToolRegistry([other_pay(till.paid, scope="another account"), till.look])

    drive(log, ScriptedLLM(), today)
    asked = [request.fingerprint for event in of(ApprovalRequested, log.state.events) for request in event.requests]
    drive(log, ScriptedLLM("done"), today, reviewer=allowing())

    assert asked == [till.tools.fingerprint(PAY.calls[0]), today.fingerprint(PAY.calls[0])]
    assert till.paid == [5]
    assert check(log.state.events) == []


def test_a_standing_denial_covers_the_tool_too() -> None:
    till, log = Till(), log_of()

    async def reviewer(shown: PendingApproval) -> ApprovalDecided:
        return ApprovalDecided(shown.call.id, False, note="never", standing=True)

    script = ScriptedLLM(PAY, calls(("p2", "pay", '{"amount": 6}')), "done")
    drive(log, script, till.tools, reviewer=reviewer)

    assert till.paid == []
    assert [r.error for r in of(ToolReturned, log.state.events)] == [None, "denied", "denied"]


@pytest.mark.parametrize(
    ("decision", "why"),
    [
        (ApprovalDecided("p", True, fingerprint="of another call"), "not what was approved"),
        (ApprovalDecided("p", True, fingerprint="right", expires_at=1.0), "expired"),
    ],
)
def test_an_approval_that_does_not_fit_or_came_too_late_is_not_one(decision: ApprovalDecided, why: str) -> None:
    till = Till()
    fits = till.tools.fingerprint(PAY.calls[0])
    if decision.fingerprint == "right":
        decision = ApprovalDecided("p", True, fingerprint=fits, expires_at=1.0)
    log = log_of(QUESTION, PAY, ToolReturned("l", "saw a"), ApprovalRequested((ApprovalRequest("p", fits),)), decision)

    drive(log, ScriptedLLM("done"), till.tools)

    assert till.paid == []
    assert why in of(ToolReturned, log.state.events)[-1].content


def test_a_decision_made_elsewhere_while_the_person_thinks_is_the_one_that_counts() -> None:
    till, log = Till(), log_of()

    async def slow(shown: PendingApproval) -> ApprovalDecided:
        log.state.apply(ApprovalDecided(shown.call.id, False, by="bob", fingerprint=shown.fingerprint))
        return ApprovalDecided(shown.call.id, True)

    drive(log, ScriptedLLM(PAY, "done"), till.tools, reviewer=slow)

    assert [d.by for d in of(ApprovalDecided, log.state.events)] == ["bob"]
    assert till.paid == []


def test_a_reviewer_that_fails_or_never_answers_leaves_the_run_waiting() -> None:
    async def fails(_shown: PendingApproval) -> ApprovalDecided:
        raise OSError("the terminal is gone")

    async def never(_shown: PendingApproval) -> ApprovalDecided:
        await asyncio.Event().wait()
        raise AssertionError

    for reviewer in (fails, never):
        till = Till()
        held = drive(log_of(), ScriptedLLM(PAY), till.tools, reviewer=reviewer, limits=Limits(seconds=10))
        assert isinstance(held, Hold)
        assert till.paid == []


def test_a_cancel_while_the_person_is_asked_leaves_every_call_answered() -> None:
    till, log = Till(), log_of()

    async def interrupt(_shown: PendingApproval) -> ApprovalDecided:
        raise asyncio.CancelledError

    async def main() -> None:
        from tool_loop.agent import Driver

        asked = asyncio.Event()

        async def reviewer(_shown: PendingApproval) -> ApprovalDecided:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        task = asyncio.ensure_future(
            Driver(log, ScriptedLLM(PAY), till.tools, Limits(), lambda _: None, reviewer).drive()
        )
        await asked.wait()
        task.cancel()
        await asyncio.wait({task})

    run_virtual(main())

    assert not log.state.pending
    assert till.paid == []


def test_a_cancel_while_a_call_in_doubt_is_asked_about_never_says_that_it_did_not_happen() -> None:
    """Found by the simulation, seed 249: the model was told "cancelled: call it again" of a payment that was made."""
    till, log = Till(), log_of(QUESTION, calls(("s", "ship", '{"to": "a"}')), IntentRecorded(("s",)))

    async def main() -> None:
        from tool_loop.agent import Driver

        asked = asyncio.Event()

        async def reviewer(_shown: PendingApproval) -> ApprovalDecided:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        attempt = Driver(log, ScriptedLLM(), till.tools, Limits(), lambda _: None, reviewer)
        task = asyncio.ensure_future(attempt.drive())
        await asked.wait()
        task.cancel()
        await asyncio.wait({task})

    run_virtual(main())

    assert of(ToolReturned, log.state.events) == []
    assert log.state.doubtful == {"s"}, "the next attempt looks into it"


def test_a_denial_is_not_used_up_by_an_intent() -> None:
    """Found by the simulation, seed 7782: after a crash the denied call was in doubt again, and ran."""
    till, log = Till(), log_of()

    async def deny(shown: PendingApproval) -> ApprovalDecided:
        return ApprovalDecided(shown.call.id, False)

    drive(log, ScriptedLLM(calls(("p", "pay", '{"amount": 5}')), "done"), till.tools, reviewer=deny)

    assert of(IntentRecorded, log.state.events) == []


# --- in doubt: started, and the process died before the outcome was recorded ------------------------

SHIP = calls(("s1", "ship", '{"to": "a"}'), ("s2", "ship", '{"to": "bb"}'), ("l", "look"))
CRASHED = (QUESTION, SHIP, IntentRecorded(("s1", "s2")))


def test_the_call_that_may_have_run_is_reported_and_the_ones_behind_it_run() -> None:
    till, log = Till(), log_of(*CRASHED)

    drive(log, ScriptedLLM("done"), till.tools)

    assert {r.call_id: r.error for r in of(ToolReturned, log.state.events)} == {
        "s1": "outcome_unknown",
        "s2": None,
        "l": None,
    }
    assert till.paid == [2]


def test_a_call_with_an_outcome_on_record_is_not_in_doubt_the_next_one_is() -> None:
    till, log = Till(), log_of(*CRASHED, ToolReturned("s1", "shipped"))

    drive(log, ScriptedLLM("done"), till.tools)

    assert {r.call_id: r.error for r in of(ToolReturned, log.state.events)} == {
        "s1": None,
        "s2": "outcome_unknown",
        "l": None,
    }
    assert till.paid == []


def test_a_second_crash_while_resuming_does_not_change_what_is_in_doubt() -> None:
    till, log = Till(), log_of(*CRASHED, RunResumed())

    drive(log, ScriptedLLM("done"), till.tools)

    assert {r.call_id: r.error for r in of(ToolReturned, log.state.events)}["s1"] == "outcome_unknown"
    assert till.paid == [2]


@pytest.mark.parametrize(
    ("answer", "error", "ran"),
    [("it was shipped", None, []), (False, None, [1]), (NotRun(), None, [1]), (None, "outcome_unknown", [])],
)
def test_a_probe_tells_what_became_of_it(answer: object, error: str | None, ran: list[int]) -> None:
    till = Till()
    keys: list[str] = []

    @till.ship.probe
    async def was_it(to: str) -> object:
        keys.append(to)
        return answer

    log = log_of(QUESTION, calls(("s", "ship", '{"to": "a"}')), IntentRecorded(("s",)))
    drive(log, ScriptedLLM("done"), till.tools)

    assert keys == ["a"]
    assert [r.error for r in of(ToolReturned, log.state.events)] == [error]
    assert till.paid == ran


@pytest.mark.parametrize(("allowed", "ran"), [(True, [1]), (False, [])])
def test_a_person_who_is_there_decides_about_a_call_in_doubt(allowed: bool, ran: list[int]) -> None:
    till = Till()
    seen: list[str] = []

    async def reviewer(shown: PendingApproval) -> ApprovalDecided:
        seen.append(shown.why)
        return ApprovalDecided(shown.call.id, allowed, note="I looked: it arrived")

    log = log_of(QUESTION, calls(("s", "ship", '{"to": "a"}')), IntentRecorded(("s",)))
    drive(log, ScriptedLLM("done"), till.tools, reviewer=reviewer)

    assert seen == ["in_doubt"]
    assert till.paid == ran
    result = of(ToolReturned, log.state.events)[0]
    assert result.error == (None if allowed else "outcome_unknown")
    assert allowed or "I looked" in result.content


def test_a_gated_call_in_doubt_needs_a_new_approval_its_old_one_is_used_up() -> None:
    till = Till()
    fits = till.tools.fingerprint(PAY.calls[0])
    log = log_of(
        QUESTION,
        calls(("p", "pay", '{"amount": 5}')),
        ApprovalRequested((ApprovalRequest("p", fits),)),
        ApprovalDecided("p", True, fingerprint=fits),
        IntentRecorded(("p",), ("p",)),
    )

    held = drive(log, ScriptedLLM(), till.tools)

    assert isinstance(held, Hold)
    assert till.paid == []
    assert [r.why for e in of(ApprovalRequested, log.state.events) for r in e.requests] == ["policy", "in_doubt"]


def test_an_edited_call_in_doubt_is_probed_and_asked_about_as_it_may_have_run() -> None:
    """Found by the simulation, seed 708: after the crash the call ran with the arguments a person had replaced."""
    till, seen = Till(), []

    @till.ship.probe
    async def was_it(to: str) -> object:
        seen.append(to)
        return False

    first, edited = ToolCall("s", "ship", '{"to": "a"}'), ToolCall("s", "ship", '{"to": "bb"}')
    asked, fits = till.tools.fingerprint(first), till.tools.fingerprint(edited)
    log = log_of(
        QUESTION,
        calls(("s", "ship", '{"to": "a"}')),
        ApprovalRequested((ApprovalRequest("s", asked),)),
        ApprovalDecided("s", True, fingerprint=fits, arguments='{"to": "bb"}'),
        IntentRecorded(("s",), ("s",)),
    )

    async def reviewer(shown: PendingApproval) -> ApprovalDecided:
        seen.append(shown.call.arguments)
        return ApprovalDecided("s", True)

    drive(log, ScriptedLLM("done"), till.tools, reviewer=reviewer)

    assert seen == ["bb", '{"to": "bb"}']
    assert till.paid == [2]
    assert of(ToolReturned, log.state.events)[0].arguments == '{"to": "bb"}'


def test_reading_calls_without_an_outcome_simply_run_again_with_the_same_key() -> None:
    keys: list[str] = []

    from tool_loop import ToolContext

    @tool(effect="idempotent")
    async def put(context: ToolContext) -> str:
        """Put."""
        keys.append(context.idempotency_key)
        return "ok"

    tools = ToolRegistry([put])
    drive(log_of(QUESTION, calls(("a", "put"))), ScriptedLLM("done"), tools)
    drive(log_of(QUESTION, calls(("a", "put")), RunResumed()), ScriptedLLM("done"), tools)
    drive(log_of(QUESTION, calls(("a", "put"), ("b", "put"))), ScriptedLLM("done"), tools)

    assert keys[0] == keys[1] == keys[2] != keys[3]
    assert keys[0].startswith("run-0-")


def test_a_call_that_never_could_run_is_not_in_doubt() -> None:
    till = Till()
    log = log_of(QUESTION, calls(("s", "no_such_tool")), IntentRecorded(("s",)))

    drive(log, ScriptedLLM("done"), till.tools)

    assert [r.error for r in of(ToolReturned, log.state.events)] == ["unknown_tool"]
    assert of(ModelReplied, log.state.events)[-1].text == "done"
