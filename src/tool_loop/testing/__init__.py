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
    from tool_loop.audit.invariants import Broken, check, check_messages, check_requests
    from tool_loop.recording.recording import Recording
    from tool_loop.recording.replay import ReplayLLM, ReplayMismatch
    from tool_loop.redrive.driving import Difference, redrive
    from tool_loop.runtime.clock import Deadlock, FakeClock, VirtualLoop, run_virtual

    from .faults.calls import (
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
    from .faults.injectors import INJECTORS, fault
    from .faults.model import (
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
    from .faults.plans import Struck
    from .faults.run import (
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
    from .faults.schedule import Faults
    from .faults.strike import Fault, ProcessDied
    from .faults.wire import FAULTS
    from .faults.wire_model import Asked, WireModel
    from .runner import AgentRun, InvariantBroken
    from .scoring.card import ScoreLine, markdown, scorecard
    from .server.behaviours import Behaviour, HttpDate, Received, Response, answer, ok_chat, ok_json, ok_sse
    from .server.server import FaultServer

# Which module has which names.
_NAMES = {
    "server.behaviours": "Behaviour HttpDate Received Response answer ok_chat ok_json ok_sse",
    "faults.calls": (
        "argument arguments asks_for bad_json call_as_text cut_by_length duplicate_ids foreign_ids "
        "missing_field missing_ids more_calls same_call unknown_field unknown_tool wrong_type"
    ),
    "..runtime.clock": "Deadlock FakeClock VirtualLoop run_virtual",
    "faults.schedule": "Faults",
    "faults.injectors": "INJECTORS fault",
    "..audit.invariants": "Broken check check_messages check_requests",
    "faults.model": (
        "auth bad_gateway bad_request content_filter context_length costly cut_stream empty_reply "
        "cut_thought filtered_answer http_status model_output name_not_found nameless_call not_found "
        "overloaded quota rate_limit redirect server_error tls_error unavailable"
    ),
    "faults.plans": "Struck",
    "..recording.recording": "Recording",
    "faults.run": (
        "busy cancel clock_jump crash damaged denied die disk_full expired fenced hang poisoned returns "
        "returns_too_much slow tool_error write_error"
    ),
    "..redrive.driving": "Difference redrive",
    "runner": "AgentRun InvariantBroken",
    "scoring.card": "ScoreLine markdown scorecard",
    "server.server": "FaultServer",
    "faults.strike": "Fault ProcessDied",
    "faults.wire": "FAULTS",
    "faults.wire_model": "Asked WireModel",
    "..recording.replay": "ReplayLLM ReplayMismatch",
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
    "ProcessDied",
    "Received",
    "Recording",
    "ReplayLLM",
    "ReplayMismatch",
    "Response",
    "ScoreLine",
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
