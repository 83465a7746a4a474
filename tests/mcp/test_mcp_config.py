"""`mcp.json` as editors write it, and what is said about one that is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tool_loop.errors import ConfigurationError, UsageError
from tool_loop.mcp import McpServer, load_servers

SET = {"HOME": "/home/me", "TOKEN": "s3cret"}


def written(folder: Path, data: Any) -> Path:
    path = folder / "mcp.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def loaded(folder: Path, data: Any) -> list[McpServer]:
    return load_servers(written(folder, data), SET)


def test_both_spellings_of_editors_are_read(tmp_path: Path) -> None:
    claude = loaded(tmp_path, {"mcpServers": {"git": {"command": "uvx", "args": ["mcp-server-git"]}}})
    code = loaded(tmp_path, {"inputs": [], "servers": {"docs": {"type": "http", "url": "http://127.0.0.1:1/mcp"}}})

    assert [(server.name, list(server.command)) for server in claude] == [("git", ["uvx", "mcp-server-git"])]
    assert [(server.name, server.url) for server in code] == [("docs", "http://127.0.0.1:1/mcp")]


def test_variables_are_filled_in_and_disabled_servers_left_out(tmp_path: Path) -> None:
    data = {
        "mcpServers": {
            "a": {"command": "x", "args": ["${HOME}/w", "${workspaceFolder}"], "env": {"K": "${NONE:-plain}"}},
            "b": {"url": "https://e.example/mcp", "headers": {"Authorization": "Bearer ${env:TOKEN}"}},
            "c": {"command": "x", "disabled": True},
        }
    }

    first, second = loaded(tmp_path, data)

    assert list(first.command) == ["x", "/home/me/w", str(tmp_path)]
    assert first.env == {"K": "plain"}
    assert second.headers == {"Authorization": "Bearer s3cret"}
    assert "s3cret" not in repr(second)


def test_an_entry_may_say_what_its_tools_do_and_which_are_used(tmp_path: Path) -> None:
    entry = {
        "command": "x",
        "trusted": True,
        "effects": {"look": "read"},
        "allowedTools": ["look", "pay"],
        "disabledTools": ["pay"],
    }

    (server,) = loaded(tmp_path, {"mcpServers": {"My Server.1": entry}})

    assert server.name == "My_Server_1"
    assert server.trusted
    assert server.effect_of("look", None) == "read"
    assert server.offers("look")
    assert not server.offers("pay")
    assert not server.offers("other")


def test_a_file_of_variables_is_read_from_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("# keys\nexport A=1\nB='two'\n\n")

    (server,) = loaded(tmp_path, {"servers": {"s": {"command": "x", "envFile": ".env", "env": {"B": "mine"}}}})

    assert server.env == {"A": "1", "B": "mine"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("{", "is not JSON"),
        ({"x": 1}, 'has no "mcpServers"'),
        ({"mcpServers": {"a": 5}}, "server 'a': it is not an object"),
        ({"mcpServers": {"a": {}}}, '"url" is missing'),
        ({"mcpServers": {"a": {"type": "stdio"}}}, '"command" is missing'),
        ({"mcpServers": {"a": {"command": "x", "args": "y"}}}, '"args" is not a list'),
        ({"mcpServers": {"a": {"command": "x", "env": {"K": 1}}}}, '"env" is not an object of strings'),
        ({"mcpServers": {"a": {"type": "sse", "url": "http://x"}}}, "a transport of before 2025"),
        ({"mcpServers": {"a": {"type": "carrier-pigeon"}}}, 'it is "stdio" or "http"'),
        ({"mcpServers": {"a": {"url": "${NOPE}"}}}, "the environment variable NOPE is not set"),
        ({"mcpServers": {"a": {"command": "x", "env": {"K": "${input:api key}"}}}}, r"write \$\{API_KEY\} there"),
        ({"mcpServers": {"a": {"command": "x", "effects": {"t": "harmless"}}}}, 'an effect is "read"'),
        ({"mcpServers": {"a": {"command": "x", "envFile": "gone"}}}, '"envFile" cannot be read'),
    ],
)
def test_what_is_wrong_names_the_file_the_server_and_the_cure(tmp_path: Path, data: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as raised:
        loaded(tmp_path, data)

    assert "mcp.json" in str(raised.value)


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"gone\.json: No such file"):
        load_servers(tmp_path / "gone.json")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "", "command": ["x"]}, "its name has 1 to 32"),
        ({"name": "a"}, "either a command"),
        ({"name": "a", "command": ["x"], "url": "http://x"}, "either a command"),
        ({"name": "a", "command": "uvx git"}, r"command=\['uvx', 'git'\]"),
        ({"name": "a", "url": "ftp://x"}, "not an address"),
        ({"name": "a", "command": ["x"], "timeout_seconds": 0}, "above zero"),
    ],
)
def test_a_server_that_cannot_work_is_refused_when_it_is_made(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        McpServer(**options)
