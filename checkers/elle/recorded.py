"""Reads the recorded transactions that a reported case names, for the verifier in `verify`.

Keys and values are identified by their text and type, so 1 is neither "1" nor true.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from harness.errors import InternalError
from harness.ops import History, OpType, Pair

NIL = ("nil", "NoneType")


def identity(thing: Any) -> tuple[str, str]:
    """Return the text and type that identify a key or value."""
    return NIL if thing is None else (str(thing), type(thing).__name__)


class CaseError(InternalError):
    """A case that the checker reported is not in the history, so the checker has a bug."""


class NotVerified(Exception):  # noqa: N818 - not an error: the verifier cannot decide the case
    """The verifier can neither prove nor contradict a reported case."""


@dataclass(frozen=True, slots=True)
class Txn:
    """A recorded transaction.

    `index` and `call` are the index of its invocation. `end` is the index of its `ok` completion,
    or infinite without an `ok`.
    """

    index: int
    process: Any
    call: int
    end: float
    type: str
    mops: Any


def mops_of(pair: Pair) -> Any:
    """Return a transaction's micro-operations, if possible from its completion.

    Otherwise they come from the invocation: the value of a `fail` describes the client's error, and
    the value of an `info` counts only if it is a list.
    """
    done = pair.completion
    if done is None or done.value is None or done.type is OpType.FAIL:
        return pair.invoke.value
    if done.type is OpType.INFO and not isinstance(done.value, list | tuple):
        return pair.invoke.value
    return done.value


def transactions(history: History) -> Iterator[Txn]:
    """Yield the transactions of a history in the order of their invocations."""
    for pair in history.pairs:
        invoke, done, mops = pair.invoke, pair.completion, mops_of(pair)
        kind = "info" if done is None else done.type.value
        end = done.index if done is not None and kind == "ok" else float("inf")
        if kind != "ok":  # a read without an answer may be recorded as [r key], so complete it
            mops = [
                (*mop, None) if len(mop) == 2 and mop[0] in ("r", ":r") else mop for mop in mops
            ]
        yield Txn(invoke.index, invoke.process, invoke.index, end, kind, mops)


def require_operations(case: Any, ops: Collection[int]) -> None:
    """Require that `ops` contains the operations that `case` names, and that none is named twice.

    Raises `CaseError` if not. Raises `NotVerified` if the case only says that a cycle exists.
    """
    if case.type.endswith("-cycle-exists"):
        raise NotVerified("the case only says that a cycle exists")
    if missing := [number for number in case.operations if number not in ops]:
        raise CaseError(f"{case.type}: op {missing[0]} is not a transaction of this history")
    # For this anomaly an op may be named twice: it may have made both of the contradicting reads.
    alone = case.type == "incompatible-order"
    if len(set(case.operations)) != len(case.operations) and not alone:
        raise CaseError(f"{case.type}: an operation is named twice")


def fits(name: str, kinds: list[str], known: Collection[str]) -> bool:
    """Return whether a cycle with the relations `kinds` is an anomaly with the name `name`.

    A relation may be `process`, `realtime`, or one of `known` (dependencies over data).
    """
    anti = [kind in ("rw", "rwp") for kind in kinds]
    adjacent = any(anti[i - 1] and anti[i] for i in range(len(anti)))
    seen = "wr" in kinds or "wrp" in kinds
    base = {0: "G1c" if seen else "G0", 1: "G-single"}.get(
        anti.count(True), "G2" if adjacent else "G-nonadjacent"
    )
    item = "-item" if any(anti) and "rwp" not in kinds else ""
    suffix = "-realtime" if "realtime" in kinds else "-process" if "process" in kinds else ""
    return name == base + item + suffix and set(kinds) <= {*known, "process", "realtime"}


def require_cycle(case: Any, known: Collection[str]) -> list[str]:
    """Return the relations of a case's steps; raise `CaseError` unless the steps form one cycle."""
    kinds = [step.reason.relation for step in case.steps]
    sources = [step.source for step in case.steps]
    if not sources or [step.target for step in case.steps] != sources[1:] + sources[:1]:
        raise CaseError(f"{case.type}: the steps are not a cycle")
    if sources != list(case.operations) or not fits(case.type, kinds, known):
        raise CaseError(f"{case.type}: a cycle of {', '.join(kinds)} does not fit the case")
    return kinds


class Raw:
    """The transactions that `cases` name, and all accesses to the keys that `cases` name."""

    def __init__(
        self, txns: Iterable[Txn], cases: Collection[Any], kind: str, promised: Collection[str] = ()
    ) -> None:
        self.lists, self.promised = kind == "list-append", promised
        texts = [case.details.get("key") for case in cases]
        texts += [step.reason.key for case in cases for step in case.steps]
        wanted, named = {number for case in cases for number in case.operations}, set(texts)
        self.ops: dict[int, Txn] = {}
        # key -> the transactions that accessed it and did not fail
        self.on: dict[Any, list[Txn]] = {}
        self.writer: dict[Any, Txn] = {}  # (key, value) -> the transaction that wrote it
        self.types: set[str] = set()
        for txn in txns:
            keys = {identity(key) for _, key, _ in txn.mops if str(key) in named}
            if txn.index in wanted:
                self.ops[txn.index] = txn
                values = [value for _, _, value in txn.mops]
                values += [x for value in values if isinstance(value, (list, tuple)) for x in value]
                self.types |= {identity(x)[1] for x in values}
            for key in keys:
                self.types.add(key[1])
                self.on.setdefault(key, []).extend([txn] if txn.type != "fail" else [])
                for value in self.wrote(txn, key):
                    self.types.add(value[1])
                    if (key, value) in self.writer:
                        raise CaseError(f"{value[0]} is written to key {key[0]} more than once")
                    self.writer[key, value] = txn

    def acts(self, txn: Txn, key: Any) -> list[tuple[bool, Any, bool]]:
        """Return each access of `txn` to `key` as (is a write, its value, whether it read nil)."""
        acts: list[tuple[bool, Any, bool]] = []
        for f, name, value in txn.mops:
            if identity(name) == key and f not in ("r", ":r"):
                acts.append((True, identity(value), False))
            elif identity(name) == key and txn.type == "ok":
                seen = tuple(map(identity, value or ())) if self.lists else (identity(value),)
                acts.append((False, seen, value is None))
        return acts

    def wrote(self, txn: Txn, key: Any) -> list[Any]:
        """Return the values that `txn` wrote to `key`, whether `txn` was ok or not."""
        return [
            identity(v) for f, name, v in txn.mops if f not in ("r", ":r") and identity(name) == key
        ]

    def reads(self, txn: Txn, key: Any) -> list[Any]:
        """Return the values that the reads of `key` in `txn` returned."""
        return [value for write, value, _ in self.acts(txn, key) if not write]

    def named(self, *told: str | None) -> Iterable[tuple[Any, ...]]:
        """Yield all combinations of values that the strings in `told` can mean. `None` means nil.

        Values of different types may look the same as strings.
        """
        nil = (None, "nil", "None")
        return product(
            *([NIL] * (t in nil) + [(t, x) for x in sorted(self.types) if t] for t in told)
        )
