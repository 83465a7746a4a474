"""Who plays in the simulation: a wandering model, tools with and without effects, a person.

Everything they do is drawn from the world's chance. Knows nothing about disks and processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tool_loop.audit.invariants import check_messages
from tool_loop.errors import ProviderError, ToolError, UsageError
from tool_loop.events import ApprovalDecided, Event, ModelReplied, Stop, TextDelta, ToolCall, ToolReturned, Usage
from tool_loop.ports import Emit, PendingApproval, Request
from tool_loop.toolbox.registry import Tool, ToolContext, ToolRegistry, tool
from tool_loop.transcript import SUMMARISE, UserMessage

from .world import RUN, SimJournal, World

PROVIDER_FAULTS = (
    "rate_limit", "overloaded", "server_error", "timeout", "connection", "protocol", "empty", "model_output",
    "auth", "not_found", "bad_request", "context_length", "content_filter", "quota",
)  # fmt: skip
# What a model really sends now and then, in place of a clean call.
BAD_ARGUMENTS = ('{"n": 1', "[1]", '{"n": "one"}', "{}", '{"n": 1, "x": 2}', '```json\n{"n": 1}\n```', "nul", "")


class SimModel:
    """A model that wanders: it reads what it is told, and asks for whatever comes to its mind."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        world = self.world
        self._read(request)
        if world.bounded and world.strikes("hang", 0.3):
            await asyncio.get_running_loop().create_future()
        await world.pause()
        if world.random.random() < 0.5:
            emit(TextDelta("let me think"))
            await world.pause()
        if world.strikes("provider", 3.0):
            self._fail(request)
        if request.transcript.messages[-1] == UserMessage(SUMMARISE):
            return self._summary()
        reply = self._say(request)
        world.received += 1
        world.tell(f"  model: {reply.text[:40]!r} {[(c.id, c.name, c.arguments[:20]) for c in reply.calls]}")
        return reply

    def _read(self, request: Request) -> None:
        world = self.world
        world.broken += check_messages(request.transcript.messages)
        world.asked[request.key] += 1
        body = (len(request.transcript.messages), request.transcript.chars, request.may_call)
        summary = request.transcript.messages[-1] == UserMessage(SUMMARISE)
        # Two requests in a row with nothing recorded in between are one, asked again.
        here = (world.fence, len(world.disk), summary)
        if not world.overlap and world.keys.setdefault(here, request.key) != request.key:
            world.complain("I15", f"asked again with the key {request.key} in place of {world.keys[here]}")
        if not summary and world.bodies.setdefault(request.key, body) != body:
            world.complain("I15", f"two requests with the key {request.key} are not the same")
        if request.key in world.bodies and world.asked[request.key] > 30:
            world.complain("I15", f"{world.asked[request.key]} requests with the key {request.key}")

    def _fail(self, request: Request) -> None:
        draw = self.world.random
        kind: Any = draw.choice(PROVIDER_FAULTS if draw.random() < 0.5 else PROVIDER_FAULTS[:8])
        self.world.faults[-1] = f"provider: {kind}"
        wait = draw.choice((None, None, 0.5, 3.0, 3600.0)) if kind == "rate_limit" else None
        window = request.transcript.chars // 4 if kind == "context_length" else None
        raise ProviderError(
            f"{kind} by chance", kind=kind, retry_after=wait, window=window, tokens=draw.choice((0, 0, 50))
        )

    def _summary(self) -> ModelReplied:
        if self.world.strikes("no summary", 3.0):
            return ModelReplied("", (ToolCall("s", "look", '{"n": 1}'),), usage=Usage(50, 5))
        return ModelReplied("what was found so far", usage=Usage(50, 5))

    def _say(self, request: Request) -> ModelReplied:
        draw = self.world.random
        usage = Usage() if draw.random() < 0.2 else Usage(request.transcript.chars // 4, draw.randrange(40))
        self.world.left -= 1
        if not request.may_call:
            calls = (self._call(0),) if self.world.strikes("calls although withheld", 2.0) else ()
            return ModelReplied("" if calls and draw.random() < 0.5 else "in short", calls, usage=usage)
        if self.world.left < 0:
            text = '{"name": "look", "arguments": {"n": 1}}' if self.world.strikes("a call as text", 2.0) else "done"
            return ModelReplied(text, usage=usage)
        stop: Stop = "length" if self.world.strikes("cut by length") else "tool_calls"
        return ModelReplied("", tuple(self._call(n) for n in range(draw.randrange(1, 5))), stop, usage)

    def _call(self, n: int) -> ToolCall:
        draw = self.world.random
        name = draw.choice(("look", "look", "poll", "put", "pay", "ship", "gate", "slow"))
        arguments = f'{{"n": {draw.randrange(6)}}}'
        call_id = f"c{self.world.received}_{n}"
        if self.world.strikes("bad arguments", 2.0):
            arguments = draw.choice(BAD_ARGUMENTS)
        if self.world.strikes("unknown tool"):
            name = "nobody"
        if self.world.strikes("bad id", 2.0):
            call_id = draw.choice(("", "same", "same", "with space", "x" * 80))
        return ToolCall(call_id, name, arguments)


class Stage:
    """The tools. Built once, because their schemas are; each world steps onto it in turn."""

    def __init__(self) -> None:
        self.world = World(0)
        self.tools = ToolRegistry([*self._reading(), *self._acting()])
        self.effects = {t.name: t.effect or "once" for t in self.tools}

    def _reading(self) -> list[Tool]:
        @tool(effect="read")
        async def look(n: int) -> str:
            """Look."""
            await self._work()
            return f"saw {n} " + "x" * (400 if n == 5 else 0)

        @tool(effect="read", polling=True)
        async def poll(n: int) -> str:
            """Poll."""
            await self._work()
            return f"{n} is not ready yet"

        @tool(effect="read", timeout_seconds=3)
        async def slow(n: int) -> str:
            """Take long, and hold on to it when asked to stop."""
            try:
                await asyncio.sleep(n * 2)
            except asyncio.CancelledError:
                if self.world.strikes("ignores its cancellation", 5.0):
                    await asyncio.sleep(0.3)
                raise
            return "at last"

        return [look, poll, slow]

    def _acting(self) -> list[Tool]:
        @tool(effect="idempotent")
        async def put(n: int) -> str:
            """Put."""
            await self._work()
            return f"put {n}"

        @tool(effect="once")
        async def pay(n: int, context: ToolContext) -> str:
            """Pay."""
            return await self._effect("paid", n, context)

        @tool(effect="once")
        async def ship(n: int, context: ToolContext) -> str:
            """Ship."""
            return await self._effect("shipped", n, context)

        @ship.probe
        async def shipped(n: int, context: ToolContext) -> object:
            if self.world.random.random() < 0.2 or context.idempotency_key in self.world.under_way:
                return None
            return f"shipped {n}, says the probe" if self.world.done[context.idempotency_key] else False

        @tool(effect="once", needs_approval=True)
        async def gate(n: int, context: ToolContext) -> str:
            """Needs a person."""
            return await self._effect("opened", n, context)

        return [put, pay, ship, gate]

    async def _work(self) -> None:
        await self.world.pause()
        if self.world.strikes("tool says no"):
            raise ToolError("not like that")
        if self.world.strikes("tool crashes"):
            raise RuntimeError("a bug of the tool")

    async def _effect(self, word: str, n: int, context: ToolContext) -> str:
        """Something that must happen once: the world remembers how often it really did."""
        # A probe that is asked while another process, believed dead, is at it can only say that it
        # does not know: no fence reaches what has left for the outside.
        self.world.under_way.add(context.idempotency_key)
        await self._work()
        await self.world.alive()
        self.world.done[context.idempotency_key] += 1
        self.world.tell(f"  effect: {word} {n} ({context.idempotency_key})")
        await self.world.pause()
        if self.world.strikes("crash after an effect"):
            await self.world.die("after an effect, before its outcome was recorded")
        self.world.under_way.discard(context.idempotency_key)
        return f"{word} {n}"


class SimPerson:
    """Decides about calls: at once or slowly, for and against, and now and then not at all."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def __call__(self, shown: PendingApproval) -> ApprovalDecided:
        world, draw = self.world, self.world.random
        await world.pause()
        if world.bounded and world.strikes("the person goes away", 3.0):
            await asyncio.get_running_loop().create_future()
        if world.strikes("the reviewer fails", 3.0):
            raise OSError("the terminal is gone")
        said = self.decide(shown)
        edited = '{"n": 3}' if said["allow"] and draw.random() < 0.2 else None
        standing = draw.random() < 0.1 and shown.why == "policy"
        return ApprovalDecided(
            draw.choice((shown.call.id, "another")),
            said["allow"],
            "sim",
            said["note"],
            arguments=edited,
            standing=standing,
        )

    def decide(self, shown: PendingApproval) -> dict[str, Any]:
        allow = self.world.random.random() < 0.7
        self.world.tell(f"  person: {'yes' if allow else 'no'} to {shown.call.id} ({shown.why})")
        if allow and shown.why == "in_doubt":
            self.world.reruns[shown.call.id] += 1
        return {"allow": allow, "note": "" if allow else "no"}

    async def decide_later(self, journal: SimJournal, waiting: Sequence[PendingApproval]) -> None:
        """Decide from elsewhere, and sometimes twice: only the first may count."""
        for shown in waiting:
            with suppress(UsageError):  # another process was faster
                await journal.decide(RUN, shown.call.id, **self.decide(shown))
            if self.world.random.random() < 0.3:
                try:
                    await journal.decide(RUN, shown.call.id, allow=True)
                except UsageError:
                    continue
                self.world.complain("I11", f"a second decision about {shown.call.id} was taken")


def executed_but_denied(world: World, events: Sequence[Event], keys: dict[str, str]) -> None:
    """What really happened against what the model was told about it."""
    results = {e.call_id: e for e in events if isinstance(e, ToolReturned)}
    for key, count in world.done.items():
        call_id = keys.get(key, "")
        if count > 1 + world.reruns[call_id]:
            world.complain("I7", f"{call_id} ran {count} times")
        told = results.get(call_id)
        if told is None:
            world.complain("I8", f"{call_id} ran, and the model was told nothing about it")
        elif told.error in ("cancelled", "denied", "cut_off", "limit_reached"):
            world.complain("I8", f"{call_id} ran, and the model was told {told.error}")
