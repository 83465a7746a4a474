"""How a connection comes to be, is kept, and ends: addresses, TLS, proxies, loops, threads and forks."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import ssl
import sys
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from tests.kit.http_case import HOST, LOOPS, OK, Server, connections, no_proxies, post, run, says, trust
from tool_loop.errors import ConfigurationError, ProviderError
from tool_loop.llm.http import trust as trust_module
from tool_loop.llm.http.dialing import STAGGER_SECONDS
from tool_loop.llm.http.opening import Origin
from tool_loop.llm.http.pool import KEEP_SECONDS, SHARED
from tool_loop.llm.http.proxies import proxy_for
from tool_loop.llm.http.transport import Timeouts, Transport
from tool_loop.testing import FaultServer, VirtualLoop, answer, ok_chat, run_virtual

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.kit.http_case import Run, Script

__all__ = ["no_proxies", "run"]  # fixtures

pytestmark = pytest.mark.usefixtures("no_proxies")


# --- many addresses ---------------------------------------------------------------------------------


class Hosts(VirtualLoop):
    """An event loop in which a name has these addresses, each silent for so many seconds."""

    def __init__(self, addresses: Mapping[str, float]) -> None:
        super().__init__()
        self.addresses = addresses
        self.tried: list[tuple[str, float]] = []

    def look_up(self, _host: Any, port: Any, **_: Any) -> Any:
        families = {True: socket.AF_INET6, False: socket.AF_INET}
        return [(families[":" in a], socket.SOCK_STREAM, 6, "", (a, port)) for a in self.addresses]

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        self.tried.append((address[0], round(self.time(), 3)))
        await asyncio.sleep(self.addresses[address[0]])
        await super().sock_connect(sock, address)


NEVER = 3600.0


@pytest.mark.parametrize(
    ("addresses", "tried"),
    [
        ({"127.0.0.9": 0, HOST: 0}, [("127.0.0.9", 0.0), (HOST, 0.0)]),  # refuses
        ({"127.0.0.9": NEVER, HOST: 0, "127.0.0.8": 0}, [("127.0.0.9", 0.0), (HOST, STAGGER_SECONDS)]),
        ({HOST: 5, "127.0.0.9": 1, "127.0.0.8": 2}, [(HOST, 0.0), ("127.0.0.9", 0.25), ("127.0.0.8", 0.5)]),
        ({"::9": NEVER, "::8": 0, HOST: 0}, [("::9", 0.0), (HOST, STAGGER_SECONDS)]),
    ],
)
def test_the_next_address_is_tried_when_one_refuses_and_beside_one_that_is_silent(
    addresses: Mapping[str, float], tried: list[tuple[str, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Hosts(addresses)

    async def main(port: int) -> None:
        pool = SHARED.here()
        connection = await pool.take(Origin("http", "model.example.com", port), None, 10)
        assert connection.transport.get_extra_info("peername") == (HOST, port)
        pool.give(connection)

    monkeypatch.setattr(socket, "getaddrinfo", loop.look_up)
    with socket.create_server((HOST, 0)) as server, asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main(server.getsockname()[1]))
    assert loop.tried == tried


def test_a_host_none_of_whose_addresses_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Hosts({"127.0.0.9": NEVER, "127.0.0.8": NEVER})
    monkeypatch.setattr(socket, "getaddrinfo", loop.look_up)

    async def main() -> float:
        with pytest.raises(ProviderError, match=r"could not connect to model\.example\.com in time"):
            await post("http://model.example.com", transport=Transport(timeouts=Timeouts(connect=7)))
        return loop.time()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert runner.run(main()) == pytest.approx(7)


def test_a_host_all_of_whose_addresses_refuse_is_said_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Hosts({"127.0.0.9": 0, "127.0.0.8": 0})
    monkeypatch.setattr(socket, "getaddrinfo", loop.look_up)
    with (
        asyncio.Runner(loop_factory=lambda: loop) as runner,
        pytest.raises(ProviderError, match=r"connection refused\): is the server running"),
    ):
        runner.run(post("http://model.example.com:9"))


def test_a_name_is_looked_up_and_its_addresses_tried(run: Run) -> None:
    async def main() -> bytes:
        async with Server(says(OK)) as server:
            return await post(f"http://localhost:{server.port}")

    assert run(main()) == b"hi"


# --- TLS --------------------------------------------------------------------------------------------


def test_a_certificate_of_ones_own_is_trusted_by_ssl_cert_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> tuple[int, bytes, list[int]]:
        async with FaultServer([answer(200, b"x" * 300_000), answer(200, b"y")], tls=True) as server:
            trust(server, tmp_path, monkeypatch)
            one, two = await post(server.url), await post(server.url)
            return len(one), two, [request.connection for request in server.requests]

    assert run(main()) == (300_000, b"y", [1, 1])


def test_a_certificate_that_nobody_trusts_is_refused(run: Run) -> None:
    async def main() -> ProviderError:
        async with FaultServer([ok_chat("x")], tls=True) as server:
            with pytest.raises(ProviderError, match=r"certificate of 127\.0\.0\.1") as caught:
                await post(server.url)
            return caught.value

    assert run(main()).kind == "connection"


def tls_server(authority: trustme.CA, *, asks: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(HOST, "localhost").configure_cert(context)
    if asks:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_a_server_that_asks_for_a_certificate_gets_the_one_in_tls(run: Run) -> None:
    authority = trustme.CA()
    ours = ssl.create_default_context()
    authority.configure_trust(ours)
    bare = ssl.create_default_context()
    authority.configure_trust(bare)
    authority.issue_cert("client@example.com").configure_cert(ours)

    async def main() -> tuple[list[bytes], int]:
        async with Server(says(OK, OK), ssl=tls_server(authority, asks=True)) as server:
            transport = Transport(tls=ours)
            got = [await post(server.url, transport=transport) for _ in range(2)]
            with pytest.raises(ProviderError) as caught:  # on a connection of its own
                await post(server.url, transport=Transport(tls=bare))
            assert caught.value.kind == "connection"
            return got, server.connections

    got, connections = run(main())
    assert got == [b"hi", b"hi"]
    assert connections == 1  # the other never came through


@pytest.mark.parametrize("host", ["localhost", HOST])
def test_the_name_in_the_certificate_has_to_be_the_hosts(run: Run, host: str) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("other.example.com").configure_cert(context)
    ours = ssl.create_default_context()
    authority.configure_trust(ours)

    async def main() -> None:
        async with Server(says(OK), ssl=context) as server:
            with pytest.raises(ProviderError, match=f"the certificate of {host}:"):
                await post(server.url.replace(HOST, host), transport=Transport(tls=ours))

    run(main())


def test_a_host_that_does_not_shake_hands_is_given_up(run: Run) -> None:
    async def silent(_server: Server, reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def main() -> None:
        async with Server(silent) as server:
            with pytest.raises(ProviderError, match=r"could not connect .* in time"):
                await post(server.url.replace("http:", "https:"), transport=Transport(timeouts=Timeouts(connect=0.1)))

    run(main())


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_certificates_that_cannot_be_read_are_the_configurations_fault(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ca.pem"
    if content:
        file.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))

    with pytest.raises(ConfigurationError, match=r"no certificates can be read from SSL_CERT_FILE=.*ca\.pem"):
        asyncio.run(post("https://127.0.0.1:9"))


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_the_systems_certificates_are_trusted(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("truststore")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    trust_module._trusted.cache_clear()
    try:
        context = trust_module.trusted()
        assert context is trust_module.trusted(), "they are read once"
        assert isinstance(context, ssl.SSLContext)
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.check_hostname
        assert (type(context) is ssl.SSLContext) == (platform == "linux")
    finally:
        trust_module._trusted.cache_clear()


def test_certificates_are_looked_for_where_systems_keep_them() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust_module._search(context)

    if any(Path(place).is_file() for place in ("/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem")):
        assert trust_module._finds_any(context)
        assert context.cert_store_stats()["x509_ca"] > 0


# --- proxies ----------------------------------------------------------------------------------------


def proxy(credentials: bytes = b"") -> Script:
    """A proxy that opens tunnels, and answers plain requests itself."""

    async def script(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not (await reader.read(1)):
            return
        head = await reader.readuntil(b"\r\n\r\n")
        server.heads.append(head)
        if credentials and credentials not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
        elif head.startswith(b"ONNECT"):
            _, _, port = head.split(b" ")[1].decode().rpartition(":")
            there, back = await asyncio.open_connection(HOST, int(port))
            writer.write(b"HTTP/1.1 200 Connection established\r\nvia: us\r\n\r\n")
            await asyncio.gather(copied(reader, back), copied(there, writer), return_exceptions=True)
        else:
            await reader.readexactly(2)
            writer.write(OK)
            await reader.read()

    return script


async def copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


def test_a_plain_request_goes_whole_to_the_proxy(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> tuple[bytes, bytes]:
        async with Server(proxy()) as server:
            monkeypatch.setenv("HTTP_PROXY", f"http://me:p%40ss@{HOST}:{server.port}")
            return await post("http://api.example.com/v1?x=1"), server.heads[0]

    got, head = run(main())
    assert got == b"hi"
    assert head.startswith(b"OST http://api.example.com/v1?x=1 HTTP/1.1\r\nHost: api.example.com\r\n")
    assert b"\r\nProxy-Authorization: Basic bWU6cEBzcw==\r\n" in head


@pytest.mark.parametrize("kind", ["http", "https"])
def test_a_request_in_tls_goes_through_a_tunnel_and_the_key_is_not_shown_to_the_proxy(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    options = {"ssl": tls_server(authority)} if kind == "https" else {}

    async def main() -> tuple[list[bytes], list[bytes], int]:
        async with (
            Server(says(OK, OK), ssl=tls_server(authority)) as server,
            Server(proxy(b"Basic bWU6cGFzcw=="), **options) as between,
        ):
            monkeypatch.setenv("HTTPS_PROXY", f"{kind}://me:pass@{HOST}:{between.port}")
            got = [await post(server.url, headers={"authorization": "Bearer k"}) for _ in range(2)]
            return got, between.heads, server.connections

    got, heads, connections = run(main())
    assert got == [b"hi", b"hi"]
    assert (len(heads), connections) == (1, 1)
    assert heads[0].startswith(b"ONNECT 127.0.0.1:")
    assert b"Bearer" not in heads[0]


def test_a_proxy_that_wants_a_password_and_one_that_is_not_there_are_said(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> list[str]:
        said = []
        async with Server(proxy(b"Basic")) as server:
            for name, port in (("HTTPS_PROXY", server.port), ("HTTP_PROXY", 9)):
                monkeypatch.setenv(name, f"{HOST}:{port}")
                with pytest.raises(ProviderError) as caught:
                    await post(f"{name[:-6].lower()}://api.example.com")
                assert (caught.value.kind, caught.value.retryable) == ("connection", True)
                said.append(str(caught.value))
        return said

    password, absent = run(main())
    assert password == (
        "the proxy in front of api.example.com refused: it answered with status 407 (it wants a name and a password)"
    )
    assert absent.startswith(f"the proxy in front of api.example.com cannot be reached: {HOST}:9: ")


def test_a_socks_proxy_looks_up_the_name(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[bytes, int]] = []

    async def socks(_: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, methods = await reader.readexactly(2)
        await reader.readexactly(methods)
        writer.write(b"\x05\x00")
        await reader.readexactly(4)
        name = await reader.readexactly((await reader.readexactly(1))[0])
        asked.append((name, int.from_bytes(await reader.readexactly(2), "big")))
        writer.write(b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x00")
        await reader.readuntil(b"\r\n\r\n{}")
        writer.write(OK)
        await reader.read()

    async def main() -> bytes:
        async with Server(socks) as server:
            monkeypatch.setenv("ALL_PROXY", f"socks5h://{HOST}:{server.port}")
            return await post("http://api.example.com")

    assert run(main()) == b"hi"
    assert asked == [(b"api.example.com", 80)]


def test_a_socks_proxy_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "python_socks", None)

    with pytest.raises(ConfigurationError, match=r"cannot be used: .*tool-loop\[socks\]"):
        asyncio.run(post("http://api.example.com"))


@pytest.mark.parametrize("url", ["ftp://127.0.0.1:1", "http://", "http://x:port", "http://x:99999999"])
def test_a_proxy_that_cannot_be_understood_is_said(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", url)

    with pytest.raises(ConfigurationError, match="the proxy in the environment cannot be used"):
        asyncio.run(post("http://api.example.com"))


@pytest.mark.parametrize(
    ("no_proxy", "passed_by"),
    [
        ("", False),
        ("*", True),
        ("example.com", True),
        (".example.com", True),
        ("*.example.com", True),
        ("api.example.com", True),
        ("other.com, API.Example.Com", True),
        ("other.com api.example.com.", True),
        ("api.example.com:8080", True),
        ("api.example.com:443", False),
        ("ample.com", False),
        ("api", False),
        ("http://api.example.com", True),
        ("https://api.example.com", False),
        ("all://example.com", True),
        ("10.0.0.0/8", False),
        (":::", False),
        (",,", False),
    ],
)
def test_no_proxy_names_hosts_that_are_asked_directly(no_proxy: str, passed_by: bool) -> None:
    environ = {"ALL_PROXY": "http://127.0.0.1:3128", "NO_PROXY": no_proxy}

    assert (proxy_for(Origin("http", "api.example.com", 8080), environ) is None) == passed_by


@pytest.mark.parametrize(
    ("host", "no_proxy", "passed_by"),
    [
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.33", "10.1.2.3", False),
        ("::1", "::1", True),
        ("::1", "[::1]", True),
        ("fe80::1", "fe80::/10", True),
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("::2", "localhost,::1", False),
        ("localhost", "localhost,127.0.0.1", True),
    ],
)
def test_no_proxy_knows_addresses_and_networks(host: str, no_proxy: str, passed_by: bool) -> None:
    environ = {"all_proxy": "http://127.0.0.1:3128", "no_proxy": no_proxy}

    assert (proxy_for(Origin("https", host, 443), environ) is None) == passed_by


@pytest.mark.parametrize(
    ("environ", "used"),
    [
        ({}, None),
        ({"HTTP_PROXY": "http://a:1"}, "a"),
        ({"HTTP_PROXY": "http://a:1", "http_proxy": "http://b:1"}, "b"),
        ({"ALL_PROXY": "c:1", "HTTP_PROXY": "http://a:1"}, "a"),
        ({"ALL_PROXY": "c:1"}, "c"),
        ({"HTTPS_PROXY": "http://a:1"}, None),
        ({"HTTP_PROXY": "http://a:1", "REQUEST_METHOD": "GET"}, None),  # set by a client of a CGI server
        ({"http_proxy": "http://a:1", "REQUEST_METHOD": "GET"}, "a"),
    ],
)
def test_the_environment_names_the_proxy(environ: dict[str, str], used: str | None) -> None:
    found = proxy_for(Origin("http", "api.example.com", 80), environ)

    assert (found and found.origin.host) == used


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_without_a_name_in_the_environment_the_settings_of_the_system_are_asked(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)

    assert proxy_for(Origin("http", "api.example.com", 80), {}) is None


def test_a_socks_proxy_that_is_not_there_or_refuses_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuses(_: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.write(b"\x05\xff")  # no method of yours will do
        await reader.read()

    async def main() -> list[str]:
        said = []
        async with Server(refuses) as server:
            for port in (server.port, 9):
                monkeypatch.setenv("ALL_PROXY", f"socks5://{HOST}:{port}")
                with pytest.raises(ProviderError) as caught:
                    await post(f"http://api{port}.example.com")
                said.append(str(caught.value))
        return said

    refused, absent = run(main())
    assert "example.com refused: " in refused
    assert "example.com cannot be reached: " in absent


# --- kept, and closed -------------------------------------------------------------------------------


@pytest.mark.parametrize("poll", [True, False], ids=["poll", "select"])
def test_a_connection_that_is_still_good_is_known_to_be_with_and_without_poll(
    poll: bool, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not poll:
        monkeypatch.delattr(select, "poll", raising=False)  # as on Windows

    async def main() -> int:
        async with Server(says(OK, OK, OK)) as server:
            for _ in range(3):
                await post(server.url)
            return server.connections

    assert run(main()) == 1


def test_idle_connections_are_closed_after_a_while_and_not_before() -> None:
    async def main() -> list[int]:
        async with FaultServer([answer(200, b"x")] * 4) as server:
            for pause in (KEEP_SECONDS - 1, KEEP_SECONDS - 1, KEEP_SECONDS + 1, 0):
                await post(server.url)
                await asyncio.sleep(pause)
            return [request.connection for request in server.requests]

    assert run_virtual(main()) == [1, 1, 1, 2]


def test_as_many_connections_are_kept_as_were_needed_at_once(run: Run) -> None:
    async def main() -> int:
        async with Server(says(*[OK] * 3)) as server:
            for _ in range(3):
                await asyncio.gather(*(post(server.url) for _ in range(50)))
            return server.connections

    assert run(main()) == 50


def test_each_thread_and_each_loop_has_its_own_connections() -> None:
    transport = Transport()
    got: list[bytes] = []

    async def main() -> None:
        async with Server(says(*[OK] * 20)) as server:
            got.extend([await post(server.url, transport=transport) for _ in range(20)])
            assert server.connections == 1

    threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert got == [b"hi"] * 120


@pytest.mark.parametrize("loop", sorted(LOOPS))
@pytest.mark.parametrize("tls", [False, True])
def test_connections_are_closed_with_their_loop_and_nobody_has_to_ask(
    loop: str, tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with FaultServer([answer(200, b"x")], tls=tls) as server:
            trust(server, tmp_path, monkeypatch)
            await post(server.url)

    before = len(connections())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
                runner.run(main())
        left = len(connections())
    assert [str(warning.message) for warning in caught] == []
    assert left <= before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("same_loop", [False, True], ids=["new loop", "same loop"])
def test_a_fork_uses_no_connection_of_its_parents(same_loop: bool) -> None:
    played = asyncio.new_event_loop()
    server = Server(says(*[OK] * 4))
    thread = threading.Thread(target=played.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.__aenter__(), played).result(5)
    loop = asyncio.new_event_loop()
    try:
        assert loop.run_until_complete(post(server.url)) == b"hi"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # 3.12 and later warn of forks beside threads
            pid = os.fork()
        if not pid:
            code = 4
            try:
                again = loop if same_loop else asyncio.new_event_loop()
                code = 0 if again.run_until_complete(post(server.url)) == b"hi" else 3
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert loop.run_until_complete(post(server.url)) == b"hi"
        assert server.connections == 2
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        asyncio.run_coroutine_threadsafe(server.__aexit__(), played).result(5)
        played.call_soon_threadsafe(played.stop)
        thread.join(5)
        played.close()
