"""What a model reads when a call failed: each failure of a tool in words, with what to do about it.

Knows nothing about how a call runs. Where the answer is known the hint carries it (the nearest name,
the doubled backslash), because a model that is only pointed in a direction rarely recovers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from tool_loop.errors import ToolError

from .results import as_json, cut, sendable

_MOST_NAMES = 50
_SMALLEST = 1_000


def failure(error: ToolError, limit: int) -> str:
    """The error as JSON: `error`, `message`, `hint`, then the fields of its kind."""
    message, hint = str(error.message), str(error.hint)
    said = {"error": kind_of(error), "message": message} | ({"hint": hint} if hint else {})
    try:
        content = as_json(said | {key: value for key, value in error.fields.items() if key not in said})
    except Exception:  # a field can be any object; what cannot be shown is left out, the rest is told
        content = as_json(said)
    limit = max(limit, _SMALLEST)
    if len(content) > limit:
        # Cut inside the message, so that it stays JSON.
        said["message"] = cut(message, limit // 2) if len(message) > limit // 2 else message
        content = as_json(said | ({"hint": hint[: limit // 4]} if hint else {}))
    return sendable(content)


def kind_of(error: ToolError) -> str:
    return str(error.kind) or "tool_failed"


def unknown_tool(name: str, known: Iterable[str]) -> ToolError:
    """The name is no tool's; the nearest that is one is named, and never run instead: nobody asked for it."""
    names = list(known)
    listed = ", ".join(names[:_MOST_NAMES])
    if len(names) > _MOST_NAMES:
        listed += f" and {len(names) - _MOST_NAMES} more"
    near = _nearest(name, names)
    hint = f"Did you mean {near!r}? " if near else ""
    return ToolError(
        f"there is no tool {_quoted(name)}",
        kind="unknown_tool",
        hint=hint + (f"The tools are: {listed}." if names else "There are no tools: answer without one."),
        tools=names[:_MOST_NAMES],
    )


def timed_out(seconds: float | None, *, started: bool, running: bool) -> ToolError:
    """The call ran out of time; says whether it may still have an effect. None: the run's own deadline."""
    limit = "the deadline of the run" if seconds is None else f"its limit of {seconds:g} s"
    if not started:
        return ToolError(f"not started: {limit} has passed", kind="timed_out", hint="Answer with what you have.")
    if running:
        message = f"ran past {limit}, could not be stopped, and may still be running"
        hint = "What it does may still happen: check before you repeat it, or ask for less at a time."
    else:
        message = f"ran past {limit} and was stopped"
        hint = "What it had done by then stays done: check before you repeat it, or ask for less at a time."
    return ToolError(message, kind="timed_out", hint=hint, may_still_be_running=running)


def gave_up() -> ToolError:
    """The tool's own wait ran out. Unlike a crash this may go better next time."""
    return ToolError(
        "the tool waited too long for something and gave up (TimeoutError)",
        kind="timed_out",
        hint="Try it once more, or go on without it.",
    )


def crashed(error: BaseException) -> ToolError:
    """An unexpected exception. Only its type is told, because its text can hold secrets."""
    return ToolError(
        f"the tool failed with an unexpected {type(error).__name__}",
        kind="tool_crashed",
        hint="Repeating this will not help. Use other arguments or another tool, or go on without it.",
        exception=type(error).__name__,
    )


def unshowable(kind: str) -> ToolError:
    """The tool did its work, and returned what no text can be made of."""
    return ToolError(
        f"the tool ran, but its result holds an object of type {kind}, which cannot be shown as text",
        kind="tool_crashed",
        hint="What it does has been done. Repeating this will not help: use another tool, or go on without the result.",
        exception=kind,
    )


# --- arguments that are not JSON ------------------------------------------------------------------


def too_deep(levels: int) -> ToolError:
    return ToolError(
        f"the arguments are nested deeper than {levels} levels",
        kind="bad_json",
        hint="Send a flat JSON object with the fields of the tool.",
    )


def not_an_object(value: Any) -> ToolError:
    hint = 'Send an object with named fields: {"field": value}.'
    if isinstance(value, str):
        what, hint = "a JSON string", "Send the object itself: no quotes around it, and nothing in it escaped."
    elif isinstance(value, list):
        what = "a JSON array"
    else:
        what = f"the JSON value {json.dumps(value)[:40]}"
    return ToolError(f"the arguments are {what}, not a JSON object", kind="bad_json", hint=hint)


def bad_json(text: Any, error: Exception) -> ToolError:
    """The text is not JSON: where it breaks, what stands there, and the likely cure."""
    if not isinstance(text, str):
        return ToolError(f"the arguments are {type(text).__name__}, not text", kind="bad_json")
    if isinstance(error, UnicodeEncodeError):
        message = "the arguments contain half a character (a lone surrogate)"
        hint = "Write the character itself, or both halves of its escape."
        return ToolError(message, kind="bad_json", hint=hint)
    if not isinstance(error, json.JSONDecodeError):
        reason = "a number has too many digits" if "digits" in str(error) else str(error)
        hint = "Send each key once, and numbers of a usual size; anything else belongs in double quotes."
        return ToolError(f"the arguments are not valid JSON: {reason}", kind="bad_json", hint=hint)
    near = text[max(0, error.pos - 20) : error.pos + 20]
    reason = error.msg.removesuffix(" at").removesuffix(" starting")
    return ToolError(
        f"the arguments are not valid JSON: {reason} at line {error.lineno} column {error.colno} "
        f"(character {error.pos}), near {_quoted(near)}",
        kind="bad_json",
        hint=_cure(text, error),
        position=error.pos,
    )


def _cure(text: str, error: json.JSONDecodeError) -> str:
    """The likely cause, judged by the text itself wherever the words of the parser change with Python."""
    before, rest = text[: error.pos].rstrip(), text[error.pos :]
    if text.lstrip().startswith(("```", "~~~")):
        return "Leave out the code fence: send only the JSON object."
    if not text.lstrip().startswith("{"):
        return "Send only the JSON object: its first character is {."
    if error.msg.startswith("Extra data"):
        return f"Send one JSON object and nothing after it: remove {_quoted(rest.strip()[:40])}."
    if error.msg.startswith("Invalid \\"):
        return 'Double each backslash inside a string: write "\\\\d", not "\\d".'
    if error.msg.startswith("Invalid control"):
        return "Escape line breaks and tabs inside a string: write \\n and \\t."
    if not rest.strip() or error.msg.startswith("Unterminated"):
        return "The JSON ends too early: close every string, bracket and brace. If it was cut, send less."
    if before.endswith(",") or rest.startswith(","):
        return _at(rest) or "Remove the comma that no further item follows."
    return _at(rest) or 'Put keys and strings in double quotes: {"field": "value"}.'


def _at(rest: str) -> str:
    return next((cure for starts, cure in _CURES if rest.startswith(starts)), "")


_CURES: Final[Sequence[tuple[str | tuple[str, ...], str]]] = (
    ("'", "Use double quotes for keys and strings, not single quotes."),
    (("True", "False", "None"), "Write true, false and null, not True, False and None."),
    (("//", "/*", "#"), "Leave out the comment: JSON has none."),
    ('"', 'Put a comma between two items, and escape double quotes inside a string: \\".'),
)


# --- words ----------------------------------------------------------------------------------------


def _quoted(text: str) -> str:
    return json.dumps(text[:80], ensure_ascii=False)


def _nearest(name: str, names: Sequence[str]) -> str:
    from difflib import get_close_matches

    # Models put a namespace before a name, and control tokens of their template leak into it.
    bare = name.partition("<|")[0].strip().lower()
    plain = {known.lower(): known for known in names}
    tails = [bare.rpartition(mark)[2] for mark in ".:/"]
    for candidate in (bare, *tails):
        if candidate in plain:
            return plain[candidate]
    near = get_close_matches(tails[0], plain, n=1)
    return plain[near[0]] if near else ""
