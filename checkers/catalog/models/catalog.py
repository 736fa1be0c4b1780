"""The model of the whole catalog: names, tables, versions, and the columns of every version.

A state maps names to tables. The model identifies a table by its *key*, the nonce of the create
that made the table. Answers show table ids instead. `bindings` maps ids to keys, as far as answers
show both. A table whose create lost its answer may have no binding. The state then binds the id to
a table when an answer first shows the id.

`Rules` adapts the model to histories in the file format "catalog table" (`TABLES`).

States are tuples of small numbers: one number per name, and one for the set of ids bound so far. So
states are cheap to copy, hash and compare.

As in Kudu's masters, a rename of an absent name answers "not-found" even if the new name is taken,
and a rename onto the same name answers "exists".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from checkers.catalog.models.facts import TableFacts
from checkers.catalog.models.name import name_projections
from checkers.catalog.models.tables import table_projections
from checkers.catalog.models.types import (
    DDL,
    Alter,
    Answer,
    CatalogInput,
    Columns,
    Create,
    Delete,
    Get,
    ListTables,
    Look,
    Rename,
    Rules,
    apply_steps,
)
from checkers.linearizability.model import UNKNOWN, Model, Operation, Projection, Unknown

State = tuple[int, ...]
T = TypeVar("T")


class Table(NamedTuple):
    """A live table. `late_id` is the id that a step of the model bound to it. `chain` is the number
    of its last `_Link`.
    """

    key: str
    late_id: str | None
    chain: int


class _Link(NamedTuple):
    previous: int
    version: int
    columns: Columns


ABSENT: Final = 0


class _Numbered(Generic[T]):
    """Numbers distinct values in the order of their first occurrence."""

    def __init__(self, *things: T) -> None:
        self.things = [*things]
        self._numbers = {thing: number for number, thing in enumerate(things)}

    def number(self, thing: T) -> int:
        number = self._numbers.get(thing)
        if number is None:
            number = self._numbers[thing] = len(self.things)
            self.things.append(thing)
        return number


class Catalog(Model[State, CatalogInput, Answer]):
    """The model of a catalog with the names that occur in `operations`; it is empty at first."""

    def __init__(
        self,
        operations: Iterable[Operation[CatalogInput, Answer]],
        bindings: Mapping[str, str],
        *,
        once: bool = True,
        rules: Rules = DDL,
    ) -> None:
        """Create the model, with facts from all answers of `operations`.

        `bindings` maps table ids to keys. If `once` is false, a version of a table may be made
        several times.
        """
        operations = tuple(operations)
        self.names: tuple[str, ...] = tuple(sorted(_names(operations)))
        self._index = {name: number for number, name in enumerate(self.names)}
        self._bindings = dict(bindings)
        self._once = once
        self._rules = rules
        self._facts = TableFacts(operations if once else ())
        self._bound_keys = {key: ident for ident, key in self._bindings.items()}
        self._all_bound = self._facts.all_bound(self._bindings)
        self._tables: _Numbered[Table | None] = _Numbered(None)  # number 0 is ABSENT
        self._links: _Numbered[_Link] = _Numbered()
        self._late: _Numbered[frozenset[str]] = _Numbered(frozenset())

    def init(self) -> State:
        return (ABSENT,) * (len(self.names) + 1)

    # --- the specification -------------------------------------------------------------------

    def step(
        self, state: State, input_: CatalogInput, output: Answer | Unknown, /
    ) -> tuple[bool, State]:
        if isinstance(input_, ListTables):
            return (True, state) if output is UNKNOWN else self._step_list(state, output)
        present = state[self._index[input_.name]] != ABSENT
        if output is not UNKNOWN:
            if output.result == "not-found":
                return not present and not isinstance(input_, Create), state
            if output.result == "exists":
                return present and self._name_taken(state, input_), state
        if isinstance(input_, Create):
            return self._step_create(state, input_, output)
        if not present:
            return output is UNKNOWN, state
        if isinstance(input_, Get | Look):
            return (True, state) if output is UNKNOWN else self._step_read(state, input_, output)
        return self._step_change(state, input_, output)

    def _name_taken(self, state: State, input_: CatalogInput) -> bool:
        """Whether "exists" is a legal answer because a table already has the new name."""
        if isinstance(input_, Rename):
            return state[self._index[input_.new_name]] != ABSENT
        return isinstance(input_, Create)

    def _step_create(
        self, state: State, input_: Create, output: Answer | Unknown
    ) -> tuple[bool, State]:
        index = self._index[input_.name]
        if state[index] != ABSENT:
            return output is UNKNOWN, state
        never_shown = self._all_bound and input_.key not in self._bound_keys
        if output is UNKNOWN and never_shown and not self._facts.create_matters(input_.name):
            return True, state
        chain = self._links.number(_Link(-1, self._rules.first, input_.columns))
        number = self._tables.number(Table(input_.key, None, chain))
        state = (*state[:index], number, *state[index + 1 :])
        if output is UNKNOWN:
            return True, state
        return self._match(state, index, output.table_id, output.version)

    def _step_change(
        self, state: State, input_: Alter | Rename | Delete, output: Answer | Unknown
    ) -> tuple[bool, State]:
        index = self._index[input_.name]
        table = self._tables.things[state[index]]
        assert table is not None
        link = self._links.things[table.chain]
        if isinstance(input_, Delete):
            if output is UNKNOWN:
                if not self._facts.allow_unknown_delete(self.table_id(table), link.version):
                    return True, state
            else:
                legal, state = self._match(state, index, output.table_id, output.version)
                if not legal:
                    return False, state
            return True, (*state[:index], ABSENT, *state[index + 1 :])
        columns: Columns | None = link.columns
        version, target = link.version + 1, index
        if isinstance(input_, Alter):
            columns = apply_steps(link.columns, input_.steps)
        else:
            version -= not self._rules.rename_makes_version
            target = self._index[input_.new_name]
            if state[target] != ABSENT:
                columns = None
        ident = self.table_id(table)
        if columns is None or not self._facts.allow_change(
            ident, version, self.names[target], columns, unknown=output is UNKNOWN
        ):
            return output is UNKNOWN, state
        if (
            output is UNKNOWN
            and isinstance(input_, Alter)
            and (ident is not None or self._all_bound)
            and not self._facts.alter_matters(ident, version)
        ):
            return True, state
        # No answer shows the payload of an older version, so the state keeps only the newest
        # version.
        previous = -1 if self._rules.payload else table.chain
        chain = self._links.number(_Link(previous, version, columns))
        after = list(state)
        after[index] = ABSENT
        after[target] = self._tables.number(table._replace(chain=chain))
        if output is UNKNOWN:
            return True, tuple(after)
        legal, matched = self._match(tuple(after), target, output.table_id, output.version)
        return legal, matched if legal else state

    def _step_read(self, state: State, input_: Get | Look, output: Answer) -> tuple[bool, State]:
        index = self._index[input_.name]
        table = self._tables.things[state[index]]
        assert table is not None
        if output.key is not None and table.key != output.key:
            return False, state
        if output.columns is not None:
            number = table.chain
            if output.applied is not None:
                while number >= 0 and self._links.things[number].version > output.applied:
                    number = self._links.things[number].previous
            link = self._links.things[number] if number >= 0 else None
            if link is None or link.columns != output.columns:
                return False, state
            if output.applied is not None and link.version != output.applied:
                return False, state
        return self._match(state, index, output.table_id, output.version)

    def _step_list(self, state: State, output: Answer) -> tuple[bool, State]:
        listed = {name for name, _, _ in output.listing}
        live = len(self.names) - state[:-1].count(ABSENT)
        if not live == len(listed) == len(output.listing):
            return False, state
        after = state
        for name, table_id, version in output.listing:
            index = self._index[name]
            if after[index] == ABSENT:
                return False, state
            legal, after = self._match(after, index, table_id, version)
            if not legal:
                return False, state
        return True, after

    def _match(
        self, state: State, index: int, table_id: str | None, version: int | None
    ) -> tuple[bool, State]:
        table = self._tables.things[state[index]]
        assert table is not None
        if version is not None and self._links.things[table.chain].version != version:
            return False, state
        if table_id is None:
            return True, state
        key = self._bindings.get(table_id)
        if key is not None:
            return key == table.key, state
        if table.late_id is not None:
            return table.late_id == table_id, state
        bound = self._late.things[state[-1]]
        if table.key in self._bound_keys or table_id in bound:
            return False, state
        number = self._tables.number(table._replace(late_id=table_id))
        late = self._late.number(bound | {table_id})
        return True, (*state[:index], number, *state[index + 1 : -1], late)

    def read_only(self, input_: CatalogInput, output: Answer | Unknown, /) -> bool:
        """Whether the operation is a read that binds no new id, or its answer is a refusal."""
        if output is UNKNOWN:
            return isinstance(input_, Get | Look | ListTables)
        if output.result != "ok":
            return True
        if isinstance(input_, ListTables):
            return all(ident is None or ident in self._bindings for _, ident, _ in output.listing)
        if isinstance(input_, Get | Look):
            return output.table_id is None or output.table_id in self._bindings
        return False

    def footprint(self, input_: CatalogInput, /) -> frozenset[str] | None:
        if isinstance(input_, ListTables):
            return None
        if isinstance(input_, Rename):
            return frozenset((input_.name, input_.new_name))
        return frozenset((input_.name,))

    def for_operations(self, operations: Sequence[Operation[CatalogInput, Answer]], /) -> Catalog:
        """Return the same model with facts from `operations` only."""
        return Catalog(operations, self._bindings, once=self._once, rules=self._rules)

    def projections(
        self, operations: Sequence[Operation[CatalogInput, Answer]], /
    ) -> Sequence[Projection[Any, Any, Any]]:
        """Return a projection per name; for `TABLES`, all projections of `models.tables`."""
        names = name_projections(self.names, operations, self._bindings, self._rules)
        return table_projections(names, operations) if self._rules.payload else names

    # --- words -------------------------------------------------------------------------------

    def table(self, state: State, name: str) -> Table | None:
        return self._tables.things[state[self._index[name]]]

    def under(self, state: State, name: str) -> tuple[str | None, int, Columns] | None:
        """Return the id, version and newest columns of the table `name` in `state`, if any."""
        table = self.table(state, name)
        return table and (self.table_id(table), self.version(table), self.columns(table))

    def version(self, table: Table) -> int:
        return self._links.things[table.chain].version

    def columns(self, table: Table) -> Columns:
        return self._links.things[table.chain].columns

    def table_id(self, table: Table) -> str | None:
        """Return the id of `table`, or `None` if no answer showed it."""
        return table.late_id or self._bound_keys.get(table.key)

    def versions(self, state: State, other: State) -> dict[str, int]:
        """Map the tables of `state` that differ in `other`, by id, to their versions in `state`."""
        versions: dict[str, int] = {}
        for number, same in zip(state[:-1], other, strict=False):
            table = self._tables.things[number] if number != same else None
            if table is not None and (ident := self.table_id(table)) is not None:
                versions[ident] = self._links.things[table.chain].version
        return versions

    def describe_operation(self, input_: CatalogInput, output: Answer | Unknown, /) -> str:
        words = " to ".join(str(part) for part in input_[:-1] if isinstance(part, str))
        match input_:
            case Create(name=name, columns=columns):
                words = f"{name} ({', '.join(columns)})"
            case Alter(name=name, steps=steps):
                words = f"{name} ({', '.join(' '.join(step) for step in steps)})"
        request = f"{input_.f} {words}".strip()
        if output is UNKNOWN:
            return f"{request} (unknown)"
        if output.result != "ok":
            return f"{request}: {output.result.replace('-', ' ')}"
        if isinstance(input_, ListTables):
            listing = ", ".join(f"{name}:{ident}" for name, ident, _ in output.listing)
            return f"{request}: {listing or 'nothing'}"
        parts = [f"id {output.table_id}"] if output.table_id is not None else []
        parts += [f"version {output.version}"] if output.version is not None else []
        parts += [", ".join(output.columns)] if output.columns is not None else []
        return f"{request}: {' '.join(parts) or 'ok'}"

    def describe_state(self, state: State, /) -> str:
        words = []
        for name, number in zip(self.names, state, strict=False):
            table = self._tables.things[number]
            if table is not None:
                ident = self.table_id(table) or "of unknown id"
                payload = f" ({self.columns(table)[0]})" if self._rules.payload else ""
                words.append(f"{name}: table {ident} version {self.version(table)}{payload}")
        return "; ".join(words) or "no tables"


def _names(operations: Iterable[Operation[CatalogInput, Answer]]) -> set[str]:
    names: set[str] = set()
    for operation in operations:
        input_, output = operation.input, operation.output
        if isinstance(input_, ListTables):
            if output is not UNKNOWN:
                names.update(name for name, _, _ in output.listing)
            continue
        names.add(input_.name)
        if isinstance(input_, Rename):
            names.add(input_.new_name)
    return names
