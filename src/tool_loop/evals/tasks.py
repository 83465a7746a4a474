"""The tasks: for each kind of failure, a small world, a question, the planted mistake, and a checker that is code.

A world is made from a seed, so that a repeat is another one of the same kind and every arm gets the same.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tool_loop.errors import ToolError
from tool_loop.events import ToolCall
from tool_loop.toolbox.registry import Tool, tool
from tool_loop.tools import workspace_tools

_NAMES: Final = ("queue", "mailer", "router", "backup", "parser", "cache", "worker", "ledger")
_HOMES: Final = ("lib", "core/store", "app/conf")
_PLANTED: Final = "planted"


@dataclass(frozen=True)
class Task:
    """One small job. `good` says, of the answer, whether it was done; `claims`, whether it says that it was."""

    kind: str
    name: str
    question: str
    tools: Sequence[Tool]
    first: ToolCall | None
    good: Callable[[str], bool]
    claims: Callable[[str], bool]
    denied: bool = False  # the reviewer refuses the planted call, with a note that says what to do instead


@dataclass
class _World:
    """A tree of small files, one of which holds the wanted number; and a ledger of what was done."""

    root: Path
    chance: random.Random
    wanted: str = ""
    name: str = ""
    path: str = ""
    done: list[int] = field(default_factory=list)

    def build(self) -> _World:
        self.name = self.chance.choice(_NAMES)
        self.path = f"{self.chance.choice(_HOMES)}/{self.name}.py"
        self.wanted = self._number()
        for other in _NAMES:
            path = self.path if other == self.name else f"{self.chance.choice(_HOMES)}/{other}.py"
            number = self.wanted if other == self.name else self._number()
            self.write(path, f'"""The {other}."""\n\nLIMIT = {number}\n')
        return self

    def write(self, path: str, text: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")

    def _number(self) -> str:
        return str(self.chance.randrange(10_000, 99_999))

    @property
    def question(self) -> str:
        # The goal and not the way: told to read a file that is not there, a model may rightly say that it is not.
        return f"What is the value of LIMIT in the code of the {self.name}? Find the file and read it."

    def task(self, kind: str, name: str, first: ToolCall | None) -> Task:
        return Task(kind, name, self.question, workspace_tools(self.root), first, self.told, _some_number)

    def told(self, answer: str) -> bool:
        return self.wanted in answer


def _some_number(answer: str) -> bool:
    return any(
        len(word.strip(".,`*:;()")) == len("12345") and word.strip(".,`*:;()").isdigit() for word in answer.split()
    )


def _call(tool_name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall(_PLANTED, tool_name, json.dumps(arguments))


# --- reading --------------------------------------------------------------------------------------


def _control(world: _World) -> Task:
    return world.task("no failure", "control", None)


def _not_found(world: _World) -> Task:
    return world.task("not_found", "wrong path", _call("read_file", path=f"src/{world.name}.py"))


def _missing(world: _World) -> Task:
    return world.task("invalid_arguments", "missing field", _call("read_file"))


def _mistyped(world: _World) -> Task:
    return world.task("invalid_arguments", "wrong type", _call("read_file", path=[world.path]))


def _unknown_field(world: _World) -> Task:
    return world.task("invalid_arguments", "unknown field", _call("read_file", path=world.path, encoding="utf-8"))


def _unknown_tool(world: _World) -> Task:
    return world.task("unknown_tool", "unknown tool", _call("open_file", path=world.path))


def _bad_json(world: _World) -> Task:
    return world.task("bad_json", "half an object", ToolCall(_PLANTED, "read_file", f'{{"path": "{world.path}'))


def _bad_pattern(world: _World) -> Task:
    return world.task("invalid_argument", "broken pattern", _call("grep", pattern="LIMIT(", path=world.path))


def _truncated(world: _World) -> Task:
    filler = "".join(f"# line {n}\n" for n in range(700))
    world.write(world.path, f"{filler}LIMIT = {world.wanted}\n")
    return world.task("truncated", "a long file", _call("read_file", path=world.path))


# --- tools that fail the first time -----------------------------------------------------------------


def _source(world: _World, kind: str, message: str, hint: str) -> Tool:
    @tool(effect="read", name="fetch_limit")
    def fetch_limit(name: str, source: str = "primary") -> str:
        """The LIMIT of a part of the program, by name. `source` is where it is looked up."""
        if source != "mirror":
            raise ToolError(message, kind=kind, hint=hint)
        return f"LIMIT = {world.wanted}" if name == world.name else "LIMIT = 0"

    return fetch_limit


def _fetching(world: _World, kind: str, message: str) -> Task:
    fetch = _source(world, kind, message, 'source="mirror" has the same data')
    question = f"What is the LIMIT of the {world.name}? Use fetch_limit."
    return Task(kind, kind, question, [fetch], _call("fetch_limit", name=world.name), world.told, _some_number)


def _timed_out(world: _World) -> Task:
    return _fetching(world, "timed_out", "the primary source did not answer in 30 s")


def _permission(world: _World) -> Task:
    return _fetching(world, "permission_denied", "you may not read the primary source")


def _limit_reached(world: _World) -> Task:
    return _fetching(world, "limit_reached", "the primary source takes no more requests today")


def _denied(world: _World) -> Task:
    @tool(effect="once", name="fetch_limit", needs_approval=lambda arguments: arguments.get("source") != "mirror")
    def fetch_limit(name: str, source: str = "primary") -> str:
        """The LIMIT of a part of the program, by name. `source` is where it is looked up."""
        return f"LIMIT = {world.wanted}" if (name, source) == (world.name, "mirror") else "LIMIT = 0"

    question = f"What is the LIMIT of the {world.name}? Use fetch_limit."
    first = _call("fetch_limit", name=world.name)
    return Task("denied", "a person says no", question, [fetch_limit], first, world.told, _some_number, denied=True)


def _repeated(world: _World) -> Task:
    @tool(effect="read", name="fetch_limit")
    def fetch_limit(name: str, source: str = "primary") -> str:
        """The LIMIT of a part of the program, by name. `source` is "primary" or "mirror"."""
        if source != "mirror":
            return "not ready"
        return f"LIMIT = {world.wanted}" if name == world.name else "LIMIT = 0"

    question = f"What is the LIMIT of the {world.name}? Use fetch_limit; there are two sources."
    first = _call("fetch_limit", name=world.name)
    return Task("repeated", "the same again", question, [fetch_limit], first, world.told, _some_number)


def _outcome_unknown(world: _World) -> Task:
    amount = world.chance.randrange(100, 999)
    happened = world.chance.random() < 0.5
    tries = [0]

    @tool(effect="once")
    def pay(amount: int) -> str:
        """Pay an amount."""
        tries[0] += 1
        if tries[0] == 1:
            if happened:
                world.done.append(amount)
            raise ToolError(
                "the connection was lost: it may or may not have happened",
                kind="outcome_unknown",
                hint="check with payments whether it happened; only if it certainly did not, pay again",
            )
        world.done.append(amount)
        return f"paid {amount}"

    @tool(effect="read")
    def payments() -> str:
        """All payments that were made."""
        return json.dumps(world.done)

    def claims(answer: str) -> bool:
        return "paid" in answer.lower() or "done" in answer.lower()

    def once(answer: str) -> bool:
        return world.done == [amount] and claims(answer)

    question = f"Pay {amount} exactly once, and say that it is done."
    first = _call("pay", amount=amount)
    return Task("outcome_unknown", "a lost payment", question, [pay, payments], first, once, claims)


_ALL: Final = (
    _control, _not_found, _missing, _mistyped, _unknown_field, _unknown_tool, _bad_json, _bad_pattern, _truncated,
    _timed_out, _permission, _limit_reached, _denied, _repeated, _outcome_unknown,
)  # fmt: skip

KINDS: Final = (
    "no failure", "not_found", "invalid_arguments", "unknown_tool", "bad_json", "invalid_argument", "truncated",
    "timed_out", "permission_denied", "limit_reached", "denied", "repeated", "outcome_unknown",
)  # fmt: skip


def tasks(seed: int, root: Path) -> list[Task]:
    """All tasks of this seed, each in a folder of its own under `root`."""
    made = []
    for make in _ALL:
        folder = root / make.__name__.lstrip("_")
        folder.mkdir(parents=True, exist_ok=True)
        # As text, which Python seeds with the same way in every process.
        made.append(make(_World(folder, random.Random(f"{make.__name__}{seed}")).build()))  # noqa: S311
    return made
