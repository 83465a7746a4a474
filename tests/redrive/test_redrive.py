"""A saved run, driven again through today's code: what would be different is said, and nothing else is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.cli_case import MISSING, READ, Cli, cli, looks  # noqa: F401 - cli is a fixture
from tests.kit.runs import calls as asks, says
from tool_loop import (
    Agent,
    ApprovalDecided,
    FatalError,
    Limits,
    MemoryJournal,
    ScriptedLLM,
    ToolCall,
    ToolRegistry,
    UsageError,
    tool,
)
from tool_loop.errors import JournalError, UnknownRun
from tool_loop.events import (
    ApprovalRequest,
    ApprovalRequested,
    Event,
    IntentRecorded,
    LimitReached,
    ModelReplied,
    Reminded,
    RunEnded,
    RunResumed,
    RunStarted,
    ToolReturned,
    Usage,
)
from tool_loop.llm.scripted import Turn
from tool_loop.ports import Request
from tool_loop.redrive.driving import Recorded
from tool_loop.redrive.ports import RecordedLLM, RecordedTools
from tool_loop.testing import (
    FakeClock,
    Fault,
    Faults,
    ProcessDied,
    auth,
    cancel,
    context_length,
    crash,
    die,
    redrive,
    run_virtual,
    slow,
    workspace,
)


@tool(effect="read", untrusted=False)
async def look(at: str) -> str:
    """Look."""
    await asyncio.sleep({"a": 3, "b": 1}.get(at, 2))
    return f"at {at}"


@tool(effect="once")
async def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


@pay.probe
def paid(n: int) -> object:
    return {1: "paid, says the probe", 2: False}.get(n)


@tool(needs_approval=True)
async def drop(table: str) -> str:
    """Drop."""
    return "dropped"


TOOLS = ToolRegistry([look, pay, drop])
A, B = ToolCall("a", "look", '{"at": "a"}'), ToolCall("b", "look", '{"at": "b"}')
PAY = ToolCall("p", "pay", '{"n": 9}')
DROP = ToolCall("d", "drop", '{"table": "users"}')


async def agree(shown: object) -> ApprovalDecided:
    return ApprovalDecided("", allowed=True, by="ada")


async def wavers(shown: object) -> ApprovalDecided:
    raise OSError("the terminal is gone")


def saved(
    *turns: object,
    faults: Callable[[Faults], object] = lambda _: None,
    attempts: int = 1,
    follow_up: str = "",
    decide: bool = True,
    tools: ToolRegistry = TOOLS,
    **options: object,
) -> MemoryJournal:
    """A run on record, through as many attempts as given."""

    async def main() -> MemoryJournal:
        trouble = Faults()
        faults(trouble)
        journal = MemoryJournal(clock=FakeClock().now)
        agent = trouble.agent(Agent(ScriptedLLM(*turns), tools, journal=journal, **options))
        for _ in range(attempts):
            with suppress(FatalError, ValueError, ProcessDied, asyncio.CancelledError):
                result = await trouble.drive(agent.run("q", run_id="r"))
                for waiting in result.waiting if decide else ():
                    await journal.decide("r", waiting.call.id, allow=True, by="bob")
        if follow_up:
            await agent.run(follow_up, continue_run="r")
        trouble.assert_struck()
        return journal

    return run_virtual(main())


def at_step_2(fault: Fault) -> Callable[[Faults], object]:
    return lambda faults: faults.at_step(2, fault)


KILLED = {"faults": lambda f: f.on_tool("pay", die(first=True)), "attempts": 2}
BRIEF = {"limits": Limits(seconds=30)}

RUNS: dict[str, tuple[Callable[[], MemoryJournal], Limits]] = {
    "answered": (lambda: saved([A, B], PAY, "done"), Limits()),
    "refused calls": (lambda: saved([replace(A, arguments="{"), replace(B, name="loook")], "done"), Limits()),
    "the same id twice": (lambda: saved([A, A], [A], "done"), Limits()),
    "killed after an effect": (
        lambda: saved([A, B, PAY, replace(PAY, id="p2")], "done", **KILLED),
        Limits(),
    ),
    "killed between results": (
        lambda: saved([A, B], "done", faults=lambda f: f.on_record(ToolReturned, die(), nth=2), attempts=2), Limits(),
    ),
    "killed and left alone": (
        lambda: saved([A, B], faults=lambda f: f.on_record(ToolReturned, die(), nth=2)), Limits(),
    ),
    "killed twice": (
        lambda: saved([A, B], "done", faults=lambda f: f.at_append(3, die()).at_append(5, die()), attempts=3), Limits(),
    ),
    "killed before the end": (
        lambda: saved(A, "done", faults=lambda f: f.on_record(RunEnded, die()), attempts=2), Limits(),
    ),
    "found out by its probe": (
        lambda: saved(
            [replace(PAY, arguments='{"n": 1}'), PAY], "done", **KILLED
        ),
        Limits(),
    ),
    "not happened, says its probe": (
        lambda: saved(
            replace(PAY, arguments='{"n": 2}'), "done", attempts=2,
            faults=lambda f: f.on_record(IntentRecorded, die(first=True)),
        ),
        Limits(),
    ),
    "in doubt, and a person asked": (
        lambda: saved(PAY, "done", **KILLED, reviewer=agree), Limits(),
    ),
    "waiting, then allowed": (lambda: saved([DROP, B], "done", attempts=2), Limits()),
    "waiting": (lambda: saved([DROP, B]), Limits()),
    "allowed at once": (lambda: saved([DROP, B], "done", reviewer=agree), Limits()),
    "nobody there": (lambda: saved([DROP, B], reviewer=wavers), Limits()),
    "cancelled": (
        lambda: saved([A, B, PAY], "done", faults=lambda f: f.on_tool("look", cancel()), attempts=2), Limits(),
    ),
    "cancelled while it was asked": (
        lambda: saved(A, Turn("", seconds=9), "done", faults=at_step_2(cancel()), attempts=2), Limits(),
    ),
    "a key refused": (lambda: saved(A, "done", faults=lambda f: f.at_step(2, auth()), attempts=2), Limits()),
    "a server that failed": (lambda: saved(A, faults=lambda f: f.from_step(2, "server_error")), Limits()),
    "a bug": (lambda: saved(A, ValueError("a bug of the model's wrapper")), Limits()),
    "stopped by steps": (lambda: saved(A, B, "in short", limits=Limits(steps=2)), Limits(steps=2)),
    "stopped by time": (
        lambda: saved(A, B, "in short", faults=at_step_2(slow(500)), **BRIEF), Limits(seconds=30),
    ),
    "stopped, with no last word": (
        lambda: saved(A, faults=lambda f: f.from_step(2, "auth"), limits=Limits(steps=1)), Limits(steps=1),
    ),
    "repeated": (lambda: saved(*[replace(A, id=f"a{n}") for n in range(3)], "it is a"), Limits()),
    "reminded": (lambda: saved('{"name": "look", "arguments": {"at": "a"}}', "done"), Limits()),
    "followed up": (lambda: saved("done", A, "again", follow_up="and?"), Limits()),
    "compacted on demand": (
        lambda: saved(A, B, replace(A, id="a2"), "so far", "done", faults=lambda f: f.at_step(4, context_length(100))),
        Limits(),
    ),
    "cleared on demand": (
        lambda: saved(A, "done", faults=lambda f: f.at_step(2, context_length(9_000)), attempts=2), Limits(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_the_same_code_would_do_the_same(name: str) -> None:
    make, limits = RUNS[name]
    journal = make()

    assert redrive(journal, "r", tools=TOOLS, limits=limits) == []
    assert redrive(journal, "r") == [], "without tools and limits the record answers for them"


def test_nothing_is_run_and_nothing_is_written() -> None:
    ran: list[int] = []

    @tool(name="pay", effect="once")
    async def really(n: int) -> str:
        """Pay."""
        ran.append(n)
        return "paid 9"

    journal = saved([A, PAY], "done")
    before = journal.events("r")
    redrive(journal, "r", tools=ToolRegistry([look, really, drop]), limits=Limits())

    assert ran == []
    assert journal.events("r") == before


# --- what is different today ----------------------------------------------------------------------


@tool(name="look", effect="read", untrusted=False)
async def look_by_number(at: int) -> str:
    """Look."""
    return ""


@tool(name="look", needs_approval=True)
async def look_if_allowed(at: str) -> str:
    """Look."""
    return ""


@tool(name="pay", effect="read")
async def pay_again(n: int) -> str:
    """Pay."""
    return ""


@tool(name="drop")
async def drop_freely(table: str) -> str:
    """Drop."""
    return ""


@tool(name="drop", needs_approval=True)
async def drop_other(table: str, cascade: bool = False) -> str:
    """Drop."""
    return ""


def failure(kind: str, message: str, hint: str) -> str:
    return json.dumps({"error": kind, "message": message, "hint": hint}, separators=(",", ":"))


ELSE = "something else would happen: -"


def differences(make: Callable[[], MemoryJournal], *tools: object, limits: Limits | None = None) -> list[str]:
    found = redrive(make(), "r", tools=ToolRegistry(tools or [look, pay, drop]), limits=limits or Limits())
    return [f"{d.index} {d.what}: {d.diff}" for d in found]


@pytest.mark.parametrize(
    ("make", "tools", "limits", "expected"),
    [
        (
            lambda: saved([A, B], PAY, "done"), (look, pay_again, drop), None,
            ["5 something else would happen: - these must run once, and are run: pay (p)\n+ pay returns: paid 9"],
        ),
        (
            lambda: saved([A, B], PAY, "done"), (look_if_allowed, pay, drop), None,
            ["2 something else would happen: - look returns: at b\n+ a person is asked about: look (a), look (b)"],
        ),
        (
            lambda: saved([A, B], PAY, "done"), (), Limits(steps=1),
            [
                f'4 {ELSE} the model is asked, and says: -> pay {{"n": 9}}\n+ it stops: step limit',
                f"7 {ELSE} the model is asked, and says: done\n+ it stops: step limit",
            ],
        ),
        (
            lambda: saved(A, B, "in short", limits=Limits(steps=2)), (), None,
            ["5 something else would happen: - it stops: step limit\n+ the model is asked"],
        ),
        (
            lambda: saved(A, "in short", faults=lambda f: f.at_step(2, slow(500)), limits=Limits(seconds=30)), (), None,
            ["3 something else would happen: - it stops: deadline\n+ the model is still waited for"],
        ),
        (
            lambda: saved(A, B, "in short", limits=Limits(steps=1)), (), None,
            [
                "3 something else would happen: - it stops: step limit\n+ the model is asked",
            ],
        ),
        (
            lambda: saved(*[replace(A, id=f"a{n}") for n in range(3)], "it is a"), (), Limits(repeats=2),
            [f'5 {ELSE} the model is asked, and says: -> look {{"at": "a"}}\n+ it stops: repeated call'],
        ),
        (
            lambda: saved([DROP, B], "done", reviewer=agree), (look, pay, drop_freely), None,
            ["2 something else would happen: - look returns: at b\n+ these must run once, and are run: drop (d)"],
        ),
        (
            lambda: saved(replace(A, arguments='{"at": 5}'), "done"), (look_by_number, pay, drop), None,
            [
                "2 look would run: - invalid_arguments: "
                + failure("invalid_arguments", "'at' must be string, got int", "Write 'at' as \"5\", not 5.")[:-1]
                + ',"fields":{"at":"must be string, got int"}}\n+ it runs',
            ],
        ),
    ],
)  # fmt: skip
def test_a_change_shows_where_it_makes_a_difference(make, tools, limits, expected: list[str]) -> None:
    assert differences(make, *tools, limits=limits) == expected


def test_a_call_that_would_be_refused_shows_what_the_model_would_read() -> None:
    found = differences(lambda: saved([A], "done"), look_by_number, pay, drop)

    assert len(found) == 1
    assert found[0].startswith("2 the result of look would be another: - content: at a\n+ content: {")
    assert "must be integer, got str" in found[0]
    assert found[0].endswith("- error: None\n+ error: invalid_arguments")


def test_an_approval_would_be_bound_to_another_definition() -> None:
    found = differences(lambda: saved([DROP], "done", reviewer=agree), look, pay, drop_other)

    assert found[0].startswith("2 what a person is asked would be another: - requests: (ApprovalRequest(call_id='d'")


def test_tools_that_would_run_in_another_order_are_told() -> None:
    @tool(name="look")  # once, so one after the other
    async def in_order(at: str) -> str:
        """Look."""
        return ""

    found = differences(lambda: saved([A, B], "done"), in_order, pay, drop)

    assert found[0].startswith("2 something else would happen: - look returns: at b\n+ these must run once")


def test_words_that_changed_are_shown_as_a_diff_and_do_not_hide_what_follows() -> None:
    journal = saved([replace(A, name="loook"), replace(B, arguments="{")], A, "done")
    state = journal._logs["r"].state
    for n, event in enumerate(state.events):
        if isinstance(event, ToolReturned) and event.error:
            state.events[n] = replace(event, content=f"old words\n{event.content}")
    found = redrive(journal, "r", tools=TOOLS, limits=Limits())

    assert [d.what for d in found] == ["the result of loook would be another", "the result of look would be another"]
    assert "-old words" in found[0].diff
    assert str(found[0]).startswith("record 3 (step 1): the result of loook")


def test_calls_side_by_side_that_would_all_differ_are_told_once() -> None:
    @tool(name="look")
    async def in_order(at: str) -> str:
        """Look."""
        return ""

    found = differences(lambda: saved([A, B], "done", tools=ToolRegistry([in_order])))

    assert [line.partition("\n")[0] for line in found] == [
        f"2 {ELSE} these must run once, and are run: look (a), look (b)"
    ]


def edited(journal: MemoryJournal, change: Callable[[list[Event]], object]) -> MemoryJournal:
    """The same with other events: a record as another version, or another program, could have left it."""
    log = journal._logs["r"]
    change(log.state.events)
    log.times = [*log.times, *[log.times[-1]] * 9][: len(log.state.events)]
    return journal


def test_a_context_that_would_be_shortened_today_is_told() -> None:
    turns = [replace(says("", Usage(900 * n, 10)), calls=(replace(A, id=f"a{n}"),)) for n in (1, 2, 3)]
    make = lambda: saved(*turns, "done", limits=Limits(repeats=9))  # noqa: E731

    found = differences(make, limits=Limits(window=1_500, repeats=9))

    assert found[0].startswith("5 something else would happen: - the model is asked")
    assert "+ context shortened" in found[0]


def test_an_end_that_would_come_earlier_is_told() -> None:
    journal = edited(saved(A, "done"), lambda events: events.__setitem__(4, LimitReached("step limit")))

    found = redrive(journal, "r", tools=TOOLS, limits=Limits())

    assert [d.diff for d in found] == ["- it stops: step limit\n+ it ends (answered): done"]


def test_a_decision_from_elsewhere_is_taken_where_it_came() -> None:
    async def main() -> MemoryJournal:
        async def thinks(shown: object) -> ApprovalDecided:
            await asyncio.sleep(5)
            return ApprovalDecided("", allowed=False)

        journal = MemoryJournal()
        agent = Agent(ScriptedLLM(DROP, "done"), TOOLS, journal=journal, reviewer=thinks)
        run = asyncio.ensure_future(agent.run("q", run_id="r"))
        await asyncio.sleep(2)
        await journal.decide("r", "d", allow=True, by="bob")
        await run
        return journal

    journal = run_virtual(main())

    assert redrive(journal, "r", tools=TOOLS, limits=Limits()) == []


def test_results_that_would_land_in_another_order_are_told() -> None:
    record = Recorded("r", list(saved([A, B], "done").events("r")), [0.0] * 9, limits_known=True)
    record.fold()
    record.fold()

    async def other_way_round() -> None:
        await record.append(ToolReturned("a", "at a"))
        await record.append(ToolReturned("b", "at b"))

    run_virtual(other_way_round())

    assert [(d.what, d.diff) for d in record.differences] == [
        ("the calls would end in another order", "- b first\n+ a first")
    ]
    assert isinstance(record.expected, ModelReplied)


def test_a_person_who_decided_once_and_then_could_not_be_reached() -> None:
    trouble = lambda faults: faults.at_review(2, crash())  # noqa: E731
    journal = saved(DROP, replace(DROP, id="d2"), faults=trouble, reviewer=agree, decide=False)

    assert redrive(journal, "r", tools=TOOLS, limits=Limits()) == []


def test_a_record_that_makes_no_sense_comes_to_an_end_all_the_same() -> None:
    journal = edited(saved(A, "done"), lambda events: events.extend([Reminded("more"), RunResumed(), Reminded("more")]))

    assert isinstance(redrive(journal, "r", tools=TOOLS, limits=Limits()), list)


def test_the_model_on_record_says_when_it_is_asked_otherwise() -> None:
    events = [RunStarted("q"), says("done"), LimitReached("deadline")]

    async def asked(start: int, **options: object) -> tuple[list[str], object]:
        record = Recorded("r", list(events), [0.0, 5.0, 20.0], limits_known=True)
        for _ in range(start):
            record.fold()
        request = Request(record.state.transcript, **options)
        try:
            said: object = await RecordedLLM(record).reply(request, lambda _: None)
        except (TimeoutError, JournalError) as error:
            said = type(error).__name__
        return [d.what for d in record.differences], said

    assert run_virtual(asked(1)) == ([], events[1])
    assert run_virtual(asked(1, may_call=False)) == (["the tools would be withheld or not"], events[1])
    assert run_virtual(asked(2, deadline=20.5)) == ([], "TimeoutError")
    assert run_virtual(asked(2, deadline=99.0)) == (["something else would happen"], "Over")
    assert run_virtual(asked(3)) == ([], "Over")


def test_what_a_probe_found_is_what_came_next_of_the_call() -> None:
    def found(*after: Event) -> object:
        record = Recorded("r", [RunStarted("q"), asks(("p", "pay")), *after], [0.0] * 9, limits_known=True)
        return run_virtual(RecordedTools(record, None).probe(ToolCall("p", "pay")))

    assert found(ToolReturned("a", "x"), IntentRecorded(("p",))) is False
    assert found(ToolReturned("p", "paid")) == ToolReturned("p", "paid")
    assert found(ToolReturned("p", "?", "outcome_unknown")) is None
    assert found(ApprovalRequested((ApprovalRequest("p", "f", "in_doubt"),))) is None
    assert found() is None


def test_a_long_difference_is_cut() -> None:
    journal = saved(replace(A, name="loook"), "done")
    state = journal._logs["r"].state
    state.events[3] = replace(state.events[3], content="\n".join(map(str, range(200))))

    assert redrive(journal, "r", tools=TOOLS)[0].diff.splitlines()[-1].startswith("... and ")


def test_a_run_that_is_not_there_or_has_not_begun() -> None:
    class Empty:
        def events(self, run_id: str) -> tuple[()]:
            return ()

    with pytest.raises(UnknownRun):
        redrive(MemoryJournal(), "r")
    with pytest.raises(UsageError, match="run r has no record"):
        redrive(Empty(), "r")


def test_a_journal_without_times_will_do() -> None:
    journal = saved([A, B], "done")

    class Plain:
        def events(self, run_id: str):
            return journal.events(run_id)

    assert redrive(Plain(), "r", tools=TOOLS, limits=Limits()) == []


# --- the command line -----------------------------------------------------------------------------


def test_a_saved_run_is_driven_again(cli: Cli) -> None:  # noqa: F811
    with cli.serve(looks(MISSING, replace(READ, id="c2")), looks(replace(READ, id="c3")), looks_done()) as server:
        cli.at(server)
        assert cli("ask", "what?").code == 0
    same = cli("replay", "--last")
    other = cli("replay", "--last", "--max-steps", "1")
    lines = cli("replay", "--last", "--max-steps", "1", "--json").out.splitlines()

    assert (same.code, other.code) == (0, 1)
    assert same.out.endswith("it would do the same\n")
    assert "record 4, step 1: something else would happen" in other.out
    assert "+ it stops: step limit" in other.out
    assert other.out.endswith("2 differences\n")
    assert [json.loads(line)["index"] for line in lines] == [4, 6]


def looks_done():
    from tool_loop.testing import ok_chat

    return ok_chat("done")


def test_a_run_whose_folder_is_gone_is_driven_from_its_record_alone(cli: Cli) -> None:  # noqa: F811
    with cli.serve(looks(), looks_done()) as server, workspace({"agent.py": "x"}) as root:
        cli.at(server)
        assert cli("ask", "what?", "--root", str(root)).code == 0
    ran = cli("replay", "--last")

    assert ran.code == 0
    assert "its tools are not at hand, so the record answers for them" in ran.err


def test_a_run_of_ones_own_agent_is_driven_with_it(cli: Cli) -> None:  # noqa: F811
    (cli.root / "mine.py").write_text(
        "from tool_loop import Agent, ScriptedLLM, tool\n"
        "@tool(effect='read')\n"
        "async def look(at: str) -> str:\n"
        "    '''Look.'''\n"
        "    return at\n"
        "agent = Agent(ScriptedLLM(), [look])\n"
        "def make():\n"
        "    return agent\n"
        "other = 5\n"
    )
    journal = cli.journal
    with journal:
        run_virtual(Agent(ScriptedLLM(A, "done"), [look], journal=journal).run("q", run_id="mine"))

    assert cli("replay", "mine").err.startswith("this run was not made by tool-loop ask")
    assert cli("replay", "mine", "--agent", "mine.py:agent").code == 0
    assert cli("replay", "mine", "--agent", "mine.py:make").out.endswith("it would do the same\n")
    assert cli("check", "mine", "--agent", "mine.py:make").out == "run mine: 5 records in order\n"
    wrong = cli("replay", "mine", "--agent", "mine.py:other")
    assert (wrong.code, "is int, not an Agent" in wrong.err) == (2, True)


def test_a_saved_run_is_held_against_the_rules(cli: Cli) -> None:  # noqa: F811
    with cli.serve(looks(), looks_done(), looks_done()) as server:
        cli.at(server)
        cli("ask", "what?")
        cli("ask", "and what else?")
    every = cli("check", "--all")

    assert every.code == 0
    assert [line.partition(": ")[2] for line in every.out.splitlines()] == ["3 records in order", "5 records in order"]
    assert cli("check", "--last").out.endswith("3 records in order\n")
    assert cli("check", "--all", "--last").code == 2


def test_a_run_that_broke_a_rule_is_named_and_so_is_a_damaged_one(cli: Cli) -> None:  # noqa: F811
    import sqlite3

    with cli.serve(looks(), looks_done()) as server:
        cli.at(server)
        cli("ask", "what?")

    def change(statement: str) -> None:
        with sqlite3.connect(cli.home / "tool-loop" / "runs.sqlite") as db:
            db.execute(statement)

    change('UPDATE records SET record = replace(record, \'"answer":"done"\', \'"answer":"other"\')')
    broken = cli("check", "--last")
    change("UPDATE records SET record = '{' WHERE rowid = 3")
    damaged = cli("check", "--last")

    assert (broken.code, damaged.code) == (1, 1)
    assert "I20 at event 4 (RunEnded): the answer is not what the model said last" in broken.out
    assert "I25: run " in damaged.out
    assert "record 2" in damaged.out


def test_a_key_on_record_is_found(cli: Cli) -> None:  # noqa: F811
    journal = cli.journal
    with journal:
        run_virtual(Agent(ScriptedLLM(says("it is sk-live-12345678")), journal=journal).run("q", run_id="r"))

    assert "I27" in cli("check", "r", env={"OPENAI_API_KEY": "sk-live-12345678"}).out
    assert cli("check", "r").code == 0


def test_times_of_a_saved_run_are_followed(tmp_path: Path) -> None:
    from tool_loop.journal.sqlite import SqliteJournal

    with SqliteJournal(tmp_path / "runs.sqlite", clock=FakeClock().now) as journal:
        agent = Agent(ScriptedLLM(asks(("a", "look", '{"at": "a"}')), says("done")), TOOLS, journal=journal)
        run_virtual(agent.run("q", run_id="r"))

        assert redrive(journal, "r", tools=TOOLS, limits=Limits(seconds=10)) == []
        assert len(redrive(journal, "r", tools=TOOLS, limits=Limits(seconds=3))) == 1
