"""The command line: which subcommand runs, and what the shell is told about how it ended.

Each subcommand is a module here with `register(subparsers)` and `run(args) -> exit code`, and a line
in `COMMANDS`. Only the module that was asked for is imported, and it imports what is heavy when it
runs: `tool-loop --help` takes as long as Python itself. Knows nothing about runs.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module

from tool_loop import __version__

COMMANDS = {
    "ask": "answer a question about the files in a directory",
    "demo": "a scripted run that fails four times and recovers; needs no key and no network",
    "doctor": "check the configuration with one tiny call",
    "runs": "list the saved runs",
    "show": "read a saved run",
    "report": "a saved run as one HTML page, or two runs side by side",
    "resume": "go on with a run that was interrupted, or that waited for an approval",
    "approve": "allow a call that waits",
    "deny": "refuse a call that waits",
    "chaos": "try an agent with everything that can go wrong, offline",
    "eval": "does a given model use what a failure tells it? tasks, arms, intervals",
    "replay": "drive a saved run again through today's code, and see where it would act differently",
    "check": "hold a saved run against what must be true of every one",
}

EXIT_CODES = """\
exit codes:
  0 answered   1 internal error   2 wrong usage   3 configuration or authentication
  4 the provider failed, retries included   5 stopped by a limit, with an answer
  6 a call waits for an approval   130 interrupted (resume it)"""

PIPE_CLOSED = 141  # what a shell says of a program that SIGPIPE ended


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code. Prints no traceback, unless TOOL_LOOP_DEBUG is set."""
    code = _main(sys.argv[1:] if argv is None else list(argv))
    leaving = sys.modules.get("tool_loop.runtime.leaving")
    if leaving is not None and leaving.lingering():
        # Everything is said and on record. A function that a tool has left on a thread would be waited for.
        os._exit(code)
    return code


def _main(arguments: list[str]) -> int:
    _fill()
    code = 0
    try:
        code = _run(arguments)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except BrokenPipeError:
        _drop_output()
        return PIPE_CLOSED
    except OSError as error:  # the disk is full
        _drop_output()
        if not code:
            print(f"tool-loop: cannot write to standard output: {error.strerror}", file=sys.stderr)
        return code or 1
    except KeyboardInterrupt:
        return 130
    return code


def _run(arguments: list[str]) -> int:
    parser = _parser(arguments)
    if not arguments:
        parser.print_help(sys.stderr)
        return 2
    try:
        args = parser.parse_args(arguments)
    except SystemExit as end:  # argparse has printed its help or its complaint
        return int(end.code or 0)
    import logging

    # What a warning says is in the view of the run, which a line in between would tear up.
    logging.getLogger("tool_loop").addHandler(logging.NullHandler())
    try:
        code: int = import_module(f".{args.command}", __name__).run(args)
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except Exception as error:
        from ._failure import explain

        return explain(error)
    return code


def _parser(arguments: list[str]) -> ArgumentParser:
    parser = ArgumentParser(
        prog="tool-loop",
        description="A tool-calling agent in one readable loop.",
        epilog=EXIT_CODES,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"tool-loop {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="command", title="commands")
    wanted = next((word for word in arguments if not word.startswith("-")), "")
    for name, summary in COMMANDS.items():
        if name == wanted:
            import_module(f".{name}", __name__).register(subparsers)
        else:
            subparsers.add_parser(name, help=summary)
    return parser


def command(subparsers: object, name: str, *, epilog: str = "") -> ArgumentParser:
    """The parser of a subcommand, described by its line in `COMMANDS`."""
    summary = COMMANDS[name]
    parser: ArgumentParser = subparsers.add_parser(  # type: ignore[attr-defined]  # argparse keeps the class private
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=epilog,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    return parser


def _fill(descriptors: Iterable[int] = range(3)) -> None:
    """Started without stdout (`>&-`), the next file we open would get its number: the journal as stdout."""
    for descriptor in descriptors:
        try:
            os.fstat(descriptor)
        except OSError:
            _to_nowhere(descriptor)


def _to_nowhere(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != descriptor:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def _drop_output() -> None:
    """Whoever read our output has gone (`| head`), or there is no room for it. What is still buffered must
    not complain at exit.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, AttributeError, ValueError):
            with suppress(OSError, ValueError, AttributeError):  # it has no descriptor, or is closed
                _to_nowhere(stream.fileno())


__all__ = ["COMMANDS", "Namespace", "command", "main"]
