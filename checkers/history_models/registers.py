"""Registers: etcd-cas-register, cas-register, register and multi-register.

They differ in what `fail` means and in the initial value:

* in Porcupine's etcd logs a failed compare-and-set is a **definite observation**: the register did
  not hold the old value. Other failures say nothing happened. The register is nil at first;
* in the histories of Jepsen and Knossos `fail` means that nothing happened: the operation is left
  out. The register is 0 at first, and a read that returns nil matches any value (a wildcard);
* values that are objects are those of our own vocabulary "register", which is nil at first and
  where a compare-and-set that fails with the result "mismatch" is an observation.

An operation that ended in `info`, or not at all, may take effect at any later time or never; a read
of which nobody knows the answer says nothing and is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from checkers.history_models.engine import (
    AnyOperation,
    LinearizabilityCheck,
    LinearizabilityModel,
    bad_op,
    failed,
    operation_of,
    refuse_settings,
    request_of,
)
from checkers.linearizability.models.register import (
    Cas,
    MultiRegister,
    Read,
    Register,
    RegisterInput,
    Txn,
    Write,
    distinct,
)
from harness.ops import History, ModelSettings, Op, OpType, Pair

__all__ = ["CasRegister", "EtcdCasRegister", "MultiRegisterModel", "PlainRegister"]

_VOCABULARY: Final = "read, write with a value, and cas with [old new]"
_SCALARS: Final = (int, float, str, bool, type(None))


def _register_input(op: Op, model: str) -> RegisterInput:
    value = op.value
    match op.f:
        case "read":
            return Read()
        case "write":
            if isinstance(value, dict) and set(value) >= {"value"}:
                value = value["value"]
            if isinstance(value, _SCALARS):
                return Write(distinct(value))
        case "cas":
            if isinstance(value, dict) and set(value) >= {"old", "new"}:
                value = [value["old"], value["new"]]
            if isinstance(value, list) and len(value) == 2:
                old, new = value
                if isinstance(old, _SCALARS) and isinstance(new, _SCALARS):
                    return Cas(distinct(old), distinct(new))
    raise bad_op(op, model, _VOCABULARY)


def _read_value(op: Op, model: str) -> Any:
    value = op.value
    if isinstance(value, dict):
        if "value" not in value:
            raise bad_op(op, model, "reads that are answered with {value}")
        value = value["value"]
    if not isinstance(value, _SCALARS):
        raise bad_op(op, model, "reads of numbers, strings, true, false and nil")
    return distinct(value)


def _is_ours(pairs: Iterable[Pair]) -> bool:
    """Whether the values are those of our own vocabulary."""
    return any(
        isinstance(op.value, dict)
        for pair in pairs
        for op in (pair.invoke, pair.completion)
        if op is not None
    )


class CasRegister(LinearizabilityModel):
    """One register as Jepsen and Knossos test it, 0 at first."""

    name = "cas-register"
    doc = "one register with reads, writes and compare-and-set; 0 at first; fail: did not happen"
    initial: ClassVar[int | None] = 0

    def __init__(self, *, ours: bool = False) -> None:
        """With `ours`, values are those of our own vocabulary."""
        self._ours = ours

    def prepare(self, ops: Iterable[Op], settings: ModelSettings) -> LinearizabilityCheck:
        """See `HistoryModel`."""
        refuse_settings(self.name, settings)
        history = ops if isinstance(ops, History) else History(ops)
        model = type(self)(ours=_is_ours(history.pairs))
        return super(CasRegister, model).prepare(history, settings)

    def _model(self, operations: Sequence[AnyOperation]) -> Register:
        del operations
        return Register(None if self._ours else self.initial)

    def _asked(self, pair: Pair) -> Op:
        """The op that says what was asked for."""
        return request_of(pair)

    def _unknown(self, pair: Pair) -> bool:
        """Whether nobody knows if the operation took effect."""
        return pair.type is OpType.INFO

    def _did_nothing(self, pair: Pair) -> bool:
        # A failure that is a time-out may have happened.
        return failed(pair) and not self._unknown(pair)

    def _observed(self, pair: Pair, given: RegisterInput) -> bool:
        """Whether a failed operation tells something about the register."""
        done = pair.completion
        if not self._ours or done is None or not isinstance(given, Cas):
            return False
        return isinstance(done.value, dict) and done.value.get("result") == "mismatch"

    def _matches_anything(self, value: Any) -> bool:
        """Whether an answered read of `value` is a wildcard."""
        return value is None and not self._ours

    def _operation(self, pair: Pair) -> AnyOperation | None:
        call, done = pair.invoke, pair.completion
        if done is not None and done.type is not OpType.INFO and done.f != call.f:
            raise bad_op(done, self.name, f"completions of what was invoked, here {call.f!r}")
        given = _register_input(self._asked(pair), self.name)
        if done is None or self._unknown(pair):
            return None if isinstance(given, Read) else operation_of(pair, given)
        if failed(pair):
            return operation_of(pair, given, False) if self._observed(pair, given) else None
        if not isinstance(given, Read):
            return operation_of(pair, given, True if isinstance(given, Cas) else None)
        value = _read_value(done, self.name)
        return None if self._matches_anything(value) else operation_of(pair, given, value)


class EtcdCasRegister(CasRegister):
    """One register as in Porcupine's etcd logs, nil at first; a failed cas is an observation."""

    name = "etcd-cas-register"
    doc = "one register of etcd's logs; nil at first; a failed compare-and-set is an observation"

    initial = None

    def _asked(self, pair: Pair) -> Op:
        # Porcupine looks at no completion's value but a read's.
        return pair.invoke if pair.invoke.value is not None else request_of(pair)

    def _observed(self, pair: Pair, given: RegisterInput) -> bool:
        return super()._observed(pair, given) if self._ours else isinstance(given, Cas)

    def _unknown(self, pair: Pair) -> bool:
        # A failure that is a time-out observed nothing.
        done = pair.completion
        lost = done is not None and done.type is OpType.FAIL and done.error is not None
        return lost or super()._unknown(pair)

    def _matches_anything(self, value: Any) -> bool:
        del value
        return False


class PlainRegister(CasRegister):
    """One register that is 0 at first, as in the supplied tables."""

    name = "register"
    doc = "one register with reads and writes; 0 at first"


class MultiRegisterModel(LinearizabilityModel):
    """Registers x and y, 0 at first, read and written in transactions."""

    name = "multi-register"
    doc = "registers read and written in atomic transactions; x and y are 0 at first"
    specification = partial(MultiRegister, {"x": 0, "y": 0})

    def _operation(self, pair: Pair) -> AnyOperation | None:
        done = pair.completion
        if failed(pair):
            return None
        if done is None or done.type is OpType.INFO:
            return operation_of(pair, self._txn(pair.invoke))
        txn = self._txn(done)
        return operation_of(pair, txn, txn)

    def _txn(self, op: Op) -> Txn:
        micro = []
        if op.f != "txn" or not isinstance(op.value, list):
            raise bad_op(op, self.name, "txn with a list of [read k v] and [write k v]")
        for item in op.value:
            match item:
                case ["read" | "r" as f, key, value] | ["write" | "w" as f, key, value] if (
                    isinstance(key, (str, int)) and isinstance(value, _SCALARS)
                ):
                    micro.append(
                        ("read" if f in {"read", "r"} else "write", str(key), distinct(value))
                    )
                case _:
                    raise bad_op(op, self.name, "micro-operations [read k v] and [write k v]")
        return Txn(tuple(micro))
