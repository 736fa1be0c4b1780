"""Derives operations on single rows, and the writers of cells, from a history of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from checkers.linearizability import UNKNOWN, Operation, Unknown
from checkers.linearizability.partial import Fact
from checkers.rows.model import Row, RowInput, RowOutput, RowStep
from checkers.rows.orders import RowOperation
from checkers.rows.reading import Look, Part, RowsHistory, Written
from harness.ops import Pair

_NOBODY: Final = Fact(None, None)


@dataclass(slots=True)
class RowProblem:
    """Operations on single rows for a linearizability search, numbered by position.

    For each operation, `pairs` has its pair of ops in the history, and `facts` has the node and
    term of its answer.
    """

    operations: list[RowOperation]
    pairs: list[Pair]
    facts: list[Fact]
    looks: dict[int, Pair] = field(default_factory=dict)
    """Maps the number of a write to the read or scan that saw the row directly after the write."""

    def add(
        self,
        pair: Pair,
        given: RowInput,
        output: RowOutput | Unknown,
        times: tuple[float, float | None],
        timestamp: int | None,
        fact: Fact = _NOBODY,
    ) -> None:
        process = pair.invoke.process
        assert isinstance(process, int), "only clients invoke operations"
        self.operations.append(
            Operation(process, given, times[0], output, times[1], len(self.pairs), timestamp)
        )
        self.pairs.append(pair)
        self.facts.append(fact)

    def of_row(self, place: tuple[str, str]) -> list[RowOperation]:
        """Return the operations on the row at `place`, in the order of their calls."""
        row = [o for o in self.operations if o.input.place == place]
        return sorted(row, key=lambda o: (o.call, o.id))

    def without(self, place: tuple[str, str]) -> RowProblem:
        left = RowProblem([], [], [])
        for operation, pair, fact in zip(self.operations, self.pairs, self.facts, strict=True):
            if operation.input.place != place:
                number = len(left.pairs)
                left.operations.append(replace(operation, id=number))
                if operation.id in self.looks:
                    left.looks[number] = self.looks[operation.id]
                left.pairs.append(pair)
                left.facts.append(fact)
        return left


def by_row(part: Part) -> Iterator[tuple[RowInput, RowOutput | Unknown]]:
    """Yield, for each row of `part`, the steps on this row and the results of these steps."""
    steps: dict[str, list[RowStep]] = {}
    results: dict[str, list[str]] = {}
    for row in part.rows:
        steps.setdefault(row.key, []).append(row.step)
        results.setdefault(row.key, []).append(row.result or "")
    for key, taken in steps.items():
        input_ = RowInput((part.table, key), tuple(taken))
        yield input_, tuple(results[key]) if part.is_known else UNKNOWN


def end_of(pair: Pair) -> int:
    """Return the index of the answer to an operation that was answered."""
    assert pair.completion is not None, "a known part was answered"
    return pair.completion.index


def floors(history: RowsHistory) -> Mapping[int, int]:
    """Map each write's index to the highest timestamp that its process had received by then."""
    events: list[tuple[int, int, Any, int | None]] = [
        (part.pair.invoke.index, 1, part.pair.invoke.process, None) for part in history.parts
    ]
    items: list[Part | Look] = [*history.parts, *history.looks]
    events += [
        (end_of(item.pair), 0, item.pair.invoke.process, item.timestamp)
        for item in items
        if item.timestamp is not None
    ]
    highest: dict[Any, int] = {}
    floor_of: dict[int, int] = {}
    for index, _, process, timestamp in sorted(events, key=lambda event: event[:2]):
        if timestamp is None:
            floor_of[index] = highest.get(process, 0)
        else:
            highest[process] = max(highest.get(process, 0), timestamp)
    return floor_of


def by_invocation(details: Mapping[str, Any], problem: RowProblem) -> dict[str, Any]:
    """Replace operation numbers of `problem` in result details with indices of the history."""

    def named(number: int) -> int:
        return problem.pairs[number].invoke.index

    renumbered = dict(details)
    if "failure" in renumbered:
        failure = dict(renumbered["failure"])
        for field in ("operation", "previous"):
            failure[field] = None if failure[field] is None else named(failure[field])
        failure["core"] = [named(number) for number in failure["core"]]
        failure["survivors"] = [
            {
                **survivor,
                **{f: [named(n) for n in survivor[f]] for f in ("last", "pending", "unknown_used")},
            }
            for survivor in failure["survivors"]
        ]
        renumbered["failure"] = failure
    if "proof" in renumbered:
        proof = dict(renumbered["proof"])
        if "core" in proof:
            proof["core"] = [named(number) for number in proof["core"]]
        if "orders" in proof:
            proof["orders"] = [[named(number) for number in order] for order in proof["orders"]]
        if "never" in proof:
            proof["never"] = [named(number) for number in proof["never"]]
        renumbered["proof"] = proof
    return renumbered


Cell = tuple[str, str, str]
"""A table, a key and a column."""


class Writers:
    """An index of the writes of every cell by value. It includes writes that were refused."""

    def __init__(self, read: RowsHistory) -> None:
        self._by: dict[tuple[Cell, Any], list[tuple[Part, Written]]] = {}
        for part in read.parts:
            for row in part.rows:
                for column, value in row.step.cells:
                    if value is not None:
                        cell = (part.table, row.key, column)
                        self._by.setdefault((cell, value), []).append((part, row))

    def of(self, cell: Cell, value: Any) -> list[tuple[Part, Written]]:
        """Return all writes of `value` to `cell`, including refused writes."""
        return self._by.get((cell, value), [])

    def only(self, cell: Cell, value: Any) -> tuple[Part, Written] | None:
        """Return the only write of `value` to `cell`; `None` if there is no write or several."""
        writers = self.of(cell, value)
        return writers[0] if len(writers) == 1 else None

    def repeated(self) -> frozenset[Cell]:
        """Return the cells to which the same value was written more than once.

        Refused writes do not count.
        """
        return frozenset(
            cell
            for (cell, _), writers in self._by.items()
            if sum(row.result in {"ok", None} for _, row in writers) > 1
        )


def cells_of(table: str, rows: Mapping[str, Row]) -> Iterator[tuple[Cell, Any]]:
    """Yield all cells of `rows` of `table`, with their values."""
    for key, row in rows.items():
        for column, value in row or ():
            yield (table, key, column), value
