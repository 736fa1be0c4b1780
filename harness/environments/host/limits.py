"""Checks the names of nodes and the kernel's limits before a real deployment starts.

A run that exhausts its file descriptors hangs instead of failing: connections are accepted but
never served. So the harness estimates before the run how many it needs, and raises soft limits. If
a hard limit is too low, the harness refuses the run and says how to fix it. Nodes inherit the
limits. See getrlimit(2).
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
"""The descriptors of a process for files, pipes and listeners, but not for connections."""
_PER_LINK: Final = 5
"""The descriptors of the link proxy for two nodes: one listener, and two for each connection.

A node may reconnect before its old connection is gone, so there may be two connections."""
_PER_CLIENT: Final = 4
"""The descriptors of the link proxy for a client and a node: an old and a new connection."""
_TASKS_PER_NODE: Final = 16
"""The threads of a node on `Env`. A foreign program may need more; then it fails at its start."""


CLIENT_ENDS_MAX: Final = 64
"""The maximum number of clients with links of their own. Each needs a listener per port of a
node."""


_NODE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def check_declarations(nodes: Sequence[NodeSpec]) -> None:
    """Raise `UsageError` for node declarations that neither processes nor containers can run."""
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
    """Return how many descriptors the link proxy needs. No other process needs as many."""
    return _OWN + _PER_LINK * nodes * nodes + _PER_CLIENT * nodes * clients + nodes * ends


def require_limits(plan: DeploymentPlan) -> None:
    """Raise the harness's soft limits for a plan; `UsageError` if a hard limit is too low."""
    nodes, distinct = len(plan.nodes), len(plan.ends) - 1
    if distinct > CLIENT_ENDS_MAX:
        raise UsageError(
            f"a nemesis distinguishes {distinct} clients, and processes and docker allow at most "
            f"{CLIENT_ENDS_MAX}; lower --concurrency, or use --env sim"
        )
    _require(
        resource.RLIMIT_NOFILE,
        descriptors_needed(nodes, plan.clients, len(plan.ends)),
        what="open files",
        flag="-n",
    )
    if os.geteuid() != 0:  # this limit does not apply to root
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
    # Not higher: some programs iterate over all possible descriptors.
    resource.setrlimit(kind, (needed, hard))


def _own_tasks() -> int:
    uid = os.getuid()
    tasks = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid == uid:
                tasks += sum(1 for _ in (folder / "task").iterdir())
        except OSError:
            continue  # the process has just ended
    return tasks
