"""The rules of real deployments, checked before anything starts: names, and the kernel's limits.

A run out of descriptors does not fail: connections are accepted and never served, and it hangs. So
what a run may need is reckoned beforehand, soft limits are raised where that is allowed, and the
rest is refused with the fix. Nodes inherit the limits. See getrlimit(2).
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
"""Descriptors of the harness or of a node other than connections: files, pipes, listeners."""
_PER_LINK: Final = 5
"""A listener, and two connections with two ends each, as a node reconnects before the old one is
gone."""
_PER_CLIENT: Final = 4
"""For each node: a connection and its other side in the link proxy, old and new."""
_TASKS_PER_NODE: Final = 16
"""Threads of a node of ours; foreign programs may have more, and say so when they start."""


CLIENT_ENDS_MAX: Final = 64
"""How many clients may have links of their own: each is a port to listen on for every one of the
nodes', and in Docker an address."""


_NODE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def check_declarations(nodes: Sequence[NodeSpec]) -> None:
    """Raise `UsageError` for nodes that neither processes nor containers can run."""
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
    """The descriptors of the busiest process: the link proxy, through which everything goes."""
    return _OWN + _PER_LINK * nodes * nodes + _PER_CLIENT * nodes * clients + nodes * ends


def require_limits(plan: DeploymentPlan) -> None:
    """See that the limits leave room for this deployment; raises soft limits where it may.

    Raises `UsageError` where even the hard limits do not suffice.
    """
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
    if os.geteuid() != 0:  # the limit on processes does not hold for root
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
    # Not to the hard limit: some programs walk through all descriptors there may be.
    resource.setrlimit(kind, (needed, hard))


def _own_tasks() -> int:
    """Processes and threads of this user, which is what the kernel counts."""
    uid = os.getuid()
    tasks = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid == uid:
                tasks += sum(1 for _ in (folder / "task").iterdir())
        except OSError:
            continue  # it ended meanwhile
    return tasks
