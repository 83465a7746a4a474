"""A root: one directory, held open, through which tools reach everything they may reach.

Opens files and says in a tool's words why one cannot be opened. Knows nothing about what is in them.

`Root.open` is the only door. A path is never compared with another path: the root is a descriptor,
and what leads out of it cannot be opened (see `_beneath.py`). So `..`, absolute paths, links that
lead out, a sibling whose name begins like the root's, and a directory that is swapped for a link
between a check and its use are one case, not five.
"""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal, TypeAlias

from tool_loop.errors import ToolError, UsageError
from tool_loop.runtime.text import exactly, shown, unshown

from ._beneath import MAX_PATH, PASS, READ, Opener, best_opener

Want: TypeAlias = Literal["file", "directory", "file or directory"]

_MOST_ALIKE = 5
_SPECIAL = (errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP)


class Root:
    """A directory, held open until this object is gone. Safe to use from several threads.

    `path` may be a link; later changes to what that name means change nothing. Raises `UsageError`
    when it is not a directory that can be opened. `opener` is how paths are opened, by default the
    best way this system has.
    """

    def __init__(self, path: str | os.PathLike[str], *, opener: Opener | None = None) -> None:
        self._descriptor = _open_root(os.fspath(path))
        self.close = weakref.finalize(self, os.close, self._descriptor)
        self._opener = opener or best_opener(self._descriptor)
        # For messages, and for systems on which a child cannot be started in a descriptor.
        self.path = os.path.abspath(path)  # noqa: PTH100  Path() would compare, this only shows

    def open(self, path: str, *, want: Want = "file") -> int:
        r"""A descriptor for reading, never one from outside; the caller closes it.

        Does not block on a FIFO or device: what kind of file it is, `os.fstat` on the descriptor
        tells. Raises `ToolError` with the kind `invalid_argument`, `not_found` or
        `permission_denied`, and a hint that names what was probably meant. A name that was shown
        escaped (`\xff`) can be given back that way.
        """
        return self.locate(path, want=want)[0]

    def locate(self, path: str, *, want: Want = "file") -> tuple[int, str]:
        """`open`, and the path by which it was found: not the given one when that was shown escaped, or
        when the only name there is looks the same (see `alike`).
        """
        try:
            return self.open_bytes(encode(path or "."), READ), path or "."
        except OSError as error:
            if error.errno == errno.ENOENT:
                for other in (unshown(path), *self.alike(path)):
                    with suppress(OSError):
                        return self.open_bytes(encode(other), READ), other
            raise self.refusal(error, path, want) from error

    def alike(self, path: str) -> tuple[str, ...]:
        """The path of the one thing there is whose names look like these: equal after NFKC, with every
        blank a plain one. Nothing when there is none. Raises `ToolError` when there are several.
        """
        from ._folded import twins  # only a wrong path pays for it

        for given in dict.fromkeys((path, unshown(path))):
            found = twins(self._opener, self.descriptor, encode(given))
            if len(found) > 1:
                names = ", ".join(map(exactly, found[:_MOST_ALIKE]))
                hint = f"several names look like this one; give one of them as it is written here: {names}"
                raise self._error("not_found", f"no such name: {shown(path)[:500]}", hint)
            if found:
                return (os.fsdecode(found[0]),)
        return ()

    @contextmanager
    def opened(self, path: str, *, want: Want = "file") -> Iterator[int]:
        """`open`, closed at the end of the block; an error of the system inside it is a `ToolError` too."""
        descriptor = self.open(path, want=want)
        try:
            yield descriptor
        except OSError as error:
            raise self.refusal(error, path, want) from error
        finally:
            os.close(descriptor)

    def open_bytes(self, path: bytes, flags: int) -> int:
        """`open` for a path that came from the disk itself. Raises OSError; EXDEV when it leads out."""
        if len(path) >= MAX_PATH:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        return self._opener(self.descriptor, path, flags)

    @property
    def descriptor(self) -> int:
        """The directory itself, to pass through and not to be closed. Raises OSError when the root is closed."""
        if not self.close.alive:
            raise OSError(errno.EBADF, "the workspace is closed")
        return self._descriptor

    def refusal(self, error: OSError, path: str, want: Want) -> ToolError:
        """What a tool says about an error of the system at this path."""
        name = shown(path)[:500]
        leaves = error.errno == errno.EXDEV or (error.errno == errno.ENOENT and _climbs(path))
        match error.errno:
            case _ if leaves:
                what = "absolute path" if path.startswith("/") else "path leaves the workspace"
                hint = f"paths are relative to the workspace and stay in it; {self._hint(path, want)}"
                return self._error("invalid_argument", f"{what}: {name}", hint)
            case errno.ENOENT | errno.ENOTDIR:
                return self._error("not_found", f"no such {want}: {name}", self._hint(path, want))
            case errno.ELOOP:
                hint = "give a path that goes through no link"
                return self._error("invalid_argument", f"link that cannot be followed: {name}", hint)
            case errno.ENAMETOOLONG:
                return self._error("invalid_argument", f"path too long: {name}", self._hint(path[-255:], want))
            case errno.EACCES | errno.EPERM:
                return self._error("permission_denied", f"permission denied: {name}", "")
            case number if number in _SPECIAL:
                return self._error("invalid_argument", f"special file: {name}", "a FIFO, socket or device is not read")
            case _:
                return self._error("tool_failed", f"{error.strerror or 'input/output error'}: {name}", "")

    def _hint(self, path: str, want: Want) -> str:
        from ._hints import nearest  # only a wrong path pays for the search

        return nearest(self, path, want)

    @staticmethod
    def _error(kind: str, message: str, hint: str) -> ToolError:
        return ToolError(message, kind=kind, hint=hint, field="path")


def _climbs(path: str) -> bool:
    """Whether a path that does not exist would, without links, be outside. Only chooses the words."""
    depth = 0
    for part in path.split("/"):
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            return True
    return False


def encode(path: str) -> bytes:
    if "\0" in path:
        raise ToolError("'path' holds a NUL character", kind="invalid_argument", field="path")
    try:
        return os.fsencode(path)
    except UnicodeEncodeError:
        raise ToolError("'path' is not valid Unicode", kind="invalid_argument", field="path") from None


def _open_root(path: str) -> int:
    if os.open not in os.supports_dir_fd:
        raise UsageError("workspace tools need a system that opens files below a directory (Linux, macOS, BSD)")
    try:
        return os.open(path, PASS)
    except FileNotFoundError:
        tilde = " ('~' is not expanded here: use os.path.expanduser)" if path.startswith("~") else ""
        raise UsageError(f"the workspace {path!r} does not exist{tilde}") from None
    except NotADirectoryError:
        raise UsageError(f"the workspace {path!r} is not a directory") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"the workspace {path!r} cannot be opened: {error}") from None
