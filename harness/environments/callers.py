"""The process that opened a connection on loopback, found without the caller's help.

All nodes of a run are processes of one machine and call from 127.0.0.1. Who has the other end of an
accepted connection, the kernel knows: asked for exactly this socket (sock_diag(7)) it names an
inode, and the process that holds it has a descriptor `socket:[inode]` (proc(5)). One connection
costs some 10 us for the question and 2 us for each descriptor of the nodes' processes, where
reading /proc/net/tcp takes milliseconds on a machine with a thousand sockets. It needs no
privilege: processes of the same user can be looked at, and root's harness can look at all.

The driver notes in a folder which processes are whose, one small file a caller, before these can
have done much: a file, since it must be there at once, however busy others are.
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
_HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr
_INODE_AT: Final = _HEADER.size + 4 + 48 + 4 * 4  # inet_diag_msg.idiag_inode
_ANY_STATE: Final = 0xFFFFFFFF
_NO_COOKIE: Final = b"\xff" * 8
_ANSWER_BYTES_MAX: Final = 8192
_PATIENCE_S: Final = 0.25
"""How long an unknown caller may turn out to be a node that has only just been started."""
_POLL_S: Final = 0.005

Address = tuple[str, int]


class CallerGoneError(Exception):
    """The caller has closed its end already, so it cannot be identified."""


def socket_inode(local: Address, remote: Address) -> int:
    """The inode of the TCP socket with these ends; 0 where no process holds it (any more).

    Raises `InfrastructureError` where the kernel does not tell.
    """
    ends = struct.pack("!HH", local[1], remote[1])
    ends += socket.inet_aton(local[0]).ljust(16, b"\0") + socket.inet_aton(remote[0]).ljust(
        16, b"\0"
    )
    wanted = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, _ANY_STATE)
    question = wanted + ends + struct.pack("=I", 0) + _NO_COOKIE
    size = _HEADER.size + len(question)
    try:
        # Sockets of AF_INET6 with mapped addresses (Java's) are found, too.
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
            netlink.send(_HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + question)
            answer = netlink.recv(_ANSWER_BYTES_MAX)
        code = -struct.unpack_from("=i", answer, _HEADER.size)[0]
        if _HEADER.unpack_from(answer)[1] != _NLMSG_ERROR:
            return int(struct.unpack_from("=I", answer, _INODE_AT)[0])
    except (OSError, struct.error) as error:
        raise InfrastructureError(
            f"the kernel does not say who has a connection: {error}"
        ) from error
    if code in {errno.ENOENT, errno.ESTALE}:
        return 0
    raise InfrastructureError(
        f"the kernel does not say who has a connection: {os.strerror(code)} (it must have "
        "CONFIG_INET_DIAG)"
    )


def require_socket_owners() -> None:
    """Raise `UsageError` where the kernel does not tell who has a connection."""
    nowhere = ("127.0.0.1", 0)
    try:
        socket_inode(nowhere, nowhere)
    except InfrastructureError as error:
        raise UsageError(
            "the nodes need one address each, the same for all, where the link proxy must be able "
            f"to tell who calls; {error}; use --env docker"
        ) from error


class CallerBook:
    """Whose processes are whose, in a folder that its writer and its reader share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def note(self, caller: str, process: ProcessId, *, part: str = "", alone: bool = False) -> None:
        """This process is this caller's from now on, in place of the last one of the same part.

        So are its descendants, unless it is `alone`. Raises `InfrastructureError`.
        """
        text = f"{process} {'alone' if alone else 'tree'}\n"
        try:
            (self.folder / f"{caller}~{part}").write_text(text, encoding="ascii")
        except OSError as error:
            raise InfrastructureError(
                f"whose process {process} is, cannot be noted: {error}"
            ) from error

    def _entries(self) -> Iterator[tuple[str, list[int]]]:
        for path in sorted(self.folder.iterdir()):
            words = path.read_text(encoding="ascii").split()
            if len(words) != 2:
                continue  # just being written
            process = ProcessId.parse(words[0])
            if procfs.is_alive(process):
                alone = words[1] == "alone"
                pids = [process.pid] if alone else procfs.family(process.pid)
                yield path.name.partition("~")[0], pids

    def find(self, local: Address, remote: Address) -> str | None:
        """The caller whose socket has these ends; `None` for a process that is not in the book.

        Raises `CallerGoneError`, and `InfrastructureError` where the kernel does not tell.
        """
        inode = socket_inode(local, remote)
        if inode == 0:
            raise CallerGoneError
        for caller, pids in self._entries():
            if any(procfs.holds_socket(pid, inode) for pid in pids):
                return caller
        return None

    async def wait_found(self, local: Address, remote: Address) -> str | None:
        """The same, asked again for a moment: a process calls before it is in the book."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _PATIENCE_S
        while (caller := self.find(local, remote)) is None and loop.time() < deadline_s:  # noqa: ASYNC110 - a poll
            await asyncio.sleep(_POLL_S)
        return caller
