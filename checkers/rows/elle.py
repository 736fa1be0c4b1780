"""Checks rows as transactions of Elle that are ordered by timestamps.

A *part* of a write (its rows in one tablet) is a transaction that writes the cells of these rows. A
*look* is the answer of a read or of a scan of one tablet. All looks at one timestamp form a single
transaction that reads cells. A cell is a register. A cell to which the same value was written twice
is left out.

**What Kudu promises.** Strict serializability in real time is too strong: Kudu orders the
timestamps of two tablets only if clients propagated them. Serializability alone is too weak: it
lets a scan see any consistent past. But each transaction takes effect at its timestamp. A part
takes effect atomically, on one tablet. A scan takes effect at an instant, since each tablet waits
until no further write at or before this timestamp is possible (safe time). So this checker orders
transactions by their timestamps, and checks that Kudu is strictly serializable in that order.
`linearizable-rows` and `read-your-writes` judge how timestamps follow real time.

* A write of unknown outcome begins above the highest timestamp that its process knew, and never
  ends.
* An absent row shows that its cells were never written, unless a client may have deleted the row.
* Rows that a write refused count as neither read nor written.

**Power cuts.** If a profile lets power cuts undo writes (`permits`), a contradiction in the whole
history is permitted, unless a single stretch between two cuts contains it (`_Stretch`).
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from checkers.elle.verdict import certified, told
from checkers.rows.permits import PowerCuts
from checkers.rows.problem import Cell, Writers, cells_of, floors
from checkers.rows.reading import Look, Part, RowsHistory, Written, rows_history
from checkers.verdict.permitted import permitted_result
from harness.ops import CheckResult, History, Op, OpType, Pair, Verdict
from harness.permits import LOST_AFTER_POWER_CUT
from harness.plugins import Checker

if TYPE_CHECKING:
    from checkers.elle import ElleResult
    from checkers.elle.infer.columns import Columns

Mops = list[list[Any]]

# the anomaly that Elle reports if no two transactions are related
_NOTHING: Final = "empty-transaction-graph"


def _named(read: RowsHistory, cell: Cell) -> str:
    return f"{read.name_of(cell[0])}/{cell[1]}/{cell[2]}"


class _Stretch:
    """The operations that were invoked between two power cuts.

    An operation that is under way at one of the cuts may have any outcome. A cell that shows no
    value, or a value from before the stretch, counts as unchanged since the start. All values from
    before the stretch count as a single version, the first.
    """

    def __init__(self, read: RowsHistory, begin: float, end: float) -> None:
        self._within = (begin, end)
        self._writers = Writers(read)
        self.parts = [
            part if _ended(part.pair, end) else _unanswered(part)
            for part in read.parts
            if begin < part.pair.invoke.index < end
        ]
        self.looks = [
            look for look in read.looks if begin < look.pair.invoke.index and _ended(look.pair, end)
        ]

    def shows(self, cell: Cell, value: Any) -> tuple[Any] | None:
        """Return the version of `cell` that `value` shows, as a tuple; `None` if it is uncertain.

        The version is `None` for the state at the start of the stretch, else the value itself.
        """
        begin, end = self._within
        if value is None:
            return (None,)
        parts = [part for part, _ in self._writers.of(cell, value)]
        if all(begin < part.pair.invoke.index < end for part in parts):
            return (value,)
        if all(part.is_known and _ended(part.pair, begin) for part in parts):
            return (None,)
        return None


def _ended(pair: Pair, end: float) -> bool:
    return pair.completion is not None and pair.completion.index < end


def _unanswered(part: Part) -> Part:
    rows = tuple(row._replace(result=None) for row in part.rows)
    return replace(part, timestamp=None, rows=rows, results=(), again=())


class _Cells:
    """Translates parts of writes, and looks, to writes and reads of registers for Elle.

    Every cell is a register, except cells to which one value was written twice.
    """

    def __init__(self, read: RowsHistory, stretch: _Stretch | None = None) -> None:
        self._read = read
        self._stretch = stretch
        self._left_out = Writers(read).repeated()
        self._seen = {each for look in read.looks for each in cells_of(look.table, look.rows)}
        self._columns: dict[str, set[str]] = {}
        self._deleted: set[tuple[str, str]] = set()
        for part in read.parts:
            for row in part.rows:
                self._columns.setdefault(part.table, set()).update(dict(row.step.cells))
                if row.step.kind == "delete" and row.result in {"ok", None}:
                    self._deleted.add((part.table, row.key))

    def writes(self, part: Part) -> Mops:
        """Return the writes of a part as micro-operations.

        If a part has no answer, only its upserts and the writes that a look shows count, since
        other rows may have been refused. If such a part writes a row several times, none of its
        writes to this row count.
        """
        times = Counter(row.key for row in part.rows)

        def surely(row: Written) -> bool:
            seen = any(
                ((part.table, row.key, column), value) in self._seen
                for column, value in row.step.cells
            )
            return times[row.key] == 1 and (row.step.kind == "upsert" or seen)

        return [
            ["w", _named(self._read, cell), value]
            for row in part.rows
            if row.result == "ok" or (row.result is None and surely(row))
            if row.step.kind != "delete"
            for column, value in row.step.cells
            if value is not None and (cell := (part.table, row.key, column)) not in self._left_out
        ]

    def reads(self, looks: Sequence[Look]) -> Mops:
        mops: Mops = []
        seen: set[tuple[str, Any]] = set()
        for look in looks:
            for key, row in self._read.seen_by(look):
                cells = dict(row or ())
                for column in sorted(self._columns.get(look.table, ())):
                    cell = (look.table, key, column)
                    value = cells.get(column)
                    if cell in self._left_out or (
                        value is None and (look.table, key) in self._deleted
                    ):
                        continue
                    if self._stretch is not None:
                        version = self._stretch.shows(cell, value)
                        if version is None:
                            continue
                        (value,) = version
                    name = _named(self._read, cell)
                    if (name, value) not in seen:
                        seen.add((name, value))
                        mops.append(["r", name, value])
        return mops


def transactions_in_time(
    read: RowsHistory, *, apart: bool = False, stretch: _Stretch | None = None
) -> tuple[History, tuple[int, ...]]:
    """Make a history of transactions in the order of timestamps.

    Process `n` executes transaction `n`. The second result has the index of each transaction's
    invocation in the original history. With `apart`, the answers of different reads and scans at
    one timestamp stay separate transactions.
    """
    cells, floor = _Cells(read, stretch), floors(read)
    parts, all_looks = (
        (read.parts, read.looks) if stretch is None else (stretch.parts, stretch.looks)
    )
    # (time, order at that time, 0 for an invocation or 1 for an answer, transaction,
    # micro-operations)
    events: list[tuple[int, int, int, int, Mops]] = []
    origins: list[int] = []

    def add(origin: int, begin: tuple[int, int], end: tuple[int, int] | None, mops: Mops) -> None:
        if mops:
            number = len(origins)
            origins.append(origin)
            events.append((*begin, 0, number, mops))
            if end is not None:
                events.append((*end, 1, number, mops))

    for part in parts:
        at = part.pair.invoke.index
        if part.timestamp is not None:
            add(at, (part.timestamp, 0), (part.timestamp, 0), cells.writes(part))
        else:
            add(at, (floor[at], 2), None, cells.writes(part))
    together: dict[tuple[int, int], list[Look]] = {}
    for look in all_looks:
        if look.timestamp is not None:
            who = look.pair.invoke.index if apart else 0
            together.setdefault((look.timestamp, who), []).append(look)
    for (timestamp, _), looks in together.items():
        at = looks[0].pair.invoke.index
        add(at, (timestamp, 1), (timestamp, 1), cells.reads(looks))
    ops = [
        Op(
            index,
            index,
            number,
            OpType.OK if is_answer else OpType.INVOKE,
            "txn",
            mops if is_answer else [[f, key, None if f == "r" else v] for f, key, v in mops],
        )
        for index, (_, _, is_answer, number, mops) in enumerate(
            sorted(events, key=lambda event: event[:4])
        )
    ]
    return History(ops), tuple(origins)


class ElleRows(Checker):
    """Checks that writes and scans are strictly serializable in the order of their timestamps."""

    api_version = 1
    name = "elle-rows"
    doc = "writes and scans of rows are strictly serializable in the order of their timestamps"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        del case
        end_s = time.monotonic() + time_limit_s
        cuts = PowerCuts(history)
        read = rows_history(history)
        # A power cut may come between two answers at one timestamp, so these stay separate
        # transactions.
        strict = self._judge(*transactions_in_time(read, apart=bool(cuts.at)), end_s)
        if strict.verdict is not Verdict.INVALID or not cuts.at:
            return strict
        open_question = None
        for begin, end in itertools.pairwise([-math.inf, *cuts.at, math.inf]):
            stretch = _Stretch(read, begin, end)
            alone = self._judge(*transactions_in_time(read, stretch=stretch), end_s)
            if alone.verdict is Verdict.INVALID:
                return alone
            if alone.verdict is Verdict.UNKNOWN and _NOTHING not in alone.details["anomalies"]:
                open_question = open_question or alone
        if open_question is not None:
            return open_question
        counts = {LOST_AFTER_POWER_CUT: 1}
        return permitted_result(strict, cuts.permits, counts, strict.operations, strict.details)

    def _judge(self, timed: History, origins: Sequence[int], end_s: float) -> CheckResult:
        from checkers.elle.infer.columns import columns_of

        columns = columns_of(timed, writes_are="w")
        result, proof = certified(
            _searched(columns, end_s), timed, "rw-register", ("linearizable-keys",)
        )
        if result.verdict is Verdict.INVALID:
            # Users know the original history, so replace the numbers of transactions by its
            # indices.
            of_index = {
                pair.invoke.index: origins[pair.invoke.process]
                for pair in timed.pairs
                if isinstance(pair.invoke.process, int)
            }
            for place, index in enumerate(columns.index.tolist()):
                columns.index[place] = of_index[index]
            result = _searched(columns, end_s)
        listed = told(self.name, result, proof, len(columns))
        reads = sum(op.type is OpType.OK and op.value[0][0] == "r" for op in timed)
        reason = listed.reason
        if result.verdict is Verdict.VALID:
            reason = f"{reason}, in the order of timestamps"
        return msgspec.structs.replace(
            listed, reason=reason, details={**listed.details, "looked": {"looks": reads}}
        )


def _searched(columns: Columns, end_s: float) -> ElleResult:
    from checkers.elle import check_rw_register

    return check_rw_register(
        columns,
        consistency_models=("strict-serializable",),
        linearizable_keys=True,
        unknown_writes=True,
        time_limit_s=max(0.0, end_s - time.monotonic()),
    )
