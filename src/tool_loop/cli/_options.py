"""Options that several subcommands share, with what they accept.

Every default is None, which means "not said": then what the run recorded counts, then the
environment, then the package's default.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, ArgumentTypeError, _ActionsContainer

APIS = ("chat", "responses", "messages")
POLICIES = ("never", "effects", "always")


def count(text: str) -> int:
    """A number of steps or tokens; 0 stands for no limit."""
    try:
        number = int(text.replace("_", "").replace(",", ""))
    except ValueError:
        number = -1
    if number < 0:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 0 (0 means no limit)")
    return number


def amount(text: str) -> float:
    """Seconds or dollars; 0 stands for no limit."""
    try:
        number = float(text.removeprefix("$"))
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number from 0 (0 means no limit)")
    return number


def add_model(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument("--model", "-m", metavar="NAME", help="default: OPENAI_MODEL (or ANTHROPIC_MODEL)")
    group.add_argument("--base-url", metavar="URL", help="default: OPENAI_BASE_URL (or ANTHROPIC_BASE_URL)")
    group.add_argument("--api", choices=APIS, help="what the endpoint speaks; default: told by its address")
    group.add_argument("--no-stream", action="store_true", help="ask for the reply in one piece")


def add_limits(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("limits (0 switches one off)")
    group.add_argument("--max-steps", type=count, metavar="N", help="replies of the model; default 20")
    group.add_argument("--max-tokens", type=count, metavar="N", help="sent and received, in all; default 200,000")
    group.add_argument("--max-usd", type=amount, metavar="X", help="needs the extra: tool-loop[prices]")
    group.add_argument("--timeout", type=amount, metavar="SECONDS", help="default 600")
    group.add_argument(
        "--window",
        type=count,
        metavar="N",
        help="the model's context size in tokens; else it is known from prices (with --max-usd) or from a refusal",
    )


def add_tools(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("tools")
    group.add_argument("--root", metavar="DIR", help="the directory that can be read; default: this one")
    add_own_tools(group)
    group.add_argument(
        "--approve",
        choices=POLICIES,
        help='which calls a person has to allow; default "effects": all but those of tools that only read',
    )


def add_own_tools(parser: _ActionsContainer) -> None:
    parser.add_argument(
        "--tools",
        action="append",
        metavar="MODULE:NAME",
        help="tools of your own: a Tool, a function or a list of them, in a module or FILE.py:NAME; can be repeated",
    )


def add_agent(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--agent",
        metavar="MODULE:NAME",
        help="an Agent of your own, with its model and tools, or a function that makes one; or FILE.py:NAME",
    )


def add_output(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="one JSON event per line on stdout, in place of the answer")
    group.add_argument("-o", "--output", metavar="FILE", help="write the answer to a file too")
    loud = group.add_mutually_exclusive_group()
    loud.add_argument("--quiet", "-q", action="store_true", help="no progress on stderr")
    loud.add_argument("--verbose", "-v", action="store_true", help="every message in full on stderr")


def add_journal(parser: _ActionsContainer) -> None:
    parser.add_argument(
        "--journal",
        metavar="FILE",
        type=os.path.expanduser,  # a shell leaves the ~ of --journal=~/runs.sqlite as it is
        help="where runs are kept; default: tool-loop/runs.sqlite in XDG_STATE_HOME",
    )


def add_which(parser: ArgumentParser) -> None:
    """The run a command is about."""
    parser.add_argument("run", nargs="?", metavar="RUN", help="the run's id, or enough of its beginning")
    parser.add_argument("--last", action="store_true", help="the run that got on last")
