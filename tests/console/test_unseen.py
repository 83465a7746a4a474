"""What a person decides by decodes to one text only, and nothing in it hides."""

from __future__ import annotations

import ast
import json
import unicodedata

import pytest
from hypothesis import given, strategies as st

from tool_loop.console.unseen import exact, exact_json

# Whatever can be in the arguments of a call, hostile things more often than by chance.
HOSTILE = "\\\x1b\t\r\n\0\u200b\u202e\u0301\u0338\u3164\U0001d159\U00016fe4\U0001bc9d\U0001107f\u05d0\u0430eu2x0'\"1 "
TEXTS = st.text(st.one_of(st.sampled_from(HOSTILE), st.characters(codec="utf-8")))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


def decoded(shown: str) -> str:
    """Our spellings are those of Python, and \\e besides."""
    plain = shown.replace("\\\\", "\ue000").replace("\\e", "\\x1b").replace("\ue000", "\\\\")
    return str(ast.literal_eval(f'"""{plain.replace(chr(34), chr(92) + chr(34))}"""'))


@given(TEXTS.filter(lambda text: "\ue000" not in text))
def test_what_is_shown_decodes_to_the_text_and_is_one_printable_line(text: str) -> None:
    shown = exact(text)

    assert decoded(shown) == text
    assert all(c.isprintable() for c in shown)


@given(VALUES)
def test_a_value_shown_as_json_reads_back_as_that_value(value: object) -> None:
    shown = exact_json(value)

    assert json.loads(shown) == value
    assert all(c.isprintable() for c in shown)


@pytest.mark.parametrize(
    ("real", "spelled"),
    [("\x1b[2J", "\\e[2J"), ("\u200b", "\\u200b"), ("\t", "\\t"), ("\r", "\\r"), ("\x7f", "\\x7f"), ("\n", "\\n")],
)
def test_a_character_and_the_text_that_spells_it_look_different(real: str, spelled: str) -> None:
    assert exact(real) != exact(spelled)
    assert exact_json(real) != exact_json(spelled)
    assert exact_json([real]) != exact_json([spelled])


INVISIBLE = [
    "\u00ad", "\u034f", "\u061c", "\u115f", "\u1160", "\u17b4", "\u180b", "\u180e", "\u200b", "\u200d", "\u2028",
    "\u2060", "\u2800", "\u3164", "\ufe0f", "\ufeff", "\uffa0", "\ufff9", "\ufffc", "\u00a0", "\u202f", "\u3000",
    "\U0001107f", "\U00013441",
    "\U00016fe4", "\U0001bc9d", "\U0001bca0", "\U0001d159", "\U0001d173", "\U000e0041", "\U000e0101",
]  # fmt: skip


@pytest.mark.parametrize("character", INVISIBLE, ids=lambda c: f"U+{ord(c):04X}")
def test_what_looks_like_nothing_is_spelled_out(character: str) -> None:
    assert exact(f"a{character}b").startswith("a\\")
    assert exact_json(f"a{character}b").startswith('"a\\')


def test_every_mark_is_spelled_out_that_is_drawn_over_its_neighbour() -> None:
    marks = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)).startswith("M")]

    assert len(marks) > 2000
    assert [m for m in marks if not exact(f"a{m}").startswith("a\\")] == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("\u212b", "\u00c5"),  # the unit, and the letter
        ("e\u0301", "\u00e9"),
        ("\uac00", "\u1100\u1161"),  # a syllable, and its letters
        ("1\u05d0", "\u05d01"),  # where a terminal turns the letter round
        ("p\u0430y", "pay"),  # a Cyrillic letter among Latin ones
        ("x", "x\u0336"),
    ],
)
def test_texts_that_a_terminal_draws_alike_are_told_apart(one: str, other: str) -> None:
    # Without what is spelled out, all that is left is drawn as itself.
    assert exact(one) != exact(other)
    assert any("\\" in exact(text) for text in (one, other))


WORDS = [
    "plain", "caf\u00e9", "na\u00efve", "\u4f60\u597d\uff0c\u4e16\u754c", "\u041f\u0440\u0438\u0432\u0435\u0442",
    "\u05e9\u05dc\u05d5\u05dd", "\uac00\ub098", "\U0001f44d", "a\u2026b", "\u03b1 x",
]  # fmt: skip


@pytest.mark.parametrize("text", WORDS)
def test_words_of_all_alphabets_stay_as_they_are(text: str) -> None:
    assert exact(text) == text
