"""`write_file` and `edit_file` as tools: what a model sees of them, what a person is shown, and the probe.

They must not run twice (an insertion that is repeated is there twice), and yet a crash leaves no doubt:
the digests of the file before and after are on record before it is touched, and tell afterwards on
which side of the one rename the process died. How a change is made is in `change.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tool_loop.errors import ToolError
from tool_loop.ports import Preview
from tool_loop.toolbox.registry import NotRun, Tool, ToolContext

from .change import Change, conflict, edited, happened, make, written
from .workspace import Root

_RULE = "any file that is not protected"


def edit_tools(root: Root, *, auto: bool = False) -> list[Tool]:
    """`write_file` and `edit_file` for one root.

    A person is asked about each call; with `auto` only about paths that are protected (`protected.py`).
    """
    path = {"type": "string", "description": "Relative to the workspace, with / between names."}
    write = {"path": path, "content": {"type": "string", "description": "All of the file."}}
    edit = {
        "path": path,
        "old": {"type": "string", "description": "The text to replace, exactly as it is in the file."},
        "new": {"type": "string", "description": "The text in its place."},
        "all": {"type": "boolean", "default": False, "description": "Replace it at each place where it is."},
    }
    return [
        _tool(
            "write_file",
            "Write a whole text file: a new one, or in place of what is there. Directories are made.",
            write,
            functools.partial(written, root),
            root,
            auto,
        ),
        _tool(
            "edit_file",
            "Replace text in a file. old has to be in the file exactly once, letter by letter, so take enough lines.",
            edit,
            lambda path, old, new, all=False: edited(root, path, old, new, all),  # noqa: A006  the model's word for it
            root,
            auto,
        ),
    ]


def _tool(
    name: str, description: str, fields: dict[str, Any], plan: Callable[..., Change], root: Root, auto: bool
) -> Tool:
    def asks(change: Change) -> bool:
        return not auto or change.protected is not None

    def needs_approval(arguments: dict[str, Any]) -> bool:
        try:
            return asks(plan(**arguments))
        except ToolError:
            return False  # it cannot be done, so nobody has to allow it, and the model is told why

    def preview(**arguments: Any) -> Preview:
        change = plan(**arguments)
        return Preview(
            lambda: _shown(change), change.mark, "" if change.protected else _RULE, "diff", asks=asks(change)
        )

    def call(context: ToolContext, **arguments: Any) -> str:
        change = plan(**arguments)
        # In a run the mark is on record by now, and what a person allowed is bound to it. A file that
        # is another one was changed since; with no mark at all it was not even possible then.
        if context.idempotency_key and context.mark != change.mark:
            raise conflict(arguments["path"])
        return make(root, arguments["path"], change, context.idempotency_key)

    def probe(path: str, mark: str, idempotency_key: str) -> Any:
        if not mark:
            return NotRun  # it is on record before anything is touched
        try:
            was = happened(root, path, mark, idempotency_key)
        except ToolError:
            return None
        return (
            f"changed {path} (found out after the process was restarted)" if was else NotRun if was is False else None
        )

    return Tool(
        name,
        description,
        {
            "type": "object",
            "properties": fields,
            "required": [field for field, schema in fields.items() if "default" not in schema],
            "additionalProperties": False,
        },
        call,
        effect="once",
        timeout_seconds=30.0,
        needs_approval=needs_approval,
        scope=root.path,
        preview=preview,
        probe_func=probe,
    )


def _shown(change: Change) -> str:
    note = f"{change.protected} is protected: it decides what runs outside of this run\n" if change.protected else ""
    return note + (change.diff() or change.note)
