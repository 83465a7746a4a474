"""Test an agent without a network, without waiting and without spending anything.

Time is virtual in a `VirtualLoop`; a `FaultServer` breaks in every way a provider's server can (see
`tool_loop.testing.wire_faults` and `refusals` for the ways); `workspace` makes a folder to work in.
"""

from __future__ import annotations

from .behaviours import Behaviour, HttpDate, Received, Response, answer, ok_chat, ok_json, ok_sse
from .clock import Deadlock, FakeClock, VirtualLoop, run_virtual
from .server import FaultServer
from .wire_faults import FAULTS
from .workspace import workspace

__all__ = [
    "FAULTS",
    "Behaviour",
    "Deadlock",
    "FakeClock",
    "FaultServer",
    "HttpDate",
    "Received",
    "Response",
    "VirtualLoop",
    "answer",
    "ok_chat",
    "ok_json",
    "ok_sse",
    "run_virtual",
    "workspace",
]
