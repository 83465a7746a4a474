"""A run as spans and metrics, against the SDK's in-memory exporter; and a tracer that fails."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tool_loop import (
    Agent,
    ApprovalDecided,
    Limits,
    MemoryJournal,
    ModelReplied,
    OpenAIChat,
    PendingApproval,
    ProviderError,
    RunBusy,
    ScriptedLLM,
    ToolCall,
    ToolError,
    Usage,
    UsageError,
    tool,
)
from tool_loop.errors import ConfigurationError
from tool_loop.events import RunStarted
from tool_loop.journal.sqlite import SqliteJournal
from tool_loop.llm.prices import Price, PriceTable
from tool_loop.llm.scripted import Turn, calls
from tool_loop.runtime.clock import run_virtual
from tool_loop.trace import semconv
from tool_loop.trace.wrappers import traced

KEY = "sk-live-97531zyxwvutsrqp8642"


class Traces:
    """A tracer and a meter that keep everything in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    def agent(self, agent: Agent, **options: Any) -> Agent:
        return traced(agent, tracer_provider=self.provider, meter_provider=self.meters, **options)

    @property
    def spans(self) -> list[ReadableSpan]:
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, start: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name.startswith(start)]

    def one(self, start: str) -> ReadableSpan:
        (span,) = self.named(start)
        return span

    def metrics(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        """By name: the points, each with its attributes and its sum or its value."""
        data = self.reader.get_metrics_data()
        found: dict[str, list[tuple[dict[str, Any], Any]]] = {}
        for metric in (m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics):
            points = [(dict(p.attributes), p.sum if hasattr(p, "sum") else p.value) for p in metric.data.data_points]
            found[metric.name] = points
        return found


@pytest.fixture
def traces() -> Iterator[Traces]:
    kept = Traces()
    yield kept
    kept.provider.shutdown()
    kept.meters.shutdown()


@tool(effect="read")
async def look(at: str) -> str:
    """Look at something."""
    await asyncio.sleep(2)
    if at == "nowhere":
        raise ToolError("no such place", kind="not_found")
    return f"seen {at}"


def child(span: ReadableSpan, of: ReadableSpan) -> bool:
    return span.parent is not None and span.parent.span_id == of.context.span_id


def test_a_run_is_a_tree_of_an_attempt_its_replies_and_its_calls(traces: Traces) -> None:
    usage = Usage(100, 20, 60, 10, 5)
    llm = ScriptedLLM(
        calls(ToolCall("a", "look", '{"at": "x"}'), ToolCall("b", "look", '{"at": "nowhere"}'), usage=usage),
        Turn(ModelReplied("there", usage=Usage(200, 10), model="m-1"), pieces=("th", "ere"), seconds=3.0),
    )
    agent = traces.agent(Agent(llm, [look], prices=PriceTable({"m": Price(1.0, 2.0)})), name="finder")

    run_virtual(agent.run("where is x?", run_id="r1"))

    top, chats, tools = traces.one("invoke_agent"), traces.named("chat"), traces.named("execute_tool")
    assert (top.name, top.kind, top.parent) == ("invoke_agent finder", SpanKind.INTERNAL, None)
    assert [(s.name, s.kind) for s in chats] == [("chat", SpanKind.CLIENT)] * 2
    assert [(s.name, s.kind) for s in tools] == [("execute_tool look", SpanKind.INTERNAL)] * 2
    assert all(child(span, top) for span in (*chats, *tools))
    assert {s.attributes["gen_ai.conversation.id"] for s in traces.spans} == {"r1"}
    assert {k: v for k, v in top.attributes.items() if k != "gen_ai.conversation.id"} == {
        "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "finder",
        "gen_ai.usage.input_tokens": 300, "gen_ai.usage.output_tokens": 30, "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.cache_write.input_tokens": 10, "gen_ai.usage.reasoning.output_tokens": 5,
        "tool_loop.reason": "answered", "tool_loop.steps": 2, "tool_loop.cost_usd": 0.00022,
    }  # fmt: skip
    assert chats[0].attributes["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert chats[0].attributes["gen_ai.usage.cache_read.input_tokens"] == 60
    assert chats[1].attributes["gen_ai.response.model"] == "m-1"
    assert chats[1].attributes["gen_ai.request.stream"] is True
    assert chats[1].attributes["gen_ai.response.time_to_first_chunk"] == 0.0
    assert chats[1].attributes["tool_loop.cost_usd"] == 0.00022
    fine, failed = sorted(tools, key=lambda s: s.attributes["gen_ai.tool.call.id"])
    assert (fine.attributes["gen_ai.tool.description"], fine.status.status_code) == (
        "Look at something.",
        StatusCode.UNSET,
    )
    assert (failed.attributes["error.type"], failed.status.status_code) == ("not_found", StatusCode.ERROR)


def test_attempts_and_waits_are_events_of_the_one_span_of_a_reply(traces: Traces) -> None:
    slow = ProviderError("429", kind="rate_limit", status=429, retry_after=2.0)
    agent = traces.agent(Agent(ScriptedLLM(slow, ProviderError("reset", kind="connection"), "done")))

    run_virtual(agent.run("q"))

    chat = traces.one("chat")
    first, second = chat.events
    assert (first.name, second.name) == ("tool_loop.retry", "tool_loop.retry")
    assert (first.attributes["error.type"], first.attributes["http.response.status_code"]) == ("rate_limit", 429)
    assert first.attributes["tool_loop.wait_seconds"] >= 2.0
    assert (first.attributes["tool_loop.attempt"], second.attributes["tool_loop.attempt"]) == (1, 2)
    assert "http.response.status_code" not in second.attributes
    assert chat.status.status_code is StatusCode.UNSET


def test_a_failed_reply_names_its_kind_on_the_reply_and_on_the_attempt(traces: Traces) -> None:
    secret = ProviderError("the prompt 'my diary' was refused", kind="bad_request", status=400)
    agent = traces.agent(Agent(ScriptedLLM(secret)))

    with pytest.raises(ProviderError):
        run_virtual(agent.run("q"))

    for span in (traces.one("chat"), traces.one("invoke_agent")):
        assert (span.attributes["error.type"], span.status.status_code) == ("bad_request", StatusCode.ERROR)
        assert "diary" not in span.to_json()
    assert traces.one("chat").attributes["gen_ai.response.finish_reasons"] == ("error",)
    assert traces.one("invoke_agent").attributes.get("tool_loop.reason") is None


def test_a_cancelled_run_ends_all_its_spans_as_cancelled(traces: Traces) -> None:
    agent = traces.agent(Agent(ScriptedLLM(ToolCall("a", "look", '{"at": "x"}'), "done"), [look]))

    async def main() -> None:
        task = asyncio.ensure_future(agent.run("q"))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait({task})

    run_virtual(main())

    assert traces.one("execute_tool").attributes["error.type"] == "cancelled"
    assert traces.one("invoke_agent").attributes["error.type"] == "cancelled"


def test_spans_of_others_hang_below_the_call_they_belong_to(traces: Traces) -> None:
    tracer = traces.provider.get_tracer("theirs")

    def serve(_request: httpx2.Request) -> httpx2.Response:
        with tracer.start_as_current_span("POST"):
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}
            return httpx2.Response(200, json={"id": "1", "model": "m-2", "choices": [choice]})

    @tool(effect="read")
    def query() -> str:
        """Runs on a thread of its own."""
        with tracer.start_as_current_span("SELECT"):
            return "rows"

    llm = OpenAIChat("m", "https://api.groq.com:8443/openai/v1", KEY, http=httpx2.MockTransport(serve), stream=False)
    chat_only = traces.agent(Agent(llm))
    tool_only = traces.agent(Agent(ScriptedLLM(ToolCall("a", "query"), "done"), [query]))

    with tracer.start_as_current_span("request") as outer:
        asyncio.run(chat_only.run("q"))
        asyncio.run(tool_only.run("q"))
        assert otel.get_current_span() is outer

    chat, top = traces.named("chat")[0], traces.named("invoke_agent")[0]
    assert child(traces.one("POST"), chat)
    assert child(traces.one("SELECT"), traces.one("execute_tool"))
    assert child(top, traces.one("request"))
    assert chat.name == "chat m"
    assert chat.attributes["gen_ai.provider.name"] == "groq"
    assert (chat.attributes["server.address"], chat.attributes["server.port"]) == ("api.groq.com", 8443)


def test_a_resumed_run_links_to_the_trace_of_its_first_attempt(traces: Traces, tmp_path: Path) -> None:
    auth = ProviderError("401", kind="auth")
    with SqliteJournal(tmp_path / "runs.sqlite") as journal:
        first = traces.agent(Agent(ScriptedLLM(auth), journal=journal, meta={"root": "/x"}))
        with pytest.raises(ProviderError):
            asyncio.run(first.run("q", run_id="r1"))
        asyncio.run(traces.agent(Agent(ScriptedLLM("done"), journal=journal)).resume("r1"))
        asyncio.run(traces.agent(Agent(ScriptedLLM("more"), journal=journal)).run("and?", continue_run="r1"))
        opening = journal.events("r1")[0]

    began, resumed, continued = traces.named("invoke_agent")
    assert began.links == ()
    assert [link.context.span_id for link in resumed.links] == [began.context.span_id]
    assert [link.context.trace_id for link in continued.links] == [began.context.trace_id]
    assert [event.name for event in resumed.events] == ["tool_loop.resumed"]
    assert isinstance(opening, RunStarted)
    assert json.loads(opening.meta)["root"] == "/x"


def test_meta_that_is_no_object_is_kept_beside_the_trace(traces: Traces) -> None:
    agent = traces.agent(Agent(ScriptedLLM("done", "done")))
    journal = agent.journal
    for meta in ("[1]", "not json"):
        agent.meta = meta
        asyncio.run(agent.run("q", run_id=meta[:2].strip("[") + "r"))

    kept = [json.loads(journal.events(run_id)[0].meta) for run_id in ("1r", "nor")]  # type: ignore[union-attr]
    assert [meta["meta"] for meta in kept] == ["[1]", "not json"]
    assert all(meta["traceparent"].startswith("00-") for meta in kept)


def test_a_traceparent_that_is_none_is_no_link(traces: Traces) -> None:
    journal = MemoryJournal()

    async def main() -> None:
        async with journal.open("r1") as log:
            await log.append(RunStarted("q", meta='{"traceparent": "rubbish"}'))
        await traces.agent(Agent(ScriptedLLM("done"), journal=journal)).resume("r1")

    asyncio.run(main())

    assert traces.one("invoke_agent").links == ()


def test_turning_points_are_events_of_the_attempt(traces: Traces) -> None:
    async def allow(shown: PendingApproval) -> ApprovalDecided:
        return ApprovalDecided(shown.call.id, allowed=True)

    @tool(effect="once")
    def write(text: str) -> str:
        """Write."""
        return "x" * 4000

    wanted = [ToolCall(str(n), "write", json.dumps({"text": str(n)})) for n in range(3)]
    usage = Usage(1_500, 10)
    llm = ScriptedLLM(*(calls(call, usage=usage) for call in wanted), "so far", usage=usage)
    limits = Limits(steps=3, window=2_000)
    agent = traces.agent(Agent(llm, [write], approve="always", reviewer=allow, limits=limits))

    run_virtual(agent.run("q"))

    top = traces.one("invoke_agent")
    seen = [event.name for event in top.events]
    assert seen[:2] == ["tool_loop.approval_requested", "tool_loop.approval_decided"]
    assert seen[-1] == "tool_loop.limit_reached"
    assert "tool_loop.compacted" in seen
    assert top.attributes["tool_loop.reason"] == "step limit"
    compacted = [span.attributes.get("gen_ai.conversation.compacted") for span in traces.named("chat")]
    assert compacted[0] is None
    assert compacted[-1] is True


def test_a_run_that_waits_says_so(traces: Traces) -> None:
    agent = traces.agent(Agent(ScriptedLLM(ToolCall("a", "look", '{"at": "x"}')), [look], approve="always"))

    result = run_virtual(agent.run("q"))

    assert result.reason == "waiting"
    assert traces.one("invoke_agent").attributes["tool_loop.reason"] == "waiting"
    assert traces.named("execute_tool") == []


def test_the_name_of_a_tool_that_does_not_exist_is_not_a_span_name(traces: Traces) -> None:
    agent = traces.agent(Agent(ScriptedLLM(ToolCall("a", "l00k-7f3a", "{}"), "done"), [look]))

    run_virtual(agent.run("q"))

    span = traces.one("execute_tool")
    assert (span.name, span.attributes["error.type"]) == ("execute_tool _OTHER", "unknown_tool")
    assert "l00k" not in span.to_json()


def test_a_run_that_is_busy_is_a_failed_attempt(traces: Traces) -> None:
    agent = traces.agent(Agent(ScriptedLLM(ToolCall("a", "look", '{"at": "x"}'), "done"), [look]))

    async def main() -> None:
        first = asyncio.ensure_future(agent.run("q", run_id="r1"))
        await asyncio.sleep(1)
        with pytest.raises(RunBusy):
            await agent.run("q", run_id="r1")
        await first

    run_virtual(main())

    assert sorted(str(s.attributes.get("error.type")) for s in traces.named("invoke_agent")) == ["None", "run_busy"]


# --- content --------------------------------------------------------------------------------------


def valid_message(message: dict[str, Any], *, output: bool) -> bool:
    """As the conventions' JSON schemas have it: what is required, and the closed vocabularies."""
    parts = {"text": {"content"}, "reasoning": {"content"}, "tool_call": {"name"}, "tool_call_response": {"response"}}
    return (
        message["role"] in ("user", "assistant", "tool")
        and all(parts[part["type"]] <= set(part) for part in message["parts"])
        and (message["finish_reason"] in ("stop", "length", "content_filter", "tool_call") if output else True)
    )


def test_content_is_left_out_unless_it_is_asked_for(traces: Traces) -> None:
    agent = traces.agent(Agent(ScriptedLLM(ToolCall("a", "look", '{"at": "zebra"}'), "zebra"), [look]))

    run_virtual(agent.run("where is the zebra?"))

    assert not any("zebra" in span.to_json() for span in traces.spans)


def test_content_has_the_shape_of_the_conventions_and_no_key(traces: Traces) -> None:
    first = ModelReplied(
        "hm",
        (ToolCall("a", "look", f'{{"at": "{KEY}"}}'), ToolCall("b", "look", "not json")),
        "tool_calls",
        reasoning="why",
    )
    agent = traces.agent(Agent(ScriptedLLM(first, "at home"), [look], system="be brief"), content=True)

    run_virtual(agent.run(f"where? {KEY}"))

    chats, tools, top = traces.named("chat"), traces.named("execute_tool"), traces.one("invoke_agent")
    read = [json.loads(span.attributes["gen_ai.input.messages"]) for span in (*chats, top)]
    written = [json.loads(span.attributes["gen_ai.output.messages"]) for span in (*chats, top)]
    assert all(valid_message(message, output=False) for messages in read for message in messages)
    assert all(valid_message(message, output=True) for messages in written for message in messages)
    assert [m["role"] for m in read[1]] == ["user", "assistant", "tool", "tool"]
    assert [p["type"] for p in written[0][0]["parts"]] == ["reasoning", "text", "tool_call", "tool_call"]
    assert [p.get("arguments") for p in written[0][0]["parts"]] == [None, None, {"at": "[key]"}, "not json"]
    assert json.loads(chats[0].attributes["gen_ai.system_instructions"]) == [{"type": "text", "content": "be brief"}]
    (definition,) = json.loads(chats[0].attributes["gen_ai.tool.definitions"])
    assert (definition["type"], definition["name"], definition["parameters"]["type"]) == ("function", "look", "object")
    assert {s.attributes["gen_ai.tool.call.result"] for s in tools if "error.type" not in s.attributes} == {
        "seen [key]"
    }
    assert not any(KEY in span.to_json() for span in traces.spans)


def test_content_of_a_run_without_an_end_or_a_prompt_leaves_out_what_there_is_not(traces: Traces) -> None:
    agent = traces.agent(Agent(ScriptedLLM(ProviderError("401", kind="auth")), system=""), content=True)

    with pytest.raises(ProviderError):
        run_virtual(agent.run("q"))

    assert "gen_ai.output.messages" not in traces.one("invoke_agent").attributes
    assert not {"gen_ai.system_instructions", "gen_ai.tool.definitions"} & set(traces.one("chat").attributes)


# --- metrics --------------------------------------------------------------------------------------


def test_durations_and_tokens_are_measured_with_the_kind_of_failure(traces: Traces) -> None:
    wanted = calls(
        ToolCall("a", "look", '{"at": "x"}'), ToolCall("b", "look", '{"at": "nowhere"}'), usage=Usage(100, 20, 60)
    )
    reply = Turn(ModelReplied("done", usage=Usage(50, 5, None, 3, 2), model="m-1"), seconds=4.0)
    agent = traces.agent(Agent(ScriptedLLM(wanted, reply), [look]))

    run_virtual(agent.run("q"))

    found = traces.metrics()
    chat = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "_OTHER"}
    assert found["gen_ai.client.inference.duration"] == [
        ({**chat, "gen_ai.response.model": "scripted"}, 0.0),
        ({**chat, "gen_ai.response.model": "m-1"}, 4.0),
    ]
    assert sum(value for _, value in found["gen_ai.client.inference.usage.input_tokens"]) == 150
    assert sum(value for _, value in found["gen_ai.client.inference.usage.output_tokens"]) == 25
    assert [value for _, value in found["gen_ai.client.inference.usage.cache_read.input_tokens"]] == [60]
    assert [value for _, value in found["gen_ai.client.inference.usage.cache_write.input_tokens"]] == [3]
    assert [value for _, value in found["gen_ai.client.inference.usage.reasoning.output_tokens"]] == [2]
    assert len(found["gen_ai.client.inference.time_to_first_chunk"]) == 1
    tools = {attributes.get("error.type"): value for attributes, value in found["gen_ai.execute_tool.duration"]}
    assert tools == {None: 2.0, "not_found": 2.0}
    assert [value for _, value in found["gen_ai.invoke_agent.duration"]] == [6.0]
    assert [value for _, value in found["gen_ai.invoke_agent.inference_calls"]] == [2]
    assert [value for _, value in found["gen_ai.invoke_agent.tool_calls"]] == [2]
    assert all("gen_ai.conversation.id" not in attributes for points in found.values() for attributes, _ in points)


# --- what can go wrong ----------------------------------------------------------------------------


class Broken(SpanProcessor):
    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise RuntimeError("the tracer is broken")

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("the tracer is broken")


class BrokenAtEnd(SpanProcessor):
    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("the exporter is broken")


@pytest.mark.parametrize("processor", [Broken(), BrokenAtEnd()])
def test_a_tracer_that_fails_is_told_once_and_the_run_goes_on(
    processor: SpanProcessor, caplog: pytest.LogCaptureFixture
) -> None:
    provider = TracerProvider()
    provider.add_span_processor(processor)
    llm = ScriptedLLM(ProviderError("429", kind="rate_limit"), ToolCall("a", "look", '{"at": "x"}'), "done")
    agent = traced(Agent(llm, [look]), tracer_provider=provider, content=True)

    with caplog.at_level(logging.WARNING, "tool_loop"):
        result = run_virtual(agent.run("q"))

    assert result.answer == "done"
    assert [r.message for r in caplog.records] == ["tracing failed; runs go on without it"]


def test_content_that_cannot_be_told_does_not_fail_the_run(traces: Traces) -> None:
    deep = '{"at": ' + "[" * 600 + "]" * 600 + "}"
    agent = traces.agent(Agent(ScriptedLLM(ToolCall("a", "look", deep), "done"), [look]), content=True)

    assert run_virtual(agent.run("q")).answer == "done"
    assert "gen_ai.output.messages" not in traces.named("chat")[0].attributes


def test_without_an_sdk_everything_is_a_no_op_and_the_record_is_untouched() -> None:
    agent = traced(Agent(ScriptedLLM(ToolCall("a", "look", '{"at": "x"}'), "done"), [look]))

    result = run_virtual(agent.run("q"))

    assert result.answer == "done"
    assert "traceparent" not in result.events[0].meta  # type: ignore[union-attr]


def test_the_traced_agent_is_a_twin_and_the_agent_stays_as_it_was(traces: Traces) -> None:
    agent = Agent(ScriptedLLM("one", "two"), [look])
    twin = traces.agent(agent)

    agent.run_sync("q")

    assert traces.spans == []
    assert twin.tools.specs() == agent.tools.specs()
    assert twin.run_sync("q").answer == "two"
    assert twin.journal.runs()  # type: ignore[attr-defined]  # what a journal has beyond the port is still there
    with pytest.raises(UsageError, match="traced already"):
        traces.agent(twin)


def test_an_agent_inside_a_tool_is_a_span_below_that_tool(traces: Traces) -> None:
    inner = traces.agent(Agent(ScriptedLLM("inner answer")), name="inner")

    @tool(effect="read")
    async def ask(question: str) -> str:
        """Ask another agent."""
        return (await inner.run(question)).answer

    outer = traces.agent(Agent(ScriptedLLM(ToolCall("a", "ask", '{"question": "x"}'), "done"), [ask]), name="outer")

    result = run_virtual(outer.run("q", run_id="outer-run"))

    assert result.answer == "done"
    assert child(traces.one("invoke_agent inner"), traces.one("execute_tool"))
    assert [s.attributes["gen_ai.conversation.id"] == "outer-run" for s in traces.named("chat")] == [True, False, True]


def test_without_the_extra_it_says_what_to_install_and_nothing_else_needs_it() -> None:
    code = """
import sys
sys.modules["opentelemetry"] = None
from tool_loop import Agent, ScriptedLLM
from tool_loop.trace import semconv
from tool_loop.errors import ConfigurationError
agent = Agent(ScriptedLLM("done"))
assert agent.run_sync("q").answer == "done"
from tool_loop.trace import traced
try:
    traced(agent)
except ConfigurationError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)

    assert done.stdout == "tracing needs OpenTelemetry's API (our extra `otel`): pip install opentelemetry-api\n"


def test_the_extra_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with pytest.raises(ConfigurationError, match=r"opentelemetry-api"):
        traced(Agent(ScriptedLLM("done")))


def test_importing_it_does_not_load_opentelemetry() -> None:
    code = "import tool_loop.trace, sys; print([m for m in sys.modules if m.startswith('opentelemetry')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)

    assert done.stdout == "[]\n"


def test_the_document_lists_every_name_and_no_other() -> None:
    text = (Path(__file__).parents[2] / "docs" / "traces-and-logs.md").read_text()
    table = {value for name, value in vars(semconv).items() if name.isupper() and isinstance(value, str)}
    ours = {name for name in table if "." in name and name != semconv.VERSION}
    told = set(re.findall(r"`((?:gen_ai|tool_loop|error|server|http)\.[\w.]+\*?)`", text))

    assert ours - told == set()
    assert told - ours - set(semconv.TOKEN_COUNTERS.values()) == {"gen_ai.usage.*", "tool_loop.logs"}
    assert f"version {semconv.VERSION}" in text
