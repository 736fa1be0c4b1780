"""Converts transactions with predicate reads to columns, and reads the universe of keys.

A history begins with an operation `init`, whose value maps all keys that exist to their values. The
`init` must complete before any transaction begins.

Micro-operations are `[insert k v]`, `[w k v]`, `[delete k]`, `[r k v]` and predicate reads `[rp
predicate {k v, ...}]`. Every micro-operation of an `ok` transaction took effect. Keys are compared
as text, because the parsers of EDN and JSON return the keys of maps as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from checkers.elle.infer.columns import OK, Columns, Transaction, columns_of, render
from checkers.elle.recorded import mops_of
from harness.errors import HistoryError, clipped
from harness.ops import History, OpType

SHOWN_KEYS_MAX: Final = 12
_QUOTED_MAX: Final = 200
_WRITES: Final = frozenset({"insert", "w", "delete"})


def identity(value: Any) -> tuple[str, Any]:
    """Return a substitute for `value` that is equal exactly for the same data.

    `True` is not 1, and 1 is not 1.0.
    """
    kind = type(value)
    return (kind.__name__, value if kind is int or kind is str else repr(value))


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition on values: `true`, `= goal` or `mod modulus rest`. Absent keys never match."""

    kind: str
    goal: tuple[str, Any] = ("", None)
    modulus: int = 1
    rest: int = 0
    text: str = field(default="true", compare=False)

    def matches(self, value: Any) -> bool:
        if value is None:
            return False
        if self.kind == "=":
            return identity(value) == self.goal
        return self.kind == "true" or bool(value % self.modulus == self.rest)


@dataclass(frozen=True, slots=True)
class Access:
    """One micro-operation. For predicate reads, `key` is -1 and `shown` maps keys to values.

    A value of `None` means that the key is absent.
    """

    f: str
    key: int = -1
    value: Any = None
    predicate: Predicate | None = None
    shown: Mapping[int, Any] = field(default_factory=dict)

    @property
    def writes(self) -> bool:
        """Whether the micro-operation makes a version of its key."""
        return self.f in _WRITES


@dataclass(slots=True)
class PredicateColumns(Columns):
    """Transactions as columns; `bodies` has the micro-operations of each transaction.

    `initial` is the initial value of each key in the universe, or `None` if the key is absent.
    """

    bodies: list[tuple[Access, ...]] = field(repr=False)
    initial: list[Any] = field(repr=False)

    def render_access(self, access: Access, *, known: bool = True) -> str:
        """Return one micro-operation as text, such as `rp [= 1] {x 1}`.

        Without `known`, the answer of a read is shown as `?`.
        """
        if access.predicate is not None:
            return f"rp {access.predicate.text} {self.render_shown(access) if known else '?'}"
        name = self.render_key(access.key)
        if access.f == "delete":
            return f"delete {name}"
        if access.f == "r" and not known:
            return f"r {name} ?"
        return f"{access.f} {name} {'nil' if access.value is None else render(access.value)}"

    def render_shown(self, access: Access) -> str:
        """Return the answer of a predicate read as text; a long answer is shortened."""
        items = [f"{self.render_key(key)} {render(value)}" for key, value in access.shown.items()]
        if len(items) > SHOWN_KEYS_MAX:
            items = [*items[:SHOWN_KEYS_MAX], f"... {len(items) - SHOWN_KEYS_MAX} more"]
        return f"{{{', '.join(items)}}}"

    def render_txn(self, txn: int, *, most: int = 12) -> str:
        """Return a transaction as text; reads without a known answer show `?`."""
        answered = self.type[txn] == OK
        parts = [self.render_access(access, known=answered) for access in self.bodies[txn][:most]]
        if len(self.bodies[txn]) > most:
            parts.append(f"... {len(self.bodies[txn]) - most} more")
        return "; ".join(parts) or "nothing"


def _quoted(value: Any) -> str:
    return clipped(repr(value), _QUOTED_MAX)


class _Reader:
    """Parses micro-operations and numbers their keys. Raises `HistoryError` with the op's index."""

    def __init__(self) -> None:
        self.keys: dict[str, int] = {}
        self.names: list[Any] = []
        self.initial: dict[int, Any] = {}
        self.mod: int | None = None
        self.unfit: tuple[int, Any] | None = None
        # key number -> type of the key, except for keys of maps, which a parser turns into text
        self._kinds: dict[int, type] = {}

    def key(self, name: Any, index: int, *, in_map: bool = False) -> int:
        kind = type(name)
        if kind is not str and kind is not int:
            raise HistoryError(
                f"op {index} names the key {_quoted(name)}; keys of this check are text or integers"
            )
        text = str(name).removeprefix(":")
        number = self.keys.setdefault(text, len(self.names))
        if number == len(self.names):
            self.names.append(text)
        if not in_map and self._kinds.setdefault(number, kind) is not kind:
            raise HistoryError(
                f"op {index} names the key {_quoted(name)}, and another op uses a key of another "
                "type with the same text; maps hold keys as text, so both look the same"
            )
        return number

    def value(self, value: Any, index: int) -> Any:
        if type(value) is not int and self.unfit is None:
            self.unfit = (index, value)
        return value

    def map(self, shown: Any, index: int, what: str) -> dict[int, Any]:
        if not isinstance(shown, Mapping):
            raise HistoryError(
                f"op {index}: {what} holds {_quoted(shown)}, not a map {{key value}}"
            )
        values: dict[int, Any] = {}
        for name, value in shown.items():
            key = self.key(name, index, in_map=True)
            if value is None:
                raise HistoryError(
                    f"op {index}: {what} shows {_quoted(name)} with nil; leave absent keys out"
                )
            if key in values:
                raise HistoryError(f"op {index}: {what} shows {_quoted(name)} twice")
            values[key] = self.value(value, index)
        return values

    def predicate(self, form: Any, index: int) -> Predicate:
        parts = list(form) if isinstance(form, (list, tuple)) else [form]
        name = parts[0] if parts else None
        name = name.removeprefix(":") if isinstance(name, str) else name
        if len(parts) == 1 and (name is True or name == "true"):
            return Predicate("true")
        if len(parts) == 2 and name == "=" and parts[1] is not None:
            return Predicate("=", identity(parts[1]), text=f"[= {render(parts[1])}]")
        if len(parts) == 3 and name == "mod" and type(parts[1]) is type(parts[2]) is int:
            modulus, rest = parts[1:]
            if modulus > 0:
                self.mod = index if self.mod is None else self.mod
                return Predicate("mod", ("", None), modulus, rest, f"[mod {modulus} {rest}]")
        raise HistoryError(
            f"op {index} reads by the predicate {_quoted(form)}; known are true, [= value] and "
            "[mod modulus rest] with a modulus above 0"
        )

    def access(self, mop: Any, index: int, *, answered: bool) -> Access:
        if not isinstance(mop, (list, tuple)) or not mop or not isinstance(mop[0], str):
            raise HistoryError(
                f"op {index} holds the micro-operation {_quoted(mop)}; it must be [f, ...]"
            )
        f = mop[0].removeprefix(":")
        if f == "delete" and (len(mop) == 2 or (len(mop) == 3 and mop[2] is None)):
            return Access(f, self.key(mop[1], index))
        if len(mop) == 3 and f == "rp":
            predicate = self.predicate(mop[1], index)
            values = self.map(mop[2], index, "a predicate read") if answered else {}
            return Access(f, predicate=predicate, shown=values)
        if len(mop) == 3 and f == "r":
            value = mop[2] if answered else None
            return Access(f, self.key(mop[1], index), value)
        if len(mop) == 3 and f in _WRITES and f != "delete":
            if mop[2] is None:
                raise HistoryError(
                    f"op {index} writes nil to {_quoted(mop[1])}; nil is what a deleted key reads "
                    "as, so write something else or delete it"
                )
            return Access(f, self.key(mop[1], index), self.value(mop[2], index))
        raise HistoryError(
            f"op {index} holds the micro-operation {_quoted(mop)}; this check knows [insert k v], "
            "[w k v], [delete k], [r k v] and [rp predicate {k v}]"
        )

    def body(self, mops: Any, index: int, *, answered: bool) -> tuple[Access, ...]:
        if not isinstance(mops, (list, tuple)):
            raise HistoryError(
                f"op {index} has the value {_quoted(mops)}; a transaction is a list of "
                "micro-operations"
            )
        return tuple(self.access(mop, index, answered=answered) for mop in mops)

    def check_remainders(self) -> None:
        if self.mod is not None and self.unfit is not None:
            index, value = self.unfit
            raise HistoryError(
                f"op {index} holds the value {_quoted(value)}, but op {self.mod} reads by "
                "[mod ...], which needs a history whose values are all integers"
            )


def _universe(history: History, reader: _Reader) -> list[tuple[Transaction, int]]:
    """Parse `init`; return the transactions of a history with the indices of their invocations."""
    made: list[tuple[Transaction, int]] = []
    begun: int | None = None
    ready = -1
    for number, pair in enumerate(history.pairs):
        call, done = pair.invoke, pair.completion
        if call.f == "init":
            if number:
                raise HistoryError(
                    f"op {call.index} is an init after op {begun}; the universe is declared once, "
                    "before anything else"
                )
            if done is None or done.type is not OpType.OK:
                raise HistoryError(
                    f"op {call.index} is an init that is not ok; without an init that is ok, the "
                    "keys are unknown"
                )
            reader.initial = reader.map(done.value, call.index, "init")
            begun, ready = call.index, done.index
            continue
        begun = call.index if begun is None else begun
        if call.index < ready:
            raise HistoryError(
                f"op {call.index} invokes a transaction before init was over (op {ready})"
            )
        mops = mops_of(pair)
        # Processes may be numbers or names. Only their equality matters.
        process: Any = call.process
        end = None if done is None else done.index
        made.append((Transaction(mops, call.index, end, pair.type, process), call.index))
    return made


def predicate_columns(
    source: History | PredicateColumns | Iterable[Transaction],
    universe: Mapping[Any, Any] | None = None,
) -> PredicateColumns:
    """Convert a history with an `init`, or transactions in a `universe`, to columns.

    Columns are returned unchanged. Raises `HistoryError`, with the index of the op, if the history
    does not have the form that this module describes.
    """
    if isinstance(source, PredicateColumns):
        return source
    reader = _Reader()
    if isinstance(source, History):
        entries = _universe(source, reader)
    else:
        reader.initial = reader.map(universe or {}, -1, "init")
        entries = [(txn, number) for number, txn in enumerate(source)]
    bodies = [
        reader.body(txn.value, index, answered=txn.type is OpType.OK) for txn, index in entries
    ]
    reader.check_remainders()
    base = columns_of((replace(txn, value=()) for txn, _ in entries), writes_are="predicates")
    order = base.index.tolist()
    arrays = {item.name: getattr(base, item.name) for item in fields(Columns)}
    arrays["keys"] = reader.names
    columns = PredicateColumns(
        **arrays,
        bodies=[bodies[position] for position in order],
        initial=[reader.initial.get(key) for key in range(len(reader.names))],
    )
    for row, position in enumerate(order):
        columns.index[row] = entries[position][1]
    return columns
