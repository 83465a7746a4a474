"""A share of the fuzzing in every run of the tests: Hypothesis for what is small, mutation for what is deep.

The rest is in tests/fuzz.py: 10,000 inputs for each target in CI, a million by hand.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests import fuzz
from tests.kit.dialects import ALL, Dialect, sse

EXAMPLES = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,  # the same in every run; other inputs are what the command is for
    database=None,
    suppress_health_check=list(HealthCheck),
)
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(fuzz.ODD_VALUES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("target", sorted(fuzz.TARGETS))
def test_broken_inputs_give_a_value_or_a_typed_error(target: str) -> None:
    assert fuzz.run(target, fuzz.TARGETS[target], 400, seed=1) is None


@pytest.mark.parametrize("target", sorted(fuzz.TARGETS))
def test_any_bytes_give_a_value_or_a_typed_error(target: str) -> None:
    @EXAMPLES
    @given(st.binary(max_size=200))
    def check(data: bytes) -> None:
        fuzz.TARGETS[target](data)

    check()
    assert fuzz.TARGETS[target](b"") is None


@pytest.mark.parametrize("dialect", ALL, ids=lambda d: d.name)
def test_any_values_in_the_fields_of_a_reply_give_a_value_or_a_typed_error(dialect: Dialect) -> None:
    fields = {key for event in fuzz.MORE[dialect.name] for key in event}
    fields = fields - {"type"} | {"choices", "output", "content", "usage"}
    kinds = sorted(
        {event["type"] for event in fuzz.MORE[dialect.name] if "type" in event}
        | {"message_delta", "response.completed"}
    )
    events = st.fixed_dictionaries({"type": st.sampled_from(kinds) | ODD}, optional=dict.fromkeys(sorted(fields), ODD))

    @settings(EXAMPLES, max_examples=60)
    @given(st.lists(events, max_size=4))
    def check(found: list[dict[str, object]]) -> None:
        fuzz.TARGETS[dialect.name](sse((json.dumps(event) for event in found), named=False))
        for event in found:
            fuzz.TARGETS[dialect.name](json.dumps(event).encode())

    check()
    assert fuzz.seeds(dialect.name)


def test_any_text_is_arguments_or_bad_json() -> None:
    @EXAMPLES
    @given(st.text(max_size=60) | ODD.map(json.dumps))
    def check(text: str) -> None:
        fuzz.arguments(text.encode("utf-8", "surrogatepass"))

    check()
    assert fuzz.arguments(b'{"a": 1}') is None


# --- the fuzzer itself ------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_inputs_and_another_seed_others() -> None:
    def first(seed: int) -> list[bytes]:
        return [data for _, data in zip(range(200), fuzz.inputs("chat", seed), strict=False)]

    assert first(1) == first(1) != first(2)


def test_most_inputs_reach_what_is_behind_the_door() -> None:
    reached = 0
    for _, data in zip(range(300), fuzz.inputs("messages", 5), strict=False):
        read = fuzz._as_document if data[:1] == b"{" else fuzz._as_stream
        try:
            read(fuzz._assembler(fuzz.MESSAGES), data, lambda _: None)
        except fuzz.ProviderError as error:
            reached += error.kind != "protocol"
        else:
            reached += 1

    assert reached >= 150


def test_a_fault_is_told_with_the_input_that_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    def brittle(data: bytes) -> None:
        assert b"null" not in data

    code = fuzz.main(["--inputs", "100"], {"arguments": brittle})
    found = next(data for data in fuzz.inputs("arguments", 0) if b"null" in data)
    said = capsys.readouterr().out

    assert code == 1
    assert "AssertionError" in said
    assert repr(found) in said


def test_the_command_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main(["--target", "arguments", "--target", "sse", "--inputs", "20"]) == 0
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()] == [
        "arguments: 20 inputs",
        "sse: 20 inputs",
    ]
