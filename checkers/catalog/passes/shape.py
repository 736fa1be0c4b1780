"""Finds contradictions about the names and columns of tables at each version.

Examples are a version with two names or two lists of columns, and columns that the steps of an
alter do not produce. The model `Shape` confirms these contradictions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from checkers.catalog.models.types import (
    Alter,
    Answer,
    CatalogOperation,
    Columns,
    Create,
    Get,
    ListTables,
    Rename,
    answer_of,
    apply_steps,
)
from checkers.catalog.passes.contradiction import Contradiction, contradiction_of
from checkers.linearizability import Model, Unknown

# a fact about version v of a table: ("name", v, name), ("columns", v, columns), ("steps", v, steps)
ShapeFact = tuple[str, int, Any]
ShapeInput = tuple[ShapeFact, ...]


class Shape(Model[frozenset[ShapeFact], ShapeInput, bool]):
    """The model of the names and columns of one table. Its state is the set of all facts so far.

    If the columns before an alter are known, its steps determine the columns after it.
    """

    def init(self) -> frozenset[ShapeFact]:
        return frozenset()

    def step(
        self, state: frozenset[ShapeFact], input_: ShapeInput, output: bool | Unknown, /
    ) -> tuple[bool, frozenset[ShapeFact]]:
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
    """Return the facts that `operation` shows about the name and the columns of `table`."""
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


def broken_shapes(table: str, shown: Sequence[CatalogOperation]) -> Iterator[Contradiction]:
    """Yield contradictions about names and columns among the operations that show `table`."""
    names: dict[int, tuple[str, CatalogOperation]] = {}
    columns: dict[int, tuple[Columns, tuple[CatalogOperation, ...]]] = {}
    steps: dict[int, tuple[Any, CatalogOperation]] = {}

    def clash(operations: Iterable[CatalogOperation], rule: str) -> Contradiction:
        about = [(operation, shape_of(table, operation)) for operation in operations]
        return contradiction_of(f"shape of table {table}", Shape(), about, rule)

    for operation in shown:
        for kind, version, value in shape_of(table, operation):
            if kind == "never":
                yield clash([operation], f"version {version} of table {table} was not made yet")
            elif kind == "name":
                name, first = names.setdefault(version, (value, operation))
                if name != value:
                    rule = f"version {version} of table {table} has one name"
                    yield clash([operation, first], rule)
                    return
            elif kind == "columns":
                list_, by = columns.setdefault(version, (value, (operation,)))
                if list_ != value:
                    rule = f"version {version} of table {table} has one list of columns"
                    yield clash([operation, *by], rule)
                    return
            else:
                steps.setdefault(version, (value, operation))
    for version in sorted(steps):
        before = columns.get(version - 1)
        if before is None:
            continue
        value, change = steps[version]
        after = apply_steps(before[0], value)
        because = (*before[1], change)
        shown_after = columns.get(version)
        if after is None:
            yield clash(
                because[::-1], f"version {version} of table {table} cannot follow the one before"
            )
            return
        if shown_after is None:
            columns[version] = (after, because)
        elif shown_after[0] != after:
            rule = f"the columns of version {version} of table {table} follow from those before"
            yield clash([*shown_after[1], *because], rule)
            return
