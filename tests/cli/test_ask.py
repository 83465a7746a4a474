"""`tool-loop ask` and what it needs: the question, the configuration, the streams, the exit code."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
from argparse import Namespace
from collections.abc import Callable

import pytest

from tests.kit.cli_case import KEY, MISSING, Cli, cli, looks
from tests.kit.screen import pty
from tool_loop.cli._cost import Costed, pricing
from tool_loop.cli._question import _ready, read_question
from tool_loop.cli._setup import NOTHING_SET
from tool_loop.console.terminal import Terminal
from tool_loop.errors import UsageError
from tool_loop.events import ModelReplied, RunStarted, ToolCall
from tool_loop.testing import Behaviour, FaultServer, Received, Response, answer, ok_chat, run_virtual
from tool_loop.testing.faults.wire import close_at_byte
from tool_loop.testing.server import refusals as no

__all__ = ["cli"]


# --- the answer -----------------------------------------------------------------------------------------


def test_the_answer_is_all_that_goes_to_stdout(cli: Cli) -> None:
    with FaultServer([ok_chat("I look.", [MISSING]), looks(), ok_chat("next_move, line 1.")]) as server:
        cli.at(server)
        ran = cli("ask", "what", "decides?")

    assert ran.code == 0
    assert ran.out == "next_move, line 1.\n"
    lines = ran.err.splitlines()
    assert lines[0].startswith("step 1: read_file src/agent.py → not_found: no such file (a file of that name is at")
    assert lines[1] == "step 2: read_file agent.py → lines 1-2 of 2"
    assert lines[2].startswith("3 steps, 2 calls, 1 failure recovered, 36 tokens in, 15 out, ")
    assert lines[2].endswith(f"; run {cli.journal.last()}")


def test_a_pipe_never_gets_text_of_an_attempt_that_failed(cli: Cli) -> None:
    with FaultServer([close_at_byte(400, ok_chat("half an answer " * 30)), ok_chat("The answer.")]) as server:
        cli.at(server)
        ran = cli("ask", "q")

    assert ran.out == "The answer.\n"
    assert "retrying in" in ran.err


def test_control_characters_of_the_model_do_not_reach_stdout_but_the_file_has_them(cli: Cli) -> None:
    with FaultServer([ok_chat("a\x1b[31m\u202eb")]) as server:
        cli.at(server)
        ran = cli("ask", "q", "-o", "answer.txt")

    assert ran.out == "a\\e[31m\\u202eb\n"
    assert (cli.root / "answer.txt").read_text() == "a\x1b[31m\u202eb\n"


def test_json_is_one_event_or_signal_per_line_and_nothing_else(cli: Cli) -> None:
    with FaultServer([looks(ToolCall("c1", "read_file", '{"path": "\x7f\u202e"}')), ok_chat("Done.")]) as server:
        cli.at(server)
        ran = cli("ask", "q", "--json")

    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert ran.code == 0
    assert ran.err == ""
    assert ran.out.isascii()
    assert "\x7f" not in ran.out
    assert {line["run"] for line in lines} == {cli.journal.last()}
    assert [line["event"] for line in lines if "event" in line] == [
        "run_started", "model_replied", "tool_returned", "model_replied", "run_ended",
    ]  # fmt: skip
    assert "".join(line["text"] for line in lines if line.get("signal") == "text_delta") == "Done."


def test_quiet_leaves_the_answer_alone(cli: Cli) -> None:
    with FaultServer([looks(), ok_chat("Done.")]) as server:
        cli.at(server)
        ran = cli("ask", "q", "--quiet")

    assert (ran.out, ran.err) == ("Done.\n", "")


def test_verbose_shows_every_message(cli: Cli) -> None:
    with FaultServer([looks(), ok_chat("Done.")]) as server:
        cli.at(server)
        ran = cli("ask", "q", "--verbose", "--system", "Be brief.")

    assert "--- system\nBe brief.\n--- question\nq\n--- step 1" in ran.err
    assert "def next_move():" in ran.err


def test_no_stream_asks_for_the_reply_in_one_piece(cli: Cli) -> None:
    with FaultServer([ok_chat("Done.")]) as server:
        cli.at(server)
        ran = cli("ask", "q", "--no-stream")

        assert server.requests[0].json()["stream"] is False
    assert ran.out == "Done.\n"


def test_an_answer_without_a_look_says_so(cli: Cli) -> None:
    with FaultServer([ok_chat("Done.")]) as server:
        cli.at(server)
        ran = cli("ask", "q")

    assert "note: no tool was called" in ran.err


# --- how it can end -------------------------------------------------------------------------------------


def test_a_limit_ends_in_an_answer_and_exit_code_5(cli: Cli) -> None:
    with FaultServer([looks(), ok_chat("As far as I got.")]) as server:
        cli.at(server)
        ran = cli("ask", "q", "--max-steps", "1")

    assert ran.code == 5
    assert ran.out == "As far as I got.\n"
    assert "stopped: step limit; 2 steps" in ran.err


def test_zero_is_no_limit(cli: Cli) -> None:
    with FaultServer([looks(), ok_chat("Done.")]) as server:
        cli.at(server)
        options = ("--max-steps", "--max-tokens", "--timeout", "--max-usd", "--window")
        ran = cli("ask", "q", *(word for option in options for word in (option, "0")))

    assert ran.code == 0


def test_a_refused_key_is_code_3_and_can_be_resumed_with_another(cli: Cli) -> None:
    with FaultServer([no.status(401, f"bad key {KEY}", kind="invalid_api_key"), ok_chat("Done.")]) as server:
        cli.at(server)
        ran = cli("ask", "q")
        resume = ran.err.splitlines()[-1].partition("resume with: tool-loop ")[2]
        again = cli(*resume.split())

    assert ran.code == 3
    assert "OPENAI_API_KEY was refused" in ran.err
    assert KEY not in ran.err
    assert again.code == 0
    assert again.out == "Done.\n"


def test_a_server_that_is_not_there_is_code_4(cli: Cli) -> None:
    with FaultServer([], listening=False) as server:
        cli.at(server)
        ran = cli("ask", "q", "--timeout", "0.5")

    assert ran.code == 4
    assert "could not connect" in ran.err


def test_without_any_configuration_three_lines_say_what_to_set(cli: Cli) -> None:
    ran = cli("ask", "q")

    assert ran.code == 3
    assert ran.err == f"tool-loop: {NOTHING_SET}\n"
    assert len(ran.err.splitlines()) == 3
    assert cli.journal.runs() == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["q", "--root", "nowhere"], "'nowhere' does not exist"),
        (["q", "--root", "agent.py"], "'agent.py' is not a directory"),
        (["q", "-o", "no/such/dir"], "cannot write the answer to no/such/dir: No such file or directory"),
        (["q", "-o", "."], "cannot write the answer to .: Is a directory"),
        (["q", "--journal", "agent.py/runs"], "cannot"),
        (["q", "--tools", "agent"], "is not MODULE:NAME"),
        (["q", "--tools", "no_such_module:x"], "No module named 'no_such_module'"),
        (["q", "--tools", "agent.py:nothing"], "there is no 'nothing' in agent.py"),
        (["q", "--tools", "gone.py:x"], "No such file"),
        (["q", "--last"], "no runs are saved"),
        (["q", "--last", "--no-save"], "a follow-up belongs to a saved run"),
        (["q", "--max-usd", "1", "--api", "frob"], "invalid choice"),
        ([" "], "nothing came from standard input"),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_paid_for(cli: Cli, words: list[str], said: str) -> None:
    with FaultServer([]) as server:
        cli.at(server)
        ran = cli("ask", *words)

        assert server.requests == []
    assert ran.code == 2
    assert said in ran.err
    assert ran.out == ""


def test_a_file_made_for_nothing_is_removed_and_one_that_was_there_stays(cli: Cli) -> None:
    (cli.root / "old").write_text("before")
    with FaultServer([no.status(401), no.status(401)]) as server:
        cli.at(server)
        cli("ask", "q", "-o", "new")
        cli("ask", "q", "-o", "old")

    assert not (cli.root / "new").exists()
    assert (cli.root / "old").read_text() == "before"


def test_a_shorter_answer_replaces_a_longer_one(cli: Cli) -> None:
    (cli.root / "old").write_text("before " * 100)
    with FaultServer([ok_chat("Done.\n")]) as server:
        cli.at(server)
        cli("ask", "q", "-o", "old")

    assert (cli.root / "old").read_text() == "Done.\n"


# --- where it is saved ----------------------------------------------------------------------------------


def test_a_run_is_not_saved_when_that_was_asked(cli: Cli) -> None:
    with FaultServer([ok_chat("Done."), no.status(401)]) as server:
        cli.at(server)
        ran = cli("ask", "q", "--no-save")
        failed = cli("ask", "q", "--no-save")

    assert list(cli.home.iterdir()) == []
    assert "; run" not in ran.err
    assert "resume" not in failed.err


def test_a_home_that_cannot_be_written_is_a_notice_and_no_more(cli: Cli) -> None:
    (cli.home / "file").write_text("")
    with FaultServer([ok_chat("Done."), ok_chat("Done.")]) as server:
        cli.at(server)
        ran = cli("ask", "q", env={"XDG_STATE_HOME": str(cli.home / "file")})
        relative = cli("ask", "q", env={"XDG_STATE_HOME": "ignored", "HOME": str(cli.home / "file")})

    for one in (ran, relative):
        assert one.code == 0
        assert one.err.startswith("note: this run is not saved: ")


def test_the_directory_of_saved_runs_is_private(cli: Cli) -> None:
    with FaultServer([ok_chat("Done.")]) as server:
        cli.at(server)
        cli("ask", "q", env={"XDG_STATE_HOME": "", "HOME": str(cli.home)})

    assert (cli.home / ".local/state/tool-loop").stat().st_mode & 0o777 == 0o700


def test_what_is_recorded_is_enough_to_go_on_and_holds_no_key(cli: Cli) -> None:
    with FaultServer([ok_chat("Done.")]) as server:
        cli.at(server)
        url = server.url.replace("://", "://user:secret@") + "/v1?api-version=1&api_key=hidden"
        cli("ask", "q", "--base-url", url, "--max-steps", "7")
        started = cli.journal.events(cli.journal.last() or "")[0]

    assert isinstance(started, RunStarted)
    meta = json.loads(started.meta)
    assert meta["root"] == str(cli.root)
    assert meta["model"] == "m"
    assert meta["base_url"] == f"{server.url}/v1?api-version=1"
    assert meta["max_steps"] == 7
    assert not [word for word in (KEY, "secret", "hidden") if word in started.meta]


# --- tools of one's own, and money ----------------------------------------------------------------------


def test_tools_of_ones_own_come_from_a_file_or_a_module(cli: Cli) -> None:
    (cli.root / "mine_cli_test.py").write_text(
        "from tool_loop import tool\n"
        "@tool(effect='read')\ndef roll() -> int:\n    'Roll a die.'\n    return 4\n"
        "def plain() -> str:\n    'Say hello.'\n    return 'hello'\n"
        "tools = [roll, plain]\n"
    )
    call = ToolCall("c1", "roll", "{}")
    with FaultServer([looks(call), ok_chat("4")] * 3) as server:
        cli.at(server)
        from_file = cli("ask", "q", "--tools", "mine_cli_test.py:tools")
        from_module = cli("ask", "q", "--tools", "mine_cli_test:roll")
        again = cli("ask", "q", "--tools", "mine_cli_test:roll")

        offered = [tool["function"]["name"] for tool in server.requests[0].json()["tools"]]
    assert offered == ["list_dir", "read_file", "grep", "roll", "plain"]
    assert "step 1: roll → 4" in from_file.err
    assert "step 1: roll → 4" in from_module.err
    assert "step 1: roll → 4" in again.err


def test_a_budget_in_dollars_counts_and_says_when_it_cannot(cli: Cli) -> None:
    with FaultServer([ok_chat("Done.")]) as server:
        cli.at(server)
        ran = cli("ask", "q", "--max-usd", "1")

    assert "the price of fault-model is not known" in ran.err


class _Model:
    async def reply(self, _request: object, _emit: object) -> ModelReplied:
        return ModelReplied("paid for")


class _Prices:
    def window(self, _model: str, _origin: str) -> None:
        return None

    def cost(self, *_args: object) -> float:
        return 0.5


def costs(prices: Callable[[], object]) -> list[float | None]:
    async def main() -> list[float | None]:
        llm = Costed(_Model(), prices)  # type: ignore[arg-type]
        return [(await llm.reply(None, None)).cost for _ in range(2)]  # type: ignore[arg-type]

    return run_virtual(main())


def test_a_reply_carries_its_cost_and_a_line_about_money_is_not_worth_one() -> None:
    assert costs(_Prices) == [0.5, 0.5]
    assert costs(lambda: 1 / 0) == [None, None]


@pytest.mark.parametrize(
    ("origin", "known"),
    [
        ("chat:https://api.openai.com", True),
        ("chat:http://localhost:8080", False),
        ("chat:http://127.0.0.1:8080", False),
        ("", False),
    ],
)
def test_only_what_is_sold_has_a_price(origin: str, known: bool) -> None:
    llm = _Model()
    llm.origin = origin  # type: ignore[attr-defined]

    priced, prices = pricing(Namespace(max_usd=None), llm)  # type: ignore[arg-type]

    assert prices is None
    assert isinstance(priced, Costed) == known


# --- the question ---------------------------------------------------------------------------------------


def test_piped_text_is_added_to_the_question(cli: Cli) -> None:
    with FaultServer([ok_chat("Done.")]) as server:
        cli.at(server)
        cli("ask", "why?", stdin=b"line 1\nline 2\n")
        asked = server.requests[0].json()["messages"][-1]["content"]

    assert asked == "why?\n\nFrom standard input:\n\nline 1\nline 2\n"


@pytest.mark.parametrize("words", [["-"], []])
def test_the_question_itself_comes_from_stdin(cli: Cli, words: list[str]) -> None:
    with FaultServer([ok_chat("Done.")]) as server:
        cli.at(server)
        cli("ask", *words, stdin=b"why?\n")

        assert server.requests[0].json()["messages"][-1]["content"] == "why?"


@pytest.mark.parametrize(
    ("stdin", "said"),
    [(b"x" * ((1 << 20) + 1), "more than 1 MiB"), (b"\x7fELF\0\0", "not text"), (b" \n", "nothing came from")],
)
def test_what_is_no_question_is_refused(cli: Cli, stdin: bytes, said: str) -> None:
    ran = cli("ask", "-", stdin=stdin)

    assert ran.code == 2
    assert said in ran.err


def test_a_terminal_is_only_read_when_asked_to() -> None:
    said = io.StringIO()
    err = Terminal(said, {})
    with pty() as it, os.fdopen(os.dup(it.slave)) as keyboard:
        assert read_question(["what?"], keyboard, err) == "what?"
        with pytest.raises(UsageError, match="no question given"):
            read_question([], keyboard, err)
        it.type("why?\n\x04")
        assert read_question(["-"], keyboard, err) == "why?"

    assert "end it with Ctrl-D" in said.getvalue()


def test_without_stdin_there_is_only_what_was_said() -> None:
    err = Terminal(io.StringIO(), {})
    closed = io.StringIO()
    closed.close()

    assert read_question(["why?"], None, err) == "why?"
    assert read_question(["why?"], closed, err) == "why?"
    assert read_question(["why?"], io.StringIO("no descriptor"), err) == "why?"
    with pytest.raises(UsageError, match="empty"):
        read_question(["-"], None, err)


def test_a_pipe_that_says_nothing_for_long_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tool_loop.cli._question.PATIENCE_SECONDS", 0.01)
    reading, writing = os.pipe()
    waiting = threading.Event()

    class Heard(io.StringIO):
        def write(self, text: str) -> int:
            waiting.set()
            return super().write(text)

    def slow() -> None:
        waiting.wait(10)
        os.write(writing, b"log")
        os.close(writing)

    thread = threading.Thread(target=slow)
    thread.start()
    said = Heard()
    with os.fdopen(reading) as pipe:
        asked = read_question(["why?"], pipe, Terminal(said, {}))
    thread.join()

    assert asked.endswith("log")
    assert "waiting for standard input to end" in said.getvalue()


def test_what_cannot_be_waited_for_is_read() -> None:
    assert _ready(-1, 0)


# --- interrupted, and on a terminal ---------------------------------------------------------------------


def stop_me() -> Behaviour:
    """Ctrl-C in the moment in which the request has arrived."""

    def respond(_request: Received) -> Response:
        os.kill(os.getpid(), signal.SIGINT)
        return Response(wait=60)

    return Behaviour("stop_me", respond)


def test_an_interrupted_run_says_how_to_go_on_if_it_can(cli: Cli) -> None:
    with FaultServer([stop_me(), stop_me()]) as server:
        cli.at(server)
        saved = cli("ask", "q")
        unsaved = cli("ask", "q", "--no-save")

    assert saved.code == 130
    assert saved.out == ""
    assert saved.err.splitlines() == [
        "note: stopping; Ctrl-C again quits at once",
        f"Interrupted. Resume with: tool-loop resume {cli.journal.last()}",
    ]
    assert unsaved.err.endswith("Interrupted; nothing is saved.\n")


def test_on_a_terminal_the_answer_stands_apart(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with FaultServer([looks(), ok_chat("Done.")]) as server, pty(120) as it:
        cli.at(server)
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", it.stream)
            patch.setattr("sys.stderr", it.stream)
            cli("ask", "q", env={"TERM": "xterm"})
        lines = it.read().lines

    assert lines[:4] == [" 1 ✓ read_file agent.py → lines 1-2 of 2", "", "Done.", ""]
    assert lines[4].startswith("2 steps, 1 call, ")


# --- a reader that goes away ----------------------------------------------------------------------------


def test_a_run_nobody_reads_any_more_is_ended_and_can_be_resumed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    class OneLine(io.StringIO):
        def write(self, text: str) -> int:
            if self.getvalue():
                raise BrokenPipeError
            return super().write(text)

    with FaultServer([answer(200, b"", wait=30, name="never read")]) as server:
        cli.at(server)
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", OneLine())
            ran = cli("ask", "q", "--json")

    assert ran.code == 141
    assert cli.journal.runs()[0].state == "interrupted"


def test_an_answer_nobody_reads_leaves_no_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    with FaultServer([ok_chat("Done.")]) as server:
        cli.at(server)
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", Gone())
            ran = cli("ask", "q", "-q")

    assert ran.code == 141
    assert ran.err == ""
