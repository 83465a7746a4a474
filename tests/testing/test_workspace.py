from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tool_loop.errors import UsageError
from tool_loop.testing.workspace import Fifo, File, Folder, Link, workspace


def test_files_are_there_word_for_word_and_gone_afterwards():
    with workspace({"a.txt": "Grüße\r\n", "src/deep/b.bin": b"\x00\xff"}) as root:
        assert (root / "a.txt").read_bytes() == "Grüße\r\n".encode()
        assert (root / "src/deep/b.bin").read_bytes() == b"\x00\xff"
        assert root == root.resolve()

    assert not root.exists()


def test_an_empty_workspace_is_a_folder():
    with workspace() as root:
        assert list(root.iterdir()) == []


def test_links_pipes_modes_and_sparse_files_are_made():
    entries = {
        "inside": Link("real.txt"),
        "outside": Link("/etc/hostname"),
        "nowhere": Link("missing"),
        "real.txt": "x",
        "pipe": Fifo(),
        "run.sh": File("#!/bin/sh\n", mode=0o755),
        "sparse": File(b"start", size=10**10),
        "empty": Folder(),
    }
    with workspace(entries) as root:
        assert (root / "inside").read_text() == "x"
        assert (root / "outside").readlink() == Path("/etc/hostname")
        assert (root / "nowhere").is_symlink()
        assert not (root / "nowhere").exists()
        assert stat.S_ISFIFO((root / "pipe").stat().st_mode)
        assert os.access(root / "run.sh", os.X_OK)
        assert (root / "sparse").stat().st_size == 10**10
        assert (root / "sparse").stat().st_blocks < 100
        assert list((root / "empty").iterdir()) == []


def test_a_folder_that_may_not_be_entered_holds_its_files_and_can_be_deleted():
    locked = {"locked": Folder(0o000), "locked/deeper/secret": File("s", mode=0o000)}
    with workspace(locked) as root:
        assert stat.S_IMODE((root / "locked").stat().st_mode) == 0

    assert not root.exists()


def test_what_the_test_deletes_or_replaces_is_not_missed():
    with workspace({"a": File("1", mode=0o400), "b": File("2", mode=0o400), "c": "3"}) as root:
        (root / "a").unlink()
        (root / "b").unlink()
        (root / "b").symlink_to("nowhere")

    assert not root.exists()


def test_a_root_of_ones_own_is_filled_and_stays(tmp_path):
    with workspace({"a/b": File("1", mode=0o000)}, root=tmp_path) as root:
        pass

    assert root == tmp_path
    assert (tmp_path / "a/b").read_text() == "1"


@pytest.mark.parametrize("path", ["/etc/passwd", "../up", "a/../../b", "", "."])
def test_a_path_that_leads_out_is_refused_before_anything_is_written(tmp_path, path):
    with pytest.raises(UsageError, match="not a path inside"), workspace({"first": "1", path: "2"}, root=tmp_path):
        pass

    assert list(tmp_path.iterdir()) == []


def test_leaving_by_an_error_deletes_it_too():
    with pytest.raises(ZeroDivisionError), workspace({"a": "1"}) as root:
        raise ZeroDivisionError

    assert not root.exists()
