"""Saved runs on the command line: list, show, continue, resume, and decisions from another process."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
import time
from pathlib import Path

import pytest

from tests.kit.cli_case import KEY, Cli, Ran, cli, looks
from tool_loop.cli._store import default_path, person
from tool_loop.events import ApprovalDecided, RunStarted, ToolCall, ToolReturned
from tool_loop.testing import FaultServer, ok_chat
from tool_loop.testing.server import refusals as no

__all__ = ["cli"]

PAY = ToolCall("p1", "pay", '{"amount": 3, "to": "bob\u202e"}')
TIP = ToolCall("p2", "tip", "{}")
TOOLS = """
from pathlib import Path
from tool_loop import tool

@tool
def pay(amount: int, to: str) -> str:
    "Pay somebody."
    with Path("paid").open("a") as file:
        file.write(f"{amount}\\n")
    return "paid"

@tool
def tip() -> str:
    "Tip somebody."
    return "tipped"

both = [pay, tip]
"""


def waiting(cli: Cli, *calls: ToolCall) -> Ran:
    """A run that ends because calls wait for a person; `cli.env` names its server no more."""
    (cli.root / "mine.py").write_text(TOOLS)
    with FaultServer([looks(*(calls or (PAY,)))]) as server:
        cli.at(server)
        return cli("ask", "pay bob", "--tools", f"{cli.root}/mine.py:both")


def resume(cli: Cli, *words: str) -> Ran:
    """Go on with the last run, with its tools; the server is a new one at another address."""
    own = ["--tools", f"{cli.root}/mine.py:both"] if (cli.root / "mine.py").exists() else []
    with FaultServer([ok_chat("Done.")]) as server:
        cli.at(server)
        return cli("resume", "--last", "--base-url", f"{server.url}/v1", *own, *words)


# --- list and show --------------------------------------------------------------------------------------


def test_runs_lists_what_was_asked_and_how_it_stands(cli: Cli) -> None:
    with FaultServer([ok_chat("Done."), no.status(401)]) as server:
        cli.at(server)
        cli("ask", "first\x1b[31m question")
        cli("ask", "second")
    ran = cli("runs")

    head, second, first = ran.out.splitlines()
    assert head.split() == ["id", "when", "state", "steps", "tokens", "question"]
    assert second.split()[3:] == ["failed", "0", "0", "second"]
    assert first.split()[3:] == ["answered", "1", "17", "first\\e[31m", "question"]


def test_runs_as_json_and_only_some_of_them(cli: Cli) -> None:
    with FaultServer([ok_chat("Done.")] * 3) as server:
        cli.at(server)
        for n in range(3):
            cli("ask", f"q{n}")
    ran, table = cli("runs", "--json", "-n", "0"), cli("runs", "-n", "2")

    assert [json.loads(line)["question"] for line in ran.out.splitlines()] == ["q2", "q1", "q0"]
    assert len(table.out.splitlines()) == 3
    assert table.err == "and 1 more; -n 0 lists all\n"


def test_without_a_journal_or_a_run_it_says_so(cli: Cli) -> None:
    none = cli("runs")
    _ = cli.journal
    empty = cli("runs")

    assert none.code == 2
    assert "no runs are saved in" in none.err
    assert (empty.code, empty.out, empty.err) == (0, "", "no run is saved yet\n")


def test_a_list_nobody_reads_leaves_no_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    record(cli, "a")
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", Gone())
        ran = cli("runs")

    assert (ran.code, ran.err) == (141, "")


def test_show_is_the_run_message_by_message_with_nothing_that_acts_on_a_terminal(cli: Cli) -> None:
    (cli.root / "odd").write_text("\x1b]0;title\x07\n")
    with FaultServer([looks(ToolCall("c1", "read_file", '{"path": "odd"}')), ok_chat("Done.")]) as server:
        cli.at(server)
        cli("ask", "q", "--system", "Be brief.")
    ran = cli("show", "--last")

    assert ran.code == 0
    assert "--- system\nBe brief.\n\n--- question\nq\n\n--- step 1, fault-model, 12 in, 5 out, " in ran.out
    assert "--- result of read_file\nlines 1-1 of 1\n\\e]0;title\\x07\n" in ran.out
    assert ran.out.endswith("--- end: answered\n\n2 steps, 1 call, 24 tokens in, 10 out\n")


def test_show_as_json_is_what_ask_wrote(cli: Cli) -> None:
    with FaultServer([ok_chat("Done.")]) as server:
        cli.at(server)
        asked = cli("ask", "q", "--json")
    shown = cli("show", "--last", "--json")

    def events(ran: Ran) -> list[object]:
        return [{**line, "at": 0} for line in map(json.loads, ran.out.splitlines()) if "event" in line]

    assert events(shown) == events(asked)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "say which run"),
        (["abc", "--last"], "say which run"),
        (["zzz"], "there is no run 'zzz'"),
        (["ab"], "'ab' is the beginning of 2 runs: ab2, ab1"),
    ],
)
def test_a_run_that_is_not_clear_is_asked_for(cli: Cli, words: list[str], said: str) -> None:
    record(cli, "ab1", "ab2")
    ran = cli("show", *words)

    assert ran.code == 2
    assert said in ran.err


def record(cli: Cli, *run_ids: str) -> None:
    async def main() -> None:
        for run_id in run_ids:
            async with journal.open(run_id) as log:
                await log.append(RunStarted("q"))

    with cli.journal as journal:
        asyncio.run(main())


def test_the_beginning_of_an_id_is_enough_and_a_whole_one_wins(cli: Cli) -> None:
    record(cli, "ab1", "ab12", "cd")

    assert cli("show", "c").out.startswith("run cd,")
    assert cli("show", "ab1").out.startswith("run ab1,")


def test_without_any_run_there_is_no_last_one(cli: Cli) -> None:
    _ = cli.journal

    assert "no run is saved yet" in cli("show", "--last").err


# --- going on ---------------------------------------------------------------------------------------------


def test_a_follow_up_goes_on_in_the_same_history_with_what_the_run_began_with(cli: Cli, tmp_path: Path) -> None:
    with FaultServer([looks(), ok_chat("One."), looks(ToolCall("c2", "list_dir", "{}")), ok_chat("Two.")]) as server:
        cli.at(server)
        cli("ask", "first?")
        elsewhere = Cli(cli.home, tmp_path, cli.patch, cli.capture, env={**cli.env, "OPENAI_MODEL": "another"})
        ran = elsewhere("ask", "--last", "and then?")
        sent = server.requests[-1].json()

    assert ran.out == "Two.\n"
    assert "step 3: list_dir → 1 entry in ." in ran.err
    assert sent["model"] == "m"
    assert [m["content"] for m in sent["messages"] if m["role"] == "user"] == ["first?", "and then?"]
    assert len(cli.journal.runs()) == 1


def test_a_run_is_continued_by_its_id(cli: Cli) -> None:
    with FaultServer([ok_chat("One."), ok_chat("Two.")]) as server:
        cli.at(server)
        cli("ask", "first?")
        ran = cli("ask", "--continue", (cli.journal.last() or "")[:8], "and then?")

    assert ran.out == "Two.\n"


def test_resuming_an_ended_run_gives_its_answer_again_and_asks_nobody(cli: Cli) -> None:
    with FaultServer([ok_chat("Done.")]) as server:
        cli.at(server)
        cli("ask", "q")
        ran = cli("resume", "--last")

        assert len(server.requests) == 1
    assert (ran.code, ran.out) == (0, "Done.\n")


def test_a_key_goes_to_no_endpoint_but_the_one_it_is_set_for(cli: Cli) -> None:
    with FaultServer([no.status(401), ok_chat("Done."), ok_chat("Done.")]) as server:
        cli.at(server)
        cli("ask", "q", "--base-url", f"{server.url}/v1")
        cli.env = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": KEY}
        away = cli("resume", "--last")
        keys = [request.header("authorization") for request in server.requests]

    assert away.code == 0
    assert f"made with {server.url}/v1, where no key is sent to now" in away.err
    assert keys == [f"Bearer {KEY}", None]


def test_no_key_is_missed_where_none_is_set(cli: Cli) -> None:
    with FaultServer([no.status(503), ok_chat("Done.")]) as server:
        cli.at(server)
        cli("ask", "q", "--timeout", "0.2")
        cli.env = {}
        again = cli("resume", "--last", "--timeout", "60")

    assert (again.code, again.out) == (0, "Done.\n")
    assert "no key" not in again.err


def test_the_token_of_another_dialect_stays_at_home_too(cli: Cli) -> None:
    with FaultServer([no.status(401), no.status(401)]) as server:
        cli.env = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_AUTH_TOKEN": KEY}
        cli("ask", "q", "--api", "messages", "-m", "claude-x")
        cli.env = {"ANTHROPIC_AUTH_TOKEN": KEY}
        cli("resume", "--last")

        assert [server.requests[n].header("authorization") for n in (0, 1)] == [f"Bearer {KEY}", None]


def test_a_parked_run_is_tried_again_when_asked(cli: Cli) -> None:
    with FaultServer([no.status(401), ok_chat("Done.")]) as server:
        cli.at(server)
        cli("ask", "q")
        ran = cli("resume", "--last", "--unpark")

    assert ran.code == 0


def test_a_meta_that_is_not_ours_is_ignored(cli: Cli) -> None:
    async def main() -> None:
        for run_id, meta in (("a", "[1]"), ("b", "{")):
            async with journal.open(run_id) as log:
                await log.append(RunStarted("q", meta=meta))

    with cli.journal as journal:
        asyncio.run(main())
    with FaultServer([ok_chat("Done."), ok_chat("Done.")]) as server:
        cli.at(server)

        assert [cli("resume", run_id).code for run_id in ("a", "b")] == [0, 0]


# --- approvals ----------------------------------------------------------------------------------------------


def test_without_a_terminal_a_call_that_needs_an_approval_ends_the_process(cli: Cli) -> None:
    ran = waiting(cli, PAY, ToolCall("c1", "list_dir", "{}"))
    run_id = cli.journal.last()

    assert ran.code == 6
    assert ran.out == ""
    assert 'pay wants to run: Pay somebody.\n  amount: 3\n  to: "bob\\u202e"\n' in ran.err
    assert f"Allow it:  tool-loop approve {run_id} p1\nRefuse it: tool-loop deny {run_id} p1\n" in ran.err
    assert ran.err.endswith(f"Then go on with: tool-loop resume {run_id} --tools {cli.root}/mine.py:both\n")
    assert "step 1: list_dir" in ran.err  # what needs nobody has run
    assert not (cli.root / "paid").exists()
    assert cli.journal.runs()[0].state == "waiting"


def test_an_approved_call_runs_once_on_resume(cli: Cli) -> None:
    waiting(cli)
    approved = cli("approve", "--last", "--by", "ada", "--note", "fine")
    ran = resume(cli)
    again = resume(cli)

    assert approved.code == 0
    assert approved.out.startswith('pay wants to run\n  amount: 3\n  to: "bob\\u202e"\nallowed: call p1\ngo on with: ')
    assert (ran.code, ran.out, again.out) == (0, "Done.\n", "Done.\n")
    assert (cli.root / "paid").read_text() == "3\n"
    assert decision(cli) == ApprovalDecided("p1", True, "ada", "fine", decision(cli).fingerprint)


def decision(cli: Cli) -> ApprovalDecided:
    return next(e for e in cli.journal.events(cli.journal.last() or "") if isinstance(e, ApprovalDecided))


def test_the_model_is_told_why_a_call_was_denied(cli: Cli) -> None:
    waiting(cli)
    cli("deny", "--last", "--note", "too much")
    ran = resume(cli)
    results = [e.content for e in cli.journal.events(cli.journal.last() or "") if isinstance(e, ToolReturned)]

    assert ran.code == 0
    assert "too much" in results[0]
    assert not (cli.root / "paid").exists()
    assert decision(cli).by == person()


def test_of_two_calls_one_is_named_and_the_other_still_waits(cli: Cli) -> None:
    waiting(cli, PAY, TIP)
    run_id = cli.journal.last() or ""
    unclear = cli("approve", run_id)
    wrong = cli("approve", run_id, "p9")
    one = cli("approve", "--last", "p1")
    other = cli("deny", run_id, "p2")
    twice = cli("approve", run_id, "p1")

    assert "2 calls wait, say which: p1 (pay), p2 (tip)" in unclear.err
    assert f"no call 'p9' waits in run {run_id}" in wrong.err
    assert one.out.endswith("allowed: call p1\nstill waiting: p2 (tip)\n")
    assert other.out.endswith(
        f"denied: call p2\ngo on with: tool-loop resume {run_id} --tools {cli.root}/mine.py:both\n"
    )
    assert (unclear.code, wrong.code, one.code, other.code, twice.code) == (2, 2, 0, 0, 2)


def test_an_approval_can_end_or_hold_for_the_run(cli: Cli) -> None:
    waiting(cli)
    cli("approve", "--last", "--expires", "60", "--for-run")

    assert decision(cli).standing
    assert 0 < (decision(cli).expires_at or 0) - time.time() <= 60


def test_a_call_that_cannot_be_shown_whole_can_be_denied_and_not_approved(cli: Cli) -> None:
    """It was recorded as allowed after its first thousand characters had been shown."""
    waiting(cli, ToolCall("p1", "pay", json.dumps({"amount": 3, "to": "b" * 60_000})))
    approved = cli("approve", "--last")
    denied = cli("deny", "--last")

    assert (approved.code, denied.code) == (2, 0)
    assert "too long to be shown whole: deny it" in approved.err
    assert not decision(cli).allowed


def test_on_a_terminal_a_call_that_does_not_fit_is_approved_with_all_of_it_shown(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    lines = "\n".join(f"to {n}" for n in range(60))
    waiting(cli, ToolCall("p1", "pay", json.dumps({"amount": 3, "to": lines})))
    folded = cli("approve", "--last")
    whole = cli("approve", "--last", "--whole")

    assert (folded.code, whole.code) == (2, 0)
    assert "lines, " in folded.out
    assert "to 30" not in folded.out
    assert "--whole shows all of it" in folded.err
    assert "    | to 30\n" in whole.out


def test_nobody_is_asked_where_nobody_wants_to_be(cli: Cli) -> None:
    (cli.root / "mine.py").write_text(TOOLS)
    with FaultServer([looks(PAY), ok_chat("Done.")]) as server:
        cli.at(server)
        ran = cli("ask", "q", "--tools", "mine.py:pay", "--approve", "never")

    assert ran.code == 0
    assert (cli.root / "paid").read_text() == "3\n"


def test_the_policy_is_kept_over_a_resume(cli: Cli) -> None:
    with FaultServer([looks()]) as server:
        cli.at(server)
        asked = cli("ask", "q", "--approve", "always")
    still = resume(cli)

    assert (asked.code, still.code) == (6, 6)


def test_a_run_that_is_not_saved_cannot_be_decided_later_and_says_so(cli: Cli) -> None:
    with FaultServer([looks()]) as server:
        cli.at(server)
        ran = cli("ask", "q", "--approve", "always", "--no-save")

    assert ran.code == 6
    assert "The run is not saved" in ran.err


def test_commands_name_the_journal_they_are_about(cli: Cli) -> None:
    with FaultServer([looks()]) as server:
        cli.at(server)
        ran = cli("ask", "q", "--approve", "always", "--journal", "my runs")

    assert "tool-loop resume" in ran.err
    assert "--journal 'my runs'" in ran.err


# --- where ----------------------------------------------------------------------------------------------------


def test_where_runs_are_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")

    assert default_path({"XDG_STATE_HOME": "/state"}) == Path("/state/tool-loop/runs.sqlite")
    assert default_path({}) == Path("/home/ada/.local/state/tool-loop/runs.sqlite")
    assert default_path({"XDG_STATE_HOME": "relative"}) == default_path({})


def test_a_python_without_sqlite_saves_nothing(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tool_loop.journal.sqlite", None)
    with FaultServer([ok_chat("Done.")]) as server:
        cli.at(server)
        ran = cli("ask", "q")

    assert ran.code == 0
    assert "note: this run is not saved: this Python has no sqlite3" in ran.err


def test_without_a_home_there_is_no_place(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)

    with pytest.raises(OSError, match="set HOME or XDG_STATE_HOME"):
        default_path({})


def test_an_account_without_a_name_is_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: (_ for _ in ()).throw(KeyError(uid)))

    assert person() == f"uid {os.getuid()}"


def test_a_file_that_is_no_journal_is_said(cli: Cli) -> None:
    ran = cli("runs", "--journal", "agent.py")

    assert ran.code == 2
    assert "agent.py" in ran.err
