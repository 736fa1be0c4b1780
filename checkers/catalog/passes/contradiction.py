"""A contradiction among a few operations, made of their statements to one view."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from checkers.catalog.models.types import (
    Answer,
    CatalogOperation,
    ListTables,
    answer_of,
    is_plain_list,
)
from checkers.catalog.models.views import saying
from checkers.linearizability import Model, Operation, Projection


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Operations that cannot all have answered as they did; the first is the one to blame.

    `part` is the view in which the operations contradict each other, and contains only these.
    `rule` says in one sentence which rule they break.
    """

    core: tuple[int, ...]
    rule: str
    part: Projection[Any, Any, Any]


def contradiction_of(
    view: str, model: Model[Any, Any, Any], about: Sequence[tuple[CatalogOperation, Any]], rule: str
) -> Contradiction:
    """A contradiction that blames the first operation; the others are sorted by their returns."""
    first, *others = about
    others.sort(key=lambda pair: (end_of(pair[0]), pair[0].id))
    part = tuple(
        saying(o, input_) for o, input_ in {pair[0].id: pair for pair in (first, *others)}.values()
    )
    return Contradiction(tuple(o.id for o in part), rule, Projection(view, model, part))


def end_of(operation: Operation[Any, Any]) -> float:
    """The return of an operation that returned."""
    assert operation.return_time is not None, "unknown operations say nothing here"
    return operation.return_time


def listings(known: Iterable[CatalogOperation]) -> list[tuple[CatalogOperation, Answer]]:
    """The lists that name every table by an id, sorted by their calls."""
    looks = []
    for operation in known:
        answer = answer_of(operation)
        if isinstance(operation.input, ListTables) and answer and is_plain_list(answer):
            looks.append((operation, answer))
    return sorted(looks, key=lambda pair: (pair[0].call, pair[0].id))
