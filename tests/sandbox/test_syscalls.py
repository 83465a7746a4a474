"""The filter as the kernel reads it: each rule tried on both machines, without a kernel."""

from __future__ import annotations

import errno
import struct

import pytest

from tool_loop.sandbox import syscalls
from tool_loop.sandbox.syscalls import ALLOW, ASK, program

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def verdict(code: bytes, architecture: int, number: int, *arguments: int) -> int | str:
    """What classic BPF returns over a `struct seccomp_data`: an error's number, "allow" or "ask"."""
    instructions = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
    values = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number, architecture, 0, *values)
    at = held = 0
    while True:
        what, if_true, if_false, value = instructions[at]
        at += 1
        match what:
            case 0x20:
                (held,) = struct.unpack_from("=I", data, value)
            case 0x06:
                return {ALLOW: "allow", ASK: "ask"}.get(value, value & 0xFFFF)
            case 0x54:
                held &= value
            case 0x15 | 0x35 | 0x45:
                holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[what]
                at += if_true if holds else if_false
            case _:
                raise AssertionError(f"an instruction nobody knows: {what:#x}")


class Filter:
    def __init__(self, machine: str, **options: object) -> None:
        self.at, self.architecture = MACHINES[machine]
        code = program(machine=machine, **options)  # type: ignore[arg-type]
        assert code is not None
        self.code = code

    def __call__(self, numbers: tuple[int, int], *arguments: int) -> int | str:
        return verdict(self.code, self.architecture, numbers[self.at], *arguments)


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def inside(machine: str) -> Filter:
    return Filter(machine, landlock=False, network="own")


@pytest.fixture
def alone(machine: str) -> Filter:
    return Filter(machine, landlock=True, network="none")


READ, WRITE, EXECVE, GETPID, OPENAT = (0, 63), (1, 64), (59, 221), (39, 172), (257, 56)


def test_what_every_program_does_is_allowed(inside: Filter, alone: Filter) -> None:
    for numbers in (READ, WRITE, EXECVE, GETPID, OPENAT):
        assert inside(numbers) == alone(numbers) == "allow"


@pytest.mark.parametrize("name", syscalls._FORBIDDEN)
def test_what_leads_out_is_forbidden(name: str, inside: Filter, alone: Filter) -> None:
    numbers = syscalls._FORBIDDEN[name]
    if numbers[inside.at] >= 0:
        assert inside(numbers) == alone(numbers) == errno.EPERM


@pytest.mark.parametrize("name", syscalls._ABSENT)
def test_what_no_filter_can_see_through_is_not_there(name: str, inside: Filter, alone: Filter) -> None:
    assert inside(syscalls._ABSENT[name]) == alone(syscalls._ABSENT[name]) == errno.ENOSYS


def test_calls_of_other_architectures_and_of_later_kernels_are_not_there(inside: Filter, machine: str) -> None:
    assert verdict(inside.code, 0x40000003, 1) == errno.ENOSYS  # i386
    assert verdict(inside.code, inside.architecture, 470) == errno.ENOSYS
    assert verdict(inside.code, inside.architecture, 0x40000000 + 39) == errno.ENOSYS  # x32
    assert verdict(inside.code, inside.architecture, 2**31) == errno.ENOSYS


def test_a_process_may_be_made_and_a_user_namespace_may_not(inside: Filter) -> None:
    assert inside(syscalls._CLONE, 0x01200011) == "allow"
    assert inside(syscalls._CLONE, 0x01200011 | 0x10000000) == errno.EPERM
    assert inside(syscalls._UNSHARE, 0x10000000) == errno.EPERM


def test_a_mode_that_makes_others_run_as_its_owner_is_refused(inside: Filter, machine: str) -> None:
    openat, fchmodat, mknodat = (257, 56), (268, 53), (259, 33)
    assert inside(fchmodat, 3, 0, 0o755) == "allow"
    assert inside(fchmodat, 3, 0, 0o4755) == inside(fchmodat, 3, 0, 0o2755) == errno.EPERM
    assert inside(openat, 3, 0, 0o101, 0o644) == "allow"
    assert inside(openat, 3, 0, 0o101, 0o4644) == errno.EPERM
    assert inside(openat, 3, 0, 0o20000001, 0o4644) == errno.EPERM
    assert inside(openat, 3, 0, 0o1, 0o7777) == "allow"  # no file is made: whatever the register holds
    assert inside(mknodat, 3, 0, 0o104755) == errno.EPERM
    assert inside((452, 452), 3, 0, 0o4755, 0) == errno.EPERM


def test_the_sockets_of_each_network(machine: str) -> None:
    own = Filter(machine, landlock=False, network="own")
    shared = Filter(machine, landlock=False, network="shared")
    none = Filter(machine, landlock=True, network="none")
    open_landlock = Filter(machine, landlock=True, network="shared")
    internet, unix, netlink, host, crypto = 2, 1, 16, 40, 38

    def families(each: Filter) -> list[int]:
        return [
            f for f in (internet, 10, unix, netlink, host, crypto, 17, 31) if each(syscalls._SOCKET, f, 1, 0) == "allow"
        ]

    assert families(own) == [internet, 10, unix, netlink]
    assert families(shared) == families(open_landlock) == [internet, 10, netlink]
    assert families(none) == []
    watched = Filter(machine, landlock=True, network="watched")
    stream, datagram, close_on_exec, sctp = 1, 2, 0o2000000, 132
    assert families(watched) == [internet, 10, unix]
    assert watched(syscalls._SOCKET, internet, stream | close_on_exec, 6) == "allow"
    assert watched(syscalls._SOCKET, internet, datagram, 0) == errno.EACCES
    assert watched(syscalls._SOCKET, unix, datagram | close_on_exec, 0) == errno.EACCES
    assert watched(syscalls._SOCKET, internet, stream, sctp) == errno.EACCES
    for numbers in syscalls.ADDRESSES.values():
        assert watched(numbers, 3) == "ask"
        assert own(numbers, 3) == "allow"
    assert watched((44, 206), 3, 0, 1, 0x20000000) == watched((46, 211), 3, 0, 0x20000000) == errno.EOPNOTSUPP
    assert watched((44, 206), 3, 0, 1, 0x4000) == "allow"
    assert watched(syscalls._SET_OPTION, 3, 1, 15) == errno.ENOPROTOOPT
    assert watched(syscalls._SET_OPTION, 3, 1, 2) == "allow"
    assert own(syscalls._SOCKET, netlink, 3, 9) == errno.EACCES  # not the audit log
    assert none(syscalls._SOCKETPAIR, unix, 1, 0) == "allow"
    assert own(syscalls._SOCKETPAIR, host, 1, 0) == errno.EACCES


def test_the_terminal_is_not_typed_into(inside: Filter) -> None:
    assert inside(syscalls._IOCTL, 0, 0x5401) == "allow"
    assert inside(syscalls._IOCTL, 0, 0x5412) == inside(syscalls._IOCTL, 0, 0x541C) == errno.EPERM
    assert inside(syscalls._IOCTL, 0, 0x5412 | 1 << 40) == errno.EPERM  # the kernel looks at the lower half


def test_the_first_process_is_not_traced_and_others_may_be(inside: Filter) -> None:
    assert inside(syscalls._PTRACE, 16, 1) == inside(syscalls._PTRACE, 0x4206, 1) == errno.EPERM
    assert inside(syscalls._PTRACE, 16, 5) == inside(syscalls._PTRACE, 0, 0) == "allow"


@pytest.mark.parametrize("name", syscalls.ATTRIBUTES)
def test_attributes_are_the_launchers_to_change_where_there_are_no_mounts(
    name: str, inside: Filter, alone: Filter
) -> None:
    numbers = syscalls.ATTRIBUTES[name]
    if numbers[inside.at] >= 0:
        assert alone(numbers) == "ask"
        assert inside(numbers) == "allow"


@pytest.mark.parametrize("name", syscalls._ATTRIBUTES_READ)
def test_attributes_are_not_read_by_path_where_there_are_no_mounts(name: str, inside: Filter, alone: Filter) -> None:
    assert alone(syscalls._ATTRIBUTES_READ[name]) == errno.EOPNOTSUPP
    assert inside(syscalls._ATTRIBUTES_READ[name]) == "allow"


def test_nothing_is_asked_where_nobody_answers(machine: str) -> None:
    quiet = Filter(machine, landlock=True, network="none", ask=False)

    assert quiet(syscalls.ATTRIBUTES["fchmod"]) == errno.EPERM


@pytest.mark.parametrize("name", syscalls._OF_OTHERS)
def test_what_is_set_is_set_for_oneself(name: str, alone: Filter, inside: Filter) -> None:
    assert alone(syscalls._OF_OTHERS[name], 0) == "allow"
    assert alone(syscalls._OF_OTHERS[name], 4711) == errno.EPERM
    assert inside(syscalls._OF_OTHERS[name], 4711) == "allow"  # there it is one of its own


def test_priorities_are_ones_own(alone: Filter) -> None:
    assert alone(syscalls._SETPRIORITY, 0, 0, 5) == alone(syscalls._IOPRIO_SET, 1, 0, 5) == "allow"
    for call in (syscalls._SETPRIORITY, syscalls._IOPRIO_SET):
        assert alone(call, 2, 0, 5) == errno.EPERM  # all of a user's
        assert alone(call, 0, 4711, 5) == alone(call, 1, 4711, 5) == errno.EPERM


@pytest.mark.parametrize("name", syscalls._SHARED)
def test_what_a_user_shares_is_shared_only_in_a_namespace(name: str, alone: Filter, inside: Filter) -> None:
    assert alone(syscalls._SHARED[name]) == errno.EPERM
    assert inside(syscalls._SHARED[name]) == "allow"


def test_a_machine_that_is_not_known_has_no_filter() -> None:
    assert program(landlock=True, network="none", machine="riscv64") is None


@pytest.mark.parametrize("landlock", [True, False])
@pytest.mark.parametrize("network", ["own", "shared", "none"])
def test_every_jump_leads_somewhere(machine: str, landlock: bool, network: str) -> None:
    code = program(landlock=landlock, network=network, machine=machine)  # type: ignore[arg-type]
    assert code
    instructions = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]

    assert len(instructions) < 4096
    assert instructions[-1] == (0x06, 0, 0, ALLOW)
    for at, (what, if_true, if_false, _) in enumerate(instructions):
        if what & 0x07 == 0x05:
            assert at + 1 + max(if_true, if_false) < len(instructions)
