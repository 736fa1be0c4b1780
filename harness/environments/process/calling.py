"""Intercepts each connect(2) of a node, to set its source address and lead it to the link proxy.

All nodes of a run are processes of one machine and would call from 127.0.0.1. The kernel can
identify the process at the other end of a connection only while that end is open
(`harness.environments.callers`), and many programs send a message and close at once. So the driver
intercepts calls of connect(2): a seccomp(2) filter blocks each such call, in the node and all of
its descendants, until the driver has handled it (seccomp_unotify(2)). If the destination is a
shared address, the driver duplicates the socket (pidfd_getfd(2)) and binds it to the node's own
address. Then the call continues. This costs a node about 200 us per connection and needs no
privilege.

A program may send its peers the address that it has bound, as ZooKeeper does in elections. The
peers then call the real port, not the link proxy, so no fault would affect the connection.
Therefore the driver connects the duplicate to the proxy of the link instead, and the call returns
the result.

Kernels before 5.6 and some containers do not support this. Yama's `ptrace_scope` of 2 also prevents
it unless the harness is root. A program that binds its socket itself, or connects in another way
(io_uring, TCP fast open), keeps its own address. In these cases only the socket identifies the
caller.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import platform
import re
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

_ARCHITECTURES: Final = {"x86_64": (0xC000003E, 42, 317), "aarch64": (0xC00000B7, 203, 277)}
"""For each machine: AUDIT_ARCH_*, and the system call numbers of connect and seccomp."""
_PIDFD_GETFD: Final = 438
_SET_MODE_FILTER: Final = 1
_NEW_LISTENER: Final = 1 << 3
_WAIT_KILLABLE: Final = 1 << 5
_SET_NO_NEW_PRIVS: Final = 38
_LOAD: Final = 0x20
_JUMP_EQUAL: Final = 0x15
_RETURN: Final = 0x06
_NOTIFY: Final = 0x7FC00000
_ALLOW: Final = 0x7FFF0000
_RECEIVE: Final = 0xC0502100
_ANSWER: Final = 0xC0182101
_IS_VALID: Final = 0x40082102
_REQUEST: Final = struct.Struct("=QIIiIQ6Q")  # struct seccomp_notif
_RESPONSE: Final = struct.Struct("=QqiI")
_GO_ON: Final = 1
_BIND_ADDRESS_NO_PORT: Final = 24
_MAPPED: Final = bytes(10) + b"\xff\xff"
_ADDRESS_BYTES_MAX: Final = 28  # the size of a sockaddr for IPv6

_libc = ctypes.CDLL(None, use_errno=True)


class CallingAddress:
    """Gives a node's connections their own source address, and leads them to the link proxy."""

    def __init__(self, host: str, detours: Mapping[int, tuple[str, int]] | None = None) -> None:
        """`host` is the source address of calls into its own /24 network.

        `detours` maps each real port of another node to the address of the proxy for this node's
        calls.
        """
        self._host = socket.inet_aton(host)
        self._detours = detours or {}

    def started(self, start: Callable[[], T]) -> T:
        """Run `start`, whose new process calls from this address; returns its result."""
        # A filter cannot be removed from its thread, so it is installed in a temporary thread. The
        # processes that this thread starts inherit it.
        with ThreadPoolExecutor(1) as thread:
            listener, process = thread.submit(self._start, start).result()
        if listener is not None:
            # Not on the driver's event loop, because the loop may wait for a node that is blocked
            # in connect.
            threading.Thread(target=self._supervise, args=(listener,), daemon=True).start()
        return process

    @staticmethod
    def _start(start: Callable[[], T]) -> tuple[int | None, T]:
        listener = _listen_to_connects()
        try:
            return listener, start()
        except BaseException:
            if listener is not None:
                os.close(listener)
            raise

    def _supervise(self, listener: int) -> None:
        """Answer each call of connect until all processes have ended."""
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        while any(events & select.POLLIN for _, events in poll.poll()):
            request = bytearray(_REQUEST.size)
            with contextlib.suppress(OSError):  # the calling process was killed
                fcntl.ioctl(listener, _RECEIVE, request)
                ident = _REQUEST.unpack(request)[0]
                outcome: int | None = None
                try:
                    with contextlib.suppress(
                        Exception
                    ):  # if the bind fails, the call still continues
                        outcome = self._handle(listener, request)
                finally:
                    flags = _GO_ON if outcome is None else 0
                    fcntl.ioctl(listener, _ANSWER, _RESPONSE.pack(ident, 0, outcome or 0, flags))
        os.close(listener)

    def _handle(self, listener: int, request: bytearray) -> int | None:
        """Handle a call of connect. Returns its result (0 or -errno), or `None` to let it continue.

        The socket of a call to a shared address is bound first. A call that would bypass the link
        proxy is carried out here, by connecting the socket to the proxy. Raises `OSError` if the
        caller is gone or the socket cannot be bound.
        """
        ident, thread, _, _, _, _, descriptor, place, size, *_ = _REQUEST.unpack(request)
        with (
            Path(f"/proc/{thread}/mem").open("rb", buffering=0) as memory,
            _pidfd(thread) as process,
        ):
            fcntl.ioctl(
                listener, _IS_VALID, struct.pack("=Q", ident)
            )  # fails if another thread now has this number
            memory.seek(place)
            called = _Place.of(memory.read(min(size, _ADDRESS_BYTES_MAX)))
            if called is None:
                return None
            source, detour = self._own_address(called), self._detour(called)
            if source is None and detour is None:
                return None
            end = _checked(_libc.syscall(_PIDFD_GETFD, process, ctypes.c_int(descriptor), 0))
        try:
            # Call libc, because a Python `socket` might change the flags of the node's socket.
            if detour is not None:
                failed = _libc.connect(end, detour, len(detour)) < 0
                return -ctypes.get_errno() if failed else 0
            assert source is not None
            on = ctypes.byref(ctypes.c_int(1))
            _libc.setsockopt(end, socket.SOL_IP, _BIND_ADDRESS_NO_PORT, on, 4)
            _checked(_libc.bind(end, source, len(source)))
            return None
        finally:
            os.close(end)

    def _detour(self, called: _Place) -> bytes | None:
        """Return the proxy's sockaddr if `called` is the real port of another node, else `None`."""
        detour = self._detours.get(called.port)
        if detour is None or not self._is_here(called.host):
            return None
        host, port = detour
        return _Place(called.family, socket.inet_aton(host), port).sockaddr()

    def _is_here(self, host: bytes) -> bool:
        """Whether real ports are at this address: it is on loopback, and not a shared address."""
        return host == bytes(4) or (host[:1] == b"\x7f" and host[:3] != self._host[:3])

    def _own_address(self, called: _Place) -> bytes | None:
        """Return the sockaddr to bind before a call to `called`, or `None`."""
        if called.host[:3] != self._host[:3]:
            return None
        return _Place(called.family, self._host, 0).sockaddr()


class _Place(NamedTuple):
    """An IPv4 address and a port, from a sockaddr of IPv4, or of IPv6 with a mapped address."""

    family: int
    host: bytes
    port: int

    @classmethod
    def of(cls, sockaddr: bytes) -> _Place | None:
        """Read a sockaddr; `None` if it has no IPv4 address."""
        if len(sockaddr) < struct.calcsize("=HH4s"):
            return None
        family, port = *struct.unpack_from("=H", sockaddr), *struct.unpack_from("!H", sockaddr, 2)
        if family == socket.AF_INET:
            return cls(family, sockaddr[4:8], port)
        if family == socket.AF_INET6 and sockaddr[8:20] == _MAPPED:
            return cls(family, sockaddr[20:24], port)
        return None

    def sockaddr(self) -> bytes:
        """Return the sockaddr that the kernel reads."""
        port = struct.pack("!H", self.port)
        if self.family == socket.AF_INET:
            return struct.pack("=H2s4s8x", self.family, port, self.host)
        return struct.pack("=H2sI16sI", self.family, port, 0, _MAPPED + self.host, 0)


@contextlib.contextmanager
def _pidfd(thread: int) -> Iterator[int]:
    status = Path(f"/proc/{thread}/status").read_text(encoding="utf-8", errors="replace")
    group = re.search(r"^Tgid:\s+(\d+)$", status, re.MULTILINE)
    descriptor = os.pidfd_open(thread if group is None else int(group[1]))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _listen_to_connects() -> int | None:
    """Install the seccomp filter in this thread and the processes that it will start.

    Returns the descriptor that reports calls of connect, or `None` if the kernel supports no such
    filter.
    """
    if platform.machine() not in _ARCHITECTURES:
        return None
    architecture, connect, seccomp = _ARCHITECTURES[platform.machine()]
    instructions = [
        (_LOAD, 0, 0, 4),
        (_JUMP_EQUAL, 0, 3, architecture),
        (_LOAD, 0, 0, 0),
        (_JUMP_EQUAL, 0, 1, connect),
        (_RETURN, 0, 0, _NOTIFY),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = ctypes.create_string_buffer(
        b"".join(struct.pack("=HBBI", *each) for each in instructions)
    )
    program = struct.pack("HP", len(instructions), ctypes.addressof(code))
    install = functools.partial(_libc.syscall, seccomp, _SET_MODE_FILTER)
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
        listener = install(flags, program)
        if listener < 0 and ctypes.get_errno() == errno.EACCES:
            _libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            listener = install(flags, program)
        if listener >= 0:
            return int(listener)
    return None
