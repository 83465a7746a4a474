"""read_file and grep agree: about what a line is, about encodings, and whichever engine searches.

After public reports: netgrep #44, bashkit #1663, ripgrep #1568 (`$` before CR LF), ripgrep #1 and #322
(encodings), the_silver_searcher #914.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tool_loop.errors import ToolError
from tool_loop.tools.files import read_file
from tool_loop.tools.search import Engine, grep, search_engine
from tool_loop.tools.workspace import Root

ENGINES = [search_engine({}), Engine("re", sys.executable)]
if ENGINES[0].name != "rg":
    found = search_engine()
    ENGINES = [found, ENGINES[1]] if found.name == "rg" else [ENGINES[1]]


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.name)
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


def shown(root: Root, path: str) -> list[str]:
    return read_file(root, path).split("\n")[1:]


def found(root: Root, engine: Engine, pattern: str, **options) -> list[str]:
    """The lines that were found, as `path:line: text`."""
    return asyncio.run(grep(root, pattern, engine=engine, **options)).split("\n")[1:]


TEXT = "import os\nx = 1\n\nGrüße, naïve\ndef f():\n    return x"
FILES = {
    "unix": TEXT.encode(),
    "windows": TEXT.replace("\n", "\r\n").encode(),
    "windows, with an end": (TEXT + "\n").replace("\n", "\r\n").encode(),
    "mixed": TEXT.replace("\n", "\r\n", 2).encode(),
    "with a mark": ("\ufeff" + TEXT).encode(),
    "with a mark, windows": ("\ufeff" + TEXT.replace("\n", "\r\n")).encode(),
    "utf-16-le": ("\ufeff" + TEXT).encode("utf-16-le"),
    "utf-16-be, windows": ("\ufeff" + TEXT.replace("\n", "\r\n")).encode("utf-16-be"),
    "utf-32-le": ("\ufeff" + TEXT).encode("utf-32-le"),
    "utf-32-be, windows": ("\ufeff" + TEXT.replace("\n", "\r\n")).encode("utf-32-be"),
    "latin-1": TEXT.encode("latin-1"),
    "latin-1, windows": TEXT.replace("\n", "\r\n").encode("latin-1"),
}


@pytest.mark.parametrize("name", FILES)
def test_every_line_that_is_shown_is_found_whole_and_under_its_number(tmp_path, engine, name):
    (tmp_path / "f.txt").write_bytes(FILES[name])
    root = Root(tmp_path)

    lines = shown(root, "f.txt")
    assert lines == TEXT.split("\n")
    for number, line in enumerate(lines, 1):
        assert found(root, engine, f"^{re.escape(line)}$", path="f.txt") == [f"f.txt:{number}: {line}"]
    assert found(root, engine, "na.ve$", path="f.txt") == ["f.txt:4: Grüße, naïve"]


@pytest.mark.parametrize("name", [name for name in FILES if "utf-32" not in name])  # only known when it is named
def test_a_search_of_the_directory_finds_it_too(tmp_path, engine, name):
    (tmp_path / "f.txt").write_bytes(FILES[name])
    (tmp_path / "other.txt").write_bytes(FILES["unix"])
    root = Root(tmp_path)

    assert found(root, engine, "^Grüße, na.ve$") == ["f.txt:4: Grüße, naïve", "other.txt:4: Grüße, naïve"]
    assert found(root, engine, "^x = 1$", glob="f*") == ["f.txt:2: x = 1"]
    assert found(root, engine, "^Gr..e", glob="f*") == ["f.txt:4: Grüße, naïve"]
    assert found(root, engine, "GRÜSSE|GRÜßE", ignore_case=True, glob="f*") == ["f.txt:4: Grüße, naïve"]


def test_the_lines_around_a_match_are_those_of_the_file(tmp_path, engine):
    (tmp_path / "f.txt").write_bytes(b"a\r\nna\xefve\r\n\xe9t\xe9\r\nnaive\r\n")

    assert found(Root(tmp_path), engine, "^naïve$", context=1) == ["f.txt-1- a", "f.txt:2: naïve", "f.txt-3- été"]


def test_one_broken_byte_garbles_its_own_line_only(tmp_path, engine):
    (tmp_path / "f.txt").write_bytes("Grüße\n".encode() + b"na\xefve\n" + "Grüße\n".encode())
    root = Root(tmp_path)

    assert read_file(root, "f.txt").split("\n") == ["lines 1-3 of 3, decoded from latin-1", "Grüße", "naïve", "Grüße"]
    assert found(root, engine, "Grüße|naïve") == ["f.txt:1: Grüße", "f.txt:2: naïve", "f.txt:3: Grüße"]
    assert found(root, engine, "Ã") == []


@pytest.mark.parametrize("break_", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_only_a_line_feed_ends_a_line(tmp_path, engine, break_):
    (tmp_path / "f.txt").write_text(f"a{break_}b\nc\n", encoding="utf-8", newline="")
    root = Root(tmp_path)

    assert shown(root, "f.txt") == [f"a{break_}b", "c"]
    assert found(root, engine, "^c$") == ["f.txt:2: c"]
    assert found(root, engine, "^b$") == []
    assert found(root, engine, "^a.b$") == [f"f.txt:1: a{break_}b"]


def test_a_carriage_return_alone_ends_no_line_but_what_stands_beside_it_is_found(tmp_path, engine):
    (tmp_path / "f.txt").write_bytes(b"one\rx = 1\rend\r")
    (tmp_path / "g.txt").write_bytes(b"x = 1\r\r\nb")
    root = Root(tmp_path)

    assert shown(root, "f.txt") == ["one\rx = 1\rend"]
    assert found(root, engine, "^x = 1$") == ["f.txt:1: one\rx = 1\rend", "g.txt:1: x = 1\r"]
    assert found(root, engine, "^end$") == ["f.txt:1: one\rx = 1\rend"]
    assert shown(root, "g.txt") == ["x = 1\r", "b"]


def test_a_pattern_may_name_the_carriage_return(tmp_path, engine):
    (tmp_path / "f.txt").write_bytes(b"one\r\ntwo\nthree\r\n")
    root = Root(tmp_path)

    assert found(root, engine, r"\r$") == ["f.txt:1: one", "f.txt:3: three"]
    assert found(root, engine, r"o\x0d") == []
    assert found(root, engine, "e\r") == ["f.txt:1: one", "f.txt:3: three"]


def test_letters_of_windows_are_found_as_what_they_were_and_as_what_is_shown(tmp_path, engine):
    (tmp_path / "f.txt").write_bytes("“q” €".encode("cp1252"))
    root = Root(tmp_path)

    line = shown(root, "f.txt")[0]
    assert found(root, engine, "“q”") == found(root, engine, re.escape(line)) == [f"f.txt:1: {line}"]


def test_a_line_of_utf8_is_not_found_by_its_bytes(tmp_path, engine):
    (tmp_path / "f.txt").write_bytes("naïve\n\nlatin\n".encode() + b"n\xefve\n")
    (tmp_path / "g.txt").write_bytes("é naïve\n".encode())
    root = Root(tmp_path)

    assert found(root, engine, "na..ve") == []
    assert found(root, engine, "^na[^ï]+ve$") == []
    assert found(root, engine, "^.{5}$") == ["f.txt:1: naïve", "f.txt:3: latin"]
    assert found(root, engine, "Ã©|naïve") == ["f.txt:1: naïve", "g.txt:1: é naïve"]
    assert found(root, engine, "Ã©") == []
    assert found(root, engine, "^n.ve", context=1) == ["f.txt-3- latin", "f.txt:4: nïve"]


@pytest.mark.parametrize("pattern", [r"\w+\.\w+", r"a.[\w]", r"a\.b", r"[[:alpha:]]..x", "[]a].", r"\[.é"])
def test_a_pattern_means_the_same_in_a_file_of_ascii(tmp_path, engine, pattern):
    (tmp_path / "f.txt").write_text("a.b\na..x\n[]]\n")
    if engine.name == "re" and "[:" in pattern:
        pytest.skip("only ripgrep has classes of POSIX")
    lines = found(Root(tmp_path), engine, pattern)
    assert all(line.startswith("f.txt:") for line in lines)
    assert bool(lines) == (pattern != r"\[.é")


def test_what_does_not_compile_is_told_about_the_pattern_as_it_was_given(tmp_path, engine):
    (tmp_path / "f.txt").write_text("a")

    with pytest.raises(ToolError) as caught:
        found(Root(tmp_path), engine, "é.(")
    assert "-u" not in str(caught.value)
    if engine.name == "rg":
        assert found(Root(tmp_path), engine, r"\p{L}|.é") == ["f.txt:1: a"]


def test_one_search_is_enough_unless_a_line_is_in_question(tmp_path):
    """A second pass would cost as much as the first."""
    calls = tmp_path / "calls"
    program = tmp_path / "rg"
    (tmp_path / "root").mkdir()
    (tmp_path / "root/f.txt").write_text("foo\n")
    root = Root(tmp_path / "root")
    program.write_text(f"#!/bin/sh\necho x >> {calls}\nprintf 'f.txt\\0001:1:0:foo\\n'\n")
    program.chmod(0o755)
    for pattern in (r"foo_bar\(", "fo.", "é"):
        calls.write_text("")
        assert found(root, Engine("rg", str(program)), pattern) == ["f.txt:1: foo"]
        assert calls.read_text().split() == ["x"]


letters = st.text(alphabet=st.sampled_from("aé \t.*(ß\\$^[\u2028\x0c\r"), max_size=6)
codings = st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(letters, min_size=1, max_size=5), codings, st.sampled_from(["\n", "\r\n"]))
def test_any_line_that_is_shown_is_found(tmp_path, engine, lines, coding, ending):
    coded = ending.join(lines).replace("\u2028", "" if coding == "latin-1" else "\u2028").encode(coding)
    Path(tmp_path, "f.txt").write_bytes(coded)
    root = Root(tmp_path)
    for number, line in enumerate(shown(root, "f.txt"), 1):
        if "\r" not in line:
            hits = found(root, engine, f"^{re.escape(line)}$", path="f.txt")
            assert f"f.txt:{number}: {line}" in "\n".join(hits)
