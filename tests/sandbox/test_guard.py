"""Protected paths: what decides what runs outside of the sandbox is the same after a command as before it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.sandbox.test_walls import chosen
from tool_loop.errors import ToolError
from tool_loop.sandbox import Box, CommandOutcome, Sandbox, SandboxUnavailable, guard as guards, run

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandboxes are Linux's")


@pytest.fixture(params=["bwrap", "landlock"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return chosen(request.param)


def quick(cases: Iterable[str], count: int) -> list[object]:
    """The first ones as they are; the others with the slow suites."""
    return [case if n < count else pytest.param(case, marks=pytest.mark.slow) for n, case in enumerate(cases)]


def bash(box: Box, code: str) -> CommandOutcome:
    return run(box, ["bash", "-c", code], seconds=20)


def git(place: Path, *words: str) -> str:
    """As the person: outside of any sandbox."""
    identity = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    done = subprocess.run(
        ["git", *words], cwd=place, env=os.environ | identity, capture_output=True, text=True, timeout=30, check=False
    )
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    place = tmp_path / "ws"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    git(place, "config", "user.email", "a@b")
    git(place, "config", "user.name", "a")
    (place / "file").write_text("one\n")
    git(place, "add", "file")
    git(place, "commit", "-qm", "first")
    return place


EVIL = '[core]\\nrepositoryformatversion = 0\\nfsmonitor = "touch MARK; false"\\n'

# Each makes git, in the hands of the person, run what the command wrote.
THROUGH_GIT = {
    "a hook": "mkdir -p .git/hooks; printf '#!/bin/sh\\ntouch MARK' > .git/hooks/post-commit; chmod +x .git/hooks/post-commit",
    "a hook that was there as a sample": "for h in pre-commit post-checkout post-index-change; do rm -f .git/hooks/$h*; "
    "printf '#!/bin/sh\\ntouch MARK' > .git/hooks/$h; chmod 755 .git/hooks/$h; done",
    "the configuration": "git config core.fsmonitor 'touch MARK; false'",
    "the configuration, renamed over": f"cp .git/config c2; printf '{EVIL}' >> c2; mv -f c2 .git/config",
    "the configuration, by its other name": f"printf '{EVIL}' >> .git/config.worktree; git config extensions.worktreeConfig true",
    "moved away": f"mv .git .gone && cp -r .gone .git && printf '{EVIL}' >> .git/config",
    "a common directory": f"mkdir evil; cp -r .git/objects .git/refs evil/; printf '{EVIL}' > evil/config; echo ../evil > .git/commondir",
    "an unfinished rebase": "mkdir -p .git/rebase-merge && echo 'exec touch MARK' > .git/rebase-merge/git-rebase-todo",
    "a file in place of the directory": "rm -rf .git/hooks; mv .git old || true; mkdir -p evil2/objects evil2/refs; "
    f"printf '{EVIL}' > evil2/config; echo 'ref: refs/heads/x' > evil2/HEAD; echo 'gitdir: evil2' > .git",
    "a repository below": f"mkdir sub; git init -q sub; printf '{EVIL}' >> sub/.git/config",
    "a directory that is a repository": f"mkdir -p bare/objects bare/refs; echo 'ref: refs/heads/x' > bare/HEAD; "
    f"printf '{EVIL}[core]\\nbare = false\\nworktree = .\\n' > bare/config",
    "another with its parts elsewhere": "mkdir -p bare2; echo 'ref: refs/heads/x' > bare2/HEAD; echo ../.git > bare2/commondir; "
    f"printf '{EVIL}' > bare2/config",
    "attributes": "git config filter.x.clean 'touch MARK'; mkdir -p .git/info; echo '* filter=x' > .git/info/attributes",
    "a name in other letters": f"mkdir -p .GIT; printf '{EVIL}' > .GIT/config",
    "a link": f"mkdir real; cp -r .git/. real/; printf '{EVIL}' >> real/config; rm -rf .git; ln -s real .git",
    "a submodule": f"mkdir -p .git/modules/m/objects .git/modules/m/refs mod; printf '{EVIL}' > .git/modules/m/config; "
    "echo 'ref: refs/heads/x' > .git/modules/m/HEAD; echo 'gitdir: ../.git/modules/m' > mod/.git",
    "a worktree": f"git worktree add -q wt; printf '{EVIL}' >> .git/worktrees/wt/config.worktree",
    "behind a closed door": f"mkdir -p door; git init -q door/in; printf '{EVIL}' >> door/in/.git/config; chmod 0 door",
}


@pytest.mark.parametrize("allow", [(), ("git",)], ids=["", "git"])
@pytest.mark.parametrize("name", quick(THROUGH_GIT, 9))
def test_nothing_is_run_through_git(
    name: str, allow: tuple[str, ...], sandbox: Sandbox, repository: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    code = THROUGH_GIT[name].replace("MARK", str(mark))
    box = Box(repository, sandbox, allow=allow)  # type: ignore[arg-type]
    config = (repository / ".git/config").read_bytes()

    try:
        bash(box, code)
    except ToolError as error:
        assert error.kind == "sandbox_failed"

    for place in (repository, *(path for path in repository.rglob("*") if path.is_dir() and ".git" not in path.parts)):
        place.chmod(0o755)
        git(place, "status")
        git(place, "diff")
        git(place, "add", "-A")
        git(place, "commit", "--allow-empty", "-qm", "y")
        git(place, "checkout", "-q", "-b", "z")
        git(place, "rebase", "--continue")
    assert not mark.exists()
    assert (repository / ".git/config").read_bytes() == config
    assert not (repository / ".git/rebase-merge").exists()


PROTECTED = [
    ".github/workflows/ci.yml",
    ".vscode/tasks.json",
    ".gitmodules",
    "AGENTS.md",
    "CLAUDE.md",
    ".mcp.json",
    ".claude/settings.json",
    ".envrc",
    "sub/.vscode/tasks.json",
    "sub/AGENTS.md",
    ".Git/config",
    ".gitlab-ci.yml",
]


@pytest.mark.parametrize("path", quick(PROTECTED, 4))
def test_a_protected_path_that_is_there_stays_as_it_is(path: str, sandbox: Sandbox, tmp_path: Path) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("before\n")
    file.chmod(0o644)
    top = file if file.parent == tmp_path or file.parent.name == "sub" else file.parent
    box = Box(tmp_path, sandbox)

    for code in (
        f"echo after > {path}",
        f"echo after >> {path}; chmod 755 {path}",
        f"rm -f {path}",
        f"echo x > new; mv -f new {path}",
        f"rm -rf {top.relative_to(tmp_path)}; mkdir -p {top.relative_to(tmp_path)}; echo x > {top.relative_to(tmp_path)}/y",
        f"rm -rf {top.relative_to(tmp_path)}; ln -s /etc {top.relative_to(tmp_path)}",
    ):
        bash(box, code)

        assert file.read_text() == "before\n", code
        assert file.stat().st_mode & 0o777 == 0o644, code
        assert not top.is_symlink()
        assert top == file or [each.name for each in top.iterdir()] == [file.name]


@pytest.mark.parametrize("path", quick(PROTECTED, 4))
def test_a_protected_path_that_came_is_taken_away_and_said(path: str, sandbox: Sandbox, tmp_path: Path) -> None:
    box = Box(tmp_path, sandbox)

    outcome = bash(box, f"mkdir -p $(dirname {path}); echo x > {path}; echo kept > beside")

    assert not (tmp_path / path).exists()
    assert (tmp_path / "beside").read_text() == "kept\n"
    assert any("taken away" in word for word in outcome.undone), outcome.undone


def test_what_was_undone_is_said_in_a_few_words_however_much_it_was(sandbox: Sandbox, tmp_path: Path) -> None:
    box = Box(tmp_path, sandbox)

    outcome = bash(box, "for i in $(seq 50); do mkdir -p d$i/.vscode; done")

    assert len(outcome.undone) == 21
    assert outcome.undone[-1] == "and 30 more"
    assert not list(tmp_path.glob("*/.vscode"))


def test_nothing_is_left_of_mounts_on_what_is_not_there(sandbox: Sandbox, tmp_path: Path) -> None:
    box = Box(tmp_path, sandbox)

    bash(box, "true")

    assert list(tmp_path.iterdir()) == []


def test_what_was_there_under_another_name_is_not_lost(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci/steps.yml").write_text("mine\n")
    (tmp_path / "notes.md").write_text("mine too\n")
    for path in (tmp_path / "ci/steps.yml", tmp_path / "notes.md"):
        os.utime(path, (1, 1))
    box = Box(tmp_path, sandbox)
    bash(box, "sleep 0.1")

    outcome = bash(box, "sleep 0.1; mv ci .github; mv notes.md AGENTS.md")

    assert (tmp_path / ".github.undone/steps.yml").read_text() == "mine\n"
    assert (tmp_path / "AGENTS.md.undone").read_text() == "mine too\n"
    assert ".github (it is .github.undone now)" in outcome.undone


def test_a_directory_with_a_repository_in_it_may_be_renamed(sandbox: Sandbox, repository: Path) -> None:
    inner = repository / "libs/inner"
    inner.mkdir(parents=True)
    git(inner, "init", "-q")
    config = (inner / ".git/config").read_text()
    box = Box(repository, sandbox)

    outcome = bash(box, "mv libs vendor")

    assert outcome.code == 0
    assert (repository / "vendor/inner/.git/config").read_text() == config
    assert not (repository / "libs").exists()


def test_a_protected_path_that_is_a_link_is_guarded_where_it_leads(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/tasks.json").write_text("before")
    (tmp_path / ".vscode").symlink_to("shared")
    box = Box(tmp_path, sandbox)

    bash(
        box, "echo x > shared/tasks.json; echo y > shared/more; rm .vscode; mkdir .vscode; echo x > .vscode/tasks.json"
    )

    assert (tmp_path / ".vscode").readlink() == Path("shared")
    assert (tmp_path / "shared/tasks.json").read_text() == "before"
    assert not (tmp_path / "shared/more").exists()


def test_what_is_put_back_goes_through_no_link_a_command_left(sandbox: Sandbox, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    place = tmp_path / "ws/sub/.vscode"
    place.mkdir(parents=True)
    (place / "tasks.json").write_text("before")
    box = Box(tmp_path / "ws", sandbox)

    bash(box, f"rm -rf sub/.vscode; mv sub old; ln -s {outside} sub")

    assert list(outside.iterdir()) == []


def test_a_commit_is_made_where_git_is_allowed(sandbox: Sandbox, repository: Path) -> None:
    box = Box(repository, sandbox, allow=["git"])

    outcome = bash(
        box,
        "echo two >> file && git commit -qam second && git checkout -qb topic && echo new > new && git add new && "
        "git commit -qm third && git checkout -q main && git merge -q --no-ff -m merged topic && git log --oneline | wc -l",
    )

    assert (outcome.code, outcome.undone) == (0, ())
    assert outcome.head.decode().strip() == "4"
    assert git(repository, "log", "-1", "--format=%s").strip() == "merged"
    assert git(repository, "status", "--short") == ""


def test_without_permission_a_commit_is_not_made_and_the_repository_is_whole(
    sandbox: Sandbox, repository: Path
) -> None:
    head = git(repository, "rev-parse", "HEAD")
    box = Box(repository, sandbox)

    bash(box, "echo two >> file; git commit -qam second; git branch -f x; git gc -q")

    assert git(repository, "rev-parse", "HEAD") == head
    assert git(repository, "branch", "--format=%(refname:short)").split() == ["main"]
    assert git(repository, "status", "--short").strip() == "M file"
    assert git(repository, "fsck", "--strict", "--no-dangling") == ""


def test_reading_a_repository_changes_nothing(sandbox: Sandbox, repository: Path) -> None:
    box = Box(repository, sandbox)

    outcome = bash(box, "git status --short && git log --oneline && git diff && git grep one")

    assert (outcome.code, outcome.undone) == (0, ())


def test_a_repository_that_is_destroyed_ends_all_commands(repository: Path) -> None:
    box = Box(repository, chosen("landlock"))

    with pytest.raises(ToolError, match=r"could not be put back: \.git/objects") as first:
        bash(box, "rm -rf .git")
    with pytest.raises(ToolError, match="could not be put back") as second:
        bash(box, "true")

    assert first.value.kind == second.value.kind == "sandbox_failed"


def test_a_repository_cannot_be_destroyed_behind_mounts(repository: Path) -> None:
    box = Box(repository, chosen("bwrap"))

    bash(box, "rm -rf .git; mv .git gone; rm -rf gone")

    assert git(repository, "fsck", "--strict", "--no-dangling") == ""
    assert git(repository, "log", "--oneline").count("\n") == 1


def test_more_than_can_be_looked_after_is_not_run(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "_MOUNTS", 3)
    monkeypatch.setattr("tool_loop.sandbox.snapshot._ENTRIES", 3)
    for n in range(5):
        (tmp_path / f"{n}/.vscode").mkdir(parents=True)
    box = Box(tmp_path, sandbox)

    with pytest.raises(ToolError, match="cannot be looked after") as raised:
        bash(box, "touch ran")

    assert raised.value.kind == "sandbox_failed"
    assert not (tmp_path / "ran").exists()


def test_the_program_itself_is_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv = tmp_path / ".venv"
    (venv / "lib").mkdir(parents=True)
    (venv / "lib/code.py").write_text("before")
    monkeypatch.setattr(sys, "prefix", str(venv))

    with pytest.raises(SandboxUnavailable, match="inside the workspace"):
        Box(tmp_path, chosen("landlock"))
    bash(
        Box(tmp_path, chosen("bwrap")), "echo x > .venv/lib/code.py; echo x > .venv/lib/new; mv .venv away; rm -rf away"
    )

    assert (venv / "lib/code.py").read_text() == "before"
    assert [path.name for path in (venv / "lib").iterdir()] == ["code.py"]


def test_packages_may_bring_their_own_settings_but_no_repository(sandbox: Sandbox, tmp_path: Path) -> None:
    box = Box(tmp_path, sandbox)

    outcome = bash(
        box,
        "mkdir -p node_modules/x/.github node_modules/y; echo a > node_modules/x/.github/b; git init -q node_modules/y",
    )

    assert (tmp_path / "node_modules/x/.github/b").exists()
    assert not (tmp_path / "node_modules/y/.git").exists()
    assert outcome.undone == ("node_modules/y/.git (taken away)",)


def test_what_the_person_makes_between_two_commands_stays(sandbox: Sandbox, tmp_path: Path) -> None:
    box = Box(tmp_path, sandbox)
    bash(box, "mkdir -p a/b")
    (tmp_path / "a/b/.vscode").mkdir()
    (tmp_path / "a/b/.vscode/tasks.json").write_text("mine")

    outcome = bash(box, "echo x > a/b/.vscode/tasks.json; true")

    assert (tmp_path / "a/b/.vscode/tasks.json").read_text() == "mine"
    assert not any("taken away" in word for word in outcome.undone)


def test_the_next_look_is_only_where_something_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(20):
        (tmp_path / f"d{n}").mkdir()
    marks = guards.Marks(str(tmp_path))
    os.utime(tmp_path, (1, 1))
    while marks.find() or any(each.changed < 0 for each in marks._known.values()):
        pass
    looked: list[str] = []
    entries = "tool_loop.sandbox.marks._entries"
    from tool_loop.sandbox import marks as module

    real = module._entries
    monkeypatch.setattr(entries, lambda path, info: looked.append(path) or real(path, info))
    marks.find()
    assert looked == []

    (tmp_path / "d7/.git").mkdir()

    assert list(marks.find()) == [str(tmp_path / "d7/.git")]
    assert looked == [str(tmp_path / "d7")]
