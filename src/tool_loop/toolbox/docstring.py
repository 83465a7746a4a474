"""What a docstring says about a function and about each of its parameters: Google, NumPy and Sphinx style.

Knows nothing about types or schemas. What belongs to a parameter goes to the parameter; all else stays
in the description, in the author's words. Left out are only what a model cannot use (exceptions, which
it never sees) and plain types, which the schema says.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

_ARGS: Final = frozenset(
    [
        "args",
        "arguments",
        "params",
        "parameters",
        "kwargs",
        "keyword-args",
        "keyword-arguments",
        "keyword-parameters",
        "other-parameters",
        "other-args",
        "other-arguments",
    ]
)
_RAISES: Final = frozenset(["raises", "raise", "exceptions", "throws"])

# A heading of Google style, also in Markdown; one of NumPy style is underlined.
_HEADING: Final = re.compile(r"(?:#{1,6} *)?\*{0,2}([A-Za-z][A-Za-z ]{2,20}?):?\*{0,2}:?[ \t]*")
_UNDERLINE: Final = re.compile(r"[-=~]{3,}[ \t]*")

# Sphinx, and Epydoc with @ in the place of the first colon.
_FIELD: Final = re.compile(r"[:@](\w+)(?:[ \t]+([^:\n]*?))?:(?:[ \t]+|$)(.*)")
_PARAM_FIELDS: Final = frozenset(["param", "parameter", "arg", "argument", "key", "keyword", "kwarg", "kwparam"])

_NAMES: Final = re.compile(r"(?:[-•*][ \t]+)?[*`]{0,2}(\w+)[*`]{0,2}((?:[ \t]*,[ \t]*[*`]{0,2}\w+[*`]{0,2})*)[ \t]*")

# Types and words about them, in which there is nothing but that.
_PLAIN_TYPE: Final = re.compile(r"[\w.\[\](){}|, \t*\"'`~:]*")
_WORDS: Final = re.compile(r"\b(?:one of|in|choices?|between|from|to|at least|at most|must|should|only)\b|[<>=\"']")


@dataclass(slots=True)
class Docstring:
    """`description` for the tool, `parameters` by name, and `unknown`: names that are no parameters."""

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)


def read_docstring(text: str, names: Collection[str]) -> Docstring:
    """The parts of a docstring whose indentation is cleaned. `names`: all parameters of the function."""
    reader = _Reader(text.splitlines(), names)
    reader.read()
    return reader.found()


class _Reader:
    def __init__(self, lines: Sequence[str], names: Collection[str]) -> None:
        self._lines = lines
        self._names = frozenset(names)
        self._kept: list[list[str]] = [[]]
        self._notes: dict[str, list[str]] = {}
        self._unknown: list[str] = []
        self._at = 0

    def found(self) -> Docstring:
        blocks = ("\n".join(block).strip("\n").rstrip() for block in self._kept)
        notes = {name: " ".join(filter(None, said)) for name, said in self._notes.items()}
        return Docstring("\n\n".join(filter(None, blocks)).strip(), notes, self._unknown)

    def read(self) -> None:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            said = _FIELD.match(line)
            if said and said[1].lower() in _PARAM_FIELDS | _RAISES | {"type"}:
                self._field(said)
            elif kind := self._heading():
                self._section(kind)
            else:
                self._kept[-1].append(line)
                self._at += 1

    # --- Sphinx -----------------------------------------------------------------------------------

    def _field(self, said: re.Match[str]) -> None:
        kind, about = said[1].lower(), (said[2] or "").split()
        self._at += 1
        text = [said[3].strip(), *(line.strip() for line in self._indented())]
        self._kept.append([])
        if kind in _RAISES:
            return
        name = about[-1].lstrip("*") if about else ""
        note = " ".join(filter(None, text))
        if kind == "type":
            note = _beyond_types(note)
        elif len(about) > 1:
            note = _with(note, _beyond_types(" ".join(about[:-1])))
        self._note([name], note)

    # --- sections ---------------------------------------------------------------------------------

    def _heading(self) -> str:
        """Which section begins at this line: "google" or "numpy" for parameters, "raises", or none ("")."""
        line = self._lines[self._at]
        match = _HEADING.fullmatch(line)
        if not match or line[0].isspace():
            return ""
        word = "-".join(match[1].lower().split())
        following = self._lines[self._at + 1] if self._at + 1 < len(self._lines) else ""
        numpy = bool(_UNDERLINE.fullmatch(following))
        marked = numpy or line.rstrip().endswith((":", "*")) or line.startswith("#")
        if not marked or word not in _ARGS | _RAISES:
            return ""
        self._at += 2 if numpy else 1
        if word in _RAISES:
            return "raises " + ("numpy" if numpy else "google")
        ahead = next((line for line in self._lines[self._at :] if line.strip()), "")
        return "numpy" if numpy or not ahead[:1].isspace() else "google"

    def _section(self, kind: str) -> None:
        self._kept.append([])
        if kind == "google":
            self._entries(list(self._indented()))
        elif kind == "numpy":
            while (lines := self._entry_at_margin()) is not None:
                self._entries(lines)
        elif kind == "raises google":
            list(self._indented())
        else:
            # Each exception stands at the margin, with what is said about it below.
            while self._at < len(self._lines) and self._is_exception():
                self._at += 1
                list(self._indented())
        self._kept.append([])

    def _is_exception(self) -> bool:
        following = self._lines[self._at + 1] if self._at + 1 < len(self._lines) else ""
        return bool(re.fullmatch(r"[\w.]+(?:[ \t]*,[ \t]*[\w.]+)*", self._lines[self._at].strip())) and not (
            _UNDERLINE.fullmatch(following)
        )

    def _indented(self) -> Iterator[str]:
        """The lines from here on that are indented, and the blank ones among them."""
        end = self._at
        for n in range(self._at, len(self._lines)):
            line = self._lines[n]
            if line.strip():
                if not line[0].isspace():
                    break
                end = n + 1
        lines, self._at = self._lines[self._at : end], end
        return iter(lines)

    def _entry_at_margin(self) -> list[str] | None:
        """The next entry of a section whose entries are not indented, or None: it is over."""
        while self._at < len(self._lines) and not self._lines[self._at].strip():
            self._at += 1
        if self._at == len(self._lines):
            return None
        line = self._lines[self._at]
        entry = _entry(line)
        if entry is None or not self._known(entry[0]):
            return None
        self._at += 1
        return [line, *self._indented()]

    def _entries(self, lines: Iterable[str]) -> None:
        """`name (type): text`, and the lines below that are indented deeper. What comes before is kept."""
        current: list[str] = []
        indent: int | None = None
        for line in lines:
            depth = len(line) - len(line.lstrip())
            if not line.strip():
                continue
            entry = _entry(line.strip()) if indent is None or depth <= indent else None
            if entry is not None and (entry[2] or self._known(entry[0])):
                indent = depth
                current = entry[0]
                self._note(current, entry[1])
            elif current:
                self._note(current, line.strip())
            else:
                self._kept[-1].append(line.strip())

    def _known(self, names: Iterable[str]) -> bool:
        return not self._names or all(name in self._names for name in names)

    def _note(self, names: Iterable[str], text: str) -> None:
        for name in names:
            if not self._known([name]) and name not in self._unknown:
                self._unknown.append(name)
            self._notes.setdefault(name, []).append(text)


def _entry(line: str) -> tuple[list[str], str, bool] | None:
    """The names, what is said about them, and whether a colon or a type marks it as an entry; None for other text."""
    match = _NAMES.match(line)
    if not match:
        return None
    names = [match[1], *re.findall(r"\w+", match[2])]
    rest = line[match.end() :]
    types = ""
    if rest.startswith("("):
        end = _closing(rest)
        if end < 0:
            return None
        types, rest = rest[1:end], rest[end + 1 :].lstrip()
    if not rest:
        return names, _beyond_types(types), bool(types)
    if not rest.startswith(":"):
        return None
    # In NumPy style a blank stands before the colon, and behind it is the type.
    if not types and line[match.end() - 1].isspace():
        return names, _beyond_types(rest[1:].strip()), True
    return names, _with(rest[1:].strip(), _beyond_types(types)), True


def _closing(text: str) -> int:
    """Where the bracket at the beginning is closed, or -1."""
    depth = 0
    quote = ""
    for n, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        else:
            depth += (character in "([{") - (character in ")]}")
            if depth == 0:
                return n
    return -1


def _beyond_types(text: str) -> str:
    """What the words about a type say that no type does: choices, limits. "" for a plain type."""
    if _PLAIN_TYPE.fullmatch(text) and not _WORDS.search(text):
        return ""
    return re.sub(r"^[\w.]+[ \t]*,[ \t]*", "", text).strip()


def _with(text: str, more: str) -> str:
    return f"{text} ({more})" if text and more else text or more
