"""Reconstructs the history of each table (by id) from answers to clients and the masters' snapshot.

Acknowledged operations show when a table was created, altered, renamed and deleted. Reads show when
clients first and last saw an id. An operation with an unknown outcome has no id, so it appears in
no history. The page draws one lane per name, in which each id is a segment. Only runs with the
vocabulary `ddl` have tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.ops import History, Op, OpType, Pair
from harness.vocabularies.ddl import MUTATIONS

TABLES_MAX: Final = 3_000
EVENTS_MAX: Final = 60_000
"""The maximum number of events in all lanes. The page says how many lanes it left out."""
NAME_CHARS_MAX: Final = 200


class TableEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An acknowledged change of a table between `start` and `end`.

    `index` is the line of the invocation, and `name` is the table's name after the change.
    """

    kind: str
    start: int
    end: int
    index: int
    text: str
    name: str


class TableLane(msgspec.Struct, kw_only=True):
    """The history of one table id. The time of an event is `None` if no operation showed it."""

    id: str
    names: list[str]
    events: list[TableEvent]
    seen_first: int | None = None
    seen_last: int | None = None
    final: list[str] = []

    def first(self) -> int:
        """Return the time at which an operation first changed or saw the table."""
        times = [event.start for event in self.events[:1]]
        times += [] if self.seen_first is None else [self.seen_first]
        return min(times, default=0)


def tables_of(
    history: History, important: Iterable[int], *, most: int = TABLES_MAX
) -> tuple[list[TableLane], int]:
    """Return up to `most` lanes, ordered by first event, and the number of lanes left out.

    Lanes with an operation whose index is in `important` are kept first, then the newest lanes.
    """
    lanes: dict[str, TableLane] = {}
    wanted: set[str] = set()
    important = set(important)
    for pair in history.pairs:
        done = pair.completion
        if done is None or done.type is not OpType.OK or not isinstance(done.value, dict):
            continue
        ids = _take(lanes, pair, done)
        if pair.invoke.index in important or done.index in important:
            wanted.update(ids)
    for op in history.facts("snapshot"):
        _take_snapshot(lanes, op)
    ordered = sorted(lanes.values(), key=lambda lane: (lane.first(), lane.id))
    room, events = most, EVENTS_MAX
    kept: set[str] = set()
    newest_first = ordered[::-1]
    for lane in sorted(newest_first, key=lambda lane: lane.id not in wanted):
        if room == 0 or len(lane.events) > events:
            break
        room, events = room - 1, events - len(lane.events)
        kept.add(lane.id)
    listed = [lane for lane in ordered if lane.id in kept]
    return listed, len(ordered) - len(listed)


def _take(lanes: dict[str, TableLane], pair: Pair, done: Op) -> list[str]:
    call, value = pair.invoke, done.value
    table = value.get("table_id")
    seen = [table] if isinstance(table, str) else []
    rows = value.get("tables")
    named = [
        (row[1], str(row[0]))
        for row in (rows if isinstance(rows, (list, tuple)) else ())
        if isinstance(row, (list, tuple)) and len(row) >= 2 and isinstance(row[1], str)
    ]
    asked = call.value if isinstance(call.value, dict) else {}
    if isinstance(table, str) and value.get("result", "ok") == "ok" and call.f in MUTATIONS:
        lane = lanes.setdefault(table, TableLane(id=table, names=[], events=[]))
        lane.events.append(_event(call, done, asked, value))
        if call.f != "delete":
            _name(lane, asked.get("new_name") if call.f == "rename" else asked.get("name"))
        return seen
    if isinstance(table, str):
        named.append((table, str(asked.get("name", ""))))
    for table_id, name in named:
        lane = lanes.setdefault(table_id, TableLane(id=table_id, names=[], events=[]))
        _name(lane, name)
        if lane.seen_first is None or call.time < lane.seen_first:
            lane.seen_first = call.time
        lane.seen_last = max(done.time, lane.seen_last or 0)
    return [*seen, *(table_id for table_id, _ in named)]


def _name(lane: TableLane, name: Any) -> None:
    if isinstance(name, str) and name and lane.names[-1:] != [name[:NAME_CHARS_MAX]]:
        lane.names.append(name[:NAME_CHARS_MAX])


def _event(call: Op, done: Op, asked: Mapping[str, Any], value: Mapping[str, Any]) -> TableEvent:
    version = value.get("schema_version")
    words = {
        "create": f"created as {asked.get('name')!r}",
        "alter": f"altered to version {version}",
        "rename": f"renamed from {asked.get('name')!r} to {asked.get('new_name')!r}, "
        f"version {version}",
        "delete": f"deleted (was {asked.get('name')!r})",
    }
    name = asked.get("new_name" if call.f == "rename" else "name")
    return TableEvent(
        kind=call.f,
        start=call.time,
        end=done.time,
        index=call.index,
        text=words[call.f][:400],
        name=str(name)[:NAME_CHARS_MAX],
    )


def _take_snapshot(lanes: dict[str, TableLane], op: Op) -> None:
    """Read each table's final state from the masters' snapshots, as a line per distinct state."""
    masters = op.value.get("masters") if isinstance(op.value, dict) else None
    answers: dict[str, dict[str, list[str]]] = {}
    for master, state in masters.items() if isinstance(masters, dict) else ():
        rows = state.get("tables") if isinstance(state, dict) else None
        for row in rows if isinstance(rows, (list, tuple)) else ():
            if isinstance(row, dict) and isinstance(row.get("id"), str):
                text = _kept(row)
                answers.setdefault(row["id"], {}).setdefault(text, []).append(str(master))
    for table, texts in answers.items():
        if table not in lanes:
            lanes[table] = TableLane(id=table, names=[], events=[], seen_first=op.time)
        lane = lanes[table]
        lane.final = [f"{', '.join(sorted(who))}: {text}" for text, who in sorted(texts.items())]


def _kept(row: Mapping[str, Any]) -> str:
    parts = [str(row.get("state") or "state unknown")]
    if row.get("name") is not None:
        parts.append(f"named {row['name']!r}")
    if row.get("version") is not None:
        parts.append(f"version {row['version']}")
    if row.get("applied_version") is not None:
        parts.append(f"applied {row['applied_version']}")
    return ", ".join(parts)[:300]


def as_rows(lanes: Sequence[TableLane]) -> list[dict[str, Any]]:
    """Convert lanes to plain data for the page."""
    return [
        {
            "id": lane.id[:NAME_CHARS_MAX],
            "names": lane.names[-20:],
            "events": [[e.kind, e.start, e.end, e.index, e.text, e.name] for e in lane.events],
            "seen": [lane.seen_first, lane.seen_last],
            "final": lane.final,
        }
        for lane in lanes
    ]
