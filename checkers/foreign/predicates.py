"""closed-predicate: transactional isolation where transactions read by predicates, too."""

from __future__ import annotations

from functools import partial

from checkers.foreign.transactions import LABEL_CHARS_MAX, ElleCheck, ElleModel
from harness.errors import clipped
from harness.ops import History, ModelSettings


class ClosedPredicate(ElleModel):
    """Transactions over a declared universe that write, and read by key or predicate."""

    name = "closed-predicate"
    doc = "transactions that read by predicates in a known universe: Elle's anomalies and models"
    unordered = "closed-predicate assumes nothing of the kind"

    def _understood(self, history: History, settings: ModelSettings) -> ElleCheck:
        from checkers.elle import decide_closed_predicate
        from checkers.elle.infer.predicate_columns import predicate_columns

        columns = predicate_columns(history)

        def labels() -> dict[int, str]:
            texts = (columns.render_txn(txn) for txn in range(len(columns)))
            every = (clipped(text, LABEL_CHARS_MAX) for text in texts)
            return dict(zip(columns.index.tolist(), every, strict=True))

        # Declaring the universe is no transaction.
        judge = partial(decide_closed_predicate, columns)
        return ElleCheck(self.name, history, len(columns), settings, judge, labels)
