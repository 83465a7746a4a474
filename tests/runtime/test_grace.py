"""The times that what was told to stop may take are nested: each layer waits longer than what is in it."""

from __future__ import annotations

from tool_loop import Limits
from tool_loop.runtime.grace import GRACE_SECONDS, REAP_SECONDS, UNWIND_SECONDS


def test_each_layer_waits_longer_than_the_one_in_it_and_a_run_ends_within_a_second_of_its_deadline() -> None:
    assert 0 < REAP_SECONDS < GRACE_SECONDS < UNWIND_SECONDS < 1.0
    assert Limits().grace_seconds >= UNWIND_SECONDS
