"""A contradiction among the statements of a few operations about one table or name."""

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
"""A list operation and its answer, which shows an id for every table."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Operations whose answers cannot all be right; the first operation of `core` is to blame.

    `part` has only these operations, as inputs of the model in which they contradict each other.
    `rule` is a sentence about the rule that they break.
    """

    core: tuple[int, ...]
    rule: str
    part: Projection[Any, Any, Any]


def contradiction_of(
    view: str, model: Model[Any, Any, Any], about: Sequence[tuple[CatalogOperation, Any]], rule: str
) -> Contradiction:
    """Make a contradiction that blames the first operation of `about`.

    `about` has operations with their statements. The operations after the first are sorted by
    return.
    """
    first, *others = about
    others.sort(key=lambda pair: (end_of(pair[0]), pair[0].id))
    part = tuple(
        saying(o, input_) for o, input_ in {pair[0].id: pair for pair in (first, *others)}.values()
    )
    return Contradiction(tuple(o.id for o in part), rule, Projection(view, model, part))


def end_of(operation: Operation[Any, Any]) -> float:
    """Return the return time of an operation that returned."""
    assert operation.return_time is not None, "passes ignore operations of unknown outcome"
    return operation.return_time
