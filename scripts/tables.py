"""Writes the tables in the documents that are made by commands, between their marks.

    python scripts/tables.py            README.md and docs/testing.md
    python scripts/tables.py --check    exits with 1 when one is not as it should be

A table stands between `<!-- COMMAND -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = ("README.md", "README.zh-CN.md", "docs/testing.md")
COMMANDS = {
    "tool-loop chaos --core --markdown": ["-m", "tool_loop", "chaos", "--core", "--markdown"],
    "python -m tool_loop.catalogue": ["-m", "tool_loop.catalogue"],
}


def printed(command: str) -> str:
    words = [sys.executable, *COMMANDS[command]]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)  # noqa: S603 - ours
    return done.stdout.strip()


def main() -> int:
    made: dict[str, str] = {}
    stale = []
    for name in DOCUMENTS:
        path = ROOT / name
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        text = before
        for command in COMMANDS:
            mark = re.compile(rf"(<!-- {re.escape(command)} -->\n).*?(<!-- end -->)", re.DOTALL)
            if mark.search(text):
                table = made.setdefault(command, "") or printed(command)
                made[command] = table
                text = mark.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text)
        if text != before:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    print(f"{'stale' if '--check' in sys.argv else 'written'}: {', '.join(stale) or 'nothing'}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
