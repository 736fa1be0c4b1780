"""Models of a metastore's tables, whose states map each table name to a nonce.

Every change writes the whole table. Creates, alters and renames write a nonce of their own, and
gets show it. So the nonce of the last change represents the table. A rename to the same name is an
alter.

`LaxMetastore` also allows anomalies of real Hive. A drop that overlaps another drop may find
nothing. A change that overlaps a rename may change the table under its new name. Two renames that
each change a part of the name (database or table) may produce a name that neither of them
requested.

`OrderedMetastore` applies changes in the order of the notification log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from checkers.catalog.models.views import NameView, Said, Slot, saying
from checkers.linearizability.model import UNKNOWN, Model, Operation, Projection, Unknown
from checkers.linearizability.nondeterministic import NondeterministicModel

OBSERVED: Final = frozenset({"already-exists", "no-such-object", "invalid-operation"})
"""The refusals that depend on the state of the metastore."""
_PLACE: Final = ""
"""A name that no table has. It is in the footprint of every change with a place."""


class MetastoreInput(NamedTuple):
    """The input of an operation; `f` is create, alter, rename, drop, get or list.

    Two fields are for `LaxMetastore`: an `idle` drop may do nothing if no table has the name, and a
    change may change the table under one of the names in `others` instead. `place` is the position
    of a change in the notification log, counted from 1; 0 means unknown.
    """

    f: str
    name: str = ""
    new_name: str = ""
    nonce: str = ""
    idle: bool = False
    others: tuple[str, ...] = ()
    place: int = 0


class MetastoreOutput(NamedTuple):
    """The answer of an operation; `result` is ok or one of `OBSERVED`.

    A get shows the nonce, or `None` if the nonce does not matter. A list shows names.
    """

    result: str
    nonce: str | None = None
    names: tuple[str, ...] = ()


State = tuple[tuple[str, str], ...]
MetastoreOperation = Operation[MetastoreInput, MetastoreOutput]


def _after(state: State, input_: MetastoreInput) -> State | None:
    there = dict(state)
    is_there = input_.name in there
    match input_.f:
        case "create" if not is_there:
            there[input_.name] = input_.nonce
        case "alter" if is_there:
            there[input_.name] = input_.nonce
        case "rename" if is_there and (
            input_.new_name == input_.name or input_.new_name not in there
        ):
            del there[input_.name]
            there[input_.new_name] = input_.nonce
        case "drop" if is_there:
            del there[input_.name]
        case _:
            return None
    return tuple(sorted(there.items()))


def _allows(state: State, input_: MetastoreInput, output: MetastoreOutput) -> bool:
    there = dict(state)
    is_there = input_.name in there
    if input_.f == "list":
        return tuple(name for name, _ in state) == output.names
    match output.result:
        case "ok":
            return is_there and output.nonce in {None, there.get(input_.name)}
        case "already-exists":
            return input_.f == "create" and is_there
        case "no-such-object":
            return input_.f != "create" and not is_there
        case _:
            taken = input_.new_name != input_.name and input_.new_name in there
            return (input_.f == "rename" and taken) or (
                input_.f in {"alter", "rename"} and not is_there
            )


class Metastore(Model[State, MetastoreInput, MetastoreOutput]):
    """The strict model. Its state has (name, nonce) for each table, sorted; empty at first."""

    def init(self) -> State:
        return ()

    def step(
        self, state: State, input_: MetastoreInput, output: MetastoreOutput | Unknown, /
    ) -> tuple[bool, State]:
        if self.read_only(input_, output):
            return output is UNKNOWN or _allows(state, input_, output), state
        after = _after(state, input_)
        if after is None:
            return output is UNKNOWN, state
        return True, after

    def read_only(self, input_: MetastoreInput, output: MetastoreOutput | Unknown, /) -> bool:
        return input_.f in {"get", "list"} or (output is not UNKNOWN and output.result != "ok")

    def footprint(self, input_: MetastoreInput, /) -> frozenset[str] | None:
        """Return the table names in the request; `None` for a list, which touches all names."""
        if input_.f == "list":
            return None
        names = (input_.name, input_.new_name)
        return frozenset(names) if input_.f == "rename" else frozenset(names[:1])

    def projections(
        self, operations: Sequence[MetastoreOperation], /
    ) -> Sequence[Projection[Any, Any, Any]]:
        names = sorted({name for operation in operations for name in _names(operation)})
        by_name: dict[str, list[Operation[Said, bool]]] = {name: [] for name in names}
        for operation in operations:
            for name, statement in about(operation, names):
                by_name[name].append(saying(operation, statement))
        return [Projection(f"name {name!r}", _Name(), tuple(by_name[name])) for name in names]

    def describe_operation(
        self, input_: MetastoreInput, output: MetastoreOutput | Unknown, /
    ) -> str:
        what = f"{input_.f} {input_.name}".strip()
        if input_.f == "rename":
            what += f" to {input_.new_name}"
        if input_.nonce:
            what += f" ({input_.nonce})"
        if output is UNKNOWN:
            return f"{what} -> unknown"
        if input_.f == "list":
            return f"{what} -> {', '.join(output.names) or 'nothing'}"
        return f"{what} -> {output.result}" + (f" {output.nonce}" if output.nonce else "")

    def describe_state(self, state: State, /) -> str:
        return ", ".join(f"{name} is {nonce or 'some table'}" for name, nonce in state) or "nothing"


def renamed(rename: MetastoreInput, name: str) -> str:
    """Return the new name of a table that is called `name` when `rename` is written.

    A rename writes the database or the table part of the name only if the request changes this
    part. An alter changes no name.
    """
    if rename.f != "rename":
        return name
    parts = zip(*(full.split(".", 1) for full in (rename.name, rename.new_name, name)), strict=True)
    return ".".join(now if new == old else new for old, new, now in parts)


class LaxMetastore(NondeterministicModel[State, MetastoreInput, MetastoreOutput]):
    """The model `Metastore`, plus the anomalies of real Hive that `idle` and `others` allow."""

    def __init__(self) -> None:
        self._strict = Metastore()

    def init(self) -> Iterable[State]:
        return (self._strict.init(),)

    def step(
        self, state: State, input_: MetastoreInput, output: MetastoreOutput | Unknown, /
    ) -> Iterator[State]:
        legal, after = self._strict.step(state, input_, output)
        if legal:
            yield after
        if self._strict.read_only(input_, output):
            return
        if input_.idle and all(name != input_.name for name, _ in state):
            yield state
        for other in input_.others:
            moved = _after(state, input_._replace(name=other, new_name=renamed(input_, other)))
            if moved is not None:
                yield moved

    def describe_operation(
        self, input_: MetastoreInput, output: MetastoreOutput | Unknown, /
    ) -> str:
        return self._strict.describe_operation(input_, output)


class OrderedMetastore(Model[tuple[int, State], MetastoreInput, MetastoreOutput]):
    """The model `Metastore`, with changes in the order of the notification log.

    The state is (place of the last change, state of `Metastore`). No place can be skipped.
    """

    def __init__(self) -> None:
        self._strict = Metastore()

    def init(self) -> tuple[int, State]:
        return 0, self._strict.init()

    def step(
        self, state: tuple[int, State], input_: MetastoreInput, output: MetastoreOutput | Unknown, /
    ) -> tuple[bool, tuple[int, State]]:
        """Take the step of `Metastore`. A change with a place is legal only if its place comes
        next.
        """
        last, tables = state
        if not input_.place:
            legal, after = self._strict.step(tables, input_, output)
            return legal, (last, after)
        changed = _after(tables, input_) if input_.place == last + 1 else None
        if changed is None:
            return output is UNKNOWN, state
        return True, (input_.place, changed)

    def read_only(self, input_: MetastoreInput, output: MetastoreOutput | Unknown, /) -> bool:
        return self._strict.read_only(input_, output)

    def footprint(self, input_: MetastoreInput, /) -> frozenset[str] | None:
        """Return the footprint in `Metastore`. A change with a place also has `_PLACE` in it."""
        names = self._strict.footprint(input_)
        return names | {_PLACE} if names is not None and input_.place else names


# --- one name ------------------------------------------------------------------------------------


def _names(operation: MetastoreOperation) -> Iterator[str]:
    if operation.input.f != "list":
        yield operation.input.name
        if operation.input.f == "rename":
            yield operation.input.new_name
    elif operation.said is not UNKNOWN:
        yield from operation.said.names


def about(operation: MetastoreOperation, names: Sequence[str]) -> Iterator[tuple[str, Said]]:
    """Yield (name, statement) for each table name about which the operation makes a statement."""
    call, answer = operation.input, operation.said
    if call.f == "list" and answer is not UNKNOWN:
        for name in names:
            yield name, Said("present" if name in answer.names else "absent")
    elif call.f == "get" and answer is not UNKNOWN:
        is_there = answer.result == "ok"
        yield call.name, Said("see", payload=answer.nonce) if is_there else Said("absent")
    elif answer is UNKNOWN or answer.result == "ok":
        yield from _about_change(call)
    elif answer.result == "already-exists":
        yield call.name, Said("present")
    elif answer.result == "no-such-object" or call.f != "rename":
        yield call.name, Said("absent")


def _about_change(change: MetastoreInput) -> Iterator[tuple[str, Said]]:
    match change.f:
        case "create":
            yield change.name, Said("put", payload=change.nonce)
        case "alter":
            yield change.name, Said("bump", payload=change.nonce)
        case "drop":
            yield change.name, Said("take")
        case "rename" if change.name == change.new_name:
            yield change.name, Said("bump", payload=change.nonce)
        case "rename":
            yield change.name, Said("take")
            yield change.new_name, Said("put", payload=change.nonce)


class _Name(NameView):
    """The model of one table name, with the nonce as the payload.

    Refusals because of another name are left out.
    """

    def describe_state(self, state: Slot, /) -> str:
        return f"{'nothing' if state is None else state[2] or 'some table'} has the name"
