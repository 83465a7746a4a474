"""The options that let a run change things: which tools it gets, and what they may do without asking.

Every default is None, which means "not said": then what the run recorded counts, where the record is
one's own. Without any of them a run only reads.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tool_loop.errors import UsageError

if TYPE_CHECKING:
    from tool_loop.toolbox.tool import Tool

SANDBOXES: Final = ("auto", "bwrap", "landlock", "none")
ALLOWED: Final = ("git", "network")

# Option by option, as a run records it (`meta["work"]`) and as the parser calls it: `run` is a run's id there.
_NAMES: Final = {
    "write": "may_write", "run": "may_run", "auto": "auto", "trust": "trust",
    "allow": "allow", "read": "read", "sandbox": "sandbox",
}  # fmt: skip


def add_work(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("changing things (see docs/changing-things.md)")
    group.add_argument(
        "--write", dest="may_write", action="store_true", default=None, help="the model may write and edit files"
    )
    group.add_argument(
        "--run", dest="may_run", action="store_true", default=None, help="the model may run commands, in a sandbox"
    )
    group.add_argument(
        "--auto", action="store_true", default=None, help="do not ask about what the sandbox and the root hold"
    )
    group.add_argument(
        "--trust",
        action="store_true",
        default=None,
        help="you would follow what is written in the root: reading it ends no permission for the run",
    )
    group.add_argument(
        "--allow", action="append", choices=ALLOWED, help="what commands may do beyond the sandbox; can be repeated"
    )
    group.add_argument(
        "--read", action="append", metavar="DIR", help="a directory that commands may read; can be repeated"
    )
    group.add_argument("--sandbox", choices=SANDBOXES, help='default "auto": the strongest that works here')


def work_tools(args: Namespace) -> list[Tool]:
    """The tools of the package for the root, as far as the options go. Raises `UsageError` for options that
    mean nothing together, and `SandboxUnavailable`."""
    from tool_loop.tools import coding_tools, workspace_tools

    root = args.root or "."
    said = {name: getattr(args, dest, None) for name, dest in _NAMES.items()}
    if said["auto"] and not (said["write"] or said["run"]):
        raise UsageError("--auto: there is nothing to ask about; give --write or --run too")
    for option in ("allow", "read", "sandbox"):
        if said[option] and not said["run"]:
            raise UsageError(f"--{option} is about commands; give --run too")
    if not (said["write"] or said["run"]):
        return workspace_tools(root, trusted=True if said["trust"] else None)
    if said["run"]:
        _import_nothing_from(root)
    return coding_tools(
        root,
        (said["sandbox"] or "auto") if said["run"] else None,
        write=bool(said["write"]),
        auto=bool(said["auto"]),
        trusted=bool(said["trust"]),
        allow=said["allow"] or (),
        read=said["read"] or (),
    )


def _import_nothing_from(root: str) -> None:
    """`python -m tool_loop` looks for modules where it is started, which is the workspace more often than
    not: a command could leave one there for this process to import, outside of any sandbox."""
    from tool_loop.sandbox import imports_from

    outside = set(imports_from(os.path.realpath(root)))
    sys.path[:] = [entry for entry in sys.path if entry not in outside]


def recorded_work(args: Namespace) -> dict[str, Any]:
    """What a run has to record of these options."""
    said = {name: getattr(args, dest, None) for name, dest in _NAMES.items()}
    if said["read"]:
        said["read"] = [os.path.abspath(place) for place in said["read"]]  # noqa: PTH100  links stay as they were written
    return {name: value for name, value in said.items() if value}


def with_recorded_work(args: Namespace, meta: Mapping[str, Any], *, ours: bool) -> None:
    """Fill in what was not said from what the run recorded. From a record that may be somebody else's
    nothing is taken: each of these gives power."""
    recorded = meta.get("work")
    if not ours or not isinstance(recorded, dict):
        return
    for name, dest in _NAMES.items():
        value = recorded.get(name)
        if getattr(args, dest, None) is None and _fits(name, value):
            setattr(args, dest, value)


def work_options(meta: Mapping[str, Any]) -> list[str]:
    """The options as a person types them, of what a run recorded."""
    recorded = meta.get("work")
    words: list[str] = []
    for name, value in recorded.items() if isinstance(recorded, dict) else ():
        if name in _NAMES and _fits(name, value):
            for each in value if isinstance(value, list) else [value]:
                words += [f"--{name}"] if each is True else [f"--{name}", each]
    return [word for word in words if word.isprintable()]


def said_work(args: Namespace) -> list[str]:
    """Those of the options that were given, by name."""
    return [f"--{name}" for name, dest in _NAMES.items() if getattr(args, dest, None) is not None]


def option_for(tool: str) -> str:
    """The option that brings a tool, "" for one that none of these does."""
    return {"write_file": "--write", "edit_file": "--write", "run": "--run"}.get(tool, "")


def _fits(name: str, value: object) -> bool:
    if name in ("allow", "read"):
        words = ALLOWED if name == "allow" else None
        return isinstance(value, list) and all(isinstance(v, str) and (words is None or v in words) for v in value)
    return value in SANDBOXES if name == "sandbox" else value is True
