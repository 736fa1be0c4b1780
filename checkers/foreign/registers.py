"""The history models etcd-cas-register, cas-register, register and multi-register.

The models differ in the meaning of `fail` and in the initial value of the register:

* In Porcupine's etcd logs, a failed compare-and-set is an observation: the register did not hold
  the old value. A failure with an error has an unknown outcome. The register is nil at first.
* In the histories of Jepsen and Knossos, every failed operation did nothing. A read of nil matches
  any value, unless it may have read the initial value. The initial value is 0 or nil (see
  `initial`).
* In the vocabulary "register", values are objects. The register is nil at first, and a
  compare-and-set that fails with the result "mismatch" is an observation.

An operation that ended as `info`, or did not end, may take effect at any later time or never. A
read whose answer was lost is left out.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec
from msgspec import UNSET

from checkers.foreign.initial import AssumedCheck, named
from checkers.foreign.keyed import by_key
from checkers.foreign.model import (
    LinearizabilityCheck,
    LinearizabilityModel,
    Reads,
    bad_op,
    failed,
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
)
from checkers.linearizability.proof import AnyOperation, operation_of
from harness.errors import UsageError
from harness.exact import exact, is_scalar
from harness.independent import Shape, shape_of
from harness.ops import History, ModelSettings, Op, OpType, Pair
from harness.plugins import PreparedCheck
from harness.vocabularies.counter import is_final

Reader = Callable[[Pair], list[tuple[Hashable, bool, Any]]]
"""A function that returns (key, whether it is a read, value) for each access of an operation."""
_VOCABULARY: Final = "read, write with a value, and cas with [old new]"


def _register_input(op: Op, model: str) -> RegisterInput:
    value = op.value
    match op.f:
        case "read":
            return Read()
        case "write":
            if isinstance(value, dict) and set(value) >= {"value"}:
                value = value["value"]
            if is_scalar(value):
                return Write(exact(value))
        case "cas":
            if isinstance(value, dict) and set(value) >= {"old", "new"}:
                value = [value["old"], value["new"]]
            if isinstance(value, list) and len(value) == 2:
                old, new = value
                if is_scalar(old) and is_scalar(new):
                    return Cas(exact(old), exact(new))
    raise bad_op(op, model, _VOCABULARY)


def _read_value(op: Op, model: str) -> Any:
    value = op.value
    if isinstance(value, dict):
        if "value" not in value:
            raise bad_op(op, model, "reads whose answer is a value, or a map with the key 'value'")
        value = value["value"]
    if not is_scalar(value):
        raise bad_op(op, model, "reads of single values, such as numbers, strings and nil")
    return exact(value)


def _is_ours(pairs: Iterable[Pair]) -> bool:
    return any(isinstance(value, dict) and not is_final(value) for value in _values(pairs))


def _values(pairs: Iterable[Pair]) -> Iterator[Any]:
    for pair in pairs:
        yield pair.invoke.value
        if pair.completion is not None:
            yield pair.completion.value


def _read_counts(pairs: Sequence[Pair], read: Reader, *, nil_at_first: bool) -> Reads:
    """Count the answered reads that are judged, and the reads that match any value.

    A read of nil matches any value. With `nil_at_first`, a read of nil before the first
    acknowledged change of its key matches only nil.
    """
    changed_at: dict[Hashable, int] = {}
    reads: list[tuple[Hashable, Any, int]] = []
    for pair in pairs:
        if pair.completion is None or pair.type is not OpType.OK:
            continue
        for key, is_read, value in read(pair):
            if is_read:
                reads.append((key, value, pair.invoke.index))
            else:
                done = pair.completion.index
                changed_at[key] = min(done, changed_at.get(key, done))
    wild = sum(
        value is None and not (nil_at_first and begun < changed_at.get(key, begun + 1))
        for key, value, begun in reads
    )
    return Reads(sum(value is not None for _, value, _ in reads), wild)


class _Register(LinearizabilityModel):
    """The base class of history models of registers. A register holds `initial` at first."""

    initials: ClassVar[tuple[Any, ...]]
    """The initial values to assume if the user gives none, the likeliest first."""

    def __init__(self, initial: Any = UNSET) -> None:
        """Create the model. Without `initial`, a register holds the first value of `initials`."""
        self._initial = self.initials[0] if initial is UNSET else initial

    def prepare(self, ops: Iterable[Op], settings: ModelSettings) -> PreparedCheck:
        refuse_settings(self.name, settings)
        history = ops if isinstance(ops, History) else History(ops)

        def under(initial: Any) -> PreparedCheck:
            return by_key(self.name, history, settings, type(self)(initial).understand)

        if settings.initial is not UNSET:
            self._require_initial(settings.initial)
            return under(settings.initial)
        initials = self._assumed(history)
        first = under(initials[0])
        return AssumedCheck(initials, under, first) if initials[0] == 0 else first

    def _require_initial(self, value: Any) -> None:
        if not is_scalar(value):
            apart = "; a map is for [key value] tuples" if isinstance(value, Mapping) else ""
            raise UsageError(
                f"--initial is {value!r}; the model {self.name} holds one value: a number, a "
                f"string, true, false or nil{apart}"
            )

    @abc.abstractmethod
    def _assumed(self, history: History) -> tuple[Any, ...]:
        """Return the initial values to assume for this history, the likeliest first."""


class CasRegister(_Register):
    """The history model of one register, in the vocabulary of Jepsen and Knossos."""

    name = "cas-register"
    doc = "one register with reads, writes and compare-and-set; fail: did not happen"
    initials: ClassVar[tuple[Any, ...]] = (0, None)

    def __init__(self, initial: Any = UNSET, *, ours: bool = False) -> None:
        super().__init__(initial)
        self._ours = ours

    def prepare(self, ops: Iterable[Op], settings: ModelSettings) -> PreparedCheck:
        history = ops if isinstance(ops, History) else History(ops)
        initial = settings.initial
        if not isinstance(initial, Mapping) or not _has_keys(history, settings):
            return super().prepare(history, settings)
        refuse_settings(self.name, settings)
        for value in initial.values():
            self._require_initial(value)

        def of_key(key: Hashable) -> Callable[[History], PreparedCheck]:
            return type(self)(named(initial, key, None)).understand

        keyed = msgspec.structs.replace(settings, independent=True)
        return by_key(self.name, history, keyed, self.understand, of_key)

    def _assumed(self, history: History) -> tuple[Any, ...]:
        if _is_ours(history.pairs) or any(
            isinstance(value, (list, tuple)) and len(value) == 2 and isinstance(value[1], dict)
            for value in _values(history.pairs)
        ):
            return (None,)
        # An initial nil can only explain a read of nil, or a compare-and-set with nil.
        nil = any(map(_speaks_of_nil, history.pairs))
        return self.initials if nil else self.initials[:1]

    def understand(self, history: History) -> LinearizabilityCheck:
        model = type(self)(self._initial, ours=self._ours or _is_ours(history.pairs))
        return super(CasRegister, model).understand(history)

    def specification(self, operations: Sequence[AnyOperation]) -> Register:
        del operations
        return Register(exact(self._initial))

    def _reads(self, pairs: Sequence[Pair]) -> Reads | None:
        if not self._matches_anything(None):
            return None

        def read(pair: Pair) -> list[tuple[Hashable, bool, Any]]:
            assert pair.completion is not None, "an ok operation has a completion"
            return [(None, pair.invoke.f == "read", pair.completion.value)]

        return _read_counts(pairs, read, nil_at_first=self._initial is None)

    def _asked(self, pair: Pair) -> Op:
        return request_of(pair)

    def _unknown(self, pair: Pair) -> bool:
        return pair.type is OpType.INFO

    def _did_nothing(self, pair: Pair) -> bool:
        # in etcd's logs, an operation that failed by a time-out may have taken effect
        return failed(pair) and not self._unknown(pair)

    def _observed(self, pair: Pair, request: RegisterInput) -> bool:
        done = pair.completion
        if not self._ours or done is None or not isinstance(request, Cas):
            return False
        return isinstance(done.value, dict) and done.value.get("result") == "mismatch"

    def _matches_anything(self, value: Any) -> bool:
        return value is None and not self._ours

    def operation(self, pair: Pair) -> AnyOperation | None:
        call, done = pair.invoke, pair.completion
        if done is not None and done.type is not OpType.INFO and done.f != call.f:
            raise bad_op(done, self.name, f"completions of the invoked function, here {call.f!r}")
        request = _register_input(self._asked(pair), self.name)
        if done is None or self._unknown(pair):
            return None if isinstance(request, Read) else operation_of(pair, request)
        if failed(pair):
            return operation_of(pair, request, False) if self._observed(pair, request) else None
        if not isinstance(request, Read):
            return operation_of(pair, request, True if isinstance(request, Cas) else None)
        value = _read_value(done, self.name)
        return None if self._matches_anything(value) else operation_of(pair, request, value)


class EtcdCasRegister(CasRegister):
    """The history model of one register of Porcupine's etcd logs; it is nil at first.

    A failed compare-and-set is an observation.
    """

    name = "etcd-cas-register"
    doc = "one register of etcd's logs; nil at first; a failed compare-and-set is an observation"

    initials = (None,)

    def _assumed(self, history: History) -> tuple[Any, ...]:
        del history
        return self.initials

    def _asked(self, pair: Pair) -> Op:
        # as in Porcupine, the value of the completion counts only for reads
        return pair.invoke if pair.invoke.value is not None else request_of(pair)

    def _observed(self, pair: Pair, request: RegisterInput) -> bool:
        return super()._observed(pair, request) if self._ours else isinstance(request, Cas)

    def _unknown(self, pair: Pair) -> bool:
        # an operation that failed by a time-out has an unknown outcome
        done = pair.completion
        lost = done is not None and done.type is OpType.FAIL and done.error is not None
        return lost or super()._unknown(pair)

    def _matches_anything(self, value: Any) -> bool:
        del value
        return False


class PlainRegister(CasRegister):
    """The history model of one register, for the file format "register table"."""

    name = "register"
    doc = "one register with reads and writes; fail: did not happen"


def _has_keys(history: History, settings: ModelSettings) -> bool:
    if settings.independent is None:
        return shape_of(history.pairs) is not Shape.NO
    return settings.independent


def _speaks_of_nil(pair: Pair) -> bool:
    if pair.completion is None or pair.type is OpType.FAIL:
        return False
    value = request_of(pair).value
    for part in (value, value[1] if isinstance(value, (list, tuple)) and len(value) == 2 else 0):
        if pair.invoke.f == "read" and part is None:
            return True
        if pair.invoke.f == "cas" and isinstance(part, (list, tuple)) and None in part:
            return True
    return False


class MultiRegisterModel(_Register):
    """The history model of several registers that transactions read and write."""

    name = "multi-register"
    doc = "registers read and written in atomic transactions; fail: did not happen"
    initials = (0, None)

    def _assumed(self, history: History) -> tuple[Any, ...]:
        done = [pair.completion for pair in history.pairs if pair.type is OpType.OK]
        nil = any(op is not None and b"null" in msgspec.json.encode(op.value) for op in done)
        return self.initials if nil else self.initials[:1]

    def _require_initial(self, value: Any) -> None:
        if not isinstance(value, Mapping):
            super()._require_initial(value)
        elif not all(map(is_scalar, value.values())):
            raise UsageError(
                f"--initial is {value!r}; the model {self.name} holds one value for each key: a "
                "number, a string, true, false or nil"
            )

    def specification(self, operations: Sequence[AnyOperation]) -> MultiRegister:
        keys = {key for operation in operations for _, key, _ in operation.input.micro}
        initial = self._initial
        if isinstance(initial, Mapping):
            return MultiRegister({key: exact(named(initial, key, None)) for key in keys})
        return MultiRegister(dict.fromkeys(keys, exact(initial)))

    def _reads(self, pairs: Sequence[Pair]) -> Reads:
        def read(pair: Pair) -> list[tuple[Hashable, bool, Any]]:
            assert pair.completion is not None, "an ok operation has a completion"
            micro = self._txn(pair.completion).micro
            return [(key, f == "read", value) for f, key, value in micro]

        return _read_counts(pairs, read, nil_at_first=self._initial is None)

    def operation(self, pair: Pair) -> AnyOperation | None:
        done = pair.completion
        if failed(pair):
            return None
        if done is None or done.type is OpType.INFO:
            return operation_of(pair, self._txn(pair.invoke))
        txn = self._txn(done)
        return operation_of(pair, txn, txn)

    def _txn(self, op: Op) -> Txn:
        micro = []
        if op.f != "txn" or not isinstance(op.value, (list, tuple)):
            raise bad_op(op, self.name, "txn with a list of [read k v] and [write k v]")
        for item in op.value:
            match item:
                case ["read" | "r" as f, key, value] | ["write" | "w" as f, key, value] if (
                    is_scalar(key) and is_scalar(value)
                ):
                    micro.append(
                        ("read" if f in {"read", "r"} else "write", exact(key), exact(value))
                    )
                case _:
                    raise bad_op(op, self.name, "micro-operations [read k v] and [write k v]")
        return Txn(tuple(micro))
