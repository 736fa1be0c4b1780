"""Tables of a metastore: name -> the nonce of the last change of what is there.

Tables are written whole, so that a table is its last change: creates, alters and renames write
their nonce, and gets show it. A rename onto its own name is an alter.

`LaxMetastore` is what changes of Hive's own may do: a drop that overlaps another may find nothing,
and a change that overlaps a rename may be one of the table under its new name. `OrderedMetastore`
has changes in an order that is known beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from checkers.linearizability.model import UNKNOWN, Model, Operation, Projection, Unknown
from checkers.linearizability.nondeterministic import NondeterministicModel

OBSERVED: Final = frozenset({"already-exists", "no-such-object", "invalid-operation"})
"""Refusals that say what was there."""
_PLACE: Final = ""
"""No table's name."""


class MetastoreInput(NamedTuple):
    """`f` is create, alter, rename, drop, get or list.

    A lax drop may be `idle` where nothing is there; a lax change may be one of the table under one
    of `others`. A `place` is the number of a change among those whose order is known, from 1.
    """

    f: str
    name: str = ""
    new_name: str = ""
    nonce: str = ""
    idle: bool = False
    others: tuple[str, ...] = ()
    place: int = 0


class MetastoreOutput(NamedTuple):
    """`result` is ok or one of `OBSERVED`; gets show a nonce, or `None`, lists show names."""

    result: str
    nonce: str | None = None
    names: tuple[str, ...] = ()


State = tuple[tuple[str, str], ...]
MetastoreOperation = Operation[MetastoreInput, MetastoreOutput]


def _after(state: State, input_: MetastoreInput) -> State | None:
    """The state after the change, or `None` where it is refused."""
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
    """Whether a read or a refusal is true of this state."""
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
    """No table at first; the state is sorted by name."""

    def init(self) -> State:
        """No table."""
        return ()

    def step(
        self, state: State, input_: MetastoreInput, output: MetastoreOutput | Unknown, /
    ) -> tuple[bool, State]:
        """See `_after` and `_allows`."""
        if self.read_only(input_, output):
            return output is UNKNOWN or _allows(state, input_, output), state
        after = _after(state, input_)
        if after is None:
            return output is UNKNOWN, state
        return True, after

    def read_only(self, input_: MetastoreInput, output: MetastoreOutput | Unknown, /) -> bool:
        """Reads and refusals."""
        return input_.f in {"get", "list"} or (output is not UNKNOWN and output.result != "ok")

    def footprint(self, input_: MetastoreInput, /) -> frozenset[str] | None:
        """The names in the request; a list looks at all."""
        if input_.f == "list":
            return None
        names = (input_.name, input_.new_name)
        return frozenset(names) if input_.f == "rename" else frozenset(names[:1])

    def projections(
        self, operations: Sequence[MetastoreOperation], /
    ) -> Sequence[Projection[Any, Any, Any]]:
        """Every name by itself."""
        names = sorted({name for operation in operations for name in _names(operation)})
        found: dict[str, list[Operation[_Said, bool]]] = {name: [] for name in names}
        for operation in operations:
            for name, said in _about(operation, names):
                found[name].append(
                    Operation(
                        operation.client_id,
                        said,
                        operation.call,
                        True,
                        operation.return_time,
                        operation.id,
                    )
                )
        return [Projection(f"name {name!r}", _Name(), tuple(found[name])) for name in names]

    def describe_operation(
        self, input_: MetastoreInput, output: MetastoreOutput | Unknown, /
    ) -> str:
        """For people."""
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
        """For people."""
        return ", ".join(f"{name} is {nonce or 'some table'}" for name, nonce in state) or "nothing"


class LaxMetastore(NondeterministicModel[State, MetastoreInput, MetastoreOutput]):
    """The same, with lax changes."""

    def __init__(self) -> None:
        self._strict = Metastore()

    def init(self) -> Iterable[State]:
        """No table."""
        return (self._strict.init(),)

    def step(
        self, state: State, input_: MetastoreInput, output: MetastoreOutput | Unknown, /
    ) -> Iterator[State]:
        """All that may follow."""
        legal, after = self._strict.step(state, input_, output)
        if legal:
            yield after
        if self._strict.read_only(input_, output):
            return
        if input_.idle and all(name != input_.name for name, _ in state):
            yield state
        for other in input_.others:
            new_name = other if input_.new_name == input_.name else input_.new_name
            moved = _after(state, input_._replace(name=other, new_name=new_name))
            if moved is not None:
                yield moved

    def describe_operation(
        self, input_: MetastoreInput, output: MetastoreOutput | Unknown, /
    ) -> str:
        """For people."""
        return self._strict.describe_operation(input_, output)


class OrderedMetastore(Model[tuple[int, State], MetastoreInput, MetastoreOutput]):
    """The same, where changes that have a place are done one after another, and none is left out.

    Beside the tables the state is the last place.
    """

    def __init__(self) -> None:
        self._strict = Metastore()

    def init(self) -> tuple[int, State]:
        """No table, and no place."""
        return 0, self._strict.init()

    def step(
        self, state: tuple[int, State], input_: MetastoreInput, output: MetastoreOutput | Unknown, /
    ) -> tuple[bool, tuple[int, State]]:
        """What has a place was done, whether anybody saw it or not."""
        last, tables = state
        if not input_.place:
            legal, after = self._strict.step(tables, input_, output)
            return legal, (last, after)
        changed = _after(tables, input_) if input_.place == last + 1 else None
        if changed is None:
            return output is UNKNOWN, state
        return True, (input_.place, changed)

    def read_only(self, input_: MetastoreInput, output: MetastoreOutput | Unknown, /) -> bool:
        """Reads and refusals."""
        return self._strict.read_only(input_, output)

    def footprint(self, input_: MetastoreInput, /) -> frozenset[str] | None:
        """As without an order, and the last place."""
        names = self._strict.footprint(input_)
        return names | {_PLACE} if names is not None and input_.place else names


# --- one name ------------------------------------------------------------------------------------


class _Said(NamedTuple):
    """`f` is put, set, take, see, present or absent."""

    f: str
    nonce: str | None = None


def _names(operation: MetastoreOperation) -> Iterator[str]:
    if operation.input.f != "list":
        yield operation.input.name
        if operation.input.f == "rename":
            yield operation.input.new_name
    elif operation.said is not UNKNOWN:
        yield from operation.said.names


def _about(operation: MetastoreOperation, names: Sequence[str]) -> Iterator[tuple[str, _Said]]:
    """What an operation says about each name, if anything by itself."""
    given, answer = operation.input, operation.said
    if given.f == "list" and answer is not UNKNOWN:
        for name in names:
            yield name, _Said("present" if name in answer.names else "absent")
    elif given.f == "get" and answer is not UNKNOWN:
        is_there = answer.result == "ok"
        yield given.name, _Said("see", answer.nonce) if is_there else _Said("absent")
    elif answer is UNKNOWN or answer.result == "ok":
        yield from _about_change(given)
    elif answer.result == "already-exists":
        yield given.name, _Said("present")
    elif answer.result == "no-such-object" or given.f != "rename":
        yield given.name, _Said("absent")


def _about_change(given: MetastoreInput) -> Iterator[tuple[str, _Said]]:
    match given.f:
        case "create":
            yield given.name, _Said("put", given.nonce)
        case "alter":
            yield given.name, _Said("set", given.nonce)
        case "drop":
            yield given.name, _Said("take")
        case "rename" if given.name == given.new_name:
            yield given.name, _Said("set", given.nonce)
        case "rename":
            yield given.name, _Said("take")
            yield given.new_name, _Said("put", given.nonce)


class _Name(Model[str | None, _Said, bool]):
    """One name: the nonce of what is there, or nothing. Refusals of the kind's own are left out."""

    def init(self) -> str | None:
        """Nothing is there."""
        return None

    def step(
        self, state: str | None, input_: _Said, output: bool | Unknown, /
    ) -> tuple[bool, str | None]:
        """What is unknown takes effect where it can."""
        match input_.f:
            case "see":
                return state is not None and input_.nonce in {None, state}, state
            case "present":
                return state is not None, state
            case "absent":
                return state is None, state
        if (state is None) != (input_.f == "put"):
            return output is UNKNOWN, state
        return True, None if input_.f == "take" else input_.nonce

    def read_only(self, input_: _Said, output: bool | Unknown, /) -> bool:
        """What only looks."""
        del output
        return input_.f in {"see", "present", "absent"}
