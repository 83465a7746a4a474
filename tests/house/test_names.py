"""One word per idea: a class name means one thing in the whole package, and the glossary knows the words."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import tool_loop

SRC = Path(tool_loop.__file__).parent


def test_no_top_level_class_name_is_defined_twice() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{path.relative_to(SRC)}:{node.lineno}")

    assert {name: places for name, places in found.items() if len(places) > 1} == {}
