"""A run as a person follows it in a terminal: a subscriber of events and signals, and nothing else.

On a terminal the last lines are redrawn in place (see status.py) and what is finished scrolls by
above them. Elsewhere there is one plain line per event. The answer goes to stdout as it comes where
a person reads it there; a pipe gets only what is final, and gets it from whoever started the run.

Both streams usually are the same terminal, so this one object writes to both: it takes the redrawn
lines away before it writes a word of the answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from tool_loop.events import (
    ApprovalDecided,
    ApprovalRequested,
    Compacted,
    Event,
    Inner,
    LimitReached,
    ModelAsked,
    ModelReplied,
    Notice,
    ReasoningDelta,
    Reminded,
    Restarted,
    RetryWaiting,
    RunEnded,
    RunResumed,
    Signal,
    TextDelta,
    ToolProgress,
    ToolReturned,
    ToolRunning,
)
from tool_loop.limits import Limits

from .describe import call_line, compaction_line, decision_line, full, outcome_line, retry_line
from .done import done_lines
from .status import FRAME_SECONDS, Status
from .tally import Tally, duration, plural
from .terminal import Region, Terminal, clip, one_line, safe

# Text that comes in ten thousand pieces a second is read just as well in twenty-five.
TEXT_SECONDS = 0.04


class Live:
    """Shows a run on `err`, and the answer on `out` when that is a terminal.

    Call `close` when the run is over, however it ended. `quiet` shows nothing but the answer;
    `verbose` shows every message in full, so the answer is not shown again as it comes. `earlier`
    are the events of a run that goes on.
    """

    def __init__(
        self,
        err: Terminal,
        out: Terminal | None = None,
        *,
        limits: Limits | None = None,
        quiet: bool = False,
        verbose: bool = False,
        earlier: Iterable[Event] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tally = Tally.of(earlier)
        self._err = err
        self._quiet = quiet
        self._verbose = verbose
        self._status = Status(limits or Limits(), self.tally, clock)
        self._region = Region(err) if err.moves and not quiet else None
        self._answer = Answer(out if out is not None and out.tty else None, self._clear)
        self._numbered = 0
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self, happening: Event | Signal) -> None:
        self._status.see(happening)
        match happening:
            case TextDelta(text=text):
                if not self._verbose:
                    self._answer.add(text)
            case ModelAsked():
                self._answer.begin()
            case Restarted(kind=kind):
                self._answer.void(kind)
            case RetryWaiting():
                # Where it cannot be counted down, it is said once.
                if self._region is None:
                    self._say(retry_line(happening), "yellow")
            case ToolProgress() | Inner():
                self._nested(happening)
            case Notice(text=text):
                self._say(f"note: {text}", "yellow")
            case ReasoningDelta() | ToolRunning():
                pass  # the status shows them
            case _:
                self._event(happening)
        self._schedule()

    def show_answer(self, answer: str) -> bool:
        """Write the final answer to the terminal, unless it stands there already; False when there is none."""
        self._clear()
        return self._answer.finish(answer)

    def close(self) -> None:
        """Take the redrawn lines away and stop; safe to call twice."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._status.stop()
        self._answer.end_line()
        self._clear()

    # --- lines that stay ------------------------------------------------------------------------------

    def _event(self, event: Event) -> None:
        self.tally.add(event)
        if isinstance(event, ModelReplied):
            self._answer.end_line()
        if self._verbose:
            self._in_full(event)
            return
        match event:
            case ToolReturned():
                self._returned(event)
            case Reminded():
                self._say("the model wrote a call as text, which runs nothing; it was told so", "yellow")
            case ApprovalRequested(requests=requests):
                self._say(f"{plural(len(requests), 'call')} to be approved", "yellow")
            case ApprovalDecided():
                self._say(f"{self._name(event.call_id)}: {decision_line(event)}")
            case Compacted():
                self._say(compaction_line(event), "yellow")
            case LimitReached(limit=limit):
                self._say(f"{limit}: the model gets one last word, without tools", "yellow")
            case RunResumed():
                self._say("resumed")
            case _:
                pass  # a reply's calls are said when they return; an end, by whoever started the run

    def _returned(self, result: ToolReturned) -> None:
        arrow, good, bad = ("→", "✓", "✗") if self._err.unicode else ("->", "+", "x")
        call = self.tally.asked.get(result.call_id)
        if call and result.arguments is not None:
            call = replace(call, arguments=result.arguments)  # what ran, not what was asked for
        what = one_line(call_line(call) if call else result.call_id)
        line = f"{what} {arrow} {one_line(outcome_line(result, call))}"
        if result.repeat > 1:
            line += f" (the same as before, time {result.repeat})"
        if result.seconds >= 1:
            line += f" ({duration(result.seconds)})"
        if self._region is None:
            self._above(f"step {self.tally.steps}: {line}")
            return
        number = f"{self.tally.steps:>2}" if self._numbered != self.tally.steps else "  "
        self._numbered = self.tally.steps
        mark = self._err.style(good, "green") if result.error is None else self._err.style(bad, "red")
        room = self._err.columns - 6
        below = [self._err.style(clip(safe(text), room), style) for text, style in done_lines(call, result)]
        self._above("\n".join([f"{number} {mark} {clip(line, room)}", *(f"     {text}" for text in below)]))

    def _progress(self, said: ToolProgress) -> None:
        if self._region is None and (call := self._status.call(said.call_id)):
            self._above(f"step {self.tally.steps}: {one_line(call_line(call))}: {one_line(said.text)}")

    def _nested(self, said: ToolProgress | Inner) -> None:
        """What a call says while it runs, and the results in the run of a sub-agent, under the call."""
        if isinstance(said, ToolProgress):
            self._progress(said)
            return
        event = said.happening
        if isinstance(event, Inner):
            self._nested(event)
        elif isinstance(event, ToolReturned | RunEnded):
            what = outcome_line(event, None) if isinstance(event, ToolReturned) else event.reason
            self._above(f"      {self._name(said.call_id)}: {one_line(what)}")

    def _in_full(self, event: Event) -> None:
        for section in full(event, self.tally.asked, self.tally.steps):
            heading = self._err.style(f"--- {one_line(section.heading)}", "bold")
            self._above(f"{heading}\n{safe(section.body)}" if section.body else heading)

    def _name(self, call_id: str) -> str:
        call = self.tally.asked.get(call_id)
        return one_line(call_line(call) if call else call_id)

    def _say(self, text: str, style: str = "") -> None:
        text = one_line(text)
        if self._region is not None:
            text = clip(text, self._err.columns - 6)
        text = self._err.style(text, style) if style else text
        self._above(text if self._region is None else f"     {text}")

    def _above(self, text: str) -> None:
        if self._quiet:
            return
        self._answer.end_line()
        if self._region is None:
            self._err.line(text)
        else:
            self._region.draw(self._status.frame(self._err), text)
        self._answer.apart = self._err.tty

    # --- lines that are redrawn -------------------------------------------------------------------------

    def _schedule(self) -> None:
        """See to it that a frame comes, at most one per period however much happens in it."""
        drawn = self._region is not None and self._status.busy and not self._answer.open
        if self._timer is None and (drawn or self._answer.waiting):
            delay = TEXT_SECONDS if self._answer.waiting else FRAME_SECONDS
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._answer.flush()
        if self._region is not None and not self._answer.open:
            self._region.draw(self._status.frame(self._err))
        self._schedule()

    def _clear(self) -> None:
        if self._region is not None:
            self._region.clear()


class Answer:
    """The text of the reply that is coming, written to a terminal as it comes.

    `clear` takes other lines away before it writes. `waiting` is what came and is not written yet,
    `open` says that the cursor stands at the end of a line of text, and `apart` that a blank line is
    to part what comes from what stands above.
    """

    def __init__(self, out: Terminal | None, clear: Callable[[], None]) -> None:
        self._out = out
        self._before_writing = clear
        self._text: list[str] = []
        self.waiting = ""
        self.open = False
        self.apart = False

    def begin(self) -> None:
        self._text = []

    def add(self, text: str) -> None:
        if self._out is not None:
            self._text.append(text)
            self.waiting += text

    def flush(self) -> None:
        # A carriage return waits for what follows it: with a line feed it is the end of a line.
        ready = self.waiting.removesuffix("\r")
        if ready:
            self.waiting = self.waiting[len(ready) :]
            self._write(ready)

    def end_line(self) -> None:
        """Write what waits and end the line, so that something else can be written."""
        self.flush()
        self.waiting = ""
        if self.open and self._out:
            self._out.line()
            self.open = False

    def void(self, kind: str) -> None:
        """Mark what a failed attempt wrote: it must not be read as the answer."""
        self.end_line()
        if self._text and self._out:
            note = f"[{one_line(kind)}: this reply was cut off. What stands above is void; it is asked again.]"
            self._out.line(self._out.style(note, "yellow"))
        self.begin()

    def finish(self, answer: str) -> bool:
        """Write the answer unless it is what was streamed; False when it is not written here at all."""
        if self._out is None:
            return False
        self.end_line()
        if "".join(self._text).strip() != answer.strip():
            self._write(answer.rstrip("\n") + "\n")
        return True

    def _write(self, text: str) -> None:
        assert self._out is not None
        self._before_writing()
        if self.apart:
            self._out.line()
            self.apart = False
        self._out.write(safe(text))
        self.open = not text.endswith("\n")
