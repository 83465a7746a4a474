"""The real client against a server that fails on schedule: what comes back is a whole reply or a typed error.

Waits are virtual: client and server share one event loop whose clock jumps, so a hang of five minutes
and an outage of one take milliseconds. Only the bombs run in a process of their own, to be weighed.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tool_loop import Agent, Limits, OpenAIChat, ProviderError, Retrying, RetryPolicy, tool
from tool_loop.events import ModelReplied, Restarted, RetryWaiting, RunStarted, TextDelta, ToolCall
from tool_loop.ports import Request
from tool_loop.testing import FakeClock, FaultServer, HttpDate, answer, ok_chat, ok_sse, run_virtual
from tool_loop.testing.faults import wire as faults
from tool_loop.testing.server import refusals as no
from tool_loop.testing.server.behaviours import Behaviour, Received, Response
from tool_loop.transcript import Transcript

KEY = "sk-test-0123456789abcdef"
HELLO = ok_chat("Hello, world.")
FINE = ok_chat("fine")
# Client and server live in one loop, so what one sends the other has; this is for a busy machine.
PATIENCE = 0.001


@dataclass
class Outcome:
    """What came of one request to the model, and what it took."""

    reply: ModelReplied | None
    error: ProviderError | None
    said: list
    slept: list[float]
    seconds: float
    server: FaultServer

    @property
    def retried(self) -> list[str]:
        return [retry.kind for retry in self.reply.retries] if self.reply else []


async def ask(
    server: FaultServer,
    *,
    stream: bool,
    tls: bool = False,
    left: float | None = None,
    policy: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
    clock: FakeClock | None = None,
) -> Outcome:
    """One logical request with all its retries; `left` is the time the run has for it."""
    loop = asyncio.get_running_loop()
    clock = clock or FakeClock()
    llm = OpenAIChat("m", (server.https_url if tls else server.url) + "/v1", KEY, stream=stream, now=clock.now)
    transcript = Transcript()
    transcript.apply(RunStarted("a question"))
    began, said, reply, failed = loop.time(), [], None, None
    request = Request(transcript, key="key-1", deadline=None if left is None else began + left)
    try:
        retrying = Retrying(llm, policy, sleep=clock.sleep, random=lambda: 0.5)
        reply = await retrying.reply(request, said.append)
    except ProviderError as error:
        failed = error
    return Outcome(reply, failed, said, clock.slept, loop.time() - began, server)


def played(*schedule: Behaviour, stream: bool = True, otherwise: Behaviour | None = None, **options) -> Outcome:
    async def main() -> Outcome:
        clock = FakeClock()
        async with FaultServer(schedule, otherwise=otherwise, max_seconds=1e6, now=clock.now) as server:
            return await ask(server, stream=stream, clock=clock, **options)

    return run_virtual(main(), socket_patience=PATIENCE)


# --- one fault, then a good reply -----------------------------------------------------------------

# The fault, and the kind under which the reply after it reports the retry.
MENDED: dict[str, tuple[Behaviour, str]] = {
    "429": (no.rate_limit(2), "rate_limit"),
    "429 with a date": (no.rate_limit(HttpDate(7)), "rate_limit"),
    "429 without a wait": (no.rate_limit(None), "rate_limit"),
    "429 with a wait that is none": (no.rate_limit("soon"), "rate_limit"),
    "408": (no.status(408), "timeout"),
    "409": (no.status(409), "server_error"),
    "500": (no.server_error(), "server_error"),
    "502 with a page": (no.bad_gateway(), "server_error"),
    "503": (no.unavailable(), "overloaded"),
    "503 with a wait": (no.unavailable(3), "overloaded"),
    "504": (no.status(504), "timeout"),
    "529": (no.overloaded(), "overloaded"),
    "refused": (faults.refused(0.1), "connection"),
    "reset before headers": (faults.reset_before_headers(), "connection"),
    "reset after headers": (faults.reset_after_headers(), "protocol"),
    "reset at a byte": (faults.reset_at_byte(150), "protocol"),
    "closed at a byte": (faults.close_at_byte(150), "protocol"),
    "closed without a byte": (answer(raw=True, end="close"), "connection"),
    "hang before headers": (faults.hang_before_headers(), "timeout"),
    "hang in the body": (faults.hang_mid_body(150), "timeout"),
    "drip that never gets done": (faults.drip(1, 299), "timeout"),
    "garbage": (faults.garbage(), "protocol"),
    "truncated json": (faults.truncated_json(), "protocol"),
    "truncated stream": (faults.truncated_sse(2), "protocol"),
    "no utf-8": (faults.invalid_utf8(), "protocol"),
    "wrong gzip": (faults.wrong_gzip(), "protocol"),
    "a page": (faults.html(), "protocol"),
    "error in a 200": (faults.error_in_200(), "server_error"),
    "empty body": (faults.empty_body(), "protocol"),
    "no choices": (faults.no_choices(), "protocol"),
    "204 without a body": (answer(204), "protocol"),
    "202 with a queue": (answer(202, '{"status": "queued"}'), "protocol"),
    "wrong length": (answer(200, '{"choices": [', {"content-length": "900"}, end="close"), "protocol"),
    "chunks cut": (answer(200, "data: {}\n\n" * 9, framing="chunked", send=50, end="close"), "protocol"),
    "only comments, then the end": (answer(200, ": hi\n\n" * 3, {"content-type": "text/event-stream"}), "protocol"),
    "only [DONE]": (ok_sse([]), "protocol"),
    "nothing said": (ok_chat("", usage=None), "empty"),
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "document"])
@pytest.mark.parametrize("name", MENDED)
def test_one_fault_is_mended_by_asking_again(name, stream):
    fault, kind = MENDED[name]
    outcome = played(fault, FINE, stream=stream)

    outcome.server.assert_done()
    assert outcome.error is None
    assert (outcome.reply.text, outcome.retried) == ("fine", [kind])
    waits = [said for said in outcome.said if isinstance(said, RetryWaiting)]
    assert [wait.kind for wait in waits] == [kind]
    assert [wait.seconds for wait in waits] == outcome.slept
    bodies = {request.body for request in outcome.server.requests}
    keys = {request.header("idempotency-key") for request in outcome.server.requests}
    assert (len(bodies), keys) == (1, {"key-1"})


@pytest.mark.parametrize(
    ("fault", "kind", "status"),
    [
        (no.auth(), "auth", 401),
        (no.status(403, "not yours"), "auth", 403),
        (no.status(402, "pay first"), "quota", 402),
        (no.quota(), "quota", 429),
        (no.not_found(), "not_found", 404),
        (no.bad_request(), "bad_request", 400),
        (no.status(422, "no"), "bad_request", 422),
        (no.context_length(), "context_length", 400),
        (no.redirect(), "bad_request", 307),
        (no.redirect(code=301), "bad_request", 301),
    ],
    ids=lambda value: value.name if isinstance(value, Behaviour) else str(value),
)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "document"])
def test_what_no_waiting_cures_ends_at_once(fault, kind, status, stream):
    outcome = played(fault, stream=stream)

    outcome.server.assert_done()
    assert outcome.reply is None
    assert (outcome.error.kind, outcome.error.status, outcome.error.retryable) == (kind, status, False)
    assert (outcome.slept, outcome.seconds) == ([], 0)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "document"])
@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (faults.drip(1), "Grüße aus Zürich: 你好 🎉"),
        (faults.drip(3), "Grüße aus Zürich: 你好 🎉"),
        (faults.drip(40, 1.0), "Grüße aus Zürich: 你好 🎉"),
        (faults.close_after(), "Hello, world."),
        (faults.reset_on_reuse(), "Hello, world."),
    ],
    ids=["byte by byte", "three bytes", "slowly", "closed after", "reset when used again"],
)
def test_a_good_reply_that_comes_in_an_odd_way_is_a_good_reply(fault, text, stream):
    outcome = played(fault, stream=stream)

    assert (outcome.reply.text, outcome.retried) == (text, [])


@pytest.mark.parametrize("fault", [faults.close_after, faults.reset_on_reuse])
def test_a_connection_lost_between_two_requests_costs_at_most_a_retry(fault):
    async def main() -> tuple[Outcome, Outcome]:
        async with FaultServer([fault(), FINE]) as server:
            return await ask(server, stream=True), await ask(server, stream=True)

    first, second = run_virtual(main(), socket_patience=PATIENCE)

    second.server.assert_done()
    assert (first.reply.text, second.reply.text) == ("Hello, world.", "fine")
    assert second.retried in ([], ["connection"])


# --- sequences ------------------------------------------------------------------------------------

SEQUENCES: dict[str, tuple[list[Behaviour], list[str]]] = {
    "429, reset, good": ([no.rate_limit(2), faults.reset_at_byte(40)], ["rate_limit", "protocol"]),
    "503 three times": ([no.unavailable()] * 3, ["overloaded"] * 3),
    "529, 503, 502": (
        [no.overloaded(), no.unavailable(), no.bad_gateway()],
        ["overloaded", "overloaded", "server_error"],
    ),
    "everything once": (
        [no.rate_limit(1), no.server_error(), faults.reset_before_headers(), faults.html(), faults.truncated_sse(1)],
        ["rate_limit", "server_error", "connection", "protocol", "protocol"],
    ),
    "hang, then refused": ([faults.hang_before_headers(), faults.refused(0.4)], ["timeout", "connection"]),
    "text, then text, then good": ([faults.hang_mid_body(250), faults.reset_at_byte(250)], ["timeout", "protocol"]),
    "reset ten times": ([faults.reset_before_headers()] * 10, ["connection"] * 10),
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "document"])
@pytest.mark.parametrize("name", SEQUENCES)
def test_a_row_of_faults_is_sat_out(name, stream):
    schedule, kinds = SEQUENCES[name]
    outcome = played(*schedule, FINE, stream=stream)

    outcome.server.assert_done()
    assert (outcome.reply.text, outcome.retried) == ("fine", kinds)


FOR_EVER: dict[str, tuple[Behaviour, str]] = {
    "429": (no.rate_limit(5), "rate_limit"),
    "500": (no.server_error(), "server_error"),
    "503": (no.unavailable(), "overloaded"),
    "529": (no.overloaded(), "overloaded"),
    "reset": (faults.reset_before_headers(), "connection"),
    "reset in the body": (faults.reset_at_byte(100), "protocol"),
    "closed in the body": (faults.close_at_byte(100), "protocol"),
    "hang": (faults.hang_before_headers(), "timeout"),
    "hang in the body": (faults.hang_mid_body(100), "timeout"),
    "truncated": (faults.truncated_sse(2), "protocol"),
    "a page": (faults.html(), "protocol"),
    "empty replies": (ok_chat(""), "empty"),
    "comments now and then": (faults.infinite_comments(200), "timeout"),
}


@pytest.mark.parametrize("name", FOR_EVER)
def test_a_fault_that_never_ends_ends_in_a_typed_error_within_the_time_there_is(name):
    fault, kind = FOR_EVER[name]
    outcome = played(otherwise=fault, left=60)

    assert outcome.reply is None
    assert outcome.error.kind == kind
    assert outcome.seconds <= 60
    assert 1 <= len(outcome.server.requests) <= 20


@pytest.mark.parametrize("name", FOR_EVER)
def test_without_a_deadline_the_requests_are_bounded_too(name):
    fault, kind = FOR_EVER[name]
    outcome = played(otherwise=fault)

    assert outcome.error.kind == kind
    assert len(outcome.server.requests) <= RetryPolicy().attempts


@pytest.mark.parametrize(
    "fault", [faults.tls_alert, faults.tls_plain_http, faults.garbage, faults.reset_before_headers]
)
def test_a_server_without_tls_is_a_failed_connection(fault):
    outcome = played(otherwise=fault(), tls=True, left=5)

    assert outcome.error.kind == "connection"


def test_a_certificate_nobody_trusts_is_a_failed_connection_and_sees_no_key():
    async def main() -> Outcome:
        async with FaultServer([FINE], tls=True) as server:
            return await ask(server, stream=True, left=5)

    outcome = run_virtual(main(), socket_patience=PATIENCE)

    assert outcome.error.kind == "connection"
    assert "certificate" in outcome.error.message
    assert outcome.server.requests == []


# --- waiting --------------------------------------------------------------------------------------


def outage(until: float) -> Behaviour:
    """Resets until this many seconds after the server's start, then good replies."""

    def respond(request: Received) -> Response:
        return (FINE if request.at >= until else faults.reset_before_headers()).respond(request)

    return Behaviour("outage", respond)


def test_an_outage_of_a_minute_is_survived_when_there_is_time():
    outcome = played(otherwise=outage(60), left=300)

    assert outcome.reply.text == "fine"
    assert 60 <= outcome.seconds <= 90
    assert outcome.reply.seconds == outcome.seconds


def test_with_five_seconds_left_an_outage_is_asked_again_and_fails_within_them():
    outcome = played(otherwise=outage(60), left=5)

    assert outcome.error.kind == "connection"
    assert len(outcome.slept) > 1
    assert outcome.seconds < 5


@pytest.mark.parametrize(
    ("headers", "asked"),
    [
        ({"retry-after": "20"}, 20),
        ({"retry-after": HttpDate(20)}, 20),
        ({"retry-after-ms": "2500"}, 2.5),
        ({"retry-after": "1", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "0"}, 0),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "12s"}, 12),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m3s"}, 63),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else str(value),
)
def test_nothing_is_asked_again_earlier_than_the_server_wished(headers, asked):
    outcome = played(no.status(429, kind="rate_limit_exceeded", headers=headers), otherwise=FINE, left=3_000)

    if outcome.reply is not None:
        one, two = outcome.server.requests
        assert two.at - one.at >= asked
        assert two.at - one.at <= asked + 2
    else:
        assert "63 s" in outcome.error.message
        assert outcome.slept == []


def test_a_wait_that_does_not_fit_is_reported_with_the_figure_instead_of_slept():
    outcome = played(no.rate_limit(50), left=30)

    assert outcome.error.kind == "rate_limit"
    assert outcome.error.retry_after == 50
    assert "50" in outcome.error.message
    assert outcome.seconds == 0


# --- what may not happen --------------------------------------------------------------------------


def test_a_redirect_is_not_followed_and_the_key_stays_with_its_origin():
    async def main() -> tuple[Outcome, FaultServer]:
        async with FaultServer(otherwise=FINE) as other, FaultServer([no.redirect(other.url + "/v1")]) as server:
            return await ask(server, stream=True), other

    outcome, other = run_virtual(main(), socket_patience=PATIENCE)

    assert outcome.error.kind == "bad_request"
    assert outcome.server.saw(KEY)
    assert other.requests == []


def test_the_key_is_not_shown_even_when_the_server_echoes_it():
    echoes = [no.status(401, f"Incorrect API key provided: {KEY}"), answer(200, f"<html>{KEY}</html>")]
    outcomes = [played(echo, left=1, policy=RetryPolicy(attempts=1)) for echo in echoes]

    for outcome in outcomes:
        error = outcome.error
        assert KEY not in f"{error} {error!r} {error.message} {error.raw}"


@pytest.mark.parametrize("fault", [faults.reset_at_byte, faults.hang_mid_body, faults.close_at_byte])
def test_text_of_an_attempt_that_failed_is_taken_back(fault):
    outcome = played(fault(500), FINE)

    shown = [said for said in outcome.said if isinstance(said, TextDelta | Restarted)]
    restart = next(n for n, said in enumerate(shown) if isinstance(said, Restarted))
    assert restart > 0
    assert "".join(said.text for said in shown[restart + 1 :]) == "fine"
    assert outcome.reply.text == "fine"


# --- no tool runs from a broken reply -------------------------------------------------------------

RECORDED = Path(__file__).parents[1] / "data/wire/llamacpp/043-q15-fence-auto-sse-listdir.response.sse"
EVENTS = [event + b"\n\n" for event in RECORDED.read_bytes().split(b"\n\n") if event]
# From here on the call is whole: its finish_reason has come.
WHOLE = next(n for n, event in enumerate(EVENTS, 1) if b'"finish_reason":"tool_calls"' in event)
WHOLE_BYTES = sum(map(len, EVENTS[:WHOLE]))
STREAM = answer(200, b"".join(EVENTS), {"content-type": "text/event-stream"}, framing="chunked", name="recorded")


@dataclass
class Run:
    answer: str
    ran: list[str]
    server: FaultServer


def run_agent(*schedule: Behaviour, stream: bool = True) -> Run:
    """A whole run with a tool that tells whether it ran; every request beyond the schedule is answered "done"."""
    ran: list[str] = []

    @tool(effect="once")
    async def list_dir(path: str) -> str:
        """List a folder."""
        ran.append(path)
        return "agent.py"

    async def main() -> Run:
        async with FaultServer(schedule, otherwise=ok_chat("done"), max_seconds=1e6) as server:
            llm = Retrying(OpenAIChat("m", server.url + "/v1", KEY, stream=stream), random=lambda: 0.5)
            agent = Agent(llm, [list_dir], retry=None, limits=Limits(seconds=3_600))
            result = await agent.run("what is in src?")
            return Run(result.answer, ran, server)

    return run_virtual(main(), socket_patience=PATIENCE)


def test_the_recorded_stream_itself_runs_its_tool_once():
    run = run_agent(STREAM)

    assert (run.ran, run.answer) == (["src"], "done")
    assert len(EVENTS) - WHOLE == 2


@pytest.mark.parametrize("how", ["ends", "close", "reset", "hang"])
@pytest.mark.parametrize("events", range(len(EVENTS)))
def test_a_stream_cut_after_any_event_runs_a_tool_only_when_the_call_is_whole(events, how):
    if how == "ends":
        cut = faults.truncated_sse(events, STREAM)
    else:
        size = sum(map(len, EVENTS[:events]))
        cut = STREAM.but("cut", lambda response: replace(response, send=size, end=how))
    run = run_agent(cut)

    assert run.ran == (["src"] if events >= WHOLE else [])
    assert run.answer == "done"
    assert len(run.server.requests) == 2


@pytest.mark.parametrize("at", range(1, len(RECORDED.read_bytes()), 171))
def test_a_stream_reset_at_any_byte_runs_a_tool_only_when_the_call_is_whole(at):
    run = run_agent(faults.reset_at_byte(at, STREAM))

    assert run.ran == (["src"] if at >= WHOLE_BYTES else [])
    assert run.answer == "done"


CALL = ok_chat("", [ToolCall("call_1", "list_dir", '{"path": "src"}')])


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "document"])
@pytest.mark.parametrize(
    "broken",
    [
        faults.truncated_json(CALL),
        faults.truncated_sse(3, CALL),
        faults.duplicated_chunks(CALL),
        faults.invalid_utf8(CALL),
        faults.wrong_gzip(CALL),
        faults.reset_at_byte(250, CALL),
        faults.close_at_byte(250, CALL),
        faults.hang_mid_body(250, CALL),
        ok_chat("", [ToolCall("call_1", "list_dir", '{"path": "src"}')], finish="length"),
        ok_chat("", [ToolCall("call_1", "list_dir", '{"path": "sr')]),
        ok_chat("", [ToolCall("call_1", "list_dir", '{"path": "src"} and more')]),
        ok_chat("", [ToolCall("call_1", "list_dir", '{"path": 1}')]),
        ok_chat("", [ToolCall("call_1", "", '{"path": "src"}')]),
    ],
    ids=[
        *("half a document", "three events", "twice", "no utf-8", "wrong gzip", "reset", "closed", "hang"),
        *("cut by length", "half the arguments", "more than arguments", "wrong type", "no name"),
    ],
)
def test_no_tool_runs_from_a_broken_reply(broken, stream):
    run = run_agent(broken, stream=stream)

    assert (run.ran, run.answer) == ([], "done")
    # What goes back is JSON whatever came, and no half of a broken reply is in it.
    for request in run.server.requests:
        assert [message["role"] for message in request.json()["messages"]][:2] == ["system", "user"]


def test_a_call_that_comes_in_drips_runs_once():
    run = run_agent(faults.drip(2, of=CALL))

    assert (run.ran, run.answer) == (["src"], "done")


# --- bombs ----------------------------------------------------------------------------------------

MEMORY = 64 * 2**20
SECONDS = 3.0  # of CPU, since the machine may be busy; they take a tenth of it


def endless(again: bytes, *, status: int = 200, kind: str = "text/event-stream") -> Behaviour:
    return answer(
        status, faults.endless(b"", again * (65_536 // len(again))), {"content-type": kind}, framing="chunked"
    )


def delta(fields: str) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{%s}}]}\n\n' % fields.encode()


JSON = {"content-type": "application/json"}
GZIP = faults.gzip_bomb().respond(Received("POST", "/")).body
BOMBS: dict[str, Behaviour] = {
    "gzip": faults.gzip_bomb(),
    "gzip document": faults.gzip_bomb(),
    "gzip in an error": answer(500, GZIP, {"content-encoding": "gzip"}, framing="chunked"),
    "body document": faults.infinite_body(),
    "body of an error": endless(b"no ", status=500, kind="text/plain"),
    "line": faults.infinite_line(),
    "comments": faults.infinite_comments(),
    "blank lines": endless(b"\n"),
    "blank lines document": endless(b"\n", kind="application/json"),
    "fields without colon": endless(b"data\n"),
    "unknown fields": endless(b"x: y\n"),
    "headers": faults.header_bomb(),
    "header": faults.long_header(),
    "deep document": answer(200, b"[" * 7_000_000, JSON),
    "wide document": answer(200, b"[" + b"{}," * 690_000 + b"{}]", JSON),
    "wide event": answer(200, b'data: {"choices": [' + b"{}," * 690_000 + b"{}]}\n\n", framing="chunked"),
}


def weigh(bombs: dict[str, Behaviour]) -> dict[str, dict]:
    """What each cost a process that asked for it."""
    with FaultServer([HELLO, *bombs.values()]) as server:
        command = [sys.executable, str(Path(__file__).parents[1] / "kit" / "bombs.py"), server.url, *bombs]
        # Not measured: what is weighed is the client, and not the one who counts its lines.
        bare = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=bare)
    server.assert_done()
    return {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def weighed() -> dict[str, dict]:
    return weigh(BOMBS)


weighs = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="weighs memory by /proc")


@weighs
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_costs_little_memory_and_time_and_ends_in_a_typed_error(name, weighed):
    row = weighed[name]

    assert row["kind"] == ("server_error" if "error" in name else "protocol")
    assert row["grew"] < MEMORY
    assert row["took"] < SECONDS


CALLS = (f'"tool_calls":[{{"index":{n},"id":"c{n}","function":{{"name":"f","arguments":"{{}}"}}}}]' for n in range(500))
FLOODS: dict[str, Behaviour] = {
    "text": endless(delta('"content":"la la la"')),
    "reasoning": endless(delta('"reasoning_content":"la la la"')),
    "arguments": endless(delta('"tool_calls":[{"index":0,"function":{"arguments":"la la la"}}]')),
    "calls": answer(200, faults.endless(b"", b"".join(map(delta, CALLS))), framing="chunked"),
}


@weighs
@pytest.mark.slow  # a million good events each, which is what the limit on a stream lets through
@pytest.mark.parametrize("name", FLOODS)
def test_a_reply_that_is_good_and_never_ends_costs_little_memory_and_ends_in_a_typed_error(name):
    row = weigh({name: FLOODS[name]})[name]

    assert row["kind"] == "protocol"
    assert row["grew"] < MEMORY
