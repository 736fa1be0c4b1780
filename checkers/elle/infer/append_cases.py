"""Describes the dependencies and anomalies in transactions over lists."""

from __future__ import annotations

import numpy as np

from checkers.elle.findings import Case, Reason
from checkers.elle.infer.append_index import AppendIndex
from checkers.elle.infer.columns import IntArray
from checkers.elle.search.graph import RW, WR, WW


class AppendExplainer:
    """Explains an edge between two transactions by the list elements that they accessed."""

    def __init__(self, index: AppendIndex) -> None:
        self._index = index
        self._columns = index.columns

    def explain(self, source: int, target: int, relation: int) -> Reason:
        """Return why `source` precedes `target`. The reason is the first access that shows it."""
        columns = self._columns
        for mop in columns.mops(target):
            if bool(columns.write[mop]) == (relation == WR):
                continue
            reason = (
                self._read(source, mop) if relation == WR else self._write(source, mop, relation)
            )
            if reason is not None:
                return reason
        raise AssertionError(f"no reason for the edge {source} -> {target} by relation {relation}")

    def _read(self, source: int, mop: int) -> Reason | None:
        columns = self._columns
        seen = columns.read_list(mop)
        if not len(seen):
            return None
        key = columns.key[mop : mop + 1]
        writer = int(self._index.writers.find(key, seen[-1:])[0])
        if writer < 0 or int(columns.txn[writer]) != source:
            return None
        name, value = columns.render_key(int(key[0])), columns.render_value(int(seen[-1]))
        return Reason("wr", "{target} read {source}'s append of {value} to key {key}", name, value)

    def _write(self, source: int, mop: int, relation: int) -> Reason | None:
        columns, index = self._columns, self._index
        key = int(columns.key[mop])
        name = columns.render_key(key)
        value = columns.render_value(int(columns.value[mop]))
        made = int(index.position[mop])
        replaced = made - 1 if made >= 0 else int(index.first[key + 1]) - 1
        element = int(index.element[replaced])
        before = None if element < 0 else columns.render_value(element)
        after = "" if made >= 0 else " (no read shows that append, so it comes last)"
        if relation == WW:
            writer = int(index.writer[replaced])
            if writer < 0 or int(columns.txn[writer]) != source:
                return None
            text = "{target} appended {next_value} to key {key} after {source} appended {value}"
            return Reason("ww", text + after, name, before, value)
        assert relation == RW
        if not self._ended_in(source, key, element):
            return None
        saw = "an empty list" if before is None else "only the elements up to {value}"
        text = (
            f"{{source}} read key {{key}} and saw {saw}, so it did not see {{target}}'s append of "
            "{next_value}"
        )
        return Reason("rw", text + after, name, before, value)

    def _ended_in(self, txn: int, key: int, element: int) -> bool:
        """Return whether a read of `key` by `txn` ends in `element` (-1 for an empty list)."""
        columns = self._columns
        for mop in columns.mops(txn):
            if not columns.write[mop] and int(columns.key[mop]) == key:
                seen = columns.read_list(mop)
                if (int(seen[-1]) if len(seen) else -1) == element:
                    return True
        return False


class AppendTexts:
    """Describes all anomalies except cycles, in transactions over lists."""

    def __init__(self, index: AppendIndex) -> None:
        self._index = index
        self._columns = index.columns

    def _op(self, mop: int) -> int:
        return int(self._columns.index[self._columns.txn[mop]])

    def _name(self, mop: int) -> str:
        return self._columns.render_key(int(self._columns.key[mop]))

    def _read(self, row: int) -> tuple[int, str, str]:
        mop = int(self._index.reads[row])
        seen = self._columns.render_list(self._columns.read_list(mop))
        return mop, self._name(mop), f"Op {self._op(mop)} read {seen} from key {self._name(mop)}"

    def _writers(self, mop: int) -> tuple[IntArray, IntArray]:
        seen = self._columns.read_list(mop)
        key = np.full(len(seen), self._columns.key[mop], np.int32)
        return seen, self._index.writers.find(key, seen)

    def g1a(self, row: int) -> Case:
        """Describe a read of an element that a failed transaction appended."""
        mop, key, read = self._read(row)
        columns = self._columns
        seen, writers = self._writers(mop)
        failed = [
            (int(v), int(w))
            for v, w in zip(seen, writers, strict=True)
            if w >= 0 and columns.type[columns.txn[w]] == 2
        ]
        value, writer = columns.render_value(failed[0][0]), failed[0][1]
        text = f"{read}, but {value} was appended by op {self._op(writer)}, which failed."
        return Case("G1a", (text,), (self._op(mop), self._op(writer)), {"key": key, "value": value})

    def g1b(self, row: int) -> Case:
        """Describe a read of an intermediate state of another transaction."""
        mop, key, read = self._read(row)
        seen, writers = self._writers(mop)
        value, writer = self._columns.render_value(int(seen[-1])), int(writers[-1])
        text = (
            f"{read}, which ends in {value}; but op {self._op(writer)}, which appended {value}, "
            f"appended more to key {key} in the same transaction."
        )
        return Case("G1b", (text,), (self._op(mop), self._op(writer)), {"key": key, "value": value})

    def garbage(self, row: int) -> Case:
        """Describe a read of an element that was never appended."""
        mop, key, read = self._read(row)
        seen, writers = self._writers(mop)
        value = self._columns.render_value(int(seen[np.flatnonzero(writers < 0)[0]]))
        text = f"{read}, but {value} was never appended to it."
        return Case("garbage-read", (text,), (self._op(mop),), {"key": key, "value": value})

    def duplicate(self, row: int) -> Case:
        """Describe a read of a list that contains an element twice."""
        mop, key, read = self._read(row)
        seen = self._columns.read_list(mop)
        _, first = np.unique(seen, return_index=True)
        twice = int(seen[np.setdiff1d(np.arange(len(seen)), first)[0]])
        value = self._columns.render_value(twice)
        text = f"{read}: {value} is in the list more than once, but was appended once."
        return Case("duplicate-elements", (text,), (self._op(mop),), {"key": key, "value": value})

    def incompatible(self, row: int) -> Case:
        """Describe two reads of a key that are not prefixes of each other."""
        mop, key, read = self._read(row)
        other = int(self._index.reads[self._index.longest[self._columns.key[mop]]])
        longest = self._columns.render_list(self._columns.read_list(other))
        text = (
            f"{read}; op {self._op(other)} read {longest} from it. Neither is a prefix of the "
            "other."
        )
        return Case("incompatible-order", (text,), (self._op(mop), self._op(other)), {"key": key})

    def dirty(self, version: int) -> Case:
        """Describe a committed append that follows an append of a failed transaction."""
        index, columns = self._index, self._columns
        before = version - 1
        while columns.type[columns.txn[index.writer[before]]] != 2 or index.writer[before] < 0:
            before -= 1
        failed, committed = int(index.writer[before]), int(index.writer[version])
        key = self._name(committed)
        low = columns.render_value(int(columns.value[failed]))
        high = columns.render_value(int(columns.value[committed]))
        text = (
            f"Op {self._op(committed)} appended {high} to key {key} on top of {low}, which op "
            f"{self._op(failed)} appended; but op {self._op(failed)} failed."
        )
        return Case(
            "dirty-update", (text,), (self._op(failed), self._op(committed)),
            {"key": key, "value": low, "next_value": high},
        )  # fmt: skip

    def internal(self, row: int) -> Case:
        mop, key, read = self._read(row)
        columns = self._columns
        earlier: list[str] = []
        for other in columns.mops(int(columns.txn[mop])):
            if other < mop and columns.key[other] == columns.key[mop]:
                if not columns.write[other]:
                    earlier.clear()
                earlier.append(columns.render_mop(other))
        text = (
            f"{read}, which contradicts what the same transaction did before: {'; '.join(earlier)}."
        )
        return Case("internal", (text,), (self._op(mop),), {"key": key})

    def future(self, mop: int) -> Case:
        """Describe a read of an element that the same transaction appended only later."""
        columns = self._columns
        key, value = self._name(mop), columns.render_value(int(columns.value[mop]))
        text = (
            f"Op {self._op(mop)} read {value} from key {key} before it appended {value} to it in "
            "the same transaction."
        )
        return Case("future-read", (text,), (self._op(mop),), {"key": key, "value": value})

    def lost_update(self, rows: IntArray) -> Case:
        """Describe several transactions that read the same list and each appended to it."""
        columns, index = self._columns, self._index
        first, key, _ = self._read(int(rows[0]))
        seen = columns.render_list(columns.read_list(first))
        ops = tuple(self._op(int(index.reads[row])) for row in rows)
        listed = ", ".join(str(op) for op in ops[:8]) + (", ..." if len(ops) > 8 else "")
        text = (
            f"Ops {listed} each read {seen} from key {key} and then appended to it: at most one "
            "of them can have appended directly to the list that it read."
        )
        return Case("lost-update", (text,), ops, {"key": key, "value": seen})
