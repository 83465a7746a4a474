"""What is JSON and what is not, in one place for everybody who reads it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tool_loop
from tool_loop.runtime.strict import STRICT

SRC = Path(tool_loop.__file__).parent


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": NaN}', "NaN is not JSON"),
        ("[-Infinity]", "-Infinity is not JSON"),
        ("1e999", "the number 1e999 is too large"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', 'the key "c" occurs twice in one object'),
    ],
)
def test_what_another_reader_would_read_differently_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        STRICT.decode(text)


def test_json_is_read_as_it_is() -> None:
    assert STRICT.decode('{"a": [1, 2.5, null, "\\u00e9"]}') == {"a": [1, 2.5, None, "\u00e9"]}


def test_the_rules_have_one_home() -> None:
    hooks = {"no_constant", "finite", "once_each", "said"}
    others = [
        f"{path.relative_to(SRC)}:{node.lineno}"
        for path in sorted(SRC.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.keyword) and node.arg in ("object_pairs_hook", "parse_constant", "parse_float")
        if getattr(node.value, "id", "") not in hooks
    ]

    assert others == []
