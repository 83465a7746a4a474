"""A page in headless Chromium: what its DOM is after a script of the test has used it.

Debian's package is called chromium. Where there is none, the tests that need it are skipped.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--window-size=1280,900",
)

POLICY = re.compile(r"<meta http-equiv=Content-Security-Policy[^>]*>")


@cache
def program() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


needs_browser = pytest.mark.skipif(program() is None, reason="Chromium is not installed (apt-get install chromium)")


def dom(html: str, folder: Path, *flags: str) -> str:
    """The DOM of a page once it has loaded and its timers have run, as HTML."""
    page = folder / "page.html"
    page.write_text(html, encoding="utf-8")
    command = [program() or "", *FLAGS, f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=10000"]
    done = subprocess.run([*command, *flags, "--dump-dom", page.as_uri()], capture_output=True, timeout=60, check=True)
    return done.stdout.decode()


def ask(html: str, script: str, folder: Path) -> Any:
    """What `script`, the body of an async function, returns in the page. The page's own policy would
    not let it run, so it is taken away first.
    """
    probe = (
        "<script>(async () => { try { return JSON.stringify(await (async () => {" + script + "})()) }"
        " catch (error) { return JSON.stringify(String(error)) } })()"
        ".then((said) => { const p = document.createElement('p'); p.id = 'probe'; p.textContent = said;"
        " document.body.append(p); });</script></body>"
    )
    shown = dom(POLICY.sub("", html).replace("</body>", probe), folder)
    found = re.search(r'<p id="probe">(.*?)</p>', shown, re.DOTALL)
    assert found, shown[-500:]
    return json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
