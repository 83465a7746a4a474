"""Server-sent events are read as the standard says, however the bytes arrive."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings, strategies as st

from tool_loop.llm.http.sse import NOISE_BYTES, STRAY_BYTES, EventTooLarge, SSEEvent, SSEReader


def read(*chunks: bytes, limit: int | None = None) -> list[SSEEvent]:
    reader = SSEReader() if limit is None else SSEReader(limit)
    events = [event for chunk in chunks for event in reader.feed(chunk)]
    return events + reader.close()


def data(*chunks: bytes) -> list[bytes]:
    return [event.data for event in read(*chunks)]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        pytest.param(b"data: a\n\ndata: b\n\n", [b"a", b"b"], id="LF"),
        pytest.param(b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"], id="CRLF"),
        pytest.param(b"data: a\r\rdata: b\r\r", [b"a", b"b"], id="CR"),
        pytest.param(b"data: a\r\n\rdata: b\n\r\n", [b"a", b"b"], id="a mix"),
        pytest.param(b"data:a\n\n", [b"a"], id="no space"),
        pytest.param(b"data:  a\n\n", [b" a"], id="only one space is dropped"),
        pytest.param(b"data: a\ndata: b\n\n", [b"a\nb"], id="lines are joined"),
        pytest.param(b"data\n\n", [b""], id="a field without a colon"),
        pytest.param(b"data: a: b\n\n", [b"a: b"], id="a colon in the value"),
        pytest.param(b"\xef\xbb\xbfdata: a\n\n", [b"a"], id="byte order mark"),
        pytest.param(b"data: \xef\xbb\xbfa\n\n", [b"\xef\xbb\xbfa"], id="a mark in the text stays"),
        pytest.param(b": hello\n\n:\ndata: a\n\n", [b"a"], id="comments"),
        pytest.param(b"id: 1\nretry: 10\nfoo: bar\ndata: a\n\n", [b"a"], id="other fields"),
        pytest.param(b"event: ping\n\ndata: a\n\n", [b"a"], id="an event without data"),
        pytest.param(
            "data: a\u2028b\u0085c\x0bd\x1ce\n\n".encode(), ["a\u2028b\u0085c\x0bd\x1ce".encode()], id="U+2028"
        ),
        pytest.param(b"data: a\n\ndata: b", [b"a", b"b"], id="the last event unfinished"),
        pytest.param(b"data: a\n\ndata: b\n", [b"a", b"b"], id="the last blank line missing"),
        pytest.param(b"data: a\x00b\n\n", [b"a\x00b"], id="a zero byte"),
        pytest.param(b"\n\n\n", [], id="blank lines"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_a_stream_is_read(stream: bytes, expected: list[bytes]) -> None:
    assert data(stream) == expected
    assert data(*(bytes([byte]) for byte in stream)) == expected


def test_the_type_of_an_event_is_for_that_event_only() -> None:
    assert read(b"event: error\ndata: a\n\ndata: b\n\n") == [SSEEvent("error", b"a"), SSEEvent("", b"b")]


def test_an_event_is_given_before_the_line_feed_of_its_last_crlf_has_come() -> None:
    reader = SSEReader()

    assert reader.feed(b"data: a\r\n\r") == [SSEEvent("", b"a")]
    assert reader.feed(b"\ndata: b\r\n\r") == [SSEEvent("", b"b")]
    assert reader.close() == []


def test_lines_that_are_no_field_are_kept_for_the_error_message() -> None:
    reader = SSEReader()
    reader.feed(b'{"error": "overloaded"}\n' + b"x" * STRAY_BYTES + b"\n" + b"y\n")

    assert reader.stray.startswith(b'{"error": "overloaded"}\nxxx')
    assert b"y" not in reader.stray


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([b"data: " + b"x" * 100], id="one chunk"),
        pytest.param([b"data: "] + [b"x"] * 100, id="byte by byte"),
        pytest.param([b"data: xxxxxxxxx\n"] * 10, id="many lines of one event"),
        pytest.param([b"data:\n"] * 80, id="empty lines of one event"),
        pytest.param([b"foo" * 40], id="a line that is no field"),
    ],
)
def test_an_event_without_end_is_refused(chunks: list[bytes]) -> None:
    with pytest.raises(EventTooLarge, match="64 bytes"):
        read(*chunks, limit=64)


def test_events_are_counted_one_by_one_against_the_limit() -> None:
    assert len(read(*[b"data: " + b"x" * 40 + b"\n\n"] * 100, limit=64)) == 100


def test_signs_of_life_without_an_event_are_not_read_for_ever() -> None:
    comment = b": " + b"x" * 998 + b"\n"
    reader = SSEReader()

    with pytest.raises(EventTooLarge, match="without an event"):
        for _ in range(NOISE_BYTES // 500):
            reader.feed(comment)
    quiet = SSEReader()
    for _ in range(NOISE_BYTES // 500):
        quiet.feed(comment + b"data: a\n\n")


def test_a_long_line_that_drips_in_takes_no_more_than_its_length() -> None:
    started = time.process_time()

    assert len(read(b"data: ", *[b"x"] * 100_000, b"\n\n")) == 1
    assert time.process_time() - started < 2.0


LINES = st.lists(
    st.sampled_from([b"data: a", b"data:", b"event: e", b": c", b"id: 1", b"", b"\xff", b"data: \xe2\x80\xa8"])
)
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])


@settings(max_examples=300, deadline=None)
@given(LINES, ENDS, st.lists(st.integers(1, 5), max_size=50))
def test_where_the_chunks_are_cut_makes_no_difference(lines: list[bytes], end: bytes, cuts: list[int]) -> None:
    stream = end.join(lines)
    chunks, at = [], 0
    for size in cuts:
        chunks.append(stream[at : at + size])
        at += size

    assert read(*chunks, stream[at:]) == read(stream)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=20))
def test_any_bytes_give_events_or_one_kind_of_error(chunks: list[bytes]) -> None:
    try:
        events = read(*chunks, limit=256)
    except EventTooLarge:
        return
    assert all(isinstance(event.event, str) and isinstance(event.data, bytes) for event in events)
    assert all(b"\n" not in line and b"\r" not in line for event in events for line in event.data.split(b"\n"))
