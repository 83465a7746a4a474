"""A change of one file: what it keeps, what it refuses, what a refusal says, and that it happens in one step."""

from __future__ import annotations

import os
import random
import resource
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from tool_loop.errors import ToolError
from tool_loop.tools._diff import diff
from tool_loop.tools._place import current, place
from tool_loop.tools._store import store, temporary
from tool_loop.tools.change import Change, edited, happened, make, written
from tool_loop.tools.workspace import Root


@pytest.fixture
def root(tmp_path: Path) -> Root:
    (tmp_path / "ws").mkdir()
    return Root(tmp_path / "ws")


def put(root: Root, name: str, data: bytes, mode: int = 0o644) -> Path:
    path = Path(root.path, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)
    return path


def names(root: Root) -> list[str]:
    return sorted(path.name for path in Path(root.path).iterdir())


def edit(root: Root, path: str, old: str, new: str, every: bool = False) -> str:
    return make(root, path, edited(root, path, old, new, every))


def write(root: Root, path: str, content: str) -> str:
    return make(root, path, written(root, path, content))


def refused(act: Callable[[], object]) -> ToolError:
    with pytest.raises(ToolError) as caught:
        act()
    return caught.value


# --- what an edit keeps ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        pytest.param(b"a\nb\n", "b", "c", b"a\nc\n", id="plain"),
        pytest.param(b"a\nb", "b", "c", b"a\nc", id="no line feed at the end"),
        pytest.param(b"a\r\nb\r\nc\r\n", "a\nb", "x\ny", b"x\r\ny\r\nc\r\n", id="CRLF, asked for with LF"),
        pytest.param(b"a\r\nb\r\n", "a\r\nb", "x\ny\nz", b"x\r\ny\r\nz\r\n", id="CRLF, new with LF"),
        pytest.param(b"a\r\nb\r\n", "b", "c\nd", b"a\r\nc\r\nd\r\n", id="CRLF, one line becomes two"),
        pytest.param(b"a\r\nb\r\n", "\nb", "\nx\nb", b"a\r\nx\r\nb\r\n", id="CRLF, from the end of a line"),
        pytest.param(b"a\nb\n", "a\r\nb", "x\r\ny", b"x\ny\n", id="LF, asked for with CRLF"),
        pytest.param(b"a\r\nb\nc\r\n", "b\nc", "x\ny", b"a\r\nx\ny\r\n", id="mixed, at the LF"),
        pytest.param(b"a\r\nb\nc\r\nd\r\n", "c\nd", "x\ny", b"a\r\nb\nx\r\ny\r\n", id="mixed, at the CRLF"),
        pytest.param(b"\xef\xbb\xbfhello\n", "hello", "bye", b"\xef\xbb\xbfbye\n", id="byte order mark"),
        pytest.param("\ufeffhé\n".encode("utf-16-le"), "hé", "ö", "\ufeffö\n".encode("utf-16-le"), id="UTF-16"),
        pytest.param(
            "\ufeffhé\n".encode("utf-16-be"), "hé", "ö", "\ufeffö\n".encode("utf-16-be"), id="UTF-16, big end"
        ),
        pytest.param("\ufeffhé\n".encode("utf-32-le"), "hé", "ö", "\ufeffö\n".encode("utf-32-le"), id="UTF-32"),
        pytest.param(b"caf\xe9 x\n", "x", "\xfc", b"caf\xe9 \xfc\n", id="latin-1"),
        pytest.param(b"caf\xe9 x\n", "caf\xe9", "tea", b"tea x\n", id="latin-1, the letter itself"),
        pytest.param(b"\xff\nna\xc3\xafve\n", "naïve", "naïf", b"\xff\nna\xc3\xaff\n", id="UTF-8 but for a byte"),
        pytest.param(
            b"a\x85b\xe2\x80\xa8c\n".replace(b"\x85", b"\xc2\x85"), "c", "d", "a\x85b\u2028d\n".encode(), id="U+2028"
        ),
        pytest.param(b"a\rb\r", "b", "c", b"a\rc\r", id="lone carriage returns"),
    ],
)
def test_an_edit_keeps_line_ends_encoding_and_mark(root: Root, before: bytes, old: str, new: str, after: bytes) -> None:
    path = put(root, "f.txt", before)

    edit(root, "f.txt", old, new)

    assert path.read_bytes() == after


def test_mode_stays_and_the_right_to_run_as_somebody_else_goes(root: Root) -> None:
    script, setuid = put(root, "x.sh", b"a\n", 0o751), put(root, "s", b"a\n", 0o6755)

    edit(root, "x.sh", "a", "b")
    edit(root, "s", "a", "b")

    assert stat.S_IMODE(script.stat().st_mode) == 0o751
    assert stat.S_IMODE(setuid.stat().st_mode) == 0o755


def test_extended_attributes_and_access_lists_stay(root: Root) -> None:
    path = put(root, "f", b"a\n")
    # An access list as the kernel keeps it: version 2, then (tag, rights, id): user 12 may read.
    acl = bytes.fromhex(
        "02000000 0100 0600 ffffffff 0200 0400 0c000000 0400 0400 ffffffff 1000 0400 ffffffff 2000 0400 ffffffff"
    )
    try:
        os.setxattr(path, "user.note", b"kept")
        os.setxattr(path, "system.posix_acl_access", acl)
    except OSError as error:
        pytest.skip(f"no attributes on this disk: {error}")

    edit(root, "f", "a", "b")

    assert os.getxattr(path, "user.note") == b"kept"
    assert os.getxattr(path, "system.posix_acl_access") == acl


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file away takes root")
def test_the_owner_stays(root: Root) -> None:
    path = put(root, "f", b"a\n")
    os.chown(path, 12, 34)

    edit(root, "f", "a", "b")

    assert (path.stat().st_uid, path.stat().st_gid) == (12, 34)


def test_a_link_inside_the_root_is_written_through(root: Root) -> None:
    target = put(root, "real/f", b"a\n")
    Path(root.path, "link").symlink_to("real/f")
    Path(root.path, "dir").symlink_to("real")

    edit(root, "link", "a", "b")
    change = edited(root, "dir/../real/f", "b", "c")
    make(root, "dir/../real/f", change)

    assert target.read_bytes() == b"c\n"
    assert Path(root.path, "link").is_symlink()
    assert change.parts == ("real", "f")


def test_a_link_that_dangles_makes_the_file_it_names(root: Root) -> None:
    Path(root.path, "link").symlink_to("to/be")

    write(root, "link", "made\n")

    assert Path(root.path, "to/be").read_text() == "made\n"


def test_a_hard_link_is_parted(root: Root) -> None:
    path = put(root, "f", b"a\n")
    os.link(path, Path(root.path, "other"))

    edit(root, "f", "a", "b")

    assert Path(root.path, "other").read_bytes() == b"a\n"


def test_a_name_that_was_shown_escaped_can_be_given_back(root: Root) -> None:
    odd = os.fsencode(root.path) + b"/\xffname"
    with open(odd, "wb") as file:  # noqa: PTH123  a name that is no text
        file.write(b"a\n")

    edit(root, r"\xffname", "a", "b")

    with open(odd, "rb") as file:  # noqa: PTH123
        assert file.read() == b"b\n"


# --- whole files ----------------------------------------------------------------------------------


def test_a_new_file_has_its_directories_and_the_usual_mode(root: Root) -> None:
    before = os.umask(0o027)
    try:
        told = write(root, "new/deep/f.txt", "x\ny\n")
    finally:
        os.umask(before)

    path = Path(root.path, "new/deep/f.txt")
    assert path.read_text() == "x\ny\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o750
    assert told == "wrote new/deep/f.txt: 2 lines, a new file"


def test_a_file_that_is_replaced_says_what_changed_beside_its_text(root: Root) -> None:
    put(root, "f", b"a\r\nb\r\n")

    assert write(root, "f", "a\n") == (
        "wrote f: 1 line, in place of 2 lines; its lines ended in CRLF and end in LF now"
    )
    assert write(root, "f", "a\n") == "f has exactly this content already (1 line)"


def test_an_empty_file_can_be_written(root: Root) -> None:
    write(root, "empty", "")

    assert Path(root.path, "empty").read_bytes() == b""


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind", "says"),
    [
        ("", "invalid_argument", "not the name of a file"),
        (".", "invalid_argument", "not the name of a file"),
        ("..", "invalid_argument", "not the name of a file"),
        ("dir/", "invalid_argument", "not the name of a file"),
        ("dir", "invalid_argument", "is a directory"),
        ("dir/.", "invalid_argument", "not the name of a file"),
        ("to_dir", "invalid_argument", "is a directory"),
        ("../x", "invalid_argument", "path leaves the workspace"),
        ("dir/../../x", "invalid_argument", "path leaves the workspace"),
        ("/etc/passwd", "invalid_argument", "absolute path"),
        ("out/x", "invalid_argument", "path leaves the workspace"),
        ("out_file", "invalid_argument", "path leaves the workspace"),
        ("loop", "invalid_argument", "link that cannot be followed"),
        ("f/x", "invalid_argument", "goes through a file"),
        ("gone/../x", "not_found", "no such file"),
        ("fifo", "invalid_argument", "special file"),
        ("big", "invalid_argument", "file too large"),
        ("a\\b.py", "invalid_argument", "no such file"),
        ("a\nb", "invalid_argument", "cannot have this name"),
        (" a", "invalid_argument", "cannot have this name"),
        ("new/b /c", "invalid_argument", "cannot have this name"),
        ("~/.bashrc", "invalid_argument", "no such file"),
        ("$HOME/x", "invalid_argument", "no such file"),
        ("file:///etc/x", "invalid_argument", "no such file"),
        ("a\u202eb", "invalid_argument", "cannot have this name"),
        ("x\0y", "invalid_argument", "NUL"),
        ("x" * 300, "invalid_argument", "path too long"),
        ("x/" * 3000 + "y", "invalid_argument", "path too long"),
    ],
)
def test_what_is_no_file_inside_the_root_is_not_written(root: Root, path: str, kind: str, says: str) -> None:
    base = Path(root.path)
    put(root, "f", b"a\n")
    (base / "dir").mkdir()
    (base / "to_dir").symlink_to("dir")
    (base / "out").symlink_to("..")
    (base / "out_file").symlink_to("/etc/hosts")
    (base / "loop").symlink_to("loop")
    os.mkfifo(base / "fifo")
    with (base / "big").open("wb") as file:
        file.truncate((4 << 20) + 1)

    error = refused(lambda: written(root, path, "x"))

    assert (error.kind, error.fields["field"]) == (kind, "path")
    assert says in error.message


@pytest.mark.parametrize(
    ("data", "old", "new", "says"),
    [
        (b"a\n", "", "b", "'old' is empty"),
        (b"a\n", "a", "a", "nothing would change"),
        (b"a\0b\n", "a", "b", "binary file"),
        (b"caf\xe9\n", "caf", "\u20ac", "cannot hold"),
        (b"\xff\xfe\x00\xd8", "a", "b", "not valid utf-16-le"),
        (b"a\n", "a", "\ud800", "not valid Unicode"),
    ],
)
def test_an_edit_that_cannot_be_made_says_why(root: Root, data: bytes, old: str, new: str, says: str) -> None:
    path = put(root, "f", data)

    assert says in refused(lambda: edited(root, "f", old, new)).message
    assert path.read_bytes() == data


def test_text_that_is_there_more_than_once_is_not_guessed_at(root: Root) -> None:
    put(root, "f", b"x = 1\ny = 2\nx = 1\nx = 1\n")

    error = refused(lambda: edited(root, "f", "x = 1\n", "z\n"))

    assert "3 times, at lines 1, 3, 4" in error.message
    assert error.fields["lines"] == [1, 3, 4]
    assert edit(root, "f", "x = 1\n", "z\n", every=True) == "edited f at 3 places, lines 1, 3, 4: 1 line -> 1 line"
    assert Path(root.path, "f").read_bytes() == b"z\ny = 2\nz\nz\n"


def test_text_that_overlaps_with_itself_is_not_guessed_at_either(root: Root) -> None:
    put(root, "f", b"}\n}\n}\n")

    assert "2 times, at lines 1, 2" in refused(lambda: edited(root, "f", "}\n}\n", "]\n")).message


def test_a_missing_file_is_answered_with_the_nearest_path(root: Root) -> None:
    put(root, "src/app.py", b"a\n")

    error = refused(lambda: edited(root, "app.py", "a", "b"))

    assert error.kind == "not_found"
    assert "src/app.py" in error.hint


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_may_not_be_written_is_not_replaced(root: Root) -> None:
    put(root, "f", b"a\n", 0o444)

    assert refused(lambda: edit(root, "f", "a", "b")).kind == "permission_denied"


# --- what a failure carries -----------------------------------------------------------------------

SOURCE = b"def main():\n\tx = 1\n\treturn x\n\n\ndef other():\n\tname = 'a'\n\treturn 2\n"


@pytest.mark.parametrize(
    ("old", "in_file", "why"),
    [
        (
            "def main():\n    x = 1\n    return x\n",
            "def main():\n\tx = 1\n\treturn x",
            "only spaces and tabs at the beg",
        ),
        ("def main():  \n\tx = 1", "def main():\n\tx = 1", "only spaces and tabs at the end of lines"),
        ("x  =  1", "\tx = 1", "only spaces and tabs differ"),
        ("DEF OTHER():", "def other():", "only upper and lower case"),
        ("\tname = \u2018a\u2019", "\tname = 'a'", "only quotes, dashes"),
        ("def main():\\n\\tx = 1", "def main():\n\tx = 1", "as two characters"),
    ],
)
def test_a_failed_edit_carries_the_lines_that_are_really_there(root: Root, old: str, in_file: str, why: str) -> None:
    put(root, "app.py", SOURCE)

    error = refused(lambda: edited(root, "app.py", old, "z"))

    assert why in error.message
    assert error.fields["in_file"] == in_file
    assert in_file.encode() in SOURCE  # so that it can be given back as it is
    assert error.hint == "use the text of in_file as 'old', exactly"


def test_blanks_that_differ_are_counted_for_the_first_line_where_they_do(root: Root) -> None:
    """They do not show, neither to a model nor to a person who reads the record."""
    put(root, "app.py", SOURCE)

    error = refused(lambda: edited(root, "app.py", "        x = 1\n\treturn x", "z"))

    assert "'x = 1' begins with 1 tab in the file, with 8 spaces in 'old'" in error.message


def test_what_differs_is_told_where_no_sentence_says_it(root: Root) -> None:
    put(root, "app.py", SOURCE)

    error = refused(lambda: edited(root, "app.py", "def main():\n\ty = 1\n\treturn x", "z"))

    assert error.message == "'old' is not in app.py; the nearest is at lines 1-3"
    assert error.fields["differs"] == ["-\ty = 1", "+\tx = 1"]


def test_lines_that_were_put_in_between_are_part_of_the_answer(root: Root) -> None:
    put(root, "app.py", b"a = 1\nb = 2\nnew = 0\nc = 3\nd = 4\n")

    error = refused(lambda: edited(root, "app.py", "a = 1\nb = 2\nc = 3\nd = 4", "z"))

    assert error.fields["in_file"] == "a = 1\nb = 2\nnew = 0\nc = 3\nd = 4"


def test_text_that_is_like_nothing_in_the_file_says_so(root: Root) -> None:
    put(root, "app.py", SOURCE)

    error = refused(lambda: edited(root, "app.py", "something else entirely", "z"))

    assert "nothing like it" in error.message
    assert "in_file" not in error.fields


@settings(max_examples=200, deadline=None)
@given(st.text("ab \n\t{}\\", max_size=60), st.text("ab \n\t{}\\", min_size=1, max_size=30))
def test_the_lines_of_an_answer_are_always_in_the_file(text: str, old: str) -> None:
    from tool_loop.tools._nearest import nearest

    near = nearest(text, old)

    assert near is None or "\n".join(near.lines) in text


# --- in one step ----------------------------------------------------------------------------------


def test_a_file_that_is_another_by_now_is_not_changed(root: Root) -> None:
    path = put(root, "f", b"a\n")
    change = edited(root, "f", "a", "b")
    path.write_bytes(b"a, by somebody else\n")

    assert refused(lambda: make(root, "f", change)).kind == "conflict"
    assert path.read_bytes() == b"a, by somebody else\n"


def test_a_link_that_leads_elsewhere_by_now_is_not_followed(root: Root) -> None:
    put(root, "one", b"a\n")
    put(root, "two", b"a\n")
    link = Path(root.path, "link")
    link.symlink_to("one")
    change = edited(root, "link", "a", "b")
    link.unlink()
    link.symlink_to("two")

    assert refused(lambda: make(root, "link", change)).kind == "conflict"


def test_a_new_file_does_not_replace_one_that_came_in_the_meantime(root: Root) -> None:
    change = written(root, "f", "mine\n")
    path = put(root, "f", b"theirs\n")

    assert refused(lambda: make(root, "f", change)).kind == "conflict"
    assert path.read_bytes() == b"theirs\n"


def test_a_mark_tells_whether_a_change_happened(root: Root) -> None:
    path = put(root, "f", b"a\n")
    change = edited(root, "f", "a", "b")

    assert happened(root, "f", change.mark) is False
    make(root, "f", change)
    assert happened(root, "f", change.mark) is True
    path.write_bytes(b"c\n")
    assert happened(root, "f", change.mark) is None
    assert happened(root, "new", written(root, "new", "x").mark) is False


def test_a_change_of_the_same_text_at_another_place_has_another_mark(root: Root) -> None:
    put(root, "f", b"a\n")
    put(root, "g", b"a\n")

    assert edited(root, "f", "a", "b").mark != edited(root, "g", "a", "b").mark


def test_a_disk_that_takes_no_more_leaves_the_old_file_and_nothing_else(root: Root) -> None:
    path = put(root, "f", b"a\n")
    change = edited(root, "f", "a", "b" * 100_000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        error = refused(lambda: make(root, "f", change, "key"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert "File too large" in error.message
    assert path.read_bytes() == b"a\n"
    assert names(root) == ["f"]


@pytest.mark.parametrize("nameless", [True, False])
@pytest.mark.parametrize("exists", [True, False])
def test_a_disk_without_nameless_files_ends_in_the_same(root: Root, nameless: bool, exists: bool) -> None:
    if exists:
        put(root, "f", b"a\n", 0o640)

    with place(root, "f") as spot:
        store(spot, b"b\n", current(spot, "f")[1], nameless=nameless)

    path = Path(root.path, "f")
    assert path.read_bytes() == b"b\n"
    assert stat.S_IMODE(path.stat().st_mode) == (0o640 if exists else 0o666 & ~umask())
    assert names(root) == ["f"]


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_what_a_killed_call_left_is_taken_away_by_whoever_looks_into_it(root: Root) -> None:
    put(root, "f", b"a\n")
    change = edited(root, "f", "a", "b")
    left = put(root, os.fsdecode(temporary("key")), b"half")

    assert happened(root, "f", change.mark, "key") is False
    assert not left.exists()


# --- what is shown --------------------------------------------------------------------------------


def test_a_diff_is_one_that_patch_understands(root: Root, tmp_path: Path) -> None:
    rng = random.Random(4)
    for _ in range(40):
        before = "".join(rng.choice("abc\n") for _ in range(rng.randrange(120))).encode()
        after = "".join(rng.choice("abc\n") for _ in range(rng.randrange(120))).encode()
        target = tmp_path / "f"
        target.write_bytes(before)
        shown = diff("f", before, after)
        if shown:
            subprocess.run(
                ["patch", "-p1", "-s", "-d", str(tmp_path)], input=shown.encode() + b"\n", check=True, timeout=20
            )

        assert target.exists() == bool(after) or not before
        assert (target.read_bytes() if target.exists() else b"") == after


def test_line_ends_are_seen_when_they_change_and_said_once_when_they_do_not() -> None:
    assert "-a\r" in diff("f", b"a\r\n", b"a\n").split("\n")
    assert diff("f", b"a\r\nb\r\n", b"a\r\nc\r\n").split("\n")[1:] == [
        "+++ b/f (lines end in CRLF)", "@@ -1,2 +1,2 @@", " a", "-b", "+c",
    ]  # fmt: skip


def test_a_line_ends_at_a_line_feed_and_nowhere_else() -> None:
    assert "+a\u2028b\x0bc" in diff("f", None, "a\u2028b\x0bc\n".encode()).split("\n")


def test_a_binary_file_that_is_replaced_is_shown_as_one() -> None:
    assert "-[binary, 4 bytes]" in diff("f", b"\0\1\2\3", b"text\n")


def test_texts_too_large_to_be_compared_are_shown_whole() -> None:
    before = "".join(f"{n}\n" for n in range(8_000)).encode()
    after = "".join(f"{n * 7 % 8_000} x\n" for n in range(8_000)).encode()

    shown = diff("f", before, after).split("\n")

    assert sum(line.startswith("-") for line in shown) == 8_001
    assert sum(line.startswith("+") for line in shown) == 8_001


def test_a_change_says_which_part_of_its_path_is_protected(root: Root) -> None:
    put(root, ".git/config", b"a\n")
    Path(root.path, "innocent").symlink_to(".git")

    assert edited(root, "innocent/config", "a", "b").protected == ".git"
    assert Change(("src", "a.py"), None, b"", "").protected is None


def test_a_directory_that_is_a_repository_to_git_is_protected_whatever_it_is_called(root: Root) -> None:
    """`.git` may be a link or a file that leads there, and a bare repository has no such name at all."""
    subprocess.run(["git", "init", "-q", "--bare", f"{root.path}/docs"], check=True, timeout=20)
    put(root, "src/config", b"a\n")

    assert written(root, "docs/config", "x").protected == "docs"
    assert written(root, "docs/hooks/post-commit", "x").protected == "docs"
    assert written(root, "docs/new/deep", "x").protected == "docs"
    assert written(root, "src/config", "x").protected is None


# --- many ------------------------------------------------------------------------------------------


def test_random_edits_are_those_of_str_replace(root: Root) -> None:
    from tests.tools.edit_proofs import random_edits

    assert random_edits(300, seed=1, directory=Path(root.path)) == 300


def test_a_writer_that_is_killed_leaves_the_old_file_or_the_new(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.tools.edit_proofs", "writer", "--rounds", "5"],
        check=False, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2],
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
