"""What people run: it works in the sandbox as it does outside."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandbox.test_walls import chosen
from tool_loop.sandbox import Box, Sandbox, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandboxes are Linux's"),
]

POOL = "import multiprocessing as m\nif __name__ == '__main__':\n with m.get_context({!r}).Pool(2) as p: print(p.map(abs, [-1, 2]))"
QUEUE = (
    "import multiprocessing as m\nq = m.get_context('fork').Queue()\n"
    "p = m.get_context('fork').Process(target=q.put, args=(5,)); p.start(); print(q.get(timeout=9)); p.join()"
)
SHARED = "from multiprocessing import shared_memory as s; m = s.SharedMemory(create=True, size=9); print(m.size > 0); m.close(); m.unlink()"
LOOP = "import asyncio; p = asyncio.create_subprocess_exec('echo', 'hi'); print(asyncio.run(asyncio.wait_for(p, 9)) is not None)"
SQLITE = "import sqlite3; c = sqlite3.connect('t.db'); c.execute('pragma journal_mode=wal'); c.execute('create table a (b)'); c.commit(); print('ok')"
THREADS = "import threading, time; t = [threading.Thread(target=time.sleep, args=(.2,)) for _ in range(60)]; [x.start() for x in t]; print(len(t))"
CPUS = "import os; print(os.cpu_count() >= 1, len(os.sched_getaffinity(0)) >= 1)"
SERVER = (
    "import asyncio\nasync def main():\n"
    " s = await asyncio.start_server(lambda r, w: (w.write(b'hi'), w.close()), '127.0.0.1', 0)\n"
    " r, w = await asyncio.open_connection(*s.sockets[0].getsockname()[:2]); print(await r.read())\nasyncio.run(main())"
)

MANAGER = "import multiprocessing as m\nif __name__ == '__main__':\n with m.Manager() as g:\n  d = g.dict(); d[1] = 2; print(dict(d))"
HTTP = (
    "import threading, http.server as h, urllib.request as u\n"
    "s = h.ThreadingHTTPServer(('', 0), h.SimpleHTTPRequestHandler); threading.Thread(target=s.serve_forever, daemon=True).start()\n"
    "print(u.urlopen(f'http://localhost:{s.server_port}/').status)"
)
FORK_SERVER = POOL.format("forkserver")
NODE_HTTP = (
    "const h = require('http'); const s = h.createServer((q, r) => r.end('ok')).listen(0, () => "
    "h.get('http://localhost:' + s.address().port, r => r.on('data', d => { console.log('' + d); process.exit() })))"
)

# The program has to be there, argv, and what it prints has to hold.
PROGRAMS: dict[str, tuple[list[str], str]] = {
    "pytest": ([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"], "2 passed"),
    "pytest on two workers": ([sys.executable, "-m", "pytest", "-q", "-n", "2", "test_it.py"], "2 passed"),
    "git status": (["git", "status", "--short"], "?? "),
    "git log": (["git", "log", "--oneline"], "first"),
    "gcc": (["gcc", "a.c", "-o", "a.out"], ""),
    "gcc, and the program": (["bash", "-c", "gcc a.c -o b.out && ./b.out && echo ran"], "ran"),
    "make": (["make", "-s", "c.out"], ""),
    "node": (
        ["node", "-e", "console.log(process.memoryUsage().rss > 0, require('os').cpus().length > 0)"],
        "true true",
    ),
    "npm": (["npm", "test", "--silent"], ""),
    "pool": (["/usr/bin/python3", "-c", POOL.format("fork")], "[1, 2]"),
    "pool, spawned": (["/usr/bin/python3", "pool.py"], "[1, 2]"),
    "queue": (["/usr/bin/python3", "-c", QUEUE], "5"),
    "shared memory": (["/usr/bin/python3", "-c", SHARED], "True"),
    "a subprocess of a loop": (["/usr/bin/python3", "-c", LOOP], "True"),
    "a server": (["/usr/bin/python3", "-c", SERVER], "b'hi'"),
    "a web server": (["/usr/bin/python3", "-c", HTTP], "200"),
    "a web server of node": (["node", "-e", NODE_HTTP], "ok"),
    "manager": (["/usr/bin/python3", "manager.py"], "{1: 2}"),
    "pool, of a fork server": (["/usr/bin/python3", "forkserver.py"], "[1, 2]"),
    "sqlite": (["/usr/bin/python3", "-c", SQLITE], "ok"),
    "threads": (["/usr/bin/python3", "-c", THREADS], "60"),
    "processors": (["/usr/bin/python3", "-c", CPUS], "True True"),
    "venv": ([sys.executable, "-m", "venv", "--without-pip", "v"], ""),
    "venv, and its python": (
        ["bash", "-c", f"{sys.executable} -m venv --without-pip w && w/bin/python -c 'print(1 + 1)'"],
        "2",
    ),
    "tar": (
        [
            "bash",
            "-c",
            "mkdir -p d/e; chmod 750 d/e; touch -d 2001-01-01 d/f; tar cf d.tar d; rm -r d; tar xpf d.tar; stat -c %a d/e",
        ],
        "750",
    ),
    "cp and install": (["bash", "-c", "cp -a a.c z.c && install -m 755 a.c y && stat -c %a y"], "755"),
    "a process substitution": (["bash", "-c", "diff <(echo a) <(echo a) && cat <<< here"], "here"),
    "a temporary file": (["bash", "-c", "f=$(mktemp) && echo x > $f && cat $f"], "x"),
    "strace": (["strace", "-f", "-o", "trace", "true"], ""),
    "awk, sed, find, xargs, sort": (
        ["bash", "-c", "find . -name '*.c' | sort | xargs cat | sed s/0/1/ | awk '{print NF}' | head -1"],
        "",
    ),
}


@pytest.fixture(params=["bwrap", "landlock"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return chosen(request.param)


@pytest.fixture
def box(sandbox: Sandbox, tmp_path: Path) -> Box:
    (tmp_path / "a.c").write_text("int main() { return 0; }\n")
    (tmp_path / "Makefile").write_text("c.out: a.c\n\tgcc a.c -o c.out\n")
    (tmp_path / "manager.py").write_text(MANAGER)
    (tmp_path / "forkserver.py").write_text(FORK_SERVER)
    (tmp_path / "pool.py").write_text(POOL.format("spawn"))
    (tmp_path / "test_it.py").write_text("def test_a(tmp_path): (tmp_path / 'x').write_text('x')\ndef test_b(): pass\n")
    (tmp_path / "package.json").write_text('{"name": "x", "version": "1.0.0", "scripts": {"test": "node -e 1"}}')
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True, timeout=30)
    return Box(tmp_path, sandbox)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_works(name: str, box: Box) -> None:
    argv, wanted = PROGRAMS[name]
    if not shutil.which(argv[0]):
        pytest.skip(f"no {argv[0]} here")

    outcome = run(box, argv, seconds=90)

    said = (outcome.head + outcome.tail).decode()
    assert outcome.code == 0, said
    assert wanted in said
    assert outcome.undone == ()


def test_what_a_server_is_called_is_what_it_was_bound_to(box: Box) -> None:
    code = (
        "import os, socket\n"
        "for name in ('here', os.environ['TMPDIR'] + '/there'):\n"
        " s = socket.socket(socket.AF_UNIX); s.bind(name); s.listen(); c = socket.socket(socket.AF_UNIX); c.connect(name)\n"
        " print(s.getsockname() == c.getpeername() == name, os.path.exists(name))"
    )

    outcome = run(box, ["/usr/bin/python3", "-c", code], seconds=30)

    assert outcome.head == b"True True\n" * 2


def test_pip_says_that_there_is_no_network(box: Box) -> None:
    argv = [sys.executable, "-m", "pip", "install", "-q", "--retries", "0", "--timeout", "2", "six", "-t", "x"]

    outcome = run(box, argv, seconds=60)

    assert outcome.code == 1
    assert outcome.why == ""
