"""What a model writes as arguments: strict JSON, or a result that says where it breaks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings, strategies as st

from tool_loop.errors import ToolError
from tool_loop.toolbox.registry import canonical, parse_arguments


@pytest.mark.parametrize("text", ["", "  \n\t", "null", " null ", "{}", " { } "])
def test_nothing_means_no_arguments(text):
    assert parse_arguments(text) == {}


def test_an_object_is_read_as_it_is():
    text = '{"a": [1, 2.5, -0.0, 1e3, true, null, "é\\u00e9\\ud83d\\ude00\\u0000"], "b": {"c": {}}}'

    assert parse_arguments(text) == json.loads(text)


# What is wrong, a word of the message, a word of the hint.
BROKEN = [
    ("```json\n{}\n```", "Expecting value", "code fence"),
    ("~~~\n{}\n~~~", "Expecting value", "code fence"),
    ("Sure! {}", "Expecting value", "only the JSON object"),
    ("\ufeff{}", "Expecting value", "first character is {"),
    ("{'a': 1}", "character 1", "not single quotes"),
    ("{\"a\": 'x'}", "character 6", "not single quotes"),
    ("{a: 1}", "character 1", "double quotes"),
    ('{"a" 1}', "character 5", "double quotes"),
    ('{"a": True}', "character 6", "true, false and null"),
    ('{"a": None}', "character 6", "true, false and null"),
    ('{"a": 1,}', "near", "Remove the comma"),
    ('{"a": [1,]}', "near", "Remove the comma"),
    ('{"a": [,1]}', "near", "Remove the comma"),
    ('{"a": 1} // note', "Extra data", "nothing after it"),
    ('{"a": // note\n1}', "character 6", "no comment|has none"),
    ('{"a": 1 "b": 2}', "character 8", "comma between"),
    ('{"a": "say "hi""}', "character 12", "double quotes"),
    ('{"a": 1}</tool_call>', "character 8", 'remove "</tool_call>"'),
    ('{"a": 1}{"a": 2}', "character 8", "one JSON object"),
    ('{"a": "\\d"}', "escape", "Double each backslash"),
    ('{"a": "x\ny"}', "control character", "line breaks"),
    ('{"a": "x', "Unterminated string at line 1", "ends too early"),
    ('{"a": [1, 2', "character 11", "ends too early"),
    ('{"a": NaN}', "NaN", "usual size"),
    ('{"a": -Infinity}', "-Infinity", "usual size"),
    ('{"a": 1e999}', "1e999 is too large", "usual size"),
    ('{"a": ' + "9" * 5000 + "}", "too many digits", "usual size"),
    ('{"a": 1, "b": 2, "a": 3}', 'key "a" occurs twice', "each key once"),
    ('{"x": {"a": 1, "a": 1}}', 'key "a" occurs twice', "each key once"),
    ('{"a": "\\ud800"}', "half a character", "both halves"),
    ('{"\\udc00": 1}', "half a character", "both halves"),
    ('{"a": "\ud800"}', "half a character", "both halves"),
    ("[" * 10_000, "deeper than 100", "flat"),
    ('{"a":' * 10_000 + "1" + "}" * 10_000, "deeper than 100", "flat"),
    ('{"a":' * 101 + "1" + "}" * 101, "deeper than 100", "flat"),
    ('{"a": ' + "[" * 100 + "]" * 100 + "}", "deeper than 100", "flat"),
    ('["a.py"]', "JSON array", "named fields"),
    ('"{\\"a\\": 1}"', "JSON string", "object itself"),
    ("5", "JSON value 5", "named fields"),
    ("true", "JSON value true", "named fields"),
]


@pytest.mark.parametrize(("text", "message", "hint"), BROKEN, ids=range(len(BROKEN)))
def test_what_is_not_one_json_object_is_refused_with_the_cause(text, message, hint):
    with pytest.raises(ToolError) as caught:
        parse_arguments(text)

    assert caught.value.kind == "bad_json"
    assert message in caught.value.message
    assert any(word in caught.value.hint for word in hint.split("|"))
    assert len(caught.value.message) < 300


def test_the_position_of_the_fault_is_told():
    with pytest.raises(ToolError) as caught:
        parse_arguments('{\n "a": oops}')

    assert caught.value.fields == {"position": 8}
    assert "line 2 column 7" in caught.value.message


@pytest.mark.parametrize("given_", [{"a": 1}, b"{}", None, 7])
def test_arguments_that_are_no_text_are_refused_too(given_):
    with pytest.raises(ToolError, match="not text"):
        parse_arguments(given_)


@pytest.mark.parametrize("text", ['{"a":' * 100 + "1" + "}" * 100, json.dumps({"a": "{" * 500, "b": [[]] * 200})])
def test_what_only_looks_deep_is_read(text):
    assert parse_arguments(text) == json.loads(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1,"b":2}', '{ "b" : 2,\n "a" : 1 }'),
        ('{"a":"\\u00e9"}', '{"a":"é"}'),
        ("", "{}"),
        ("null", " "),
        ('{"x":{"b":1,"a":2}}', '{"x":{"a":2,"b":1}}'),
    ],
)
def test_the_same_arguments_have_the_same_canonical_text(one, other):
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [('{"a":1}', '{"a":"1"}'), ('{"a":1}', '{"a":true}'), ('{"a":[1,2]}', '{"a":[2,1]}'), ('{"a":1}', '{"a":null}')],
)
def test_other_arguments_have_another_canonical_text(one, other):
    assert canonical(one) != canonical(other)


@pytest.mark.parametrize("text", ["not json", '{"a": 1, "a": 1}', '{"a": "\ud800"}', "["])
def test_what_is_not_json_stands_for_itself(text):
    assert canonical(text) == text


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=10,
)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), values), st.booleans())
def test_every_json_object_is_read_and_has_one_canonical_text(value, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=1)

    assert parse_arguments(text) == value
    assert canonical(text) == canonical(json.dumps(value, ensure_ascii=not ascii_only, sort_keys=True))


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_any_text_is_read_or_refused_and_nothing_else(text):
    try:
        value = parse_arguments(text)
    except ToolError as error:
        assert error.kind == "bad_json"
    else:
        assert type(value) is dict
