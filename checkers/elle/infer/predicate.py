"""Infers which versions predicate reads selected, if all keys are known (a closed universe).

A predicate read selects one version of *every* key and shows the versions that match. If it does
not show a key, the selected version of this key does not match. If only one version of the key does
not match, the read selected this version.

**Versions.** The versions of a key are its initial value and the last value that each transaction
wrote to the key. Failed transactions do not count. After a delete, a key has no value.

**Version orders.** The initial version of a key comes first. The order of several writes of a key
is unknown, so there is never a `ww` edge. (The original Elle orders writes by their place in the
history, which is right only if each key is written once.)

**Edges.** `wr`, `wrp`: the writer of the selected version comes before the reader. `rw`: a reader
of the initial version comes before all writers of the key. `rwp`: a predicate read of the initial
version comes before all writers whose version changes its result. No operation writes by a
predicate, so there is no `wwp`.

The inference assumes that reads return committed data, without G1a and G1b. If a read breaks this
assumption, an inferred cycle may be wrong. But every model that forbids such a cycle also forbids
G1a and G1b, so the refuted models are right.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from checkers.elle.findings import Case, Finding, Inference, Reason, Refused
from checkers.elle.infer.columns import FAIL, OK, render
from checkers.elle.infer.predicate_columns import Access, Predicate, PredicateColumns, identity
from checkers.elle.search.graph import RW, RWP, WR, WRP, WW, GraphBuilder

EDGES_MAX: Final = 2_000_000
SELECTIONS_MAX: Final = 20_000_000

CASES_MAX: Final = 16
INITIAL: Final = -1


@dataclass(frozen=True, slots=True)
class _Version:
    """A version of a key, with its value (`None` if the key is absent) and its writer.

    `final` is set if the writer did not write the key again later.
    """

    value: Any
    txn: int
    final: bool = True

    def told(self) -> str:
        return "absent" if self.value is None else render(self.value)


@dataclass(slots=True)
class _Unseen:
    """The versions of a key that a predicate read may have selected without showing the key.

    `committed` are the versions that a correct store may select. `others` are versions of failed
    transactions, and versions that their own transaction overwrote.
    """

    key: int
    committed: list[_Version]
    others: list[_Version]


def infer_predicates(columns: PredicateColumns) -> Inference:
    """Infer dependencies, and the anomalies that are not cycles, from predicate reads.

    Raises `Refused` if one value was written to a key twice, or if the history is too large.
    """
    index = _Index(columns)
    for txn in np.flatnonzero(columns.type == OK).tolist():
        _Reads(index, txn).all()
    index.lost_updates()
    builder = GraphBuilder(columns)
    for relation in (WR, WRP, RW, RWP):
        pairs = [(a, b) for a, b, kind in index.edges if kind == relation]
        source, target = np.array(pairs, np.int32).reshape(-1, 2).T
        builder.add(source, target, relation)
    inference = Inference(builder, {}, _Explainer(index).explain, (WW, WR, WRP, RW, RWP))
    for name, cases in index.cases.items():
        inference.findings[name] = Finding(index.counts[name], cases.__getitem__)
    return inference


class _Index:
    """The versions of all keys, with the edges and anomalies found so far."""

    def __init__(self, columns: PredicateColumns) -> None:
        self.columns = columns
        self.initial = [_Version(value, INITIAL) for value in columns.initial]
        self.written: list[dict[tuple[str, Any], _Version]] = [{} for _ in columns.keys]
        self.committed: list[list[_Version]] = [[version] for version in self.initial]
        self.others: list[list[_Version]] = [[] for _ in columns.keys]
        self.edges: dict[tuple[int, int, int], tuple[Access, int, _Version]] = {}
        self.cases: dict[str, list[Case]] = {}
        self.counts: dict[str, int] = {}
        self.updates: dict[tuple[int, int], list[int]] = {}
        self.selections = 0
        self._unseen: dict[Predicate, list[_Unseen]] = {}
        self._changed: dict[tuple[Predicate | None, int], list[_Version]] = {}
        for key, version in enumerate(self.initial):
            if version.value is not None:
                self.written[key][identity(version.value)] = version
        for txn, body in enumerate(columns.bodies):
            self._take(txn, body)

    def _take(self, txn: int, body: tuple[Access, ...]) -> None:
        last = {access.key: place for place, access in enumerate(body) if access.writes}
        for place, access in enumerate(body):
            if not access.writes:
                continue
            version = _Version(access.value, txn, last[access.key] == place)
            if access.value is not None:
                self._unique(access, version)
            happened = version.final and self.columns.type[txn] != FAIL
            (self.committed if happened else self.others)[access.key].append(version)

    def _unique(self, access: Access, version: _Version) -> None:
        before = self.written[access.key].setdefault(identity(access.value), version)
        if before is version:
            return
        who = "in the universe" if before.txn < 0 else f"by op {self.op(before.txn)}"
        raise Refused(
            f"{version.told()} is written to key {self.columns.render_key(access.key)} twice, "
            f"{who} and by op {self.op(version.txn)}; writes must be unique per key, or reads do "
            "not tell who wrote"
        )

    def op(self, txn: int) -> int:
        return int(self.columns.index[txn])

    def failed(self, version: _Version) -> bool:
        return version.txn >= 0 and bool(self.columns.type[version.txn] == FAIL)

    def unseen(self, predicate: Predicate) -> list[_Unseen]:
        """Return the versions that a read by `predicate` may have selected without showing the key.

        Keys with more than two such versions lead to no finding and are left out.
        """
        candidates = self._unseen.get(predicate)
        if candidates is None:
            candidates = []
            for key, versions in enumerate(self.committed):
                self.spend(len(versions))
                fits = [version for version in versions if not predicate.matches(version.value)]
                # Keep two candidates, too: if one of them is the reader's own version, the read
                # selected the other one.
                constant = len(versions) == 1 and not self.others[key]
                if not fits or (len(fits) <= 2 and not constant):
                    others = [v for v in self.others[key] if not predicate.matches(v.value)]
                    candidates.append(_Unseen(key, fits, others))
            self._unseen[predicate] = candidates
        return candidates

    def changed(self, predicate: Predicate | None, key: int) -> list[_Version]:
        """Return the versions of `key` that change the result of a read of the initial version.

        `predicate` is `None` for a read by key, whose result every later version changes.
        """
        versions = self._changed.get((predicate, key))
        if versions is None:
            versions = [
                version
                for version in self.committed[key][1:]
                if predicate is None
                or predicate.matches(version.value) != predicate.matches(self.initial[key].value)
            ]
            self._changed[predicate, key] = versions
        return versions

    def spend(self, selections: int) -> None:
        self.selections += selections
        if self.selections > SELECTIONS_MAX or len(self.edges) > EDGES_MAX:
            raise Refused(
                f"predicate reads cover more than {SELECTIONS_MAX} versions, or there are more "
                f"than {EDGES_MAX} dependencies; check a shorter history, or one with fewer keys"
            )

    def record(self, name: str, txns: Iterable[int], key: int, text: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1
        cases = self.cases.setdefault(name, [])
        if len(cases) < CASES_MAX:
            operations = tuple(self.op(txn) for txn in txns)
            cases.append(Case(name, (text,), operations, {"key": self.columns.render_key(key)}))

    def lost_updates(self) -> None:
        for (key, source), txns in sorted(self.updates.items()):
            if len(txns) > 1:
                name = self.columns.render_key(key)
                seen = "the initial version" if source < 0 else f"op {self.op(source)}'s version"
                ops = ", ".join(str(self.op(txn)) for txn in txns[:CASES_MAX])
                self.record(
                    "lost-update", txns[:CASES_MAX], key,
                    f"Ops {ops} all read {seen} of key {name} and then wrote {name}.",
                )  # fmt: skip


class _Reads:
    def __init__(self, index: _Index, txn: int) -> None:
        self.index = index
        self.txn = txn
        self.own: dict[int, Access] = {}
        self.read: dict[int, Any] = {}
        self.sources: dict[int, int] = {}

    def all(self) -> None:
        for access in self.index.columns.bodies[self.txn]:
            if access.writes:
                source = self.sources.pop(access.key, None)
                if source is not None:
                    self.index.updates.setdefault((access.key, source), []).append(self.txn)
                self.own[access.key] = access
            elif access.predicate is None:
                self._item(access)
            else:
                self._predicate(access, access.predicate)

    def _told(self, access: Access) -> str:
        return f"Op {self.index.op(self.txn)} did {self.index.columns.render_access(access)}"

    def _internal(self, access: Access, key: int, before: str) -> None:
        text = f"{self._told(access)}, but before, in the same transaction, it did {before}."
        self.index.record("internal", (self.txn,), key, text)

    def _item(self, access: Access) -> None:
        key, value = access.key, access.value
        if key in self.own:
            if identity(self.own[key].value) != identity(value):
                self._internal(access, key, self.index.columns.render_access(self.own[key]))
            return
        if key in self.read:
            if identity(self.read[key]) != identity(value):
                earlier = Access("r", key, self.read[key])
                self._internal(access, key, self.index.columns.render_access(earlier))
            return
        self.read[key] = value
        if value is not None:
            self._seen(access, key, value)
            return
        committed = [v for v in self.index.committed[key] if v.value is None]
        others = [v for v in self.index.others[key] if v.value is None]
        if not self._resolve(access, key, committed, others):
            name = self.index.columns.render_key(key)
            text = f"{self._told(access)}, but key {name} existed and was never deleted."
            self.index.record("garbage-read", (self.txn,), key, text)

    def _predicate(self, access: Access, predicate: Predicate) -> None:
        index = self.index
        for key, value in access.shown.items():
            name = index.columns.render_key(key)
            if not predicate.matches(value):
                text = (
                    f"{self._told(access)}, but the value that it shows for key {name} does "
                    "not match."
                )
                index.record("predicate-read-miss", (self.txn,), key, text)
            elif key not in self.own:
                self._seen(access, key, value)
        for key, values in self.own.items():
            seen = access.shown.get(key)
            expected = values.value if predicate.matches(values.value) else None
            if identity(seen) != identity(expected):
                self._internal(access, key, index.columns.render_access(values))
        unseen = index.unseen(predicate)
        index.spend(len(unseen))
        for choice in unseen:
            key = choice.key
            if key in access.shown or key in self.own:
                continue
            if not self._resolve(access, key, choice.committed, choice.others):
                name = index.columns.render_key(key)
                every = ", ".join(v.told() for v in index.committed[key][:CASES_MAX])
                text = (
                    f"{self._told(access)}, which does not show key {name}, but every version that "
                    f"{name} can have had then matches: {every}."
                )
                index.record("predicate-read-miss", (self.txn,), key, text)

    def _seen(self, access: Access, key: int, value: Any) -> None:
        version = self.index.written[key].get(identity(value))
        if version is None:
            name = self.index.columns.render_key(key)
            text = f"{self._told(access)}, but {render(value)} was never written to key {name}."
            self.index.record("garbage-read", (self.txn,), key, text)
        elif version.txn == self.txn:
            text = f"{self._told(access)}, but wrote {render(value)} only later."
            self.index.record("future-read", (self.txn,), key, text)
        elif self.index.failed(version) or not version.final:
            self._dirty(access, key, version)
        else:
            self._selected(access, key, version)

    def _resolve(
        self, access: Access, key: int, committed: list[_Version], others: list[_Version]
    ) -> bool:
        """Infer the version of `key` that a read selected without showing the key.

        `committed` and `others` are the candidates. Returns `False` if no candidate is possible.
        """
        if len(committed) > 2:
            return True
        # The read precedes the transaction's own write, so it cannot select the version of this
        # write.
        foreign = [version for version in committed if version.txn != self.txn]
        if len(foreign) == 1:
            self._selected(access, key, foreign[0])
        if foreign:
            return True
        dirty = [version for version in others if version.txn != self.txn]
        if not dirty:
            return False
        self._dirty(access, key, next((v for v in dirty if not self.index.failed(v)), dirty[0]))
        return True

    def _dirty(self, access: Access, key: int, version: _Version) -> None:
        name, op = self.index.columns.render_key(key), self.index.op(version.txn)
        if self.index.failed(version):
            kind, how = "G1a", f"as op {op} left it ({version.told()}), which failed"
        else:
            how = f"as it was ({version.told()}) in the middle of op {op}, which wrote {name} again"
            kind = "G1b"
        text = f"{self._told(access)}, and so saw key {name} {how}."
        self.index.record(kind, (self.txn, version.txn), key, text)

    def _selected(self, access: Access, key: int, version: _Version) -> None:
        """Add the edges for a read whose selected version of a key is known."""
        index, by = self.index, access.predicate
        if by is None:
            self.sources[key] = version.txn
        if version.txn != INITIAL:
            edge = (version.txn, self.txn, WR if by is None else WRP)
            index.edges.setdefault(edge, (access, key, version))
            return
        # If the read shows the key, any other version changes the result, matching or not.
        changed = index.changed(None if key in access.shown else by, key)
        index.spend(len(changed))
        for other in changed:
            if other.txn != self.txn:
                edge = (self.txn, other.txn, RW if by is None else RWP)
                index.edges.setdefault(edge, (access, key, other))


class _Explainer:
    def __init__(self, index: _Index) -> None:
        self._index = index

    def explain(self, source: int, target: int, relation: int) -> Reason:
        access, key, version = self._index.edges[source, target, relation]
        columns = self._index.columns
        name, version_text = columns.render_key(key), version.told()
        initial = self._index.initial[key].told()
        # Escape braces in names and values, so that only the template's own placeholders are
        # filled.
        read = columns.render_access(access).replace("{", "{{").replace("}", "}}")
        if relation == WR:
            text = "{target} read key {key} as {source} left it: {value}"
            return Reason("wr", text, name, version_text)
        if relation == RW:
            text = (
                "{source} read key {key} as it was at first, {value}; {target} made it {next_value}"
            )
            return Reason("rw", text, name, initial, version_text)
        if relation == WRP:
            text = (
                f"{{target}}'s predicate read {read} selected key {{key}} as {{source}} left it: "
                "{value}"
            )
            return Reason("wrp", text, name, version_text)
        text = (
            f"{{source}}'s predicate read {read} selected key {{key}} as it was at first, "
            "{value}; {target} made it {next_value}, which changes what that read shows"
        )
        return Reason("rwp", text, name, initial, version_text)
