"""`mcp.json` as editors write it, to `McpServer`s.

Two spellings are about: `{"mcpServers": {NAME: {...}}}` (Claude Desktop and Code, Cursor, and most others)
and `{"servers": {...}}` (VS Code). Variables are `${NAME}`, `${NAME:-default}` and VS Code's `${env:NAME}`,
`${workspaceFolder}`, `${userHome}`. A file can hold keys, so no message shows a value out of it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final

from tool_loop.errors import ConfigurationError, UsageError

from .servers import McpServer

_VARIABLE: Final = re.compile(r"\$\{([^}]{1,200})\}")
_OLD: Final = ("sse", "ws")
_HTTP: Final = ("http", "streamable-http", "streamableHttp")
_REFUSED: Final = re.compile(r"[^A-Za-z0-9_-]+")


def load_servers(path: str | PathLike[str], environ: Mapping[str, str] = os.environ) -> list[McpServer]:
    """The servers a file names, without those it says are disabled.

    Beside what editors know, an entry may say `"effects": {TOOL: "read"}` and `"trusted": true`. Raises
    `ConfigurationError` naming the file, the server and the cure.
    """
    try:
        data = json.loads(Path(path).expanduser().read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not JSON: {error}") from None
    servers = data.get("mcpServers", data.get("servers")) if isinstance(data, dict) else None
    if not isinstance(servers, dict):
        raise ConfigurationError(f'{path} has no "mcpServers" (nor "servers", as VS Code writes it)')
    entries = {
        name: entry for name, entry in servers.items() if not (isinstance(entry, dict) and entry.get("disabled"))
    }
    return [_ServerEntry(path, name, environ).server(entry) for name, entry in entries.items()]


class _ServerEntry:
    """One entry of a file, with what is needed to say what is wrong with it."""

    def __init__(self, path: str | PathLike[str], name: str, environ: Mapping[str, str]) -> None:
        self._where = f"{path}: server {name!r}"
        self._name = name
        self._environ = environ
        self._folder = Path(path).expanduser().absolute().parent

    def server(self, entry: Any) -> McpServer:
        if not isinstance(entry, dict):
            raise self._bad("it is not an object")
        kind = entry.get("type") or ("stdio" if "command" in entry else "http")
        if kind in _OLD:
            raise self._bad(f'type "{kind}" is a transport of before 2025; ask the server for streamable HTTP ("http")')
        if kind != "stdio" and kind not in _HTTP:
            raise self._bad(f'type "{kind}" is not known; it is "stdio" or "http"')
        entry = self._filled(entry)
        try:
            return McpServer(self._short_name(), **(self._stdio(entry) if kind == "stdio" else self._http(entry)))
        except (UsageError, TypeError) as error:
            raise self._bad(str(error)) from None

    def _stdio(self, entry: dict[str, Any]) -> dict[str, Any]:
        command, arguments = entry.get("command"), entry.get("args", [])
        if not isinstance(command, str) or not command:
            raise self._bad('"command" is missing')
        if not isinstance(arguments, list) or not all(isinstance(each, str) for each in arguments):
            raise self._bad('"args" is not a list of strings')
        more = self._file(entry["envFile"]) if "envFile" in entry else {}
        env = {**more, **self._strings(entry, "env")}
        return self._common(entry) | {"command": [command, *arguments], "env": env, "cwd": entry.get("cwd")}

    def _http(self, entry: dict[str, Any]) -> dict[str, Any]:
        url = entry.get("url")
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise self._bad('"url" is missing, or no address that begins with http:// or https://')
        return self._common(entry) | {"url": url, "headers": self._strings(entry, "headers")}

    def _common(self, entry: dict[str, Any]) -> dict[str, Any]:
        common: dict[str, Any] = {
            "trusted": entry.get("trusted") is True,
            "effects": entry.get("effects", {}),
            "without": tuple(entry.get("disabledTools", ())),
        }
        if entry.get("allowedTools") is not None:
            common["only"] = tuple(entry["allowedTools"])
        return common

    def _strings(self, entry: dict[str, Any], key: str) -> dict[str, str]:
        value = entry.get(key) or {}
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
            raise self._bad(f'"{key}" is not an object of strings')
        return value

    def _file(self, name: Any) -> dict[str, str]:
        """A file of NAME=VALUE lines, as VS Code's `envFile` names one."""
        try:
            lines = (self._folder / str(name)).read_text(encoding="utf-8-sig").splitlines()
        except OSError as error:
            raise self._bad(f'"envFile" cannot be read: {error.strerror}') from None
        pairs = (line.partition("=") for line in map(str.strip, lines) if line and not line.startswith("#"))
        return {key.strip().removeprefix("export "): value.strip().strip("\"'") for key, _, value in pairs}

    def _short_name(self) -> str:
        """Its name as the tools will begin with it: editors allow spaces and dots, providers do not."""
        return _REFUSED.sub("_", self._name).strip("_-")[:32] or "server"

    def _filled(self, value: Any) -> Any:
        if isinstance(value, str):
            return _VARIABLE.sub(self._variable, value)
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        if isinstance(value, dict):
            return {key: self._filled(each) for key, each in value.items()}
        return value

    def _variable(self, found: re.Match[str]) -> str:
        word, has_default, default = found[1].partition(":-")
        word = word.removeprefix("env:")
        known = {"workspaceFolder": str(self._folder), "userHome": str(Path.home())}
        if word in known:
            return known[word]
        if word.startswith("input:"):
            variable = _REFUSED.sub("_", word[6:]).upper()
            raise self._bad(f"{found[0]} asks a person; write ${{{variable}}} there and set that variable")
        if self._environ.get(word):
            return self._environ[word]
        if has_default:
            return default
        raise self._bad(f"the environment variable {word} is not set")

    def _bad(self, what: str) -> ConfigurationError:
        return ConfigurationError(f"{self._where}: {what}")
