from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings, strategies as st

from tool_loop import events
from tool_loop.errors import JournalDamaged, JournalError
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
    RunContinued,
    RunEnded,
    RunInterrupted,
    RunResumed,
    RunStarted,
    TextDelta,
    ToolCall,
    ToolReturned,
    Usage,
)
from tool_loop.journal import codec

GOLDEN = Path(__file__).parents[1] / "data" / "journal_format_1.jsonl"

# Every event twice: with nothing but what it needs, and with every field filled. The file next to
# this holds what format 1 made of them. It is never written again: when a test here fails, either
# the change breaks journals that exist, or it needs a format of its own.
EVENTS: list[Event] = [
    RunStarted("q"),
    RunStarted("Wo ist \U0001f511?", "sys", (Example("q", "grep", '{"pattern": "a"}', "r", "a"),), '{"root": "/src"}'),
    RunContinued("and then?"),
    RunResumed(),
    RunResumed("41@host"),
    RunInterrupted("cancelled"),
    RunInterrupted("auth", "the key was refused"),
    ModelReplied(""),
    ModelReplied(
        "text", (ToolCall("1", "pay"), ToolCall("2", "ship", '{"n": 3}', '{"sig": "x"}')), "tool_calls",
        Usage(1, 2, 3, 4, 5), "m", "https://api.example.com/v1", '{"items": []}', "why",
        (Retry("overloaded", "busy", 0.5), Retry("server_error", "boom", 1.5, 500, 12)), 1.25, 0.25, 0.001, True, 2,
    ),
    Reminded("again"),
    ApprovalRequested((ApprovalRequest("1", "f1"), ApprovalRequest("2", "f2", "in_doubt"))),
    ApprovalDecided("1", True),
    ApprovalDecided("1", False, "ann", "no", "f1", '{"n": 4}', True, 1767225600.5),
    IntentRecorded(),
    IntentRecorded(("1", "2"), ("2",)),
    ToolReturned("1", "line 1\nline 2"),
    ToolReturned("1", '{"error": "not_found"}', "not_found", 0.125, 0, True, '{"n": 4}'),
    Compacted(),
    Compacted(("1",), "so far", 7, Usage(10), 0.5, 2.0),
    LimitReached("step limit"),
    RunEnded("answered", "42"),
    RunEnded("step limit", "so far", "journal"),
]  # fmt: skip

# Lone surrogates come from broken tools and from JSON escapes of models; two low ones are no pair.
TEXTS = st.text(st.one_of(st.characters(), st.sampled_from("\udc00\udcff\x00\u2028\U0001f511")))
PLAIN = {
    str: TEXTS,
    int: st.integers(),
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    type(None): st.none(),
}


def anything(hint: Any) -> st.SearchStrategy[Any]:
    """Whatever a field of this type may hold."""
    if dataclasses.is_dataclass(hint):
        return st.builds(hint, **{name: anything(of) for name, of in get_type_hints(hint).items()})
    if get_origin(hint) is tuple:
        return st.lists(anything(get_args(hint)[0]), max_size=3).map(tuple)
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    return PLAIN[hint] if hint in PLAIN else st.one_of(map(anything, get_args(hint)))


def test_format_1_is_written_as_it_always_was():
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()

    assert [codec.encode(event) for event in EVENTS] == lines


def test_format_1_is_read_as_it_always_was():
    lines = GOLDEN.read_bytes().splitlines()

    assert [codec.decode(line) for line in lines] == EVENTS


def test_every_event_has_a_tag_and_a_golden_record():
    assert set(codec.TAGS.values()) == set(get_args(Event)) == {type(event) for event in EVENTS}


def test_every_record_inside_a_record_belongs_to_the_format():
    inside = {
        cls
        for cls in vars(events).values()
        if dataclasses.is_dataclass(cls) and cls not in get_args(Event) and cls not in get_args(events.Signal)
    }

    assert inside == set(codec.PARTS)


@pytest.mark.parametrize("cls", get_args(Event), ids=lambda cls: cls.__name__)
def test_every_event_comes_back_as_it_was(cls):
    @settings(max_examples=40, deadline=None)
    @given(anything(cls))
    def comes_back(event):
        text = codec.encode(event)

        assert codec.decode(text) == codec.decode(text.encode()) == event
        assert "\n" not in text

    comes_back()


def test_what_equals_its_default_takes_no_room():
    assert codec.encode(ModelReplied("hi")) == '{"event":"model_replied","text":"hi"}'


def test_a_lone_surrogate_is_written_as_an_escape_and_comes_back():
    event = ToolReturned("1", "broken \ud83d name")
    text = codec.encode(event)

    assert text.isascii()
    assert codec.decode(text) == event


def test_a_pair_of_surrogates_comes_back_as_the_character_it_stands_for():
    assert codec.decode(codec.encode(Reminded("\ud83d\udd11"))) == Reminded("\U0001f511")


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_numbers_that_json_does_not_have_travel_as_strings(number):
    text = codec.encode(ToolReturned("1", "\ud800", seconds=float(number)))
    again = codec.decode(text)

    json.loads(text, parse_constant=pytest.fail)
    assert isinstance(again, ToolReturned)
    assert str(again.seconds) == number


def test_numbers_that_json_does_not_have_are_found_in_the_depth():
    retries = (Retry("timeout", "slow", float("inf")),)

    assert codec.decode(codec.encode(ModelReplied("", retries=retries))) == ModelReplied("", retries=retries)


def test_every_beginning_of_a_record_is_seen_to_be_torn():
    whole = GOLDEN.read_bytes().splitlines()

    assert not any(codec.is_torn(line) for line in whole)
    assert all(codec.is_torn(line[:cut]) for line in whole for cut in range(len(line)))


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        (b"\xff", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "no event None"),
        ('{"event":"ModelReplied"}', "no event 'ModelReplied'; it was written by a newer version"),
        ('{"event":["model_replied"]}', "no event"),
        ('{"event":"model_replied","text":"","mood":"glad"}', "no field 'mood' in format 1; it was written by a newer"),
        ('{"event":"model_replied"}', "model_replied lacks its field 'text'"),
        ('{"event":"model_replied","text":"","calls":5}', "a list is expected"),
        ('{"event":"model_replied","text":"","calls":[5]}', "ToolCall"),
        ('{"event":"model_replied","text":"","usage":{"input":1,"in":1}}', "no field 'in'"),
    ],
)
def test_what_is_not_a_record_is_refused_and_says_why(record, says):
    with pytest.raises(JournalDamaged, match=says):
        codec.decode(record)


@pytest.mark.parametrize(
    "event",
    [
        TextDelta("only shown"),
        RunContinued(b"bytes"),  # type: ignore[arg-type]
        ModelReplied("", usage=None),  # type: ignore[arg-type]
        ModelReplied("", calls=None),  # type: ignore[arg-type]
        Reminded([{"deep": object()}]),  # type: ignore[arg-type]
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_could_not_be_read_again_is_not_written(event):
    with pytest.raises(JournalError, match=r"recorded"):
        codec.encode(event)
