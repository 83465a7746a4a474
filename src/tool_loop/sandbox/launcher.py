"""Runs one command behind Landlock and seccomp, and leaves nothing of it. A program of its own.

For systems that allow no user namespaces (containers, Ubuntu's AppArmor). It is the parent of the
command and outside of its walls: what the command leaves behind, a daemon that forked twice too,
becomes a child of this process and is killed. It also answers for the calls the filter cannot judge
(`answers.py`). Started by `landlock.py` with the job as JSON; says on the descriptor `status` how
it went: `{"error": [errno, text]}` when the command was not started, else `{"code": N}`, which is
negative for a signal. No command can write there.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from itertools import count
from typing import Any, NoReturn

from . import kernel

_TERMINATED = 143


def main() -> NoReturn:
    job, argv = json.loads(sys.argv[1]), sys.argv[2:]
    kernel.die_with_parent(signal.SIGTERM)
    if os.getppid() != job["parent"]:
        os._exit(_TERMINATED)  # it died before it could be watched
    kernel.adopt_orphans()
    job["priority"] = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(OSError):  # only root may: and only root's commands can be more than fit the machine
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    status: int = job["status"]
    os.set_inheritable(status, False)
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    if job["confined"]:
        # What is done here on behalf of the command is done with no more than its rights, and no further.
        kernel.restrict(
            ["/"], [*job["write"], *([job["members"]] if job["members"] else [])], network=True, alone=False
        )
    ours, theirs = socket.socketpair()
    command = os.fork()
    if command == 0:
        ours.close()
        _become(job, argv, status, theirs)
    theirs.close()
    with suppress(OSError):
        os.setpgid(command, command)

    def told_to_end(*_: object) -> NoReturn:
        _end(command)
        os._exit(_TERMINATED)

    signal.signal(signal.SIGTERM, told_to_end)
    if job["confined"]:
        kernel.drop_rights()
    code = _wait(command, woken, _listener(ours), job["own"])
    _say(status, {"code": code})
    _end(command)
    os._exit(0)


def _become(job: dict[str, Any], argv: list[str], status: int, launcher: socket.socket) -> NoReturn:
    """In the child: confine, then become the command. What could not be set up is said on `status`."""
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, job["priority"])
        if job["members"]:
            with open(job["members"], "w", encoding="ascii") as members:
                members.write("0\n")
        kernel.die_with_parent(signal.SIGKILL)
        for name, value in job["limits"].items():
            _limit(getattr(resource, name), value)
        os.chdir(job["cwd"])
        if job["confined"]:
            kernel.drop_rights()
            kernel.restrict(job["read"], job["write"], network=job["network"])
            asks = kernel.filter_calls(bytes.fromhex(job["filter"]), listen=job["asks"])
            if asks >= 0:
                socket.send_fds(launcher, [b"!"], [asks])
                os.close(asks)
        launcher.close()
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(argv[0], argv, dict(os.environ))  # noqa: S606  that is what it is for
    except OSError as error:
        missing = error.errno == errno.EACCES and "/" not in argv[0] and not _is_on_path(argv[0])
        _say(status, {"error": [errno.ENOENT if missing else error.errno, error.strerror or str(error)]})
    finally:
        os._exit(127)


def _is_on_path(name: str) -> bool:
    """A directory nobody lets us look into makes "permission denied" of a name that is nowhere."""
    return any(os.path.exists(f"{place}/{name}") for place in os.environ.get("PATH", os.defpath).split(os.pathsep))


def _limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    most = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (most, most))


def _listener(ours: socket.socket) -> int:
    """The descriptor on which the command's filter asks; -1 where it asks nothing, or never came so far."""
    with ours:
        received = socket.recv_fds(ours, 1, 1)[1]
    return received[0] if received else -1


def _wait(command: int, woken: int, asks: int, own: list[str]) -> int:
    """The exit code of the command; until then its questions are answered and its orphans buried."""
    poll = select.poll()
    poll.register(woken, select.POLLIN)
    if asks >= 0:
        from .answers import Answers

        answers = Answers(asks, own)
        poll.register(asks, select.POLLIN)
    while True:
        for descriptor, event in poll.poll():
            if descriptor == asks and event & select.POLLIN:
                answers.next()
            elif descriptor == asks:
                poll.unregister(asks)  # the last process behind the filter is gone
            else:
                with suppress(BlockingIOError):
                    os.read(woken, 4096)
        code = _buried(command)
        if code is not None:
            return code


def _buried(command: int) -> int | None:
    """Wait for every child that has ended; the exit code of the command when it was among them."""
    code = None
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            if found[0] == command:
                code = os.waitstatus_to_exitcode(found[1])
    return code


def _end(group: int) -> None:
    """Kill what is left, again until nothing is: one that dies hands us its own children.

    The group first, which the kernel kills as one, those that are just being born too: what forks
    faster than it can be counted is one of it, as a rule. Who has left it is found among our children,
    and from time to time among theirs.
    """
    for again in count():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            for process in _descendants(deep=again % 8 == 7):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.001)
            continue
        return


def _descendants(*, deep: bool) -> list[int]:
    todo, found = [os.getpid()], []
    while todo:
        process = todo.pop()
        with suppress(OSError):
            for task in os.listdir(f"/proc/{process}/task"):
                with open(f"/proc/{process}/task/{task}/children", encoding="ascii") as file:
                    children = [int(child) for child in file.read().split()]
                found += children
                todo += children if deep else []
    return found


def _say(status: int, what: dict[str, Any]) -> None:
    os.write(status, json.dumps(what).encode() + b"\n")
