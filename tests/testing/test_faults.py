"""Faults strike where they were placed, once, and the same at the port as on the wire."""

from __future__ import annotations

import asyncio
import copy
from typing import get_args

import pytest

from tests.kit.runs import of
from tool_loop import (
    Agent,
    ApprovalDecided,
    FatalError,
    Limits,
    MemoryJournal,
    ModelReplied,
    OpenAIChat,
    Price,
    PriceTable,
    ProviderError,
    RetryPolicy,
    ScriptedLLM,
    ToolCall,
    ToolError,
    ToolRegistry,
    UsageError,
    tool,
)
from tool_loop.catalogue import CATALOGUE, Layer
from tool_loop.errors import TOOL_ERROR_KINDS, JournalError, ProviderKind
from tool_loop.events import (
    IntentRecorded,
    LimitReached,
    Reminded,
    Restarted,
    RunEnded,
    RunInterrupted,
    RunStarted,
    TextDelta,
    ToolReturned,
    Usage,
)
from tool_loop.llm.scripted import Sent, Turn
from tool_loop.ports import Request
from tool_loop.testing import (
    FAULTS,
    INJECTORS,
    Asked,
    Faults,
    ProcessDied,
    WireModel,
    argument,
    arguments,
    asks_for,
    auth,
    bad_json,
    cancel,
    check,
    clock_jump,
    crash,
    cut_by_length,
    cut_stream,
    denied,
    die,
    disk_full,
    expired,
    fault,
    hang,
    http_status,
    more_calls,
    overloaded,
    rate_limit,
    returns,
    returns_too_much,
    run_virtual,
    same_call,
    slow,
    tool_error,
    unknown_tool,
    write_error,
    wrong_type,
)
from tool_loop.testing.faults.injectors import layers
from tool_loop.transcript import AssistantMessage, ToolMessage, Transcript

LOOK = ToolCall("c1", "look", '{"at": "here"}')
PAY = ToolCall("c2", "pay", '{"amount": 5}')


@pytest.fixture
def paid() -> list[int]:
    return []


@pytest.fixture
def tools(paid: list[int]) -> ToolRegistry:
    @tool(effect="read", timeout_seconds=5)
    async def look(at: str, times: int = 1) -> str:
        """Look."""
        return f"at {at}"

    @tool(effect="read", timeout_seconds=5)
    def read(path: str) -> str:
        """Read."""
        return f"in {path}"

    @tool(effect="once")
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    @tool(effect="once", needs_approval=True)
    async def publish(text: str) -> str:
        """Publish."""
        return text

    return ToolRegistry([look, read, pay, publish])


def ran(faults: Faults, *turns: object, tools: object = (), **options: object):
    """A scripted run with these faults; they all have to strike."""
    agent = Agent(ScriptedLLM(*turns), tools, **options)
    result = run_virtual(faults.agent(agent).run("q", run_id="r"))
    faults.assert_struck()
    return result


# --- where they strike ----------------------------------------------------------------------------


def test_the_first_example_of_the_documentation(tools: ToolRegistry) -> None:
    faults = Faults()
    faults.at_step(2, rate_limit(retry_after=2))
    faults.at_step(3, cut_stream(after="half a call"))
    faults.on_tool("look", crash(), call=2)

    result = ran(faults, LOOK, LOOK, "done", tools=tools)

    assert result.answer == "done"
    assert [r.error for r in of(ToolReturned, result.events)] == [None, "tool_crashed"]
    assert [[r.kind for r in reply.retries] for reply in of(ModelReplied, result.events)] == [
        [], ["rate_limit"], ["protocol"],
    ]  # fmt: skip
    assert list(map(str, faults.struck)) == [
        "rate_limit() at step 2", "crash() at look, call 2", "cut_stream() at step 3",
    ]  # fmt: skip


def test_each_attempt_at_a_step_has_the_next_fault_then_it_goes_through() -> None:
    result = ran(Faults().at_step(1, overloaded(), rate_limit(0), times=2), "done")

    assert [r.kind for r in of(ModelReplied, result.events)[0].retries] == ["overloaded"] * 2 + ["rate_limit"] * 2


def test_from_a_step_on_every_attempt_fails() -> None:
    faults = Faults().from_step(1, "server_error")

    with pytest.raises(ProviderError, match="asking again will not help"):
        ran(faults, "never")
    assert len(faults.struck) == 3


def test_a_tool_can_fail_at_every_call(tools: ToolRegistry) -> None:
    result = ran(Faults().on_tool("look", tool_error("not_found"), call=None), [LOOK, LOOK], "no", tools=tools)

    assert [r.error for r in result.failures] == ["not_found", "not_found"]


def test_calls_that_are_refused_are_not_counted(tools: ToolRegistry) -> None:
    wrong = ToolCall("c0", "look", "{}")
    result = ran(Faults().on_tool("look", "crash", call=1), wrong, LOOK, "done", tools=tools)

    assert [r.error for r in result.failures] == ["invalid_arguments", "tool_crashed"]


def test_of_calls_side_by_side_the_one_that_was_meant_fails(tools: ToolRegistry) -> None:
    reads = [ToolCall(f"c{n}", "read", f'{{"path": "{n}"}}') for n in range(5)]
    result = ran(Faults().on_tool("read", crash(), call=3), reads, "done", tools=tools)

    assert {r.call_id: r.error for r in of(ToolReturned, result.events)} == {
        "c0": None, "c1": None, "c2": "tool_crashed", "c3": None, "c4": None,
    }  # fmt: skip


def test_records_are_counted_over_all_or_by_their_kind(tools: ToolRegistry) -> None:
    for faults in (Faults().at_append(3, write_error()), Faults().on_record(ToolReturned, write_error())):
        with pytest.raises(JournalError, match="I/O error"):
            ran(faults, LOOK, "done", tools=tools)
        assert list(map(str, faults.struck)) == ["write_error() at record 3 (ToolReturned)"]


def test_by_chance_means_the_same_chance_for_the_same_seed(tools: ToolRegistry) -> None:
    def story(seed: int) -> list[str]:
        faults = Faults(seed=seed).sometimes(0.3, "overloaded", "crash", "tool_error", at_most=4)
        turns = [ToolCall(f"c{n}", "look", f'{{"at": "{n}"}}') for n in range(8)]
        ran(faults, *turns, "done", tools=tools)
        return list(map(str, faults.struck))

    assert story(1) == story(1)
    assert len({tuple(story(seed)) for seed in range(5)}) > 1
    assert all(len(story(seed)) <= 4 for seed in range(5))


def test_chance_without_an_end_and_a_model_that_is_asked_outside_of_a_run() -> None:
    async def ask(llm: object) -> list[str]:
        found = []
        for _ in range(5):
            try:
                found.append((await llm.reply(Request(transcript), lambda _: None)).text)
            except ProviderError as error:
                found.append(error.kind)
        return found

    transcript = Transcript()
    transcript.apply(RunStarted("q"))
    always, second = Faults().sometimes(1.0, "overloaded"), Faults().at_step(2, "auth")

    assert run_virtual(ask(always.llm(ScriptedLLM()))) == ["overloaded"] * 5
    assert run_virtual(ask(second.llm(ScriptedLLM("a", "b", "c", "d")))) == ["a", "auth", "b", "c", "d"]


def test_a_fault_that_was_placed_and_never_struck_is_named() -> None:
    faults = Faults().at_step(2, auth()).on_tool("look", crash(), call=2).on_record(RunEnded, disk_full(), nth=2)
    faults.on_tool("pay", crash(), call=None)

    run_virtual(faults.agent(Agent(ScriptedLLM("done"))).run("q"))

    with pytest.raises(AssertionError) as caught:
        faults.assert_struck()
    assert str(caught.value) == (
        "never struck: auth() at step 2, crash() at look, call 2, disk_full() at RunEnded 2; what did: none"
    )


def test_a_reply_without_calls_cannot_be_spoiled_and_counts_as_missed() -> None:
    faults = Faults().at_step(1, wrong_type())

    result = run_virtual(faults.agent(Agent(ScriptedLLM("done"))).run("q"))

    assert result.answer == "done"
    assert faults.struck == []
    with pytest.raises(AssertionError, match=r"never struck: wrong_type\(\) at step 1"):
        faults.assert_struck()


def test_after_calm_nothing_goes_wrong_any_more() -> None:
    faults = Faults().from_step(1, auth()).sometimes(1.0, "auth")
    faults.calm()

    assert run_virtual(faults.agent(Agent(ScriptedLLM("done"))).run("q")).answer == "done"


@pytest.mark.parametrize(
    ("place", "says"),
    [
        (lambda f: f.at_step(0, auth()), "step is counted from 1, got 0"),
        (lambda f: f.at_step(1, auth(), times=0), "times is counted from 1"),
        (lambda f: f.on_tool("t", crash(), call=0), "call is counted from 1"),
        (lambda f: f.on_tool("t", auth()), r"auth\(\) cannot strike a call of a tool, only a request to the model"),
        (lambda f: f.at_step(1, disk_full()), "only a record that is written"),
        (lambda f: f.at_open(1, disk_full()), "cannot strike a run that is opened"),
        (lambda f: f.at_append(1, denied()), "only a question to a person"),
        (lambda f: f.at_step(1, "overlaoded"), "there is no fault 'overlaoded'; did you mean overloaded"),
        (lambda f: f.at_step(1, "zzz"), "there is no fault 'zzz'$"),
        (lambda f: f.sometimes(1.5, "auth"), "a probability between 0 and 1"),
        (lambda f: f.sometimes(0.5), "a probability between 0 and 1"),
        (lambda _: cut_stream("nowhere"), "one of 'the headers', 'half a text'"),
    ],
)
def test_what_cannot_be_placed_says_why(place, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        place(Faults())


# --- around an agent ------------------------------------------------------------------------------


def test_they_sit_below_whatever_is_around_the_model() -> None:
    class Seen:
        def __init__(self, llm: object) -> None:
            self.llm = llm
            self.asked = 0

        async def reply(self, request: object, emit: object) -> ModelReplied:
            self.asked += 1
            return await self.llm.reply(request, emit)

    seen = Seen(ScriptedLLM("never used", model="m"))
    agent = Agent(seen, prices=PriceTable({"m": Price(1.0, 1.0)}), retry=RetryPolicy(attempts=3))
    faults = Faults().at_step(1, overloaded())

    result = run_virtual(
        faults.agent(agent, llm=ScriptedLLM(ModelReplied("done", usage=Usage(1, 1), model="m"))).run("q")
    )

    assert (result.answer, result.cost is not None) == ("done", True)
    assert [r.kind for r in of(ModelReplied, result.events)[0].retries] == ["overloaded"]
    assert seen.asked == 0, "the agent that was given is left alone"


def test_without_a_fault_it_is_the_same_run(tools: ToolRegistry) -> None:
    plain = run_virtual(Agent(ScriptedLLM(LOOK, PAY, "done"), tools).run("q", run_id="r"))

    assert ran(Faults(), LOOK, PAY, "done", tools=tools).events == plain.events


def test_a_list_of_functions_and_a_port_of_ones_own_can_have_faults() -> None:
    def shout(text: str) -> str:
        """Shout."""
        return text.upper()

    class Port:
        """Somebody's own tools, which are no registry."""

        def __init__(self) -> None:
            self.inner = ToolRegistry([shout])

        def __getattr__(self, name: str):
            return getattr(self.inner, name)

        async def run(self, call: ToolCall, **given: object):
            return await self.inner.run(call)

    call = [ToolCall(f"c{n}", "shout", '{"text": "a"}') for n in range(4)]
    for tools in ([shout], Port()):
        faults = Faults().on_tool("shout", crash(), call=2).on_tool("shout", returns("b"), call=3)
        faults.on_tool("shout", clock_jump(5), call=4)
        agent = Agent(faults.llm(ScriptedLLM([*call, ToolCall("c9", "shout", "{}")], "done")), faults.tools(tools))

        result = run_virtual(agent.run("q"))

        faults.assert_struck()
        results = of(ToolReturned, result.events)
        assert [r.error for r in results] == [None, "tool_crashed", None, None, "invalid_arguments"]
        assert [r.content for r in results if r.error is None] == ["A", "b", "A"]


def test_a_port_of_ones_own_keeps_what_it_says_about_its_tools(tools: ToolRegistry) -> None:
    class Port:
        def __getattr__(self, name: str):
            return getattr(tools, name)

    wrapped = Faults().tools(Port())
    publish = ToolCall("c", "publish", '{"text": "x"}')

    assert wrapped.specs() == tools.specs()
    assert [wrapped.effect(name) for name in ("look", "pay", "nobody")] == ["read", "once", None]
    assert wrapped.needs_approval(publish)
    assert not wrapped.polls("look")
    assert wrapped.fingerprint(publish) == tools.fingerprint(publish)
    assert run_virtual(wrapped.probe(PAY)) is None


def test_a_registry_keeps_its_policy_and_its_limits() -> None:
    @tool(max_calls=1)
    async def ask(text: str) -> str:
        """Ask."""
        return text

    registry = ToolRegistry([ask], approve="effects", scope="here")
    twin = Faults().tools(registry)
    call = ToolCall("c", "ask", '{"text": "a"}')

    assert twin.needs_approval(call)
    assert twin.fingerprint(call) == registry.fingerprint(call)
    assert Agent(ScriptedLLM(), twin).limits.per_tool == {"ask": 1}


def test_wrappers_answer_for_what_they_wrap() -> None:
    faults = Faults()
    llm = faults.llm(OpenAIChat("m", "http://127.0.0.1:1/v1", "k"))
    journal = faults.journal(MemoryJournal())

    assert (llm.model, copy.copy(llm).origin) == ("m", "chat:http://127.0.0.1:1")
    assert copy.copy(journal).events is not None
    assert journal.runs() == []
    assert not hasattr(llm, "nothing")
    assert not hasattr(journal, "nothing")


# --- what tools do --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["look", "read"])
def test_whatever_a_tool_does_the_real_harness_makes_a_result_of_it(tools: ToolRegistry, name: str) -> None:
    def call(n: int) -> ToolCall:
        return ToolCall(f"c{n}", name, '{"at": "x"}' if name == "look" else '{"path": "x"}')

    faults = Faults()
    faults.on_tool(name, crash(ZeroDivisionError), call=1)
    faults.on_tool(name, crash(ValueError("secret"), first=True), call=2)
    faults.on_tool(name, tool_error("out_of_stock", "none left", "try tomorrow", shop="x"), call=3)
    faults.on_tool(name, returns({"n": 1}), call=4)
    faults.on_tool(name, returns_too_much(100_000), call=5)
    faults.on_tool(name, clock_jump(10), call=6)

    result = ran(faults, *map(call, range(6)), "done", tools=tools, limits=Limits(repeats=99))

    results = of(ToolReturned, result.events)
    assert [r.error for r in results] == ["tool_crashed", "tool_crashed", "out_of_stock", None, None, None]
    assert "ZeroDivisionError" in results[0].content
    assert "secret" not in repr(result.events)
    assert '"shop":"x"' in results[2].content.replace(" ", "")
    assert results[3].content.replace(" ", "") == '{"n":1}'
    assert len(results[4].content) < 40_000
    assert results[5].content in ("at x", "in x")


def test_a_tool_that_hangs_runs_into_its_limit(tools: ToolRegistry) -> None:
    result = ran(Faults().on_tool("look", hang()).on_tool("look", slow(3), call=2), LOOK, LOOK, "done", tools=tools)

    assert [r.error for r in of(ToolReturned, result.events)] == ["timed_out", None]


def test_a_plain_function_that_hangs_lets_go_of_its_thread_when_it_is_released(tools: ToolRegistry) -> None:
    faults = Faults().on_tool("read", hang())
    agent = faults.agent(Agent(ScriptedLLM(ToolCall("c", "read", '{"path": "x"}'), "done"), tools))

    result = run_virtual(agent.run("q"), thread_patience=0.05)
    faults.release()

    assert [r.error for r in result.failures] == ["timed_out"]
    assert "may still be running" in result.failures[0].content


# --- what a person, a journal and a clock do ------------------------------------------------------


async def agree(shown: object) -> ApprovalDecided:
    return ApprovalDecided("", allowed=True)


@pytest.mark.parametrize(("given", "word"), [(denied("not on a Friday"), "not on a Friday"), (expired(), "expired")])
def test_a_person_can_say_no_or_say_yes_too_late(tools: ToolRegistry, given, word: str) -> None:
    publish = ToolCall("c", "publish", '{"text": "x"}')
    result = ran(Faults().at_review(1, given), publish, "done", tools=tools, reviewer=agree)

    assert [r.error for r in result.failures] == ["denied"]
    assert word in result.failures[0].content


def test_a_person_who_cannot_be_reached_leaves_the_call_waiting(tools: ToolRegistry) -> None:
    publish = ToolCall("c", "publish", '{"text": "x"}')
    result = ran(Faults().at_review(1, crash()), publish, tools=tools, reviewer=agree)

    assert result.reason == "waiting"


def test_a_decision_goes_through_to_the_journal(tools: ToolRegistry) -> None:
    async def main() -> list[str]:
        faults = Faults().at_append(8, "slow")
        agent = faults.agent(Agent(ScriptedLLM(ToolCall("c", "publish", '{"text": "x"}'), "done"), tools))
        waiting = await agent.run("q", run_id="r")
        await agent.journal.decide("r", waiting.waiting[0].call.id, allow=True)
        result = await agent.resume("r")
        faults.assert_struck()
        return [waiting.reason, result.answer]

    assert run_virtual(main()) == ["waiting", "done"]


@pytest.mark.parametrize("name", ["busy", "damaged", "poisoned"])
def test_a_run_that_cannot_be_opened_is_a_typed_error(name: str) -> None:
    faults = Faults().at_open(1, name)
    agent = faults.agent(Agent(ScriptedLLM("done")))

    with pytest.raises(JournalError) as caught:
        run_virtual(agent.run("q", run_id="r"))
    assert caught.value.kind in ("run_busy", "journal_damaged", "poisoned")
    assert run_virtual(agent.run("q", run_id="r")).answer == "done"


@pytest.mark.parametrize("name", ["write_error", "disk_full", "fenced"])
def test_nothing_happens_that_is_not_on_record(tools: ToolRegistry, paid: list[int], name: str) -> None:
    faults = Faults().on_record(IntentRecorded, name)

    with pytest.raises(JournalError):
        ran(faults, PAY, "done", tools=tools)
    assert paid == []


def test_a_clock_that_is_set_moves_on_by_itself_afterwards() -> None:
    faults = Faults().at_step(1, clock_jump(-3600))
    before = faults.clock.now()

    ran(faults, Turn("done", seconds=5))

    assert before - 3600 <= faults.clock.now() <= before - 3590


# --- a cancel and a death -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place",
    [
        lambda f: f.at_step(1, cancel()),
        lambda f: f.at_step(2, cancel()),
        lambda f: f.on_tool("look", cancel()),
        lambda f: f.at_append(2, cancel()),
        lambda f: f.at_append(3, cancel()),
    ],
)
def test_a_cancel_anywhere_leaves_a_run_that_can_be_resumed(tools: ToolRegistry, place) -> None:
    async def main() -> None:
        faults = place(Faults())
        agent = faults.agent(Agent(ScriptedLLM(*[Turn(LOOK, seconds=1), Turn("done", seconds=1)] * 2), tools))
        with pytest.raises(asyncio.CancelledError):
            await faults.drive(agent.run("q", run_id="r"))
        faults.assert_struck()
        assert of(RunInterrupted, agent.journal.events("r"))[-1].kind == "cancelled"
        await faults.drive(agent.resume("r"))
        assert check(agent.journal.events("r")) == []

    run_virtual(main())


def test_a_cancel_needs_to_know_the_run() -> None:
    agent = Faults().at_step(1, cancel()).agent(Agent(ScriptedLLM("done")))

    with pytest.raises(UsageError, match=r"await faults.drive\(agent.run"):
        run_virtual(agent.run("q"))


@pytest.mark.parametrize(
    ("place", "told", "times"),
    [
        (lambda f: f.on_tool("pay", die()), "outcome_unknown", 0),
        (lambda f: f.on_tool("pay", die(first=True)), "outcome_unknown", 1),
        (lambda f: f.on_record(IntentRecorded, die()), None, 1),
        (lambda f: f.on_record(IntentRecorded, die(first=True)), "outcome_unknown", 0),
        (lambda f: f.on_record(ToolReturned, die()), "outcome_unknown", 1),
        (lambda f: f.on_record(ToolReturned, die(first=True)), None, 1),
        (lambda f: f.at_step(2, die()), None, 1),
        (lambda f: f.on_record(RunEnded, die()), None, 1),
    ],
)
def test_killed_at_any_moment_an_effect_happens_once_at_most(
    tools: ToolRegistry, paid: list[int], place, told: str | None, times: int
) -> None:
    def say(sent: Sent) -> bool:
        return any(isinstance(message, ToolMessage) for message in sent.messages)

    faults = place(Faults())
    journal = faults.journal(MemoryJournal())
    turns = ScriptedLLM(PAY, Turn("done", expects=say), "done")
    agent = Agent(faults.llm(turns), faults.tools(tools), journal=journal)

    with pytest.raises(ProcessDied):
        run_virtual(agent.run("q", run_id="r"))
    faults.assert_struck()
    result = run_virtual(agent.resume("r"))

    assert [r.error for r in of(ToolReturned, result.events)] == [told]
    assert len(paid) == times
    assert check(result.events, effects={"pay": "once"}) == []


def test_a_process_that_died_writes_nothing_more(tools: ToolRegistry) -> None:
    faults = Faults().on_tool("look", die(), call=2)
    agent = faults.agent(Agent(ScriptedLLM([LOOK, LOOK, LOOK, LOOK], "done"), tools))

    with pytest.raises(ProcessDied):
        run_virtual(agent.run("q", run_id="r"))
    assert len(of(ToolReturned, agent.journal.events("r"))) <= 1
    assert run_virtual(agent.resume("r")).answer == "done"


def test_a_death_needs_a_journal_to_be_kept_from() -> None:
    faults = Faults().at_step(1, die())

    with pytest.raises(UsageError, match="die\\(\\) needs the journal"):
        run_virtual(Agent(faults.llm(ScriptedLLM("done"))).run("q"))


# --- the port and the wire ------------------------------------------------------------------------


def say(asked: Asked) -> ModelReplied:
    """A model that looks once, and again when that failed."""
    if not asked.may_call:
        return ModelReplied("in short")
    if asked.last["role"] == "tool" and not asked.results()[-1].startswith('{"error"'):
        return ModelReplied("done and dusted")
    return ModelReplied("Let me look.", (LOOK, ToolCall("c9", "look", '{"at": "a"}')), "tool_calls")


class Port:
    """The same model without a wire."""

    async def reply(self, request, emit) -> ModelReplied:
        emit(TextDelta("Let "))
        asked = [
            {"role": "tool", "content": m.content} if isinstance(m, ToolMessage) else {"role": "other"}
            for m in request.transcript.messages
        ]
        return say(Asked(tuple(asked), ("look",), request.may_call))


def story(events: object, error: FatalError | None) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for event in events:
        match event:
            case ModelReplied():
                found += sorted({("retried", retry.kind) for retry in event.retries})
            case ToolReturned():
                found.append(("result", event.call_id, event.error))
            case LimitReached() | Reminded():
                found.append((type(event).__name__,))
            case RunEnded():
                found.append(("end", event.reason, event.answer))
    return [*found, *([(error.kind,)] if error else [])]


async def through(faults: Faults, llm: object, tools: ToolRegistry) -> list[tuple[str, ...]]:
    journal, error = MemoryJournal(), None
    try:
        await Agent(llm, tools, journal=journal).run("q", run_id="r")
    except FatalError as raised:
        error = raised
    assert check(journal.events("r")) == []
    return story(journal.events("r"), error)


WIRE_ALONE = {"drip", "close_after", "reset_on_reuse"}
PORT_ALONE = {"name_not_found", "tls_error"}
ELSEWHERE = {"cancel", "die", "hang", "slow", "clock_jump"}
ON_A_STEP = [
    name for name in INJECTORS if "model" in fault(name).points and name not in WIRE_ALONE | PORT_ALONE | ELSEWHERE
]


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("name", ON_A_STEP)
def test_a_fault_comes_to_the_same_at_the_port_and_on_the_wire(tools: ToolRegistry, name: str, step: int) -> None:
    async def on_the_wire() -> tuple[list, list]:
        faults = Faults().at_step(step, name)
        async with faults.server(say) as server:
            found = await through(faults, OpenAIChat("m", f"{server.url}/v1", "sk-0123456789abcdef"), tools)
        return found, faults.struck

    async def at_the_port() -> tuple[list, list]:
        faults = Faults().at_step(step, name)
        return await through(faults, faults.llm(Port()), tools), faults.struck

    assert run_virtual(on_the_wire(), socket_patience=0.005) == run_virtual(at_the_port())


@pytest.mark.parametrize("name", sorted(WIRE_ALONE))
def test_what_a_good_client_does_not_notice_can_only_be_done_on_the_wire(tools: ToolRegistry, name: str) -> None:
    async def on_the_wire() -> list:
        faults = Faults().at_step(1, name)
        async with faults.server(say) as server:
            return await through(faults, OpenAIChat("m", f"{server.url}/v1"), tools)

    assert run_virtual(on_the_wire(), socket_patience=0.005)[-1] == ("end", "answered", "done and dusted")
    with pytest.raises(UsageError, match="a fault of the wire alone"):
        ran(Faults().at_step(1, name), "done")


@pytest.mark.parametrize("name", sorted(PORT_ALONE))
def test_what_keeps_a_client_from_connecting_is_retried(name: str) -> None:
    result = ran(Faults().at_step(1, name), "done")

    assert [r.kind for r in of(ModelReplied, result.events)[0].retries] == ["connection"]


def test_a_server_can_also_be_silent_or_slow_set_the_clock_and_cancel(tools: ToolRegistry) -> None:
    async def main() -> list[object]:
        faults = Faults().at_step(1, hang(), clock_jump(7)).at_step(2, cancel()).at_step(3, slow(20))
        began = faults.clock.now()
        async with faults.server(say) as server:
            agent = Agent(OpenAIChat("m", f"{server.url}/v1"), tools, limits=Limits(seconds=None))
            with pytest.raises(asyncio.CancelledError):
                await faults.drive(agent.run("q", run_id="r"))
            result = await agent.run("q", run_id="r")
            assert result.answer == "done and dusted"
            result = await agent.run("once more", run_id="s")
        faults.assert_struck()
        return [result.answer, faults.clock.now() - began]

    answer, seconds = run_virtual(main(), socket_patience=0.005)

    assert answer == "done and dusted"
    assert 327 <= seconds < 330, "the client's patience, the wait, and the clock that was set"


def test_pieces_of_a_stream_that_breaks_are_shown_and_taken_back() -> None:
    seen: list[object] = []
    ran(Faults().at_step(1, cut_stream()), "done", on_event=seen.append)

    assert [s.text for s in of(TextDelta, seen)] == ["Let me ", "look at", "done"]
    assert len(of(Restarted, seen)) == 1


@pytest.mark.parametrize("after", ["the headers", "half a text", "half a call", "the last word"])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("stream", [True, False])
def test_a_stream_can_be_cut_anywhere(tools: ToolRegistry, after, step: int, stream: bool) -> None:
    async def main() -> list:
        faults = Faults().at_step(step, cut_stream(after))
        async with faults.server(say) as server:
            found = await through(faults, OpenAIChat("m", f"{server.url}/v1", stream=stream), tools)
        faults.assert_struck()
        return found

    found = run_virtual(main(), socket_patience=0.005)

    assert ("retried", "protocol") in found
    assert found[-1] == ("end", "answered", "done and dusted")


def test_a_server_knows_a_step_without_its_key_and_counts_what_was_paid_for() -> None:
    def priced(asked: Asked) -> ModelReplied:
        return ModelReplied(f"step {asked.step}", usage=Usage(100, asked.step))

    async def main() -> tuple[list[str], int]:
        import httpx2

        wire = WireModel(priced, Faults().at_step(1, overloaded()))
        async with wire.server() as server, httpx2.AsyncClient() as client:
            bodies = [{"messages": [{"role": "user", "content": word}]} for word in ("a", "a", "b", "a")]
            replies = [await client.post(f"{server.url}/v1/chat/completions", json=body) for body in bodies]
        return [
            r.json()["choices"][0]["message"]["content"] if r.is_success else str(r.status_code) for r in replies
        ], wire.billed

    assert run_virtual(main(), socket_patience=0.005) == (["529", "step 1", "step 2", "step 1"], 304)


def test_a_last_word_is_not_spoiled_by_a_model_that_repeats_itself(tools: ToolRegistry) -> None:
    turns = [LOOK, "I would answer", "or now", "in short"]

    result = ran(Faults().from_step(1, same_call()), *turns, tools=tools)

    assert (result.reason, result.answer) == ("repeated call", "in short")

    async def main() -> list:
        faults = Faults().from_step(1, same_call())
        async with faults.server(say) as server:
            return await through(faults, OpenAIChat("m", f"{server.url}/v1"), tools)

    assert run_virtual(main(), socket_patience=0.005)[-1] == ("end", "repeated call", "in short")


# --- spoiled replies ------------------------------------------------------------------------------


def spoiled(given, *calls: ToolCall, text: str = "") -> ModelReplied | None:
    return given.change(ModelReplied(text, calls or (LOOK,), "tool_calls"))


@pytest.mark.parametrize(
    ("given", "call", "expected"),
    [
        (bad_json(), LOOK, '{"at": "here'),
        (bad_json(), ToolCall("c", "look", "{}"), '{"path": "agent.p'),
        (wrong_type(), LOOK, '{"at": ["twelve"]}'),
        (wrong_type(), ToolCall("c", "look", '{"at": ["a"]}'), '{"at": 12}'),
        (arguments("[]"), LOOK, "[]"),
        (argument("at", "there"), LOOK, '{"at": "there"}'),
        (unknown_tool("loook"), LOOK, '{"at": "here"}'),
        (cut_by_length(), LOOK, '{"at": '),
        (cut_by_length(whole=True), LOOK, '{"at": "here"}'),
    ],
)
def test_arguments_are_spoiled_as_models_spoil_them(given, call: ToolCall, expected: str) -> None:
    assert spoiled(given, call).calls[0].arguments == expected


@pytest.mark.parametrize("given", [wrong_type(), argument("path", "x"), fault("missing_field")])
@pytest.mark.parametrize("call", ["{", "[]", "{}"])
def test_arguments_that_cannot_be_spoiled_are_left_alone(given, call: str) -> None:
    assert spoiled(given, ToolCall("c", "look", call)) is None


def test_calls_can_be_replaced_and_multiplied() -> None:
    assert spoiled(asks_for(PAY)).calls == (PAY,)
    assert [c.id for c in spoiled(more_calls(2), LOOK, PAY).calls] == ["c1_0", "c2_0", "c1_1", "c2_1"]
    assert [c.id for c in spoiled(fault("duplicate_ids"), LOOK, PAY).calls] == ["c1", "c1"]
    assert spoiled(fault("call_as_text")).calls == ()


def test_a_status_stands_in_the_row_of_its_kind() -> None:
    rows = {code: http_status(code).failure for code in (408, 503, 529, 401, 404, 402, 422)}

    assert len(set(rows.values())) == 6
    assert set(rows.values()) <= {row.id for row in CATALOGUE}


# --- the catalogue --------------------------------------------------------------------------------


def test_every_row_of_the_failure_table_has_an_injector_and_each_names_a_row() -> None:
    rows = {fault(name).failure for name in INJECTORS} - {""}

    assert rows == {row.id for row in CATALOGUE}


def test_every_layer_has_injectors_and_time_has_one_too() -> None:
    assert set(layers()) == {*get_args(Layer), "clock"}
    assert sum(map(len, layers().values())) == len(INJECTORS)


def test_every_fault_of_the_fault_server_can_be_injected_by_its_name() -> None:
    tls = {"tls_alert", "tls_plain_http"}  # of https alone; `tls_error` is what a client makes of them
    doubled = {"duplicated_chunks"}  # a text that is there twice, which no client can tell

    assert set(FAULTS) - set(INJECTORS) <= tls | doubled


def test_every_kind_of_error_a_provider_can_have_is_injected_at_the_port() -> None:
    errors = [fault(name).error for name in INJECTORS if fault(name).layer in ("transport", "protocol")]
    kinds = {error().kind for error in errors if error}

    assert kinds == set(get_args(ProviderKind))


def test_every_kind_of_tool_error_can_be_injected_at_the_tool(tools: ToolRegistry) -> None:
    for kind in TOOL_ERROR_KINDS:
        result = ran(Faults().on_tool("look", tool_error(kind)), LOOK, "done", tools=tools)

        assert [r.error for r in result.failures] == [kind]


def test_the_names_of_faults_are_those_of_their_factories() -> None:
    for name in INJECTORS:
        given = fault(name)

        assert given.points, name
        assert str(given).endswith("()"), name


def test_a_fault_takes_the_options_of_its_factory() -> None:
    assert fault("rate_limit", retry_after=7).error().retry_after == 7
    assert fault("context_length", window=100).error().window == 100
    with pytest.raises(ToolError, match="gone"):
        raise fault("tool_error", kind="gone", message="gone").error()


def test_a_history_never_sees_a_fault(tools: ToolRegistry) -> None:
    result = ran(Faults().at_step(1, cut_stream()).at_step(2, "empty_reply"), LOOK, "done", tools=tools)

    assert "Let me" not in repr(result.events)
    assert AssistantMessage("done")
