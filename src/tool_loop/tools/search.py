"""Finds lines by a regular expression: an engine finds where, the root shows what is there.

The engine only says file, line and offset. What the model reads is read again through the root, so
that no link and no race, inside a program that knows nothing of roots, can bring in a byte from
outside. Knows nothing about which engine there is (`_engine.py`) or how a child is run (`_child.py`).
"""

from __future__ import annotations

import os
import re
import stat
import weakref
from dataclasses import replace
from functools import partial

from tool_loop.errors import ToolError
from tool_loop.runtime.text import TextFile, read, shown
from tool_loop.runtime.threads import run_in_thread

from ._beneath import READ
from ._engine import Engine, Query, SearchPlace, find, search_engine
from ._matches import Found, render
from .workspace import Root

__all__ = ["Engine", "grep", "search_engine"]

SEARCH_SECONDS = 20.0
MAX_CONTEXT = 20
MAX_PATTERN = 4_000
_IGNORE_BYTES = 16_384
_MAGIC = re.compile(r"[*?\[{\\]")


async def grep(
    root: Root,
    pattern: str,
    path: str = ".",
    glob: str | None = None,
    context: int = 0,
    ignore_case: bool = False,
    *,
    engine: Engine | None = None,
    seconds: float = SEARCH_SECONDS,
) -> str:
    """Matching lines as `file:line: text`, below a line that says how many and which engine looked.

    Hidden and git-ignored files are left out unless `path` names one. No match is a result, not an
    error. Raises `ToolError`: `invalid_argument` with the engine's own words when the pattern or the
    glob does not compile, `timed_out` when nothing was found within `seconds`. The child that
    searches is gone when this returns or is cancelled.
    """
    query = _checked(Query(pattern, (glob or "").strip(), context, ignore_case))
    engine = engine or search_engine()
    target = await run_in_thread(partial(_SearchTarget, root, path, query))
    try:
        found = (
            Found(engine.label, files=0) if target.empty else await find(engine, target.query, target.place, seconds)
        )
    finally:
        target.close()
    return await run_in_thread(partial(render, root, found, context))


def _checked(query: Query) -> Query:
    for field, text in (("pattern", query.pattern), ("glob", query.glob)):
        if "\0" in text:
            raise _invalid(field, "holds a NUL character, which no line of text does")
        if len(text) > MAX_PATTERN:
            raise _invalid(field, f"has {len(text)} characters; {MAX_PATTERN} are allowed")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _invalid(field, "is not valid Unicode") from None
    if not query.pattern:
        raise _invalid("pattern", "is empty; to see what files there are, use list_dir")
    if not 0 <= query.context <= MAX_CONTEXT:
        raise _invalid("context", f"must be from 0 to {MAX_CONTEXT}, got {query.context}")
    return query


class _SearchTarget:
    """The open file or directory that is searched; closed when nobody holds it any more.

    The thread that opens it may come back after its caller was cancelled: then nobody ever does.
    `query` is what is left to ask there. `empty`: the glob begins with a directory that is not there.
    """

    def __init__(self, root: Root, path: str, query: Query) -> None:
        self.query = query
        self.empty = False
        self._open(root, path)
        if query.glob and not self.place.file:
            below, glob, shallow = narrowed(query.glob, self.place.name)
            self.query = replace(query, glob=glob, shallow=shallow)
            if below:
                self._open_below(root, "/".join(filter(None, (self.place.name, below))))

    def _open(self, root: Root, path: str) -> None:
        descriptor, path = root.locate(path, want="file or directory")
        self.close = weakref.finalize(self, os.close, descriptor)
        try:
            self.place = _place(root, path, descriptor)
        except OSError as error:
            raise root.refusal(error, path, "file or directory") from error

    def _open_below(self, root: Root, path: str) -> None:
        self.close()
        try:
            self._open(root, path)
        except ToolError as error:
            if error.kind != "not_found":
                raise
            self.empty = True
        else:
            self.empty = bool(self.place.file)


def narrowed(glob: str, above: str) -> tuple[str, str, bool]:
    """A glob as (directory to start in, what is left of it, whether only for that directory itself).

    `src/**/*.py` is `*.py` below `src`. This is not only for speed: ripgrep lets a glob with a slash
    overrule .gitignore, a name without one it does not. A glob may be written from the root of the
    workspace although `above` is what is searched.
    """
    if glob.startswith("!"):
        return "", glob, False
    parts = [part for part in glob.split("/") if part not in ("", ".")]
    if above and parts[: above.count("/") + 1] == above.split("/"):
        parts = parts[above.count("/") + 1 :]
    if glob.endswith("/"):
        parts.append("**")
    fixed = next((i for i, part in enumerate(parts[:-1]) if _MAGIC.search(part)), max(0, len(parts) - 1))
    below, parts = "/".join(parts[:fixed]), parts[fixed:]
    shallow = bool(below) and len(parts) == 1 and parts != ["**"]
    while parts[:1] == ["**"] and len(parts) <= 2:
        parts = parts[1:]
    return below, "/".join(parts), shallow


def _place(root: Root, path: str, descriptor: int) -> SearchPlace:
    mode = os.fstat(descriptor).st_mode
    parts = [part for part in path.split("/") if part not in ("", ".")]
    name = "/".join(parts)
    # Where there is no /proc a child is started by path. What it finds there by a race is looked up
    # through the root again, and is not there.
    proc = os.path.isdir("/proc/self/fd")  # noqa: PTH112
    here = f"/proc/self/fd/{descriptor}" if proc else os.path.join(root.path, name)  # noqa: PTH118
    if stat.S_ISDIR(mode):
        return SearchPlace(name, here, ignore=tuple(_rules_above(root, parts)))
    if stat.S_ISREG(mode):
        file = TextFile(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)  # a child that inherits it reads from where we are
        return SearchPlace(name, "/", here, (descriptor,), text=not file.binary, encoding=file.encoding)
    hint = "a FIFO, socket or device is not searched"
    raise ToolError(f"special file: {shown(path)}", kind="invalid_argument", hint=hint, field="path")


def _rules_above(root: Root, parts: list[str]) -> list[tuple[str, str]]:
    """The .gitignore files of the directories on the way, each with the path from there to the target."""
    found: list[tuple[str, str]] = []
    for depth in range(len(parts)):
        for name in (".gitignore", ".ignore"):
            try:
                descriptor = root.open_bytes(os.fsencode("/".join([*parts[:depth], name])), READ)
            except OSError:
                continue
            try:
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    text = read(descriptor, _IGNORE_BYTES).decode("utf-8", "replace")
                    found.append(("/".join(parts[depth:]) + "/", text))
            finally:
                os.close(descriptor)
    return found


def _invalid(field: str, problem: str) -> ToolError:
    return ToolError(f"'{field}' {problem}", kind="invalid_argument", field=field)
