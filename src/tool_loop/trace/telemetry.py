"""A tracer and a meter that cannot do harm: whatever they do or raise, the run goes on.

Knows the names in semconv.py and nothing about runs. Imports OpenTelemetry when a `Telemetry` is made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from tool_loop.errors import ConfigurationError, FatalError

from . import semconv as names

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, SpanContext, TracerProvider

Attributes: TypeAlias = Mapping[str, Any]
T = TypeVar("T")

logger = logging.getLogger(__name__)


class Telemetry:
    """A tracer and a meter. Nothing they do or raise reaches the run."""

    def __init__(
        self,
        name: str,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        content: bool = False,
    ) -> None:
        try:
            from opentelemetry import metrics, trace
        except ImportError as error:
            message = "tracing needs OpenTelemetry's API (our extra `otel`): pip install opentelemetry-api"
            raise ConfigurationError(message) from error
        from tool_loop import __version__

        self.name = name
        self.content = content
        self._told = False
        self._kinds = trace.SpanKind
        self._tracer = trace.get_tracer("tool_loop", __version__, tracer_provider)
        meter = metrics.get_meter("tool_loop", __version__, meter_provider)

        def seconds(metric: str, what: str) -> Any:
            return meter.create_histogram(metric, "s", what, explicit_bucket_boundaries_advisory=names.SECONDS_BUCKETS)

        self._instruments: dict[str, Any] = {
            names.CHAT_DURATION: seconds(names.CHAT_DURATION, "How long a reply took, retries included."),
            names.CHAT_FIRST_CHUNK: seconds(names.CHAT_FIRST_CHUNK, "How long until a reply's first chunk."),
            names.TOOL_DURATION: seconds(names.TOOL_DURATION, "How long a tool call took."),
            names.AGENT_DURATION: seconds(names.AGENT_DURATION, "How long an attempt of a run took."),
            names.AGENT_CHATS: meter.create_histogram(names.AGENT_CHATS, "{call}", "Replies of an attempt."),
            names.AGENT_TOOLS: meter.create_histogram(names.AGENT_TOOLS, "{call}", "Tool calls of an attempt."),
        }
        for metric in names.TOKEN_COUNTERS.values():
            self._instruments[metric] = meter.create_counter(metric, "{token}", "Tokens, as the server counted them.")

    @contextmanager
    def span(self, title: str, kind: Literal["CLIENT", "INTERNAL"], attributes: Attributes) -> Iterator[SafeSpan]:
        """A span that is current inside the block. The block's own exceptions pass through."""
        from opentelemetry import context, trace

        span = self.quietly(self._tracer.start_span, title, kind=self._kinds[kind], attributes=known(attributes))
        # Where there is none, the one around it stays current.
        token = None if span is None else context.attach(trace.set_span_in_context(span))
        safe = SafeSpan(trace.INVALID_SPAN if span is None else span, self.quietly)
        try:
            yield safe
        finally:
            if token is not None:
                context.detach(token)
            safe.end()

    def record(self, metric: str, value: float, attributes: Attributes) -> None:
        instrument = self._instruments[metric]
        add = instrument.add if metric in names.TOKEN_COUNTERS.values() else instrument.record
        self.quietly(add, value, known(attributes))

    def quietly(self, function: Callable[..., T], *args: Any, **options: Any) -> T | None:
        """What the function returns; None when it raises, which is said once."""
        try:
            return function(*args, **options)
        except Exception:
            if not self._told:
                self._told = True
                logger.warning("tracing failed; runs go on without it", exc_info=True)
            return None


class SafeSpan:
    """A span: whatever is done to it cannot raise."""

    __slots__ = ("_quietly", "_span")

    def __init__(self, span: Span, quietly: Callable[..., Any]) -> None:
        self._span = span
        self._quietly = quietly

    def set(self, attributes: Attributes) -> None:
        self._quietly(self._span.set_attributes, known(attributes))

    def describe(self, make: Callable[[], Attributes]) -> None:
        """Content, which is made here: what cannot be made into JSON must not fail a run either."""
        self.set(self._quietly(make) or {})

    def event(self, title: str, attributes: Attributes) -> None:
        self._quietly(self._span.add_event, title, known(attributes))

    def fail(self, kind: str) -> None:
        """Not the error's text: it may hold content, and traces are kept by others."""
        from opentelemetry.trace import Status, StatusCode

        self.set({names.ERROR_TYPE: kind})
        self._quietly(self._span.set_status, Status(StatusCode.ERROR, kind))

    def link(self, traceparent: str) -> None:
        if earlier := self._quietly(_parsed, traceparent):
            self._quietly(self._span.add_link, earlier)

    def traceparent(self) -> str:
        """The span in the form of the W3C's header; "" for a span that nobody records."""
        found = self._span.get_span_context()
        if not found.is_valid:
            return ""
        return f"00-{found.trace_id:032x}-{found.span_id:016x}-{int(found.trace_flags):02x}"

    def end(self) -> None:
        self._quietly(self._span.end)


def known(attributes: Attributes) -> dict[str, Any]:
    """Without what is not known: None is no value of an attribute."""
    return {name: value for name, value in attributes.items() if value is not None}


def failure_kind(error: BaseException) -> str:
    """The word for an error that ended something: our kind where it has one."""
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return error.kind if isinstance(error, FatalError) else type(error).__name__


def _parsed(traceparent: str) -> SpanContext | None:
    from opentelemetry.trace import get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    read = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
    found = get_current_span(read).get_span_context()
    return found if found.is_valid else None
