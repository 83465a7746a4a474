"""Patience: how long it waits, when it stops, and what it says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.runs import drive, log_of
from tool_loop.errors import ConfigurationError, ProviderError
from tool_loop.events import (
    ModelReplied,
    Notice,
    ReasoningDelta,
    Restarted,
    Retry,
    RetryWaiting,
    RunEnded,
    RunStarted,
    TextDelta,
)
from tool_loop.limits import Limits
from tool_loop.llm.retry import Retrying, RetryPolicy
from tool_loop.llm.scripted import ScriptedLLM, Turn
from tool_loop.ports import Request
from tool_loop.state import State
from tool_loop.testing import FaultServer, ok_chat, run_virtual
from tool_loop.testing.faults.wire import refused
from tool_loop.testing.server.refusals import rate_limit, unavailable
from tool_loop.toolbox.registry import ToolRegistry
from tool_loop.transcript import Transcript, UserMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tool_loop.errors import ProviderKind
    from tool_loop.events import Event, Signal


def failure(kind: ProviderKind = "overloaded", **details: Any) -> ProviderError:
    details.setdefault("status", {"overloaded": 503, "rate_limit": 429, "server_error": 500}.get(kind))
    return ProviderError(f"{kind} happened", kind=kind, **details)


class Outcome:
    """What came of one request in virtual time: a reply or an error, the signals, the seconds."""

    def __init__(
        self,
        turns: Sequence[Any],
        policy: RetryPolicy | None = None,
        *,
        luck: Callable[[], float] = lambda: 1.0,
        left: float | None = None,
        allowance: int | None = None,
        pace: float | None = None,
    ) -> None:
        self.said: list[Event | Signal] = []
        self.reply: ModelReplied | None = None
        self.error: ProviderError | None = None
        self.llm = ScriptedLLM(*turns)

        async def main() -> None:
            loop = asyncio.get_running_loop()
            deadline = None if left is None else loop.time() + left
            transcript = Transcript("", [UserMessage("q")])
            request = Request(transcript, deadline=deadline, allowance=allowance, key="k", pace=pace)
            try:
                self.reply = await Retrying(self.llm, policy or RetryPolicy(), random=luck).reply(
                    request, self.said.append
                )
            except ProviderError as error:
                self.error = error
            self.took = loop.time()

        run_virtual(main())

    @property
    def waits(self) -> list[float]:
        return [said.seconds for said in self.said if isinstance(said, RetryWaiting)]


# --- how long ---------------------------------------------------------------------------------------


def test_the_ceiling_of_the_wait_doubles_up_to_the_longest() -> None:
    outcome = Outcome([failure()] * 9 + ["ok"], RetryPolicy(first_wait=0.5, longest_wait=20))

    assert outcome.waits == [0.5, 1, 2, 4, 8, 16, 20, 20, 20]
    assert outcome.took == sum(outcome.waits)


def test_the_wait_is_anything_below_the_ceiling() -> None:
    luck = iter([0.0, 0.25, 1.0])

    assert Outcome([failure()] * 3 + ["ok"], luck=lambda: next(luck)).waits == [0.0, 0.25, 2.0]


@pytest.mark.parametrize("lucky", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("asked", [0.7, 3.0, 30.0])
def test_the_wait_is_never_shorter_than_asked_and_little_longer(asked: float, lucky: float) -> None:
    (wait,) = Outcome([failure("rate_limit", retry_after=asked), "ok"], luck=lambda: lucky).waits

    assert asked <= wait <= asked + 1


def test_a_wait_of_nothing_still_grows_when_it_does_not_help() -> None:
    assert Outcome([failure("rate_limit", retry_after=0.0)] * 4 + ["ok"]).waits == [0.5, 1, 2, 4]


def test_the_reply_tells_what_it_took() -> None:
    outcome = Outcome([failure(tokens=7), failure("rate_limit", retry_after=2.0), "ok"], luck=lambda: 0.0)

    assert outcome.reply is not None
    assert outcome.reply.retries == (
        Retry("overloaded", "overloaded happened", 0.0, 503, 7),
        Retry("rate_limit", "rate_limit happened", 2.0, 429),
    )
    assert outcome.reply.seconds == pytest.approx(2.0)


def test_the_time_to_the_first_text_counts_the_waits_and_no_text_that_was_taken_back() -> None:
    cut = Turn("", pieces=("Hel",), seconds=1.0, then_raise=failure("protocol", status=200))
    outcome = Outcome([cut, Turn("Hello", pieces=("Hel", "lo"), seconds=1.0)])

    assert outcome.reply is not None
    assert outcome.reply.seconds == pytest.approx(2.5)
    assert outcome.reply.first_token == pytest.approx(1.5)
    assert Outcome([ModelReplied("", reasoning="hm", stop="length")]).reply.first_token is None  # type: ignore[union-attr]


# --- what is seen -----------------------------------------------------------------------------------


def test_each_wait_is_announced_with_its_reason_and_the_number_of_the_attempt() -> None:
    outcome = Outcome([failure("rate_limit", retry_after=4.0), failure(), "ok"], luck=lambda: 0.0)

    assert outcome.said == [
        RetryWaiting("rate_limit", "rate_limit happened", 4.0, 2, 429),
        RetryWaiting("overloaded", "overloaded happened", 0.0, 3, 503),
        TextDelta("ok"),
    ]


@pytest.mark.parametrize(
    "turn",
    [
        Turn("", pieces=("Hel", "lo"), then_raise=failure("protocol", status=200)),
        Turn(ModelReplied("", reasoning="hm"), then_raise=failure("protocol", status=200)),
    ],
    ids=["text", "reasoning"],
)
def test_viewers_are_told_to_forget_what_a_failed_attempt_showed(turn: Turn) -> None:
    said = Outcome([turn, "Hello"]).said

    at = said.index(Restarted("protocol"))
    assert all(isinstance(one, TextDelta | ReasoningDelta) for one in said[:at])
    assert isinstance(said[at + 1], RetryWaiting)
    assert said[at + 2 :] == [TextDelta("Hello")]


def test_viewers_are_told_so_too_when_it_gives_up() -> None:
    outcome = Outcome([Turn("", pieces=("Hel",), then_raise=failure("content_filter", status=200))])

    assert outcome.said == [TextDelta("Hel"), Restarted("content_filter")]
    assert outcome.error is not None


def test_signals_that_are_no_text_pass_through() -> None:
    class Chatty:
        async def reply(self, request: Request, emit: Callable[[Event | Signal], None]) -> ModelReplied:
            emit(Notice("a setting was left out"))
            return ModelReplied("ok")

    said: list[Event | Signal] = []
    run_virtual(Retrying(Chatty()).reply(Request(Transcript("", [UserMessage("q")])), said.append))
    assert said == [Notice("a setting was left out")]


def test_an_attempt_that_showed_nothing_leaves_nothing_to_forget() -> None:
    assert not any(isinstance(one, Restarted) for one in Outcome([failure(), "ok"]).said)


# --- when it stops ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["auth", "not_found", "bad_request", "quota", "context_length", "content_filter"])
def test_what_no_waiting_cures_is_raised_at_once_and_unchanged(kind: ProviderKind) -> None:
    error = failure(kind)
    outcome = Outcome([error])

    assert outcome.error is error
    assert str(error) == f"{kind} happened"
    assert outcome.took == 0


def test_a_failure_that_ends_a_row_of_others_says_how_many_there_were() -> None:
    outcome = Outcome([failure(tokens=5), failure("auth", tokens=1)])

    assert str(outcome.error) == "auth happened. Gave up after 2 attempts in 0.5 s."
    assert outcome.error is not None
    assert outcome.error.tokens == 6


def test_a_wrong_setting_is_none_of_its_business() -> None:
    with pytest.raises(ConfigurationError, match="no model"):
        Outcome([ConfigurationError("no model")])


def test_attempts_have_an_end() -> None:
    outcome = Outcome([failure("connection")] * 4, RetryPolicy(attempts=4))

    assert str(outcome.error) == "connection happened. Gave up after 4 attempts in 3.5 s: no attempt is left."


def test_a_wait_longer_than_there_is_for_one_is_reported_with_the_figure() -> None:
    outcome = Outcome([failure("rate_limit", retry_after=3600.0)])

    assert outcome.took == 0
    assert "it asks to wait 3600 s, more than the 300 s there are for one wait" in str(outcome.error)
    assert outcome.error is not None
    assert outcome.error.retry_after == 3600


def test_all_waits_together_have_an_end() -> None:
    outcome = Outcome([failure("rate_limit", retry_after=40.0)] * 9, RetryPolicy(patience=100), luck=lambda: 0.0)

    assert outcome.took == 80
    assert "it has waited 80 s, and another 40 s are more than there are" in str(outcome.error)


def test_a_wait_that_ends_too_late_for_the_run_is_not_begun() -> None:
    outcome = Outcome([failure("rate_limit", retry_after=50.0)], left=40, luck=lambda: 0.0)

    assert outcome.took == 0
    assert "the next attempt is 50.0 s away, and the run has 35.0 s left for waiting" in str(outcome.error)


def test_tokens_that_failed_attempts_used_up_are_not_spent_again() -> None:
    outcome = Outcome([failure("protocol", status=502, tokens=600)] * 3, allowance=1000)

    assert len(outcome.llm.requests) == 2
    assert "the failed attempts have used 1,200 tokens, all the run may spend" in str(outcome.error)


def test_failures_that_cost_nothing_do_not_use_up_an_allowance_of_nothing() -> None:
    assert Outcome([failure(), "ok"], allowance=0).reply is not None


@pytest.mark.parametrize("lucky", [0.1, 0.5, 0.9])
def test_an_outage_of_a_minute_is_sat_out_when_the_run_has_the_time(lucky: float) -> None:
    def down_for_a_minute(_: Request) -> str:
        if asyncio.get_running_loop().time() < 60:
            raise failure("connection")
        return "back"

    outcome = Outcome([down_for_a_minute] * 100, RetryPolicy(attempts=100), luck=lambda: lucky, left=120)
    assert outcome.reply is not None
    assert 60 <= outcome.took < 90


def test_with_five_seconds_left_it_is_asked_again_while_a_third_is_left_for_the_reply() -> None:
    outcome = Outcome([failure("connection")] * 30, left=5)

    assert outcome.waits == [0.5, 1.0, 2.0]
    assert "the next attempt is 4.0 s away, and the run has 1.0 s left for waiting" in str(outcome.error)


@pytest.mark.parametrize("lucky", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("left", "asked"), [(10.0, 2.0), (7.5, 2.0), (5.0, 2.0), (3.75, 2.0), (5.0, 3.3)])
def test_a_wait_and_a_reply_that_fit_are_given_their_chance(left: float, asked: float, lucky: float) -> None:
    outcome = Outcome([failure("rate_limit", retry_after=asked), "ok"], left=left, luck=lambda: lucky)

    assert outcome.reply is not None
    assert asked <= outcome.took < left


def test_what_is_kept_for_the_reply_follows_from_how_long_replies_took_in_this_run() -> None:
    def asked_to_wait(seconds: float, pace: float) -> bool:
        return Outcome([failure("rate_limit", retry_after=seconds), "ok"], left=10, pace=pace).reply is not None

    assert asked_to_wait(9.5, pace=0.4)
    assert not asked_to_wait(9.5, pace=0.6)
    assert asked_to_wait(1.5, pace=8.0)
    assert not asked_to_wait(2.5, pace=8.0)


def test_the_pace_of_a_run_is_on_record_and_has_no_waits_in_it() -> None:
    fast = ModelReplied("", seconds=2.0)
    late = ModelReplied("", seconds=9.0, retries=(Retry("rate_limit", "", 5.0),))

    assert State.of([RunStarted("q")]).pace is None
    assert State.of([RunStarted("q"), fast]).pace == 2.0
    assert State.of([RunStarted("q"), fast, late]).pace == 3.0
    assert State.of([RunStarted("q"), ModelReplied("")]).pace is None


@pytest.mark.parametrize("seconds", [5.0, 10.0])
def test_a_run_with_little_time_waits_when_it_is_asked_to(seconds: float) -> None:
    llm = Retrying(ScriptedLLM(failure("rate_limit", retry_after=2.0), "Done."), random=lambda: 1.0)

    end = drive(log_of(), llm, ToolRegistry([]), limits=Limits(seconds=seconds))

    assert isinstance(end, RunEnded)
    assert end.answer == "Done."


def test_with_half_a_minute_left_most_of_it_is_used() -> None:
    outcome = Outcome([failure("connection")] * 30, left=30)

    assert outcome.error is not None
    assert 10 < outcome.took <= 25


# --- failures that look as if they would pass -------------------------------------------------------


def test_an_instant_and_identical_500_is_asked_three_times() -> None:
    outcome = Outcome([failure("server_error", raw="Failed to parse tools")] * 9)

    assert len(outcome.llm.requests) == 3
    assert "the same answer came 3 times at once, so asking again will not help" in str(outcome.error)


@pytest.mark.parametrize(
    "turns",
    [
        [failure("server_error", raw=str(n)) for n in range(6)],
        [failure("overloaded", raw="same")] * 6,
        [failure("server_error", status=502, raw="same")] * 6,
        [failure("connection", raw="same")] * 6,
        [Turn(then_raise=failure("server_error", raw="same"), seconds=2.0)] * 6,
        [failure("protocol", status=200)] * 6,
        [failure("server_error", raw="a"), failure("server_error", raw="a"), failure("connection")] * 2,
    ],
    ids=["other words", "overloaded", "gateway", "refused", "after work", "cut streams", "interrupted"],
)
def test_failures_that_may_pass_are_asked_more_often(turns: list[Any]) -> None:
    assert Outcome([*turns, "ok"]).reply is not None


@pytest.mark.parametrize("kind", ["empty", "model_output"])
def test_replies_that_are_paid_for_and_of_no_use_are_asked_for_three_times(kind: ProviderKind) -> None:
    turns = [Turn(then_raise=failure(kind, status=200, raw=str(n)), seconds=2.0) for n in range(9)]
    outcome = Outcome(turns)

    assert len(outcome.llm.requests) == 3
    assert "3 replies were made and could not be used" in str(outcome.error)


# --- over a real socket -----------------------------------------------------------------------------


def test_all_attempts_carry_one_key_and_one_body() -> None:
    from tool_loop.llm.chat.model import OpenAIChat

    async def main() -> list[tuple[str | None, bytes]]:
        async with FaultServer([unavailable(), rate_limit(1), ok_chat("ok")]) as server:
            llm = Retrying(OpenAIChat("m", f"{server.url}/v1", "k"))
            await llm.reply(Request(Transcript("", [UserMessage("q")]), key="run-1:step-4"), lambda _: None)
            server.assert_done()
            return [(request.header("idempotency-key"), request.body) for request in server.requests]

    sent = run_virtual(main())
    assert len(sent) == 3
    assert set(sent) == {("run-1:step-4", sent[0][1])}


def test_a_server_that_comes_back_is_used_as_if_nothing_had_been() -> None:
    from tool_loop.llm.chat.model import OpenAIChat

    async def main() -> str:
        async with FaultServer([refused(60), ok_chat("back")]) as server:
            llm = Retrying(OpenAIChat("m", f"{server.url}/v1", "k"))
            deadline = asyncio.get_running_loop().time() + 300
            request = Request(Transcript("", [UserMessage("q")]), deadline=deadline)
            return (await llm.reply(request, lambda _: None)).text

    assert run_virtual(main()) == "back"


def test_a_cancel_while_waiting_ends_the_wait() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        llm = Retrying(ScriptedLLM(failure("rate_limit", retry_after=50.0), "ok"))
        task = asyncio.create_task(llm.reply(Request(Transcript("", [UserMessage("q")])), lambda _: None))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return loop.time()

    assert run_virtual(main()) == pytest.approx(1.0)
