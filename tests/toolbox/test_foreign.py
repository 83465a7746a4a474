"""Values of numpy, pandas and their like come out as what they are, and nothing of ours imports them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from tool_loop.events import ToolCall
from tool_loop.toolbox.registry import Tool, ToolRegistry

np = pytest.importorskip("numpy", reason="numpy is not installed")
pd = pytest.importorskip("pandas", reason="pandas is not installed")


def shown(value: Any, **options: Any) -> str:
    registry = ToolRegistry([Tool("give", "Give.", {"type": "object"}, lambda: value, **options)])
    found = asyncio.run(registry.run(ToolCall("c", "give")))
    assert found.error is None, found.content
    return found.content


FRAME = pd.DataFrame({"a": [1, 2], "b": ["x", None]})
VALUES = [
    (np.int64(5), "5"),
    (np.float32(1.5), "1.5"),
    (np.float64("nan"), '"nan"'),
    (np.bool_(True), "true"),
    (np.str_("text"), "text"),
    (np.datetime64("2026-01-31T12:00:00", "ns"), '"2026-01-31T12:00:00.000000000"'),
    (np.complex128(1j), '"1j"'),
    (np.array([[1, 2], [3, 4]]), "[[1,2],[3,4]]"),
    (np.array([1.0, np.nan]), '[1.0,"nan"]'),
    (np.array(7), "7"),
    (np.array(["2026-01-31"], dtype="datetime64[D]"), '["2026-01-31"]'),
    (np.array([b"\xff"]), '["/w=="]'),
    (np.array([(1, "x")], dtype=[("n", "i4"), ("s", "U1")]), '[{"n":1,"s":"x"}]'),
    ({"mean": np.float64(2.5), "n": np.int32(3), "of": np.arange(2)}, '{"mean":2.5,"n":3,"of":[0,1]}'),
    ({np.int64(1): "key"}, '{"1":"key"}'),
    ((np.int64(n) for n in range(2)), "[0,1]"),
    (FRAME, '[{"a":1,"b":"x"},{"a":2,"b":null}]'),
    (FRAME.set_index("b"), '[{"b":"x","a":1},{"b":null,"a":2}]'),
    (FRAME.set_axis(["p", "q"]), '[{"index":"p","a":1,"b":"x"},{"index":"q","a":2,"b":null}]'),
    (FRAME["a"], "[1,2]"),
    (pd.Series([1, 2], index=["x", "y"]), '{"x":1,"y":2}'),
    (pd.Series([1, 2], index=["x", "x"]), '[["x",1],["x",2]]'),
    (pd.Index(["a", "b"]), '["a","b"]'),
    (pd.Categorical(["a", "b"]), '["a","b"]'),
    (pd.Timestamp("2026-01-31"), '"2026-01-31T00:00:00"'),
    (pd.Timedelta(3, "s"), '"P0DT0H0M3S"'),
    (pd.DataFrame([[1, 2]], columns=["a", "a"]), '{"columns":["a","a"],"rows":[[1,2]]}'),
    (FRAME.groupby("a")["a"].sum(), '{"1":1,"2":2}'),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), VALUES, ids=range(len(VALUES)))
def test_values_of_numpy_and_pandas_come_out_as_what_they_are(value, text):
    assert shown(value) == text


@pytest.mark.parametrize(
    ("value", "total"),
    [
        (np.zeros(10_000_000), "10,000,000 values"),
        (np.zeros((10_000, 1_000)), "10,000,000 values, 10000 x 1000"),
        (np.zeros((2, 5_000_000)), "10,000,000 values, 2 x 5000000"),
        (pd.DataFrame({"a": range(100_000)}), "100,000 rows"),
        (pd.Series(range(100_000)), "100,000 values"),
    ],
)
def test_what_is_large_is_cut_before_it_is_converted_and_says_how_large_it_is(value, total):
    content = shown(value, max_result_chars=2_000)

    assert f"[cut: this is the beginning of {total}" in content
    assert len(content) < 2_200


class Lists:
    def tolist(self) -> list[int]:
        return [1, 2]


class One:
    def item(self) -> int:
        return 7


class Shelf:
    def item(self, name: str) -> str:
        return name

    def __str__(self) -> str:
        return "a shelf"


class Row:
    def to_dict(self) -> dict[str, int]:
        return {"a": 1}


class Table:
    columns = ("a", "b")

    def head(self, count: int) -> Table:
        return self

    def __len__(self) -> int:
        return 1

    def to_dict(self, orient: str) -> list[dict[str, int]]:
        return [{"a": 1, "b": 2}]


class Polars(Table):
    def to_dicts(self) -> list[dict[str, int]]:
        return [{"a": 1}]


class Arrow:
    def to_pylist(self) -> list[int]:
        return [1]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Lists(), "[1,2]"),
        ([One(), One()], "[7,7]"),
        (Shelf(), '"a shelf"'),
        (Row(), '{"a":1}'),
        (Table(), '[{"a":1,"b":2}]'),
        (Polars(), '[{"a":1}]'),
        (Arrow(), "[1]"),
    ],
)
def test_a_library_is_known_by_what_its_objects_can_do(value, text):
    assert shown(value) == text


def test_nothing_of_ours_imports_them():
    code = (
        "import sys, tool_loop.toolbox.registry, tool_loop.toolbox.plain; print({'numpy', 'pandas'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True).stdout
    assert out.strip() == "set()"
