"""The names people import from `tool_loop`: all there, listed once, each where it says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tool_loop

TREE = ast.parse(Path(tool_loop.__file__).read_text(encoding="utf-8"))


def test_every_public_name_is_listed_and_loads() -> None:
    for name in tool_loop.__all__:
        assert getattr(tool_loop, name) is not None, name
    assert sorted(set(tool_loop.__all__)) == sorted(tool_loop.__all__)
    assert dir(tool_loop) == [*sorted([*tool_loop.__all__, "__version__"])]


def test_the_type_checker_sees_the_same_names() -> None:
    typed = [node for node in TREE.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    seen = {
        (alias.asname or alias.name): node.module
        for block in typed
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    assert seen == tool_loop._HOMES
    assert sorted(seen) == sorted(tool_loop.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Agnet'"):
        tool_loop.Agnet  # noqa: B018
