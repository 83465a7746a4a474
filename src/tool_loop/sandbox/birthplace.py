"""Where root's commands are started from: a thread that sees the machine's devices read-only.

Read-only says nothing of what is written to a device, only of its mode, owner and times. Those are the
machine's: root in a sandbox, rights or not, owns /dev/null and could close it to everybody. bubblewrap
cannot mount a device read-only (it takes away that it is a device), but what is mounted so already
stays so. One thread has a mount namespace of its own for that, made once; nothing else of this process
is in it.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

from . import kernel

T = TypeVar("T")
_Job: TypeAlias = tuple[Callable[[], Any], "Future[Any]"]

_jobs: queue.SimpleQueue[_Job] | None = None
_lock = threading.Lock()


def _forget() -> None:
    """The child of a fork has the queue, but not the thread that reads it."""
    global _jobs  # noqa: PLW0603  one thread per process
    _jobs = None


getattr(os, "register_at_fork", lambda **_: None)(after_in_child=_forget)


def started(work: Callable[[], T], devices: tuple[str, ...]) -> T:
    """What `work()` returns, called where `devices` are read-only. For root; for others, right here.

    The thread lives as long as the process, so what is to die with the one that started it dies with us.
    """
    if os.geteuid() != 0:
        return work()
    global _jobs  # noqa: PLW0603
    with _lock:
        if _jobs is None:
            _jobs = queue.SimpleQueue()
            threading.Thread(target=_serve, args=(_jobs, devices), name="tool-loop-root", daemon=True).start()
        jobs = _jobs
    outcome: Future[T] = Future()
    jobs.put((work, outcome))
    return outcome.result()


def _serve(jobs: queue.SimpleQueue[_Job], devices: tuple[str, ...]) -> None:
    try:
        kernel.own_mounts()
        for path in devices:
            kernel.mount_read_only(path)
    except OSError:
        pass  # not root's rights (a container): the trial finds that devices are not held, and says so
    while True:
        work, outcome = jobs.get()
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)
        del work, outcome
