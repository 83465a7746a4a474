"""The sockets under the connection pool: every way a connection begins, carries bytes and ends."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import tracemalloc
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpcore2
import httpx2
import pytest

from tool_loop.llm.chat.model import OpenAIChat
from tool_loop.llm.http.sockets import AHEAD_BYTES, STAGGER_SECONDS, Network, Pool, Stream
from tool_loop.ports import Request
from tool_loop.testing import FAULTS, FaultServer, VirtualLoop, answer, ok_chat
from tool_loop.transcript import Transcript, UserMessage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping

    Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

HOST = "127.0.0.1"


@asynccontextmanager
async def connected(serve: Serve) -> AsyncIterator[Stream]:
    """A connection to a server that does this with it."""
    served = asyncio.Event()

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()
            served.set()

    async with await asyncio.start_server(client, HOST, 0) as server:
        stream = await Network().connect_tcp(HOST, server.sockets[0].getsockname()[1])
        try:
            yield stream
        finally:
            await stream.aclose()
            await served.wait()


def reset(writer: asyncio.StreamWriter) -> None:
    """End the connection in the rudest way there is."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    writer.transport.abort()


# --- reading ----------------------------------------------------------------------------------------


def test_no_more_is_read_at_once_than_was_asked_for_and_the_end_is_empty() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"abcdefg")

    async def main() -> list[bytes]:
        async with connected(serve) as stream:
            return [await stream.read(3) for _ in range(4)]

    assert asyncio.run(main()) == [b"abc", b"def", b"g", b""]


def test_a_server_that_is_ahead_of_its_reader_has_to_wait() -> None:
    size = 64 * AHEAD_BYTES

    async def main() -> tuple[int, bool, int]:
        sent = asyncio.Event()

        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(bytes(size))
            await writer.drain()
            sent.set()

        async with connected(serve) as stream:
            got = len(await stream.read(1))
            for _ in range(200):
                await asyncio.sleep(0)
            held, waits = len(stream._buffer), not sent.is_set()
            while piece := await stream.read(AHEAD_BYTES):
                got += len(piece)
            return held, waits, got

    held, waits, got = asyncio.run(main())
    assert waits
    assert AHEAD_BYTES <= held <= 3 * AHEAD_BYTES
    assert got == size


def test_a_connection_that_is_reset_gives_what_came_before_and_then_the_reason() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"half")
        await reader.read(1)
        reset(writer)

    async def main() -> bytes:
        async with connected(serve) as stream:
            got = await stream.read(100)
            await stream.write(b"!")
            with pytest.raises(httpcore2.ReadError, match="reset by peer"):
                await stream.read(100)
            return got

    assert asyncio.run(main()) == b"half"


def test_a_reader_that_is_cancelled_disturbs_nothing() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"later")

    async def main() -> bytes:
        async with connected(serve) as stream:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await stream.read(100)
            await stream.write(b"!")
            return await stream.read(100)

    assert asyncio.run(main()) == b"later"


# --- writing ----------------------------------------------------------------------------------------


def test_a_writer_waits_while_the_server_does_not_read() -> None:
    body = bytes(32 * 2**20)

    async def main() -> tuple[bool, int]:
        go = asyncio.Event()
        got = 0

        async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            nonlocal got
            await go.wait()
            while piece := await reader.read(2**20):
                got += len(piece)

        async with connected(serve) as stream:
            writing = asyncio.create_task(stream.write(body))
            for _ in range(50):
                await asyncio.sleep(0)
            waits = not writing.done()
            go.set()
            await writing
        return waits, got

    waits, got = asyncio.run(main())
    assert waits
    assert got > 0


@pytest.mark.parametrize("how", ["reset", "close"])
def test_a_writer_that_waits_learns_that_the_connection_is_lost(how: str) -> None:
    async def main() -> Exception | None:
        go = asyncio.Event()

        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await go.wait()
            reset(writer)

        async with connected(serve) as stream:
            writing = asyncio.create_task(stream.write(bytes(32 * 2**20)))
            await asyncio.sleep(0)
            if how == "close":
                await stream.aclose()
            go.set()
            return (await asyncio.gather(writing, return_exceptions=True))[0]

    error = asyncio.run(main())
    assert isinstance(error, httpcore2.WriteError) if how == "reset" else error is None


def test_nothing_is_written_to_a_connection_that_the_server_has_closed() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")

    async def main() -> bytes:
        async with connected(serve) as stream:
            await asyncio.sleep(0.02)
            assert stream.get_extra_info("is_readable")
            with pytest.raises(httpcore2.WriteError, match="closed"):
                await stream.write(b"!")
            return await stream.read(100)  # a server may answer before it closes

    assert asyncio.run(main()) == b"bye"


# --- connecting -------------------------------------------------------------------------------------


class Hosts(VirtualLoop):
    """An event loop in which a name has these addresses, each silent for so many seconds."""

    def __init__(self, addresses: Mapping[str, float] | tuple[str, ...]) -> None:
        super().__init__()
        self.addresses = addresses
        self.silent = addresses if isinstance(addresses, dict) else {}
        self.tried: list[tuple[str, float]] = []

    def look_up(self, _host: Any, port: Any, **_: Any) -> Any:
        families = {True: socket.AF_INET6, False: socket.AF_INET}
        return [(families[":" in a], socket.SOCK_STREAM, 6, "", (a, port)) for a in self.addresses]

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        self.tried.append((address[0], round(self.time(), 3)))
        await asyncio.sleep(self.silent.get(address[0], 0))
        await super().sock_connect(sock, address)


def by_name(
    addresses: Mapping[str, float] | tuple[str, ...], main: Callable[[int], Coroutine[Any, Any, Any]]
) -> list[tuple[str, float]]:
    """Run it with a port that listens at 127.0.0.1; which addresses were tried, and when."""
    loop = Hosts(addresses)
    with pytest.MonkeyPatch.context() as system, socket.create_server((HOST, 0)) as server:
        system.setattr(socket, "getaddrinfo", loop.look_up)
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(main(server.getsockname()[1]))
    return loop.tried


async def opened(port: int) -> None:
    stream = await Network().connect_tcp("model.example.com", port)
    assert stream.get_extra_info("peername") == (HOST, port)
    await stream.aclose()


NEVER = 3600.0


def test_the_next_address_of_a_name_is_tried_when_one_refuses() -> None:
    tried = by_name(("127.0.0.9", HOST), opened)

    assert [address for address, _ in tried] == ["127.0.0.9", HOST]


def test_the_next_address_of_a_name_is_tried_beside_one_that_is_silent() -> None:
    tried = by_name({"127.0.0.9": NEVER, HOST: 0, "127.0.0.8": 0}, opened)

    assert tried == [("127.0.0.9", 0.0), (HOST, STAGGER_SECONDS)]


def test_an_address_that_is_slow_has_its_time_after_all_others_have_failed() -> None:
    tried = by_name({HOST: 5, "127.0.0.9": 1, "127.0.0.8": 2}, opened)

    assert [address for address, _ in tried] == [HOST, "127.0.0.9", "127.0.0.8"]


def test_the_two_kinds_of_address_take_turns() -> None:
    tried = by_name({"::9": NEVER, "::8": 0, HOST: 0}, opened)

    assert [address for address, _ in tried] == ["::9", HOST]


def test_two_addresses_that_answer_at_once_leave_one_connection() -> None:
    async def main(port: int) -> None:
        loop = asyncio.get_running_loop()
        reached = loop.sock_connect
        together = asyncio.Barrier(2)

        async def at_once(sock: socket.socket, address: Any) -> None:
            await reached(sock, address)
            await together.wait()

        loop.sock_connect = at_once  # type: ignore[method-assign]
        await opened(port)

    assert len(by_name((HOST, HOST), main)) == 2


def test_when_no_address_can_be_reached_the_reasons_of_all_are_kept() -> None:
    async def main(port: int) -> None:
        with pytest.raises(httpcore2.ConnectError, match="all attempts to connect failed") as caught:
            await opened(port)
        reasons = caught.value.__cause__.__cause__  # type: ignore[union-attr]
        assert isinstance(reasons, ExceptionGroup)
        assert [type(e) for e in reasons.exceptions] == [ConnectionRefusedError, ConnectionRefusedError]

    by_name(("127.0.0.9", "127.0.0.8"), main)


def test_a_host_that_stays_silent_is_given_up() -> None:
    async def main(port: int) -> None:
        with pytest.raises(httpcore2.ConnectTimeout):
            await Network().connect_tcp("model.example.com", port, timeout=7)
        assert asyncio.get_running_loop().time() == pytest.approx(7)

    by_name({"127.0.0.9": NEVER, "127.0.0.8": NEVER}, main)


def test_a_refusal_is_an_error_with_its_cause() -> None:
    async def main() -> None:
        with pytest.raises(httpcore2.ConnectError) as caught:
            await Network().connect_tcp(HOST, 9)
        assert isinstance(caught.value.__cause__, ConnectionRefusedError)

    asyncio.run(main())


# --- TLS --------------------------------------------------------------------------------------------


def trusting(server: FaultServer) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=server.certificate)


async def post(url: str, context: ssl.SSLContext, **timeouts: float) -> httpx2.Response:
    pool = Pool(verify=context, limits=httpx2.Limits())
    try:
        async with httpx2.AsyncClient(transport=pool, timeout=httpx2.Timeout(5, **timeouts), trust_env=False) as client:
            return await client.post(url, content=b"{}")
    finally:
        await pool.aclose()


def test_a_reply_comes_over_tls() -> None:
    async def main() -> bytes:
        async with FaultServer([answer(200, b"x" * 300_000)], tls=True) as server:
            return (await post(server.url, trusting(server))).content

    assert len(asyncio.run(main())) == 300_000


def test_a_host_that_does_not_shake_hands_is_given_up() -> None:
    async def main() -> None:
        left = asyncio.Event()

        async def listens(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()
            left.set()

        async with await asyncio.start_server(listens, HOST, 0) as server:
            url = f"https://{HOST}:{server.sockets[0].getsockname()[1]}"
            with pytest.raises(httpx2.ConnectTimeout):
                await post(url, ssl.create_default_context(), connect=0.05)
            await left.wait()

    asyncio.run(main())


def test_a_certificate_of_nobody_known_is_an_error_with_its_cause() -> None:
    async def main() -> None:
        async with FaultServer([ok_chat("x")], tls=True) as server:
            with pytest.raises(httpx2.ConnectError) as caught:
                await post(server.url, ssl.create_default_context())
            cause = caught.value.__cause__  # the pool's own; it takes the cause of that one away
            assert isinstance(cause and cause.__context__, ssl.SSLCertVerificationError)

    asyncio.run(main())


def test_a_connection_that_is_lost_as_the_handshake_ends_is_no_connection() -> None:
    class Loses(asyncio.SelectorEventLoop):
        async def start_tls(self, *_: Any, **__: Any) -> None:
            """What asyncio returns then."""

    async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async def main() -> None:
        async with connected(serve) as stream:
            with pytest.raises(httpcore2.ConnectError):
                await stream.start_tls(ssl.create_default_context(), HOST)

    with asyncio.Runner(loop_factory=Loses) as runner:
        runner.run(main())


# --- in the pool ------------------------------------------------------------------------------------


def streams() -> list[Stream]:
    return [found for found in gc.get_objects() if type(found) is Stream]


def test_the_pool_is_on_these_sockets_and_leaves_none_open() -> None:
    async def main() -> int:
        async with FaultServer([ok_chat("x")]) as server:
            pool = Pool(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), limits=httpx2.Limits())
            response = await pool.handle_async_request(httpx2.Request("POST", server.url, content=b"{}"))
            await response.aread()
            open_now = len(streams())
            await pool.aclose()
            return open_now

    gc.collect()
    before = len(streams())
    assert asyncio.run(main()) == before + 1
    gc.collect()
    assert len(streams()) == before


def test_a_connection_that_the_server_closed_while_it_was_idle_is_not_used_again() -> None:
    async def main() -> list[int]:
        async with FaultServer([FAULTS["close_after"](), ok_chat("2")]) as server:
            pool = Pool(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), limits=httpx2.Limits())
            statuses = []
            for _ in range(2):
                response = await pool.handle_async_request(httpx2.Request("POST", server.url, content=b"{}"))
                await response.aread()
                await response.aclose()
                statuses.append(response.status_code)
                await asyncio.sleep(0.02)
            await pool.aclose()
            return statuses

    assert asyncio.run(main()) == [200, 200]


def test_what_was_sent_is_not_kept_while_the_model_thinks() -> None:
    conversation = Transcript("", [UserMessage("x" * (4 * 2**20))])

    async def main() -> int:
        asked = asyncio.Event()

        async def thinks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            left = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            while left:
                left -= len(await reader.read(left))
            asked.set()
            await reader.read()
            writer.close()

        async with await asyncio.start_server(thinks, HOST, 0) as server:
            llm = OpenAIChat("m", f"http://{HOST}:{server.sockets[0].getsockname()[1]}/v1", "k")
            tracemalloc.start()
            try:
                reply = asyncio.create_task(llm.reply(Request(conversation), lambda _: None))
                await asked.wait()
                held = tracemalloc.get_traced_memory()[0]
            finally:
                tracemalloc.stop()
            reply.cancel()
            await asyncio.gather(reply, return_exceptions=True)
            return held

    # The encoded history, which is kept for the next request and has room to grow, and no body beside it.
    assert asyncio.run(main()) < 1.5 * 4 * 2**20
