"""`write_file` and `edit_file` in a run: who is asked, what is bound, and what a crash leaves."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tools.edit_proofs import crash_points, killed_runs
from tool_loop import Agent, Limits, MemoryJournal, Result, ScriptedLLM, ToolCall, ToolContext, ToolRegistry
from tool_loop.audit.invariants import check
from tool_loop.events import ApprovalDecided, ApprovalRequested, IntentRecorded, ToolReturned
from tool_loop.ports import PendingApproval
from tool_loop.testing import Faults, ProcessDied, die, run_virtual
from tool_loop.toolbox.call import at_work
from tool_loop.tools.edit import edit_tools
from tool_loop.tools.workspace import Root


def write(call_id: str, path: str = "a.txt", content: str = "x\n") -> ToolCall:
    return ToolCall(call_id, "write_file", json.dumps({"path": path, "content": content}))


def edit(call_id: str, path: str = "a.txt", old: str = "END\n", new: str = "one\nEND\n") -> ToolCall:
    return ToolCall(call_id, "edit_file", json.dumps({"path": path, "old": old, "new": new}))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("END\n")
    (tmp_path / ".git").mkdir()
    return tmp_path


class Person:
    """Answers by list ("yes", "no"), and remembers what was shown."""

    def __init__(self, *say: str, meanwhile: object = None) -> None:
        self.say, self.asked, self.meanwhile = list(say), list[PendingApproval](), meanwhile

    async def __call__(self, pending: PendingApproval) -> ApprovalDecided:
        self.asked.append(pending)
        if callable(self.meanwhile):
            self.meanwhile()
        return ApprovalDecided(pending.call.id, allowed=self.say.pop(0) == "yes")


def agent(home: Path, *turns: object, auto: bool = False, person: Person | None = None, journal=None) -> Agent:
    tools = edit_tools(Root(home), auto=auto)
    return Agent(ScriptedLLM(*turns), tools, journal=journal or MemoryJournal(), reviewer=person)


def errors(result: object) -> list[str]:
    return [e.error for e in result.events if isinstance(e, ToolReturned) and e.error]


def test_a_person_sees_the_diff_and_allows_it_once(home: Path) -> None:
    person = Person("yes", "no")
    result = agent(home, edit("1"), edit("2"), "done", person=person).run_sync("q")

    preview = person.asked[0].preview
    assert preview is not None
    assert preview.show() == "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1,2 @@\n+one\n END"
    assert preview.kind == "diff"
    assert (home / "a.txt").read_text() == "one\nEND\n"
    assert errors(result) == ["denied"]
    assert check(result.events) == []


def test_a_call_that_cannot_be_done_asks_nobody(home: Path) -> None:
    person = Person()
    result = agent(home, edit("1", old="not there"), "done", person=person).run_sync("q")

    assert person.asked == []
    assert errors(result) == ["invalid_argument"]


def test_auto_asks_only_about_protected_paths(home: Path) -> None:
    person = Person("no", "no")
    (home / "innocent").symlink_to(".git")
    result = agent(
        home, write("1"), write("2", "innocent/hooks/post-commit"), write("3", "AGENTS.md"), "done",
        auto=True, person=person,
    ).run_sync("q")  # fmt: skip

    assert [p.call.id for p in person.asked] == ["2", "3"]
    assert person.asked[0].preview.show().startswith(".git is protected")
    assert person.asked[0].preview.rule == ""
    assert errors(result) == ["denied", "denied"]
    assert not (home / ".git/hooks").exists()


def test_without_a_person_nothing_is_changed(home: Path) -> None:
    result = agent(home, edit("1"), "done").run_sync("q")

    assert result.reason == "waiting"
    assert (home / "a.txt").read_text() == "END\n"


def test_a_file_that_changed_while_the_person_looked_is_not_touched(home: Path) -> None:
    person = Person("yes", meanwhile=lambda: (home / "a.txt").write_text("END\nby somebody\n"))
    result = agent(home, edit("1"), "done", person=person).run_sync("q")

    assert errors(result) == ["denied"]
    assert (home / "a.txt").read_text() == "END\nby somebody\n"


def test_a_hundred_files_that_changed_while_the_person_looked_are_not_touched(home: Path) -> None:
    turns = [edit(f"c{n}", f"f{n}.txt") for n in range(100)]
    for n in range(100):
        (home / f"f{n}.txt").write_text("END\n")
    changed = iter(range(100))

    def meanwhile() -> None:
        with (home / f"f{next(changed)}.txt").open("a") as file:
            file.write("by somebody\n")

    person = Person(*["yes"] * 100, meanwhile=meanwhile)
    agents = agent(home, *turns, "done", person=person)
    agents.limits = Limits(steps=200, tokens=None, repeats=1000)
    result = agents.run_sync("q")

    assert errors(result) == ["denied"] * 100
    assert {(home / f"f{n}.txt").read_text() for n in range(100)} == {"END\nby somebody\n"}


def test_a_file_that_changed_while_the_run_waited_is_shown_as_it_is_now(home: Path) -> None:
    journal = MemoryJournal()
    asyncio.run(agent(home, edit("1"), journal=journal).run("q", run_id="r"))
    (home / "a.txt").write_text("new first line\nEND\n")
    person = Person("yes")
    result = asyncio.run(agent(home, "done", person=person, journal=journal).resume("r"))

    assert "new first line" in person.asked[0].preview.show()
    assert errors(result) == []
    assert len([e for e in result.events if isinstance(e, ApprovalRequested)]) == 2
    assert (home / "a.txt").read_text() == "new first line\none\nEND\n"
    assert check(result.events) == []


def test_an_answer_from_elsewhere_is_bound_to_the_file_as_it_was_asked_about(home: Path) -> None:
    journal = MemoryJournal()
    asyncio.run(agent(home, edit("1"), journal=journal).run("q", run_id="r"))
    asyncio.run(journal.decide("r", "1", allow=True, by="ann"))
    (home / "a.txt").write_text("changed\nEND\n")
    result = asyncio.run(agent(home, "done", journal=journal).resume("r"))

    assert errors(result) == ["denied"]
    assert (home / "a.txt").read_text() == "changed\nEND\n"


def test_what_needed_nobody_and_needs_a_person_by_the_time_it_runs_is_not_done(home: Path) -> None:
    """A link that is turned round between the question and the answer: asked about `src`, written to `.git`."""
    (home / "src").mkdir()
    (home / "link").symlink_to("src")

    class Turned(ToolRegistry):
        def refuse(self, call: ToolCall) -> ToolReturned | None:
            (home / "link").unlink()
            (home / "link").symlink_to(".git")
            return super().refuse(call)

        def needs_approval(self, call: ToolCall) -> bool:
            (home / "link").unlink()
            (home / "link").symlink_to("src")
            asked = super().needs_approval(call)
            (home / "link").unlink()
            (home / "link").symlink_to(".git")
            return asked

    tools = Turned(edit_tools(Root(home), auto=True))
    result = Agent(ScriptedLLM(write("1", "link/config"), "done"), tools).run_sync("q")

    assert errors(result) == ["conflict"]
    assert not (home / ".git/config").exists()


def test_edited_arguments_are_what_is_done(home: Path) -> None:
    class Editor(Person):
        async def __call__(self, pending: PendingApproval) -> ApprovalDecided:
            mine = json.dumps({"path": "a.txt", "old": "END\n", "new": "mine\n"})
            return ApprovalDecided(pending.call.id, allowed=True, arguments=mine)

    result = agent(home, edit("1"), "done", person=Editor()).run_sync("q")

    assert errors(result) == []
    assert (home / "a.txt").read_text() == "mine\n"


@pytest.mark.parametrize("first", [True, False])
def test_an_edit_is_never_done_twice_and_never_in_doubt(home: Path, first: bool) -> None:
    """Killed before and after the one rename: the new text holds the old, so a second edit would show."""
    faults = Faults().on_tool("edit_file", die(first=first))
    struck = faults.agent(agent(home, edit("1"), edit("2", new="two\nEND\n"), "done", auto=True))

    with pytest.raises(ProcessDied):
        run_virtual(struck.run("q", run_id="r"), thread_patience=20.0)
    result = run_virtual(struck.resume("r"), thread_patience=20.0)

    assert (home / "a.txt").read_text() == "one\ntwo\nEND\n"
    assert errors(result) == []
    assert [bool(e.mark) for e in result.events if isinstance(e, IntentRecorded)].count(True) == (2 if first else 3)
    assert check(result.events) == []


@pytest.mark.parametrize("late", [False, True])
def test_an_edit_that_is_cancelled_is_looked_into_and_not_left_in_doubt(home: Path, late: bool) -> None:
    """Ctrl-C while it works, before or after its one rename: the next attempt finds out which."""
    real = edit_tools(Root(home), auto=True)[1]
    started, go, over = threading.Event(), threading.Event(), threading.Event()

    def slow(context: ToolContext, **arguments: object) -> str:
        told = real.func(context, **arguments) if late else ""
        started.set()
        assert go.wait(20)
        told = told or real.func(context, **arguments)
        over.set()
        return told

    async def main() -> Result:
        journal = MemoryJournal()
        first = Agent(ScriptedLLM(edit("1"), "done"), [replace(real, func=slow)], journal=journal)
        task = asyncio.ensure_future(first.run("q", run_id="r"))
        await asyncio.to_thread(started.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()  # a thread cannot be stopped: what it was about to do, it does
        await asyncio.to_thread(over.wait, 20)
        for _ in range(10_000):  # until the loop has heard of its end
            await asyncio.sleep(0)
            if not at_work:
                break
        return await Agent(ScriptedLLM("done"), [real], journal=journal).resume("r")

    result = asyncio.run(main())

    assert errors(result) == []
    assert (home / "a.txt").read_text() == "one\nEND\n"
    assert check(result.run_events) == []


def test_a_file_somebody_else_changed_after_the_crash_is_left_to_be_looked_at(home: Path) -> None:
    struck = Faults().on_tool("edit_file", die(first=True)).agent(agent(home, edit("1"), "done", auto=True))

    with pytest.raises(ProcessDied):
        run_virtual(struck.run("q", run_id="r"), thread_patience=20.0)
    (home / "a.txt").write_text("another\n")
    result = run_virtual(struck.resume("r"), thread_patience=20.0)

    assert errors(result) == ["outcome_unknown"]


def test_a_person_is_asked_again_about_what_a_crash_has_kept_from_happening(home: Path) -> None:
    person = Person("yes", "yes")
    struck = Faults().on_tool("edit_file", die(first=False)).agent(agent(home, edit("1"), "done", person=person))

    with pytest.raises(ProcessDied):
        run_virtual(struck.run("q", run_id="r"), thread_patience=20.0)
    result = run_virtual(struck.resume("r"), thread_patience=20.0)

    assert [p.why for p in person.asked] == ["policy", "in_doubt"]
    assert errors(result) == []
    assert (home / "a.txt").read_text() == "one\nEND\n"


def test_the_tools_can_be_called_alone(home: Path) -> None:
    tools = ToolRegistry(edit_tools(Root(home)))

    result = asyncio.run(tools.run(edit("1")))

    assert (result.content, result.error) == ("edited a.txt at line 1: 1 line -> 2 lines", None)


# --- real processes -------------------------------------------------------------------------------


def test_a_run_that_is_killed_around_a_rename_does_each_edit_once_and_knows_it() -> None:
    tally = crash_points([5])

    assert (tally.killed, tally.good) == (2, True), tally


@pytest.mark.parametrize("mutant", ["once", "idempotent"])
def test_the_proof_catches_an_edit_without_a_mark(mutant: str) -> None:
    assert not crash_points([5, 6], mutant).good


@pytest.mark.slow
def test_runs_that_are_killed_at_any_moment_do_each_edit_once() -> None:
    tally = killed_runs(8, seed=3)

    # How often a kill strikes before the run is over depends on the machine; that it does is what is needed.
    assert (tally.killed >= 3, tally.good) == (True, True), tally
