"""The rules of real deployments, checked before anything starts: names, and the kernel's limits.

A run that exhausts its file descriptors hangs instead of failing: connections are accepted and
never served. So the harness estimates the need beforehand, raises soft limits where possible, and
otherwise refuses the run with the fix. Nodes inherit the limits. See getrlimit(2).
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.cluster import CLIENT, NodeSpec
from harness.environments.host.placeholders import check_packages
from harness.errors import UsageError
from harness.nodes.deployment import check_nodes
from harness.plugins import DeploymentPlan

_OWN: Final = 64
"""Descriptors per process for anything but connections: files, pipes, listeners."""
_PER_LINK: Final = 5
"""A listener, and the two ends of two connections: a node may reconnect before the old connection
is gone."""
_PER_CLIENT: Final = 4
"""Per node: the two ends of an old and of a new connection in the link proxy."""
_TASKS_PER_NODE: Final = 16
"""Threads of a node on `Env`. A foreign program may need more and then fails at its start."""


CLIENT_ENDS_MAX: Final = 64
"""The limit on clients with their own links: each needs one listening port per port of a node, and
in Docker one address."""


_NODE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def check_declarations(nodes: Sequence[NodeSpec]) -> None:
    """Raise `UsageError` for declarations that neither processes nor containers can run."""
    names = [spec.name for spec in nodes]
    for name in names:
        if not _NODE_NAME.fullmatch(name) or name == CLIENT or names.count(name) > 1:
            raise UsageError(
                f"the node name {name!r} must match {_NODE_NAME.pattern}, be unique in the run, "
                f"and not be {CLIENT!r}"
            )
    check_nodes(nodes)
    check_packages(nodes)


def descriptors_needed(nodes: int, clients: int, ends: int = 1) -> int:
    """The descriptors needed by the busiest process, which is the link proxy."""
    return _OWN + _PER_LINK * nodes * nodes + _PER_CLIENT * nodes * clients + nodes * ends


def require_limits(plan: DeploymentPlan) -> None:
    """Raise soft limits for this deployment; `UsageError` if the hard limits do not suffice."""
    nodes, told_apart = len(plan.nodes), len(plan.ends) - 1
    if told_apart > CLIENT_ENDS_MAX:
        raise UsageError(
            f"a nemesis tells {told_apart} clients apart, and here at most {CLIENT_ENDS_MAX} can "
            "have links of their own; lower --concurrency, or use --env sim"
        )
    _require(
        resource.RLIMIT_NOFILE,
        descriptors_needed(nodes, plan.clients, len(plan.ends)),
        what="open files",
        flag="-n",
    )
    if os.geteuid() != 0:  # root is exempt from this limit
        needed = _own_tasks() + _TASKS_PER_NODE * (nodes + 1)
        _require(resource.RLIMIT_NPROC, needed, what="processes and threads", flag="-u")


def _require(kind: int, needed: int, *, what: str, flag: str) -> None:
    soft, hard = resource.getrlimit(kind)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise UsageError(
            f"the limit on {what} is {hard}, and this run may need {needed}; raise it "
            f"(ulimit -H{flag[1:]} {needed}, as root or in limits.conf), or lower --concurrency"
        )
    # Not to the hard limit, since some programs iterate over all possible descriptors.
    resource.setrlimit(kind, (needed, hard))


def _own_tasks() -> int:
    """The number of threads of all processes of this user, as the kernel counts them."""
    uid = os.getuid()
    tasks = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid == uid:
                tasks += sum(1 for _ in (folder / "task").iterdir())
        except OSError:
            continue  # it ended meanwhile
    return tasks
