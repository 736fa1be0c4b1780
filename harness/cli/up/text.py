"""Formats the output of `harness up`, `status`, `break` and `heal` as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from harness.cli.styles import styled, table
from harness.environments.controller import Life
from harness.errors import counted, listed, measured
from harness.up.cluster import Broken, Healed, StatusReport
from harness.up.records import NodeRow, Standing

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

DATA_LISTED_MAX = 3


def _headline(standing: Standing) -> str:
    roles = Counter(node.role for node in standing.nodes)
    nodes = listed([counted(count, role) for role, count in roles.items()], limit=10)
    bugs = f", bug {','.join(standing.bugs)}" if standing.bugs else ""
    return (
        f"{standing.name}: {standing.target}/{standing.profile}{bugs}, {nodes}, in "
        f"{standing.environment}, since {standing.started}"
    )


def _ports(standing: Standing) -> Table:
    with_pages = any(node.pages for node in standing.nodes)
    head = ["node", "role", "address", "from outside", *["pages"] * with_pages]
    rows: list[list[str]] = []
    for node in standing.nodes:
        first, last = [node.name, node.role], [node.pages] * with_pages
        for address, outside in node.addresses.items() or [("", "")]:
            rows.append([*first, address, outside, *last])
            first, last = ["", ""], [""] * with_pages
    return table(rows, head=head)


def standing_text(standing: Standing) -> list[RenderableType]:
    """Describe a running cluster: the addresses of its nodes, and the commands for using it."""
    name = standing.name
    data = [_with_node(node) for node in standing.nodes if node.data]
    return [
        _headline(standing),
        "",
        _ports(standing),
        "",
        f"logs   {standing.frozen or standing.folder}/logs",
        *([f"data   {listed(list(dict.fromkeys(data)), limit=DATA_LISTED_MAX)}"] if data else []),
        f"look   harness status {name}",
        *(f"       {command}" for command in standing.tools),
        f"break  harness break {name} 'kill leader' --for 30s",
        f"heal   harness heal {name} --all",
        f"end    harness down {name}",
    ]


def _with_node(node: NodeRow) -> str:
    before, name, after = node.data.rpartition(node.name)
    return f"{before}NODE{after}" if name else node.data


def _left(broken: Broken) -> str:
    if broken.trouble:
        return f"could not be undone: {broken.trouble}"
    return "until it is healed" if broken.left_s is None else f"{broken.left_s:.0f} s left"


def broken_text(name: str, broken: Broken) -> list[str]:
    """Describe a fault that was just injected, and say when it ends."""
    lines = [f"{broken.id}: {broken.note}"]
    if broken.healed is not None:
        return [*lines, healed_text(broken.healed)]
    if broken.fault.startswith("do "):
        return lines
    heal = f"`harness heal {name} {broken.id}`"
    lasts = f"until {heal}" if broken.left_s is None else f"{broken.left_s:g} s, or until {heal}"
    return [*lines, f"it lasts {lasts}"]


def healed_text(healed: Healed) -> str:
    """Describe an ended fault in one line: its targets and its effect."""
    if healed.count is None:
        did = "its effect cannot be measured here"
    elif healed.unit == "ms":
        did = f"clocks moved by {healed.count} ms in total, there and back"
    else:
        did = f"it hit {measured(healed.count, healed.unit)}"
    return f"{healed.id}: {healed.fault!r} on {listed(healed.targets, limit=10)} is over; {did}"


def overview_text(rows: Iterable[tuple[str, Life, Standing | None]]) -> list[str]:
    """Return one line for each cluster, running or dead; if there is none, a line that says so."""
    lines = []
    for name, life, standing in rows:
        if life is Life.UNKNOWN:
            lines.append(f"{name}: whether it runs cannot be determined from here")
        elif life is Life.DEAD:
            lines.append(f"{name}: dead; `harness down {name}` removes its leftovers")
        else:
            lines.append(f"{name}: being started" if standing is None else _headline(standing))
    return lines or ["no cluster is running; `harness up` starts one"]


def status_text(standing: Standing, report: StatusReport) -> list[RenderableType]:
    """Describe one cluster: its nodes' states and roles, and its active and healed faults."""
    groups = list(report.leaders)
    rows = []
    declared = {node.name: node.role for node in standing.nodes}
    for node in report.nodes:
        roles = [node.roles.get(group, "-") for group in groups]
        rows.append([node.name, declared.get(node.name, ""), node.state, *roles])
    pending = "; ".join(report.pending) or "no reason given"
    serves = (
        styled("it serves", "green")
        if report.ready
        else styled(f"it does not serve: {pending}", "bold red")
    )
    faults = [
        f"{each.id}: {each.fault!r} on {listed(each.targets, limit=10)}, {_left(each)}"
        for each in report.faults
    ]
    return [
        _headline(standing),
        serves,
        "",
        table(rows, head=["node", "role", "state", *groups]),
        "",
        *(faults or ["no fault is active"]),
        *(healed_text(each) for each in report.healed),
    ]
