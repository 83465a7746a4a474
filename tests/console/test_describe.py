from __future__ import annotations

import json

import pytest

from tool_loop.console.describe import call_line, compaction_line, decision_line, full, outcome_line, retry_line
from tool_loop.console.tally import Tally, dollars, duration, ordinal, plural, short
from tool_loop.events import (
    ApprovalDecided,
    ApprovalRequest,
    ApprovalRequested,
    Compacted,
    Event,
    Example,
    IntentRecorded,
    LimitReached,
    ModelReplied,
    Reminded,
    Retry,
    RetryWaiting,
    RunContinued,
    RunEnded,
    RunInterrupted,
    RunResumed,
    RunStarted,
    ToolCall,
    ToolReturned,
    Usage,
)


def call(name: str = "grep", arguments: object = None, call_id: str = "1") -> ToolCall:
    return ToolCall(call_id, name, arguments if isinstance(arguments, str) else json.dumps(arguments or {}))


# --- one line ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({}, "grep"),
        ({"pattern": "class ToolError"}, 'grep "class ToolError"'),
        ({"pattern": r"def next_move\("}, r'grep "def next_move\("'),
        ({"path": "src/x"}, "grep src/x"),
        ({"pattern": "x", "path": "src", "context": 2}, "grep x path=src context=2"),
        ({"pattern": "x", "glob": None, "ignore_case": False, "deep": True}, "grep x deep=true"),
        ({"items": [1, {"a": "b"}]}, 'grep [1, {"a": "b"}]'),
        ({"empty": ""}, 'grep ""'),
        ("not json", "grep not json"),
        ('"text"', 'grep "text"'),
        ("", "grep"),
        ("[" * 100_000, "grep " + "[" * 59 + "…"),
    ],
)
def test_a_call_on_one_line(arguments: object, line: str) -> None:
    assert call_line(call(arguments=arguments)) == line


def test_a_call_is_short_whatever_its_arguments() -> None:
    line = call_line(call(arguments={str(n): "long " * 1000 for n in range(1000)}))

    assert len(line) <= 300


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("grep", "1 match in 1 file (ripgrep)\nagent.py:50: def next_move", "1 match in agent.py:50"),
        ("grep", "2 matches in 1 file (ripgrep)\na.py:50: x\na.py:51: x", "2 matches in a.py"),
        ("grep", "1 match in 1 file (ripgrep)\na-b.py-49- y\na-b.py:50: x", "1 match in a-b.py"),
        ("grep", "2 matches in 2 files (ripgrep)\na.py:50: x\nb.py:51: x", "2 matches in 2 files (ripgrep)"),
        ("grep", "no matches (ripgrep)", "no matches (ripgrep)"),
        ("read_file", "lines 1-2 of 2\na\nb", "lines 1-2 of 2"),
        ("weather", "sunny", "sunny"),
        ("weather", "sunny\nwarm\n", "sunny (2 lines)"),
        ("weather", "", "nothing"),
    ],
)
def test_an_outcome_on_one_line(name: str, content: str, line: str) -> None:
    assert outcome_line(ToolReturned("1", content), call(name)) == line


def test_a_failure_says_its_kind_what_it_was_and_the_hint_and_no_path_twice() -> None:
    content = json.dumps({"error": "not_found", "message": "no such file: src/x", "hint": "did you mean lib/x?"})
    result = ToolReturned("1", content, "not_found")

    assert (
        outcome_line(result, call("read_file", {"start_line": 3, "path": "src/x"}))
        == "not_found: no such file (did you mean lib/x?)"
    )
    assert outcome_line(result) == "not_found: no such file: src/x (did you mean lib/x?)"


@pytest.mark.parametrize("content", ["not json", "[]", '{"message": 3}'])
def test_a_failure_of_any_shape_has_its_kind(content: str) -> None:
    assert outcome_line(ToolReturned("1", content, "odd")) == "odd"


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("429 from api.example.com: slow down", "429 from api.example.com, retrying in 3.0 s (2nd attempt): slow down"),
        ("connection refused", "connection refused, retrying in 3.0 s (2nd attempt)"),
        ("", "rate_limit, retrying in 3.0 s (2nd attempt)"),
        ("x" * 70 + ": y", "rate_limit, retrying in 3.0 s (2nd attempt): " + "x" * 70 + ": y"),
        ("x" * 70, "rate_limit, retrying in 3.0 s (2nd attempt): " + "x" * 70),
    ],
)
def test_a_wait_is_named_before_the_servers_words(message: str, line: str) -> None:
    assert retry_line(RetryWaiting("rate_limit", message, 3.0, 2, 429)) == line


def test_a_wait_is_counted_down() -> None:
    assert "retrying in 1.2 s" in retry_line(RetryWaiting("rate_limit", "429", 3.0, 2), 1.2)


@pytest.mark.parametrize(
    ("decision", "line"),
    [
        (ApprovalDecided("1", allowed=True), "allowed"),
        (ApprovalDecided("1", allowed=True, by="ada", standing=True), "allowed by ada for the rest of the run"),
        (ApprovalDecided("1", allowed=True, arguments="{}"), "allowed, with edited arguments"),
        (ApprovalDecided("1", allowed=False, by="ada", note="too much"), 'denied by ada: "too much"'),
    ],
)
def test_a_decision_on_one_line(decision: ApprovalDecided, line: str) -> None:
    assert decision_line(decision) == line


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Compacted(("1", "2")), "context shortened: 2 old results removed"),
        (Compacted((), "summary"), "context shortened: what came before is now a summary"),
        (Compacted(), "context shortened: nothing to remove"),
    ],
)
def test_a_compaction_on_one_line(event: Compacted, line: str) -> None:
    assert compaction_line(event) == line


# --- in full ----------------------------------------------------------------------------------------

ASKED = {"1": call("grep", {"pattern": "x"})}


def text_of(event: Event) -> str:
    return "\n".join(f"[{s.heading}] {s.body}".rstrip() for s in full(event, ASKED, 3))


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            RunStarted("why?", "be brief", (Example("q", "grep", "{}", "r", "a"),)),
            "[system] be brief\n[worked example] q\n-> grep {}\nr\na\n[question] why?",
        ),
        (RunStarted("why?"), "[question] why?"),
        (RunContinued("and?"), "[question] and?"),
        (
            ModelReplied("look", (ASKED["1"],), usage=Usage(1200, 30, 800), model="m", seconds=2.0),
            '[step 3, m, 1,200 in (800 cached), 30 out, 2.0 s] look\n-> grep {"pattern": "x"}',
        ),
        (
            ModelReplied("", retries=(Retry("timeout", "", 2.0),), reasoning="hm", dropped_calls=1),
            "[retried: timeout, waited 2.0 s]\n[reasoning] hm\n[step 3] (1 call dropped: tools were withheld)",
        ),
        (ToolReturned("1", "found"), "[result of grep] found"),
        (
            ToolReturned("1", "x", "odd", 2.0, 2, arguments="{}"),
            "[result of grep, odd, 2.0 s, the same as before] (ran with edited arguments: {})\nx",
        ),
        (ToolReturned("9", "x"), "[result of 9] x"),
        (Reminded("use tools"), "[reminder to the model] use tools"),
        (ApprovalRequested((ApprovalRequest("1", "f"),)), "[waiting for an approval] grep"),
        (ApprovalDecided("1", allowed=True, arguments="{}"), "[grep allowed, with edited arguments] {}"),
        (Compacted((), "so far"), "[context shortened: what came before is now a summary] so far"),
        (LimitReached("step limit"), "[stopping: step limit]"),
        (RunResumed(), "[resumed]"),
        (RunResumed("host"), "[resumed by host]"),
        (RunInterrupted("auth", "401"), "[interrupted: auth] 401"),
        (RunEnded("answered", "42"), "[end: answered]"),
        (RunEnded("deadline", "so far", "journal"), "[end: deadline; put together from the journal] so far"),
        (IntentRecorded(("1",)), ""),
    ],
)  # fmt: skip
def test_every_event_in_full(event: Event, text: str) -> None:
    assert text_of(event) == text


# --- figures ----------------------------------------------------------------------------------------


def test_a_run_in_figures() -> None:
    events = [
        RunStarted("q"),
        ModelReplied("", (call(),), usage=Usage(1000, 20, 800), cost=0.001, retries=(Retry("timeout", "", 1.0),)),
        ToolReturned("1", "x", "not_found"),
        ModelReplied("42", usage=Usage(2000, 30), cost=0.002),
        RunEnded("answered", "42"),
    ]

    assert Tally.of(events).line(12.34) == (
        "2 steps, 1 call, 1 failure recovered, 1 retry, 3,000 tokens in (800 cached), 50 out, $0.0030, 12.3 s"
    )


def test_what_is_not_known_is_not_said() -> None:
    tally = Tally.of([ModelReplied("x"), ModelReplied("y", cost=0.1), RunEnded("step limit", "y")])

    assert tally.line() == "2 steps, 0 calls"
    assert Tally.of([ModelReplied("x", usage=Usage(None, 5))]).line() == "1 step, 0 calls, 5 tokens out"


def test_a_failure_without_an_answer_was_not_recovered_from_and_a_refusal_is_none() -> None:
    events = [
        ModelReplied("", (call(), call(call_id="2"), call(call_id="3"))),
        ToolReturned("1", "x", "denied"),
        ToolReturned("2", "x", "tool_crashed"),
        ToolReturned("3", "x", "cancelled"),
        LimitReached("step limit"),
        RunEnded("step limit", "x"),
    ]

    assert Tally.of(events).line() == "1 step, 3 calls, 1 failure"


def test_a_summary_costs_and_a_follow_up_counts_from_there() -> None:
    tally = Tally.of([ModelReplied("x", usage=Usage(10, 1), cost=1.0), Compacted((), "s", 0, Usage(5, 5), 0.5)])

    tally.add(Compacted(("1",)))
    tally.add(RunContinued("more"))

    assert tally.before == (1, 21, 1.5)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (12.34, "12.3 s"), (59.96, "1 min"), (125, "2 min 05 s"), (600, "10 min"), (11520, "3 h 12 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_numbers() -> None:
    assert [short(n) for n in (812, 12_400, 200_000, 999_951, 3_100_000)] == ["812", "12.4k", "200k", "1M", "3.1M"]
    assert [dollars(x) for x in (0.0, 0.00001, 0.0123, 2.5)] == ["$0.0000", "<$0.0001", "$0.0123", "$2.50"]
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 112)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th",
    ]  # fmt: skip
    assert [plural(n, "match") for n in (1, 2)] == ["1 match", "2 matches"]
    assert plural(1234, "call") == "1,234 calls"


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (ToolCall("1", "run", '{"argv": ["pytest", "-k", "a b"], "cwd": "."}'), "run pytest -k 'a b'"),
        (ToolCall("1", "run", '{"argv": 1}'), "run 1"),
        (ToolCall("1", "edit_file", '{"path": "a.py", "old": "x", "new": "y"}'), "edit_file a.py"),
        (ToolCall("1", "write_file", '{"path": "a.py", "content": "y"}'), "write_file a.py"),
    ],
)
def test_a_call_that_changes_something_is_named_by_what_it_is_about(call: ToolCall, line: str) -> None:
    assert call_line(call) == line
