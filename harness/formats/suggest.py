"""Suggests the model for a history from its operations, values and answers.

Names alone say little: a set and a counter have `add` and `read`; a register and a bank have
`read`. So all values are checked, and a model is suggested only if the values fit exactly one
model. A wrong guess could report a violation in a correct system, or none in a broken one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, Final

from harness.errors import UsageError, clipped, shown
from harness.exact import exact, is_scalar
from harness.independent import Shape, shape_of, without_keys
from harness.ops import History, Op, OpType
from harness.vocabularies.counter import is_final
from harness.vocabularies.ddl import MUTATIONS, Get, List
from harness.vocabularies.edn import members

_MODELS: Final = {
    "porcupine-etcd": "etcd-cas-register",
    "porcupine-kv": "kv-string",
    "catalog-table": "catalog",
    "register-table": "register",
}
_NAMES_SHOWN_MAX: Final = 10
_CATALOG: Final = MUTATIONS | {List.f, Get.f}
_MARKS: Final = {
    "append": "list-append",
    "w": "rw-register",
    "read": "multi-register",
    "write": "multi-register",
}
_KNOWN: Final = frozenset({*_MARKS, "r"})
_LOCKS: Final = (
    "owned-mutex, reentrant-mutex, fenced-mutex, reentrant-fenced-mutex, semaphore, "
    "owned-semaphore, or mutex, which looks at no values"
)
_LOG_CHANGES: Final = frozenset({"assign", "subscribe", "crash", "debug-topic-partitions"})
_LOG_MOPS: Final = frozenset({"send", ":send", "poll", ":poll", "rebalance"})


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple))


class _Words:
    """The names, requests and answers of the clients' operations."""

    def __init__(self, ops: Iterable[Op], independent: bool | None) -> None:
        history = ops if isinstance(ops, History) else History(ops, foreign=True)
        self.ops: Sequence[Op] = [op for op in history if op.is_client]
        self.names = {op.f for op in self.ops}
        if independent is None:
            independent = self._is_keyed(shape_of(history.pairs))
        if independent:
            self.ops = without_keys(self.ops)

    def _is_keyed(self, shape: Shape) -> bool:
        """Whether values are `[key value]` pairs of independent keys, and not plain values."""
        if shape is not Shape.NO and (
            self.names <= {"get", "put", "append"} or self.names == {"cas"}
        ):
            return all(op.value is None or _is_list(op.value[1]) for op in self.ops)
        if shape is not Shape.MAYBE:
            return shape is Shape.SURE
        # A plain read asks nothing, so `read [3 nil]` has a key, even if each key occurs once.
        reads = self.asked("read")
        asks_by_key = bool(reads) and all(value[1] is None for value in reads)
        return asks_by_key or self.names <= {"read", "write", "cas", "txn"}

    def asked(self, *names: str) -> list[Any]:
        return [op.value for op in self.ops if op.f in names and op.type is OpType.INVOKE]

    def answers(self, f: str) -> list[Any]:
        ok = (op.value for op in self.ops if op.f == f and op.type is OpType.OK)
        return [value for value in ok if value is not None]

    def micro(self) -> list[Any]:
        """Return the micro-operations of all operations whose value is a list of them."""
        values = (op.value for op in self.ops if _is_list(op.value))
        items = (item for value in values for item in value if _is_list(item))
        return [item for item in items if len(item) == 3 and isinstance(item[0], str)]

    def are_transactions(self) -> bool:
        """Whether a model of transactions knows any of the history's micro-operations."""
        return any(f in _KNOWN for f, _, _ in self.micro())

    def none(self, why: str) -> UsageError:
        """Return the error for a history that suggests no model; `why` is the reason."""
        names = ", ".join(sorted(self.names)[:_NAMES_SHOWN_MAX])
        return UsageError(
            f"its operations ({names}) suggest no model: {why}; name one with --model or --elle, "
            "if any fits"
        )


def model_for(format_: str, ops: Iterable[Op], independent: bool | None = None) -> str:
    """Return the name of the model for a history in the format `format_`, from its operations.

    `independent` says whether values are `[key value]`; if it is `None`, their shape decides. If
    the operations suggest no model, raises `UsageError` with the reason and the option to use.
    """
    if format_ in _MODELS:
        return _MODELS[format_]
    words = _Words(ops, independent)
    for functions, suggest in _KINDS:
        if words.names <= functions:
            return suggest(words)
    if words.names & _CATALOG and all(
        isinstance(value, Mapping) for value in words.asked(*_CATALOG)
    ):
        return "catalog"
    if words.are_transactions():
        raise words.none("their values are transactions, which --elle judges for any name in `f`")
    functions = frozenset().union(*(names for names, _ in _KINDS))
    if unknown := sorted(words.names - functions):
        raise words.none(f"no model knows the operation {unknown[0]!r}")
    raise words.none("no model knows all of them")


def _register(words: _Words) -> str:
    if words.are_transactions():
        if _are_forks(words):
            return "long-fork"
        raise words.none("their values are transactions, which --elle judges for any name in `f`")
    for value in [*words.answers("read"), *words.asked("write")]:
        if members(value) is not None:
            pair = _is_list(value) and len(value) == 2
            keys = "; if values are [key value], say --independent" if pair else ""
            if _show_writes(words):
                keys += "; if reads show all written values, say --model causal-reverse"
            raise words.none(
                f"{clipped(repr(value), 80)} is a collection, which no register holds{keys}"
            )
        if isinstance(value, Mapping) and "value" not in value:
            raise words.none(
                f"{clipped(repr(value), 80)} is more than a register holds; it may be a bank"
            )
    return "cas-register"


def _show_writes(words: _Words) -> bool:
    """Whether each read shows a collection of values that were written."""
    writes = set(map(exact, words.asked("write")))
    shown_values = [members(value) for value in words.answers("read")]
    return all(each is not None and writes.issuperset(map(exact, each)) for each in shown_values)


def _may_be_forks(words: _Words) -> bool:
    """Whether each `txn` writes 1 to one key or reads several keys, as in old long-fork tests."""
    sizes: dict[str, set[int]] = {"w": set(), "r": set()}
    for op in words.ops:
        mops = op.value if _is_list(op.value) else []
        if not mops or not all(_is_list(mop) and len(mop) == 3 for mop in mops):
            return False
        kinds = {mop[0] for mop in mops}
        if len(kinds) > 1 or not kinds <= sizes.keys():
            return False
        if kinds == {"w"} and type(mops[0][2]) is int and mops[0][2] != 1:
            return False
        sizes[kinds.pop()].add(len(mops))
    return sizes["w"] == {1} and len(sizes["r"]) == 1 and min(sizes["r"]) > 1


def _are_forks(words: _Words) -> bool:
    """Whether each write has one key ([[w k v]]) and each read at least two, as in long-fork."""
    kinds = {"write": "w", "read": "r"}
    sizes: dict[str, set[int]] = {"write": set(), "read": set()}
    for op in words.ops:
        if op.f not in kinds or not _is_list(op.value):
            return False
        if not all(_is_list(mop) and len(mop) == 3 and mop[0] == kinds[op.f] for mop in op.value):
            return False
        sizes[op.f].add(len(op.value))
    return sizes["write"] == {1} and bool(sizes["read"]) and min(sizes["read"]) > 1


def _lock(words: _Words) -> str:
    asked = words.asked("acquire")
    if asked and all(isinstance(value, Mapping) and "lease_ms" in value for value in asked):
        return "lease"
    got = words.answers("acquire")
    if any(isinstance(value, Mapping) and _is_fence(value.get("fence")) for value in got):
        return "fenced-mutex"
    answers = [op.value for op in words.ops if op.type is OpType.OK]
    for value in [*asked, *words.asked("release"), *answers]:
        if isinstance(value, Mapping) and not value.keys() <= {"result"}:
            raise words.none(
                f"{clipped(repr(value), 80)} may name clients, permits or fences, and nothing says "
                f"what kind of lock it is ({_LOCKS})"
            )
    for value in answers:
        if type(value) in {bool, int, float} and value not in asked:
            raise words.none(
                f"an operation is answered with {value!r}, maybe a fence or a refusal, and nothing "
                f"says what kind of lock it is ({_LOCKS})"
            )
    return "mutex"


def _is_fence(value: object) -> bool:
    return type(value) is int and value > 0


def doubt_about(name: str, history: History) -> str | None:
    """Return why a history whose operations suggest the model `name` may need another one.

    Every violation of a mutex may be correct conduct of a semaphore. A lock with fences may be
    reentrant, or taken from its holder after a while.
    """
    if name == "fenced-mutex":
        return (
            "a lock with fences may also be reentrant (--model reentrant-fenced-mutex), or pass to "
            "others when the session of its holder ends, as no answer shows"
        )
    if name != "mutex":
        return None
    held: set[tuple[int | str, Any]] = set()
    for pair in history.pairs:
        value = pair.invoke.value
        key = value[0] if _is_list(value) and len(value) == 2 and is_scalar(value[0]) else None
        holder = (pair.invoke.process, exact(key))
        if pair.invoke.f != "acquire":
            held.discard(holder)
        elif type(value) is int:
            return f"acquire {value} may ask for permits (--model semaphore --initial N)"
        elif pair.type is OpType.OK and holder in held:
            return (
                f"process {holder[0]} acquires it twice (op {pair.invoke.index}) without a "
                "release, as reentrant locks (--model reentrant-mutex) and semaphores (--model "
                "semaphore --initial N) allow"
            )
        elif pair.type is OpType.OK:
            held.add(holder)
    return "nothing says that it is not a semaphore (--model semaphore --initial N)"


def _set(words: _Words) -> str:
    answers = words.answers("read")
    final = any(map(is_final, answers))
    if final:
        answers = [value["value"] if is_final(value) else value for value in answers]
    if answers and all(type(value) is int for value in [*answers, *words.asked("add")]):
        if "remove" in words.names:
            raise words.none("'remove' belongs to a set, but reads are answered with numbers")
        return "counter-final" if final else "counter"
    for value in answers:
        if is_scalar(value):
            raise words.none(
                f"a read is answered with {value!r}, so 'add' belongs to a counter, not a set"
            )
        if members(value) is None:
            raise words.none("a read is answered with a map, which is not a set")
    asked = words.asked("add")
    if None in asked:
        raise words.none("'add' asks for nothing, and the elements of a set are in the requests")
    elements = [each for value in answers for each in members(value) or ()]
    if elements and {members(each) is None for each in elements}.isdisjoint(
        members(value) is None for value in asked
    ):
        raise words.none(
            f"'add' has values such as {clipped(repr(asked[0]), 40)}, but a read shows "
            f"{clipped(repr(elements[0]), 40)}, so an element of the set is no value of 'add'"
        )
    added = [exact(value) for value in asked]
    if not words.answers("read") and len(set(added)) < len(added):
        raise words.none("no read is answered, and elements are added twice, as to a counter")
    _refuse_lists(words, added)
    return "set"


def _refuse_lists(words: _Words, added: Sequence[Any]) -> None:
    """Raise `UsageError` if a read shows an element twice that was added twice, as to a list."""
    times = Counter(added)
    for value in words.answers("read"):
        for each, count in Counter(map(exact, members(value) or ())).items():
            if 1 < count <= times[each]:
                raise words.none(
                    f"{shown(each)} was added {times[each]} times, and a read shows it {count} "
                    "times, as in a list; if it is a set: set-full or set"
                )


def _broadcast(words: _Words) -> str:
    for value in words.answers("read"):
        if members(value) is None:
            raise words.none(f"a read is answered with {shown(value)}, which lists no messages")
    _refuse_lists(words, [exact(value) for value in words.asked("broadcast")])
    return "set-full"


def _key_value(words: _Words) -> str:
    for op in words.ops:
        value = op.value
        if value is not None and not (
            _is_list(value) and len(value) == 2 and isinstance(value[1], (str, NoneType))
        ):
            raise words.none(f"{clipped(repr(value), 80)} is not a [key string] pair")
    return "kv-string"


def _are_logs(words: _Words) -> bool:
    """Whether all micro-operations are operations of logs: send, poll and rebalance."""
    values = [op.value for op in words.ops if op.f not in _LOG_CHANGES and _is_list(op.value)]
    names = {item[0] for value in values for item in value if _is_list(item) and item}
    return bool(names) and names <= _LOG_MOPS


def _logs(words: _Words) -> str:
    if words.names - _LOG_CHANGES and not _are_logs(words):
        raise words.none(
            "their values are not micro-operations such as [send key message] or [poll]"
        )
    return "kafka"


def _transactional(words: _Words) -> str:
    if _are_logs(words):
        return "kafka"
    micro = words.micro()
    for value in (value for op in words.ops if _is_list(value := op.value)):
        for item in value:
            if _is_list(item) and item and isinstance(item[0], str) and item[0] not in _KNOWN:
                raise words.none(f"no model knows micro-operations such as {shown(item)}")
    if _may_be_forks(words):
        raise words.none(
            "each transaction writes 1 to one key or reads several keys, as in Jepsen's test "
            "long-fork, which permits more than the model rw-register"
        )
    suggested = {_MARKS[f] for f, _, _ in micro if f in _MARKS}
    if len(suggested) > 1:
        raise words.none(f"micro-operations of {' and '.join(sorted(suggested))} are mixed")
    if suggested:
        return suggested.pop()
    lists = any(_is_list(value) for _, _, value in micro)
    return "list-append" if lists else "rw-register"


def _queue(words: _Words) -> str:
    if "drain" in words.names:
        return "total-queue"
    raise words.none("nothing says in which order elements come out: queue or unordered-queue")


def _bank(words: _Words) -> str:
    for value in words.answers("read"):
        numbers = _is_list(value) and all(type(each) is int for each in value)
        if not numbers and (not isinstance(value, Mapping) or members(value) is not None):
            raise words.none(f"{clipped(repr(value), 80)} does not map accounts to balances")
    for value in words.asked("transfer"):
        if not isinstance(value, Mapping):
            raise words.none(f"{clipped(repr(value), 80)} is not a transfer between two accounts")
    return "bank"


def _inserts(words: _Words) -> str:
    for value in words.asked("insert"):
        if not (_is_list(value) and len(value) == 2 and _is_list(value[1]) and len(value[1]) == 2):
            raise words.none(f"{clipped(repr(value), 80)} is not a [key [a b]] of the model g2")
    return "g2"


_KINDS: Final[tuple[tuple[frozenset[str], Callable[[_Words], str]], ...]] = (
    (frozenset({"read", "write", "cas"}), _register),
    (frozenset({"txn"}), _transactional),
    (frozenset({"init", "txn"}), lambda _: "closed-predicate"),
    (frozenset({"get", "put", "append"}), _key_value),
    (frozenset({"acquire", "release"}), _lock),
    (frozenset({"add", "remove", "read"}), _set),
    (frozenset({"broadcast", "read"}), _broadcast),
    (frozenset({"enqueue", "dequeue", "drain"}), _queue),
    (frozenset({"transfer", "read"}), _bank),
    (frozenset({"generate"}), lambda _: "unique-ids"),
    (frozenset({"insert"}), _inserts),
    (_LOG_CHANGES | {"send", "poll", "txn"}, _logs),
    (frozenset({"read", "read-init", "write"}), lambda _: "causal"),
)
