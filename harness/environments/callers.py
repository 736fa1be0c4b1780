"""Finds the process that opened a connection on loopback, without that process's help.

All nodes of a run are processes of one machine and call from 127.0.0.1. The kernel finds the
caller's socket by its two addresses, and returns the socket's inode (sock_diag(7)). The process
that holds the socket has a descriptor `socket:[inode]` (proc(5)). The query costs about 10 us per
connection. The search for the descriptor costs 2 us per descriptor of the nodes' processes. Reading
/proc/net/tcp instead would take milliseconds on a machine with a thousand sockets. No privilege is
needed: a process may inspect processes of the same user.

Right after starting a process, the driver writes a small file that names the caller to which the
process belongs. Readers see the file at once, however busy the machine is.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.environments import procfs
from harness.environments.procfs import ProcessId
from harness.errors import InfrastructureError, UsageError

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST: Final = 1
_NLMSG_ERROR: Final = 2
_HEADER: Final = struct.Struct("=IHHII")  # struct nlmsghdr
_INODE_AT: Final = _HEADER.size + 4 + 48 + 4 * 4  # inet_diag_msg.idiag_inode
_ANY_STATE: Final = 0xFFFFFFFF
_NO_COOKIE: Final = b"\xff" * 8
_ANSWER_BYTES_MAX: Final = 8192
_PATIENCE_S: Final = 0.25
"""For how long `wait_found` repeats a lookup: a node may connect before it is recorded."""
_POLL_S: Final = 0.005

Address = tuple[str, int]


class CallerGoneError(Exception):
    """The caller has already closed its end of the connection, so it cannot be identified."""


def socket_inode(local: Address, remote: Address) -> int:
    """Return the inode of the TCP socket with these addresses; 0 if no process holds the socket.

    Raises `InfrastructureError` if the kernel does not answer.
    """
    ends = struct.pack("!HH", local[1], remote[1])
    ends += socket.inet_aton(local[0]).ljust(16, b"\0") + socket.inet_aton(remote[0]).ljust(
        16, b"\0"
    )
    wanted = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, _ANY_STATE)
    question = wanted + ends + struct.pack("=I", 0) + _NO_COOKIE
    size = _HEADER.size + len(question)
    try:
        # A query for AF_INET also finds AF_INET6 sockets with IPv4-mapped addresses, which Java
        # uses.
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
            netlink.send(_HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + question)
            answer = netlink.recv(_ANSWER_BYTES_MAX)
        code = -struct.unpack_from("=i", answer, _HEADER.size)[0]
        if _HEADER.unpack_from(answer)[1] != _NLMSG_ERROR:
            return int(struct.unpack_from("=I", answer, _INODE_AT)[0])
    except (OSError, struct.error) as error:
        raise InfrastructureError(
            f"the kernel cannot name the process that opened a connection: {error}"
        ) from error
    if code in {errno.ENOENT, errno.ESTALE}:
        return 0
    raise InfrastructureError(
        f"the kernel cannot name the process that opened a connection: {os.strerror(code)} (the "
        "kernel needs CONFIG_INET_DIAG)"
    )


def require_socket_owners() -> None:
    """Raise `UsageError` if the kernel cannot tell which process opened a connection."""
    nowhere = ("127.0.0.1", 0)
    try:
        socket_inode(nowhere, nowhere)
    except InfrastructureError as error:
        raise UsageError(
            "nodes need addresses that all callers share, so the link proxy must identify each "
            f"caller; {error}; use --env docker"
        ) from error


class CallerBook:
    """Records which process belongs to which caller, in a folder that several processes share.

    A caller is a node or a client of the harness.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def note(self, caller: str, process: ProcessId, *, part: str = "", alone: bool = False) -> None:
        """Record that `process` belongs to `caller`; replaces the caller's earlier record for
        `part`.

        `part` tells the processes of one caller apart. Unless `alone` is true, descendants of
        `process` belong to the caller as well. Raises `InfrastructureError` if the record cannot be
        written.
        """
        text = f"{process} {'alone' if alone else 'tree'}\n"
        try:
            (self.folder / f"{caller}~{part}").write_text(text, encoding="ascii")
        except OSError as error:
            raise InfrastructureError(
                f"cannot record that process {process} belongs to {caller}: {error}"
            ) from error

    def _entries(self) -> Iterator[tuple[str, list[int]]]:
        for path in sorted(self.folder.iterdir()):
            words = path.read_text(encoding="ascii").split()
            if len(words) != 2:
                continue
            process = ProcessId.parse(words[0])
            if procfs.is_alive(process):
                alone = words[1] == "alone"
                pids = [process.pid] if alone else procfs.family(process.pid)
                yield path.name.partition("~")[0], pids

    def find(self, local: Address, remote: Address) -> str | None:
        """Return the caller whose socket has these addresses, or `None` if it is not recorded.

        Raises `CallerGoneError` if the caller has closed the socket, and `InfrastructureError` if
        the kernel does not answer.
        """
        inode = socket_inode(local, remote)
        if inode == 0:
            raise CallerGoneError
        for caller, pids in self._entries():
            if any(procfs.holds_socket(pid, inode) for pid in pids):
                return caller
        return None

    async def wait_found(self, local: Address, remote: Address) -> str | None:
        """Repeat `find` until it succeeds, but only for a short time; then return `None`.

        A process may call before it is recorded.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _PATIENCE_S
        while (caller := self.find(local, remote)) is None and loop.time() < deadline_s:  # noqa: ASYNC110 - a poll
            await asyncio.sleep(_POLL_S)
        return caller
