"""A chat with approvals behind a web server that may be killed at any moment.

    pip install -e ".[dev]"                        # or: pip install tool-loop starlette sse-starlette uvicorn uvloop
    uvicorn --app-dir examples/web app:app --loop uvloop
    open http://127.0.0.1:8000/ and http://127.0.0.1:8000/approvals

What to look at:

- A message starts a task of the server's and is answered at once; the page watches the run by server-sent
  events. So a page that is closed ends nothing, and one that comes back (`Last-Event-ID`) misses nothing.
- The number of an event is its number in the journal. It means the same in every process and after a restart.
- When the server starts, it drives on whatever can just be driven on. What waits for a person goes on waiting.
- Several processes may serve one journal: `follow` sees what another one records, and a run that another one
  drives is left to it.

It answers offline, with a model of a few lines; with OPENAI_MODEL set it asks a real one. There is no login in
it: whoever can reach it can approve.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from model import Offline
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tool_loop import (
    Agent,
    Event,
    FatalError,
    OpenAIChat,
    RunBusy,
    Signal,
    SqliteJournal,
    TextDelta,
    UnknownRun,
    UsageError,
    tool,
)
from tool_loop.journal.runs import CAN_GO_ON

HERE = Path(__file__).parent
STATE = Path(os.environ.get("CHAT_STATE", "chat-state"))

logger = logging.getLogger("chat")


@tool(effect="once", needs_approval=True)
async def refund(order: int) -> str:
    """Pay the price of an order back to the customer."""
    with (STATE / "refunds").open("a", encoding="utf-8") as file:
        file.write(f"{order}\n")
    return f"order {order} is paid back"


class Chats:
    """The agent, its journal, and the runs that this process drives."""

    def __init__(self) -> None:
        STATE.mkdir(parents=True, exist_ok=True)
        self.journal = SqliteJournal(STATE / "runs.sqlite")
        llm = OpenAIChat() if os.environ.get("OPENAI_MODEL") else Offline(float(os.environ.get("CHAT_SLOW", "0.02")))
        self.agent = Agent(llm, [refund], journal=self.journal, system="You help customers of a shop.")
        self.running: set[asyncio.Task[FatalError | None]] = set()
        self.watching: dict[str, set[asyncio.Queue[dict[str, str]]]] = {}

    def drive(self, run_id: str, work: Coroutine[Any, Any, object]) -> asyncio.Task[FatalError | None]:
        """Beside the request that asked for it, so that neither its end nor its client's ends the run."""
        task = asyncio.create_task(self._driven(run_id, work))
        self.running.add(task)  # the event loop alone would forget it
        task.add_done_callback(self.running.discard)
        return task

    async def _driven(self, run_id: str, work: Coroutine[Any, Any, object]) -> FatalError | None:
        try:
            await work
        except FatalError as error:
            logger.warning("%s: %s", run_id, error)  # it is on record, and can be resumed
            return error
        return None

    def resume(self, run_id: str) -> None:
        """Drive it on; where another process is faster, it is left to that one."""
        self.drive(run_id, self.agent.resume(run_id, on_event=partial(self.show, run_id)))

    async def say(self, run_id: str, message: str) -> FatalError | None:
        """Begin to answer; returns when the message is on record, or with the reason why it is not."""
        begun = asyncio.Event()

        def see(happening: Event | Signal) -> None:
            begun.set()
            self.show(run_id, happening)

        task = self.drive(run_id, self.agent.chat(run_id).ask(message, on_event=see))
        waiting = asyncio.create_task(begun.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        return task.result() if not begun.is_set() else None

    def show(self, run_id: str, happening: Event | Signal) -> None:
        """Text that is being written is shown to those who watch in this process; the whole of it is on record."""
        if isinstance(happening, TextDelta):
            for queue in self.watching.get(run_id, ()):
                queue.put_nowait({"event": "text", "data": json.dumps(happening.text)})

    async def events(self, run_id: str, after: int) -> AsyncIterator[dict[str, str]]:
        """All that happens in a conversation behind record `after`, for as long as somebody listens."""
        queue: asyncio.Queue[dict[str, str]] = asyncio.Queue()

        async def recorded() -> None:
            async with aclosing(self.journal.follow(run_id, after, forever=True)) as records:
                async for record in records:
                    data = json.dumps({"type": type(record.event).__name__, **asdict(record.event)})
                    queue.put_nowait({"id": str(record.seq), "event": "record", "data": data})

        reading = asyncio.create_task(recorded())
        self.watching.setdefault(run_id, set()).add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self.watching[run_id].discard(queue)
            reading.cancel()


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    chats = app.state.chats = Chats()
    for run in chats.journal.runs(state=CAN_GO_ON):
        chats.resume(run.id)
    try:
        yield
    finally:
        # Cancelled, not abandoned: each notes where it was, and the next start drives it on.
        for task in chats.running:
            task.cancel()
        await asyncio.gather(*chats.running, return_exceptions=True)
        chats.journal.close()


async def home(_: Request) -> Response:
    return FileResponse(HERE / "chat.html")


async def say(request: Request) -> Response:
    """A message. It may come while a call waits for an approval: then it takes the place of the decision."""
    chats, run_id = request.app.state.chats, request.path_params["chat"]
    message = str((await request.json()).get("message", ""))
    if not message.strip():
        raise HTTPException(400, "say something")
    error = await chats.say(run_id, message)
    if error is not None:
        busy = isinstance(error, RunBusy)
        raise HTTPException(409 if busy else 503, "the last message is still being answered" if busy else str(error))
    return JSONResponse({"chat": run_id}, status_code=202)


async def watch(request: Request) -> Response:
    """The conversation from its beginning, or from the last event that this client has seen."""
    chats, run_id = request.app.state.chats, request.path_params["chat"]
    try:
        after = int(request.headers.get("last-event-id", "-1"))
        chats.journal.records(run_id, after=after)
    except UnknownRun:
        raise HTTPException(404, "nothing was said in this conversation yet") from None
    except ValueError:
        raise HTTPException(400, "Last-Event-ID is the number of a record") from None
    return EventSourceResponse(chats.events(run_id, after))


async def cancel(request: Request) -> Response:
    """Stop what is being answered, in whatever process it is."""
    stopped = await request.app.state.chats.journal.cancel(request.path_params["chat"], by="the customer")
    return JSONResponse({"stopped": stopped})


async def approvals(request: Request) -> Response:
    """Every call that waits for a person, in all conversations."""
    rows = [
        f"<li><b>{escape(waiting.call.name)}</b> <code>{escape(waiting.call.arguments)}</code> "
        f"in {escape(waiting.run_id)}: “{escape(waiting.question)}”"
        f'<form method="post" action="/approvals/{escape(waiting.run_id)}/{escape(waiting.call.id)}">'
        f'<input type="hidden" name="fingerprint" value="{escape(waiting.fingerprint)}">'
        '<button name="allow" value="yes">allow</button> <button name="allow" value="no">deny</button></form>'
        for waiting in request.app.state.chats.journal.pending()
    ]
    page = f"<ul>{''.join(rows)}</ul>" if rows else "<p>Nothing waits for a decision.</p>"
    return HTMLResponse(f'<!doctype html><meta charset="utf-8"><title>Approvals</title><h1>Approvals</h1>{page}')


async def decide(request: Request) -> Response:
    chats, run_id, call_id = request.app.state.chats, *(request.path_params[name] for name in ("run", "call"))
    # A page of somebody else's can post a form to this one, but cannot say that it comes from here.
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise HTTPException(403, "decide on the page of approvals")
    form = await request.form()
    seen = {waiting.call.id: waiting.fingerprint for waiting in chats.journal.pending() if waiting.run_id == run_id}
    if form.get("fingerprint") != seen.get(call_id):
        raise HTTPException(409, "this call does not wait any more, or is another one by now; look again")
    try:
        await chats.journal.decide(run_id, call_id, allow=form.get("allow") == "yes", by="the approvals page")
    except UsageError as error:
        raise HTTPException(409, str(error)) from None
    chats.resume(run_id)
    return RedirectResponse("/approvals", status_code=303)


app = Starlette(
    routes=[
        Route("/", home),
        Route("/chats/{chat}/messages", say, methods=["POST"]),
        Route("/chats/{chat}/events", watch),
        Route("/chats/{chat}/cancel", cancel, methods=["POST"]),
        Route("/approvals", approvals),
        Route("/approvals/{run}/{call}", decide, methods=["POST"]),
    ],
    lifespan=lifespan,
)
