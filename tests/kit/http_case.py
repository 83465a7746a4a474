"""What the tests of connections share: event loops, a server played by a script, and one request."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from tool_loop.llm.http.connection import Connection
from tool_loop.llm.http.transport import Timeouts, Transport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator
    from pathlib import Path
    from typing import Self

    from tool_loop.testing import FaultServer

    Script = Callable[["Server", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    Run = Callable[[Coroutine[Any, Any, Any]], Any]

HOST = "127.0.0.1"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
try:
    import uvloop

    LOOPS["uvloop"] = uvloop.new_event_loop
except ImportError:  # there is none for Windows
    pass


@pytest.fixture(params=sorted(LOOPS))
def run(request: pytest.FixtureRequest) -> Run:
    """`asyncio.run`, on each kind of event loop; a callback that fails in it fails the test."""

    def go(work: Coroutine[Any, Any, Any]) -> Any:
        failures: list[dict[str, Any]] = []
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.get_loop().set_exception_handler(lambda _, context: failures.append(context))
            result = runner.run(asyncio.wait_for(work, 30))
        assert failures == []
        return result

    return go


class Server:
    """Each connection is played by `script(server, reader, writer)`; what was asked is kept in `heads`."""

    def __init__(self, script: Script, **options: Any) -> None:
        self.script, self.options = script, options
        self.heads: list[bytes] = []
        self.connections = 0
        self.playing: set[Any] = set()

    async def asked(self, reader: asyncio.StreamReader) -> bytes:
        """One request, to its end; returns the body."""
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        size = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        return await reader.readexactly(int(size or 0))

    async def __aenter__(self) -> Self:
        async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            self.playing.add(asyncio.current_task())
            try:
                await self.script(self, reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                pass  # it has left, or the test is over
            finally:
                writer.close()

        self.server = await asyncio.start_server(client, HOST, 0, **self.options)
        self.port = self.server.sockets[0].getsockname()[1]
        self.url = f"http{'s' if 'ssl' in self.options else ''}://{HOST}:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        for task in self.playing:
            task.cancel()
        await asyncio.gather(*self.playing, return_exceptions=True)


def says(*replies: bytes, close: bool = False, cut: int = 0) -> Script:
    """A server that answers each request with the next of these, in pieces of `cut` bytes."""

    async def script(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for reply in replies:
            await server.asked(reader)
            for at in range(0, len(reply), cut or len(reply) or 1):
                writer.write(reply[at : at + (cut or len(reply))])
                await writer.drain()
                await asyncio.sleep(0)
        if not close:
            await reader.read()

    return script


async def post(
    url: str,
    body: bytes = b"{}",
    headers: dict[str, str] | None = None,
    transport: Transport | None = None,
    **more: Any,
) -> bytes:
    """The body of the reply."""
    transport = transport or Transport(timeouts=Timeouts(idle=5, connect=2))
    async with transport.post(url, headers or {}, body, **more) as exchange:
        return await exchange.rest()


def reset(writer: asyncio.StreamWriter) -> None:
    """End the connection in the rudest way there is."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    writer.transport.abort()


def trust(server: FaultServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a person does who runs a server with a certificate of their own."""
    file = folder / "ca.pem"
    text = server.certificate
    file.write_text(text if isinstance(text, str) else ssl.DER_cert_to_PEM_cert(text))
    monkeypatch.setenv("SSL_CERT_FILE", str(file))


def connections() -> list[Connection]:
    """All there are in this process, those of tests before this one included."""
    gc.collect()
    return [found for found in gc.get_objects() if type(found) is Connection]


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An environment that names no proxy."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    yield
