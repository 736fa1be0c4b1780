"""Permissions to announce events: kinds reserved for the driver, and fields of the events of nodes.

A verdict rests on who ended a node, what failed of the host and whether an administrator overruled
votes. A target must neither convict nor acquit itself by its own events, so these kinds are
reserved. A node that announces one has broken the contract of its plug-in: the run ends with a
`TargetError` that names node and kind, and nothing is judged. The output of a foreign
program announces nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from harness.cluster import CLIENT
from harness.errors import TargetError, shown

NODE_STARTED: Final = "node-started"
NODE_EXITED: Final = "node-exited"
INFRASTRUCTURE: Final = "infrastructure"
STARVATION: Final = "starvation"
CONFIG_FORCED: Final = "config-forced"
"""A client of the harness, as an administrator, is about to overrule the votes of `group`."""
CONFIG_OVERRULED: Final = "config-overruled"
"""A node has done so. It counts where the harness asked for it (`verdict.unsafe_change`)."""
LEADER: Final = "leader"

DRIVER_KINDS: Final = frozenset(
    {NODE_STARTED, NODE_EXITED, INFRASTRUCTURE, STARVATION, "power-cut", CONFIG_FORCED}
)


def check_announced(node: str, kind: str, data: Mapping[str, Any]) -> None:
    """Raise `TargetError` where this node, or a client (`CLIENT`), may not announce this."""
    if kind in DRIVER_KINDS and not (node == CLIENT and kind == CONFIG_FORCED):
        who = "a client of the harness" if node == CLIENT else f"node {node!r}"
        raise TargetError(
            f"{who} announced the event {kind!r}, which only the driver of the harness may; use "
            f"another kind, such as {f'my-{kind}'!r} (reserved: {', '.join(sorted(DRIVER_KINDS))})"
        )
    if kind != LEADER:
        return
    term, group = data.get("term", 0), data.get("group")
    if not isinstance(term, int) or isinstance(term, bool) or term < 0:
        _refuse(node, "term", term, "a whole number from 1 on; leave it out where there are none")
    if group is not None and not isinstance(group, str):
        _refuse(node, "group", group, "text")


def _refuse(node: str, field: str, value: object, rule: str) -> None:
    raise TargetError(
        f"node {node!r} announced the event {LEADER!r} with {field}={shown(value)}; it must be "
        f"{rule}"
    )
