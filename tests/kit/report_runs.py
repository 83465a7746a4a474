"""Runs to make reports of, written down record by record as a journal would give them."""

# ruff: noqa: E501  texts and tables read better on one line

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from tool_loop import events as e
from tool_loop.events import ModelReplied, Retry, ToolCall, ToolReturned, Usage

BEGAN = 1_790_000_000.0
Record = tuple[int, float | None, e.Event]


def failure(kind: str, message: str, hint: str = "", **more: object) -> str:
    return json.dumps({"error": kind, "message": message} | ({"hint": hint} if hint else {}) | more)


class Writer:
    """Writes events down, each at a moment of its own."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.now = 0.0

    def put(self, event: e.Event, after: float = 0.0) -> None:
        self.now += after
        self.records.append((len(self.records) + 1, BEGAN + self.now, event))

    def reply(
        self, text: str, *calls: ToolCall, took: float = 1.0, tokens: tuple[int, int, int] = (0, 0, 0), **more: object
    ) -> None:
        usage = Usage(tokens[0], tokens[1], tokens[2], None, None)
        stop = "tool_calls" if calls else "stop"
        reply = ModelReplied(
            text,
            calls,
            stop,
            usage,
            model="gpt-5-mini",
            origin="api.example.com",
            seconds=took,
            cost=tokens[0] * 2.5e-7 + tokens[1] * 2e-6,
        )  # type: ignore[arg-type]
        self.put(replace(reply, **more), took)

    def results(self, *results: ToolReturned) -> None:
        """Results of calls that ran side by side from now on."""
        start = self.now
        for result in sorted(results, key=lambda r: r.seconds):
            self.now = start + result.seconds
            self.put(result)


def call(n: str, name: str, **arguments: object) -> ToolCall:
    return ToolCall(n, name, json.dumps(arguments))


def rich() -> list[Record]:
    """Something of everything: retries, siblings, failures mended and not, approval, crash, compaction."""
    w = Writer()
    w.put(e.RunStarted(
        "Which class reports a tool's failure to the model, where is it defined, and who catches it? Then note the answer in NOTES.md.",
        "Use the tools when you need them. Stop and answer when you are done.",
        (e.Example("Where is main?", "grep", '{"pattern": "def main"}', "main.py:3: def main():", "In main.py, line 3."),),
        json.dumps({"root": "~/src/tool-loop", "version": "0.1.0"}),
    ))  # fmt: skip
    w.reply(
        "I will look for the class and list the sources at the same time.",
        call("c1", "grep", pattern="class ToolError("), call("c2", "list_dir", path="src"), call("c3", "read_file", path="src/tool_loop/error.py"),
        took=2.4, tokens=(1_180, 96, 0),
        retries=(Retry("rate_limit", "429 from api.example.com: 20 requests per minute", 0.9, 429),), first_token=1.3,
        reasoning="The class is probably called ToolError. A grep finds its definition; the listing tells me the layout.",
    )  # fmt: skip
    w.results(
        ToolReturned("c1", failure("invalid_argument", "'pattern' is not a regular expression: unclosed group at position 15", "escape the parenthesis: class ToolError\\("), "invalid_argument", 0.03),
        ToolReturned("c2", "src/\n  tool_loop/\n    agent.py\n    errors.py\n    events.py\n    registry.py", None, 0.01),
        ToolReturned("c3", failure("not_found", "no file src/tool_loop/error.py", "did you mean src/tool_loop/errors.py?"), "not_found", 0.02),
    )  # fmt: skip
    w.reply(
        "The pattern needs an escape, and the file is called errors.py.",
        call("c4", "grep", pattern="class ToolError\\("), call("c5", "read_file", path="src/tool_loop/errors.py", start_line="90"), call("c6", "grep", pattern="except ToolError"), call("c7", "run_tests", path="tests"),
        took=1.7, tokens=(1_690, 120, 1_152), first_token=0.6,
    )  # fmt: skip
    w.results(
        ToolReturned("c4", "src/tool_loop/errors.py:97: class ToolError(ToolLoopError):", None, 0.21),
        ToolReturned("c5", failure("invalid_arguments", "'start_line' must be integer, got str", "Lines count from 1; leave it out to start at the top."), "invalid_arguments", 0.01),
        ToolReturned("c6", "src/tool_loop/toolbox/failures.py:31: except ToolError as error:\nsrc/tool_loop/toolbox/registry.py:188: except Exception as failure:", None, 0.34),
        ToolReturned("c7", failure("timed_out", "run_tests was stopped after 2 s", "run one file instead of all"), "timed_out", 2.0),
    )  # fmt: skip
    w.reply(
        "", call("c8", "read_file", path="src/tool_loop/errors.py", start_line=90), took=1.1, tokens=(2_240, 41, 1_664)
    )
    w.results(ToolReturned("c8", "\n".join(f"{n}: " + line for n, line in enumerate(["", "class ToolLoopError(Exception):", '    """Base of everything this package raises on purpose."""', "", "", "class ToolError(ToolLoopError):", '    """Raise it in a tool to tell the model what went wrong; it becomes the call\'s result."""'], 90)) + "\n" + "# …" * 900, None, 0.02))  # fmt: skip
    w.reply(
        "Now I write the note.", call("c9", "write_file", path="NOTES.md", content="# Failures\n\nToolError (errors.py, line 95) becomes the call's result.\n"),
        took=1.4, tokens=(4_410, 77, 2_176),
    )  # fmt: skip
    w.put(e.ApprovalRequested((e.ApprovalRequest("c9", "f" * 64),)), 0.01)
    w.put(e.ApprovalDecided("c9", True, "ana", "fine, but only this file", "f" * 64), 5_400)
    w.put(e.IntentRecorded(("c9",), ("c9",)))
    w.put(e.RunInterrupted("cancelled"), 0.4)
    w.put(e.RunResumed("worker-2"), 42.0)
    w.results(ToolReturned("c9", failure("outcome_unknown", "this call was started, then the run was interrupted: it may or may not have happened", "check first whether it happened"), "outcome_unknown", 0.0))  # fmt: skip
    w.put(e.Compacted(("c8",), "", 0), 0.1)
    w.reply(
        "Let me check whether the note was written.",
        call("c10", "read_file", path="NOTES.md"),
        took=1.2,
        tokens=(2_020, 48, 1_152),
    )
    w.results(
        ToolReturned("c10", "# Failures\n\nToolError (errors.py, line 95) becomes the call's result.\n", None, 0.01)
    )
    answer = (
        "ToolError, defined in src/tool_loop/errors.py at line 95, reports a tool's failure to the model. "
        "The registry catches it (registry.py, line 188) and turns it into the call's result as JSON with a kind, a message and a hint.\n\n"
        "The note is in NOTES.md. The tests were not run to their end: they took longer than two seconds."
    )
    w.reply(answer, took=2.1, tokens=(2_150, 131, 1_920), first_token=0.7)
    w.put(e.RunEnded("answered", answer))
    return w.records


def long(steps: int = 400) -> list[Record]:
    """A run of many steps, with a summary every hundred and a failure now and then."""
    w = Writer()
    w.put(e.RunStarted(f"Check every one of the {steps} modules for missing docstrings and list them."))
    size = 900
    for n in range(1, steps):
        kind = {0: "not_found", 5: "timed_out"}.get(n % 23)
        calls = [
            call(f"a{n}", "read_file", path=f"src/module_{n:03d}.py"),
            call(f"b{n}", "grep", pattern=f"def test_{n}"),
        ][: 1 + n % 2]
        took = 0.8 + (n * 7 % 11) / 9
        w.reply(f"Module {n} next." if n % 3 else "", *calls, took=took, tokens=(size, 45 + n % 30, int(size * 0.8)))
        texts = [f'"""Module {n}."""\n\ndef run() -> None: ...\n' * 3, f"tests/test_{n}.py:12: def test_{n}():"]
        w.results(*(
            ToolReturned(c.id, failure(kind, f"no luck with {c.name}") if kind else texts[i], kind, 0.05 + (n * 13 % 17) / 20 * (i + 0.5))
            for i, c in enumerate(calls)
        ))  # fmt: skip
        size += 240
        if n % 100 == 0:
            w.put(
                e.Compacted(
                    (),
                    f"Modules 1 to {n} are checked; 3 lack docstrings: 17, 40, 77.",
                    len(w.records) - 4,
                    Usage(size, 60),
                    0.001,
                    2.0,
                ),
                2.0,
            )
            size = 1_500
    w.put(e.LimitReached("step limit"))
    answer = "Modules 17, 40 and 77 lack docstrings. The last module was not checked."
    w.reply(answer, took=1.5, tokens=(size, 30, 0))
    w.put(e.RunEnded("step limit", answer))
    return w.records


def hostile(size: int = 1_000_000) -> list[Record]:
    """Content that would like to be more than content."""
    evil = (
        "</script></pre></details><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    )
    w = Writer()
    w.put(e.RunStarted(evil + " \u202e\u2066 q", evil, (), json.dumps({evil: evil})))
    w.reply(
        evil,
        ToolCall(evil[:20], evil, evil),
        ToolCall("x2", "read", json.dumps({evil: evil})),
        took=1,
        model=evil,
        origin=evil,
        reasoning=evil,
        retries=(Retry(evil, evil, 1.0),),
    )
    w.results(
        ToolReturned(evil[:20], evil + "\x1b[31m\x00\ud800\u2028\U000e0041", evil, 0.1),
        ToolReturned("x2", "x" * size, None, 0.2),
    )
    w.put(e.ApprovalDecided("x2", True, evil, evil))
    w.put(e.Compacted(("x2",), evil, 2))
    w.put(e.RunInterrupted(evil, evil))
    w.put(e.RunResumed(evil))
    w.put(e.Reminded(evil))
    w.put(e.LimitReached(evil))
    w.put(e.RunEnded(evil, evil))
    return w.records


def moments(records: list[Record]) -> Iterator[float | None]:
    return (at for _, at, _ in records)
