"""Answers for system calls that give a socket an address: a loopback for the servers of a command itself.

Behind Landlock there is no network of its own, and on the machine's loopback others listen: databases,
agents, this very program's friends. So bind, listen and connect are the launcher's to do. A server may
have any port of the loopback and any name in the workspace, and a client reaches what was bound so and
nothing else. The address is read once and used as it was read: whoever changes it meanwhile changes
nothing. Part of the launcher, as `attributes.py`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from typing import Any

from .memory import Memory

_GET_DESCRIPTOR = 438  # pidfd_getfd, on both machines
_UNIX_PATH = 108
_MAPPED = bytes(10) + b"\xff\xff"  # an address of IPv4 as one of IPv6


class Sockets:
    """Does for a command what it asks for. `own` are the directories its named sockets may be in."""

    def __init__(self, own: tuple[str, ...]) -> None:
        self._own = own
        self._servers: set[tuple[bytes, int]] = set()
        self._names: set[tuple[int, int]] = set()
        self._libc: Any = ctypes.CDLL(None, use_errno=True)

    def answer(self, name: str, arguments: list[int], memory: Memory) -> int:
        """Do it: 0, or the number of the error. Raises OSError for what cannot be done here at all."""
        address = b"" if name == "listen" else memory.read(arguments[1], min(arguments[2], 128))
        with _taken(self._libc, memory.process, ctypes.c_int(arguments[0]).value) as sock:
            memory.check()
            if name == "listen":
                return self._listen(sock, ctypes.c_int(arguments[1]).value)
            family = int.from_bytes(address[:2], "little")
            if family == socket.AF_UNIX:
                return self._named(name, sock, address, memory)
            if family in (socket.AF_INET, socket.AF_INET6) and family == sock.family:
                return self._bind(sock, address) if name == "bind" else self._connect(sock, address)
            if name == "connect" and family == socket.AF_UNSPEC:
                return self._raw(self._libc.connect, sock, address)
            return errno.EAFNOSUPPORT

    def _raw(self, call: Any, sock: socket.socket, address: bytes) -> int:
        ctypes.set_errno(0)
        return 0 if call(sock.fileno(), address, len(address)) == 0 else ctypes.get_errno()

    def _bind(self, sock: socket.socket, address: bytes) -> int:
        host, _ = _host(address)
        if not any(host):
            # To be reached from everywhere is to be reached from here.
            only = sock.family == socket.AF_INET6 and sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
            host = bytes(15) + b"\x01" if only else socket.inet_aton("127.0.0.1")
        if not _is_loopback(host):
            return errno.EADDRNOTAVAIL
        failed = self._raw(self._libc.bind, sock, _with_host(address, host, sock.family))
        if not failed:
            self._servers.add((host, _host(_own_address(self._libc, sock))[1]))
        return failed

    def _listen(self, sock: socket.socket, backlog: int) -> int:
        if sock.family != socket.AF_UNIX and not sock.getsockname()[1]:
            # Without an address it would listen on all of the machine's.
            size = 14 if sock.family == socket.AF_INET else 26
            if failed := self._bind(sock, struct.pack(f"=H{size}x", sock.family)):
                return failed
        ctypes.set_errno(0)
        return 0 if self._libc.listen(sock.fileno(), backlog) == 0 else ctypes.get_errno()

    def _connect(self, sock: socket.socket, address: bytes) -> int:
        host, port = _host(address)
        if not any(host):
            host = socket.inet_aton("127.0.0.1") if len(host) == 4 else host[:-1] + b"\x01"
        if not _is_loopback(host):
            return errno.ENETUNREACH
        if (host, port) not in self._servers:
            return errno.ECONNREFUSED
        return self._raw(self._libc.connect, sock, _with_host(address, host, sock.family))

    def _named(self, name: str, sock: socket.socket, address: bytes, memory: Memory) -> int:
        path = address[2:].partition(b"\0")[0]
        if not path or sock.family != socket.AF_UNIX:
            return errno.EPERM  # one without a file belongs to the whole machine
        where, last = os.path.split(path)
        base = os.open(f"/proc/{memory.process}/cwd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            there = os.open(where or b".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=base)
            try:
                memory.check()
                if not self._is_own(there):
                    return errno.EACCES
                return (
                    self._bind_name(sock, base, there, path)
                    if name == "bind"
                    else self._connect_name(sock, there, last)
                )
            finally:
                os.close(there)
        finally:
            os.close(base)

    def _bind_name(self, sock: socket.socket, base: int, there: int, path: bytes) -> int:
        # By the path as it was given, because that is what the socket says its name is. Should it lead
        # elsewhere by now, it is the launcher's own wall that it meets.
        os.fchdir(base)
        try:
            failed = self._raw(self._libc.bind, sock, _unix(path))
        finally:
            os.chdir("/")
        if not failed:
            info = os.stat(os.path.basename(path), dir_fd=there, follow_symlinks=False)
            self._names.add((info.st_dev, info.st_ino))
        return failed

    def _connect_name(self, sock: socket.socket, there: int, last: bytes) -> int:
        held = os.open(last, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=there)
        try:
            info = os.fstat(held)
            if (info.st_dev, info.st_ino) not in self._names:
                return errno.ECONNREFUSED
            return self._raw(self._libc.connect, sock, _unix(b"/proc/self/fd/%d" % held))
        finally:
            os.close(held)

    def _is_own(self, there: int) -> bool:
        path = os.readlink(f"/proc/self/fd/{there}")
        return any(path == top or path.startswith(f"{top}/") for top in self._own)


def _taken(libc: Any, process: int, descriptor: int) -> socket.socket:
    """The socket behind a process's descriptor, as one of our own."""
    with open(f"/proc/{process}/status", encoding="ascii", errors="replace") as status:
        leader = next(int(line.split()[1]) for line in status if line.startswith("Tgid:"))
    there = os.pidfd_open(leader)
    try:
        taken = libc.syscall(_GET_DESCRIPTOR, there, descriptor, 0)
    finally:
        os.close(there)
    if taken < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return socket.socket(fileno=taken)


def _own_address(libc: Any, sock: socket.socket) -> bytes:
    buffer, size = ctypes.create_string_buffer(128), ctypes.c_uint32(128)
    libc.getsockname(sock.fileno(), buffer, ctypes.byref(size))
    return buffer.raw[: size.value]


def _host(address: bytes) -> tuple[bytes, int]:
    """The address and the port of a `sockaddr_in` or `sockaddr_in6`; one of IPv4 as such, however it is written."""
    size = 4 if int.from_bytes(address[:2], "little") == socket.AF_INET else 16
    begin = 4 if size == 4 else 8
    if len(address) < begin + size:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    host = address[begin : begin + size]
    return host[12:] if host.startswith(_MAPPED) else host, int.from_bytes(address[2:4], "big")


def _with_host(address: bytes, host: bytes, family: int) -> bytes:
    if family == socket.AF_INET:
        return address[:4] + host + address[8:]
    return address[:8] + (host if len(host) == 16 else _MAPPED + host) + address[24:]


def _is_loopback(host: bytes) -> bool:
    return host[0] == 127 if len(host) == 4 else host == bytes(15) + b"\x01"


def _unix(path: bytes) -> bytes:
    if len(path) >= _UNIX_PATH:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    return struct.pack("=H", socket.AF_UNIX) + path + b"\0"
