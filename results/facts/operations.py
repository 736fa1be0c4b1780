"""The client operations of a run as columns, which take about fifty bytes per operation.

An `Op` object takes two thousand bytes. `of_history` reads a history. `of_rows` reads a run's rows
in a lake, which needs a sixth of the memory. `of_table` reads a table of history lines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import HistoryError
from harness.ops import History, OpType, error_code
from harness.store.buckets import lat_buckets
from harness.vocabularies.kinds import kind_of
from results.facts.intervals import Flags, Ints

Codes = npt.NDArray[np.int32]

TYPES: Final = ("ok", "fail", "info")
_INVOKE: Final = len(TYPES)
_NEVER: Final = (1 << 63) - 1
_CODES: Final = {kind: number for number, kind in enumerate((*TYPES, "invoke"))}


@dataclasses.dataclass(frozen=True)
class Operations:
    """Columns with one row per operation. A name is stored as a list index; -1 means no name."""

    f: Codes
    start: Ints
    end: Ints  # undefined if the operation never completed
    end_index: Ints  # the line of the completion; `_NEVER` without a completion
    done: Flags
    type: Codes
    answered: Flags  # `ok`, or a definite failure that the target itself reported
    error: Codes
    node: Codes
    f_names: Sequence[str]
    errors: Sequence[str]
    nodes: Sequence[str]

    def __len__(self) -> int:
        return len(self.f)

    def latency_buckets(self) -> Codes:
        took = lat_buckets(np.where(self.done, self.end - self.start, 0))
        return np.where(self.done, took, -1).astype(np.int32)


@dataclasses.dataclass(frozen=True)
class Notes:
    """All history lines except client operations, and the length and end of the whole history."""

    history: History
    lines: int
    end_ns: int


def is_no(answer: Any) -> bool:
    """Whether the value of a failed operation proves that the target refused it."""
    if isinstance(answer, list | tuple) and len(answer) == 2:
        answer = answer[1]
    return isinstance(answer, dict) and "result" in answer


class _Names:
    """Numbers distinct strings in the order of first occurrence."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, name: str | None) -> int:
        return -1 if name is None else self._numbers.setdefault(name, len(self._numbers))

    def list(self) -> list[str]:
        return [*self._numbers]


def of_history(history: History) -> tuple[Operations, Notes]:
    """Split a whole history into its client operations and its notes (all other lines)."""
    fs, errors, nodes = _Names(), _Names(), _Names()
    rows: list[tuple[int, ...]] = []
    for pair in history.pairs:
        done, kind = pair.completion, pair.type
        error = None if done is None or done.error is None else error_code(done.error)
        answered = kind is OpType.OK or (
            kind is OpType.FAIL and done is not None and is_no(done.value)
        )
        rows.append(
            (
                fs.number(kind_of(pair.invoke)),
                pair.invoke.time,
                -1 if done is None else done.time,
                _NEVER if done is None else done.index,
                done is not None,
                _CODES[kind.value],
                answered,
                errors.number(error),
                -1 if done is None else nodes.number(done.node),
            )
        )
    columns = zip(*rows, strict=True) if rows else ((),) * 9
    long, short, flag = np.int64, np.int32, np.bool_
    dtypes: tuple[Any, ...] = (short, long, long, long, flag, short, flag, short, short)
    f, start, end, line, done_, kinds, answers, error_, node = (
        np.array(column, dtype) for column, dtype in zip(columns, dtypes, strict=True)
    )
    operations = Operations(
        f, start, end, line, done_, kinds, answers, error_, node, fs.list(), errors.list(),
        nodes.list(),
    )  # fmt: skip
    return operations, Notes(history, len(history), history[-1].time if len(history) else 0)


def counted(*columns: Any) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield each distinct row of some integer columns (values >= -1), and how often it occurs."""
    if not len(columns[0]):
        return
    cells = np.zeros(len(columns[0]), np.int64)
    size = 1
    for column in columns:
        width = int(column.max()) + 2
        if size * width >= 1 << 62:  # number only combinations that occur, to avoid overflow
            there, cells = np.unique(cells, return_inverse=True)
            size = len(there)
        cells = cells * width + (column.astype(np.int64) + 1)
        size *= width
    _, first, counts = np.unique(cells, return_index=True, return_counts=True)
    rows = zip(*(column[first].tolist() for column in columns), strict=True)
    yield from zip((tuple(map(int, row)) for row in rows), counts.tolist(), strict=True)


def inside(intervals: Iterable[tuple[int, int]], times: Ints) -> Flags:
    """Return, for each time, whether any of the half-open `intervals` contains it."""
    inside = np.zeros(len(times), np.bool_)
    for start, end in intervals:
        inside |= (start <= times) & (times < end)
    return inside


def of_rows(table: pa.Table) -> Operations:
    """Read the operations of a run from its rows in a lake's table `operations`, in any order."""
    names = fs, errors, nodes = (_Names(), _Names(), _Names())
    start, index = (table.column(name).to_numpy() for name in ("invoke_ns", "index"))
    done = table.column("latency_ns").is_valid().to_numpy()
    took, lines = (
        pc.fill_null(table.column(name), 0).to_numpy() for name in ("latency_ns", "lines")
    )
    return Operations(
        _coded(table.column("f"), fs.number),
        start,
        np.where(done, start + took, -1),
        np.where(done, index + lines, _NEVER),
        done,
        _coded(table.column("type"), _code),
        table.column("answered").to_numpy(),
        _coded(table.column("error"), lambda text: errors.number(error_code(text))),
        _coded(table.column("node"), nodes.number),
        *(coded.list() for coded in names),
    )


def of_table(what: str, table: pa.Table) -> Operations:
    """Read operations from the columns index, time, process, type and f of a history.

    The fields `answered`, `error` and `node` stay empty. Raises `HistoryError` for a malformed
    history. `what` names the history in the message.
    """
    if table.column("type").null_count or table.column("f").null_count:
        raise HistoryError(f"{what} has lines without a type or a kind")
    names = (_Names(), _Names(), _Names())
    table = table.filter(pa.array(np.asarray(table.column("process").to_numpy()) >= 0))
    lines: list[Any] = [*_begin_of_lines(table, names[0])]
    nothing = np.full(len(table), -1, np.int32)
    return _paired(what, [*lines, nothing > 0, nothing, nothing], names)


def _begin_of_lines(table: pa.Table, fs: _Names) -> Iterator[Any]:
    for name in ("index", "time", "process"):
        yield table.column(name).to_numpy()
    yield type_codes(table.column("type")).astype(np.int8)
    yield _coded(table.column("f"), fs.number)  # `txn r` counts as `txn`, since no values are read


def type_codes(column: pa.ChunkedArray) -> Codes:
    """Convert a column `type` to indexes into `TYPES`. An invocation becomes `len(TYPES)`."""
    return _coded(column, _code)


def _code(kind: str) -> int:
    if kind not in _CODES:
        raise HistoryError(f"a line has the type {kind!r}; the types are {', '.join(_CODES)}")
    return _CODES[kind]


def _coded(column: pa.ChunkedArray, number: Any) -> Codes:
    whole = column.combine_chunks().dictionary_encode()
    codes = np.array([int(number(text)) for text in whole.dictionary.to_pylist()] + [-1], np.int32)
    decoded: Codes = codes[whole.indices.fill_null(len(codes) - 1).to_numpy()]
    return decoded


def _paired(what: str, lines: list[Any], names: Iterable[_Names]) -> Operations:
    order = np.lexsort((lines[0], lines[2]))
    for number, column in enumerate(lines):
        lines[number] = column[order]
    del order, column
    index, time, process, kind, f, answered, error, node = lines
    begin, ends, done = turns(what, index, process, kind, process[1:] == process[:-1])
    return Operations(
        f[begin],
        time[begin],
        np.where(done, time[ends], -1),
        np.where(done, index[ends], _NEVER),
        done,
        np.where(done, kind[ends], _CODES["info"]).astype(np.int32),
        done & answered[ends],
        np.where(done, error[ends], -1).astype(np.int32),
        np.where(done, node[ends], -1).astype(np.int32),
        *(coded.list() for coded in names),
    )


def turns(
    what: str, index: Ints, process: Ints, kind: Any, same: Flags
) -> tuple[Ints, Ints, Flags]:
    """Pair invocations with completions; return the positions of both, and which are completed.

    The arguments are columns of client lines, sorted by process and index. `same` says, for each
    line except the first, whether the previous line has the same process. Raises `HistoryError` if
    invocations and completions of a process do not alternate.
    """
    invoked = kind == _INVOKE
    follows = np.zeros(len(kind), np.bool_)
    follows[1:] = same
    before = np.zeros(len(kind), np.bool_)
    before[1:] = invoked[:-1]
    retired = np.zeros(len(kind), np.bool_)
    retired[1:] = kind[:-1] == _CODES["info"]
    odd = np.where(invoked, follows & (before | retired), ~(follows & before))
    if odd.any():
        at = int(odd.argmax())
        raise HistoryError(
            f"{what}: op {index[at]}: process {process[at]} "
            + ("invokes while it is busy or retired" if invoked[at] else "completes nothing")
        )
    begin = np.flatnonzero(invoked)
    ends = np.minimum(begin + 1, max(0, len(kind) - 1))
    return begin, ends, follows[ends] & ~invoked[ends] & (ends > begin)
