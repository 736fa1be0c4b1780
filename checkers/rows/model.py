"""The model of rows that are inserted, upserted, updated, deleted and read.

A row is absent (`None`), or it is a sequence of cells (column, value) in the order of columns,
without null cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from checkers.linearizability.model import UNKNOWN, Model, Operation, Unknown

Cells = tuple[tuple[str, Any], ...]
Row = Cells | None


class RowStep(NamedTuple):
    """One change of a row by a write; `kind` is insert, upsert, update or delete."""

    kind: str
    cells: tuple[tuple[str, Any], ...] = ()


class Seen(NamedTuple):
    """The row that a read saw."""

    row: Row


class RowInput(NamedTuple):
    """The input of an operation on the row at `place` (table, key): the steps of a write.

    A read has no steps. `then` is the row that a read or scan saw directly after the steps, before
    any other operation.
    """

    place: tuple[str, str]
    steps: tuple[RowStep, ...] = ()
    then: Seen | None = None


RowOutput = Seen | tuple[str, ...]
"""The output of an operation on a row.

For a write, this is "ok", "already-present" or "not-found" for each step. For a read, it is the row
that the read saw.
"""


def _after(row: Row, step: RowStep) -> tuple[str, Row]:
    if step.kind == "insert" and row is not None:
        return "already-present", row
    if step.kind in {"update", "delete"} and row is None:
        return "not-found", row
    if step.kind == "delete":
        return "ok", None
    cells = {**dict(row or ()), **dict(step.cells)}
    return "ok", tuple(sorted((c, value) for c, value in cells.items() if value is not None))


class Rows(Model[Row, RowInput, RowOutput]):
    """The model of rows for a linearizability search. All rows are absent at first.

    Each row is a separate partition, so a state describes a single row.
    """

    def init(self) -> Row:
        return None

    def step(
        self, state: Row, input_: RowInput, output: RowOutput | Unknown, /
    ) -> tuple[bool, Row]:
        """Apply all steps of an operation. The answer must agree with the results and the row."""
        if not input_.steps:
            return output is UNKNOWN or output == Seen(state), state
        row, results = state, []
        for step in input_.steps:
            result, row = _after(row, step)
            results.append(result)
        if output is UNKNOWN:
            return True, row
        legal = tuple(results) == output and input_.then in {None, Seen(row)}
        return legal, row if legal else state

    def read_only(self, input_: RowInput, output: RowOutput | Unknown, /) -> bool:
        """Return whether an operation is a read, or a write whose steps were all refused."""
        if not input_.steps:
            return True
        return output is not UNKNOWN and "ok" not in output

    def observes(self, input_: RowInput, output: RowOutput | Unknown, /) -> bool:
        """Whether the output depends on the row. The output of a write of only upserts does not.

        But if a read follows the upserts directly (`then`), the output does.
        """
        del output
        only_upserts = input_.steps and all(step.kind == "upsert" for step in input_.steps)
        return not only_upserts or input_.then is not None

    def footprint(self, input_: RowInput, /) -> frozenset[str]:
        return frozenset((repr(input_.place),))

    def partition(
        self, operations: Sequence[Operation[RowInput, RowOutput]], /
    ) -> Sequence[Sequence[Operation[RowInput, RowOutput]]]:
        parts: dict[tuple[str, str], list[Operation[RowInput, RowOutput]]] = {}
        for operation in operations:
            parts.setdefault(operation.input.place, []).append(operation)
        return [parts[place] for place in sorted(parts)]

    def describe_operation(self, input_: RowInput, output: RowOutput | Unknown, /) -> str:
        place = f"{input_.place[1]!r} of {input_.place[0]!r}"
        if not input_.steps:
            seen = "" if not isinstance(output, Seen) else f": {self.describe_state(output.row)}"
            return f"read {place}{seen}"
        steps = ", ".join(f"{kind} {_words(cells)}".strip() for kind, cells in input_.steps)
        if output is UNKNOWN or isinstance(output, Seen):
            return f"{steps} {place} (unknown)"
        return f"{steps} {place}: {', '.join(output)}"

    def describe_state(self, state: Row, /) -> str:
        return "the row is absent" if state is None else f"the row has {_words(state) or 'no cell'}"


def _words(cells: Cells) -> str:
    return ", ".join(f"{column} = {value!r}" for column, value in cells)
