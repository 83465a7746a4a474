"""What one command may use up."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tool_loop.errors import UsageError


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """Limits of one command and all it starts. Sizes are bytes, times seconds.

    Those marked "sampled" are looked at some twenty times a second and can be overrun by what a
    command does in between; the kernel holds the others. Raises UsageError for what is not above zero.
    """

    seconds: float = 120.0  # where the call does not say; a test suite of middle size
    longest: float = 600.0  # the most a call may ask for
    memory: int = 2 << 30  # of one process, private and writable
    total_memory: int = 4 << 30  # of all of them, sampled
    processes: int = 256  # for root sampled, because the kernel does not count root's
    file: int = 1 << 30  # one file
    open_files: int = 1024  # of one process
    disk: int = 8 << 30  # how much less may be free than at the start, sampled
    disk_left: int = 512 << 20  # free space that is never used up, sampled
    output_head: int = 8_000  # of the output, what is kept of its beginning
    output_tail: int = 16_000  # and of its end
    output_kept: int = 16 << 20  # all of it, in a file that commands can read

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
                raise UsageError(f"CommandLimits: {each.name} must be a number above zero, got {value!r}")
        if self.seconds > self.longest:
            raise UsageError(f"CommandLimits: seconds ({self.seconds:g}) is above longest ({self.longest:g})")
