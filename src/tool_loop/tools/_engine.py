"""The two engines that search: ripgrep, or Python's `re` in a child process where there is none.

A pattern that a model wrote never runs in this process. ripgrep takes linear time whatever the
pattern; `re` does not, and holds the interpreter's lock while it runs, so it runs in a child that can
be killed. Knows what to ask each engine for and what its endings mean; nothing about roots.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from signal import SIGABRT
from time import monotonic
from typing import IO, Literal

from tool_loop.errors import ToolError, UsageError
from tool_loop.records import dataclass

from ._child import ChildOutcome, run
from ._legacy import in_bytes, in_question, without
from ._matches import COLUMNS, Found, parse

_WORKER = Path(__file__).with_name("_worker.py")

# Enough for some 10,000 matches; with more than that, only the first ones are worth a look.
_OUTPUT_BYTES = 1 << 20
_FIRST_BYTES = 128 << 10

_FLAGS = (
    "--no-config --color=never --no-heading --with-filename --line-number --byte-offset --null "
    f"--no-context-separator --no-require-git --max-columns={COLUMNS + 1} --max-columns-preview"
).split()

# When a line is so long that ripgrep is refused the memory, it is asked for less: not to keep the
# line but to map the file, not to say where in the line, and at last not to look at such files.
_SMALL = "--max-filesize=16M"
_LADDER = (("--column",), ("--column", "--mmap"), ("--mmap",), ("--column", _SMALL))

# A pattern that names the carriage return.
_NAMES_CR = re.compile(r"\\r|\r|\\x(?:0d|\{0*d\})|\\cM", re.IGNORECASE)

_META = re.compile(r"[\\.+*?()|\[\]{}^$]")
_CARETS = re.compile(r"\n    (?P<pattern>.*)\n    (?P<space> *)(?P<carets>\^+).*\nerror: (?P<error>.*)")


@dataclass(frozen=True, slots=True)
class Engine:
    """What searches: ripgrep ("rg"), or Python's `re` in a child process ("re")."""

    name: Literal["rg", "re"]
    program: str

    @property
    def label(self) -> str:
        return "ripgrep" if self.name == "rg" else "Python re"

    def __str__(self) -> str:
        return f"ripgrep ({self.program})" if self.name == "rg" else f"Python's re, in a child process ({self.program})"


@dataclass(frozen=True, slots=True)
class Query:
    """What to find. `glob` chooses files, with `shallow` only those directly where the search starts."""

    pattern: str
    glob: str = ""
    context: int = 0
    ignore_case: bool = False
    shallow: bool = False


@dataclass(frozen=True, slots=True)
class SearchPlace:
    """Where to search: below the directory `cwd`, or in one `file` behind an inherited descriptor.

    `name` is the path as the model knows it. `text`: the file begins like text, so its lines can be
    shown even if there is a NUL somewhere (a log after a crash). `encoding` is what a mark at its
    beginning says, if anything. `ignore` are the .gitignore files of
    the directories above, each with the path from there; ripgrep finds them by itself.
    """

    name: str
    cwd: str
    file: str = ""
    descriptors: tuple[int, ...] = ()
    text: bool = False
    encoding: str = ""
    ignore: tuple[tuple[str, str], ...] = ()


def search_engine(environment: Mapping[str, str] | None = None) -> Engine:
    """The engine `grep` uses: `rg` from TOOL_LOOP_RG, beside Python, or on PATH; else Python's `re`.

    TOOL_LOOP_RG=none asks for `re`. Raises UsageError when it names something that cannot be run.
    """
    environment = os.environ if environment is None else environment
    wanted = environment.get("TOOL_LOOP_RG", "")
    if wanted and wanted != "none":
        if not _runnable(wanted):
            raise UsageError(f"TOOL_LOOP_RG is {wanted!r}, which is not a program; unset it, or set it to none")
        return Engine("rg", os.path.abspath(wanted))  # noqa: PTH100  an rg that is a link stays one
    places = [] if wanted else [os.path.dirname(sys.executable), *environment.get("PATH", "").split(os.pathsep)]  # noqa: PTH120
    for directory in places:
        # A relative entry of PATH means the working directory, which may well be the workspace: what
        # lies there is not to be run.
        if os.path.isabs(directory) and _runnable(program := os.path.join(directory, "rg")):  # noqa: PTH117, PTH118
            return Engine("rg", program)
    return Engine("re", sys.executable)


def _runnable(program: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(program).st_mode) and os.access(program, os.X_OK)  # noqa: PTH116
    except (OSError, ValueError):
        return False


async def find(engine: Engine, query: Query, place: SearchPlace, seconds: float) -> Found:
    """Search for at most so long. Raises `ToolError`: a broken pattern or glob, or out of time with nothing found."""
    if engine.name == "re":
        return await _python(engine.program, query, place, seconds)
    if place.encoding.startswith("utf-32"):  # which ripgrep takes for binary
        return await _python(sys.executable, query, place, seconds)
    try:
        return await _ripgrep(engine.program, query, place, seconds)
    except OSError:
        # It went away, or is made for another machine. Slower beats not at all.
        return await _python(sys.executable, query, place, seconds)


async def _ripgrep(program: str, query: Query, place: SearchPlace, seconds: float) -> Found:
    ends = monotonic() + seconds
    asked = [*_wishes(query, place), *_choice(query)]
    where = ["--", *([place.file] if place.file else [])]
    patterns = [f"--regexp={query.pattern}"]
    if extra := in_bytes(query.pattern, ignore_case=query.ignore_case):
        patterns.append(f"--regexp={extra}")

    async def search(extra: Sequence[str], most: int) -> ChildOutcome:
        left = ends - monotonic()
        argv = [program, *_FLAGS, *extra, *asked, *patterns, *where]
        return await run(argv, cwd=place.cwd, seconds=left, most=most, descriptors=place.descriptors)

    outcome, flags = await _with_memory(search)
    if outcome.code == 2 and not outcome.out and patterns[1:]:
        # Perhaps it has no form in bytes, as \p{L} has none. What else is wrong is said about the one given.
        del patterns[1:]
        outcome, flags = await _with_memory(search)
    if outcome.full:
        # Which matches came first is chance, as several threads search. In order it is slower, but
        # there is much to find and little to read: the same question gets the same answer.
        outcome = await search((*flags, "--sort=path"), _FIRST_BYTES)
    nothing = "No files were searched" in outcome.err
    if outcome.code == 2 and not outcome.out and not nothing and "(os error " not in outcome.err:
        raise _refused(outcome.err, query)
    notes = ["files over 16 MiB are left out, a line in one is too long"] if _SMALL in flags else []
    files = 0 if nothing else None
    found = _found("ripgrep", outcome, place, seconds, files=files, notes=notes, columns="--column" in flags)
    return await _certain(program, query, place, found, ends) if patterns[1:] else found


async def _with_memory(
    search: Callable[[Sequence[str], int], Awaitable[ChildOutcome]],
) -> tuple[ChildOutcome, Sequence[str]]:
    """The outcome of the first of several ways that has the memory it wants, and the flags for it."""
    for flags in _LADDER:
        outcome = await search(flags, _OUTPUT_BYTES)
        if outcome.code != -SIGABRT:
            break
    return outcome, flags


async def _certain(program: str, query: Query, place: SearchPlace, found: Found, ends: float) -> Found:
    """Without the lines of UTF-8 that only the pattern in bytes has found: they are asked about alone."""
    doubted = in_question([*found.records])
    left = ends - monotonic()
    if not doubted or left <= 0:
        return found
    with _scratch() as file:
        file.write(b"".join(record.text.removesuffix(b"\r") + b"\n" for record in doubted))
        file.flush()
        file.seek(0)
        flags = ["--no-config", "--color=never", "--no-filename", "--line-number", "--text", *_wishes(query, place)]
        argv = [program, *flags, f"--regexp={query.pattern}", "--", f"/dev/fd/{file.fileno()}"]
        outcome = await run(argv, cwd="/", seconds=left, most=2 * _OUTPUT_BYTES, descriptors=(file.fileno(),))
    if outcome.code not in (0, 1) or outcome.late or outcome.full:
        return found
    right = {int(number) for number in re.findall(rb"^(\d+):", outcome.out, re.MULTILINE)}
    wrong = [record for number, record in enumerate(doubted, 1) if number not in right]
    return replace(found, records=without([*found.records], wrong))


def _scratch() -> IO[bytes]:
    """A file without a name, in memory where the system has such: what is in a workspace is left nowhere else."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("tool-loop"), "w+b")
    return tempfile.TemporaryFile()


def _crlf(query: Query) -> list[str]:
    """`$` stands before the whole of a line's end, also where that is CR LF: nobody sees the CR.

    A pattern that names the CR wants to see it, and is refused together with this.
    """
    return [] if _NAMES_CR.search(query.pattern) else ["--crlf"]


def _wishes(query: Query, place: SearchPlace) -> list[str]:
    """What a match is."""
    flags = _crlf(query)
    if query.context:
        flags.append(f"--context={query.context}")
    if query.ignore_case:
        flags.append("--ignore-case")
    if place.text:
        flags.append("--text")
    return flags


def _choice(query: Query) -> list[str]:
    """Which files are searched."""
    flags = ["--max-depth=1"] if query.shallow else []
    if "/" in query.glob or query.glob.startswith("!"):
        flags.append(f"--glob={query.glob}")
    elif query.glob:
        # As a file type, because --glob overrules .gitignore: it would search what is ignored.
        flags += [f"--type-add=wanted:{query.glob}", "--type=wanted"]
    return flags


async def _python(program: str, query: Query, place: SearchPlace, seconds: float) -> Found:
    if not program or getattr(sys, "frozen", False) or not _WORKER.is_file():
        hint = "the person who runs this has to install ripgrep"
        raise ToolError("there is nothing to search with: no ripgrep, and no Python to start", hint=hint)
    descriptor = place.descriptors[0] if place.descriptors else -1
    job = {
        **asdict(query),
        "crlf": bool(_crlf(query)),
        "columns": COLUMNS,
        "descriptor": descriptor,
        "name": place.name,
        "ignore": place.ignore,
    }
    argv = [program, "-I", "-S", str(_WORKER), json.dumps(job)]
    outcome = await run(argv, cwd=place.cwd, seconds=seconds, most=_OUTPUT_BYTES, descriptors=place.descriptors)
    if outcome.code == 2:
        raise _refused(outcome.err, query)
    done = re.search(r"^searched (\d+) files, (\d+) in part$", outcome.err, re.MULTILINE)
    notes = [f"only the beginning of {done[2]} large files was searched"] if done and done[2] != "0" else []
    return _found("Python re", outcome, place, seconds, files=int(done[1]) if done else None, notes=notes)


def _found(
    engine: str,
    outcome: ChildOutcome,
    place: SearchPlace,
    seconds: float,
    *,
    files: int | None,
    notes: list[str],
    columns: bool = True,
) -> Found:
    name = os.fsencode(place.name)
    above, name_of_file = (b"", name) if place.file else (name + b"/" if name else b"", None)
    records, binary = parse(outcome.out, above=above, name=name_of_file, columns=columns)
    if outcome.late and not records:
        hint = "narrow it with path or glob"
        if engine != "ripgrep":
            hint += ", or simplify the pattern: repetition inside repetition, as in (a+)+, can take for ever"
        raise ToolError(f"nothing was found within {seconds:g} s", kind="timed_out", hint=hint)
    cut = outcome.full or outcome.late
    if outcome.code not in (0, 1, 2) and not cut:
        raise ToolError(f"{engine} ended with {outcome.code}: {outcome.err.strip()[:200]}")
    if unreadable := outcome.err.count("(os error "):
        notes.append(f"{unreadable} could not be read")
    if outcome.late:
        notes.append(f"stopped after {seconds:g} s")
    return Found(engine, records, more=cut, files=files, notes=tuple(notes), binary=binary)


def _refused(err: str, query: Query) -> ToolError:
    """A pattern or glob that does not compile, in the engine's words, on one line."""
    text = err.removeprefix("rg: ").strip()
    if "glob" in text.partition("\n")[0]:
        hint = "a glob is like *.py, src/**/*.py or !tests/**"
        return ToolError(" ".join(text.split())[:500], kind="invalid_argument", hint=hint, field="glob")
    if marked := _CARETS.search(text):
        start, length = len(marked["space"]), len(marked["carets"])
        text = f"regex parse error: {marked['error']}: {marked['pattern'][start : start + length]}"
    message = " ".join(text.partition("\n\n")[0].split())[:500]
    if "look-around" in message or "backreferences" in message:
        hint = "search for a part of it, and read the lines that are found"
    elif "\\n" in message:
        hint = "each line is searched by itself; use context to see the lines around a match"
    else:
        escaped = _META.sub(r"\\\g<0>", query.pattern)
        hint = f"to find this very text, escape it: {escaped[:300]}"
    return ToolError(message, kind="invalid_argument", hint=hint, field="pattern")
