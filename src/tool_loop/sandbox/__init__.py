"""A sandbox for commands: what they may reach is the workspace and nothing else, whoever wrote them.

`choose` finds the strongest one that works here, a `Box` puts it around a workspace, and `run` runs one
command in it. The tool a model sees is in `tools/run.py`. Linux only, no dependency: bubblewrap is
used where it works, else Landlock and seccomp through ctypes. Importing this loads none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .box import Box, imports_from
    from .choice import Sandbox, SandboxUnavailable, choose
    from .command import CommandOutcome, CommandStop, run
    from .limits import CommandLimits

__all__ = [
    "Box",
    "CommandLimits",
    "CommandOutcome",
    "CommandStop",
    "Sandbox",
    "SandboxUnavailable",
    "choose",
    "imports_from",
    "run",
]

_HOMES = {
    "Box": "box",
    "CommandLimits": "limits",
    "CommandOutcome": "command",
    "Sandbox": "choice",
    "SandboxUnavailable": "choice",
    "CommandStop": "command",
    "choose": "choice",
    "imports_from": "box",
    "run": "command",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
