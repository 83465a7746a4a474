"""One command: what it wrote, how it ended, what it may use up, and that nothing of it is left."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.sandbox.test_walls import chosen
from tool_loop.errors import ToolError, UsageError
from tool_loop.sandbox import Box, CommandLimits, CommandOutcome, CommandStop, Sandbox, cgroup, landlock, run, usage
from tool_loop.sandbox.capture import Capture

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandboxes are Linux's")

MARK = f"tool_loop_command_left_behind_{os.getpid()}"  # other workers have their own


@pytest.fixture(params=["bwrap", "landlock", "none"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return chosen(request.param)


@pytest.fixture
def box(sandbox: Sandbox, tmp_path: Path) -> Box:
    return Box(tmp_path, sandbox)


def text(outcome: CommandOutcome) -> str:
    return (outcome.head + outcome.tail).decode()


def bash(box: Box, code: str, **options: object) -> CommandOutcome:
    return run(box, ["bash", "-c", code], **options)  # type: ignore[arg-type]


def left(mark: str) -> list[str]:
    """Processes that have the mark in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


def test_an_exit_code_is_what_the_program_said(box: Box) -> None:
    assert bash(box, "exit 0").code == 0
    assert bash(box, "exit 7").code == 7


def test_a_program_that_was_killed_has_a_signal_and_no_code(box: Box) -> None:
    outcome = bash(box, "kill -SEGV $$")

    assert (outcome.code, outcome.signal) == (None, 11)


def test_output_and_errors_come_in_the_order_they_were_written(box: Box) -> None:
    assert text(bash(box, "echo one; echo two >&2; echo three")) == "one\ntwo\nthree\n"


def test_it_reads_nothing_and_has_no_terminal(box: Box) -> None:
    assert text(bash(box, "cat; tty; [ -t 1 ] || echo no terminal")) == "not a tty\nno terminal\n"


def test_it_gets_a_few_variables_and_none_of_ours(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")

    said = text(bash(box, "env"))

    assert "sk-secret" not in said
    assert "LC_ALL=C.UTF-8" in said
    assert "TERM=dumb" in said


def test_variables_that_were_named_are_given(sandbox: Sandbox, tmp_path: Path) -> None:
    box = Box(tmp_path, sandbox, env={"DATABASE": "test"})

    assert text(bash(box, "echo $DATABASE")) == "test\n"


def test_it_runs_in_the_workspace_or_below(box: Box, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()

    assert text(bash(box, "pwd")) == f"{tmp_path}\n"
    assert text(bash(box, "pwd", cwd="sub")) == f"{tmp_path}/sub\n"


def test_what_it_writes_in_the_workspace_stays(box: Box, tmp_path: Path) -> None:
    bash(box, "echo made > file; mkdir d; echo more > d/file; chmod 750 file")

    assert (tmp_path / "file").read_text() == "made\n"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "d/file").read_text() == "more\n"


def test_the_private_directory_is_the_same_for_the_next_command_and_gone_with_the_box(box: Box) -> None:
    bash(box, "echo kept > $TMPDIR/note; mkdir $TMPDIR/locked; touch $TMPDIR/locked/x; chmod 0 $TMPDIR/locked")

    assert text(bash(box, "cat $TMPDIR/note")) == "kept\n"
    box.close()
    assert not Path(box.home).exists()


def test_a_directory_as_deep_as_a_command_can_make_it_is_removed(sandbox: Sandbox, tmp_path: Path) -> None:
    box = Box(tmp_path, sandbox)
    dig = "import os; os.chdir(os.environ['TMPDIR'])\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    assert run(box, ["python3", "-c", dig]).code == 0

    box.close()

    assert not Path(box.home).exists()


def test_the_private_directories_of_a_killed_process_are_swept(tmp_path: Path) -> None:
    made = "from tool_loop.sandbox import Box, Sandbox; import os, signal; b = Box('.', Sandbox('none')); print(b.home, flush=True);"
    done = subprocess.run(
        [sys.executable, "-c", f"{made} os.kill(os.getpid(), signal.SIGKILL)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    abandoned = Path(done.stdout.strip())
    assert abandoned.exists()

    Box(tmp_path, Sandbox("none")).close()

    assert not abandoned.exists()


@pytest.mark.parametrize(
    ("argv", "kind"),
    [
        (["no-such-program"], "not_found"),
        (["./missing"], "not_found"),
        (["./text"], "permission_denied"),
        (["./"], "permission_denied"),
        ([], "invalid_argument"),
        ([" "], "invalid_argument"),
        (["echo", "a\0b"], "invalid_argument"),
        (["echo", "\ud800"], "invalid_argument"),
        (["echo", "x" * 200_000], "invalid_argument"),
    ],
)
def test_what_cannot_be_started_is_said_in_a_word(box: Box, tmp_path: Path, argv: list[str], kind: str) -> None:
    (tmp_path / "text").write_text("hello")

    with pytest.raises(ToolError) as raised:
        run(box, argv)

    assert raised.value.kind == kind
    assert raised.value.fields["field"] == "argv"


def test_a_program_may_print_what_the_sandbox_would_say(box: Box) -> None:
    outcome = bash(box, "echo 'run: 1: exec: nosuch: not found'; exit 1")

    assert outcome.code == 1


def test_arguments_arrive_letter_by_letter(box: Box) -> None:
    odd = ["", " ", "a b", "*", "$HOME", "`id`", "-n", "'\"", "\n", "\\", "é", "\x1b[31m", "--"]

    outcome = run(box, ["python3", "-c", "import sys; print(sys.argv[1:])", *odd])

    assert text(outcome).strip() == repr(odd)


def test_long_output_is_kept_at_both_ends_and_whole_in_a_file(sandbox: Sandbox, tmp_path: Path) -> None:
    box = Box(tmp_path, sandbox, limits=CommandLimits(output_head=100, output_tail=200))

    outcome = bash(box, "seq 1 10000")

    whole = b"".join(b"%d\n" % n for n in range(1, 10001))
    assert (outcome.head, outcome.tail) == (whole[:100], whole[-200:])
    assert outcome.left_out == len(whole) - 300
    assert text(bash(box, f"md5sum < {outcome.file}; tail -n 1 {outcome.file}")).endswith("10000\n")
    assert text(bash(box, f"wc -c < {outcome.file}")).strip() == str(len(whole))


def test_output_that_fits_is_in_no_file(sandbox: Sandbox, tmp_path: Path) -> None:
    box = Box(tmp_path, sandbox, limits=CommandLimits(output_head=100, output_tail=200))

    outcome = bash(box, "head -c 300 /dev/zero | tr '\\0' x")

    assert outcome.head + outcome.tail == b"x" * 300
    assert (outcome.left_out, outcome.file) == (0, "")
    assert list(Path(box.output).iterdir()) == []


def test_the_files_of_earlier_outputs_do_not_pile_up(tmp_path: Path) -> None:
    for _ in range(35):
        capture = Capture(10, 10, 1000, str(tmp_path))
        capture.add(b"x" * 100)
        capture.close()

    assert len(list(tmp_path.iterdir())) == 30


def test_a_file_of_output_has_an_end(tmp_path: Path) -> None:
    capture = Capture(10, 10, 1000, str(tmp_path))

    for _ in range(100):
        capture.add(b"x" * 100)
    capture.close()

    assert (capture.total, capture.left_out) == (10_000, 9_980)
    assert (tmp_path / capture.name).stat().st_size == 1000


def test_a_command_that_takes_too_long_is_ended_with_all_it_started(box: Box) -> None:
    began = time.monotonic()

    outcome = bash(
        box, f"setsid sh -c 'sleep 300; : {MARK}' & (trap '' TERM INT HUP; sleep 301; : {MARK}); sleep 302", seconds=0.5
    )

    assert outcome.why == "timed_out"
    assert time.monotonic() - began < 5
    assert left(MARK) == []


def test_nothing_stays_in_the_background(box: Box) -> None:
    detached = (
        f"import os, time; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); time.sleep(300) # {MARK}"
    )

    outcome = bash(box, f"nohup python3 -c '{detached}' >/dev/null 2>&1 & sleep 0.2; echo done")

    assert (outcome.code, text(outcome)) == (0, "done\n")
    assert left(MARK) == []


def test_a_daemon_that_holds_the_output_open_holds_nobody_up(box: Box) -> None:
    began = time.monotonic()

    outcome = bash(box, f"setsid sh -c 'sleep 300; : {MARK}' 2>&1 & echo done")

    assert text(outcome) == "done\n"
    assert time.monotonic() - began < 5
    assert left(MARK) == []


def test_it_can_be_stopped_from_another_thread(box: Box) -> None:
    stop = CommandStop()
    timer = threading.Timer(0.3, stop)
    timer.start()

    outcome = bash(box, f"sleep 300 # {MARK}", stop=stop)

    assert outcome.why == "stopped"
    assert left(MARK) == []
    stop.close()


def test_a_stop_that_came_first_ends_it_at_once(box: Box) -> None:
    stop = CommandStop()
    stop()

    assert bash(box, "sleep 300", stop=stop).why == "stopped"


def test_a_watcher_that_fails_leaves_no_process(box: Box) -> None:
    def show(data: bytes) -> None:
        raise RuntimeError("nobody looks")

    with pytest.raises(RuntimeError, match="nobody looks"):
        bash(box, f"echo x; sleep 300 # {MARK}", show=show)

    assert left(MARK) == []


def test_output_is_shown_while_it_comes(box: Box) -> None:
    seen: list[tuple[float, bytes]] = []

    bash(box, "echo first; sleep 0.5; echo second", show=lambda data: seen.append((time.monotonic(), data)))

    assert b"".join(data for _, data in seen) == b"first\nsecond\n"
    assert seen[-1][0] - seen[0][0] > 0.3


@pytest.mark.parametrize("name", ["bwrap", "landlock", "none"])
def test_the_death_of_the_harness_ends_the_command(name: str, tmp_path: Path) -> None:
    chosen(name)
    mark = f"{MARK}_{name}"
    code = (
        "import sys; from tool_loop.sandbox import *\n"
        "box = Box('.', choose(sys.argv[1]))\n"
        f"run(box, ['bash', '-c', 'setsid sleep 300 {mark} & trap \"\" TERM; echo up; sleep 301; : {mark}'], "
        "show=lambda data: print('up', flush=True))"
    )
    with subprocess.Popen([sys.executable, "-c", code, name], cwd=tmp_path, stdout=subprocess.PIPE) as harness:
        assert harness.stdout
        assert harness.stdout.readline() == b"up\n"
        harness.kill()
        harness.wait()

    ends = time.monotonic() + 5
    while left(mark) and time.monotonic() < ends:
        os.sched_yield()
    assert left(mark) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bwrap", "landlock"])
def test_a_command_that_kills_everybody_kills_itself(name: str, tmp_path: Path) -> None:
    chosen(name)
    # In a namespace of processes around all of it: were a wall missing, it would be these that die.
    around = ["unshare", "-Urpf", "--mount-proc", "--kill-child", sys.executable, "-c"]
    code = (
        "import subprocess, sys; from tool_loop.sandbox import *\n"
        "bystander = subprocess.Popen(['sleep', '60'])\n"
        "o = run(Box('.', choose(sys.argv[1])), ['bash', '-c', 'sleep 50 & kill -9 -1; kill -9 1; kill -9 0'])\n"
        "print(o.signal, bystander.poll()); bystander.kill()"
    )

    done = subprocess.run([*around, code, name], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    if "unshare" in done.stderr:
        pytest.skip("no namespaces here")

    assert done.stdout.split() in (["9", "None"], ["0", "None"])


def test_memory_of_one_process_has_an_end(sandbox: Sandbox, tmp_path: Path) -> None:
    box = Box(tmp_path, sandbox, limits=CommandLimits(memory=300 << 20))

    outcome = run(box, ["python3", "-c", "b = bytearray(600 << 20); print(len(b))"])

    assert outcome.code != 0
    assert "MemoryError" in text(outcome)


def test_memory_of_all_processes_has_an_end(sandbox: Sandbox, tmp_path: Path) -> None:
    box = Box(tmp_path, sandbox, limits=CommandLimits(total_memory=200 << 20))
    hold = "b = bytearray(b'x') * (120 << 20); import time; time.sleep(60)"

    outcome = bash(box, f'for i in 1 2 3; do python3 -c "{hold}" & done; wait', seconds=30)

    assert outcome.why == "memory"
    assert outcome.peak_memory > 200 << 20


def test_nothing_stays_in_shared_memory(tmp_path: Path) -> None:
    before = set(Path("/dev/shm").iterdir())

    outcome = bash(Box(tmp_path, chosen("landlock")), f"echo x > /dev/shm/{MARK} && ls /dev/shm")

    if outcome.code:
        pytest.skip("somebody else's shared memory is there, so it was not given")
    assert MARK in text(outcome)
    assert set(Path("/dev/shm").iterdir()) <= before


def test_shared_memory_of_somebody_else_stays() -> None:
    import mmap

    path = Path(f"/dev/shm/{MARK}_used")
    began = time.time_ns() - 10**8
    made = path.with_name(f"{MARK}_made")  # as locks are made: under one name, and then given another
    made.write_bytes(b"x" * 4096)
    with made.open("r+b") as file, mmap.mmap(file.fileno(), 4096):
        path.hardlink_to(made)
        made.unlink()
        landlock.sweep_shared_memory(began)
        assert path.exists()
    landlock.sweep_shared_memory(began)

    assert not path.exists()


def test_a_file_has_an_end(sandbox: Sandbox, tmp_path: Path) -> None:
    box = Box(tmp_path, sandbox, limits=CommandLimits(file=1 << 20))

    outcome = bash(box, "head -c 5M /dev/zero > big; wc -c < big")

    assert text(outcome).strip().endswith(str(1 << 20))


def test_the_disk_is_not_filled(sandbox: Sandbox, tmp_path: Path) -> None:
    box = Box(tmp_path, sandbox, limits=CommandLimits(disk=64 << 20))

    outcome = bash(box, "i=0; while head -c 8M /dev/zero > f$i; do i=$((i+1)); sleep 0.02; done", seconds=30)

    assert outcome.why == "disk"


def test_descriptors_have_an_end(sandbox: Sandbox, tmp_path: Path) -> None:
    box = Box(tmp_path, sandbox, limits=CommandLimits(open_files=40))

    outcome = run(box, ["python3", "-c", "f = [open('/dev/null') for _ in range(100)]"])

    assert "Too many open files" in text(outcome)


def test_processes_have_an_end(sandbox: Sandbox, tmp_path: Path) -> None:
    box = Box(tmp_path, sandbox, limits=CommandLimits(processes=30))

    # Bounded by itself: also where the limit does not hold there are no more than 150.
    outcome = bash(box, "for i in $(seq 150); do sleep 20 & done 2>/dev/null; wait", seconds=15)

    assert outcome.why == "processes" or outcome.peak_processes <= 32
    assert outcome.why != "timed_out" or outcome.peak_processes <= 32


# Ends by itself: some 1,000 processes where nothing holds it.
BOMB = "bomb() { [ $1 -gt 0 ] && { bomb $(($1-1)) & bomb $(($1-1)) & }; sleep 3; }; bomb 8"


@pytest.mark.slow
@pytest.mark.parametrize("counted", [True, False], ids=["by the kernel", "by us"])
@pytest.mark.parametrize("name", ["bwrap", "landlock"])
def test_a_fork_bomb_is_held(name: str, counted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not counted:
        monkeypatch.setattr(cgroup, "made", lambda most: None)
    box = Box(tmp_path, chosen(name), limits=CommandLimits(processes=100))
    before = usage.all_tasks()

    outcome = bash(box, f"{BOMB} # {MARK}", seconds=20)

    assert outcome.peak_processes <= 102 or (outcome.why == "processes" and outcome.seconds < 5)
    assert left(MARK) == []
    assert usage.all_tasks() < before + 100


def test_root_is_counted_in_a_group_that_is_gone_afterwards() -> None:
    group = cgroup.made(5)
    if group is None:
        pytest.skip("not root, or no control groups here")

    many = ["sh", "-c", "read go; for i in 1 2 3 4 5 6 7 8; do sleep 20 2>/dev/null & done; wait"]
    with subprocess.Popen(many, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as held:
        group.add(held.pid)
        _, said = held.communicate("go\n", timeout=10)
    started = len(Path(group.members).read_text().split())
    group.close()

    assert "fork" in said
    assert started == 4
    assert not Path(group.members).exists()


def test_the_groups_of_killed_processes_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tool-loop-empty", "tool-loop-used/member", "another"):
        (tmp_path / name).mkdir(parents=True)
    cgroup._sweep(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3, "each is new, and may be about to be used"

    monkeypatch.setattr(cgroup, "_NEW_SECONDS", -1.0)
    cgroup._sweep(tmp_path)

    assert {path.name for path in tmp_path.iterdir()} == {"tool-loop-used", "another"}


def test_limits_say_what_is_wrong_with_them() -> None:
    with pytest.raises(UsageError, match="memory must be a number above zero"):
        CommandLimits(memory=0)
    with pytest.raises(UsageError, match=r"seconds \(700\) is above longest"):
        CommandLimits(seconds=700)


def test_a_workspace_that_was_replaced_is_refused(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    box = Box(tmp_path / "ws", sandbox)
    (tmp_path / "ws").rename(tmp_path / "old")
    (tmp_path / "ws").mkdir()

    with pytest.raises(ToolError, match="was replaced") as raised:
        bash(box, "true")

    assert raised.value.kind == "sandbox_failed"


def test_no_descriptor_is_left_open(box: Box) -> None:
    bash(box, "true")
    gc.collect()  # the boxes of other tests
    before = len(list(Path("/proc/self/fd").iterdir()))

    for code in ("true", "exit 3", "sleep 9"):
        bash(box, code, seconds=0.2)
    with pytest.raises(ToolError):
        run(box, ["no-such-program"])

    assert len(list(Path("/proc/self/fd").iterdir())) <= before
