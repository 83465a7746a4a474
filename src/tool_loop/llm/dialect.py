"""What the classes of the dialects share: asking, and the few refusals that are worth one more request.

A server that names something it does not take gets the same request without it. Each such change is
made once, is remembered, and is told to whoever watches; everything else is an error at once.

Knows nothing about any dialect's fields: a subclass names its path, makes its body and its assembler,
and lists its changes.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from tool_loop.errors import ProviderError, UsageError
from tool_loop.events import Notice
from tool_loop.toolbox.words import WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from tool_loop.events import ModelReplied
    from tool_loop.ports import AnswerSpec, Emit, Request
    from tool_loop.transcript import Transcript

    from .endpoint import Assembler, Endpoint
    from .history import Encoder

Withhold: TypeAlias = Literal["auto", "omit", "none"]


class Refusal:
    """What a server said against a request: `said` is its words, the parameter it named first."""

    __slots__ = ("error", "request", "said")

    def __init__(self, error: ProviderError, request: Request) -> None:
        self.error = error
        self.request = request
        self.said = f"{error.param} {error.raw}"

    def of(self, name: str) -> bool:
        """Whether it refuses this parameter itself, not a value out of its range."""
        if not re.search(rf"\b{name}\b", self.said):
            return False
        return bool(_NOT_TAKEN.search(self.said)) or (
            self.error.param.split(".")[0] == name and self.error.status == 422
        )

    @property
    def place(self) -> int | None:
        """The number of the message it points at: `messages.3.content.1`, `input[1].status`."""
        found = _PLACE.search(self.said)
        return int(found[1] or found[2]) if found else None


_PLACE = re.compile(
    r"\b(?:messages?|input|contents)['\"`]?(?:\.?\[|[./])['\"`]?(\d{1,6})\b"
    r"|\b(?:message|turn|item)s? (?:at |with )?(?:index|position|number|#)\W{0,2}(\d{1,6})\b",
    re.IGNORECASE,
)

# Words of JSON Schema that any sentence may have.
_COMMON = ("format", "minimum", "maximum", "default", "pattern", "contains", "not", "if", "then", "else", "examples")

# A word of a tool's schema: "tools[0].function_declarations[3].parameters...: Cannot find field",
# "Grammar error: Unknown format: uri", "not a valid moonshot flavored json schema"; or the word itself.
_SCHEMA = re.compile(
    r"schema|grammar|function_?declaration|\btools?\W{0,2}\d+\W|\b(?:unknown|unsupported) format\b|\benum\b"
    rf"|parameters\.|TYPE_STRING|\$(?:ref|defs)\b|\b(?:{'|'.join(word for word in WORDS if word not in _COMMON)})\b",
    re.IGNORECASE,
)

# Words for what a provider attached to its turns. Told apart from settings by standing last among the
# changes, and by having to be there to be left out.
_ATTACHED = re.compile(
    r"signature|encrypted[ _]?(?:content|index)|could not be (?:verified|decrypted)|items are not persisted"
    r"|\b(?:rs|msg)_\w+|of type .?reasoning|reasoning.{0,40}(?:item|signature)"
    r"|thinking.{0,80}(?:block|modified|invalid)|server_tool_use|_tool_result\b|search_result|citation",
    re.IGNORECASE | re.DOTALL,
)

_NOT_TAKEN = re.compile(
    r"unsupported|not (?:be )?support|not permitted|not allowed|unrecognized|unknown|unexpected|extra|does not"
    r"|deprecated",
    re.IGNORECASE,
)

Change: TypeAlias = "Callable[[Refusal], str]"


class Dialect(ABC):
    """The part of an `LLM` that is the same for every dialect."""

    path: ClassVar[str]
    _encoder: Encoder[Any]
    answer_field: ClassVar[str]  # the member of the body that makes a server enforce the form of an answer

    def __init__(
        self,
        endpoint: Endpoint,
        settings: dict[str, Any],
        withhold: Literal["omit", "none"],
        *,
        answers_beside_tools: bool = False,
    ) -> None:
        self.endpoint = endpoint
        self._settings = settings
        self._withhold = withhold
        self._changed = 0
        self._withheld_otherwise = False
        self._answers_beside_tools = answers_beside_tools
        self._enforces_answers = True

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        while True:
            changed = self._changed
            try:
                return await self._ask(request, emit)
            except ProviderError as error:
                refused = _is_refusal(error)
                if refused and changed != self._changed:
                    continue  # another run that shares this model was refused the same, and made the change
                notice = self._adapt(Refusal(error, request)) if refused else ""
                if not notice:
                    raise self.explained(error) from error.__cause__
                self._changed += 1
                emit(Notice(f"{self.endpoint.failures.host}: {notice}"))

    @abstractmethod
    def body(self, request: Request) -> bytes:
        """The body of the request as it would be sent."""
        ...

    @abstractmethod
    def assembler(self, request: Request) -> Assembler: ...

    @abstractmethod
    def changes(self) -> Sequence[Change]:
        """What can be changed, the likeliest first. Each says what it did, or "" when that would not help."""
        ...

    def explained(self, error: ProviderError) -> ProviderError:
        """The error as the person sees it, with what this dialect knows about a way out."""
        return error

    @abstractmethod
    def answer_format(self, answer: AnswerSpec) -> dict[str, Any]:
        """What `answer_field` has to be for this form."""
        ...

    def settings_for(self, request: Request) -> dict[str, Any]:
        """The settings as they go with this request.

        Of OpenAI's and Anthropic's own servers it is known that a form of the answer and tools go together.
        llama.cpp, vLLM and Ollama force the form onto every reply, and then no tool is called any more: there
        the form is only asked for, until a request in which no call can be made anyway.
        """
        settings = self._settings
        callable_now = bool(request.tools) and request.may_call
        if not callable_now:
            settings = {name: value for name, value in settings.items() if name != "parallel_tool_calls"}
        free = self._answers_beside_tools or not callable_now
        if request.answer is None or not free or not self._enforces_answers:
            return settings
        enforced = self.answer_format(request.answer)
        before = settings.get(self.answer_field)
        return settings | {self.answer_field: before | enforced if isinstance(before, dict) else enforced}

    def _ask(self, request: Request, emit: Emit) -> Coroutine[Any, Any, ModelReplied]:
        body = self.body(request)
        # A server that keeps answers by key would answer a changed body with the old refusal.
        key = f"{request.key}-{self._changed}" if request.key and self._changed else request.key
        return self.endpoint.ask(self.path, body, self.assembler(request), emit, key=key, deadline=request.deadline)

    def _adapt(self, refusal: Refusal) -> str:
        return next((notice for change in self.changes() if (notice := change(refusal))), "")

    # --- changes that several dialects have -----------------------------------------------------------

    def adapt_withholding(self, refusal: Refusal) -> str:
        """The other way to make calls impossible: tools left out, or sent with tool_choice none."""
        request, said = refusal.request, refusal.said.lower()
        if self._withheld_otherwise or request.may_call or not request.tools or "tool" not in said:
            return ""
        if self._withhold == "none" and "choice" in said:
            self._withhold, self._withheld_otherwise = "omit", True
            return "it does not take tool_choice none, so the tools are left out of the last request"
        if self._withhold == "omit" and has_calls(request.transcript):
            self._withhold, self._withheld_otherwise = "none", True
            return "it wants the tools beside a history with calls, so they are sent with tool_choice none"
        return ""

    def adapt_turn(self, refusal: Refusal) -> str:
        """What the provider attached to the turn that it points at is left out, or else of all turns.

        By place, whatever the words: every refusal of an echoed turn comes back with every later
        request, and what was attached is the one thing of a turn that can be spared.
        """
        place, transcript = refusal.place, refusal.request.transcript
        if place is None:
            return ""
        if self._encoder.leave_out(transcript, place):
            more = "" if self._encoder.echo else ", like everything else that it attached, from now on"
            return f"it does not take back what it attached to message {place}, so that is sent without it{more}"
        return self._leave_out_all(transcript)

    def adapt_attached(self, refusal: Refusal) -> str:
        """The same for a refusal that does not say where."""
        return self._leave_out_all(refusal.request.transcript) if _ATTACHED.search(refusal.said) else ""

    def adapt_schemas(self, refusal: Refusal) -> str:
        """Tools in fewer words, where a word of their schemas is refused."""
        request = refusal.request
        sent = request.tools and (request.may_call or self._withhold == "none")
        if not sent or not _SCHEMA.search(refusal.said) or not self._encoder.plainer(request.tools):
            return ""
        return "it does not take every word of the tools' schemas, so what it may refuse is said in their descriptions"

    def _leave_out_all(self, transcript: Transcript) -> str:
        # Also where the number helped nothing: behind a gateway it may count other messages than ours.
        if not self._encoder.leave_out(transcript):
            return ""
        return "it does not take back what it attached to earlier turns, so they are sent without it"

    def adapt_answer(self, refusal: Refusal) -> str:
        """The form of the answer asked for in words alone, where a server takes no format or not this schema."""
        named = self.answer_field in refusal.said or "json_schema" in refusal.said or "schema" in refusal.error.param
        if refusal.request.answer is None or not self._enforces_answers or not named:
            return ""
        self._enforces_answers = False
        return f"it does not take this {self.answer_field}, so the form of the answer is asked for in words"

    def adapt_settings(self, refusal: Refusal, names: Sequence[str]) -> str:
        """Leave out a setting that is not needed for an answer."""
        for name in names:
            if name in self._settings and refusal.of(name):
                self._settings = {other: value for other, value in self._settings.items() if other != name}
                return f"it does not take {name}, which is left out from now on"
        return ""


def _is_refusal(error: ProviderError) -> bool:
    """Whether another request may be taken. Gateways call it a 500, or begin a stream to say it."""
    if error.kind in ("bad_request", "not_found") or (error.status or 0) >= 500:
        return True
    return error.status == 200 and error.kind == "server_error" and _ATTACHED.search(error.raw) is not None


def has_calls(transcript: Transcript) -> bool:
    return any(getattr(message, "calls", ()) for message in transcript.messages)


def withheld(withhold: Withhold, *, enforced: bool) -> Literal["omit", "none"]:
    """How tools are made impossible: "auto" is tool_choice none where the server is known to enforce it.

    That keeps the tools in the server's prompt cache. Where it is not known, only what is not there
    cannot be called.
    """
    if withhold == "auto":
        return "none" if enforced else "omit"
    return withhold


def headers(extra: Mapping[str, str]) -> dict[str, str]:
    """What goes with every request but the key."""
    from tool_loop import __version__

    common = {
        "accept": "application/json, text/event-stream",
        # Compressed streams are held back by proxies until a block is full.
        "accept-encoding": "identity",
        "user-agent": f"tool-loop/{__version__}",
    }
    return common | {name.lower(): value for name, value in extra.items()}


def checked_body(extra: Mapping[str, Any] | None, reserved: Sequence[str]) -> dict[str, Any]:
    """The caller's own members of the body. Raises `UsageError` for what is ours to say, or no JSON."""
    extra = dict(extra or {})
    for name in reserved:
        if name in extra:
            raise UsageError(f"extra_body may not set {name!r}: it follows from the conversation and the settings")
    try:
        json.dumps(extra, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"extra_body is not JSON: {error}") from error
    return extra
