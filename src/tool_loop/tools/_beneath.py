"""Opens a path that cannot leave a directory, whatever links and races there are.

Two openers with one meaning: the kernel's own (openat2 with RESOLVE_BENEATH, one system call) and a
walk from descriptor to descriptor for systems without it. Knows nothing about tools, models or what
is read. Neither compares path strings: what a string says and what the disk holds are two things,
and between a check and its use the disk can change.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

# (descriptor of the directory, path below it, flags) -> descriptor. Raises OSError: EXDEV when the
# path leads out, ELOOP for a loop of links or a link of the kernel's own (/proc/self/root).
Opener: TypeAlias = Callable[[int, bytes, int], int]

# Never blocks: without O_NONBLOCK, opening a FIFO waits until somebody writes to it.
READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
DIRECTORY = READ | getattr(os, "O_DIRECTORY", 0)

# A directory on the way needs no permission to be listed, only to be passed through.
PASS = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)

# Only to see that it is there, where the system has a way for that.
ENTRY = getattr(os, "O_PATH", READ) | getattr(os, "O_CLOEXEC", 0)

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_OPENAT2 = 437  # the same number on every architecture Linux runs on, but alpha
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08

# What the kernel allows too. Both openers refuse the same paths.
MAX_PATH = 4096
_MAX_LINKS = 40

# The walk holds a descriptor for each level, so that `..` needs no trust in the disk. A tree that is
# deeper than this is no source tree, and must not use up the descriptors of the process.
_MAX_DEPTH = 200

# The kernel gives up with EAGAIN when something was renamed while it resolved a `..`.
_TRIES = 64


def best_opener(directory: int) -> Opener:
    """`kernel` where it works here, else `walk`. A sandbox may forbid what the kernel has."""
    try:
        os.close(kernel(directory, b".", PASS))
    except OSError:
        return walk
    return kernel


def kernel(directory: int, path: bytes, flags: int) -> int:
    """Open through openat2. Raises OSError with ENOSYS where there is none."""
    call, how = _system_call(), _how(flags)
    descriptor, tries = call(_OPENAT2, directory, path, how, 24), 1
    while descriptor < 0 and _errno() in (errno.EAGAIN, errno.EINTR) and tries < _TRIES:
        descriptor, tries = call(_OPENAT2, directory, path, how, 24), tries + 1
    if descriptor < 0:
        raise _error(_errno())
    return descriptor


def walk(directory: int, path: bytes, flags: int) -> int:  # noqa: C901 - one path, every way it ends
    """Open one component at a time without following links; links are read and walked here.

    `..` goes back to the descriptor we came from, not to whatever is the parent by now: a directory
    that is moved out of the root during the walk does not take us along.
    """
    if path.startswith(b"/"):
        raise _error(errno.EXDEV)
    todo = path.split(b"/")[::-1]
    held: list[int] = []
    links = 0
    try:
        while todo:
            name, here = todo.pop(), held[-1] if held else directory
            if name in (b"", b"."):
                continue
            if name == b"..":
                if not held:
                    raise _error(errno.EXDEV)
                os.close(held.pop())
                continue
            try:
                descriptor = os.open(name, (PASS if todo else flags) | _NOFOLLOW, dir_fd=here)
            except OSError as error:
                todo += _link(here, name, error).split(b"/")[::-1]
                links += 1
                if links > _MAX_LINKS:
                    raise _error(errno.ELOOP) from None
                continue
            if not todo:
                return descriptor
            held.append(descriptor)
            if len(held) > _MAX_DEPTH:
                raise _error(errno.ENAMETOOLONG)
        return os.open(b".", flags, dir_fd=held[-1] if held else directory)
    finally:
        for descriptor in held:
            os.close(descriptor)


def _link(directory: int, name: bytes, error: OSError) -> bytes:
    """What the link that could not be opened points to; raises `error` when it is none.

    O_NOFOLLOW says it in three ways: ELOOP, ENOTDIR where a directory was asked for, EMLINK on BSD.
    """
    if error.errno not in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
        raise error
    try:
        target = os.readlink(name, dir_fd=directory)
    except OSError:
        raise error from None
    if target.startswith(b"/"):
        raise _error(errno.EXDEV)
    return target


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@functools.cache
def _system_call() -> Callable[..., int]:
    if not sys.platform.startswith("linux"):
        raise _error(errno.ENOSYS)
    import ctypes  # 4 ms, and only a run with a workspace needs it

    call: Any = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    return call  # type: ignore[no-any-return]


@functools.cache
def _how(flags: int) -> Any:
    """The kernel's `struct open_how`: flags, mode, resolve. Read only, so it is made once."""
    import ctypes

    return (ctypes.c_uint64 * 3)(flags, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)


def _errno() -> int:
    import ctypes

    return ctypes.get_errno()
