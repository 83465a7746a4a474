"""The one exit to logs and traces: no key leaves through it.

A key is hidden when this process holds it (every `Secret` that is alive), when an environment
variable whose name says so holds it, or when it has the form that a well-known service gives its
keys. Knows nothing about runs; terminal.py is the exit to a terminal.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, TypeVar, cast

from .secret import HIDDEN, alive

T = TypeVar("T")

# Names of environment variables that hold a key: OPENAI_API_KEY, GH_TOKEN, DB_PASSWORD.
_TELLING_NAME: Final = re.compile(
    r"(?:^|_)(?:KEY|APIKEY|TOKEN|SECRET|PASSWORD|PASSWD|PWD|CREDENTIALS?)$", re.IGNORECASE
)

# A value shorter than this is a word or a placeholder, and hiding it would tear up ordinary text.
_LEAST: Final = 8

# The forms of keys in the wild. Each begins with a mark that no ordinary word has. A text may consist
# of nothing but such marks, so none of these looks further ahead than it then takes: what is looked
# through again for each mark takes a minute for a megabyte.
_DASHED: Final = re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}")  # OpenAI, Anthropic, OpenRouter, DeepSeek
_FORMED: Final = re.compile(
    r"\b(?:gsk|hf|xai|nvapi|fw|pplx|r8)[_-][A-Za-z0-9]{20,}"  # Groq, Hugging Face, xAI, and others
    r"|\bAIza[A-Za-z0-9_-]{30,}"  # Google
    r"|\b(?:gh[pousr]_|github_pat_|glpat-)[A-Za-z0-9_-]{20,}"  # GitHub, GitLab
    r"|\bxox[abeoprs]-[A-Za-z0-9-]{10,}"  # Slack
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"  # Amazon
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
)
# A signed token (JWT): three parts between dots. Begun at the first letter of its first part and nowhere
# else, so that each part is looked at twice at most; where in that part the token begins comes after.
_SIGNED: Final = re.compile(r"(?<![A-Za-z0-9_-])(?P<head>[A-Za-z0-9_-]{11,}+)\.eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+")
_SIGNED_HEAD: Final = re.compile(r"\beyJ(?=[A-Za-z0-9_-]{8})")
# In a header the form does not matter.
_HEADER: Final = re.compile(r"\b((?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)

# What an HTTP client given as `http=` logs at DEBUG holds the headers of responses, and some servers send
# the key back. The first of each is its own logger, the others are those of its parts.
_HTTP_LOGGERS: Final = tuple(
    f"{client}{part}"
    for client in ("httpx2", "httpcore2", "httpx", "httpcore")
    for part in ("", ".connection", ".http11", ".http2", ".proxy", ".socks")
)


def scrub(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """The text without a key."""
    for secret in alive():
        text = secret.scrub(text)
    for value in _named(environ):
        text = text.replace(value, HIDDEN)
    text = _without_tokens(_FORMED.sub(HIDDEN, _DASHED.sub(_if_a_key, text)))
    return _HEADER.sub(rf"\g<1>{HIDDEN}", text)


def _if_a_key(found: re.Match[str]) -> str:
    # `sk-` begins words too (sk-learn-like-estimator); a key has a digit in it.
    return HIDDEN if any(map(str.isdigit, found[0])) else found[0]


def _without_tokens(text: str) -> str:
    parts: list[str] = []
    done = at = 0
    while found := _SIGNED.search(text, at):
        head = _SIGNED_HEAD.search(text, found.start(), found.end("head"))
        if head is None:
            at = found.end("head")  # what follows the dot may begin one itself
            continue
        parts += text[done : head.start()], HIDDEN
        done = at = found.end()
    return "".join(parts) + text[done:]


def _named(environ: Mapping[str, str]) -> Iterable[str]:
    # PWD is where one stands and no password.
    return (
        value
        for name, value in environ.items()
        if len(value) >= _LEAST and name not in ("PWD", "OLDPWD") and _TELLING_NAME.search(name)
    )


class Scrubbing(logging.Filter):
    """Takes keys out of every record: its message, its traceback, and the fields given as `extra`.

    It sits on the loggers of this package and of its HTTP client (see `guard`). Add it to a handler
    of your own to have all that passes there scrubbed: `handler.addFilter(Scrubbing())`.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        clean = scrub(said)
        if clean != said:
            record.msg, record.args = clean, ()
        if record.exc_info and not record.exc_text:
            trace = _FORMATTER.formatException(record.exc_info)
            clean = scrub(trace)
            if clean != trace:
                # A handler that keeps exceptions as objects would have the key again.
                record.exc_text, record.exc_info = clean, None
        for name, value in vars(record).items():
            if name not in _OWN and isinstance(value, str):
                setattr(record, name, scrub(value))
        return True


_FORMATTER: Final = logging.Formatter()
_OWN: Final[frozenset[str]] = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_GUARD: Final = Scrubbing()


def guard() -> None:
    """Let nothing out through the loggers of this package and of its HTTP client but scrubbed.

    Called when a client is opened, which is when there is a key to lose. Costs nothing while the
    loggers are silent; safe to call again.
    """
    ours = [name for name in list(logging.root.manager.loggerDict) if name.partition(".")[0] == "tool_loop"]
    for name in (*_HTTP_LOGGERS, *ours):
        # A filter on a logger is asked for that logger's own records only, hence one on each.
        logging.getLogger(name).addFilter(_GUARD)


def scrubbed(value: T) -> T:
    """The same value without a key in any text of it: for events, and for what JSON is made of."""
    return cast("T", _scrubbed(value))


def _scrubbed(value: Any) -> Any:
    match value:
        case str():
            return scrub(value)
        case Mapping():
            return {_scrubbed(name): _scrubbed(item) for name, item in value.items()}
        case list():
            return [_scrubbed(item) for item in value]
        case tuple():
            return tuple(_scrubbed(item) for item in value)
        case _ if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{f.name: _scrubbed(getattr(value, f.name)) for f in fields(value)})
        case _:
            return value
