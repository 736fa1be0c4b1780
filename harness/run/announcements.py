"""Permissions to announce events: kinds reserved for the driver, and required fields of nodes'
events.

A verdict depends on who ended a node, whether the host failed and whether an administrator
overruled votes. A target must not influence its verdict by announcing these facts itself, so their
kinds are reserved. A node that announces a reserved kind has broken the contract of its plug-in:
the run ends with a `TargetError` that names node and kind, and nothing is judged. The output of a
foreign program announces no events.
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
"""The event of a harness client that is about to overrule the votes of `group`, as an
administrator."""
CONFIG_OVERRULED: Final = "config-overruled"
"""The event of a node that has done so. It counts only after the client's event
(`verdict.unsafe_change`)."""
LEADER: Final = "leader"

DRIVER_KINDS: Final = frozenset(
    {NODE_STARTED, NODE_EXITED, INFRASTRUCTURE, STARVATION, "power-cut", CONFIG_FORCED}
)


def check_announced(node: str, kind: str, data: Mapping[str, Any]) -> None:
    """Raise `TargetError` if this node, or a client (`CLIENT`), may not announce this event."""
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
