"""`asyncio.run` for code that cannot be trusted to stop: it leaves when it is told to.

`asyncio.run` waits without an end for three things: tasks that ignore their cancellation, asynchronous
generators that do not close, and functions on the event loop's own threads. A tool can be any of them,
and then neither the end of the run nor Ctrl-C ends the program. Here each has a second, and is named in
the log when that was not enough.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from .grace import UNWIND_SECONDS
from .shield import done, left_behind, settle

T = TypeVar("T")

logger = logging.getLogger(__name__)

_POOL: Final = "tool-loop-executor"


class _Pool(ThreadPoolExecutor):
    """The event loop's own threads, which are not joined when it closes.

    They are no daemons, so the interpreter still waits for what they do before it ends.
    """

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        super().shutdown(wait=False, cancel_futures=cancel_futures)


def run(main: Coroutine[Any, Any, T]) -> T:
    """What `main` returns or raises, run in a new event loop. It is left soon after `main` is over,
    whatever else still runs in it. Not for where a loop is running already."""
    runner = asyncio.Runner()
    try:
        runner.get_loop().set_default_executor(_Pool(thread_name_prefix=_POOL))
        return runner.run(main)
    finally:
        runner.run(_ended())
        runner.close()


def lingering(seconds: float = 0.1) -> bool:
    """Whether a thread of a loop that was left is still at work after so long. The interpreter would wait for it."""
    ends = time.monotonic() + seconds
    for thread in threading.enumerate():
        if thread.name.startswith(_POOL):
            thread.join(max(0.0, ends - time.monotonic()))
    return any(thread.name.startswith(_POOL) for thread in threading.enumerate())


async def _ended() -> None:
    """Tell everything in this loop to stop, and forget what does not."""
    loop = asyncio.get_running_loop()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await done(tasks, loop.time() + UNWIND_SECONDS)
    await settle(loop.shutdown_asyncgens(), until=loop.time() + UNWIND_SECONDS)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        left_behind(task)
        asyncio._unregister_task(task)  # noqa: SLF001 - public but for its name: closing waits for all it knows
