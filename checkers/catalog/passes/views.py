"""Operations as statements about one table or one name, in terms of four small models.

Each model is a projection of the whole catalog: it accepts every order that linearizes the history,
since it forbids only what no order can show. Everything else may happen freely: a state moves to
the state that the next operation requires. So operations of unknown outcome are left out, and a
part of a view's operations is a projection as well.

* `IdView`: a table's versions only grow, each is made once, deletion is for ever.
* `Tenancy`: a name holds one (table, version) at a time, and each only once, without a break.
* `Shape`: at each version a table has one name and one list of columns, the next by the steps.
* `Pairing`: ids and nonces of creates belong together one to one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from checkers.catalog.models.types import (
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
    apply_steps,
    is_plain_list,
)
from checkers.catalog.models.views import Said, TenancyInput
from checkers.linearizability import UNKNOWN, Model, Operation, Unknown

CatalogOperation = Operation[CatalogInput, Answer]


def answer_of(operation: CatalogOperation) -> Answer | None:
    """The answer of an operation; `None` if its outcome is unknown."""
    answer = operation.said
    return None if answer is UNKNOWN else answer


def shown_by(operation: CatalogOperation) -> tuple[str, ...]:
    """The ids of the tables that a known operation shows."""
    answer = answer_of(operation)
    if answer is None or answer.result != "ok":
        return ()
    if isinstance(operation.input, ListTables):
        return tuple(str(e[1]) for e in answer.listing) if is_plain_list(answer) else ()
    return () if answer.table_id is None else (answer.table_id,)


# --- the versions of one table ----------------------------------------------------------------


def versions_of(table: str, operation: CatalogOperation) -> Said | None:
    """The statement of `operation` about the versions of `table`, if it makes one."""
    call, answer = operation.input, answer_of(operation)
    if answer is None or answer.result != "ok":
        return None
    if isinstance(call, ListTables):
        if not is_plain_list(answer):
            return None
        for _, ident, version in answer.listing:
            if ident == table:
                return Said("alive" if version is None else "see", table, version)
        return Said("missing")
    if answer.table_id != table:
        return None
    if isinstance(call, Create):
        return Said("make", table, 0)
    if isinstance(call, Delete):
        return Said("die", table, answer.version)
    if answer.version is None:
        return Said("alive")
    return Said("make" if isinstance(call, Alter | Rename) else "see", table, answer.version)


# --- who has one name -------------------------------------------------------------------------

Tenant = tuple[str, int]  # table id, version


def tenancies(operation: CatalogOperation) -> Iterator[tuple[str, TenancyInput]]:
    """(name, statement about the name), without the names that a list leaves out."""
    call, answer = operation.input, answer_of(operation)
    if answer is None:
        return
    if isinstance(call, ListTables):
        if is_plain_list(answer):
            for name, ident, version in answer.listing:
                if ident is not None and version is not None:
                    yield name, TenancyInput("at", (ident, version))
        return
    if answer.result == "not-found":
        yield call.name, TenancyInput("absent")
        return
    if answer.result != "ok" or (isinstance(call, Rename) and call.name == call.new_name):
        return
    version = 0 if isinstance(call, Create) else answer.version
    if answer.table_id is None or version is None:
        # No table has the name before a create and after a delete.
        if isinstance(call, Create | Delete | Rename):
            yield call.name, TenancyInput("absent")
        if isinstance(call, Rename):
            yield call.new_name, TenancyInput("absent")
        return
    tenant, before = (answer.table_id, version), (answer.table_id, version - 1)
    match call:
        case Create(name=name):
            yield name, TenancyInput("enter", tenant)
        case Alter(name=name):
            yield name, TenancyInput("alter", before, tenant)
        case Rename(name=name, new_name=new_name):
            yield name, TenancyInput("leave", before)
            yield new_name, TenancyInput("enter", tenant)
        case Delete(name=name):
            yield name, TenancyInput("leave", tenant)
        case Get(name=name) | Look(name=name):
            yield name, TenancyInput("at", tenant)


def tenancy_of(name: str, operation: CatalogOperation) -> TenancyInput | None:
    """The statement of `operation` about `name`, if it makes one."""
    for about, input_ in tenancies(operation):
        if about == name:
            return input_
    answer = answer_of(operation)
    if isinstance(operation.input, ListTables) and answer is not None and is_plain_list(answer):
        listed = {entry[0] for entry in answer.listing}
        return None if name in listed else TenancyInput("absent")
    return None


# --- what a table was at each version ---------------------------------------------------------

# facts: ("name", v, name), ("columns", v, columns), ("steps", v, steps)
ShapeFact = tuple[str, int, Any]
ShapeInput = tuple[ShapeFact, ...]


class Shape(Model[frozenset[ShapeFact], ShapeInput, bool]):
    """State: all facts so far. Known steps derive the columns of the next version."""

    def init(self) -> frozenset[ShapeFact]:
        """No facts."""
        return frozenset()

    def step(
        self, state: frozenset[ShapeFact], input_: ShapeInput, output: bool | Unknown, /
    ) -> tuple[bool, frozenset[ShapeFact]]:
        """A step is legal while all facts are consistent."""
        del output
        facts = state | set(input_)
        by_version: dict[tuple[str, int], Any] = {}
        for kind, version, value in sorted(facts):
            if kind == "never" or by_version.setdefault((kind, version), value) != value:
                return False, state
        for kind, version in sorted(by_version):
            before = by_version.get(("columns", version - 1))
            if kind == "steps" and before is not None:
                after = apply_steps(before, by_version[kind, version])
                if after is None or by_version.setdefault(("columns", version), after) != after:
                    return False, state
        return True, facts


def shape_of(table: str, operation: CatalogOperation) -> ShapeInput:
    """The statement of `operation` about the name and the columns of `table`."""
    call, answer = operation.input, answer_of(operation)
    if answer is None or answer.result != "ok":
        return ()
    if isinstance(call, ListTables):
        return tuple(
            ("name", version, name)
            for name, ident, version in answer.listing
            if ident == table and version is not None
        )
    if answer.table_id != table:
        return ()
    if isinstance(call, Create):
        return ("name", 0, call.name), ("columns", 0, call.columns)
    version = answer.version
    if version is None:
        return ()
    match call:
        case Alter(name=name, steps=steps):
            return ("name", version - 1, name), ("name", version, name), ("steps", version, steps)
        case Rename(name=name, new_name=new):
            return ("name", version - 1, name), ("name", version, new), ("steps", version, ())
        case Get(name=name):
            return ("name", version, name), *_columns_of(answer, version)
        case _:
            return (("name", version, call.name),)


def _columns_of(answer: Answer, version: int) -> tuple[ShapeFact, ...]:
    if answer.columns is None:
        return ()
    columns: Columns = answer.columns
    applied = version if answer.applied is None else answer.applied
    if applied > version:
        return (("never", applied, "applied before it was made"),)
    return (("columns", applied, columns),)


# --- ids and nonces ---------------------------------------------------------------------------


class Pairing(Model[frozenset[tuple[str, str]], tuple[tuple[str, str], ...], bool]):
    """State: the (table id, nonce) pairs seen so far. Ids and nonces match one to one."""

    def init(self) -> frozenset[tuple[str, str]]:
        """No pairs."""
        return frozenset()

    def step(
        self,
        state: frozenset[tuple[str, str]],
        input_: Sequence[tuple[str, str]],
        output: bool | Unknown,
        /,
    ) -> tuple[bool, frozenset[tuple[str, str]]]:
        """A step is legal while the pairs are one to one."""
        del output
        pairs = state | set(input_)
        ids = {ident for ident, _ in pairs}
        nonces = {nonce for _, nonce in pairs}
        return len(ids) == len(nonces) == len(pairs), pairs
