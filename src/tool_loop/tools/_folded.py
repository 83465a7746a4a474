"""Names that a person cannot tell apart: one with U+00A0 where the other has a blank, one in NFD.

macOS puts U+202F before the PM in the name of a screenshot, and what is typed or copied has a blank there.
Knows nothing about why a name is looked for. Exact names have been tried before anybody comes here.
"""

from __future__ import annotations

import os
from contextlib import suppress

from ._beneath import DIRECTORY, ENTRY, Opener

# A directory with more names than this is not read to its end.
_MOST_NAMES = 20_000


def twins(opener: Opener, root: int, path: bytes) -> list[bytes]:
    """The paths that exist and are equal to this one after NFKC, with every blank a plain one."""
    found = [b""]
    for name in path.split(b"/"):
        if name not in (b"", b"."):
            found = [way for above in found for way in _below(opener, root, above, name)]
    return [way for way in found if way]


def _below(opener: Opener, root: int, above: bytes, name: bytes) -> list[bytes]:
    exact = above + b"/" + name if above else name
    with suppress(OSError):
        os.close(opener(root, exact, ENTRY))
        return [exact]
    wanted = _folded(name)
    return sorted(
        (above + b"/" + other if above else other) for other in _names(opener, root, above) if _folded(other) == wanted
    )


def _names(opener: Opener, root: int, above: bytes) -> list[bytes]:
    names: list[bytes] = []
    try:
        directory = opener(root, above or b".", DIRECTORY)
    except OSError:
        return names
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                names.append(os.fsencode(entry.name))
                if len(names) >= _MOST_NAMES:
                    break
    except OSError:
        pass  # what cannot be listed has no names to compare
    finally:
        os.close(directory)
    return names


def _folded(name: bytes) -> str:
    if name.isascii():
        return name.decode()
    import unicodedata  # a table of a megabyte, for names that need it

    text = unicodedata.normalize("NFKC", os.fsdecode(name))
    return "".join(" " if unicodedata.category(character) == "Zs" else character for character in text)
