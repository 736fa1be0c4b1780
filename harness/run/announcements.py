"""Rules for events that nodes report: kinds reserved for the harness, and required fields.

A verdict depends on who ended a node, whether the host failed and whether an administrator
overruled votes. A target must not influence its verdict by reporting these facts itself, so their
kinds are reserved. A node that reports a reserved kind has broken the contract of its plug-in: the
run ends with a `TargetError` that names node and kind, and nothing is judged. The output of a
foreign program reports no events.
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
"""The kind of event that a client of the harness reports before it overrules the votes of `group`,
as an administrator may."""
CONFIG_OVERRULED: Final = "config-overruled"
"""The kind of event that a node reports after it has overruled the votes of its Raft group. It
counts only after the client's `config-forced` (`verdict.unsafe_change`)."""
LEADER: Final = "leader"

DRIVER_KINDS: Final = frozenset(
    {NODE_STARTED, NODE_EXITED, INFRASTRUCTURE, STARVATION, "power-cut", CONFIG_FORCED}
)


def check_announced(node: str, kind: str, data: Mapping[str, Any]) -> None:
    """Raise `TargetError` if `node` may not report an event of this kind with this data.

    `node` is a node, or `CLIENT` for a client.
    """
    if kind in DRIVER_KINDS and not (node == CLIENT and kind == CONFIG_FORCED):
        who = "a client of the harness" if node == CLIENT else f"node {node!r}"
        raise TargetError(
            f"{who} announced the event {kind!r}, which only the driver of the harness may "
            f"announce; use another kind, such as {f'my-{kind}'!r} (reserved: "
            f"{', '.join(sorted(DRIVER_KINDS))})"
        )
    if kind != LEADER:
        return
    term, group = data.get("term", 0), data.get("group")
    if not isinstance(term, int) or isinstance(term, bool) or term < 0:
        _refuse(node, "term", term, "a whole number from 1 on; without terms, leave the field out")
    if group is not None and not isinstance(group, str):
        _refuse(node, "group", group, "text")


def _refuse(node: str, field: str, value: object, rule: str) -> None:
    raise TargetError(
        f"node {node!r} announced the event {LEADER!r} with {field}={shown(value)}; it must be "
        f"{rule}"
    )
