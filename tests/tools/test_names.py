"""Names that look alike: blanks that are not the keyboard's, letters in two forms.

After public reports: claude-code #59381 and #85673, opencode #22574, pi #181 and #8877, code_puppy #911
(macOS puts U+202F or U+00A0 into the names of screenshots, and what is typed has a blank there).
"""

from __future__ import annotations

import asyncio
import sys
import unicodedata
from pathlib import Path

import pytest

from tool_loop.errors import ToolError
from tool_loop.tools._beneath import kernel, walk
from tool_loop.tools.change import edited, make, written
from tool_loop.tools.files import list_dir, read_file
from tool_loop.tools.search import grep
from tool_loop.tools.workspace import Root

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="its file systems fold some of these names themselves")
NFD = unicodedata.normalize("NFD", "Grüße")
OPENERS = [walk, kernel] if sys.platform.startswith("linux") else [walk]


def made(directory: Path, *names: str) -> Root:
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"needle in {name.encode('unicode_escape').decode()}\n", encoding="utf-8")
    return Root(directory)


ALIKE = [
    ("Screenshot at 4.42\u202fPM.txt", "Screenshot at 4.42 PM.txt"),
    ("v\u00a013.05.txt", "v 13.05.txt"),
    ("資料\u3000最終.txt", "資料 最終.txt"),
    ("a\u2009b.txt", "a b.txt"),
    ("a b.txt", "a\u00a0b.txt"),
    ("a\u00a0b.txt", "a\u202fb.txt"),
    (f"{NFD}.txt", "Grüße.txt"),
    ("Grüße.txt", f"{NFD}.txt"),
    ("ﬁle.txt", "file.txt"),
    ("１.txt", "1.txt"),
    (f"{NFD}/x\u00a0y/z.txt", "Grüße/x y/z.txt"),
    ("a\u00a0b/c/../z.txt", "a b/c/../z.txt"),
]


@pytest.mark.parametrize(("there", "asked"), ALIKE, ids=range(len(ALIKE)))
@pytest.mark.parametrize("opener", OPENERS)
def test_the_one_name_that_looks_the_same_is_meant(tmp_path, there, asked, opener):
    (tmp_path / there).parent.mkdir(parents=True, exist_ok=True)
    made(tmp_path, there)
    root = Root(tmp_path, opener=opener)

    assert "needle in" in read_file(root, asked)
    assert "needle in" in asyncio.run(grep(root, "needle", path=asked))
    assert "needle in" in read_file(root, there)


@pytest.mark.parametrize(("there", "asked"), ALIKE[:4], ids=range(4))
def test_the_name_is_shown_so_that_it_can_be_told_from_what_was_typed_and_given_back(tmp_path, there, asked):
    root = made(tmp_path, there)
    line = list_dir(root).split("\n")[1]
    name = line.rpartition(" (")[0]

    assert "\\u" in name
    assert name != asked
    assert "needle in" in read_file(root, name)
    assert asyncio.run(grep(root, "needle")).split("\n")[1].startswith(f"{name}:1:")


def test_the_exact_name_comes_first(tmp_path):
    root = made(tmp_path, "a b.txt", "a\u00a0b.txt", "Grüße.txt", f"{NFD}.txt")

    for name in ("a b.txt", "a\u00a0b.txt", "Grüße.txt", f"{NFD}.txt"):
        assert f"needle in {name.encode('unicode_escape').decode()}" in read_file(root, name)


def test_of_several_that_look_alike_none_is_guessed(tmp_path):
    root = made(tmp_path, "a\u00a0b.txt", "a\u202fb.txt", "ﬁ\u0301.txt", "f\u0456.txt", "fi\u0301.txt")

    with pytest.raises(ToolError) as caught:
        read_file(root, "a b.txt")
    assert caught.value.kind == "not_found"
    assert caught.value.hint.endswith("as it is written here: a\\u00a0b.txt, a\\u202fb.txt")
    with pytest.raises(ToolError) as caught:
        read_file(root, "fí.txt")
    assert "fi\\u0301.txt" in caught.value.hint
    name = caught.value.hint.rpartition(": ")[2].split(", ")[0]
    assert "needle" in read_file(root, name)


def test_nothing_outside_is_looked_at(tmp_path):
    made(tmp_path, "a\u00a0b.txt")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/out").symlink_to(tmp_path)

    for path in ("../a b.txt", "out/a b.txt", f"{tmp_path}/a b.txt"):
        with pytest.raises(ToolError) as caught:
            read_file(Root(tmp_path / "root"), path)
        assert "needle" not in str(caught.value)


def test_a_directory_that_looks_the_same_is_listed(tmp_path):
    root = made(tmp_path, "a\u00a0b/c.txt")

    assert "c.txt" in list_dir(root, "a b")


def test_a_file_that_looks_the_same_is_changed_and_gets_no_twin(tmp_path):
    root = made(tmp_path, "a\u00a0b.txt")

    make(root, "a b.txt", edited(root, "a b.txt", "needle", "pin"))
    assert "pin in" in (tmp_path / "a\u00a0b.txt").read_text()
    told = make(root, "a\u202fb.txt", written(root, "a\u202fb.txt", "new\n"))

    assert told.startswith("wrote a\\u00a0b.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["a\u00a0b.txt"]
    assert (tmp_path / "a\u00a0b.txt").read_text() == "new\n"


def test_a_new_file_may_have_the_blank_of_another_alphabet(tmp_path):
    root = Root(tmp_path)
    make(root, "資料\u3000最終.txt", written(root, "資料\u3000最終.txt", "new\n"))

    assert [path.name for path in tmp_path.iterdir()] == ["資料\u3000最終.txt"]
