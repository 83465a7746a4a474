"""Models: the three dialects of real ones, a scripted one, and patience. Each is loaded when it is first used.

Every model has one method, `await llm.reply(request, emit)`; see `tool_loop.ports.LLM`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .anthropic.model import AnthropicMessages
    from .chat.model import OpenAIChat
    from .http.transport import Caps, Timeouts
    from .responses.model import OpenAIResponses
    from .retry import Retrying, RetryPolicy
    from .scripted import ScriptedLLM, ScriptError, Sent, Turn, calls

_HOMES = {
    "AnthropicMessages": "anthropic.model",
    "Caps": "http.transport",
    "OpenAIChat": "chat.model",
    "OpenAIResponses": "responses.model",
    "RetryPolicy": "retry",
    "Retrying": "retry",
    "ScriptError": "scripted",
    "ScriptedLLM": "scripted",
    "Sent": "scripted",
    "Timeouts": "http.transport",
    "Turn": "scripted",
    "calls": "scripted",
}

__all__ = [
    "AnthropicMessages",
    "Caps",
    "OpenAIChat",
    "OpenAIResponses",
    "RetryPolicy",
    "Retrying",
    "ScriptError",
    "ScriptedLLM",
    "Sent",
    "Timeouts",
    "Turn",
    "calls",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return list(__all__)
