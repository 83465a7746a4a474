"""Which room may import which, as docs/architecture.md says it: nothing is in a circle, for type checking either."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "tool_loop"

# The files that every room may import; together they are one room, and agent.py is the head of its own.
VOCABULARY = {
    "calls_in_prose",
    "changes",
    "errors",
    "events",
    "limits",
    "permissions",
    "ports",
    "records",
    "state",
    "transcript",
}


def modules() -> dict[str, Path]:
    return {".".join(path.relative_to(SRC).with_suffix("").parts): path for path in sorted(SRC.rglob("*.py"))}


def imported(module: str, path: Path) -> list[tuple[str, str]]:
    """(module, name) of every import of ours in a file, those for type checking and those in functions too."""
    package = [*module.split(".")[:-1]]
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = node.module.split(".") if node.module else []
            if node.level:
                base = ["tool_loop", *package[: len(package) - node.level + 1], *base]
            if base[0] == "tool_loop":
                found += [(".".join(base[1:]), alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(name.name.partition(".")[2], "") for name in node.names if name.name.startswith("tool_loop.")]
    return found


def room(module: str, name: str = "") -> str:
    first = module.partition(".")[0] or name
    return "vocabulary" if first in VOCABULARY else "loop" if first == "agent" else first


def rooms() -> dict[str, set[str]]:
    """What each room imports. The package's front page and `python -m` lead everywhere and are left out."""
    known = {room(module) for module in modules()}
    graph: dict[str, set[str]] = {}
    for module, path in modules().items():
        if module not in ("__init__", "__main__"):
            used = {room(*where) for where in imported(module, path)} & known
            graph.setdefault(room(module), set()).update(used - {room(module), "__init__"})
    return graph


def layers(graph: dict[str, set[str]]) -> list[set[str]]:
    """The rooms from the ground up; raises when some are in a circle."""
    placed: set[str] = set()
    built: list[set[str]] = []
    while rest := graph.keys() - placed:
        layer = {name for name in rest if graph[name] <= placed}
        if not layer:
            raise AssertionError(f"in a circle, or above one: { {n: graph[n] & rest for n in sorted(rest)} }")
        built.append(layer)
        placed |= layer
    return built


def test_no_room_is_in_a_circle_with_another() -> None:
    assert layers(rooms())[0] >= {"vocabulary"}


def test_a_circle_would_be_seen() -> None:
    with pytest.raises(AssertionError, match="in a circle"):
        layers({"tools": {"sandbox"}, "sandbox": {"tools"}})


def test_a_room_imports_what_the_table_of_the_architecture_lets_it() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text.partition("<!-- rooms -->")[2].partition("<!-- end -->")[0]
    rows = [line.split("|")[1:4:2] for line in table.splitlines() if line.startswith("| `")]
    told = {re.sub(r"[`/ ]|\.py", "", name): set(re.findall(r"`(\w+)", uses)) for name, uses in rows}

    used = {name: uses - {"vocabulary"} for name, uses in rooms().items()}
    assert told.keys() == used.keys()
    assert {name: uses - told[name] for name, uses in used.items() if uses - told[name]} == {}, "not in the table"


def test_what_has_an_underscore_is_private_to_its_room() -> None:
    seen = [
        f"{module} takes {where}.{name}"
        for module, path in modules().items()
        for where, name in imported(module, path)
        if room(where, name) != room(module) and any(part.startswith("_") for part in (*where.split("."), name))
    ]

    assert [line for line in seen if "__version__" not in line] == []
