"""One request, whatever the network and the server do to it: a reply, or an error that says what happened."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tool_loop.errors import ConfigurationError, ProviderError, UsageError
from tool_loop.events import TextDelta
from tool_loop.llm.chat.model import OpenAIChat
from tool_loop.llm.endpoint import AFTERTHOUGHT_SECONDS
from tool_loop.llm.http.timer import RequestTimer
from tool_loop.llm.http.transport import Caps, Timeouts, Transport
from tool_loop.ports import Request
from tool_loop.testing import FAULTS, FaultServer, answer, ok_chat, run_virtual
from tool_loop.testing.faults.wire import hang_mid_body, infinite_body, reset_on_reuse
from tool_loop.transcript import Transcript, UserMessage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator


KEY = "sk-proj-7e31c9a85d20b46f83e2a1d6"

# What each fault comes to, asked for a document and for a stream. None: the reply is read all the same.
OUTCOMES: dict[str, str | None] = {
    "rate_limit": "rate_limit",
    "quota": "quota",
    "context_length": "context_length",
    "overloaded": "overloaded",
    "unavailable": "overloaded",
    "server_error": "server_error",
    "bad_gateway": "server_error",
    "auth": "auth",
    "not_found": "not_found",
    "bad_request": "bad_request",
    "redirect": "bad_request",
    "reset_before_headers": "connection",
    "reset_after_headers": "protocol",
    "reset_at_byte": "protocol",
    "close_at_byte": "protocol",
    "hang_before_headers": "timeout",
    "hang_mid_body": "timeout",
    "drip": None,
    "close_after": None,
    "reset_on_reuse": None,
    "refused": "connection",
    "garbage": "protocol",
    "tls_alert": "connection",
    "tls_plain_http": "connection",
    "truncated_json": "protocol",
    "truncated_sse": "protocol",
    "invalid_utf8": "protocol",
    "wrong_gzip": "protocol",
    "html": "protocol",
    "error_in_200": "server_error",
    "gzip_bomb": "protocol",
    "infinite_body": "protocol",
    "infinite_line": "protocol",
    "infinite_comments": "protocol",
    "header_bomb": "protocol",
    "long_header": "protocol",
    "empty_body": "protocol",
    "no_choices": "protocol",
}


async def ask(url: str, *, stream: bool = True, deadline: float | None = None, **options: Any) -> str:
    llm = OpenAIChat("m", f"{url}/v1", KEY, stream=stream, **options)
    reply = await llm.reply(Request(Transcript("", [UserMessage("q")]), deadline=deadline), lambda _: None)
    return reply.text


def error_of(make: Callable[[], Any]) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        asyncio.run(make())
    return caught.value


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "document"])
def test_a_reply_comes_on_the_event_loop_that_web_servers_use(stream: bool) -> None:
    """Whose transports are none of asyncio's classes. All of this file runs there with `--loop uvloop`."""
    uvloop = pytest.importorskip("uvloop")

    async def main() -> str:
        async with FaultServer([ok_chat("hello")]) as server:
            return await ask(server.url, stream=stream)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) == "hello"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "document"])
@pytest.mark.parametrize("name", sorted(set(FAULTS) - {"duplicated_chunks"}))  # sent twice looks like said twice
def test_every_fault_comes_to_a_reply_or_one_clear_error(name: str, stream: bool) -> None:
    async def main() -> str:
        async with FaultServer([FAULTS[name]()], max_seconds=10) as server:
            url = server.https_url if name.startswith("tls") else server.url
            return await ask(url, stream=stream, timeouts=Timeouts(idle=0.2 if "hang" in name else 5))

    expected = OUTCOMES[name]
    if expected is None:
        assert asyncio.run(main())
        return
    error = error_of(main)
    assert error.kind == expected
    assert "127.0.0.1" in str(error)
    assert error.retryable == (expected not in ("quota", "context_length", "auth", "not_found", "bad_request"))


@pytest.mark.parametrize("name", ["gzip_bomb", "infinite_body", "infinite_line", "infinite_comments", "header_bomb"])
def test_a_server_that_never_stops_does_not_fill_the_memory(name: str) -> None:
    async def main() -> None:
        async with FaultServer([FAULTS[name]()]) as server:
            tracemalloc.start()
            try:
                with pytest.raises(ProviderError):
                    await ask(server.url, timeouts=Timeouts(idle=5))
                assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
            finally:
                tracemalloc.stop()

    asyncio.run(main())


# --- time -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hang_before_headers", "hang_mid_body"])
def test_silence_ends_at_the_deadline_of_the_run(name: str) -> None:
    async def main() -> tuple[ProviderError, float]:
        loop = asyncio.get_running_loop()
        async with FaultServer([FAULTS[name]()]) as server:
            with pytest.raises(ProviderError) as caught:
                await ask(server.url, deadline=loop.time() + 7)
            return caught.value, loop.time()

    error, took = run_virtual(main())
    assert error.kind == "timeout"
    assert "within the time there was (7.0 s)" in str(error)
    assert took == pytest.approx(7, abs=0.1)


def test_a_steady_drip_is_no_silence_but_ends_at_the_total() -> None:
    def handler(_: httpx2.Request) -> httpx2.Response:
        async def body() -> AsyncIterator[bytes]:
            while True:
                await asyncio.sleep(10)
                yield b": still here\n"

        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body())

    async def main() -> tuple[ProviderError, float]:
        with pytest.raises(ProviderError) as caught:
            await ask("http://x", http=httpx2.MockTransport(handler), timeouts=Timeouts(idle=15, total=100))
        return caught.value, asyncio.get_running_loop().time()

    error, took = run_virtual(main())
    assert error.kind == "timeout"
    assert took == pytest.approx(100)


@pytest.mark.parametrize("end", ["hang", "reset", "close"])
def test_a_reply_that_is_whole_but_for_its_last_marker_is_neither_waited_for_nor_lost(end: str) -> None:
    chunk = b'data: {"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":"stop"}]}\n\n'
    lost = answer(
        200, chunk + b": more", {"content-type": "text/event-stream"}, framing="chunked", send=len(chunk), end=end
    )

    async def main() -> tuple[str, float]:
        async with FaultServer([lost]) as server:
            return await ask(server.url), asyncio.get_running_loop().time()

    text, took = run_virtual(main())
    assert text == "Hello"
    assert took == pytest.approx(AFTERTHOUGHT_SECONDS if end == "hang" else 0, abs=0.2)


def test_a_cancelled_request_is_cancelled_and_not_called_a_timeout() -> None:
    async def main() -> None:
        async with FaultServer([hang_mid_body()]) as server:
            task = asyncio.create_task(ask(server.url))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())


def test_a_timeout_and_a_cancel_at_the_same_moment_are_a_cancel() -> None:
    async def main() -> None:
        async def wait() -> None:
            line = RequestTimer("x", Timeouts(idle=1), None)
            with line:
                await asyncio.sleep(10)

        task = asyncio.create_task(wait())
        asyncio.get_running_loop().call_at(1.0, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(main())


def test_what_the_caller_does_between_two_chunks_is_not_interrupted() -> None:
    async def main() -> bytes:
        transport = Transport(
            httpx2.MockTransport(lambda _: httpx2.Response(200, content=b"abc")), timeouts=Timeouts(idle=1)
        )
        async with transport.post("http://x", {}, b"") as exchange:
            await asyncio.sleep(30)
            return await exchange.rest()

    assert run_virtual(main()) == b"abc"


def test_a_timeout_leaves_the_task_as_it_was() -> None:
    async def main() -> int:
        task = asyncio.current_task()
        assert task is not None
        async with FaultServer([hang_mid_body()]) as server:
            with pytest.raises(ProviderError):
                await ask(server.url, timeouts=Timeouts(idle=1))
        await asyncio.sleep(0)
        return task.cancelling()

    assert run_virtual(main()) == 0


# --- connections ------------------------------------------------------------------------------------


def test_connections_are_used_again_after_documents_streams_and_refusals() -> None:
    replies = [ok_chat("1"), ok_chat("2"), FAULTS["rate_limit"](), ok_chat("3")]

    async def main() -> set[int]:
        async with FaultServer(replies) as server:
            await ask(server.url, stream=True)
            await ask(server.url, stream=False)
            with pytest.raises(ProviderError):
                await ask(server.url)
            await ask(server.url)
            return {request.connection for request in server.requests}

    assert asyncio.run(main()) == {1}


def test_a_kept_connection_that_was_closed_meanwhile_is_not_an_error() -> None:
    async def main() -> list[str]:
        async with FaultServer([FAULTS["close_after"](), ok_chat("again")]) as server:
            first = await ask(server.url)
            await asyncio.sleep(0.05)
            return [first, await ask(server.url)]

    assert asyncio.run(main()) == ["Hello, world.", "again"]


def test_a_reset_on_a_kept_connection_is_one_error_that_passes() -> None:
    async def main() -> str:
        async with FaultServer([reset_on_reuse(), ok_chat("again")]) as server:
            await ask(server.url)
            with pytest.raises(ProviderError) as caught:
                await ask(server.url)
            assert (caught.value.kind, caught.value.retryable) == ("connection", True)
            return await ask(server.url)

    assert asyncio.run(main()) == "again"


def test_clients_are_closed_with_their_loop_and_nobody_has_to_ask() -> None:
    async def main() -> None:
        async with FaultServer([ok_chat("1")]) as server:
            await ask(server.url)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            asyncio.run(main())
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


def test_clients_come_back_in_a_loop_that_goes_on_after_it_closed_its_generators() -> None:
    async def main() -> tuple[str, str]:
        http = httpx2.MockTransport(lambda _: httpx2.Response(200, json=reply("hi")))
        llm = OpenAIChat("m", "http://x/v1", "", http=http)
        request = Request(Transcript("", [UserMessage("q")]))
        first = await llm.reply(request, lambda _: None)
        await asyncio.get_running_loop().shutdown_asyncgens()
        return first.text, (await llm.reply(request, lambda _: None)).text

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the loop says that a generator was made after its shutdown
        assert asyncio.run(main()) == ("hi", "hi")


def reply(text: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}


def test_one_model_object_serves_several_event_loops() -> None:
    llm = OpenAIChat(
        "m", "http://x/v1", "", http=httpx2.MockTransport(lambda _: httpx2.Response(200, json=reply("hi")))
    )
    request = Request(Transcript("", [UserMessage("q")]))

    assert [asyncio.run(llm.reply(request, lambda _: None)).text for _ in range(3)] == ["hi"] * 3


def test_a_refusal_that_breaks_off_is_read_as_far_as_it_came() -> None:
    body = b'{"error": {"message": "slow down"}}'
    cut = answer(429, body + b" " * 100, {"content-type": "application/json"}, send=len(body), end="reset")

    async def main() -> None:
        async with FaultServer([cut]) as server:
            await ask(server.url)

    error = error_of(main)
    assert error.kind == "rate_limit"
    assert "slow down" in str(error)


def test_a_stream_that_goes_on_after_its_last_event_is_not_read_for_ever() -> None:
    def endless() -> Iterator[bytes]:
        yield b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        while True:
            yield b": more\n" * 1000

    async def main() -> tuple[str, int]:
        reply = answer(200, endless, {"content-type": "text/event-stream"}, framing="chunked")
        async with FaultServer([reply]) as server:
            return await ask(server.url), server.sent_bytes

    text, sent = asyncio.run(main())
    assert text == "hi"
    assert sent < 10 * 2**20


@pytest.mark.parametrize("end", ["hang", "reset", "close"])
def test_a_reply_is_there_when_its_last_event_is_whatever_becomes_of_the_connection(end: str) -> None:
    body = b'data: {"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    held = answer(
        200, body + b": more", {"content-type": "text/event-stream"}, framing="chunked", send=len(body), end=end
    )

    async def main() -> tuple[str, float]:
        async with FaultServer([held]) as server:
            return await ask(server.url), asyncio.get_running_loop().time()

    text, took = run_virtual(main())
    assert text == "Hello"
    assert took < 0.5


# --- what is sent -----------------------------------------------------------------------------------


async def sent_by(*keys: str, url: str = "http://host:1", **options: Any) -> list[httpx2.Request]:
    """What one model sends for questions with these keys."""
    got: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        got.append(request)
        return httpx2.Response(200, json={"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]})

    llm = OpenAIChat("m", f"{url}/v1", KEY, http=httpx2.MockTransport(handler), **options)
    for key in keys:
        await llm.reply(Request(Transcript("", [UserMessage(f"q {key}")]), key=key), lambda _: None)
    return got


def test_each_request_has_its_own_length_and_key_and_all_else_in_common() -> None:
    first, second = asyncio.run(sent_by("r-1", "r-1000"))

    assert [r.headers["idempotency-key"] for r in (first, second)] == ["r-1", "r-1000"]
    assert [r.headers["content-length"] for r in (first, second)] == [str(len(r.content)) for r in (first, second)]
    own = ("idempotency-key", "content-length")
    common, other = ({k: v for k, v in r.headers.items() if k not in own} for r in (first, second))
    assert common == other
    assert common["host"] == "host:1"
    assert common["authorization"] == f"Bearer {KEY}"
    assert common["content-type"] == "application/json"


def test_a_host_of_ones_own_takes_the_place_of_the_address() -> None:
    (request,) = asyncio.run(sent_by("r", extra_headers={"Host": "gateway.example.com"}))

    assert request.headers.get_list("host") == ["gateway.example.com"]


def test_a_body_whose_framing_is_given_is_not_measured() -> None:
    (request,) = asyncio.run(sent_by("r", extra_headers={"Transfer-Encoding": "chunked"}))

    assert "content-length" not in request.headers


def test_a_name_and_password_in_the_address_are_sent_as_such() -> None:
    first, second = asyncio.run(sent_by("r-1", "r-2", url="http://me:pass@host:1"))

    assert first.headers["authorization"] == second.headers["authorization"] == "Basic bWU6cGFzcw=="
    assert first.headers["host"] == "host:1"


def test_a_piece_without_bytes_is_not_the_end_of_a_reply() -> None:
    def handler(_: httpx2.Request) -> httpx2.Response:
        async def body() -> AsyncIterator[bytes]:
            yield b""
            yield b'data: {"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":"stop"}]}\n\n'
            yield b""
            yield b"data: [DONE]\n\n"

        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body())

    assert asyncio.run(ask("http://host:1", http=httpx2.MockTransport(handler))) == "Hello"


# --- origins ----------------------------------------------------------------------------------------


def test_a_redirect_is_not_followed_and_the_key_goes_nowhere_else() -> None:
    async def main() -> tuple[ProviderError, bool, bool]:
        async with FaultServer([]) as other:
            to = f"{other.url}/login?token=secret"
            async with FaultServer([FAULTS["redirect"](to)]) as server:
                with pytest.raises(ProviderError) as caught:
                    await ask(server.url)
                return caught.value, server.saw(KEY), other.saw(KEY) or bool(other.unexpected)

    error, here, there = asyncio.run(main())
    assert here
    assert not there
    assert "a redirect to http://127.0.0.1:" in str(error)
    assert "token=secret" not in str(error)


def test_no_cookie_of_one_reply_goes_with_the_next_request() -> None:
    set_cookie = ok_chat("1").but("cookie", lambda r: with_header(r, ("set-cookie", "session=1; Path=/")))

    async def main() -> list[str | None]:
        async with FaultServer([set_cookie, ok_chat("2")]) as server:
            await ask(server.url)
            await ask(server.url)
            return [request.header("cookie") for request in server.requests]

    assert asyncio.run(main()) == [None, None]


def with_header(response: Any, header: tuple[str, str]) -> Any:
    return replace(response, headers=(*response.headers, header))


@pytest.mark.parametrize("name", ["HTTP_PROXY", "ALL_PROXY"])
def test_a_proxy_of_the_environment_is_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> str:
        async with FaultServer([ok_chat("through the proxy")]) as proxy:
            monkeypatch.setenv(name, proxy.url)
            return await ask("http://api.example.com")

    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    assert asyncio.run(main()) == "through the proxy"


def test_a_proxy_that_cannot_be_used_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks6://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")

    with pytest.raises(ConfigurationError, match="the proxy in the environment cannot be used"):
        asyncio.run(ask("http://api.example.com"))


def test_a_proxy_that_refuses_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> ProviderError:
        refuse = answer(407, b"", {"proxy-authenticate": "Basic"})
        async with FaultServer([refuse]) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", proxy.url)
            with pytest.raises(ProviderError) as caught:
                await ask("https://api.example.com")
            return caught.value

    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    assert "the proxy in front of api.example.com refused" in str(asyncio.run(main()))


# --- words ------------------------------------------------------------------------------------------


def test_a_refused_connection_asks_the_right_question() -> None:
    error = error_of(lambda: ask("http://127.0.0.1:9"))

    assert str(error) == "could not connect to 127.0.0.1:9 (connection refused): is the server running?"
    assert (error.kind, error.retryable, error.status) == ("connection", True, None)


def test_an_unknown_host_is_said() -> None:
    error = error_of(lambda: ask("http://no-such-host.invalid"))

    assert error.kind == "connection"
    assert "there is no host no-such-host.invalid" in str(error)


def test_a_certificate_that_nobody_trusts_is_said() -> None:
    async def main() -> None:
        async with FaultServer([ok_chat("x")], tls=True) as server:
            await ask(server.url)

    error = error_of(main)
    assert error.kind == "connection"
    assert "the certificate of 127.0.0.1" in str(error)


@pytest.mark.parametrize(
    ("raised", "kind", "words"),
    [
        (httpx2.ConnectTimeout("x"), "connection", "could not connect to host:1 in time"),
        (httpx2.ConnectError("all attempts failed"), "connection", "could not connect to host:1: all attempts failed"),
        (httpx2.ConnectError(""), "connection", "could not connect to host:1: ConnectError"),
        (httpx2.ProxyError("403 Forbidden"), "connection", "the proxy in front of host:1 refused: 403 Forbidden"),
        (httpx2.ReadError(""), "connection", "host:1 closed the connection without an answer"),
        (httpx2.RemoteProtocolError("Server disconnected"), "connection", "without an answer (Server disconnected)"),
        (httpx2.RemoteProtocolError("bad line"), "protocol", "does not speak HTTP as it should: bad line"),
        (httpx2.DecodingError("bad gzip"), "protocol", "not what its content-encoding says: bad gzip"),
    ],
)
def test_an_error_of_the_http_library_becomes_ours(raised: Exception, kind: str, words: str) -> None:
    def handler(_: httpx2.Request) -> httpx2.Response:
        raise raised

    error = error_of(lambda: ask("http://host:1", http=httpx2.MockTransport(handler)))

    assert error.kind == kind
    assert words in str(error)


def test_a_host_that_cannot_be_reached_is_named_with_the_reason() -> None:
    def handler(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("failed") from OSError(113, "No route to host")

    error = error_of(lambda: ask("http://host:1", http=httpx2.MockTransport(handler)))
    assert str(error) == "could not connect to host:1: [Errno 113] No route to host"


def test_a_refused_connection_is_found_among_several_attempts() -> None:
    def handler(_: httpx2.Request) -> httpx2.Response:
        attempts = ExceptionGroup(
            "both", [OSError(101, "Network is unreachable"), ConnectionRefusedError(111, "refused")]
        )
        attempts.exceptions[0].__cause__ = attempts  # chains may have loops
        raise httpx2.ConnectError("All connection attempts failed") from attempts

    error = error_of(lambda: ask("http://host:1", http=httpx2.MockTransport(handler)))
    assert str(error) == "could not connect to host:1 (connection refused): is the server running?"


def test_a_request_that_cannot_be_sent_is_the_configurations_fault() -> None:
    def handler(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.LocalProtocolError("Illegal header value")

    with pytest.raises(ConfigurationError, match="cannot send a request to host"):
        asyncio.run(ask("http://host", http=httpx2.MockTransport(handler)))


def test_an_error_that_is_nobodys_business_here_is_not_renamed() -> None:
    def handler(_: httpx2.Request) -> httpx2.Response:
        raise KeyError("a bug")

    with pytest.raises(KeyError, match="a bug"):
        asyncio.run(ask("http://host", http=httpx2.MockTransport(handler)))


def test_user_and_password_of_the_address_are_in_no_message() -> None:
    error = error_of(lambda: ask("http://anna:s3cret@127.0.0.1:9"))

    assert "s3cret" not in str(error)
    assert "127.0.0.1:9" in str(error)


# --- caps -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "document"])
def test_the_caps_hold_after_decompression(stream: bool) -> None:
    async def main() -> None:
        async with FaultServer([infinite_body()]) as server:
            transport = Transport(caps=Caps(document=1000, stream=5000 if stream else 10**9))
            async with transport.post(server.url, {}, b"{}") as exchange:
                if stream:
                    while await exchange.chunk():
                        pass
                else:
                    await exchange.rest()

    error = error_of(main)
    assert error.kind == "protocol"
    assert f"more than {'5,000' if stream else '1,000'} bytes" in str(error)


def test_text_is_shown_while_it_comes() -> None:
    seen: list[str] = []

    async def main() -> None:
        async with FaultServer([ok_chat("Hello, world.")]) as server:
            llm = OpenAIChat("m", f"{server.url}/v1", KEY)
            request = Request(Transcript("", [UserMessage("q")]))
            await llm.reply(request, lambda said: seen.append(said.text) if isinstance(said, TextDelta) else None)

    asyncio.run(main())
    assert "".join(seen) == "Hello, world."
    assert len(seen) > 1


# --- another network --------------------------------------------------------------------------------


def test_what_is_given_as_a_network_and_is_none_is_said() -> None:
    with pytest.raises(UsageError, match=r"http= takes a transport of httpx2, such as httpx2\.MockTransport, not dict"):
        OpenAIChat("m", "http://x/v1", "", http={})  # type: ignore[arg-type]


def test_a_network_of_ones_own_is_closed_with_each_loop_it_was_used_in() -> None:
    class Mine(httpx2.MockTransport):
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1

    http = Mine(lambda _: httpx2.Response(200, json=reply("hi")))

    assert [asyncio.run(ask("http://x", http=http)) for _ in range(2)] == ["hi", "hi"]
    assert http.closed == 2


def test_a_real_transport_of_httpx2_goes_through_all_of_it() -> None:
    async def main() -> tuple[str, int]:
        async with FaultServer([ok_chat("one"), ok_chat("two")]) as server:
            llm = OpenAIChat("m", f"{server.url}/v1", KEY, http=httpx2.AsyncHTTPTransport())
            request = Request(Transcript("", [UserMessage("q")]))
            said = [(await llm.reply(request, lambda _: None)).text for _ in range(2)]
            return " ".join(said), len({request.connection for request in server.requests})

    assert asyncio.run(main()) == ("one two", 1)


def test_the_answer_is_in_the_log_for_who_looks_for_it(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with FaultServer([ok_chat("hi")]) as server:
            await ask(server.url)

    with caplog.at_level("DEBUG", "tool_loop.llm.http"):
        asyncio.run(main())

    assert "answered 200 {" in caplog.text
    assert KEY not in caplog.text
