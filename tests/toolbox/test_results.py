"""What a tool returned, as the text a model reads."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import uuid
from collections import OrderedDict, UserDict
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import BaseModel

from tool_loop.events import ToolCall
from tool_loop.toolbox.registry import Tool, ToolRegistry


class Model(BaseModel):
    when: dt.date
    inner: list[int]


@dataclasses.dataclass
class Record:
    name: str
    model: Model | None = None


class Colour(enum.Enum):
    RED = "red"


class Plain:
    def __str__(self) -> str:
        return "plain"


def shown(value: Any, **options: Any) -> str:
    async def give() -> Any:
        return value

    registry = ToolRegistry([Tool("give", "Give.", {"type": "object"}, give, **options)])
    result = asyncio.run(registry.run(ToolCall("c", "give")))
    assert result.error is None
    return result.content


MODEL = Model(when=dt.date(2026, 1, 31), inner=[1])
VALUES = [
    ("text", "text"),
    ("é\n\x00", "é\n\x00"),
    ("", "(no output)"),
    (None, "(no output)"),
    (b"", "(no output)"),
    ("  ", "  "),
    (0, "0"),
    (True, "true"),
    (1.5, "1.5"),
    ([], "[]"),
    ({"b": 1, "a": [None, "é"]}, '{"b":1,"a":[null,"é"]}'),
    ((1, "x"), '[1,"x"]'),
    (b"bytes", "bytes"),
    (bytearray(b"\xff!"), "/yE="),
    ([bytearray(b"\xff!")], '["/yE="]'),
    (b"\x89PNG\r\n\x1a\n\0", "iVBORw0KGgoA"),
    ({"zeros": b"\0\0\1"}, '{"zeros":"AAAB"}'),
    ("gr\xfc\xdfe\tund\x1b[1m".encode(), "gr\xfc\xdfe\tund\x1b[1m"),
    (memoryview(b"view"), "view"),
    ("half \ud800 of one", "half \ufffd of one"),
    ("two halves \ud83d\ude00", "two halves \U0001f600"),
    ({"\udc00": "\ud800"}, '{"\ufffd":"\ufffd"}'),
    (math.nan, '"nan"'),
    ({"a": [math.inf, -math.inf, 1.0]}, '{"a":["inf","-inf",1.0]}'),
    ({1: "a", None: "b", (1, 2): "c", 2.5: "d", False: "e"}, '{"1":"a","null":"b","[1,2]":"c","2.5":"d","false":"e"}'),
    ({3, 1, 2}, "[1,2,3]"),
    (frozenset(["b", "a"]), '["a","b"]'),
    (MODEL, '{"when":"2026-01-31","inner":[1]}'),
    ([Record("x", MODEL)], '[{"name":"x","model":{"when":"2026-01-31","inner":[1]}}]'),
    ({"a": math.nan, "b": Record("x")}, '{"a":"nan","b":{"name":"x","model":null}}'),
    (Colour.RED, '"red"'),
    (dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC), '"2026-01-31T12:00:00+00:00"'),
    (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
    (decimal.Decimal("2.50"), '"2.50"'),
    (PurePosixPath("a/b"), '"a/b"'),
    (OrderedDict(a=1), '{"a":1}'),
    (UserDict(a=1), '{"a":1}'),
    ({"raw": b"text", "not text": b"\xff"}, '{"raw":"text","not text":"/w=="}'),
    (Plain(), '"plain"'),
    (Record, "\"<class 'tests.toolbox.test_results.Record'>\""),
    ({Colour.RED: 1}, '{"\\"red\\"":1}'),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), VALUES, ids=range(len(VALUES)))
def test_whatever_a_tool_returns_is_text(value, text):
    assert shown(value) == text


def test_what_is_too_long_is_cut_and_says_how_much_there_is():
    content = shown("x" * 100_000, max_result_chars=1_000)

    assert content.startswith("x" * 1_000 + "\n[cut: ")
    assert "the first 1,000 of 100,000 characters" in content
    assert len(content) < 1_200


def test_what_fits_exactly_is_not_cut():
    assert shown("x" * 1_000, max_result_chars=1_000) == "x" * 1_000
    assert shown("x" * 30_000) == "x" * 30_000
    assert "of 30,001 characters" in shown("x" * 30_001)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers() | st.none(), inner) | st.tuples(inner),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(anything)
def test_any_result_can_be_sent_and_all_but_text_is_json(value):
    content = shown(value)

    assert content
    content.encode()
    if not isinstance(value, str | bytes | None):
        json.loads(content, parse_constant=pytest.fail)
