"""What may be given with a run, beside the question: the options of `Agent.run`, `resume`, `stream`, `run_sync`.

Typed dictionaries, so that all four doors take the same words, and a type checker and an editor know them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypedDict

from .budget import Budget
from .errors import UsageError
from .events import Event, Signal
from .limits import Limits
from .llm.prices import Prices
from .ports import LLM, Tools
from .toolbox.registry import ToolRegistry
from .transcript import Message

Subscriber: TypeAlias = Callable[[Event | Signal], object]


class ResumeOptions(TypedDict, total=False):
    """What may be given with a run that is on record.

    `on_event` sees each event and signal. `deps` is for its tools (`ToolContext.deps`), and never on record.
    `limits` are in the place of the agent's. `budget` is shared with other runs.
    """

    on_event: Subscriber | None
    deps: Any
    limits: Limits | None
    budget: Budget | None


class RunOptions(ResumeOptions, total=False):
    """What changes from run to run, beside the above.

    `run_id` names the run, `continue_run` is the one that the question follows up on, `chat` is the conversation
    that it belongs to, which is begun with it or goes on. With `instead`, as always in a chat, it may be asked
    while a call waits for a person, or after a cancel: the calls that are open are closed. `history` are
    messages that came before it, of ours or as OpenAI's chat has them. `meta` is recorded beside the agent's,
    and `system` is the system prompt in place of the agent's, as text or as a function of `deps` that is called
    once.
    """

    run_id: str | None
    chat: str | None
    instead: bool
    history: Sequence[Message | Mapping[str, Any]]
    continue_run: str | None
    meta: Mapping[str, object] | None
    system: str | Callable[[Any], str] | None


def completed(limits: Limits, tools: Tools, llm: LLM, prices: Prices | None) -> Limits:
    """The limits, with what tools and prices know where the caller said nothing."""
    if limits.usd is not None and prices is None:
        raise UsageError("Limits.usd needs prices: Agent(..., prices=GenaiPrices()) or a PriceTable of your own")
    if isinstance(tools, ToolRegistry):
        own = {t.name: t.max_calls for t in tools if t.max_calls is not None}
        limits = replace(limits, per_tool=own | dict(limits.per_tool)) if own else limits
    if limits.window is None and prices is not None and (model := getattr(llm, "model", "")):
        limits = replace(limits, window=prices.window(str(model), str(getattr(llm, "origin", ""))))
    return limits
