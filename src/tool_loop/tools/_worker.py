"""Searches with Python's `re` where there is no ripgrep. A program of its own: `python -I -S _worker.py JOB`.

JOB is JSON (see `main`). Writes what ripgrep writes, in the form `search.py` asks ripgrep for, so that
one reader serves both, and ends like it: 0 found, 1 nothing found, 2 a pattern or glob that does not
compile, with the reason on stderr. Whoever starts it kills it at a deadline: `re` can take for ever.
Knows nothing about the package; it must start without it.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from io import BufferedReader, FileIO
from typing import IO, Any, NamedTuple

PIECE = 1 << 20  # a longer line is searched piece by piece, so that memory stays bounded
FILE_BYTES = 64 << 20
WIDE_BYTES = 16 << 20
DEPTH = 100
SKIPPED = {b"node_modules", b"__pycache__"}
OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
WIDE = ((b"\xff\xfe\0\0", "utf-32"), (b"\0\0\xfe\xff", "utf-32"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
# The letters that Windows has where latin-1 has control characters.
LETTERS = {
    code: ord(bytes([code]).decode("cp1252")) for code in range(0x80, 0xA0) if code not in b"\x81\x8d\x8f\x90\x9d"
}


class Rule(NamedTuple):
    """One line of a .gitignore, or a glob."""

    regex: re.Pattern[bytes]
    negated: bool
    directories: bool


class Rules(NamedTuple):
    """The rules of one directory. A path below the search's start is seen from there: `add + path[skip:]`."""

    skip: int
    add: bytes
    rules: list[Rule]

    def verdict(self, path: bytes, directory: bool) -> bool | None:
        """True: ignored; False: kept on purpose; None: these rules do not say. The last that fits decides."""
        seen = self.add + path[self.skip :]
        for rule in reversed(self.rules):
            if (directory or not rule.directories) and rule.regex.fullmatch(seen):
                return not rule.negated
        return None


def rule(line: bytes, *, braces: bool = False) -> Rule | None:
    """A pattern in the language of .gitignore; None for a comment. Raises ValueError when it is broken."""
    text = line.rstrip(b"\r\n")
    kept = text.rstrip(b" ")
    text = kept + b" " if kept.endswith(b"\\") and kept != text else kept
    if not text or text.startswith(b"#"):
        return None
    negated = text.startswith(b"!")
    text = text[negated:]
    directories = text.endswith(b"/")
    text = text.rstrip(b"/")
    anchored = b"/" in text
    body = translate(text.removeprefix(b"/"), braces=braces)
    return Rule(re.compile((b"" if anchored else b"(?:.*/)?") + body, re.DOTALL), negated, directories)


TOKEN = re.compile(rb"\A\*\*/|/\*\*/|/\*\*\Z|\*+|\?|\[[!^]?\]?[^\]]*\]|\[|\\.|[{},]|.", re.DOTALL)
FIXED = {b"**/": b"(?:.*/)?", b"/**/": b"/(?:.*/)?", b"/**": b"/.*", b"?": b"[^/]"}
BRACES = {b"{": b"(?:", b"}": b")", b",": b"|"}


def translate(glob: bytes, *, braces: bool) -> bytes:
    """The regular expression of a glob."""
    parts: list[bytes] = []
    depth = 0
    for token in (found[0] for found in TOKEN.finditer(glob)):
        if token in FIXED:
            parts.append(FIXED[token])
        elif token.startswith(b"*"):
            parts.append(b"[^/]*")
        elif token == b"[":
            raise ValueError("unclosed character class; missing ']'")
        elif token.startswith(b"["):
            negated = token[1:2] in (b"!", b"^")
            inner = token[1 + negated : -1].replace(b"\\", b"\\\\").replace(b"[", b"\\[")
            parts.append(b"[" + b"^" * negated + inner + b"]")
        elif braces and token in BRACES and (depth or token == b"{"):
            depth += (token == b"{") - (token == b"}")
            parts.append(BRACES[token])
        else:
            parts.append(re.escape(token[1:] if len(token) > 1 else token))
    if depth:
        raise ValueError("unclosed alternate group; missing '}'")
    return b"".join(parts)


class Search:
    """One search: what to look for, what was found, how many files were looked at."""

    def __init__(self, job: dict[str, Any]) -> None:
        # With `crlf`, a carriage return ends what ^ and $ look at, as ripgrep has it: see `text`.
        self.crlf: bool = job.get("crlf", False)
        flags = (re.IGNORECASE if job["ignore_case"] else 0) | (re.MULTILINE if self.crlf else 0)
        self.regex = re.compile(job["pattern"].translate(LETTERS), flags)
        self.context: int = job["context"]
        self.columns: int = job["columns"]
        self.depth = 0 if job["shallow"] else DEPTH
        self.glob = rule(os.fsencode(job["glob"]), braces=True) if job["glob"] else None
        self.files = self.matches = self.cut = 0
        self.out = sys.stdout.buffer

    def tree(self, directory: int, above: bytes, ignore: tuple[Rules, ...]) -> None:
        """Search all files below an open directory, in order of their paths. Links are not followed."""
        ignore = (*ignore, *own_rules(directory, len(above)))
        with os.scandir(directory) as entries:
            found = sorted(
                (os.fsencode(e.name), e.is_dir(follow_symlinks=False)) for e in entries if not e.is_symlink()
            )
        for name, is_directory in found:
            path = above + name
            if name.startswith(b".") or name in SKIPPED or self.unwanted(path, is_directory, ignore):
                continue
            try:
                descriptor = os.open(name, OPEN | (os.O_DIRECTORY if is_directory else 0), dir_fd=directory)
            except OSError as error:
                complain(f"{os.fsdecode(path)}: {error.strerror} (os error {error.errno})")
                continue
            try:
                if not is_directory:
                    self.file(descriptor, path)
                elif path.count(b"/") < self.depth:
                    self.tree(descriptor, path + b"/", ignore)
            finally:
                os.close(descriptor)

    def unwanted(self, path: bytes, directory: bool, ignore: tuple[Rules, ...]) -> bool:
        verdicts = (rules.verdict(path, directory) for rules in reversed(ignore))
        if next((verdict for verdict in verdicts if verdict is not None), False):
            return True
        if self.glob is None or (directory and not self.glob.negated):
            return False
        fits = (directory or not self.glob.directories) and self.glob.regex.fullmatch(path) is not None
        return fits == self.glob.negated

    def file(self, descriptor: int, path: bytes, *, explicit: bool = False) -> None:
        """Search one open file; one that is binary only when it was asked for by name."""
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return
        self.files += 1
        with BufferedReader(FileIO(descriptor, closefd=False), 1 << 16) as file:
            head = file.peek(8192)[:8192]
            wide = next((encoding for mark, encoding in WIDE if head.startswith(mark)), None)
            if wide:
                text = file.read(WIDE_BYTES).decode(wide, "replace")
                self.lines(path, ((number, 0, part.encode()) for number, part in enumerate(text.split("\n"), 1)))
            elif b"\0" not in head:
                if head.startswith(b"\xef\xbb\xbf"):
                    file.read(3)
                self.lines(path, pieces(file))
            elif explicit and any(self.regex.search(self.text(piece)[0]) for _, _, piece in pieces(file)):
                self.matches += 1
                self.out.write(
                    path + b': binary file matches (found "\\0" byte around offset %d)\n' % head.index(b"\0")
                )
            self.cut += os.fstat(descriptor).st_size > (WIDE_BYTES if wide else FILE_BYTES)
        self.out.flush()

    def lines(self, path: bytes, lines: Iterable[tuple[int, int, bytes]]) -> None:
        before: deque[tuple[int, int, bytes]] = deque(maxlen=self.context)
        after = 0
        matched = last = 0
        for number, offset, raw in lines:
            line = raw.removesuffix(b"\n")
            text, is_utf8 = self.text(line, part=number == last or len(line) >= PIECE)
            last = number
            if match := self.regex.search(text):
                if number == matched:
                    continue  # another piece of a long line that is on record already
                for earlier in before:
                    self.write(path, b"%d-%d-", *earlier)
                before.clear()
                before_it = text[: match.start()]
                column = (len(before_it.encode("utf-8", "surrogateescape")) if is_utf8 else len(before_it)) + 1
                self.write(path, b"%%d:%d:%%d:" % column, number, offset, line)
                self.matches += 1
                matched, after = number, self.context
            elif after and number != matched:
                self.write(path, b"%d-%d-", number, offset, line)
                after -= 1
            elif self.context and number != matched:
                before.append((number, offset, line))

    def text(self, line: bytes, *, part: bool = False) -> tuple[str, bool]:
        """What is searched of a line, and whether it is UTF-8; in any other, each byte is a letter.

        A `part` of a line may begin or end inside of a letter, and counts as UTF-8.
        """
        is_utf8 = True
        if self.crlf:
            # As line feeds, which is what ^, $ and . know. The last one is the line's own end.
            line = line.removesuffix(b"\r").replace(b"\r", b"\n")
        try:
            text = line.decode()
        except UnicodeDecodeError:
            is_utf8 = part
            text = line.decode("utf-8", "surrogateescape") if is_utf8 else line.decode("latin-1").translate(LETTERS)
        return text, is_utf8

    def write(self, path: bytes, head: bytes, number: int, offset: int, line: bytes) -> None:
        if len(line) > self.columns:
            line = line[: self.columns] + b" [... omitted end of long line]"
        self.out.write(path + b"\0" + head % (number, offset) + line + b"\n")


def pieces(file: IO[bytes]) -> Iterator[tuple[int, int, bytes]]:
    """(number of the line, offset, bytes): whole lines, but for one that is longer than a piece."""
    number, offset = 1, 0
    while offset < FILE_BYTES and (piece := file.readline(PIECE)):
        yield number, offset, piece
        offset += len(piece)
        number += piece.endswith(b"\n")


def own_rules(directory: int, skip: int) -> Iterator[Rules]:
    """The rules in this directory itself; those of .ignore come later and so win."""
    for name in (".gitignore", ".ignore"):
        try:
            descriptor = os.open(name, OPEN, dir_fd=directory)
        except OSError:
            continue
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                yield Rules(skip, b"", rules_of(os.read(descriptor, 1 << 16)))
        finally:
            os.close(descriptor)


def rules_of(text: bytes) -> list[Rule]:
    rules: list[Rule] = []
    for line in text.split(b"\n"):
        try:
            made = rule(line)
        except (ValueError, re.error):
            continue  # git ignores what it cannot read, too
        if made is not None:
            rules.append(made)
    return rules


def complain(text: str) -> None:
    sys.stderr.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")


def main(text: str) -> int:
    """`descriptor`: a file to search, or -1 for the working directory. `name`: how to call it."""
    warnings.simplefilter("ignore")
    job = json.loads(text)
    try:
        search = Search(job)
    except (re.error, RecursionError, OverflowError, MemoryError) as error:
        complain(f"regex parse error: {error or type(error).__name__}")
        return 2
    except ValueError as error:
        complain(f"error parsing glob {job['glob']!r}: {error}")
        return 2
    if job["descriptor"] >= 0:
        search.file(job["descriptor"], os.fsencode(job["name"]), explicit=True)
    else:
        ignore = tuple(Rules(0, os.fsencode(add), rules_of(text.encode())) for add, text in job["ignore"])
        directory = os.open(".", OPEN | os.O_DIRECTORY)
        search.tree(directory, b"", ignore)
    complain(f"searched {search.files} files, {search.cut} in part")
    return 0 if search.matches else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
