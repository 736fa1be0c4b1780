"""Sentences that describe operations on rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from checkers.rows.model import Row
from checkers.rows.reading import Look, Part, RowsHistory
from checkers.verdict.sentences import where
from harness.errors import listed
from harness.ops import Pair

_DONE: Final = {
    "insert": "inserted",
    "upsert": "upserted",
    "update": "updated",
    "delete": "deleted",
}
_REFUSED: Final = {
    "already-present": "was answered that it is already present",
    "not-found": "was answered that it does not exist",
    "invalid": "was answered that it does not fit the table",
}
_KEYS_MAX: Final = 6


def cells_words(cells: Iterable[tuple[str, Any]]) -> str:
    """Return cells as text, such as `v0 = 'n4', v1 = null`."""
    texts = (f"{column} = {'null' if cell is None else repr(cell)}" for column, cell in cells)
    return ", ".join(texts) or "no cell"


def _row_words(row: Row) -> str:
    return "it absent" if row is None else f"it with {cells_words(row)}"


def place_words(name: str, key: str) -> str:
    """Return the name of a row for a sentence, such as `row 'k3' of table 'r0'`."""
    return f"row {key!r} of table {name!r}"


def _timestamp_words(timestamp: int | None) -> str:
    return "no timestamp" if timestamp is None else f"timestamp {timestamp}"


def _fields(pair: Pair) -> Mapping[str, Any]:
    value = None if pair.completion is None else pair.completion.value
    return value if isinstance(value, Mapping) else {}


def sentence(pair: Pair, name: str, key: str, seen: Row = None) -> str:
    """Describe the effect of an operation on one row, or the row that the operation saw.

    The sentence has no full stop.
    """
    call = pair.invoke
    who, place = f"Process {call.process}", place_words(name, key)
    if call.f == "read":
        return f"{who} read {place} {where(pair)} and found {_row_words(seen)}"
    if call.f == "scan":
        stamp = _fields(pair).get("timestamp")
        at = f" at {_timestamp_words(stamp)}" if stamp is not None else ""
        return (
            f"{who} scanned table {name!r}{at} {where(pair)} and found {_row_words(seen)} ({key})"
        )
    results = _fields(pair).get("rows") or [None] * len(call.value["rows"])
    acts = []
    for (kind, row_key, cells), result in zip(call.value["rows"], results, strict=True):
        if row_key != key:
            continue
        values = f" with {cells_words(sorted(cells.items()))}" if cells else ""
        if result == "ok":
            acts.append(f"{_DONE[kind]} {place}{values}")
        else:
            came = f" and {_REFUSED[result]}" if result in _REFUSED else ""
            acts.append(f"tried to {kind} {place}{values}{came}")
    return f"{who} {' and '.join(acts)} {where(pair)}{_stamped(pair, key)}"


def _stamped(pair: Pair, key: str) -> str:
    rows = pair.invoke.value["rows"]
    for part in _fields(pair).get("parts") or ():
        if part.get("timestamp") is not None and any(rows[n][1] == key for n in part["rows"]):
            return f" at timestamp {part['timestamp']}"
    return ""


def wrote(history: RowsHistory, part: Part) -> str:
    """Describe a write to one tablet and its rows in a sentence without a full stop."""
    name = history.name_of(part.table)
    written = list(dict.fromkeys(row.key for row in part.rows))
    keys = listed([repr(key) for key in written], limit=_KEYS_MAX)
    verb = "wrote" if part.is_known else "tried to write"
    at = f" at timestamp {part.timestamp}" if part.timestamp is not None else ""
    many = "rows" if len(written) > 1 else "row"
    who = f"Process {part.pair.invoke.process}"
    return f"{who} {verb} {many} {keys} of table {name!r}{at} {where(part.pair)}"


def looked(history: RowsHistory, look: Look) -> str:
    """Describe a read or scan, without its answer, in a sentence without a full stop."""
    call = look.pair.invoke
    name = history.name_of(look.table)
    if call.f == "read":
        what = place_words(name, call.value["key"])
    else:
        what = f"table {name!r} ({look.mode})"
    at = f" at timestamp {look.timestamp}" if look.timestamp is not None else ""
    verb = "read" if call.f == "read" else "scanned"
    return f"Process {call.process} {verb} {what}{at} {where(look.pair)}"
