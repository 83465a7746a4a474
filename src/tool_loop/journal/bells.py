"""What a task waits for that follows a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

# Called with who asked for the end of a run, and why, as JSON text.
Asked: TypeAlias = Callable[[str], object]


@dataclass(eq=False, slots=True)
class Bell:
    """Rings when the run has more records than `seen`, or none any more. For one task."""

    run_id: str
    seen: int
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    rung: asyncio.Event = field(default_factory=asyncio.Event)

    def ring(self) -> None:
        """From any thread."""
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self.loop.call_soon_threadsafe(self.rung.set)
