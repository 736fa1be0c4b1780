"""Stores transactions as columns, the common representation for all inference.

A Python object for each of ten million transactions would take too much memory, so everything is in
numpy arrays. Keys and values of any type become small integers. Three choices matter:

* **Real time is two numbers per transaction.** The history is cut at each invocation that follows
  an `ok` completion, and the pieces are called *runs*. A transaction that completes in run `end`
  precedes a transaction that is invoked in run `start` if and only if `end < start`.
* **Numbering is canonical.** Transactions are numbered by (start, end, process). Swapping lines
  without changing real time, or renaming keys and values, changes no result.
* **Reads share memory.** A read whose list is a prefix of an earlier read of the same key is a
  slice of that earlier list.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from checkers.elle.recorded import mops_of
from checkers.elle.search.kernels import expand
from harness.errors import HistoryError, shown
from harness.ops import History, OpType

OK: Final = 0
INFO: Final = 1
FAIL: Final = 2
NIL: Final = -1
"""The value of a read that returned nothing, or whose answer was lost."""
LIST: Final = -2
"""The value of a read that returned a list, which may be empty."""
NEVER: Final = 2**31 - 1
"""The end of a transaction that failed or whose answer was lost. Such a transaction precedes no
other.
"""

_PLAIN: Final = frozenset({int, str, type(None)})
"""Types whose equal values are the same data. Only lists of such elements share memory."""

_TYPES: Final = {OpType.OK: OK, OpType.INFO: INFO, OpType.FAIL: FAIL}

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction, for callers without a `History`.

    `value` has micro-operations `[f, key, value]`. `call` and `end` are positions or times on one
    clock. At equal times, a call comes before an end. `end` is `None` if there was no answer.
    """

    value: Sequence[Sequence[Any]]
    call: int
    end: int | None
    type: OpType = OpType.OK
    process: int = 0


@dataclass(slots=True)
class Columns:
    """A history as columns, with one array per property of transactions or micro-operations.

    `offset` has the first micro-operation of each transaction. `start` and `end` are runs. `index`
    is the index of the transaction's invocation in the history, the only number that users see.
    `value` is the value that a micro-operation wrote to a register or read from it. `list_start`
    and `list_length` give the slice of `pool` with the list that a read returned.
    """

    writes_are: str
    type: ByteArray
    process: IntArray
    start: IntArray
    end: IntArray
    index: LongArray
    offset: LongArray
    txn: IntArray
    write: npt.NDArray[np.bool_]
    key: IntArray
    value: IntArray
    list_start: LongArray
    list_length: IntArray
    pool: IntArray
    keys: list[Any] = field(repr=False)
    values: list[Any] = field(repr=False)
    answered: npt.NDArray[np.bool_] = field(repr=False)

    def __len__(self) -> int:
        return len(self.type)

    @property
    def nbytes(self) -> int:
        """The size of all arrays in bytes, without the names of keys and values."""
        every = (getattr(self, item.name) for item in fields(self))
        return sum(array.nbytes for array in every if isinstance(array, np.ndarray))

    def read_list(self, mop: int) -> IntArray:
        start = int(self.list_start[mop])
        return self.pool[start : start + int(self.list_length[mop])]

    def mops(self, txn: int) -> range:
        return range(int(self.offset[txn]), int(self.offset[txn + 1]))

    def by_key(self, mops: LongArray) -> tuple[LongArray, LongArray]:
        """Return `mops` sorted by transaction and key, and a group number for each of `mops`.

        Micro-operations of the same transaction and key form a group and keep their order.
        """
        group = self.txn[mops].astype(np.int64) * len(self.keys) + self.key[mops]
        order = np.argsort(group, kind="stable")
        return mops[order], group[order]

    def render_value(self, value: int) -> str:
        return "nil" if value == NIL else render(self.values[value])

    def render_key(self, key: int) -> str:
        return render(self.keys[key])

    def render_mop(self, mop: int) -> str:
        """Return one micro-operation as text, such as `append x 3` or `r x [1 2]`."""
        key = self.render_key(int(self.key[mop]))
        if self.write[mop]:
            return f"{self.writes_are} {key} {self.render_value(int(self.value[mop]))}"
        if self.writes_are == "w":
            return f"r {key} {self.render_value(int(self.value[mop]))}"
        return f"r {key} {self.render_list(self.read_list(mop))}"

    def render_list(self, elements: Iterable[int], *, most: int = 12) -> str:
        """Return a list of values as text. A long list is shortened to its beginning and end."""
        items = [self.render_value(int(element)) for element in elements]
        if len(items) > most:
            half = most // 2
            items = [*items[:half], f"... {len(items) - most} more ...", *items[-half:]]
        return f"[{' '.join(items)}]"

    def render_txn(self, txn: int, *, most: int = 12) -> str:
        """Return a transaction as text. Reads without a known answer show `?`."""
        parts = []
        answered = self.type[txn] == OK
        for mop in self.mops(txn):
            if not self.write[mop] and not answered:
                parts.append(f"r {self.render_key(int(self.key[mop]))} ?")
            else:
                parts.append(self.render_mop(mop))
        if len(parts) > most:
            parts = [*parts[:most], f"... {len(parts) - most} more"]
        return "; ".join(parts) or "nothing"


def render(value: Any) -> str:
    """Return a key or value as plain text."""
    return value if isinstance(value, str) else str(value)


def _frozen(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return ("list", *(_frozen(item) for item in value))
    if isinstance(value, dict):
        pairs = sorted((repr(_frozen(k)), _frozen(v)) for k, v in value.items())
        return ("map", *pairs)
    return (type(value).__name__, value)


def _whole(mop: Any) -> Any:
    """Complete a micro-operation without an answer: `[r key]` becomes `[r key nil]`."""
    if isinstance(mop, (list, tuple)) and len(mop) == 2 and mop[0] in ("r", ":r"):
        return (*mop, None)
    return mop


class _Names:
    def __init__(self) -> None:
        self.ids: dict[Any, int] = {}
        self.names: list[Any] = []

    def number(self, name: Any) -> int:
        kind = type(name)
        number = self.ids.get(name if kind is int or kind is str else _frozen(name))
        return self.add(name) if number is None else number

    def add(self, name: Any) -> int:
        kind = type(name)
        number = len(self.names)
        self.ids[name if kind is int or kind is str else _frozen(name)] = number
        self.names.append(name)
        return number


class _Builder:
    """Collects transactions in any order. `finish` numbers them and makes the columns."""

    def __init__(self, writes_are: str) -> None:
        self.writes_are = writes_are
        self.types = array("b")
        self.processes = array("i")
        self.calls = array("q")
        self.ends = array("q")
        self.call_indices = array("q")
        self.indices = array("q")
        self.counts = array("i")
        self.answered = array("b")
        self.writes = array("b")
        self.mop_keys = array("i")
        self.mop_values = array("i")
        self.list_starts = array("q")
        self.list_lengths = array("i")
        self.keys = _Names()
        self.values = _Names()
        self.longest: list[list[Any]] = []
        self.strays: list[list[Any]] = []
        self.stray_elements = 0
        self.process_names: dict[Any, int] = {}

    def add(
        self,
        mops: Any,
        kind: int,
        process: Any,
        call: int,
        end: int | None,
        index: int,
    ) -> None:
        """Add one transaction; raise `HistoryError` if `mops` is not a list of micro-operations."""
        if not isinstance(mops, (list, tuple)):
            raise HistoryError(
                f"op {index} has the value {shown(mops)}; a transaction is a list of "
                "[f, key, value]"
            )
        self.types.append(kind)
        self.processes.append(self.process_names.setdefault(process, len(self.process_names)))
        self.calls.append(call)
        self.ends.append(-1 if end is None else end)
        self.answered.append(end is not None)
        self.indices.append(index)
        self.counts.append(len(mops))
        for mop in mops:
            self._add_mop(mop, kind, index)

    def _add_mop(self, mop: Any, kind: int, index: int) -> None:
        try:
            f, key, value = mop if kind == OK else _whole(mop)
        except (TypeError, ValueError):
            raise HistoryError(
                f"op {index} holds the micro-operation {mop!r}; it must be [f, key, value]"
            ) from None
        number = self.keys.number(key)
        if number == len(self.longest):
            self.longest.append([])
        self.mop_keys.append(number)
        if f in {"r", ":r"}:
            self.writes.append(0)
            self._add_read(number, value, kind, index)
            return
        if f not in {self.writes_are, f":{self.writes_are}"}:
            raise HistoryError(
                f"op {index} holds the micro-operation {mop!r}; this check knows only 'r' and "
                f"{self.writes_are!r}"
            )
        if value is None:
            raise HistoryError(
                f"op {index} writes nil to {key!r}; nil is the value of a key never written, so "
                "write something else"
            )
        self.writes.append(1)
        self.mop_values.append(self.values.number(value))
        self.list_starts.append(0)
        self.list_lengths.append(0)

    def _add_read(self, key: int, value: Any, kind: int, index: int) -> None:
        if self.writes_are == "w":
            answered = value is not None and kind == OK
            self.mop_values.append(self.values.number(value) if answered else NIL)
            self.list_starts.append(0)
            self.list_lengths.append(0)
            return
        self.mop_values.append(NIL if value is None else LIST)
        if value is None or kind != OK:
            value = []
        elif isinstance(value, tuple):
            value = list(value)
        elif not isinstance(value, list):
            raise HistoryError(
                f"op {index} reads {shown(value)} from {self.keys.names[key]!r}; a read returns a "
                "list of the appended elements, in order (not a set)"
            )
        length = len(value)
        longest = self.longest[key]
        size = len(longest)
        self.list_lengths.append(length)
        # `True` and 1.0 equal 1 in Python but are different data.
        plain = _PLAIN.issuperset(map(type, value))
        # A negative `start` refers to the longest list of the key -start - 1, which `finish` stores
        # last.
        if plain and length <= size and longest[:length] == value:
            self.list_starts.append(-key - 1)
        elif plain and length > size and value[:size] == longest:
            self.longest[key] = value
            self.list_starts.append(-key - 1)
        else:
            self.list_starts.append(self.stray_elements)
            self.strays.append(value)
            self.stray_elements += length

    def _ranked(self) -> IntArray:
        """Return the rank of each process in the sorted order of names.

        The ranks do not depend on the order in which the processes appear in the history.
        """
        names = sorted(self.process_names, key=lambda name: (type(name).__name__, name))
        ranked = np.zeros(len(names), np.int32)
        for place, name in enumerate(names):
            ranked[self.process_names[name]] = place
        return ranked

    def finish(self) -> Columns:
        number = self.values.number
        pool = array("i")
        for value in self.strays:
            pool.extend([number(item) for item in value])
        placed = np.zeros(len(self.longest), np.int64)
        for key, value in enumerate(self.longest):
            placed[key] = len(pool)
            pool.extend([number(item) for item in value])
        starts = np.array(self.list_starts, np.int64)
        shared = starts < 0
        starts[shared] = placed[-starts[shared] - 1]
        counts = np.array(self.counts, np.int32)
        types = np.array(self.types, np.int8)
        start, end = runs(
            np.array(self.calls, np.int64), np.array(self.ends, np.int64), types == OK
        )
        processes = self._ranked()[np.array(self.processes, np.int32)]
        order = np.lexsort((processes, end, start))
        offset = np.zeros(len(types) + 1, np.int64)
        np.cumsum(counts[order], out=offset[1:])
        first = np.cumsum(counts, dtype=np.int64) - counts
        mops = expand(first[order], counts[order])
        return Columns(
            writes_are=self.writes_are,
            type=types[order],
            process=processes[order],
            start=start[order],
            end=end[order],
            index=np.array(self.indices, np.int64)[order],
            offset=offset,
            txn=np.repeat(np.arange(len(types), dtype=np.int32), counts[order]),
            write=np.array(self.writes, np.int8)[mops] != 0,
            key=np.array(self.mop_keys, np.int32)[mops],
            value=np.array(self.mop_values, np.int32)[mops],
            list_start=starts[mops],
            list_length=np.array(self.list_lengths, np.int32)[mops],
            pool=np.array(pool, np.int32),
            keys=self.keys.names,
            values=self.values.names,
            answered=np.array(self.answered, np.int8)[order] != 0,
        )


def runs(calls: LongArray, ends: LongArray, ok: npt.NDArray[np.bool_]) -> tuple[IntArray, IntArray]:
    """Return the runs in which each transaction starts and ends.

    The end is `NEVER` if the transaction is not ok.
    """
    # At equal times calls come first, so a completion precedes only calls at later times.
    completions = np.sort(ends[ok])
    passed = np.searchsorted(completions, calls, side="left")
    distinct, start = np.unique(passed, return_inverse=True)
    end = np.full(len(calls), NEVER, np.int32)
    # A completion belongs to the last run that starts before it or at the same time.
    before = np.searchsorted(completions, ends[ok], side="left")
    end[ok] = np.searchsorted(distinct, before, side="right") - 1
    return start.astype(np.int32), end


def columns_of(source: History | Columns | Iterable[Transaction], *, writes_are: str) -> Columns:
    """Convert a history or transactions to columns; `writes_are` is "append" or "w".

    Columns are returned unchanged. Every operation of a history counts as a transaction; its `f`
    does not matter. Raises `HistoryError` if a value is not a list of micro-operations.
    """
    if isinstance(source, Columns):
        assert source.writes_are == writes_are, f"columns of {source.writes_are!r} transactions"
        return source
    builder = _Builder(writes_are)
    if not isinstance(source, History):
        for position, txn in enumerate(source):
            builder.add(txn.value, _TYPES[txn.type], txn.process, txn.call, txn.end, position)
        return builder.finish()
    for pair in source.pairs:
        call, done = pair.invoke, pair.completion
        builder.add(
            mops_of(pair),
            _TYPES[pair.type],
            call.process,
            call.index,
            None if done is None else done.index,
            call.index,
        )
    return builder.finish()
