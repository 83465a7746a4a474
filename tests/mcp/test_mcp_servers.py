"""Servers that other people wrote: the official SDK's over streamable HTTP under uvicorn, and public ones.

Slow, since each takes seconds to start. A public server that is not installed is skipped: they come with
`pip install mcp-server-git mcp-server-time mcp-server-sqlite` and `npm install
@modelcontextprotocol/server-filesystem @modelcontextprotocol/server-everything` (--prefix of npm in MCP_NPM).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from tool_loop import Agent, Limits, ScriptedLLM, ToolCall
from tool_loop.events import ToolReturned
from tool_loop.mcp import McpServer, mcp_tools

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
NPM = Path(os.environ.get("MCP_NPM", ROOT / ".npm")) / "node_modules/@modelcontextprotocol"


def outcomes(server: McpServer, *calls: tuple[str, dict[str, Any]]) -> list[tuple[str | None, str]]:
    """What became of each call, asked for by a scripted model, one in a turn."""

    async def run() -> list[tuple[str | None, str]]:
        turns = [ToolCall(str(n), f"{server.name}_{name}", json.dumps(args)) for n, (name, args) in enumerate(calls)]
        async with asyncio.timeout(90), mcp_tools(server) as tools:
            result = await Agent(ScriptedLLM(*turns, "done"), tools, limits=Limits(repeats=9)).run("go")
        return [(event.error, event.content) for event in result.events if isinstance(event, ToolReturned)]

    return asyncio.run(run())


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("hello\n")
    who = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    for words in (["init", "-q", "."], [*who, "add", "."], [*who, "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def from_npm(name: str, *words: str) -> list[str]:
    program, script = shutil.which("node"), NPM / name / "dist/index.js"
    if program is None or not script.exists():
        pytest.skip(f"{name} is not installed")
    return [program, str(script), *words]


def from_pip(name: str, *words: str) -> list[str]:
    program = Path(os.environ.get("MCP_PIP", Path(sys.executable).parent)) / name
    if not program.exists():
        pytest.skip(f"{name} is not installed")
    return [str(program), *words]


def test_the_public_filesystem_server(workspace: Path) -> None:
    server = McpServer("fs", command=from_npm("server-filesystem", str(workspace)))
    good, missing, outside, wrong = outcomes(
        server,
        ("read_text_file", {"path": f"{workspace}/a.txt"}),
        ("read_text_file", {"path": f"{workspace}/nope.txt"}),
        ("read_text_file", {"path": "/etc/passwd"}),
        ("read_text_file", {"paht": 1}),
    )

    assert good == (None, "hello\n") or "hello" in good[1]
    assert missing[0] == "tool_failed"
    assert "root:" not in outside[1]
    assert wrong[0] == "invalid_arguments"


def test_the_public_everything_server() -> None:
    server = McpServer("all", command=from_npm("server-everything", "stdio"))
    echo, total, image, structured, links = outcomes(
        server,
        ("echo", {"message": "hi"}),
        ("get-sum", {"a": 2, "b": 3}),
        ("get-tiny-image", {}),
        ("get-structured-content", {"location": "New York"}),
        ("get-resource-links", {"count": 2}),
    )

    assert echo[1] == "Echo: hi"
    assert "5" in total[1]
    assert "[image image/png" in image[1]
    assert structured[1].count("temperature") == 1
    assert "[resource " in links[1]


def test_the_public_git_server(workspace: Path) -> None:
    server = McpServer("git", command=from_pip("mcp-server-git", "--repository", str(workspace)))
    log, refused = outcomes(
        server,
        ("git_log", {"repo_path": str(workspace)}),
        ("git_checkout", {"repo_path": str(workspace), "branch_name": "nope"}),
    )

    assert "one" in log[1]
    assert refused[0] == "tool_failed"


def test_the_public_time_server() -> None:
    server = McpServer("time", command=from_pip("mcp-server-time"))
    now, wrong = outcomes(
        server, ("get_current_time", {"timezone": "Europe/Berlin"}), ("get_current_time", {"timezone": "Mars/Base"})
    )

    assert now[0] is None
    assert wrong[0] == "tool_failed"


# --- over HTTP ------------------------------------------------------------------------------------


@asynccontextmanager
async def over_http(token: str = "") -> AsyncIterator[str]:
    """The SDK's own server under uvicorn, in this process; its address."""
    import uvicorn
    from mcp.server.mcpserver import MCPServer
    from starlette.responses import Response

    served = MCPServer("http")

    @served.tool()
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @served.tool()
    async def slow() -> str:
        """Take long."""
        await asyncio.sleep(60)
        return "never"

    app = served.streamable_http_app()

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        if token and scope["type"] == "http" and headers.get(b"authorization") != f"Bearer {token}".encode():
            await Response("no", 401)(scope, receive, send)
        else:
            await app(scope, receive, send)

    config = uvicorn.Config(guarded, host="127.0.0.1", port=0, log_level="error", lifespan="on")
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    async with asyncio.timeout(20):
        while not server.started:  # noqa: ASYNC110  uvicorn has no event for it
            await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/mcp"
    finally:
        server.should_exit = server.force_exit = True
        await running


def test_a_server_over_http_is_used_like_any_other_and_its_headers_go_along() -> None:
    async def run() -> list[ToolReturned]:
        async with over_http(token="t") as url:
            server = McpServer("h", url=url, headers={"Authorization": "Bearer t"}, timeout_seconds=1)
            async with mcp_tools(server) as tools:
                calls = [ToolCall("a", "h_add", '{"a": 2, "b": 3}'), ToolCall("b", "h_slow", "{}")]
                result = await Agent(ScriptedLLM(*calls, "done"), tools).run("go")
        return [event for event in result.events if isinstance(event, ToolReturned)]

    total, slow = asyncio.run(run())

    assert total.content == "5"
    assert slow.error == "timed_out"


def test_a_server_that_refuses_the_key_says_so_and_shows_none() -> None:
    from tool_loop.errors import ConfigurationError

    async def run() -> None:
        async with over_http(token="t") as url:
            server = McpServer("h", url=url, headers={"Authorization": "Bearer wrong-key"})
            await mcp_tools(server).__aenter__()

    with pytest.raises(ConfigurationError, match="'h' cannot be used") as raised:
        asyncio.run(run())

    assert "wrong-key" not in str(raised.value)
