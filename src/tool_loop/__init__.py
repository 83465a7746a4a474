"""A tool-calling agent in one readable loop. Start with `Agent`; read agent.py to see how it works.

Importing this package imports nothing else: each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .api import Agent, run_agent
    from .budget import Budget
    from .chat import Chat
    from .errors import (
        BudgetSpent,
        ConfigurationError,
        FatalError,
        InvalidAnswer,
        JournalError,
        ProviderError,
        RunBusy,
        RunCancelled,
        ToolError,
        ToolLoopError,
        UnknownRun,
        UsageError,
    )
    from .events import (
        ApprovalDecided,
        ApprovalRequest,
        ApprovalRequested,
        Compacted,
        Event,
        Example,
        IntentRecorded,
        LimitReached,
        ModelAsked,
        ModelReplied,
        Notice,
        ReasoningDelta,
        Reminded,
        Restarted,
        Retry,
        RetryWaiting,
        RunContinued,
        RunEnded,
        RunInterrupted,
        RunResumed,
        RunStarted,
        Signal,
        TextDelta,
        ToolCall,
        ToolProgress,
        ToolReturned,
        ToolRunning,
        Usage,
    )
    from .journal.memory import MemoryJournal
    from .journal.runs import Record, RunInfo, WaitingCall
    from .journal.sqlite import SqliteJournal
    from .limits import Limits
    from .llm.anthropic.model import AnthropicMessages
    from .llm.chat.model import OpenAIChat
    from .llm.http.timer import Timeouts
    from .llm.prices import GenaiPrices, Price, PriceTable
    from .llm.responses.model import OpenAIResponses
    from .llm.retry import Retrying, RetryPolicy
    from .llm.scripted import ScriptedLLM
    from .ports import LLM, Journal, PendingApproval, Request, Tools
    from .result import Result
    from .stream import Stream
    from .toolbox.registry import NotRun, Tool, ToolContext, ToolRegistry, tool
    from .tools import calculator, coding_tools, workspace_tools

_HOMES = {
    "Agent": "api",
    "AnthropicMessages": "llm.anthropic.model",
    "ApprovalDecided": "events",
    "ApprovalRequest": "events",
    "ApprovalRequested": "events",
    "Chat": "chat",
    "Compacted": "events",
    "Budget": "budget",
    "BudgetSpent": "errors",
    "ConfigurationError": "errors",
    "Event": "events",
    "Example": "events",
    "FatalError": "errors",
    "GenaiPrices": "llm.prices",
    "IntentRecorded": "events",
    "InvalidAnswer": "errors",
    "Journal": "ports",
    "JournalError": "errors",
    "LLM": "ports",
    "LimitReached": "events",
    "Limits": "limits",
    "MemoryJournal": "journal.memory",
    "ModelAsked": "events",
    "ModelReplied": "events",
    "NotRun": "toolbox.registry",
    "Notice": "events",
    "OpenAIChat": "llm.chat.model",
    "OpenAIResponses": "llm.responses.model",
    "PendingApproval": "ports",
    "Price": "llm.prices",
    "PriceTable": "llm.prices",
    "ProviderError": "errors",
    "ReasoningDelta": "events",
    "Record": "journal.runs",
    "Reminded": "events",
    "Request": "ports",
    "Restarted": "events",
    "Result": "result",
    "Retry": "events",
    "RetryPolicy": "llm.retry",
    "RetryWaiting": "events",
    "Retrying": "llm.retry",
    "RunBusy": "errors",
    "RunCancelled": "errors",
    "RunContinued": "events",
    "RunEnded": "events",
    "RunInfo": "journal.runs",
    "RunInterrupted": "events",
    "RunResumed": "events",
    "RunStarted": "events",
    "ScriptedLLM": "llm.scripted",
    "Signal": "events",
    "SqliteJournal": "journal.sqlite",
    "Stream": "stream",
    "TextDelta": "events",
    "Timeouts": "llm.http.timer",
    "Tool": "toolbox.registry",
    "ToolCall": "events",
    "ToolContext": "toolbox.registry",
    "ToolError": "errors",
    "ToolLoopError": "errors",
    "ToolProgress": "events",
    "ToolRegistry": "toolbox.registry",
    "ToolReturned": "events",
    "ToolRunning": "events",
    "Tools": "ports",
    "UnknownRun": "errors",
    "Usage": "events",
    "UsageError": "errors",
    "WaitingCall": "journal.runs",
    "calculator": "tools",
    "coding_tools": "tools",
    "run_agent": "api",
    "tool": "toolbox.registry",
    "workspace_tools": "tools",
}

__all__ = [
    "LLM",
    "Agent",
    "AnthropicMessages",
    "ApprovalDecided",
    "ApprovalRequest",
    "ApprovalRequested",
    "Budget",
    "BudgetSpent",
    "Chat",
    "Compacted",
    "ConfigurationError",
    "Event",
    "Example",
    "FatalError",
    "GenaiPrices",
    "IntentRecorded",
    "InvalidAnswer",
    "Journal",
    "JournalError",
    "LimitReached",
    "Limits",
    "MemoryJournal",
    "ModelAsked",
    "ModelReplied",
    "NotRun",
    "Notice",
    "OpenAIChat",
    "OpenAIResponses",
    "PendingApproval",
    "Price",
    "PriceTable",
    "ProviderError",
    "ReasoningDelta",
    "Record",
    "Reminded",
    "Request",
    "Restarted",
    "Result",
    "Retry",
    "RetryPolicy",
    "RetryWaiting",
    "Retrying",
    "RunBusy",
    "RunCancelled",
    "RunContinued",
    "RunEnded",
    "RunInfo",
    "RunInterrupted",
    "RunResumed",
    "RunStarted",
    "ScriptedLLM",
    "Signal",
    "SqliteJournal",
    "Stream",
    "TextDelta",
    "Timeouts",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolLoopError",
    "ToolProgress",
    "ToolRegistry",
    "ToolReturned",
    "ToolRunning",
    "Tools",
    "UnknownRun",
    "Usage",
    "UsageError",
    "WaitingCall",
    "calculator",
    "coding_tools",
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
