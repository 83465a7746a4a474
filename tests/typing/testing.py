"""`tool_loop.testing` as a user writes it. Never run, only checked by mypy --strict."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

from tool_loop import Agent, MemoryJournal, ModelReplied, OpenAIChat, Result, RetryPolicy, ScriptedLLM
from tool_loop.events import ToolReturned
from tool_loop.testing import (
    AgentRun,
    Asked,
    Broken,
    Difference,
    Fault,
    Faults,
    FaultServer,
    Recording,
    ReplayLLM,
    ScoreLine,
    cancel,
    check,
    crash,
    cut_stream,
    denied,
    die,
    disk_full,
    fault,
    rate_limit,
    redrive,
    run_virtual,
    scorecard,
    tool_error,
    workspace,
)


def say(asked: Asked) -> ModelReplied:
    return ModelReplied(f"{len(asked.results())} results")


async def main(agent: Agent, journal: MemoryJournal) -> None:
    faults = (
        Faults(seed=7)
        .at_step(3, rate_limit(retry_after=2), "overloaded", times=2)
        .from_step(5, cut_stream(after="half a call"))
        .on_tool("grep", crash(ValueError("x"), first=True), call=2)
        .on_tool("grep", tool_error("gone", "it is gone", shop="x"), call=None)
        .on_record(ToolReturned, die(first=True))
        .at_append(4, disk_full())
        .at_review(1, denied("no"))
        .sometimes(0.1, "crash", cancel(), at_most=3)
    )
    assert_type(faults, Faults)
    assert_type(fault("rate_limit", retry_after=2), Fault)
    wrapped = faults.agent(agent, llm=ScriptedLLM("a"))
    assert_type(await faults.drive(wrapped.run("q")), Result)
    own = Agent(faults.llm(ScriptedLLM("a")), faults.tools(agent.tools), journal=faults.journal(journal))
    async with faults.server(say) as server:
        assert_type(server, FaultServer)
        own = Agent(OpenAIChat("m", f"{server.url}/v1"), retry=RetryPolicy(attempts=2))
    await own.run("q")


def test_api(agent_run: AgentRun, agent: Agent, journal: MemoryJournal, tmp_path: Path) -> None:
    result = agent_run(agent, "q", secrets=["sk-1"])
    assert_type(result, Result)
    assert_type(check(result.events), list[Broken])
    assert_type(redrive(journal, result.run_id, tools=agent.tools, limits=agent.limits), list[Difference])
    assert_type(scorecard(), list[ScoreLine])
    Agent(Recording(OpenAIChat(), tmp_path / "a.jsonl", normalize=str.lower))
    Agent(ReplayLLM(tmp_path / "a.jsonl"))
    Agent(ReplayLLM.from_journal(journal, "r", repeat=True))
    with workspace({"a.py": "x"}) as root:
        assert_type(root, Path)
    run_virtual(main(agent, journal))
