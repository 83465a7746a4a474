"""A tool-calling agent in one readable loop. Start with `Agent`; read agent.py to see how it works.

Importing this package imports nothing else: each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .api import Agent, run_agent
    from .errors import (
        ConfigurationError,
        FatalError,
        JournalError,
        ProviderError,
        RunBusy,
        ToolError,
        ToolLoopError,
        UsageError,
    )
    from .events import ApprovalDecided, Event, Example, ModelReplied, Signal, ToolCall, ToolReturned, Usage
    from .journal.memory import MemoryJournal
    from .journal.sqlite import SqliteJournal
    from .limits import Limits
    from .llm.anthropic.model import AnthropicMessages
    from .llm.chat.model import OpenAIChat
    from .llm.prices import GenaiPrices, Price, PriceTable
    from .llm.responses.model import OpenAIResponses
    from .llm.retry import Retrying, RetryPolicy
    from .llm.scripted import ScriptedLLM
    from .ports import LLM, Journal, Pending
    from .result import Result
    from .toolbox.registry import NotRun, Tool, ToolContext, ToolRegistry, tool
    from .tools import calculator, workspace_tools

_HOMES = {
    "Agent": "api",
    "AnthropicMessages": "llm.anthropic.model",
    "ApprovalDecided": "events",
    "ConfigurationError": "errors",
    "Event": "events",
    "Example": "events",
    "FatalError": "errors",
    "GenaiPrices": "llm.prices",
    "Journal": "ports",
    "JournalError": "errors",
    "LLM": "ports",
    "Limits": "limits",
    "MemoryJournal": "journal.memory",
    "ModelReplied": "events",
    "NotRun": "toolbox.registry",
    "OpenAIChat": "llm.chat.model",
    "OpenAIResponses": "llm.responses.model",
    "Pending": "ports",
    "Price": "llm.prices",
    "PriceTable": "llm.prices",
    "ProviderError": "errors",
    "Result": "result",
    "RetryPolicy": "llm.retry",
    "Retrying": "llm.retry",
    "RunBusy": "errors",
    "ScriptedLLM": "llm.scripted",
    "Signal": "events",
    "SqliteJournal": "journal.sqlite",
    "Tool": "toolbox.registry",
    "ToolCall": "events",
    "ToolContext": "toolbox.registry",
    "ToolError": "errors",
    "ToolLoopError": "errors",
    "ToolRegistry": "toolbox.registry",
    "ToolReturned": "events",
    "Usage": "events",
    "UsageError": "errors",
    "calculator": "tools",
    "run_agent": "api",
    "tool": "toolbox.registry",
    "workspace_tools": "tools",
}

__all__ = [
    "LLM",
    "Agent",
    "AnthropicMessages",
    "ApprovalDecided",
    "ConfigurationError",
    "Event",
    "Example",
    "FatalError",
    "GenaiPrices",
    "Journal",
    "JournalError",
    "Limits",
    "MemoryJournal",
    "ModelReplied",
    "NotRun",
    "OpenAIChat",
    "OpenAIResponses",
    "Pending",
    "Price",
    "PriceTable",
    "ProviderError",
    "Result",
    "RetryPolicy",
    "Retrying",
    "RunBusy",
    "ScriptedLLM",
    "Signal",
    "SqliteJournal",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolLoopError",
    "ToolRegistry",
    "ToolReturned",
    "Usage",
    "UsageError",
    "calculator",
    "run_agent",
    "tool",
    "workspace_tools",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
