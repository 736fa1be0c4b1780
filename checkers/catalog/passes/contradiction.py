"""A contradiction among a few operations, made of their statements to one view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from checkers.catalog.models.types import (
    Answer,
    CatalogOperation,
)
from checkers.catalog.models.views import saying
from checkers.linearizability import Model, Operation, Projection

Listing = tuple[CatalogOperation, Answer]
"""A list that names every table by an id. Passes get the lists in the order of their calls."""


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
