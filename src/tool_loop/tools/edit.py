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


def edit_tools(root: Root, *, auto: bool = False, trusted: bool = False) -> list[Tool]:
    """`write_file` and `edit_file` for one root.

    A person is asked about each call; with `auto` only about paths that are protected (`protected.py`).
    A failure carries lines of the file, so unless `trusted` it counts as written by strangers.
    """
    path = {"type": "string", "description": "Relative to the workspace, with / between names."}
    write = {"path": path, "content": {"type": "string", "description": "All of the file."}}
    edit = {
        "path": path,
        "old": {"type": "string", "description": "The text to replace, exactly as it is in the file."},
        "new": {"type": "string", "description": "The text in its place."},
        "all": {"type": "boolean", "default": False, "description": "Replace it at each place where it is."},
    }
    writing = _Changing(root, functools.partial(written, root), auto=auto, trusted=trusted)
    editing = _Changing(
        root,
        lambda path, old, new, all=False: edited(root, path, old, new, all),  # noqa: A006  the model's word for it
        auto=auto,
        trusted=trusted,
    )
    return [
        writing.tool(
            "write_file",
            "Write a whole text file: a new one, or in place of what is there. Directories are made.",
            write,
        ),
        editing.tool(
            "edit_file",
            "Replace text in a file. old has to be in the file exactly once, letter by letter, so take enough lines.",
            edit,
        ),
    ]


class _Changing:
    """A tool that makes the change which `plan` works out from its arguments."""

    def __init__(self, root: Root, plan: Callable[..., Change], *, auto: bool, trusted: bool) -> None:
        self._root, self._plan, self._auto, self._trusted = root, plan, auto, trusted

    def tool(self, name: str, description: str, fields: dict[str, Any]) -> Tool:
        parameters = {
            "type": "object",
            "properties": fields,
            "required": [field for field, schema in fields.items() if "default" not in schema],
            "additionalProperties": False,
        }
        return Tool(
            name,
            description,
            parameters,
            self.call,
            effect="once",
            timeout_seconds=30.0,
            needs_approval=self.needs_approval,
            untrusted=False,
            scope=self._root.path,
            preview=self.preview,
            probe_func=self.probe,
        )

    def asks(self, change: Change) -> bool:
        return not self._auto or change.protected is not None

    def needs_approval(self, arguments: dict[str, Any]) -> bool:
        try:
            return self.asks(self._plan(**arguments))
        except ToolError:
            return False  # it cannot be done, so nobody has to allow it, and the model is told why

    def preview(self, **arguments: Any) -> Preview:
        change = self._plan(**arguments)
        rule = "" if change.protected else _RULE
        return Preview(functools.partial(_shown, change), change.mark, rule, "diff", self.asks(change), complete=True)

    def call(self, context: ToolContext, **arguments: Any) -> str:
        try:
            change = self._plan(**arguments)
            # In a run the mark is on record by now, and what a person allowed is bound to it. A file that
            # is another one was changed since; with no mark at all it was not even possible then.
            if context.idempotency_key and context.mark != change.mark:
                raise conflict(arguments["path"])
            return make(self._root, arguments["path"], change, context.idempotency_key)
        except ToolError as error:
            error.untrusted = not self._trusted
            raise

    def probe(self, path: str, mark: str, idempotency_key: str) -> Any:
        if not mark:
            return NotRun  # it is on record before anything is touched
        try:
            was = happened(self._root, path, mark, idempotency_key)
        except ToolError:
            return None
        return (
            f"changed {path} (found out after the process was restarted)" if was else NotRun if was is False else None
        )


def _shown(change: Change) -> str:
    note = f"{change.protected} is protected: it decides what runs outside of this run\n" if change.protected else ""
    return note + (change.diff() or change.note)
