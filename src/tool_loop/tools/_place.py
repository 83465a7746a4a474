"""Where a file of the workspace is, or is to be: the open directory it is in, and its name there.

A file that is changed is replaced by another one of its name, so it takes a directory and a name, and
not a descriptor of the file. Both are found by walking from the root's descriptor, one name at a time,
never following a link but reading it: the walk knows then by which names it really came, whatever the
path said, and that is what protected paths are looked up by. Knows nothing about what is in a file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tool_loop.errors import ToolError
from tool_loop.runtime.text import plain, shown, unshown

from ._beneath import MAX_PATH, PASS, READ
from .workspace import Root, encode

# Of a file that is written or edited. Edits are made in memory; what is larger is data, and a
# program changes it better.
MOST_BYTES = 4 << 20

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_MAX_LINKS = 40
_MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class Place:
    """`directory` is open for as long as `place` is; the directories in `missing` are to be made below it.

    `parts` are the names from the root to the file, with no link among them. `repository` is the part of
    them that is one to git, whatever it is called; "" where none is.
    """

    directory: int
    name: bytes
    missing: tuple[bytes, ...]
    parts: tuple[str, ...]
    repository: str = ""

    @property
    def path(self) -> str:
        """Relative to the root, as a model and a person read it."""
        return shown("/".join(self.parts))


@contextmanager
def place(root: Root, path: str) -> Iterator[Place]:
    """The place of the file that `path` leads to, through links inside the root, whether it exists or not.

    Raises `ToolError` for what leads out, is a directory, or has no name a file could have; and for
    every error of the system inside the block.
    """
    held: list[tuple[int, bytes]] = []
    try:
        yield _place(root, path, held)
    except OSError as error:
        raise refusal(root, error, path) from error
    finally:
        _close(held)


def current(spot: Place, path: str) -> tuple[bytes | None, os.stat_result | None]:
    """What is in the file and what the system says about it; None for both where there is none.

    Raises `ToolError` for what is no regular file, or more than `MOST_BYTES`.
    """
    if spot.missing:
        return None, None
    try:
        descriptor = os.open(spot.name, READ | _NOFOLLOW, dir_fd=spot.directory)
    except FileNotFoundError:
        return None, None
    try:
        info = os.fstat(descriptor)
        if stat.S_ISDIR(info.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(info.st_mode):
            raise invalid(f"special file: {shown(path)}", "a FIFO, socket or device is not written")
        data = b""
        while len(data) <= MOST_BYTES and (part := os.read(descriptor, MOST_BYTES + 1 - len(data))):
            data += part
        if len(data) > MOST_BYTES:
            raise invalid(
                f"file too large to be changed here: {shown(path)} ({max(info.st_size, len(data)):,} bytes)",
                f"at most {MOST_BYTES >> 20} MiB; a program can change it",
            )
        return data, info
    finally:
        os.close(descriptor)


def refusal(root: Root, error: OSError, path: str) -> ToolError:
    """What a tool that changes files says about an error of the system."""
    if error.errno == errno.EISDIR:
        return invalid(f"is a directory: {shown(path)[:500]}", "give the path of a file in it")
    if error.errno == errno.ENOTDIR:
        return invalid(f"goes through a file as if it were a directory: {shown(path)[:500]}", "")
    if error.errno == errno.EROFS:
        return invalid(f"read-only file system: {shown(path)[:500]}", "", kind="permission_denied")
    return root.refusal(error, path, "file")


def invalid(
    message: str, hint: str, field: str = "path", *, kind: str = "invalid_argument", **fields: object
) -> ToolError:
    """A refusal that names its field."""
    return ToolError(message, kind=kind, hint=hint, field=field, **fields)


def _place(root: Root, path: str, held: list[tuple[int, bytes]]) -> Place:
    if not path.strip() or path.endswith(("/", "/.", "/..")) or path in (".", ".."):
        raise invalid(
            f"not the name of a file: {shown(path) or 'empty'}", "give the path of a file, below the workspace"
        )
    spot = _walk(root, encode(path), held)
    if _exists(spot):
        return spot
    for other_path in dict.fromkeys((unshown(path), *root.alike(path))):
        # A name that is no plain text was shown to the model escaped, and so it gives it back. Or there is
        # one that looks the same: a second one beside it would be told apart by nobody.
        other: list[tuple[int, bytes]] = []
        try:
            twin = _walk(root, encode(other_path), other)
            found = _exists(twin)
        except (OSError, ToolError):
            found = False
        if found:
            _close(held)
            held[:] = other
            return twin
        _close(other)
    _check_new_name(spot, path)
    return spot


def _check_new_name(spot: Place, path: str) -> None:
    new = "/".join([*map(os.fsdecode, spot.missing), os.fsdecode(spot.name)])
    if "\\" in new:
        raise invalid(f"no such file: {shown(path)}", f"names are parted by /: {path.replace(chr(92), '/')}")
    if new.startswith(("~", "$HOME", "${HOME")) or "://" in path:
        # A directory named ~ is removed by somebody one day, and then it is another one that goes.
        raise invalid(f"no such file: {shown(path)}", "nothing is expanded here: give a path relative to the workspace")
    if plain(new) != new or any(part != part.strip() for part in new.split("/")):
        raise invalid(f"a new file cannot have this name: {shown(path)}", "leave out what does not show as itself")


def _walk(root: Root, path: bytes, held: list[tuple[int, bytes]]) -> Place:  # noqa: C901 - one path, every way it ends
    """From name to name. What it opened is in `held`, for the caller to close. Raises OSError."""
    if len(path) >= MAX_PATH:
        raise _error(errno.ENAMETOOLONG)
    top = root.descriptor
    todo, missing, links = _names(path), list[bytes](), 0
    while todo:
        name, here = todo.pop(), held[-1][0] if held else top
        if name == b"..":
            if missing or not held:
                raise _error(errno.ENOENT if missing else errno.EXDEV)
            os.close(held.pop()[0])
            continue
        if missing:
            missing.append(name)
            continue
        try:
            mode = os.lstat(name, dir_fd=here).st_mode
        except FileNotFoundError:
            missing.append(name)
            continue
        if stat.S_ISLNK(mode):
            links += 1
            todo += _names(os.readlink(name, dir_fd=here))
        elif not todo:
            return _found(held, top, missing, name)
        else:
            held.append((os.open(name, PASS | _NOFOLLOW, dir_fd=here), name))
        if links > _MAX_LINKS or len(held) > _MAX_DEPTH:
            raise _error(errno.ELOOP if links > _MAX_LINKS else errno.ENAMETOOLONG)
    if not missing:
        raise _error(errno.EISDIR)  # a link to a directory, or to the root itself
    return _found(held, top, missing, missing.pop())


def _found(held: list[tuple[int, bytes]], top: int, missing: list[bytes], name: bytes) -> Place:
    names = [*(name for _, name in held), *missing, name]
    inside = next((os.fsdecode(name) for directory, name in ((top, b"."), *held) if _is_repository(directory)), "")
    return Place(held[-1][0] if held else top, name, tuple(missing), tuple(map(os.fsdecode, names)), inside)


def _is_repository(directory: int) -> bool:
    """Whether git takes it for one, `config` and hooks and all: `.git` may be a link or a file that names another
    directory, and a bare repository has no such name at all."""
    try:
        os.lstat(b"HEAD", dir_fd=directory)
        return stat.S_ISDIR(os.stat(b"objects", dir_fd=directory).st_mode)
    except OSError:
        return False


def _names(path: bytes) -> list[bytes]:
    """The names of a path, the first one last. An absolute one leads out, wherever it leads."""
    if path.startswith(b"/"):
        raise _error(errno.EXDEV)
    return [name for name in path.split(b"/") if name not in (b"", b".")][::-1]


def _exists(spot: Place) -> bool:
    if spot.missing:
        return False
    try:
        os.lstat(spot.name, dir_fd=spot.directory)
    except FileNotFoundError:
        return False
    return True


def _close(held: list[tuple[int, bytes]]) -> None:
    while held:
        os.close(held.pop()[0])


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
