"""What changes from run to run: data for its tools, limits, meta, the system prompt, which tools there are."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest

from tool_loop import Agent, Limits, MemoryJournal, ScriptedLLM, ToolCall, ToolContext, tool
from tool_loop.events import Notice, RunStarted, ToolReturned
from tool_loop.runtime.context import RunContext


@dataclass
class User:
    name: str
    admin: bool = False


@tool(effect="read")
async def whoami(ctx: ToolContext[User]) -> str:
    """Who asks."""
    await asyncio.sleep(0)
    return f"{ctx.deps.name} in {ctx.run_id}, call {ctx.call_id}"


@tool(effect="read")
def whoami_in_a_thread(ctx: ToolContext[User]) -> str:
    """Who asks."""
    return ctx.deps.name


def results(result: Any) -> list[str]:
    return [event.content for event in result.events if isinstance(event, ToolReturned)]


ASK = ToolCall("1", "whoami", "{}")


def test_a_tool_gets_the_data_of_its_run_and_knows_which_run_it_is_in() -> None:
    agent = Agent(ScriptedLLM([ASK, ToolCall("2", "whoami_in_a_thread", "{}")], "done"), [whoami, whoami_in_a_thread])

    assert sorted(results(agent.run_sync("?", run_id="r", deps=User("ann")))) == ["ann", "ann in r, call 1"]


def test_runs_side_by_side_never_see_each_others_data() -> None:
    names = [f"user{n}" for n in range(20)]
    agent = Agent(
        ScriptedLLM(*[lambda request: "done" if len(request.transcript.messages) > 1 else ASK] * 40), [whoami]
    )

    async def run() -> list[str]:
        each = await asyncio.gather(*(agent.run("?", run_id=name, deps=User(name)) for name in names))
        return [results(result)[0] for result in each]

    assert asyncio.run(run()) == [f"{name} in {name}, call 1" for name in names]


def test_the_data_is_never_on_record_and_is_given_again_to_a_resume() -> None:
    class Died(BaseException):
        pass

    journal = MemoryJournal()
    with pytest.raises(Died):
        Agent(ScriptedLLM(Died()), [whoami], journal=journal).run_sync("?", run_id="r", deps=User("topsecret"))
    resumed = asyncio.run(Agent(ScriptedLLM(ASK, "done"), [whoami], journal=journal).resume("r", deps=User("bob")))

    assert results(resumed) == ["bob in r, call 1"]
    assert "topsecret" not in repr(resumed.events)


def test_limits_and_meta_may_be_given_with_the_run() -> None:
    agent = Agent(ScriptedLLM(ASK, "last"), [whoami], limits=Limits(steps=9), meta={"app": "a", "user": "?"})

    result = agent.run_sync("?", deps=User("ann"), limits=Limits(steps=1), meta={"user": "ann"})

    assert result.reason == "step limit"
    began = result.events[0]
    assert isinstance(began, RunStarted)
    meta = json.loads(began.meta)
    assert (meta["app"], meta["user"]) == ("a", "ann")


def test_the_system_prompt_may_be_made_of_the_data_once_and_is_recorded() -> None:
    asked: list[User] = []

    def system(user: User) -> str:
        asked.append(user)
        return f"You help {user.name}."

    result = Agent(ScriptedLLM(ASK, "done"), [whoami], system=system).run_sync("?", deps=User("ann"))

    began = result.events[0]
    assert isinstance(began, RunStarted)
    assert began.system == "You help ann."
    assert len(asked) == 1


def test_a_system_prompt_that_changed_since_is_used_for_the_follow_up_and_said() -> None:
    journal, seen = MemoryJournal(), list[Any]()
    Agent(ScriptedLLM("one"), journal=journal, system="old").run_sync("?", run_id="r")
    llm = ScriptedLLM("two", "three", "four")

    Agent(llm, journal=journal, system="new", on_event=seen.append).run_sync("and?", continue_run="r")
    said = [event.text for event in seen if isinstance(event, Notice)]
    seen.clear()
    Agent(llm, journal=journal, system="new", on_event=seen.append).run_sync("again?", continue_run="r")
    Agent(llm, journal=journal, on_event=seen.append).run_sync("and again?", continue_run="r")

    assert [request.system for request in llm.requests] == ["new", "new", "new"]
    assert said == ["the system prompt is another one than this run began with; the new one is used"]
    assert not [event for event in seen if isinstance(event, Notice)]


def admins(run: RunContext) -> bool:
    return bool(run.deps and run.deps.admin)


@tool(effect="read", when=admins)
def wipe() -> str:
    """Wipe."""
    return "wiped"


def test_a_tool_is_there_only_in_the_runs_that_its_condition_names() -> None:
    call = ToolCall("1", "wipe", "{}")
    llm = ScriptedLLM(call, "done", call, "done")
    agent = Agent(llm, [whoami, wipe])

    refused = agent.run_sync("?", deps=User("ann"))
    allowed = agent.run_sync("?", deps=User("root", admin=True))

    assert refused.failures[0].error == "unknown_tool"
    assert "wipe" not in json.loads(refused.failures[0].content).get("hint", "")
    assert results(allowed) == ["wiped"]
    shown = [list(request.tools) for request in llm.requests]
    assert shown == [["whoami"], ["whoami"], ["whoami", "wipe"], ["whoami", "wipe"]]


def test_a_condition_that_fails_leaves_its_tool_out() -> None:
    @tool(effect="read", when=lambda run: run.deps["admin"])
    def drop() -> str:
        """Drop."""
        return "dropped"

    result = Agent(ScriptedLLM(ToolCall("1", "drop", "{}"), "done"), [drop]).run_sync("?")

    assert result.failures[0].error == "unknown_tool"


def test_an_error_of_run_sync_has_no_false_context() -> None:
    with pytest.raises(ValueError, match="empty") as raised:
        Agent(ScriptedLLM()).run_sync(" ")

    assert raised.value.__context__ is None
