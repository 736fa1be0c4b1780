"""Extracts the facts of a run, as small tables that can be summed over thousands of runs.

`extract` is a pure function of a run's case and history. `results.facts.schema` defines the tables
and their columns. Any change of the code that may change a number must increase `FACTS_VERSION`, so
that facts are extracted again. All tables share these rules:

* An operation's phase and active faults are taken at its **invocation**. (If its whole duration
  counted, every slow operation would seem to be affected by each fault near it.)
* A fault is active in `[inject, heal)`. A fault that is never healed lasts until the end of the
  run. A fault without targets has no duration. A heal closes the oldest open fault of its id.
* Faults may overlap. Each fault counts its whole time, so sums over faults may exceed the total.
  The column `active` in `ops` names the exact set of active nemeses, so sums over this column equal
  the total.
* The run ends with the last line of its history. An operation without a completion counts as
  `info`, and is in progress until the end of the run.
* `harness.vocabularies.kinds` lists the kinds of reads. Every other kind counts as a mutation. A
  transaction that only reads has the kind `txn r`.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from harness.case import Case
from harness.ops import History
from harness.timeline import Fault
from harness.vocabularies.kinds import READS
from results.facts.fault_roles import role_exposure
from results.facts.intervals import Flags, Interval, Outage, outages_of, overlap_ns, union
from results.facts.operations import (
    TYPES,
    Notes,
    Operations,
    counted,
    inside,
    of_history,
    of_rows,
)
from results.facts.schema import FACT_TABLES, LIST_SEPARATOR, schema
from results.facts.timeline import Timeline, field_of, whole_of

FACTS_VERSION: Final = 4
NO_NEMESIS: Final = "none"
KINDS: Final = ("mutation", "read")


class Run(Protocol):
    """The properties of a run that the facts depend on."""

    @property
    def name(self) -> str:
        """The name of the run's parent folder, directly below the store."""
        ...

    @property
    def run(self) -> str:
        """The name of the run's own folder."""
        ...

    @property
    def case(self) -> Case:
        """The case of the run."""
        ...


Row = tuple[Any, ...]


def extract(run: Run, history: History) -> dict[str, pa.Table]:
    """Compute all tables of `FACT_TABLES` for one run from its whole history."""
    return _tables(_Facts(run, *of_history(history)))


def extract_rows(
    run: Run, operations: pa.Table, notes: History, *, lines: int, end_ns: int
) -> dict[str, pa.Table]:
    """Compute all tables of `FACT_TABLES` for one run from its rows in a lake.

    `operations` are the run's rows in the table `operations`. `notes` has all other history lines.
    """
    return _tables(_Facts(run, of_rows(operations), Notes(notes, lines, end_ns)))


def outages_by_kind(ops: Operations, end_ns: int) -> dict[str, list[Outage]]:
    """Return the outages of each kind in `KINDS`, in a run that ended at `end_ns`."""
    is_read = _reads(ops)[ops.f]
    end, answered = np.where(ops.done, ops.end, end_ns), ops.done & ops.answered
    outages = {}
    for kind in KINDS:
        chosen = np.flatnonzero(is_read == (kind == "read"))
        outages[kind] = outages_of(ops.start[chosen], end[chosen], answered[chosen], end_ns)
    return outages


def _reads(ops: Operations) -> Flags:
    return np.array([name in READS for name in ops.f_names], np.bool_)


def _tables(facts: _Facts) -> dict[str, pa.Table]:
    rows: dict[str, Iterable[Row]] = {
        "ops": facts.op_rows(),
        "faults": facts.fault_rows(),
        "recoveries": facts.recovery_rows(),
        "unavailability": facts.unavailability_rows(),
        "elections": facts.election_rows(),
        "infos": facts.info_rows(),
        "exposure": facts.exposure_rows(),
        "exposure_by_role": role_exposure(facts.ops, facts.timeline, facts.leaders),
        "exposure_time": facts.exposure_time_rows(),
    }
    return {name: _table(name, facts.key, rows[name]) for name in FACT_TABLES}


def _table(name: str, key: str, rows: Iterable[Row]) -> pa.Table:
    columns = schema(name)
    keyed = [(key, *row) for row in rows]
    values = list(zip(*keyed, strict=True)) if keyed else [()] * len(columns)
    arrays = [
        pa.array(column, type=field.type) for column, field in zip(values, columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=columns)


class _Facts:
    """Computes the rows of one run's tables, with one method per table."""

    def __init__(self, run: Run, operations: Operations, notes: Notes) -> None:
        self.key = f"{run.name}/{run.run}"
        self.ops = operations
        self.notes = notes
        self.timeline = Timeline(notes.history, notes.end_ns)
        self.is_read = _reads(operations)
        self.active = self.timeline.numbers(operations.start)
        self.leaders = list(notes.history.leaders())
        self.outages = outages_by_kind(operations, notes.end_ns)
        self.down = {
            kind: [(item.start, item.end) for item in self.outages[kind]] for kind in KINDS
        }
        seen = [fault.nemesis for fault in self.timeline.faults]
        self.nemeses = sorted({*run.case.nemeses, *seen} - {NO_NEMESIS})

    def op_rows(self) -> list[Row]:
        """Return the counts of client operations by every property that a report groups by."""
        ops, look = self.ops, self.timeline
        cells = counted(
            ops.f,
            ops.node,
            look.phase_numbers(ops.start),
            self.active,
            ops.type,
            ops.answered,
            ops.error,
            ops.latency_buckets(),
        )
        # a run may have two phases with the same name, so add up equal rows
        sums: Counter[Row] = Counter()
        for (f, node, phase, active, kind, answered, error, took), n in cells:
            sums[
                ops.f_names[f],
                bool(self.is_read[f]),
                None if node < 0 else ops.nodes[node],
                look.phase_name(phase),
                look.sets[active],
                TYPES[kind],
                bool(answered),
                None if error < 0 else ops.errors[error],
                None if took < 0 else took,
            ] += n
        return sorted(((*row, n) for row, n in sums.items()), key=_sortable)

    def fault_rows(self) -> list[Row]:
        rows: list[Row] = []
        for fault in self.timeline.faults:
            interval = self.timeline.interval(fault)
            merged = union([interval])
            rows.append(
                (
                    fault.id,
                    fault.nemesis,
                    *interval,
                    bool(fault.targets),
                    fault.heal is not None,
                    LIST_SEPARATOR.join(sorted(fault.targets)),
                    None
                    if fault.bite is None or fault.undone
                    else whole_of(fault.bite.get("count")),
                    *(overlap_ns(merged, self.down[kind]) for kind in KINDS),
                    *(self._outage_ns(kind, fault) for kind in KINDS),
                )
            )
        return rows

    def _outage_ns(self, kind: str, fault: Fault) -> int | None:
        """Return how long an outage that was in progress at a fault's heal lasted after the heal.

        Return 0 if there was no outage at the heal. Return `None` if the fault was never healed, or
        if the outage did not end with an answer.
        """
        if fault.end is None:
            return None
        at = bisect.bisect_right(self.down[kind], (fault.end, float("inf"))) - 1
        if at < 0 or fault.end >= self.down[kind][at][1]:
            return 0
        outage = self.outages[kind][at]
        return outage.end - fault.end if outage.ended == "answered" else None

    def recovery_rows(self) -> list[Row]:
        """Return the time to the first attempt and first success, per heal and kind of operation.

        An operation counts if it had not completed by the heal's line in the history. Lines decide
        this because in virtual time many lines have the same time.
        """
        rows: list[Row] = []
        kinds = sorted((name, _Ends(self.ops, f)) for f, name in enumerate(self.ops.f_names))
        for fault in self.timeline.faults:
            if fault.heal is None:
                continue
            for f, ends in kinds:
                tried = ends.first_try(fault.heal.index)
                rows.append(
                    (
                        fault.id,
                        fault.nemesis,
                        f,
                        None if tried is None else max(0, tried - fault.heal.time),
                        ends.first_ok(fault.heal.index, fault.heal.time),
                    )
                )
        return rows

    def unavailability_rows(self) -> list[Row]:
        look = self.timeline
        return [
            (
                kind,
                outage.start,
                outage.end,
                outage.tried,
                outage.ended,
                look.phase(outage.start),
                look.active(outage.start),
            )
            for kind in KINDS
            for outage in self.outages[kind]
        ]

    def election_rows(self) -> list[Row]:
        return [
            (
                op.time,
                None if field_of(op, "node") is None else str(field_of(op, "node")),
                whole_of(field_of(op, "term")),
                number == 0,
                self.timeline.active(op.time),
            )
            for number, op in enumerate(self.leaders)
        ]

    def info_rows(self) -> list[Row]:
        """Count operations that ended as `info`, by kind and by nemesis active when invoked."""
        lost = self.ops.type == TYPES.index("info")
        counts: Counter[tuple[str, str]] = Counter()
        for (f, active), n in counted(self.ops.f[lost], self.active[lost]):
            for name in self.timeline.members[active] or (NO_NEMESIS,):
                counts[self.ops.f_names[f], name] += n
        return [(*cell, n) for cell, n in sorted(counts.items())]

    def exposure_rows(self) -> list[Row]:
        """Count operations of the chaos phase, per nemesis, with and without its faults active."""
        ops = self.ops
        chaos = inside(self.timeline.chaos, ops.start)
        counts: dict[tuple[str, str, bool], list[int]] = {}
        kinds = (ops.f[chaos], self.active[chaos], ops.type[chaos], ops.answered[chaos])
        for (f, active, kind, answered), n in counted(*kinds):
            outcome = (True, kind == 0, kind == 1 and not answered, kind == 2)
            for nemesis in self.nemeses:
                cell = (nemesis, ops.f_names[f], nemesis in self.timeline.members[active])
                sums = counts.setdefault(cell, [0, 0, 0, 0])
                for column, value in enumerate(outcome):
                    sums[column] += n * value
        return [(*cell, *sums) for cell, sums in sorted(counts.items())]

    def exposure_time_rows(self) -> list[Row]:
        """Return time and downtime in the chaos phase, per nemesis, with and without its faults."""
        look = self.timeline
        chaos = look.chaos
        rows: list[Row] = []
        for nemesis in self.nemeses:
            covered = union(look.interval(f) for f in look.faults if f.nemesis == nemesis)
            struck = _common(chaos, covered)
            for active in (False, True):
                columns = [overlap_ns(chaos, chaos), *(overlap_ns(chaos, d) for d in self._downs())]
                under = [
                    overlap_ns(struck, struck),
                    *(overlap_ns(struck, d) for d in self._downs()),
                ]
                if not active:
                    under = [a - b for a, b in zip(columns, under, strict=True)]
                rows.append((nemesis, active, *under))
        return rows

    def _downs(self) -> list[list[Interval]]:
        return [self.down[kind] for kind in KINDS]


class _Ends:
    """Finds the first attempt and success of one kind of operation after a line of the history."""

    def __init__(self, ops: Operations, f: int) -> None:
        selected = np.flatnonzero(ops.f == f)
        selected = selected[np.argsort(ops.end_index[selected], kind="stable")]
        self._ends = ops.end_index[selected]
        self._invokes = np.minimum.accumulate(ops.start[selected][::-1])[::-1]
        oks = selected[ops.done[selected] & (ops.type[selected] == TYPES.index("ok"))]
        self._ok_indices, self._ok_times = ops.end_index[oks], ops.end[oks]

    def first_try(self, index: int) -> int | None:
        """Return the earliest invocation among operations that were open or yet to come at line
        `index`.
        """
        at = self._ends.searchsorted(index, side="right")
        return int(self._invokes[at]) if at < len(self._invokes) else None

    def first_ok(self, index: int, since_ns: int) -> int | None:
        """Return the time from `since_ns` to the first `ok` after line `index`, if any."""
        at = self._ok_indices.searchsorted(index, side="right")
        return int(self._ok_times[at]) - since_ns if at < len(self._ok_times) else None


def _common(first: Sequence[Interval], second: Sequence[Interval]) -> list[Interval]:
    return union((max(a, c), min(b, d)) for a, b in first for c, d in second)


def _sortable(row: Row) -> tuple[Any, ...]:
    """Return a sort key for rows that puts null first and never compares null with a value."""
    return tuple((value is not None, value if value is not None else 0) for value in row)
