"""One call: from the text a model wrote as arguments to the text it reads as the result.

Knows nothing about registries, policies or journals. Three things are guarded here: what goes in is
strict JSON and never repaired, the time it takes is bounded whatever the function does, and what
comes out is text of a bounded size. All that a usual call needs is in this file and registry.py;
what is said when something goes wrong is in `failures.py` and `explain.py`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tool_loop.errors import ToolError, UsageError
from tool_loop.runtime.grace import GRACE_SECONDS
from tool_loop.runtime.shield import stopped, watched
from tool_loop.runtime.strict import STRICT
from tool_loop.runtime.threads import run_in_thread

from .failures import bad_json, crashed, gave_up, not_an_object, timed_out, too_deep, unshowable
from .plain import NoText
from .results import ToolResult, text_of

if TYPE_CHECKING:
    from .drawn import Later
    from .tool import Tool

logger = logging.getLogger(__name__)

Convert: TypeAlias = Callable[[Any], Any]

# Deep enough for any real call, and below the limits of every reader behind this one: pydantic's
# parser stops at 200 levels, the schema engine and Python's own recursion at others.
MAX_DEPTH: Final = 100

# A whole number written as a float, as in 5.0 or 5e0. Found inside a string it only costs a closer look.
WHOLE_FLOAT: Final = re.compile(r"[0-9](?:\.0*(?![0-9])|[eE])")


# Keys of the calls that are being carried out in this process. A crash ends them, a cancel does not
# always: while one is in here, no probe can say for sure that it has not happened.
at_work: set[str] = set()


# --- arguments ------------------------------------------------------------------------------------


def parse_arguments(text: str) -> dict[str, Any]:
    """The arguments as a dictionary. Nothing, blanks and `null` mean no arguments.

    Raises `ToolError` of kind `bad_json`, with the position and a hint, for everything else that is
    not exactly one JSON object: also for NaN, Infinity, a key that occurs twice, a lone surrogate,
    and nesting deeper than `MAX_DEPTH`. Nothing is repaired, because that could run a tool on
    arguments nobody sent: `{"a": tru` is not `{"a": "tru"}`, and `{"a": 1}{"a": 2}` is not `{"a": 2}`.
    """
    try:
        value = STRICT.decode(text)
        if "\\u" in text or not text.isascii():
            # An escape can spell half a character, which no later request could carry as UTF-8.
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise too_deep(MAX_DEPTH) from None
    except (ValueError, TypeError) as error:
        if isinstance(text, str) and not text.strip():
            return {}
        raise bad_json(text, error) from None
    if type(value) is dict:
        if text.count("{") + text.count("[") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
            raise too_deep(MAX_DEPTH)
        return value
    if value is None:
        return {}
    raise not_an_object(value)


def checked(tool: Tool, text: str) -> dict[str, Any]:
    """What the function is to be called with. Raises ToolError naming all that is wrong."""
    value = parse_arguments(text)
    form = tool.form
    if form.by_schema and not (form.is_valid or ready(tool))(value):
        raise form.explain(value)
    if form.convert is None:
        if WHOLE_FLOAT.search(text):
            form.reject_whole_floats(value)
        return value
    try:
        filled = form.convert(text if value else "{}")
    except ValueError as error:
        raise form.explain(value, error) from None
    names = form.names
    return {names[field]: each for field, each in filled.__dict__.items()}


def ready(tool: Tool) -> Callable[[Any], bool]:
    """The check of the tool's schema, compiled and kept. Raises UsageError when the schema is not valid."""
    form = tool.form
    is_valid: Callable[[Any], bool] = compiled(tool.name, form.strict, formats=form.formats).is_valid
    form.is_valid = is_valid
    return is_valid


def canonical(text: str) -> str:
    """The same string for the same arguments, however they were spaced and ordered.

    A text that is not JSON stands for itself, so that the same broken call is the same call.
    """
    try:
        return json.dumps(parse_arguments(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except ToolError:
        return text


def compiled(tool: str, schema: Mapping[str, Any], *, formats: bool = True) -> Any:
    """A validator of the JSON schema. Raises UsageError when none can be made of it.

    jsonschema-rs is loaded at the first call of a tool and not before: a program that only prints its
    help, or waits for a person, must not pay for it.
    """
    import jsonschema_rs

    try:
        # Offline on purpose: a schema that came from elsewhere must not make this process fetch a URL.
        return jsonschema_rs.validator_for(dict(schema), validate_formats=formats, offline=True)
    except ValueError as error:
        raise UsageError(f"tool {tool!r}: the schema of its parameters is not valid: {str(error)[:500]}") from None


def _depth(value: Any) -> int:
    """Counts levels without recursion, so that it cannot run out of stack itself."""
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [inner for outer in level for inner in _members(outer) if isinstance(inner, dict | list)]
    return depth


def _members(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


# --- execution ------------------------------------------------------------------------------------


class OutOfTime(Exception):
    """The time is up. `started` says whether the function was called, `running` that it still may be at work."""

    def __init__(self, *, started: bool, running: bool) -> None:
        super().__init__()
        self.started = started
        self.running = running


class Raised(Exception):
    """What a tool raised, as a value: a task that raises SystemExit would take the event loop along."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


async def perform(
    func: Callable[..., Any],
    arguments: dict[str, Any],
    convert: Convert,
    ends: float | None,
    *,
    in_task: bool,
    key: str = "",
) -> Any:
    """Call the function, in a task or on a thread, wait until `ends`, and return `convert(what it returned)`.

    `convert` runs beside the function, since it too may call code of the tool's author. Raises the
    `Exception` that came of either, `Raised` around anything worse, and `OutOfTime`. When this is
    cancelled, a task is stopped (it gets `GRACE_SECONDS` to clean up) and a thread left to itself. A `key`
    is in `at_work` until the function has really ended, however long ago we stopped waiting for it.
    """
    loop = asyncio.get_running_loop()
    if ends is not None and ends <= loop.time():
        raise OutOfTime(started=False, running=False)
    work: asyncio.Future[Any]
    if in_task:
        # A task of its own, because a coroutine that ignores its cancellation must not hold us.
        work = loop.create_task(_awaited(func, arguments, convert))
        if key:
            at_work.add(key)
            work.add_done_callback(lambda _: at_work.discard(key))
    else:
        over: list[bool] = []
        called = partial(_called, func, arguments, convert, over)
        work = run_in_thread(partial(_noted, key, called) if key else called)
    try:
        outcome = await _settled(work, ends, in_task=in_task)
    finally:
        if not in_task:
            over.append(True)  # a thread that still draws items one by one can stop at the next
    if inspect.isawaitable(outcome):
        # A plain function may hand out a coroutine: a lambda around an async function does. Or what it
        # returned holds one, and was converted as far as a thread can.
        convert = _itself if _is_later(outcome) else convert
        return await perform(partial(_itself, outcome), {}, convert, ends, in_task=True, key=key)
    return outcome


async def _settled(work: asyncio.Future[Any], ends: float | None, *, in_task: bool) -> Any:
    cancel = await watched(work, ends)
    late = not work.done()
    if late:
        # A task is told to stop, and may take a moment; a thread does not listen.
        again = await stopped(work, GRACE_SECONDS) if in_task else None
        cancel = cancel or again
    running = not work.done()
    if running and not in_task:
        work.cancel()  # no longer waited for
    if cancel:
        raise cancel
    if running:
        raise OutOfTime(started=True, running=True)
    # A tool that cancels itself has not been cancelled by anyone: to us it has crashed.
    outcome = Raised(asyncio.CancelledError()) if work.cancelled() else work.result()
    if not isinstance(outcome, Raised):
        return outcome  # even when it is late: what happened is better known than guessed
    if late:
        raise OutOfTime(started=True, running=False)
    raise outcome.error if isinstance(outcome.error, Exception) else outcome


async def _awaited(func: Callable[..., Any], arguments: dict[str, Any], convert: Convert) -> Any:
    try:
        converted = convert(await func(**arguments))
        return await converted if _is_later(converted) else converted
    except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
        raise  # on the event loop's own thread these mean what they say
    except BaseException as error:  # SystemExit among them: a tool does not end the program
        return Raised(error)


def _called(func: Callable[..., Any], arguments: dict[str, Any], convert: Convert, over: list[bool]) -> Any:
    try:
        value = func(**arguments)
        if inspect.isawaitable(value):
            return value
        converted = convert(value)
        # Text, or what is still to be drawn: here, where the function ran.
        return converted.on_thread(over.__len__) if _is_later(converted) else converted
    except BaseException as error:  # on a thread nobody else would see it
        return Raised(error)


def _noted(key: str, called: Callable[[], Any]) -> Any:
    at_work.add(key)
    try:
        return called()
    finally:
        at_work.discard(key)


def _is_later(converted: Any) -> bool:
    return type(converted) is not str and hasattr(converted, "on_thread")  # without loading what draws


def _itself(value: Any) -> Any:
    return value


# --- results --------------------------------------------------------------------------------------


def as_text(value: Any, limit: int, *, drain: bool = False) -> str | Later | ToolResult:
    """The result as a model reads it, cut where it is too long; see `text_of`."""
    if isinstance(value, ToolResult):
        return replace(value, content=as_text(value.content, limit, drain=drain))
    if type(value) is str and value and value.isascii() and len(value) <= limit:
        return value
    return text_of(value, limit, drain=drain)


def as_error(raised: Exception, tool: Tool | None, started: float = 0.0, deadline: float | None = None) -> ToolError:
    """The failure as the error a model reads. What nobody meant to say is logged, and not told."""
    if isinstance(raised, ToolError):
        return raised
    if isinstance(raised, OutOfTime):
        limit = tool.timeout_seconds if tool else None
        by_run = limit is None or (deadline is not None and deadline < started + limit)
        return timed_out(None if by_run else limit, started=raised.started, running=raised.running)
    cause = raised.error if isinstance(raised, Raised) else raised
    logger.error("tool %s crashed", tool.name if tool else "?", exc_info=cause)
    if isinstance(cause, NoText):
        return unshowable(cause.kind)
    return gave_up() if isinstance(cause, TimeoutError) else crashed(cause)
