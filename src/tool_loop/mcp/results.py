"""What a server answers, as what a model reads: text, or a `ToolError`.

The structured form of a result is told only where no text says the same. The SDKs send both, and
telling both doubled the tokens of every result of five public servers.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tool_loop.errors import ToolError

# JSON-RPC and MCP error codes, as the specification numbers them.
CONNECTION_CLOSED: Final = -32000
REQUEST_TIMEOUT: Final = -32001
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602

MOST_SAID: Final = 2_000  # of an error; a server can put a page of HTML into one
_SHOWN_URI: Final = 500


def text_of(result: Any) -> str:
    """The result of a call. Raises `ToolError` for one that says it is an error."""
    parts = [_block(block) for block in result.content]
    structured = result.structured_content
    if structured is not None and not any(_says(part, structured) for part in parts):
        parts.append(json.dumps(structured, ensure_ascii=False))
    text = "\n".join(part for part in parts if part)
    if result.is_error:
        raise ToolError(text or "the tool failed and does not say why")
    return text


def _block(block: Any) -> str:
    match block.type:
        case "text":
            return str(block.text)
        case "image" | "audio" as kind:
            return f"[{kind} {block.mime_type}, {_size(block.data)}: not shown]"
        case "resource_link":
            kind = f", {block.mime_type}" if block.mime_type else ""
            return f"[resource {block.name}: {str(block.uri)[:_SHOWN_URI]}{kind}]"
        case "resource" if (text := getattr(block.resource, "text", None)) is not None:
            return f"[resource {str(block.resource.uri)[:_SHOWN_URI]}]\n{text}"
        case "resource":
            blob = _size(getattr(block.resource, "blob", ""))
            return f"[resource {str(block.resource.uri)[:_SHOWN_URI]}, {blob}: not text, not shown]"
        case kind:
            return f"[{kind}: not shown]"


def _size(base64: str) -> str:
    return f"{len(base64) * 3 // 4} bytes"


def _says(text: str, value: Any) -> bool:
    """Whether a text block already says what the structured value does."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = text.strip()
    # The SDKs wrap what is not an object into one of a single field, called "result" or alike.
    only = next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else value
    bare = only.strip() if isinstance(only, str) else only
    return bool(found in (value, bare) or (isinstance(bare, str) and text.strip() == bare))


def is_lost(error: BaseException) -> bool:
    """Whether the connection is gone, so that nobody will ever answer."""
    return getattr(error, "code", None) == CONNECTION_CLOSED or type(error).__name__ in (
        "ClosedResourceError",
        "BrokenResourceError",
        "EndOfStream",
    )


def told(error: Exception, seconds: float) -> ToolError:
    """An error of the protocol as the model reads it. Not for a lost connection: see `Caller`."""
    text = str(getattr(error, "message", "") or error)[:MOST_SAID]
    code = getattr(error, "code", None)
    if code == REQUEST_TIMEOUT or isinstance(error, TimeoutError):
        return ToolError(
            f"no answer in {seconds:g} s; the server was told to stop, but may still be at work",
            kind="timed_out",
            hint="check before you repeat it, or ask for less at a time",
            may_still_be_running=True,
        )
    if isinstance(error, RuntimeError):
        # What the SDK raises when structured content does not fit the tool's own output schema.
        return ToolError(f"it ran, but its result breaks its own output schema: {text}", hint="do not repeat it")
    if code == INVALID_PARAMS:
        return ToolError(text, kind="invalid_arguments")
    if code == METHOD_NOT_FOUND:
        return ToolError(text, kind="unknown_tool")
    return ToolError(text or type(error).__name__)
