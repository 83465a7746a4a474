"""The tools of a coding agent for one workspace: look, change files, run commands.

Puts together what the other files make, with one answer for all of them to who is asked about what.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tool_loop.toolbox.tool import Tool

if TYPE_CHECKING:
    from tool_loop.sandbox.box import Permission
    from tool_loop.sandbox.choice import Sandbox
    from tool_loop.sandbox.limits import CommandLimits


def coding_tools(
    root: str | os.PathLike[str],
    sandbox: str | Sandbox | None = "auto",
    *,
    write: bool = True,
    auto: bool = False,
    trusted: bool = False,
    allow: Iterable[Permission] = (),
    read: Iterable[str | os.PathLike[str]] = (),
    limits: CommandLimits | None = None,
) -> list[Tool]:
    """`list_dir`, `read_file`, `grep`, `write_file`, `edit_file` and `run`, for one directory.

    A person is asked about each change and each command, and sees the diff or the command line; give the
    agent a reviewer, or it waits. With `auto` nobody is asked about what the sandbox holds: only about
    protected paths (`.git`, CI, editor and agent configuration), about commands that need the network,
    and about every command when `sandbox` is "none". `sandbox` is "auto", "bwrap", "landlock", "none", what
    `tool_loop.sandbox.choose` returned, or None for no `run` at all. `write=False` leaves the two tools
    that write out. `trusted` says that you would follow what is written in the workspace: else what the
    model reads there ends the permissions that were given for the run. `allow` may hold "git" (what a
    commit writes below `.git`) and "network"; `read` are directories that commands may read too; `limits`
    are those of a command.

    Raises `UsageError` for a root that is no directory, and `SandboxUnavailable` when commands would have
    no sandbox.
    """
    from . import workspace_tools
    from .edit import edit_tools
    from .run import run_tool
    from .workspace import Root

    tools = workspace_tools(root, trusted=trusted)
    if write:
        tools += edit_tools(Root(root), auto=auto, trusted=trusted)
    if sandbox is not None:
        tools.append(
            run_tool(root, sandbox, needs_approval=not auto, trusted=trusted, read=read, allow=allow, limits=limits)
        )
    return tools
