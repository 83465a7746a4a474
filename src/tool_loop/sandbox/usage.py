"""What a command and all it started use up, as the kernel tells it. Linux only; looks, and ends nothing."""

from __future__ import annotations

import os
from contextlib import suppress

from .limits import CommandLimits

_PAGE = os.sysconf("SC_PAGE_SIZE")


def descendants(process: int) -> list[int]:
    """Every process that it started, and they started, as far as they are still there."""
    todo, found = [process], []
    while todo:
        parent = todo.pop()
        with suppress(OSError):
            for task in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{task}/children", encoding="ascii") as file:
                    children = [int(child) for child in file.read().split()]
                found += children
                todo += children
    return found


def tasks_of(processes: list[int]) -> int:
    found = 0
    for process in processes:
        with suppress(OSError):
            found += len(os.listdir(f"/proc/{process}/task"))
    return found


def all_tasks() -> int:
    """How many there are on the whole machine: one small file, where counting ours looks at each."""
    with open("/proc/loadavg", encoding="ascii") as file:
        return int(file.read().split()[3].partition("/")[2])


def memory(processes: list[int]) -> int:
    """Bytes in memory; what several share counts for each."""
    total = 0
    for process in processes:
        with suppress(OSError, IndexError), open(f"/proc/{process}/statm", encoding="ascii") as file:
            total += int(file.read().split()[1]) * _PAGE
    return total


def memory_shared_once(processes: list[int]) -> int:
    """Bytes in memory, what several share divided between them. Takes milliseconds for a large process."""
    total = 0
    for process in processes:
        found = None
        with suppress(OSError), open(f"/proc/{process}/smaps_rollup", encoding="ascii") as file:
            found = next((int(line.split()[1]) << 10 for line in file if line.startswith("Pss:")), None)
        total += memory([process]) if found is None else found
    return total


class Meter:
    """Compares what is used with the limits. `places` are directories whose disks must not fill up."""

    def __init__(self, limits: CommandLimits, places: list[str]) -> None:
        self._limits = limits
        self._places = places
        self._free = [_free(place) for place in places]
        self._available = _available()
        self.peak_processes = 0
        self.peak_memory = 0

    def exceeded(self, processes: list[int]) -> str:
        """Which limit the processes are over: "processes", "memory", "disk", or ""."""
        limits = self._limits
        count = max(len(processes), tasks_of(processes) if len(processes) < limits.processes else 0)
        used = memory(processes)
        if used > limits.total_memory:
            used = memory_shared_once(processes)
        self.peak_processes, self.peak_memory = max(self.peak_processes, count), max(self.peak_memory, used)
        if count > limits.processes:
            return "processes"
        # Files in memory belong to no process; they are seen in what is left for everybody.
        if used > limits.total_memory or self._available - _available() > 2 * limits.total_memory:
            return "memory"
        for place, before in zip(self._places, self._free, strict=True):
            free = _free(place)
            if free < min(limits.disk_left, before // 2) or before - free > limits.disk:
                return "disk"
        return ""


def _free(place: str) -> int:
    try:
        there = os.statvfs(place)
    except OSError:
        return 0
    # Many empty files use up a disk too: it has a fixed number of them.
    if there.f_files and there.f_favail < min(10_000, there.f_files // 100):
        return 0
    return there.f_bavail * there.f_frsize


def _available() -> int:
    with suppress(OSError, StopIteration), open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))
    return 0
