"""Refutes a history in near-linear time, by a few operations that contradict each other.

"Before" means that one operation had returned before another operation was called. Every pass
(`lifetimes`, `shape`, `tenancy`) is sound: a history that it refutes is invalid. A pass may miss
contradictions.

A pass turns operations into statements about one table or one name, for a small model. If the
history is linearizable, its statements have a legal order in the model, and so does every subset of
the statements. So operations of unknown outcome can be left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from checkers.catalog.models.types import (
    CatalogOperation,
    ListTables,
    is_plain_list,
    shown_by,
)
from checkers.catalog.passes.contradiction import Contradiction, Listing, end_of
from checkers.catalog.passes.lifetimes import broken_lifetimes, torn_lists
from checkers.catalog.passes.shape import broken_shapes
from checkers.catalog.passes.tenancy import broken_tenancies
from checkers.linearizability import (
    UNKNOWN,
    Model,
    Operation,
    Projection,
    Result,
    Unknown,
    check_operations,
)


class Pairing(Model[frozenset[tuple[str, str]], tuple[tuple[str, str], ...], bool]):
    """The model of a one-to-one match between table ids and nonces.

    The state is the set of the (table id, nonce) pairs that answers have shown.
    """

    def init(self) -> frozenset[tuple[str, str]]:
        return frozenset()

    def step(
        self,
        state: frozenset[tuple[str, str]],
        input_: Sequence[tuple[str, str]],
        output: bool | Unknown,
        /,
    ) -> tuple[bool, frozenset[tuple[str, str]]]:
        del output
        pairs = state | set(input_)
        ids = {ident for ident, _ in pairs}
        nonces = {nonce for _, nonce in pairs}
        return len(ids) == len(nonces) == len(pairs), pairs


def refute(operations: Sequence[CatalogOperation]) -> Contradiction | None:
    """Return the contradiction whose last operation returned first, minimized.

    Returns `None` if no pass finds a contradiction, which does not prove the history valid.
    """
    earliest = min(
        contradictions(operations),
        key=lambda c: (max(map(end_of, c.part.operations)), len(c.core)),
        default=None,
    )
    return None if earliest is None else _minimal(earliest)


def contradictions(operations: Sequence[CatalogOperation]) -> Iterator[Contradiction]:
    """Yield the contradictions that each pass finds, at most a few for each table and name."""
    answered: list[CatalogOperation] = []
    listings: list[Listing] = []
    tables: dict[str, list[CatalogOperation]] = {}
    for operation in operations:
        answer = operation.said
        if answer is UNKNOWN:
            continue
        answered.append(operation)
        for table in shown_by(operation):
            tables.setdefault(table, []).append(operation)
        if isinstance(operation.input, ListTables) and is_plain_list(answer):
            listings.append((operation, answer))
    listings.sort(key=lambda listing: (listing[0].call, listing[0].id))
    for table in sorted(tables):
        yield from broken_lifetimes(table, tables[table])
        yield from broken_shapes(table, tables[table])
    yield from torn_lists(listings, tables)
    yield from broken_tenancies(answered, listings)


def conflict(pairs: Sequence[tuple[int, tuple[str, str]]], rule: str) -> Contradiction:
    """Make a contradiction between answers whose table ids and nonces do not match one to one.

    `pairs` has (operation id, (table id, nonce)) for each of these answers.
    """
    about = tuple(Operation(0, (pair,), 0, True, 0, number) for number, pair in pairs)
    return Contradiction(
        tuple(number for number, _ in pairs), rule, Projection("ids and nonces", Pairing(), about)
    )


def _minimal(contradiction: Contradiction) -> Contradiction:
    """Remove operations that the contradiction does not need: first many at once, then fewer."""
    kept = list(contradiction.part.operations)
    size = max(1, len(kept) // 2)
    while True:
        ids = [operation.id for operation in kept]
        for chunk in [set(ids[start : start + size]) for start in range(0, len(ids), size)]:
            rest = [operation for operation in kept if operation.id not in chunk]
            if rest:
                outcome = check_operations(contradiction.part.model, rest, explained=False)
                kept = rest if outcome.result is Result.ILLEGAL else kept
        if size == 1:
            break
        size = max(1, min(size, len(kept)) // 2)
    part = replace(contradiction.part, operations=tuple(kept))
    return replace(contradiction, core=tuple(operation.id for operation in kept), part=part)
