"""A seccomp filter as bytes: which system calls a command in the sandbox may not make. Pure, no I/O.

Behind bubblewrap it is a second wall: files, processes and the network are closed by namespaces, and
this takes away what no build or test needs and what reaches rarely tried parts of the kernel. Behind
Landlock it is half of the first wall, since Landlock knows nothing of sockets other than TCP, of the
attributes of files, of shared memory, or of settings one process may change on another.

The numbers are those of the kernel's tables (arch/x86/entry/syscalls, include/uapi/asm-generic/unistd.h);
the instructions are classic BPF (linux/filter.h) over `struct seccomp_data`.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, TypeAlias

_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_LOAD, _AND, _JUMP_EQUAL, _JUMP_FROM, _JUMP_ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_KIND: Final = 0xF  # of a socket's type; the rest are flags
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data

ALLOW: Final = 0x7FFF0000
ASK: Final = 0x7FC00000  # SECCOMP_RET_USER_NOTIF: the launcher does it, or does not
_ERRNO: Final = 0x00050000
_X32: Final = 0x40000000

# The first number that was not in the table when this was written. What a later kernel adds is absent
# until somebody has looked at it; programs fall back, as on an older kernel.
_UNKNOWN_FROM: Final = 470

_Numbers: TypeAlias = tuple[int, int]  # x86_64, aarch64; -1 where there is none

# Never, behind either wall.
_FORBIDDEN: Final[dict[str, _Numbers]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "ioperm": (173, -1),
    "iopl": (172, -1),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, -1),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setns": (308, 268),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "userfaultfd": (323, 282),
}

# As if the kernel were older. io_uring does what other calls do, past this filter; the flags of clone3
# and the mode of openat2 are in memory, where no filter can see them.
_ABSENT: Final[dict[str, _Numbers]] = {
    "clone3": (435, 435),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "openat2": (437, 437),
}

# Behind Landlock only: what other processes of this user share, and a namespace of its own would part.
_SHARED: Final[dict[str, _Numbers]] = {
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
}

# Behind Landlock only: the newest ways to change attributes, for which every program has an older one.
_TOO_NEW: Final[dict[str, _Numbers]] = {
    "fchmodat2": (452, 452),
    "file_setattr": (469, 469),
    "removexattrat": (466, 466),
    "setxattrat": (463, 463),
}

# Behind Landlock only: it lets anybody read the attributes of any file, by its path. As if the file system
# had none, which programs know; through a descriptor they can be read, and only own files can be opened.
_ATTRIBUTES_READ: Final[dict[str, _Numbers]] = {
    "getxattr": (191, 8),
    "getxattrat": (464, 464),
    "lgetxattr": (192, 9),
    "listxattr": (194, 11),
    "listxattrat": (465, 465),
    "llistxattr": (195, 12),
}

# Behind Landlock only: Landlock lets anybody change mode, owner, times and attributes of any file, a
# setuid bit on /bin/sh too where the command is root's. The launcher looks where the file is.
ATTRIBUTES: Final[dict[str, _Numbers]] = {
    "chmod": (90, -1),
    "chown": (92, -1),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "fremovexattr": (199, 16),
    "fsetxattr": (190, 7),
    "futimesat": (261, -1),
    "lchown": (94, -1),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "removexattr": (197, 14),
    "setxattr": (188, 5),
    "utime": (132, -1),
    "utimensat": (280, 88),
    "utimes": (235, -1),
}

# Behind Landlock only, and without the machine's network: a server may be made and reached on the loopback,
# by the launcher's hand, which knows whose it is.
ADDRESSES: Final[dict[str, _Numbers]] = {
    "bind": (49, 200),
    "connect": (42, 203),
    "listen": (50, 201),
}
# Where flags are that connect without connect (MSG_FASTOPEN), and the option that shares another's port.
_SENDING: Final[tuple[tuple[_Numbers, int], ...]] = (((44, 206), 3), ((46, 211), 2), ((307, 269), 3))
_FAST_OPEN: Final = 0x20000000
_SET_OPTION: Final[_Numbers] = (54, 208)
_SHARE_PORT: Final = (1, 15)  # SOL_SOCKET, SO_REUSEPORT
_STREAM, _TCP = 1, 6

# Behind Landlock only: the first argument names a process; zero is the caller itself.
_OF_OTHERS: Final[dict[str, _Numbers]] = {
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
}
_SETPRIORITY: Final[_Numbers] = (141, 140)
_IOPRIO_SET: Final[_Numbers] = (251, 30)

# Where a mode is, and for those that only sometimes make a file, the flags that say so. A program that
# runs as whoever made it, left in the workspace, would outlive the sandbox.
_MODES: Final[tuple[tuple[_Numbers, int, tuple[int, int] | None], ...]] = (
    ((90, -1), 1, None),  # chmod
    ((91, 52), 1, None),  # fchmod
    ((268, 53), 2, None),  # fchmodat
    ((452, 452), 2, None),  # fchmodat2
    ((133, -1), 1, None),  # mknod
    ((259, 33), 2, None),  # mknodat
    ((85, -1), 1, None),  # creat
    ((2, -1), 2, (1, 0o100)),  # open with O_CREAT
    ((2, -1), 2, (1, 0o20000000)),  # and with O_TMPFILE
    ((257, 56), 3, (2, 0o100)),  # openat
    ((257, 56), 3, (2, 0o20000000)),
)
_SET_ID: Final = 0o6000

_CLONE, _UNSHARE, _NEW_USER = (56, 220), (272, 97), 0x10000000
_PTRACE, _ATTACH, _SEIZE = (101, 117), 16, 0x4206
_IOCTL: Final[_Numbers] = (16, 29)
# Typing into the terminal, from outside of it (TIOCSTI, TIOCLINUX).
_TYPING: Final = (0x5412, 0x541C)
# FS_IOC_SETFLAGS (both widths) and FS_IOC_FSSETXATTR: attributes again.
_FLAGS: Final = (0x40086602, 0x40046602, 0x401C5820)

_SOCKET, _SOCKETPAIR = (41, 198), (53, 199)
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16

Network: TypeAlias = Literal["own", "shared", "watched", "none"]

_Test: TypeAlias = tuple[int, Literal["is", "is not", "any of", "kind is not"], int]
_Instruction: TypeAlias = tuple[int, int, int, int]


def program(*, landlock: bool, network: Network, ask: bool = True, machine: str = "") -> bytes | None:
    """The filter, or None on a machine whose numbers are not known here.

    `network` is "own" (a namespace with a loopback of its own), "shared" (the machine's, which was
    allowed), "watched" (streams whose addresses the launcher sets) or "none" (no socket at all). With `ask`
    false nothing is left to the launcher, and which attributes it would change none are.
    """
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        return None
    at = list(_ARCHITECTURES).index(machine)
    out = list(_head(machine))
    for table, number in ((_FORBIDDEN, errno.EPERM), (_ABSENT, errno.ENOSYS)):
        out += _each(table, at, _deny(number))
    for call in (_CLONE, _UNSHARE):
        # Whoever is root in a user namespace reaches far into the kernel.
        out += _when(call[at], [(0, "any of", _NEW_USER)], _deny(errno.EPERM))
    for command in _TYPING:
        out += _when(_IOCTL[at], [(1, "is", command)], _deny(errno.EPERM))
    for request in (_ATTACH, _SEIZE):
        # The first process of the namespace is nobody's to stop. Debuggers go on working on others.
        out += _when(_PTRACE[at], [(0, "is", request), (1, "is", 1)], _deny(errno.EPERM))
    out += _set_ids(at)
    out += _sockets(at, landlock, network)
    if landlock:
        out += _without_namespaces(at, ASK if ask else _deny(errno.EPERM))
    out.append((_RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in out)


def _head(machine: str) -> Iterator[_Instruction]:
    """Other architectures' calls have other numbers: the 32-bit ones and x32 do not exist in here."""
    yield (_LOAD, 0, 0, _ARCHITECTURE)
    yield (_JUMP_EQUAL, 1, 0, _ARCHITECTURES[machine])
    yield (_RETURN, 0, 0, _deny(errno.ENOSYS))
    yield (_LOAD, 0, 0, _NUMBER)
    # x32 has a bit set that makes its numbers larger than any, so this is both checks at once.
    yield (_JUMP_FROM, 0, 1, _UNKNOWN_FROM)
    yield (_RETURN, 0, 0, _deny(errno.ENOSYS))


def _set_ids(at: int) -> Iterator[_Instruction]:
    for numbers, argument, making in _MODES:
        if numbers[at] >= 0:
            tests: list[_Test] = [(argument, "any of", _SET_ID)]
            if making:
                tests.insert(0, (making[0], "any of", making[1]))
            yield from _when(numbers[at], tests, _deny(errno.EPERM))


def _sockets(at: int, landlock: bool, network: Network) -> Iterator[_Instruction]:
    refused = _deny(errno.EACCES)
    if network == "none":
        yield (_JUMP_EQUAL, 0, 1, _SOCKET[at])
        yield (_RETURN, 0, 0, refused)
    elif network == "watched":
        # Streams only: a datagram carries its address with it.
        yield from _when(_SOCKET[at], [(0, "is not", family) for family in (_INET, _INET6, _UNIX)], refused)
        yield from _when(_SOCKET[at], [(1, "kind is not", _STREAM)], refused)
        yield from _when(_SOCKET[at], [(2, "is not", 0), (2, "is not", _TCP)], refused)
        for numbers, flags in _SENDING:
            yield from _when(numbers[at], [(flags, "any of", _FAST_OPEN)], _deny(errno.EOPNOTSUPP))
        level, option = _SHARE_PORT
        yield from _when(_SET_OPTION[at], [(1, "is", level), (2, "is", option)], _deny(errno.ENOPROTOOPT))
        yield from _each(ADDRESSES, at, ASK)
    else:
        # Nothing but the internet. A socket of AF_VSOCK reaches the machine's host, one of AF_ALG or
        # AF_BLUETOOTH parts of the kernel, and no namespace holds them. With the machine's network the
        # named sockets of others (a session bus, an X server) would be there too, so no AF_UNIX then.
        families = (_INET, _INET6, _NETLINK, *(() if landlock or network == "shared" else (_UNIX,)))
        yield from _when(_SOCKET[at], [(0, "is not", family) for family in families], refused)
        # Of netlink only the routing table, which is how a program lists its interfaces.
        yield from _when(_SOCKET[at], [(0, "is", _NETLINK), (2, "is not", 0)], refused)
    yield from _when(_SOCKETPAIR[at], [(0, "is not", _UNIX)], refused)


def _without_namespaces(at: int, attributes: int) -> Iterator[_Instruction]:
    yield from _each(_SHARED, at, _deny(errno.EPERM))
    yield from _each(_TOO_NEW, at, _deny(errno.ENOSYS))
    yield from _each(_ATTRIBUTES_READ, at, _deny(errno.EOPNOTSUPP))
    yield from _each(ATTRIBUTES, at, attributes)
    for numbers in _OF_OTHERS.values():
        yield from _when(numbers[at], [(0, "is not", 0)], _deny(errno.EPERM))
    for numbers, itself in ((_SETPRIORITY, 0), (_IOPRIO_SET, 1)):
        yield from _when(numbers[at], [(0, "is not", itself)], _deny(errno.EPERM))
        yield from _when(numbers[at], [(1, "is not", 0)], _deny(errno.EPERM))
    for command in _FLAGS:
        yield from _when(_IOCTL[at], [(1, "is", command)], _deny(errno.EPERM))


def _deny(number: int) -> int:
    return _ERRNO | number


def _each(table: dict[str, _Numbers], at: int, action: int) -> Iterator[_Instruction]:
    for numbers in table.values():
        if numbers[at] >= 0:
            yield (_JUMP_EQUAL, 0, 1, numbers[at])
            yield (_RETURN, 0, 0, action)


def _when(number: int, tests: Sequence[_Test], action: int) -> Iterable[_Instruction]:
    """`action` for this call where every test on its arguments (their lower halves) holds."""
    body: list[_Instruction] = [(_RETURN, 0, 0, action), (_LOAD, 0, 0, _NUMBER)]
    for argument, how, value in reversed(tests):
        # From the last to the first, as each has to know how much is behind it: then comes the reload.
        jump = _JUMP_ANY_BIT if how == "any of" else _JUMP_EQUAL
        fails = len(body) - 1
        if_true, if_false = (fails, 0) if how.endswith("is not") else (0, fails)
        kind = [(_AND, 0, 0, _KIND)] if how == "kind is not" else []
        body = [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument), *kind, (jump, if_true, if_false, value), *body]
    return [(_JUMP_EQUAL, 0, len(body), number), *body]
