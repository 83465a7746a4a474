"""Asks the person at the terminal about a call: the whole of it, with nothing hidden in it.

A call that was not shown whole cannot be approved. Reads from the terminal itself, so that a
question piped into stdin does not answer for the person. Knows nothing about policies or journals.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tool_loop.console.terminal import Terminal, one_line
from tool_loop.console.unseen import exact
from tool_loop.events import ApprovalDecided, ToolCall
from tool_loop.ports import PendingApproval, Preview

from ._shown import coloured, fits, screenful, shown_call, too_long

_CHOICES = "[y] allow once  [r] allow this tool for the run  [n] deny  [e] edit"
_CHOICES_BY_RULE = "[y] allow once  [r] allow that for the run  [n] deny  [e] edit"
_CHOICES_NO_RULE = "[y] allow once  [n] deny  [e] edit"
# It does not fit the screen, and is allowed when all of it has been seen.
_UNSEEN = "[s] see all of it, then decide  [n] deny  [e] edit"


class TerminalReviewer:
    """A reviewer (`Agent(reviewer=...)`) that asks on `err` and reads lines from the descriptor `keyboard`."""

    def __init__(self, err: Terminal, keyboard: int, by: str = "") -> None:
        self._err = err
        self._keyboard = keyboard
        self._by = by
        self._unread = b""

    async def __call__(self, pending: PendingApproval) -> ApprovalDecided:
        call, edited, seen, preview = pending.call, None, False, pending.preview
        self._forget_typed_ahead()
        while True:
            text, complete = (preview.show(), preview.complete) if preview else ("", False)
            about = "" if complete else pending.description  # a diff or a command line says it itself
            lines = list(shown_call(call, about, self._err.columns, text, complete=complete))
            whole = not too_long(call, text)
            seen = whole and (seen or fits(lines, self._err))
            self._show(lines, pending, preview, whole=whole)
            choices = _choices(pending) if edited is None else _CHOICES_NO_RULE
            match await self._ask(choices if seen else _UNSEEN if whole else "[n] deny"):
                case "y" | "yes" if seen:
                    return ApprovalDecided(call.id, allowed=True, by=self._by, arguments=edited)
                case "r" | "run" if seen and edited is None and _covers_more(pending):
                    return ApprovalDecided(call.id, allowed=True, by=self._by, standing=True)
                case "n" | "no":
                    note = await self._ask("why? (told to the model; may be empty)")
                    return ApprovalDecided(call.id, allowed=False, by=self._by, note=note)
                case "e" | "edit" if whole:
                    edited, seen = await self._edit(call.arguments), False
                    call = ToolCall(call.id, call.name, edited)
                    preview = pending.look(edited) if pending.look else None
                case "s" | "see" if whole and not seen:
                    await self._page(_drawn(lines, preview, self._err))
                    seen = True
                case _:
                    self._err.line("Please answer with one of the letters." if edited is None else "y, n or e")

    def _show(self, lines: Sequence[str], pending: PendingApproval, preview: Preview | None, *, whole: bool) -> None:
        self._err.line()
        for line in _drawn(screenful(lines, self._err), preview, self._err):
            self._err.line(line)
        if pending.why == "policy" and preview and preview.rule and pending.standing:
            self._err.line(f"  [r] would cover {exact(pending.call.name)}: {exact(preview.rule)}")
        elif pending.why == "policy" and not pending.standing:
            self._err.line("  It has read what strangers may have written: each call is asked about.")
        if pending.why == "in_doubt":
            self._err.line(
                "It was started before the process stopped: it may have happened already. "
                "Allowing it runs it (again); denying it tells the model that nobody knows."
            )
        if not whole:
            self._err.line("It is too long to be shown whole, so it can only be denied.")

    async def _page(self, lines: Sequence[str]) -> None:
        """All of it, a screen at a time: what scrolls by at once was not read."""
        at = 0
        while at < len(lines):
            page = max(8, self._err.rows - 2)
            for line in lines[at : at + page]:
                self._err.line(line)
            at += page
            if at < len(lines):
                await self._ask(f"{len(lines) - at:,} more lines: Enter")

    async def _ask(self, prompt: str) -> str:
        self._err.write(f"{self._err.style(prompt, 'bold')} > ")
        return (await self._line()).strip().lower() if prompt.startswith("[") else (await self._line()).strip()

    async def _line(self) -> str:
        """The next line from the keyboard. Raises EOFError when it is gone: nobody is there to decide."""
        loop = asyncio.get_running_loop()
        while b"\n" not in self._unread:
            ready: asyncio.Future[None] = loop.create_future()
            loop.add_reader(self._keyboard, _wake, ready)
            try:
                await ready
            finally:
                loop.remove_reader(self._keyboard)
            part = os.read(self._keyboard, 1 << 16)
            if not part:
                raise EOFError("the terminal was closed")
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode("utf-8", "replace")

    def _forget_typed_ahead(self) -> None:
        """What was typed before the question was shown does not answer it."""
        self._unread = b""
        with contextlib.suppress(ImportError, OSError):
            import termios

            with contextlib.suppress(termios.error):
                termios.tcflush(self._keyboard, termios.TCIFLUSH)

    async def _edit(self, arguments: str) -> str:
        """Other arguments, as a JSON object; asked for until they are one."""
        text = _pretty(arguments)
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        while True:
            try:
                text = await self._in_editor(shlex.split(editor), text) if editor else ""
            except (OSError, ValueError) as error:
                self._err.line(f"the editor cannot be started: {one_line(str(error))}")
                editor = None
            if not editor:
                self._err.line("the new arguments, as JSON on one line (set EDITOR to use an editor):")
                text = await self._line()
            problem = _problem(text)
            if not problem:
                return text.strip()
            self._err.line(f"That is not a JSON object: {one_line(problem)}")
            if editor:
                await self._ask("Enter to edit it again")

    async def _in_editor(self, editor: list[str], text: str) -> str:
        with tempfile.TemporaryDirectory(prefix="tool-loop-") as directory:
            path = Path(directory, "arguments.json")
            path.write_text(text + "\n", encoding="utf-8")  # noqa: ASYNC240  a small file of our own
            process = await asyncio.create_subprocess_exec(*editor, str(path), stdin=self._keyboard)
            try:
                await process.wait()
            finally:
                if process.returncode is None:  # the run ended in the meantime
                    process.kill()
                    await process.wait()
            return path.read_text(encoding="utf-8", errors="replace")  # noqa: ASYNC240


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _drawn(lines: Sequence[str], preview: Preview | None, terminal: Terminal) -> Sequence[str]:
    return [coloured(line, terminal) for line in lines] if preview and preview.kind == "diff" else lines


def _covers_more(pending: PendingApproval) -> bool:
    """Whether there is something like it that could be allowed for the rest of the run."""
    return pending.why == "policy" and pending.standing and (pending.preview is None or bool(pending.preview.rule))


def _choices(pending: PendingApproval) -> str:
    if not _covers_more(pending):
        return _CHOICES_NO_RULE
    return _CHOICES_BY_RULE if pending.preview else _CHOICES


def _pretty(arguments: str) -> str:
    with contextlib.suppress(ValueError, RecursionError):
        return json.dumps(json.loads(arguments), indent=2, ensure_ascii=False)
    return arguments


def _problem(text: str) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return str(error)
    return "" if isinstance(value, dict) else f"it is a {type(value).__name__}"


@contextlib.contextmanager
def keyboard(terminal: str = "/dev/tty") -> Iterator[int | None]:
    """A descriptor on which a person can answer, None when there is nobody: no terminal to show and to read."""
    err, stdin = sys.stderr, sys.stdin
    if err is None or not err.isatty():
        yield None
        return
    if stdin is not None and not stdin.closed and stdin.isatty():
        yield stdin.fileno()
        return
    try:
        descriptor = os.open(terminal, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)
