from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
import tempfile
import threading
import time
import zlib
from pathlib import Path

import httpx2
import pytest

from tool_loop.errors import UsageError
from tool_loop.events import ToolCall
from tool_loop.testing import FAULTS, FakeClock, FaultServer, HttpDate, Response, answer, ok_chat, ok_json, run_virtual
from tool_loop.testing.faults import wire as faults
from tool_loop.testing.server import refusals as no
from tool_loop.testing.server.behaviours import Behaviour, Received

PLAIN = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}"
STREAM = PLAIN.replace(b"content-length: 2\r\n\r\n{}", b'content-length: 15\r\n\r\n{"stream":true}')
ENOUGH = 600_000  # bytes: more than any reply here that ends


def connect(server: FaultServer) -> socket.socket:
    host, port = server.url.rpartition("/")[2].split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def heard(sock: socket.socket) -> tuple[bytes, str]:
    """All the server sends, and how it ended: "eof", "reset", or "enough" when it went on and on."""
    got = b""
    while len(got) < ENOUGH:
        try:
            piece = sock.recv(65536)
        except ConnectionResetError:
            return got, "reset"
        if not piece:
            return got, "eof"
        got += piece
    return got, "enough"


def ask(server: FaultServer, request: bytes = PLAIN) -> tuple[bytes, str]:
    with connect(server) as sock:
        sock.sendall(request)
        return heard(sock)


def body_of(reply: bytes) -> bytes:
    return reply.partition(b"\r\n\r\n")[2]


def unchunked(body: bytes) -> bytes:
    whole = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        whole += rest[: int(size, 16)]
        body = rest[int(size, 16) + 2 :]
    return whole


def events_of(reply: bytes) -> list[str]:
    lines = unchunked(body_of(reply)).decode().split("\n\n")
    return [line.removeprefix("data: ") for line in lines if line]


# --- good replies ---------------------------------------------------------------------------------


def test_a_chat_reply_is_a_document_unless_a_stream_is_asked_for():
    call = ToolCall("call_1", "grep", '{"pattern": "class ToolError"}')
    with FaultServer([ok_chat("Grüße", [call]), ok_chat("Grüße", [call])]) as server:
        document, _ = ask(server)
        stream, _ = ask(server, STREAM)
    server.assert_done()

    whole = json.loads(body_of(document))
    message = whole["choices"][0]["message"]
    assert message["content"] == "Grüße"
    assert message["tool_calls"][0]["function"] == {"name": "grep", "arguments": call.arguments}
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    assert whole["usage"]["total_tokens"] == 17
    *chunks, done = events_of(stream)
    assert done == "[DONE]"
    deltas = [json.loads(chunk)["choices"][0]["delta"] for chunk in chunks if json.loads(chunk)["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "Grüße"
    parts = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert parts[0]["id"] == "call_1"
    assert "".join(part["function"]["arguments"] for part in parts) == call.arguments
    assert json.loads(chunks[-1])["usage"]["prompt_tokens"] == 12


def test_a_chat_reply_can_leave_the_usage_out():
    with FaultServer([ok_chat("hi", usage=None), ok_chat("hi", usage=None)]) as server:
        document, _ = ask(server)
        stream, _ = ask(server, STREAM)

    assert b"usage" not in document + stream


def test_requests_take_the_behaviours_in_order_and_are_recorded():
    with FaultServer([no.status(503), ok_json({"fine": True})]) as server:
        first, _ = ask(server)
        second, _ = ask(server, PLAIN.replace(b"host: x", b"host: x\r\nAuthorization: Bearer k"))
    server.assert_done()

    assert first.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert json.loads(body_of(second)) == {"fine": True}
    one, two = server.requests
    assert (one.method, one.path, one.body, one.behaviour) == ("POST", "/v1/chat/completions", b"{}", "status_503")
    assert (two.header("AUTHORIZATION"), two.behaviour) == ("Bearer k", "ok_json")
    assert two.header("x-nothing") is None
    assert 0 <= one.at <= two.at
    assert (one.connection, two.connection) == (1, 2)
    assert "Bearer" not in repr(server.requests)


@pytest.mark.parametrize("body", [b"", b"[1]", b"\xff", b'{"stream": 1}', b'{"stream": false}'])
def test_only_a_clear_wish_for_a_stream_is_one(body):
    assert Received("POST", "/", body=body).wants_stream() is False


def test_a_request_beyond_the_schedule_is_told_so_and_kept_as_unexpected():
    with FaultServer([ok_chat("only one")]) as server:
        ask(server)
        reply, _ = ask(server)

    assert reply.startswith(b"HTTP/1.1 500")
    assert b"request 2 (POST /v1/chat/completions) is beyond the schedule" in reply
    assert [request.behaviour for request in server.unexpected] == ["unexpected"]
    with pytest.raises(AssertionError, match="beyond the schedule: POST"):
        server.assert_done()


def test_what_was_never_asked_for_is_named():
    with FaultServer([no.rate_limit(), ok_chat("x")]) as server:
        ask(server)

    with pytest.raises(AssertionError, match=r"never asked for: ok_chat \(after 1 requests\)"):
        server.assert_done()


def test_otherwise_answers_everything_beyond_the_schedule():
    with FaultServer([ok_chat("one")], otherwise=no.server_error()) as server:
        replies = [ask(server)[0][:12] for _ in range(4)]
    server.assert_done()

    assert replies == [b"HTTP/1.1 200", *[b"HTTP/1.1 500"] * 3]


def test_the_schedule_can_grow_while_it_is_served():
    with FaultServer() as server:
        server.add(ok_json(1))
        ask(server)
        server.add(ok_json(2), ok_json(3))
        replies = [body_of(ask(server)[0]) for _ in range(2)]
    server.assert_done()

    assert replies == [b"2", b"3"]


def test_a_behaviour_of_the_test_that_raises_is_reported_and_not_swallowed():
    def broken(_: Received) -> Response:
        raise KeyError("oops")

    with FaultServer([Behaviour("mine", broken)]) as server:
        reply, _ = ask(server)

    assert b"the behaviour 'mine' raised KeyError('oops')" in reply
    with pytest.raises(AssertionError, match="KeyError"):
        server.assert_done()


def test_fifty_clients_at_once_are_each_answered_once():
    async def main(url: str) -> list[int]:
        async with httpx2.AsyncClient() as client:
            replies = await asyncio.gather(*(client.post(url, json={}) for _ in range(50)))
        return sorted(reply.json() for reply in replies)

    with FaultServer([ok_json(n) for n in range(50)]) as server:
        answers = asyncio.run(main(server.url))
    server.assert_done()

    assert answers == list(range(50))


# --- faults ---------------------------------------------------------------------------------------

# What a client sees of each: the start of what comes, the end of it, how the connection ends.
SEEN: dict[str, tuple[bytes, bytes, str]] = {
    "rate_limit": (b"HTTP/1.1 429", b"}", "eof"),
    "quota": (b"HTTP/1.1 429", b"}", "eof"),
    "overloaded": (b"HTTP/1.1 529", b"}", "eof"),
    "unavailable": (b"HTTP/1.1 503", b"}", "eof"),
    "server_error": (b"HTTP/1.1 500", b"}", "eof"),
    "bad_gateway": (b"HTTP/1.1 502", b"</html>", "eof"),
    "auth": (b"HTTP/1.1 401", b"}", "eof"),
    "not_found": (b"HTTP/1.1 404", b"}", "eof"),
    "bad_request": (b"HTTP/1.1 400", b"}", "eof"),
    "context_length": (b"HTTP/1.1 400", b"}", "eof"),
    "redirect": (b"HTTP/1.1 307", b"moved", "eof"),
    "reset_before_headers": (b"", b"", "reset"),
    "reset_after_headers": (b"HTTP/1.1 200", b"\r\n\r\n", "reset"),
    "reset_at_byte": (b"HTTP/1.1 200", b'{"id": "chatcmpl-1",', "reset"),
    "close_at_byte": (b"HTTP/1.1 200", b'{"id": "chatcmpl-1",', "eof"),
    "hang_before_headers": (b"", b"", "reset"),
    "hang_mid_body": (b"HTTP/1.1 200", b'{"id": "chatcmpl-1",', "reset"),
    "drip": (b"HTTP/1.1 200", b"}", "eof"),
    "close_after": (b"HTTP/1.1 200", b"}", "eof"),
    "reset_on_reuse": (b"HTTP/1.1 200", b"}", "reset"),
    "garbage": (b"\x00\x01SSH", b"\xff\xfe", "eof"),
    "tls_alert": (b"\x15\x03\x03", b"\x28", "eof"),
    "tls_plain_http": (b"HTTP/1.1 400", b"\r\n\r\n", "eof"),
    "truncated_json": (b"HTTP/1.1 200", b'"role": "assi', "eof"),
    "truncated_sse": (b"HTTP/1.1 200", b'"role": "assi', "eof"),
    "duplicated_chunks": (b"HTTP/1.1 200", b"}", "eof"),
    "invalid_utf8": (b"HTTP/1.1 200", b"}", "eof"),
    "wrong_gzip": (b"HTTP/1.1 200", b"}", "eof"),
    "html": (b"HTTP/1.1 200", b"</html>", "eof"),
    "error_in_200": (b"HTTP/1.1 200", b"}", "eof"),
    "empty_body": (b"HTTP/1.1 200", b"\r\n\r\n", "eof"),
    "no_choices": (b"HTTP/1.1 200", b"}", "eof"),
    "gzip_bomb": (b"HTTP/1.1 200", b"", "enough"),
    "infinite_body": (b"HTTP/1.1 200", b"", "enough"),
    "infinite_line": (b"HTTP/1.1 200", b"", "enough"),
    "infinite_comments": (b"HTTP/1.1 200", b"", "enough"),
    "header_bomb": (b"HTTP/1.1 200", b"", "enough"),
    "long_header": (b"HTTP/1.1 200", b"", "enough"),
}


def test_every_fault_is_seen_below_but_the_one_that_is_no_request():
    assert set(SEEN) | {"refused"} == set(FAULTS)
    assert all(make().name == name for name, make in FAULTS.items())
    assert all(make.__doc__ for make in FAULTS.values())


@pytest.mark.parametrize("name", SEEN)
def test_a_fault_does_to_the_wire_what_its_name_says(name):
    starts, ends, how = SEEN[name]
    fault = FAULTS[name](64) if name == "gzip_bomb" else FAULTS[name]()
    if name == "gzip_bomb":
        how = "eof"
    request = PLAIN if name != "reset_on_reuse" else PLAIN.replace(b"connection: close\r\n", b"") * 2
    with FaultServer([fault], max_seconds=0.2 if "hang" in name else 5) as server:
        reply, ending = ask(server, request)
    server.assert_done()

    assert (reply[: len(starts)], ending) == (starts, how)
    assert how == "enough" or reply.endswith(ends)


def test_a_cut_stream_can_be_cut_after_each_event():
    def cut(n: int) -> list[str]:
        with FaultServer([faults.truncated_sse(n)]) as server:
            reply, ending = ask(server, STREAM)
        assert ending == "eof"
        assert reply.endswith(b"0\r\n\r\n")
        return events_of(reply)

    whole = cut(100)

    assert whole[-1] == "[DONE]"
    assert [cut(n) for n in range(len(whole))] == [whole[:n] for n in range(len(whole))]


def test_a_stream_can_be_reset_at_any_byte_of_its_body():
    def until(at: int) -> bytes:
        with FaultServer([faults.reset_at_byte(at)]) as server:
            reply, ending = ask(server, STREAM)
        assert ending == "reset"
        return unchunked(body_of(reply))

    assert [len(until(at)) for at in (0, 1, 17, 200)] == [0, 1, 17, 200]


def test_a_body_that_is_made_while_it_is_sent_can_be_cut_too():
    with FaultServer([faults.reset_at_byte(70_000, faults.infinite_body())]) as server:
        reply, ending = ask(server)

    assert ending == "reset"
    assert len(unchunked(body_of(reply))) == 70_000


def test_duplicated_events_come_twice_and_a_document_too():
    with FaultServer([faults.duplicated_chunks(), faults.duplicated_chunks()]) as server:
        events = events_of(ask(server, STREAM)[0])
        document = body_of(ask(server)[0])

    assert events[::2] == events[1::2]
    assert document[: len(document) // 2] == document[len(document) // 2 :]


def test_bytes_that_are_no_utf8_stand_inside_of_a_string():
    with FaultServer([faults.invalid_utf8(), faults.invalid_utf8(ok_json({}))]) as server:
        text = body_of(ask(server)[0])
        nothing_to_spoil = body_of(ask(server)[0])

    assert json.loads(text.decode(errors="replace"))["choices"][0]["message"]["content"] == "\ufffd\ufffdHello, world."
    assert nothing_to_spoil == b"{\xff\xfe}"


def test_an_error_in_a_200_comes_as_an_event_where_a_stream_is_asked_for():
    with FaultServer([faults.error_in_200()]) as server:
        events = events_of(ask(server, STREAM)[0])

    assert [json.loads(event)["error"]["code"] for event in events] == [500]


def test_a_gzip_bomb_is_valid_and_as_large_as_promised():
    with FaultServer([faults.gzip_bomb(3)]) as server:
        body = unchunked(body_of(ask(server)[0]))

    assert len(body) < 10_000
    assert len(zlib.decompress(body, 31)) == 3 * 2**20


@pytest.mark.parametrize(
    ("asked", "header"),
    [(2, b"2"), (0.5, b"0.5"), ("soon", b"soon"), (HttpDate(30), b"Thu, 01 Jan 2026 00:00:30 GMT")],
)
def test_a_wait_is_asked_for_in_every_form(asked, header):
    with FaultServer([no.rate_limit(asked)], now=FakeClock().now) as server:
        reply, _ = ask(server)

    assert b"retry-after: " + header + b"\r\n" in reply


def test_a_wait_can_be_left_out_and_a_503_can_have_one():
    with FaultServer([no.rate_limit(None), no.unavailable(3)]) as server:
        without, _ = ask(server)
        busy, _ = ask(server)

    assert b"retry-after" not in without
    assert b"retry-after: 3\r\n" in busy


def test_a_redirect_leads_to_a_second_server_that_tells_whether_it_saw_the_key():
    with FaultServer(otherwise=ok_chat("stolen")) as other, FaultServer([no.redirect(other.url + "/v1")]) as server:
        with httpx2.Client(follow_redirects=False) as careful:
            careful.post(server.url, headers={"authorization": "Bearer sk-1"})
        seen_by_careful = other.saw("sk-1")
        with httpx2.Client() as careless:
            careless.post(other.url, json={"key": "sk-1"})

    assert server.saw("Bearer sk-1")
    assert not seen_by_careful
    assert other.saw("sk-1")


# --- connections ----------------------------------------------------------------------------------


def test_a_connection_is_kept_and_one_closed_under_the_client_is_not():
    with FaultServer([ok_json(1), faults.close_after(ok_json(2)), ok_json(3)]) as server, httpx2.Client() as client:
        replies = [client.post(server.url, json={}).json() for _ in range(3)]
    server.assert_done()

    assert replies == [1, 2, 3]
    assert [request.connection for request in server.requests] == [1, 1, 2]


def test_a_connection_that_dies_as_the_next_request_arrives_is_recorded_but_not_scheduled():
    with FaultServer([faults.reset_on_reuse(), ok_json("again")]) as server, httpx2.Client() as client:
        client.post(server.url, json={})
        with pytest.raises(httpx2.TransportError):
            client.post(server.url, json={})
        reply = client.post(server.url, json={}).json()
    server.assert_done()

    assert reply == "again"
    assert [request.behaviour for request in server.requests] == ["reset_on_reuse", "reset_on_reuse", "ok_json"]


def test_a_body_without_length_or_chunks_ends_with_the_connection():
    with FaultServer([answer(200, "to the end", framing="close")]) as server:
        reply, ending = ask(server, PLAIN.replace(b"connection: close\r\n", b""))

    assert (body_of(reply), ending) == (b"to the end", "eof")
    assert b"connection: close\r\n" in reply


def test_a_body_of_unknown_length_needs_a_framing():
    with pytest.raises(UsageError, match="framing"):
        answer(200, lambda: iter([b"x"]))


def test_a_length_of_ones_own_is_not_corrected():
    with FaultServer([answer(200, "short", {"Content-Length": "500"}, end="close")]) as server:
        reply, ending = ask(server)

    assert b"Content-Length: 500\r\n\r\nshort" in reply
    assert ending == "eof"


def test_a_request_in_chunks_and_one_that_waits_for_a_100_are_read():
    chunked = b"POST /c HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nx-trailer: 1\r\n\r\n"
    patient = b"POST /e HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\nconnection: close\r\n\r\n"
    with FaultServer([ok_json(1), ok_json(2)]) as server, connect(server) as sock:
        sock.sendall(chunked + patient)
        first = b""
        while b"100 Continue\r\n\r\n" not in first:
            first += sock.recv(1)
        sock.sendall(b"hi")
        reply, _ = heard(sock)
    server.assert_done()

    assert [request.body for request in server.requests] == [b"abcde", b"hi"]
    assert reply.endswith(b"\r\n\r\n2")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"HELO mail\r\n\r\n",
        b"GET / SPDY/3\r\n\r\n",
        b"GET / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n",
        b"GET / HTTP/1.1\r\ncontent-length: many\r\n\r\n",
        b"GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"GET / HTTP/1.1\r\nx: " + b"a" * (2**20 + 70_000),
    ],
    ids=["not http", "other protocol", "negative", "huge", "no number", "bad chunk", "endless head"],
)
def test_what_is_no_request_is_answered_with_the_reason(request_bytes):
    with FaultServer() as server, connect(server) as sock:
        sock.sendall(request_bytes)
        reply, _ = heard(sock)

    assert reply == b"" or b"FaultServer cannot read this request" in reply
    assert [request.behaviour for request in server.unexpected] == ["not_http"]


@pytest.mark.parametrize("part", [b"P", b"POST / HT", PLAIN[:-1]])
def test_a_client_that_leaves_in_the_middle_of_its_request_is_no_request(part):
    with FaultServer([ok_json(1)]) as server:
        with connect(server) as sock:
            sock.sendall(part)
        reply, _ = ask(server)
    server.assert_done()

    assert body_of(reply) == b"1"
    assert len(server.requests) == 1


# --- refusing -------------------------------------------------------------------------------------


def test_connections_are_refused_until_the_server_listens():
    with FaultServer([ok_json("now")], listening=False) as server:
        with pytest.raises(ConnectionRefusedError):
            connect(server)
        server.listen()
        server.listen()
        reply, _ = ask(server)
    server.assert_done()

    assert body_of(reply) == b'"now"'


def test_a_schedule_can_begin_with_a_refusal():
    with FaultServer([faults.refused(30), ok_json("now")]) as server:
        with pytest.raises(ConnectionRefusedError):
            connect(server)
        server.listen()
        reply, _ = ask(server)
    server.assert_done()

    assert body_of(reply) == b'"now"'


def test_a_refusal_in_the_middle_closes_the_connection_that_is_open_and_keeps_the_port():
    with FaultServer([ok_json(1), faults.refused(30), faults.refused(30), ok_json(2)]) as server:
        before = server.url
        with httpx2.Client() as client:
            assert client.post(server.url, json={}).headers["connection"] == "close"
            with pytest.raises(httpx2.ConnectError):
                client.post(server.url, json={})
            server.listen()
            reply = client.post(server.url, json={}).json()
    server.assert_done()

    assert reply == 2
    assert server.url == before


def test_a_refusal_ends_by_itself_after_its_time():
    async def main() -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        async with FaultServer([faults.refused(600), ok_json(7)]) as server, httpx2.AsyncClient() as client:
            while True:
                try:
                    reply = await client.post(server.url, json={})
                except httpx2.ConnectError:
                    await asyncio.sleep(60)
                else:
                    return reply.json(), loop.time()

    assert run_virtual(main(), socket_patience=0.002) == (7, 600)


# --- TLS ------------------------------------------------------------------------------------------


def handshake(server: FaultServer, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(connect(server), server_hostname="127.0.0.1")


def test_nobody_trusts_the_certificate_unless_given_it():
    with FaultServer([ok_json("secret")], tls=True) as server:
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(server, ssl.create_default_context())
        with handshake(server, ssl.create_default_context(cadata=server.certificate)) as sock:
            sock.sendall(PLAIN)
            reply, _ = heard(sock)
    server.assert_done()

    assert server.url.startswith("https://")
    assert body_of(reply) == b'"secret"'


def test_a_reset_reaches_through_tls():
    with (
        FaultServer([faults.reset_at_byte(5)], tls=True) as server,
        handshake(server, ssl.create_default_context(cadata=server.certificate)) as sock,
    ):
        sock.sendall(PLAIN)
        reply, ending = heard(sock)

    assert body_of(reply) == b'{"id"'
    assert ending in ("reset", "eof")  # the ssl module takes a lost connection for an end


@pytest.mark.parametrize(
    "fault", [faults.tls_alert, faults.tls_plain_http, faults.garbage, faults.reset_before_headers]
)
def test_a_handshake_on_a_plain_port_takes_the_next_behaviour(fault):
    with FaultServer([fault()]) as server, pytest.raises((ssl.SSLError, ConnectionResetError)):
        handshake(server, ssl.create_default_context())
    server.assert_done()

    assert server.https_url.startswith("https://127.0.0.1:")
    assert [request.method for request in server.requests] == ["TLS"]


# --- bounds ---------------------------------------------------------------------------------------


def test_a_body_without_end_is_reset_at_the_byte_limit():
    with FaultServer([faults.infinite_body()], max_bytes=200_000) as server:
        reply, ending = ask(server)

    assert ending == "reset"
    assert 0 < len(reply) <= 210_000
    assert server.sent_bytes <= 210_000


def test_a_client_that_does_not_read_holds_the_server_up_no_longer_than_its_limit():
    with FaultServer([faults.infinite_body(), ok_json(1)], max_seconds=0.1) as server, connect(server) as idle:
        idle.sendall(PLAIN)
        reply, _ = ask(server)
    server.assert_done()

    assert body_of(reply) == b"1"
    assert server.sent_bytes < 64 * 2**20


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_leaving_ends_the_thread_and_closes_every_socket_even_with_clients_hanging_on():
    with FaultServer():
        pass  # what is only opened once, and kept, is open now
    before, threads = open_descriptors(), threading.active_count()
    schedule = [faults.hang_before_headers(), faults.infinite_body(), ok_json(1)]
    with FaultServer(schedule) as server, connect(server) as one, connect(server) as two, connect(server) as three:
        for sock in (one, two, three):
            sock.sendall(PLAIN)
        while len(server.requests) < 3:
            time.sleep(0.001)
    with FaultServer([ok_json(1)], tls=True) as secure, connect(secure):
        pass

    assert threading.active_count() == threads
    assert open_descriptors() == before


def test_leaving_by_an_error_of_the_test_stops_the_server_too():
    threads = threading.active_count()
    with pytest.raises(ZeroDivisionError), FaultServer():
        raise ZeroDivisionError

    assert threading.active_count() == threads


def test_a_server_serves_once_and_has_no_url_before():
    server = FaultServer()

    async def again() -> None:
        async with server:
            pass

    with pytest.raises(UsageError, match="not running"):
        _ = server.url
    with server:
        with pytest.raises(UsageError, match="serves once"), server:
            pass
        with pytest.raises(UsageError, match="serves once"):
            asyncio.run(again())


def test_a_server_that_cannot_start_says_why_instead_of_hanging(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))

    with pytest.raises(FileNotFoundError), FaultServer(tls=True):
        pass


def test_what_a_client_sends_into_a_hang_is_ignored_until_it_leaves():
    with FaultServer([faults.hang_before_headers(), ok_json(1)]) as server:
        with connect(server) as sock:
            sock.sendall(PLAIN)
            sock.sendall(PLAIN)
            while not server.requests:
                time.sleep(0.001)
        ask(server)
    server.assert_done()

    assert len(server.requests) == 2


# --- in the loop of the client --------------------------------------------------------------------


def test_in_a_virtual_loop_a_slow_drip_takes_no_time():
    async def main() -> tuple[str, float]:
        server = FaultServer([faults.drip(4, 2.0)], max_seconds=10_000)
        async with server, httpx2.AsyncClient(timeout=5) as client:
            reply = await client.post(server.url, json={"stream": True})
            return reply.text, asyncio.get_running_loop().time()

    text, seconds = run_virtual(main(), socket_patience=0.001)

    assert text.endswith("data: [DONE]\n\n")
    assert seconds > 300


def test_in_a_virtual_loop_a_client_gives_up_on_a_server_that_hangs():
    async def main() -> float:
        server = FaultServer([answer(wait=3, raw=True, end="hang")], max_seconds=10_000)
        async with server, httpx2.AsyncClient(timeout=600) as client:
            with pytest.raises(httpx2.ReadTimeout):
                await client.post(server.url, json={})
        return asyncio.get_running_loop().time()

    assert run_virtual(main(), socket_patience=0.005) == 600


def test_a_synchronous_client_in_another_thread_works_as_well():
    with FaultServer([no.status(418), ok_json({"a": 1})]) as server:
        connection = http.client.HTTPConnection(server.url.partition("//")[2], timeout=5)
        connection.request("GET", "/tea")
        teapot = connection.getresponse()
        teapot.read()
        connection.request("GET", "/tea")
        reply = json.load(connection.getresponse())
        connection.close()
    server.assert_done()

    assert teapot.status == 418
    assert reply == {"a": 1}
