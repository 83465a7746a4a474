"""A model that follows a script: for tests, for the demo, for trying things offline.

    llm = ScriptedLLM(
        calls(ToolCall("1", "grep", '{"pattern": "class ToolError("}'), text="Let me look."),
        "It is in agent.py, line 35.",
    )

It checks what it is sent as strictly as a provider would, so that a loop which forgets a result or
sends an empty turn fails in a test and not in production. Knows nothing about HTTP or JSON bodies.
"""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from tool_loop.errors import ToolLoopError
from tool_loop.events import ModelReplied, ReasoningDelta, TextDelta, ToolCall, Usage
from tool_loop.transcript import AssistantMessage, Message, ToolMessage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    from tool_loop.ports import Emit, Request
    from tool_loop.transcript import Transcript


_UNKNOWN: Final = Usage()


class ScriptError(ToolLoopError, AssertionError):
    """The script and the run do not fit: too few turns, too many, or a request no provider would take."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What one request held, as it was when it came."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[str, ...]
    may_call: bool
    key: str = ""
    deadline: float | None = None
    allowance: int | None = None

    @property
    def last(self) -> Message:
        return self.messages[-1]


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn with more to it than a reply.

    `pieces` are streamed in place of the reply's text, and `seconds` pass before it is complete.
    `expects` looks at the request: it returns False, or raises, when it is not what was expected.
    With `then_raise` the turn fails after its pieces were streamed, as a cut connection does.
    """

    reply: ModelReplied | str | ToolCall | Sequence[ToolCall] = ""
    pieces: tuple[str, ...] = ()
    seconds: float = 0.0
    expects: Callable[[Sent], object] | None = None
    then_raise: BaseException | None = None


Reply: TypeAlias = "ModelReplied | str | ToolCall | Sequence[ToolCall]"
Step: TypeAlias = "Reply | Turn | BaseException | Callable[[Request], Reply | Turn | Awaitable[Reply | Turn]]"


def calls(*calls: ToolCall, text: str = "", usage: Usage = _UNKNOWN) -> ModelReplied:
    """A reply that asks for these calls, in this order."""
    return ModelReplied(text, calls, "tool_calls" if calls else "stop", usage)


class ScriptedLLM:
    """Plays its turns in order, one per request.

    A turn is an answer (`str`), one or more `ToolCall`, a whole `ModelReplied`, a `Turn`, an
    exception to raise, or a function from the request to any of these (it may be a coroutine
    function). `usage` is given to replies that say nothing of their own, `pieces` is the number of
    characters per streamed piece (0: the whole text at once).

    `requests` holds what was sent. Raises `ScriptError` when the turns run out or a request is one
    that a provider would refuse; as a context manager, also when turns are left over at the end.
    """

    def __init__(self, *turns: Step, usage: Usage = _UNKNOWN, pieces: int = 0, model: str = "scripted") -> None:
        self._turns = turns
        self._usage = usage
        self._pieces = pieces
        self._model = model
        self.requests: list[Sent] = []
        self._checked: _Checked | None = None

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        n = len(self.requests)
        sent = _sent(request)
        self.requests.append(sent)
        if self._checked is None or self._checked.transcript is not request.transcript:
            self._checked = _Checked(request.transcript)
        if fault := self._checked.fault():
            raise ScriptError(f"request {n + 1} is one that a provider would refuse: {fault}")
        if n >= len(self._turns):
            raise ScriptError(
                f"request {n + 1} came, but the script has {len(self._turns)} turns; the last message is {sent.last!r}"
            )
        step = self._turns[n]
        if callable(step):
            made = step(request)
            return await self._play(await made if inspect.isawaitable(made) else made, sent, n, emit)
        return await self._play(step, sent, n, emit)

    async def _play(self, step: Reply | Turn | BaseException, sent: Sent, n: int, emit: Emit) -> ModelReplied:
        if isinstance(step, BaseException):
            raise step
        turn = step if isinstance(step, Turn) else Turn(step)
        if turn.expects is not None and turn.expects(sent) is False:
            raise ScriptError(f"request {n + 1} is not what its turn expects; it ends with {sent.last!r}")
        reply = self._whole(turn.reply)
        if reply.reasoning:
            emit(ReasoningDelta(reply.reasoning))
        for piece in turn.pieces or self._cut(reply.text):
            emit(TextDelta(piece))
        if turn.seconds:
            await asyncio.sleep(turn.seconds)
        if turn.then_raise is not None:
            raise turn.then_raise
        return reply

    def assert_finished(self) -> None:
        """Raise `ScriptError` when turns are left that nobody asked for."""
        left = len(self._turns) - len(self.requests)
        if left > 0:
            turn = self._turns[-left]
            raise ScriptError(f"{left} of {len(self._turns)} turns were never asked for; the next is {turn!r}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:  # or the complaint would hide what really went wrong
            self.assert_finished()

    def _whole(self, said: Reply) -> ModelReplied:
        match said:
            case ModelReplied():
                reply = said
            case str():
                reply = ModelReplied(said)
            case ToolCall():
                reply = calls(said)
            case _:
                reply = calls(*said)
        if reply.usage == _UNKNOWN or not reply.model:
            usage = self._usage if reply.usage == _UNKNOWN else reply.usage
            reply = replace(reply, usage=usage, model=reply.model or self._model)
        return reply

    def _cut(self, text: str) -> Sequence[str]:
        if not text:
            return ()
        size = self._pieces or len(text)
        return [text[at : at + size] for at in range(0, len(text), size)]


def _sent(request: Request) -> Sent:
    transcript = request.transcript
    names = tuple(tool.name for tool in request.tools)
    # The messages are frozen, so a tuple of them is a snapshot however the transcript grows.
    return Sent(
        transcript.system,
        tuple(transcript.messages),
        names,
        request.may_call,
        request.key,
        request.deadline,
        request.allowance,
    )


class _Checked:
    """What a provider would refuse about a history. Each message is looked at once, however often it is sent."""

    __slots__ = ("_done", "_owed", "_seen", "_user", "transcript")

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript
        self._done = 0
        self._owed: list[str] = []
        self._seen: set[str] = set()
        self._user = False

    def fault(self) -> str:
        """The first fault, or ""."""
        messages = self.transcript.messages
        for n in range(self._done, len(messages)):
            if fault := self._look(n, messages[n]):
                return fault
        self._done = len(messages)
        if self._owed:
            return f"the calls {self._owed} have no result"
        if not self._user:
            return "there is no user message"
        if isinstance(messages[-1], AssistantMessage):
            return "it ends with an assistant turn, so there is nothing to answer"
        return ""

    def _look(self, n: int, message: Message) -> str:
        if isinstance(message, ToolMessage):
            return self._result(n, message.call_id)
        if self._owed:
            return f"the calls {self._owed} have no result before message {n}"
        if isinstance(message, UserMessage):
            self._user = True
            return ""
        if not message.text and not message.calls:
            return f"message {n} is an assistant turn with neither text nor calls"
        for call in message.calls:
            if call.id in self._seen:
                return f"message {n} uses the id {call.id!r} a second time"
            self._seen.add(call.id)
            self._owed.append(call.id)
        return ""

    def _result(self, n: int, call_id: str) -> str:
        if not self._owed or call_id != self._owed[0]:
            due = f"where the one for {self._owed[0]!r} is due" if self._owed else "which nobody asked for"
            return f"message {n} is a result for {call_id!r}, {due}"
        self._owed.pop(0)
        return ""
