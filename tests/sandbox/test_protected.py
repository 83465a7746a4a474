"""The table of protected paths: what is in it, in which spellings, and what is not."""

from __future__ import annotations

import pytest

from tool_loop.sandbox.protected import FOR_COMMANDS, FOR_FILES, GIT_DATA, folded, protected, protected_from_commands


@pytest.mark.parametrize(
    ("path", "part"),
    [
        (".git/hooks/post-commit", ".git"),
        (".git", ".git"),
        ("vendor/lib/.git/config", ".git"),
        ("sub/.hg/hgrc", ".hg"),
        (".github/workflows/ci.yml", ".github"),
        (".gitlab-ci.yml", ".gitlab-ci.yml"),
        (".vscode/tasks.json", ".vscode"),
        ("packages/a/.vscode/settings.json", ".vscode"),
        ("AGENTS.md", "AGENTS.md"),
        ("docs/CLAUDE.md", "CLAUDE.md"),
        (".claude/settings.json", ".claude"),
        (".mcp.json", ".mcp.json"),
        (".env", ".env"),
        (".env.production", ".env.production"),
        (".envrc", ".envrc"),
        ("src/evil.pth", "evil.pth"),
        ("sitecustomize.py", "sitecustomize.py"),
        ("docs/HEAD", "HEAD"),
        (".ssh/authorized_keys", ".ssh"),
    ],
)
def test_what_runs_elsewhere_without_anybody_looking_is_protected(path: str, part: str) -> None:
    assert protected(path.split("/")) == part


@pytest.mark.parametrize(
    "path",
    ["src/app.py", "README.md", "tests/test_app.py", ".gitignore", "Makefile", "git/config", "environment", "a.env.py"],
)
def test_the_projects_own_files_are_not(path: str) -> None:
    assert protected(path.split("/")) is None


@pytest.mark.parametrize(
    "spelling",
    [
        ".GIT",
        ".Git",
        ".git.",
        ".git ",
        ".git. .",
        ".git::$INDEX_ALLOCATION",
        "GIT~1",
        ".g\u200cit",
        ".git\ufeff",
        "．git",
    ],
)
def test_a_name_is_found_in_every_spelling_that_some_disk_takes_for_it(spelling: str) -> None:
    assert protected([spelling, "config"]) == spelling
    assert protected_from_commands(spelling)


@pytest.mark.parametrize("name", [".", "..", "...", ":", "a:b", ""])
def test_a_name_of_dots_or_colons_is_folded_to_something(name: str) -> None:
    assert bool(folded(name)) == bool(name)


def test_what_installing_a_package_writes_is_only_protected_from_file_tools() -> None:
    assert not protected_from_commands("pyvenv.cfg")
    assert protected(["venv", "pyvenv.cfg"]) == "pyvenv.cfg"


def test_every_name_in_the_table_is_in_the_spelling_it_is_looked_up_by() -> None:
    assert all(folded(name) == name for name in FOR_FILES)
    assert FOR_COMMANDS < FOR_FILES


def test_none_of_what_git_lets_through_decides_which_code_runs() -> None:
    assert not GIT_DATA & {
        "config",
        "config.worktree",
        "hooks",
        "commondir",
        "info",
        "modules",
        "rebase-merge",
        "worktrees",
    }
