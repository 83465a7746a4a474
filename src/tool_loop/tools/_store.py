"""Puts a file in the place of another in one step: there is the old one or the new one, never a mixture.

The new file is filled without a name, so that a crash leaves nothing of it, made durable, and then
given the name. What belonged to the old file goes over: mode, owner, attributes, access lists; but
not the right to run as somebody else. A second hard link keeps the old content, as with every editor
that does not write in place. Knows nothing about texts, tools or approvals.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path

from ._beneath import DIRECTORY, PASS, READ
from ._place import Place

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_TMPFILE = getattr(os, "O_TMPFILE", 0)
_ACL = "system.posix_acl_access"


def temporary(key: str) -> bytes:
    """The name a new file has for an instant, between being whole and being the file. The same for the
    same call, so that whoever looks into a call that was killed then can take it away."""
    return b".tool-loop-" + hashlib.sha256((key or os.urandom(16).hex()).encode()).hexdigest()[:16].encode()


def store(
    spot: Place, data: bytes, info: os.stat_result | None, key: str = "", *, nameless: bool = bool(_TMPFILE)
) -> None:
    """Make `data` the file at `spot`; `info` is what the file that is replaced was, None for a new one.

    `nameless` tries to fill it without a name first. Durable when it returns. Raises OSError, having
    changed nothing but for directories that were missing; FileExistsError when a new file is there after all.
    """
    if info is not None:
        # Replacing takes no right to the file itself. Who may not write it shall not replace it either.
        os.close(os.open(spot.name, READ | os.O_WRONLY | _NOFOLLOW, dir_fd=spot.directory))
    directory = _made(spot)
    temp = temporary(key)
    try:
        with suppress(FileNotFoundError):
            os.unlink(temp, dir_fd=directory)
        descriptor, named = _opened(directory, 0o666 if info is None else 0o600, temp, nameless=nameless)
        try:
            _fill(descriptor, data)
            if info is not None:
                _inherit(spot, descriptor, info)
            os.fsync(descriptor)
            source = temp if named else f"/proc/self/fd/{descriptor}".encode()
            _name_it(directory, source, temp, spot.name, new=info is None)
        finally:
            os.close(descriptor)
            with suppress(FileNotFoundError):
                os.unlink(temp, dir_fd=directory)
        _sync(directory)
    finally:
        os.close(directory)


def forget(spot: Place, key: str) -> None:
    """Take away what a call with this key left behind when it was killed between two names."""
    if key and not spot.missing:
        with suppress(FileNotFoundError):
            os.unlink(temporary(key), dir_fd=spot.directory)


def _made(spot: Place) -> int:
    """The directory, with those that were missing; a descriptor of the caller's own."""
    directory = os.dup(spot.directory)
    for name in spot.missing:
        try:
            with suppress(FileExistsError):
                os.mkdir(name, 0o777, dir_fd=directory)
                _sync(directory)
            below = os.open(name, PASS | _NOFOLLOW, dir_fd=directory)
        finally:
            os.close(directory)
        directory = below
    return directory


def _opened(directory: int, mode: int, name: bytes, *, nameless: bool) -> tuple[int, bool]:
    """A new file, and whether it has the name: where the disk must, or nothing could name it later."""
    if nameless and Path("/proc/self/fd").exists():
        with suppress(OSError):
            return os.open(b".", os.O_WRONLY | _TMPFILE | _CLOEXEC, mode, dir_fd=directory), False
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _CLOEXEC
    return os.open(name, flags, mode, dir_fd=directory), True


def _fill(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _name_it(directory: int, source: bytes, temp: bytes, name: bytes, *, new: bool) -> None:
    if new:
        # Not by renaming: that would silently replace what somebody else has put there meanwhile.
        try:
            os.link(source, name, dst_dir_fd=directory, src_dir_fd=directory, follow_symlinks=source != temp)
        except OSError as error:
            if source != temp or error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
                raise
            os.rename(temp, name, src_dir_fd=directory, dst_dir_fd=directory)  # a disk without hard links
        return
    if source != temp:
        os.link(source, temp, dst_dir_fd=directory, follow_symlinks=True)
    os.rename(temp, name, src_dir_fd=directory, dst_dir_fd=directory)


def _inherit(spot: Place, descriptor: int, info: os.stat_result) -> None:
    mode = stat.S_IMODE(info.st_mode) & ~(stat.S_ISUID | stat.S_ISGID)
    try:
        os.fchown(descriptor, info.st_uid, info.st_gid)
    except PermissionError:
        try:
            os.fchown(descriptor, -1, info.st_gid)
        except PermissionError:
            # It belongs to another group now, and that one gets no more than everybody.
            mode = mode & ~0o070 | (mode & 0o007) << 3
    os.fchmod(descriptor, mode)
    if hasattr(os, "listxattr"):
        _copy_attributes(spot, descriptor)


def _copy_attributes(spot: Place, descriptor: int) -> None:
    old = os.open(spot.name, READ | _NOFOLLOW, dir_fd=spot.directory)
    try:
        try:
            names = os.listxattr(old)
        except OSError:
            return  # a disk without attributes
        for name in names:
            if name.startswith("user."):
                with suppress(OSError):
                    os.setxattr(descriptor, name, os.getxattr(old, name))
            elif name == _ACL:
                # Not suppressed: without it the mode means something else, and lets more people in.
                os.setxattr(descriptor, name, os.getxattr(old, name))
    finally:
        os.close(old)


def _sync(directory: int) -> None:
    """Make a change of names durable. A directory that may not be read is left to the system."""
    with suppress(OSError):
        readable = os.open(b".", DIRECTORY, dir_fd=directory)
        try:
            os.fsync(readable)
        finally:
            os.close(readable)
