"""Why a reply ended: what says that it failed, was filtered, or is unknown, in every dialect."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.kit.dialects import ALL, Dialect, Said, ask, json_reply
from tool_loop import Agent, tool
from tool_loop.errors import ProviderError
from tool_loop.events import ModelReplied
from tool_loop.llm.stops import ending
from tool_loop.result import Result

TALKED = Said("Let me look at that file.")
PAYS = Said("", (("a", "pay", '{"n": 5}'),))

# Bedrock (malformed_tool_use, malformed_model_output, guardrail_intervened), Gemini as gateways spell
# it, and what gateways put in front. UKGovernmentBEIS/inspect_ai#2941, mozilla-ai/any-llm#1202.
FAILED = (
    "malformed_function_call", "MALFORMED_FUNCTION_CALL", "malformed_tool_use", "malformed_model_output",
    "unexpected_tool_call", "UNEXPECTED_TOOL_CALL", "too_many_tool_calls", "malformed_response",
    "missing_thought_signature",
    "function_call_filter: MALFORMED_FUNCTION_CALL", "model_error", "ERROR", "network_error", "aborted", "USER_CANCEL",
    "insufficient_system_resource", "timeout", "NO_IMAGE",
)  # fmt: skip
FILTERED = (
    "guardrail_intervened", "content_filtered", "content-filter", "IMAGE_SAFETY", "image_prohibited_content",
    "ERROR_TOXIC", "SPII", "BLOCKLIST", "RECITATION", "image_recitation", "MODEL_ARMOR", "LANGUAGE", "sensitive",
)  # fmt: skip
CUT = (
    "MAX_TOKENS", "maxTokens", "length", "model_length", "model_context_window_exceeded", "time_limit", "ERROR_LIMIT",
)  # fmt: skip
UNKNOWN = ("repetition", "other", "IMAGE_OTHER", "unknown", "load_shed")
DONE = (
    "", "stop", "eos", "eos_token", "stop_sequence", "STOP", "COMPLETE", "end_turn", "endTurn", "tool_use",
    "tool-calls", "function_call", "stop_str", "FINISH_REASON_UNSPECIFIED", "null",
)  # fmt: skip


@pytest.mark.parametrize(
    ("reasons", "stop", "known"),
    [
        (FAILED, "failed", True),
        (FILTERED, "content_filter", True),
        (CUT, "length", True),
        (UNKNOWN, "stop", False),
        (DONE, "stop", True),
        (("refusal", "REFUSED"), "refusal", True),
        (("pause", "pause_turn", "compaction"), "pause", True),
    ],
)
def test_a_reason_of_ending_is_judged_by_its_words(reasons: tuple[str, ...], stop: str, known: bool) -> None:
    assert {reason: ending(reason)[:2] for reason in reasons} == dict.fromkeys(reasons, (stop, known))


def test_the_words_of_every_reason_are_only_looked_at_in_its_beginning() -> None:
    assert ending("stop" + " " * 1_000_000 + "error").stop == "stop"


# --- in every dialect -----------------------------------------------------------------------------


def ended(dialect: Dialect, said: Said, reason: str) -> Any:
    """A whole reply that ends for this reason, in the place where the dialect says so."""
    body = dialect.whole(said)
    match dialect.name:
        case "chat":
            body["choices"][0]["finish_reason"] = reason
        case "messages":
            body["stop_reason"] = reason
        case _:
            body |= {"status": "incomplete", "incomplete_details": {"reason": reason}}
    return json_reply(body)


def run(dialect: Dialect, *replies: Any) -> tuple[Result, list[int], int]:
    """A run with a tool that must not run twice: what came of it, what was paid, how often was asked."""
    paid: list[int] = []

    @tool(effect="once")
    def pay(n: int) -> str:
        """Pay."""
        paid.append(n)
        return "paid"

    server = dialect.llm(*replies)
    result = asyncio.run(Agent(server.llm, [pay], retry=None).run("go"))
    return result, paid, len(server.got)


def last(result: Result) -> ModelReplied:
    return [e for e in result.events if isinstance(e, ModelReplied)][-1]


by_dialect = pytest.mark.parametrize("dialect", ALL, ids=lambda d: d.name)


@by_dialect
@pytest.mark.parametrize("reason", ["malformed_tool_use", "unexpected_tool_call", "model_error"])
@pytest.mark.parametrize("said", [TALKED, PAYS], ids=["text", "call"])
def test_a_turn_that_failed_is_no_reply_and_is_asked_again(dialect: Dialect, reason: str, said: Said) -> None:
    server = dialect.llm(ended(dialect, said, reason))

    with pytest.raises(ProviderError) as caught:
        asyncio.run(server.llm.reply(ask(), lambda _: None))

    assert caught.value.kind == "model_output"
    assert caught.value.retryable
    assert reason in caught.value.message


@by_dialect
def test_a_guardrail_is_told_as_a_filter(dialect: Dialect) -> None:
    result, _, asked = run(dialect, ended(dialect, TALKED, "guardrail_intervened"))

    assert last(result).stop == "content_filter"
    assert "the provider ended the answer: content_filter" in result.warnings
    assert asked == 1


@by_dialect
def test_an_answer_that_ended_for_an_unknown_reason_is_kept_with_a_warning(dialect: Dialect) -> None:
    result, _, asked = run(dialect, ended(dialect, TALKED, "repetition"))

    assert result.answer == TALKED.text
    assert any("repetition" in warning for warning in result.warnings)
    assert asked == 1


@by_dialect
@pytest.mark.parametrize("reason", ["guardrail_intervened", "repetition", "refusal", "max_tokens"])
def test_no_call_runs_beside_a_reason_that_is_not_a_good_one(dialect: Dialect, reason: str) -> None:
    answer = json_reply(dialect.whole(TALKED))

    _, paid, _ = run(dialect, ended(dialect, PAYS, reason), answer, answer)

    assert paid == []


@by_dialect
def test_a_call_beside_a_good_reason_runs(dialect: Dialect) -> None:
    result, paid, _ = run(dialect, json_reply(dialect.whole(PAYS)), json_reply(dialect.whole(TALKED)))

    assert paid == [5]
    assert result.answer == TALKED.text


def test_a_model_is_told_why_its_calls_did_not_run() -> None:
    chat = ALL[0]

    result, _, _ = run(chat, ended(chat, PAYS, "repetition"), json_reply(chat.whole(TALKED)))

    assert "repetition" in result.failures[0].content
    assert result.failures[0].error == "cut_off"


def test_a_response_of_an_unknown_status_is_kept_with_a_warning() -> None:
    responses = ALL[1]

    result, _, _ = run(responses, json_reply(responses.whole(TALKED) | {"status": "brand_new"}))

    assert result.answer == TALKED.text
    assert any("brand_new" in warning for warning in result.warnings)
