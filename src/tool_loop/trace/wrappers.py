"""A run as OpenTelemetry spans and metrics: `agent = traced(agent)`, and nothing else changes.

    invoke_agent {name}        one attempt of a run
    ├── chat {model}           one reply, retries included
    └── execute_tool {tool}    one tool call

Three wrappers around the three ports, so that the loop knows nothing about it. A span is current
while its call runs: what an HTTP client or a database reports of itself hangs below it. All names are
in semconv.py. Needs the extra `otel` (opentelemetry-api); the SDK and the exporter are the user's.

A tracer that fails is reported once in the log, and never fails a run.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from tool_loop.errors import UsageError
from tool_loop.events import (
    Event,
    ModelReplied,
    ReasoningDelta,
    RetryWaiting,
    Signal,
    TextDelta,
    ToolCall,
    ToolReturned,
)
from tool_loop.ports import behind

from . import content as say, semconv as names
from .run import RUN, TracedJournal, about_run, now, tokens
from .telemetry import SafeSpan, Telemetry, failure_kind

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from tool_loop.api import Agent
    from tool_loop.ports import LLM, Emit, Journal, Request, Tools


def traced(
    agent: Agent,
    *,
    name: str = "tool-loop",
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    content: bool = False,
) -> Agent:
    """The same agent, traced. `name` is the agent's in its spans. Without providers the global ones serve.

    `content` writes questions, messages, arguments and results into the spans too, without keys; it is
    off because they hold whatever the tools read. Raises `ConfigurationError` without the extra.
    """
    if isinstance(agent.journal, TracedJournal):
        raise UsageError("this agent is traced already")
    telemetry = Telemetry(name, tracer_provider, meter_provider, content=content)
    twin = copy.copy(agent)
    twin.llm = TracedLLM(agent.llm, telemetry)
    twin.tools = cast("Tools", TracedTools(agent.tools, telemetry))
    twin.journal = cast("Journal", TracedJournal(agent.journal, telemetry))
    return twin


# --- the model ------------------------------------------------------------------------------------


class TracedLLM:
    """A model whose replies are `chat` spans; put it around `Retrying`, so that one span holds all attempts."""

    def __init__(self, llm: LLM, telemetry: Telemetry) -> None:
        self.llm = llm
        self._telemetry = telemetry
        self.model, self.origin = _named(llm)
        # An origin is the dialect and the address: chat:https://api.example.com
        url = urlsplit(self.origin[max(0, self.origin.find("http")) :])
        self._about = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: names.provider(url.hostname or ""),
            names.REQUEST_MODEL: self.model or None,
            names.SERVER_ADDRESS: url.hostname,
            names.SERVER_PORT: (url.port or (443 if url.scheme == "https" else 80)) if url.hostname else None,
        }

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        telemetry, run = self._telemetry, RUN.get()
        about = {**self._about, **about_run(), names.COMPACTED: (run is not None and run.compacted) or None}
        with telemetry.span(f"{names.CHAT} {self.model}".strip(), "CLIENT", about) as span:
            watch = _SpanWatch(emit, span)
            if telemetry.content:
                span.describe(lambda: _asked(request))
            try:
                reply = await self.llm.reply(request, watch)
            except BaseException as error:
                span.set({names.FINISH_REASONS: ["error"]})
                span.fail(failure_kind(error))
                self._measure(watch, None, failure_kind(error))
                raise
            span.set(_answered(reply, watch.first))
            if telemetry.content:
                span.describe(lambda: {names.OUTPUT_MESSAGES: say.output_messages(reply)})
            self._measure(watch, reply, None)
            return reply

    def _measure(self, watch: _SpanWatch, reply: ModelReplied | None, failed: str | None) -> None:
        telemetry, model = self._telemetry, (reply.model or None) if reply else None
        about = {**self._about, names.RESPONSE_MODEL: model}
        telemetry.record(names.CHAT_DURATION, now() - watch.began, {**about, names.ERROR_TYPE: failed})
        if watch.first is not None:
            telemetry.record(names.CHAT_FIRST_CHUNK, watch.first, about)
        for attribute, spent in tokens([reply.usage] if reply else []).items():
            telemetry.record(names.TOKEN_COUNTERS[attribute], spent, about)


class _SpanWatch:
    """Passes everything on; notes when the first text came, and writes retries into the span."""

    __slots__ = ("_emit", "_span", "began", "first")

    def __init__(self, emit: Emit, span: SafeSpan) -> None:
        self._emit = emit
        self._span = span
        self.began = now()
        self.first: float | None = None

    def __call__(self, said: Event | Signal) -> None:
        if self.first is None and isinstance(said, TextDelta | ReasoningDelta):
            self.first = now() - self.began
        elif isinstance(said, RetryWaiting):
            about = {names.ERROR_TYPE: said.kind, names.ATTEMPT: said.attempt - 1, names.WAIT: said.seconds}
            self._span.event(names.RETRY_EVENT, {**about, names.HTTP_STATUS: said.status})
        self._emit(said)


def _named(llm: LLM) -> tuple[str, str]:
    """The model and the origin behind the wrappers, where they say so."""
    named = next((model for model in behind(llm) if getattr(model, "model", "")), llm)
    return str(getattr(named, "model", "")), str(getattr(named, "origin", ""))


def _answered(reply: ModelReplied, first: float | None) -> dict[str, Any]:
    return {
        names.RESPONSE_MODEL: reply.model or None,
        names.FINISH_REASONS: [reply.stop],
        names.REQUEST_STREAM: True if first is not None else None,
        names.FIRST_CHUNK: first,
        names.COST: reply.cost,
        **tokens([reply.usage]),
    }


def _asked(request: Request) -> dict[str, Any]:
    return {
        names.SYSTEM_INSTRUCTIONS: say.system(request.transcript.system),
        names.INPUT_MESSAGES: say.input_messages(request.transcript.messages),
        names.TOOL_DEFINITIONS: say.definitions(request.tools),
    }


# --- the tools ------------------------------------------------------------------------------------


class TracedTools:
    """Tools whose calls are `execute_tool` spans. A failure that the model reads is the span's error too."""

    def __init__(self, tools: Tools, telemetry: Telemetry) -> None:
        self.tools = tools
        self._telemetry = telemetry

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tools, name)

    async def run(self, call: ToolCall, *, emit: Emit = lambda _: None, **given: Any) -> ToolReturned:
        telemetry, began = self._telemetry, now()
        spec = next((spec for spec in self.tools.specs() if spec.name == call.name), None)
        # A name that a model made up is content, and no end of different ones.
        name = call.name if spec else "_OTHER"
        about: dict[str, Any] = {names.OPERATION: names.EXECUTE_TOOL, names.TOOL_NAME: name}
        more = {names.TOOL_TYPE: "function", names.TOOL_CALL_ID: call.id, names.AGENT: telemetry.name, **about_run()}
        if spec and spec.description:
            more[names.TOOL_DESCRIPTION] = spec.description
        failed: str | None = None
        with telemetry.span(f"{names.EXECUTE_TOOL} {name}", "INTERNAL", {**about, **more}) as span:
            if telemetry.content:
                span.describe(lambda: {names.TOOL_ARGUMENTS: say.tool_text(call.arguments)})
            try:
                result = await self.tools.run(call, emit=emit, **given)
                failed = result.error
            except BaseException as error:
                failed = failure_kind(error)
                raise
            finally:
                if failed is not None:
                    span.fail(failed)
                telemetry.record(names.TOOL_DURATION, now() - began, {**about, names.ERROR_TYPE: failed})
            if telemetry.content:
                span.describe(lambda: {names.TOOL_RESULT: say.tool_text(result.content)})
            return result
