"""Proves a history linearizable in near-linear time, by a replay in the order of revisions.

If every answer shows the catalog's revision, no search is needed: `replay` sorts the operations by
revision and replays them once through the model. An operation whose answer was lost has no
revision. If the next answer is illegal, `replay` tries to make it legal by inserting one or two
such operations before it.

`certify` verifies the order like every order. If `replay` returns `None`, nothing is proven, and
the search decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any, Final

from checkers.catalog.models.types import (
    Alter,
    Answer,
    CatalogInput,
    CatalogOperation,
    Create,
    Delete,
    Rename,
)
from checkers.linearizability import UNKNOWN, CheckOutcome, Model, Result
from harness.ops import Pair
from harness.vocabularies import fields_of

CHANGES: Final = (Create, Alter, Rename, Delete)
TRIALS_MAX: Final = 20_000
"""The maximum number of model steps in trials of lost operations."""
CANDIDATES_MAX: Final = 40
"""The maximum number of lost operations to try before one answer, in the order of their calls."""


def replayed(
    model: Model[Any, CatalogInput, Answer],
    operations: Sequence[CatalogOperation],
    pairs: Mapping[int, Pair],
) -> CheckOutcome | None:
    """Return a valid outcome if a replay finds a legal order; otherwise `None`.

    The replay uses the revisions in the answers of `pairs`.
    """
    revisions: dict[int, int] = {}
    for index, pair in pairs.items():
        revision = fields_of(pair.completion).get("revision")
        if isinstance(revision, int):
            revisions[index] = revision
    order = replay(model, operations, revisions)
    if order is None:
        return None
    returns = sum(not operation.is_unknown for operation in operations)
    return CheckOutcome(
        result=Result.OK,
        reason="a legal order exists",
        witness=(order,) if order else (),
        decided_by="a replay in the order of revisions",
        steps=len(order),
        configurations=0,
        progress=returns,
        returns=returns,
    )


def replay(
    model: Model[Any, CatalogInput, Answer],
    operations: Sequence[CatalogOperation],
    revisions: Mapping[int, int],
) -> tuple[int, ...] | None:
    """Return the operation ids in a legal order that respects real time; `None` if none is found.

    `revisions` maps operation ids to the revisions in their answers. An operation that returned
    without a revision may come anywhere in the order.
    """
    dated: list[tuple[int, bool, float, int, CatalogOperation]] = []
    lost: list[CatalogOperation] = []
    for operation in operations:
        revision = revisions.get(operation.id, -1)
        if operation.is_unknown or revision < 0:
            lost.append(operation)
            continue
        answer = operation.said
        looks = not isinstance(operation.input, CHANGES) or (
            answer is not UNKNOWN and answer.result != "ok"
        )
        dated.append((revision, looks, operation.call, operation.id, operation))
    if not dated:
        return None
    dated.sort(key=lambda entry: entry[:4])
    lost.sort(key=lambda operation: (operation.call, operation.id))
    walk = _Walk(model, lost)
    for *_, operation in dated:
        if not walk.take(operation):
            return None
    return walk.order_with_leftovers()


class _Walk:
    """A replay in progress, with the state, the order so far, and the unused lost operations."""

    def __init__(
        self, model: Model[Any, CatalogInput, Answer], lost: list[CatalogOperation]
    ) -> None:
        self._model = model
        self._lost = lost
        self._state: Any = model.init()
        self._order: list[int] = []
        self._latest_call = -math.inf
        self._trials = 0

    def take(self, operation: CatalogOperation) -> bool:
        """Add `operation` to the order, after lost operations if it is illegal without them.

        Returns `False` if the operation stays illegal.
        """
        for before in self._attempts(operation):
            state, latest, legal = self._state, self._latest_call, True
            for each in (*before, operation):
                legal, state, latest = self._step(each, state, latest)
                if not legal:
                    break
            if legal:
                self._state, self._latest_call = state, latest
                self._order.extend(each.id for each in (*before, operation))
                for each in before:
                    self._lost.remove(each)
                return True
        return False

    def order_with_leftovers(self) -> tuple[int, ...] | None:
        """Return the order after adding all operations that returned but have no revision.

        Returns `None` if one of these operations is illegal.
        """
        for operation in [each for each in self._lost if not each.is_unknown]:
            legal, state, latest = self._step(operation, self._state, self._latest_call)
            if not legal:
                return None
            self._state, self._latest_call = state, latest
            self._order.append(operation.id)
        return tuple(self._order)

    def _attempts(self, operation: CatalogOperation) -> Iterator[tuple[CatalogOperation, ...]]:
        """Yield what to insert before `operation`: nothing, then each lost operation, then each
        two.
        """
        yield ()
        names = self._model.footprint(operation.input)
        assert operation.return_time is not None, "only answered operations have a revision"
        candidates: list[CatalogOperation] = []
        for each in self._lost:
            if each.call > operation.return_time or len(candidates) == CANDIDATES_MAX:
                break
            touched = self._model.footprint(each.input)
            if names is None or touched is None or names & touched:
                candidates.append(each)
        for count in (1, 2):
            for chosen in permutations(candidates, count):
                self._trials += count + 1
                if self._trials > TRIALS_MAX:
                    return
                yield chosen

    def _step(
        self, operation: CatalogOperation, state: Any, latest_call: float
    ) -> tuple[bool, Any, float]:
        latest_call = max(latest_call, operation.call)
        if operation.return_time is not None and operation.return_time < latest_call:
            return False, state, latest_call
        legal, after = self._model.step(state, operation.input, operation.said)
        return legal, after, latest_call
