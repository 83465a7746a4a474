"""Writes the normal traces on which the stall rule is measured: runs that a reader would call sensible.

    python -m tests.kit.make_traces          writes tests/data/traces/*.jsonl, one event a line

Each run goes through the real loop with real tools over a small tree; only the model is a script. The
rule is switched off while recording, so what is kept is what the model did and not what the rule let
through. Times are left out and results stand in the order of their calls, so the same code always
writes the same bytes. Knows nothing about the rule itself; tests/loop/test_repeats.py holds it against these.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tool_loop import Agent, Limits, ModelReplied, ScriptedLLM, Tool, ToolCall, ToolError, tool
from tool_loop.events import Compacted, Event, ToolReturned
from tool_loop.journal.codec import encode
from tool_loop.ports import Emit, Request
from tool_loop.testing import workspace
from tool_loop.tools import workspace_tools
from tool_loop.transcript import SUMMARISE, UserMessage

FOLDER = Path(__file__).parents[1] / "data" / "traces"

Call = tuple[str, "dict[str, Any] | str"]  # a string is sent as it is: models do not all write compact JSON

TREE = {
    "README.md": "# shop\n\nRun `make test`. Prices are in cents.\n",
    "shop/__init__.py": "",
    "shop/cart.py": "from .prices import price\n\n\ndef total(items):\n    return sum(price(i) for i in items) - 1\n",
    "shop/prices.py": 'PRICES = {"tea": 300, "cup": 900}\n\n\ndef price(item):\n    return PRICES[item]\n',
    "shop/tax.py": "RATE = 0.19\n\n\ndef tax(amount):\n    return round(amount * RATE)\n",
    "tests/test_cart.py": 'from shop.cart import total\n\n\ndef test_total():\n    assert total(["tea"]) == 300\n',
    "conf/app.toml": 'level = "info"\nretries = 3\nregion = "eu"\n',
    "docs/guide.md": "".join(f"{n}. step {n}: check part {n % 7}\n" for n in range(1, 61)),
    "logs/app.log": "".join(f"{n:03} {'ERROR timeout' if n % 17 == 0 else 'ok'} job {n % 5}\n" for n in range(1, 61)),
    **{f"parts/p{n:02}.txt": f"part {n}\nweight {n * 7 % 13}\n" for n in range(1, 41)},
}
LONG = {f"long/{n}.txt": f"chapter {n}\n" + f"it rained on day {n}, and nobody came. \n" * 25 for n in range(1, 7)}


@dataclass
class Trace:
    """One run: what is asked, and what the model does reply by reply until it answers."""

    question: str
    replies: list[list[Call]]
    answer: str = "Done."
    tree: Mapping[str, str] = field(default_factory=lambda: TREE)
    window: int | None = None
    then: tuple[str, list[list[Call]], str] | None = None  # a follow-up in the same run


# --- short ways to write calls ----------------------------------------------------------------------


def read(path: str, first: int | None = None, last: int | None = None) -> Call:
    lines = {"start_line": first, "end_line": last}
    return "read_file", {"path": path, **{k: v for k, v in lines.items() if v is not None}}


def grep(pattern: str, **options: Any) -> Call:
    return "grep", {"pattern": pattern, **options}


def ls(path: str = ".") -> Call:
    return "list_dir", {"path": path}


def edit(path: str, old: str, new: str) -> Call:
    return "edit", {"path": path, "old": old, "new": new}


def spelled(call: Call, **how: Any) -> Call:
    """The same call with its JSON written in another way."""
    return call[0], json.dumps(call[1], **how)


TEST: Call = ("run_tests", {})
COUNT: Call = ("next_ticket", {})
JOB: Call = ("job_status", {"job": "build"})
QUEUE: Call = ("queue_length", {})
CART, PRICES, TAX, CONF = map(read, ("shop/cart.py", "shop/prices.py", "shop/tax.py", "conf/app.toml"))
FIX = edit("shop/cart.py", " - 1", "")


def one_by_one(*calls: Call) -> list[list[Call]]:
    return [[call] for call in calls]


# --- tools of our own -------------------------------------------------------------------------------


def own_tools(root: Path) -> list[Tool]:
    """Tools that change something, or whose results change, or that are meant to be asked again."""
    tickets: Iterator[int] = iter(range(1, 1000))
    queue: Iterator[int] = iter([7, 7, 5, 5, 4, 2, 2, 1, 0, 0])
    asked: Iterator[int] = iter(range(1000))

    @tool(name="edit", effect="idempotent")
    def edit_file(path: str, old: str, new: str) -> str:
        """Replace a text in a file."""
        file = root / path
        text = file.read_text()
        if old not in text:
            raise ToolError(f"{path} does not hold this text", kind="invalid_argument", field="old")
        file.write_text(text.replace(old, new))
        return f"edited {path}"

    @tool(effect="read")
    def run_tests() -> str:
        """Run the tests."""
        wrong = [
            w for w, f in ((" - 1", "shop/cart.py"), ("RATE = 0.19", "shop/tax.py")) if w in (root / f).read_text()
        ]
        return f"{len(wrong)} failed, {2 - len(wrong)} passed"

    @tool(effect="read")
    def next_ticket() -> str:
        """Draw the next number."""
        return f"ticket {next(tickets)}"

    @tool(effect="read", polling=True)
    def job_status(job: str) -> str:
        """Ask how a job is doing."""
        return f"{job}: {'done' if next(asked) >= 10 else 'running'}"

    @tool(effect="read")
    def queue_length() -> str:
        """How many wait."""
        return f"{next(queue)} waiting"

    return [edit_file, run_tests, next_ticket, job_status, queue_length]


# --- what the model does ----------------------------------------------------------------------------

EDGES = [CART, PRICES, CART, TAX, CART, CONF, CART]
TRACES: dict[str, Trace] = {
    "answers-at-once": Trace("what is 2 + 2?", [], "4"),
    "one-look": Trace("how big is the tax?", one_by_one(grep("RATE")), "19 %"),
    "file-in-parts": Trace(
        "sum up the guide", one_by_one(*(read("docs/guide.md", n, n + 11) for n in range(1, 60, 12)))
    ),
    "overlapping-parts": Trace(
        "sum up the log", one_by_one(*(read("logs/app.log", n, n + 14) for n in range(1, 50, 8)))
    ),
    "refines-a-grep": Trace(
        "who adds prices up?",
        one_by_one(grep("add"), grep("sum"), grep("sum", glob="*.py"), grep("sum\\(", path="shop", context=1)),
    ),
    "empty-greps-with-new-words": Trace(
        "is there a discount?", one_by_one(grep("discount"), grep("rebate"), grep("voucher"), grep("coupon")), "No."
    ),
    "same-empty-grep-twice": Trace("any TODO?", one_by_one(grep("TODO"), grep("TODO")), "None."),
    "same-read-twice-in-a-row": Trace("what is the region?", one_by_one(CONF, CONF), "eu"),
    "three-reads-with-others-between": Trace("why is total wrong?", one_by_one(CART, PRICES, CART, TAX, CART)),
    "seven-steps-back-to-one-file": Trace("why is total wrong?", one_by_one(*EDGES)),
    "back-to-the-index-each-time": Trace(
        "read all parts that matter",
        one_by_one(*(c for n in range(1, 9) for c in (ls("docs"), read(f"parts/p{n:02}.txt")))),
    ),
    "lists-again-at-the-end": Trace(
        "what is in here?", one_by_one(ls(), ls("shop"), ls("tests"), ls(), ls("conf"), ls())
    ),
    "checks-twice-then-goes-on": Trace("compare both", one_by_one(CART, CART, PRICES, PRICES, TAX, TAX, CART, CONF)),
    "corrects-a-path": Trace("read the cart", one_by_one(read("cart.py"), read("shop/carts.py"), CART)),
    "same-wrong-path-twice": Trace("read the cart", one_by_one(read("cart.py"), read("cart.py"), ls("shop"), CART)),
    "returns-to-a-wrong-path": Trace(
        "find the schema",
        one_by_one(read("schema.sql"), ls(), read("schema.sql"), ls("conf"), read("schema.sql"), CONF),
    ),
    "corrects-bad-json": Trace(
        "read the cart", one_by_one(("read_file", '{"path": "shop/cart.py"'), ("read_file", '{"path": 1}'), CART)
    ),
    "corrects-an-unknown-tool": Trace(
        "read the cart", one_by_one(("cat", {"path": "shop/cart.py"}), ("open", {}), CART)
    ),
    "corrects-a-pattern": Trace("where is price called?", one_by_one(grep("price("), grep("price("), grep("price\\("))),
    "parallel-reads": Trace("compare all", [[CART, PRICES, TAX], [CONF, read("README.md")]]),
    "parallel-identical": Trace("what is the tax?", [[TAX, TAX, TAX], [TAX]], "19 %"),
    "parallel-identical-wide": Trace("what is the tax?", [[grep("RATE")] * 8, [CONF] * 5]),
    "parallel-with-one-that-is-new": Trace(
        "go through parts", [[CONF, read(f"parts/p{n:02}.txt")] for n in range(1, 9)]
    ),
    "fixes-a-bug": Trace("make the tests pass", one_by_one(TEST, CART, FIX, CART, TEST, TAX, read("README.md"), TEST)),
    "fixes-two-bugs": Trace(
        "make the tests pass",
        one_by_one(TEST, CART, FIX, TEST, TAX, edit("shop/tax.py", "RATE = 0.19", "RATE = 0.2"), TEST, CART, TAX),
    ),
    "reads-after-each-edit": Trace(
        "raise the level step by step",
        one_by_one(
            CONF,
            edit("conf/app.toml", "= 3", "= 4"),
            CONF,
            edit("conf/app.toml", "= 4", "= 5"),
            CONF,
            edit("conf/app.toml", "= 5", "= 6"),
            CONF,
        ),
    ),
    "edits-there-and-back": Trace(
        "try a rate of zero and put it back",
        one_by_one(
            TAX,
            edit("shop/tax.py", "0.19", "0.0"),
            TEST,
            TAX,
            edit("shop/tax.py", "0.0", "0.19"),
            TAX,
            TEST,
            grep("RATE", path="shop"),
            TAX,
        ),
    ),
    "an-edit-that-fails-first": Trace(
        "fix the cart", one_by_one(edit("shop/cart.py", "-1", ""), edit("shop/cart.py", "-1", ""), CART, FIX, TEST)
    ),
    "polls-ten-times": Trace("wait for the build", [[JOB]] * 11, "It is done."),
    "polls-and-reads": Trace("wait for the build", [[JOB, CONF] if n % 4 == 0 else [JOB] for n in range(11)], "Done."),
    "polls-and-watches-a-log": Trace(
        "wait for the build", [[JOB] if n % 2 == 0 else [read("logs/app.log", 50)] for n in range(21)], "It is done."
    ),
    "counter": Trace("draw twelve tickets", [[COUNT]] * 12),
    "queue-that-shrinks": Trace("wait until nobody waits", [[QUEUE]] * 9, "Nobody waits."),
    "forty-steps": Trace("weigh the parts", one_by_one(*(read(f"parts/p{n:02}.txt") for n in range(1, 41)))),
    "forty-steps-with-an-index": Trace(
        "weigh the parts",
        one_by_one(*(read("README.md") if n % 5 == 0 else read(f"parts/p{n:02}.txt") for n in range(1, 41))),
    ),
    "forty-steps-two-passes": Trace(
        "weigh the parts, then again with the rate",
        [[read(f"parts/p{n:02}.txt")] for n in range(1, 21)]
        + [[read(f"parts/p{n:02}.txt"), grep(f"weight {n % 13}$", path="parts")] for n in range(1, 21)],
    ),
    "spelled-in-two-ways": Trace(
        "what is the region?", one_by_one(CONF, spelled(CONF, indent=2), TAX, spelled(TAX, separators=(",", ":"))), "eu"
    ),
    "spelled-in-three-ways-with-news": Trace(
        "how are they linked?",
        one_by_one(CART, PRICES, spelled(CART, indent=2), TAX, spelled(CART, separators=(",", ":"))),
    ),
    "second-pass-in-reverse": Trace(
        "read all, then check backwards", one_by_one(CART, PRICES, TAX, CONF, TAX, PRICES, CART)
    ),
    "reads-all-once-more": Trace("read all, then verify", one_by_one(CART, PRICES, TAX, CART, PRICES, TAX)),
    "reads-again-after-compaction": Trace(
        "how did the days go?",
        one_by_one(*(read(f"long/{n}.txt") for n in (1, 2, 3, 4, 1, 5, 1, 2, 6, 1))),
        tree=LONG,
        window=2_000,
    ),
    "reads-one-chapter-after-each-compaction": Trace(
        "how did the days go?",
        one_by_one(*(read(f"long/{n}.txt") for n in (1, 1, 2, 3, 1, 4, 5, 1))),
        tree=LONG,
        window=1_500,
    ),
    "follow-up-reads-again": Trace(
        "what is the region?", one_by_one(CONF, CONF), "eu", then=("and the level?", one_by_one(CONF, CONF), "info")
    ),
}


# --- recording --------------------------------------------------------------------------------------


class Summarising:
    """A script in which no turn has to be kept for a summary: when one is asked for, it is given."""

    def __init__(self, inner: ScriptedLLM) -> None:
        self.inner = inner

    async def reply(self, request: Request, emit: Emit) -> ModelReplied:
        last = request.transcript.messages[-1]
        if isinstance(last, UserMessage) and last.text == SUMMARISE:
            return ModelReplied("It rained in the chapters read so far.")
        return await self.inner.reply(request, emit)


def turns(replies: Iterable[list[Call]], prefix: str, answer: str) -> list[ModelReplied]:
    asked = [
        ModelReplied(
            "",
            tuple(
                ToolCall(f"{prefix}{step}_{at}", name, given if isinstance(given, str) else json.dumps(given))
                for at, (name, given) in enumerate(calls)
            ),
            "tool_calls",
        )
        for step, calls in enumerate(replies, 1)
    ]
    return [*asked, ModelReplied(answer)]


def record(trace: Trace) -> list[Event]:
    """The events of this run, as they are kept."""
    script = turns(trace.replies, "c", trace.answer)
    if trace.then:
        script += turns(trace.then[1], "d", trace.then[2])
    limits = Limits(steps=None, tokens=None, seconds=None, repeats=sys.maxsize, window=trace.window)
    with workspace(trace.tree) as root, ScriptedLLM(*script) as llm:
        agent = Agent(Summarising(llm), [*workspace_tools(root), *own_tools(root)], system="Answer.", limits=limits)
        result = agent.run_sync(trace.question, run_id="trace")
        if trace.then:
            result = agent.run_sync(trace.then[0], continue_run="trace")
    return [*_in_order(_timeless(event) for event in result.events)]


def _timeless(event: Event) -> Event:
    if isinstance(event, ModelReplied):
        return replace(event, seconds=0.0, first_token=None)
    return replace(event, seconds=0.0) if isinstance(event, ToolReturned | Compacted) else event


def _in_order(events: Iterable[Event]) -> Iterator[Event]:
    """Results side by side land in any order; kept in the order in which they were asked for."""
    order: list[str] = []
    landed: list[ToolReturned] = []
    for event in events:
        if isinstance(event, ToolReturned):
            landed.append(event)
            continue
        yield from sorted(landed, key=lambda result: order.index(result.call_id))
        landed.clear()
        if isinstance(event, ModelReplied):
            order = [call.id for call in event.calls]
        yield event


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, trace in TRACES.items():
        lines = [encode(event) for event in record(trace)]
        (FOLDER / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.stdout.write(f"wrote {len(TRACES)} traces\n")


if __name__ == "__main__":
    main()
