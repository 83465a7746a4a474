"""`tool-loop doctor`: what is configured, and whether it works. Never shows the key."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from . import EXIT_CODES, _options, command

if TYPE_CHECKING:
    from tool_loop.console.terminal import Terminal
    from tool_loop.events import ModelReplied
    from tool_loop.ports import LLM

# A model that is being loaded into memory needs this; one that is not there says so at once.
SECONDS = 120.0

PROVIDER = 4


def register(subparsers: Any) -> None:
    parser = command(subparsers, "doctor", epilog=EXIT_CODES)
    _options.add_model(parser)
    _options.add_journal(parser)


def run(args: Namespace) -> int:
    from tool_loop.console.terminal import Terminal
    from tool_loop.runtime import leaving

    out = Terminal(sys.stdout)
    _about_this_machine(out)
    _about_commands(out)
    _about_runs(args, out)
    llm = _about_the_model(args, out)
    return leaving.run(_about_the_endpoint(llm, out, stream=not args.no_stream))


def _about_this_machine(out: Terminal) -> None:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from tool_loop import __version__
    from tool_loop.errors import UsageError

    _say(out, "tool-loop", f"{__version__}, Python {platform.python_version()} on {platform.system()}")
    for name, why in (
        ("httptools", "the network"),
        ("pydantic", "typed tools"),
        ("jsonschema-rs", "schemas by hand"),
        ("genai-prices", "costs; extra prices"),
        ("opentelemetry-api", "traces; extra otel"),
    ):
        try:
            _say(out, name, f"{version(name)} ({why})")
        except PackageNotFoundError:
            _say(out, name, f"not installed ({why})")
    try:
        from tool_loop.tools.search import search_engine

        _say(out, "grep uses", str(search_engine()))
    except UsageError as error:
        _say(out, "grep uses", f"nothing: {error}")


def _about_commands(out: Terminal) -> None:
    from tool_loop.sandbox import SandboxUnavailable, choose

    try:
        _say(out, "commands run in", str(choose()))
    except SandboxUnavailable as error:
        _say(out, "commands run in", f"nothing, and so not at all: {error}")


def _about_runs(args: Namespace, out: Terminal) -> None:
    from pathlib import Path

    from ._store import default_path, saved_runs

    try:
        path = Path(args.journal) if args.journal else default_path()
        if not path.exists():
            _say(out, "runs", f"none yet; they will be saved in {path}")
            return
        with saved_runs(args) as journal:
            _say(out, "runs", f"{len(journal.runs())} in {path}")
    except Exception as error:  # a journal that does not open is a finding like the others
        _say(out, "runs", f"cannot be saved: {error}")


def _about_the_model(args: Namespace, out: Terminal) -> LLM:
    from ._setup import llm_of, meta_of

    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        if os.environ.get(name):
            _say(out, name, "set")
    llm = llm_of(args, lambda notice: _say(out, "note", notice))
    meta = meta_of(args, llm)
    _say(out, "model", f"{meta['model']} at {meta['base_url']} ({meta['dialect']})")
    return llm


async def _about_the_endpoint(llm: LLM, out: Terminal, *, stream: bool) -> int:
    """One tiny call with a tool; a second one only where the first did not show whether text streams."""
    from tool_loop.calls_in_prose import looks_like_a_call

    reply, pieces, seconds = await _asked(llm, 'Write the word "ready", then call the tool named ready.', tool=True)
    _say(out, "endpoint", f"answered in {seconds:.1f} s")
    if reply.calls:
        _say(out, "tools", "work: the model called one")
    elif looks_like_a_call(reply.text, ("ready",)):
        _say(out, "tools", "do not work: the call came as text; the server's template does not fit this model")
    else:
        _say(out, "tools", f"the model did not call the one it was told to call; it said: {reply.text[:200]}")
    if not reply.text:
        plain, pieces, _ = await _asked(llm, "Count from one to five, in words.", tool=False)
        pieces = pieces if plain.text else 0
    if not stream:
        _say(out, "streaming", "switched off")
    else:
        _say(out, "streaming", f"works: text came in {pieces} pieces" if pieces > 1 else "the text came in one piece")
    usage = reply.usage
    counted = usage.input is not None and usage.output is not None
    _say(out, "tokens", f"{usage.input} in, {usage.output} out" if counted else "not counted by the server; estimated")
    return 0 if reply.calls else PROVIDER


async def _asked(llm: LLM, question: str, *, tool: bool) -> tuple[ModelReplied, int, float]:
    import asyncio

    from tool_loop.events import Event, Signal, TextDelta
    from tool_loop.ports import Request, ToolSpec
    from tool_loop.transcript import Transcript, UserMessage

    pieces = 0

    def count(happening: Event | Signal) -> None:
        nonlocal pieces
        pieces += isinstance(happening, TextDelta)

    ready = ToolSpec("ready", "Say that you are ready.", {"type": "object", "properties": {}})
    transcript = Transcript("Be brief. Use the tools when you need them.", [UserMessage(question)])
    began = time.monotonic()
    deadline = asyncio.get_running_loop().time() + SECONDS
    reply = await llm.reply(Request(transcript, (ready,) if tool else (), deadline=deadline), count)
    return reply, pieces, time.monotonic() - began


def _say(out: Terminal, name: str, said: str) -> None:
    from tool_loop.console.terminal import one_line

    out.line(f"{name:<20} {one_line(said)}")
