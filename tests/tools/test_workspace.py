"""A root: what can be opened through it, what cannot, and in which words it says so."""

from __future__ import annotations

import gc
import os
import re
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from hypothesis import example, given, settings, strategies as st

from tool_loop.errors import ToolError, UsageError
from tool_loop.runtime.text import shown, unshown
from tool_loop.tools import _beneath
from tool_loop.tools._beneath import DIRECTORY, READ, best_opener, kernel, walk
from tool_loop.tools.workspace import Root

needs_proc = pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no /proc here")


def has_kernel() -> bool:
    directory = os.open("/", os.O_RDONLY)
    try:
        return best_opener(directory) is kernel
    finally:
        os.close(directory)


OPENERS = [
    pytest.param(kernel, id="kernel", marks=pytest.mark.skipif(not has_kernel(), reason="no openat2 here")),
    pytest.param(walk, id="walk"),
]
each_opener = pytest.mark.parametrize("opener", OPENERS)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A workspace beside things that nobody may reach through it."""
    root = tmp_path / "root"
    (root / "src/deep").mkdir(parents=True)
    (root / "src/agent.py").write_text("agent")
    (root / "src/deep/nested.py").write_text("nested")
    (root / "top.txt").write_text("top")
    (root / "..data").write_text("dots")
    (root / "in_file").symlink_to("src/agent.py")
    (root / "in_dir").symlink_to("src/deep")
    (root / "src/deep/up").symlink_to("../../top.txt")
    (root / "chain").symlink_to("in_dir/up")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    (tmp_path / "root-evil").mkdir()
    (tmp_path / "root-evil/secret.txt").write_text("secret")
    (root / "out_file").symlink_to("../outside/secret.txt")
    (root / "out_dir").symlink_to(outside)
    (root / "back").symlink_to(root / "top.txt")
    (root / "loop").symlink_to("loop2")
    (root / "loop2").symlink_to("loop")
    (root / "dangling").symlink_to("src/gone.py")
    return root


def content(root: Root, path: str) -> str:
    with root.opened(path) as descriptor:
        return os.read(descriptor, 100).decode()


def refused(root: Root, path: str) -> ToolError:
    with pytest.raises(ToolError) as caught:
        root.open(path)
    return caught.value


def open_descriptors() -> int:
    place = Path("/proc/self/fd")
    return len(list(place.iterdir())) if place.is_dir() else 0


@contextmanager
def no_descriptor_left():
    gc.disable()  # what earlier tests left behind must not be closed just now
    before = open_descriptors()
    try:
        yield
        assert open_descriptors() == before
    finally:
        gc.enable()


# --- what can be opened ---------------------------------------------------------------------------


@each_opener
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("top.txt", "top"),
        ("./top.txt", "top"),
        ("src//agent.py", "agent"),
        ("src/../top.txt", "top"),
        ("src/deep/../../src/agent.py", "agent"),
        ("..data", "dots"),
        ("in_file", "agent"),
        ("in_dir/nested.py", "nested"),
        ("in_dir/up", "top"),
        ("in_dir/../agent.py", "agent"),
        ("chain", "top"),
    ],
)
def test_paths_and_links_that_stay_inside_are_opened(tree, opener, path, text):
    assert content(Root(tree, opener=opener), path) == text


@each_opener
@pytest.mark.parametrize("path", ["", ".", "src", "src/", "src/.", "src/deep/..", "in_dir", "in_dir/", "./src/../src"])
def test_directories_are_opened_too(tree, opener, path):
    root = Root(tree, opener=opener)

    with root.opened(path, want="directory") as descriptor:
        assert os.listdir(descriptor)  # noqa: PTH208


@each_opener
def test_a_root_that_is_a_link_is_the_directory_it_points_to(tree, opener):
    link = tree.parent / "link"
    link.symlink_to("root")

    assert content(Root(link, opener=opener), "src/agent.py") == "agent"


@each_opener
def test_a_root_stays_the_same_directory_when_its_name_comes_to_mean_another(tree, opener):
    root = Root(tree, opener=opener)
    tree.rename(tree.parent / "moved")
    tree.symlink_to("outside")

    assert content(root, "top.txt") == "top"
    assert refused(root, "secret.txt").kind == "not_found"


@needs_proc
@each_opener
def test_any_directory_can_be_a_root_even_the_whole_disk(opener):
    root = Root("/", opener=opener)

    with root.opened("proc/self", want="directory") as descriptor:
        assert "status" in os.listdir(descriptor)  # noqa: PTH208
    assert refused(root, "proc/self/root/etc").kind == "invalid_argument"
    assert refused(root, "..").kind == "invalid_argument"


# --- what cannot ----------------------------------------------------------------------------------


@each_opener
@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../",
        "../outside/secret.txt",
        "../root-evil/secret.txt",
        "../root/top.txt",
        "src/../../outside/secret.txt",
        "gone/../../outside/secret.txt",
        "/etc/passwd",
        "/",
        "//etc/passwd",
        "out_file",
        "out_dir",
        "out_dir/secret.txt",
        "in_dir/../../../outside/secret.txt",
        "back",
        "loop",
        "loop/x",
        "a" * 300,
        "x/" * 3000,
        "src/agent.py\0.txt",
        "\0",
        "\ud800",
    ],
)
def test_a_path_that_leads_out_or_can_never_work_is_refused(tree, opener, path):
    root = Root(tree, opener=opener)

    with no_descriptor_left():
        assert refused(root, path).kind == "invalid_argument"


@each_opener
def test_a_sibling_whose_name_begins_like_the_root_is_outside(tree, opener):
    absolute = f"{tree}-evil/secret.txt"

    assert refused(Root(tree, opener=opener), absolute).kind == "invalid_argument"


@each_opener
@pytest.mark.parametrize(
    "path", ["gone", "gone/deeper", "src/gone.py", "top.txt/", "top.txt/x", "dangling", "in_dir/gone"]
)
def test_what_does_not_exist_is_not_found(tree, opener, path):
    root = Root(tree, opener=opener)

    with no_descriptor_left():
        error = refused(root, path)
    assert (error.kind, error.message.partition(":")[0]) == ("not_found", "no such file")
    assert error.fields == {"field": "path"}


@each_opener
def test_messages_begin_with_a_phrase_and_hints_say_what_to_do(tree, opener):
    root = Root(tree, opener=opener)

    assert refused(root, "../x").message == "path leaves the workspace: ../x"
    assert refused(root, "/x").message == "absolute path: /x"
    assert refused(root, "/x").hint.startswith("paths are relative to the workspace")
    assert refused(root, "loop").message == "link that cannot be followed: loop"
    with pytest.raises(ToolError, match=r"^no such directory: x$"):
        root.open("x", want="directory")


@each_opener
def test_more_links_in_a_row_than_the_kernel_follows_are_refused(tree, opener):
    (tree / "l0").symlink_to("top.txt")
    for i in range(1, 45):
        (tree / f"l{i}").symlink_to(f"l{i - 1}")
    root = Root(tree, opener=opener)

    assert content(root, "l39") == "top"
    assert refused(root, "l40").kind == "invalid_argument"


def test_the_walk_holds_a_bounded_number_of_descriptors(tmp_path):
    deep = "d/" * 210
    (tmp_path / deep).mkdir(parents=True)
    root = Root(tmp_path, opener=walk)

    with no_descriptor_left():
        assert refused(root, deep).message.startswith("path too long")


@each_opener
def test_a_fifo_does_not_block_and_a_socket_is_special(tree, opener):
    os.mkfifo(tree / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(tree)  # the name of a socket has at most 108 characters
        listener.bind("sock")
        os.chdir(here)
        root = Root(tree, opener=opener)

        os.close(root.open("fifo"))
        assert refused(root, "sock").message == "special file: sock"


@each_opener
def test_an_error_of_the_system_inside_the_block_is_a_tool_error(tree, opener):
    root = Root(tree, opener=opener)

    with pytest.raises(ToolError, match=r"^Input/output error: top\.txt$") as caught, root.opened("top.txt"):
        raise OSError(5, "Input/output error")
    assert caught.value.kind == "tool_failed"


# --- the words for escaped names -------------------------------------------------------------------


@each_opener
@pytest.mark.parametrize(
    "name", ["new\nline", "tab\t", "back\\slash", "esc\x1b[31m", "\udcff\udc80", "\u202ertl", "\x85", "\\x41"]
)
def test_a_name_that_was_shown_escaped_can_be_given_back(tmp_path, opener, name):
    (tmp_path / name).write_text("found")
    root = Root(tmp_path, opener=opener)

    assert re.fullmatch(r"[ -~]+", shown(name))
    assert content(root, shown(name)) == "found"
    assert content(root, name) == "found"


def test_a_name_with_backslashes_that_is_no_escape_is_not_found_as_given(tmp_path):
    error = refused(Root(tmp_path), "src\\new.py")

    assert (error.kind, error.message) == ("not_found", r"no such file: src\\new.py")


@given(st.binary(min_size=1, max_size=40))
def test_every_name_is_shown_in_valid_text_on_one_line_and_comes_back(name):
    text = shown(name)

    assert text.encode().decode() == text
    assert text.isprintable() or " " in text or not text.isascii()
    assert len(text.splitlines()) == 1
    assert os.fsencode(unshown(text)) == name


# --- no path leads out ------------------------------------------------------------------------------

PARTS = ["..", ".", "", "src", "deep", "in_dir", "in_file", "out_dir", "out_file", "up", "agent.py", "top.txt"]
PARTS += ["secret.txt", "loop", "back", "root", "root-evil", "outside", "proc", "etc", "gone", "~", "chain"]
paths = st.one_of(
    st.lists(st.sampled_from(PARTS), max_size=9).map("/".join),
    st.text(st.characters(codec="utf-8", exclude_characters=""), max_size=30),
)


@pytest.mark.skipif(not has_kernel(), reason="no openat2 here")
@settings(max_examples=250, deadline=None)
@given(paths)
@example("in_dir/../../top.txt")
@example("src/deep/up/..")
def test_no_path_leads_out_and_both_openers_agree(planted, path):
    directory, inside = planted

    def identity(opener):
        try:
            descriptor = Root(directory, opener=opener).open(path)
        except ToolError as error:
            return error.kind
        info = os.fstat(descriptor)
        os.close(descriptor)
        return info.st_dev, info.st_ino

    by_kernel, by_walk = identity(kernel), identity(walk)

    assert by_kernel == by_walk
    assert by_kernel in inside or by_kernel in ("not_found", "invalid_argument")


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A tree like `tree`, made once, and the identities of everything that is in it."""
    base = tmp_path_factory.mktemp("planted")
    subprocess.run(
        "mkdir -p root/src/deep outside root-evil; cd root; echo a > src/agent.py; echo t > top.txt;"
        "ln -s src/agent.py in_file; ln -s src/deep in_dir; ln -s ../../top.txt src/deep/up; ln -s in_dir/up chain;"
        "echo s > ../outside/secret.txt; cp ../outside/secret.txt ../root-evil/; ln -s ../outside/secret.txt out_file;"
        "ln -s ../outside out_dir; ln -s loop loop; ln -s $PWD/top.txt back",
        shell=True,
        check=True,
        cwd=base,
    )
    root = base / "root"
    found = [root, *(Path(above, name) for above, names, files in os.walk(root) for name in names + files)]
    return root, {(info.st_dev, info.st_ino) for info in map(os.lstat, found)}


@each_opener
def test_a_directory_that_is_swapped_for_a_link_does_not_lead_out(tree, opener):
    """The race: between any check of a path and its use, somebody puts a link there."""
    swapped = tree / "swapped"
    swapped.mkdir()
    (swapped / "secret.txt").write_text("inside")
    (tree / "inside_link").symlink_to("../outside")
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            swapped.rename(tree / "aside")
            (tree / "inside_link").rename(swapped)
            swapped.rename(tree / "inside_link")
            (tree / "aside").rename(swapped)

    thread = threading.Thread(target=swap)
    thread.start()
    read: set[str] = set()
    kinds: set[str] = set()
    root = Root(tree, opener=opener)
    try:
        for attempt in count():
            try:
                read.add(content(root, "swapped/secret.txt" if attempt % 2 else "src/../swapped/../swapped/secret.txt"))
            except ToolError as error:
                kinds.add(error.kind)
            if (attempt > 300 and read and kinds) or attempt > 1500:
                break
    finally:
        stop.set()
        thread.join()

    assert read == {"inside"}
    assert kinds <= {"not_found", "invalid_argument", "tool_failed"}


@each_opener
def test_a_directory_that_is_moved_out_takes_nobody_along(tree, opener):
    """`..` inside a directory that is moved out in the middle of the walk must not mean the new parent."""
    moving = tree / "moving/deep"
    moving.mkdir(parents=True)
    away = tree.parent / "outside/moving"
    stop = threading.Event()

    def move():
        while not stop.is_set():
            moving.parent.rename(away)
            away.rename(moving.parent)

    thread = threading.Thread(target=move)
    thread.start()
    root = Root(tree, opener=opener)
    read: set[str] = set()
    try:
        for _ in range(300):
            try:
                read.add(content(root, "moving/deep/../../secret.txt"))
            except ToolError:
                read.add("")
    finally:
        stop.set()
        thread.join()

    assert read == {""}


# --- the root itself --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gone", "the workspace '.*gone' does not exist"),
        ("file", "the workspace '.*file' is not a directory"),
        ("nul\0", "the workspace .* cannot be opened: embedded null byte"),
    ],
)
def test_a_root_that_cannot_be_opened_is_an_error_of_the_caller(tmp_path, name, says):
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match=says):
        Root(f"{tmp_path}/{name}")


def test_a_tilde_is_not_expanded_and_the_error_says_so():
    with pytest.raises(UsageError, match="'~' is not expanded here"):
        Root("~/no-such-project")


def test_the_descriptor_of_a_root_is_closed_with_it(tree):
    with no_descriptor_left():
        root = Root(tree)
        content(root, "top.txt")
        del root


def test_a_closed_root_opens_nothing(tree):
    root = Root(tree)
    root.close()
    root.close()

    assert refused(root, "top.txt").message == "the workspace is closed: top.txt"


def test_where_the_kernel_refuses_the_walk_is_the_best_opener():
    assert best_opener(-1) is walk


@each_opener
def test_the_raw_door_opens_what_the_disk_holds(tree, opener):
    root = Root(tree, opener=opener)

    os.close(root.open_bytes(b"src", DIRECTORY))
    with pytest.raises(NotADirectoryError):
        root.open_bytes(b"top.txt", DIRECTORY)
    with pytest.raises(OSError, match="Invalid cross-device link"):
        root.open_bytes(b"../outside", READ)


# --- other systems ----------------------------------------------------------------------------------


def run_python(code: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


FORBID = """
import ctypes, errno, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
# load the number of the system call; if it is openat2, return an errno, else allow
steps = (0x20, 0, 0, 0), (0x15, 0, 1, 437), (0x06, 0, 0, 0x50000 | int(sys.argv[2])), (0x06, 0, 0, 0x7FFF0000)
program = b"".join(struct.pack("=HBBI", *step) for step in steps)
class Fprog(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(Fprog(4, program)), 0, 0):
    print("no filter")
    sys.exit()
import os
from tool_loop.tools import _beneath
from tool_loop.tools._beneath import walk
from tool_loop.tools.workspace import Root
root = Root(sys.argv[1])
assert root._opener is walk
with root.opened("in_dir/up") as descriptor:
    print(os.read(descriptor, 9).decode())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="filters of system calls are Linux's")
@pytest.mark.parametrize("number", [1, 38], ids=["EPERM", "ENOSYS"])
def test_where_openat2_is_forbidden_or_missing_the_walk_takes_over(tree, number):
    said = run_python(FORBID, tree, number)

    assert said in ("top", "no filter")


ELSEWHERE = """
import os, sys
sys.platform = "darwin"
for name in ("O_PATH",):
    if hasattr(os, name):
        delattr(os, name)
from tool_loop.errors import ToolError
from tool_loop.tools import _beneath
from tool_loop.tools._beneath import kernel, walk
from tool_loop.tools.workspace import Root
root = Root(sys.argv[1])
assert root._opener is walk
with root.opened("in_dir/up") as descriptor:
    print(os.read(descriptor, 9).decode())
try:
    root.open("out_dir/secret.txt")
except ToolError as error:
    print(error.kind)
"""


def test_a_system_without_openat2_and_o_path_works_through_the_walk(tree):
    assert run_python(ELSEWHERE, tree).split() == ["top", "invalid_argument"]


def test_a_system_that_cannot_open_below_a_directory_is_refused_in_words(monkeypatch):
    monkeypatch.setattr(os, "supports_dir_fd", set())

    with pytest.raises(UsageError, match="need a system that opens files below a directory"):
        Root(".")


def test_only_linux_has_the_call_of_linux(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")

    with pytest.raises(OSError, match="Function not implemented"):
        _beneath._system_call.__wrapped__()


def test_a_refusal_of_the_system_keeps_its_name(tree):
    error = Root(tree).refusal(PermissionError(13, "Permission denied"), "a\nb", "file")

    assert (error.kind, error.message) == ("permission_denied", "permission denied: a\\nb")


DENIED = """
import os, sys
from tool_loop.errors import ToolError
from tool_loop.tools import _beneath
from tool_loop.tools._beneath import kernel, walk
from tool_loop.tools._hints import nearest  # before the rights are dropped
from tool_loop.tools.files import list_dir, read_file
from tool_loop.tools.workspace import Root
roots = [Root(sys.argv[1]), Root(sys.argv[1], opener=walk)]
import difflib
if os.getuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
for root in roots:
    print(read_file(root, "pass/readable"))
    for path in ("secret", "locked/inside", "locked/", "pass/", "scret"):
        try:
            print(list_dir(root, path[:-1]) if path.endswith("/") else read_file(root, path))
        except ToolError as error:
            print(error.kind, error.message, error.hint, sep="|")
"""


def test_what_the_system_does_not_allow_is_permission_denied(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "secret").write_text("x")
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked/inside").write_text("x")
    (tmp_path / "pass").mkdir()
    (tmp_path / "pass/readable").write_text("through")
    (tmp_path / "secret").chmod(0)
    (tmp_path / "locked").chmod(0)
    (tmp_path / "pass").chmod(0o711)  # may be passed through, may not be listed
    if os.getuid() != 0:
        (tmp_path / "pass").chmod(0o311)
    try:
        said = run_python(DENIED, tmp_path).splitlines()
    finally:
        (tmp_path / "locked").chmod(0o700)
        (tmp_path / "pass").chmod(0o700)

    one = [
        "lines 1-1 of 1",
        "through",
        "permission_denied|permission denied: secret|",
        "permission_denied|permission denied: locked/inside|",
        "permission_denied|permission denied: locked|",
        "permission_denied|permission denied: pass|",
        'not_found|no such file: scret|a similar name is secret (in the directory ".")',
    ]
    assert said == one * 2
