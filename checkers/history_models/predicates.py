"""closed-predicate: transactional isolation where transactions read by predicates, too.

`checkers.elle` is imported where it is used: it brings numpy, and listing plug-ins must stay quick.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from checkers._elle_certificate import certified
from checkers.history_models.transactions import (
    DEFAULT_MODELS,
    LABEL_CHARS_MAX,
    details_of,
    refuse_version_orders,
    sentences,
)
from harness.ops import CheckResult, Counterexample, History, ModelSettings, Op, Verdict

if TYPE_CHECKING:
    from checkers.elle.predicate_columns import PredicateColumns

__all__ = ["ClosedPredicate"]


@dataclass(frozen=True, slots=True)
class _Check:
    """Transactions, ready to be checked."""

    name: str
    history: History
    columns: PredicateColumns
    settings: ModelSettings

    @property
    def operations(self) -> int:
        """How many transactions will be checked; declaring the universe is none."""
        return len(self.columns)

    def check(
        self, *, time_limit_s: float, draw: bool
    ) -> tuple[CheckResult, Counterexample | None]:
        """Judge; see `harness.plugins.PreparedCheck`."""
        from checkers.elle import check_closed_predicate

        columns = self.columns
        found = check_closed_predicate(
            columns,
            consistency_models=self.settings.consistency_models or DEFAULT_MODELS,
            time_limit_s=time_limit_s,
        )
        result, proof = certified(found, self.history, self.name)
        cases = [case for shown in result.anomalies.values() for case in shown]
        blamed = tuple(dict.fromkeys(index for case in cases for index in case.operations))
        text = sentences(result)
        details = details_of(result, self.operations)
        if proof is not None:
            text.append(f"Certificate: {proof['text']}.")
            details["proof"] = proof
        judged = CheckResult(self.name, result.verdict, result.reason, tuple(text), blamed, details)
        if not draw or result.verdict is not Verdict.INVALID:
            return judged, None
        labels = {call: self._label(txn) for txn, call in enumerate(columns.index.tolist())}
        return judged, Counterexample(None, blamed, (), labels)

    def _label(self, txn: int) -> str:
        text = self.columns.render_txn(txn)
        return text if len(text) <= LABEL_CHARS_MAX else f"{text[: LABEL_CHARS_MAX - 3]}..."


class ClosedPredicate:
    """Transactions over a declared universe that write, and read by key or predicate."""

    api_version = 1
    name = "closed-predicate"
    doc = "transactions that read by predicates in a known universe: Elle's anomalies and models"
    kind = "elle"

    def prepare(self, ops: Iterable[Op], settings: ModelSettings) -> _Check:
        """See `HistoryModel`."""
        from checkers.elle.models import check_names
        from checkers.elle.predicate_columns import predicate_columns

        refuse_version_orders(settings, "closed-predicate assumes nothing of the kind")
        check_names(settings.consistency_models, ())
        history = ops if isinstance(ops, History) else History(ops)
        return _Check(self.name, history, predicate_columns(history), settings)
