"""Renders the state of a stopped world as one HTML file without scripts, server or network.

The page looks like the page of a run, and uses the browser's light or dark theme.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.errors import counted
from harness.replay.view import NodeView, Stopped
from harness.support.atomic_file import write_whole
from harness.support.html_template import filled

PAGE: Final = "stopped.html"


def write_page(state: Stopped, path: Path) -> None:
    """Write the page to a file; raises `InfrastructureError` if that fails."""
    write_whole(path, page_of(state).encode())


def page_of(state: Stopped) -> str:
    """Return the state of the world as HTML text."""
    moment = state.moment
    bugs = f" with {', '.join(state.bugs)}" if state.bugs else ""
    counts = [
        counted(len(state.operations), "operation") + " in flight",
        counted(_total(state, "messages", state.messages), "message") + " not yet read",
        counted(_total(state, "timers", state.timers), "timer"),
        counted(len(state.faults), "active fault"),
    ]
    template = (resources.files("harness.replay") / "stopped.html").read_text("utf-8")
    return filled(
        template,
        {
            "TAB": html.escape(f"{moment.time_s:.3f} s · seed {state.seed}"),
            "TIME": f"{moment.time_s:.6f} s",
            "WHAT": html.escape(moment.what or f"before {moment.event}"),
            "COUNTS": html.escape(" · ".join(counts)),
            "ABOUT": html.escape(
                f"{state.target}/{state.profile}{bugs}, workload {state.workload}, seed "
                f"{state.seed} · phase {moment.phase or 'setup'} · {'; '.join(state.leaders)}"
            ),
            "CODE": _code(state),
            "NODES": _overview(state),
            "WORLD": _world(state),
            "EACH": "".join(_node(state, node) for node in state.nodes),
        },
    )


def _total(state: Stopped, name: str, items: Sequence[object]) -> int:
    return len(items) + state.left_out.get(name, 0)


def _code(state: Stopped) -> str:
    moment = state.moment
    word = "Runs" if moment.within else "Next"
    lines = "".join(f"<li><code>{html.escape(place)}</code></li>" for place in moment.stack)
    stack = f"<ol>{lines}</ol>" if lines else ""
    return (
        f"<p><b>{word}</b> (event {moment.events}): <code>{html.escape(moment.event)}</code></p>"
        f"{stack}"
    )


def _overview(state: Stopped) -> str:
    """Return a table with one row per node: its state, and the plain values of its first page."""
    short: dict[str, None] = {}
    for node in state.nodes:
        for name, value in _plain(node):
            if len(value) <= 24:
                short[name] = None
    names = list(short)[:10]
    rows = [
        [f"#{node.name}", node.state, *(dict(_plain(node)).get(name, "") for name in names)]
        for node in state.nodes
    ]
    return _table(["node", "state", *names], rows)


def _plain(node: NodeView) -> list[tuple[str, str]]:
    data = node.pages.get("/")
    items = data.items() if isinstance(data, dict) else ()
    return [
        (name, str(value))
        for name, value in items
        if isinstance(value, (str, int, float)) and not name.endswith("_ns")
    ]


def _unbroken(text: str) -> str:
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _world(state: Stopped) -> str:
    operations = [
        [f"op {op.index}", op.process, f"{op.since_s:.3f} s", op.f, _json(op.value)]
        for op in state.operations
    ]
    faults = [
        [f.id, f.kind, ", ".join(f.targets), f"{f.since_s:.3f} s", f.note] for f in state.faults
    ]
    links = [[each.link, each.quality, ", ".join(each.faults)] for each in state.links]
    messages = [
        [
            m.state if m.arrives_s is None else _unbroken(f"{m.arrives_s:.6f} s"),
            _unbroken(f"{m.source} > {m.destination}"),
            f"#{m.connection}",
            m.what,
            m.content,
        ]
        for m in state.messages
    ]
    timers = [
        [_unbroken(f"{t.at_s:.6f} s"), t.node, f"wakes task {t.task}" if t.task else t.calls]
        for t in state.timers
    ]
    last = [[text] for text in state.last_ops]
    left_out = state.left_out
    return "".join(
        [
            _part("Operations in flight", ["op", "process", "since", "kind", "value"], operations),
            _part("Active faults", ["fault", "kind", "hits", "since", "what"], faults),
            _part("Links with faults", ["link", "state", "faults"], links),
            _part(
                "Messages",
                ["arrives", "link", "connection", "type", "content"],
                messages,
                left_out=left_out.get("messages", 0),
            ),
            _part(
                "Timers",
                ["due", "node", "calls"],
                timers,
                is_open=False,
                left_out=left_out.get("timers", 0),
            ),
            _part(
                "Other due events",
                ["event"],
                [[text] for text in state.others],
                is_open=False,
                left_out=left_out.get("others", 0),
            ),
            _part("Last recorded ops", ["op"], last, is_open=False),
        ]
    )


def _node(state: Stopped, node: NodeView) -> str:
    timers = [
        [f"{t.at_s:.6f} s", f"wakes task {t.task}" if t.task else t.calls]
        for t in state.timers
        if t.node == node.name
    ]
    tasks = [[t.name, t.waits_for, " → ".join(t.stack)] for t in node.tasks]
    files = [
        [f.path, f"{f.bytes:,}", f"{f.synced_bytes:,}", str(f.unsynced_writes)] for f in node.files
    ]
    connections = [
        [f"#{c.connection}", c.peer, c.opened_by, str(c.unread), str(c.held), f"{c.unsent_bytes:,}"]
        for c in node.connections
    ]
    machine = [
        ["boot", str(node.boot)],
        ["variant", node.variant],
        ["clock", f"off by {node.wall_skew_ms:g} ms, drift {node.drift_ppm} ppm"],
        ["processor", f"{node.callback_us:g} µs per callback"],
        ["disk", f"{node.disk}; {node.changes_in_flight} replaces or removes in flight"],
        [
            "ready callbacks",
            "; ".join([*node.ready, *_more(node.left_out.get("ready", 0))]) or "none",
        ],
    ]
    parts = [
        *(
            _pre(f"Page {path}", _indented(data), is_open=path == "/")
            for path, data in node.pages.items()
        ),
        _part("Machine", ["", ""], machine, is_open=False),
        _part(
            "Tasks",
            ["task", "waits for", "at"],
            tasks,
            is_open=False,
            left_out=node.left_out.get("tasks", 0),
        ),
        _part("Timers", ["due", "calls"], timers, is_open=False),
        _part(
            "Files",
            ["file", "bytes", "synced", "writes not synced"],
            files,
            left_out=node.left_out.get("files", 0),
        ),
        _part(
            "Connections",
            ["connection", "peer", "opened by", "unread", "held", "bytes under way"],
            connections,
            is_open=False,
        ),
        _objects(node),
        _pre("Last lines of the log", "\n".join(node.log), is_open=False),
    ]
    name = html.escape(node.name, quote=True)
    badge = f'<span class="badge is-{html.escape(node.state)}">{html.escape(node.state)}</span>'
    return f'<section id="{name}"><h2>{name} {badge}</h2>{"".join(parts)}</section>'


def _objects(node: NodeView) -> str:
    rows = "".join(
        f"<details><summary><code>{html.escape(each.name)}</code> "
        f'<span class="soft">used by {html.escape(each.used_by)}</span></summary>'
        f"{_table(['field', 'value'], list(each.fields.items()))}</details>"
        for each in node.objects
    )
    count = "; ".join([str(len(node.objects)), *_more(node.left_out.get("objects", 0))])
    return (
        f"<details><summary>Objects <span class=soft>{count}</span></summary>"
        f'<div class="inner">{rows}</div></details>'
    )


def _more(left_out: int) -> list[str]:
    """Say how many items a list lacks because of its limit."""
    return [f"{left_out:,} more were not read"] if left_out else []


def _part(
    title: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    is_open: bool = True,
    left_out: int = 0,
) -> str:
    """Return a table that can be folded. `left_out` is the number of rows that it lacks."""
    count = "; ".join([str(len(rows)), *_more(left_out)])
    return (
        f"<details{' open' if is_open and rows else ''}><summary>{title} "
        f'<span class="soft">{count}</span></summary>{_table(head, rows)}</details>'
    )


def _pre(title: str, text: str, *, is_open: bool) -> str:
    return (
        f"<details{' open' if is_open else ''}><summary>{html.escape(title)}</summary>"
        f"<pre>{html.escape(text)}</pre></details>"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    if not body:
        return '<p class="soft">none</p>'
    names = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in head)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def _cell(text: str) -> str:
    """Return a cell. `#NAME` of a node becomes a link to the node's part of the page."""
    escaped = html.escape(text, quote=True)
    if text.startswith("#") and not text[1:].isdigit():
        return f'<a href="{escaped}">{escaped[1:]}</a>'
    return escaped


def _indented(data: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()


def _json(value: Any) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()
