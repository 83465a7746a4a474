"""Where the command line keeps its runs, and which of them is meant."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tool_loop.errors import JournalError, UnknownRun, UsageError

if TYPE_CHECKING:
    from tool_loop.journal.memory import MemoryJournal
    from tool_loop.journal.sqlite import SqliteJournal


def default_path(environ: Mapping[str, str] = os.environ) -> Path:
    """`tool-loop/runs.sqlite` in XDG_STATE_HOME. Raises OSError where there is no home directory."""
    state = environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(state):  # noqa: PTH117  the rule of the XDG base directories: others are ignored
        base = Path(state)
    else:
        try:
            base = Path.home() / ".local" / "state"
        except RuntimeError as error:
            raise OSError("there is no home directory; set HOME or XDG_STATE_HOME") from error
    return base / "tool-loop" / "runs.sqlite"


def journal_to_write(args: Namespace, notice: Callable[[str], None]) -> SqliteJournal | MemoryJournal:
    """The journal for a new run. Without a place to write the run goes on unsaved, and says so; only a
    file that was asked for by name has to work. Raises `UsageError`.
    """
    if args.no_save:
        return _unsaved()
    if args.journal:
        return _opened(Path(args.journal))
    try:
        path = default_path()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)  # questions and files are private
        return _opened(path)
    except (OSError, UsageError) as error:
        notice(f"this run is not saved: {error}")
        return _unsaved()


def saved_runs(args: Namespace) -> SqliteJournal:
    """The journal that holds the saved runs. Raises `UsageError` when there is none."""
    path = Path(args.journal) if args.journal else default_path()
    if not path.exists():
        raise UsageError(f"no runs are saved in {path}; tool-loop ask saves them there")
    return _opened(path)


def _opened(path: Path) -> SqliteJournal:
    try:
        from tool_loop.journal.sqlite import SqliteJournal

        return SqliteJournal(path)
    except JournalError as error:
        raise UsageError(str(error)) from error
    except ImportError as error:  # Python can be built without sqlite3
        raise UsageError(f"this Python has no sqlite3 ({error}); use --no-save") from error


def _unsaved() -> MemoryJournal:
    from tool_loop.journal.memory import MemoryJournal

    return MemoryJournal()


def find_run(journal: SqliteJournal, run: str | None, *, last: bool) -> str:
    """The id that is meant: whole, by a beginning that no other has, or the last one.

    Raises `UsageError` when it is not said or not clear, `UnknownRun` when there is none.
    """
    if bool(run) == last:
        raise UsageError("say which run: its id (tool-loop runs lists them), or --last")
    ids = [info.id for info in journal.runs()]
    if last or run is None:
        if not ids:
            raise UnknownRun("no run is saved yet")
        return ids[0]
    found = [one for one in ids if one == run] or [one for one in ids if one.startswith(run)]
    if not found:
        raise UnknownRun(f"there is no run {run!r}; tool-loop runs lists them")
    if len(found) > 1:
        raise UsageError(f"{run!r} is the beginning of {len(found)} runs: {', '.join(found[:5])}")
    return found[0]


def run_command(name: str, run_id: str, journal: str | None, *words: str, options: Sequence[str] = ()) -> str:
    """A command about this run, ready to be pasted."""
    from shlex import join

    where = ["--journal", journal] if journal else []
    if any(word.startswith("-") for word in (run_id, *words)):  # an id may look like an option
        return join(["tool-loop", name, *options, *where, "--", run_id, *words])
    return join(["tool-loop", name, run_id, *words, *options, *where])


def is_ours(args: Namespace) -> bool:
    """Whether the journal lies where only this person writes; one that is given by name can be anybody's."""
    if not args.journal:
        return True
    try:
        return Path(args.journal).samefile(default_path())
    except OSError:
        return False


def person() -> str:
    """Who decides here, for the record: the account's name."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else sys.platform
