"""One name of the catalog by itself: a necessary condition that is cheap to refute.

Whatever linearizes the whole catalog also linearizes, for each name, the operations that touch it,
each reduced to what it says about that name:

* a rename away or a delete takes the table away; a rename here or a create puts one there;
* a list says what is under the name then, or that nothing is;
* "not-found" and "exists" say whether something is there.

State: nothing, a table (id, version), or *some* table, which an operation of unknown outcome put
there and of which every answer is believed. Columns are left to the whole model. Unknown operations
on other names do not appear at all, which is why this decides in moments what a search over the
whole catalog cannot: with 20 names and 50 lost answers that has too many states to exhaust.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from checkers.linearizability.model import UNKNOWN, Model, Operation, Projection, Unknown
from checkers.linearizability.models.catalog_types import (
    Alter,
    Answer,
    CatalogInput,
    Create,
    Delete,
    Get,
    ListTables,
    Look,
    Rename,
)
from checkers.linearizability.models.versioned_views import of_interest

__all__ = ["CatalogName", "NameInput", "name_projections"]


class NameInput(NamedTuple):
    """What an operation says about the name.

    | f         | legal in                 | afterwards                                           |
    |-----------|--------------------------|------------------------------------------------------|
    | put       | nothing                  | table (id, version)                                  |
    | bump      | table (id, version - 1)  | table (id, version)                                  |
    | take      | table (id, version)      | nothing                                              |
    | see       | table (id, version)      | the same                                             |
    | present   | any table                | the same                                             |
    | absent    | nothing                  | the same                                             |

    An id of `None` stands for one that is not shown or cannot be compared, a version of `None`
    likewise.
    """

    f: str
    table_id: str | None = None
    version: int | None = None


Slot = tuple[str | None, int | None] | None
SOME: Final[Slot] = (None, None)
READS: Final = frozenset({"see", "present", "absent"})


class CatalogName(Model[Slot, NameInput, bool]):
    """See the module."""

    def init(self) -> Slot:
        """Nothing is there."""
        return None

    def step(
        self,
        state: Slot,
        input_: NameInput,
        output: bool | Unknown,
        /,
    ) -> tuple[bool, Slot]:
        """Unknown operations act where they can."""
        f = input_.f
        if f in {"put", "absent"}:
            legal = state is None
        else:
            legal = state is not None and (f == "present" or _fits(state, input_))
        if not legal:
            return output is UNKNOWN, state
        if f == "put":
            known = input_.table_id is not None and input_.version is not None
            return True, (input_.table_id, input_.version) if known else SOME
        if f == "take":
            return True, None
        if f == "bump" and state is not None and state[1] is not None:
            return True, (state[0], state[1] + 1)
        return True, state

    def read_only(self, input_: NameInput, output: bool | Unknown, /) -> bool:
        """What only looks."""
        del output
        return input_.f in READS

    def blurred(
        self,
        core: Sequence[Operation[NameInput, bool]],
        others: Sequence[Operation[NameInput, bool]],
        /,
    ) -> Sequence[Operation[NameInput, bool]]:
        """Without what only comes and goes while the core looks away; see `of_interest`."""
        return of_interest(
            [operation.input.table_id for operation in core],
            [operation for operation in others if operation.input.f not in READS],
            id_of=lambda operation: operation.input.table_id,
            any_will_do=any(o.input.f == "present" or _says_no_id(o.input) for o in core),
        )

    def describe_state(self, state: Slot, /) -> str:
        """For people."""
        if state is None:
            return "no table has the name"
        if state == SOME:
            return "some table has the name"
        return f"table {state[0]} version {state[1]} has the name"


def _says_no_id(said: NameInput) -> bool:
    return said.table_id is None and said.f not in {"present", "absent"}


def _fits(state: tuple[str | None, int | None], input_: NameInput) -> bool:
    if state[0] is not None and input_.table_id is not None and state[0] != input_.table_id:
        return False
    if state[1] is None or input_.version is None:
        return True
    return state[1] == input_.version - (1 if input_.f == "bump" else 0)


def name_projections(
    names: Sequence[str],
    operations: Sequence[Operation[CatalogInput, Answer]],
    bindings: Mapping[str, str],
) -> list[Projection[Slot, NameInput, bool]]:
    """One projection for each name, in the order of `names`."""
    ids = {key: ident for ident, key in bindings.items()}
    found: dict[str, list[Operation[NameInput, bool]]] = {name: [] for name in names}
    for operation in operations:
        for name, said in _sayings(operation, names, ids, bindings):
            found[name].append(
                Operation(
                    operation.client_id,
                    said,
                    operation.call,
                    UNKNOWN if operation.is_unknown else True,
                    operation.return_time,
                    operation.id,
                )
            )
    model = CatalogName()
    return [Projection(f"name {name!r}", model, tuple(found[name])) for name in names]


def _sayings(
    operation: Operation[CatalogInput, Answer],
    names: Sequence[str],
    ids: Mapping[str, str],
    bindings: Mapping[str, str],
) -> Iterator[tuple[str, NameInput]]:
    given, answer = operation.input, operation.output
    if operation.is_unknown or answer is UNKNOWN:
        yield from _unknown_sayings(given, ids)
    elif not isinstance(given, ListTables):
        yield from _known_sayings(given, answer, bindings)
    else:
        shown = {name: (ident, version) for name, ident, version in answer.listing}
        for name in names:
            if name in shown:
                yield name, NameInput("see", *_comparable(*shown[name], bindings))
            else:
                yield name, NameInput("absent")


def _comparable(
    ident: str | None, version: int | None, bindings: Mapping[str, str]
) -> tuple[str | None, int | None]:
    """An id that no create is known to have made says nothing by itself."""
    return (ident if ident in bindings else None), version


def _unknown_sayings(
    given: CatalogInput, ids: Mapping[str, str]
) -> Iterator[tuple[str, NameInput]]:
    match given:
        case Create(name=name, key=key):
            yield name, NameInput("put", ids.get(key), 0)
        case Alter(name=name):
            yield name, NameInput("bump")
        case Delete(name=name):
            yield name, NameInput("take")
        case Rename(name=name, new_name=new_name) if name != new_name:
            yield name, NameInput("take")
            yield new_name, NameInput("put")
        case _:
            pass  # reads of unknown outcome, and renames that cannot do anything


def _known_sayings(
    given: Create | Alter | Rename | Delete | Get | Look,
    answer: Answer,
    bindings: Mapping[str, str],
) -> Iterator[tuple[str, NameInput]]:
    if answer.result == "not-found":
        yield given.name, NameInput("absent")
        return
    if answer.result == "exists":
        yield given.name, NameInput("present")
        if isinstance(given, Rename) and given.new_name != given.name:
            yield given.new_name, NameInput("present")
        return
    ident, version = _comparable(answer.table_id, answer.version, bindings)
    match given:
        case Create(name=name):
            yield name, NameInput("put", ident, 0)
        case Alter(name=name):
            yield name, NameInput("bump", ident, version)
        case Delete(name=name):
            yield name, NameInput("take", ident, version)
        case Rename(name=name, new_name=new_name):
            # Onto itself it cannot succeed; "take" then leaves nothing that could.
            yield name, NameInput("take", ident, None if version is None else version - 1)
            if new_name != name:
                yield new_name, NameInput("put", ident, version)
        case Get(name=name) | Look(name=name):
            yield name, NameInput("see", ident, version)
