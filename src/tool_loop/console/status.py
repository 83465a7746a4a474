"""What a run is doing at this moment, as the few lines a person watches: calls that run, the wait for
the model, what is left of the budget.

Pure but for the clock it is given. Knows nothing about how lines are drawn (`terminal.Region`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tool_loop.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    ModelAsked,
    ModelReplied,
    ReasoningDelta,
    Restarted,
    RetryWaiting,
    RunEnded,
    RunInterrupted,
    Signal,
    TextDelta,
    ToolCall,
    ToolProgress,
    ToolReturned,
    ToolRunning,
)
from tool_loop.limits import Limits

from .describe import call_line, retry_line
from .tally import Tally, dollars, duration, plural, short
from .terminal import Terminal, clip, one_line, width

# A spinner that turns ten times a second looks alive; more is work for nobody.
FRAME_SECONDS = 0.1

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_MOST_CALLS = 6  # more lines than this move about too much to be read


@dataclass(slots=True)
class _Running:
    call: ToolCall
    since: float
    progress: str = ""


@dataclass(slots=True)
class _Model:
    """The wait for a reply: since when, what has come of it, and the retry it waits for."""

    since: float
    last_word: bool = False
    reasoning: int = 0
    text: int = 0
    retry: RetryWaiting | None = None
    retry_at: float = 0.0


class Status:
    """Follows a run; `frame` is the state of it now, or nothing while a person is asked something."""

    def __init__(self, limits: Limits, tally: Tally, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._tally = tally
        self._clock = clock
        self._began = clock()
        self._running: dict[str, _Running] = {}
        self._model: _Model | None = None
        self._asking = False

    @property
    def busy(self) -> bool:
        """Whether there is something that changes as time goes by."""
        return not self._asking and (bool(self._running) or self._model is not None)

    def call(self, call_id: str) -> ToolCall | None:
        """The call, while it runs."""
        running = self._running.get(call_id)
        return running.call if running else None

    def see(self, happening: Event | Signal) -> None:  # noqa: C901 - one case per event
        match happening:
            case ModelAsked(tools=tools):
                self._model = _Model(self._clock(), not tools)
            case TextDelta() | ReasoningDelta() | RetryWaiting():
                self._hear(happening)
            case Restarted():
                self._model = replace(self._model, text=0, reasoning=0) if self._model else _Model(self._clock())
            case ToolRunning(call=call):
                self._running[call.id] = _Running(call, self._clock())
            case ToolProgress(call_id=call_id, text=text):
                if call_id in self._running:
                    self._running[call_id].progress = text
            case ModelReplied():
                self._model = None
            case ToolReturned(call_id=call_id):
                self._running.pop(call_id, None)
            case ApprovalRequested():
                self._asking = True
            case ApprovalDecided():
                self._asking = False
            case RunEnded() | RunInterrupted():
                self.stop()
            case _:
                pass

    def _hear(self, signal: TextDelta | ReasoningDelta | RetryWaiting) -> None:
        model = self._model or _Model(self._clock())
        self._model = model  # a summary of the run so far is asked for without a `ModelAsked`
        if isinstance(signal, RetryWaiting):
            model.retry, model.retry_at = signal, self._clock() + signal.seconds
            return
        model.retry = None
        if isinstance(signal, TextDelta):
            model.text += len(signal.text)
        else:
            model.reasoning += len(signal.text)

    def stop(self) -> None:
        self._model = None
        self._running.clear()

    def frame(self, terminal: Terminal) -> list[str]:
        """The lines to show at the bottom now, cut to the terminal's width."""
        if not self.busy:
            return []
        now, columns = self._clock(), terminal.columns - 6
        turn = _SPINNER[int((now - self._began) / FRAME_SECONDS) % len(_SPINNER)] if terminal.unicode else "*"
        running = list(self._running.values())
        lines = [f"   {turn} {self._running_line(one, now, columns)}" for one in running[:_MOST_CALLS]]
        if len(running) > _MOST_CALLS:
            lines.append(f"     and {plural(len(running) - _MOST_CALLS, 'more call')}")
        if self._model and not running:
            lines.append(f"   {turn} {clip(self._waiting_line(self._model, now), columns)}")
        budget = (" · " if terminal.unicode else ", ").join(self._budget(now))
        return [*lines, "     " + terminal.style(clip(budget, columns), "dim")]

    def _running_line(self, running: _Running, now: float, columns: int) -> str:
        tail = f" {duration(now - running.since)}"
        what = one_line(call_line(running.call))
        if running.progress:
            what += f": {one_line(running.progress)}"
        return clip(what, max(0, columns - width(tail))) + clip(tail, columns)

    def _waiting_line(self, model: _Model, now: float) -> str:
        if model.retry is not None and (left := model.retry_at - now) > 0:
            return one_line(retry_line(model.retry, left))
        elapsed = duration(now - model.since)
        if model.text:
            return f"the model writes: {plural(model.text, 'character')}, {elapsed}"
        return f"{'the model thinks' if model.reasoning else 'waiting for the model'} {elapsed}"

    def _budget(self, now: float) -> list[str]:
        limits, tally = self._limits, self._tally
        steps, tokens, cost = tally.before
        step = tally.steps - steps + (self._model is not None)
        parts = [f"step {step} of {limits.steps}" if limits.steps else f"step {step}"]
        if self._model and self._model.last_word:
            parts = ["the last word"]  # it comes on top of the limit
        if spent := tally.tokens - tokens:
            most = f" of {short(limits.tokens)}" if limits.tokens else ""
            parts.append(f"{short(spent)}{most} tokens")
        if limits.usd is not None and tally.steps and not tally.unpriced:
            parts.append(f"{dollars(tally.cost - cost)} of {dollars(limits.usd)}")
        elapsed = duration(now - self._began)
        return [*parts, f"{elapsed} of {duration(limits.seconds)}" if limits.seconds else elapsed]
