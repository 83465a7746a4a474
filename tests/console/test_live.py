"""What a person sees of a run, on a real pty of a given size and with time that is made up."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterable

import pytest

from tests.kit.screen import Pty, pty
from tool_loop.console.live import Live
from tool_loop.console.terminal import Terminal
from tool_loop.events import (
    ApprovalDecided,
    ApprovalRequest,
    ApprovalRequested,
    Compacted,
    Event,
    IntentRecorded,
    LimitReached,
    ModelAsked,
    ModelReplied,
    Notice,
    ReasoningDelta,
    Reminded,
    Restarted,
    RetryWaiting,
    RunEnded,
    RunInterrupted,
    RunResumed,
    RunStarted,
    Signal,
    TextDelta,
    ToolCall,
    ToolProgress,
    ToolReturned,
    ToolRunning,
    Usage,
)
from tool_loop.limits import Limits
from tool_loop.runtime.clock import run_virtual

GREP = ToolCall("1", "grep", '{"pattern": "class ToolError"}')
READ = ToolCall("2", "read_file", '{"path": "src/x"}')
FOUND = ToolReturned("1", "1 match in 1 file (ripgrep)\nagent.py:35: class ToolError")
MISSING = ToolReturned(
    "2", '{"error": "not_found", "message": "no such file: src/x", "hint": "did you mean lib/x?"}', "not_found"
)
ASKED = ModelReplied("", (GREP, READ), usage=Usage(10_000, 500), cost=0.01)
TTY = {"TERM": "xterm", "NO_COLOR": "1"}

# A number is a wait, a string a look at the screen with that name.
Step = Event | Signal | float | str


def watch(it: Pty, steps: Iterable[Step], *, limits: Limits | None = None, **options: object) -> dict[str, str]:
    """Feed a `Live` on a pty, both streams being the same terminal; what was seen at each look."""
    seen: dict[str, str] = {}

    async def main() -> None:
        terminal = Terminal(it.stream, TTY)
        clock = asyncio.get_running_loop().time
        live = Live(terminal, terminal, limits=limits or Limits(seconds=None), clock=clock, **options)
        for step in steps:
            if isinstance(step, str):
                seen[step] = str(it.read())
            elif isinstance(step, float):
                await asyncio.sleep(step)
            else:
                live(step)
        live.close()
        seen["end"] = str(it.read())

    run_virtual(main())
    return seen


def plain(*steps: Event | Signal, **options: object) -> str:
    """The same where nobody looks: what is written to a file."""
    out = io.StringIO()

    async def main() -> None:
        live = Live(Terminal(out, {}), Terminal(io.StringIO(), {}), **options)
        for step in steps:
            live(step)
        live.close()

    run_virtual(main())
    return out.getvalue()


# --- a terminal ---------------------------------------------------------------------------------------


def test_calls_that_run_are_shown_together_and_turn_into_outcomes() -> None:
    steps: list[Step] = [
        RunStarted("q"), ModelAsked(1), 2.0, "asked", ASKED, ToolRunning(GREP), ToolRunning(READ), 0.5, "running",
        MISSING, "one left", FOUND, 0.2, "done",
    ]  # fmt: skip
    with pty() as it:
        seen = watch(it, steps)

    assert seen["asked"] == "   ⠋ waiting for the model 2.0 s\n     step 1 of 20 · 2.0 s"
    assert seen["running"].splitlines() == [
        '   ⠴ grep "class ToolError" 0.5 s',
        "   ⠴ read_file src/x 0.5 s",
        "     step 1 of 20 · 10.5k of 200k tokens · 2.5 s",
    ]
    assert seen["one left"].startswith(
        ' 1 ✗ read_file src/x → not_found: no such file (did you mean lib/x?)\n   ⠴ grep "class ToolError" 0.5 s\n'
    )
    assert seen["done"] == (
        " 1 ✗ read_file src/x → not_found: no such file (did you mean lib/x?)\n"
        '   ✓ grep "class ToolError" → 1 match in agent.py:35'
    )


def test_the_answer_comes_as_it_is_written_with_nothing_between_its_words() -> None:
    steps: list[Step] = [
        ASKED, FOUND, ModelAsked(2), 1.0, TextDelta("It is "), TextDelta("in agent.py"), 0.1, "begun",
        1.0, TextDelta(", line 35."), 0.1, ModelReplied("It is in agent.py, line 35."), RunEnded("answered", ""),
    ]  # fmt: skip
    with pty() as it:
        seen = watch(it, steps)

    head = ' 1 ✓ grep "class ToolError" → 1 match in agent.py:35\n\n'
    assert seen["begun"] == f"{head}It is in agent.py"
    assert seen["end"] == f"{head}It is in agent.py, line 35."


def test_a_call_that_returns_while_text_is_open_starts_on_a_line_of_its_own() -> None:
    with pty() as it:
        seen = watch(it, [ModelAsked(1), TextDelta("Let me look"), 0.1, Notice("odd\nthing"), ASKED, FOUND])

    assert seen["end"] == 'Let me look\n     note: odd thing\n 1 ✓ grep "class ToolError" → 1 match in agent.py:35'


def test_what_a_failed_attempt_wrote_is_marked_void() -> None:
    steps: list[Step] = [
        ModelAsked(1), TextDelta("The ans"), 0.1, Restarted("connection"),
        RetryWaiting("connection", "reset by api.example.com", 3.0, 2), 1.0, "waiting", 2.5, "asked again",
        TextDelta("The answer."), 0.1, ModelReplied("The answer."),
    ]  # fmt: skip
    with pty(120) as it:
        seen = watch(it, steps)

    void = "The ans\n[connection: this reply was cut off. What stands above is void; it is asked again.]\n"
    assert seen["waiting"].startswith(
        f"{void}   ⠋ reset by api.example.com, retrying in 2.0 s (2nd attempt)\n     step 1 of 20"
    )
    assert seen["asked again"].startswith(f"{void}   ⠴ waiting for the model 3.6 s\n")
    assert seen["end"] == f"{void}The answer."


def test_an_attempt_that_failed_before_its_first_word_leaves_no_mark() -> None:
    with pty() as it:
        seen = watch(it, [ModelAsked(1), Restarted("timeout"), TextDelta("Yes."), ModelReplied("Yes.")])

    assert seen["end"] == "Yes."


def test_ten_thousand_deltas_a_second_are_a_few_dozen_writes_and_nothing_is_lost() -> None:
    words = [f"{n} " for n in range(10_000)]
    counted = _Counting()

    async def main() -> None:
        terminal = Terminal(counted, TTY)
        live = Live(terminal, terminal, clock=asyncio.get_running_loop().time)
        live(ModelAsked(1))
        for n, word in enumerate(words):
            live(TextDelta(word))
            if n % 100 == 99:
                await asyncio.sleep(0.01)
        live(ModelReplied("".join(words)))
        live.close()

    run_virtual(main())

    assert counted.getvalue().rstrip("\n").endswith("".join(words))
    assert counted.writes < 60


class _Counting(io.StringIO):
    encoding = "utf-8"
    writes = 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)


def test_a_model_that_thinks_and_one_that_writes_into_a_pipe_are_told_apart() -> None:
    seen = {}
    with pty() as it:

        async def main() -> None:
            live = Live(Terminal(it.stream, TTY), Terminal(io.StringIO(), {}), clock=asyncio.get_running_loop().time)
            live(ModelAsked(1))
            live(ReasoningDelta("hm"))
            await asyncio.sleep(0.15)
            seen["thinks"] = str(it.read())
            live(TextDelta("some text"))
            await asyncio.sleep(0.15)
            seen["writes"] = str(it.read())
            live.close()

        run_virtual(main())

    assert "the model thinks 0.1 s" in seen["thinks"]
    assert "the model writes: 9 characters, 0.3 s" in seen["writes"]


def test_what_a_tool_says_about_its_progress_stands_beside_it() -> None:
    with pty() as it:
        seen = watch(
            it, [ASKED, ToolRunning(GREP), ToolProgress("1", "half\x1b[31m way"), ToolProgress("9", "?"), 0.1, "now"]
        )

    assert seen["now"].startswith('   ⠙ grep "class ToolError": half\\e[31m way 0.1 s')


def test_many_calls_at_once_do_not_fill_the_screen() -> None:
    calls = tuple(ToolCall(str(n), "fetch", f'{{"n": {n}}}') for n in range(9))
    with pty() as it:
        seen = watch(it, [ModelReplied("", calls), *(ToolRunning(call) for call in calls), 0.1, "now"])

    assert seen["now"].count("fetch") == 6
    assert "     and 3 more calls" in seen["now"]


def test_nothing_moves_while_a_person_is_asked() -> None:
    steps: list[Step] = [
        ASKED, ToolRunning(READ), 0.1, ApprovalRequested((ApprovalRequest("1", "f"),)), 1.0, "asked", 5.0,
        ApprovalDecided("1", allowed=False, by="ada", note="no"), 0.1, "decided",
    ]  # fmt: skip
    with pty() as it:
        seen = watch(it, steps)

    assert seen["asked"] == "     1 call to be approved"
    assert seen["decided"].startswith(
        '     1 call to be approved\n     grep "class ToolError": denied by ada: "no"\n   ⠙ read_file'
    )


def test_the_budget_counts_from_the_last_question_and_shows_money_where_it_is_limited() -> None:
    limits = Limits(steps=None, tokens=None, usd=0.5, seconds=60)
    with pty() as it:
        seen = watch(it, [ASKED, FOUND, MISSING, ModelAsked(2), 0.1, "now"], limits=limits)

    assert seen["now"].endswith("     step 2 · 10.5k tokens · $0.0100 of $0.5000 · 0.1 s of 1 min")


def test_the_last_word_is_no_step() -> None:
    steps: list[Step] = [ASKED, FOUND, MISSING, LimitReached("step limit"), ModelAsked(2, tools=False), 0.1, "now"]
    with pty() as it:
        seen = watch(it, steps, limits=Limits(steps=1, seconds=None))

    assert seen["now"].endswith("     the last word · 10.5k of 200k tokens · 0.1 s")


def test_a_narrow_terminal_is_never_overrun() -> None:
    steps: list[Step] = [
        ModelReplied("", (ToolCall("1", "grep", '{"pattern": "中文字中文字中文字中文字"}'),)),
        ToolRunning(GREP), ModelAsked(2), 0.1, "now", ToolReturned("1", "中文字" * 30), LimitReached("a" * 99), 0.1,
    ]  # fmt: skip
    with pty(20) as it:
        seen = watch(it, steps)

    assert all(len(line) <= 20 for line in seen["now"].splitlines())
    assert seen["end"].splitlines() == [" 1 ✓ grep 中文字中…", "     aaaaaaaaaaaaa…"]


def test_a_call_shows_the_arguments_that_ran_how_long_it_took_and_that_it_was_a_repeat() -> None:
    result = ToolReturned("2", "lines 1-1 of 1\nx", seconds=2.0, repeat=2, arguments='{"path": "lib/x"}')
    with pty() as it:
        seen = watch(it, [ASKED, result])

    assert seen["end"] == " 1 ✓ read_file lib/x → lines 1-1 of 1 (the same as before, time 2) (2.0 s)"


def test_what_the_loop_does_is_said() -> None:
    steps: list[Step] = [
        RunResumed(), Reminded("x"), Compacted(("1",)), LimitReached("step limit"), IntentRecorded(("1",)),
        ApprovalDecided("77", allowed=True), RunInterrupted("cancelled"),
    ]  # fmt: skip
    with pty() as it:
        seen = watch(it, steps)

    assert [line.strip() for line in seen["end"].splitlines()] == [
        "resumed",
        "the model wrote a call as text, which runs nothing; it was told so",
        "context shortened: 1 old result removed",
        "step limit: the model gets one last word, without tools",
        "77: allowed",
    ]


def test_a_run_that_goes_on_knows_its_earlier_calls() -> None:
    with pty() as it:
        seen = watch(it, [RunResumed(), FOUND], earlier=[RunStarted("q"), ASKED, MISSING])

    assert seen["end"].splitlines()[1] == ' 1 ✓ grep "class ToolError" → 1 match in agent.py:35'


def test_the_final_answer_is_not_written_twice_and_written_when_it_did_not_stream() -> None:
    with pty() as it:

        async def main() -> None:
            terminal = Terminal(it.stream, TTY)
            live = Live(terminal, terminal)
            live(ModelAsked(1))
            live(TextDelta("42\r"))
            live(TextDelta("\n"))
            live(ModelReplied("42"))
            live.close()
            assert live.show_answer("42")
            assert live.show_answer("put together from the journal\n")

        run_virtual(main())
        seen = str(it.read())

    assert seen == "42\nput together from the journal"


def test_a_pipe_gets_no_text_from_here() -> None:
    out = io.StringIO()

    async def main() -> None:
        live = Live(Terminal(io.StringIO(), {}), Terminal(out, {}))
        live(ModelAsked(1))
        live(TextDelta("half an ans"))
        live(Restarted("connection"))
        live.close()
        assert not live.show_answer("x")

    run_virtual(main())

    assert out.getvalue() == ""


def test_close_takes_everything_away_and_can_be_called_twice() -> None:
    with pty() as it:

        async def main() -> None:
            live = Live(Terminal(it.stream, TTY))
            live(ModelAsked(1))
            await asyncio.sleep(0.3)
            live.close()
            live.close()

        run_virtual(main())

        assert str(it.read()) == ""


# --- not a terminal -----------------------------------------------------------------------------------


def test_elsewhere_there_is_one_plain_line_per_event() -> None:
    text = plain(
        RunStarted("q"),
        ModelAsked(1),
        RetryWaiting("rate_limit", "429 from api.example.com: slow down", 3.0, 2, 429),
        ASKED,
        ToolRunning(GREP),
        ToolProgress("1", "half way"),
        ToolProgress("9", "nobody"),
        FOUND,
        MISSING,
        Notice("by the \x1b[31mway"),
        ApprovalRequested((ApprovalRequest("1", "f"),)),
        RunEnded("answered", "42"),
    )

    assert text.splitlines() == [
        "429 from api.example.com, retrying in 3.0 s (2nd attempt): slow down",
        'step 1: grep "class ToolError": half way',
        'step 1: grep "class ToolError" -> 1 match in agent.py:35',
        "step 1: read_file src/x -> not_found: no such file (did you mean lib/x?)",
        "note: by the \\e[31mway",
        "1 call to be approved",
    ]


def test_quiet_says_nothing() -> None:
    assert plain(RunStarted("q"), ASKED, FOUND, Notice("x"), RunEnded("answered", "42"), quiet=True) == ""


@pytest.mark.parametrize("tty", [True, False])
def test_verbose_shows_every_message_in_full(tty: bool) -> None:
    steps = [RunStarted("q?"), ModelAsked(1), TextDelta("I look"), ASKED, FOUND, RunEnded("answered", "42")]
    if tty:
        with pty() as it:
            text = watch(it, steps, verbose=True)["end"]
    else:
        text = plain(*steps, verbose=True).rstrip()

    assert text.splitlines() == [
        "--- question",
        "q?",
        "--- step 1, 10,000 in, 500 out",
        '-> grep {"pattern": "class ToolError"}',
        '-> read_file {"path": "src/x"}',
        "--- result of grep",
        "1 match in 1 file (ripgrep)",
        "agent.py:35: class ToolError",
        "--- end: answered",
    ]


def test_a_terminal_that_cannot_move_gets_plain_lines() -> None:
    with pty() as it:

        async def main() -> None:
            terminal = Terminal(it.stream, {"TERM": "dumb"})
            live = Live(terminal, terminal)
            for step in (ModelAsked(1), ASKED, FOUND, ModelAsked(2), TextDelta("42"), ModelReplied("42")):
                live(step)
            live.close()

        run_virtual(main())
        it.read()

    assert it.raw.replace("\r\n", "\n") == 'step 1: grep "class ToolError" → 1 match in agent.py:35\n\n42\n'
