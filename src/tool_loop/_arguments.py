"""Reads what a model wrote as the arguments of a call: strict JSON, never repaired.

Knows nothing about tools or schemas. A text that is not one JSON object becomes a `ToolError` that
says where it breaks and how to write it, because repairing it could run a tool on arguments that
nobody sent (`{"a": tru` is not `{"a": "tru"}`, and `{"a": 1}{"a": 2}` is not `{"a": 2}`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from .errors import ToolError

# Deep enough for any real call, and below the limits of every reader behind us (pydantic's parser
# stops at 200 levels, the JSON schema engine and Python's own recursion at others).
MAX_DEPTH: Final = 100

# A whole number written as a float. It may also match inside a string, which only costs a closer look.
WHOLE_FLOAT: Final = re.compile(r"[0-9](?:\.0*(?![0-9])|[eE])")


def parse_arguments(text: str) -> dict[str, Any]:
    """The arguments as a dictionary. Nothing, blanks and `null` mean no arguments.

    Raises `ToolError` of kind `bad_json`, with the position and a hint, for everything else that is
    not exactly one JSON object: also for NaN, Infinity, a key that occurs twice, a lone surrogate,
    and nesting deeper than `MAX_DEPTH`.
    """
    try:
        value = _STRICT.decode(text)
        if "\\u" in text or not text.isascii():
            # Escapes can spell half a character, which no later request could carry as UTF-8.
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise _too_deep() from None
    except (ValueError, TypeError, AttributeError) as error:
        if isinstance(text, str) and not text.strip():
            return {}
        raise _bad_json(text, error) from None
    if type(value) is dict:
        if text.count("{") + text.count("[") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
            raise _too_deep()
        return value
    if value is None:
        return {}
    raise _not_an_object(value)


def canonical(text: str) -> str:
    """The same string for the same arguments, however they were spaced and ordered.

    A text that is not JSON stands for itself, so that the same broken call is the same call.
    """
    try:
        return json.dumps(parse_arguments(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except ToolError:
        return text


# --- strictness -----------------------------------------------------------------------------------


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        message = f"the key {json.dumps(twice)} occurs twice in one object"
        raise ValueError(message)
    return members


def _constant(word: str) -> Any:
    message = f"{word} is not JSON"
    raise ValueError(message)


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        message = f"the number {digits[:40]} is too large"
        raise ValueError(message)
    return number


_STRICT: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_constant, parse_float=_finite)


def _depth(value: Any) -> int:
    """Counts levels without recursion, so that it cannot itself run out of stack."""
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [inner for outer in level for inner in _members(outer) if isinstance(inner, dict | list)]
    return depth


def _members(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


# --- what to tell the model -----------------------------------------------------------------------


def _too_deep() -> ToolError:
    return ToolError(
        f"the arguments are nested deeper than {MAX_DEPTH} levels",
        kind="bad_json",
        hint="Send a flat JSON object with the fields of the tool.",
    )


def _not_an_object(value: Any) -> ToolError:
    if isinstance(value, str):
        what, hint = "a JSON string", "Send the object itself, without quotes around it and without escaping it."
    elif isinstance(value, list):
        what, hint = "a JSON array", 'Send an object with named fields: {"field": value}.'
    else:
        what, hint = f"the JSON value {json.dumps(value)[:40]}", 'Send an object with named fields: {"field": value}.'
    return ToolError(f"the arguments are {what}, not a JSON object", kind="bad_json", hint=hint)


def _bad_json(text: Any, error: Exception) -> ToolError:
    if not isinstance(text, str):
        return ToolError(f"the arguments are {type(text).__name__}, not text", kind="bad_json")
    if isinstance(error, UnicodeEncodeError):
        return ToolError(
            "the arguments contain half a character (a lone surrogate)",
            kind="bad_json",
            hint="Write the character itself, or both halves of its escape.",
        )
    if not isinstance(error, json.JSONDecodeError):
        reason = "a number has too many digits" if "digits" in str(error) else str(error)
        return ToolError(
            f"the arguments are not valid JSON: {reason}",
            kind="bad_json",
            hint="Send each key once, and only finite numbers; text belongs in double quotes.",
        )
    near = text[max(0, error.pos - 20) : error.pos + 20]
    return ToolError(
        f"the arguments are not valid JSON: {error.msg} at line {error.lineno} column {error.colno} "
        f"(character {error.pos}), near {json.dumps(near)}",
        kind="bad_json",
        hint=_advice(text, error),
        position=error.pos,
    )


def _advice(text: str, error: json.JSONDecodeError) -> str:
    """The likely cause and its cure; judged by the text, as the wording of the parser changes."""
    rest = text[error.pos :]
    for starts, advice in _AT_THE_FAULT:
        if rest.startswith(starts):
            break
    else:
        advice = 'Send exactly one JSON object, such as {"field": "value"}.'
    if text.lstrip().startswith(("```", "~~~")):
        return "Leave out the code fence: send only the JSON object."
    if error.msg.startswith("Extra data"):
        return f"Send one JSON object and nothing after it; remove {json.dumps(rest.strip()[:40])}."
    if error.msg.startswith("Invalid \\"):
        return 'Double each backslash inside a string: write "\\\\d", not "\\d".'
    if error.msg.startswith("Invalid control"):
        return "Escape line breaks and tabs inside a string: write \\n and \\t."
    if not rest.strip() or error.msg.startswith("Unterminated"):
        return "The JSON ends too early. Close every string, bracket and brace; if the text was cut, send less."
    if not text.lstrip("\ufeff \t\r\n").startswith("{"):
        return "Send only the JSON object: the first character is {."
    return advice


_AT_THE_FAULT: Final[Sequence[tuple[str | tuple[str, ...], str]]] = (
    ("'", "Use double quotes for keys and strings, not single quotes."),
    (("True", "False", "None"), "Write true, false and null, not True, False and None."),
    (("}", "]", ","), "Remove the comma that no further item follows, or add the missing value."),
    (("//", "/*", "#"), "Leave out the comment: JSON has none."),
    ('"', 'Put a comma between two items, and escape double quotes inside a string: \\".'),
)
