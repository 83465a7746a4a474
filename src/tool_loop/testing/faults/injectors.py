"""Every kind of failure by its name: `fault("rate_limit", retry_after=2)`.

Each works without arguments. `FAILURES` is the list that the failure table is held against: a test
wants an injector for each of its rows, and sees each of its kinds come out of a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tool_loop.errors import UsageError

from . import calls as call_faults, model as model_faults, run as run_faults
from .calls import argument

if TYPE_CHECKING:
    from collections.abc import Callable

    from .strike import Fault, Layer

_MODEL: Final = (
    "rate_limit", "server_error", "bad_gateway", "unavailable", "overloaded", "auth", "not_found", "bad_request",
    "redirect", "quota", "content_filter", "context_length", "model_output", "name_not_found", "tls_error",
    "cut_stream", "empty_reply", "nameless_call", "filtered_answer", "cut_thought", "costly",
)  # fmt: skip
_CALLS: Final = (
    "bad_json", "wrong_type", "missing_field", "unknown_field", "unknown_tool", "missing_ids", "duplicate_ids",
    "foreign_ids", "cut_by_length", "call_as_text", "more_calls", "same_call",
)  # fmt: skip
_RUN: Final = (
    "crash", "tool_error", "returns_too_much", "hang", "slow", "cancel", "die", "clock_jump", "write_error",
    "disk_full", "fenced", "busy", "damaged", "poisoned", "denied", "expired",
)  # fmt: skip

# Kinds of failure that a tool of anybody's may report.
_TOOL_KINDS: Final = (
    "conflict",
    "sandbox_failed",
    "invalid_argument",
    "permission_denied",
    "limit_reached",
    "timed_out",
)

INJECTORS: Final[dict[str, Callable[..., Fault]]] = {
    **{name: getattr(model_faults, name) for name in _MODEL},
    **model_faults.BROKEN,
    **{
        f"status_{code}": lambda code=code: model_faults.http_status(code)
        for code in (402, 403, 408, 409, 422, 425, 504, 520)
    },
    **{name: getattr(call_faults, name) for name in _CALLS},
    **{name: getattr(run_faults, name) for name in _RUN},
    "missing_file": lambda: argument("path", "no/such/file.md", "no_such_file"),
    "outside_path": lambda: argument("path", "../../etc/passwd", "outside_root"),
    "broken_regex": lambda: argument("pattern", "class Store(", "bad_regex"),
    **{kind: lambda kind=kind: run_faults.tool_error(kind) for kind in _TOOL_KINDS},
    "no_matches": lambda: run_faults.returns("no matches"),
}


def fault(name: str, **options: Any) -> Fault:
    """The fault of this name. Raises UsageError when there is none, naming the nearest."""
    if name not in INJECTORS:
        from difflib import get_close_matches

        near = get_close_matches(name, INJECTORS, n=3, cutoff=0.5)
        raise UsageError(f"there is no fault {name!r}" + (f"; did you mean {' or '.join(near)}?" if near else ""))
    return INJECTORS[name](**options)


def layers() -> dict[Layer, list[str]]:
    """The names of all faults, by the layer they come from."""
    found: dict[Layer, list[str]] = {}
    for name in INJECTORS:
        found.setdefault(fault(name).layer, []).append(name)
    return found
