"""What a model said is kept once, without a key, and played back without a network."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.runs import of
from tool_loop import (
    Agent,
    Limits,
    MemoryJournal,
    ModelReplied,
    OpenAIChat,
    ProviderError,
    ScriptedLLM,
    ToolCall,
    UsageError,
    tool,
)
from tool_loop.events import Compacted, ReasoningDelta, TextDelta, ToolReturned, Usage
from tool_loop.recording.exchange import AskedQuestion, Exchange, read_recording
from tool_loop.testing import Recording, ReplayLLM, ReplayMismatch, run_virtual
from tool_loop.transcript import UserMessage

LOOK = ToolCall("c1", "look", '{"at": "home"}')


@tool(effect="read")
async def look(at: str) -> str:
    """Look."""
    return f"at {at}\nthere is a cat"


def asked(llm: object, question: str = "q", tools: object = (look,), **options: object):
    return run_virtual(Agent(llm, tools, **options).run(question, run_id="r"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "talk.jsonl"


def recorded(path: Path, *turns: object, **options: object):
    """A run that is written down."""
    return asked(Recording(ScriptedLLM(*turns), path), **options)


def timeless(events: object) -> list[object]:
    """The events without what differs from one time to the next."""
    return [replace(e, seconds=0, first_token=None, retries=()) if isinstance(e, ModelReplied) else e for e in events]


# --- recording ------------------------------------------------------------------------------------


def test_a_run_is_recorded_and_played_back(path: Path) -> None:
    busy = ProviderError("busy", kind="overloaded", status=529, retry_after=2.0, tokens=7)
    full = ModelReplied("Look.", (LOOK,), "tool_calls", Usage(10, 5, 3), "m", "o", '{"sig": "x"}', "thinking")
    first = recorded(path, busy, full, "a cat")
    replay = ReplayLLM(path)
    second = asked(replay)

    assert replay.left == 0
    assert timeless(second.events) == timeless(first.events)
    retry = of(ModelReplied, second.events)[0].retries[0]
    assert (retry.kind, retry.message, retry.status, retry.tokens) == ("overloaded", "busy", 529, 7)
    assert retry.waited >= 2


def test_each_exchange_is_one_line_that_holds_only_what_is_new(path: Path) -> None:
    recorded(path, *[replace(LOOK, id=f"c{n}", arguments=f'{{"at": "{n}"}}') for n in range(9)], "done")
    lines = path.read_text().splitlines()

    assert len(lines) == 11
    assert [len(json.loads(line)["add"]) for line in lines[1:]] == [1] + [2] * 9
    assert [json.loads(line).get("after") for line in lines[1:]] == [None, *range(1, 10)]
    assert max(map(len, lines[2:])) < 2 * min(map(len, lines[2:]))


def test_what_the_file_has_is_not_written_again(path: Path) -> None:
    for _ in range(3):
        recorded(path, ProviderError("busy", kind="overloaded"), LOOK, "a cat")
    once = path.read_text()
    recorded(path, LOOK, "a dog")

    assert len(once.splitlines()) == 4
    assert path.read_text().startswith(once)
    assert len(path.read_text().splitlines()) == 5


def test_runs_side_by_side_are_kept_apart(path: Path) -> None:
    recording = Recording(ScriptedLLM(LOOK, LOOK, "one", "two"), path)
    agent = Agent(recording, [look])

    async def main() -> list[str]:
        import asyncio

        results = await asyncio.gather(agent.run("a"), agent.run("b"))
        return sorted(result.answer for result in results)

    assert run_virtual(main()) == ["one", "two"]
    assert {asked(ReplayLLM(path), question).answer for question in "ab"} == {"one", "two"}


def test_a_line_that_was_cut_short_is_dropped_and_written_anew(path: Path) -> None:
    recorded(path, LOOK, "a cat")
    whole = path.read_text()
    path.write_text(whole[:-20])

    assert ReplayLLM(path).left == 1
    recorded(path, LOOK, "a cat")
    assert path.read_text() == whole


def test_no_key_gets_into_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "very-secret-value")
    key = "sk-proj-0123456789abcdefghij"
    llm = OpenAIChat("m", "http://127.0.0.1:1/v1", key)

    @tool(effect="read")
    async def tells() -> str:
        """Tell."""
        return f"{key} and very-secret-value"

    refusal = ProviderError(f"no {key}", kind="overloaded", raw=f"no {key}")
    result = recorded(path, refusal, ToolCall("c", "tells"), ModelReplied(f"it is {key}"), tools=[tells])

    assert key in result.answer
    assert key not in path.read_text()
    assert "very-secret-value" not in path.read_text()
    assert asked(ReplayLLM(path), tools=[tells]).answer == "it is [key]"
    del llm


def test_a_recording_answers_for_its_model(path: Path) -> None:
    recording = Recording(OpenAIChat("m", "http://127.0.0.1:1/v1"), path)

    assert recording.model == "m"
    assert not hasattr(recording, "nothing")
    assert not hasattr(Recording.__new__(Recording), "llm")


def test_a_cancelled_request_leaves_nothing(path: Path) -> None:
    from tool_loop.llm.scripted import Turn

    recorded(path, Turn("late", seconds=100), "in short", limits=Limits(seconds=50))

    assert [e.outcome.text for e in read_recording(path)] == ["in short"]


@pytest.mark.parametrize("make", [lambda p: Recording(ScriptedLLM(), p), ReplayLLM])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hello\n", "is not a recording; make one with Recording"),
        ("[]\n", "is not a recording"),
        ('{"recording": 99}\n', "has format 99, this version of tool-loop reads 1"),
        ('{"recording": 1}\n{"add": []}\n', "line 2: not an exchange"),
        ('{"recording": 1}\nnull\n', "line 2: not an exchange"),
        ('{"recording": 1}\n{"after": 5, "add": []}\n', "line 2: not an exchange"),
        (
            '{"recording": 1}\n{"system": "", "tools": [], "add": [], "reply": {"event": "run_resumed"}}\n',
            "a reply is expected, not RunResumed",
        ),
        ('{"recording": 1}\n{"system": "", "tools": [], "add": [], "reply": {"event": "x"}}\n', "no event 'x'"),
    ],
)
def test_a_file_that_is_no_recording_says_so(tmp_path: Path, make, text: str, says: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text)

    with pytest.raises(UsageError, match=says):
        make(path)


def test_a_file_that_is_not_there_or_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    with pytest.raises(UsageError, match="cannot read the recording"):
        ReplayLLM(tmp_path / "nothing.jsonl")
    with pytest.raises(UsageError, match="cannot write the recording"):
        Recording(ScriptedLLM(), tmp_path / "file" / "x.jsonl")
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot read the recording"):
        ReplayLLM(str(tmp_path / "bytes.jsonl"))


# --- playing --------------------------------------------------------------------------------------


def test_a_request_that_differs_shows_the_nearest_one_as_a_diff(path: Path) -> None:
    recorded(path, LOOK, replace(LOOK, id="c2", arguments='{"at": "work"}'), "done")

    @tool(name="look", effect="read")
    async def changed(at: str) -> str:
        """Look."""
        return f"at {at}\nthere is a dog" if at == "work" else f"at {at}\nthere is a cat"

    with pytest.raises(ReplayMismatch) as caught:
        asked(ReplayLLM(path), tools=[changed])

    assert caught.value.kind == "replay"
    assert caught.value.nearest == 3
    assert "-result of look (c2): there is a cat\n+result of look (c2): there is a dog" in caught.value.diff
    assert str(caught.value).startswith("this request was not recorded; the nearest is exchange 3\n--- exchange 3")


def test_a_system_prompt_or_a_tool_that_changed_is_a_difference(path: Path) -> None:
    recorded(path, LOOK, "done")

    @tool(name="look", effect="read")
    async def described(at: str) -> str:
        """Look somewhere else."""
        return at

    with pytest.raises(ReplayMismatch, match="-system: Use the tools"):
        asked(ReplayLLM(path), system="Be brief.")
    with pytest.raises(ReplayMismatch, match=r'\+tool look \["Look somewhere else'):
        asked(ReplayLLM(path), tools=[described])
    with pytest.raises(ReplayMismatch, match=r"\+user: another question"):
        asked(ReplayLLM(path), "another question")


def test_a_long_difference_is_cut(path: Path) -> None:
    recorded(path, "done", question="\n".join(f"line {n} {'x' * 500}" for n in range(200)))

    with pytest.raises(ReplayMismatch) as caught:
        asked(ReplayLLM(path), "\n".join(f"row {n}" for n in range(200)))
    lines = caught.value.diff.splitlines()
    assert lines[-1].startswith("... and ")
    assert max(map(len, lines)) < 250


def test_an_exchange_is_played_once_or_as_often_as_it_is_asked_for(path: Path) -> None:
    recorded(path, "one")
    replay = ReplayLLM(path)
    asked(replay)

    with pytest.raises(ReplayMismatch, match="recorded 1 time and comes once more; repeat=True"):
        asked(replay)
    again = ReplayLLM(path, repeat=True)
    assert [asked(again).answer for _ in range(3)] == ["one"] * 3


def test_failed_attempts_can_be_left_out(path: Path) -> None:
    recorded(path, ProviderError("busy", kind="overloaded"), "one")

    result = asked(ReplayLLM(path, errors=False))

    assert of(ModelReplied, result.events)[0].retries == ()


def test_what_differs_from_run_to_run_can_be_made_the_same(tmp_path: Path, path: Path) -> None:
    def where(folder: Path):
        @tool(name="look", effect="read")
        async def tell(at: str) -> str:
            """Tell."""
            return f"{folder}/{at}"

        return tell

    def normalize(text: str) -> str:
        return text.replace(str(tmp_path / "a"), "ROOT").replace(str(tmp_path / "b"), "ROOT")

    asked(Recording(ScriptedLLM(LOOK, "done"), path, normalize=normalize), tools=[where(tmp_path / "a")])
    other = [where(tmp_path / "b")]

    assert asked(ReplayLLM(path, normalize=normalize), tools=other).answer == "done"
    with pytest.raises(ReplayMismatch):
        asked(ReplayLLM(path), tools=other)


def test_text_is_streamed_in_pieces_again(path: Path) -> None:
    recorded(path, ModelReplied("abcdef", reasoning="hm"))
    seen: list[object] = []
    asked(ReplayLLM(path, pieces=4), on_event=seen.append)

    assert [d.text for d in of(TextDelta, seen)] == ["abcd", "ef"]
    assert [d.text for d in of(ReasoningDelta, seen)] == ["hm"]


def test_an_empty_recording_says_so(tmp_path: Path) -> None:
    with pytest.raises(ReplayMismatch, match="the recording is empty"):
        asked(ReplayLLM([]))
    (tmp_path / "x.jsonl").write_text('{"recording": 1}\n')
    assert ReplayLLM(tmp_path / "x.jsonl").left == 0


def test_of_many_alike_the_nearest_is_found() -> None:
    talks = [
        Exchange(AskedQuestion("", (UserMessage(f"question {n}"),), (), may_call=n != 3), ModelReplied(str(n)))
        for n in range(5)
    ]

    with pytest.raises(ReplayMismatch, match="the nearest is exchange 5"):
        asked(ReplayLLM(talks), "question 4!", tools=(), system="")
    with pytest.raises(ReplayMismatch, match=r"-\(tools are withheld\)"):
        asked(ReplayLLM(talks), "question 3", tools=(), system="")


# --- from a journal -------------------------------------------------------------------------------


def test_a_run_is_played_from_its_own_journal() -> None:
    journal = MemoryJournal()
    first = asked(ScriptedLLM(LOOK, "a cat"), journal=journal)
    replay = ReplayLLM.from_journal(journal, "r")

    assert asked(replay).answer == first.answer
    assert replay.left == 0


def test_a_summary_is_played_too_and_so_is_a_last_word() -> None:
    journal = MemoryJournal()

    @tool(name="look", effect="read")
    async def long(at: str) -> str:
        """Look."""
        return f"{at} " * 300

    calls = [replace(LOOK, id=f"c{n}", arguments=f'{{"at": "{n}"}}') for n in (1, 2, 3)]
    turns = [ModelReplied("", (call,), usage=Usage(900 * n, 10)) for n, call in enumerate(calls, 1)]
    settings = {"limits": Limits(window=3_000, steps=4), "tools": [long]}
    more = ["they were looked at", replace(LOOK, id="c9"), "in short"]
    first = asked(ScriptedLLM(*turns, *more), journal=journal, **settings)
    replay = ReplayLLM.from_journal(journal, "r")
    second = asked(replay, **settings)

    assert [c.summary for c in of(Compacted, first.events)] == ["", "they were looked at"]
    assert first.reason == "step limit"
    assert (second.answer, second.reason, replay.left) == (first.answer, first.reason, 0)
    assert [r.content for r in of(ToolReturned, second.events)] == [r.content for r in of(ToolReturned, first.events)]


def test_a_tool_that_gives_something_else_today_is_shown() -> None:
    journal = MemoryJournal()
    asked(ScriptedLLM(LOOK, "a cat"), journal=journal)

    @tool(name="look", effect="read")
    async def changed(at: str) -> str:
        """Look."""
        return "a dog"

    with pytest.raises(ReplayMismatch, match=r"\+result of look \(c1\): a dog"):
        asked(ReplayLLM.from_journal(journal, "r"), tools=[changed])
