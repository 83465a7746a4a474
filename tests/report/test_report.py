"""A run as a page: what it says about a run, and that content stays content."""

# ruff: noqa: E501  texts and tables read better on one line

from __future__ import annotations

import json
import math
import re
from dataclasses import fields, is_dataclass
from html.parser import HTMLParser

import pytest

from tests.kit import report_runs
from tests.kit.report_runs import failure
from tool_loop import Agent, ScriptedLLM, events, tool
from tool_loop.events import (
    ApprovalDecided,
    ApprovalRequest,
    ApprovalRequested,
    Compacted,
    IntentRecorded,
    LimitReached,
    ModelReplied,
    Reminded,
    Retry,
    RunContinued,
    RunEnded,
    RunInterrupted,
    RunResumed,
    RunStarted,
    ToolCall,
    ToolReturned,
    Usage,
)
from tool_loop.journal.memory import MemoryJournal
from tool_loop.report import diff, embedded, page
from tool_loop.report.clock import Axis, timed
from tool_loop.report.glance import axis
from tool_loop.report.text import (
    arguments,
    attribute,
    block,
    count,
    dollars,
    escaped,
    fields as json_fields,
    line,
    many,
    pretty,
    seconds,
)
from tool_loop.report.view import view

Rec = tuple[int, float | None, events.Event]


def records(*said: events.Event, step: float = 1.0) -> list[Rec]:
    return [(n, 1000.0 + n * step, event) for n, event in enumerate(said)]


def asks(*wanted: ToolCall, text: str = "") -> ModelReplied:
    return ModelReplied(text, wanted, "tool_calls", Usage(10, 2), seconds=0.5)


def failed(call_id: str, kind: str) -> ToolReturned:
    return ToolReturned(call_id, failure(kind, f"it was {kind}"), kind, 0.1)


def fine(call_id: str, text: str = "ok") -> ToolReturned:
    return ToolReturned(call_id, text, None, 0.1)


class Page(HTMLParser):
    """The text of a page, and the tags in it, without its style and its script."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._skip = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._skip = tag in ("style", "script")

    def handle_endtag(self, tag: str) -> None:
        self._skip = False

    def handle_data(self, data: str) -> None:
        if not self._skip:
            self.text += data


def texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, tuple):
        return [text for item in value for text in texts(item)]
    return [t for f in fields(value) for t in texts(getattr(value, f.name))] if is_dataclass(value) else []  # type: ignore[arg-type]


# --- what came of a failure -----------------------------------------------------------------------

GREP, READ = ToolCall("g1", "grep"), ToolCall("r1", "read")


@pytest.mark.parametrize(
    ("rest", "how", "text"),
    [
        ([asks(ToolCall("g2", "grep")), fine("g2")], "recovered", "grep succeeded in step 2"),
        (
            [asks(ToolCall("g2", "grep")), failed("g2", "timed_out"), asks(ToolCall("g3", "grep")), fine("g3")],
            "recovered",
            "grep succeeded in step 3, after 1 more failure",
        ),
        ([asks(ToolCall("r2", "read")), fine("r2")], "replaced", "went on with read in step 2"),
        ([ModelReplied("so be it"), RunEnded("answered", "so be it")], "answered", "answered without it"),
        ([LimitReached("step limit"), ModelReplied("x"), RunEnded("step limit", "x")], "answered", "answered without it"),
        ([RunEnded("step limit", "no answer", "journal")], "open", "not recovered"),
        ([RunEnded("answered", "x"), RunContinued("more"), asks(ToolCall("g2", "grep")), fine("g2")], "answered", "answered without it"),
        ([], "open", "not recovered"),
    ],
)  # fmt: skip
def test_what_came_of_a_failure_is_told_from_the_calls_after_it(rest: list[events.Event], how: str, text: str) -> None:
    run = view(records(RunStarted("q"), asks(GREP), failed("g1", "not_found"), *rest))

    assert (run.failures[0].recovery.how, run.failures[0].recovery.text) == (how, text)


def test_a_sibling_does_not_count_as_a_recovery() -> None:
    run = view(records(RunStarted("q"), asks(GREP, ToolCall("g2", "grep")), failed("g1", "not_found"), fine("g2")))

    assert run.failures[0].recovery.how == "open"


def test_retries_and_interruptions_are_failures_too() -> None:
    reply = ModelReplied("a", retries=(Retry("rate_limit", "429", 2.0, 429), Retry("timeout", "slow", 1.0)))
    run = view(
        records(RunStarted("q"), RunInterrupted("auth", "401"), RunResumed(), reply, RunInterrupted("cancelled"))
    )

    assert [(f.where, f.kind, f.recovery.text, f.recovery.good) for f in run.failures] == [
        ("run", "auth", "resumed", True),
        ("model", "rate_limit", "a later attempt of step 1 answered", True),
        ("model", "timeout", "a later attempt of step 1 answered", True),
        ("run", "cancelled", "not resumed", False),
    ]
    assert (run.recovered, run.totals.retries, run.totals.waited) == (3, 2, 3.0)


# --- how it stands --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "state", "shown"),
    [
        ([], "empty", "nothing on record"),
        ([RunStarted("q")], "unfinished", "not finished"),
        ([RunStarted("q"), ModelReplied("a"), RunEnded("answered", "a")], "answered", "answered"),
        ([RunStarted("q"), RunEnded("step limit", "a")], "stopped", "stopped: step limit"),
        ([RunStarted("q"), RunInterrupted("auth", "401")], "interrupted", "interrupted: auth"),
        ([RunStarted("q"), asks(GREP), ApprovalRequested((ApprovalRequest("g1", "f"),))], "waiting", "waiting for a person"),
        (
            [RunStarted("q"), asks(GREP), ApprovalRequested((ApprovalRequest("g1", "f"),)), ApprovalDecided("g1", True)],
            "unfinished",
            "not finished",
        ),
        ([RunStarted("q"), RunEnded("answered", "a"), RunContinued("more?")], "unfinished", "not finished"),
    ],
)  # fmt: skip
def test_the_state_of_a_run_is_that_of_its_last_record(said: list[events.Event], state: str, shown: str) -> None:
    assert view(records(*said)).state == state
    assert f'<span class="pill {state}">{shown}</span>' in page(records(*said))


def test_the_answer_of_an_earlier_question_is_not_passed_off_as_the_answer() -> None:
    html = page(records(RunStarted("one"), RunEnded("answered", "first"), RunContinued("two")))

    assert "<h1>two</h1>" in html
    assert "after 1 earlier question" in html
    assert '"card answer' not in html


def test_sums_tell_what_is_unknown_from_what_is_nothing() -> None:
    unknown = view(records(RunStarted("q"), ModelReplied("a"), ModelReplied("b", cost=0.5)))
    known = view(
        records(RunStarted("q"), ModelReplied("a", usage=Usage(0, 0)), Compacted((), "s", 1, Usage(30, 5), 0.25, 1.0))
    )

    assert (unknown.totals.input, unknown.totals.cost, unknown.totals.unpriced) == (None, 0.5, 1)
    assert (known.totals.input, known.totals.output, known.totals.cost) == (30, 5, 0.25)
    assert "1 reply without a price" in page(records(RunStarted("q"), ModelReplied("a"), ModelReplied("b", cost=0.5)))
    assert "the server did not count tokens" in page(records(RunStarted("q"), ModelReplied("a")))


# --- time -----------------------------------------------------------------------------------------


def test_a_bar_lasts_from_the_record_back_by_its_duration() -> None:
    reply, result = asks(GREP), ToolReturned("g1", "ok", None, 0.25)
    run = view([(0, 10.0, RunStarted("q")), (1, 12.0, reply), (2, 12.5, result)])

    assert (run.steps[0].start, run.steps[0].end) == (1.5, 2.0)
    assert (run.steps[0].calls[0].start, run.steps[0].calls[0].end) == (2.25, 2.5)


def test_a_clock_that_was_set_back_and_durations_that_are_none_draw_nothing_backwards() -> None:
    broken = [ModelReplied("a", seconds=value) for value in (math.nan, math.inf, -5.0, 1e9)]
    _, times, began, exact = timed(
        [
            (0, 100.0, RunStarted("q")),
            (1, 90.0, broken[0]),
            (2, 101.0, broken[1]),
            (3, 95.0, broken[2]),
            (4, 102.0, broken[3]),
        ]
    )
    run = view(records(RunStarted("q"), *broken))

    assert (times, began, exact) == ([0.0, 0.0, 1.0, 1.0, 2.0], 100.0, True)
    assert all(0 <= step.start <= step.end for step in run.steps)
    assert page(records(RunStarted("q"), *broken))


def test_without_times_they_are_rebuilt_and_the_page_says_so() -> None:
    said = [
        RunStarted("q"), ModelReplied("", (ToolCall("a", "x"), ToolCall("b", "x"), ToolCall("c", "x"), ToolCall("d", "x")), "tool_calls", seconds=2.0),
        IntentRecorded(("c", "d")), ToolReturned("b", "", None, 1.0), ToolReturned("a", "", None, 3.0),
        ToolReturned("c", "", None, 0.5), ToolReturned("d", "", None, 0.5), RunEnded("answered", "x"),
    ]  # fmt: skip
    _, times, began, exact = timed([(n, None, event) for n, event in enumerate(said)])

    assert (times, began, exact) == ([0.0, 2.0, 2.0, 3.0, 5.0, 5.5, 6.0, 6.0], None, False)
    assert "times rebuilt from durations" in page([(n, None, event) for n, event in enumerate(said)])


def test_a_long_stretch_in_which_nothing_ran_is_drawn_short() -> None:
    scale = Axis([(0, 4), (1, 6), (5_000, 5_010)], 5_010)

    assert [round(length) for _, length in scale.cuts] == [4_994]
    assert scale.at(0) == 0
    assert scale.at(5_010) == 1000
    assert 200 < scale.at(6) < 350
    assert scale.at(6) < scale.at(2_500) < scale.at(5_000) < 500
    assert [second for second, _ in scale.ticks()] == [0, 5]


def test_a_run_that_only_waited_still_has_an_axis() -> None:
    assert (Axis([], 0).at(0), Axis([], 0).ticks()) == (0, [])
    assert [second for second, _ in Axis([], 90_000).ticks()] == [0.0, 21_600.0, 43_200.0, 64_800.0, 86_400.0]
    assert Axis([(0, 1e-7)], 1e-7).ticks()
    assert axis(view([])).cuts == []


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "0 ms"), (0.0001, "<1 ms"), (0.84, "840 ms"), (3.21, "3.2 s"), (125, "2 m 05 s"), (11_520, "3 h 12 m"), (200_000, "2 d 7 h")],
)  # fmt: skip
def test_durations_read_as_a_person_says_them(value: float, said: str) -> None:
    assert seconds(value) == said


def test_numbers_are_short_and_money_is_never_rounded_to_nothing() -> None:
    assert [count(n) for n in (0, 9_999, 12_400, 3_100_000)] == ["0", "9,999", "12.4k", "3.1M"]
    assert [dollars(v) for v in (0, 0.00001, 0.0042, 3.5)] == ["$0", "<$0.0001", "$0.0042", "$3.50"]
    assert [many(1, "reply", "replies"), many(2, "reply", "replies"), many(1_000, "step")] == [
        "1 reply",
        "2 replies",
        "1,000 steps",
    ]


# --- text -----------------------------------------------------------------------------------------


def test_markup_is_text_and_what_is_invisible_is_shown() -> None:
    text = "<b>&\"'</script>\x1b[31m\x00\x7f\x85\u202e\u200b\ud800\U000e0041\r\nx\ry\tz"

    assert escaped(text) == (
        "&lt;b&gt;&amp;\"'&lt;/script&gt;<b class=u>\u241b</b>[31m<b class=u>\u2400</b><b class=u>\u2421</b>"
        "<b class=u>U+0085</b><b class=u>U+202E</b><b class=u>U+200B</b><b class=u>U+D800</b><b class=u>U+E0041</b>"
        "\nx<b class=u>\u240d</b>y\tz"
    )
    assert attribute('"\u202e<') == "&quot;U+202E&lt;"


@pytest.mark.parametrize(
    "c", ["\u034f", "\u17b4", "\u180b", "\u2800", "\ufe00", "\U000e0101", "\U0001d159", "\U00016fe4"]
)
def test_what_shows_as_nothing_is_shown_as_a_mark(c: str) -> None:
    assert escaped(f"a{c}b") == f"a<b class=u>U+{ord(c):04X}</b>b"


def test_joiners_that_scripts_and_emoji_need_are_left_alone() -> None:
    text = "نمی‌خواهم 👩‍👩‍👧"

    assert escaped(text) == text


def test_a_text_beyond_all_measure_is_cut_in_the_middle_and_says_so() -> None:
    shown = block("a" * 1_500_000 + "b" * 1_500_000)

    assert "1,000,000 characters left out here" in shown
    assert 2_000_000 < len(shown) < 2_000_300
    assert block("") == "<p class=cut>empty</p>"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"path": "a.py", "n": 3, "deep": {"x": [1, null]}}', 'path="a.py" n=3 deep={"x": [1, null]}'),
        ('{"a": 1, "a": 2}', '{"a": 1, "a": 2}'),
        ("not json {", "not json {"),
        ("[1, 2]", "[1, 2]"),
        ("[" * 100_000, "[" * 59 + "…"),
        ('{"a": "' + "x" * 500 + '", "b": 1}', 'a="' + "x" * 56 + "…"),
    ],
)
def test_arguments_read_on_one_line_and_nothing_of_them_is_hidden(text: str, said: str) -> None:
    assert arguments(text, 60) == said


def test_json_is_spread_out_only_where_that_hides_nothing() -> None:
    assert pretty('{"a":"é"}') == '{\n  "a": "é"\n}'
    assert pretty('{"a":1,"a":2}') == '{"a":1,"a":2}'
    assert pretty("{}") == "{}"
    assert json_fields('{"n": 5, "s": "5", "t": "text", "blank": " "}') == {
        "n": "5",
        "s": '"5"',
        "t": "text",
        "blank": '" "',
    }
    assert json_fields("[1]") is None
    assert line("a  b\n" * 50, 10) == "a b a b a…"


@pytest.mark.parametrize("depth", [30, 500, 5_000, 100_000])
def test_json_of_any_depth_is_shown_and_stays_about_as_long_as_it_is(depth: int) -> None:
    text = '{"a": ' + "[" * depth + "]" * depth + "}"

    assert pretty(text).count("[") == depth
    assert len(pretty(text)) < 3_000 + len(text)
    assert (json_fields(text) or {"a": text})["a"].count("[") == depth
    assert "[[[" in arguments(text, 40)


# --- the page -------------------------------------------------------------------------------------


def test_it_is_one_file_that_fetches_nothing_and_is_the_same_each_time() -> None:
    html = page(report_runs.rich(), run_id="r")
    parsed = Page(html)
    links = [
        value for name, value in parsed.attributes if name in ("href", "src", "srcset", "action", "data", "poster")
    ]

    assert all(value and value.startswith("#") for value in links)
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(parsed.tags)
    assert "url(" not in html
    assert "@import" not in html
    assert "default-src 'none'" in html
    assert page(report_runs.rich(), run_id="r") == html


def test_everything_that_happened_can_be_read() -> None:
    parsed = Page(page(report_runs.rich()))
    named = {value for name, value in parsed.attributes if name == "data-call"}
    shown = " ".join(parsed.text.split())

    for _, _, event in report_runs.rich():
        for text in texts(event):
            if text.startswith(("{", "ffff")) or text in ("stop", "tool_calls", "model", "policy", "cancelled", *named):
                continue  # taken apart into its fields, or told in another word
            assert " ".join(text.split()) in shown, text


def test_hostile_content_adds_no_element_and_no_attribute() -> None:
    tame = [(n, at, event) for n, at, event in report_runs.hostile(10)]
    parsed = Page(page(tame, run_id="</title><script>"))

    assert parsed.tags.count("script") == 1
    assert "img" not in parsed.tags
    assert not [name for name, _ in parsed.attributes if name.startswith("on")]
    assert "\u202e" not in parsed.text
    assert page(tame).encode()


def test_a_small_run_is_a_small_page_and_a_long_one_grows_by_its_rows() -> None:
    html = page(report_runs.long(400))
    markup = len(html) - len(Page(html).text)

    assert len(page([])) < 40_000
    assert len(page(report_runs.rich())) < 60_000
    assert markup < 300 * (400 + 599)


def test_bars_of_a_long_run_start_out_to_the_scale_of_their_step() -> None:
    assert "<html lang=en data-scale=step>" in page(report_runs.long(40))
    assert "data-scale" not in page(report_runs.long(20)).partition("<head>")[0]


def test_calls_that_ran_side_by_side_lie_in_lanes_of_their_own() -> None:
    wanted = tuple(ToolCall(str(n), "x") for n in range(9))
    done = [ToolReturned(call.id, "", None, 5.0) for call in wanted]
    html = page(
        [(0, 0.0, RunStarted("q")), (1, 1.0, asks(*wanted)), *((2 + n, 6.0 + n / 100, r) for n, r in enumerate(done))]
    )
    heights = re.findall(r'viewBox="0 0 1000 (\d+)"', html)

    assert heights[:2] == ["11", "66"]


def test_what_compaction_took_from_the_models_sight_is_marked() -> None:
    said = [
        RunStarted("q"), asks(GREP), fine("g1"), asks(READ), fine("r1"),
        Compacted(("r1",), "what was found", 3), ModelReplied("a"), RunEnded("answered", "a"),
    ]  # fmt: skip
    run = view(records(*said))
    html = page(records(*said))

    assert [step.hidden for step in run.steps] == ["k1", "", ""]
    assert run.steps[1].calls[0].hidden == "k1"
    assert "step 1 became a summary; 1 result became a stub" in html
    assert "what was found" in html
    assert 'Seen by the model until <a href="#k1">the compaction</a>' in html


def test_approvals_edits_repeats_and_doubts_are_on_the_row_of_their_call() -> None:
    said = [
        RunStarted("q"), asks(ToolCall("a", "rm", '{"path": "x"}'), ToolCall("b", "rm"), ToolCall("c", "rm")),
        ApprovalRequested((ApprovalRequest("a", "f", "in_doubt"), ApprovalRequest("b", "f"))),
        ApprovalDecided("a", True, "ana", "only y", "f", '{"path": "y"}', standing=True), ApprovalDecided("b", False, "bo"),
        IntentRecorded(("a",), ("a",)), ToolReturned("a", "gone", None, 1.0, 2, True, '{"path": "y"}'), failed("b", "denied"),
    ]  # fmt: skip
    shown = " ".join(Page(page(records(*said))).text.split())

    for words in (
        "Allowed by ana, for the rest of the run: only y", "Denied by bo", "Arguments that ran, edited by a person",
        "same again, no. 2", "untrusted", "once", "edited", "no result", "nobody knows whether it happened", "needs an approval",
    ):  # fmt: skip
        assert words in shown, words


def test_every_other_thing_a_run_can_say_has_a_row() -> None:
    reply = ModelReplied("", stop="length", call_in_text=True, dropped_calls=2, reasoning="because", usage=Usage(9, 4, 3, 2, 1), retries=(Retry("timeout", "slow", 0.5, None, 70),))  # fmt: skip
    shown = Page(page(records(
        RunStarted("q"), RunResumed("w"), Reminded("call it properly"), reply, ModelReplied("", stop="refusal", usage=Usage(None, 3)),
        Compacted(), LimitReached("deadline"), RunEnded("deadline", "half", "journal"),
    ))).text  # fmt: skip

    for words in (
        "told the model", "call it properly", "cut at the output limit", "call written as text", "2 calls dropped",
        "70 tokens paid", "9 tokens read (3 cached, 2 put into the cache)", "4 written (1 reasoning)", "said nothing",
        "nothing could be shortened", "limit", "stopped: deadline", "there was no last word", "? → 3",
    ):  # fmt: skip
        assert words in shown, words


def test_records_that_do_not_fit_each_other_do_not_stop_a_report() -> None:
    odd = [
        ToolReturned("nobody", "x"), ApprovalDecided("nobody", True), ApprovalRequested((ApprovalRequest("nobody", "f"),)),
        IntentRecorded(("nobody",)), Compacted(("nobody",), "s", 99), RunStarted("q", meta="not json"), RunStarted("q", meta="[1]"),
        asks(GREP), ToolReturned("g1", "plain text", "odd_kind"),
    ]  # fmt: skip

    for n in range(len(odd) + 1):
        assert page(records(*odd[:n])).endswith("</html>\n")
    assert [f.message for f in view(records(*odd)).failures] == ["plain text"]


def test_a_run_of_a_real_agent_reads_as_it_went() -> None:
    @tool(effect="read")
    def look(at: str) -> str:
        """Look."""
        return f"seen {at}"

    journal = MemoryJournal()
    llm = ScriptedLLM(ToolCall("1", "look", '{"t": 1}'), ToolCall("2", "look", '{"at": "a"}'), "done")
    result = Agent(llm, [look], journal=journal).run_sync("what is at a?", run_id="r1")
    shown = Page(page(journal.records("r1"), run_id="r1")).text

    assert result.answer == "done"
    assert "invalid_arguments" in shown
    assert "look succeeded in step 2" in shown
    assert "seen a" in shown


def test_a_result_shows_itself_in_a_notebook_inside_a_frame_and_without_a_key() -> None:
    result = Agent(ScriptedLLM("the key is sk-zyxwvutsrqp97531 <b>")).run_sync("q")
    html = result._repr_html_()

    assert html.startswith('<iframe title="Report of a run" sandbox="allow-scripts"')
    assert html.endswith("the key is [key] &lt;b&gt;</iframe>")
    assert "sk-zyxwvutsrqp97531" not in html
    assert html.count("<") == 2
    assert embedded([]).startswith("<iframe")


# --- two runs -------------------------------------------------------------------------------------


def first_difference(a: list[Rec], b: list[Rec]) -> str:
    found = re.search(r"<h2>(First difference: .*?|No difference)</h2>", diff(a, b))
    assert found
    return found[1]


BASE = [RunStarted("q", "s"), asks(ToolCall("1", "grep", '{"a": 1, "b": 2}'), text="look"), fine("1"), ModelReplied("done"), RunEnded("answered", "done")]  # fmt: skip


@pytest.mark.parametrize(
    ("at", "other", "where"),
    [
        (0, RunStarted("other", "s"), "the question"),
        (0, RunStarted("q", "t"), "the system prompt"),
        (1, asks(ToolCall("1", "grep", '{"a": 1, "b": 2}'), text="seek"), "step 1, what the model said"),
        (1, asks(ToolCall("1", "find", '{"a": 1, "b": 2}'), text="look"), "step 1, its calls"),
        (1, asks(ToolCall("1", "grep", '{"a": 1, "b": 3}'), text="look"), "step 1, arguments of grep"),
        (2, fine("1", "else"), "step 1, result of grep"),
        (3, Reminded("x"), "step 2, what the model said in one, a reminder in the other"),
        (4, RunEnded("step limit", "done"), "the end"),
    ],
)
def test_two_runs_are_told_apart_at_the_first_thing_that_differs(at: int, other: events.Event, where: str) -> None:
    changed = [*BASE[:at], other, *BASE[at + 1 :]]

    assert first_difference(records(*BASE), records(*changed)) == f"First difference: {where}"


def test_times_ids_costs_and_spelling_are_no_difference() -> None:
    same = [
        RunStarted("q", "s"), ModelReplied("look", (ToolCall("other", "grep", '{"b":2,"a":1}'),), "tool_calls", Usage(99, 9), "m", cost=3.0),
        fine("other"), ModelReplied("done"), RunEnded("answered", "done"),
    ]  # fmt: skip

    assert first_difference(records(*BASE), records(*same, step=50)) == "No difference"


def test_the_part_that_differs_is_marked_and_the_rest_stands_beside_it() -> None:
    left, right = report_runs.rich(), report_runs.rich()
    n = next(n for n, (_, _, e) in enumerate(right) if isinstance(e, ToolReturned) and e.call_id == "c4")
    right[n] = (
        *right[n][:2],
        ToolReturned("c4", "src/tool_loop/errors.py:99: class ToolError(ToolLoopError):", None, 0.21),
    )
    html = diff(left, right[:-4], names=("one", "two"))

    assert "errors.py:9<mark>7</mark>: class" in html
    assert "errors.py:9<mark>9</mark>: class" in html
    assert "Both begin with the same step<" in html
    assert html.count('class="pair two differs"') == 4
    assert 'class="c d" id=as2c1' in html
    assert 'class="c d" id=bs2c1' in html
    assert "nothing here" in html


def test_a_run_compared_with_its_own_beginning_ends_before() -> None:
    html = diff(report_runs.rich()[:5], report_runs.rich())

    assert "this run ends before" in html
    assert diff([], []).count("No difference") == 1


def test_long_runs_that_share_nothing_are_paired_by_number() -> None:
    left = records(RunStarted("q"), *(ModelReplied(f"a{n}") for n in range(1500)))
    right = records(RunStarted("q"), *(ModelReplied(f"b{n}") for n in range(1500)))

    assert diff(left, right).count('class="pair two differs"') == 1500


def test_every_record_of_a_run_can_be_where_two_part() -> None:
    whole = report_runs.rich()

    for n in range(len(whole)):
        html = diff(whole, whole[:n])
        assert ("No difference" in html) == all(isinstance(e, IntentRecorded) for _, _, e in whole[n:])


def test_arguments_of_a_run_recorded_as_json_stay_byte_for_byte_where_they_are_odd() -> None:
    raw = '{"a": 1, "a": 2}'
    html = page(records(RunStarted("q"), asks(ToolCall("1", "x", raw)), failed("1", "bad_json")))

    assert f"<pre>{escaped(raw)}</pre>" in html
    assert json.loads(raw) == {"a": 2}


def test_what_a_call_changed_is_shown_as_a_diff() -> None:
    call = ToolCall("e", "edit_file", '{"path": "a.py", "old": "a\\nb", "new": "a\\n<c>"}')
    events = [
        RunStarted("q"),
        ModelReplied("", (call,), "tool_calls"),
        ToolReturned("e", "edited a.py"),
        RunEnded("answered", "x"),
    ]

    html = page(records(*events))

    assert "<pre class=patch><span> a</span><del>-b</del><ins>+&lt;c&gt;</ins></pre>" in html
