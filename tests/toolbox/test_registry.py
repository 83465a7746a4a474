"""One call, whatever becomes of it, is one result."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tool_loop.errors import TOOL_ERROR_KINDS, ToolError, UsageError
from tool_loop.events import ToolCall, ToolProgress, ToolReturned
from tool_loop.runtime import shield
from tool_loop.runtime.clock import run_virtual
from tool_loop.runtime.threads import run_in_thread
from tool_loop.toolbox import call as _call
from tool_loop.toolbox.registry import NotRun, Tool, ToolContext, ToolRegistry, tool

SRC = str(Path(__file__).parents[2] / "src")
NO_FIELDS: dict[str, Any] = {"type": "object", "properties": {}}


def hand(func: Any, name: str = "hand", properties: dict[str, Any] | None = None, **options: Any) -> Tool:
    return Tool(name, "By hand.", {"type": "object", "properties": properties or {}}, func, **options)


def run(func: Any, arguments: str = "{}", *, patience: float = 20.0, **options: Any) -> ToolReturned:
    """One call of one tool, on virtual time. A thread that works longer than `patience` counts as hung."""
    made = func if isinstance(func, Tool) else hand(func)
    registry = ToolRegistry([made])
    return run_virtual(registry.run(ToolCall("c1", made.name, arguments), **options), thread_patience=patience)


def told(result: ToolReturned) -> dict[str, Any]:
    """The failure a model reads; it is JSON, and its kind is the result's."""
    content = json.loads(result.content)
    assert content["error"] == result.error
    return content


def raiser(error: BaseException) -> Any:
    def fail() -> None:
        raise error

    return fail


def async_raiser(error: BaseException) -> Any:
    async def fail() -> None:
        raise error

    return fail


def python(code: str) -> str:
    """What a fresh process prints, errors included."""
    env = os.environ | {"PYTHONPATH": SRC}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False, env=env)
    return done.stdout + done.stderr


# --- the plain case -------------------------------------------------------------------------------


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="read", name="minus", description="Subtract.", polling=True, untrusted=True, max_calls=3)
async def subtract(a: int, b: int = 1) -> int:
    """Not shown."""
    return a - b


def test_a_decorated_function_is_a_tool_and_still_a_function():
    assert isinstance(add, Tool)
    assert add(1, b=2) == 3
    assert asyncio.run(subtract(3)) == 2


def test_plain_and_async_functions_are_called_with_the_arguments_by_name():
    registry = ToolRegistry([add, subtract])

    async def main() -> list[ToolReturned]:
        return [
            await registry.run(ToolCall("x", "add", '{"a": 2}')),
            await registry.run(ToolCall("y", "minus", '{"b": 2, "a": 5}')),
        ]

    plain, asynchronous = asyncio.run(main())

    assert (plain.call_id, plain.content, plain.error, plain.untrusted) == ("x", "3", None, False)
    assert (asynchronous.call_id, asynchronous.content, asynchronous.untrusted) == ("y", "3", True)


def test_options_are_carried():
    assert (subtract.name, subtract.description, subtract.effect) == ("minus", "Subtract.", "read")
    assert (subtract.polling, subtract.max_calls, add.timeout_seconds, add.effect) == (True, 3, 60.0, None)


def test_a_registry_knows_its_tools_in_the_order_they_were_given():
    registry = ToolRegistry([subtract, add, hand(print)])

    assert registry.names == ("minus", "add", "hand")
    assert [spec.name for spec in registry.specs()] == ["minus", "add", "hand"]
    assert registry.specs() is registry.specs()
    assert [made.name for made in registry] == ["minus", "add", "hand"]
    assert len(registry) == 3
    assert "add" in registry
    assert "nope" not in registry
    assert registry.get("add") is add
    assert registry.get("nope") is None
    assert [registry.effect(name) for name in ("minus", "add", "nope")] == ["read", None, None]
    assert [registry.polls(name) for name in ("minus", "add", "nope")] == [True, False, False]


def test_schemas_are_a_copy():
    registry = ToolRegistry([add])
    registry.schemas()[0]["function"]["parameters"]["properties"].clear()

    assert set(registry.schemas()[0]["function"]["parameters"]["properties"]) == {"a", "b"}


def test_what_is_no_list_of_tools_is_refused():
    with pytest.raises(UsageError, match="takes a list of tools"):
        ToolRegistry(add)
    with pytest.raises(UsageError, match="two tools are called 'add'"):
        ToolRegistry([add, lambda: 1, add][::2])
    with pytest.raises(UsageError, match="made of a function, got 'a'"):
        ToolRegistry("add")
    with pytest.raises(UsageError, match="approve must be"):
        ToolRegistry([], approve="sometimes")
    with pytest.raises(UsageError, match="approve must be"):
        ToolRegistry([], approve=asyncio.sleep)


def test_a_method_is_a_tool_of_its_instance():
    class Account:
        def __init__(self, balance: int) -> None:
            self.balance = balance

        @tool(effect="once")
        def pay(self, amount: int, context: ToolContext) -> str:
            """Pay."""
            return f"{self.balance - amount} {context.call_id}"

        @pay.probe
        def paid(self, amount: int) -> str:
            return f"paid {amount} of {self.balance}"

        @tool
        def look(self) -> int:
            """Look."""
            return self.balance

    poor, rich = Account(1), Account(100)
    registry = ToolRegistry([poor.look, rich.pay])

    assert run(rich.pay, '{"amount": 40}').content == "60 c1"
    assert asyncio.run(registry.run(ToolCall("c", "look"))).content == "1"
    assert asyncio.run(registry.probe(ToolCall("c", "pay", '{"amount": 3}'))).content == "paid 3 of 100"
    assert poor.look() == 1
    with pytest.raises(UsageError, match="'pay' is a method; take it from an instance"):
        ToolRegistry([Account.pay])


def test_methods_callable_objects_and_closures_are_tools():
    class Adder:
        """Adds."""

        def __init__(self, n: int) -> None:
            self.n = n

        def plus(self, a: int) -> int:
            """Plus."""
            return self.n + a

        async def __call__(self, a: int) -> int:
            return self.n + a

    adder = Adder(2)
    registry = ToolRegistry([adder.plus, adder, hand(lambda: adder.n)])

    assert registry.names == ("plus", "Adder", "hand")
    assert registry.specs()[1].description == "Adds."
    assert run(tool(adder.plus), '{"a": 1}').content == "3"
    assert run(tool(adder), '{"a": 2}').content == "4"
    assert run(hand(lambda: adder.n)).content == "2"


def test_a_function_of_an_extension_module_is_a_tool():
    kept: list[Any] = []
    made = hand(kept.copy)

    assert made.func.__module__ is None
    assert ToolRegistry([made]).specs()[0].name == "hand"
    assert run(made).content == "[]"


def test_a_class_is_a_tool_that_makes_one():
    class Pair:
        """A pair."""

        def __init__(self, left: int) -> None:
            self.left = left

        def __str__(self) -> str:
            return f"<{self.left}>"

    assert run(tool(Pair), '{"left": 3}').content == '"<3>"'


# --- what cannot run ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("functions.add", "add"),
        ("tools/add", "add"),
        ("mcp:add", "add"),
        ("add<|channel|>commentary", "add"),
        ("ADD", "add"),
        ("minsu", "minus"),
        ("zzz", ""),
        ("", ""),
    ],
)
def test_an_unknown_tool_names_the_real_ones_and_the_nearest_and_runs_none(name, near):
    ran = []
    registry = ToolRegistry([hand(lambda: ran.append(1), "add"), subtract])
    result = asyncio.run(registry.run(ToolCall("c", name, "{}")))

    assert result.error == "unknown_tool"
    assert told(result)["tools"] == ["add", "minus"]
    assert told(result)["hint"] == (f"Did you mean '{near}'? " if near else "") + "The tools are: add, minus."
    assert registry.refuse(ToolCall("c", name, "{}")) == ToolReturned("c", result.content, "unknown_tool")
    assert not ran


def test_an_unknown_tool_among_none_and_among_many():
    none = told(asyncio.run(ToolRegistry().run(ToolCall("c", "x"))))
    many = told(asyncio.run(ToolRegistry([hand(print, f"t{i}") for i in range(60)]).run(ToolCall("c", "x" * 500))))

    assert none["hint"] == "There are no tools: answer without one."
    assert many["hint"].endswith("t49 and 10 more.")
    assert len(many["message"]) < 120


@pytest.mark.parametrize(
    ("arguments", "kind"), [('{"a": 1', "bad_json"), ('{"a": "1"}', "invalid_arguments"), ("", "invalid_arguments")]
)
def test_a_call_that_cannot_run_is_refused_in_the_same_words_and_never_runs(arguments, kind):
    ran = []

    def func(a: int) -> None:
        """Do it."""
        ran.append(a)

    registry = ToolRegistry([func])
    refused = registry.refuse(ToolCall("c", "func", arguments))
    result = asyncio.run(registry.run(ToolCall("c", "func", arguments)))

    assert refused.error == result.error == kind
    assert refused.content == result.content
    assert registry.refuse(ToolCall("c", "func", '{"a": 1}')) is None
    assert not ran


def test_a_schema_that_turns_out_broken_is_a_crash_and_is_logged(caplog):
    broken = hand(lambda a: a, properties={"a": {"type": "string", "pattern": "("}})
    result = run(broken, '{"a": "x"}')

    assert told(result)["exception"] == "UsageError"
    assert ToolRegistry([broken]).refuse(ToolCall("c", "hand", '{"a": "x"}')).error == "tool_crashed"
    assert "tool 'hand': the schema of its parameters is not valid" in caplog.text


def test_a_schema_that_turns_out_broken_is_found_before_the_first_request():
    registry = ToolRegistry([hand(lambda a: a, properties={"a": {"type": "string", "pattern": "("}})])

    with pytest.raises(UsageError, match="tool 'hand': the schema of its parameters is not valid"):
        registry.specs()


def test_the_tools_of_the_package_are_shown_without_loading_a_validator():
    code = (
        "import sys; from tool_loop import ToolRegistry, calculator, workspace_tools\n"
        "ToolRegistry([calculator, *workspace_tools('.')]).specs()\n"
        "print([m for m in ('pydantic', 'jsonschema_rs', 'httptools') if m in sys.modules])"
    )

    assert python(code) == "[]\n"


# --- what goes wrong while it runs ----------------------------------------------------------------


@pytest.mark.parametrize("make", [raiser, async_raiser])
def test_what_the_author_raises_is_told_word_for_word(make):
    error = ToolError("no such city", kind="not_found", hint="Try Berlin.", nearest=["Bern"], error="x", hint_="y")
    result = run(make(error))

    assert result.error == "not_found"
    assert told(result) == {
        "error": "not_found",
        "message": "no such city",
        "hint": "Try Berlin.",
        "nearest": ["Bern"],
        "hint_": "y",
    }


def test_an_error_without_kind_or_hint_is_told_too():
    assert told(run(raiser(ToolError("no")))) == {"error": "tool_failed", "message": "no"}
    assert run(raiser(ToolError("no", kind=""))).error == "tool_failed"


def test_a_field_of_an_error_that_cannot_be_shown_is_left_out():
    endless: list[Any] = []
    endless.append(endless)

    assert told(run(raiser(ToolError("no", hint="h", it=endless)))) == {
        "error": "tool_failed",
        "message": "no",
        "hint": "h",
    }


def test_a_long_error_stays_json():
    error = ToolError("x" * 50_000, hint="y" * 50_000, more="z" * 50_000)
    content = told(run(raiser(error)))

    assert "first 15,000 of 50,000" in content["message"]
    assert set(content) == {"error", "message", "hint"}
    assert len(content["hint"]) == 7_500


@pytest.mark.parametrize("make", [raiser, async_raiser])
@pytest.mark.parametrize(
    "error", [ValueError("secret"), SystemExit("secret"), StopIteration("secret"), RecursionError(), MemoryError()]
)
def test_a_crash_tells_its_type_and_not_its_text(make, error, caplog):
    result = run(make(error))

    assert result.error == "tool_crashed"
    assert "secret" not in result.content
    assert "Repeating this will not help" in told(result)["hint"]
    # Python turns a StopIteration that leaves a coroutine into a RuntimeError.
    assert told(result)["exception"] in (type(error).__name__, "RuntimeError")
    assert "tool hand crashed" in caplog.text


def test_an_interrupt_on_a_thread_is_a_crash_and_on_the_loop_is_an_interrupt():
    assert run(raiser(KeyboardInterrupt())).error == "tool_crashed"
    with pytest.raises(KeyboardInterrupt):
        run(async_raiser(KeyboardInterrupt()))


def test_a_crash_is_one_line_of_a_program_that_configures_no_logging_and_its_text_is_withheld():
    code = (
        "import asyncio; from tool_loop.toolbox.registry import *; from tool_loop.events import ToolCall\n"
        "r = ToolRegistry([Tool('t', 'd', {'type': 'object'}, lambda: 1 / 0)])\n"
        "print(asyncio.run(r.run(ToolCall('c', 't'))).error)"
    )

    said = python(code)

    assert "tool_crashed\n" in said
    assert said.count("tool_loop: tool t crashed: ZeroDivisionError") == 1
    assert "division by zero" not in said


def test_a_validator_that_crashes_is_a_crash():
    from pydantic import BaseModel, field_validator

    class Bad(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def check(cls, n: int) -> int:
            raise KeyError(n)

    def func(bad: Bad) -> None:
        """Do it."""

    registry = ToolRegistry([func])

    assert asyncio.run(registry.run(ToolCall("c", "func", '{"bad": {"n": 1}}'))).error == "tool_crashed"
    assert registry.refuse(ToolCall("c", "func", '{"bad": {"n": 1}}')).error == "tool_crashed"


def test_a_call_the_function_does_not_take_is_a_crash():
    result = run(hand(lambda: 1, properties={"a": {}}), '{"a": 1}')

    assert told(result)["exception"] == "TypeError"


@pytest.mark.parametrize("make", [raiser, async_raiser])
def test_a_tool_whose_own_wait_ran_out_may_be_tried_again(make):
    result = run(make(TimeoutError("secret")))

    assert result.error == "timed_out"
    assert "Try it once more" in told(result)["hint"]
    assert "secret" not in result.content


def test_a_tool_that_cancels_itself_has_crashed():
    async def quits() -> None:
        asyncio.current_task().cancel()
        await asyncio.sleep(1)

    assert told(run(quits))["exception"] == "CancelledError"
    assert told(run(async_raiser(asyncio.CancelledError())))["exception"] == "CancelledError"
    assert told(run(raiser(asyncio.CancelledError())))["exception"] == "CancelledError"


def test_a_result_that_cannot_be_shown_is_a_crash():
    class Mute:
        def __str__(self) -> str:
            raise SystemExit

    assert told(run(Mute))["exception"] == "SystemExit"
    endless: list[Any] = []
    endless.append(endless)
    assert run(lambda: endless).error == "tool_crashed"


def test_a_coroutine_that_a_plain_function_hands_out_is_awaited():
    async def later() -> str:
        await asyncio.sleep(1)
        return "done"

    async def fails() -> str:
        raise ToolError("no", kind="not_found")

    assert run(lambda *_: later()).content == "done"
    assert run(lambda *_: fails()).error == "not_found"
    assert run(hand(lambda *_: later(), timeout_seconds=0.5)).error == "timed_out"


# --- time -----------------------------------------------------------------------------------------


def test_a_coroutine_that_runs_too_long_is_stopped():
    ended = []

    async def slow() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(True)

    result = run(hand(slow, timeout_seconds=2))

    assert told(result)["message"] == "ran past its limit of 2 s and was stopped"
    assert told(result)["may_still_be_running"] is False
    assert result.seconds == 2
    assert ended


def test_a_deadline_before_the_tools_own_limit_counts():
    async def slow() -> None:
        await asyncio.sleep(3600)

    early = run(hand(slow, timeout_seconds=60), deadline=5.0)
    late = run(hand(slow, timeout_seconds=3), deadline=5.0)
    only = run(hand(slow, timeout_seconds=None), deadline=5.0)

    assert (early.seconds, late.seconds, only.seconds) == (5, 3, 5)
    assert "the deadline of the run" in told(early)["message"]
    assert "its limit of 3 s" in told(late)["message"]
    assert "the deadline of the run" in told(only)["message"]


def test_a_call_after_the_deadline_is_not_started():
    ran = []

    async def main() -> ToolReturned:
        await asyncio.sleep(10)
        return await ToolRegistry([hand(lambda: ran.append(1))]).run(ToolCall("c", "hand"), deadline=9.0)

    result = run_virtual(main())

    assert result.error == "timed_out"
    assert told(result)["message"] == "not started: the deadline of the run has passed"
    assert not ran


def test_without_a_limit_a_tool_may_take_its_time():
    async def slow() -> str:
        await asyncio.sleep(1e6)
        return "done"

    assert run(hand(slow, timeout_seconds=None)).content == "done"


def test_a_coroutine_that_ignores_its_cancellation_is_left_behind():
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                if asyncio.get_running_loop().time() > 100:
                    raise

    async def main() -> tuple[ToolReturned, int]:
        result = await ToolRegistry([hand(stubborn, timeout_seconds=2)]).run(ToolCall("c", "hand"))
        left = len(shield._left_behind)
        await asyncio.sleep(200)
        for task in list(shield._left_behind):
            task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return result, left

    result, left = run_virtual(main())

    assert told(result)["message"] == "ran past its limit of 2 s, could not be stopped, and may still be running"
    assert told(result)["may_still_be_running"] is True
    assert result.seconds == 2 + _call.GRACE_SECONDS
    assert left == 1
    assert not shield._left_behind


def test_a_result_that_comes_in_the_time_for_cleaning_up_is_kept():
    async def lands() -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "it has happened"
        return ""

    async def fails() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise ValueError from None

    assert run(hand(lands, timeout_seconds=1)).content == "it has happened"
    assert run(hand(fails, timeout_seconds=1)).error == "timed_out"


def test_a_thread_that_hangs_is_left_behind_and_the_result_says_so():
    release = threading.Event()
    try:
        result = run(hand(release.wait, timeout_seconds=2), patience=0.02)
    finally:
        release.set()

    assert told(result)["message"].endswith("may still be running")
    assert "check before you repeat it" in told(result)["hint"]
    assert result.seconds == 2


def test_plain_calls_run_at_the_same_time():
    together = threading.Barrier(8, timeout=20)  # nobody passes before all have arrived
    registry = ToolRegistry([hand(together.wait)])

    async def main() -> list[str]:
        results = await asyncio.gather(*(registry.run(ToolCall(str(i), "hand")) for i in range(8)))
        return sorted(result.content for result in results)

    assert asyncio.run(main()) == list("01234567")


# --- cancellation ---------------------------------------------------------------------------------


def test_a_cancel_from_outside_ends_the_coroutine_before_it_leaves():
    ended = []

    async def slow() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.1)
            ended.append(True)

    async def main() -> None:
        task = asyncio.create_task(ToolRegistry([hand(slow)]).run(ToolCall("c", "hand")))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(main())

    assert ended


def test_a_cancel_from_outside_does_not_wait_for_a_thread():
    release, started = threading.Event(), threading.Event()

    def slow() -> None:
        started.set()
        release.wait()

    async def main() -> None:
        task = asyncio.create_task(ToolRegistry([hand(slow)]).run(ToolCall("c", "hand")))
        await run_in_thread(started.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    try:
        asyncio.run(main())
    finally:
        release.set()


def test_a_cancel_at_any_turn_leaves_no_task_behind():
    async def steps() -> str:
        for _ in range(5):
            await asyncio.sleep(0)
        return "done"

    async def main(turns: int) -> str | None:
        task = asyncio.create_task(ToolRegistry([hand(steps)]).run(ToolCall("c", "hand")))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        try:
            result = await task
        except asyncio.CancelledError:
            result = None
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result and result.content

    assert [run_virtual(main(turns)) for turns in range(15)][::14] == [None, "done"]


# --- context --------------------------------------------------------------------------------------


def test_a_tool_that_asks_for_it_gets_its_call_its_key_and_a_voice():
    seen = []

    @tool
    async def pay(amount: int, context: ToolContext) -> str:
        """Pay."""
        context.progress("half")
        await asyncio.sleep(0)
        context.progress("most\ud800")
        return f"{context.call_id} {context.idempotency_key} {amount}"

    result = run(pay, '{"amount": 3}', key="k1", emit=seen.append)

    assert result.content == "c1 k1 3"
    assert seen == [ToolProgress("c1", "half"), ToolProgress("c1", "most\ufffd")]
    assert "context" not in json.dumps(ToolRegistry([pay]).schemas())


@pytest.mark.parametrize("annotation", ["ToolContext", "ToolContext | None", "only_for_the_type_checker.ToolContext"])
def test_a_hand_written_tool_gets_it_too(annotation):
    def func(a: int, about: Any = None) -> str:
        return f"{about.idempotency_key} {a}"

    func.__annotations__["about"] = annotation

    assert run(hand(func, properties={"a": {"type": "integer"}}), '{"a": 1}', key="k").content == "k 1"


def test_a_thread_speaks_through_the_loop():
    threads = []

    @tool
    def work(context: ToolContext | None = None) -> str:
        """Work."""
        context.progress("on my way")
        return "done"

    result = run(work, emit=lambda signal: threads.append((signal, threading.current_thread())))

    assert result.content == "done"
    assert threads == [(ToolProgress("c1", "on my way"), threading.main_thread())]


def test_what_a_tool_says_after_its_call_is_over_is_not_shown():
    seen, kept = [], []

    @tool(timeout_seconds=1)
    async def work(context: ToolContext) -> None:
        """Work."""
        kept.append(context)
        context.progress("in time")

    async def main() -> None:
        await ToolRegistry([work]).run(ToolCall("c", "work"), emit=seen.append)
        kept[0].progress("too late")
        await asyncio.sleep(0)

    run_virtual(main())
    kept[0].progress("much too late")

    assert seen == [ToolProgress("c", "in time")]


def test_an_authors_own_test_needs_no_run():
    context = ToolContext(idempotency_key="k")
    context.progress("ignored")

    assert (context.call_id, context.idempotency_key) == ("", "k")


# --- approval -------------------------------------------------------------------------------------


READ, ONCE, UNDECLARED = (
    hand(print, name, effect=effect) for name, effect in [("r", "read"), ("o", "once"), ("u", None)]
)


@pytest.mark.parametrize(
    ("policy", "asked"),
    [
        ("never", [False, False, False]),
        ("effects", [False, True, True]),
        ("always", [True, True, True]),
        (lambda call, made: made.effect == "once" and call.id == "c", [False, True, False]),
        (lambda call, made: 1 / 0, [True, True, True]),
    ],
)
def test_the_policy_says_which_calls_need_a_person(policy, asked):
    registry = ToolRegistry([READ, ONCE, UNDECLARED], approve=policy)

    assert [registry.needs_approval(ToolCall("c", name)) for name in "rou"] == asked
    assert registry.needs_approval(ToolCall("c", "nope")) is False


def test_the_tools_own_word_comes_before_the_policy():
    yes, no = hand(print, "yes", needs_approval=True), hand(print, "no", needs_approval=False)

    assert ToolRegistry([yes], approve="never").needs_approval(ToolCall("c", "yes"))
    assert not ToolRegistry([no], approve="always").needs_approval(ToolCall("c", "no"))


def test_a_function_of_the_arguments_sees_them_checked_and_complete():
    def limit(arguments: dict[str, Any]) -> bool:
        return arguments["amount"] > 10

    @tool(needs_approval=limit)
    def pay(amount: int = 50) -> None:
        """Pay."""

    registry = ToolRegistry([pay])

    assert registry.needs_approval(ToolCall("c", "pay", "{}"))
    assert not registry.needs_approval(ToolCall("c", "pay", '{"amount": 10}'))
    assert registry.needs_approval(ToolCall("c", "pay", "not json"))


def test_a_fingerprint_is_of_the_arguments_and_not_of_their_spelling():
    registry = ToolRegistry([add])
    same = registry.fingerprint(ToolCall("c", "add", '{"a": 1, "b": 2}'))

    assert len(same) == 64
    assert registry.fingerprint(ToolCall("other", "add", '{ "b":2,"a":1 }')) == same
    assert registry.fingerprint(ToolCall("c", "add", '{"a": 1, "b": 3}')) != same
    assert registry.fingerprint(ToolCall("c", "add", '{"a": 1, "b": "2"}')) != same
    assert registry.fingerprint(ToolCall("c", "add", "\ud800")) != same
    assert registry.fingerprint(ToolCall("c", "nope", '{"a": 1, "b": 2}')) != same


@pytest.mark.parametrize(
    "other",
    [
        ToolRegistry([hand(print)], scope="/elsewhere"),
        ToolRegistry([hand(print, scope="/elsewhere")], scope="/root"),
        ToolRegistry([hand(print)], scope="/root", approve="always"),
        ToolRegistry([hand(print, effect="read")], scope="/root"),
        ToolRegistry([hand(print, properties={"a": {}})], scope="/root"),
        ToolRegistry([Tool("hand", "Other words.", NO_FIELDS, print)], scope="/root"),
    ],
)
def test_a_fingerprint_is_of_the_tool_and_the_scope_too(other):
    call = ToolCall("c", "hand", '{"a": 1}')
    mine = ToolRegistry([hand(print)], scope="/root")

    assert mine.fingerprint(call) == ToolRegistry([hand(input)], scope="/root").fingerprint(call)
    assert other.fingerprint(call) != mine.fingerprint(call)


# --- probes ---------------------------------------------------------------------------------------


def probed(answer: Any, *, arguments: str = '{"amount": 3}', key: str = "k") -> ToolReturned | bool | None:
    made = hand(lambda amount: amount, "pay", {"amount": {"type": "integer"}}, untrusted=True, timeout_seconds=2)
    made.probe(answer)
    return run_virtual(ToolRegistry([made]).probe(ToolCall("c", "pay", arguments), key=key), thread_patience=20.0)


def test_a_probe_tells_the_result_that_nobody_saw():
    async def asynchronous(amount: int) -> dict[str, int]:
        return {"paid": amount}

    assert probed(lambda amount: f"paid {amount}") == ToolReturned("c", "paid 3", untrusted=True)
    assert probed(asynchronous) == ToolReturned("c", '{"paid":3}', untrusted=True)
    assert probed(lambda: True).content == "true"


@pytest.mark.parametrize("answer", [False, NotRun, NotRun()])
def test_a_probe_can_say_that_it_did_not_happen(answer):
    assert probed(lambda: answer) is False


def test_a_probe_that_cannot_tell_says_so():
    async def slow() -> None:
        await asyncio.sleep(3600)

    assert probed(lambda: None) is None
    assert probed(raiser(ToolError("no"))) is None
    assert probed(raiser(SystemExit())) is None
    assert probed(slow) is None
    assert probed(lambda: "x", arguments="not json") is None
    assert asyncio.run(ToolRegistry([add]).probe(ToolCall("c", "add", '{"a": 1}'))) is None
    assert asyncio.run(ToolRegistry([add]).probe(ToolCall("c", "nope"))) is None


def test_a_probe_takes_what_it_names():
    def by_key(idempotency_key: str, context: ToolContext) -> str:
        return f"{idempotency_key} {context.idempotency_key} {context.call_id}"

    assert probed(by_key).content == "k k c"
    assert probed(lambda **given: sorted(given)).content == '["amount","idempotency_key","mark"]'
    with pytest.raises(UsageError, match="probe of tool 'add': 'colour' is not an argument"):
        add.probe(lambda colour: None)
    with pytest.raises(UsageError, match="probe of tool 'hand': 'colour' is not an argument"):
        hand(print, probe_func=lambda colour: None)


def test_the_decorator_gives_the_probe_back():
    @tool(effect="once")
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    @pay.probe
    def was_paid(amount: int) -> str:
        return f"yes, {amount}"

    assert was_paid(1) == "yes, 1"
    assert pay.probe_func is was_paid


# --- cost -----------------------------------------------------------------------------------------


def test_importing_and_decorating_load_nothing_heavy():
    code = (
        "import sys, tool_loop.toolbox.registry as r\n"
        "@r.tool\n"
        "def f(a: int, c: r.ToolContext) -> str: 'doc'\n"
        "r.ToolRegistry([f, r.Tool('t', 'd', {'type': 'object'}, print)])\n"
        "print([m for m in ('pydantic', 'jsonschema_rs', 'httptools') if m in sys.modules])"
    )

    assert python(code) == "[]\n"


def test_a_call_of_a_hand_written_async_tool_passes_through_two_files_of_the_toolbox():
    async def work(a: str) -> str:
        return a

    registry = ToolRegistry([hand(work, properties={"a": {"type": "string"}})])
    files = set()

    def watch(frame: Any, event: str, arg: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(SRC):
            files.add(path.name)

    async def main() -> ToolReturned:
        sys.setprofile(watch)
        try:
            return await registry.run(ToolCall("c", "hand", '{"a": "x"}'))
        finally:
            sys.setprofile(None)

    assert asyncio.run(main()).content == "x"
    underneath = {"shield.py", "waiting.py", "strict.py"}  # what waits and what reads JSON is not the toolbox
    assert files == {"registry.py", "call.py"} | underneath


def test_every_kind_the_registry_produces_is_in_the_catalogue(caplog):
    caplog.set_level(logging.CRITICAL)
    kinds = {
        run(add, "not json").error,
        run(add, "{}").error,
        asyncio.run(ToolRegistry().run(ToolCall("c", "x"))).error,
        run(raiser(ValueError())).error,
        run(raiser(TimeoutError())).error,
        run(raiser(ToolError("x"))).error,
    }

    assert kinds == {"bad_json", "invalid_arguments", "unknown_tool", "tool_crashed", "timed_out", "tool_failed"}
    assert kinds <= TOOL_ERROR_KINDS.keys()
