"""The runs that the golden journals are made of: how each was recorded, and how it goes on.

scripts/golden.py records them once per format; test_golden.py resumes them with today's code. A run
may be added here, and then has a journal from the next format on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from tool_loop import (
    Agent,
    ApprovalDecided,
    Example,
    Limits,
    ModelReplied,
    PendingApproval,
    ScriptedLLM,
    ToolCall,
    ToolContext,
    ToolRegistry,
    Usage,
    tool,
)
from tool_loop.events import IntentRecorded, ToolReturned
from tool_loop.testing import Faults, auth, cancel, context_length, crash, die, rate_limit

PAID: list[str] = []


@tool(effect="read")
async def look(at: str) -> str:
    """Look at something."""
    await asyncio.sleep(0.5)
    return f"at {at} there is " + "a long story " * (100 if at == "library" else 1)


@tool(effect="read", polling=True)
async def wait_for(job: str) -> str:
    """Ask whether a job is done."""
    return f"{job}: not yet"


@tool(effect="idempotent")
async def put(name: str, text: str) -> str:
    """Write a text down."""
    return f"{name}: {len(text)} characters"


@tool(effect="once")
async def pay(amount: int, context: ToolContext) -> str:
    """Pay an amount."""
    PAID.append(context.idempotency_key)
    return f"paid {amount}"


@tool(effect="once", needs_approval=True)
async def publish(text: str) -> str:
    """Publish a text."""
    return f"published: {text}"


TOOLS = ToolRegistry([look, wait_for, put, pay, publish], scope="golden")
LIMITS = Limits(steps=4, window=4_000)


async def agree(shown: PendingApproval) -> ApprovalDecided:
    return ApprovalDecided(shown.call.id, allowed=True, by="ada", note="fine")


async def edit(shown: PendingApproval) -> ApprovalDecided:
    return ApprovalDecided(shown.call.id, allowed=True, by="ada", arguments='{"text": "hello, world"}')


async def refuse(shown: PendingApproval) -> ApprovalDecided:
    return ApprovalDecided(shown.call.id, allowed=False, by="ada", note="not on a Friday")


@dataclass(frozen=True)
class Golden:
    """`script` is what the model said while it was recorded, `then` what it says when the run is resumed.

    `ends` is how the resumed run ends, `answer` what it answers, `told` are the failures that the model
    has read by then, and `pays` is how often the resumed run pays.
    """

    script: tuple[Any, ...]
    answer: str
    then: tuple[Any, ...] = ()
    ends: str = "answered"
    told: tuple[str, ...] = ()
    faults: Callable[[Faults], object] = lambda _: None
    reviewer: Any = None
    decide: Callable[[Any, str], Awaitable[object]] | None = None
    questions: tuple[str, ...] = ("What is there?",)
    limits: Limits = LIMITS
    pays: int = 0


def agent_of(turns: tuple[Any, ...], journal: Any, golden: Golden) -> Agent:
    examples = [Example("What is at home?", "look", '{"at": "home"}', "at home there is a cat", "A cat.")]
    return Agent(
        ScriptedLLM(*turns), TOOLS, system="Look before you answer.", limits=golden.limits, journal=journal,
        reviewer=golden.reviewer, examples=examples, meta={"made": "golden"},
    )  # fmt: skip


def call(n: int, name: str, arguments: str) -> ToolCall:
    return ToolCall(f"c{n}", name, arguments)


LOOK = call(1, "look", '{"at": "home"}')
LIBRARY = [call(n, "look", '{"at": "library"}') for n in range(2, 6)]
PAY = call(2, "pay", '{"amount": 5}')
PUBLISH = call(3, "publish", '{"text": "hello"}')


def said(*calls: ToolCall, text: str = "", tokens: int = 100, **more: Any) -> ModelReplied:
    stop = more.pop("stop", "tool_calls" if calls else "stop")
    return ModelReplied(text, calls, stop, Usage(tokens, 10, 50), **more)


async def allow_later(journal: Any, run_id: str) -> None:
    await journal.decide(run_id, "c3", allow=True, by="bob", note="later")


RUNS: dict[str, Golden] = {
    "answered": Golden((said(LOOK, text="Let me look."), said(text="A cat.")), "A cat."),
    "every-mistake": Golden(
        (
            said(call(1, "look", '{"at": 5}'), call(1, "loook", "{}"), call(0, "look", '{"at": "ho')),
            said(LOOK, stop="length"),
            said(text="I give up."),
        ),
        "I give up.",
        told=("invalid_arguments", "unknown_tool", "bad_json", "cut_off"),
    ),
    "retried": Golden(
        (said(LOOK), said(text="A cat.")), "A cat.", faults=lambda f: f.at_step(2, rate_limit(2), rate_limit(3))
    ),
    "cut-before-a-reply": Golden(
        (said(LOOK),), "A cat.", (said(text="A cat."),), faults=lambda f: f.at_append(4, die())
    ),
    "cut-between-results": Golden(
        (said(LOOK, *LIBRARY[:2]),),
        "Books.",
        (said(text="Books."),),
        faults=lambda f: f.on_record(ToolReturned, die(), nth=2),
    ),
    "in-doubt": Golden(
        (said(LOOK, PAY, replace(PAY, id="c4")),),
        "I do not know.",
        (said(text="I do not know."),),
        told=("outcome_unknown",),
        faults=lambda f: f.on_tool("pay", die(first=True)),
        pays=1,  # the second one, which had certainly not begun
    ),
    "intended-and-not-begun": Golden(
        (said(PAY),),
        "Paid?",
        (said(text="Paid?"),),
        told=("outcome_unknown",),
        faults=lambda f: f.on_record(IntentRecorded, die(first=True)),
    ),
    "waiting": Golden(
        (said(LOOK, PUBLISH),),
        "",
        ends="waiting",
    ),
    "decided-and-not-run": Golden((said(PUBLISH),), "Published.", (said(text="Published."),), decide=allow_later),
    "approved": Golden((said(LOOK, PUBLISH), said(text="Published.")), "Published.", reviewer=agree),
    "edited": Golden((said(PUBLISH), said(text="Published.")), "Published.", reviewer=edit),
    "denied": Golden((said(PUBLISH), said(text="Not then.")), "Not then.", told=("denied",), reviewer=refuse),
    "refused-key": Golden((said(LOOK),), "A cat.", (said(text="A cat."),), faults=lambda f: f.at_step(2, auth())),
    "cancelled": Golden(
        (said(LOOK, PAY),),
        "Stopped.",
        (said(text="Stopped."),),
        told=("cancelled", "cancelled"),
        faults=lambda f: f.on_tool("look", cancel()),
    ),
    "crashing-tool": Golden(
        (said(LOOK), said(text="It is broken.")),
        "It is broken.",
        told=("tool_crashed",),
        faults=lambda f: f.on_tool("look", crash()),
    ),
    "step-limit": Golden(
        (*[said(call(n, "wait_for", f'{{"job": "{n}"}}')) for n in range(4)], said(text="Not yet.")),
        "Not yet.",
        ends="step limit",
    ),
    "repeated": Golden(
        (*[said(replace(LOOK, id=f"c{n}")) for n in range(3)], said(text="A cat, I say.")),
        "A cat, I say.",
        ends="repeated call",
    ),
    "no-last-word": Golden(
        (*[said(call(n, "put", f'{{"name": "{n}", "text": "x"}}')) for n in range(4)], said(LOOK)),
        "",
        ends="step limit",
    ),
    "compacted": Golden(
        (
            said(LOOK, tokens=500),
            said(*LIBRARY, tokens=1_500),
            said(call(6, "look", '{"at": "door"}'), tokens=3_500),
            said(text="There were books.", tokens=3_600),
            said(call(7, "look", '{"at": "roof"}'), tokens=900),
        ),
        "Books.",
        (said(text="Books."),),
        faults=lambda f: f.on_record(ToolReturned, die(), nth=7),
        limits=replace(LIMITS, steps=9),
    ),
    "overflowed": Golden(
        (said(LOOK), said(*LIBRARY), said(text="Books.")),
        "Books.",
        faults=lambda f: f.at_step(3, context_length(1_000)),
        limits=replace(LIMITS, window=None),
    ),
    "continued": Golden(
        (said(LOOK), said(text="A cat."), said(replace(LOOK, id="c9"))),
        "Still the cat.",
        (said(text="Still the cat."),),
        questions=("What is there?", "And now?"),
        faults=lambda f: f.at_append(8, die()),
    ),
    "reminded": Golden((said(text='{"name": "look", "arguments": {"at": "home"}}'), said(text="A cat.")), "A cat."),
}
