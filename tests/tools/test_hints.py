"""What a model is told about a path that does not exist: the answer where there is one."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tool_loop.errors import ToolError
from tool_loop.tools import _hints
from tool_loop.tools._hints import nearest
from tool_loop.tools.workspace import Root


def plant(directory: Path, *names: str) -> Root:
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.write_text("")
    return Root(directory)


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("queue/store.py", 'a file of that name is at lib/queue/store.py (in the directory "lib/queue")'),
        ("lib/store.py", 'a file of that name is at lib/queue/store.py (in the directory "lib/queue")'),
        ("lib/Store.py", 'a file of that name is at lib/queue/store.py (in the directory "lib/queue")'),
        ("errorKinds.py", 'a file of that name is at lib/error_kinds.py (in the directory "lib")'),
        ("lib/queue/stroe.py", 'a similar name is lib/queue/store.py (in the directory "lib/queue")'),
        ("xx/stroe.py", 'a similar name is lib/queue/store.py (in the directory "lib/queue")'),
        ("lib/error_kind.py", 'a similar name is lib/error_kinds.py (in the directory "lib")'),
        (
            "init.py",
            "files of that name are at a/init.py, b/init.py, lib/init.py and 1 more",
        ),
        ("nowhere/b/init.py", "in the workspace this is b/init.py"),
        ("lib/xyz/qqq.rs", 'list the directory "lib"'),
        ("lib\\queue\\store.py", "in the workspace this is lib/queue/store.py"),
        ('"store.py"', 'a file of that name is at lib/queue/store.py (in the directory "lib/queue")'),
        ("lib/queue/store.py/x", 'list the directory "lib/queue"'),
        (
            "lib/queue/store.py:35",
            "the path is lib/queue/store.py, without the line; read_file takes it as start_line=35",
        ),
        (
            "lib/queue/store.py:35:7:",
            "the path is lib/queue/store.py, without the line; read_file takes it as start_line=35",
        ),
        ("store.py:35", 'a file of that name is at lib/queue/store.py (in the directory "lib/queue")'),
    ],
)
def test_the_hint_names_what_was_probably_meant_then_a_directory(tmp_path, wrong, hint):
    names = ("lib/queue/store.py", "lib/error_kinds.py", "a/init.py", "b/init.py", "lib/init.py", "lib/queue/init.py")
    root = plant(tmp_path, *names)

    with pytest.raises(ToolError) as caught:
        root.open(wrong)
    assert caught.value.hint == hint


def test_two_close_spellings_are_both_named(tmp_path):
    root = plant(tmp_path, "agents.py", "agent1.py", "zebra.txt")

    assert nearest(root, "agent.py", "file") == "similar names are agents.py, agent1.py"


def test_what_shares_more_of_the_path_comes_first(tmp_path):
    root = plant(tmp_path, "one/cli/run.py", "run.py", "two/core/run.py")

    assert "are at two/core/run.py, run.py, one/cli/run.py" in nearest(root, "old/Core/run.py", "file")


def test_directories_are_meant_where_a_directory_is_wanted(tmp_path):
    root = plant(tmp_path, "docs", "site/docs/", "site/deep/docs/", "lib/other/")

    assert nearest(root, "doc", "directory").startswith("similar names are")
    assert nearest(root, "x/docs", "directory").startswith("directories of that name are at site/docs, site/deep/docs")
    assert nearest(root, "x/other", "directory").startswith("a directory of that name is at lib/other")
    assert nearest(root, "x/docs", "file").startswith("a file of that name is at docs")
    assert nearest(root, "x/docs", "file or directory").startswith(
        "files or directories of that name are at docs, site/"
    )


@pytest.mark.parametrize("path", ["/", "..", "../..", "./../", "\\"])
def test_a_path_of_nothing_but_dots_is_told_what_the_root_is(tmp_path, path):
    assert nearest(plant(tmp_path, "a"), path, "file") == 'paths are relative to the workspace, whose root is "."'


def test_an_absolute_path_into_the_workspace_gets_its_relative_form(tmp_path):
    root = plant(tmp_path, "src/agent.py")

    assert nearest(root, f"{tmp_path}/src/agent.py", "file").startswith("in the workspace this is src/agent.py")
    assert nearest(root, "/src/agent.py", "file").startswith("in the workspace this is src/agent.py")
    assert nearest(root, "/agent.py", "file").startswith("a file of that name is at src/agent.py")


def test_what_installers_and_caches_hold_is_not_searched(tmp_path):
    root = plant(tmp_path, "node_modules/x/index.js", ".venv/lib/index.js", "__pycache__/index.js")

    assert nearest(root, "index.js", "file") == 'list the directory "."'


def test_links_are_not_followed_and_not_named(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.txt").write_text("")
    root = plant(tmp_path / "root", "a.txt")
    (tmp_path / "root/away").symlink_to("../outside")
    (tmp_path / "root/self").symlink_to(".")
    (tmp_path / "root/gone.txt").symlink_to("nothing")

    assert nearest(root, "secret.txt", "file") == 'list the directory "."'
    assert nearest(root, "gone.txt", "file") == 'list the directory "."'
    assert nearest(root, "away/secret.txt", "file") == 'list the directory "."'


def test_names_that_would_break_a_line_are_shown_escaped(tmp_path):
    root = plant(tmp_path, "deep/new\nline.txt")
    (tmp_path / os.fsdecode(b"deep/\xff.py")).write_text("")

    assert nearest(root, "new\nline.txt", "file").startswith("a file of that name is at deep/new\\nline.txt")
    assert nearest(root, os.fsdecode(b"\xff.py"), "file").startswith("a file of that name is at deep/\\xff.py")


def test_odd_paths_are_answered_too(tmp_path):
    root = plant(tmp_path, "a/b.txt")

    for path in ("\ud800", "a/\ud800/b/c", "a/" * 500 + "b.txt", "x" * 5000, "a\0b/c", "?/*", " "):
        assert nearest(root, path, "file")


def test_only_so_many_names_are_looked_at_and_the_nearest_come_first(tmp_path):
    root = plant(tmp_path, "b/deep/far.txt", "b/near.txt", *(f"a/{i}" for i in range(10)), "top.txt")

    names = [entry.path for entry in _hints._tree(root)]
    assert names[:3] == [b"a", b"b", b"top.txt"]
    assert names[-1] == b"b/deep/far.txt"
    assert [len(list(_hints._tree(root, most))) for most in (1, 3, 4, 100)] == [1, 3, 4, 16]


def test_very_many_names_are_compared_in_little_time():
    entries = [_hints._NameEntry(b"some/where/f%06d.py" % i, directory=False) for i in range(_hints.MAX_NAMES)]
    started = time.process_time()

    assert len(_hints._close("f0009999.py", entries)) == 3
    assert _hints._close("x" * 100_000, entries) == []
    assert time.process_time() - started < 1
