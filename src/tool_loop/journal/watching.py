"""Notices what is written to the file of a journal, by whatever process: for followers, and for cancels.

SQLite tells nobody that a file has changed, but a connection can be asked whether somebody else has
committed since it was asked last (`PRAGMA data_version`), which takes a few microseconds. One thread for
each journal object asks ten times a second, and at once when this process has written something and
somebody follows. It asks nothing while nobody wants to know.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from sqlite3 import Connection
from typing import Any, Final

from . import statements as store
from .bells import Asked, Bell

logger = logging.getLogger(__name__)

# A cancel is noticed in this time, and what another process records is seen.
POLL_SECONDS: Final = 0.1


class Watch:
    """What the tasks of one journal object wait for. `connect` opens the database."""

    def __init__(self, connect: Callable[[float], Connection]) -> None:
        self._connect = connect
        self._bells: set[Bell] = set()
        self._cancels: dict[int, Callable[[str], object]] = {}
        self._lock = threading.Lock()
        self._look_now = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextmanager
    def of_records(self, bell: Bell) -> Iterator[Bell]:
        self._start()
        with self._lock:
            self._bells.add(bell)
        self._look_now.set()
        try:
            yield bell
        finally:
            with self._lock:
                self._bells.discard(bell)

    @contextmanager
    def of_cancels(self, n: int, already: str, asked: Asked) -> Iterator[None]:
        """Call `asked` in this event loop when somebody wants run `n` to stop, or has wanted so before."""
        loop, told = asyncio.get_running_loop(), False

        def once(why: str) -> None:
            nonlocal told
            if not told:
                told = True
                asked(why)

        def tell(why: str) -> None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(once, why)

        if already:
            loop.call_soon(once, already)  # not here and now: a cancel is for a task that waits
        self._start()
        with self._lock:
            self._cancels[n] = tell
        self._look_now.set()
        try:
            yield
        finally:
            told = True
            with self._lock:
                self._cancels.pop(n, None)

    def ring(self) -> None:
        """Look now: something was written by this process."""
        if self._bells:
            self._look_now.set()

    def close(self) -> None:
        """Nobody watches any more; whoever waits is woken. Safe to call twice."""
        with self._lock:
            self._closed = True
            bells = tuple(self._bells)
        self._look_now.set()
        for bell in bells:
            bell.ring()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._serve, name="journal watch", daemon=True)
                self._thread.start()

    # --- in the thread ----------------------------------------------------------------------------

    def _serve(self) -> None:
        while not self._closed:
            try:
                with closing(self._connect(0.0)) as db:
                    self._look_on(db)
            except Exception:
                # Locked, or the disk fails: whoever writes will hear of it. Here it is only tried again.
                logger.debug("could not look at the journal", exc_info=True)
                self._look_now.wait(POLL_SECONDS)

    def _look_on(self, db: Connection) -> None:
        before: Any = None
        while not self._closed:
            self._look_now.wait(POLL_SECONDS if self._bells or self._cancels else None)
            again = self._look_now.is_set()
            self._look_now.clear()
            version = db.execute("PRAGMA data_version").fetchone()
            if again or version != before:
                before = version
                self._look(db)

    def _look(self, db: Connection) -> None:
        with self._lock:
            bells, cancels = tuple(self._bells), dict(self._cancels)
        for bell in bells:
            (last,) = db.execute(store.LAST, (bell.run_id,)).fetchone()
            if last is None or last > bell.seen:
                bell.ring()
        for n, why in db.execute(store.TO_STOP).fetchall() if cancels else ():
            if n in cancels:
                cancels[n](why)
