"""What a run says about its target, as small tables that add up over thousands of runs.

`extract` is a pure function of a run's case, record and history: equal inputs give equal tables,
row by row. Tables and columns are in `results.schema`; `FACTS_VERSION` rises whenever any number
here may change, so that stored facts are made anew. The rules all tables share:

* An operation belongs to the moment of its **invocation**: its phase, its second, the faults it
  ran under. (Its whole span would make slow operations look hit by every fault near them.)
* A fault is active in `[inject, heal)`; one never healed until the end of the run; one without
  targets hit nobody and lasts no time. A heal closes the oldest open fault of its id.
* Faults may overlap. Each gets the whole time and every operation in it, so sums over faults or
  nemeses may exceed the total; `active` in `ops` names the exact set and does add up.
* The run ends with the last line of its history. An operation without completion is `info`, and
  under way until then.
* Reads are the kinds in `READS`; every other kind counts as a mutation. Transactions that only
  read are the kind `txn r`, whatever column `f` says of kinds holds of it.
"""

from __future__ import annotations

import bisect
import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from harness.case import NS_PER_S, Case
from harness.ops import History, Op, OpType, Pair
from harness.store import RunRecord, lat_bucket
from results.intervals import Interval, Outage, Try, outages, overlap_ns, union
from results.run_timeline import InjectedFault, Timeline, field_of, whole_of
from results.schema import FACT_TABLES, LIST_SEPARATOR, schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FACTS_VERSION", "NO_NEMESIS", "READS", "Run", "bare", "extract", "kind_of"]

FACTS_VERSION: Final = 2
READS: Final = frozenset(
    {"get", "list", "locate", "is-create-done", "is-alter-done", "read", "txn r"}
)
"""As in `checkers.stats`, which results may not import; a test holds both equal."""
NO_NEMESIS: Final = "none"
ERROR_CODE_CHARS_MAX: Final = 80
KINDS: Final = ("mutation", "read")


class Run(Protocol):
    """The part of a `RunInfo` that matters here."""

    @property
    def name(self) -> str:
        """The folder below the store."""
        ...

    @property
    def run(self) -> str:
        """The folder below that."""
        ...

    @property
    def case(self) -> Case:
        """What was asked for."""
        ...

    @property
    def record(self) -> RunRecord | None:
        """What became of it; `None` where it was cut short."""
        ...

    @property
    def label(self) -> str | None:
        """What tells soaks apart; a run that was cut short may still say it in its footer."""
        ...


Row = tuple[Any, ...]


def kind_of(op: Op) -> str:
    """The `f` of an invocation; transactions that only read are a kind of their own."""
    if op.f != "txn" or not isinstance(op.value, list):
        return op.f
    reads = all(isinstance(mop, list | tuple) and mop and mop[0] == "r" for mop in op.value)
    return "txn r" if reads else op.f


def _answered(pair: Pair) -> bool:
    """Whether the target itself answered: `ok`, or a definite no with what it saw."""
    done = pair.completion
    if done is None:
        return False
    if done.type is OpType.OK:
        return True
    said = done.value
    if isinstance(said, list | tuple) and len(said) == 2:  # of one key, as [key, value]
        said = said[1]
    return done.type is OpType.FAIL and isinstance(said, dict) and "result" in said


def _error_code(pair: Pair) -> str | None:
    """The code before the text, as in `checkers.stats`."""
    if pair.completion is None or pair.completion.error is None:
        return None
    return pair.completion.error.split(":", 1)[0].strip()[:ERROR_CODE_CHARS_MAX]


def extract(run: Run, history: History) -> dict[str, pa.Table]:
    """All tables of `FACT_TABLES` for one run."""
    facts = _Facts(run, history)
    rows: dict[str, Iterable[Row]] = {
        "runs": [facts.run_row()],
        "traits": facts.trait_rows(),
        "ops": facts.op_rows(),
        "windows": facts.window_rows(),
        "faults": facts.fault_rows(),
        "recoveries": facts.recovery_rows(),
        "unavailability": facts.unavailability_rows(),
        "elections": facts.election_rows(),
        "infos": facts.info_rows(),
        "exposure": facts.exposure_rows(),
        "exposure_time": facts.exposure_time_rows(),
    }
    return {name: _table(name, facts.key, rows[name]) for name in FACT_TABLES}


def bare(run: Run) -> dict[str, pa.Table]:
    """What is known of a run whose facts cannot be extracted: its case, and numbers of 0.

    So its verdict has a place, under its nemeses, bug switches and label.
    """
    facts = _Facts(run, History(()))
    rows = {"runs": [facts.run_row()], "traits": facts.trait_rows()}
    return {name: _table(name, facts.key, rows[name]) for name in rows}


def _table(name: str, key: str, rows: Iterable[Row]) -> pa.Table:
    import pyarrow as pa

    columns = schema(name)
    keyed = [(key, *row) for row in rows]
    values = list(zip(*keyed, strict=True)) if keyed else [()] * len(columns)
    arrays = [
        pa.array(column, type=field.type) for column, field in zip(values, columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=columns)


class _Facts:
    """One run while its tables are made; a method a table, rows without the run's key."""

    def __init__(self, run: Run, history: History) -> None:
        self.key = f"{run.name}/{run.run}"
        self.run = run
        self.history = history
        self.timeline = Timeline(history)
        self.pairs = history.pairs
        self.operations = tuple((kind_of(pair.invoke), pair) for pair in self.pairs)
        self.leaders = list(history.facts("leader"))
        self.outages: dict[str, list[Outage]] = {kind: self._outages(kind) for kind in KINDS}
        self.down = {
            kind: [(item.start, item.end) for item in self.outages[kind]] for kind in KINDS
        }
        seen = [fault.nemesis for fault in self.timeline.faults]
        self.nemeses = sorted({*run.case.nemeses, *seen} - {NO_NEMESIS})

    def _outages(self, kind: str) -> list[Outage]:
        end_ns = self.timeline.end_ns
        tries = [
            Try(
                pair.invoke.time,
                end_ns if pair.completion is None else pair.completion.time,
                pair.completion is not None,
                _answered(pair),
            )
            for f, pair in self.operations
            if (f in READS) == (kind == "read")
        ]
        return outages(tries, end_ns)

    def run_row(self) -> Row:
        """The one row of `runs`."""
        case, record = self.run.case, self.run.record
        types = Counter(pair.type for pair in self.pairs)
        refused = sum(pair.type is OpType.FAIL and _answered(pair) for pair in self.pairs)
        # A process that stopped may be recorded as cut short only in its history.
        interrupted = any(True for _ in self.history.facts("interrupted"))
        return (
            self.run.name,
            self.run.label,
            None if record is None else record.environment,
            case.target,
            case.profile,
            case.workload,
            LIST_SEPARATOR.join(sorted(set(case.nemeses))),
            LIST_SEPARATOR.join(sorted(set(case.bugs))),
            _setting(case, None if record is None else record.environment),
            case.seed,
            None if record is None else record.started,
            None if record is None else _ns(record.wall_s),
            self.timeline.end_ns,
            None if record is None else record.verdict.value,
            self.history.digest() if record is None else record.digest,
            len(self.history),
            len(self.pairs),
            types[OpType.OK],
            types[OpType.FAIL],
            types[OpType.INFO],
            refused,
            max(0, len(self.leaders) - 1),
            len(self.timeline.faults),
            interrupted or (record is not None and record.interrupted),
        )

    def trait_rows(self) -> list[Row]:
        """Nemeses and bugs of the case, one a row."""
        case = self.run.case
        rows: list[Row] = [("nemesis", name) for name in sorted(set(case.nemeses))]
        return rows + [("bug", name) for name in sorted(set(case.bugs))]

    def op_rows(self) -> list[Row]:
        """Client operations, counted by everything that reports group by."""
        counts: Counter[Row] = Counter()
        for f, pair in self.operations:
            invoke, done = pair.invoke, pair.completion
            counts[
                f,
                None if done is None else done.node,
                self.timeline.phase(invoke.time),
                self.timeline.active(invoke.time),
                pair.type.value,
                _answered(pair),
                _error_code(pair),
                None if done is None else lat_bucket(done.time - invoke.time),
            ] += 1
        rows = [(row[0], row[0] in READS, *row[1:], n) for row, n in counts.items()]
        return sorted(rows, key=_sortable)

    def window_rows(self) -> list[Row]:
        """Rates: operations by the second of their invocation."""
        counts: dict[tuple[int, str], Counter[OpType]] = {}
        for f, pair in self.operations:
            cell = (pair.invoke.time // NS_PER_S, f)
            counts.setdefault(cell, Counter())[pair.type] += 1
        lasting = [f.interval for f in self.timeline.faults if f.interval[0] < f.interval[1]]
        starts = sorted(start for start, _ in lasting)
        ends = sorted(end for _, end in lasting)

        def touching(second: int) -> int:
            begun = bisect.bisect_left(starts, (second + 1) * NS_PER_S)
            return begun - bisect.bisect_right(ends, second * NS_PER_S)

        return [
            (second, f, n[OpType.OK], n[OpType.FAIL], n[OpType.INFO], touching(second))
            for (second, f), n in sorted(counts.items())
        ]

    def fault_rows(self) -> list[Row]:
        """Faults in the order of their injection."""
        rows: list[Row] = []
        for fault in self.timeline.faults:
            own = union([fault.interval])
            rows.append(
                (
                    fault.id,
                    fault.nemesis,
                    *fault.interval,
                    bool(fault.targets),
                    fault.healed,
                    LIST_SEPARATOR.join(sorted(fault.targets)),
                    fault.bite,
                    *(overlap_ns(own, self.down[kind]) for kind in KINDS),
                    *(self._outage_ns(kind, fault) for kind in KINDS),
                )
            )
        return rows

    def _outage_ns(self, kind: str, fault: InjectedFault) -> int | None:
        """How long after its heal the outage went on in which it was healed; 0 if in none."""
        if not fault.healed:
            return None
        at = bisect.bisect_right(self.down[kind], (fault.end, float("inf"))) - 1
        if at < 0 or fault.end >= self.down[kind][at][1]:
            return 0
        outage = self.outages[kind][at]
        return outage.end - fault.end if outage.ended == "answered" else None

    def recovery_rows(self) -> list[Row]:
        """For each heal and kind of operation: when it was tried again, and when it succeeded.

        What comes after the heal is told by index: in virtual time many things share a moment.
        """
        by_f: dict[str, list[Pair]] = {}
        for f, pair in self.operations:
            by_f.setdefault(f, []).append(pair)
        rows: list[Row] = []
        kinds = [(f, _Ends(pairs)) for f, pairs in sorted(by_f.items())]
        for fault in self.timeline.faults:
            if not fault.healed:
                continue
            for f, ends in kinds:
                tried = ends.first_try(fault.heal_index)
                rows.append(
                    (
                        fault.id,
                        fault.nemesis,
                        f,
                        None if tried is None else max(0, tried - fault.end),
                        ends.first_ok(fault.heal_index, fault.end),
                    )
                )
        return rows

    def unavailability_rows(self) -> list[Row]:
        """Outages of both kinds."""
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
        """Every leader that was seen."""
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
        """Operations lost to info, under each nemesis that was active."""
        counts: Counter[tuple[str, str]] = Counter()
        for f, pair in self.operations:
            if pair.type is OpType.INFO:
                active = self.timeline.active_set(pair.invoke.time) or (NO_NEMESIS,)
                counts.update((f, name) for name in active)
        return [(*cell, n) for cell, n in sorted(counts.items())]

    def exposure_rows(self) -> list[Row]:
        """Operations of the chaos phase, with and without each nemesis."""
        counts: dict[tuple[str, str, bool], list[int]] = {}
        for f, pair in self.operations:
            invoke = pair.invoke
            if not _inside(self.timeline.chaos, invoke.time):
                continue
            unanswered = pair.type is OpType.FAIL and not _answered(pair)
            outcome = (1, pair.type is OpType.OK, unanswered, pair.type is OpType.INFO)
            active = self.timeline.active_set(invoke.time)
            for nemesis in self.nemeses:
                cell = (nemesis, f, nemesis in active)
                sums = counts.setdefault(cell, [0, 0, 0, 0])
                for column, value in enumerate(outcome):
                    sums[column] += value
        return [(*cell, *sums) for cell, sums in sorted(counts.items())]

    def exposure_time_rows(self) -> list[Row]:
        """Time of the chaos phase, with and without each nemesis."""
        chaos = self.timeline.chaos
        rows: list[Row] = []
        for nemesis in self.nemeses:
            own = union(f.interval for f in self.timeline.faults if f.nemesis == nemesis)
            struck = _common(chaos, own)
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
    """The operations of one kind, to be asked what came after a line of the history."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        never = float("inf")
        ended = sorted(
            (never if pair.completion is None else pair.completion.index, pair.invoke.time)
            for pair in pairs
        )
        self._ends = [end for end, _ in ended]
        self._invokes = [time for _, time in ended]
        for at in reversed(range(len(ended) - 1)):  # the least invocation from here on
            self._invokes[at] = min(self._invokes[at], self._invokes[at + 1])
        oks = [p.completion for p in pairs if p.completion and p.type is OpType.OK]
        oks.sort(key=lambda op: op.index)
        self._ok_indices = [op.index for op in oks]
        self._ok_times = [op.time for op in oks]

    def first_try(self, index: int) -> int | None:
        """The earliest invocation of those that ended, or never did, after line `index`."""
        at = bisect.bisect_right(self._ends, index)
        return self._invokes[at] if at < len(self._invokes) else None

    def first_ok(self, index: int, since_ns: int) -> int | None:
        """Time from `since_ns` to the first acknowledgement after line `index`."""
        at = bisect.bisect_right(self._ok_indices, index)
        return self._ok_times[at] - since_ns if at < len(self._ok_times) else None


def _ns(seconds: float) -> int | None:
    """Seconds as int64 ns; `None` for a number that no clock shows."""
    return int(seconds * NS_PER_S) if 0 <= seconds < 1e9 else None


def _inside(intervals: Sequence[Interval], time_ns: int) -> bool:
    return any(start <= time_ns < end for start, end in intervals)


def _common(first: Sequence[Interval], second: Sequence[Interval]) -> list[Interval]:
    """The time that both lists cover."""
    return union((max(a, c), min(b, d)) for a, b in first for c, d in second)


def _sortable(row: Row) -> tuple[Any, ...]:
    """A key in which null comes first and compares with nothing."""
    return tuple((value is not None, value if value is not None else 0) for value in row)


def _setting(case: Case, environment: str | None) -> str:
    """What stays equal over the seeds of one soak: the case without what is planned from the seed.

    Operations are not: where a case lists them, somebody gave them.
    """
    bare = msgspec.structs.replace(case, seed=0, faults=None)
    return hashlib.sha256(bare.encode() + (environment or "").encode()).hexdigest()[:12]
