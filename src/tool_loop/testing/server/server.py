"""A loopback HTTP server that fails on schedule, for any client.

    with FaultServer([rate_limit(2), reset_at_byte(40), ok_chat("hello")]) as server:
        ask(server.url)
    server.assert_done()

Each request takes the next behaviour. Knows nothing about the client: it may be of any library, in
this thread, another one or another process. What a reply looks like is in `behaviours`, what goes
wrong in `refusals` and `wire_faults`; here it leaves, and every byte and second of it has a bound.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

from tool_loop.errors import UsageError

from .behaviours import Behaviour, Received, Response, answer
from .connection import ServedConnection, ServerLimits
from .port import HOST, Port

if TYPE_CHECKING:
    import socket

# A client that reads a body without end is stopped here, before it fills the machine that tests it.
MAX_BYTES: Final = 256 * 2**20
# A hang ends here at the latest, long after any client under test should have given up.
MAX_SECONDS: Final = 60.0
_ONCE: Final = "a FaultServer serves once; make another one"


class FaultServer:
    """Serves a schedule of behaviours on 127.0.0.1, one for each request, in the order they arrive.

    `with` runs it in a thread of its own. `async with` runs it in the running event loop, where its
    waits are virtual when that is a `VirtualLoop`. When the block is left, no thread and no socket
    of it remain.

    A request beyond the schedule gets `otherwise`, or else a 500 that says so, and is kept in
    `unexpected` too. `tls` serves https with a certificate that nobody trusts (a client may be given
    `certificate`). `listening=False` refuses connections until `listen()`. One response lasts
    `max_seconds` and has `max_bytes` at most, then its connection is reset. HTTP dates are counted
    from `now()`.
    """

    def __init__(
        self,
        schedule: Iterable[Behaviour] = (),
        *,
        otherwise: Behaviour | None = None,
        tls: bool = False,
        listening: bool = True,
        max_bytes: int = MAX_BYTES,
        max_seconds: float = MAX_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.requests: list[Received] = []
        self.unexpected: list[Received] = []
        self.sent_bytes = 0
        self._schedule = deque(schedule)
        self._otherwise = otherwise
        self._tls = tls
        self._listening = listening
        self._limits = ServerLimits(max_bytes, max_seconds, now)
        self._errors: list[Exception] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections = 0
        self._port: Port | None = None
        self._thread: _Thread | None = None

    @property
    def url(self) -> str:
        """The origin, without a path and without a slash at the end."""
        return f"{'https' if self._tls else 'http'}://{HOST}:{self._open_port.number}"

    @property
    def https_url(self) -> str:
        """The same port under https. Without `tls`, the handshake takes the next behaviour."""
        return f"https://{HOST}:{self._open_port.number}"

    @property
    def certificate(self) -> str:
        """The certificate of a `tls` server in PEM, for a client that shall trust it."""
        from .certificate import CERTIFICATE

        return CERTIFICATE

    def add(self, *behaviours: Behaviour) -> None:
        """Append to the schedule, also while it is being served."""
        self._schedule.extend(behaviours)

    def listen(self) -> None:
        """Accept connections from now on, whatever refuses them. Safe from any thread."""
        self._open_port.listen()

    def saw(self, secret: str) -> bool:
        """Whether any request held this text, in its path, a header or its body."""
        return any(
            secret.encode() in request.body or any(secret in text for text in (request.path, *sum(request.headers, ())))
            for request in tuple(self.requests)
        )

    def assert_done(self) -> None:
        """Raises AssertionError unless the schedule was served to its end and nothing else was asked."""
        wrong = []
        if self._schedule:
            wrong.append(f"never asked for: {', '.join(behaviour.name for behaviour in self._schedule)}")
        if self.unexpected:
            asked = ", ".join(f"{request.method} {request.path}" for request in self.unexpected)
            wrong.append(f"asked for beyond the schedule: {asked}")
        wrong += [f"a behaviour raised {error!r}" for error in self._errors]
        if wrong:
            raise AssertionError(f"{'; '.join(wrong)} (after {len(self.requests)} requests)")

    # --- coming and going -------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._port is not None:
            raise UsageError(_ONCE)
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self._context = None
        if self._tls:
            from .certificate import server_context

            self._context = server_context()
        self._port = Port(self._connected)
        if (seconds := self._refusal_ahead()) is not None:
            self._port.listen_in(seconds)
        elif self._listening:
            self._port.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open_port.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def __enter__(self) -> Self:
        if self._port is not None:
            raise UsageError(_ONCE)
        self._thread = _Thread(self)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._thread is not None
        self._thread.stop()

    @property
    def _open_port(self) -> Port:
        if self._port is None:
            raise UsageError("the FaultServer is not running: use it as `with FaultServer(...) as server`")
        return self._port

    # --- serving ----------------------------------------------------------------------------------

    def _connected(self, sock: socket.socket) -> None:
        task = self._loop.create_task(self._serve(sock))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task that is cancelled before its first step never gets to close what it was given.
        task.add_done_callback(lambda _: sock.close())

    async def _serve(self, sock: socket.socket) -> None:
        # A client that leaves is no fault of the server: most clients under test should do just that.
        with suppress(OSError, EOFError):
            connection = await ServedConnection.accept(sock, self._context, self._limits, self._count)
            try:
                await self._converse(connection)
            finally:
                await connection.gone()

    def _count(self, sent: int) -> None:
        self.sent_bytes += sent

    async def _converse(self, connection: ServedConnection) -> None:
        self._connections += 1
        number = self._connections
        response = Response()
        while True:
            try:
                received = await connection.receive()
            except (ValueError, asyncio.LimitOverrunError) as error:
                self.unexpected.append(self._note(Received("", ""), number, "not_http"))
                await connection.play(_refusal(400, f"FaultServer cannot read this request: {error}"))
                return
            if received is None:
                return
            if response.end == "reset_on_next":
                self._note(received, number, "reset_on_reuse")
                connection.reset()
                return
            response = self._answer(received, number)
            refusing = self._refusal_ahead()
            if refusing is not None or (received.header("connection") or "").lower() == "close":
                response = _last(response)
            if not await self._play(connection, response, refusing):
                return

    async def _play(self, connection: ServedConnection, response: Response, refusing: float | None) -> bool:
        if refusing is None:
            return await connection.play(response)
        # Before the reply: whoever has it may ask again at once. The time counts from its end.
        self._open_port.refuse()
        try:
            return await connection.play(response)
        finally:
            self._open_port.listen_in(refusing)

    def _answer(self, received: Received, number: int) -> Response:
        behaviour = self._schedule.popleft() if self._schedule else self._otherwise
        request = self._note(received, number, behaviour.name if behaviour else "unexpected")
        if behaviour is None:
            self.unexpected.append(request)
            text = f"request {len(self.requests)} ({request.method} {request.path}) is beyond the schedule"
            return _refusal(500, f"FaultServer: {text}. Add a behaviour for it, or set `otherwise`.")
        try:
            return behaviour.respond(request)
        except Exception as error:  # the test's own code: `assert_done` tells of it
            self._errors.append(error)
            return _refusal(500, f"FaultServer: the behaviour {behaviour.name!r} raised {error!r}")

    def _refusal_ahead(self) -> float | None:
        """How long connections are refused now, if that is what the schedule wants next."""
        seconds = None
        while self._schedule and (more := self._schedule[0].refuse_seconds) is not None:
            seconds = (seconds or 0.0) + more
            self._schedule.popleft()
        return seconds

    def _note(self, received: Received, number: int, behaviour: str) -> Received:
        at = self._loop.time() - self._started
        request = replace(received, at=at, connection=number, behaviour=behaviour)
        self.requests.append(request)
        return request


class _Thread:
    """Runs a server in an event loop of its own."""

    def __init__(self, server: FaultServer) -> None:
        self._server = server
        self._ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._run, name="fault-server", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._loop, self._leave = self._ready.result()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join()

    def _run(self) -> None:
        # Whatever loop the application has set up for itself: this one is known to be able to abort.
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._main())
        except BaseException as error:  # no descriptor left, say: `start` waits to hear of it
            self._ready.set_exception(error)

    async def _main(self) -> None:
        leave = asyncio.Event()
        async with self._server:
            self._ready.set_result((asyncio.get_running_loop(), leave))
            await leave.wait()


def _last(response: Response) -> Response:
    """The same without a promise to keep the connection: over it, the next request would get around a refusal."""
    if response.end != "keep":
        return response
    return replace(response, end="close", headers=(*response.headers, ("connection", "close")))


def _refusal(status: int, text: str) -> Response:
    return answer(status, text, {"content-type": "text/plain; charset=utf-8"}, end="close").respond(Received("", ""))
