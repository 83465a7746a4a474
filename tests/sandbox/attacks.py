"""What a command in the sandbox tries, and a program that tries all of it as whoever runs it.

Each says REACHED when it got somewhere, or prints the secret. None of them would do harm without the
walls: what is written outside is in a directory made for it, signals are number 0, and what belongs to
the machine is opened and closed again.

`python -m tests.sandbox.attacks bwrap` prints what came through, one line each; nothing is good.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
from pathlib import Path

SECRET = "hunter2-of-the-harness"

_PY = "import ctypes, errno, os, socket, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n"


def _py(code: str) -> list[str]:
    return ["/usr/bin/python3", "-c", _PY + code, "{out}", "{pid}"]


def _call(*arguments: object) -> list[str]:
    """A system call by number, which is reached when it does not fail."""
    called = ", ".join(map(str, arguments))
    return _py(f"print('REACHED' if libc.syscall({called}) >= 0 else errno.errorcode[ctypes.get_errno()])")


def _sh(code: str) -> list[str]:
    return ["/bin/bash", "-c", code, "attack", "{out}", "{pid}"]


WRITES: dict[str, list[str]] = {
    "a new file": _sh('echo x > "$1/new" && echo REACHED'),
    "appending": _sh('echo x >> "$1/secret" && echo REACHED'),
    "truncating": _py("os.truncate(sys.argv[1] + '/secret', 0)"),
    "renaming": _sh('mv "$1/secret" "$1/gone" && echo REACHED'),
    "moving in": _sh('mv "$1/secret" here && echo REACHED'),
    "moving out": _sh('echo x > mine; mv mine "$1/mine" && echo REACHED'),
    "removing": _sh('rm "$1/secret" && echo REACHED'),
    "removing the directory": _sh('rm -r "$1" && echo REACHED'),
    "a directory": _sh('mkdir "$1/d" && echo REACHED'),
    "a link out": _sh('ln -s "$1" out && echo x > out/new && echo REACHED'),
    "a hard link of the secret": _sh('ln "$1/secret" here && echo x >> here && echo REACHED'),
    "a hard link out": _sh('echo x > mine2; ln mine2 "$1/mine2" && echo REACHED'),
    "a socket out": _py("s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1] + '/s'); print('REACHED')"),
    "a fifo": _sh('mkfifo "$1/f" && echo REACHED'),
    "through dots": _sh('cd .. && echo x > "$1/../outside/new" && echo REACHED'),
    "through the root of another process": _sh('echo x > "/proc/$2/root$1/new" && echo REACHED'),
    "through the directory of another process": _sh('echo x > "/proc/$2/cwd/new" && echo REACHED'),
    "the mode": _sh('chmod 777 "$1/secret" && echo REACHED'),
    "the mode of the directory": _sh('chmod 777 "$1" && echo REACHED'),
    "the mode through a link": _sh('ln -s "$1/secret" l && chmod 777 l && echo REACHED'),
    "the mode through a descriptor's path": _py(
        "d = os.open(sys.argv[1] + '/secret', os.O_PATH); os.chmod(f'/proc/self/fd/{{d}}', 0o777); print('REACHED')"
    ),
    "the mode, newest call": _py(
        "r = libc.syscall(452, -100, (sys.argv[1] + '/secret').encode(), 0o777, 0)\n"
        "print('REACHED' if r == 0 else errno.errorcode[ctypes.get_errno()])"
    ),
    "the mode of the workspace's parent": _sh("chmod 711 .."),
    "the owner": _sh('chown "$(id -u):$(id -g)" "$1/secret" && echo REACHED'),
    "the times": _sh('touch -d 2001-01-01 "$1/secret" && echo REACHED'),
    "the times of the directory": _py("os.utime(sys.argv[1], (5, 5)); print('REACHED')"),
    "an attribute": _py("os.setxattr(sys.argv[1] + '/secret', 'user.x', b'1'); print('REACHED')"),
    "an attribute of the directory": _py("os.setxattr(sys.argv[1], 'user.x', b'1'); print('REACHED')"),
    "a flag": _py(
        "import fcntl; d = os.open(sys.argv[1], os.O_RDONLY)\n"
        "fcntl.ioctl(d, 0x40086602, (64).to_bytes(8, 'little')); print('REACHED')"
    ),
    "the system": _sh(
        "for d in /usr /etc /opt /usr/local/bin /var /root /home /srv /run /sys /boot; do (echo x > $d/.sb) 2>/dev/null"
        " && echo REACHED $d && rm -f $d/.sb; done; true"
    ),
    "the password file": _py("os.close(os.open('/etc/passwd', os.O_WRONLY)); print('REACHED')"),
    "the kernel's settings": _py(
        "for name in ('core_pattern', 'modprobe', 'hostname', 'pid_max', 'randomize_va_space', 'sysrq'):\n"
        "    try: os.close(os.open('/proc/sys/kernel/' + name, os.O_WRONLY)); print('REACHED', name)\n"
        "    except OSError: pass\n"
        "for name in ('/proc/sysrq-trigger', '/proc/mtrr', '/proc/irq/default_smp_affinity',"
        " '/proc/sys/vm/drop_caches', '/proc/sys/fs/binfmt_misc/register', '/proc/sys/net/ipv4/ip_forward'):\n"
        "    try: os.close(os.open(name, os.O_WRONLY)); print('REACHED', name)\n"
        "    except OSError: pass"
    ),
    "devices": _py(
        "import glob\nfor path in glob.glob('/dev/*') + glob.glob('/dev/*/*'):\n"
        "    if path.split('/')[2] in ('null', 'zero', 'full', 'random', 'urandom', 'tty', 'ptmx', 'pts', 'shm', 'fd')"
        " or path[5:8] == 'std': continue\n"
        "    try: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK)); print('REACHED', path)\n"
        "    except OSError: pass"
    ),
    # With the mode they have: only root may, and nothing is different when it comes through.
    "the mode of a device": _sh(
        "for d in null zero full random urandom tty; do chmod 666 /dev/$d && echo REACHED; done; true"
    ),
    "the times of a device": _sh("touch -r /dev/null /dev/null && echo REACHED"),
    "an attribute of a device": _py("os.setxattr('/dev/null', 'user.x', b'1'); print('REACHED')"),
    "the owner of a device": _py("os.chown('/dev/null', 0, 0); print('REACHED')"),
    "the mode of what the kernel shows": _sh(
        "chmod 444 /proc/meminfo && echo REACHED; chmod 644 /proc/sys/kernel/core_pattern && echo REACHED; true"
    ),
    "the mode of shared memory": _sh("[ -e /run/output ] || { chmod 1777 /dev/shm && echo REACHED; }; true"),
    "a device of its own": _py("os.mknod('disk', 0o060600, os.makedev(254, 0)); print('REACHED')"),
    "a program that runs as its owner": _sh("cp /bin/true t; chmod 4755 t && echo REACHED"),
    "one made so": _py("os.close(os.open('t2', os.O_CREAT | os.O_WRONLY, 0o4755)); print('REACHED')"),
    "one made so without a name": _py("os.close(os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o2755)); print('REACHED')"),
    "one made so, newest call": _py(
        "how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0)\n"
        "print('REACHED' if libc.syscall(437, -100, b't3', how, 24) >= 0 else errno.errorcode[ctypes.get_errno()])"
    ),
    "the file the output goes to": _sh(
        'for f in /run/output/* "$(dirname "$TMPDIR")"/output/*; do echo x >> "$f"; done 2>&1; '
        'echo x > /run/output/new && echo REACHED; echo x > "$(dirname "$TMPDIR")/output/new" && echo REACHED; true'
    ),
}

READS: dict[str, list[str]] = {
    "the secret": _sh('cat "$1/secret"'),
    "the secret by a link": _sh('ln -s "$1/secret" l2; cat l2'),
    "an attribute": _py("print('REACHED', os.getxattr(sys.argv[1] + '/secret', 'user.note'))"),
    "the names of attributes": _py("print('REACHED', os.listxattr(sys.argv[1] + '/secret'))"),
    "an attribute, newest call": _call(
        464, -100, "(sys.argv[1] + '/secret').encode()", 0, "b'user.note'", "(ctypes.c_uint64 * 2)()", 16
    ),
    "the directory": _sh('ls "$1" && echo REACHED'),
    "our variables": _sh('cat "/proc/$2/environ" && echo REACHED'),
    "everybody's variables": _sh("cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'"),
    "our memory": _py("os.close(os.open(f'/proc/{{sys.argv[2]}}/mem', os.O_RDONLY)); print('REACHED')"),
    "our maps": _sh('cat "/proc/$2/maps" && echo REACHED'),
    "our descriptors": _sh('cat "/proc/$2/fd/"* && echo REACHED; readlink "/proc/$2/fd/1" && echo REACHED; true'),
    "our directory": _sh('ls "/proc/$2/cwd/" && echo REACHED'),
    "our descriptors, taken": _call(438, "libc.syscall(434, int(sys.argv[2]), 0)", 1, 0),
    "our memory, copied": _py(
        "b = ctypes.create_string_buffer(8); v = (ctypes.c_uint64 * 2)(ctypes.addressof(b), 8)\n"
        "print('REACHED' if libc.syscall(310, int(sys.argv[2]), v, 1, v, 1, 0) > 0 else errno.errorcode[ctypes.get_errno()])"
    ),
    "tracing us": _py("print('REACHED' if libc.ptrace(0x4206, int(sys.argv[2]), 0, 0) == 0 else 'no')"),
    "inherited descriptors": _py(
        "found = [d for d in map(int, os.listdir('/proc/self/fd')) if d > 2]\n"
        "for d in found:\n"
        "    try: print('REACHED', os.readlink(f'/proc/self/fd/{{d}}')) if os.fstat(d).st_dev != os.stat('/proc').st_dev else None\n"
        "    except OSError: pass"
    ),
    "password hashes": _sh("cat /etc/shadow /etc/gshadow 2>/dev/null | grep -q : && echo REACHED"),
    "private keys": _sh("cat /etc/ssl/private/* /etc/ssh/*_key 2>/dev/null | grep -q . && echo REACHED"),
    "a home": _sh(
        "ls -A /root/ 2>/dev/null | grep -v '^.pyenv$' | grep -q . && echo REACHED; cat /root/.bashrc 2>/dev/null && echo REACHED; true"
    ),
    "the kernel's keys": _call(250, 0, -3, 0),
    "a disk": _py("os.close(os.open('/dev/vda', os.O_RDONLY)); print('REACHED')"),
    "the kernel's log": _call(103, 3, 0, 0),
    "the terminal": _sh(
        "exec 3<>/dev/tty && echo REACHED; for t in /dev/pts/[0-9]*; do exec 3<>$t && echo REACHED $t; done 2>/dev/null; true"
    ),
}

OTHERS: dict[str, list[str]] = {
    "a signal": _sh('kill -0 "$2" && echo REACHED'),
    "a signal to its parent": _sh('[ "$PPID" -gt 1 ] && kill -0 $PPID && [ ! -e /run/output ] && echo REACHED; true'),
    "a signal by descriptor": _call(424, "libc.syscall(434, int(sys.argv[2]), 0)", 0, 0, 0),
    "limits": _py(
        "import resource; l = (1 << 20, 1 << 20); resource.prlimit(int(sys.argv[2]), resource.RLIMIT_NOFILE, l); print('REACHED')"
    ),
    "priority": _py(
        "os.setpriority(os.PRIO_PROCESS, int(sys.argv[2]), os.getpriority(os.PRIO_PROCESS, int(sys.argv[2]))); print('REACHED')"
    ),
    "affinity": _py("p = int(sys.argv[2]); os.sched_setaffinity(p, os.sched_getaffinity(p)); print('REACHED')"),
    "shared memory": _py(
        "key = int.from_bytes(sys.argv[1].encode()[-3:], 'big')\n"
        "print('REACHED' if libc.shmget(key, 0, 0) >= 0 else errno.errorcode[ctypes.get_errno()])"
    ),
    "an abstract socket": _py("s = socket.socket(socket.AF_UNIX); s.connect('\\0' + sys.argv[1]); print('REACHED')"),
    "a named socket": _py("s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1] + '/socket'); print('REACHED')"),
    "a named socket by a link": _py(
        "os.symlink(sys.argv[1], 'there'); s = socket.socket(socket.AF_UNIX); s.connect('there/socket'); print('REACHED')"
    ),
    "a named socket by a link to it": _py(
        "os.symlink(sys.argv[1] + '/socket', 'it'); s = socket.socket(socket.AF_UNIX); s.connect('it'); print('REACHED')"
    ),
    "a server without connecting": _py(
        "port = int(open('port').read()); s = socket.socket(); s.sendto(b'x', 0x20000000, ('127.0.0.1', port)); print('REACHED')"
    ),
    "a server by its other names": _py(
        "port = int(open('port').read())\n"
        "for f, a in ((2, ('0.0.0.0', port)), (2, ('127.0.0.2', port)), (10, ('::ffff:127.0.0.1', port)), (10, ('::', port))):\n"
        "    try: s = socket.socket(f); s.connect(a); print('REACHED', a)\n"
        "    except OSError: pass"
    ),
    "a server whose port it shares": _py(
        "port = int(open('port').read()); s = socket.socket()\n"
        "if not os.path.exists('/run/output'): s.setsockopt(1, 15, 1); s.bind(('127.0.0.1', port)); print('REACHED')"
    ),
    "being reached from elsewhere": _py(
        "s = socket.socket(); s.listen(); t = socket.create_server(('', 0))\n"
        "if not os.path.exists('/run/output') and {{s.getsockname()[0], t.getsockname()[0]}} != {{'127.0.0.1'}}: print('REACHED')"
    ),
    "another protocol": _py(
        "for p in (132, 262, 33, 136):\n"
        "    try: s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, p); s.connect(('127.0.0.1', int(open('port').read()))); print('REACHED')\n"
        "    except OSError: pass"
    ),
    "a server on this machine": _py(
        "port = int(open('port').read()); s = socket.create_connection(('127.0.0.1', port), 3); print('REACHED')"
    ),
    "the same by datagram": _py(
        "port = int(open('port').read()); s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('127.0.0.1', port))\n"
        "s.send(b'x'); s.settimeout(1); s.recv(1); print('REACHED')"
    ),
    "a name": _py("socket.getaddrinfo('localhost.localdomain.test', 80); print('REACHED')"),
    "the host of this machine": _py("s = socket.socket(40, socket.SOCK_STREAM); print('REACHED')"),
    "odd families": _py(
        "for family in (17, 38, 31, 29, 30, 21, 41, 42, 43, 44, 37):\n"
        "    for kind in (1, 2, 3, 5):\n"
        "        try: socket.socket(family, kind); print('REACHED', family)\n"
        "        except OSError: pass"
    ),
    "a packet of its own making": _py("socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); print('REACHED')"),
    "a bus": _sh(
        'env | grep -E "DBUS|SSH_AUTH|DISPLAY|XDG_RUNTIME|API_KEY|hunter2" && echo REACHED; ls /run/user /run/dbus /var/run/docker.sock 2>/dev/null && echo REACHED; true'
    ),
    "namespaces": _sh(
        "unshare -U true && echo REACHED; unshare -m true && echo REACHED; unshare -n true && echo REACHED; true"
    ),
    "a namespace by clone": _call(56, 0x10000000, 0, 0, 0, 0),
    "a namespace by clone3": _py(
        "a = (ctypes.c_uint64 * 8)(0x10000000, 0, 0, 0, 17, 0, 0, 0)\nr = libc.syscall(435, a, 64)\n"
        "if r == 0: os._exit(0)\nprint('REACHED' if r > 0 else errno.errorcode[ctypes.get_errno()])"
    ),
    "a mount": _sh("mount -t tmpfs none /tmp && echo REACHED; mount --bind / /tmp && echo REACHED; true"),
    "writing where it was read-only": _sh(
        "mount -o remount,rw / && echo REACHED; mount -o remount,rw,bind /usr && echo REACHED; true"
    ),
    "io_uring": _call(425, 8, "(ctypes.c_char * 200)()"),
    "bpf": _call(321, 0, "(ctypes.c_char * 64)()", 64),
    "userfaultfd": _call(323, 0),
    "performance counters": _call(298, "(ctypes.c_char * 128)()", 0, -1, -1, 0),
    "a handle": _py(
        "h = ctypes.create_string_buffer(136); ctypes.memmove(h, (128).to_bytes(4, 'little'), 4); m = ctypes.c_int()\n"
        "libc.syscall(303, -100, b'/usr', h, ctypes.byref(m), 0); d = os.open('/usr', os.O_RDONLY)\n"
        "print('REACHED' if libc.syscall(304, d, h, 0) >= 0 else errno.errorcode[ctypes.get_errno()])"
    ),
    "typing into the terminal": _py("import fcntl, termios; fcntl.ioctl(1, termios.TIOCSTI, b'x'); print('REACHED')"),
    "rights": _sh("grep -E '^Cap(Inh|Prm|Eff|Amb)' /proc/self/status | grep -v 0000000000000000 && echo REACHED; true"),
    "new rights": _sh("grep -q 'NoNewPrivs:.1' /proc/self/status || echo REACHED"),
    "the sandbox's own process": _py(
        "for path in ('/proc/1/mem',):\n"
        "    try: os.close(os.open(path, os.O_RDWR)); print('REACHED', path)\n"
        "    except OSError as e: print(e.strerror)"
    ),
    "old numbers of calls": _call(0x40000000 + 39),
}

ATTACKS = {
    f"{kind}: {name}": argv
    for kind, table in (("writes", WRITES), ("reads", READS), ("others", OTHERS))
    for name, argv in table.items()
}


def came_through(name: str, sandbox: object, place: Path) -> str:
    """What the attack reached; "" when it was held. `place` is an empty directory."""
    from tool_loop.errors import ToolError
    from tool_loop.sandbox import Box, run

    outside, workspace = place / "outside", place / "workspace"
    outside.mkdir()
    workspace.mkdir()
    secret = outside / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o644)
    with contextlib.suppress(OSError):
        os.setxattr(secret, "user.note", SECRET.encode())
    port = os.environ.get("ATTACKED_PORT")
    if port:
        (workspace / "port").write_text(port)
    named, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    named.bind(str(outside / "socket"))
    abstract.bind(f"\0{outside}")
    for server in (named, abstract):
        server.listen()
    before = _look(place, outside)
    box = Box(workspace, sandbox)  # type: ignore[arg-type]
    try:
        argv = [
            a.replace("{out}", str(outside)).replace("{pid}", str(os.getpid())).replace("{{", "{").replace("}}", "}")
            for a in ATTACKS[name]
        ]
        outcome = run(box, argv, seconds=20)
        said = (outcome.head + outcome.tail).decode("utf-8", "replace")
        if outcome.why:
            return f"it was {outcome.why}"
    except ToolError as error:
        return f"it could not be tried: {error.message}"
    finally:
        box.close()
        named.close()
        abstract.close()
    if "SyntaxError" in said or "NameError" in said:
        return f"it could not be tried: {said[-300:]}"
    if "REACHED" in said or SECRET in said:
        return said.strip()[:300]
    return "" if _look(place, outside) == before else f"it changed what is outside: {_look(place, outside)}"


def _look(place: Path, outside: Path) -> object:
    def one(path: Path) -> object:
        info = path.stat()
        return info.st_mode, info.st_uid, info.st_mtime_ns if path != place else 0, os.listxattr(path)

    return (
        sorted(path.name for path in outside.iterdir()),
        (outside / "secret").read_text(),
        one(outside),
        one(outside / "secret"),
        one(place),
    )


def main() -> None:
    from tool_loop.sandbox import choose

    os.environ["OPENAI_API_KEY"] = SECRET
    os.environ["SSH_AUTH_SOCK"] = "/tmp/agent"
    sandbox = choose(sys.argv[1])
    for name in ATTACKS:
        with tempfile.TemporaryDirectory() as place:
            if reached := came_through(name, sandbox, Path(place)):
                print(f"{name}: {reached}")


if __name__ == "__main__":
    main()
