"""A tool-calling agent in one readable loop. Start with `Agent`; read agent.py to see how it works.

Importing this package imports nothing else: each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    from .front import Agent, run_agent
    from .journal import MemoryJournal
    from .limits import Limits
    from .llm.anthropic import AnthropicMessages
    from .llm.openai_chat import OpenAIChat
    from .llm.openai_responses import OpenAIResponses
    from .llm.retry import Retrying, RetryPolicy
    from .llm.scripted import ScriptedLLM
    from .ports import LLM, Journal, Pending
    from .prices import GenaiPrices, Price, PriceTable
    from .registry import NotRun, Tool, ToolContext, ToolRegistry, tool
    from .result import Result
    from .sqlite_journal import SqliteJournal
    from .tools import calculator, workspace_tools

_HOMES = {
    "Agent": "front",
    "AnthropicMessages": "llm.anthropic",
    "ApprovalDecided": "events",
    "ConfigurationError": "errors",
    "Event": "events",
    "Example": "events",
    "FatalError": "errors",
    "GenaiPrices": "prices",
    "Journal": "ports",
    "JournalError": "errors",
    "LLM": "ports",
    "Limits": "limits",
    "MemoryJournal": "journal",
    "ModelReplied": "events",
    "NotRun": "registry",
    "OpenAIChat": "llm.openai_chat",
    "OpenAIResponses": "llm.openai_responses",
    "Pending": "ports",
    "Price": "prices",
    "PriceTable": "prices",
    "ProviderError": "errors",
    "Result": "result",
    "RetryPolicy": "llm.retry",
    "Retrying": "llm.retry",
    "RunBusy": "errors",
    "ScriptedLLM": "llm.scripted",
    "Signal": "events",
    "SqliteJournal": "sqlite_journal",
    "Tool": "registry",
    "ToolCall": "events",
    "ToolContext": "registry",
    "ToolError": "errors",
    "ToolLoopError": "errors",
    "ToolRegistry": "registry",
    "ToolReturned": "events",
    "Usage": "events",
    "UsageError": "errors",
    "calculator": "tools",
    "run_agent": "front",
    "tool": "registry",
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
