"""Computes counts, latencies and availability of one run from its stored history.

A page of trends needs these numbers for hundreds of runs. So numpy reads the columns of the history
file (`results.facts.operations`), and no `History` is built.

The quantile 0.9 is the smallest latency that at least 90 % of the operations did not exceed. If the
run has a chaos phase, rates cover only this phase.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import HistoryError
from harness.ops import NEMESIS, NS_PER_S, History, Op, OpType
from harness.store.footer import open_sealed
from harness.timeline import faults_of
from results.facts.intervals import Flags, Ints
from results.facts.operations import TYPES, Operations, of_history, of_table
from results.facts.timeline import field_of
from results.statistics.estimates import quantiles

ROWS_MAX: Final = 2_000_000
"""The maximum number of history lines that `run_numbers` reads. `harness report` has no maximum."""
FAULTS_MAX: Final = 200
KINDS_MAX: Final = 100
SECONDS_MAX: Final = 86_400
_HARNESS: Final = -2
_NEMESIS: Final = -1
_COLUMNS: Final = ("index", "time", "process", "type", "f")


class KindNumbers(msgspec.Struct, frozen=True):
    """Numbers of one kind of operation: counts by outcome, and latencies of `ok` operations.

    `latency_ns` has quantiles in the order of `results.statistics.estimates.QUANTILES`. It is empty
    if no operation was ok.
    """

    f: str
    ok: int
    fail: int
    info: int
    open: int
    latency_ns: tuple[int, ...]

    @property
    def count(self) -> int:
        return self.ok + self.fail + self.info + self.open


class FaultBand(msgspec.Struct, frozen=True):
    """A fault and its interval. A fault that was never healed lasts until the end of the run."""

    nemesis: str
    targets: str
    start_ns: int
    end_ns: int


class RunNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """Counts, latencies and availability of one run."""

    lines: int
    end_ns: int
    total: KindNumbers
    kinds: tuple[KindNumbers, ...]
    chaos_ns: tuple[int, int] | None
    rate_window_ns: tuple[int, int]
    ok_per_s: float | None
    p99_ns: int | None
    seconds: tuple[tuple[int, int, int], ...]  # completions in each second: ok, fail, info
    faults: tuple[FaultBand, ...]
    notes: tuple[str, ...] = ()


def run_numbers(folder: Path) -> RunNumbers:
    """Compute the numbers of a run; raise `HistoryError` for an unreadable or too large history."""
    path = folder / "history.parquet"
    if path.is_symlink():
        raise HistoryError(f"{str(path)!r} is a link, and links are not followed")
    if not os.path.lexists(path):
        raise HistoryError(
            f"{str(path)!r} does not exist; latencies and counts need the history of a finished run"
        )
    try:
        with open_sealed(path) as file:
            rows = file.metadata.num_rows
            if rows > ROWS_MAX:
                raise HistoryError(
                    f"the history has {rows} lines, but `harness serve` counts at most {ROWS_MAX}; "
                    "use `harness report`"
                )
            table = file.read(columns=list(_COLUMNS))
            operations = of_table("the history", table)
            end_ns = int(table["time"].to_numpy().max()) if rows else 0
            return _numbers(operations, rows, end_ns, _facts(file, table))
    except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise HistoryError(f"{str(path)!r} cannot be read: {text}") from error


def numbers_of_history(history: History) -> RunNumbers:
    """Compute the numbers of a run from a history in memory."""
    operations, notes = of_history(history)
    facts = [op for op in history if op.process == NEMESIS or op.f == "phase"]
    return _numbers(operations, notes.lines, notes.end_ns, facts)


def _facts(file: Any, table: Any) -> list[Op]:
    wanted = pc.or_(
        pc.equal(table["process"], _NEMESIS),
        pc.and_(pc.equal(table["process"], _HARNESS), pc.equal(table["f"], "phase")),
    )
    if not pc.any(wanted).as_py():
        return []
    values = file.read(columns=["value"])["value"].filter(wanted)
    rows = table.filter(wanted).append_column("value", values).sort_by("index").to_pylist()
    numbers = []
    for row in rows:
        try:
            value = msgspec.json.decode(row["value"])
        except (msgspec.MsgspecError, UnicodeError, RecursionError, TypeError) as error:
            raise HistoryError(f"line {row['index']} holds a value that is not JSON") from error
        process = NEMESIS if row["process"] == _NEMESIS else "harness"
        numbers.append(Op(row["index"], row["time"], process, OpType.INFO, row["f"], value))
    return numbers


def _numbers(ops: Operations, lines: int, end_ns: int, facts: list[Op]) -> RunNumbers:
    latency = ops.end - ops.start
    chaos = _chaos(facts, end_ns)
    window = chaos or (0, end_ns)
    inside = ops.done & (ops.type == TYPES.index("ok"))
    if chaos is not None:
        inside &= (ops.end >= window[0]) & (ops.end < window[1])
    length_s = (window[1] - window[0]) / NS_PER_S
    notes = []
    if len(ops.f_names) > KINDS_MAX:
        notes.append(f"only the first {KINDS_MAX} kinds of operation are listed")
    kinds = tuple(
        _kind(name, ops, ops.f == code, latency)
        for code, name in sorted(enumerate(ops.f_names), key=lambda item: item[1])[:KINDS_MAX]
    )
    bands = _bands(facts, end_ns)
    if len(bands) > FAULTS_MAX:
        notes.append(f"only the first {FAULTS_MAX} of {len(bands)} faults are listed")
    if end_ns >= SECONDS_MAX * NS_PER_S:
        notes.append(f"availability is counted for the first {SECONDS_MAX} s")
    return RunNumbers(
        lines=lines,
        end_ns=end_ns,
        total=_kind("all", ops, np.ones(len(ops), np.bool_), latency),
        kinds=kinds,
        chaos_ns=chaos,
        rate_window_ns=window,
        ok_per_s=int(inside.sum()) / length_s if length_s > 0 else None,
        p99_ns=next(iter(quantiles(latency[inside].tolist(), (990,))), None),
        seconds=tuple(_seconds(ops, end_ns)),
        faults=tuple(bands[:FAULTS_MAX]),
        notes=tuple(notes),
    )


def _kind(name: str, ops: Operations, chosen: Flags, latency: Ints) -> KindNumbers:
    done = chosen & ops.done
    ok, fail, info = (done & (ops.type == code) for code in range(len(TYPES)))
    return KindNumbers(
        name,
        ok=int(ok.sum()),
        fail=int(fail.sum()),
        info=int(info.sum()),
        open=int((chosen & ~ops.done).sum()),
        latency_ns=quantiles(latency[ok].tolist()),
    )


def _seconds(ops: Operations, end_ns: int) -> Iterator[tuple[int, int, int]]:
    second = ops.end[ops.done] // NS_PER_S
    kind = ops.type[ops.done]
    count = max(min(end_ns // NS_PER_S + 1, SECONDS_MAX), 0)
    columns = [
        np.bincount(second[(kind == code) & (second >= 0) & (second < count)], minlength=count)
        for code in range(len(TYPES))
    ]
    for row in zip(*columns, strict=True):
        yield int(row[0]), int(row[1]), int(row[2])


def _chaos(facts: list[Op], end_ns: int) -> tuple[int, int] | None:
    """Return start and end of the phase `chaos`, if any. It ends with the next phase or the run."""
    begin: int | None = None
    for op in facts:
        if op.process == NEMESIS:
            continue
        if begin is not None:
            return begin, max(begin, op.time)
        if field_of(op, "phase") == "chaos":
            begin = op.time
    return None if begin is None else (begin, max(begin, end_ns))


def _bands(facts: list[Op], end_ns: int) -> list[FaultBand]:
    bands = [
        FaultBand(
            fault.nemesis,
            ", ".join(fault.targets[:10])[:200],
            fault.start,
            max(fault.start, end_ns if fault.end is None else fault.end),
        )
        for fault in faults_of((op for op in facts if op.process == NEMESIS), most=None)
        if fault.targets
    ]
    return sorted(bands, key=lambda band: (band.start_ns, band.end_ns))
