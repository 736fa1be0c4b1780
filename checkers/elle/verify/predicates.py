"""Verifies the anomalies of histories with predicate reads, by deriving each one independently.

`docs/elle.md` defines versions. A read *selects* the version whose value it shows. If it shows
nothing for a key, it selected a version that does not match. If there is only one such version, the
read selected it. The reader's own write is never a candidate.

This module shares no code with `predicate` and `predicate_columns`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from checkers.elle.recorded import (
    CaseError,
    NotVerified,
    Txn,
    identity,
    require_cycle,
    require_operations,
    transactions,
)
from harness.ops import History

OF_DATA = ("wr", "wrp", "rw", "rwp")


@dataclass(frozen=True, slots=True)
class _Version:
    """A version of a key; the initial version has no writer.

    `last` is set if the writer did not write the key again later.
    """

    writer: Txn | None
    value: Any
    last: bool = True

    @property
    def failed(self) -> bool:
        return self.writer is not None and self.writer.type == "fail"

    @property
    def told(self) -> str:
        return "absent" if self.value is None else str(self.value)


@dataclass(frozen=True, slots=True)
class _Look:
    """One read of one key by an ok transaction that had not written the key before.

    `by` is the predicate, or `None` for a read of the key itself. `value` is `None` if the read
    showed nothing for the key. `wrote_later` has the values that the transaction writes to the key
    after the read.
    """

    by: Any
    value: Any
    wrote_later: tuple[Any, ...]


def declared(history: History) -> tuple[Mapping[Any, Any], Iterator[Txn]]:
    """Return the universe that `init` declares (empty without `init`), and the transactions."""
    operations = transactions(history)
    begins = [pair.invoke.f for pair in history.pairs[:1]]
    return next(operations).mops if begins == ["init"] else {}, operations


def _name(key: Any) -> str:
    return str(key).removeprefix(":")


def _matches(predicate: Any, value: Any) -> bool:
    form = list(predicate) if isinstance(predicate, (list, tuple)) else [predicate]
    kind = _name(form[0])
    if value is None:
        return False
    if kind == "=":
        return identity(value) == identity(form[1])
    return kind in ("true", "True") or bool(value % form[1] == form[2])


class PredicateVerifier:
    """Verifies reported cases of histories with predicate reads, from the transactions alone."""

    def __init__(
        self, txns: Iterable[Txn], cases: Collection[Any], universe: Mapping[Any, Any]
    ) -> None:
        keys = {case.details.get("key") for case in cases}
        keys |= {step.reason.key for case in cases for step in case.steps}
        wanted = {number for case in cases for number in case.operations}
        start = {_name(key): value for key, value in universe.items()}
        self.ops: dict[int, Txn] = {}
        self.versions: dict[str, list[_Version]] = {
            key: [_Version(None, start.get(key))] for key in keys - {None}
        }
        for txn in txns:
            if txn.index in wanted:
                self.ops[txn.index] = txn
            writes = [(_name(mop[1]), mop) for mop in txn.mops if _name(mop[0]) not in ("r", "rp")]
            for place, (key, mop) in enumerate(writes):
                if key in keys:
                    value = None if _name(mop[0]) == "delete" else mop[2]
                    last = key not in [other for other, _ in writes[place + 1 :]]
                    self.versions[key].append(_Version(txn, value, last))
        for key, versions in self.versions.items():
            held = [identity(version.value) for version in versions if version.value is not None]
            if len(set(held)) < len(held):
                raise CaseError(f"the same value is written to key {key} more than once")

    def verify(self, case: Any) -> None:
        """Raise `CaseError` if the history lacks the case, `NotVerified` if undecided."""
        require_operations(case, self.ops)
        if case.type not in _SINGLE:
            self._verify_cycle(case)
            return
        ops = [self.ops[number] for number in case.operations]
        try:
            holds = _SINGLE[case.type](self, ops, case.details["key"])
        except (KeyError, ValueError) as error:
            raise CaseError(f"{case.type}: the case lacks operations or data ({error})") from error
        if holds is None:
            raise NotVerified("several transactions may have made the shown version")
        if not holds:
            raise CaseError(f"{case.type}: ops {list(case.operations)} do not show this anomaly")

    def _verify_cycle(self, case: Any) -> None:
        require_cycle(case, OF_DATA)
        for step in case.steps:
            source, target = self.ops[step.source], self.ops[step.target]
            if not self._precedes(step.reason, source, target):
                raise CaseError(
                    f"{case.type}: nothing puts op {source.index} before op {target.index} "
                    f"({step.reason.relation})"
                )

    def _precedes(self, reason: Any, source: Txn, target: Txn) -> bool:
        """Return whether `source` precedes `target` for this reason.

        An `info` transaction may be the target, since the next step of the cycle shows its effect.
        """
        if "fail" in (source.type, target.type) or source is target:
            return False
        if reason.relation in ("process", "realtime"):
            same = reason.relation == "realtime" or source.process == target.process
            return same and source.end < target.call
        by_key = reason.relation in ("wr", "rw")
        if reason.relation in ("wr", "wrp"):
            return any(
                version.writer is source and version.told == reason.value
                for look in self.looks(target, reason.key, by_key=by_key)
                for version in self.selected(target, reason.key, look)
            )
        first, *others = self.versions[reason.key]
        made = [v for v in others if v.writer is target and v.last and v.told == reason.next_value]
        # This also proves that the target's version changes the result: if the read shows the key,
        # any later version does; if not, `selected` is empty unless all later versions match.
        return (first.told == reason.value and bool(made)) and any(
            self.selected(source, reason.key, look) == [first]
            for look in self.looks(source, reason.key, by_key=by_key)
        )

    def looks(self, txn: Txn, key: str, *, by_key: bool | None = None) -> list[_Look]:
        """Return the reads of `key` in `txn` before the transaction's own writes of `key`.

        `by_key` is true for reads by key, false for reads by a predicate, and `None` for both.
        """
        looks: list[_Look] = []
        later = [
            None if _name(mop[0]) == "delete" else mop[2]
            for mop in txn.mops
            if _name(mop[0]) not in ("r", "rp") and _name(mop[1]) == key
        ]
        for f, *rest in txn.mops if txn.type == "ok" else ():
            if _name(f) == "rp" and by_key is not True:
                values = {_name(name): value for name, value in rest[1].items()}
                looks.append(_Look(rest[0], values.get(key), tuple(later)))
            elif _name(f) == "r" and by_key is not False and _name(rest[0]) == key:
                looks.append(_Look(None, rest[1], tuple(later)))
            elif _name(f) not in ("r", "rp") and _name(rest[0]) == key:
                break
        return looks

    def selected(self, txn: Txn, key: str, look: _Look) -> list[_Version]:
        """Return the committed version that a read selected, or nothing if this is not certain."""
        versions = [v for v in self.candidates(txn, key, look) if v.last and not v.failed]
        return versions if len(versions) == 1 else []

    def candidates(self, txn: Txn, key: str, look: _Look) -> list[_Version]:
        others = [version for version in self.versions[key] if version.writer is not txn]
        if look.value is not None:
            return [v for v in others if identity(v.value) == identity(look.value)]
        if look.by is None:
            return [version for version in others if version.value is None]
        return [version for version in others if not _matches(look.by, version.value)]


def _aborted_read(raw: PredicateVerifier, ops: Any, key: str) -> bool | None:
    reader, writer = ops
    return _dirty(raw, reader, key, lambda v: v.writer is writer and v.failed)


def _intermediate_read(raw: PredicateVerifier, ops: Any, key: str) -> bool | None:
    reader, writer = ops
    return _dirty(raw, reader, key, lambda v: v.writer is writer and not v.failed)


def _dirty(
    raw: PredicateVerifier, reader: Txn, key: str, fits: Callable[[_Version], bool]
) -> bool | None:
    """Return whether a read must have selected an uncommitted version for which `fits` holds.

    Returns `None` if both a failed and an overwritten version are possible.
    """
    unsure = False
    for look in raw.looks(reader, key):
        versions = raw.candidates(reader, key, look)
        if not any(map(fits, versions)) or any(v.last and not v.failed for v in versions):
            continue
        if len({version.failed for version in versions}) == 1:
            return True
        unsure = True
    return None if unsure else False


def _garbage(raw: PredicateVerifier, ops: Any, key: str) -> bool:
    """Return whether a read shows a value never written, or misses a key that was never absent."""
    (reader,) = ops
    return any(
        not raw.candidates(reader, key, look)
        and identity(look.value) not in map(identity, look.wrote_later if look.value else ())
        for look in raw.looks(reader, key)
        if look.value is not None or look.by is None
    )


def _miss(raw: PredicateVerifier, ops: Any, key: str) -> bool:
    """Return whether a predicate read shows a wrong value or misses a key that always matched."""
    (reader,) = ops
    for f, *rest in reader.mops if reader.type == "ok" else ():
        if _name(f) == "rp":
            values = {_name(name): value for name, value in rest[1].items()}
            if key in values and not _matches(rest[0], values[key]):
                return True
    return any(
        look.value is None and not raw.candidates(reader, key, look)
        for look in raw.looks(reader, key, by_key=False)
    )


def _future_read(raw: PredicateVerifier, ops: Any, key: str) -> bool:
    (txn,) = ops
    return any(
        look.value is not None and identity(look.value) in map(identity, look.wrote_later)
        for look in raw.looks(txn, key)
    )


def _internal(_raw: PredicateVerifier, ops: Any, key: str) -> bool:
    (txn,) = ops
    written: tuple[Any, ...] = ()
    read: tuple[Any, ...] = ()
    for f, *rest in txn.mops if txn.type == "ok" else ():
        kind = _name(f)
        if kind == "rp":
            values = {_name(name): value for name, value in rest[1].items()}
            mine = written[0] if written and _matches(rest[0], written[0]) else None
            if written and identity(values.get(key)) != identity(mine):
                return True
        elif _name(rest[0]) != key:
            continue
        elif kind != "r":
            written = (None if kind == "delete" else rest[1],)
        elif any(identity(earlier) != identity(rest[1]) for earlier in written or read):
            return True
        else:
            read = (rest[1],)
    return False


def _lost_update(raw: PredicateVerifier, ops: Any, key: str) -> bool:
    met = [
        {
            id(version)
            for look in raw.looks(txn, key, by_key=True)
            if look.wrote_later
            for version in raw.selected(txn, key, look)
        }
        for txn in ops
    ]
    return len(met) > 1 and bool(set.intersection(*met))


_SINGLE: dict[str, Callable[[PredicateVerifier, Any, str], bool | None]] = {
    "G1a": _aborted_read,
    "G1b": _intermediate_read,
    "garbage-read": _garbage,
    "predicate-read-miss": _miss,
    "future-read": _future_read,
    "internal": _internal,
    "lost-update": _lost_update,
}
