"""How a search engine is chosen, started, bounded, not believed, and ended."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import runpy
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tool_loop.errors import ToolError, UsageError
from tool_loop.tools import _child, _worker
from tool_loop.tools._child import run
from tool_loop.tools._matches import parse
from tool_loop.tools.search import Engine, grep, search_engine
from tool_loop.tools.workspace import Root

needs_proc = pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no /proc here")
HEAD = "#!/bin/sh\n"


@pytest.fixture
def root(tmp_path: Path) -> Root:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/a.txt").write_text("one\nneedle\n")
    (tmp_path / "secret.txt").write_text("one\nneedle secret\n")
    return Root(tmp_path / "root")


def engine_that(directory: Path, script: str) -> Engine:
    """A program in the place of ripgrep."""
    program = directory / "rg"
    program.write_text(HEAD + script)
    program.chmod(0o755)
    return Engine("rg", str(program))


def search(root: Root, engine: Engine, pattern: str = "needle", **options) -> str:
    return asyncio.run(grep(root, pattern, engine=engine, **options))


def refused(root: Root, engine: Engine, **options) -> ToolError:
    with pytest.raises(ToolError) as caught:
        search(root, engine, **options)
    return caught.value


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")


def gone(pids: list[int]) -> bool:
    """Whether they end; a killed process may take a moment to disappear."""
    ends = time.monotonic() + 2
    while any(map(alive, pids)) and time.monotonic() < ends:
        time.sleep(0.005)
    return not any(map(alive, pids))


def open_descriptors() -> int:
    place = Path("/proc/self/fd")
    return len(list(place.iterdir())) if place.is_dir() else 0


# --- which engine -----------------------------------------------------------------------------------


def program(directory: Path, name: str = "rg", mode: int = 0o755) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(HEAD)
    path.chmod(mode)
    return path


def test_the_environment_names_the_engine(tmp_path):
    mine = program(tmp_path, "my-rg")

    assert search_engine({"TOOL_LOOP_RG": str(mine)}) == Engine("rg", str(mine))
    assert search_engine({"TOOL_LOOP_RG": "none", "PATH": str(tmp_path)}) == Engine("re", sys.executable)


@pytest.mark.parametrize("value", ["/no/such/rg", "/", "\0"])
def test_an_engine_that_is_no_program_is_an_error_that_says_what_to_do(value):
    with pytest.raises(UsageError, match=r"TOOL_LOOP_RG is .*, which is not a program; unset it, or set it to none"):
        search_engine({"TOOL_LOOP_RG": value})


def test_ripgrep_beside_python_comes_before_the_one_on_the_path(tmp_path):
    beside = Path(sys.executable).parent / "rg"
    on_path = program(tmp_path)

    found = search_engine({"PATH": f"/no/such/dir:{tmp_path}"})

    assert found.program == str(beside if beside.exists() else on_path)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("{tmp}/no:{tmp}/bin", "ripgrep ({tmp}/bin/rg)"),
        ("{tmp}/plain:{tmp}/folder:{tmp}/bin", "ripgrep ({tmp}/bin/rg)"),
        (".:bin:", "Python's re, in a child process ({tmp}/elsewhere/python)"),
        ("", "Python's re, in a child process ({tmp}/elsewhere/python)"),
    ],
)
def test_a_relative_entry_of_the_path_is_no_place_to_find_a_program(tmp_path, monkeypatch, path, found):
    program(tmp_path / "bin")
    program(tmp_path / "plain", mode=0o644)
    (tmp_path / "folder/rg").mkdir(parents=True)
    program(tmp_path, "rg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", f"{tmp_path}/elsewhere/python")

    assert str(search_engine({"PATH": path.format(tmp=tmp_path)})) == found.format(tmp=tmp_path)


def test_without_ripgrep_and_without_python_there_is_nothing_to_search_with(root):
    error = refused(root, Engine("re", ""))

    assert error.message == "there is nothing to search with: no ripgrep, and no Python to start"
    assert "install ripgrep" in error.hint


@pytest.mark.parametrize("damage", ["gone", "not for this machine"])
def test_an_engine_that_cannot_be_started_is_replaced(root, tmp_path, damage):
    engine = engine_that(tmp_path, "")
    if damage == "gone":
        Path(engine.program).unlink()
    else:
        Path(engine.program).write_bytes(b"\x7fELF nonsense")

    assert search(root, engine) == "1 match in 1 file (Python re)\na.txt:2: needle"


# --- how it is started ------------------------------------------------------------------------------


@needs_proc
def test_a_child_gets_the_place_and_nothing_else_of_ours(root, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    code = (
        'import os, sys; print(sorted(os.environ), os.listdir("/proc/self/fd"), os.getcwd(),'
        ' os.getsid(0) == os.getpid(), sys.argv[1:], sep="\\n", file=open("said", "w"))'
    )
    engine = engine_that(tmp_path, f"exec {sys.executable} -I -S -c '{code}' \"$@\"\n")

    search(root, engine, "--needle", glob="*.txt", context=2, ignore_case=True)
    environment, descriptors, cwd, own_session, argv = Path(root.path, "said").read_text().splitlines()

    assert set(eval(environment)) <= {"LC_CTYPE", "PWD", "SHLVL", "_", "OLDPWD"}  # those of sh and python themselves
    assert len(eval(descriptors)) == 4  # the three standard ones, and the listing itself
    assert cwd == str(Path(root.path).resolve())
    assert own_session == "True"
    arguments = eval(argv)
    assert arguments[0] == "--no-config"
    assert arguments[-2:] == ["--regexp=--needle", "--"]
    assert {"--context=2", "--ignore-case", "--type-add=wanted:*.txt", "--type=wanted"} <= set(arguments)
    assert not {"-P", "--pcre2", "-L", "--follow"} & set(arguments)


def test_a_configuration_of_the_person_or_the_workspace_changes_nothing(root, monkeypatch, tmp_path):
    (tmp_path / "config").write_text("--files-with-matches\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "config"))

    assert search(root, search_engine()).endswith("\na.txt:2: needle")


# --- it is not believed -----------------------------------------------------------------------------


def says(*records: str) -> str:
    return "printf '" + "".join(records).replace("\0", "\\000").replace("\n", "\\n") + "'\n"


def test_only_what_the_root_holds_is_shown_whatever_the_engine_says(root, tmp_path):
    engine = engine_that(
        tmp_path,
        says(
            "../secret.txt\x002:1:4:needle secret\n",
            "a.txt\x001:1:0:needle secret\n",
            "a.txt\x002:1:4:needl\n",
            "a.txt\x002:1:400:needle\n",
            "gone.txt\x002:1:4:needle\n",
            f"{root.path}/a.txt\x002:1:4:needle\n",
            "a.txt\x002:1:4:needle\n",
        ),
    )

    assert search(root, engine) == (
        "1 match in 1 file (ripgrep; 6 lines changed during the search and left out)\na.txt:2: needle"
    )


def test_when_all_of_it_has_changed_there_is_no_match(root, tmp_path):
    engine = engine_that(tmp_path, says("gone.txt\x002:1:4:needle\n"))

    assert search(root, engine).startswith("no matches (ripgrep; 1 line changed during the search")


def test_a_long_line_is_looked_up_where_the_engine_says_it_is(root, tmp_path):
    Path(root.path, "b.js").write_text("x" * 900 + "\n")
    long = "y" * 400
    engine = engine_that(tmp_path, says(f"b.js\x001:1:0:{long}\n", f"b.js\x001:500:0:{'x' * 400}\n"))

    head, line = search(root, engine).splitlines()

    assert head.startswith("1 match in 1 file (ripgrep; 1 line changed")
    assert line == f"b.js:1: ...{'x' * 300}..."


def test_output_that_makes_no_sense_is_passed_over(root, tmp_path):
    engine = engine_that(tmp_path, says("nonsense\x00and more\n", "a.txt\x002:1:4:needle\n", "b.txt\x003:1"))

    assert search(root, engine).splitlines()[1:] == ["a.txt:2: needle"]


def test_records_are_read_in_time_that_grows_with_their_size_only():
    started = time.perf_counter()

    assert parse(b"x" * 1_000_000, above=b"", name=None, columns=True) == ([], False)
    assert parse(b"\n" * 500_000 + b"\0" * 500_000, above=b"", name=None, columns=True)[0] == []
    assert time.perf_counter() - started < 1


# --- how it ends ------------------------------------------------------------------------------------

CHILDREN = "sleep 50 & echo $$ $! > pids.tmp; mv pids.tmp pids\n"


def pids(root: Root) -> list[int]:
    return [int(word) for word in Path(root.path, "pids").read_text().split()]


def test_a_search_past_its_deadline_is_killed_with_all_it_started(root, tmp_path):
    engine = engine_that(tmp_path, f"{CHILDREN}wait\n")

    error = refused(root, engine, seconds=0.3)

    assert (error.kind, error.message) == ("timed_out", "nothing was found within 0.3 s")
    assert error.hint == "narrow it with path or glob"
    assert gone(pids(root))


def test_what_was_found_before_the_deadline_is_shown(root, tmp_path):
    engine = engine_that(tmp_path, says("a.txt\x002:1:4:needle\n") + f"{CHILDREN}wait\n")

    text = search(root, engine, seconds=0.3)

    assert text.startswith("first 1 match, there may be more (ripgrep; stopped after 0.3 s; narrow it")
    assert text.endswith("\na.txt:2: needle")
    assert gone(pids(root))


def test_a_cancelled_search_leaves_no_process(root, tmp_path):
    engine = engine_that(tmp_path, f"{CHILDREN}wait\n")

    async def cancelled(times: int) -> None:
        task = asyncio.ensure_future(grep(root, "needle", engine=engine))
        while not os.path.exists(f"{root.path}/pids"):  # noqa: ASYNC110, ASYNC240, PTH110
            await asyncio.sleep(0.001)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task

    for times in (1, 3):
        asyncio.run(cancelled(times))
        assert gone(pids(root))
        Path(root.path, "pids").unlink()


def test_a_cancel_while_a_program_cannot_be_started_is_still_a_cancel():
    async def never_started():
        for _ in range(10):
            await asyncio.sleep(0)
        raise FileNotFoundError

    async def main():
        waiting = asyncio.ensure_future(_child._started(asyncio.ensure_future(never_started()), 5))
        await asyncio.sleep(0)
        waiting.cancel()
        await waiting

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())


def test_a_program_that_takes_too_long_to_start_is_not_waited_for():
    async def main():
        await _child._started(asyncio.ensure_future(asyncio.sleep(60)), 0.01)

    with pytest.raises(TimeoutError, match="not started within"):
        asyncio.run(main())


def test_cancelled_at_any_turn_nothing_is_left_behind(root):
    """Cancel after the first turn of the event loop, after the second, until a search is over before."""
    engine = Engine("re", sys.executable)
    gc.collect()
    before = open_descriptors()

    async def main(turns: int) -> bool:
        task = asyncio.ensure_future(grep(root, "needle", engine=engine))
        for _ in range(turns):
            if task.done():
                break
            await asyncio.sleep(0)
        finished = task.done()
        task.cancel()
        await asyncio.wait((task,))
        return finished

    for turns in (*range(12), 20, 50, 100):
        asyncio.run(main(turns))
    ends = time.monotonic() + 2
    while open_descriptors() > before and time.monotonic() < ends:
        time.sleep(0.005)
    assert open_descriptors() <= before
    children = subprocess.run(
        ["ps", "--ppid", str(os.getpid()), "-o", "args="], capture_output=True, text=True, check=False
    )
    assert "_worker.py" not in children.stdout


def test_a_repetition_within_a_repetition_is_stopped_not_waited_for(root):
    Path(root.path, "b.txt").write_text("a" * 40 + "!\n")
    started = time.perf_counter()

    error = refused(root, Engine("re", sys.executable), pattern="(a+)+b", path="b.txt", seconds=0.3)

    assert error.kind == "timed_out"
    assert "(a+)+" in error.hint
    assert time.perf_counter() - started < 2


def test_an_engine_that_dies_is_an_error_of_the_tool(root, tmp_path):
    error = refused(root, engine_that(tmp_path, "echo what happened >&2; exit 101\n"))

    assert (error.kind, error.message) == ("tool_failed", "ripgrep ended with 101: what happened")


def test_files_that_cannot_be_read_are_counted(root, tmp_path):
    engine = engine_that(
        tmp_path, says("a.txt\x002:1:4:needle\n") + "echo 'rg: x: Permission denied (os error 13)' >&2; exit 2\n"
    )

    assert search(root, engine) == "1 match in 1 file (ripgrep; 1 could not be read)\na.txt:2: needle"


def test_very_much_on_stderr_is_not_kept(root, tmp_path):
    engine = engine_that(tmp_path, "head -c 3000000 /dev/zero | tr '\\0' x >&2; exit 3\n")

    assert len(refused(root, engine).message) < 300


LADDER = """
case "$*" in *--max-filesize*) ;; *) kill -ABRT $$ ;; esac
"""


def test_an_engine_that_is_refused_memory_is_asked_for_less(root, tmp_path):
    engine = engine_that(tmp_path, f'echo "$*" >> tries\n{LADDER}' + says("a.txt\x002:1:4:needle\n"))

    text = search(root, engine)
    tries = Path(root.path, "tries").read_text().splitlines()

    assert text == (
        "1 match in 1 file (ripgrep; files over 16 MiB are left out, a line in one is too long)\na.txt:2: needle"
    )
    assert ["--column" in line for line in tries] == [True, True, False, True]
    assert ["--mmap" in line for line in tries] == [False, True, True, False]


def test_an_engine_that_never_gets_enough_memory_is_an_error_of_the_tool(root, tmp_path):
    assert refused(root, engine_that(tmp_path, "kill -ABRT $$\n")).message.startswith("ripgrep ended with -6")


def test_without_columns_a_long_line_is_shown_from_its_start(root, tmp_path):
    Path(root.path, "b.js").write_text("x" * 900 + "\n")
    script = 'case "$*" in *--column*) kill -ABRT $$ ;; esac\n'
    engine = engine_that(
        tmp_path, script + says(f"b.js\x001:0:{'x' * 400}\n", "a.txt\x002:4:needle\n", "a.txt\x001-0-one\n")
    )

    assert search(root, engine, context=1).splitlines()[1:] == (
        ["a.txt-1- one", "a.txt:2: needle", "--", f"b.js:1: {'x' * 300}..."]
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit on memory is Linux's")
def test_the_heap_of_a_child_is_bounded():
    code = "print(len(bytearray(400 << 20)))"

    async def main():
        return await run(
            [sys.executable, "-I", "-S", "-c", f"input_ = {code!r}; import time; time.sleep(0.2); exec(input_)"],
            cwd="/",
            seconds=10,
            most=100,
        )

    assert "MemoryError" in asyncio.run(main()).err


def test_a_child_that_ends_at_once_is_no_trouble():
    async def main():
        outcomes = await asyncio.gather(
            *(run(["/bin/sh", "-c", "exit 7"], cwd="/", seconds=5, most=10) for _ in range(20))
        )
        return {outcome.code for outcome in outcomes}

    assert asyncio.run(main()) == {7}


# --- the worker -------------------------------------------------------------------------------------

RULES = b"""
# a comment
*.log
!keep.log
/top
build/
docs/*.html
a/**/z
**/deep/x
end/**
[ab]?.txt
[!c]9
\\#hash
\\!bang
trailing\\\x20
spaces\x20\x20
with\\*star
[
{x,y}
"""
PATHS = [
    *(
        "a.log",
        "keep.log",
        "sub/keep.log",
        "sub/a.log",
        "top",
        "sub/top",
        "build",
        "build/x",
        "sub/build/y",
        "docs/a.html",
    ),
    *("docs/b/c.html", "sub/docs/d.html", "a/z", "a/b/z", "a/b/c/z", "b/a/z", "deep/x", "q/deep/x", "q/deep/y", "end"),
    *("end/q", "end/q/r", "a1.txt", "c1.txt", "sub/b2.txt", "a9", "c9", "#hash", "!bang", "spaces", "with*star", "a"),
    *("withxstar", "{", "x", "{x,y}", "[", "normal", "a/b", "trailing ", "trailing"),
]


def verdict(rules: _worker.Rules, path: str) -> bool:
    parts = path.split("/")
    for depth in range(1, len(parts)):
        if rules.verdict("/".join(parts[:depth]).encode(), directory=True):
            return True
    return bool(rules.verdict(path.encode(), directory=False))


@pytest.mark.skipif(shutil.which("git") is None, reason="git says what is right here")
def test_rules_for_ignoring_mean_what_they_mean_to_git(tmp_path):
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_bytes(RULES)
    for path in PATHS:
        if any(other.startswith(f"{path}/") for other in PATHS):
            (tmp_path / path).mkdir(parents=True, exist_ok=True)
        else:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).touch()
    files = [path for path in PATHS if (tmp_path / path).is_file()]
    done = subprocess.run(
        ["git", "-c", "core.quotePath=false", "check-ignore", "--stdin", "-z"],
        input="\0".join(files).encode(),
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    ignored = set(done.stdout.decode().split("\0")) - {""}

    rules = _worker.Rules(0, b"", _worker.rules_of(RULES))

    assert ignored
    assert {path for path in files if verdict(rules, path)} == ignored


def job(**changes) -> str:
    base = {"pattern": "needle", "glob": "", "context": 0, "ignore_case": False, "shallow": False, "columns": 20}
    return json.dumps({**base, "descriptor": -1, "name": "", "ignore": [], **changes})


@pytest.fixture
def tree(tmp_path, monkeypatch):
    for name, content in {
        "a.txt": b"one\nneedle\ntwo\n",
        "long.txt": b"x" * 30 + b"needle" + b"y" * 30 + b"\n",
        "b/c.py": b"needle\n",
        "b/d/e.py": b"needle\n",
        ".gitignore": b"*.log\n",
        "skip.log": b"needle\n",
        "node_modules/m.js": b"needle\n",
        ".git/config": b"needle\n",
        "bin.dat": b"\0needle\n",
        "wide.txt": "\nneedle".encode("utf-16"),
        "mark.txt": b"\xef\xbb\xbfneedle\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / ".ignore")
    (tmp_path / "link").symlink_to("a.txt")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_worker_writes_what_ripgrep_writes(tree, capfdbinary):
    code = _worker.main(job())
    out, err = capfdbinary.readouterr()

    assert code == 0
    assert out.split(b"\n") == [
        b"a.txt\x002:1:4:needle",
        b"b/c.py\x001:1:0:needle",
        b"b/d/e.py\x001:1:0:needle",
        b"long.txt\x001:31:0:" + b"x" * 20 + b" [... omitted end of long line]",
        b"mark.txt\x001:1:0:needle",
        b"wide.txt\x002:1:0:needle",
        b"",
    ]
    assert err == b"searched 7 files, 0 in part\n"


def test_the_worker_is_a_program(tree, monkeypatch, capfdbinary):
    monkeypatch.setattr(sys, "argv", ["_worker.py", job(glob="a.*")])

    with pytest.raises(SystemExit) as ended:
        runpy.run_path(_worker.__file__, run_name="__main__")
    assert ended.value.code == 0
    assert capfdbinary.readouterr().out == b"a.txt\x002:1:4:needle\n"


@pytest.mark.parametrize(
    ("changes", "code", "out"),
    [
        ({"pattern": "absent"}, 1, b""),
        ({"glob": "*.py"}, 0, b"b/c.py\x001:1:0:needle\nb/d/e.py\x001:1:0:needle\n"),
        ({"glob": "b/*.py"}, 0, b"b/c.py\x001:1:0:needle\n"),
        ({"glob": "!b/"}, 0, None),
        ({"glob": "a.*", "context": 1}, 0, b"a.txt\x001-0-one\na.txt\x002:1:4:needle\na.txt\x003-11-two\n"),
        (
            {"glob": "*.{py,txt}", "shallow": True, "ignore": [["up/", "/up/long.txt\nwide.txt\nmark.txt\n"]]},
            0,
            b"a.txt\x002:1:4:needle\n",
        ),
        ({"glob": "*.py", "ignore": [["", "# nothing\n\nb/d\n!b\n"]]}, 0, b"b/c.py\x001:1:0:needle\n"),
    ],
)
def test_the_worker_searches_what_it_is_told_to(tree, capfdbinary, changes, code, out):
    assert _worker.main(job(**changes)) == code
    said = capfdbinary.readouterr().out
    assert said == out if out is not None else b"b/" not in said and b"a.txt" in said


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pattern": "("}, b"regex parse error: missing ), unterminated subpattern at position 0\n"),
        ({"pattern": "a{99999999999}"}, b"regex parse error: the repetition number is too large\n"),
        ({"glob": "["}, b"error parsing glob '[': unclosed character class; missing ']'\n"),
        ({"glob": "{a"}, b"error parsing glob '{a': unclosed alternate group; missing '}'\n"),
    ],
)
def test_the_worker_says_what_does_not_compile(tree, capfdbinary, changes, message):
    assert _worker.main(job(**changes)) == 2
    assert capfdbinary.readouterr() == (b"", message)


@pytest.mark.parametrize(
    ("name", "out"),
    [
        ("a.txt", b"shown\x002:1:4:needle\n"),
        ("bin.dat", b'shown: binary file matches (found "\\0" byte around offset 0)\n'),
        ("pipe", b""),
    ],
)
def test_the_worker_searches_one_open_file(tree, capfdbinary, name, out):
    descriptor = os.open(tree / name, os.O_RDONLY | os.O_NONBLOCK)
    try:
        _worker.main(job(descriptor=descriptor, name="shown"))
    finally:
        os.close(descriptor)

    assert capfdbinary.readouterr().out == out


def test_a_line_longer_than_a_piece_is_one_line(tree, capfdbinary):
    Path("long.txt").write_bytes(
        b"needle" + b"x" * (_worker.PIECE * 2) + b"needle\nneedle\n" + b"y" * (_worker.PIECE + 9) + b"\nend\n"
    )
    descriptor = os.open("long.txt", os.O_RDONLY)
    try:
        _worker.main(job(descriptor=descriptor, name="f", context=1))
    finally:
        os.close(descriptor)

    heads = [record.partition(b"\0")[2][:12] for record in capfdbinary.readouterr().out.splitlines()]
    assert [head.partition(b"n")[0].partition(b"y")[0] for head in heads] == [b"1:1:0:", b"2:1:2097165:", b"3-2097172-"]


def test_the_beginning_of_a_very_large_file_is_searched_and_it_is_said(tree, capfdbinary):
    with Path("large.txt").open("wb") as file:
        file.write(b"needle\n" + b"x" * 20_000)
        file.truncate(_worker.FILE_BYTES + 10)

    _worker.main(job(glob="large.txt"))

    assert capfdbinary.readouterr().err == b"searched 1 files, 1 in part\n"


def test_what_cannot_be_opened_is_complained_about(tree, capfdbinary):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("sock")
        code = _worker.main(job(glob="sock"))

    assert code == 1
    assert capfdbinary.readouterr().err == (
        b"sock: No such device or address (os error 6)\nsearched 0 files, 0 in part\n"
    )


def test_the_worker_goes_only_so_deep(tree, capfdbinary):
    deep = Path("x/" * (_worker.DEPTH + 5))
    deep.mkdir(parents=True)
    (deep / "a.txt").write_text("needle\n")

    _worker.main(job(glob="a.txt"))

    assert capfdbinary.readouterr() == (b"a.txt\x002:1:4:needle\n", b"searched 1 files, 0 in part\n")


def test_rules_for_ignoring_that_are_no_file_are_no_rules(root):
    os.mkfifo(Path(root.path, ".gitignore"))
    Path(root.path, "src").mkdir()
    Path(root.path, "src/b.txt").write_text("needle\n")

    for path in ("src", "."):
        assert search(root, Engine("re", sys.executable), path=path).splitlines()[-1] == "src/b.txt:1: needle"
    # ripgrep opens it and waits, as long as it may.
    assert search_engine().name == "re" or refused(root, search_engine(), seconds=0.3).kind == "timed_out"
