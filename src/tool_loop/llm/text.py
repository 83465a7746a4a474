"""What may become of text on its way in and out: surrogates mended, names and JSON made fit to send.

Pure, and shared by the dialects. Knows nothing about any of them.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Final

from tool_loop.runtime.strict import no_constant

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_OUTSIDE: Final = re.compile(r"[^a-zA-Z0-9_-]")
NAME_LENGTH: Final = 64


def clean(text: str) -> str:
    """The text as Unicode: halves of one character joined, a half on its own replaced.

    A server may cut a character's two escapes into two deltas, and JSON allows a half on its own;
    neither can be written as UTF-8, so it would break the journal and every later request.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class Joiner:
    """Makes the deltas of a text fit to be shown: half a character at the end of one waits for the next."""

    __slots__ = ("_half",)

    def __init__(self) -> None:
        self._half = ""

    def shown(self, delta: str) -> str:
        if delta.isascii() and not self._half:
            return delta
        text, self._half = self._half + delta, ""
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return clean(text)


def encoded(value: Any) -> bytes:
    """JSON in UTF-8, as short as it gets. Raises ValueError for NaN."""
    return clean(_SHORT.encode(value)).encode()


# Made once: `json.dumps` and `json.loads` with settings make a new one at each call.
_SHORT: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def kept(extras: Mapping[str, Any]) -> str:
    """What a provider attached, as JSON text for the record; "" for nothing, and for what no JSON can hold."""
    try:
        return encoded(extras).decode() if extras else ""
    except ValueError:  # NaN, which its server should not have sent and would not take back
        return ""


def arguments_object(arguments: str) -> str:
    """The arguments of a past call as they may be sent: the text as it came if it is a JSON object, else {}.

    Servers parse the arguments of the whole history at every request. One past call that is no JSON
    makes a local server answer 500 from then on, and Bedrock and others answer 400.
    """
    try:
        value = _STRICT.decode(arguments)
    except (ValueError, RecursionError):
        return "{}"
    return arguments if isinstance(value, dict) else "{}"


_STRICT: Final = json.JSONDecoder(parse_constant=no_constant)


class Pieces:
    """A text that grows by small pieces.

    A string of eight characters takes 57 bytes, so a long reply in a plain list takes eight times its
    size; joined now and then it takes its size, and each piece is still copied only twice.
    """

    __slots__ = ("_blocks", "_pieces")

    _TOGETHER = 1024

    def __init__(self, text: str = "") -> None:
        self._blocks: list[str] = []
        self._pieces: list[str] = [text] if text else []

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        if len(self._pieces) == self._TOGETHER:
            self._blocks.append("".join(self._pieces))
            self._pieces.clear()

    def set(self, text: str) -> None:
        """Begin anew with this text."""
        self._blocks.clear()
        self._pieces[:] = [text]

    def __bool__(self) -> bool:
        return bool(self._pieces or self._blocks)

    def __str__(self) -> str:
        return "".join(self._blocks) + "".join(self._pieces)


class Names:
    """Tool names as providers take them (`[a-zA-Z0-9_-]{1,64}`), and the way back.

    A name that fits is sent as it is. The others are changed the same way every time, in the tools,
    in the history and in what the model answers.
    """

    __slots__ = ("_back", "_there", "known")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._there: dict[str, str] = {}
        self._back: dict[str, str] = {}
        names = tuple(names)
        for name in (*filter(fits, names), *(name for name in names if not fits(name))):
            sent = name if fits(name) else _changed(name)
            if sent in self._back:
                digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
                sent = f"{sent[: NAME_LENGTH - 9]}_{digest}"
            self._there[name] = sent
            self._back[sent] = name
        self.known = frozenset(self._back)

    def sent(self, name: str) -> str:
        """The name as it goes out; an invented one is only made to fit."""
        found = self._there.get(name)
        if found is not None:
            return found
        return name if fits(name) else _changed(name)

    def ours(self, name: str) -> str:
        """The name as the tools know it; an unknown one as it came."""
        return self._back.get(name, name)


def fits(name: str) -> bool:
    return 0 < len(name) <= NAME_LENGTH and not _OUTSIDE.search(name)


def _changed(name: str) -> str:
    return _OUTSIDE.sub("_", name)[:NAME_LENGTH] or "unnamed"
