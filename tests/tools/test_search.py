"""grep, with ripgrep and with Python's re: what is found, how it is shown, and what never is."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
from pathlib import Path

import pytest

from tool_loop.errors import ToolError
from tool_loop.runtime.text import OUTPUT_BYTES
from tool_loop.tools._matches import COLUMNS, MOST
from tool_loop.tools.search import Engine, grep, search_engine
from tool_loop.tools.workspace import Root

needs_proc = pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no /proc here")
RE = Engine("re", sys.executable)
RG = search_engine({"PATH": os.environ.get("PATH", "")})
needs_rg = pytest.mark.skipif(RG.name != "rg", reason="no ripgrep here")
ENGINES = [pytest.param(RG, id="rg", marks=needs_rg), pytest.param(RE, id="re")]
each_engine = pytest.mark.parametrize("engine", ENGINES)
NAMES = {"rg": "ripgrep", "re": "Python re"}


@pytest.fixture
def root(tmp_path: Path) -> Root:
    directory = tmp_path / "root"
    directory.mkdir()
    return Root(directory)


def put(root: Root, name: str, content: str | bytes = "needle\n") -> None:
    path = Path(root.path, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def find(root: Root, engine: Engine, pattern: str = "needle", **options) -> tuple[str, list[str]]:
    """The first line without the engine's name, and the rest."""
    text = asyncio.run(grep(root, pattern, engine=engine, **options))
    assert text.encode().decode() == text
    head, *lines = text.split("\n")
    assert f"({NAMES[engine.name]}" in head
    return head.replace(f" ({NAMES[engine.name]}", " ("), lines


def files(root: Root, engine: Engine, **options) -> list[str]:
    return [line.partition(":")[0] for line in find(root, engine, **options)[1]]


def refused(root: Root, engine: Engine, pattern: str, **options) -> ToolError:
    with pytest.raises(ToolError) as caught:
        asyncio.run(grep(root, pattern, engine=engine, **options))
    return caught.value


# --- what is found ----------------------------------------------------------------------------------


@each_engine
def test_matches_are_named_by_file_and_line_below_a_line_that_counts(root, engine):
    put(root, "b.txt", "one\nneedle two\nthree\nneedle")
    put(root, "a/z.txt", "x needle\r\n")

    assert find(root, engine) == (
        "3 matches in 2 files ()",
        ["a/z.txt:1: x needle", "b.txt:2: needle two", "b.txt:4: needle"],
    )
    assert find(root, engine, "two") == ("1 match in 1 file ()", ["b.txt:2: needle two"])


@each_engine
def test_no_match_is_a_result(root, engine):
    put(root, "a.txt", "x\n")

    head, lines = find(root, engine)

    assert head.startswith("no matches (")
    assert head.endswith("hidden and git-ignored files are not searched)")
    assert lines == []


@each_engine
def test_no_file_to_search_is_told_from_no_match(root, engine):
    put(root, "a.txt", "x\n")

    head, _ = find(root, engine, glob="*.rs")

    assert head == "no matches: no file was searched (; all are hidden, ignored or do not fit glob)"


@each_engine
def test_context_is_shown_with_dashes_and_groups_are_parted(root, engine):
    put(root, "a.txt", "1\n2\nneedle\n4\n5\n6\n7\nneedle\nneedle\n10\n11\n")
    put(root, "b.txt", "0\nneedle\n")

    _, lines = find(root, engine, context=1)

    assert lines[:4] == ["a.txt-2- 2", "a.txt:3: needle", "a.txt-4- 4", "--"]
    assert lines[4:8] == ["a.txt-7- 7", "a.txt:8: needle", "a.txt:9: needle", "a.txt-10- 10"]
    assert lines[8:] == ["--", "b.txt-1- 0", "b.txt:2: needle"]


@each_engine
def test_overlapping_context_is_shown_once(root, engine):
    put(root, "a.txt", "1\nneedle\n3\nneedle\n5\n")

    assert find(root, engine, context=2)[1] == (
        ["a.txt-1- 1", "a.txt:2: needle", "a.txt-3- 3", "a.txt:4: needle", "a.txt-5- 5"]
    )


@each_engine
def test_case_counts_unless_it_is_to_be_ignored(root, engine):
    put(root, "a.txt", "Needle\nÄÖ\n")

    assert find(root, engine)[1] == []
    assert find(root, engine, ignore_case=True)[1] == ["a.txt:1: Needle"]
    assert find(root, engine, "äö", ignore_case=True)[1] == ["a.txt:2: ÄÖ"]


@each_engine
@pytest.mark.parametrize("pattern", ["-needle", "--pre=sh", "-", "--", "-e"])
def test_a_pattern_that_looks_like_an_option_is_a_pattern(root, engine, pattern):
    put(root, "a.txt", f"x\n{pattern}\n")

    assert find(root, engine, f"^{pattern}$")[1] == [f"a.txt:2: {pattern}"]
    assert find(root, engine, pattern)[1] == [f"a.txt:2: {pattern}"]


@each_engine
def test_anchors_classes_and_unicode_work(root, engine):
    put(root, "a.txt", "Grüße 12\nÜbung\n")

    assert find(root, engine, r"^\w+ \d+$")[1] == ["a.txt:1: Grüße 12"]
    assert find(root, engine, "[Ü]bung|nothing")[1] == ["a.txt:2: Übung"]


# --- where is searched ------------------------------------------------------------------------------


@each_engine
def test_a_directory_or_a_file_can_be_searched_alone(root, engine):
    put(root, "src/a.py")
    put(root, "src/deep/b.py")
    put(root, "other/c.py")

    assert files(root, engine, path="src") == ["src/a.py", "src/deep/b.py"]
    assert files(root, engine, path="./src//deep/") == ["src/deep/b.py"]
    assert files(root, engine, path="src/a.py") == ["src/a.py"]
    assert files(root, engine, path="src/../other") == ["src/../other/c.py"]
    assert files(root, engine, path="") == ["other/c.py", "src/a.py", "src/deep/b.py"]


@each_engine
def test_ignored_and_hidden_files_are_left_out_unless_path_names_one(root, engine):
    put(root, ".gitignore", "*.log\n/build/\n!keep.log\n")
    put(root, "src/.ignore", "generated.py\n")
    for name in (
        "a.log",
        "build/b.py",
        "src/build/c.py",
        "src/keep.log",
        "src/generated.py",
        ".hidden",
        ".github/w.yml",
    ):
        put(root, name)

    assert files(root, engine) == ["src/build/c.py", "src/keep.log"]
    assert files(root, engine, path="a.log") == ["a.log"]
    assert files(root, engine, path="build") == ["build/b.py"]
    assert files(root, engine, path=".github") == [".github/w.yml"]
    assert files(root, engine, path=".hidden") == [".hidden"]


@each_engine
def test_rules_of_the_directories_above_count_too(root, engine):
    put(root, ".gitignore", "*.log\nsrc/deep/skip.py\n")
    put(root, "src/.gitignore", "!important.log\n")
    for name in ("src/deep/a.log", "src/deep/important.log", "src/deep/skip.py", "src/deep/b.py"):
        put(root, name)

    assert files(root, engine, path="src/deep") == ["src/deep/b.py", "src/deep/important.log"]


@each_engine
@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("**/*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("./*.md", ["docs/d.md"]),
        ("*.{md,ts}", ["docs/d.md", "src/e.ts"]),
        ("[ab].py", ["a.py", "src/b.py"]),
        ("[!ab].py", ["src/deep/c.py"]),
        ("?.ts", ["src/e.ts"]),
        ("src/*.py", ["src/b.py"]),
        ("src/**/*.py", ["src/b.py", "src/deep/c.py"]),
        ("src/", ["src/b.py", "src/deep/c.py", "src/e.ts"]),
        ("src/**", ["src/b.py", "src/deep/c.py", "src/e.ts"]),
        ("!*.py", ["docs/d.md", "src/e.ts"]),
        ("!src/", ["a.py", "docs/d.md"]),
        ("!src/**", ["a.py", "docs/d.md"]),
        ("b.py", ["src/b.py"]),
        (" *.md ", ["docs/d.md"]),
        ("**", ["a.py", "docs/d.md", "src/b.py", "src/deep/c.py", "src/e.ts"]),
        ("*/*.py", ["src/b.py"]),
        ("*/", ["docs/d.md", "src/b.py", "src/deep/c.py", "src/e.ts"]),
        ("**/deep/*", ["src/deep/c.py"]),
        ("/src/b.py", ["src/b.py"]),
        ("gone/*.py", []),
        ("a.py/*.py", []),
        ("", ["a.py", "docs/d.md", "src/b.py", "src/deep/c.py", "src/e.ts"]),
    ],
)
def test_a_glob_chooses_files(root, engine, glob, found):
    for name in ("a.py", "src/b.py", "src/deep/c.py", "docs/d.md", "src/e.ts"):
        put(root, name)

    assert files(root, engine, glob=glob) == found


@each_engine
def test_a_glob_may_be_written_from_the_root_or_from_the_path(root, engine):
    for name in ("src/b.py", "src/deep/c.py", "src/e.ts"):
        put(root, name)

    assert files(root, engine, path="src", glob="src/**/*.py") == ["src/b.py", "src/deep/c.py"]
    assert files(root, engine, path="src", glob="deep/*.py") == ["src/deep/c.py"]


@each_engine
def test_a_glob_cannot_lead_out_and_means_nothing_for_a_file(root, engine):
    put(root, "a.txt")

    assert refused(root, engine, "needle", glob="../**/*.py").kind == "invalid_argument"
    assert files(root, engine, path="a.txt", glob="*.py") == ["a.txt"]


@each_engine
def test_a_glob_does_not_bring_ignored_files_back(root, engine):
    put(root, ".gitignore", "secret.py\nvendor\n")
    for name in ("secret.py", "vendor/a.py", "open.py", "src/secret.py", "src/open.py", "src/vendor/b.py"):
        put(root, name)

    assert files(root, engine, glob="*.py") == ["open.py", "src/open.py"]
    assert files(root, engine, glob="src/**/*.py") == ["src/open.py"]
    assert files(root, engine, glob="src/*.py") == ["src/open.py"]


# --- what is shown of it ----------------------------------------------------------------------------


@each_engine
def test_a_long_line_is_cut_around_the_match(root, engine):
    put(
        root,
        "a.js",
        "é" * 2000 + "needle" + "y" * 2000 + "\n" + "z" * 290 + "needle and more of it\nneedle" + "x" * 900,
    )

    _, (middle, end, start) = find(root, engine)
    put(root, "b.js", "x" + "é" * 2000 + "needle")

    assert middle == f"a.js:1: ...{'é' * 50}needle{'y' * 194}..."
    assert end == f"a.js:2: ...{'z' * 100}needle and more of it"
    assert start == f"a.js:3: needle{'x' * 294}..."
    assert find(root, engine, path="b.js")[1] == [f"b.js:1: ...{'é' * 50}needle"]
    put(root, "c.js", "é" * 2000 + "y" * 99 + "needle")
    assert find(root, engine, path="c.js")[1] == [f"c.js:1: ...{'y' * 99}needle"]


@each_engine
def test_lines_up_to_the_limit_are_shown_whole(root, engine):
    put(root, "a.txt", "needle" + "x" * (COLUMNS - 6) + "\n")

    assert find(root, engine)[1] == ["a.txt:1: needle" + "x" * (COLUMNS - 6)]


@each_engine
def test_context_lines_are_cut_too(root, engine):
    put(root, "a.txt", "c" * 5000 + "\nneedle\n")

    assert find(root, engine, context=1)[1][0] == f"a.txt-1- {'c' * COLUMNS}..."


@each_engine
def test_too_many_matches_are_counted_and_the_rest_is_named(root, engine):
    put(root, "a.txt", "needle\n" * 90)
    put(root, "b.txt", "needle\n" * 60)
    for i in range(6):
        put(root, f"c{i}.txt")

    head, lines = find(root, engine)

    assert head == f"first {MOST} of 156 matches in 8 files (; narrow it with path, glob or a longer pattern)"
    assert lines[89:91] == ["a.txt:90: needle", "b.txt:1: needle"]
    assert lines[-1] == "not shown: b.txt (50), c0.txt (1), c1.txt (1), c2.txt (1), c3.txt (1) and 2 more files"
    assert len(lines) == MOST + 1


@each_engine
def test_a_result_stays_within_what_a_model_is_given(root, engine):
    for i in range(MOST):
        put(root, f"{i:03}.txt", "needle" + "é" * 147 + "\n" + "c" * 300 + "\n" + "c" * 300 + "\n")

    head, lines = find(root, engine, context=2)

    assert sum(map(len, lines)) < OUTPUT_BYTES + 1000
    assert re.match(r"first \d\d of 100 matches in 100 files", head)
    assert lines[-1].startswith("not shown: ")


@each_engine
def test_more_than_can_be_read_gives_the_same_first_matches_each_time(root, engine):
    for i in range(40):
        put(root, f"{i:02}.txt", "needle in a line that is not very short\n" * 1500)

    first, again = find(root, engine), find(root, engine)

    assert first[0] == f"first {MOST} matches, there may be more (; narrow it with path, glob or a longer pattern)"
    assert first == again
    assert first[1][0] == "00.txt:1: needle in a line that is not very short"
    assert len(first[1]) == MOST


@each_engine
def test_names_of_any_bytes_are_shown_on_one_line(root, engine):
    for name in (b"new\nline.txt", b"bad\xff.txt", b"a:1:b.txt", b"-dash.txt", "ü.txt".encode()):
        put(root, os.fsdecode(name))

    _, lines = find(root, engine)

    shown = ["-dash.txt", "a:1:b.txt", "bad\\xff.txt", "new\\nline.txt", "ü.txt"]
    assert lines == [f"{name}:1: needle" for name in shown]
    assert find(root, engine, path="bad\\xff.txt")[1] == ["bad\\xff.txt:1: needle"]
    assert find(root, engine, path="new\\nline.txt")[1] == ["new\\nline.txt:1: needle"]


@each_engine
def test_files_in_other_encodings_are_searched_and_shown(root, engine):
    put(root, "bom.txt", b"\xef\xbb\xbfneedle 1\nx\nneedle 2\n")
    put(root, "latin.txt", "needle Grüße\n".encode("latin-1"))
    put(root, "wide.txt", "eins\nneedle drei\n".encode("utf-16"))

    assert find(root, engine)[1] == (
        ["bom.txt:1: needle 1", "bom.txt:3: needle 2", "latin.txt:1: needle Grüße", "wide.txt:2: needle drei"]
    )
    assert find(root, engine, path="wide.txt")[1] == ["wide.txt:2: needle drei"]


@each_engine
def test_binary_files_are_left_out_unless_path_names_one(root, engine):
    put(root, "a.bin", b"\0\1needle\n")
    put(root, "b.txt")

    assert files(root, engine) == ["b.txt"]
    head, lines = find(root, engine, path="a.bin")
    assert (head, lines) == ("binary file matches (; its lines are not text)", [])
    assert find(root, engine, "absent", path="a.bin")[0].startswith("no matches (")


@each_engine
def test_a_nul_far_into_a_text_does_not_hide_its_lines(root, engine):
    put(root, "a.log", "line\n" * 20_000 + "needle \0 here\nneedle\n")

    assert find(root, engine, path="a.log")[1] == ["a.log:20001: needle \\x00 here", "a.log:20002: needle"]


@needs_rg
def test_what_ripgrep_says_about_binary_files_is_not_taken_for_a_path(root):
    put(root, "a/late.bin", b"needle\n" + b"x\n" * 200_000 + b"\0\n")
    put(root, "b.txt")

    assert find(root, RG)[1] == ["a/late.bin:1: needle", "b.txt:1: needle"]


# --- what is refused --------------------------------------------------------------------------------


@each_engine
@pytest.mark.parametrize(
    ("pattern", "escaped", "rg", "re_says"),
    [
        (
            "class ToolError(",
            r"class ToolError\(",
            "unclosed group: (",
            "missing ), unterminated subpattern at position 15",
        ),
        ("[abc", r"\[abc", "unclosed character class: [", "unterminated character set at position 0"),
        ("*", r"\*", "repetition operator missing expression: *", "nothing to repeat at position 0"),
        (
            "a{3,1}",
            r"a\{3,1\}",
            "invalid repetition count range, the start must be <= the end: {3,1}",
            "min repeat greater than max",
        ),
    ],
)
def test_a_pattern_that_does_not_compile_comes_back_with_the_engines_words(root, engine, pattern, escaped, rg, re_says):
    error = refused(root, engine, pattern)

    assert error.kind == "invalid_argument"
    assert error.message.startswith(f"regex parse error: {rg if engine is RG else re_says}")
    assert "\n" not in error.message
    assert error.hint == f"to find this very text, escape it: {escaped}"
    assert error.fields == {"field": "pattern"}


@needs_rg
@pytest.mark.parametrize(
    ("pattern", "message", "hint"),
    [
        ("(?=x)", "regex parse error: look-around, including look-ahead", "search for a part of it"),
        (r"(a)\1", "regex parse error: backreferences are not supported", "search for a part of it"),
        (r"a\nb", r'the literal "\n" is not allowed in a regex', "each line is searched by itself"),
    ],
)
def test_what_ripgrep_cannot_do_comes_with_what_to_do_instead(root, pattern, message, hint):
    error = refused(root, RG, pattern)

    assert error.message.startswith(message)
    assert error.hint.startswith(hint)


@pytest.mark.parametrize(
    "pattern", ["(" * 5000 + ")" * 5000, "(" * 1000 + ")" * 1000, "a{9999999999999}", "((a{1000}){1000}){1000}"]
)
def test_a_pattern_that_is_too_much_for_re_is_refused_or_searched_for(root, pattern):
    put(root, "a.txt")

    try:
        text = asyncio.run(grep(root, pattern, engine=RE, seconds=3))
    except ToolError as error:
        assert error.kind in ("invalid_argument", "tool_failed", "timed_out")
    else:
        assert text


@each_engine
@pytest.mark.parametrize("glob", ["[", "a{b", "src/["])
def test_a_glob_that_does_not_compile_is_named(root, engine, glob):
    put(root, "src/a.py")

    error = refused(root, engine, "x", glob=glob)

    assert error.kind == "invalid_argument"
    assert error.message.startswith("error parsing glob '")
    assert error.fields == {"field": "glob"}
    assert "*.py" in error.hint


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pattern": ""}, "'pattern' is empty; to see what files there are, use list_dir"),
        ({"pattern": "a\0b"}, "'pattern' holds a NUL character"),
        ({"pattern": "\ud800"}, "'pattern' is not valid Unicode"),
        ({"pattern": "x" * 4001}, "'pattern' has 4001 characters; 4000 are allowed"),
        ({"pattern": "x", "glob": "\0"}, "'glob' holds a NUL character"),
        ({"pattern": "x", "context": -1}, "'context' must be from 0 to 20, got -1"),
        ({"pattern": "x", "context": 21}, "'context' must be from 0 to 20, got 21"),
    ],
)
def test_arguments_that_can_never_work_are_refused_by_name(root, arguments, message):
    error = refused(root, RE, **arguments)

    assert error.kind == "invalid_argument"
    assert error.message.startswith(message)
    assert error.fields["field"] == message.split("'")[1]


@each_engine
def test_a_path_that_is_not_there_or_leads_out_or_is_special_is_refused(root, engine):
    os.mkfifo(Path(root.path, "pipe"))
    put(root, "src/a.py")

    missing = refused(root, engine, "x", path="a.py")
    assert (missing.kind, missing.message) == ("not_found", "no such file or directory: a.py")
    assert missing.hint.startswith("a file or directory of that name is at src/a.py")
    assert refused(root, engine, "x", path="..").kind == "invalid_argument"
    assert refused(root, engine, "x", path="/etc").kind == "invalid_argument"
    assert refused(root, engine, "x", path="pipe").message == "special file: pipe"


@needs_proc
@each_engine
def test_a_file_that_cannot_be_read_is_an_error_of_the_tool(engine):
    assert refused(Root("/proc/self"), engine, "x", path="mem").message == "Input/output error: mem"


# --- nothing from outside ---------------------------------------------------------------------------


@each_engine
def test_links_are_not_followed_but_a_link_inside_can_be_the_path(root, engine, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.txt").write_text("needle secret\n")
    put(root, "real/a.txt")
    for name, target in (("out", "../outside"), ("out.txt", "../outside/secret.txt"), ("in", "real"), ("self", ".")):
        Path(root.path, name).symlink_to(target)

    assert files(root, engine) == ["real/a.txt"]
    assert files(root, engine, path="in") == ["in/a.txt"]
    assert files(root, engine, path="in/a.txt") == ["in/a.txt"]
    assert refused(root, engine, "needle", path="out").kind == "invalid_argument"
    assert refused(root, engine, "needle", path="out.txt").kind == "invalid_argument"


@each_engine
def test_a_directory_that_is_swapped_for_a_link_during_the_search_brings_nothing_in(root, engine, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/f.txt").write_text("needle secret\n")
    for i in range(50):
        put(root, f"d{i:02}/f.txt", "needle inside\n")
    place = Path(root.path, "d25")
    Path(root.path, "link").symlink_to("../outside")
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            place.rename(tmp_path / "aside")
            Path(root.path, "link").rename(place)
            place.rename(Path(root.path, "link"))
            (tmp_path / "aside").rename(place)

    async def search_often():
        return [await grep(root, "needle", engine=engine) for _ in range(15 if engine is RG else 6)]

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        texts = asyncio.run(search_often())
    finally:
        stop.set()
        thread.join()

    assert all("secret" not in text for text in texts)
    assert all(text.count("inside") >= 49 for text in texts)


# --- as the model sees it ---------------------------------------------------------------------------


@needs_rg
def test_both_engines_find_the_same(root):
    put(root, ".gitignore", "*.tmp\n**/cache/\ndocs/*.html\n")
    for i, name in enumerate(
        ("a.py", "b/c.py", "b/d.tmp", "b/cache/e.py", "docs/f.html", "docs/g/h.html", "i j.txt", "k.md")
    ):
        put(root, name, f"alpha {i}\nbeta_{i}(x)\n\n  gamma delta\n" * (i + 1))
    queries = [
        {"pattern": p, **o}
        for p in ("alpha", r"beta_\d\(", "^$", "gamma|[12]$", r"\bx\b", ".")
        for o in (
            {},
            {"glob": "*.py"},
            {"glob": "b/**"},
            {"context": 2},
            {"path": "b"},
            {"ignore_case": True, "glob": "!*.md"},
        )
    ]

    async def both(query):
        return [(await grep(root, engine=engine, **query)).partition("\n")[2] for engine in (RG, RE)]

    async def all_of_them():
        return await asyncio.gather(*map(both, queries))

    for query, (by_rg, by_re) in zip(queries, asyncio.run(all_of_them()), strict=True):
        assert by_rg == by_re, query
