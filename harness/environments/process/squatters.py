"""Detects other programs that use a node's port, by the kernel's socket tables.

A foreign program may be unable to share its ports. So the driver releases them just before the
program starts, and another program may take one first. Then the node fails because its port is
taken, or the other program answers in the node's place. In neither case is the node to blame.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from harness.environments import procfs
from harness.environments.callers import socket_inode
from harness.environments.process.addresses import LOOPBACK
from harness.environments.warden import ROLE_VARIABLE, RUN_VARIABLE
from harness.errors import InfrastructureError

_ANYBODY: Final = ("0.0.0.0", 0)  # noqa: S104 - the peer of a listening socket
_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


class PortWatch:
    """Finds other programs that listen on a port of one node, or have bound it."""

    def __init__(self, ports: Iterable[int], *, run_id: str, role: str) -> None:
        """`role` marks the node's processes (see `harness.environments.warden.run_environment`)."""
        self._ports = tuple(ports)
        self._run_id = run_id
        self._role = role
        self._own: dict[int, int] = {}  # port: inode of the node's own listening socket

    def squatter(self, first: int | None) -> str | None:
        """Return a clause about another program that listens on the node's port, or `None`.

        `first` is the pid of the node's first process, or `None` while the node is down.
        """
        for port in self._ports:
            try:
                inode = socket_inode((LOOPBACK, port), _ANYBODY)
            except InfrastructureError:  # the kernel lacks CONFIG_INET_DIAG
                return None
            if inode in {0, self._own.get(port)}:
                continue
            who = self._stranger(inode, first)
            if who is None:
                self._own[port] = inode
            else:
                return f"{who} listens on its port {port}"
        return None

    def unshared(self, ports: Iterable[int]) -> str | None:
        """Return a clause about one of `ports` that another program has bound without listening.

        The driver could not bind `ports`. Old connections of the node also prevent this, but the
        kernel's tables list them, while a port that is merely bound is in no table.
        """
        rows = [row.split() for table in _TABLES for row in _lines(table)]
        seen = {int(row[1].rpartition(":")[2], 16) for row in rows}
        unseen = sorted(set(ports) - seen)
        return f"another program has bound its port {unseen[0]}" if unseen else None

    def _stranger(self, inode: int, first: int | None) -> str | None:
        """Return a clause about the socket's owner, or `None` if the owner is the node itself."""
        if first is not None and any(procfs.holds_socket(p, inode) for p in procfs.family(first)):
            return None
        for process in procfs.all_processes():
            if not procfs.holds_socket(process.pid, inode):
                continue
            marks = procfs.environment_of(process.pid)
            is_ours = (marks.get(RUN_VARIABLE), marks.get(ROLE_VARIABLE)) == (
                self._run_id,
                self._role,
            )
            if is_ours or procfs.memory_bytes(process) is None:
                return None
            return f"another program (pid {process.pid})"
        # No visible process has the socket. A running node that changed its user may have it.
        return None if first is not None else "a program that cannot be seen from here"


def _lines(table: Path) -> list[str]:
    try:
        return table.read_text(encoding="ascii").splitlines()[1:]
    except OSError:  # without IPv6 there is no table tcp6
        return []
