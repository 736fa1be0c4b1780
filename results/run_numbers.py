"""Counts, latencies and availability of one run, from the columns of its sealed history.

The columns are read with numpy instead of building a `History`, since a page of trends needs
hundreds of runs at once. Pairing is the same: a process does one operation at a time, so in the
order of its lines every completion follows its invocation. A test holds the numbers equal to those
of `History.pairs`.

Quantiles are nearest-rank: the smallest latency that at least that share of operations did not
exceed. Rates are of the chaos phase, where there is one: before it nothing is broken, and after it
the harness asks what it wants to know.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harness.errors import HistoryError
from harness.ops import NEMESIS, Op, OpType
from harness.store.footer import open_sealed
from harness.timeline import faults_of

if TYPE_CHECKING:
    import numpy as np

__all__ = ["QUANTILES", "ROWS_MAX", "FaultBand", "KindNumbers", "RunNumbers", "run_numbers"]

ROWS_MAX: Final = 2_000_000
"""Lines of a history; a longer one is left to `harness report`."""
QUANTILES: Final = (0.5, 0.9, 0.99, 1.0)
FAULTS_MAX: Final = 200
KINDS_MAX: Final = 100
SECONDS_MAX: Final = 86_400
_NS_PER_S: Final = 1_000_000_000
_HARNESS: Final = -2
_NEMESIS: Final = -1
_COLUMNS: Final = ("index", "time", "process", "type", "f")
OPEN: Final = "open"
TYPES: Final = ("ok", "fail", "info", OPEN)


class KindNumbers(msgspec.Struct, frozen=True):
    """One kind of operation: how many ended how, and quantiles of latency of those that were ok.

    `latency_ns` is in the order of `QUANTILES`, and empty where none was ok.
    """

    f: str
    ok: int
    fail: int
    info: int
    open: int
    latency_ns: tuple[int, ...]

    @property
    def count(self) -> int:
        """All operations of the kind."""
        return self.ok + self.fail + self.info + self.open


class FaultBand(msgspec.Struct, frozen=True):
    """When a fault was active; until the end of the run where nobody healed it."""

    nemesis: str
    targets: str
    start_ns: int
    end_ns: int


class RunNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """What a history amounts to."""

    lines: int
    end_ns: int
    total: KindNumbers
    kinds: tuple[KindNumbers, ...]
    chaos_ns: tuple[int, int] | None
    rate_window_ns: tuple[int, int]
    ok_per_s: float | None
    p99_ns: int | None
    seconds: tuple[tuple[int, int, int], ...]  # completions by second: ok, fail, info
    faults: tuple[FaultBand, ...]
    notes: tuple[str, ...] = ()


def run_numbers(folder: Path) -> RunNumbers:
    """The numbers of a run; raises `HistoryError` for a history that is torn or no history."""
    import pyarrow as pa

    path = folder / "history.parquet"
    if path.is_symlink():
        raise HistoryError(f"{str(path)!r} is a link, and links are not followed")
    if not os.path.lexists(path):
        raise HistoryError(f"{str(path)!r} is not there: only sealed histories have numbers")
    try:
        with open_sealed(path) as file:
            rows = file.metadata.num_rows
            if rows > ROWS_MAX:
                raise HistoryError(
                    f"the history has {rows} lines, and here at most {ROWS_MAX} are counted; "
                    "use `harness report`"
                )
            table = file.read(columns=list(_COLUMNS))
            lines = _Lines(table)
            return _numbers(lines, _facts(file, table))
    except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise HistoryError(f"{str(path)!r} cannot be read: {text}") from error


class _Lines:
    """The client lines of a history as arrays, by process and then by index, paired."""

    def __init__(self, table: Any) -> None:
        import numpy as np

        types, self.type_names = _coded(table["type"])
        kinds, self.kind_names = _coded(table["f"])
        index, time, process = (
            table[name].combine_chunks().to_numpy(zero_copy_only=False).astype(np.int64)
            for name in ("index", "time", "process")
        )
        self.lines = len(index)
        self.end_ns = int(time.max()) if len(time) else 0
        client = np.flatnonzero(process >= 0)
        order = client[np.lexsort((index[client], process[client]))]
        process, time, types, kinds = process[order], time[order], types[order], kinds[order]
        invoke_code = self._code("invoke")
        is_invoke = types == invoke_code
        same = np.zeros(len(order), dtype=bool)
        if len(order):
            same[:-1] = process[1:] == process[:-1]
        follows = np.zeros(len(order), dtype=bool)
        follows[1:] = is_invoke[:-1] & same[:-1]
        if not bool(np.all(is_invoke | follows)):
            raise HistoryError("the history has a completion without an open invocation")
        if bool(np.any(is_invoke & follows)):
            raise HistoryError("the history has a process with two open operations")
        calls = np.flatnonzero(is_invoke)
        done = np.minimum(calls + 1, max(len(order) - 1, 0))
        closed = same[calls] if len(calls) else np.zeros(0, dtype=bool)
        self.kind = kinds[calls]
        self.start = time[calls]
        self.finish = np.where(closed, time[done], -1) if len(calls) else self.start
        codes = {
            code: TYPES.index(name) for code, name in enumerate(self.type_names) if name in TYPES
        }
        table_of = np.array([codes.get(code, -1) for code in range(len(self.type_names))] or [-1])
        self.type = (
            np.where(closed, table_of[types[done]], TYPES.index(OPEN)) if len(calls) else self.kind
        )
        if bool(np.any(self.type < 0)):
            raise HistoryError("the history has lines of a type that there is not")

    def _code(self, name: str) -> int:
        return self.type_names.index(name) if name in self.type_names else -1


def _coded(column: Any) -> tuple[Any, list[str]]:
    """A column of texts as small numbers, and what each stands for."""
    import numpy as np

    if column.null_count:
        raise HistoryError("the history has lines without a type or a kind")
    encoded = column.combine_chunks().dictionary_encode()
    if hasattr(encoded, "combine_chunks"):
        encoded = encoded.combine_chunks()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, [str(text) for text in encoded.dictionary.to_pylist()]


def _facts(file: Any, table: Any) -> list[tuple[int, int, str, Any]]:
    """(time, process, f, value) of phases and faults, in the order of the history."""
    import pyarrow.compute as pc

    wanted = pc.or_(
        pc.equal(table["process"], _NEMESIS),
        pc.and_(pc.equal(table["process"], _HARNESS), pc.equal(table["f"], "phase")),
    )
    if not pc.any(wanted).as_py():
        return []
    values = file.read(columns=["value"])["value"].filter(wanted)
    rows = table.filter(wanted).append_column("value", values).sort_by("index").to_pylist()
    found = []
    for row in rows:
        try:
            value = msgspec.json.decode(row["value"])
        except (msgspec.MsgspecError, UnicodeError, RecursionError, TypeError) as error:
            raise HistoryError(f"line {row['index']} holds a value that is not JSON") from error
        found.append((row["time"], row["process"], row["f"], value))
    return found


def _numbers(lines: _Lines, facts: list[tuple[int, int, str, Any]]) -> RunNumbers:
    import numpy as np

    latency = lines.finish - lines.start
    ok = lines.type == TYPES.index("ok")
    chaos = _chaos(facts, lines.end_ns)
    window = chaos or (0, lines.end_ns)
    inside = ok & (lines.finish >= window[0]) & (lines.finish < window[1])
    if chaos is None:
        inside = ok
    length_s = (window[1] - window[0]) / _NS_PER_S
    notes = []
    if len(lines.kind_names) > KINDS_MAX:
        notes.append(f"only the first {KINDS_MAX} kinds of operation are listed")
    kinds = tuple(
        _kind(name, lines, lines.kind == code, latency)
        for code, name in sorted(enumerate(lines.kind_names), key=lambda item: item[1])[:KINDS_MAX]
        if bool(np.any(lines.kind == code))
    )
    bands = _bands(facts, lines.end_ns)
    if len(bands) > FAULTS_MAX:
        notes.append(f"only the first {FAULTS_MAX} of {len(bands)} faults are listed")
    if lines.end_ns >= SECONDS_MAX * _NS_PER_S:
        notes.append(f"availability is counted for the first {SECONDS_MAX} s")
    return RunNumbers(
        lines=lines.lines,
        end_ns=lines.end_ns,
        total=_kind("all", lines, np.ones(len(ok), dtype=bool), latency),
        kinds=kinds,
        chaos_ns=chaos,
        rate_window_ns=window,
        ok_per_s=int(inside.sum()) / length_s if length_s > 0 else None,
        p99_ns=next(iter(_quantiles(latency[inside], (0.99,))), None),
        seconds=tuple(_seconds(lines)),
        faults=tuple(bands[:FAULTS_MAX]),
        notes=tuple(notes),
    )


def _kind(name: str, lines: _Lines, chosen: np.ndarray[Any, Any], latency: Any) -> KindNumbers:
    done, failed, unknown, still = (
        int((chosen & (lines.type == code)).sum()) for code in range(len(TYPES))
    )
    ok = latency[chosen & (lines.type == TYPES.index("ok"))]
    return KindNumbers(name, done, failed, unknown, still, tuple(_quantiles(ok, QUANTILES)))


def _quantiles(values: Any, shares: Iterable[float]) -> Iterator[int]:
    """Nearest rank: the `ceil(share * n)`-th smallest."""
    import numpy as np

    if not len(values):
        return
    ordered = np.sort(values)
    for share in shares:
        # Of whole numbers: 0.99 * 100 is a little more than 99.
        rank = -(-round(share * 1000) * len(ordered) // 1000)
        yield int(ordered[max(rank, 1) - 1])


def _seconds(lines: _Lines) -> Iterator[tuple[int, int, int]]:
    import numpy as np

    closed = lines.type != TYPES.index(OPEN)
    second = lines.finish[closed] // _NS_PER_S
    kind = lines.type[closed]
    count = max(min(lines.end_ns // _NS_PER_S + 1, SECONDS_MAX), 0)
    columns = [
        np.bincount(second[(kind == code) & (second >= 0) & (second < count)], minlength=count)
        for code in range(3)
    ]
    for row in zip(*columns, strict=True):
        yield int(row[0]), int(row[1]), int(row[2])


def _chaos(facts: list[tuple[int, int, str, Any]], end_ns: int) -> tuple[int, int] | None:
    """From the phase called chaos to the one after it."""
    begin: int | None = None
    for time, process, _, value in facts:
        if process != _HARNESS:
            continue
        name = value.get("phase") if isinstance(value, dict) else None
        if begin is not None:
            return begin, max(begin, time)
        if name == "chaos":
            begin = time
    return None if begin is None else (begin, max(begin, end_ns))


def _bands(facts: list[tuple[int, int, str, Any]], end_ns: int) -> list[FaultBand]:
    ops = [
        Op(number, time, NEMESIS, OpType.INFO, f, value)
        for number, (time, process, f, value) in enumerate(facts)
        if process == _NEMESIS
    ]
    bands = [
        FaultBand(
            fault.nemesis,
            ", ".join(fault.targets[:10])[:200],
            fault.start,
            max(fault.start, end_ns if fault.end is None else fault.end),
        )
        for fault in faults_of(ops, most=None)
        if fault.targets
    ]
    return sorted(bands, key=lambda band: (band.start_ns, band.end_ns))
