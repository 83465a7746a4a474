"""One connection: every way a reply can be framed, cut, spoiled and followed; on asyncio and on uvloop."""

from __future__ import annotations

import asyncio
import socket
import threading
import tracemalloc
import zlib
from typing import TYPE_CHECKING

import pytest

from tests.kit.http_case import HOST, LOOPS, OK, Server, connections, post, reset, run, says
from tool_loop.errors import ConfigurationError, ProviderError
from tool_loop.llm.chat.model import OpenAIChat
from tool_loop.llm.http.connection import AHEAD_BYTES, NO_BODY_BYTES
from tool_loop.llm.http.transport import Caps, Transport
from tool_loop.ports import Request
from tool_loop.transcript import Transcript, UserMessage

if TYPE_CHECKING:
    from tests.kit.http_case import Run

__all__ = ["run"]  # a fixture

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


# --- framing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [0, 1, 3])
@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (OK, b"hi"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"hi"),
        (b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + OK, b"hi"),
        (CHUNKED + b"1;ext=1\r\nh\r\n1\r\ni\r\n0\r\nx-trailer: t\r\n\r\n", b"hi"),
        (CHUNKED.replace(b"chunked", b"Chunked") + b"002\r\nhi\r\n0\r\n\r\n", b"hi"),
        (b"HTTP/1.1 200 \r\ncontent-length: 2\r\n\r\nhi", b"hi"),
        (b"HTTP/1.1 200\r\ncontent-length: 2\r\n\r\nhi", b"hi"),
        (b"HTTP/1.1 200 OK\ncontent-length: 2\n\nhi", b"hi"),  # LF alone
        (b"HTTP/1.1 200 OK\r\nupgrade: h2,h2c\r\nconnection: Upgrade\r\ncontent-length: 2\r\n\r\nhi", b"hi"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nx-a: caf\xc3\xa9\r\nx-b: caf\xe9\r\ncontent-length: 2\r\n\r\nhi", b"hi"),
    ],
)
def test_a_reply_is_read_however_it_is_framed_and_cut(run: Run, raw: bytes, body: bytes, cut: int) -> None:
    async def main() -> tuple[bytes, bytes, int]:
        async with Server(says(raw, OK, cut=cut)) as server:
            return await post(server.url), await post(server.url), server.connections

    assert run(main()) == (body, b"hi", 1)


def test_a_body_without_length_ends_with_the_connection(run: Run) -> None:
    async def main() -> bytes:
        async with Server(says(b"HTTP/1.1 200 OK\r\ncontent-type: x\r\n\r\nhello", close=True)) as server:
            return await post(server.url)

    assert run(main()) == b"hello"


def test_headers_are_lower_case_text_and_those_of_one_name_are_joined(run: Run) -> None:
    raw = b"HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a:2 \r\nX-Latin: \xe9\r\nX-UTF8: \xc3\xa9\r\ncontent-length: 0\r\n\r\n"

    async def main() -> dict[str, str]:
        async with Server(says(raw)) as server, Transport().post(server.url, {}, b"") as exchange:
            return dict(exchange.headers)

    assert run(main()) == {"x-a": "1, 2", "x-latin": "é", "x-utf8": "é", "content-length": "0"}


@pytest.mark.parametrize(
    ("raw", "kind", "words"),
    [
        (b"", "connection", "without an answer"),
        (b"HTTP/1.1 200 OK\r\ncontent-le", "connection", "without an answer"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "connection", "without an answer"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi", "protocol", "in the middle of the reply"),
        (CHUNKED + b"5\r\nhi", "protocol", "in the middle of the reply"),
        (CHUNKED + b"2\r\nhi\r\n", "protocol", "in the middle of the reply"),
        (CHUNKED + b"zz\r\nhi\r\n", "protocol", "HTTP as it should"),
        (CHUNKED + b"ffffffffffffffffff\r\nhi\r\n", "protocol", "HTTP as it should"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nhi", "protocol", "HTTP as it should"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\nhi", "protocol", "HTTP as it should"),
        (CHUNKED[:-2] + b"content-length: 2\r\n\r\n2\r\nhi\r\n0\r\n\r\n", "protocol", "HTTP as it should"),
        (b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nhi", "protocol", "HTTP as it should"),
        (b"HTTP/1.1 200 OK\r\nx-caf\xc3\xa9: 1\r\ncontent-length: 2\r\n\r\nhi", "protocol", "HTTP as it should"),
        (b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n", "protocol", "HTTP as it should"),
        (b"SSH-2.0-OpenSSH\r\n", "protocol", "HTTP as it should"),
        (b"hi there", "protocol", "HTTP as it should"),
    ],
)
def test_a_reply_that_is_none_or_not_whole_is_an_error(run: Run, raw: bytes, kind: str, words: str) -> None:
    async def main() -> ProviderError:
        async with Server(says(raw, close=True)) as server:
            with pytest.raises(ProviderError) as caught:
                await post(server.url)
            return caught.value

    error = run(main())
    assert error.kind == kind
    assert words in str(error)


def test_a_connection_that_is_reset_gives_what_came_before_and_then_the_reason(run: Run) -> None:
    async def main() -> tuple[bytes, str]:
        go = asyncio.Event()

        async def script(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await server.asked(reader)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
            await go.wait()
            reset(writer)

        async with Server(script) as server, Transport().post(server.url, {}, b"") as exchange:
            half = await exchange.chunk()
            go.set()
            with pytest.raises(ProviderError) as caught:
                await exchange.chunk()
            return half, str(caught.value)

    half, said = run(main())
    assert half == b"half"
    assert "broke in the middle of the reply" in said


# --- bounds -----------------------------------------------------------------------------------------


ENDLESS = {
    "head": (b"HTTP/1.1 200 OK\r\n", b"x-a: " + b"a" * 100 + b"\r\n"),
    "value": (b"HTTP/1.1 200 OK\r\nx-a: ", b"a" * 1000),
    "name": (b"HTTP/1.1 200 OK\r\nx-a", b"a" * 1000),
    "line": (b"HTTP/1.1 200 ", b"a" * 1000),
    "1xx": (b"", b"HTTP/1.1 100 Continue\r\nx-a: 1\r\n\r\n"),
    "trailer": (CHUNKED + b"2\r\nhi\r\n0\r\n", b"x-a: " + b"a" * 100 + b"\r\n"),
    "extension": (CHUNKED + b"2;a=", b"a" * 1000),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_what_is_no_body_is_bounded(run: Run, what: str) -> None:
    start, again = ENDLESS[what]

    async def script(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.asked(reader)
        writer.write(start)
        for _ in range(2000):
            writer.write(again * 100)
            await writer.drain()

    async def main() -> tuple[ProviderError, int]:
        async with Server(script) as server:
            tracemalloc.start()
            try:
                with pytest.raises(ProviderError) as caught:
                    await post(server.url)
                return caught.value, tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    error, peak = run(main())
    assert error.kind == "protocol"
    assert peak < 8 * 2**20


def test_sizes_of_many_small_chunks_are_not_taken_for_a_bomb(run: Run) -> None:
    pieces = NO_BODY_BYTES // 4

    async def main() -> bytes:
        async with Server(says(CHUNKED + b"1;x\r\na\r\n" * pieces + b"0\r\n\r\n")) as server:
            return await post(server.url)

    assert run(main()) == b"a" * pieces


@pytest.mark.parametrize("wbits", [zlib.MAX_WBITS, -zlib.MAX_WBITS, zlib.MAX_WBITS | 16])
def test_a_packed_body_is_unpacked_a_bounded_piece_at_a_time(run: Run, wbits: int) -> None:
    packer = zlib.compressobj(wbits=wbits)
    bomb = packer.compress(bytes(16 * 2**20)) + packer.flush()
    name = b"gzip" if wbits > zlib.MAX_WBITS else b"deflate"

    async def main() -> int:
        head = b"HTTP/1.1 200 OK\r\ncontent-encoding: %b\r\ncontent-length: %d\r\n\r\n" % (name, len(bomb))
        async with Server(says(head + bomb)) as server:
            tracemalloc.start()
            try:
                with pytest.raises(ProviderError, match="sent more than"):
                    await post(server.url)
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    assert run(main()) < 8 * 2**20


@pytest.mark.parametrize("cut", [0, 7])
@pytest.mark.parametrize("wbits", [zlib.MAX_WBITS, -zlib.MAX_WBITS, zlib.MAX_WBITS | 16])
def test_a_packed_body_is_read_whole(run: Run, wbits: int, cut: int) -> None:
    text = b"".join(b"%d " % n for n in range(1000))
    packer = zlib.compressobj(wbits=wbits)
    packed = packer.compress(text) + packer.flush()
    name = b"x-gzip" if wbits > zlib.MAX_WBITS else b"deflate"
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: %b\r\ncontent-length: %d\r\n\r\n" % (name, len(packed))

    async def main() -> bytes:
        async with Server(says(head + packed, cut=cut)) as server:
            return await post(server.url)

    assert run(main()) == text


def test_a_server_that_is_ahead_of_its_reader_has_to_wait(run: Run) -> None:
    size = 64 * AHEAD_BYTES

    async def main() -> tuple[bool, int, int]:
        sent = asyncio.Event()

        async def script(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await server.asked(reader)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + bytes(size))
            await writer.drain()
            sent.set()
            await reader.read()

        async with Server(script) as server:
            transport = Transport(caps=Caps(stream=10**9))
            async with transport.post(server.url, {}, b"{}") as exchange:
                got = len(await exchange.chunk())
                await quiet()
                waits, next_piece = not sent.is_set(), len(await exchange.chunk())
                got += next_piece
                while piece := await exchange.chunk():
                    got += len(piece)
                return waits, next_piece, got

    waits, ahead, got = run(main())
    assert waits
    assert AHEAD_BYTES <= ahead <= 3 * AHEAD_BYTES
    assert got == size


async def quiet() -> None:
    """Until both sides have done what they can."""
    for _ in range(500):
        await asyncio.sleep(0)


# --- what is sent -----------------------------------------------------------------------------------


def test_a_large_body_arrives_whole_and_an_early_answer_to_one_is_read(run: Run) -> None:
    size = 8 * 2**20

    async def script(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if server.connections == 1:
            assert len(await server.asked(reader)) == size
            writer.write(OK.replace(b"OK\r\n", b"OK\r\nconnection: close\r\n"))
            return
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno")
        await reader.read()  # and never reads all of it

    async def main() -> tuple[bytes, bytes]:
        async with Server(script) as server:
            return await post(server.url, bytes(size)), await post(server.url, bytes(4 * size))

    assert run(main()) == (b"hi", b"no")


@pytest.mark.parametrize("loop", sorted(LOOPS))
def test_what_was_sent_is_not_kept_while_the_model_thinks(loop: str) -> None:
    size = 4 * 2**20
    conversation = Transcript("", [UserMessage("x" * size)])

    async def main() -> int:
        asked = asyncio.Event()

        async def thinks(server: Server, reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            left = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            while left:
                left -= len(await reader.read(left))
            asked.set()
            await reader.read()

        async with Server(thinks) as server:
            llm = OpenAIChat("m", f"{server.url}/v1", "k")
            tracemalloc.start()
            try:
                reply = asyncio.create_task(llm.reply(Request(conversation), lambda _: None))
                await asked.wait()
                await quiet()
                return tracemalloc.get_traced_memory()[0]
            finally:
                tracemalloc.stop()
                reply.cancel()
                await asyncio.gather(reply, return_exceptions=True)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        assert runner.run(main()) < 1.5 * size  # what the history itself keeps, encoded


def test_the_head_of_a_request_is_whole(run: Run) -> None:
    async def main() -> tuple[str, int]:
        async with Server(says(OK, OK, OK)) as server:
            for n in range(3):
                await post(server.url + "/a b?x=1 2", b"abc", {"x-a": "1"}, key=f"k-{n}")
            return server.heads[2].decode().replace(str(server.port), "PORT"), server.connections

    head, connections = run(main())
    assert connections == 1
    assert head == (
        "POST /a%20b?x=1%202 HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nx-a: 1\r\n"
        "Content-Length: 3\r\nidempotency-key: k-2\r\n\r\n"
    )


@pytest.mark.parametrize(("body", "sent"), [(b"{}", b"2\r\n{}\r\n0\r\n\r\n"), (b"", b"0\r\n\r\n")])
def test_a_body_is_sent_in_chunks_where_the_headers_say_so(run: Run, body: bytes, sent: bytes) -> None:
    got: list[bytes] = []

    async def script(_: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.readuntil(b"0\r\n\r\n"))
        writer.write(OK)
        await reader.read()

    async def main() -> None:
        async with Server(script) as server:
            await post(server.url, body, {"Transfer-Encoding": "chunked"})

    run(main())
    head, _, framed = got[0].partition(b"\r\n\r\n")
    assert framed == sent
    assert b"content-length" not in head.lower()


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("http://x", {"a b": "1"}),
        ("http://x", {"a": "1\r\nb: 2"}),
        ("http://x", {"a": "1\n"}),
        ("http://x", {"a": "\x00"}),
        ("http://x", {"": "1"}),
        ("http://x", {"a:": "1"}),
        ("http://x", {"a": "€"}),
        ("ftp://x", {}),
        ("http://x:99999", {}),
        ("http://x:y", {}),
        ("http://", {}),
        ("x", {}),
        ("http://" + "ü" * 80, {}),
    ],
)
def test_what_cannot_be_sent_is_the_configurations_fault(url: str, headers: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="cannot send a request to"):
        asyncio.run(post(url, headers=headers))


def test_a_key_cannot_end_its_line() -> None:
    with pytest.raises(ConfigurationError, match="idempotency key"):
        asyncio.run(sent_nowhere())


async def sent_nowhere() -> None:
    async with Server(says(OK)) as server:
        await post(server.url, key="k\r\nx-evil: 1")


# --- used again -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        OK + b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong",
        OK + b"HTTP/1.1 200 OK\r\ncontent-le",
        OK + b"stray",
        CHUNKED + b"2\r\nhi\r\n0\r\n\r\nstray",
    ],
)
def test_a_connection_that_should_not_be_used_again_is_not(run: Run, raw: bytes) -> None:
    async def main() -> tuple[list[bytes], int]:
        async with Server(says(raw, OK)) as server:
            return [await post(server.url) for _ in range(2)], server.connections

    # The second connection plays the script from its start, so the same reply comes twice.
    assert run(main()) == ([b"hi", b"hi"], 2)


def test_what_comes_on_an_idle_connection_is_no_reply_to_the_next_request(run: Run) -> None:
    async def main() -> tuple[bytes, bytes, int]:
        idle, said = asyncio.Event(), asyncio.Event()

        async def script(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await server.asked(reader)
            writer.write(OK)
            await idle.wait()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong")
            await writer.drain()
            said.set()
            await reader.read()

        async with Server(script) as server:
            one = await post(server.url)
            idle.set()
            await said.wait()
            return one, await post(server.url), server.connections

    assert run(main()) == (b"hi", b"hi", 2)


def test_a_connection_closed_while_the_program_was_busy_costs_no_retry_and_no_second_sending(run: Run) -> None:
    """The race of keep-alive: the end is in the kernel, and the event loop has not seen it yet."""
    closed = threading.Event()
    requests: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        for _ in range(2):
            sock, _ = listener.accept()
            with sock:
                data = b""
                while b"\r\n\r\n{}" not in data and (piece := sock.recv(65536)):
                    data += piece
                requests.append(data)
                sock.sendall(OK)
                sock.shutdown(socket.SHUT_WR)
            closed.set()

    async def main(port: int) -> tuple[bytes, bytes]:
        one = await post(f"http://{HOST}:{port}")
        assert closed.wait(5)  # holds up the loop, as a careless tool does
        return one, await post(f"http://{HOST}:{port}")

    with socket.create_server((HOST, 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        assert run(main(listener.getsockname()[1])) == (b"hi", b"hi")
        thread.join(5)
    assert len(requests) == 2
    assert all(requests)


def test_a_request_cancelled_in_mid_stream_closes_its_connection(run: Run) -> None:
    async def main() -> tuple[bytes, int]:
        begun, gone = asyncio.Event(), asyncio.Event()

        async def script(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await server.asked(reader)
            writer.write(OK if server.connections > 1 else b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi")
            await writer.drain()
            begun.set()
            try:
                await reader.read()
            finally:
                gone.set()

        async with Server(script) as server:
            task = asyncio.create_task(post(server.url))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(gone.wait(), 2)
            return await post(server.url), server.connections

    assert run(main()) == (b"hi", 2)


def test_a_cancel_at_any_turn_leaves_no_connection_behind(run: Run) -> None:
    async def main() -> None:
        async with Server(says(OK, OK)) as server:
            for turns in range(12):
                task = asyncio.create_task(post(server.url))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    before = len(connections())
    run(main())
    assert len(connections()) <= before
