"""Results that are no results yet: what a tool hands out undone is done where the tool runs, and shown.

After public reports about other frameworks: agno #5483, Qwen-Agent #506, promptflow #561, fastmcp #3829,
strands #771, LightAgent #107 (the repr of a generator as the result, and its work never done).
"""

# ruff: noqa: PLW0108  a function that is a generator is refused, one that returns a generator is meant

from __future__ import annotations

import array
import asyncio
import contextlib
import csv
import io
import itertools
import logging
import sqlite3
import threading
import time
from collections import ChainMap, deque
from collections.abc import AsyncIterator, Iterator
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from tool_loop import Agent, ScriptedLLM
from tool_loop.events import ToolCall, ToolReturned
from tool_loop.toolbox.registry import Tool, ToolRegistry, tool


def result(give: Any, **options: Any) -> ToolReturned:
    """What becomes of a call of this function, plain or async."""
    registry = ToolRegistry([Tool("give", "Give.", {"type": "object"}, give, **options)])
    return asyncio.run(registry.run(ToolCall("c", "give")))


def shown(value: Any, **options: Any) -> str:
    """The value as a plain tool returns it, and as a coroutine does: the same."""

    async def later() -> Any:
        return value() if callable(value) else value

    values = [result(give, **options) for give in (value if callable(value) else lambda: value, later)]
    assert [found.error for found in values] == [None, None]
    assert values[0].content == values[1].content
    return values[0].content


async def ticks(count: int) -> AsyncIterator[int]:
    for n in range(count):
        await asyncio.sleep(0)
        yield n


async def fetched(n: int) -> int:
    await asyncio.sleep(0)
    return n


class Rows:
    def __iter__(self) -> Iterator[int]:
        return iter([1, 2])


class Pages:
    def __len__(self) -> int:
        return 2

    def __getitem__(self, n: int) -> str:
        return ["a", "b"][n]


class Bare:
    def __init__(self, n: int = 0) -> None:
        self.n = n


class Choosy:
    def to_dict(self, orient: str) -> dict[str, str]:
        return {orient: ""}


def rows_of_sqlite() -> list[sqlite3.Row]:
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.row_factory = sqlite3.Row
        return db.execute("select 1 as a, 'x' as b").fetchall()


def returning() -> Iterator[int]:
    return {"error": "no such product"}
    yield 1


def yielding_and_returning() -> Iterator[int]:
    yield 1
    return 2


LAZY = [
    (lambda: (n * n for n in range(3)), "[0,1,4]"),
    (lambda: map(str.upper, ["a", "b"]), '["A","B"]'),
    (lambda: filter(None, [0, 1]), "[1]"),
    (lambda: zip("ab", [1, 2], strict=True), '[["a",1],["b",2]]'),
    (lambda: enumerate("a"), '[[0,"a"]]'),
    (lambda: reversed([1, 2]), "[2,1]"),
    (lambda: iter(()), "[]"),
    (lambda: itertools.chain([1], (2,)), "[1,2]"),
    (lambda: csv.DictReader(io.StringIO("a,b\n1,2\n")), '[{"a":"1","b":"2"}]'),
    (lambda: {"a": 1}.keys(), '["a"]'),
    (lambda: {"a": 1}.values(), "[1]"),
    (lambda: {"a": 1}.items(), '[["a",1]]'),
    (lambda: range(3), "[0,1,2]"),
    (lambda: deque([1, 2]), "[1,2]"),
    (lambda: array.array("i", [1, 2]), "[1,2]"),
    (lambda: MappingProxyType({"a": 1}), '{"a":1}'),
    (lambda: ChainMap({"a": 1}), '{"a":1}'),
    (lambda: {"ids": {"x": 1}.values(), "n": range(2), "g": (n for n in "ab")}, '{"ids":[1],"n":[0,1],"g":["a","b"]}'),
    (lambda: [map(str, range(2)), [(n for n in range(1))]], '[["0","1"],[[0]]]'),
    (lambda: ((m for m in range(n)) for n in range(3)), "[[],[0],[0,1]]"),
    (lambda: {"nan": float("nan"), "g": (n for n in (float("inf"), 1))}, '{"nan":"nan","g":["inf",1]}'),
    (lambda: {1: (n for n in "a"), (2, 3): 1}, '{"1":["a"],"[2,3]":1}'),
    (lambda: ticks(3), "[0,1,2]"),
    (lambda: {"rows": ticks(2), "more": [ticks(1)]}, '{"rows":[0,1],"more":[[0]]}'),
    (lambda: [fetched(1), fetched(2)], "[1,2]"),
    (lambda: (fetched(n) for n in range(2)), "[0,1]"),
    (lambda: Rows(), "[1,2]"),
    (lambda: [Pages()], '[["a","b"]]'),
    (rows_of_sqlite, '[{"a":1,"b":"x"}]'),
    (lambda: io.StringIO("text"), "text"),
    (lambda: io.BytesIO(b"text"), "text"),
    (lambda: returning(), '{"error":"no such product"}'),
    (lambda: yielding_and_returning(), '{"items":[1],"returned":2}'),
    (lambda: SimpleNamespace(a=1), '"namespace(a=1)"'),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), LAZY, ids=range(len(LAZY)))
def test_what_has_to_be_drawn_is_drawn(value, text):
    assert shown(value) == text


@pytest.mark.parametrize("effect", ["once", None, "idempotent"])
def test_the_work_of_a_lazy_result_is_done_to_its_end_however_little_of_it_fits(effect):
    sent: list[int] = []

    def send_all() -> object:
        return (sent.append(n) or f"sent {n}" for n in range(5_000))

    content = result(send_all, effect=effect, max_result_chars=1_000).content

    assert len(sent) == 5_000
    assert content.startswith('["sent 0","sent 1",')
    assert "more items were run through and are not shown" in content
    assert len(content) < 1_200


def test_of_a_tool_that_only_reads_no_more_is_drawn_than_can_be_shown():
    closed = []

    def lines() -> object:
        def endless() -> Iterator[str]:
            try:
                for n in itertools.count():
                    yield f"line {n}"
            finally:
                closed.append(threading.current_thread().name)

        return endless()

    found = result(lines, effect="read", max_result_chars=1_000)

    assert found.error is None
    assert found.content.startswith('["line 0","line 1"')
    assert "[cut: this is the beginning; the rest was not asked for" in found.content
    assert closed == ["tool-loop"]  # where it was drawn


@pytest.mark.parametrize(
    ("value", "total"),
    [
        (range(10**9), "1,000,000,000 items"),
        (itertools.count(), "a list without end"),
        (itertools.cycle("ab"), "a list without end"),
    ],
)
def test_a_list_that_is_too_long_is_cut_and_says_how_much_there_is(value, total):
    content = result(lambda: value, max_result_chars=1_000).content

    assert total in content
    assert len(content) < 1_200


def test_what_never_ends_is_drawn_until_the_deadline_and_no_longer():
    drawn: list[int] = []
    found = result(lambda: (drawn.append(n) or "x" * 100 for n in itertools.count()), timeout_seconds=0.05)
    assert found.error == "timed_out"

    ends = time.monotonic() + 5
    while time.monotonic() < ends:
        before = len(drawn)
        threading.Event().wait(0.01)
        if len(drawn) == before:
            return
    pytest.fail("it is still being drawn")


def test_a_coroutine_that_returns_what_never_ends_holds_up_nobody():
    async def endless() -> object:
        return (n for n in itertools.count())

    async def side_by_side() -> tuple[ToolReturned, float]:
        registry = ToolRegistry([Tool("give", "Give.", {"type": "object"}, endless, timeout_seconds=0.1)])
        call = asyncio.create_task(registry.run(ToolCall("c", "give")))
        began = time.monotonic()
        await asyncio.sleep(0.02)
        turn = time.monotonic() - began
        return await call, turn

    found, turn = asyncio.run(side_by_side())
    assert found.error == "timed_out"
    assert turn < 0.09


def test_an_error_while_drawing_is_the_tools_own():
    def half() -> object:
        yield 1
        raise KeyError("secret")

    found = result(lambda: half())

    assert found.error == "tool_crashed"
    assert "KeyError" in found.content
    assert "secret" not in found.content


def test_a_task_may_still_be_cancelled_while_it_draws():
    ended = []

    async def slow() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
                await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def cancelled() -> None:
        registry = ToolRegistry([Tool("give", "Give.", {"type": "object"}, lambda: slow())])
        call = asyncio.create_task(registry.run(ToolCall("c", "give")))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(cancelled())
    assert ended == [True]


BARE = [
    (lambda: Bare(), "Bare"),
    (lambda: [Bare(1), Bare(2)], "Bare"),
    (lambda: {"a": Bare()}, "Bare"),
    (lambda: {Bare(): 1}, "Bare"),
    (lambda: (Bare() for _ in range(2)), "Bare"),
    (lambda: object(), "object"),
    (lambda: result, "function"),
    (lambda: [].append, "builtin_function_or_method"),
    (lambda: threading.Lock(), "lock"),
    (lambda: {"f": lambda: 1, "nan": float("nan")}, "function"),
    (lambda: Mock(), "Mock"),
    (lambda: Choosy(), "Choosy"),
]  # fmt: skip


@pytest.mark.parametrize(("give", "kind"), BARE, ids=range(len(BARE)))
def test_an_object_with_nothing_but_an_address_is_a_crash_that_tells_its_author(give, kind, caplog):
    with caplog.at_level(logging.ERROR, "tool_loop"):
        found = result(give)

    assert found.error == "tool_crashed"
    assert f"of type {kind}" in found.content
    assert "What it does has been done" in found.content
    assert "0x" not in found.content
    assert "return text, a dict, a list" in caplog.text


def test_an_address_inside_of_a_text_is_left_out():
    class Wrapped:
        def __str__(self) -> str:
            return f"Wrapped({object()!r})"

    assert result(lambda: Wrapped()).content == '"Wrapped(<object object>)"'


def test_an_address_does_not_hide_that_a_call_is_repeated():
    keep: list[Bare] = []

    @tool(effect="read")
    def look() -> object:
        """Look."""
        keep.append(Bare())
        return keep[-1]

    calls = [[ToolCall(f"c{n}", "look", "{}")] for n in range(3)]
    run = Agent(ScriptedLLM(*calls, "gave up"), [look]).run_sync("go")

    assert run.reason == "repeated call"
    assert run.tool_calls == 3


def test_a_probe_may_hand_out_what_has_to_be_drawn():
    @tool(effect="once")
    def pay() -> str:
        """Pay."""
        return "paid"

    @pay.probe
    def look(idempotency_key: str) -> object:
        return (word for word in ("paid", idempotency_key))

    found = asyncio.run(ToolRegistry([pay]).probe(ToolCall("c", "pay"), key="k"))
    assert isinstance(found, ToolReturned)
    assert found.content == '["paid","k"]'
