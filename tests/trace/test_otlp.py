"""A traced run through a real exporter, over HTTP, into a receiver on loopback.

Needs opentelemetry-exporter-otlp-proto-http, which nothing else here does; skipped where it is absent.
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tool_loop import Agent, ModelReplied, ProviderError, RetryPolicy, ScriptedLLM, ToolCall, Usage, tool
from tool_loop.trace.wrappers import traced

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="opentelemetry-exporter-otlp-proto-http is absent")


@contextmanager
def receiver() -> Iterator[tuple[str, dict[str, list[bytes]]]]:
    """Its address, and the bodies it was sent, by path."""
    got: dict[str, list[bytes]] = {"/v1/traces": [], "/v1/metrics": []}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            packed = self.headers.get("content-encoding") == "gzip"
            got[self.path].append(gzip.decompress(body) if packed else body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}", got
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


@tool(effect="read")
def look(at: str) -> str:
    """Look."""
    return f"seen {at}"


def exported(address: str) -> None:
    """A run with a retry and a refused call, through exporters that are flushed at its end."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    tracers = TracerProvider()
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{address}/v1/traces")))
    meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter(f"{address}/v1/metrics"))])
    busy = ProviderError("429", kind="rate_limit", status=429)
    answer = ModelReplied("done", usage=Usage(10, 3))
    agent = Agent(
        ScriptedLLM(busy, ToolCall("1", "look", '{"t": 1}'), answer), [look], retry=RetryPolicy(first_wait=0.01)
    )
    traced(agent, tracer_provider=tracers, meter_provider=meters, content=True).run_sync("q", run_id="r1")
    tracers.shutdown()
    meters.shutdown()


def test_a_receiver_gets_the_whole_tree_and_the_metrics() -> None:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    with receiver() as (address, got):
        exported(address)

    def each(requests: list[Any], *path: str) -> list[Any]:
        for name in path:
            requests = [item for holder in requests for item in getattr(holder, name)]
        return requests

    spans = each(
        [ExportTraceServiceRequest.FromString(b) for b in got["/v1/traces"]], "resource_spans", "scope_spans", "spans"
    )
    metrics = each(
        [ExportMetricsServiceRequest.FromString(b) for b in got["/v1/metrics"]],
        "resource_metrics",
        "scope_metrics",
        "metrics",
    )
    (top,) = [span for span in spans if not span.parent_span_id]
    assert top.name == "invoke_agent tool-loop"
    assert sorted(s.name for s in spans if s.parent_span_id == top.span_id) == ["chat", "chat", "execute_tool look"]
    assert [event.name for span in spans for event in span.events] == ["tool_loop.retry"]
    assert {"gen_ai.client.inference.duration", "gen_ai.execute_tool.duration"} <= {metric.name for metric in metrics}
