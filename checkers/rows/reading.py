"""Converts a history in the vocabulary `rows` to *parts* of writes, and *looks* at rows.

A *part* consists of the rows that one operation wrote to one tablet. A part is one RPC, which took
effect at one timestamp or not at all. If an answer does not name the tablets of its rows, other
answers may name them. A *look* is the answer of a read, or of a scan of one tablet.

* A write that ended in `fail` did nothing and is left out. Rows that were refused as "invalid" or
  "failed" are also left out.
* A write that ended in `info` may contain parts with known results. Its other parts may take effect
  at any time after the call, or never. Reads that are not `ok` prove nothing.
* Tables are identified by their ids. If an answer was lost, the operation may concern any table
  that ever had the name.
* A scan of a table covers all tablets that any answer names. A tablet that the scan's answer leaves
  out counts as empty at the timestamp of the scan.
* Columns that an alter dropped or renamed are left out of all rows, since the rows of a tablet do
  not show when the alter took effect. A cell that was never written and a cell with null are the
  same.

Operations other than write, read and scan are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from checkers.linearizability.models.register import distinct
from checkers.rows.model import Row, RowStep
from harness.errors import HistoryError, clipped
from harness.ops import History, Op, OpType, Pair
from harness.vocabularies.rows import KINDS, RESULTS

_SCALARS: Final = (str, int, float, bool, type(None))
_DID_NOTHING: Final = frozenset({"invalid", "failed"})


class Written(NamedTuple):
    """One row that a write wrote; `result` is `None` if the result is unknown."""

    position: int
    key: str
    step: RowStep
    result: str | None


@dataclass(frozen=True, slots=True)
class Part:
    """The rows that one operation wrote to one tablet.

    `table` is a table id. `results` has the results of all rows in the answer. `rows` has only the
    rows that may have had an effect. `again` has (timestamp, results) of further answers to the
    same request.
    """

    pair: Pair
    table: str
    tablet: str | None
    timestamp: int | None
    rows: tuple[Written, ...]
    results: tuple[str, ...] = ()
    node: str | None = None
    term: int | None = None
    again: tuple[tuple[int | None, tuple[str, ...]], ...] = ()

    @property
    def is_known(self) -> bool:
        return bool(self.results)


@dataclass(frozen=True, slots=True)
class Look:
    """The `ok` answer of a read or scan about one tablet; `rows` are the rows that it shows.

    `timestamp` is the time of the shown state, if the answer names one. `tablet` may be unknown.
    `mode` and `replica` are fields of a scan. A read always reads the latest state from the leader.
    """

    pair: Pair
    table: str
    tablet: str | None
    timestamp: int | None
    rows: Mapping[str, Row]
    mode: str = "latest"
    replica: str = "leader"
    twice: tuple[str, ...] = ()  # keys that the answer showed more than once
    asked_at: int | None = None
    node: str | None = None
    term: int | None = None

    @property
    def is_latest(self) -> bool:
        """Whether the answer must show all writes that were acknowledged before the invocation."""
        return self.mode == "latest" and self.replica == "leader"

    def covers(self, key: str) -> bool:
        """Whether the answer would show a row with `key`, if the row were in this tablet."""
        call = self.pair.invoke
        if call.f == "read":
            return bool(key == call.value["key"])
        start, end = call.value.get("start"), call.value.get("end")
        return (start is None or key >= start) and (end is None or key < end)


@dataclass(frozen=True, slots=True)
class RowsHistory:
    """A history of rows: parts of writes and looks (answers), in the order of their invocations.

    `tablets` maps (table, key) to a tablet, if the tablet is known. `keys` has all keys of a table
    that were ever written or shown. `ids` maps each table name to the ids that answers gave for
    this name, and `names` maps each id to its name.
    """

    parts: tuple[Part, ...]
    looks: tuple[Look, ...]
    tablets: Mapping[tuple[str, str], str]
    keys: Mapping[str, tuple[str, ...]]
    ids: Mapping[str, tuple[str, ...]]
    names: Mapping[str, str]

    def name_of(self, table: str) -> str:
        return self.names.get(table, table)

    def seen_by(self, look: Look) -> Iterator[tuple[str, Row]]:
        """Yield (key, row) for every row that the answer `look` covers, including absent rows.

        The row is `None` if the look shows that the row is absent.
        """
        yield from look.rows.items()
        for key in self.keys.get(look.table, ()):
            if key not in look.rows and look.covers(key):
                tablet = self.tablets.get((look.table, key))
                if look.pair.invoke.f == "read" or (tablet is not None and tablet == look.tablet):
                    yield key, None


def _bad(op: Op, what: str) -> HistoryError:
    return HistoryError(
        f"op {op.index} ({op.f}) has the value {clipped(repr(op.value), 80)}: {what}; "
        "see the vocabulary 'rows'"
    )


def _object(op: Op) -> Mapping[str, Any]:
    if not isinstance(op.value, Mapping):
        raise _bad(op, "it must be an object")
    return op.value


def _cells(op: Op, value: Any, unstable: frozenset[str]) -> tuple[tuple[str, Any], ...]:
    if not isinstance(value, Mapping) or not all(
        isinstance(column, str) and isinstance(cell, _SCALARS) for column, cell in value.items()
    ):
        raise _bad(op, f"{clipped(repr(value), 60)} is not {{column: cell}}")
    return tuple(
        sorted((column, distinct(cell)) for column, cell in value.items() if column not in unstable)
    )


def _timestamp(op: Op, holder: Mapping[str, Any]) -> int | None:
    value = holder.get("timestamp")
    if value is not None and type(value) is not int:
        raise _bad(op, f"the timestamp {value!r} is not a whole number")
    return value


def _term(holder: Mapping[str, Any]) -> int | None:
    value = holder.get("term")
    return value if type(value) is int else None


class _Reader:
    """Converts the operations of one history to parts of writes, and looks at rows."""

    def __init__(self, history: History) -> None:
        self.unstable = _unstable_columns(history)
        self.renamed = _renamed(history)
        self.ids: dict[str, dict[str, None]] = {}  # table name -> ids that answers gave for it
        self.parts: list[Part] = []
        self.looks: list[Look] = []
        # for each scan: a `Look` at the whole table, and the tablets that its answer names
        self.scans: list[tuple[Look, frozenset[str | None]]] = []
        pairs = [pair for pair in history.pairs if pair.invoke.f in {"write", "read", "scan"}]
        for pair in pairs:
            call = _object(pair.invoke)
            if not isinstance(call.get("table"), str):
                raise _bad(pair.invoke, "the table must be a string")
            done = pair.completion
            if done is not None and done.type is not OpType.INFO and done.f != pair.invoke.f:
                raise _bad(done, f"it completes op {pair.invoke.index}, a {pair.invoke.f}")
            value = done.value if done is not None else None
            if isinstance(value, Mapping) and isinstance(value.get("table_id"), str):
                self.ids.setdefault(call["table"], {})[value["table_id"]] = None
        for pair in pairs:
            if pair.invoke.f == "write":
                self._write(pair)
            elif pair.type is OpType.OK:
                self._look(pair)

    def _write(self, pair: Pair) -> None:
        if pair.type is OpType.FAIL:
            return
        call, done = pair.invoke, pair.completion
        written = self._rows(call)
        value: Mapping[str, Any] = {}
        answers = done is not None and (done.type is OpType.OK or isinstance(done.value, Mapping))
        if done is not None and answers and done.value != call.value:
            value = _object(done)
        results = value.get("rows", [None] * len(written))
        if len(results) != len(written) or any(
            result is not None and result not in RESULTS for result in results
        ):
            raise _bad(done or call, f"rows must be {len(written)} of {', '.join(RESULTS)} or null")
        if pair.type is OpType.OK and None in results:
            raise _bad(done or call, "the write is ok, so every row must have a result")
        rows = [row._replace(result=results[row.position]) for row in written]
        tables = self._tables(call, value)
        left = set(range(len(rows)))
        for answer in value.get("parts", ()):
            self._part(pair, tables, [rows[position] for position in answer["rows"]], answer)
            left -= set(answer["rows"])
        if left:
            self._part(pair, tables, [rows[position] for position in sorted(left)], {})

    def _rows(self, call: Op) -> list[Written]:
        rows = _object(call).get("rows")
        if not isinstance(rows, list | tuple) or not rows:
            raise _bad(call, "rows must be a list of [kind, key, cells]")
        written = []
        for position, row in enumerate(rows):
            match row:
                case [kind, str(key), cells] if kind in KINDS:
                    step = RowStep(kind, _cells(call, cells, self.unstable))
                    written.append(Written(position, key, step, None))
                case _:
                    raise _bad(call, f"{row!r} is not [kind, key, cells]")
        return written

    def _tables(self, call: Op, value: Mapping[str, Any]) -> list[str]:
        """Return the id of the table that `call` names, or all ids that the table may have."""
        if isinstance(value.get("table_id"), str):
            return [value["table_id"]]
        name = call.value["table"]
        named = self.ids if name in self.renamed else {name: self.ids.get(name, {})}
        idents = dict.fromkeys(ident for ids in named.values() for ident in ids)
        return list(idents) or [f"the unseen table {name!r}"]

    def _part(
        self, pair: Pair, tables: list[str], rows: list[Written], part: Mapping[str, Any]
    ) -> None:
        done = pair.completion or pair.invoke
        results = [row.result for row in rows if row.result is not None]
        if results and len(results) != len(rows):
            raise _bad(done, "the results of a part's rows must be known for all rows or for none")
        kept = tuple(row for row in rows if row.result not in _DID_NOTHING)
        again = tuple(
            (stamp, tuple(results)) for stamp, results in part.get("again", ()) if results
        )
        if not kept and not again:
            return
        stamp = _timestamp(done, part)
        tablet = part.get("tablet")
        self.parts += [
            Part(
                pair,
                table,
                tablet,
                stamp,
                kept,
                tuple(results),
                part.get("node"),
                _term(part),
                again,
            )
            for table in tables
        ]

    def _look(self, pair: Pair) -> None:
        call, done = pair.invoke, pair.completion
        assert done is not None
        asked, value = _object(call), _object(done)
        if value.get("result", "ok") != "ok":
            return
        table = self._tables(call, value)[0]
        if call.f == "read":
            rows: dict[str, Row] = {}
            if "row" not in value or not isinstance(asked.get("key"), str):
                raise _bad(done, "the answer to a read of a key must contain a row or null")
            if value["row"] is not None:
                rows[asked["key"]] = self._row(done, value["row"])
            stamp = _timestamp(done, value)
            look = Look(pair, table, value.get("tablet"), stamp, rows)
            self.looks.append(replace(look, node=done.node, term=_term(value)))
            return
        whole = Look(
            pair,
            table,
            None,
            _timestamp(done, value),
            {},
            asked.get("mode", "latest"),
            asked.get("replica", "leader"),
            asked_at=asked.get("at"),
        )
        parts = value.get("parts", ())
        self.scans.append((whole, frozenset(part.get("tablet") for part in parts)))
        for part in parts:
            rows, twice = {}, []
            for key, cells in part["rows"]:
                if key in rows:
                    twice.append(key)
                rows[key] = self._row(done, cells)
            self.looks.append(
                replace(
                    whole,
                    tablet=part.get("tablet"),
                    timestamp=_timestamp(done, part),
                    rows=rows,
                    twice=tuple(twice),
                    node=part.get("node"),
                    term=_term(part),
                )
            )

    def _row(self, done: Op, cells: Any) -> Row:
        every = _cells(done, cells, self.unstable)
        return tuple((column, cell) for column, cell in every if cell is not None)


def _renamed(history: History) -> frozenset[str]:
    renames = (_object(p.invoke) for p in history.pairs if p.invoke.f == "rename")
    return frozenset(str(fields.get(field)) for fields in renames for field in ("name", "new_name"))


def _unstable_columns(history: History) -> frozenset[str]:
    columns: set[str] = set()
    for pair in history.pairs:
        if pair.invoke.f != "alter" or pair.type is OpType.FAIL:
            continue
        steps = _object(pair.invoke).get("steps")
        for step in steps if isinstance(steps, list | tuple) else ():
            if step and step[0] in {"drop", "rename"}:
                columns.update(str(name) for name in step[1:])
    return frozenset(columns)


def _by_tablet(part: Part, tablets: Mapping[tuple[str, str], str]) -> Iterator[Part]:
    """Split a part whose answer names no tablet into parts of single tablets.

    `tablets` has the tablets that other answers name. Each tablet executes its own rows.
    """
    if part.tablet is not None or part.results:
        yield part
        return
    together: dict[tuple[bool, str], list[Written]] = {}
    for row in part.rows:
        tablet = tablets.get((part.table, row.key))
        together.setdefault((tablet is None, tablet or row.key), []).append(row)
    for rows in together.values():
        yield replace(part, rows=tuple(rows))


def _left_out(reader: _Reader) -> Iterator[Look]:
    """Yield an empty `Look` for each tablet that a scan left out although other answers name it."""
    tablets: dict[str, dict[str, None]] = {}
    items: list[Part | Look] = [*reader.parts, *reader.looks]
    for item in items:
        if item.tablet is not None:
            tablets.setdefault(item.table, {})[item.tablet] = None
    for whole, named in reader.scans:
        if None not in named:
            for tablet in tablets.get(whole.table, ()):
                if tablet not in named:
                    yield replace(whole, tablet=tablet)


def rows_history(history: History) -> RowsHistory:
    """Convert a history to parts of writes, and looks (answers about rows of one tablet).

    Raises `HistoryError` for values that do not match the vocabulary `rows`.
    """
    try:
        reader = _Reader(history)
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise HistoryError(
            f"an answer does not match the vocabulary 'rows': {type(error).__name__}: {error}"
        ) from error
    reader.looks.extend(list(_left_out(reader)))
    reader.looks.sort(key=lambda look: look.pair.invoke.index)
    tablets: dict[tuple[str, str], str] = {}
    keys: dict[str, dict[str, None]] = {}
    for part in reader.parts:
        for row in part.rows:
            keys.setdefault(part.table, {})[row.key] = None
            if part.tablet is not None:
                tablets[part.table, row.key] = part.tablet
    for look in reader.looks:
        for key in look.rows:
            keys.setdefault(look.table, {})[key] = None
            if look.tablet is not None:
                tablets.setdefault((look.table, key), look.tablet)
    return RowsHistory(
        tuple(each for part in reader.parts for each in _by_tablet(part, tablets)),
        tuple(reader.looks),
        tablets,
        {table: tuple(sorted(of_table)) for table, of_table in keys.items()},
        {name: tuple(ids) for name, ids in reader.ids.items()},
        {ident: name for name, ids in reader.ids.items() for ident in ids},
    )
