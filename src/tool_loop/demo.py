"""The demo: a scripted model that fails four times on purpose, in this package's own sources.

Needs no key and no network, and gives the same output every time. The script ignores the hints it
gets, which a real model follows: one hint is not a fix, and the loop does not pretend otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from .api import Agent
from .console.describe import full, outcome_line
from .events import Event, ModelReplied, RunEnded, ToolCall, ToolReturned
from .llm.scripted import ScriptedLLM, calls
from .options import Subscriber
from .result import Result
from .tools import workspace_tools
from .transcript import ToolMessage

if TYPE_CHECKING:
    from .ports import Request

# This very package, wherever it is installed: the demo reads the code that runs it.
ROOT = Path(__file__).parent

QUESTION = "What decides what happens next in a run?"
SYSTEM = "Answer from the files. Use the tools when you need them. Stop and answer when you are done."


def script() -> ScriptedLLM:
    """The model: six calls, four of which fail or come back short, and an answer made from what it read."""
    return ScriptedLLM(
        _call(1, "read_file", '{"path": "src/agent.py"}', "The loop should be in src/agent.py."),
        _call(2, "list_dir", '{"path": "src"}', "It is not there. What is in src?"),
        _call(3, "list_dir", '{"path": "."}', "Nor is that. Then from the top."),
        _call(4, "grep", r'{"pattern": "def next_move("}', "agent.py is here. Which line?"),
        _call(5, "grep", r'{"pattern": "^def next_move\\("}', "The parenthesis has to be escaped."),
        _call(6, "read_file", '{"path": "agent.py"}', "Now read it."),
        _answer,
    )


def _call(n: int, name: str, arguments: str, text: str) -> ModelReplied:
    return calls(ToolCall(f"call_{n}", name, arguments), text=text)


def _answer(request: Request) -> str:
    """The answer, from the results in the request: the line moves when the file is edited."""
    results = [m.content for m in request.transcript.messages if isinstance(m, ToolMessage)]
    place = re.search(r"^(agent\.py):(\d+): ", results[4], re.MULTILINE)
    assert place is not None, "the demo no longer finds next_move in agent.py"
    return f"next_move, in {place[1]}, line {place[2]}. It looks at what is on record, and does nothing itself."


async def run_demo(watch: Subscriber | None = None) -> Result:
    """Run the script with the real loop and the real tools."""
    from .tools.search import search_engine

    # Always the same engine: each explains a broken pattern in its own words.
    tools = workspace_tools(ROOT, engine=search_engine({"TOOL_LOOP_RG": "none"}))
    return await Agent(script(), tools, system=SYSTEM).run(QUESTION, run_id="demo", on_event=watch)


class Steps:
    """A subscriber that makes one line of each step: `step 1: read_file  src/agent.py  -> not_found: no such file`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._asked: dict[str, ToolCall] = {}

    def __call__(self, happening: object) -> None:
        match happening:
            case ModelReplied():
                self._asked.update((call.id, call) for call in happening.calls)
            case ToolReturned():
                call = self._asked[happening.call_id]
                said = re.search(r': "(.*)"\}$', call.arguments)
                assert said is not None
                argument = said[1].replace("\\\\", "\\")
                self._add(f"{call.name:<10} {argument:<17} -> {_outcome(happening, call)}")
            case RunEnded(answer=answer):
                self._add(f"answer     {answer}")
            case _:
                pass

    def _add(self, line: str) -> None:
        self.lines.append(f"step {len(self.lines) + 1}: {line}")


def _outcome(result: ToolReturned, call: ToolCall) -> str:
    line = outcome_line(result, call)
    # The hints are in the transcript; the script does not follow them.
    return line.partition(" (")[0] if result.error else line.replace("; read on with start_line=201", "")


def transcript(events: Iterable[Event]) -> str:
    """Every message and every result of the run, as Markdown."""
    parts = [
        "# The demo, message by message\n",
        "Written by `python demo.py --transcript examples/transcript.md` and compared by the tests.",
        "The files are those of this package, so it changes with them.",
        f"The model is a script; the loop, the tools and the files are real. Tools: {_tool_names()}.\n",
    ]
    asked: dict[str, ToolCall] = {}
    step = 0
    for event in events:
        if isinstance(event, ModelReplied):
            step += 1
            asked.update((call.id, call) for call in event.calls)
            parts.append(f"## Step {step}\n")
        if isinstance(event, ToolReturned):
            parts.append(f"Result{f' ({event.error})' if event.error else ''}:\n\n{_fenced(event.content)}\n")
        elif isinstance(event, ModelReplied):
            parts.append(f"{event.text}\n")
            parts += [f"Call: `{call.name}` `{call.arguments}`\n" for call in event.calls]
        elif not isinstance(event, RunEnded):  # the answer is the text of the last reply
            parts += [f"{s.heading.capitalize()}: {s.body}\n" for s in full(event, asked, step)]
    return "\n".join(parts)


def _tool_names() -> str:
    return ", ".join(f"`{tool.name}`" for tool in workspace_tools(ROOT))


def _fenced(text: str) -> str:
    longest = max((len(ticks) for ticks in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}text\n{text}\n{fence}"
