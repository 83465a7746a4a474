"""The tools that come with the package: three that read a directory, three that change it, a calculator.

Says how a model sees those that read. What they do is in files.py, search.py and _calculator.py, whose
tool has the name; those that change things are put together in coding.py.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tool_loop.toolbox.registry import Tool

from ._calculator import calculator
from .coding import coding_tools

if TYPE_CHECKING:
    from .search import Engine
    from .workspace import Root

__all__ = ["calculator", "coding_tools", "workspace_tools"]

_PATH = "Relative to the workspace, with / between names."


def workspace_tools(
    root: str | os.PathLike[str], *, engine: Engine | None = None, trusted: bool | None = None
) -> list[Tool]:
    """`list_dir`, `read_file` and `grep` for one directory, which none of them can leave.

    `engine` is what `grep` searches with (see `tools.search.search_engine`), by default ripgrep where
    there is one. `trusted` says whether you would follow what is written in the directory: where it is not
    True, and people are asked about calls, what the model has read there ends the permissions they gave
    for the whole run. Raises `UsageError` when `root` is not a directory that can be opened, or when
    TOOL_LOOP_RG names something that is not a program.
    """
    from .search import search_engine
    from .workspace import Root

    held = Root(root)
    tools = [_list_dir(held), _read_file(held), _grep(held, engine or search_engine())]
    return tools if trusted is None else [replace(tool, untrusted=not trusted) for tool in tools]


def _list_dir(root: Root) -> Tool:
    from .files import LIST_ENTRIES, list_dir

    def call(path: str = ".") -> str:
        return list_dir(root, path)

    description = (
        f"List a directory of the workspace, at most {LIST_ENTRIES} entries. A directory ends in /. "
        "Directories of version control and caches are left out."
    )
    return _tool("list_dir", description, {"path": _string(_PATH, default=".")}, call)


def _read_file(root: Root) -> Tool:
    from .files import READ_LINES, read_file

    def call(path: str, start_line: int = 1, end_line: int | None = None) -> str:
        return read_file(root, path, start_line, end_line)

    description = (
        f"Read lines of a text file in the workspace, {READ_LINES} unless end_line is given. "
        "The first line of the result says which lines they are, how many there are, and how to read on."
    )
    fields = {
        "path": _string(_PATH),
        "start_line": {"type": "integer", "minimum": 1, "default": 1, "description": "Counted from 1."},
        "end_line": {"type": ["integer", "null"], "default": None, "description": "Included."},
    }
    return _tool("read_file", description, fields, call)


def _grep(root: Root, engine: Engine) -> Tool:
    from .search import MAX_CONTEXT, grep

    async def call(pattern: str, **options: Any) -> str:
        return await grep(root, pattern, **options, engine=engine)

    description = (
        "Search the files of the workspace, line by line, with a regular expression. Results are file:line: text. "
        "Hidden and git-ignored files are searched only when path names one."
    )
    lines = {"type": "integer", "minimum": 0, "maximum": MAX_CONTEXT, "default": 0}
    globs = {"type": ["string", "null"], "default": None}
    fields = {
        "pattern": _string(r"A regular expression; escape ( [ . and the like to find them: foo\(."),
        "path": _string(f"A file or directory to search in. {_PATH}", default="."),
        "glob": {**globs, "description": "Which files: *.py, src/**/*.ts, !tests/**."},
        "context": {**lines, "description": "Lines to show before and after each match."},
        "ignore_case": {"type": "boolean", "default": False},
    }
    return _tool("grep", description, fields, call)


def _string(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", **more, "description": description}


def _tool(name: str, description: str, fields: dict[str, dict[str, Any]], func: Any) -> Tool:
    parameters = {
        "type": "object",
        "properties": fields,
        "required": [field for field, schema in fields.items() if "default" not in schema],
        "additionalProperties": False,
    }
    return Tool(name, description, parameters, func, effect="read", timeout_seconds=30.0)
