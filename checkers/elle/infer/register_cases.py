"""Describes the dependencies and anomalies in transactions over registers."""

from __future__ import annotations

import numpy as np

from checkers.elle.findings import Case, Reason
from checkers.elle.infer.accesses import NOTHING, Accesses, Writers
from checkers.elle.infer.columns import Columns, IntArray
from checkers.elle.infer.versions import VersionOrder
from checkers.elle.search.graph import WR, WW

_SHOWN_MAX = 8


class RegisterExplainer:
    """Explains an edge between two transactions by the versions that they accessed."""

    def __init__(self, accesses: Accesses, order: VersionOrder) -> None:
        self._accesses = accesses
        self._order = order
        self._pairs: dict[int, str] | None = None

    def _rows(self, txn: int) -> range:
        low, high = np.searchsorted(self._accesses.txn, [txn, txn + 1])
        return range(int(low), int(high))

    def explain(self, source: int, target: int, relation: int) -> Reason:
        """Return why `source` precedes `target`, according to the first key that shows it."""
        accesses = self._accesses
        mine = {int(accesses.key[row]): row for row in self._rows(source)}
        columns = accesses.columns
        rank = {int(columns.key[mop]): -mop for mop in columns.mops(target)}
        rows = sorted(self._rows(target), key=lambda row: -rank[int(accesses.key[row])])
        for row in rows:
            other = mine.get(int(accesses.key[row]))
            if other is not None:
                reason = self._on_key(other, row, relation)
                if reason is not None:
                    return reason
        raise AssertionError(f"no reason for the edge {source} -> {target} by relation {relation}")

    def _on_key(self, source: int, target: int, relation: int) -> Reason | None:
        accesses = self._accesses
        key = accesses.columns.render_key(int(accesses.key[source]))
        if relation == WR:
            version = int(accesses.wrote[source])
            if version == NOTHING or version != int(accesses.read[target]):
                return None
            value = self._value(version)
            return Reason(
                "wr", "{target} read key {key} = {value}, which {source} wrote", key, value
            )
        before = int((accesses.wrote if relation == WW else accesses.read)[source])
        after = int(accesses.wrote[target])
        if NOTHING in {before, after}:
            return None
        why = self._precedes(before, after)
        if why is None:
            return None
        low, high = self._value(before), self._value(after)
        did = "wrote" if relation == WW else "read"
        text = (
            f"{{source}} {did} key {{key}} = {{value}}, and {{target}} wrote {{next_value}} to it, "
            f"which comes later ({why})"
        )
        return Reason("ww" if relation == WW else "rw", text, key, low, high)

    def _value(self, version: int) -> str:
        return self._accesses.columns.render_value(int(self._accesses.value[version]))

    def _precedes(self, before: int, after: int) -> str | None:
        accesses, order = self._accesses, self._order
        if before == after and "wfr-keys" not in dict(order.edges):
            return None
        if self._pairs is None:
            span = accesses.count
            self._pairs = {}
            for source, (lower, upper) in order.edges:
                for code in (lower * span + upper).tolist():
                    self._pairs.setdefault(code, source)
        name: str | None = self._pairs.get(before * accesses.count + after)
        time = order.time
        # Real time does not order a version before itself, even if its exit precedes its entry.
        timed = name is None and time is not None and before != after
        if timed and time is not None and time.exit[before] < time.entry[after]:
            name = "linearizable-keys"
        return None if name is None else _SOURCES[name]


_SOURCES = {
    "initial-state": "the initial version comes first",
    "transaction-order": "so transactions were committed",
    "wfr-keys": "a transaction read the first and then wrote the second",
    "sequential-keys": "a process accessed the first and later the second",
    "linearizable-keys": "a transaction with the first completed before a transaction with the "
    "second began",
}


class RegisterTexts:
    """Describes all anomalies except cycles of transactions, in transactions over registers."""

    def __init__(
        self, columns: Columns, writers: Writers, accesses: Accesses, order: VersionOrder
    ) -> None:
        self._columns = columns
        self._writers = writers
        self._accesses = accesses
        self._cycles = order.in_order() if order.cycles else []

    def _op(self, mop: int) -> int:
        return int(self._columns.index[self._columns.txn[mop]])

    def _read(self, mop: int) -> tuple[str, str, str]:
        key = self._columns.render_key(int(self._columns.key[mop]))
        value = self._columns.render_value(int(self._columns.value[mop]))
        return key, value, f"Op {self._op(mop)} read {value} from key {key}"

    def _writer(self, mop: int) -> int:
        columns = self._columns
        return int(self._writers.find(columns.key[mop : mop + 1], columns.value[mop : mop + 1])[0])

    def cyclic(self, number: int) -> Case:
        """Describe a cycle of versions of a key, and why each version precedes the next."""
        sources, members = self._cycles[number]
        accesses, columns = self._accesses, self._columns
        key = columns.render_key(int(accesses.key_of(members[:1])[0]))
        values = [columns.render_value(int(accesses.value[v])) for v in members[:_SHOWN_MAX]]
        more = "" if len(members) <= _SHOWN_MAX else f" and {len(members) - _SHOWN_MAX} more"
        text = (
            f"The versions {', '.join(values)}{more} of key {key} each come before the others, "
            f"if {' and '.join(sources)} hold; so the check made no further use of {sources[-1]}."
        )
        rows = np.isin(accesses.wrote, members) | np.isin(accesses.read, members)
        operations = columns.index[np.unique(accesses.txn[rows])[:_SHOWN_MAX]].tolist()
        details = {"key": key, "values": values, "sources": list(sources)}
        return Case("cyclic-versions", (text,), tuple(operations), details)

    def g1a(self, mop: int) -> Case:
        """Describe a read of a value that a failed transaction wrote."""
        key, value, read = self._read(mop)
        writer = self._op(self._writer(mop))
        text = f"{read}, which op {writer} wrote; but op {writer} failed."
        return Case("G1a", (text,), (self._op(mop), writer), {"key": key, "value": value})

    def g1b(self, mop: int) -> Case:
        """Describe a read of an intermediate value of another transaction."""
        key, value, read = self._read(mop)
        writer = self._op(self._writer(mop))
        text = (
            f"{read}; but op {writer}, which wrote it, wrote something else to key {key} later in "
            "the same transaction."
        )
        return Case("G1b", (text,), (self._op(mop), writer), {"key": key, "value": value})

    def garbage(self, mop: int) -> Case:
        """Describe a read of a value that was never written."""
        key, value, _ = self._read(mop)
        details = {"key": key, "value": value}
        return Case("garbage-read", (self.unwritten(mop),), (self._op(mop),), details)

    def unwritten(self, mop: int) -> str:
        """Return the sentence for a read of a value that no transaction wrote."""
        return f"{self._read(mop)[2]}, which no transaction wrote."

    def future(self, mop: int) -> Case:
        """Describe a read of a value that the same transaction wrote only later."""
        key, value, read = self._read(mop)
        text = f"{read} before it wrote {value} to it in the same transaction."
        return Case("future-read", (text,), (self._op(mop),), {"key": key, "value": value})

    def internal(self, mop: int) -> Case:
        key, _, read = self._read(mop)
        columns = self._columns
        earlier = [
            columns.render_mop(other)
            for other in columns.mops(int(columns.txn[mop]))
            if other < mop and columns.key[other] == columns.key[mop]
        ]
        text = f"{read}, but the same transaction's last access to it was: {earlier[-1]}."
        return Case("internal", (text,), (self._op(mop),), {"key": key})

    def lost_update(self, reads: IntArray) -> Case:
        """Describe several transactions that read the same version and each wrote the key."""
        key, value, _ = self._read(int(reads[0]))
        ops = tuple(self._op(int(mop)) for mop in reads)
        names = ", ".join(str(op) for op in ops[:_SHOWN_MAX])
        more = ", ..." if len(ops) > _SHOWN_MAX else ""
        text = (
            f"Ops {names}{more} each read {value} from key {key} and then wrote to it: at most "
            "one of them can have directly replaced the value that it read."
        )
        return Case("lost-update", (text,), ops, {"key": key, "value": value})
