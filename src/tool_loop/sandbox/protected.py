"""Which paths of a workspace decide what runs outside of it, without anybody looking.

A line in `.git/config`, a task of an editor, a step of a build server, the instructions of another
agent: whoever can write there does not need to leave the sandbox, it is enough to wait. So no
standing permission holds for them. File tools ask a person about each change of one, and commands
see them read-only, or find them put back.

This is only the table; it opens nothing. It cannot hold the project's own code: a Makefile, a test,
a `setup.py` run as soon as somebody runs them, and changing those is what the tools are for.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Final

VERSION_CONTROL: Final = frozenset((".git", ".hg", ".svn", ".jj", ".bzr"))

# What a commit or a branch writes below `.git`. All else there decides which code git runs: `config`,
# `hooks`, `commondir`, `info/attributes`, the todo list of an unfinished rebase. So it is this list
# that is let through where git is allowed, and never a list of what is dangerous.
GIT_DATA: Final = frozenset(
    (
        "objects", "refs", "logs", "index", "index.lock", "HEAD", "HEAD.lock", "ORIG_HEAD", "FETCH_HEAD",
        "MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "AUTO_MERGE", "COMMIT_EDITMSG", "packed-refs", "packed-refs.lock",
        "shallow", "gc.pid", "gc.log",
    )
)  # fmt: skip

# Read by a program that nobody started for the purpose, and written by no build and no test.
FOR_COMMANDS: Final = VERSION_CONTROL | frozenset(
    (
        # git itself, and what runs around a commit
        "git~1", ".gitmodules", ".githooks", ".pre-commit-config.yaml", ".pre-commit-config.yml", "lefthook.yml",
        ".lefthook.yml",
        # build servers
        ".github", ".gitlab", ".gitlab-ci.yml", ".gitea", ".forgejo", ".circleci", ".buildkite", ".woodpecker",
        ".woodpecker.yml", ".travis.yml", ".drone.yml", ".cirrus.yml", ".appveyor.yml", "appveyor.yml",
        "azure-pipelines.yml", "bitbucket-pipelines.yml", "jenkinsfile", ".ci",
        # editors
        ".vscode", ".vs", ".idea", ".fleet", ".zed", ".devcontainer", ".devcontainer.json", ".exrc", ".vimrc",
        ".nvimrc", ".nvim.lua", ".dir-locals.el", ".dir-locals-2.el",
        # agents
        ".tool-loop", ".claude", ".claude.json", ".codex", ".cursor", ".cursorrules", ".gemini", ".agent", ".agents",
        ".windsurf", ".windsurfrules", ".continue", ".aider.conf.yml", ".cline", ".clinerules", ".roo", ".roomodes",
        ".kiro", ".junie", ".goosehints", ".opencode", "opencode.json", "opencode.jsonc", ".amp", ".augment", ".trae",
        ".qwen", ".rules", ".mcp.json", "mcp.json",
        "agents.md", "agent.md", "agents.override.md", "claude.md", "claude.local.md", "gemini.md", "qwen.md",
        # shells, debuggers and interpreters that read what lies where they are started
        ".envrc", ".mise.toml", "mise.toml", ".gdbinit", ".lldbinit", ".pdbrc", ".rprofile",
        # where the workspace is a home directory
        ".ssh", ".gnupg", ".aws", ".kube", ".docker", ".netrc", ".gitconfig", ".config", ".bashrc", ".bash_profile",
        ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".inputrc",
        ".tmux.conf", ".screenrc", ".pypirc",
    )
)  # fmt: skip

# Asked about when a file tool writes them; a command may, because installing a package or making a
# virtual environment does. `HEAD` is what makes a directory a repository to git, config and all.
FOR_FILES: Final = FOR_COMMANDS | frozenset(
    (
        ".env", ".husky", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".pnp.cjs", ".direnv",
        "sitecustomize.py", "usercustomize.py", "conftest.py", "pyvenv.cfg", "head",
    )
)  # fmt: skip

_PREFIXES: Final = (".env.",)
_SUFFIXES: Final = (".pth", ".code-workspace", ".sublime-project")


def folded(name: str) -> str:
    """One spelling for all names that some file system takes for the same one.

    Upper and lower case are one on most disks of macOS and Windows and on a case-folding ext4, which
    also drop characters that show as nothing; Windows drops dots and blanks at the end and takes
    `.git::$INDEX_ALLOCATION` for `.git`.
    """
    if not name.isascii():
        name = "".join(c for c in unicodedata.normalize("NFKC", name) if unicodedata.category(c) != "Cf")
    name = name.casefold()
    return name.partition(":")[0].rstrip(". ") or name


def protected(parts: Sequence[str]) -> str | None:
    """The part of a path for which no standing permission holds, as it is written there; else None.

    `parts` are the names below the root with all links resolved: what a path says before that means
    nothing. A directory counts wherever it is: an editor is opened, and git called, in a subdirectory too.
    """
    for part in parts:
        name = folded(part)
        if name in FOR_FILES or name.startswith(_PREFIXES) or name.endswith(_SUFFIXES):
            return part
    return None


def protected_from_commands(name: str) -> bool:
    """Whether an entry of this name is one that a command must not change either."""
    return folded(name) in FOR_COMMANDS
