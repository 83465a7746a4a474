"""What reads the content of models, tools or servers takes time in proportion to it, whatever it is.

A pattern that looks through the rest of a text again at each place takes minutes for a megabyte, in
the thread of the loop, where nothing else runs meanwhile. Each test here had that for one of them.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import pkgutil
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import pytest

import tool_loop
from tool_loop import Agent, ModelReplied, ScriptedLLM, ToolCall, tool
from tool_loop.calls_in_prose import looks_like_a_call
from tool_loop.cli._shown import shown_call
from tool_loop.console.describe import call_line, outcome_line
from tool_loop.console.terminal import one_line, safe
from tool_loop.console.unseen import exact, exact_json
from tool_loop.events import Event, RunStarted, ToolReturned
from tool_loop.journal.runs import Record
from tool_loop.llm.errors.body import read_object
from tool_loop.llm.errors.vocabulary import window_in
from tool_loop.llm.errors.waits import asked_wait
from tool_loop.logs import log_events
from tool_loop.redaction.scrub import scrub
from tool_loop.redaction.secret import HIDDEN, Secret, printable
from tool_loop.report import page
from tool_loop.tools._worker import rule

MEGABYTE = 1_000_000
# What takes a megabyte in proportion takes milliseconds, rarely half a second; what takes its square
# would take from a minute on. So a machine that is busy with ten other things changes nothing.
SECONDS = 8

KEY = "sk-live-zyxwvutsrqponml-the-key"


@contextmanager
def in_time(seconds: float = SECONDS) -> Iterator[None]:
    """Ends what takes too long: the engine of `re` looks for signals while it searches."""

    def too_long(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"more than {seconds} s of computing")

    before = signal.signal(signal.SIGVTALRM, too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def filled(seed: str, size: int = MEGABYTE) -> str:
    return (seed * (size // len(seed) + 1))[:size]


# --- every pattern of the package ------------------------------------------------------------------------

# Used at one place only and in this way, so what `search` would take is nobody's time.
ANCHORED = {
    "_COUNTS_STREAMS": "fullmatch", "_TOKEN": "match", "_AT_LINE": "fullmatch",
    "_HEAD": "match", "_HEAD_WITHOUT_COLUMN": "match",
}  # fmt: skip
# `translate` stops at the first class that is not closed; `rule` below has it at a megabyte.
STOPPED = {("TOKEN", "[")}

SEEDS = (
    "sk-", "eyJ-", "eyJabcdefgh.", "a", "A", " ", "\n", "\r\n", "\t", "-", "-----BEGIN ", "-----BEGIN A",
    "-----END ", ".", "...", "\u2026", "*", "**", "_", "a-", "a.", "a ", "a:", "a:1:", ":1", "=", "a=", "/",
    "../", "\\", "\\u", "`", "(", "((", "[", "[[", "{", "{}", "[]", "<", "<a", "<title>", "<h1>", ">", '"',
    '"a"', '":', "'", "1", "1.", "1,", "1m", "1 ", "0", "e", "1e", "+", "\u00e9", "\u4e2d", "Bearer ",
    "Basic", "try again in ", "retry", "wait ", '"retryDelay": ', "context length ", "max_tokens: 1",
    "max_tokens ", "parameter ", "reasoning", "thinking ", "limit", "[1, ", "'a' is ", "matches in 1 file\n",
    "1 match in 1 file\na:", "Action:", '"name": "', '"args":', '"args":{', "<|tool", "<\uff5c",
    "to=functions.", "Args:\n", "    a: b\n", "a: ", "    ", "^",
)  # fmt: skip


def patterns() -> dict[str, re.Pattern[str] | re.Pattern[bytes]]:  # noqa: C901
    """Every compiled pattern that a module of the package holds, by name, in tables too."""
    found: dict[re.Pattern[str] | re.Pattern[bytes], str] = {}

    def look(value: object, name: str, depth: int) -> None:
        if isinstance(value, re.Pattern):
            found.setdefault(value, name)
        elif depth and isinstance(value, tuple | list):
            for n, item in enumerate(value):
                look(item, f"{name}[{n}]", depth - 1)
        elif depth and isinstance(value, dict):
            for key, item in value.items():
                look(item, f"{name}[{key!r}]", depth - 1)

    for module in pkgutil.walk_packages(tool_loop.__path__, "tool_loop."):
        if not module.name.endswith("__main__"):
            try:
                names = vars(importlib.import_module(module.name))
            except ImportError:  # an extra that is not installed
                continue
            for name, value in list(names.items()):
                look(value, f"{module.name}.{name}", 3)
    return {name: pattern for pattern, name in found.items()}


PATTERNS = patterns()


@pytest.mark.slow  # half a minute of computing, and a pattern that fails it is new: the build runs it
@pytest.mark.parametrize("name", PATTERNS)
def test_no_pattern_looks_at_a_text_again_and_again(name: str) -> None:
    """50,000 characters, which a square makes seconds of and a line a hundredth."""
    pattern, short = PATTERNS[name], name.rpartition(".")[2]
    for seed in SEEDS:
        if (short, seed[0]) in STOPPED:
            continue
        text = filled(seed, 50_000) + "!"
        given = text.encode() if isinstance(pattern.pattern, bytes) else text
        try:
            with in_time(1.2):
                found = getattr(pattern, ANCHORED.get(short, "finditer"))(given)
                for _ in found if short not in ANCHORED else ():
                    pass
        except TimeoutError:
            pytest.fail(f"{name} takes the square of the text for {seed!r}")


def test_all_patterns_were_found() -> None:
    assert len(PATTERNS) > 40
    assert ANCHORED.keys() <= {name.rpartition(".")[2] for name in PATTERNS}


# --- what they are used in, at a megabyte ------------------------------------------------------------------

HOSTILE = (
    "sk-", "eyJ-", "eyJabcdefgh.", "-----BEGIN A", "a-*", KEY[4:18] + " ", " \n", '{"name": "look", ', "[look(",
    "\x1b\u0301",
)  # fmt: skip

READERS: dict[str, Callable[[str], object]] = {
    "scrub": lambda text: scrub(text, {"A_KEY": KEY}),
    "a key": lambda text: Secret(KEY).scrub(text),  # made here: what is alive is taken out of every text
    "a placeholder": lambda text: Secret("x").scrub(text),
    "safe": safe,
    "exact": exact,
    "as JSON": exact_json,
    "shown": lambda text: list(shown_call(ToolCall("1", "look", json.dumps({"a": text[:49_000]})), columns=80)),
    "one line": one_line,
    "printable": printable,
    "a call": lambda text: call_line(ToolCall("1", "look", text)),
    "a result": lambda text: outcome_line(ToolReturned("1", text), ToolCall("1", "grep", text)),
    "a call in prose": lambda text: looks_like_a_call(text, ["look"]),
    "an error": lambda text: read_object({"error": {"message": text, "code": text, "param": None}}),
    "a wait": lambda text: asked_wait({"retry-after": text, "x-ratelimit-remaining": text}, 0.0, text),
    "a window": window_in,
    "a page": lambda text: page([Record(0, 0.0, event) for event in history(text)]),
}


def history(text: str) -> list[Event]:
    call = ToolCall("1", "look", text)
    return [
        RunStarted("q"), ModelReplied("", (call,)), ToolReturned("1", text, "tool_crashed"), ModelReplied(text),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_a_megabyte_of_whatever_it_is_is_read_in_proportion(reader: str) -> None:
    for seed in HOSTILE:
        text = filled(seed)
        try:
            with in_time():
                READERS[reader](text)
        except TimeoutError as error:
            pytest.fail(f"{reader}, {seed!r}: {error}")
        except ValueError:
            pass  # an answer, and a quick one


@pytest.mark.parametrize("seed", ["[", " ", "\\ ", "*a", "{"])
def test_the_rules_of_a_workspace_are_read_in_proportion(seed: str) -> None:
    with in_time(), suppress(ValueError, RecursionError):  # said to be broken
        rule(filled(seed, 100_000).encode() + b"x")


def test_trailing_blanks_of_a_rule_do_not_count_unless_one_is_quoted() -> None:
    texts = [rule(line) for line in (b"a   ", b"a\\ ", b"a\\   ", b"a b")]

    assert [found is not None and found.regex.fullmatch(b"a") is not None for found in texts] == [
        True,
        False,
        False,
        False,
    ]
    assert [found is not None and found.regex.fullmatch(b"a ") is not None for found in texts] == [
        False,
        True,
        True,
        False,
    ]


def test_a_tool_that_crashes_with_a_hostile_text_does_not_stall_the_run() -> None:
    @tool(effect="read")
    def fail() -> str:
        """Fail."""
        raise RuntimeError(filled("sk-", 40_000))

    script = ScriptedLLM(ModelReplied("", (ToolCall("1", "fail", "{}"),)), "It failed.")
    with in_time():
        result = asyncio.run(Agent(script, [fail], on_event=log_events("r")).run("q"))

    assert result.answer == "It failed."


# --- and what was hidden before is hidden still ------------------------------------------------------------

JWT = "eyJhbGciOiJI.eyJzdWIiOiIx.c2ln-_x"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("sk-learn-like-estimator-of-nothing", "sk-learn-like-estimator-of-nothing"),
        ("sk-sk-sk-sk-sk-0123456789", HIDDEN),
        ("my-sk-proj-k3j9x2m7q1w8z5v4!", f"my-{HIDDEN}!"),
        ("sk-aaaaaaaaaaaaaaaaaa-hf_abcdefghijklmnopqrstuv", f"sk-aaaaaaaaaaaaaaaaaa-{HIDDEN}"),
        (JWT, HIDDEN),
        (f"Cookie: session={JWT}; next", f"Cookie: session={HIDDEN}; next"),
        (f"x-{JWT}", f"x-{HIDDEN}"),
        (f"a-first-part-of-none.{JWT}", f"a-first-part-of-none.{HIDDEN}"),
        (f"{JWT} {JWT}", f"{HIDDEN} {HIDDEN}"),
        ("eyJshort.eyJzdWIiOiIx.sig", "eyJshort.eyJzdWIiOiIx.sig"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----.", f"{HIDDEN}."),
        ("-----BEGIN PRIVATE KEY-----\ncut off", HIDDEN),
    ],
)
def test_forms_of_keys_are_hidden_wherever_they_begin(text: str, clean: str) -> None:
    assert scrub(text, {}) == clean


def test_a_key_in_pieces_is_hidden_in_each_of_them() -> None:
    pieces = [KEY[n : n + 12] for n in range(len(KEY) - 11)]

    hidden = Secret(KEY).scrub(" ".join([*pieces, KEY, KEY[3:30] + KEY[3:30]]))

    assert hidden == " ".join([HIDDEN] * (len(pieces) + 1) + [HIDDEN * 2])
