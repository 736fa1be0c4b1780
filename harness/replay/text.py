"""Formats the state of a stopped world as text, as a whole or in parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.errors import counted
from harness.replay.view import NodeView, Stopped, TimerView

LINES_MAX: Final = 20
CELL_MAX: Final = 110
PAGE_FIELDS_MAX: Final = 12


def whole_text(state: Stopped, *, full: bool = False) -> list[str]:
    """Format the whole state: moment, run, world, and each node, in short or in `full`."""
    lines = moment_text(state)
    lines += ["", *operations_text(state), "", *faults_text(state)]
    lines += ["", *messages_text(state), "", *timers_text(state)]
    for node in state.nodes:
        lines += ["", *node_text(node, full=full)]
    return lines


def moment_text(state: Stopped) -> list[str]:
    """Return the moment in a few lines."""
    moment = state.moment
    cause = f": {moment.what}" if moment.what else ""
    lines = [f"stopped at {moment.time_s:.6f} s, event {moment.events}{cause}"]
    bugs = f", bug {','.join(state.bugs)}" if state.bugs else ""
    lines.append(
        f"  {state.target}/{state.profile}, workload {state.workload}{bugs}, seed {state.seed}; "
        f"phase {moment.phase or 'setup'}"
    )
    if state.leaders:
        lines.append(f"  {state.leaders[-1]}")
    lines.append(f"  {'runs' if moment.within else 'next'}: {moment.event}")
    lines += [f"    {place}" for place in moment.stack[-6:]]
    return lines


def operations_text(state: Stopped) -> list[str]:
    """Return the operations in flight, and the last recorded ops."""
    rows = [
        (
            f"op {op.index}",
            f"process {op.process}",
            f"since {op.since_s:.3f} s",
            op.f,
            _json(op.value),
        )
        for op in state.operations
    ]
    lines = [f"operations in flight: {len(rows)}", *table(rows)]
    return [*lines, "last ops:", *(f"  {text}" for text in state.last_ops[-5:])]


def faults_text(state: Stopped) -> list[str]:
    """Return the active faults, and the links that they break."""
    rows = [
        (f.id, f.kind, ", ".join(f.targets), f"since {f.since_s:.3f} s", f.note)
        for f in state.faults
    ]
    lines = [f"active faults: {len(rows)}", *table(rows)]
    broken = [(each.link, each.quality, ", ".join(each.faults)) for each in state.links]
    return [*lines, *([f"links with faults: {len(broken)}", *table(broken)] if broken else [])]


def messages_text(state: Stopped, *, node: str | None = None, most: int = LINES_MAX) -> list[str]:
    """Return the messages of all nodes, or only the messages from or to `node`.

    Messages in flight come first, by arrival time.
    """
    messages = [m for m in state.messages if node in {None, m.source, m.destination}]
    rows = [
        (
            m.state if m.arrives_s is None else f"{m.arrives_s:.6f} s",
            f"{m.source} > {m.destination}",
            f"#{m.connection}",
            m.what,
            m.content,
        )
        for m in messages
    ]
    count = sum(m.arrives_s is not None for m in messages)
    return [
        f"messages: {count} in flight, {len(rows) - count} held or unread",
        *table(rows, most),
        *_left_out(state.left_out, "messages"),
    ]


def timers_text(state: Stopped, *, node: str | None = None, most: int = LINES_MAX) -> list[str]:
    """Return the timers of all nodes or of one, in the order in which they are due."""
    timers = [timer for timer in state.timers if node in {None, timer.node}]
    rows = [_timer(timer, state.moment.time_s) for timer in timers]
    lines = [f"timers: {len(rows)}", *table(rows, most), *_left_out(state.left_out, "timers")]
    if node is None and state.others:
        lines.append(f"other due events: {len(state.others)}")
        lines += [f"  {text}" for text in _first(state.others, most)]
        lines += _left_out(state.left_out, "others")
    return lines


def _timer(timer: TimerView, now_s: float) -> tuple[str, ...]:
    wakes = f"wakes task {timer.task}" if timer.task else timer.calls
    left_ms = max(0.0, timer.at_s - now_s) * 1000
    return f"{timer.at_s:.6f} s", f"in {left_ms:.3f} ms", timer.node, wakes


def node_text(node: NodeView, *, full: bool = False) -> list[str]:
    """Return a node in short; with `full`, also all of its tasks, files and objects."""
    most = LINES_MAX * 20 if full else 3
    marks = [node.state, f"boot {node.boot}"]
    marks += [f"variant {node.variant}"] if node.variant and node.variant != "base" else []
    marks += [f"clock off by {node.wall_skew_ms:g} ms"] if node.wall_skew_ms else []
    marks += [f"drift {node.drift_ppm} ppm"] if node.drift_ppm else []
    marks += [f"disk {node.disk}"] if node.disk != "good" else []
    lines = [f"{node.name}: {', '.join(marks)}"]
    for path, data in node.pages.items():
        lines += _page(path, data, full=full)
    lines.append(f"  tasks: {len(node.tasks)}")
    for task in node.tasks[:most]:
        where = task.stack[-1] if task.stack else "not begun"
        lines.append(f"    {task.name}: waits for {task.waits_for}, at {_clip(where)}")
        lines += [f"        {place}" for place in task.stack[:-1]] if full else []
    lines += [*_more(len(node.tasks), most), *_left_out(node.left_out, "tasks")]
    lines += [f"  ready: {text}" for text in node.ready[:most]]
    lines += [*_more(len(node.ready), most), *_left_out(node.left_out, "ready")]
    lines.append(f"  files: {len(node.files)}" + _in_flight(node))
    for file in node.files[:most]:
        synced = (
            "synced"
            if not file.unsynced_writes
            else (f"{file.synced_bytes} synced, {counted(file.unsynced_writes, 'write')} not")
        )
        lines.append(f"    {file.path}: {file.bytes} bytes, {synced}")
    lines += [*_more(len(node.files), most), *_left_out(node.left_out, "files")]
    if full:
        lines += _full(node)
    return lines


def _full(node: NodeView) -> list[str]:
    rows = [
        (
            f"#{c.connection}",
            c.peer,
            f"opened by {c.opened_by}",
            f"{c.unread} unread",
            f"{c.held} held",
        )
        for c in node.connections
    ]
    lines = [f"  connections: {len(rows)}", *(f"  {line}" for line in table(rows))]
    lines.append(f"  objects: {len(node.objects)}")
    for each in node.objects:
        lines.append(f"    {each.name} (used by {each.used_by})")
        lines += [f"        {name} = {_clip(text)}" for name, text in each.fields.items()]
    lines += _left_out(node.left_out, "objects")
    return [*lines, "  last lines of the log:", *(f"    {_clip(line)}" for line in node.log)]


def _in_flight(node: NodeView) -> str:
    return (
        f", {counted(node.changes_in_flight, 'replace')} in flight"
        if node.changes_in_flight
        else ""
    )


def _page(path: str, data: Any, *, full: bool) -> list[str]:
    if full:
        text = msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
        return [f"  page {path}", *(f"    {line}" for line in text.splitlines())]
    if path != "/" or not isinstance(data, dict):
        return []
    fields = [
        f"{name} {value}"
        for name, value in data.items()
        if isinstance(value, (str, int)) and len(str(value)) < LINES_MAX and name[-3:] != "_ns"
    ]
    more = len(fields) - PAGE_FIELDS_MAX
    texts = [*fields[:PAGE_FIELDS_MAX], *([f"... {more} more"] if more > 0 else [])]
    return [f"  {', '.join(texts)}"] if fields else []


def table(rows: Iterable[Sequence[str]], most: float = math.inf) -> list[str]:
    """Return at most `most` rows as lines with aligned columns. A last line counts the rest."""
    all_rows = list(rows)
    kept = all_rows if most == math.inf else all_rows[: int(most)]
    widths = [max(len(row[i]) for row in kept) for i in range(len(kept[0]))] if kept else []
    lines = [
        "  "
        + "  ".join(
            _clip(cell).ljust(min(w, CELL_MAX)) for cell, w in zip(row, widths, strict=True)
        ).rstrip()
        for row in kept
    ]
    return [*lines, *_more(len(all_rows), most)]


def _first(texts: Sequence[str], most: int) -> list[str]:
    return [*texts[:most], *_more(len(texts), most)]


def _more(count: int, most: float) -> list[str]:
    return [f"    ... and {count - int(most)} more"] if count > most else []


def _left_out(left_out: Mapping[str, int], name: str) -> list[str]:
    return [f"    ... {left_out[name]} more were not read"] if name in left_out else []


def _clip(text: str) -> str:
    return text if len(text) <= CELL_MAX else f"{text[: CELL_MAX - 3]}..."


def _json(value: Any) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()
