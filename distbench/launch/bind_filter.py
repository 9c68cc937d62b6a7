"""Keeps what a task serves on one address, whatever address it asks for.

TensorFlow's gRPC servers listen on every interface, run whatever graph anyone sends
them, and can be told a port alone. So Linux (seccomp) stops each bind(2) of a task, and
of all that it starts, until its warden (`launch.warden`) has looked at the address; and
each setsockopt(2) of IPV6_V6ONLY, on which that depends. Every other system call goes
on at once. Without a warden nothing waits either: these two fail with ENOSYS then.

This guards against strangers on the network, not against the task itself, which could
change the address again behind the warden's back.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import socket
import struct
import sys
from typing import NamedTuple

EVERYWHERE = "0.0.0.0"
"""What a server asks for that asks for every interface."""
_KERNEL = (5, 9)
"""The first that tells when nobody has a filter any more, so it can be forgotten."""
_LIBC = ctypes.CDLL(None, use_errno=True)
_VERSION = re.compile(r"(\d+)\.(\d+)")
_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER = 1
_SPEC_ALLOW, _NEW_LISTENER, _WAIT_KILLABLE = 1 << 2, 1 << 3, 1 << 5
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NOTIFY, _ALLOW = 0x7FC00000, 0x7FFF0000
_NUMBER_AT, _ARCH_AT, _SECOND_AT, _THIRD_AT = 0, 4, 24, 32
"""In struct seccomp_data: the call, the machine, the low halves of two arguments."""


class Calls(NamedTuple):
    """Numbers of system calls on a machine, and the machine's own in a filter."""

    arch: int
    seccomp: int
    bind: int
    setsockopt: int


_CALLS = {
    "x86_64": Calls(arch=0xC000003E, seccomp=317, bind=49, setsockopt=54),
    "aarch64": Calls(arch=0xC00000B7, seccomp=277, bind=200, setsockopt=208),
}


def install_bind_filter() -> int:
    """Have every bind(2) from now on wait for a warden; cannot be undone.

    Must come before the process starts threads, which have the filter of who starts
    them. No program that it runs gains rights from then on by being setuid.

    Returns:
        The descriptor from which the warden learns of calls.

    Raises:
        OSError: The system has no such filter, or forbids it.
    """
    calls = find_calls()
    # A jump has two distances: if what was loaded equals the value, and if not.
    steps = (
        (_LOAD, 0, 0, _ARCH_AT),
        (_JUMP_IF_EQUAL, 0, 8, calls.arch),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_JUMP_IF_EQUAL, 5, 0, calls.bind),
        (_JUMP_IF_EQUAL, 0, 5, calls.setsockopt),
        (_LOAD, 0, 0, _SECOND_AT),
        (_JUMP_IF_EQUAL, 0, 3, socket.IPPROTO_IPV6),
        (_LOAD, 0, 0, _THIRD_AT),
        (_JUMP_IF_EQUAL, 0, 1, socket.IPV6_V6ONLY),
        (_RETURN, 0, 0, _NOTIFY),
        (_RETURN, 0, 0, _ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *s) for s in steps))
    program = struct.pack("HP", len(steps), ctypes.addressof(code))
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    flags = _NEW_LISTENER | _SPEC_ALLOW
    # A signal that comes while the warden looks would make bind(2) fail with EINTR,
    # which no program expects, where Linux cannot be told to wait: before 5.19.
    for more in (_WAIT_KILLABLE, 0):
        descriptor = int(
            _LIBC.syscall(calls.seccomp, _SET_MODE_FILTER, flags | more, program)
        )
        if descriptor >= 0:
            return descriptor
    number = ctypes.get_errno()
    raise OSError(number, f"seccomp: {os.strerror(number)}")


def find_calls() -> Calls:
    """The numbers of this machine.

    Raises:
        OSError: It, or its system, is none that filters are known for.
    """
    system = os.uname()
    version = _VERSION.match(system.release)
    is_new = version is not None and tuple(map(int, version.groups())) >= _KERNEL
    if system.sysname != "Linux" or not is_new:
        lacks = f"needs Linux 5.9, have {system.sysname} {system.release}"
    elif system.machine not in _CALLS or sys.maxsize < 1 << 32:
        lacks = f"needs x86_64 or aarch64, have {system.machine}"
    else:
        return _CALLS[system.machine]
    raise OSError(errno.ENOSYS, lacks)


def find_own_address(address: str) -> str:
    """An address as servers are kept on it: `""` if it is none of this machine's.

    A node behind a translation of addresses is known by one that it does not have.
    """
    with socket.socket() as sock:
        try:
            sock.bind((address, 0))
        except OSError:
            return ""
    return address


def measure_listening() -> str:
    """On which address a server of this process is that asks for every interface."""
    with socket.socket() as sock:
        sock.bind((EVERYWHERE, 0))
        return str(sock.getsockname()[0])
