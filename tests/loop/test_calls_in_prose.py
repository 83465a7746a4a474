"""Calls written as text are noticed in every form models were seen to use, and ordinary answers are not."""

from __future__ import annotations

import time

import pytest

from tool_loop.calls_in_prose import looks_like_a_call

NAMES = ("read_file", "grep", "list_dir")

CALLS = [
    pytest.param('```json\n{"name": "read_file", "arguments": {"path": "a.py"}}\n```', id="json fence"),
    pytest.param('<tools>\n{"name": "grep", "arguments": {"pattern": "x"}}\n</tools>', id="tools tag"),
    pytest.param('<tool_call>\n{"name": "grep", "arguments": {"pattern": "x"}}\n</tool_call>', id="tool_call tag"),
    pytest.param('{{"name": "list_dir", "arguments": {{"path": "."}}}}', id="doubled braces"),
    pytest.param('I will look.\n{"arguments": {"path": "."}, "name": "list_dir"}', id="arguments first"),
    pytest.param('{"type": "function", "name": "grep", "parameters": {"pattern": "x"}}', id="type first"),
    pytest.param('{"name": "grep", "id": "call_1", "arguments": {"pattern": "x"}}', id="a member between"),
    pytest.param('{"tool_calls": [{"function": {"name": "grep", "arguments": "{}"}}]}', id="the whole turn as text"),
    pytest.param('{"action": "grep", "action_input": {"pattern": "x"}}', id="action object"),
    pytest.param('[TOOL_CALLS][{"name": "grep", "arguments": {"pattern": "x"}}]', id="mistral list"),
    pytest.param('[TOOL_CALLS]grep[ARGS]{"pattern": "x"}', id="mistral newer"),
    pytest.param('<function=read_file>{"path": "a.py"}</function>', id="llama function tag"),
    pytest.param("<tool_call>\n<function=grep>\n<parameter=pattern>\nx\n</parameter>\n</function>", id="qwen coder"),
    pytest.param('<|python_tag|>read_file.call(path="a.py")', id="python tag"),
    pytest.param('[read_file(path="a.py"), grep(pattern="x")]', id="pythonic list"),
    pytest.param('<|channel|>commentary to=functions.grep <|message|>{"pattern":"x"}', id="harmony"),
    pytest.param("<\uff5ctool\u2581call\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>grep\n", id="deepseek"),
    pytest.param('<\uff5cDSML\uff5cinvoke name="grep">', id="deepseek newer"),
    pytest.param('<function_calls>\n<invoke name="grep">\n<parameter name="pattern">x</parameter>', id="invoke"),
    pytest.param("<read_file>\n<path>a.py</path>\n</read_file>", id="a tag of the tool's name"),
    pytest.param('<|tool_call>call:grep{pattern:"x"}', id="gemma"),
    pytest.param('Thought: look\nAction: grep\nAction Input: {"pattern": "x"}', id="react"),
    pytest.param('functools[{"name": "grep", "arguments": {"pattern": "x"}}]', id="phi"),
]

ANSWERS = [
    pytest.param("The answer is 42.", id="plain"),
    pytest.param("I used grep and read_file to find it.", id="names alone"),
    pytest.param('The config is {"name": "demo", "arguments": []}.', id="an object of another name"),
    pytest.param("Call `read_file(path)` in your own code: x = [read_file(p) for p in paths]", id="code in an answer"),
    pytest.param("See <tools/> in the XML; there is no call here.", id="a tag without a name"),
    pytest.param("<tool_call>unknown</tool_call>", id="a mark without a known name"),
    pytest.param('{"name": "grep", "version": "3.11"}', id="a tool's name without arguments"),
    pytest.param("| [grep] | searches |\n| [read_file] | reads |", id="a table"),
    pytest.param("Action: none needed.", id="the word action"),
]


@pytest.mark.parametrize("text", CALLS)
def test_a_call_in_prose_is_noticed(text: str) -> None:
    assert looks_like_a_call(text, NAMES)


@pytest.mark.parametrize("text", ANSWERS)
def test_an_ordinary_answer_is_no_call(text: str) -> None:
    assert not looks_like_a_call(text, NAMES)


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 200_000 + "grep",
        "[grep(" * 40_000,
        '"name": "grep", ' * 20_000,
        '"arguments": {' * 20_000 + "grep",
        "<tools>" * 30_000 + "grep",
    ],
    ids=["blank lines", "open brackets", "names", "arguments", "marks"],
)
def test_looking_takes_no_longer_than_the_text_is_long(text: str) -> None:
    started = time.process_time()

    looks_like_a_call(text, NAMES)

    assert time.process_time() - started < 1.0
