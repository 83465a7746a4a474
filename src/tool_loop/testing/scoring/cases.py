"""The cases of the scorecard, as one table.

Each names its row of the failure table, and a test holds the two lists against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tool_loop.events import ToolCall
from tool_loop.testing.faults import calls, model, run as runs
from tool_loop.testing.faults.schedule import Faults
from tool_loop.testing.server import refusals
from tool_loop.testing.server.behaviours import HttpDate

from . import scenes
from .bench import insisting, obsessed, wandering
from .case import Case, Plan, Second, fields, first, in_tool, limited, our_tools, priced, required

# --- plans with more to them than one fault -------------------------------------------------------


def _ours(name: str, arguments: str) -> Plan:
    """The first call is this one, of the package's own tools."""
    return first(lambda: calls.asks_for(ToolCall("call_1", name, arguments)))


def _nothing(_faults: Faults, _call: ToolCall) -> object:
    return None


def _one_of_three(faults: Faults, call: ToolCall) -> object:
    return faults.at_step(1, calls.more_calls(3)).on_tool(call.name, runs.crash(), call=2)


def _overflow(faults: Faults, call: ToolCall) -> object:
    """The first result fills the window, and only the server knows."""
    faults.on_tool(call.name, runs.returns("a long line\n" * 500))
    return faults.at_step(2, model.context_length(1_000))


def _wrong_clock(faults: Faults, _call: ToolCall) -> object:
    """Our clock is an hour slow, and the server says until when to wait."""
    faults.at_step(1, runs.clock_jump(-3600))
    headers = {"retry-after": HttpDate(7), "date": HttpDate(0)}
    behaviour = refusals.status(429, "Rate limit reached", kind="rate_limit_exceeded", headers=headers)
    return faults.at_step(2, replace(model.rate_limit(), wire=lambda _: behaviour))


# --- the cases ------------------------------------------------------------------------------------

_FINAL: Final = "bad_request"
_BROKEN: Final = model.BROKEN

TRANSPORT: Final[Sequence[Case]] = (
    Case("429 with Retry-After", model.ASK_AGAIN, Second(lambda: model.rate_limit(2)), retried="rate_limit", core=True),
    Case("429 with a date", model.ASK_AGAIN, Second(lambda: model.rate_limit(HttpDate(7))), retried="rate_limit"),
    Case("408", model.ASK_AGAIN, Second(lambda: model.http_status(408)), retried="timeout"),
    Case("500", model.SERVER, Second(model.server_error), retried="server_error"),
    Case("502 with a page", model.SERVER, Second(model.bad_gateway), retried="server_error"),
    Case("503", model.SERVER, Second(model.unavailable), retried="overloaded", core=True),
    Case("529", model.SERVER, Second(model.overloaded), retried="overloaded", core=True),
    Case(
        "500 for ever", model.SERVER, lambda f, _: f.from_step(2, model.server_error()), ends="server_error", core=True
    ),
    Case(
        "503 for a minute",
        model.SERVER,
        lambda f, _: f.at_step(2, model.unavailable(15), times=4),
        retried="overloaded",
    ),
    Case("connection refused", model.CONNECTION, Second(lambda: _BROKEN["refused"](seconds=0.1)), retried="connection"),
    Case(
        "connection reset", model.CONNECTION, Second(_BROKEN["reset_before_headers"]), retried="connection", core=True
    ),
    Case("reset in the middle", model.CONNECTION, Second(_BROKEN["reset_at_byte"]), retried="protocol"),
    Case("silence", model.CONNECTION, Second(_BROKEN["hang_before_headers"]), retried="timeout"),
    Case("silence in the middle", model.CONNECTION, Second(_BROKEN["hang_mid_body"]), retried="timeout"),
    Case("not HTTP", model.CONNECTION, Second(_BROKEN["garbage"]), retried="protocol"),
    Case("401", model.KEY, Second(model.auth), ends="auth", core=True),
    Case("403", model.KEY, Second(lambda: model.http_status(403, "not yours")), ends="auth"),
    Case("404, no such model", "not_found", Second(model.not_found), ends="not_found"),
    Case("400", _FINAL, Second(model.bad_request), ends="bad_request"),
    Case("redirect", _FINAL, Second(model.redirect), ends="bad_request"),
    Case("429, account empty", "quota", Second(model.quota), ends="quota"),
    Case("402", "quota", Second(lambda: model.http_status(402, "pay first")), ends="quota"),
    Case("prompt filtered", "content_filter", Second(model.content_filter), ends="content_filter"),
    Case("answer filtered", "content_filter", Second(model.filtered_answer)),
    Case("context overflow", "context_length", _overflow, core=True),
    Case("context too small", "context_length", Second(model.context_length), ends="context_length"),
    Case("200 with HTML", model.NO_REPLY, Second(_BROKEN["html"]), retried="protocol", core=True),
    Case("200 with broken JSON", model.NO_REPLY, Second(_BROKEN["truncated_json"]), retried="protocol"),
    Case("200 with an error in it", model.NO_REPLY, Second(_BROKEN["error_in_200"]), retried="server_error"),
    Case("200 without choices", model.NO_REPLY, Second(_BROKEN["no_choices"]), retried="protocol"),
    Case("200 with wrong gzip", model.NO_REPLY, Second(_BROKEN["wrong_gzip"]), retried="protocol"),
    Case("200 that is not UTF-8", model.NO_REPLY, Second(_BROKEN["invalid_utf8"]), retried="protocol"),
    Case("a body without end", model.NO_REPLY, Second(_BROKEN["infinite_body"]), retried="protocol"),
)

_CUT: Final = "cut_off"

PROTOCOL: Final[Sequence[Case]] = (
    Case(
        "stream cut half way", model.CUT_STREAM, Second(lambda: model.cut_stream("half a text")), retried="protocol",
        core=True,
    ),
    Case("stream cut in a call", model.CUT_STREAM, first(model.cut_stream), retried="protocol"),
    Case(
        "stream without its end", model.CUT_STREAM, Second(lambda: model.cut_stream("the last word")),
        retried="protocol",
    ),
    Case("empty reply", "empty_reply", Second(model.empty_reply), retried="empty", core=True),
    Case("call without a name", "nameless_call", first(model.nameless_call), retried="protocol", core=True),
    Case(
        "call the server rejects", "model_output", Second(model.model_output),
        retried="model_output",
    ),
    Case("duplicate ids", calls.IDS, first(calls.duplicate_ids), core=True),
    Case("calls without ids", calls.IDS, first(calls.missing_ids)),
    Case("foreign ids", calls.IDS, first(calls.foreign_ids)),
    Case(
        "cut by length, valid arguments", _CUT, first(lambda: calls.cut_by_length(whole=True)), told="cut_off",
        core=True,
    ),
    Case("cut by length, broken JSON", _CUT, first(calls.cut_by_length), told="cut_off", core=True),
    Case(
        "cut before the first word", "empty_answer",
        Second(model.cut_thought), ends="empty answer",
    ),
    Case("call written as text", "call_as_text", first(calls.call_as_text)),
)  # fmt: skip

_BINARY: Final = "special_file"
_LARGE: Final = "too_large"

TOOL: Final[Sequence[Case]] = (
    Case("malformed JSON", "bad_json", first(calls.bad_json), told="bad_json", core=True),
    Case("wrong type", calls.FIELDS, first(calls.wrong_type), told="invalid_arguments", needs=fields, core=True),
    Case(
        "missing field", calls.FIELDS, first(calls.missing_field), told="invalid_arguments", needs=required, core=True
    ),
    Case("unknown field", calls.FIELDS, first(calls.unknown_field), told="invalid_arguments"),
    Case("unknown tool", "unknown_tool", first(calls.unknown_tool), told="unknown_tool", core=True),
    Case(
        "missing file", "no_such_file", _ours("read_file", '{"path": "src/store.py"}'), told="not_found",
        needs=our_tools,
    ),
    Case(
        "path out of the root", "outside_root", _ours("read_file", '{"path": "../../etc/passwd"}'),
        told="invalid_argument", needs=our_tools,
    ),
    Case(
        "binary file", _BINARY, _ours("read_file", '{"path": "photo.png"}'), told="invalid_argument", needs=our_tools
    ),
    Case("named pipe", _BINARY, _ours("read_file", '{"path": "pipe"}'), told="invalid_argument", needs=our_tools),
    Case(
        "broken regex", "bad_regex", _ours("grep", '{"pattern": "class Store("}'), told="invalid_argument",
        needs=our_tools, patience=5.0,
    ),
    Case("no matches", "no_matches", _ours("grep", '{"pattern": "unicorn"}'), needs=our_tools, patience=5.0),
    Case("huge file", _LARGE, _ours("read_file", '{"path": "huge.log"}'), needs=our_tools),
    Case("result too large", _LARGE, in_tool(runs.returns_too_much)),
    Case(
        "permission denied", "permission_denied", in_tool(lambda: runs.tool_error("permission_denied")),
        told="permission_denied",
    ),
    Case("file changed meanwhile", "conflict", in_tool(lambda: runs.tool_error("conflict")), told="conflict"),
    Case(
        "sandbox fails", "sandbox_failed", in_tool(lambda: runs.tool_error("sandbox_failed")), told="sandbox_failed",
    ),
    Case("tool hangs", "timed_out", in_tool(runs.hang), told="timed_out", role="async"),
    Case("tool says no", "tool_failed", in_tool(runs.tool_error), told="tool_failed"),
    Case("tool raises", "tool_crashed", in_tool(runs.crash), told="tool_crashed", core=True),
    Case("one of three raises", "tool_crashed", _one_of_three, told="tool_crashed", core=True),
    Case(
        "killed after an effect", runs.DIED, in_tool(lambda: runs.die(first=True)), ends="died", told="outcome_unknown",
        role="once", scene=scenes.unattended,
    ),
    Case("killed while it read", runs.DIED, in_tool(runs.die), ends="died", role="async"),
    Case(
        "approval denied", "denied", _nothing, told="denied", role="gated",
        scene=scenes.denied,
    ),
    Case(
        "called too often", "limit_reached", _nothing, told="limit_reached", role="async",
        model=insisting, limits=lambda limits, call: replace(limits, per_tool={call.name: 1}),
    ),
)  # fmt: skip

_SPENT: Final = "limits_used_up"

LOOP: Final[Sequence[Case]] = (
    Case(
        "the same call sixty times", "repeated_call", _nothing, ends="repeated call",
        model=obsessed, core=True,
    ),
    Case(
        "step limit", _SPENT, _nothing, ends="step limit", model=lambda _: wandering, needs=limited("steps"), core=True
    ),
    Case(
        "tokens used up", _SPENT, first(lambda: model.costly(1_000_000)), ends="token budget", needs=limited("tokens")
    ),
    Case(
        "money used up", _SPENT, first(lambda: model.costly(50_000)), ends="money budget", needs=priced,
        limits=lambda limits, _: replace(limits, usd=0.01),
    ),
    Case(
        "calls used up", _SPENT, _nothing, ends="tool call limit", model=obsessed,
        limits=lambda limits, _: replace(limits, tool_calls=1),
    ),
    Case(
        "time used up", _SPENT, lambda f, _: f.at_step(1, runs.slow(60)).at_step(2, runs.slow(60)), ends="deadline",
        limits=lambda limits, _: replace(limits, seconds=100.0),
    ),
    Case("Ctrl-C", "cancelled", Second(runs.cancel), ends="cancelled"),
    Case("Ctrl-C in a tool", "cancelled", in_tool(runs.cancel), ends="cancelled", role="async"),
)  # fmt: skip

JOURNAL: Final[Sequence[Case]] = (
    Case(
        "disk full", runs.WRITES, in_tool(lambda: runs.returns("a long line\n" * 2_000)), ends="journal",
        needs=our_tools, scene=scenes.disk_full,
    ),
    Case(
        "a record that is not written", runs.WRITES, lambda f, _: f.at_append(2, runs.write_error()), ends="journal"
    ),
    Case("driven elsewhere", runs.DRIVEN, _nothing, ends="run_busy", scene=scenes.driven_elsewhere),
    Case("taken over while it slept", runs.DRIVEN, _nothing, ends="fenced", scene=scenes.taken_over),
    Case("a record cut short", "journal_damaged", Second(runs.die), ends="died", scene=scenes.torn_record),
    Case(
        "a record damaged", "journal_damaged", Second(runs.die), ends="journal_damaged", scene=scenes.damaged_record
    ),
    Case(
        "a run that kills its process", "poisoned", _nothing, ends="poisoned",
        scene=scenes.keeps_killing,
    ),
)  # fmt: skip

CLOCK: Final[Sequence[Case]] = (
    Case("our clock is an hour slow", "", _wrong_clock, retried="rate_limit"),
    Case("asleep for an hour", "", _nothing, scene=scenes.asleep),
)

CASES: Final[Sequence[Case]] = (*TRANSPORT, *PROTOCOL, *TOOL, *LOOP, *JOURNAL, *CLOCK)
