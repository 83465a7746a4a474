"""A conversation by its name: a run that is begun with the first message and goes on with each further one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from .options import ResumeOptions, RunOptions

if TYPE_CHECKING:
    from .result import Result
    from .stream import Stream

T = TypeVar("T")


class Chat:
    """One conversation. Holds nothing but its name, so make it anew wherever it is needed, after a restart too.

    One message at a time: another one meanwhile raises `RunBusy`. What a person says while a call waits for a
    decision, or after a cancel or a crash, is said in place of what was still open: the open calls are closed,
    and the model reads why. The very same message again goes on with the one that was interrupted.
    """

    def __init__(self, agent: Any, run_id: str) -> None:
        self.agent = agent
        self.id = run_id

    @overload
    async def ask(self, message: str, *, answer: None = None, **options: Unpack[RunOptions]) -> Result[str]: ...
    @overload
    async def ask(self, message: str, *, answer: type[T], **options: Unpack[RunOptions]) -> Result[T]: ...
    @overload
    async def ask(
        self, message: str, *, answer: Mapping[str, Any], **options: Unpack[RunOptions]
    ) -> Result[dict[str, Any]]: ...
    async def ask(self, message: str, *, answer: Any = None, **options: Unpack[RunOptions]) -> Result[Any]:
        """The answer to the next message. Takes the options of `Agent.run`, and raises what it raises."""
        options["chat"] = self.id
        result: Result[Any] = await self.agent.run(message, answer=answer, **options)
        return result

    def stream(
        self, message: str, *, answer: Any = None, **options: Unpack[RunOptions]
    ) -> AbstractAsyncContextManager[Stream]:
        """The next message, and its answer as it comes: see `Agent.stream`."""
        options["chat"] = self.id
        stream: AbstractAsyncContextManager[Stream] = self.agent.stream(message, answer=answer, **options)
        return stream

    async def resume(self, **options: Unpack[ResumeOptions]) -> Result[Any]:
        """Go on with the last message, after a decision or a crash: see `Agent.resume`."""
        result: Result[Any] = await self.agent.resume(self.id, **options)
        return result
