"""The tool `run`: a program with arguments, in the workspace, behind a sandbox.

Says how a model and a person see a command. How it is run is in `tool_loop.sandbox`.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import shlex
import signal
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tool_loop.errors import ToolError
from tool_loop.ports import Preview
from tool_loop.runtime.threads import run_in_thread
from tool_loop.toolbox.tool import Tool, ToolContext

from .rules import command_rule

if TYPE_CHECKING:
    from tool_loop.sandbox.box import Box, Permission
    from tool_loop.sandbox.choice import Sandbox
    from tool_loop.sandbox.command import CommandOutcome, CommandStop
    from tool_loop.sandbox.limits import CommandLimits

    from .workspace import Root

_GONE_SECONDS: Final = 4.0
_SHOWN_EVERY: Final = 0.1  # seconds; a person sees no more, and each piece goes to every subscriber
_SHOWN_CHARS: Final = 4_000

NEEDS: Final = ("network",)

_DESCRIPTION: Final = """\
Run a program in the workspace and get its exit code and output. argv is the program and its arguments, \
one entry each; no shell, so no pipes or * unless argv is ["bash", "-c", "..."]. \
{walls} Nothing goes on in the background, and there is no input."""

_WALLS: Final = {
    "bwrap": "It runs in a sandbox: it can write in the workspace and /tmp, and has no network but a loopback.",
    "landlock": "It runs in a sandbox: it can write in the workspace and $TMPDIR, with no network but a loopback.",
    "none": "It runs without a sandbox.",
}


def run_tool(
    root: str | os.PathLike[str],
    sandbox: str | Sandbox = "auto",
    *,
    needs_approval: bool | Callable[[dict[str, Any]], bool] = True,
    trusted: bool = False,
    read: Iterable[str | os.PathLike[str]] = (),
    allow: Iterable[Permission] = (),
    limits: CommandLimits | None = None,
    env: Mapping[str, str] | None = None,
) -> Tool:
    """The tool `run` for one workspace.

    `sandbox` is a name for `tool_loop.sandbox.choose`, or what it returned. `needs_approval` says which
    commands a person is asked about; one without a sandbox and one that `needs` something are asked
    about whatever it says. `read`, `allow`, `limits` and `env` are those of `tool_loop.sandbox.Box`.
    Unless `trusted`, what commands print counts as written by strangers. Raises `SandboxUnavailable`
    when there is no sandbox, and UsageError for a workspace that cannot be one.
    """
    from tool_loop.sandbox.box import Box
    from tool_loop.sandbox.choice import choose

    from .workspace import Root

    chosen = choose(sandbox) if isinstance(sandbox, str) else sandbox
    box = Box(root, chosen, read=read, allow=allow, limits=limits, env=env)
    held = Root(box.root)

    def asks(arguments: dict[str, Any]) -> bool:
        if chosen.name == "none" or arguments.get("needs"):
            return True
        return needs_approval(arguments) if callable(needs_approval) else needs_approval

    async def call(
        argv: list[str],
        cwd: str = ".",
        seconds: float | None = None,
        needs: str | None = None,
        reason: str = "",
        context: ToolContext | None = None,
    ) -> str:
        if needs and not reason.strip():
            raise ToolError("'reason' is empty", kind="invalid_argument", hint=f"say why it needs the {needs}")
        where = _directory(held, cwd)
        outcome = await _run(box, argv, where, seconds, needs, context or ToolContext())
        return _told(outcome, box)

    return Tool(
        "run",
        _DESCRIPTION.format(walls=_WALLS[chosen.name]),
        _parameters(box.limits),
        call,
        effect="once",
        timeout_seconds=box.limits.longest + 30,
        needs_approval=asks,
        untrusted=not trusted,
        max_result_chars=2 * (box.limits.output_head + box.limits.output_tail) + 4_000,
        preview=lambda **arguments: _preview(chosen, arguments, asks=asks(arguments)),
        scope=f"{box.root} {chosen.name} {' '.join(sorted(box.allow))}".strip(),
    )


def _preview(sandbox: Sandbox, arguments: dict[str, Any], *, asks: bool) -> Preview:
    # Without walls, or with a hole in them, a permission would be for whatever the command does.
    once = sandbox.name == "none" or arguments.get("needs")
    rule = "" if once else command_rule(arguments["argv"], command_line(arguments["argv"]))
    return Preview(partial(described, arguments), rule=rule, asks=asks, complete=True)


def command_line(argv: Sequence[str]) -> str:
    """The command as one line that a shell would take for exactly these arguments.

    A character that does not show (a line end, an escape sequence, one that turns the direction of the
    text round) is written with its number, so that what a person reads is what runs.
    """
    return " ".join(_word(each) for each in argv)


def _word(text: str) -> str:
    if text.isprintable():
        return shlex.quote(text)
    quoted = (c if c.isprintable() and c not in "\\'" else _numbered(c) for c in text)
    return f"$'{''.join(quoted)}'"


def _numbered(character: str) -> str:
    code = ord(character)
    short = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", "'": "\\'"}
    return short.get(character) or (f"\\x{code:02x}" if code < 0x80 else f"\\U{code:08x}")


def _parameters(limits: CommandLimits) -> dict[str, Any]:
    usual, longest = f"{limits.seconds:g}", limits.longest
    fields: dict[str, Any] = {
        "argv": {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 1,
            "description": 'The program and its arguments, as in ["pytest", "-q", "tests/test_app.py"].',
        },
        "cwd": {"type": "string", "default": ".", "description": "Where it runs, relative to the workspace."},
        "seconds": {
            "type": ["number", "null"],
            "exclusiveMinimum": 0,
            "maximum": longest,
            "default": None,
            "description": f"After so long it is ended, with all it started. {usual} if not given.",
        },
        "needs": {
            "type": ["string", "null"],
            "enum": [*NEEDS, None],
            "default": None,
            "description": "What it cannot do without and the sandbox does not give. A person is asked each time.",
        },
        "reason": {"type": "string", "default": "", "description": "With needs: why, for the person who is asked."},
    }
    return {"type": "object", "properties": fields, "required": ["argv"], "additionalProperties": False}


def _directory(root: Root, path: str) -> str:
    """`path`, made sure of: a directory of the workspace."""
    try:
        with root.opened(path, want="directory") as there:
            kind = os.fstat(there).st_mode
            # Where it is with all links followed, as the sandbox has no other way to be told.
            found = os.readlink(f"/proc/self/fd/{there}")  # noqa: PTH115
    except ToolError as error:
        error.fields["field"] = "cwd"
        raise
    if not stat.S_ISDIR(kind):
        raise ToolError(f"not a directory: {path}", kind="invalid_argument", field="cwd")
    return os.path.relpath(found, os.path.realpath(root.path))


async def _run(
    box: Box, argv: list[str], cwd: str, seconds: float | None, needs: str | None, context: ToolContext
) -> CommandOutcome:
    from tool_loop.sandbox.command import CommandStop

    stop = CommandStop()
    work = run_in_thread(partial(_blocking, box, argv, cwd, seconds, needs, _Live(context), stop))
    try:
        await asyncio.wait((work,))
    except asyncio.CancelledError:
        stop()
        await _settled(work)
        raise
    return work.result()


def _blocking(
    box: Box, argv: list[str], cwd: str, seconds: float | None, needs: str | None, live: _Live, stop: CommandStop
) -> CommandOutcome:
    from tool_loop.sandbox import command

    try:
        return command.run(box, argv, cwd=cwd, seconds=seconds, network=needs == "network", show=live.add, stop=stop)
    finally:
        stop.close()


async def _settled(work: asyncio.Future[Any]) -> None:
    """Wait until the command is gone, through further cancels, but not for ever."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + _GONE_SECONDS
    while not work.done() and (left := ends - loop.time()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.wait((work,), timeout=left)
    if work.done() and not work.cancelled():
        work.exception()  # it was looked at; nobody waits for it any more


class _Live:
    """Shows output while it comes, at a pace a person can follow. What is too much is left out here only."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting = ""
        self._shown = 0.0

    def add(self, data: bytes) -> None:
        self._waiting = (self._waiting + self._decoder.decode(data))[-_SHOWN_CHARS:]
        now = time.monotonic()
        if self._waiting and now - self._shown >= _SHOWN_EVERY:
            self._context.progress(self._waiting)
            self._waiting, self._shown = "", now


_ENDED: Final = {
    "timed_out": "stopped after {seconds:.0f} s",
    "stopped": "stopped after {seconds:.0f} s, because the run was",
    "memory": "stopped: it used more than {memory} MiB of memory",
    "processes": "stopped: it had more than {processes} processes",
    "disk": "stopped: it filled the disk",
}


def _told(outcome: CommandOutcome, box: Box) -> str:
    """What the model reads. All that is ours stands above the output, where nothing printed can imitate it."""
    notes = []
    if outcome.undone:
        notes.append(f"undone, because commands may not change these: {', '.join(outcome.undone)}")
    if outcome.left_out:
        kept = f"; all of it is in {outcome.file}, for run to search" if outcome.file else ""
        notes.append(f"{outcome.left_out} bytes in the middle of the output are left out (truncated{kept})")
    output = _text(outcome)
    if not outcome.why:
        code = outcome.code
        how = f"exit {code}" if code is not None else f"killed by signal {outcome.signal} ({_name(outcome.signal)})"
        first = f"{how}, {outcome.seconds:.1f} s{'' if output else ', no output'}"
        return "\n".join([first, *notes, output]) if output else "\n".join([first, *notes])
    limits = box.limits
    how = _ENDED[outcome.why].format(
        seconds=outcome.seconds, memory=limits.total_memory >> 20, processes=limits.processes
    )
    late = outcome.why == "timed_out"
    hint = f"'seconds' may be up to {limits.longest:g}" if late else ""
    raise ToolError(
        "; ".join([f"{how}, with all it had started", *notes]),
        kind="timed_out" if late else "tool_failed",
        hint=hint,
        output=output,
    )


def _text(outcome: CommandOutcome) -> str:
    head = outcome.head.decode("utf-8", "replace")
    tail = outcome.tail.decode("utf-8", "replace")
    if outcome.left_out:
        return f"{head}\n[... {outcome.left_out} bytes left out ...]\n{tail}".replace("\0", "\\x00")
    return (outcome.head + outcome.tail).decode("utf-8", "replace").replace("\0", "\\x00")


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def described(arguments: Mapping[str, Any]) -> str:
    """A call of `run` as a person is shown it before they decide: the very arguments, none left out."""
    lines = [command_line(arguments["argv"])]
    if (cwd := arguments.get("cwd", ".")) != ".":
        lines.append(f"in {command_line([cwd])}")
    if arguments.get("seconds"):
        lines.append(f"for at most {arguments['seconds']:g} s")
    if arguments.get("needs"):
        lines.append(f"needs: {arguments['needs']}, because {json.dumps(arguments.get('reason', ''))}")
    return "\n".join(lines)
