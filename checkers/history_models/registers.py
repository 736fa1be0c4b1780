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

from collections.abc import Iterable
from typing import Any, Final

from checkers.history_models.engine import (
    LinearizabilityCheck,
    bad_op,
    failed,
    history_of,
    nothing_happened,
    refuse_settings,
    request_of,
    unreturned,
)
from checkers.linearizability import UNKNOWN, Operation
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
from harness.ops import ModelSettings, Op, OpType, Pair

__all__ = ["CasRegister", "EtcdCasRegister", "MultiRegisterModel", "PlainRegister"]

_VOCABULARY: Final = "read, write with a value, and cas with [old new]"
_SCALARS: Final = (int, float, str, bool, type(None))


def _number(op: Op) -> int:
    assert isinstance(op.process, int), "pairs are of clients only"
    return op.process


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


class CasRegister:
    """One register as Jepsen and Knossos test it, 0 at first."""

    api_version = 1
    name = "cas-register"
    doc = "one register with reads, writes and compare-and-set; 0 at first; fail: did not happen"
    kind = "model"

    def prepare(self, ops: Iterable[Op], settings: ModelSettings) -> LinearizabilityCheck:
        """See `HistoryModel`."""
        refuse_settings(self.name, settings)
        history = history_of(ops)
        ours = _is_ours(history.pairs)
        found = [self._operation(pair, ours=ours) for pair in history.pairs]
        kept = [operation for operation in found if operation is not None]
        return LinearizabilityCheck(
            self.name,
            Register(None if ours else self._initial()),
            kept,
            # A failure that is a time-out may have happened.
            nothing_happened=nothing_happened(
                history, lambda pair: failed(pair) and not self._unknown(pair)
            ),
        )

    def _initial(self) -> int | None:
        return 0

    def _asked(self, pair: Pair) -> Op:
        """The op that says what was asked for."""
        return request_of(pair)

    def _unknown(self, pair: Pair) -> bool:
        """Whether nobody knows if the operation took effect."""
        return unreturned(pair)

    def _observed(self, pair: Pair, given: RegisterInput, *, ours: bool) -> bool:
        """Whether a failed operation tells something about the register."""
        done = pair.completion
        if not ours or done is None or not isinstance(given, Cas):
            return False
        return isinstance(done.value, dict) and done.value.get("result") == "mismatch"

    def _matches_anything(self, value: Any, *, ours: bool) -> bool:
        """Whether an answered read of `value` is a wildcard."""
        return value is None and not ours

    def _operation(self, pair: Pair, *, ours: bool) -> Operation[RegisterInput, Any] | None:
        call, done = pair.invoke, pair.completion
        if done is not None and done.type is not OpType.INFO and done.f != call.f:
            raise bad_op(done, self.name, f"completions of what was invoked, here {call.f!r}")
        given = _register_input(self._asked(pair), self.name)
        process = _number(call)
        if done is None or self._unknown(pair):
            if isinstance(given, Read):
                return None
            return Operation(process, given, call.index, UNKNOWN, None, call.index)
        output: Any = None
        if done.type is OpType.FAIL:
            if not self._observed(pair, given, ours=ours):
                return None
            output = False
        elif isinstance(given, Read):
            output = _read_value(done, self.name)
            if self._matches_anything(output, ours=ours):
                return None
        elif isinstance(given, Cas):
            output = True
        return Operation(process, given, call.index, output, done.index, call.index)


class EtcdCasRegister(CasRegister):
    """One register as in Porcupine's etcd logs, nil at first; a failed cas is an observation."""

    name = "etcd-cas-register"
    doc = "one register of etcd's logs; nil at first; a failed compare-and-set is an observation"

    def _initial(self) -> int | None:
        return None

    def _asked(self, pair: Pair) -> Op:
        # Porcupine looks at no completion's value but a read's.
        return pair.invoke if pair.invoke.value is not None else request_of(pair)

    def _observed(self, pair: Pair, given: RegisterInput, *, ours: bool) -> bool:
        if ours:
            return super()._observed(pair, given, ours=ours)
        return isinstance(given, Cas)

    def _unknown(self, pair: Pair) -> bool:
        # A failure that is a time-out observed nothing.
        done = pair.completion
        lost = done is not None and done.type is OpType.FAIL and done.error is not None
        return lost or super()._unknown(pair)

    def _matches_anything(self, value: Any, *, ours: bool) -> bool:
        del value, ours
        return False


class PlainRegister(CasRegister):
    """One register that is 0 at first, as in the supplied tables."""

    name = "register"
    doc = "one register with reads and writes; 0 at first"


class MultiRegisterModel:
    """Registers x and y, 0 at first, read and written in transactions."""

    api_version = 1
    name = "multi-register"
    doc = "registers read and written in atomic transactions; x and y are 0 at first"
    kind = "model"

    def prepare(self, ops: Iterable[Op], settings: ModelSettings) -> LinearizabilityCheck:
        """See `HistoryModel`."""
        refuse_settings(self.name, settings)
        history = history_of(ops)
        found = [self._operation(pair) for pair in history.pairs if not failed(pair)]
        return LinearizabilityCheck(
            self.name,
            MultiRegister({"x": 0, "y": 0}),
            found,
            nothing_happened=nothing_happened(history),
        )

    def _operation(self, pair: Pair) -> Operation[Txn, Any]:
        call, done = pair.invoke, pair.completion
        process = _number(call)
        if done is None or unreturned(pair):
            return Operation(process, self._txn(call), call.index, UNKNOWN, None, call.index)
        txn = self._txn(done)
        return Operation(process, txn, call.index, txn, done.index, call.index)

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
