"""Test an agent without a network, without waiting and without spending anything.

`Faults` makes a model, its server, tools, a journal or the clock fail where you say. A `FaultServer`
breaks in every way a provider's server can. Time is virtual in `run_virtual`. `check` holds a run
against what must be true of every one, `Recording` and `ReplayLLM` keep what a model said, and
`workspace` makes a folder to work in. docs/testing.md shows them at work.

Importing this package loads next to nothing: each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# The one that cannot wait: its module has the same name, and would take its place here once imported.
from .workspace import workspace

if TYPE_CHECKING:
    from tool_loop.llm.replay import ReplayLLM, ReplayMismatch

    from .behaviours import Behaviour, HttpDate, Received, Response, answer, ok_chat, ok_json, ok_sse
    from .call_faults import (
        argument,
        arguments,
        asks_for,
        bad_json,
        call_as_text,
        cut_by_length,
        duplicate_ids,
        foreign_ids,
        missing_field,
        missing_ids,
        more_calls,
        same_call,
        unknown_field,
        unknown_tool,
        wrong_type,
    )
    from .clock import Deadlock, FakeClock, VirtualLoop, run_virtual
    from .faults import Faults
    from .injectors import INJECTORS, fault
    from .invariants import Broken, check, check_messages, check_requests
    from .model_faults import (
        auth,
        bad_gateway,
        bad_request,
        content_filter,
        context_length,
        costly,
        cut_stream,
        cut_thought,
        empty_reply,
        filtered_answer,
        http_status,
        model_output,
        name_not_found,
        nameless_call,
        not_found,
        overloaded,
        quota,
        rate_limit,
        redirect,
        server_error,
        tls_error,
        unavailable,
    )
    from .plans import Struck
    from .recording import Recording
    from .replaying import Difference, redrive
    from .run_faults import (
        busy,
        cancel,
        clock_jump,
        crash,
        damaged,
        denied,
        die,
        disk_full,
        expired,
        fenced,
        hang,
        poisoned,
        returns,
        returns_too_much,
        slow,
        tool_error,
        write_error,
    )
    from .runner import AgentRun, InvariantBroken
    from .scoring import Line, markdown, scorecard
    from .server import FaultServer
    from .strike import Fault, ProcessDied
    from .wire_faults import FAULTS
    from .wire_model import Asked, WireModel

# Which module has which names.
_NAMES = {
    "behaviours": "Behaviour HttpDate Received Response answer ok_chat ok_json ok_sse",
    "call_faults": (
        "argument arguments asks_for bad_json call_as_text cut_by_length duplicate_ids foreign_ids "
        "missing_field missing_ids more_calls same_call unknown_field unknown_tool wrong_type"
    ),
    "clock": "Deadlock FakeClock VirtualLoop run_virtual",
    "faults": "Faults",
    "injectors": "INJECTORS fault",
    "invariants": "Broken check check_messages check_requests",
    "model_faults": (
        "auth bad_gateway bad_request content_filter context_length costly cut_stream empty_reply "
        "cut_thought filtered_answer http_status model_output name_not_found nameless_call not_found "
        "overloaded quota rate_limit redirect server_error tls_error unavailable"
    ),
    "plans": "Struck",
    "recording": "Recording",
    "run_faults": (
        "busy cancel clock_jump crash damaged denied die disk_full expired fenced hang poisoned returns "
        "returns_too_much slow tool_error write_error"
    ),
    "replaying": "Difference redrive",
    "runner": "AgentRun InvariantBroken",
    "scoring": "Line markdown scorecard",
    "server": "FaultServer",
    "strike": "Fault ProcessDied",
    "wire_faults": "FAULTS",
    "wire_model": "Asked WireModel",
    "..llm.replay": "ReplayLLM ReplayMismatch",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = [
    "FAULTS",
    "INJECTORS",
    "AgentRun",
    "Asked",
    "Behaviour",
    "Broken",
    "Deadlock",
    "Difference",
    "FakeClock",
    "Fault",
    "FaultServer",
    "Faults",
    "HttpDate",
    "InvariantBroken",
    "Line",
    "ProcessDied",
    "Received",
    "Recording",
    "ReplayLLM",
    "ReplayMismatch",
    "Response",
    "Struck",
    "VirtualLoop",
    "WireModel",
    "answer",
    "argument",
    "arguments",
    "asks_for",
    "auth",
    "bad_gateway",
    "bad_json",
    "bad_request",
    "busy",
    "call_as_text",
    "cancel",
    "check",
    "check_messages",
    "check_requests",
    "clock_jump",
    "content_filter",
    "context_length",
    "costly",
    "crash",
    "cut_by_length",
    "cut_stream",
    "cut_thought",
    "damaged",
    "denied",
    "die",
    "disk_full",
    "duplicate_ids",
    "empty_reply",
    "expired",
    "fault",
    "fenced",
    "filtered_answer",
    "foreign_ids",
    "hang",
    "http_status",
    "markdown",
    "missing_field",
    "missing_ids",
    "model_output",
    "more_calls",
    "name_not_found",
    "nameless_call",
    "not_found",
    "ok_chat",
    "ok_json",
    "ok_sse",
    "overloaded",
    "poisoned",
    "quota",
    "rate_limit",
    "redirect",
    "redrive",
    "returns",
    "returns_too_much",
    "run_virtual",
    "same_call",
    "scorecard",
    "server_error",
    "slow",
    "tls_error",
    "tool_error",
    "unavailable",
    "unknown_field",
    "unknown_tool",
    "workspace",
    "write_error",
    "wrong_type",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = _HOMES[name]
    return getattr(import_module(home if home.startswith("..") else f".{home}", __name__), name)


def __dir__() -> list[str]:
    return __all__
