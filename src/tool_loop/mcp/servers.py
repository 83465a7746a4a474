"""`McpServer`: where a server is, and how far the person trusts it. Connects to nothing.

What a server says of itself (`readOnlyHint` and its relatives) is the word of a stranger: the
specification says so, and a server that lies is exactly the one that would use it. So hints count only
for a server that is declared `trusted`, and a tool nobody has said anything about is treated as one
that may do everything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from hashlib import sha256
from typing import Any, Final, get_args
from urllib.parse import urlsplit

from tool_loop.errors import UsageError
from tool_loop.ports import Effect

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


@dataclass(frozen=True, slots=True)
class McpServer:
    """One server: `command` (with its arguments) speaks over stdin and stdout, `url` over streamable HTTP.

    `env` is added to the few variables a server gets (PATH, HOME and the like): nothing else of this
    process's environment, so no key of another service. `headers` and `auth` (an `httpx2.Auth`, such as
    the SDK's `OAuthClientProvider`) go with each HTTP request. `trusted` believes what the server says
    about its tools and takes its results for the person's own; else a tool without an entry in `effects`
    ("*" is for all that are not named) counts as undeclared, so it is asked about and never repeated, and
    its results are labelled untrusted. `only` and `without` choose among the tools by their own names.
    `timeout_seconds` bounds a call and `connect_seconds` the start, in seconds.

    Raises `UsageError` for what cannot work.
    """

    name: str
    _: KW_ONLY
    command: Sequence[str] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    auth: Any = field(default=None, repr=False)
    trusted: bool = False
    effects: Mapping[str, Effect] = field(default_factory=dict)
    only: Sequence[str] | None = None
    without: Sequence[str] = ()
    timeout_seconds: float = 60.0
    connect_seconds: float = 30.0
    mode: str = "auto"

    def __post_init__(self) -> None:
        if problem := self._problem():
            raise UsageError(f"MCP server {self.name!r}: {problem}")

    def _problem(self) -> str:
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            return "its name has 1 to 32 of the characters a-z A-Z 0-9 _ - (it begins the names of its tools)"
        if bool(self.command) == bool(self.url):
            return "give either a command (a list, as in command=['uvx', 'mcp-server-git']) or a url"
        if isinstance(self.command, str):
            return f"command is a list of words, as in command={self.command.split()!r}"
        if self.url and urlsplit(self.url).scheme not in ("http", "https"):
            return f"{self.url!r} is not an address that begins with http:// or https://"
        if wrong := next((e for e in self.effects.values() if e not in get_args(Effect)), None):
            return f'an effect is "read", "idempotent" or "once", got {wrong!r}'
        if not (self.timeout_seconds > 0 and self.connect_seconds > 0):
            return "timeout_seconds and connect_seconds must be above zero"
        return ""

    @property
    def identity(self) -> str:
        """What an approval of one of its tools is bound to: the program or the address, not its secrets."""
        where = self.url or "\0".join([*self.command, f"cwd={self.cwd or ''}"])
        return f"mcp:{self.name}:{sha256(where.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"

    def offers(self, tool: str) -> bool:
        return (self.only is None or tool in self.only) and tool not in self.without

    def effect_of(self, tool: str, annotations: Any) -> Effect | None:
        """What the person said of this tool, else what a trusted server says of it, else nothing."""
        said = self.effects.get(tool, self.effects.get("*"))
        if said is not None or not self.trusted or annotations is None:
            return said
        if annotations.read_only_hint:
            return "read"
        return "idempotent" if annotations.idempotent_hint else None

    def is_untrusted(self, annotations: Any) -> bool:
        """Whether its results are a stranger's words. A trusted server may still bring the web in."""
        return not self.trusted or bool(annotations is not None and annotations.open_world_hint)
