"""The slips of a first hour: each says what to write instead, and none looks like a run that went well."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tool_loop import (
    Agent,
    ApprovalDecided,
    Limits,
    OpenAIChat,
    PendingApproval,
    ScriptedLLM,
    ToolCall,
    ToolRegistry,
    UsageError,
    tool,
)


@tool(effect="read")
def look(n: int = 1) -> str:
    """Look."""
    return str(n)


@tool
def send() -> str:
    """Send."""
    return "sent"


async def async_listener(_event: object) -> None:
    """What `on_event` cannot be."""


class AsyncListener:
    async def __call__(self, _event: object) -> None:
        """Nor this."""


def llm() -> ScriptedLLM:
    return ScriptedLLM("done")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Agent([look], llm()), "the first argument is the model"),
        (lambda: Agent(None), "the first argument is the model.*got None"),
        (lambda: Agent(OpenAIChat), r"the model is an instance: Agent\(OpenAIChat\(...\), tools\)"),
        (lambda: Agent(llm(), "gpt-5"), "tools is a list of functions; got the text 'gpt-5'"),
        (lambda: Agent(llm(), look), r"tools is a list, also of one: Agent\(llm, \[look\]\)"),
        (lambda: Agent(llm(), look.func), r"tools is a list, also of one: Agent\(llm, \[look\]\)"),
        (lambda: Agent(llm(), 7), "tools is a list of functions.*got 7"),
        (lambda: Agent(llm(), ToolRegistry([look]), approve="always"), r"ToolRegistry\(tools, approve=...\)"),
        (lambda: Agent(llm(), journal="x.sqlite"), r"journal=SqliteJournal\('x.sqlite'\)"),
        (lambda: Agent(llm(), journal=Path("x.sqlite")), r"journal=SqliteJournal\('x.sqlite'\)"),
        (lambda: Agent(llm(), journal={}), "journal is a SqliteJournal"),
        (lambda: Agent(llm(), limits={"steps": 3}), r"limits=Limits\(steps=3\)"),
        (lambda: Agent(llm(), limits=3), r"limits=Limits\(steps=3\)"),
        (lambda: Agent(llm(), on_event=async_listener), "cannot be `async def`"),
        (lambda: Agent(llm(), on_event=AsyncListener()), "cannot be `async def`"),
        (lambda: Agent(llm(), on_event=[]), "on_event=print"),
        (lambda: Agent(llm(), reviewer=True), "async def reviewer"),
        (lambda: Agent(llm(), system=["be", "brief"]), "system is the text"),
        (lambda: Agent(llm(), system=async_listener), "make it a plain function"),
        (lambda: Agent(llm(), retry=3), r"RetryPolicy\(attempts=3\)"),
        (lambda: Agent(llm(), prices={"m": 1}), "PriceTable"),
        (lambda: Agent(llm()).run_sync(["hello"]), "the question is text; got a list"),
        (lambda: Agent(llm()).run_sync("q", max_steps=3), r"run has no option 'max_steps'. Did you mean limits=Limits"),
        (lambda: Agent(llm()).run_sync("q", run_ids="a"), "Did you mean run_id=..."),
        (lambda: Agent(llm()).run_sync("q", on_event=async_listener), "cannot be `async def`"),
        (lambda: Agent(llm()).run_sync("q", limits={"steps": 3}), r"limits=Limits\(steps=3\)"),
        (lambda: asyncio.run(Agent(llm()).resume("r", meta={})), "resume has no option 'meta'"),
        (lambda: Agent(llm()).stream("q", max_steps=3), "run has no option 'max_steps'"),
    ],
)
def test_what_cannot_work_says_what_to_write(make: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make()


def test_no_text_that_may_be_a_key_is_shown() -> None:
    with pytest.raises(UsageError) as caught:
        Agent(llm(), [look], reviewer="sk-proj-1234567890abcdef")

    assert "sk-proj" not in str(caught.value)


async def says_true(_call: PendingApproval) -> bool:
    return True


def is_not_async(call: PendingApproval) -> ApprovalDecided:
    return ApprovalDecided(call.call.id, allowed=True)


@pytest.mark.parametrize(
    ("reviewer", "says"),
    [(says_true, "returns an ApprovalDecided"), (is_not_async, "write `async def`")],
)
def test_a_reviewer_that_cannot_decide_ends_the_attempt_and_the_run_goes_on_with_one_that_can(
    reviewer: Any, says: str
) -> None:
    async def allows(call: PendingApproval) -> ApprovalDecided:
        return ApprovalDecided(call.call.id, allowed=True)

    wrong = Agent(ScriptedLLM(ToolCall("1", "send", "{}")), [send], approve="effects", reviewer=reviewer)
    with pytest.raises(UsageError, match=says):
        wrong.run_sync("q", run_id="r")

    right = Agent(llm(), [send], approve="effects", reviewer=allows, journal=wrong.journal)
    assert asyncio.run(right.resume("r")).answer == "done"


# --- what is heard with no logging set up ---------------------------------------------------------

PROGRAM = """
from tool_loop import Agent, ApprovalDecided, OpenAIChat, RetryPolicy, ScriptedLLM, ToolCall, tool

@tool(effect="read")
def look() -> str:
    "Look."
    raise KeyError("sk-proj-1234567890abcdef")

@tool(needs_approval=lambda a: a["amount"] > 3)
def pay() -> str:
    "Pay."
    return "paid"

def watch(event):
    raise RuntimeError("broken")

async def reviewer(pending):
    raise OSError("the mail server is away")
"""

CALL = 'ScriptedLLM(ToolCall("1", "look", "{}"), "all is well")'
PAY = 'ScriptedLLM(ToolCall("1", "pay", "{}"), "all is well")'


def heard(program: str) -> list[str]:
    """What a program writes on stderr that has set up nothing."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM + program], capture_output=True, text=True, timeout=60, check=True
    )
    return ran.stderr.splitlines()


@pytest.mark.parametrize(
    ("program", "line"),
    [
        (f"Agent({CALL}, [look]).run_sync('q')", "tool_loop: tool look crashed: KeyError at <string>:7"),
        ("Agent(ScriptedLLM('a'), on_event=watch).run_sync('q')", "tool_loop: a subscriber failed (on_event)"),
        (f"Agent({PAY}, [pay]).run_sync('q')", "tool_loop: the approval policy for tool pay failed"),
        (
            f"Agent({PAY}, [pay], reviewer=reviewer, approve='always').run_sync('q')".replace(
                "pay]", "tool(pay.func)]"
            ),
            "tool_loop: the reviewer failed; the call goes on waiting: OSError",
        ),
        (
            "def bare(n: int) -> int:\n  return n\nAgent(ScriptedLLM('a'), [bare])",
            "tool_loop: tool bare has no docstring",
        ),
        (
            (
                "a = Agent(OpenAIChat('m', 'http://127.0.0.1:9/v1', 'k'), "
                "retry=RetryPolicy(attempts=2, first_wait=0.01))"
                "\ntry: a.run_sync('q')\nexcept Exception: pass"
            ),
            "127.0.0.1:9",
        ),
    ],
)
def test_what_a_person_has_to_know_is_one_line_on_stderr(program: str, line: str) -> None:
    said = heard(program)

    assert len(said) == 1, said
    assert line in said[0]
    assert "sk-proj" not in said[0]


def test_a_program_with_handlers_of_its_own_hears_it_there_and_only_there() -> None:
    begin = "import logging, io\ninto = io.StringIO()\nlogging.basicConfig(stream=into)\n"
    program = f"{begin}Agent({CALL}, [look]).run_sync('q')\n"

    assert heard(program + "assert 'Traceback' in into.getvalue()") == []


def test_a_program_can_want_silence() -> None:
    quiet = "import logging\nlogging.getLogger('tool_loop').addHandler(logging.NullHandler())\n"

    assert heard(f"{quiet}Agent({CALL}, [look]).run_sync('q')") == []


def test_a_program_that_closed_its_stderr_runs_on() -> None:
    assert heard(f"import sys\nsys.stderr = None\nAgent({CALL}, [look]).run_sync('q')") == []


def test_limits_of_one_kind_are_taken_wherever_they_come_from() -> None:
    assert Agent(llm(), limits=Limits(steps=3)).run_sync("q", limits=Limits(steps=2)).answer == "done"
