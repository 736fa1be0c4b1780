"""Decides which permits of a run's profile (`harness.permits`) apply to an answer or a row.

The history alone decides whether a permit applies. The permit `stale-read` applies to an answer
only if another node led or answered in a later term. The permit `lost-after-power-cut` applies only
to changes before a power cut.
"""

from __future__ import annotations

from typing import Final

from checkers.catalog.permits import creates_by_name
from checkers.verdict.findings import Findings
from checkers.verdict.invariants import CATALOG
from harness.ops import History, OpType, Pair
from harness.permits import (
    DDL_TWICE,
    DELETED_FIRST,
    DIRTY_CREATE,
    HALF_MADE,
    LOST_AFTER_POWER_CUT,
    STALE_READ,
    lossy_cuts,
    permits_of,
)
from harness.vocabularies import fields_of

MUTATION_ATTEMPTS: Final = 1
"""A change that took more attempts than this may have taken effect twice (permit `ddl-twice`)."""


class Permissions:
    """The permits of one history, with the facts that decide whether a permit applies."""

    def __init__(self, history: History) -> None:
        """Collect the facts of the history on which permits depend."""
        self.permits = permits_of(history)
        self._cuts = lossy_cuts(history, self.permits)
        self._leaders = history.leaders() if self.permits else ()
        self._creates = creates_by_name(history) if DIRTY_CREATE in self.permits else {}
        deletes = history.pairs if DELETED_FIRST in self.permits else ()
        self._failed_deletes = [
            pair for pair in deletes if pair.invoke.f == "delete" and pair.type is not OpType.OK
        ]

    def later(self, pair: Pair, other: Pair) -> bool:
        """Whether `stale-read` permits `pair` to miss a state that `other` produced or showed.

        The permit applies if another node answered `other` in a later term. The node that answered
        `pair` may not know yet that it was deposed.
        """
        if STALE_READ not in self.permits or pair.completion is None or other.completion is None:
            return False
        term, other_term = (fields_of(each.completion).get("term") for each in (pair, other))
        if not isinstance(term, int) or not isinstance(other_term, int):
            return False
        return other_term > term and pair.completion.node != other.completion.node

    def superseded(self, pair: Pair) -> str | None:
        """Return `STALE_READ` if the answering node was no longer the leader when it answered."""
        done = pair.completion
        if STALE_READ not in self.permits or done is None or done.node is None:
            return None
        led = [op.value for op in self._leaders if op.index < done.index]
        if not led or led[-1].get("node") == done.node:
            return None
        term = fields_of(done).get("term")
        return None if isinstance(term, int) and term >= led[-1].get("term", 0) else STALE_READ

    def lost(self, pair: Pair) -> str | None:
        """Return `LOST_AFTER_POWER_CUT` if the power was cut after `pair` was invoked.

        The cut need not come after the answer, since an answer may still arrive after a power cut.
        """
        asked = pair.invoke.index
        return LOST_AFTER_POWER_CUT if any(op.index > asked for op in self._cuts) else None

    def lost_before(self, index: float) -> str | None:
        """Return `LOST_AFTER_POWER_CUT` if the power was cut before the op with `index`."""
        return LOST_AFTER_POWER_CUT if any(op.index < index for op in self._cuts) else None

    def lost_by(self, time_ns: float) -> str | None:
        """Return `LOST_AFTER_POWER_CUT` if the power was cut at or before `time_ns`."""
        return LOST_AFTER_POWER_CUT if any(op.time <= time_ns for op in self._cuts) else None

    def half_made(self) -> str | None:
        """Return `HALF_MADE` if the profile permits tablets that run without a table."""
        return HALF_MADE if HALF_MADE in self.permits else None

    def deleted_first(self, table: str, time_ns: float) -> str | None:
        """Return `DELETED_FIRST` if a delete of `table` that did not succeed began by `time_ns`."""
        begun = (each.invoke for each in self._failed_deletes if each.invoke.time <= time_ns)
        return DELETED_FIRST if any(op.value["name"] == table for op in begun) else None

    def dirty(self, pair: Pair, name: str) -> str | None:
        """Return `DIRTY_CREATE` if a create of `name` was under way during `pair`."""
        done = pair.completion
        if done is None:
            return None
        begun = (span for _, span in self._creates.get(name, ()))
        under_way = any(begin < done.index and end > pair.invoke.index for begin, end in begun)
        return DIRTY_CREATE if under_way else None

    def twice(self, pair: Pair) -> str | None:
        """Return `DDL_TWICE` if the change was sent more than once."""
        sent = 0 if pair.completion is None else len(pair.completion.attempts)
        return DDL_TWICE if DDL_TWICE in self.permits and sent > MUTATION_ATTEMPTS else None


class CatalogFindings(Findings):
    """The findings of a catalog checker. `may` decides which permits apply."""

    def __init__(self, checker: str, history: History) -> None:
        self.may = Permissions(history)
        super().__init__(checker, self.may.permits, CATALOG)
