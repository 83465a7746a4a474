"""What a person should hear once, worked out from what happens in a run. Only watches."""

from __future__ import annotations

from collections import Counter

from tool_loop.events import Event, IntentRecorded, ModelReplied, Notice, Signal
from tool_loop.ports import Emit, Tools


def telling_undeclared(tools: Tools, emit: Emit) -> Emit:
    """Says once per tool that its calls ran in order only because it declares no effect."""
    told: set[str] = set()
    asked: dict[str, str] = {}

    def watch(happening: Event | Signal) -> None:
        emit(happening)
        if isinstance(happening, ModelReplied):
            asked.clear()
            asked.update((call.id, call.name) for call in happening.calls)
        elif isinstance(happening, IntentRecorded) and len(happening.call_ids) > 1:
            names = Counter(asked[call_id] for call_id in happening.call_ids if call_id in asked)
            for name, n in names.items():
                if n > 1 and name not in told and tools.effect(name) is None:
                    told.add(name)
                    how = '@tool(effect="read") lets them run together'
                    emit(Notice(f"{name} declares no effect: its {n} calls ran in order; {how}"))

    return watch
