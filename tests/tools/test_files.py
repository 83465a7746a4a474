"""list_dir and read_file: what they show, what they refuse, and that no file is too large for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from tool_loop.errors import ToolError
from tool_loop.runtime.text import LINE_BYTES, OUTPUT_BYTES
from tool_loop.tools.files import SCAN_BYTES, _described, _entries, list_dir, read_file, size
from tool_loop.tools.workspace import Root

needs_proc = pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no /proc here")


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def put(root: Root, name: str, content: str | bytes) -> None:
    Path(root.path, name).write_bytes(content if isinstance(content, bytes) else content.encode())


def lines(count: int, first: int = 1) -> str:
    return "".join(f"line {i}\n" for i in range(first, first + count))


def refused(call, *arguments) -> ToolError:
    with pytest.raises(ToolError) as caught:
        call(*arguments)
    return caught.value


# --- list_dir ---------------------------------------------------------------------------------------


def test_a_listing_says_what_each_entry_is(root, tmp_path):
    put(root, "b.txt", "12345")
    put(root, "big", b"x" * 3000)
    put(root, "one", "1")
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("../else\nwhere")
    os.mkfifo(tmp_path / "pipe")

    assert list_dir(root) == (
        "6 entries in .\na/\nb.txt (5 bytes)\nbig (2.9 KiB)\nlink -> ../else\\nwhere\none (1 byte)\npipe (FIFO)"
    )


def test_a_listing_of_a_directory_inside_and_of_an_empty_one(root, tmp_path):
    (tmp_path / "src/empty").mkdir(parents=True)

    assert list_dir(root, "src") == "1 entry in src\nempty/"
    assert list_dir(root, "src/empty") == "0 entries in src/empty"
    assert list_dir(root, "") == "1 entry in .\nsrc/"


def test_what_tools_leave_behind_is_not_listed_unless_it_is_asked_for(root, tmp_path):
    for name in (".git", "__pycache__", ".github"):
        (tmp_path / name).mkdir()
    put(root, ".git/config", "x")

    assert list_dir(root) == "1 entry in .\n.github/"
    assert list_dir(root, ".git") == "1 entry in .git\nconfig (1 byte)"


def test_names_that_are_no_text_are_listed_in_text_and_can_be_read_as_listed(root):
    for name in (b"new\nline", b"\xff\xfe.bin", "Grüße".encode(), b"\xe2\x80\xaertl"):
        Path(root.path, os.fsdecode(name)).write_text("found")

    shown = [line.rpartition(" (")[0] for line in list_dir(root).splitlines()[1:]]

    assert sorted(shown) == ["Grüße", "\\u202ertl", "\\xff\\xfe.bin", "new\\nline"]
    assert all(read_file(root, name) == "lines 1-1 of 1\nfound" for name in shown)


def test_a_file_is_no_directory_and_the_hint_says_how_to_read_it(root):
    put(root, "a.txt", "x")

    error = refused(list_dir, root, "a.txt")

    assert (error.kind, error.message) == ("invalid_argument", "not a directory: a.txt")
    assert error.hint == 'read it with read_file, path "a.txt"'


def test_a_missing_directory_is_not_found(root):
    error = refused(list_dir, root, "src")

    assert (error.kind, error.message) == ("not_found", "no such directory: src")
    assert error.hint == 'list the directory "."'


def test_long_names_fill_a_listing_before_its_entries_do(root):
    for i in range(300):
        put(root, f"{i:03}" + "\x01" * 100, "")

    text = list_dir(root)

    assert len(text) < OUTPUT_BYTES + 200
    assert text.startswith("67 of 300 entries in . (truncated; list a directory inside it, or search with grep)")


def test_only_so_many_entries_are_counted(root):
    for i in range(12):
        put(root, f"{i}", "")

    with root.opened(".", want="directory") as directory:
        assert _entries(directory, 10)[1:] == (10, False)
        assert _entries(directory, 12)[1:] == (12, True)
    assert "at least 10 entries" not in list_dir(root)


def test_an_entry_that_goes_away_or_may_not_be_looked_at_keeps_its_name(root, tmp_path):
    with root.opened(".", want="directory") as directory:
        assert _described(directory, "gone") == "gone"


# --- read_file --------------------------------------------------------------------------------------


def test_a_short_file_is_read_whole(root):
    put(root, "a.txt", "one\ntwo\n\nfour")

    assert read_file(root, "a.txt") == "lines 1-4 of 4\none\ntwo\n\nfour"


@pytest.mark.parametrize(("content", "total"), [("a", 1), ("a\n", 1), ("a\n\n", 2), ("\n", 1), ("a\nb", 2)])
def test_a_line_ends_with_a_line_feed_or_the_end(root, content, total):
    put(root, "a.txt", content)

    assert read_file(root, "a.txt").startswith(f"lines 1-{total} of {total}\n")


def test_an_empty_file_says_so(root):
    put(root, "a.txt", "")

    assert read_file(root, "a.txt") == "lines 0-0 of 0 (empty file)"
    assert refused(read_file, root, "a.txt", 2).message == "'start_line' is past the end: the file is empty, got 2"


def test_a_long_file_is_read_in_parts_and_the_header_says_how(root):
    put(root, "a.txt", lines(277))

    first = read_file(root, "a.txt")
    rest = read_file(root, "a.txt", 201)

    assert first == f"lines 1-200 of 277 (truncated; read on with start_line=201)\n{lines(200)}".rstrip()
    assert rest == f"lines 201-277 of 277\n{lines(77, 201)}".rstrip()


def test_a_range_that_was_asked_for_is_not_called_truncated(root):
    put(root, "a.txt", lines(277))

    assert read_file(root, "a.txt", 10, 12) == "lines 10-12 of 277\nline 10\nline 11\nline 12"
    assert read_file(root, "a.txt", 277, 277) == "lines 277-277 of 277\nline 277"
    assert read_file(root, "a.txt", 270, 9999).startswith("lines 270-277 of 277\n")
    assert read_file(root, "a.txt", 1, 277).startswith("lines 1-277 of 277\n")


def test_a_range_that_does_not_fit_is_truncated_and_goes_on_where_it_ended(root):
    put(root, "a.txt", "".join(f"{i:05} {'x' * 93}\n" for i in range(1, 1001)))

    text = read_file(root, "a.txt", 1, 1000)

    assert text.startswith("lines 1-280 of 1000 (truncated; read on with start_line=281)\n00001 ")
    assert len(text) <= OUTPUT_BYTES + 200
    assert read_file(root, "a.txt", 281, 281).splitlines()[1].startswith("00281 ")


@pytest.mark.parametrize(
    ("first", "last", "message", "hint"),
    [
        (0, None, "'start_line' must be at least 1, got 0", "lines count from 1"),
        (-3, None, "'start_line' must be at least 1, got -3", "lines count from 1"),
        (
            5,
            4,
            "'end_line' must not be before 'start_line' (5), got 4",
            "leave end_line out to read on from start_line",
        ),
        (
            500,
            None,
            "'start_line' is past the end: the file has 277 lines, got 500",
            "the last lines start at start_line=78",
        ),
        (
            278,
            300,
            "'start_line' is past the end: the file has 277 lines, got 278",
            "the last lines start at start_line=78",
        ),
    ],
)
def test_a_range_that_cannot_be_is_refused_with_what_can(root, first, last, message, hint):
    put(root, "a.txt", lines(277))

    error = refused(read_file, root, "a.txt", first, last)

    assert (error.kind, error.message, error.hint) == ("invalid_argument", message, hint)
    assert error.fields["field"] == message.split("'")[1]


def test_a_file_of_one_line_has_one_line(root):
    put(root, "a.txt", "only")

    assert refused(read_file, root, "a.txt", 2).message.endswith("the file has 1 line, got 2")


def test_a_long_line_is_cut_and_says_how_long_it_is(root):
    put(root, "a.txt", f"short\n{'é' * 700}\nend\n")

    text = read_file(root, "a.txt")

    assert text == f"lines 1-3 of 3\nshort\n{'é' * 500}... [cut: the line has 1400 bytes]\nend"


def test_a_character_that_the_cut_goes_through_is_left_out(root):
    put(root, "a.txt", "x" + "é" * 700)

    assert read_file(root, "a.txt").splitlines()[1] == f"x{'é' * 499}... [cut: the line has 1401 bytes]"


def test_a_line_of_exactly_the_limit_is_whole(root):
    put(root, "a.txt", "x" * LINE_BYTES + "\n" + "y" * (LINE_BYTES + 1))

    _, exact, longer = read_file(root, "a.txt").splitlines()
    assert exact == "x" * LINE_BYTES
    assert longer.endswith("... [cut: the line has 1001 bytes]")


def test_carriage_returns_at_line_ends_are_left_out_others_stay(root):
    put(root, "a.txt", "one\r\ntwo\rhalf\r\nthree")

    assert read_file(root, "a.txt") == "lines 1-3 of 3\none\ntwo\rhalf\nthree"


def test_only_line_feeds_end_lines(root):
    put(root, "a.txt", "a\x0bb\x0cc\x85d\u2028e\nf")

    assert read_file(root, "a.txt") == "lines 1-2 of 2\na\x0bb\x0cc\x85d\u2028e\nf"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "utf-32-be"])
def test_wide_encodings_with_a_mark_are_decoded_and_named(root, encoding):
    mark = "\ufeff" if encoding.endswith("be") else ""
    put(root, "a.txt", f"{mark}Grüße\nzwei 😀\n".encode(encoding))

    name = encoding if mark else f"{encoding}-le"
    assert read_file(root, "a.txt") == f"lines 1-2 of 2, decoded from {name}\nGrüße\nzwei 😀"
    assert read_file(root, "a.txt", 2) == f"lines 2-2 of 2, decoded from {name}\nzwei 😀"


def test_a_wide_file_that_ends_within_a_character_is_shown_up_to_there(root):
    put(root, "a.txt", "ab".encode("utf-16")[:-1])

    assert read_file(root, "a.txt") == "lines 1-1 of 1, decoded from utf-16-le\na�"


def test_a_utf8_mark_is_left_out(root):
    put(root, "a.txt", b"\xef\xbb\xbfone\n")

    assert read_file(root, "a.txt") == "lines 1-1 of 1\none"


def test_bytes_that_are_no_utf8_are_read_as_latin1_and_it_is_said(root):
    put(root, "a.txt", "Grüße\n".encode("latin-1") + b"\xff\xed\xa0\x80")

    text = read_file(root, "a.txt")

    assert text == "lines 1-2 of 2, decoded from latin-1\nGrüße\nÿí\xa0\x80"
    text.encode()


def test_a_binary_file_is_refused_with_its_size(root):
    put(root, "a.bin", b"\x7fELF\x02\x00" + b"x" * 5000)

    error = refused(read_file, root, "a.bin")

    assert (error.kind, error.message) == ("invalid_argument", "binary file: a.bin (4.9 KiB)")
    assert "grep" in error.hint


def test_a_nul_far_into_a_text_is_shown(root):
    put(root, "a.log", lines(2000) + "broken \0 here\n")

    assert read_file(root, "a.log", 2001) == "lines 2001-2001 of 2001\nbroken \\x00 here"


def test_special_files_are_refused_without_waiting(root, tmp_path):
    os.mkfifo(tmp_path / "pipe")

    assert refused(read_file, root, "pipe").message == "special file: pipe"
    assert refused(read_file, Root("/dev"), "null").message == "special file: null"
    assert refused(read_file, Root("/dev"), "zero").kind == "invalid_argument"


def test_a_directory_is_refused_with_what_to_do(root, tmp_path):
    (tmp_path / "src").mkdir()

    error = refused(read_file, root, "src")

    assert (error.kind, error.message) == ("invalid_argument", "is a directory: src")
    assert error.hint == 'list it with list_dir, path "src"'


@needs_proc
def test_a_file_whose_size_is_a_lie_is_read_to_its_end():
    assert read_file(Root("/proc/self"), "status").startswith("lines 1-")
    assert "Name:" in read_file(Root("/proc/self"), "status")


@needs_proc
def test_a_file_that_cannot_be_read_is_a_tool_error():
    assert refused(read_file, Root("/proc/self"), "mem").message == "Input/output error: mem"


def test_sizes_are_written_for_people():
    sizes = (0, 1, 1023, 1024, 1536, 1 << 20, 1 << 30, 5 << 40)

    assert list(map(size, sizes)) == (
        ["0 bytes", "1 byte", "1023 bytes", "1.0 KiB", "1.5 KiB", "1.0 MiB", "1.0 GiB", "5120.0 GiB"]
    )


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\0"), max_size=20), min_size=1, max_size=30),
    st.integers(1, 40),
    st.integers(1, 40),
    st.booleans(),
)
def test_any_range_is_the_lines_of_the_file(tmp_path_factory, texts, first, last, end):
    directory = tmp_path_factory.getbasetemp() / "any-range"
    directory.mkdir(exist_ok=True)
    root = Root(directory)
    put(root, "f", "\n".join(texts) + ("\n" if end else ""))
    expected = [text.removesuffix("\r") for text in texts]
    if not end and not texts[-1]:
        expected.pop()  # what follows the last line feed is no line when it is empty
    marked = texts[0].startswith("\ufeff")
    if not expected or first > len(expected) or last < first or marked:
        return

    header, _, body = read_file(root, "f", first, last).partition("\n")

    assert header == f"lines {first}-{min(last, len(expected))} of {len(expected)}"
    assert body.split("\n") == expected[first - 1 : last]


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_a_result_in_valid_text_or_a_refusal(tmp_path_factory, content):
    directory = tmp_path_factory.getbasetemp() / "any-bytes"
    directory.mkdir(exist_ok=True)
    root = Root(directory)
    put(root, "f", content)

    try:
        text = read_file(root, "f")
    except ToolError as error:
        text = error.message
        assert b"\0" in content

    assert text.encode().decode() == text
    assert "\0" not in text


# --- however large ----------------------------------------------------------------------------------

BOUNDED = """
import json, resource, sys, time
from tool_loop.errors import ToolError
from tool_loop.tools import _hints
from tool_loop.tools.files import list_dir, read_file
from tool_loop.tools.workspace import Root
import difflib
root = Root(sys.argv[1])
calls = json.loads(sys.argv[2])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
said = []
for name, *arguments in calls:
    started = time.perf_counter()
    try:
        text = {"list_dir": list_dir, "read_file": read_file}[name](root, *arguments)
    except ToolError as error:
        text = f"{error.kind}: {error.message}"
    said.append([text[:200], time.perf_counter() - started])
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / (1 << (20 if sys.platform == "darwin" else 10))
print(json.dumps({"said": said, "grown": grown}))
"""


def bounded(root: Root, *calls: list) -> list[str]:
    """What each call said, having checked that none took long and that memory stayed within 64 MiB."""
    command = [sys.executable, "-c", BOUNDED, root.path, json.dumps(calls)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    result = json.loads(done.stdout)
    assert result["grown"] < 64
    assert all(seconds < 3 for _, seconds in result["said"])
    return [text for text, _ in result["said"]]


def test_files_of_a_gigabyte_take_little_time_and_memory(root):
    with Path(root.path, "sparse").open("wb") as file:
        file.truncate(1 << 30)
    with Path(root.path, "text").open("wb") as file:
        file.write(b"first\nsecond " + b"x" * 20_000)
        file.truncate(1 << 30)

    sparse, head, far = bounded(root, ["read_file", "sparse"], ["read_file", "text"], ["read_file", "text", 3])

    assert sparse == "invalid_argument: binary file: sparse (1.0 GiB)"
    assert head.startswith("lines 1-2 of at least 2\nfirst\nsecond xxx")
    assert far == "invalid_argument: 'start_line' is too far: 256.0 MiB are read, which hold 2 lines, got 3"


def test_a_line_that_goes_on_past_what_is_read_says_at_least(root):
    with Path(root.path, "text").open("wb") as file:
        file.write(b"x" * 20_000)
        file.truncate(1 << 30)

    line = read_file(root, "text").splitlines()[1]
    beyond = refused(read_file, root, "text", 2)

    assert line.endswith(f"... [cut: the line has at least {SCAN_BYTES} bytes]")
    assert beyond.message == "'start_line' is too far: 256.0 MiB are read, which hold 1 line, got 2"


def test_many_lines_are_counted_and_reached(root):
    put(root, "f", b"0123456789\n" * 3_000_000)

    last, first = bounded(root, ["read_file", "f", 2_999_999], ["read_file", "f"])

    assert last == "lines 2999999-3000000 of 3000000\n0123456789\n0123456789"
    assert first.startswith("lines 1-200 of 3000000 (truncated; read on with start_line=201)")


def test_a_wide_file_is_read_within_the_same_bounds(root):
    put(root, "f", ("\ufeff" + "0123456789\n" * 1_000_000).encode("utf-16-le"))

    (last,) = bounded(root, ["read_file", "f", 1_000_000])

    assert last == "lines 1000000-1000000 of 1000000, decoded from utf-16-le\n0123456789"


def test_a_directory_of_very_many_entries_is_listed_in_part_in_order(root):
    directory = os.open(root.path, os.O_RDONLY)
    for i in range(700):
        os.close(os.open(f"{i:06}", os.O_CREAT | os.O_WRONLY, dir_fd=directory))
    os.close(directory)

    listing, missing = bounded(root, ["list_dir"], ["read_file", "999999"])

    assert listing.startswith("500 of 700 entries in . (truncated; ")
    assert "\n000000 (0 bytes)\n000001 (0 bytes)\n" in listing
    assert missing == "not_found: no such file: 999999"
