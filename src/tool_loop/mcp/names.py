"""Names that every provider accepts, for tools whose servers may call them anything.

`server_tool`, so that two servers with a `search` do not clash. What is too long, or taken, or has been
changed by leaving out what no provider accepts, gets a digest of the real name: always the same one, in
whatever order servers answer, because a resumed run has the old names in its history.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

MOST: Final = 64
_REFUSED: Final = re.compile(r"[^a-zA-Z0-9_-]")


def plain_name(server: str, tool: str) -> str:
    return _REFUSED.sub("_", f"{server}_{tool}")


def wire_names(tools: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The name of each (server, tool). Of several that would be called the same, each gets its digest,
    so that no name depends on which one came first."""
    pairs = list(dict.fromkeys(tools))
    clashes = Counter(plain_name(*pair) for pair in pairs)
    return {
        pair: name if len(name := plain_name(*pair)) <= MOST and clashes[name] == 1 else _with_digest(name, *pair)
        for pair in pairs
    }


def _with_digest(name: str, server: str, tool: str) -> str:
    digest = blake2b(f"{server}\0{tool}".encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{name[: MOST - 9]}_{digest}"
