"""A server written by hand, which keeps to nothing: garbage lines, endless pages, floods, control characters.

python -m tests.mcp.hostile KIND
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

KIND = sys.argv[1] if len(sys.argv) > 1 else ""
EVIL = "\x1b]0;owned\x07\x1b[2J\u202egnp.exe\x00\u200b"


def say(message: Any) -> None:
    sys.stdout.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
    sys.stdout.flush()


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, "description": "t"} | more


def listed(cursor: str | None) -> dict[str, Any]:
    if KIND == "pages":
        page = int(cursor or 0)
        return {"tools": [tool(f"t{page}")], "nextCursor": str(page + 1)}
    if KIND == "names":
        long = "x" * 300
        return {"tools": [tool("a b"), tool("a_b"), tool(long), tool(long + "y"), tool("a b"), tool(EVIL), tool("")]}
    if KIND == "schema":
        return {"tools": [tool("look", inputSchema={"type": "object", "properties": 5})]}
    if KIND == "words":
        return {"tools": [tool("look", description=EVIL + "d" * 1_000_000)]}
    return {"tools": [tool("look")]}


def called() -> dict[str, Any]:
    if KIND == "flood":
        return {"content": [{"type": "text", "text": "x" * 100_000_000}]}
    if KIND == "evil":
        return {"content": [{"type": "text", "text": EVIL}]}
    if KIND == "shapes":
        return {"content": {"not": "a list"}, "isError": "maybe"}
    if KIND == "unknown":
        return {"content": [{"type": "hologram", "data": 1}]}
    return {"content": [{"type": "text", "text": "fine"}]}


def fuzz(seed: int) -> None:
    """Lines that are no messages of this conversation, in front of each real answer."""
    chance = random.Random(seed)
    for _ in range(40):
        say(chance.choice([
            "", "{", "null", "[]", "[" * 5_000, '{"jsonrpc":"2.0"}', '{"jsonrpc":"2.0","id":999,"result":{}}',
            '{"jsonrpc":"2.0","id":"x","error":{"code":"no","message":5}}', "\x00\xff", "{}" * chance.randrange(50),
            '{"jsonrpc":"2.0","method":"tools/list_changed","params":7}', '{"jsonrpc":"2.0","method":"no/such","id":7}',
            '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":"x"}}',
        ]))  # fmt: skip


def answer(message: dict[str, Any]) -> None:
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        return
    if KIND == "fuzz":
        fuzz(message["id"] if isinstance(message["id"], int) else 0)
    if method == "initialize":
        result: dict[str, Any] = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "hostile", "version": "1"},
        }
    elif method == "tools/list":
        result = listed(params.get("cursor"))
        say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    elif method == "tools/call":
        result = called()
    elif method == "ping":
        result = {}
    else:
        say({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no such method"}})
        return
    say({"jsonrpc": "2.0", "id": message["id"], "result": result})


if __name__ == "__main__":
    sys.stderr.write("noise\n" * (100_000 if KIND == "noise" else 1))
    sys.stderr.flush()
    for line in sys.stdin:
        answer(json.loads(line))
