"""What a person's "allow this for the run" would cover of a command, in the words they are shown.

A permission for a program covers it with any arguments; that is only worth something where arguments
cannot name another program. An interpreter, a launcher or a program in the workspace, which the model
can rewrite, is covered for exactly these arguments and no others. Knows nothing about sandboxes or
approvals.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

# Run what an argument says. The list need not be complete to be safe, since the sandbox holds what runs;
# it keeps a permission from meaning more than it says.
_RUNS_OTHERS: Final = frozenset(
    (
        "bash", "sh", "dash", "zsh", "ksh", "fish", "csh", "tcsh", "busybox", "toybox", "pwsh",
        "node", "nodejs", "deno", "bun", "perl", "ruby", "irb", "php", "lua", "luajit", "r", "rscript", "julia",
        "java", "jshell", "groovy", "scala", "kotlin", "dotnet", "elixir", "erl", "ghci", "runghc", "ocaml", "swift",
        "tclsh", "expect", "gdb", "lldb", "awk", "gawk", "mawk", "nawk", "sed", "find", "ed", "ex", "vi", "vim", "nvim",
        "emacs", "less", "more", "man", "env", "xargs", "parallel", "nice", "nohup", "timeout", "time", "stdbuf",
        "setsid", "watch", "strace", "ltrace", "sudo", "su", "doas", "runuser", "chroot", "unshare", "nsenter", "bwrap",
        "ssh", "scp", "rsync", "tar", "zip", "script", "screen", "tmux", "at", "batch", "crontab", "systemd-run",
        "docker", "podman", "kubectl", "npx", "pnpx", "bunx", "uvx", "pipx", "ipython", "pypy", "tsx", "ts-node",
        "exec", "eval", "command", "source", ".",
    )
)  # fmt: skip
_VERSIONED: Final = re.compile(r"(python|pypy|perl|ruby|php|lua|node|bash|gdb|java)[\d.t-]*(w|config)?$")

# One name for many programs: the first argument says which.
_WITH_COMMANDS: Final = frozenset(
    (
        "git", "hg", "svn", "npm", "pnpm", "yarn", "cargo", "go", "pip", "pip3", "uv", "poetry", "pdm", "hatch",
        "conda", "mvn", "gradle", "dotnet", "composer", "bundle", "gem", "mix", "rustup", "brew", "apt", "apt-get",
        "terraform", "helm", "gh", "cmake", "meson", "bazel",
    )
)  # fmt: skip
# Of those, what runs a program an argument names, or changes what runs later.
_COMMANDS_THAT_RUN: Final = frozenset(
    (
        "run", "exec", "x", "dlx", "shell", "config", "alias", "bisect", "rebase", "filter-branch", "submodule",
        "tool", "generate", "install", "create", "init", "-e", "difftool", "mergetool", "hook", "api", "extension",
    )
)  # fmt: skip
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def command_rule(argv: Sequence[str], line: str) -> str:
    """The rule for a command; `line` is all of it as it is shown. The same text for all it covers.

    A program is named as the model named it: two of one name at different places are two.
    """
    program = argv[0] if argv else ""
    name = PurePosixPath(program).name.casefold()
    exact = f"exactly {line}"
    if not _WORD.fullmatch(program) or name in _RUNS_OTHERS or _VERSIONED.fullmatch(name):
        return exact
    if name in _WITH_COMMANDS:
        first = argv[1] if len(argv) > 1 else ""
        if not _WORD.fullmatch(first) or first.casefold() in _COMMANDS_THAT_RUN:
            return exact
        return f"{program} {first}, with any arguments"
    return f"{program}, with any arguments"
