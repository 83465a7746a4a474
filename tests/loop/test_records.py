"""Our quick dataclass beside the standard one: whatever is done to one of theirs gives the same with ours."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from tool_loop.events import ModelReplied, ToolCall, ToolReturned, Usage
from tool_loop.records import dataclass


@dataclass(frozen=True, slots=True)
class Ours:
    """A record."""

    name: str
    count: int = 1
    parts: list[int] = field(default_factory=list)

    def twice(self) -> int:
        return 2 * self.count


@dataclasses.dataclass(frozen=True, slots=True)
class Theirs:
    """A record."""

    name: str
    count: int = 1
    parts: list[int] = field(default_factory=list)

    def twice(self) -> int:
        return 2 * self.count


def shape(kind: Any) -> Any:
    one = kind("a", parts=[1])
    match one:
        case Ours(name, count) | Theirs(name, count):
            matched = name, count
        case _:
            matched = None
    return (
        repr(one).replace(kind.__name__, ""),
        one == kind("a", 1, [1]),
        one == kind("b"),
        one == ("a", 1, [1]),
        [f.name for f in dataclasses.fields(one)],
        dataclasses.asdict(one),
        dataclasses.astuple(dataclasses.replace(one, count=3)),
        dataclasses.is_dataclass(one),
        matched,
        one.twice(),
        kind.__doc__,
        kind.__match_args__,
        hasattr(one, "__dict__"),
        kind("x").parts is kind("x").parts,
    )


def test_ours_is_like_theirs() -> None:
    assert shape(Ours) == shape(Theirs)


def test_copies_and_pickles_are_equal() -> None:
    one = ModelReplied("hi", (ToolCall("a", "look"),), "tool_calls", Usage(1, 2))

    assert one == copy.copy(one) == copy.deepcopy(one) == pickle.loads(pickle.dumps(one))
    assert hash(ToolReturned("a", "b")) == hash(ToolReturned("a", "b"))
    assert len({Usage(1), Usage(1), Usage(2)}) == 2


def test_a_record_is_frozen_and_has_no_further_attributes() -> None:
    one = Ours("a")
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'count'"):
        one.count = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'count'"):
        del one.count  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        one.other = 2  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        hash(one)  # a list in it, as with theirs


@pytest.mark.parametrize("wrong", [{}, {"name": "a", "other": 1}, {"count": 1}])
def test_wrong_arguments_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"missing|unexpected") as ours:
        Ours(**wrong)
    with pytest.raises(TypeError) as theirs:
        Theirs(**wrong)
    assert str(ours.value).replace("Ours", "") == str(theirs.value).replace("Theirs", "")


def test_what_it_cannot_do_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match=r"use dataclasses\.dataclass"):

        @dataclass(frozen=True, slots=True)
        class Keyword:
            a: int = field(kw_only=True)

    with pytest.raises(TypeError, match=r"the others are dataclasses\.dataclass"):
        dataclass(frozen=False, slots=True)


def test_a_class_may_finish_itself_and_may_have_no_fields_or_one() -> None:
    seen: list[str] = []

    @dataclass(frozen=True, slots=True)
    class Finished:
        name: str

        def __post_init__(self) -> None:
            seen.append(self.name)

    @dataclass(frozen=True, slots=True)
    class Empty:
        pass

    assert repr(Finished("a")).endswith("Finished(name='a')")
    assert seen == ["a"]
    assert Empty() == Empty()
    assert Finished("a") != Finished("b")
