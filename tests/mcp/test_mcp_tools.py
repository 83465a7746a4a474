"""MCP servers through our adapter and our loop, over real pipes: the official SDK's server, and a hostile one."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from tool_loop import Agent, Limits, ScriptedLLM, ToolCall
from tool_loop.errors import ConfigurationError, UsageError
from tool_loop.events import ApprovalDecided, ToolProgress, ToolReturned
from tool_loop.mcp import McpServer, McpTools, deferred, mcp_tools
from tool_loop.ports import PendingApproval

ROOT = Path(__file__).parents[2]


def server(**options: Any) -> McpServer:
    env = options.pop("env", {})
    return McpServer(
        "s", **({"command": [sys.executable, "-m", "tests.mcp.server"], "cwd": str(ROOT), "env": env} | options)
    )


def hostile(kind: str, **options: Any) -> McpServer:
    return McpServer("s", command=[sys.executable, "-m", "tests.mcp.hostile", kind], cwd=str(ROOT), **options)


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name, f"s_{name}", json.dumps(arguments))


async def results(tools: Any, *calls: ToolCall, **options: Any) -> dict[str, ToolReturned]:
    """Each call in a turn of its own, through the whole loop; what came of it by the call's id."""
    agent = Agent(ScriptedLLM(*calls, "done"), tools, limits=Limits(repeats=9, steps=50), **options)
    result = await agent.run("go")
    return {event.call_id: event for event in result.events if isinstance(event, ToolReturned)}


def with_tools(given: McpServer, body: Callable[[McpTools], Any], **options: Any) -> Any:
    async def run() -> Any:
        async with mcp_tools(given, **options) as tools:
            return await body(tools)

    return asyncio.run(run())


def test_what_a_server_answers_becomes_a_result() -> None:
    async def body(tools: McpTools) -> dict[str, ToolReturned]:
        names = ("both", "only", "lie", "fail", "media")
        return await results(tools, call("echo", n=3), *map(call, names), call("refuse", n=1), call("big", n=100_000))

    found = with_tools(server(), body)

    assert found["echo"].content == "echo 3"
    assert found["echo"].untrusted
    assert found["both"].content == '{"sum": 3}', "told once, not twice"
    assert found["only"].content == '{"sum": 3}'
    assert "output schema" in found["lie"].content
    assert found["fail"].error == "tool_failed"
    assert "the disk is full" in found["fail"].content
    assert "[image image/png, 6 bytes: not shown]" in found["media"].content
    assert "[resource a: file:///a.txt, text/plain]" in found["media"].content
    assert "[resource file:///b.txt]\ninside" in found["media"].content
    assert found["refuse"].error == "invalid_arguments"
    assert "n is too small" in found["refuse"].content
    assert len(found["big"].content) < 40_000


def test_arguments_are_validated_here_before_the_server_sees_them(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def body(tools: McpTools) -> dict[str, ToolReturned]:
        return await results(tools, call("pay", n="five"))

    found = with_tools(server(env={"LOG": str(log)}), body)

    assert found["pay"].error == "invalid_arguments"
    assert not log.exists()


def test_a_hint_of_a_stranger_counts_for_nothing_and_one_of_a_trusted_server_counts() -> None:
    async def body(tools: McpTools) -> dict[str, Any]:
        return {tool.name: (tool.effect, tool.untrusted) for tool in tools}

    strange = with_tools(server(), body)
    trusted = with_tools(server(trusted=True), body)
    said = with_tools(server(effects={"pay": "idempotent"}), body)

    assert strange["s_echo"] == (None, True)
    assert trusted["s_echo"] == ("read", False)
    assert trusted["s_pay"] == (None, False)
    assert said["s_pay"] == ("idempotent", True)
    assert said["s_echo"] == (None, True)


def test_a_server_that_dies_in_a_call_that_must_not_run_twice_leaves_it_in_doubt(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def body(tools: McpTools) -> dict[str, ToolReturned]:
        return await results(tools, call("die"), call("echo", n=1))

    found = with_tools(server(env={"LOG": str(log)}), body)

    assert found["die"].error == "outcome_unknown"
    assert found["echo"].content == "echo 1", "the server was started again"
    assert log.read_text().split() == ["die", "echo"]


def test_a_server_that_dies_in_a_call_that_only_reads_is_asked_once_more(tmp_path: Path) -> None:
    env = {"LOG": str(tmp_path / "log"), "STARTS": str(tmp_path / "starts")}

    async def body(tools: McpTools) -> dict[str, ToolReturned]:
        return await results(tools, call("die_once"))

    found = with_tools(server(env=env, effects={"die_once": "read"}), body)

    assert found["die_once"].content == "die_once 0"
    assert (tmp_path / "log").read_text().split() == ["die_once", "die_once"]


def test_a_server_that_ended_between_two_calls_is_back_before_the_next(tmp_path: Path) -> None:
    """A call that must not run twice is not the one that finds out."""
    env = {"LOG": str(tmp_path / "log"), "STARTS": str(tmp_path / "starts")}

    async def body(tools: McpTools) -> dict[str, ToolReturned]:
        found = await results(tools, call("leave"))
        async with asyncio.timeout(20):
            while len((tmp_path / "starts").read_text().split()) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return found | await results(tools, call("pay", n=1))

    found = with_tools(server(env=env), body)

    assert found["leave"].content == "leave 0"
    assert found["pay"].content == "pay 1"


def test_a_server_that_keeps_dying_is_given_up_and_said_so(tmp_path: Path) -> None:
    env = {"STARTS": str(tmp_path / "starts")}

    async def body(tools: McpTools) -> dict[str, ToolReturned]:
        calls = [ToolCall(str(n), "s_die", "{}") for n in range(5)]
        return await results(tools, *calls)

    found = with_tools(server(env=env), body)

    assert found["3"].error == "outcome_unknown"
    assert "cannot be used" in found["4"].content
    assert len((tmp_path / "starts").read_text().split()) == 4


def test_a_definition_that_changed_when_the_server_came_back_is_not_called(tmp_path: Path) -> None:
    env = {"LOG": str(tmp_path / "log"), "STARTS": str(tmp_path / "starts"), "RUG": "1"}

    async def body(tools: McpTools) -> tuple[dict[str, ToolReturned], list[str]]:
        return await results(tools, call("die"), call("pay", n=1)), await tools.refresh()

    found, changed = with_tools(server(env=env), body)

    assert "offers this tool no more, or another one" in found["pay"].content
    assert "pay" not in (tmp_path / "log").read_text()
    assert changed == ["s_pay"]


def test_an_approval_of_one_definition_does_not_hold_for_another(tmp_path: Path) -> None:
    from tool_loop import ToolRegistry

    async def fingerprint(tools: McpTools) -> str:
        return ToolRegistry(tools, approve="always").fingerprint(call("pay", n=1))

    env = {"STARTS": str(tmp_path / "starts"), "RUG": "1"}
    before, after = with_tools(server(env=env), fingerprint), with_tools(server(env=env), fingerprint)
    plain = with_tools(server(), fingerprint)
    elsewhere = with_tools(server(command=[sys.executable, "-B", "-m", "tests.mcp.server"]), fingerprint)

    assert before == plain
    assert before != after
    assert elsewhere not in (before, after)


def test_a_call_that_takes_too_long_is_told_to_stop_and_the_server_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def body(tools: McpTools) -> dict[str, ToolReturned]:
        return await results(tools, call("slow"), call("echo", n=1))

    found = with_tools(server(env={"LOG": str(log)}, timeout_seconds=0.5), body)

    assert found["slow"].error == "timed_out"
    assert found["echo"].content == "echo 1"
    assert "told to stop" in log.read_text()


def test_a_cancelled_run_tells_the_server_to_stop(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def body(tools: McpTools) -> None:
        agent = Agent(ScriptedLLM(call("slow"), "done"), tools)
        run = asyncio.create_task(agent.run("go"))
        async with asyncio.timeout(20):
            while not log.exists():  # noqa: ASYNC110  no event crosses processes
                await asyncio.sleep(0.02)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert (await results(tools, call("echo", n=1)))["echo"].content == "echo 1"

    with_tools(server(env={"LOG": str(log)}), body)

    assert "told to stop" in log.read_text()


def test_progress_is_shown_as_it_comes() -> None:
    seen: list[Any] = []

    async def body(tools: McpTools) -> None:
        await results(tools, call("count", n=3), on_event=seen.append)

    with_tools(server(), body)

    assert [event.text for event in seen if isinstance(event, ToolProgress)] == ["step 1", "step 2", "step 3"]


def test_the_idempotency_key_of_the_call_goes_along() -> None:
    async def body(tools: McpTools) -> dict[str, ToolReturned]:
        return await results(tools, call("key"))

    assert len(with_tools(server(), body)["key"].content) > 20


def test_a_server_gets_few_variables_and_no_key_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")

    async def body(tools: McpTools) -> dict[str, ToolReturned]:
        return await results(tools, call("env"))

    variables = with_tools(server(env={"MINE": "1"}), body)["env"].content.split()

    assert "MINE" in variables
    assert "PATH" in variables
    assert "OPENAI_API_KEY" not in variables


@pytest.mark.parametrize(("allowed", "said"), [(True, "accept {'sure': False}"), (False, "decline")])
def test_what_a_server_asks_a_person_goes_to_the_reviewer(allowed: bool, said: str) -> None:
    asked: list[PendingApproval] = []

    async def reviewer(pending: PendingApproval) -> ApprovalDecided:
        asked.append(pending)
        return ApprovalDecided(pending.call.id, allowed, arguments='{"sure": false}')

    async def body(tools: McpTools) -> dict[str, ToolReturned]:
        return await results(tools, call("ask"))

    found = with_tools(server(), body, reviewer=reviewer)

    assert said in found["ask"].content
    assert asked[0].call.arguments == '{"sure": true}'
    assert "Are you sure?" in asked[0].description


def test_an_answer_that_does_not_fit_what_was_asked_is_not_sent() -> None:
    async def reviewer(pending: PendingApproval) -> ApprovalDecided:
        return ApprovalDecided(pending.call.id, allowed=True, arguments='{"sure": "yes"}')

    async def body(tools: McpTools) -> dict[str, ToolReturned]:
        return await results(tools, call("ask"))

    assert "cancel" in with_tools(server(), body, reviewer=reviewer)["ask"].content


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda: McpServer("x", command=["/no/such/program"]), "No such file"),
        (lambda: server(env={"NEVER": "1"}), "no token is set"),
        (
            lambda: McpServer("x", command=[sys.executable, "-c", "import time; time.sleep(99)"], connect_seconds=0.5),
            "no answer within 0.5 s",
        ),
        (lambda: hostile("schema"), "what it offers is not MCP"),
        (lambda: McpServer("x", url="http://127.0.0.1:9/mcp", connect_seconds=5), "cannot be used"),
    ],
)
def test_a_server_that_does_not_come_up_says_why(given: Callable[[], McpServer], words: str) -> None:
    async def body(tools: McpTools) -> None:
        raise AssertionError("it came up")

    with pytest.raises(ConfigurationError, match=words):
        with_tools(given(), body)


def test_one_bad_schema_does_not_cost_the_other_tools() -> None:
    notices: list[str] = []

    async def body(tools: McpTools) -> list[str]:
        return [tool.name for tool in tools]

    names = with_tools(server(env={"BROKEN": "1"}), body, notice=notices.append)

    assert "s_echo" in names
    assert "s_broken" not in names
    assert "broken" in notices[0]


def test_two_servers_of_one_name_are_refused_before_either_is_started() -> None:
    async def run() -> None:
        async with mcp_tools(server(), server()):
            pass

    with pytest.raises(UsageError, match="two MCP servers are called 's'"):
        asyncio.run(run())


def test_hundreds_of_tools_are_found_by_a_search_and_nothing_hides_behind_it() -> None:
    async def body(tools: McpTools) -> tuple[int, int, dict[str, ToolReturned], list[Any]]:
        port = deferred(tools, approve=lambda call, _tool: "7" in call.arguments, keep=["s_echo"])
        whole = len(json.dumps([[tool.name, tool.description, dict(tool.spec.parameters)] for tool in tools]))
        shown = len(json.dumps([[spec.name, spec.description, dict(spec.parameters)] for spec in port.specs()]))
        names = {tool.description: tool.name for tool in tools}
        find = ToolCall("find", "find_tools", '{"query": "operation 17"}')
        wrong = ToolCall("wrong", "use_tool", json.dumps({"name": names["Operation 17."], "arguments": {"n": "x"}}))
        right = ToolCall("right", "use_tool", json.dumps({"name": names["Operation 17."], "arguments": {"n": 3}}))
        gated = ToolCall("gated", "use_tool", json.dumps({"name": names["Operation 17."], "arguments": {"n": 7}}))
        agent = Agent(ScriptedLLM(find, wrong, right, gated, "done"), port, limits=Limits(repeats=9))
        result = await agent.run("go")
        found = {event.call_id: event for event in result.events if isinstance(event, ToolReturned)}
        return whole, shown, found, list(result.waiting)

    whole, shown, found, waiting = with_tools(server(env={"MANY": "200"}), body)

    assert shown < whole / 20
    assert "Operation 17." in found["find"].content
    assert found["wrong"].error == "invalid_arguments"
    assert found["right"].content == "service operation 17 3"
    assert [pending.call.id for pending in waiting] == ["gated"]


# --- a server that keeps to nothing ---------------------------------------------------------------


def test_a_list_that_never_ends_is_cut_and_said_so() -> None:
    notices: list[str] = []

    async def body(tools: McpTools) -> int:
        return len(tools)

    assert with_tools(hostile("pages"), body, notice=notices.append) == 100
    assert "only its first 100 tools" in notices[0]


def test_names_that_no_provider_accepts_become_unique_ones_that_stay_the_same() -> None:
    async def body(tools: McpTools) -> list[str]:
        return [tool.name for tool in tools]

    first, second = with_tools(hostile("names"), body), with_tools(hostile("names"), body)

    assert first == second
    assert len(set(first)) == len(first) == 6
    assert all(len(name) <= 64 for name in first)


@pytest.mark.parametrize("kind", ["fuzz", "words", "noise", "evil", "shapes", "unknown"])
def test_a_hostile_server_changes_nothing_but_its_own_results(kind: str) -> None:
    from tool_loop import tool

    @tool(effect="read")
    async def mine() -> str:
        """Mine."""
        return "untouched"

    async def body(tools: McpTools) -> dict[str, ToolReturned]:
        return await results([*tools, mine], ToolCall("look", "s_look", "{}"), ToolCall("mine", "mine", "{}"))

    found = with_tools(hostile(kind, timeout_seconds=20), body)

    assert found["mine"].content == "untouched"
    assert found["look"].error in (None, "tool_failed")
    assert kind not in ("fuzz", "words", "noise") or found["look"].content == "fine"


@pytest.mark.slow
def test_a_hundred_megabytes_are_cut_like_any_other_result() -> None:
    async def body(tools: McpTools) -> dict[str, ToolReturned]:
        return await results(tools, ToolCall("look", "s_look", "{}"))

    assert len(with_tools(hostile("flood"), body)["look"].content) < 40_000
