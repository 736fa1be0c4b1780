"""The permits of a run's profile, for single answers and rows (`harness.permits`).

The history alone decides whether a permit applies. An answer is stale only compared with what a
later term acknowledged, and a power cut takes back only changes from before the cut.
"""

from __future__ import annotations

from typing import Final

from checkers.catalog.permits import creates_by_name
from checkers.verdict.findings import Findings
from checkers.verdict.invariants import CATALOG
from harness.ops import History, Pair
from harness.permits import DDL_TWICE, DIRTY_CREATE, LOST_AFTER_POWER_CUT, STALE_READ, permits_of
from harness.timeline import power_cuts
from harness.vocabularies import fields_of

MUTATION_ATTEMPTS: Final = 1
"""The permit for a change that was sent more than once and may have acted twice."""


class Permissions:
    """The permits of one history."""

    def __init__(self, history: History) -> None:
        """Collect the facts of the history on which permits depend."""
        self.permits = permits_of(history)
        self._cuts = power_cuts(history) if LOST_AFTER_POWER_CUT in self.permits else []
        self._leaders = history.leaders() if self.permits else ()
        self._creates = creates_by_name(history) if DIRTY_CREATE in self.permits else {}

    def later(self, pair: Pair, other: Pair) -> bool:
        """Whether another node than that of `pair` gave the answer `other` in a later term.

        A leader that does not know yet that it was deposed may not have this answer.
        """
        if STALE_READ not in self.permits or pair.completion is None or other.completion is None:
            return False
        term, other_term = (fields_of(each.completion).get("term") for each in (pair, other))
        if not isinstance(term, int) or not isinstance(other_term, int):
            return False
        return other_term > term and pair.completion.node != other.completion.node

    def superseded(self, pair: Pair) -> str | None:
        """The permit, if another leader had followed the answering node by then."""
        done = pair.completion
        if STALE_READ not in self.permits or done is None or done.node is None:
            return None
        led = [op.value for op in self._leaders if op.index < done.index]
        if not led or led[-1].get("node") == done.node:
            return None
        term = fields_of(done).get("term")
        return None if isinstance(term, int) and term >= led[-1].get("term", 0) else STALE_READ

    def lost(self, pair: Pair) -> str | None:
        """The permit, if the power was cut after this operation was invoked.

        An answer may still arrive after the power of its node was cut.
        """
        asked = pair.invoke.index
        return LOST_AFTER_POWER_CUT if any(op.index > asked for op in self._cuts) else None

    def lost_before(self, index: float) -> str | None:
        """The permit, if the power was cut before the op with this index."""
        return LOST_AFTER_POWER_CUT if any(op.index < index for op in self._cuts) else None

    def lost_by(self, time_ns: float) -> str | None:
        """The permit, if the power was cut before this time."""
        return LOST_AFTER_POWER_CUT if any(op.time <= time_ns for op in self._cuts) else None

    def dirty(self, pair: Pair, name: str) -> str | None:
        """The permit, if a create still under way may have made the shown table, and may fail."""
        done = pair.completion
        if done is None:
            return None
        begun = (span for _, span in self._creates.get(name, ()))
        under_way = any(begin < done.index and end > pair.invoke.index for begin, end in begun)
        return DIRTY_CREATE if under_way else None

    def twice(self, pair: Pair) -> str | None:
        """The permit, if the change was sent more than once."""
        sent = 0 if pair.completion is None else len(pair.completion.attempts)
        return DDL_TWICE if DDL_TWICE in self.permits and sent > MUTATION_ATTEMPTS else None


class CatalogFindings(Findings):
    """Findings about a catalog; `may` has the permits of the history."""

    def __init__(self, checker: str, history: History) -> None:
        self.may = Permissions(history)
        super().__init__(checker, self.may.permits, CATALOG)
