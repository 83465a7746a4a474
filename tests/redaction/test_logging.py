"""The log of a run, and that no key gets into it, whatever a server sends back."""

# ruff: noqa: E501  texts and tables read better on one line

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tool_loop import (
    Agent,
    ApprovalDecided,
    Event,
    Limits,
    MemoryJournal,
    ModelReplied,
    OpenAIChat,
    ProviderError,
    RunBusy,
    ScriptedLLM,
    Signal,
    ToolCall,
    ToolError,
    ToolReturned,
    Usage,
    tool,
)
from tool_loop.events import (
    ApprovalRequest,
    ApprovalRequested,
    Compacted,
    IntentRecorded,
    LimitReached,
    ModelAsked,
    Notice,
    Reminded,
    Restarted,
    RunContinued,
    RunEnded,
    RunInterrupted,
    RunResumed,
    RunStarted,
    TextDelta,
)
from tool_loop.journal.sqlite import SqliteJournal
from tool_loop.llm.retry import RetryPolicy
from tool_loop.logs import log_events
from tool_loop.redaction.scrub import Scrubbing, guard, scrub, scrubbed
from tool_loop.redaction.secret import Secret, alive
from tool_loop.report import page
from tool_loop.runtime.clock import run_virtual
from tool_loop.trace.wrappers import traced

KEY = "test-7c9e6679f0dc4a1cb5b7d9a1"
FIELDS = {"run_id", "step", "tool", "call_id", "kind", "seconds", "attempt", "status", "model"}


def logged(log: pytest.LogCaptureFixture) -> list[tuple[str, str, dict[str, object]]]:
    """Level, message and fields of each record of the run."""
    own = {*vars(logging.makeLogRecord({})), "message", "asctime"}
    return [
        (r.levelname, r.getMessage(), {k: v for k, v in vars(r).items() if k not in own and v is not None})
        for r in log.records
        if r.name == "tool_loop.logs"
    ]


@tool(effect="read")
def look(at: str) -> str:
    """Look."""
    if at == "nowhere":
        raise ToolError("no such place", kind="not_found")
    return f"seen {at}"


def test_a_run_is_told_line_by_line_with_its_figures_as_fields(caplog: pytest.LogCaptureFixture) -> None:
    reply = ModelReplied(
        "", (ToolCall("a", "look", '{"at": "x"}'), ToolCall("b", "look", '{"at": "nowhere"}')), "tool_calls", Usage(10, 2), "m"
    )  # fmt: skip
    slow = ProviderError("429", kind="rate_limit", status=429, retry_after=2.0)
    agent = Agent(ScriptedLLM(slow, reply, "done"), [look])

    with caplog.at_level(logging.DEBUG, "tool_loop"):
        run_virtual(agent.run("q", run_id="r1"))

    lines = logged(caplog)
    started, waiting, first, *calls, second, ended = lines
    assert [line[:2] for line in lines if line not in calls] == [
        ("INFO", "run started"),
        ("INFO", waiting[1]),
        ("DEBUG", "step 1: reply with 2 calls"),
        ("DEBUG", "step 2: reply with 0 calls"),
        ("INFO", "run ended: answered"),
    ]
    assert waiting[1].startswith("reply failed: rate_limit; attempt 2 in ")
    assert started[2] == {"run_id": "r1", "step": 0}
    assert {k: waiting[2][k] for k in ("kind", "attempt", "status")} == {
        "kind": "rate_limit",
        "attempt": 2,
        "status": 429,
    }
    assert {k: first[2][k] for k in ("model", "tokens_in", "tokens_out", "retries")} == {
        "model": "m",
        "tokens_in": 10,
        "tokens_out": 2,
        "retries": 1,
    }
    assert sorted(line[1] for line in calls) == [
        "call failed: not_found",
        "call returned",
        "call started",
        "call started",
    ]
    assert all(line[2]["tool"] == "look" and line[2]["call_id"] in "ab" and line[2]["run_id"] == "r1" for line in calls)
    assert (second[2]["step"], ended[2]["kind"]) == (2, "answered")


def test_at_info_it_tells_the_run_and_not_each_call(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tool_loop"):
        Agent(ScriptedLLM(ToolCall("a", "look", '{"at": "x"}'), "done"), [look]).run_sync("q")

    assert [line[1] for line in logged(caplog)] == ["run started", "run ended: answered"]


def test_a_silent_log_is_not_even_asked(caplog: pytest.LogCaptureFixture) -> None:
    Agent(ScriptedLLM("done")).run_sync("q")

    assert logged(caplog) == []


def test_everything_a_run_can_say_is_told_without_what_was_said(caplog: pytest.LogCaptureFixture) -> None:
    said: list[Event | Signal] = [
        RunStarted("PRIVATE", "PRIVATE"), RunContinued("PRIVATE"), RunResumed("w"), RunInterrupted("auth", "PRIVATE"), Reminded("PRIVATE"),
        ModelReplied("PRIVATE", (ToolCall("a", "look", "PRIVATE"),), reasoning="PRIVATE"), ToolReturned("a", "PRIVATE"), ToolReturned("gone", "PRIVATE", "x"),
        ApprovalRequested((ApprovalRequest("a", "f"),)), ApprovalRequested(()), ApprovalDecided("a", True, "ana", "PRIVATE"), ApprovalDecided("a", False),
        Compacted(("a",), "PRIVATE", 1), Compacted(("a",)), LimitReached("deadline"), RunEnded("deadline", "PRIVATE", "journal"),
        IntentRecorded(("a",)), ModelAsked(1), TextDelta("PRIVATE"), Restarted("timeout"), Notice("say\x1b[2J this"),
    ]  # fmt: skip
    watch = log_events("r1")

    with caplog.at_level(logging.DEBUG, "tool_loop"):
        for happening in said:
            watch(happening)

    assert "PRIVATE" not in repr(logged(caplog))
    assert [line[1] for line in logged(caplog)] == [
        "run started", "run continued with another question", "run resumed", "run interrupted: auth",
        "step 1: reply with 1 calls", "call returned", "call failed: x", "waiting for a decision about 1 calls",
        "waiting for a decision about 0 calls", "call allowed", "call denied",
        "context compacted: 1 results cleared, earlier steps summarised", "context compacted: 1 results cleared",
        "limit reached: deadline", "run ended: deadline", "the text shown so far is void: timeout", "notice: say\\u001b[2J this",
    ]  # fmt: skip


# --- no key, whatever a server sends back ---------------------------------------------------------


@contextmanager
def server(*answers: Callable[[str], tuple[int, dict[str, str], bytes]]) -> Iterator[str]:
    """A server on loopback that gives its answers in order; each is made from the header it was sent."""
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            status, headers, body = left.pop(0)(self.headers["authorization"])
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}/v1"
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def error(status: int) -> Callable[[str], tuple[int, dict[str, str], bytes]]:
    def answer(sent: str) -> tuple[int, dict[str, str], bytes]:
        body = {"error": {"message": f"you sent {sent}, that is {KEY[:9]}...{KEY[-4:]}", "type": "x", "param": KEY}}
        return (
            status,
            {"content-type": "application/json", "x-echo": sent, "retry-after": "0"},
            json.dumps(body).encode(),
        )

    return answer


def page_of_html(sent: str) -> tuple[int, dict[str, str], bytes]:
    return 502, {"content-type": "text/html", "x-echo": sent}, f"<h1>{sent}</h1>".encode()


def call_of(name: str, arguments: str) -> Callable[[str], tuple[int, dict[str, str], bytes]]:
    def answer(sent: str) -> tuple[int, dict[str, str], bytes]:
        asked = {"id": "a", "type": "function", "function": {"name": name, "arguments": arguments}}
        choice = {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {"role": "assistant", "content": None, "tool_calls": [asked]},
        }
        return (
            200,
            {"content-type": "application/json", "x-echo": sent},
            json.dumps({"id": "1", "model": "m", "choices": [choice]}).encode(),
        )

    return answer


def test_a_key_that_the_server_sends_back_is_nowhere(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    @tool(effect="read")
    def leak(n: int) -> str:
        """Fails with whatever is lying around."""
        raise RuntimeError(f"the key is {KEY}")

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    seen: list[Event | Signal] = []
    answers = (error(429), page_of_html, call_of("leak", '{"n": 1}'), error(500), error(401))
    with server(*answers) as url, SqliteJournal(tmp_path / "runs.sqlite") as journal, caplog.at_level(logging.DEBUG):
        llm = OpenAIChat("m", url, KEY, stream=False)
        agent = traced(
            Agent(llm, [leak], journal=journal, on_event=seen.append, retry=RetryPolicy(first_wait=0.01)),
            tracer_provider=provider,
            content=True,
        )
        with pytest.raises(ProviderError) as raised:
            asyncio.run(agent.run("what is my key?", run_id="r1"))
        records = journal.records("r1")

    fields = [str(vars(record)) + caplog.handler.format(record) for record in caplog.records]
    places = {
        "log": "\n".join(fields),
        "error": "".join(traceback.format_exception(raised.value)) + repr(vars(raised.value)),
        "events": repr(seen),
        "traces": "".join(span.to_json() for span in exporter.get_finished_spans()),
        "journal": repr(records) + (tmp_path / "runs.sqlite").read_bytes().decode("latin-1"),
        "report": page(records),
        "objects": repr(llm) + repr(vars(llm)) + repr(agent),
    }
    assert raised.value.kind == "auth"
    assert "answered 429" in places["log"]
    assert "x-echo" in places["log"]
    for place, text in places.items():
        for part in (KEY, KEY[:14], KEY[-14:], f"{KEY[:9]}...{KEY[-4:]}"):
            assert part not in text, place


def test_a_subscriber_that_fails_with_the_key_in_its_hands_does_not_put_it_into_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = Secret(KEY)

    def broken(_: Event | Signal) -> None:
        raise RuntimeError(f"sent {secret.reveal()}")

    guard()
    with caplog.at_level(logging.DEBUG):
        Agent(ScriptedLLM("done"), on_event=broken).run_sync("q")

    assert "a subscriber failed" in caplog.text
    assert "RuntimeError: sent [key]" in caplog.text
    assert KEY not in caplog.text
    assert KEY not in "".join(str(vars(record)) for record in caplog.records)


# --- scrubbing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        "sk-proj-abcdefghijklmnop0123456789", "sk-ant-api03-abcdefghijkl1234", "gsk_abcdefghijklmnopqrstuvwx", "AIza" + "b" * 35,
        "ghp_abcdefghijklmnopqrst1234", "github_pat_11ABCDEFG0abcdefghijkl", "xoxb-123456789012-abc", "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc_def-123",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\nMIIB and then it was cut",
    ],
)  # fmt: skip
def test_what_is_formed_like_a_key_is_hidden(key: str) -> None:
    assert scrub(f"before {key}", {}) == "before [key]"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Authorization: Bearer abc.def-123456", "Authorization: Bearer [key]"),
        ("authorization: basic dXNlcjpwYXNz", "authorization: basic [key]"),
        (
            "task-force, sk-learn-contrib-helpers, hf_transfer_is_a_word",
            "task-force, sk-learn-contrib-helpers, hf_transfer_is_a_word",
        ),
        ("the bearer of good news", "the bearer of good news"),
    ],
)
def test_headers_are_hidden_and_ordinary_words_are_not(text: str, clean: str) -> None:
    assert scrub(text, {}) == clean


def test_keys_of_the_environment_are_hidden_by_the_name_of_their_variable() -> None:
    environ = {
        "SOME_API_KEY": "value-of-the-key", "GH_TOKEN": "value-of-the-token", "DB_PASSWORD": "value-of-the-password",
        "KEYBOARD": "value-of-a-keyboard", "SHORT_KEY": "short", "PWD": "/home/somebody/work",
    }  # fmt: skip

    assert (
        scrub(" ".join(environ.values()), environ) == "[key] [key] [key] value-of-a-keyboard short /home/somebody/work"
    )


def test_a_key_in_use_is_hidden_while_it_is_in_use_and_not_afterwards() -> None:
    def use() -> str:
        secret = Secret("an-ordinary-looking-key")
        assert secret in alive()
        return scrub("an-ordinary-looking-key", {})

    assert use() == "[key]"
    assert scrub("an-ordinary-looking-key", {}) == "an-ordinary-looking-key"
    assert Secret("") not in alive()


def test_values_are_scrubbed_wherever_a_text_can_be() -> None:
    secret = Secret(KEY)
    value = {KEY: [KEY, 1, None, (KEY,)], "event": RunStarted(KEY), "kind": RunBusy}

    assert secret
    assert scrubbed(value) == {"[key]": ["[key]", 1, None, ("[key]",)], "event": RunStarted("[key]"), "kind": RunBusy}


def test_a_filter_takes_keys_out_of_message_arguments_fields_and_traceback() -> None:
    secret = Secret(KEY)
    try:
        raise ValueError(secret.reveal())
    except ValueError as raised:
        info = (type(raised), raised, raised.__traceback__)
    record = logging.LogRecord("x", logging.INFO, "f.py", 1, "sent %s", (KEY,), info)
    record.note = f"with {KEY}"
    plain = logging.LogRecord(
        "x", logging.INFO, "f.py", 1, "sent %s", ("nothing",), (ValueError, ValueError("fine"), None)
    )

    assert Scrubbing().filter(record)
    assert Scrubbing().filter(plain)
    assert logging.Formatter().format(record).startswith("sent [key]\nTraceback")
    assert KEY not in str(vars(record))
    assert (record.note, record.exc_info) == ("with [key]", None)
    assert (plain.args, plain.exc_info is not None) == (("nothing",), True)


def test_guarding_twice_adds_one_filter() -> None:
    guard()
    guard()

    for name in ("httpx2", "httpcore2.http11", "tool_loop.loop.approvals", "tool_loop.journal"):
        assert sum(isinstance(f, Scrubbing) for f in logging.getLogger(name).filters) == 1, name


def test_a_secret_still_cannot_be_written_anywhere() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(Secret(KEY))


def test_a_run_that_was_interrupted_and_one_that_ran_into_a_limit_are_told(caplog: pytest.LogCaptureFixture) -> None:
    journal = MemoryJournal()
    stopped = Agent(ScriptedLLM(ToolCall("a", "look", '{"at": "x"}'), "so far"), [look], limits=Limits(steps=1))
    with caplog.at_level(logging.INFO, "tool_loop"):
        with pytest.raises(ProviderError):
            Agent(ScriptedLLM(ProviderError("401", kind="auth")), journal=journal).run_sync("q", run_id="r1")
        asyncio.run(Agent(ScriptedLLM("done"), journal=journal).resume("r1"))
        stopped.run_sync("q")

    assert [line[1] for line in logged(caplog)] == [
        "run started", "run interrupted: auth", "run resumed", "run ended: answered",
        "run started", "limit reached: step limit", "run ended: step limit",
    ]  # fmt: skip
    assert {field for line in logged(caplog) for field in line[2]} >= {"run_id", "step", "kind"}
